// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * While a table is the one that filter_learn() was told of, the kernel's learned sets
 * hold no element that it has no record of (but see doubt in learned.c), and of those
 * that it has a record of the kernel knows kernel_until_ms. So the elements of the old
 * table and of the new one say what has to be sent. What the kept sets hold is what the
 * last change has put there, and is remembered as a list. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/learned_internal.h"

static const struct element *find_same(const struct learned *l, const struct element *e)
{
	uint32_t i = learned_element_find(l, &e->addr, e->link.hash, e->port_list);

	return i == NONE ? NULL : element_at(l, i);
}

/* Never sent, or ended for sure. */
static bool is_unknown(const struct element *e, int64_t now_ms)
{
	return !e || e->kernel_until_ms + LEARNED_SLACK_MS <= now_ms;
}

static size_t list_ended(const struct learned *old, const struct learned *next,
			 int64_t now_ms, struct filter_learn *ret)
{
	size_t count = 0;

	for (uint32_t i = 0; i < old->elements.used; i++) {
		const struct element *e = element_at(old, i);

		if (e->link.live && !is_unknown(e, now_ms) && !find_same(next, e))
			ret[count++] = (struct filter_learn){
				.addr = e->addr,
				.port_list = e->port_list,
				.present = e->kernel_until_ms > now_ms + LEARNED_SLACK_MS,
			};
	}
	return count;
}

static size_t list_begun(const struct learned *old, const struct learned *next,
			 int64_t now_ms, struct filter_learn *ret)
{
	size_t count = 0;

	for (uint32_t i = 0; i < next->elements.used; i++) {
		const struct element *e = element_at(next, i);
		const struct element *before = e->link.live ? find_same(old, e) : NULL;

		if (!e->link.live ||
		    (before && before->kernel_until_ms == e->kernel_until_ms))
			continue;
		ret[count++] = (struct filter_learn){
			.addr = e->addr,
			.port_list = e->port_list,
			.lifetime_ms = (uint32_t)(e->kernel_until_ms - now_ms),
			.refresh = !is_unknown(before, now_ms),
		};
	}
	return count;
}

/* Where each item of a list is: 1 more than its place, 0 for nothing. */
struct index {
	const struct learned *l; /* for its key */
	const struct filter_learn *items;
	uint32_t *slots;
	size_t mask;
	bool *found;
};

static size_t slot_of(const struct index *x, const struct filter_learn *item)
{
	size_t i = (size_t)(hash_addr(x->l, &item->addr) + item->port_list) & x->mask;

	while (x->slots[i] > 0) {
		const struct filter_learn *there = &x->items[x->slots[i] - 1];

		if (there->port_list == item->port_list &&
		    addr_equal(&there->addr, &item->addr))
			break;
		i = (i + 1) & x->mask;
	}
	return i;
}

static int index_init(struct index *x, const struct learned *l, struct arena *arena)
{
	size_t size = 16;

	while (size < 2 * l->kept.count)
		size *= 2;
	*x = (struct index){ .l = l, .items = l->kept.items, .mask = size - 1 };
	x->slots = arena_array(arena, size, sizeof(*x->slots));
	x->found = arena_array(arena, l->kept.count + 1, sizeof(*x->found));
	if (!x->slots || !x->found)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->kept.count; i++)
		x->slots[slot_of(x, &x->items[i])] = i + 1;
	return 0;
}

/* What @is has and the list of @x hasn't, then the other way round. Return: how many. */
static size_t compare_lists(struct index *x, size_t was_count,
			    const struct filter_learn *is, size_t is_count,
			    struct filter_learn *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < is_count; i++) {
		uint32_t at = x->slots[slot_of(x, &is[i])];

		if (at > 0)
			x->found[at - 1] = true;
		else
			ret[count++] =
				(struct filter_learn){ .addr = is[i].addr,
						       .port_list = is[i].port_list,
						       .lifetime_ms = 1 };
	}
	for (size_t i = 0; i < was_count; i++)
		if (!x->found[i])
			ret[count++] =
				(struct filter_learn){ .addr = x->items[i].addr,
						       .port_list = x->items[i].port_list,
						       .present = true };
	return count;
}

int learned_difference(const struct learned *old, int64_t now_ms, struct arena *arena,
		       struct learned_rebased *n)
{
	size_t most = old->elements.count + n->table->elements.count;
	struct filter_learn *learned, *kept;
	struct filter_difference *d;
	struct index was;

	if (!old->stands || now_ms < old->doubt_until_ms)
		return 0;
	if (index_init(&was, old, arena) < 0)
		return -ENOMEM;
	d = arena_alloc(arena, sizeof(*d));
	learned = arena_array(arena, most + 1, sizeof(*learned));
	kept = arena_array(arena, old->kept.count + n->kept_count + 1, sizeof(*kept));
	if (!d || !learned || !kept)
		return -ENOMEM;
	d->learned_count = list_ended(old, n->table, now_ms, learned);
	d->learned_count += list_begun(old, n->table, now_ms, learned + d->learned_count);
	d->learned = learned;
	d->kept_count =
		compare_lists(&was, old->kept.count, n->kept, n->kept_count, kept);
	d->kept = kept;
	/* Each is as much work as one that is written anew, or half as much again. */
	if (d->learned_count + d->kept_count <= n->learned_count + n->kept_count)
		n->difference = d;
	return 0;
}

int learned_keep_list(struct learned *l, const struct filter_learn *items, size_t count)
{
	struct filter_learn *copy = malloc(MAX(count, (size_t)1) * sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	memcpy(copy, items, count * sizeof(*copy));
	free(l->kept.items);
	l->kept = (struct learned_kept){ copy, count };
	return 0;
}

void learned_keep_none(struct learned *l)
{
	l->kept.count = 0;
}

void learned_stands(struct learned *l)
{
	l->stands = true;
}
