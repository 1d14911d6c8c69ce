// SPDX-License-Identifier: Apache-2.0
#include "sandbox/asks.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/limits.h"

struct stand_in {
	struct dns_name name;
	int64_t given_ms; /* last */
};

struct asks {
	struct stand_in *names; /* owned; the index is that of the address */
	size_t count, capacity;
	struct asked *dismissed; /* owned; the oldest first */
	size_t dismissed_count, dismissed_capacity;
};

bool asks_by_relay(const struct sandbox *s)
{
	return s->shared || s->host ? s->shared_params.relay : s->owned_params.relay;
}

/* ---- addresses ---- */

static struct asks *make(struct sandbox *s)
{
	if (!s->asks)
		s->asks = calloc(1, sizeof(*s->asks));
	return s->asks;
}

bool asks_address(struct sandbox *s, const struct dns_name *name, enum addr_family family,
		  int64_t now_ms, struct addr *ret)
{
	struct asks *a = make(s);
	struct stand_in *x = NULL;

	for (size_t i = 0; a && i < a->count && !x; i++)
		if (dns_name_equal(&a->names[i].name, name))
			x = &a->names[i];
	if (a && !x) {
		if (a->count < SINKHOLE_ADDRESSES) {
			if (ARRAY_GROW(a->names, a->count, a->capacity))
				x = &a->names[a->count++];
		} else {
			x = a->names;
			for (size_t i = 1; i < a->count; i++)
				x = a->names[i].given_ms < x->given_ms ? &a->names[i] : x;
			/* The oldest still stands for its name, so all do. */
			if (x->given_ms + ASKS_KEEP_MS > now_ms)
				x = NULL;
		}
		if (x)
			*x = (struct stand_in){ .name = *name };
	}
	if (!x)
		return false;
	x->given_ms = now_ms;
	*ret = sinkhole_ask_addr(family, (uint8_t)(x - a->names));
	return true;
}

const struct dns_name *asks_name(struct sandbox *s, const struct addr *a, int64_t now_ms)
{
	uint8_t n;

	if (!s->asks || !sinkhole_is_ask(a, &n) || n >= s->asks->count)
		return NULL;
	s->asks->names[n].given_ms = now_ms;
	return &s->asks->names[n].name;
}

void asks_free(struct sandbox *s)
{
	if (s->asks) {
		free(s->asks->names);
		free(s->asks->dismissed);
	}
	free(s->asks);
	s->asks = NULL;
}

/* ---- what was dismissed ---- */

/* What @p says of @what; of any port where @what has none. Where another port of the name
 * is granted this one asks on. */
static enum policy_action action_now(const struct plan *p, const struct asked *what)
{
	const uint8_t protocol = what->protocol ?: IPPROTO_TCP;
	const struct plan_verdict v =
		what->name.size > 0
			? plan_match_name(p, &what->name)
			: plan_match_addr(p, &what->addr, protocol, what->port);
	const bool has_port = what->name.size == 0 || what->port == 0 ||
			      plan_port_list_has(p, v.port_list, protocol, what->port);

	if (!has_port)
		return v.action == POLICY_ALLOW && plan_asks(p) ? POLICY_ASK
								: POLICY_DENY;
	return (enum policy_action)v.action;
}

/* All that @b is about, @a is about. */
static bool covers(const struct asked *a, const struct asked *b)
{
	const bool is_same_destination =
		a->name.size > 0 ? dns_name_equal(&a->name, &b->name)
				 : b->name.size == 0 && addr_equal(&a->addr, &b->addr);

	return is_same_destination && (a->port == 0 || a->port == b->port) &&
	       (a->protocol == 0 || a->protocol == b->protocol);
}

static void forget(struct asks *a, size_t i)
{
	a->dismissed_count--;
	memmove(&a->dismissed[i], &a->dismissed[i + 1],
		(a->dismissed_count - i) * sizeof(*a->dismissed));
}

bool asks_dismiss(struct sandbox *s, const struct asked *what)
{
	struct asks *a = make(s);

	if (action_now(&s->plan, what) != POLICY_ASK)
		return false;
	for (size_t i = a ? a->dismissed_count : 0; i-- > 0;)
		if (covers(what, &a->dismissed[i]))
			forget(a, i);
	if (a && a->dismissed_count == ASKS_DISMISSED_MAX)
		forget(a, 0);
	/* Without memory it is refused this once. */
	if (a && ARRAY_GROW(a->dismissed, a->dismissed_count, a->dismissed_capacity))
		a->dismissed[a->dismissed_count++] = *what;
	return true;
}

bool asks_is_dismissed(const struct sandbox *s, const struct asked *what)
{
	for (size_t i = 0; s->asks && i < s->asks->dismissed_count; i++)
		if (covers(&s->asks->dismissed[i], what))
			return true;
	return false;
}

void asks_forget_granted(struct sandbox *s)
{
	for (size_t i = s->asks ? s->asks->dismissed_count : 0; i-- > 0;)
		if (action_now(&s->plan, &s->asks->dismissed[i]) == POLICY_ALLOW)
			forget(s->asks, i);
}

/* ---- what waits ---- */

bool asks_park(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (s->parked >= plan_limit(&s->plan, LIMIT_PARKED)) {
		struct event limit = event_make(EVENT_LIMIT, EVENT_NAME);

		limit.limit = LIMIT_PARKED + 1;
		snprintf(limit.reason, sizeof(limit.reason), "limit reached: %s",
			 limit_info(LIMIT_PARKED)->name);
		sandbox_event(s, &limit, now_ms);
		return false;
	}
	s->parked++;
	s->counters[COUNT_ASKED]++;
	e->action = EVENT_ASK;
	e->allowable = true;
	e->packets = 1;
	snprintf(e->reason, sizeof(e->reason), "waits until it is granted");
	sandbox_event(s, e, now_ms);
	return true;
}

void asks_unpark(struct sandbox *s)
{
	s->parked--;
}
