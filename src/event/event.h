// SPDX-License-Identifier: Apache-2.0
/* event/event - what happened, in one fixed-size struct, and the ring that keeps the
 * newest of them folded.
 *
 * The engine makes events, control keeps and shows them; later stores (SQLite,
 * PostgreSQL, JSON lines, webhooks) take the same struct. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"

enum event_action {
	EVENT_NONE = 0,
	EVENT_ALLOW,
	EVENT_DENY,
	EVENT_PANIC,  /* a launch or a sandbox was ended for safety */
	EVENT_CHANGE, /* of the policy */
	EVENT_LIMIT,  /* a limit was reached */
	EVENT_FAIL,   /* allowed, and yet a server or name server did not answer */
	EVENT_ASK,    /* waits until it is granted; of a packet: was refused until
		       * then */
	EVENT_ACTION_COUNT
};

enum event_layer {
	EVENT_LAYER_NONE = 0,
	EVENT_DNS,     /* a lookup; no remote address */
	EVENT_ADDRESS, /* a packet or a connection */
	EVENT_NAME,    /* the name that a connection showed */
	EVENT_LAUNCH,
	EVENT_LAYER_COUNT
};

enum {
	EVENT_NAME_SIZE = 256,
	EVENT_REASON_SIZE = 128,
	EVENT_COMMAND_SIZE = 48,
	EVENT_ADVICE_SIZE = 320,
};
#define EVENT_NO_RULE 0xffffffffu
enum { EVENT_LIMIT_DENIES = 255 }; /* event.limit: the policy's on_denies */

struct event {
	int64_t ts_ms;	     /* wall clock, of the first occurrence */
	uint64_t packets;    /* occurrences folded into this one */
	uint64_t bytes;	     /* that the sandbox sent */
	uint64_t received;   /* bytes, where the relay carries it; else 0. Not stored */
	uint32_t sandbox;    /* id; 0 for `weir run` */
	uint32_t rule;	     /* of the plan, or EVENT_NO_RULE: the default action */
	uint32_t uid;	     /* of the sender, where the kernel said; else UINT32_MAX */
	uint16_t port;	     /* remote; 0 when there is none */
	uint16_t query_type; /* of a lookup */
	uint8_t action;	     /* enum event_action */
	uint8_t layer;	     /* enum event_layer */
	uint8_t protocol;    /* IPPROTO_…, 0 when there is none */
	uint8_t limit;	/* enum plan_limit + 1 of an EVENT_LIMIT, or EVENT_LIMIT_DENIES,
			   else 0 */
	bool allowable; /* @advice is there; before sandbox_notify(): there may be some */
	bool claimed;	/* what opened @remote is not @name, which was shown there, and
			   which no look-up had given it. Not stored */
	uint32_t pid;	/* of the sender, where it was found; else 0 */
	struct addr remote;
	/* The sender's socket by its own address, and its destination, by which the
	 * sender may be found; no address: not known. Not stored. */
	struct endpoint from, to;
	char command[EVENT_COMMAND_SIZE]; /* of the sender, printable; "": not known */
	char name[EVENT_NAME_SIZE];	  /* presentation form, "" when none */
	char reason[EVENT_REASON_SIZE]; /* "no rule allows it", "cloud metadata address" …
					 */
	char advice[EVENT_ADVICE_SIZE]; /* the value of --allow that would have let it
					   through (policy/advice.h); "": none */
};

/* An event of one packet, decided by no rule, of a user that is not known. The caller
 * fills in the rest. */
static inline struct event event_make(enum event_action action, enum event_layer layer)
{
	return (struct event){
		.packets = 1,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.action = (uint8_t)action,
		.layer = (uint8_t)layer,
	};
}

void event_set_reason(struct event *e, const char *reason);

/* The same happened: sandbox, action, layer, name and whether it was only claimed,
 * remote, port, protocol, rule, limit and advice are equal. For people it doesn't matter
 * by which types a name was asked. */
bool event_is_same(const struct event *a, const struct event *b);
/* The same happened, to queries of one type, and both could be allowed or neither. */
bool event_is_equal(const struct event *a, const struct event *b);
/* Of what event_is_same() compares. */
struct hash_key;
uint64_t event_hash(const struct hash_key *key, const struct event *e);
/* Are the reasons the same as far as they matter? For what was denied or passed the
 * reason follows from the other fields; for a change or a failure it is the only
 * place. */
bool event_same_reason(const struct event *a, const struct event *b);

/* Something was refused: a denial, or a packet that asks. */
bool event_is_refusal(const struct event *e);
const char *event_action_name(enum event_action a);
const char *event_layer_name(enum event_layer l);
/* EVENT_LAYER_NONE: there is none of that name. */
enum event_layer event_layer_find(const char *name);
/* EVENT_NONE, too, where @name is no action. */
enum event_action event_action_find(const char *name);

/* The newest @capacity distinct events. Equal ones (event_is_same() and
 * event_same_reason()) fold: packets and bytes add up, the first time stays, and the
 * process as long as no other one is known of. When it is full the oldest goes and is
 * counted. */
struct event_ring;
struct event_ring *event_ring_new(size_t capacity);
void event_ring_free(struct event_ring *r);
void event_ring_add(struct event_ring *r, const struct event *e);
/* The process of @e is known by now; it, or one like it, was added before. */
void event_ring_name(struct event_ring *r, const struct event *e);
size_t event_ring_count(const struct event_ring *r);
/* From the oldest, 0, to the newest. */
const struct event *event_ring_at(const struct event_ring *r, size_t i);
/* Occurrences that went with events that were pushed out. */
uint64_t event_ring_dropped(const struct event_ring *r);

/* What became of an upstream server, for the log: reported when it happens, at most once
 * a second for each server and kind. */
enum upstream_trouble_kind {
	UPSTREAM_NONE = 0,
	UPSTREAM_ERROR,	  /* timeout, refused, reset, an answer of no use: `error` says */
	UPSTREAM_RCODE,	  /* it failed by its own word: `rcode` says */
	UPSTREAM_PROBE,	  /* it did not answer a probe: `error` says */
	UPSTREAM_HEALTHY, /* it answers probes again */
	UPSTREAM_BEHIND,  /* a server that was found behind Docker's resolver: `at` */
	UPSTREAM_INNER,	  /* Docker's resolver sends questions back, and nobody was found
			   * behind it */
	UPSTREAM_KIND_COUNT
};
struct upstream_trouble {
	uint8_t kind;	/* enum upstream_trouble_kind */
	uint8_t server; /* of the group */
	uint8_t rcode;
	int32_t error; /* -errno */
	struct endpoint at;
};
