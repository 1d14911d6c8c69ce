// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "policy/advice.h"
#include "policy/limits.h"
#include "sandbox/accounting.h"
#include "sandbox/asks.h"

/* How a counter is called, and what it says, for a person. */
static const struct {
	const char *name, *help;
} counters[] = {
	[COUNT_QUERIES] = { "queries", "DNS queries that came from the sandbox." },
	[COUNT_QUERIES_DENIED] = { "queries_denied",
				   "Queries for names that no rule allows." },
	[COUNT_QUERIES_UNSERVED] = { "queries_unserved",
				     "Queries of types that are not served." },
	[COUNT_QUERIES_MALFORMED] = { "queries_malformed",
				      "Queries that could not be read." },
	[COUNT_QUERIES_LIMITED] = { "queries_limited",
				    "Queries over the sandbox's limits." },
	[COUNT_ANSWERS] = { "answers", "Answers with data." },
	[COUNT_ANSWERS_CACHED] = { "answers_cached", "Answers that needed no upstream." },
	[COUNT_ANSWERS_FAILED] = { "answers_failed", "Queries answered with SERVFAIL." },
	[COUNT_ANSWERS_LOST] = { "answers_lost", "Answers that could not be sent." },
	[COUNT_ANSWERS_SPECIAL] = { "answers_special",
				    "Answers that pointed at special addresses." },
	[COUNT_COMMITS] = { "commits",
			    "Transactions that put learned addresses into the filter." },
	[COUNT_COMMITS_FAILED] = { "commits_failed", "Such transactions that failed." },
	[COUNT_LEARNED] = { "learned", "Addresses learned from answers." },
	[COUNT_LEARNED_EVICTED] = { "learned_evicted",
				    "Learned addresses that made room for others." },
	[COUNT_NEW_NAMES_LIMITED] = { "new_names_limited",
				      "New names under a wildcard over the limit." },
	[COUNT_DNS_TCP_LIMITED] = { "dns_tcp_limited",
				    "DNS connections over the limit." },
	[COUNT_FLOWS] = { "flows", "Connections through the relay." },
	[COUNT_FLOWS_DENIED] = { "flows_denied", "Connections that the relay refused." },
	[COUNT_FLOWS_LIMITED] = { "flows_limited",
				  "Connections over the relay's limit." },
	[COUNT_FLOWS_FAILED] = { "flows_failed",
				 "Connections whose other side could not be reached." },
	[COUNT_PACKETS_DENIED] = { "packets_denied", "Packets that the filter refused." },
	[COUNT_PACKETS_LOST] = { "packets_lost",
				 "Refused packets whose destination is not known." },
	[COUNT_EVENTS_DROPPED] = { "events_dropped",
				   "Denials that found no place to wait, counted only." },
	[COUNT_PASSED_DROPPED] = { "passed_dropped",
				   "What passed and found no place, counted only." },
	[COUNT_BYTES_SENT] = { "bytes_sent", "Bytes that passed from the sandbox." },
	[COUNT_BYTES_RECEIVED] = { "bytes_received", "Bytes that passed to the sandbox "
						     "through the relay." },
	[COUNT_SELF_TESTS] = { "self_tests", "Self-tests that were passed." },
	[COUNT_POLICY_CHANGES] = { "policy_changes", "Policies that took effect." },
	[COUNT_REPAIRS] = { "repairs", "Times that the filter was put back after others "
				       "changed it." },
	[COUNT_ADOPTED] = { "adopted",
			    "Learned addresses taken over from an engine that died." },
	[COUNT_ASKED] = { "asked",
			  "Queries and connections that waited for a decision." },
	[COUNT_UNATTRIBUTED] = { "strangers", "Queries, connections and packets on the "
					      "host that are no sandbox's." },
};
static_assert(ARRAY_SIZE(counters) == SANDBOX_COUNTER_COUNT, "a counter without a name");

