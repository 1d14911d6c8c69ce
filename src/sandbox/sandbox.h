// SPDX-License-Identifier: Apache-2.0
/* sandbox/sandbox - one thing that is guarded: its plan, its descriptors inside the
 * namespace, what it has learned, its counters. The engine owns it; resolver and relay
 * borrow it. */
#pragma once

#include <stdio.h>

#include "base/rate.h"
#include "event/event.h"
#include "filter/filter.h"
#include "filter/host.h"
#include "policy/plan.h"
#include "sys/loop.h"
#include "sys/sock.h"

struct accounting;
struct asks;
struct budgets;
struct learned;
struct resolver_sandbox;
struct dns_sandbox;
struct relay_sandbox;

/* Counters: each refusal and each limit has one. Names for people and for metrics
 * are in sandbox.c's table, in this order. */
enum sandbox_counter {
	COUNT_QUERIES = 0,
	COUNT_QUERIES_DENIED,	/* NXDOMAIN by policy */
	COUNT_QUERIES_UNSERVED, /* NODATA: a type that is not served */
	COUNT_QUERIES_MALFORMED,
	COUNT_QUERIES_LIMITED, /* over queries per second, or in flight */
	COUNT_ANSWERS,	       /* with records */
	COUNT_ANSWERS_CACHED,
	COUNT_ANSWERS_FAILED,  /* SERVFAIL sent */
	COUNT_ANSWERS_LOST,    /* the socket did not take the reply */
	COUNT_ANSWERS_SPECIAL, /* addresses left out because they are special */
	COUNT_COMMITS,	       /* netlink transactions */
	COUNT_COMMITS_FAILED,
	COUNT_LEARNED, /* addresses taken */
	COUNT_LEARNED_EVICTED,
	COUNT_NEW_NAMES_LIMITED,
	COUNT_DNS_TCP_LIMITED,
	COUNT_FLOWS,
	COUNT_FLOWS_DENIED,
	COUNT_FLOWS_LIMITED,
	COUNT_FLOWS_FAILED,   /* upstream did not answer */
	COUNT_PACKETS_DENIED, /* refused by the filter */
	COUNT_PACKETS_LOST,   /* of those, whose destination is not known */
	COUNT_EVENTS_DROPPED, /* that found no place to wait */
	COUNT_PASSED_DROPPED, /* the same of what passed */
	COUNT_BYTES_SENT,     /* of all that passed */
	COUNT_BYTES_RECEIVED, /* by the relay */
	COUNT_SELF_TESTS,
	COUNT_POLICY_CHANGES, /* that took effect */
	COUNT_REPAIRS,	      /* of a filter that others had changed */
	COUNT_ADOPTED,	      /* learned addresses taken over from an engine before */
	COUNT_ASKED,	      /* queries and flows that waited for a grant */
	COUNT_UNATTRIBUTED,   /* of all together: what came to the host's listeners and
			       * log, and is no sandbox's */
	SANDBOX_COUNTER_COUNT
};
/* Names, flows and packets that were refused, by @counters. */
static inline uint64_t sandbox_denied(const uint64_t *counters)
{
	return counters[COUNT_QUERIES_DENIED] + counters[COUNT_FLOWS_DENIED] +
	       counters[COUNT_PACKETS_DENIED];
}
const char *sandbox_counter_name(enum sandbox_counter c);
/* A sentence that says what it counts. */
const char *sandbox_counter_help(enum sandbox_counter c);

enum sandbox_state {
	SANDBOX_NONE = 0,
	SANDBOX_TESTING, /* the filter is in force; only the self-test runs; its denials
			  * are no events */
	SANDBOX_RUNNING,
	SANDBOX_CLOSED, /* no new query, no new flow; waits to be reaped */
	SANDBOX_STATE_COUNT
};

enum {
	SANDBOX_SELF_PORTS_MAX = 8192, /* over it no port is exempt: that dial fails */
	SANDBOX_SELF_PORTS_STALE_MAX = 64, /* see struct sandbox_self_ports */
};

/* The ports that the filter knows as our own. */
struct sandbox_self_ports {
	uint64_t *bits; /* owned; 65536 for each family and protocol; NULL: none yet */
	size_t count;
	/* Let go, but still exempt in the filter, which failed: no port is added before
	 * they are gone there. */
	struct filter_self_port *stale; /* owned; there as soon as @bits is */
	size_t stale_count;
	bool is_unsure; /* more than that: no port is added before the filter is made anew
			 */
};

/* Send an event to control. Copies. Return: it was sent; else it may be sent again. */
typedef bool sandbox_event_fn(void *data, const struct event *e);
/* A reply with addresses leaves, after the kernel has them. Copies. */
struct dns_answer_addr;
typedef void sandbox_answered_fn(void *data, const struct dns_name *name,
				 const struct dns_answer_addr *addrs, size_t count);

/* How many packets of a sandbox were denied lately, for `on_denies`.
 *
 * The window is counted in DENIES_STEPS parts, the oldest of them in whole: what is as
 * much as one part older than the window may count. The engine counts, before
 * LIMIT_EVENTS_PER_SECOND: a flood can't hide. */

enum { DENIES_STEPS = 64 };

struct denies {
	uint64_t packets[DENIES_STEPS + 1]; /* by the number of the part */
	uint64_t sum;			    /* of them */
	int64_t step;			    /* of the newest one */
	int64_t quiet_until_ms;		    /* the limit was reported */
};

enum { DENIES_AGAIN_MS = 1000 };

