// SPDX-License-Identifier: Apache-2.0
#include "sandbox/accounting.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/special.h"
#include "filter/ruleset.h"
#include "sandbox/asks.h"
#include "sandbox/budgets.h"
#include "sandbox/learned.h"
#include "sandbox/sandbox.h"

struct accounting *accounting_new(struct aggregation_pool *pool)
{
	struct accounting *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->pool = pool;
	/* As in aggregation.c: it must not be chosen from outside. */
	a->novelty.key = (struct hash_key){ (uintptr_t)a, (uintptr_t)pool };
	a->read_at_ms = INT64_MAX;
	return a;
}

void accounting_free(struct accounting *a)
{
	if (!a)
		return;
	aggregation_free(a->denied);
	aggregation_free(a->passed);
	free(a->flows);
	free(a);
}

/* ---- what was denied, and what passed ---- */

/* @packets that were denied, to whatever destinations. */
static struct event accounting_others(enum event_layer layer, uint64_t packets)
{
	struct event e = event_make(EVENT_DENY, layer);

	e.packets = packets;
	event_set_reason(&e, "more than could be reported one by one");
	return e;
}

/* @e is not reported by itself. */
static void report_with_others(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct aggregation *t = s->accounting->denied;
	struct event others = accounting_others((enum event_layer)e->layer, e->packets);

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

void accounting_add(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounting *a = s->accounting;
	struct event gone;
	unsigned int line;
	int r = 0;

	if (!a->denied)
		a->denied = aggregation_new(a->pool, ACCOUNTING_EVENTS_MAX,
					    ACCOUNTING_FOLD_MS);
	if (!a->denied || aggregation_fold(a->denied, e)) {
		s->counters[COUNT_EVENTS_DROPPED] += a->denied ? 0 : e->packets;
		return;
	}
	if (e->action == EVENT_DENY || e->action == EVENT_ASK)
		line = e->remote.family == ADDR_NONE && e->name[0] == '\0'
			       ? AGGREGATION_ALWAYS /* without a destination */
			       : AGGREGATION_NEW + novelty_rank(&a->novelty, e, now_ms);
	else
		line = e->limit == EVENT_LIMIT_DENIES || e->action == EVENT_PANIC
			       ? AGGREGATION_ALWAYS
			       : AGGREGATION_NEW_LAST;
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
		!denied ? (uint32_t)ACCOUNTING_PASSED_PER_SECOND
			: plan_limit(&s->plan, LIMIT_EVENTS_PER_SECOND);
	uint64_t burst = per_second;

	if (denied)
		burst = burst * ACCOUNTING_BURST_SEC *
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
				       ACCOUNTING_WAIT_MS / 2
		       ? aggregation_newest(t, line, now_ms)
		       : oldest;
}

/* What is new and has waited for too long. */
static void drop_overdue(struct sandbox *s, struct aggregation *t, unsigned int line,
			 int64_t now_ms)
{
	const struct event *e;

	if (line < AGGREGATION_NEW || line > AGGREGATION_NEW_LAST ||
	    t == s->accounting->passed)
		return;
	while ((e = aggregation_oldest(t, line, now_ms)) &&
	       aggregation_waited_ms(e, now_ms) >= ACCOUNTING_WAIT_MS) {
		report_with_others(s, e, now_ms);
		aggregation_let_go(t, e);
	}
}

/* What control does not take now waits for the next time. */
static void report(struct sandbox *s, struct aggregation *t, struct rate *rate,
		   int64_t now_ms, bool all)
{
	const struct event *e;

	for (unsigned int line = 0; line < AGGREGATION_LINES && s->on_event; line++) {
		while ((e = next_of(t, line, now_ms))) {
			struct rate before = *rate;

			if (!all && line != AGGREGATION_ALWAYS &&
			    !may_report(s, line, rate, now_ms)) {
				drop_overdue(s, t, line, now_ms);
				break;
			}
			if (!sandbox_notify(s, e)) {
				*rate = before;
				return;
			}
			aggregation_reported(t, e, now_ms);
		}
	}
}

void accounting_report(struct sandbox *s, int64_t now_ms, bool all)
{
	struct accounting *a = s->accounting;

	if (a->denied && all)
		aggregation_close(a->denied);
	if (a->denied)
		report(s, a->denied, &s->event_rate, now_ms, all);
	if (a->passed)
		report(s, a->passed, &a->passed_rate, now_ms, all);
}

void accounting_open(struct sandbox *s, int64_t now_ms)
{
	s->accounting->window_ends_ms =
		now_ms + plan_limit(&s->plan, LIMIT_EVENT_WINDOW_SEC) * INT64_C(1000);
}

void accounting_close(struct sandbox *s, int64_t now_ms)
{
	if (s->accounting->passed)
		aggregation_close(s->accounting->passed);
	accounting_open(s, now_ms);
}

bool accounting_pass(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	struct accounting *a = s->accounting;

	if (!a->passed)
		a->passed = aggregation_new(a->pool, ACCOUNTING_EVENTS_MAX, 0);
	return a->passed && (aggregation_fold(a->passed, e) ||
			     aggregation_hold(a->passed, e, AGGREGATION_NEW, now_ms));
}

/* ---- novelty ---- */

/* Count the group of @e at @level. Return: how often it came, or more. */
static uint16_t count_group(struct novelty *c, const struct event *e, size_t level)
{
	static const uint8_t v4[] = { 2, 3, 4 }, v6[] = { 4, 6, 8 };
	uint8_t bytes[1 + EVENT_NAME_SIZE] = { e->layer };
	uint16_t least = UINT16_MAX;
	size_t size = 1;
	uint64_t hash;

	if (e->remote.family != ADDR_NONE) {
		const size_t used = e->remote.family == ADDR_V4 ? v4[level] : v6[level];

		memcpy(bytes + size, e->remote.bytes, used);
		size += used;
	} else {
		const size_t len = strnlen(e->name, sizeof(e->name));
		size_t labels = level + 1, at = len;

		/* The last labels of the name: all of it when it has no more. */
		while (at > 0 && (e->name[at - 1] != '.' || --labels > 0))
			at--;
		memcpy(bytes + size, e->name + at, len - at);
		size += len - at;
	}
	hash = hash_bytes(&c->key, bytes, size);
	for (size_t row = 0; row < NOVELTY_ROWS; row++) {
		uint16_t *cell = &c->cells[level][row][hash % NOVELTY_CELLS];

		*cell = (uint16_t)(*cell + (*cell < UINT16_MAX));
		least = MIN(least, *cell);
		hash /= NOVELTY_CELLS;
	}
	return least;
}

unsigned int novelty_rank(struct novelty *c, const struct event *e, int64_t now_ms)
{
	const int64_t halves = (now_ms - c->halved_ms) / NOVELTY_HALF_MS;
	const unsigned int shift = (unsigned int)MIN(halves, INT64_C(16));
	unsigned int rank = NOVELTY_LEVELS;

	if (halves > 0) {
		c->halved_ms += halves * NOVELTY_HALF_MS;
		for (size_t i = 0; i < NOVELTY_LEVELS; i++)
			for (size_t row = 0; row < NOVELTY_ROWS; row++)
				for (size_t j = 0; j < NOVELTY_CELLS; j++)
					c->cells[i][row][j] >>= shift;
		c->total >>= shift;
	}
	c->total += c->total < UINT32_MAX;
	for (size_t level = NOVELTY_LEVELS; level-- > 0;) {
		const uint16_t seen = count_group(c, e, level);

		if (seen <= NOVELTY_FEW || seen <= c->total / NOVELTY_SHARE)
			rank = (unsigned int)level;
	}
	return rank;
}

/* ---- packets that the filter has refused ---- */

enum { DNS_PORT = 53 };

/* The policy allows it, and yet there is no way. */
static const char *no_way_out(const struct sandbox *s, uint8_t protocol, uint16_t port)
{
	bool not_ours = s->shared || s->host; /* it has a way out of its own */

	if (not_ours && protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return "this protocol has no way out";
	if (not_ours && port == DNS_PORT)
		return "name servers are asked by Weir alone";
	if (not_ours)
		return "its time was over, or the packet is not of an open connection";
	if (!s->relay)
		return "--uplink none carries nothing";
	if (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return "this protocol has no way out";
	if (protocol == IPPROTO_UDP && !s->direct_udp)
		return "UDP needs --uplink slirp4netns (or pasta)";
	return "an address of this machine, or the uplink has ended";
}

/* The address goes by a name that is allowed, but not on this port or not by this way. */
static bool explain_by_name(const struct sandbox *s, struct event *e, int64_t now_ms)
{
	struct learned_use use;
	bool is_listed;

	if (learned_find(s->learned, &e->remote, now_ms, &use, 1) == 0)
		return false;
	sandbox_event_name(e, &use.name);
	e->rule = use.rule;
	is_listed = plan_port_list_has(&s->plan, use.port_list, e->protocol, e->port);
	/* Another rule would open no way. */
	e->allowable = e->allowable && !is_listed;
	event_set_reason(e, is_listed ? no_way_out(s, e->protocol, e->port)
				      : "the rule does not list this port");
	return true;
}

/* A rule alone would let nothing through: say what else it takes. */
static void explain_uplink(const struct sandbox *s, struct event *e)
{
	const bool owned = !s->shared && !s->host;
	char reason[EVENT_REASON_SIZE];
	int size;

	if (!e->allowable || !owned || e->protocol == IPPROTO_TCP ||
	    (s->relay && s->direct_udp && e->protocol == IPPROTO_UDP))
		return;
	e->allowable = false;
	e->action = EVENT_DENY;
	size = snprintf(reason, sizeof(reason), "%s, and %s", e->reason,
			no_way_out(s, e->protocol, e->port));
	if (size < (int)sizeof(reason))
		event_set_reason(e, reason);
}

/* Nothing keeps a packet until it is granted: one that comes later passes. @name NULL:
 * the address asks. */
static void set_asked(const struct sandbox *s, struct event *e,
		      const struct dns_name *name, uint32_t rule)
{
	const struct asked what = { .name = name ? *name : (struct dns_name){ 0 },
				    .addr = e->remote,
				    .protocol = e->protocol,
				    .port = e->port };

	e->rule = rule;
	e->allowable = true;
	if (asks_is_dismissed(s, &what)) {
		event_set_reason(e, ASKS_DISMISSED);
		return;
	}
	e->action = EVENT_ASK;
	event_set_reason(e, "asked: refused until it is granted");
}

/* What is no TCP goes to the address that stands for a name that asks. */
static bool explain_stand_in(struct sandbox *s, struct event *e, int64_t now_ms)
{
	const struct dns_name *name = asks_name(s, &e->remote, now_ms);
	struct plan_verdict v;

	if (!name)
		return false;
	v = plan_match_name(&s->plan, name);
	sandbox_event_name(e, name);
	e->remote = (struct addr){ 0 };
	e->rule = v.rule;
	e->allowable = false;
	event_set_reason(e, "the name was not granted when it was looked up");
	if (v.action == POLICY_ASK &&
	    plan_port_list_has(&s->plan, v.port_list, e->protocol, e->port))
		set_asked(s, e, name, v.rule);
	return true;
}

static void explain(struct sandbox *s, struct event *e, int64_t now_ms)
{
	struct plan_verdict v =
		plan_match_addr(&s->plan, &e->remote, e->protocol, e->port);
	enum addr_special special = addr_special(&e->remote);
	const bool may_be_asked = addr_special_is_offered(special);

	if (explain_stand_in(s, e, now_ms)) {
		explain_uplink(s, e);
		return;
	}
	e->rule = v.rule;
	e->allowable = v.action != POLICY_ALLOW && !(v.flags & PLAN_SPENT) &&
		       (v.rule == PLAN_NO_RULE || v.action == POLICY_ASK);
	if (v.flags & PLAN_SPENT) {
		event_set_reason(e, plan_reason(v, ""));
	} else if (v.action == POLICY_ALLOW) {
		event_set_reason(e, no_way_out(s, e->protocol, e->port));
	} else if (v.rule != PLAN_NO_RULE && v.action == POLICY_DENY) {
		event_set_reason(e, "denied by a rule");
	} else if (explain_by_name(s, e, now_ms)) {
		explain_uplink(s, e);
		return;
	} else if (v.action == POLICY_ASK && may_be_asked) {
		set_asked(s, e, NULL, v.rule);
	} else if (plan_names_addr(&s->plan, &e->remote)) {
		event_set_reason(e, "the rule does not list this port");
	} else if (special > SPECIAL_NOT) {
		event_set_reason(e, addr_special_name(special));
	} else {
		event_set_reason(e, "no rule allows it");
	}
	explain_uplink(s, e);
}

/* The filter has logged @p, which is reported. Without room @p is counted twice. */
static void note_log(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms)
{
	struct accounting *a = s->accounting;

	if (!a)
		return;
	a->reported++;
	a->read_every_ms = ACCOUNTING_LOOK_MS;
	a->read_at_ms = MIN(a->read_at_ms, now_ms + ACCOUNTING_LOOK_MS);
	if (strcmp(p->prefix, FILTER_PREFIX_REFUSED) != 0)
		return;
	if (a->flow_count == ACCOUNTING_FLOWS_MAX ||
	    !ARRAY_GROW(a->flows, a->flow_count, a->flow_capacity)) {
		a->is_short = true;
		return;
	}
	a->flows[a->flow_count++] = (struct accounting_flow){
		.addr = p->destination,
		.port = p->destination_port,
		.protocol = p->protocol,
		.uid = p->uid,
		.packets = 1,
		.bytes = p->length,
	};
}

/* What is sent to the address of a denied name, by UDP or a ping, was told when the name
 * was looked up. */
static void tell(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (plan_denied_names(&s->plan) != POLICY_DENIED_REFUSE ||
	    !sinkholes_gave(&s->sinkholes, &e->remote))
		sandbox_event(s, e, now_ms);
}

void refused_packet(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms)
{
	struct event e = nflog_event(p);

	e.from = (struct endpoint){ p->source, p->source_port };
	e.to = (struct endpoint){ p->destination, p->destination_port };
	s->counters[COUNT_PACKETS_DENIED]++;
	if (strcmp(p->prefix, FILTER_PREFIX_IMITATES) == 0) {
		event_set_reason(&e, "imitates Weir's own packets");
	} else {
		explain(s, &e, now_ms);
		note_log(s, p, now_ms);
	}
	tell(s, &e, now_ms);
}

static struct event event_of(const struct filter_count *c, enum event_action action)
{
	struct event e = event_make(action, EVENT_ADDRESS);

	e.protocol = c->protocol;
	e.remote = c->addr;
	e.port = c->port;
	e.packets = c->packets;
	e.bytes = c->bytes;
	return e;
}

struct openers {
	const struct plan *plan;
	struct passed_rules *rules;
};

static void on_rule(void *data, uint32_t rule, uint8_t port_list)
{
	const struct openers *o = data;

	if (port_list >= PLAN_PORT_LISTS_MAX)
		return;
	o->rules->lists |= UINT32_C(1) << port_list;
	o->rules->which[port_list] |= budgets_of(o->plan, rule);
}

/* Return: whether one of @rules opens the port of @c. Their budgets are added to *@ret.
 */
static bool add_payers(const struct plan *plan, const struct passed_rules *rules,
		       const struct filter_count *c, uint64_t *ret)
{
	bool is_known = false;

	for (uint8_t i = 0; i < PLAN_PORT_LISTS_MAX; i++) {
		if (!(rules->lists >> i & 1) ||
		    !plan_port_list_has(plan, i, c->protocol, c->port))
			continue;
		is_known = true;
		*ret |= rules->which[i];
	}
	return is_known;
}

/* Which budgets pay for what was sent to @c: of each rule that opens that destination,
 * or, where none does any more, that did when the flow began. The kernel can't tell them
 * apart. */
static uint64_t payers_of(const struct sandbox *s, const struct filter_count *c,
			  struct passed_payers *p)
{
	const struct plan *plan = &s->plan;
	const struct plan_verdict v =
		plan_judge_addr(plan, &c->addr, c->protocol, c->port);
	const bool is_same_sandbox = p->sandbox == s;
	struct openers now = { plan, &p->now }, past = { plan, &p->past };
	bool is_known = v.rule != PLAN_NO_RULE, is_whole = true;
	uint64_t which = is_known ? budgets_of(plan, v.rule) : 0;

	if (!is_same_sandbox || !addr_equal(&p->addr, &c->addr)) {
		*p = (struct passed_payers){
			.sandbox = s,
			.addr = c->addr,
			.past_count = is_same_sandbox ? p->past_count : 0,
		};
		if (s->learned)
			learned_rules(s->learned, &c->addr, on_rule, &now);
	}
	is_known |= add_payers(plan, &p->now, c, &which);
	if (s->learned && !is_known && v.action != POLICY_ALLOW) {
		if (!p->has_past && p->past_count < PASSED_PAST_MAX) {
			p->past_count++;
			p->is_whole =
				learned_past_rules(s->learned, &p->addr, on_rule, &past);
		}
		p->has_past = true;
		is_known = add_payers(plan, &p->past, c, &which);
		is_whole = p->is_whole;
	}
	/* It may have been one of those that were too many to keep. */
	if (!is_known && !is_whole)
		which = UINT64_MAX >> (64 - plan_budget_count(plan));
	return which | budgets_of(plan, PLAN_NO_RULE);
}

void passed_count(struct sandbox *s, const struct filter_count *c,
		  struct passed_payers *payers, int64_t now_ms)
{
	struct event e = event_of(c, EVENT_ALLOW);
	struct learned_use use;

	e.rule = plan_judge_addr(&s->plan, &e.remote, e.protocol, e.port).rule;
	if (learned_find(s->learned, &e.remote, now_ms, &use, 1) > 0) {
		sandbox_event_name(&e, &use.name);
		e.rule = e.rule == PLAN_NO_RULE ? use.rule : e.rule;
	}
	if (s->budgets)
		sandbox_spend(s, payers_of(s, c, payers), c->bytes, 0, now_ms);
	sandbox_passed(s, &e, now_ms);
}

/* ---- how refused packets are counted: see accounting.h ---- */

static int compare_flows(const void *a, const void *b)
{
	const struct accounting_flow *x = a, *y = b;
	int r = memcmp(&x->addr, &y->addr, sizeof(x->addr));

	if (r == 0)
		r = x->protocol - y->protocol;
	return r ? r : x->port - y->port;
}

/* Sort, and add up what was logged more than once. The newest log says the sender. */
static void sort_flows(struct accounting *a)
{
	size_t used = 0;

	if (a->flow_count > 0)
		qsort(a->flows, a->flow_count, sizeof(*a->flows), compare_flows);
	for (size_t i = 0; i < a->flow_count; i++) {
		struct accounting_flow *f = &a->flows[i];
		struct accounting_flow *last = used > 0 ? &a->flows[used - 1] : NULL;

		if (last && compare_flows(last, f) == 0) {
			last->packets += f->packets;
			last->bytes += f->bytes;
			last->uid = f->packets > 0 ? f->uid : last->uid;
		} else {
			a->flows[used++] = *f;
		}
	}
	a->flow_count = used;
}

static uint64_t packets_left(uint64_t counted, uint64_t *logged)
{
	uint64_t known = MIN(counted, *logged);

	*logged -= known;
	return counted - known;
}

/* Packets that were counted instead of logged are told with the sender of the first one.
 * Return: how many were not reported. */
static uint64_t take_count(struct sandbox *s, const struct filter_count *given,
			   int64_t now_ms)
{
	struct accounting *a = s->accounting;
	const struct accounting_flow key = { .addr = given->addr,
					     .port = given->port,
					     .protocol = given->protocol };
	struct accounting_flow *f = a->flow_count > 0
					    ? bsearch(&key, a->flows, a->flow_count,
						      sizeof(*f), compare_flows)
					    : NULL;
	struct filter_count c = *given;

	if (f) {
		c.packets = packets_left(c.packets, &f->packets);
		c.bytes = packets_left(c.bytes, &f->bytes);
		f->counted = true;
	}
	a->is_short |= !f;
	if (c.packets > 0) {
		struct event e = event_of(&c, EVENT_DENY);

		e.uid = f ? f->uid : UINT32_MAX;
		s->counters[COUNT_PACKETS_DENIED] += c.packets;
		explain(s, &e, now_ms);
		tell(s, &e, now_ms);
	}
	return c.packets;
}

void accounting_count(struct sandbox *s, const uint64_t *total,
		      const struct filter_count *counts, size_t count, int64_t now_ms)
{
	struct accounting *a = s->accounting;
	uint64_t found = 0, lost = 0;
	size_t used = 0;

	sort_flows(a);
	a->is_short = false;
	for (size_t i = 0; i < count; i++)
		found += take_count(s, &counts[i], now_ms);
	/* What the filter doesn't count any more goes. One that was logged after the
	 * counters were read is found the next time. */
	for (size_t i = 0; i < a->flow_count; i++) {
		struct accounting_flow *f = &a->flows[i];

		if (!f->counted && f->packets == 0)
			continue;
		f->counted = false;
		a->flows[used++] = *f;
	}
	a->flow_count = used;
	a->reported += found;
	if (total) {
		/* What came after the total was read is reported already. */
		const uint64_t grown = *total - MIN(*total, a->total);
		struct event others;

		lost = grown > a->reported ? grown - a->reported : 0;
		others = accounting_others(EVENT_ADDRESS, lost);
		a->total = *total;
		a->reported = a->reported > grown ? a->reported - grown : 0;
		s->counters[COUNT_PACKETS_DENIED] += lost;
		s->counters[COUNT_PACKETS_LOST] += lost;
		if (lost > 0)
			sandbox_event(s, &others, now_ms);
	}
	a->read_every_ms = found + lost > 0
				   ? ACCOUNTING_LOOK_MS
				   : MIN(a->read_every_ms * 2, ACCOUNTING_READ_MAX_MS);
	a->read_at_ms = count > 0 || a->flow_count > 0 || lost > 0
				? now_ms + a->read_every_ms
				: INT64_MAX;
}

void accounting_begin(struct sandbox *s, uint64_t total)
{
	struct accounting *a = s->accounting;

	a->total = total;
	a->reported = 0;
	a->flow_count = 0;
	a->is_short = false;
	a->read_at_ms = INT64_MAX;
}
