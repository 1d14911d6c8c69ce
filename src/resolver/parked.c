// SPDX-License-Identifier: Apache-2.0
/* Queries for names that ask, of sandboxes whose TCP doesn't go through the relay: each
 * waits until its name is granted or refused, or its time is over. They wait equally
 * long, so each sandbox's are in the order of their ends. */
#include <string.h>

#include "resolver/resolver_internal.h"
#include "sandbox/asks.h"

static void refuse(struct resolver *r, struct resolver_ask *ask, const char *why,
		   int64_t now_ms)
{
	resolver_deny(r, ask, ask->verdict.rule, NULL, why, now_ms);
}

void resolver_park(struct resolver *r, const struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct resolver_sandbox *g = s->resolver;
	struct resolver_ask *copy = resolver_ask_new(r);
	struct event e = resolver_event(ask, EVENT_ASK);
	const struct asked what = { .name = ask->query.name };
	const bool is_dismissed = asks_is_dismissed(s, &what);

	if (is_dismissed || !copy || !asks_park(s, &e, now_ms)) {
		struct resolver_ask refused = *ask;

		refuse(r, &refused, is_dismissed ? ASKS_DISMISSED : ASKS_TOO_MANY,
		       now_ms);
		if (copy)
			resolver_ask_release(r, copy);
		return;
	}
	*copy = *ask;
	copy->until_ms = now_ms + ASKS_QUERY_MS;
	if (!g->parked.first) {
		g->parked_generation = s->plan_generation;
		LIST_INSERT_HEAD(&r->parking, g, parking);
	}
	ask_list_push(&g->parked, copy);
	r->park_next_ms = MIN(r->park_next_ms, copy->until_ms);
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

static void wait_on(struct resolver *r, struct resolver_sandbox *g,
		    struct resolver_ask *ask)
{
	if (!g->parked.first)
		LIST_INSERT_HEAD(&r->parking, g, parking);
	ask_list_push(&g->parked, ask);
	r->park_next_ms = MIN(r->park_next_ms, ask->until_ms);
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
			refuse(r, ask, why, now_ms);
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