struct sandbox {
	uint32_t id;
	enum sandbox_state state;
	struct plan plan;	   /* borrowed from the engine's mapping */
	uint64_t plan_generation;  /* sandbox_set_plan() counts: a verdict of an older
				    * generation doesn't hold any more */
	struct sandbox_fds fds;	   /* owned; NETLINK has moved into filter */
	struct filter_conn filter; /* owned; unused with @host */
	/* The table of the host, where @id and @member say what is its; borrowed. NULL:
	 * the sandbox has a table of its own. */
	struct filter_host *host;
	struct member member;
	struct learned *learned;	     /* owned */
	struct budgets *budgets;	     /* of the plan; owned; NULL: it has none */
	void (*on_spent)(struct sandbox *s); /* one of them is used up */
	/* What others keep for this sandbox; NULL: nothing. */
	struct resolver_sandbox *resolver; /* from the first query on */
	struct dns_sandbox *dns;	   /* while the DNS service serves it */
	struct relay_sandbox *relayed;	   /* while it is attached to the relay */
	bool ipv6;	 /* the sandbox has IPv6 and so has the way out */
	bool relay;	 /* TCP leaves by the relay */
	bool direct_udp; /* UDP leaves by an uplink program */
	bool shared;	 /* Weir's own packets cross this sandbox's filter: see
			    sys/sock.h */
	struct filter_shared_params shared_params; /* of the ruleset in force */
	struct filter_params owned_params;	   /* the same when not @shared */
	struct own_ports own; /* how they are told apart: sandbox_own_ports() */
	struct sandbox_self_ports self_ports; /* the ports of @own now */
	uint64_t counters[SANDBOX_COUNTER_COUNT];
	sandbox_event_fn *on_event;
	void *on_event_data;
	sandbox_answered_fn *on_answered; /* NULL: not wanted */
	void *on_answered_data;
	struct rate event_rate, opened_rate; /* the same limit for each */
	struct denies denies;		     /* for on_denies of the plan */
	struct accounting *accounting; /* owned; NULL: each event is reported by itself */
	struct sinkholes sinkholes;    /* that its look-ups got */
	struct asks *asks; /* owned; NULL: no name has asked (sandbox/asks.h) */
	uint32_t parked;   /* queries and flows that wait for a grant */
	/* Look @name up, by the plan and into @learned, as if the sandbox had asked;
	 * NULL: nobody can. on_looked_up() says that it is done, whatever came of it. */
	void (*look_up)(struct sandbox *s, const struct dns_name *name, uint16_t type);
	void (*on_looked_up)(struct sandbox *s, const struct dns_name *name);
	/* The self-test: the engine itself answers this name with this address. */
	struct dns_name probe_name; /* size 0: no self-test under way */
	struct addr probe_addr;
	uint16_t probe_port;
};

/* @plan is in force from now on. The one way to change s->plan of a sandbox that is
 * served. */
void sandbox_set_plan(struct sandbox *s, const struct plan *plan);

/* The name as text. */
static inline void sandbox_event_name(struct event *e, const struct dns_name *n)
{
	char text[DNS_NAME_TEXT_SIZE];

	snprintf(e->name, sizeof(e->name), "%s", dns_name_format(n, text));
}
/* Fill in what every event has (time, sandbox) and hand it to control, at most
 * LIMIT_EVENTS_PER_SECOND; nothing while the self-test runs. See sandbox/accounting.h. A
 * denial may be one too many for the plan's on_denies: then an EVENT_LIMIT with
 * EVENT_LIMIT_DENIES follows. */
void sandbox_event(struct sandbox *s, struct event *e, int64_t now_ms);
/* The same for what is told so seldom that no rate has to hold it, and no flood of others
 * may hide it. */
void sandbox_notice(struct sandbox *s, struct event *e, int64_t now_ms);
/* Hand one of those to control, now that it is its turn, with the rule that would have
 * let it through: of a flood most are never told. False: control takes no more now. */
bool sandbox_notify(const struct sandbox *s, const struct event *e) MUST_CHECK;
/* Something has passed: reported at the end of its window. */
void sandbox_passed(struct sandbox *s, struct event *e, int64_t now_ms);
/* It begins to pass, under a plan that is open (policy/advice.h): reported at once, with
 * packets 0, because sandbox_passed() counts it; its sender is still there. At most
 * LIMIT_EVENTS_PER_SECOND, beside the denials; of the others the sender stays unknown. */
void sandbox_opened(struct sandbox *s, struct event *e, int64_t now_ms);

/* filter_learn() to wherever its rules are. */
int sandbox_learn(struct sandbox *s, const struct filter_learn *items, size_t count,
		  int64_t now_ms) MUST_CHECK;

/* @packets more were denied. Return: whether that is more than @on allows, and has to be
 * told: at most once a window, and of a stop, which somebody may have missed, each
 * DENIES_AGAIN_MS. With another policy @d begins anew, all zero. */
bool denies_add(struct denies *d, const struct plan_on_denies *on, uint64_t packets,
		int64_t now_ms) MUST_CHECK;

/* ---- Weir's own ports ---- */

/* s->own: sockets get @mark (0: no port is exempt), and their ports go to s->filter as
 * well as into s->self_ports. @s doesn't move after this. */
void sandbox_own_ports(struct sandbox *s, uint32_t mark);
void sandbox_self_ports_done(struct sandbox_self_ports *h);
/* The ports now, for a ruleset that is made anew: @ret has room for h->count. */
void sandbox_self_ports_list(const struct sandbox_self_ports *h,
			     struct filter_self_port *ret);
