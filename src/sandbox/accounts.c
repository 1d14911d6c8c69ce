// SPDX-License-Identifier: Apache-2.0
#include "sandbox/accounts.h"

#include <stdlib.h>

#include "sandbox/sandbox.h"

struct accounts *accounts_new(struct tally_pool *pool)
{
	struct accounts *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->pool = pool;
	a->look_at_ms = INT64_MAX;
	return a;
}

void accounts_free(struct accounts *a)
{
	if (!a)
		return;
	tally_free(a->denied);
	tally_free(a->passed);
	free(a->flows);
	free(a);
}

/* ---- what was denied, and what passed ---- */

struct event accounts_others(enum event_layer layer, uint64_t packets)
{
	return (struct event){
		.action = EVENT_DENY,
		.layer = (uint8_t)layer,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.packets = packets,
		.reason = "more than could be told one by one",
	};
}

bool accounts_add(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounts *a = s->accounts;
	struct event others;

	if (!a->denied)
		a->denied = tally_new(a->pool, ACCOUNTS_EVENTS_MAX, ACCOUNTS_FOLD_MS);
	if (!a->denied || tally_add(a->denied, e, now_ms))
		return a->denied;
	if (e->action == EVENT_DENY) {
		others = accounts_others((enum event_layer)e->layer, e->packets);
		others.ts_ms = e->ts_ms;
		others.sandbox = e->sandbox;
		(void)!tally_add_always(a->denied, &others, now_ms);
	}
	return false;
}

/* What control does not take now waits for the next time. */
static void tell(struct sandbox *s, struct tally *t, struct rate *rate, int64_t now_ms,
		 bool all)
{
	uint32_t per_second = t == s->accounts->passed
				      ? (uint32_t)ACCOUNTS_PASSED_PER_SECOND
				      : plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);
	const struct event *e;

	while ((e = tally_next(t, now_ms)) && s->on_event) {
		struct rate before = *rate;

		if (!all && !rate_take(rate, per_second, 1000, per_second, now_ms))
			return;
		if (!s->on_event(s->on_event_data, e)) {
			*rate = before;
			return;
		}
		tally_told(t, now_ms);
	}
}

void accounts_tell(struct sandbox *s, int64_t now_ms, bool all)
{
	struct accounts *a = s->accounts;

	if (a->denied && all)
		tally_close(a->denied);
	if (a->denied)
		tell(s, a->denied, &s->event_rate, now_ms, all);
	if (a->passed)
		tell(s, a->passed, &a->passed_rate, now_ms, all);
}

void accounts_open(struct sandbox *s, int64_t now_ms)
{
	s->accounts->window_ends_ms =
		now_ms + plan_limit(&s->plan, LIMIT_EVENT_WINDOW_SEC) * INT64_C(1000);
}

void accounts_close(struct sandbox *s, int64_t now_ms)
{
	if (s->accounts->passed)
		tally_close(s->accounts->passed);
	accounts_open(s, now_ms);
}

bool accounts_pass(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounts *a = s->accounts;

	if (!a->passed)
		a->passed = tally_new(a->pool, ACCOUNTS_EVENTS_MAX, 0);
	return a->passed && tally_add(a->passed, e, now_ms);
}
