// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A query is held against the policy before anything else is done with it, in this order;
 * the first line that applies decides:
 *
 *   over the queries per second        SERVFAIL
 *   class other than IN                NOTIMP: nothing is served there
 *   the self-test's name, while it runs   the probe's address
 *   localhost and below                loopback addresses, answered here (RFC 6761)
 *   not a host name                    NXDOMAIN: no rule can name it
 *   the name's verdict is ask          an address that stands for the name, or it waits
 *                                      (sandbox/asks.h)
 *   the name's verdict is deny         NXDOMAIN; under `deniedNames: refuse` an address
 *                                      that stands for denied names (policy/plan.h)
 *   a type that the rule doesn't serve, AAAA without IPv6   NODATA
 *   a new name over the wildcard's budget   SERVFAIL
 *   else                               look it up
 *
 * New names: what stands in the labels below a wildcard travels to the zone's server, so
 * a name below a wildcard that this sandbox has not asked for lately costs one of the
 * rule's LIMIT_NEW_NAMES_PER_MINUTE, unless the rule says `unmetered`. "Lately" is a
 * table of fingerprints, two to a slot, where the newer pushes out the older; a name that
 * was pushed out costs again. A budget that is full again needs no record. When all eight
 * places that a rule may use are taken by others, it shares the first: strict rather than
 * endless. */
#include <stdio.h>
#include <string.h>

#include "policy/limits.h"
#include "policy/rule.h"
#include "resolver/resolver_internal.h"
#include "sandbox/asks.h"

enum { BUDGET_PLACES = 8 };

/* No name: queries for any number of names are one event, and add up
 * (sandbox/accounting.h). */
void resolver_limit(struct resolver *r, struct resolver_ask *ask, enum plan_limit which,
		    int64_t now_ms)
{
	const bool of_rule = which == LIMIT_NEW_NAMES_PER_MINUTE;
	struct sandbox *s = ask->client.sandbox;
	struct event e = event_make(EVENT_LIMIT, EVENT_DNS);

	e.limit = (uint8_t)(which + 1);
	e.rule = of_rule ? ask->verdict.rule : EVENT_NO_RULE;
	s->counters[of_rule ? COUNT_NEW_NAMES_LIMITED : COUNT_QUERIES_LIMITED]++;
	resolver_fail(r, ask, DNS_EDE_OTHER, "limit reached");
	snprintf(e.reason, sizeof(e.reason), "limit reached: %s",
		 limit_info(which)->name);
	sandbox_event(s, &e, now_ms);
}

/* ---- budgets of new names ---- */

static struct rate *budget_of(struct resolver_sandbox *g, uint32_t rule, int64_t now_ms)
{
	struct budget *home = &g->budgets[rule % (BUDGETS_SIZE - BUDGET_PLACES)];
	struct budget *unused = NULL;

	for (struct budget *b = home; b < home + BUDGET_PLACES; b++) {
		if (rate_is_full(&b->rate, now_ms))
			unused = unused ? unused : b;
		else if (b->rule == rule)
			return &b->rate;
	}
	if (!unused)
		return &home->rate;
	unused->rule = rule;
	return &unused->rate;
}

/* Return: whether the name may be looked up; below a wildcard it then counts as seen. */
static bool within_budget(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	const struct plan *p = &ask->client.sandbox->plan;
	struct resolver_sandbox *g = ask->client.sandbox->resolver;
	const struct dns_name *n = &ask->query.name;
	uint32_t limit = plan_limit(p, LIMIT_NEW_NAMES_PER_MINUTE);
	uint32_t rule = ask->verdict.rule, *slot, mark;
	const char *target = rule == PLAN_NO_RULE ? "" : plan_rule(p, rule).target;
	bool is_wide = target[0] == '*'; /* names without number */
	uint64_t hash;

	if (limit == UINT32_MAX || ask->verdict.flags & PLAN_UNMETERED || !is_wide)
		return true;
	if (!g->budgets)
		g->budgets = calloc(BUDGETS_SIZE, sizeof(*g->budgets));
	if (g->budgets && !g->seen)
		g->seen = calloc(SEEN_SIZE, sizeof(*g->seen));
	if (g->seen) {
		uint32_t target_hash =
			(uint32_t)hash_bytes(&r->key, target, strlen(target));

		hash = hash_bytes(&r->key, n->bytes, n->size) ^
		       (target_hash + UINT64_C(1)) * UINT64_C(0x9e3779b97f4a7c15);
		mark = (uint32_t)(hash >> 32) | 1;
		slot = g->seen[hash % SEEN_SIZE];
		if (slot[0] == mark || slot[1] == mark)
			return true;
		if (rate_take(budget_of(g, target_hash, now_ms), limit, 60 * 1000, limit,
			      now_ms)) {
			slot[1] = slot[0];
			slot[0] = mark;
			return true;
		}
	}
	resolver_limit(r, ask, LIMIT_NEW_NAMES_PER_MINUTE, now_ms);
	return false;
}

