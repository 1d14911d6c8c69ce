// SPDX-License-Identifier: Apache-2.0
#include "resolver/pinned.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash_name(const struct hash_key *key, const struct dns_name *n)
{
	return hash_bytes(key, n->bytes, n->size);
}

/* Return: the slot of @n, or the empty one where it would stand. */
static uint32_t *slot_of(const struct hash_key *key, const struct pins *p,
			 const struct dns_name *n)
{
	size_t i = hash_name(key, n) & p->slot_mask;

	while (p->slots[i] != 0 && !dns_name_equal(&p->items[p->slots[i] - 1].name, n))
		i = (i + 1) & p->slot_mask;
	return &p->slots[i];
}

struct pin *pins_find(const struct hash_key *key, const struct pins *p,
		      const struct dns_name *n)
{
	uint32_t slot = p ? *slot_of(key, p, n) : 0;

	return slot != 0 ? &p->items[slot - 1] : NULL;
}

struct pin_answer *pins_answer(struct pin *pin, uint16_t type)
{
	if (!pin || (type != DNS_TYPE_A && type != DNS_TYPE_AAAA))
		return NULL;
	return &pin->answers[type == DNS_TYPE_AAAA];
}

void pins_free(struct pins *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++)
		for (size_t f = 0; f < PIN_FAMILIES; f++)
			free(p->items[i].answers[f].addrs);
	free(p->items);
	free(p->slots);
	free(p);
}

static bool is_pinned(const struct plan *plan, const struct dns_name *n)
{
	return dns_name_is_host(n) && plan_match_name(plan, n).action == POLICY_ALLOW;
}

static size_t count_names(const struct plan *plan)
{
	struct dns_name n;
	size_t count = 0;

	for (uint32_t at = 0; plan_name_next(plan, &at, &n);)
		count += is_pinned(plan, &n);
	return count;
}

static void fill(const struct hash_key *key, struct pins *p, const struct plan *plan)
{
	struct dns_name n;

	for (uint32_t at = 0; plan_name_next(plan, &at, &n);) {
		uint32_t *slot = slot_of(key, p, &n);

		if (*slot != 0 || !is_pinned(plan, &n))
			continue;
		p->items[p->count].name = n;
		*slot = (uint32_t)++p->count;
	}
}

int pins_new(const struct hash_key *key, struct sandbox *s, struct pins **ret)
{
	size_t count = count_names(&s->plan), size = 4;
	struct pins *p;

	if (count > plan_limit(&s->plan, LIMIT_LEARNED_NAMES))
		return -E2BIG;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	while (size < count * 2)
		size *= 2;
	p->slot_mask = size - 1;
	p->slots = calloc(size, sizeof(*p->slots));
	p->items = calloc(MAX(count, (size_t)1), sizeof(*p->items));
	if (!p->slots || !p->items) {
		pins_free(p);
		return -ENOMEM;
	}
	p->sandbox = s;
	fill(key, p, &s->plan);
	*ret = p;
	return 0;
}

void pins_carry_over(const struct hash_key *key, struct pins *to, struct pins *from)
{
	for (size_t i = 0; from && i < from->count; i++) {
		struct pin *pin = pins_find(key, to, &from->items[i].name);

		if (!pin)
			continue;
		memcpy(pin->answers, from->items[i].answers, sizeof(pin->answers));
		memset(from->items[i].answers, 0, sizeof(pin->answers));
		for (size_t f = 0; f < PIN_FAMILIES; f++)
			pin->answers[f].asked = false;
	}
	if (from)
		to->leave_ms = from->leave_ms;
}