const char *sandbox_counter_name(enum sandbox_counter c)
{
	return (unsigned int)c < SANDBOX_COUNTER_COUNT ? counters[c].name : "unknown";
}

const char *sandbox_counter_help(enum sandbox_counter c)
{
	return (unsigned int)c < SANDBOX_COUNTER_COUNT ? counters[c].help : "";
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
	if (s->accounting)
		accounting_add(s, e, now_ms);
	else
		s->counters[COUNT_EVENTS_DROPPED] += e->packets;
}

bool sandbox_notify(const struct sandbox *s, const struct event *e)
{
	struct event advised = *e;

	if (advised.allowable)
		advised.allowable = advice_write(&s->plan, &advised, advised.advice)[0] !=
				    '\0';
	return s->on_event(s->on_event_data, &advised);
}

void sandbox_event(struct sandbox *s, struct event *e, int64_t now_ms)
{
	const uint32_t per_second = plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);
	struct plan_on_denies on;
	char window[POLICY_WINDOW_SIZE];
	struct event limit;

	if (s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	if (s->accounting) {
		accounting_add(s, e, now_ms);
		accounting_report(s, now_ms, false);
	} else if (!rate_take(&s->event_rate, per_second, 1000, per_second, now_ms) ||
		   !sandbox_notify(s, e)) {
		s->counters[COUNT_EVENTS_DROPPED] += e->packets;
	}
	/* Once a window at most, so no rate has to hold what is told of it. */
	on = plan_on_denies(&s->plan);
	if (!event_is_refusal(e) ||
	    !denies_add(&s->denies, &on, MAX(e->packets, UINT64_C(1)), now_ms))
		return;
	limit = event_make(EVENT_LIMIT, EVENT_LAUNCH);
	limit.limit = EVENT_LIMIT_DENIES;
	snprintf(limit.reason, sizeof(limit.reason), "more than %u denies in %s",
		 on.count, policy_window_text(on.window_sec, window));
	sandbox_notice(s, &limit, now_ms);
}

void sandbox_passed(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (!s->accounting || s->state == SANDBOX_TESTING || !s->on_event)
		return;
	fill(s, e);
	s->counters[COUNT_BYTES_SENT] += e->bytes;
	s->counters[COUNT_BYTES_RECEIVED] += e->received;
	if (!accounting_pass(s, e, now_ms))
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

/* ---- Weir's own ports ---- */

enum { PORTS = 65536, WORD_BITS = 64, WORDS = PORTS / WORD_BITS, KINDS = 4 };

static const struct {
	enum addr_family family;
	uint8_t protocol;
} kinds[KINDS] = {
	{ ADDR_V4, IPPROTO_TCP },
	{ ADDR_V4, IPPROTO_UDP },
	{ ADDR_V6, IPPROTO_TCP },
	{ ADDR_V6, IPPROTO_UDP },
};

/* The word with the port's bit; NULL: no such kind. */
static uint64_t *word_of(const struct sandbox_self_ports *h,
			 const struct filter_self_port *p)
{
	for (size_t i = 0; i < KINDS; i++)
		if (kinds[i].family == p->family && kinds[i].protocol == p->protocol)
			return &h->bits[i * WORDS + p->port / WORD_BITS];
	return NULL;
}

static uint64_t bit_of(const struct filter_self_port *p)
{
	return UINT64_C(1) << p->port % WORD_BITS;
}

/* Take ports out of the filter that it could not be freed of before. */
static int settle_stale(struct sandbox *s)
{
	struct sandbox_self_ports *h = &s->self_ports;

	for (; h->stale_count > 0; h->stale_count--) {
		int r = filter_self_port_set(&s->filter, &h->stale[h->stale_count - 1],
					     false);

		if (r < 0)
			return r;
	}
	return 0;
}

static int hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	const struct filter_self_port p = { family, protocol, port };
	struct sandbox *s = data;
	struct sandbox_self_ports *h = &s->self_ports;
	uint64_t *word;
	int r = settle_stale(s);

	if (r < 0 || h->is_unsure)
		return r < 0 ? r : -EIO;
	if (h->count >= SANDBOX_SELF_PORTS_MAX)
		return -ENOSPC;
	if (!h->stale)
		h->stale = calloc(SANDBOX_SELF_PORTS_STALE_MAX, sizeof(*h->stale));
	if (h->stale && !h->bits)
		h->bits = calloc((size_t)KINDS * WORDS, sizeof(*h->bits));
	if (!h->bits)
		return -ENOMEM;
	word = word_of(h, &p);
	if (!word || *word & bit_of(&p))
		return -EINVAL;
	r = filter_self_port_set(&s->filter, &p, true);
	if (r < 0)
		return r;
	*word |= bit_of(&p);
	h->count++;
	return 0;
}