/* ---- what is answered here ---- */

static void answer_localhost(struct resolver *r, struct resolver_ask *ask)
{
	static const uint8_t loopback6[16] = { [15] = 1 };
	struct addr a;

	if (ask->query.type == DNS_TYPE_A)
		a = addr_v4(127, 0, 0, 1);
	else if (ask->query.type == DNS_TYPE_AAAA && ask->client.sandbox->ipv6)
		a = addr_from_bytes(ADDR_V6, loopback6);
	else
		a = (struct addr){ 0 };
	if (a.family == ADDR_NONE) {
		resolver_negative(r, ask, DNS_NOERROR, LOCAL_TTL_SEC);
	} else {
		ask->client.sandbox->counters[COUNT_ANSWERS]++;
		resolver_answer_here(r, ask, &a, LOCAL_TTL_SEC, (struct text){ 0 });
	}
}

/* ---- the policy ---- */

/* "deny *.x.test (policy.yaml:4)"; a rule that asks is no deny, but nobody is asked. */
static void describe_rule(const struct plan *p, struct plan_verdict v, char *buf,
			  size_t size)
{
	struct plan_rule pr;

	if (v.rule == PLAN_NO_RULE || v.flags & PLAN_SPENT) {
		snprintf(buf, size, "%s", plan_reason(v, "no rule allows it"));
		return;
	}
	pr = plan_rule(p, v.rule);
	if (pr.line > 0)
		snprintf(buf, size, "%s %s (%s:%u)", policy_action_name(pr.action),
			 pr.target, pr.file, pr.line);
	else
		snprintf(buf, size, "%s %s (%s)", policy_action_name(pr.action),
			 pr.target, pr.file);
}

/* The verdict allows the name: does it serve the type? */
static bool verdict_of_type(struct resolver *r, struct resolver_ask *ask)
{
	struct sandbox *s = ask->client.sandbox;

	if (plan_serves_type(ask->verdict.types, ask->query.type) &&
	    (ask->query.type != DNS_TYPE_AAAA || s->ipv6))
		return true;
	s->counters[COUNT_QUERIES_UNSERVED]++;
	resolver_negative(r, ask, DNS_NOERROR, LOCAL_TTL_SEC);
	return false;
}

static bool verdict_of_name(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	const struct dns_query *q = &ask->query;
	char reason[REASON_SIZE];

	ask->matched = s->plan_generation + 1;
	ask->verdict = plan_match_query(&s->plan, &q->name);
	if (ask->verdict.action == POLICY_ASK && !ask->client.own &&
	    sinkhole_may_stand(&s->plan, &q->name)) {
		resolver_hold(r, ask, now_ms);
		return false;
	}
	if (ask->verdict.action != POLICY_ALLOW) {
		describe_rule(&s->plan, ask->verdict, reason, sizeof(reason));
		if (plan_denied_names(&s->plan) == POLICY_DENIED_REFUSE && s->relay &&
		    sinkhole_may_stand(&s->plan, &q->name))
			resolver_sinkhole(r, ask, reason, now_ms);
		else
			resolver_deny(r, ask, reason, now_ms);
		return false;
	}
	return verdict_of_type(r, ask);
}

bool resolver_verdict_again(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	return resolver_is_matched(ask) ? verdict_of_type(r, ask)
					: verdict_of_name(r, ask, now_ms);
}

bool resolver_verdict(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	const struct dns_query *q = &ask->query;

	/* The self-test's queries, before the command's first, are not the command's. */
	if (s->state != SANDBOX_TESTING &&
	    !rate_take(&s->resolver->queries,
		       plan_limit(&s->plan, LIMIT_QUERIES_PER_SECOND), 1000,
		       plan_limit(&s->plan, LIMIT_QUERIES_BURST), now_ms)) {
		resolver_limit(r, ask, LIMIT_QUERIES_PER_SECOND, now_ms);
		return false;
	}
	if (q->class != DNS_CLASS_IN) {
		s->counters[COUNT_QUERIES_UNSERVED]++;
		resolver_refuse(r, ask,
				&(struct dns_refusal){ .rcode = DNS_NOTIMP,
						       .ede = DNS_EDE_NONE });
		return false;
	}
	ask->probe = s->probe_name.size > 0 && q->type == DNS_TYPE_A &&
		     dns_name_equal(&q->name, &s->probe_name);
	if (ask->probe)
		return true;
	if (dns_name_is_localhost(&q->name)) {
		answer_localhost(r, ask);
		return false;
	}
	return verdict_of_name(r, ask, now_ms) && within_budget(r, ask, now_ms);
}

