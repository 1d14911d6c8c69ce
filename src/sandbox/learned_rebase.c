// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The new table is filled as if every entry that is still allowed were learned anew, in
 * the order in which they were learned, each with the time that it has left. So the new
 * plan's limits hold, and what they push out is treated as what has ended: flows that are
 * open go on.
 *
 * An open flow is known to the kernel by the generation in its mark, and gets the next
 * one with its next packet, which may come long after its address has ended. So what is
 * learned now goes into the set for open flows as well as what has ended lately: that
 * set has no timeouts. */
#include <errno.h>
#include <string.h>

#include "sandbox/learned_internal.h"
#include "sandbox/rebinding_check.h"

bool learned_is_allowed(const struct plan *plan, const struct dns_name *n,
			const struct addr *a, struct plan_verdict *ret)
{
	struct plan_verdict v = plan_match_name(plan, n);

	if (!dns_name_is_host(n) || v.action != POLICY_ALLOW || guard_fault(plan, &v, a))
		return false;
	*ret = v;
	return true;
}

struct order {
	uint64_t serial;
	uint32_t entry;
};

static int compare_serials(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

/* The entries of @l, those that were learned first first. */
static const struct order *in_order(const struct learned *l, struct arena *arena)
{
	size_t count = l->entries.count, used = 0;
	struct order *all = arena_array(arena, MAX(count, (size_t)1), sizeof(*all));
	bool sorted = true;

	for (uint32_t i = 0; all && i < l->entries.used; i++) {
		if (!entry_at(l, i)->link.live)
			continue;
		all[used] = (struct order){ entry_at(l, i)->serial, i };
		sorted = sorted && (used == 0 || all[used - 1].serial < all[used].serial);
		used++;
	}
	/* After a change they mostly are. */
	if (all && !sorted)
		qsort(all, count, sizeof(*all), compare_serials);
	return all;
}

/* Of what has ended only that which is allowed: no flow outlives a plan that doesn't
 * allow it. */
static void carry_past(struct learned *to, const struct learned *from)
{
	const struct learned_past *p = &from->past;
	struct plan_verdict v;

	for (uint32_t i = p->oldest; i != NONE; i = past_at(p, i)->newer) {
		const struct past *item = past_at(p, i);
		struct dns_name n = past_name(item);

		if (learned_is_allowed(to->plan, &n, &item->addr, &v))
			learned_past_add(&to->past, &n, &item->addr, item->link.hash);
	}
}

static int carry_entry(struct learned *to, const struct learned *from,
		       const struct entry *e, int64_t now_ms)
{
	const struct name *n = name_at(from, e->name);
	const struct element *el = element_at(from, e->element);
	struct learned_item item = { .name = &n->name, .addr = el->addr };

	if (!learned_is_allowed(to->plan, item.name, &item.addr, &item.verdict))
		return 0;
	if (e->expires_ms <= now_ms) {
		if (to->keeps_past)
			learned_past_add(&to->past, item.name, &item.addr,
					 learned_past_hash(n->link.hash, el->link.hash));
		return 0;
	}
	item.lifetime_ms = (uint32_t)MIN(e->expires_ms - now_ms, (int64_t)UINT32_MAX);
	return learned_insert(to, &item, now_ms);
}

static int carry(struct learned *to, const struct learned *from, int64_t now_ms,
		 struct arena *arena)
{
	const struct order *order = in_order(from, arena);
	int r = 0;

	if (!order || learned_reserve(to, from) < 0)
		return -ENOMEM;
	to->evicted = from->evicted;
	to->keeps_past = from->keeps_past;
	carry_past(to, from);
	for (uint32_t i = 0; r == 0 && i < from->entries.count; i++)
		r = carry_entry(to, from, entry_at(from, order[i].entry), now_ms);
	learned_settle(to);
	return r;
}

/* ---- for the kernel ---- */

static int list_learned(const struct learned *l, int64_t now_ms, struct arena *arena,
			struct learned_rebased *ret)
{
	size_t count = l->elements.count;
	size_t used = 0;

	ret->learned = arena_array(arena, MAX(count, (size_t)1), sizeof(*ret->learned));
	if (!ret->learned)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->elements.used; i++) {
		const struct element *el = element_at(l, i);

		if (el->link.live)
			ret->learned[used++] = (struct filter_learn){
				.addr = el->addr,
				.port_list = el->port_list,
				.lifetime_ms = (uint32_t)(el->kernel_until_ms - now_ms),
			};
	}
	ret->learned_count = used;
	return 0;
}

static int compare_kept(const void *a, const void *b)
{
	const struct filter_learn *x = a, *y = b;
	int by_list = x->port_list - y->port_list;

	return by_list ? by_list : addr_compare(&x->addr, &y->addr);
}

static size_t without_doubles(struct filter_learn *items, size_t count)
{
	size_t used = 0;

	qsort(items, count, sizeof(*items), compare_kept);
	for (size_t i = 0; i < count; i++)
		if (used == 0 || compare_kept(&items[used - 1], &items[i]) != 0)
			items[used++] = items[i];
	return used;
}

/* What is learned, then what has ended and is not learned under the same port list. */
static int list_kept(const struct learned *l, struct arena *arena,
		     struct learned_rebased *ret)
{
	const struct learned_past *p = &l->past;
	size_t learned = ret->learned_count, used = learned;
	struct plan_verdict v;

	ret->kept = arena_array(arena, used + p->items.count + 1, sizeof(*ret->kept));
	if (!ret->kept)
		return -ENOMEM;
	memcpy(ret->kept, ret->learned, used * sizeof(*ret->kept));
	for (uint32_t i = p->oldest; i != NONE; i = past_at(p, i)->newer) {
		const struct past *item = past_at(p, i);
		struct dns_name n = past_name(item);

		if (learned_is_allowed(l->plan, &n, &item->addr, &v) &&
		    !learned_has_element(l, &item->addr, v.port_list))
			ret->kept[used++] =
				(struct filter_learn){ .addr = item->addr,
						       .port_list = v.port_list };
	}
	ret->kept_count = learned + without_doubles(ret->kept + learned, used - learned);
	return 0;
}

int learned_rebase(const struct learned *old, const struct plan *plan, int64_t now_ms,
		   struct arena *arena, struct learned_rebased *ret)
{
	struct learned_rebased rebased = { .table = learned_new(plan, &old->key) };
	int r = rebased.table ? carry(rebased.table, old, now_ms, arena) : -ENOMEM;

	if (r == 0)
		r = list_learned(rebased.table, now_ms, arena, &rebased);
	if (r == 0)
		r = list_kept(rebased.table, arena, &rebased);
	if (r == 0)
		r = learned_keep_list(rebased.table, rebased.kept, rebased.kept_count);
	if (r == 0)
		r = learned_difference(old, now_ms, arena, &rebased);
	if (r < 0) {
		learned_free(rebased.table);
		return r;
	}
	*ret = rebased;
	return 0;
}

void learned_set_plan(struct learned *l, const struct plan *plan)
{
	l->plan = plan;
}
