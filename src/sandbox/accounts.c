// SPDX-License-Identifier: Apache-2.0
#include "sandbox/accounts.h"

#include <assert.h>
#include <stdlib.h>

#include "sandbox/sandbox.h"

struct accounts *accounts_new(struct aggregation_pool *pool)
{
	struct accounts *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->pool = pool;
	/* As in aggregation.c: it must not be chosen from outside. */
	a->novelty.key = (struct hash_key){ (uintptr_t)a, (uintptr_t)pool };
	a->read_at_ms = INT64_MAX;
	return a;
}

void accounts_free(struct accounts *a)
{
	if (!a)
		return;
	aggregation_free(a->denied);
	aggregation_free(a->passed);
	free(a->flows);
	free(a);
}

/* ---- what was denied, and what passed ---- */

struct event accounts_others(enum event_layer layer, uint64_t packets)
{
	struct event e = event_make(EVENT_DENY, layer);

	e.packets = packets;
	event_set_reason(&e, "more than could be told one by one");
	return e;
}

/* @e is not reported by itself. */
static void report_with_others(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct aggregation *t = s->accounts->denied;
	struct event others = accounts_others((enum event_layer)e->layer, e->packets);

	s->counters[COUNT_EVENTS_DROPPED] += e->packets;
	others.ts_ms = e->ts_ms;
	others.sandbox = e->sandbox;
	others.action = e->action;
	others.limit = e->limit;
	others.bytes = e->bytes;
	if (!t || aggregation_fold(t, &others))
		return;
	(void)!aggregation_hold(t, &others, AGGREGATION_ALWAYS, now_ms);
}

static_assert(AGGREGATION_NEW + NOVELTY_LEVELS == AGGREGATION_NEW_LAST,
	      "a line for each rank");

static unsigned int line_of(struct accounts *a, const struct event *e, int64_t now_ms)
{
	if (e->action != EVENT_DENY && e->action != EVENT_ASK)
		return e->limit == EVENT_LIMIT_DENIES || e->action == EVENT_PANIC
			       ? AGGREGATION_ALWAYS
			       : AGGREGATION_NEW_LAST;
	return e->remote.family == ADDR_NONE && e->name[0] == '\0'
		       ? AGGREGATION_ALWAYS /* what is reported without a destination */
		       : AGGREGATION_NEW + novelty_rank(&a->novelty, e, now_ms);
}

void accounts_add(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounts *a = s->accounts;
	struct event gone;
	unsigned int line;
	int r = 0;

	if (!a->denied)
		a->denied =
			aggregation_new(a->pool, ACCOUNTS_EVENTS_MAX, ACCOUNTS_FOLD_MS);
	if (!a->denied || aggregation_fold(a->denied, e)) {
		s->counters[COUNT_EVENTS_DROPPED] += a->denied ? 0 : e->packets;
		return;
	}
	line = line_of(a, e, now_ms);
	while (r >= 0 && !aggregation_hold(a->denied, e, line, now_ms)) {
		r = aggregation_make_room(a->denied, line, &gone);
		if (r > 0)
			report_with_others(s, &gone, now_ms);
	}
	if (r < 0)
		report_with_others(s, e, now_ms);
}

/* Part of the budget is reserved for each line before @line. */
static bool may_report(const struct sandbox *s, unsigned int line, struct rate *rate,
		       int64_t now_ms)
{
	const bool denied = rate == &s->event_rate;
	const uint32_t per_second =
		!denied ? (uint32_t)ACCOUNTS_PASSED_PER_SECOND
			: plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);
	uint64_t burst = per_second;

	if (denied)
		burst = burst * ACCOUNTS_BURST_SEC *
			(AGGREGATION_LINES - 1 -
			 MIN(line, (unsigned int)AGGREGATION_NEW_LAST)) /
			(AGGREGATION_LINES - 2);
	return rate_take(rate, per_second, 1000,
			 (uint32_t)MIN(burst, (uint64_t)INT32_MAX), now_ms);
}

/* While there are places for all, the oldest; behind a flood, the newest: what comes
 * after it need not wait for the rest of it. */
static const struct event *next_of(struct aggregation *t, unsigned int line,
				   int64_t now_ms)
{
	const struct event *oldest = aggregation_oldest(t, line, now_ms);

	return oldest && line >= AGGREGATION_NEW && line <= AGGREGATION_NEW_LAST &&
			       aggregation_waited_ms(oldest, now_ms) >
				       ACCOUNTS_WAIT_MS / 2
		       ? aggregation_newest(t, line, now_ms)
		       : oldest;
}

/* What is new and has waited for too long. */
static void drop_overdue(struct sandbox *s, struct aggregation *t, unsigned int line,
			 int64_t now_ms)
{
	const struct event *e;

	if (line < AGGREGATION_NEW || line > AGGREGATION_NEW_LAST ||
	    t == s->accounts->passed)
		return;
	while ((e = aggregation_oldest(t, line, now_ms)) &&
	       aggregation_waited_ms(e, now_ms) >= ACCOUNTS_WAIT_MS) {
		report_with_others(s, e, now_ms);
		aggregation_let_go(t, e);
	}
}

/* What control does not take now waits for the next time. Return: whether it takes more.
 */
static bool report_line(struct sandbox *s, struct aggregation *t, unsigned int line,
			struct rate *rate, int64_t now_ms, bool all)
{
	const struct event *e;

	while ((e = next_of(t, line, now_ms))) {
		struct rate before = *rate;

		if (!all && line != AGGREGATION_ALWAYS &&
		    !may_report(s, line, rate, now_ms)) {
			drop_overdue(s, t, line, now_ms);
			return true;
		}
		if (!sandbox_tell(s, e)) {
			*rate = before;
			return false;
		}
		aggregation_told(t, e, now_ms);
	}
	return true;
}

static void report(struct sandbox *s, struct aggregation *t, struct rate *rate,
		   int64_t now_ms, bool all)
{
	for (unsigned int line = 0; line < AGGREGATION_LINES && s->on_event; line++)
		if (!report_line(s, t, line, rate, now_ms, all))
			return;
}

void accounts_report(struct sandbox *s, int64_t now_ms, bool all)
{
	struct accounts *a = s->accounts;

	if (a->denied && all)
		aggregation_close(a->denied);
	if (a->denied)
		report(s, a->denied, &s->event_rate, now_ms, all);
	if (a->passed)
		report(s, a->passed, &a->passed_rate, now_ms, all);
}

void accounts_open(struct sandbox *s, int64_t now_ms)
{
	s->accounts->window_ends_ms =
		now_ms + plan_limit(&s->plan, LIMIT_EVENT_WINDOW_SEC) * INT64_C(1000);
}

void accounts_close(struct sandbox *s, int64_t now_ms)
{
	if (s->accounts->passed)
		aggregation_close(s->accounts->passed);
	accounts_open(s, now_ms);
}

bool accounts_pass(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounts *a = s->accounts;

	if (!a->passed)
		a->passed = aggregation_new(a->pool, ACCOUNTS_EVENTS_MAX, 0);
	return a->passed && (aggregation_fold(a->passed, e) ||
			     aggregation_hold(a->passed, e, AGGREGATION_NEW, now_ms));
}