/* ---- queries for names that ask ---- */

/* Queries for names that ask, of sandboxes whose TCP doesn't go through the relay: each
 * waits until its name is granted or refused, or its time is over. They wait equally
 * long, so each sandbox's are in the order of their ends. */

static void wait_on(struct resolver *r, struct resolver_sandbox *g,
		    struct resolver_ask *ask)
{
	if (!g->parked.first)
		LIST_INSERT_HEAD(&r->parking, g, parking);
	ask_list_push(&g->parked, ask);
	r->park_next_ms = MIN(r->park_next_ms, ask->until_ms);
}

void resolver_park(struct resolver *r, const struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct resolver_sandbox *g = s->resolver;
	struct resolver_ask *copy = resolver_ask_new(r, s);
	struct event e = resolver_event(ask, EVENT_ASK);
	const struct asked what = { .name = ask->query.name };
	const bool is_dismissed = asks_is_dismissed(s, &what);

	if (is_dismissed || !copy || !asks_park(s, &e, now_ms)) {
		resolver_deny(r, ask, is_dismissed ? ASKS_DISMISSED : ASKS_TOO_MANY,
			      now_ms);
		if (copy)
			resolver_ask_release(r, copy);
		return;
	}
	*copy = *ask;
	copy->until_ms = now_ms + ASKS_QUERY_MS;
	if (!g->parked.first)
		g->parked_generation = s->plan_generation;
	wait_on(r, g, copy);
}

/* Take all of @g's; what is to wait on is pushed again. */
static struct ask_list take_all(struct resolver_sandbox *g)
{
	const struct ask_list all = g->parked;

	if (all.first)
		LIST_REMOVE(g, parking);
	g->parked = (struct ask_list){ 0 };
	return all;
}

/* Judge @g's anew: @why not NULL: those for @name (NULL: all that are over) are refused.
 */
static void look_at(struct resolver *r, struct resolver_sandbox *g,
		    const struct dns_name *name, const char *why, int64_t now_ms)
{
	const struct sandbox *s = g->sandbox;
	struct ask_list all = take_all(g);
	struct resolver_ask *ask;

	g->parked_generation = s->plan_generation;
	while ((ask = ask_list_pop(&all))) {
		const bool asks = plan_match_name(&s->plan, &ask->query.name).action ==
				  POLICY_ASK;
		const bool is_meant = why &&
				      (name ? dns_name_equal(name, &ask->query.name)
					    : ask->until_ms <= now_ms);

		if (asks && !is_meant) {
			wait_on(r, g, ask);
			continue;
		}
		asks_unpark(g->sandbox);
		if (asks) {
			resolver_deny(r, ask, why, now_ms);
			resolver_ask_release(r, ask);
		} else {
			resolver_begin(r, ask, now_ms);
		}
	}
}

void resolver_parked_tick(struct resolver *r, int64_t now_ms)
{
	struct resolver_sandbox *g, *next;

	r->park_next_ms = INT64_MAX;
	for (g = LIST_FIRST(&r->parking); g; g = next) {
		next = LIST_NEXT(g, parking);
		look_at(r, g, NULL, ASKS_UNANSWERED, now_ms);
	}
}

void resolver_parked_recheck(struct resolver *r, int64_t now_ms)
{
	struct resolver_sandbox *g, *next;

	for (g = LIST_FIRST(&r->parking); g; g = next) {
		next = LIST_NEXT(g, parking);
		if (g->parked_generation != g->sandbox->plan_generation)
			look_at(r, g, NULL, NULL, now_ms);
	}
}

void resolver_dismiss(struct resolver *r, struct sandbox *s, const struct dns_name *name,
		      int64_t now_ms)
{
	if (s->resolver && s->resolver->parked.first)
		look_at(r, s->resolver, name, ASKS_DISMISSED, now_ms);
}

void resolver_parked_forget(struct resolver *r, struct resolver_sandbox *g)
{
	struct ask_list all = take_all(g);
	struct resolver_ask *ask;

	while ((ask = ask_list_pop(&all))) {
		asks_unpark(g->sandbox);
		resolver_ask_release(r, ask);
	}
}
