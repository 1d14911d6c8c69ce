// SPDX-License-Identifier: Apache-2.0
#include "sandbox/asks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/limits.h"

enum { NAMES_FIRST = 8 };

struct stand_in {
	struct dns_name name;
	int64_t given_ms; /* last */
	bool is_dismissed;
	uint16_t dismissed_port; /* 0: any */
};

struct asks {
	struct stand_in *names; /* owned; the index is that of the address */
	size_t count, capacity;
};

bool asks_by_relay(const struct sandbox *s)
{
	return s->shared || s->host ? s->shared_params.relay : s->owned_params.relay;
}

/* ---- addresses ---- */

static struct stand_in *find(const struct asks *a, const struct dns_name *name)
{
	for (size_t i = 0; i < a->count; i++)
		if (dns_name_equal(&a->names[i].name, name))
			return &a->names[i];
	return NULL;
}

static struct stand_in *oldest(const struct asks *a, int64_t now_ms)
{
	struct stand_in *best = a->names;

	for (size_t i = 1; i < a->count; i++)
		if (a->names[i].given_ms < best->given_ms)
			best = &a->names[i];
	return best->given_ms + ASKS_KEEP_MS <= now_ms ? best : NULL;
}

static struct stand_in *add(struct asks *a)
{
	size_t capacity = MIN(MAX(a->capacity * 2, (size_t)NAMES_FIRST),
			      (size_t)SINKHOLE_ADDRESSES);
	struct stand_in *grown;

	if (a->count == a->capacity) {
		grown = reallocarray(a->names, capacity, sizeof(*grown));
		if (!grown)
			return NULL;
		a->names = grown;
		a->capacity = capacity;
	}
	return &a->names[a->count++];
}

static struct stand_in *find_or_add(struct sandbox *s, const struct dns_name *name,
				    int64_t now_ms)
{
	struct asks *a = s->asks ?: calloc(1, sizeof(*a));
	struct stand_in *x = NULL;

	s->asks = a;
	if (a)
		x = find(a, name);
	if (a && !x) {
		x = a->count < SINKHOLE_ADDRESSES ? add(a) : oldest(a, now_ms);
		if (x)
			*x = (struct stand_in){ .name = *name };
	}
	if (x)
		x->given_ms = now_ms;
	return x;
}

bool asks_address(struct sandbox *s, const struct dns_name *name, enum addr_family family,
		  int64_t now_ms, struct addr *ret)
{
	const struct stand_in *x = find_or_add(s, name, now_ms);

	if (!x)
		return false;
	*ret = sinkhole_ask_addr(family, (uint8_t)(x - s->asks->names));
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
	if (s->asks)
		free(s->asks->names);
	free(s->asks);
	s->asks = NULL;
}

/* ---- what was dismissed ---- */

void asks_dismiss(struct sandbox *s, const struct dns_name *name, uint16_t port,
		  int64_t now_ms)
{
	struct stand_in *x = find_or_add(s, name, now_ms);

	if (!x)
		return;
	x->is_dismissed = true;
	x->dismissed_port = port;
}

bool asks_is_dismissed(const struct sandbox *s, const struct dns_name *name,
		       uint16_t port)
{
	const struct stand_in *x = s->asks ? find(s->asks, name) : NULL;

	return x && x->is_dismissed &&
	       (x->dismissed_port == 0 || x->dismissed_port == port);
}

void asks_granted(const struct sandbox *s, const struct dns_name *name)
{
	struct stand_in *x = s->asks ? find(s->asks, name) : NULL;

	if (x)
		x->is_dismissed = false;
}

/* ---- what waits ---- */

static void tell_limit(struct sandbox *s, int64_t now_ms)
{
	struct event e = { .action = EVENT_LIMIT,
			   .layer = EVENT_NAME,
			   .limit = LIMIT_PARKED + 1,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX };

	snprintf(e.reason, sizeof(e.reason), "limit reached: %s",
		 limit_info(LIMIT_PARKED)->name);
	sandbox_event(s, &e, now_ms);
}

bool asks_park(struct sandbox *s, struct event *e, int64_t now_ms)
{
	if (s->parked >= plan_limit(&s->plan, LIMIT_PARKED)) {
		tell_limit(s, now_ms);
		return false;
	}
	s->parked++;
	s->counters[COUNT_ASKED]++;
	e->action = EVENT_ASK;
	e->allowable = true;
	e->packets = 1;
	snprintf(e->reason, sizeof(e->reason), "waits until somebody grants it");
	sandbox_event(s, e, now_ms);
	return true;
}

void asks_unpark(struct sandbox *s)
{
	s->parked--;
}