static void let_go(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	const struct filter_self_port p = { family, protocol, port };
	struct sandbox *s = data;
	struct sandbox_self_ports *h = &s->self_ports;
	uint64_t *word = h->bits ? word_of(h, &p) : NULL;

	if (!word || !(*word & bit_of(&p)))
		return;
	*word &= ~bit_of(&p);
	h->count--;
	if (settle_stale(s) == 0 && filter_self_port_set(&s->filter, &p, false) == 0)
		return;
	if (h->stale_count < SANDBOX_SELF_PORTS_STALE_MAX)
		h->stale[h->stale_count++] = p;
	else
		h->is_unsure = true;
}

void sandbox_own_ports(struct sandbox *s, uint32_t mark)
{
	s->own = (struct own_ports){
		.mark = mark, .data = s, .hold = hold, .let_go = let_go
	};
}

void sandbox_self_ports_done(struct sandbox_self_ports *h)
{
	free(h->bits);
	free(h->stale);
	*h = (struct sandbox_self_ports){ 0 };
}

void sandbox_self_ports_list(const struct sandbox_self_ports *h,
			     struct filter_self_port *ret)
{
	size_t n = 0;

	for (size_t i = 0; h->bits && i < (size_t)KINDS * WORDS; i++)
		for (uint64_t left = h->bits[i]; left != 0; left &= left - 1)
			ret[n++] = (struct filter_self_port){
				.family = kinds[i / WORDS].family,
				.protocol = kinds[i / WORDS].protocol,
				.port = (uint16_t)(i % WORDS * WORD_BITS +
						   (size_t)__builtin_ctzll(left)),
			};
}

/* ---- on_denies ---- */

enum { PLACES = DENIES_STEPS + 1 };

bool denies_add(struct denies *d, const struct plan_on_denies *on, uint64_t packets,
		int64_t now_ms)
{
	const int64_t window_ms = (int64_t)on->window_sec * 1000;
	int64_t step;

	if (on->count == 0 || window_ms == 0)
		return false;
	step = now_ms * DENIES_STEPS / window_ms;
	/* What is older than the window goes. */
	if (step - d->step >= PLACES) {
		memset(d->packets, 0, sizeof(d->packets));
		d->sum = 0;
	}
	for (int64_t i = d->step + 1; i <= step && step - d->step < PLACES; i++) {
		uint64_t *place = &d->packets[(uint64_t)i % PLACES];

		d->sum -= *place;
		*place = 0;
	}
	d->step = MAX(d->step, step);
	/* The sum can't overflow: nothing counts beyond what is too many. */
	packets = MIN(packets, (uint64_t)on->count + 1);
	d->packets[(uint64_t)d->step % PLACES] += packets;
	d->sum += packets;
	if (d->sum <= on->count || now_ms < d->quiet_until_ms)
		return false;
	d->quiet_until_ms = now_ms + (on->action == ON_DENIES_STOP
					      ? MIN(window_ms, (int64_t)DENIES_AGAIN_MS)
					      : window_ms);
	return true;
}
