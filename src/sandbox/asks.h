// SPDX-License-Identifier: Apache-2.0
/* sandbox/asks - names that ask (`action: ask`), and what waits until they are granted.
 *
 * HOW IT WORKS
 * A grant is a rule that allows the name. Before there is one nothing leaves for it.
 * Where TCP goes through the relay, a look-up gets an address that stands for this name
 * alone (policy/plan.h), at once; what is dialled there is parked in the relay
 * (relay/relay_park.c), which looks the name up itself when it is granted. Where TCP
 * takes another way the query is parked (resolver/verdict.c), for no longer than clients
 * wait.
 *
 * Whatever is parked counts here, at most LIMIT_PARKED in a sandbox, and each is told as
 * an EVENT_ASK, which equal ones fold into. Each change of the plan judges it again; so
 * it ends by a grant, by a deny, by a dismissal, or when its time is over: refused.
 * Packets (UDP, a bare address) are refused and told the same way (sandbox/accounting.c).
 *
 * What was dismissed, a name or an address on a port, is refused at once when it comes
 * again, until a rule allows that port or the engine ends. Dismissals have a list of
 * their own, which the sandbox can't write to. */
#pragma once

#include "sandbox/sandbox.h"

enum {
	ASKS_QUERY_MS = 4000,	   /* that a query is parked: libcs ask again after 5 s */
	ASKS_KEEP_MS = 120 * 1000, /* an address stands for its name at least so long
				    * after it was given last; while all do there is none
				    * for a new name */
	ASKS_DISMISSED_MAX = 1024, /* of a sandbox; then the oldest may ask again */
};

#define ASKS_UNANSWERED "asked, and not answered"
#define ASKS_DISMISSED	"asked, and refused by who was asked"
#define ASKS_TOO_MANY	"asked, and too many wait for an answer"

/* TCP of @s goes through the relay, whatever the names. */
bool asks_by_relay(const struct sandbox *s);

/* The address that stands for @name. False: there is none. */
bool asks_address(struct sandbox *s, const struct dns_name *name, enum addr_family family,
		  int64_t now_ms, struct addr *ret) MUST_CHECK;
/* The name that @a stands for; borrowed, until the next asks_address(). NULL: none. */
const struct dns_name *asks_name(struct sandbox *s, const struct addr *a, int64_t now_ms);

/* One more is parked, for @e, whose name and port are set. Return: false where
 * LIMIT_PARKED are. */
bool asks_park(struct sandbox *s, struct event *e, int64_t now_ms) MUST_CHECK;
/* One of them isn't any more. */
void asks_unpark(struct sandbox *s);

/* What somebody is asked for. */
struct asked {
	struct dns_name name; /* size 0: @addr */
	struct addr addr;
	uint8_t protocol; /* 0: any */
	uint16_t port;	  /* 0: any; of a lookup, it isn't known */
};
/* Nobody grants @what. Return: whether it is remembered: not what by the plan doesn't ask
 * now. */
bool asks_dismiss(struct sandbox *s, const struct asked *what);
bool asks_is_dismissed(const struct sandbox *s, const struct asked *what);
/* The plan has changed: what a rule allows now is dismissed no more. */
void asks_forget_granted(struct sandbox *s);
void asks_free(struct sandbox *s);
