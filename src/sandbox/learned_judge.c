// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Before a change of the policy everything in the table is judged by the next plan, some
 * of it at a time. Mostly all of it goes on under the port list that it has: then the
 * kernel's learned sets stay as they are, and so does the table, whose entries get the
 * rules of the next plan. So the turn in which the change is made has little left to do.
 *
 * The kernel's sets for open flows (learned_carry.c) stay as well, and get what they
 * lack. For that each address in them has to be one that goes on: it is an element's, or
 * that of something that has ended and is kept. Where that isn't sure, as has_lost says,
 * or anything doesn't go on, a new table is made (learned_rebase()). */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sandbox/learned_internal.h"

/* What an item is under the next plan. One that was learned, or has ended, meanwhile has
 * another serial. */
struct judged {
	uint64_t serial; /* 0: it was not judged, or does not go on as it is */
	uint32_t rule;
	uint8_t flags;
};

struct learned_judging {
	struct judged *items;	 /* entries by their places, then what has ended */
	uint32_t entries, count; /* room for entries; for all */
	uint32_t at;		 /* the next one */
	bool differs;		 /* one does not go on as it is */
};

struct learned_judging *learned_judging_new(const struct learned *l,
					    const struct plan *plan, struct arena *arena)
{
	static const enum plan_limit limits[] = { LIMIT_LEARNED_NAMES, LIMIT_ADDRESSES,
						  LIMIT_ADDRESSES_PER_NAME };
	const uint32_t entries = l->entries.size, count = entries + l->past.items.size;
	struct learned_judging *j = arena_alloc(arena, sizeof(*j));
	struct judged *items = arena_array(arena, count + 1u, sizeof(*items));

	if (!j || !items)
		return NULL;
	*j = (struct learned_judging){ .items = items,
				       .entries = entries,
				       .count = count };
	/* A lower limit may push something out. */
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		j->differs |= plan_limit(plan, limits[i]) <
			      plan_limit(l->plan, limits[i]);
	return j;
}

static bool judge(const struct plan *plan, const struct dns_name *n, const struct addr *a,
		  uint8_t port_list, uint64_t serial, struct judged *ret)
{
	struct plan_verdict v;

	if (!learned_is_allowed(plan, n, a, &v) || v.port_list != port_list)
		return false;
	*ret = (struct judged){ serial, v.rule, v.flags };
	return true;
}

/* NULL: there is none. */
static const struct entry *live_entry(const struct learned *l, uint32_t i)
{
	return i < l->entries.used && entry_at(l, i)->link.live ? entry_at(l, i) : NULL;
}

/* What is at @i of j->items goes on, under the port list that it has, or nothing is
 * there. */
static bool goes_on(const struct learned *l, const struct plan *plan, uint32_t i,
		    struct learned_judging *j)
{
	const struct entry *e = i < j->entries ? live_entry(l, i) : NULL;
	const struct past *p = NULL;
	struct judged *ret = &j->items[i];
	struct dns_name n;

	if (e && ret->serial != e->serial)
		return judge(plan, &name_at(l, e->name)->name, entry_addr(l, e),
			     element_at(l, e->element)->port_list, e->serial, ret);
	if (i >= j->entries && i - j->entries < l->past.items.used)
		p = past_at(&l->past, i - j->entries);
	if (!p || !p->link.live || ret->serial == p->serial)
		return true;
	n = past_name(p);
	return judge(plan, &n, &p->addr, p->port_list, p->serial, ret);
}

/* A port list of the same number may be another one in another plan. */
static bool list_is_same(const struct plan *a, const struct plan *b, uint8_t list)
{
	size_t a_count = 0, b_count = 0;
	const struct plan_port_range *x, *y;

	if (list >= plan_port_list_count(a) || list >= plan_port_list_count(b))
		return false;
	x = plan_port_list(a, list, &a_count);
	y = plan_port_list(b, list, &b_count);
	return a_count == b_count && memcmp(x, y, a_count * sizeof(*x)) == 0;
}

/* To be put into a set for open flows. */
static struct filter_learn draining_item(const struct addr *a, uint8_t port_list)
{
	return (struct filter_learn){ .addr = *a,
				      .port_list = port_list,
				      .lifetime_ms = 1 };
}

