// SPDX-License-Identifier: Apache-2.0
/* sandbox/accounts - what a sandbox was denied and what it was allowed, added up until it
 * is reported.
 *
 * Denials, limits: the first of its kind is reported at once, what equals it within a
 * second at the end of that, and no more than LIMIT_EVENTS_PER_SECOND, but that a sandbox
 * that was quiet has ten seconds' worth. What is new and could not be reported within a
 * second is one event without a destination with all else that could not be told apart.
 * Nothing waits behind a flood: see sandbox/novelty.h for what is reported first, and
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

#include "base/rate.h"
#include "event/aggregation.h"
#include "filter/filter.h"
#include "filter/nflog.h"
#include "sandbox/novelty.h"

struct sandbox;

enum {
	ACCOUNTS_EVENTS_MAX = 1024, /* different ones of a sandbox, of each kind */
	ACCOUNTS_POOL_MAX = 32768,  /* of all sandboxes of an engine */
	ACCOUNTS_FOLD_MS = 1000,
	ACCOUNTS_WAIT_MS = 1000, /* for a place among those of a second */
	ACCOUNTS_BURST_SEC = 10, /* of LIMIT_EVENTS_PER_SECOND, at once */
	ACCOUNTS_PASSED_PER_SECOND = 200,
	ACCOUNTS_LOOK_MS = 1000,
	ACCOUNTS_READ_MAX_MS = 8000, /* elements live longer than that */
	ACCOUNTS_FLOWS_MAX = 4096,   /* destinations whose logs are remembered */
};

/* A destination whose packets the filter counts, and was logged. */
struct accounts_flow {
	struct addr addr;
	uint16_t port;
	uint8_t protocol;
	bool counted; /* when they were read last */
	uint32_t uid;
	uint64_t packets, bytes; /* logged, and not yet met in a counter */
};

struct accounts {
	struct aggregation_pool *pool;	     /* borrowed */
	struct aggregation *denied, *passed; /* NULL: nothing yet */
	struct novelty novelty;		     /* of what was denied */
	struct rate passed_rate;
	int64_t window_ends_ms; /* of what passes; 0: none has begun */
	/* Refused packets. */
	int64_t read_at_ms; /* INT64_MAX: there is nothing to read */
	uint32_t read_every_ms;
	uint64_t total, reported;    /* by the kernel's counter; by logs and counters */
	struct accounts_flow *flows; /* owned; sorted whenever counters are read */
	size_t flow_count, flow_capacity;
	bool is_short; /* the filter counts one that is not among them */
};

/* NULL: no memory; the sandbox goes without. */
struct accounts *accounts_new(struct aggregation_pool *pool);
void accounts_free(struct accounts *a);

/* A denial or limit. */
void accounts_add(struct sandbox *s, const struct event *e, int64_t now_ms);
/* @packets that were denied, to whatever destinations. */
struct event accounts_others(enum event_layer layer, uint64_t packets);
/* Something that has passed. False: there was no room. */
bool accounts_pass(struct sandbox *s, const struct event *e, int64_t now_ms);
/* What may be reported now. @all: everything, the limits don't count. */
void accounts_report(struct sandbox *s, int64_t now_ms, bool all);
/* A window of what passes begins. */
void accounts_open(struct sandbox *s, int64_t now_ms);
/* It is over, and the next one begins. */
void accounts_close(struct sandbox *s, int64_t now_ms);

/* -- refused.c: packets that the filter has refused -- */

/* What the filter has counted: all that was refused (NULL: not known, of the host's
 * table), and by destination. */
void accounts_count(struct sandbox *s, const uint64_t *total,
		    const struct filter_count *counts, size_t count, int64_t now_ms);
/* All destinations that the filter counts refused packets for: those of @flows. */
bool accounts_know_flows(const struct accounts *a);
/* What was refused so far doesn't count (the self-test). */
void accounts_begin(struct sandbox *s, uint64_t total);
