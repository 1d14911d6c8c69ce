// SPDX-License-Identifier: Apache-2.0
/* sandbox/accounting - what a sandbox was denied and what it was allowed, added up until
 * it is reported.
 *
 * Denials, limits: the first of its kind is reported at once, what equals it within a
 * second at the end of that, and no more than LIMIT_EVENTS_PER_SECOND, but that a sandbox
 * that was quiet has ten seconds' worth. What is new and could not be reported within a
 * second is one event without a destination with all else that could not be told apart.
 * Nothing waits behind a flood: see struct novelty for what is reported first, and
 * keeps part of the budget for itself. What passes: one event for each name, address,
 * port, protocol and window.
 *
 * HOW REFUSED PACKETS ARE COUNTED
 * The filter logs the first packet to a destination, with its sender, and counts all of
 * them, that one as well, in the kernel. So a flood costs a counter, and after the log a
 * look brings the rest. What was logged since they were read last is known here and not
 * counted again. Looks come a second after a log, and rarer when nothing has come any
 * more. */
#pragma once

#include "base/hash.h"
#include "base/rate.h"
#include "event/aggregation.h"
#include "event/event.h"
#include "filter/filter.h"
#include "filter/nflog.h"
#include "sandbox/sandbox.h"

enum {
	ACCOUNTING_EVENTS_MAX = 1024, /* different ones of a sandbox, of each kind */
	ACCOUNTING_POOL_MAX = 32768,  /* of all sandboxes of an engine */
	ACCOUNTING_FOLD_MS = 1000,
	ACCOUNTING_WAIT_MS = 1000, /* for a place among those of a second */
	ACCOUNTING_BURST_SEC = 10, /* of LIMIT_EVENTS_PER_SECOND, at once */
	ACCOUNTING_PASSED_PER_SECOND = 200,
	ACCOUNTING_LOOK_MS = 1000,
	ACCOUNTING_READ_MAX_MS = 8000, /* elements live longer than that */
	ACCOUNTING_FLOWS_MAX = 4096,   /* destinations whose logs are remembered */
};

/* A destination whose packets the filter counts, and was logged. */
struct accounting_flow {
	struct addr addr;
	uint16_t port;
	uint8_t protocol;
	bool counted; /* when they were read last */
	uint32_t uid;
	uint64_t packets, bytes; /* logged, and not yet met in a counter */
};

/* In how large a novelty a new denial came.
 *
 * A program that tries thousands of destinations must not hide the one that matters. So
 * what is new counts for the groups that it is in: of a name the last label, the last two
 * and the last three; of an address its first 16, 24 and 32 bits, or 32, 48 and 64. The
 * first of these that is no novelty says the rank. A flood of names below one domain has
 * the third rank, a scan of one address's ports the last, and what has nothing to do with
 * either the first.
 *
 * Counters, not keys: a group has a counter in each row, which it shares with others, and
 * the lower one counts (a count-min sketch, Cormode and Muthukrishnan, 2005). In one of
 * 16,384 cases both are those of a flood, and what came is taken for a part of it. What a
 * flood spreads over all counters is no novelty in any, and can't be told apart from
 * anything else. */

enum {
	NOVELTY_LEVELS = 3,
	NOVELTY_ROWS = 2,
	NOVELTY_CELLS = 128,
	NOVELTY_FEW = 8,    /* no novelty, whatever the others are */
	NOVELTY_SHARE = 32, /* one in so many of all is */
	NOVELTY_HALF_MS = 1000,
};

struct novelty {
	struct hash_key key; /* so that a sandbox can't know what shares a counter */
	uint16_t cells[NOVELTY_LEVELS][NOVELTY_ROWS][NOVELTY_CELLS];
	uint32_t total;	   /* of a level */
	int64_t halved_ms; /* all of them: each second */
};

struct accounting {
	struct aggregation_pool *pool;	     /* borrowed */
	struct aggregation *denied, *passed; /* NULL: nothing yet */
	struct novelty novelty;		     /* of what was denied */
	struct rate passed_rate;
	int64_t window_ends_ms; /* of what passes; 0: none has begun */
	/* Refused packets. */
	int64_t read_at_ms; /* INT64_MAX: there is nothing to read */
	uint32_t read_every_ms;
	uint64_t total;	   /* by the kernel's counter, which each ruleset begins at 0 */
	uint64_t reported; /* by logs and counters */
	struct accounting_flow *flows; /* owned; sorted whenever counters are read */
	size_t flow_count, flow_capacity;
	bool is_short; /* the filter counts one that is not among them */
};

/* NULL: no memory; the sandbox goes without. */
struct accounting *accounting_new(struct aggregation_pool *pool);
void accounting_free(struct accounting *a);

/* A denial or limit. */
void accounting_add(struct sandbox *s, const struct event *e, int64_t now_ms);
/* Something that has passed. False: there was no room. */
bool accounting_pass(struct sandbox *s, const struct event *e, int64_t now_ms);
/* What may be reported now. @all: everything, the limits don't count. */
void accounting_report(struct sandbox *s, int64_t now_ms, bool all);
/* A window of what passes begins. */
void accounting_open(struct sandbox *s, int64_t now_ms);
/* It is over, and the next one begins. */
void accounting_close(struct sandbox *s, int64_t now_ms);

/* Count @e, which is new. All zero, @c knows of nothing. Return: the rank, 0 to
 * NOVELTY_LEVELS. */
unsigned int novelty_rank(struct novelty *c, const struct event *e, int64_t now_ms);

/* ---- packets that the filter has refused ---- */

/* As an event: which rule decided, which name the address goes by, and why. */
void refused_packet(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms);

/* Budgets of the rules that open an address, by the port lists of those rules. */
struct passed_rules {
	uint32_t lists; /* bit i: a rule opens port list i */
	uint64_t which[PLAN_PORT_LISTS_MAX];
};

/* Which budgets pay for what left for one address. The names that an address goes by are
 * gone through once, however many ports of it are in use: a sandbox chooses both numbers.
 * For one reading of the counters, those of an address one after the other. */
struct passed_payers {
	const struct sandbox *sandbox; /* NULL: of no address yet */
	struct addr addr;
	struct passed_rules now, past;
	bool has_past;	     /* @past was looked for */
	bool is_whole;	     /* and nothing is missing in it */
	uint32_t past_count; /* addresses of the sandbox whose past was looked for */
};
enum { PASSED_PAST_MAX = 256 }; /* of past_count; for further ones every budget pays */

/* Packets that left by the link. */
void passed_count(struct sandbox *s, const struct filter_count *c,
		  struct passed_payers *payers, int64_t now_ms);
/* What the filter has counted: all that was refused (NULL: not known, of the host's
 * table), and by destination. */
void accounting_count(struct sandbox *s, const uint64_t *total,
		      const struct filter_count *counts, size_t count, int64_t now_ms);
/* What was refused so far doesn't count (the self-test). */
void accounting_begin(struct sandbox *s, uint64_t total);