bool learned_judge(const struct learned *l, const struct plan *plan, int64_t now_ms,
		   struct learned_judging *j, struct filter_learn *ret, size_t max,
		   size_t *ret_count)
{
	const uint32_t end = (uint32_t)MIN(j->count, j->at + max);
	uint32_t same = 0;

	*ret_count = 0;
	if (!l->is_active || now_ms < l->doubt_until_ms) {
		j->differs = true;
		return false;
	}
	static_assert(PLAN_PORT_LISTS_MAX <= 32, "a bit for each list");
	for (uint8_t i = 0; i < PLAN_PORT_LISTS_MAX; i++)
		same |= (uint32_t)list_is_same(l->plan, plan, i) << i;
	for (; j->at < end; j->at++) {
		const struct entry *e = j->at < j->entries ? live_entry(l, j->at) : NULL;
		const struct element *el = e ? element_at(l, e->element) : NULL;

		if (!goes_on(l, plan, j->at, j))
			j->differs = true;
		else if (el && !el->drains && e->expires_ms > now_ms &&
			 (same >> el->port_list & 1))
			ret[(*ret_count)++] = draining_item(&el->addr, el->port_list);
	}
	return j->at < (j->differs ? j->entries : j->count);
}

int learned_note_draining(struct learned *l, const struct filter_learn *items,
			  size_t count)
{
	struct learned_draining *d = &l->draining;
	struct filter_learn *grown =
		reallocarray(d->items, d->count + count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	memcpy(grown + d->count, items, count * sizeof(*items));
	*d = (struct learned_draining){ grown, d->count + count };
	for (size_t i = 0; i < count; i++) {
		uint32_t at = learned_element_find(l, &items[i].addr,
						   hash_addr(l, &items[i].addr),
						   items[i].port_list);

		if (at != NONE)
			element_at(l, at)->drains = true;
	}
	return 0;
}

const struct filter_difference *learned_stays(const struct learned *l,
					      const struct plan *plan,
					      struct learned_judging *j,
					      struct arena *arena)
{
	const size_t most = l->elements.count + l->past.items.count;
	struct filter_difference *d = arena_alloc(arena, sizeof(*d));
	struct filter_learn *items = arena_array(arena, most + 1, sizeof(*items));
	size_t elements = 0, used;

	if (!d || !items || j->differs || l->entries.size != j->entries ||
	    l->past.items.size != j->count - j->entries)
		return NULL;
	/* The kernel may have elements of which no name is known any more. The list of
	 * what it has for open flows grows until it is made anew. */
	if (l->doomed_first != NONE || l->doubt_until_ms > 0 || l->past.has_lost ||
	    l->draining.count > l->elements.count + 2 * LEARNED_PAST_MAX)
		return NULL;
	/* With what has come since the last step. */
	for (uint32_t i = 0; i < j->count; i++)
		if (!goes_on(l, plan, i, j))
			return NULL;
	for (uint32_t i = 0; i < l->elements.used; i++) {
		const struct element *el = element_at(l, i);

		if (el->link.live && !el->drains)
			items[elements++] = draining_item(&el->addr, el->port_list);
	}
	used = elements;
	for (uint32_t i = l->past.oldest; i != NONE; i = past_at(&l->past, i)->newer) {
		const struct past *p = past_at(&l->past, i);

		/* What an element has is there, or is among the items already. */
		if (!p->drains && !learned_has_element(l, &p->addr, p->port_list))
			items[used++] = draining_item(&p->addr, p->port_list);
	}
	d->draining = items;
	d->draining_count = elements + learned_once(items + elements, used - elements);
	return d;
}

int learned_stayed(struct learned *l, const struct learned_judging *j,
		   const struct filter_difference *d)
{
	for (uint32_t i = 0; i < l->entries.used; i++) {
		entry_at(l, i)->rule = j->items[i].rule;
		entry_at(l, i)->flags = j->items[i].flags;
	}
	learned_set_drains(l, true);
	return learned_note_draining(l, d->draining, d->draining_count);
}
