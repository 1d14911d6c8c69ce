// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "policy/advice.h"
#include "policy/limits.h"
#include "sandbox/accounts.h"
#include "sandbox/asks.h"

static const char *const counter_names[] = {
	[COUNT_QUERIES] = "queries",
	[COUNT_QUERIES_DENIED] = "queries_denied",
	[COUNT_QUERIES_UNSERVED] = "queries_unserved",
	[COUNT_QUERIES_MALFORMED] = "queries_malformed",
	[COUNT_QUERIES_LIMITED] = "queries_limited",
	[COUNT_ANSWERS] = "answers",
	[COUNT_ANSWERS_CACHED] = "answers_cached",
	[COUNT_ANSWERS_FAILED] = "answers_failed",
	[COUNT_ANSWERS_LOST] = "answers_lost",
	[COUNT_ANSWERS_SPECIAL] = "answers_special",
	[COUNT_COMMITS] = "commits",
	[COUNT_COMMITS_FAILED] = "commits_failed",
	[COUNT_LEARNED] = "learned",
	[COUNT_LEARNED_EVICTED] = "learned_evicted",
	[COUNT_NEW_NAMES_LIMITED] = "new_names_limited",
	[COUNT_DNS_TCP_LIMITED] = "dns_tcp_limited",
	[COUNT_FLOWS] = "flows",
	[COUNT_FLOWS_DENIED] = "flows_denied",
	[COUNT_FLOWS_LIMITED] = "flows_limited",
	[COUNT_FLOWS_FAILED] = "flows_failed",
	[COUNT_PACKETS_DENIED] = "packets_denied",
	[COUNT_PACKETS_LOST] = "packets_lost",
	[COUNT_EVENTS_DROPPED] = "events_dropped",
	[COUNT_PASSED_DROPPED] = "passed_dropped",
	[COUNT_BYTES_SENT] = "bytes_sent",
	[COUNT_BYTES_RECEIVED] = "bytes_received",
	[COUNT_SELF_TESTS] = "self_tests",
	[COUNT_POLICY_CHANGES] = "policy_changes",
	[COUNT_REPAIRS] = "repairs",
	[COUNT_ADOPTED] = "adopted",
	[COUNT_ASKED] = "asked",
	[COUNT_UNATTRIBUTED] = "strangers",
};
static_assert(ARRAY_SIZE(counter_names) == SANDBOX_COUNTER_COUNT,
	      "a counter without a name");

const char *sandbox_counter_name(enum sandbox_counter c)
{
	return (unsigned int)c < SANDBOX_COUNTER_COUNT ? counter_names[c] : "unknown";
}

void sandbox_set_plan(struct sandbox *s, const struct plan *plan)
{
	s->plan = *plan;
	s->plan_generation++;
	asks_forget_granted(s);
}

static void fill(const struct sandbox *s, struct event *e)
{
	e->ts_ms = clock_wall_ms();
	e->sandbox = s->id;
	if (e->packets == 0)
		e->packets = 1;
	if (e->uid == UINT32_MAX && s->host && s->member.kind == MEMBER_UID)
		e->uid = s->member.uid;
}

void sandbox_notice(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	if (s->on_event(s->on_event_data, e))
		return;
	if (s->accounts)
		accounts_add(s, e, now_ms);
	else
		s->counters[COUNT_EVENTS_DROPPED] += e->packets;
}

/* Once a window at most, so no rate has to hold it. */
static void limit_denials(struct sandbox *s, const struct plan_on_denies *on,
			  int64_t now_ms)
{
	char window[POLICY_WINDOW_SIZE];
	struct event limit = event_make(EVENT_LIMIT, EVENT_LAUNCH);

	limit.limit = EVENT_LIMIT_DENIES;
	snprintf(limit.reason, sizeof(limit.reason), "more than %u denies in %s",
		 on->count, policy_window_text(on->window_sec, window));
	sandbox_notice(s, &limit, now_ms);
}

static void count_denial(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	const struct plan_on_denies on = plan_on_denies(&s->plan);

	if (event_is_refusal(e) &&
	    denies_add(&s->denies, &on, MAX(e->packets, UINT64_C(1)), now_ms))
		limit_denials(s, &on, now_ms);
}

bool sandbox_tell(const struct sandbox *s, const struct event *e)
{
	struct event told = *e;

	if (told.allowable)
		told.allowable = advice_write(&s->plan, &told, told.advice)[0] != '\0';
	return s->on_event(s->on_event_data, &told);
}

void sandbox_event(struct sandbox *s, struct event *e, int64_t now_ms)
{
	const uint32_t per_second = plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);

	if (s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	if (s->accounts) {
		accounts_add(s, e, now_ms);
		accounts_report(s, now_ms, false);
	} else if (!rate_take(&s->event_rate, per_second, 1000, per_second, now_ms) ||
		   !sandbox_tell(s, e)) {
		s->counters[COUNT_EVENTS_DROPPED] += e->packets;
	}
	count_denial(s, e, now_ms);
}

void sandbox_passed(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (!s->accounts || s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	s->counters[COUNT_BYTES_SENT] += e->bytes;
	s->counters[COUNT_BYTES_RECEIVED] += e->received;
	if (!accounts_pass(s, e, now_ms))
		s->counters[COUNT_PASSED_DROPPED] += e->packets;
}

void sandbox_opened(struct sandbox *s, struct event *e, int64_t now_ms)
{
	const uint32_t per_second = plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);

	if (s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	e->packets = 0;
	e->bytes = 0;
	if (rate_take(&s->opened_rate, per_second, 1000, per_second, now_ms))
		(void)!s->on_event(s->on_event_data, e);
}

int sandbox_learn(struct sandbox *s, const struct filter_learn *items, size_t count,
		  int64_t now_ms)
{
	return s->host ? filter_host_learn(s->host, (uint16_t)s->id, items, count, now_ms)
		       : filter_learn(&s->filter, items, count);
}
