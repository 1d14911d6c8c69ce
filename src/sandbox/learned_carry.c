// SPDX-License-Identifier: Apache-2.0
/* What a table of learned addresses becomes: under another plan, and in another engine.
 *
 * UNDER ANOTHER PLAN
 * The new table is filled as if every entry that is still allowed were learned anew, in
 * the order in which they were learned, each with the time that it has left. So the new
 * plan's limits hold, and what they push out is treated as what has ended: flows that are
 * open go on.
 *
 * An open flow is known to the kernel by the generation in its mark, and gets the next
 * one with its next packet, which may come long after its address has ended. So what is
 * learned now goes into the set for open flows as well as what has ended lately: that
 * set has no timeouts.
 *
 * While a table is the one that filter_learn() is called with, the kernel's learned sets
 * hold no element that it has no record of (but see doubt in learned.c), and of those
 * that it has a record of the kernel knows kernel_until_ms. So the elements of the old
 * table and of the new one say what has to be sent. What the sets for open flows hold is
 * what the last change has put there, and is remembered as a list.
 *
 * IN ANOTHER ENGINE
 * What outlives the engine, its image, is a header, then records of one size: the entry
 * at index i of the table has record i, and
 * the pair at index j of what has ended has record j behind them. A
 * record counts while its state says that it is whole. It is written with the state
 * cleared before and set after, so that an engine that dies in between leaves no half of
 * one. `used` grows before a record behind it is written: what lies beyond was never
 * touched, and takes no memory.
 *
 * The reader believes nothing: each record is copied, then checked byte by byte,
 * then compared with the plan and the kernel. Rules and flags aren't in it, the plan
 * has them. */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/budgets.h"
#include "sandbox/learned_internal.h"
#include "sandbox/verdict.h"

bool learned_is_allowed(const struct plan *plan, const struct dns_name *n,
			const struct addr *a, struct plan_verdict *ret)
{
	struct plan_verdict v = plan_match_name(plan, n);

	if (!dns_name_is_host(n) || v.action != POLICY_ALLOW ||
	    rebinding_fault(plan, &v, a) || !rebinding_teaches(plan, &v, a))
		return false;
	*ret = v;
	return true;
}

struct order {
	uint64_t serial;
	uint32_t entry;
};

/* Of what begins with a serial. */
static int compare_serials(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
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
					 learned_past_hash(n->link.hash, el->link.hash),
					 item.verdict.port_list, false);
		return 0;
	}
	item.lifetime_ms = (uint32_t)MIN(e->expires_ms - now_ms, (int64_t)UINT32_MAX);
	return learned_insert(to, &item, now_ms);
}

static int carry(struct learned *to, const struct learned *from, int64_t now_ms,
		 struct arena *arena)
{
	const size_t count = from->entries.count;
	struct order *order = arena_array(arena, MAX(count, (size_t)1), sizeof(*order));
	const struct learned_past *past = &from->past;
	struct plan_verdict v;
	bool sorted = true;
	size_t used = 0;
	int r = 0;

	if (!order || learned_reserve(to, from) < 0)
		return -ENOMEM;
	/* Entries that were learned first come first; after a change they mostly do. */
	for (uint32_t i = 0; i < from->entries.used; i++) {
		if (!entry_at(from, i)->link.live)
			continue;
		order[used] = (struct order){ entry_at(from, i)->serial, i };
		sorted = sorted &&
			 (used == 0 || order[used - 1].serial < order[used].serial);
		used++;
	}
	if (!sorted)
		qsort(order, count, sizeof(*order), compare_serials);
	to->evicted = from->evicted;
	to->keeps_past = from->keeps_past;
	to->past.has_dropped = from->past.has_dropped;
	/* Of what has ended only that which is allowed: no flow outlives a plan that
	 * doesn't allow it. */
	for (uint32_t i = past->oldest; i != NONE; i = past_at(past, i)->newer) {
		const struct past *item = past_at(past, i);
		struct dns_name n = past_name(item);

		if (learned_is_allowed(to->plan, &n, &item->addr, &v))
			learned_past_add(&to->past, &n, &item->addr, item->link.hash,
					 v.port_list, false);
	}
	for (uint32_t i = 0; r == 0 && i < count; i++)
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

static int compare_draining(const void *a, const void *b)
{
	const struct filter_learn *x = a, *y = b;
	int by_list = x->port_list - y->port_list;

	return by_list ? by_list : addr_compare(&x->addr, &y->addr);
}

size_t learned_once(struct filter_learn *items, size_t count)
{
	size_t kept = 0;

	if (count > 0)
		qsort(items, count, sizeof(*items), compare_draining);
	for (size_t i = 0; i < count; i++)
		if (kept == 0 || compare_draining(&items[kept - 1], &items[i]) != 0)
			items[kept++] = items[i];
	return kept;
}

/* What is learned, then what has ended and is not learned under the same port list. */
static int list_draining(const struct learned *l, struct arena *arena,
			 struct learned_rebased *ret)
{
	const struct learned_past *p = &l->past;
	size_t learned = ret->learned_count, used = learned;
	struct plan_verdict v;

	ret->draining =
		arena_array(arena, used + p->items.count + 1, sizeof(*ret->draining));
	if (!ret->draining)
		return -ENOMEM;
	memcpy(ret->draining, ret->learned, used * sizeof(*ret->draining));
	for (uint32_t i = p->oldest; i != NONE; i = past_at(p, i)->newer) {
		const struct past *item = past_at(p, i);
		struct dns_name n = past_name(item);

		if (learned_is_allowed(l->plan, &n, &item->addr, &v) &&
		    !learned_has_element(l, &item->addr, v.port_list))
			ret->draining[used++] =
				(struct filter_learn){ .addr = item->addr,
						       .port_list = v.port_list };
	}
	ret->draining_count =
		learned + learned_once(ret->draining + learned, used - learned);
	return 0;
}

/* ---- the difference between two tables ---- */

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

	while (size < 2 * l->draining.count)
		size *= 2;
	*x = (struct index){ .l = l, .items = l->draining.items, .mask = size - 1 };
	x->slots = arena_array(arena, size, sizeof(*x->slots));
	x->found = arena_array(arena, l->draining.count + 1, sizeof(*x->found));
	if (!x->slots || !x->found)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->draining.count; i++) {
		size_t at = slot_of(x, &x->items[i]);

		/* What is there twice is compared once. */
		if (x->slots[at] > 0)
			x->found[i] = true;
		else
			x->slots[at] = i + 1;
	}
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

static int find_difference(const struct learned *old, int64_t now_ms, struct arena *arena,
			   struct learned_rebased *n)
{
	size_t most = old->elements.count + n->table->elements.count;
	struct filter_learn *learned, *draining;
	struct filter_difference *d;
	struct index was;
	size_t count = 0;

	if (!old->is_active || now_ms < old->doubt_until_ms)
		return 0;
	if (index_init(&was, old, arena) < 0)
		return -ENOMEM;
	d = arena_alloc(arena, sizeof(*d));
	learned = arena_array(arena, most + 1, sizeof(*learned));
	draining = arena_array(arena, old->draining.count + n->draining_count + 1,
			       sizeof(*draining));
	if (!d || !learned || !draining)
		return -ENOMEM;
	for (uint32_t i = 0; i < old->elements.used; i++) {
		const struct element *e = element_at(old, i);

		if (e->link.live && !is_unknown(e, now_ms) && !find_same(n->table, e))
			learned[count++] = (struct filter_learn){
				.addr = e->addr,
				.port_list = e->port_list,
				.present = e->kernel_until_ms > now_ms + LEARNED_SLACK_MS,
			};
	}
	d->learned_count = count;
	d->learned_count += list_begun(old, n->table, now_ms, learned + d->learned_count);
	d->learned = learned;
	d->draining_count = compare_lists(&was, old->draining.count, n->draining,
					  n->draining_count, draining);
	d->draining = draining;
	/* Each is as much work as one that is written anew, or half as much again. */
	if (d->learned_count + d->draining_count <= n->learned_count + n->draining_count)
		n->difference = d;
	return 0;
}

void learned_set_drains(struct learned *l, bool drains)
{
	for (uint32_t i = 0; i < l->elements.used; i++)
		element_at(l, i)->drains = drains && element_at(l, i)->link.live;
	for (uint32_t i = l->past.oldest; i != NONE; i = past_at(&l->past, i)->newer)
		past_at(&l->past, i)->drains = drains;
	l->past.has_lost = false;
}

static int keep_list(struct learned *l, const struct filter_learn *items, size_t count)
{
	struct filter_learn *copy = malloc(MAX(count, (size_t)1) * sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	memcpy(copy, items, count * sizeof(*copy));
	free(l->draining.items);
	l->draining = (struct learned_draining){ copy, count };
	learned_set_drains(l, true);
	return 0;
}

/* ---- public ---- */

int learned_rebase(const struct learned *old, const struct plan *plan, int64_t now_ms,
		   struct arena *arena, struct learned_rebased *ret)
{
	struct learned_rebased rebased = { .table = learned_new(plan, &old->key) };
	int r = rebased.table ? carry(rebased.table, old, now_ms, arena) : -ENOMEM;

	if (r == 0)
		r = list_learned(rebased.table, now_ms, arena, &rebased);
	if (r == 0)
		r = list_draining(rebased.table, arena, &rebased);
	if (r == 0)
		r = keep_list(rebased.table, rebased.draining, rebased.draining_count);
	if (r == 0)
		r = find_difference(old, now_ms, arena, &rebased);
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

void learned_keep_none(struct learned *l)
{
	l->draining.count = 0;
	learned_set_drains(l, false);
}

void learned_set_active(struct learned *l)
{
	l->is_active = true;
}

/* ---- a table that outlives the engine ---- */

#define SNAPSHOT_MAGIC UINT64_C(0x3230676d69657277) /* "wreimg02" */

enum snapshot_state { SNAPSHOT_ABSENT = 0, SNAPSHOT_WHOLE = 0x656c6f77 };

struct snapshot_record {
	_Atomic uint32_t state; /* enum snapshot_state */
	uint8_t port_list;
	uint8_t family;
	uint8_t name_size, name_labels;
	_Atomic int64_t expires_ms; /* CLOCK_BOOTTIME; 0 of what has ended */
	_Atomic uint64_t serial;
	uint8_t addr[16];
	uint8_t name[DNS_NAME_MAX];
};

/* Records from @used on were never written. */
struct learned_records {
	uint64_t magic;
	_Atomic uint32_t used, past_used;
	_Atomic uint64_t has_dropped; /* 0: the table has all that has ended */
	struct snapshot_record records[LEARNED_SNAPSHOT_RECORDS];
	struct snapshot_record past[LEARNED_PAST_MAX];
};
static_assert(sizeof(struct learned_records) <= BUDGETS_KEPT_AT, "the image has room");

/* ---- writing ---- */

/* The end of a record's writing: all else of it is there. */
static void set_whole(struct snapshot_record *r, int64_t expires_ms, uint64_t serial)
{
	atomic_store_explicit(&r->expires_ms, expires_ms, memory_order_relaxed);
	atomic_store_explicit(&r->serial, serial, memory_order_relaxed);
	atomic_store_explicit(&r->state, SNAPSHOT_WHOLE, memory_order_release);
}

static bool is_whole(const struct snapshot_record *r)
{
	return atomic_load_explicit(&r->state, memory_order_acquire) == SNAPSHOT_WHOLE;
}

static void set_absent(struct snapshot_record *r)
{
	atomic_store_explicit(&r->state, SNAPSHOT_ABSENT, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

/* @to - @from is less than what one step has, or more. */
static bool reserve(struct learned_snapshot *s, size_t from, size_t to)
{
	from = from / LEARNED_SNAPSHOT_STEP * LEARNED_SNAPSHOT_STEP;
	to = (to + LEARNED_SNAPSHOT_STEP - 1) / LEARNED_SNAPSHOT_STEP *
	     LEARNED_SNAPSHOT_STEP;
	s->is_full = s->reserve && !s->reserve(s, from, to);
	return !s->is_full;
}

/* Room for @records[@i], when there is room for @count of them. */
static bool reserve_record(struct learned_snapshot *s,
			   const struct snapshot_record *records, uint32_t count,
			   uint32_t i)
{
	/* As bytes of the image. */
	const uint8_t *image = s->bytes;
	size_t from = (size_t)((const uint8_t *)&records[count] - image);
	size_t to = (size_t)((const uint8_t *)&records[i + 1] - image);

	/* The step that has the end of the last one is there. */
	if (count > 0)
		from = (from + LEARNED_SNAPSHOT_STEP - 1) / LEARNED_SNAPSHOT_STEP *
		       LEARNED_SNAPSHOT_STEP;
	return (count > 0 && to <= from) || reserve(s, from, to);
}

/* What was fresh has its header. False: there is no room for it. */
static bool begin(struct learned_past *p)
{
	struct learned_snapshot *s = p->snapshot;
	struct learned_records *image = s->bytes;

	if (!s->is_fresh)
		return true;
	if (!reserve(s, 0, offsetof(struct learned_records, records)))
		return false;
	image->has_dropped = p->has_dropped;
	image->magic = SNAPSHOT_MAGIC;
	s->is_fresh = false;
	return true;
}

/* @i counts from now on. What lies there may be anything but half of ours. False: there
 * is no room for it. */
static bool grow_to(struct learned_past *p, struct snapshot_record *records,
		    _Atomic uint32_t *used, uint32_t i)
{
	uint32_t count;

	if (!begin(p))
		return false;
	count = atomic_load_explicit(used, memory_order_relaxed);
	if (i < count)
		return true;
	if (!reserve_record(p->snapshot, records, count, i))
		return false;
	for (; count <= i; count++)
		set_absent(&records[count]);
	atomic_store_explicit(used, i + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return true;
}

static void store_pair(struct snapshot_record *r, const struct addr *a,
		       const uint8_t *name, uint8_t size, uint8_t labels)
{
	r->family = a->family;
	memcpy(r->addr, a->bytes, sizeof(r->addr));
	r->name_size = size;
	r->name_labels = labels;
	memcpy(r->name, name, size);
}

static struct learned_records *snapshot_of(const struct learned_past *p)
{
	return p->snapshot ? p->snapshot->bytes : NULL;
}

void learned_snapshot_put(struct learned *l, uint32_t i)
{
	const struct entry *e = entry_at(l, i);
	const struct dns_name *n = &name_at(l, e->name)->name;
	uint8_t port_list = element_at(l, e->element)->port_list;
	struct learned_records *image = snapshot_of(&l->past);
	struct snapshot_record *r;

	if (!image || e->is_passing)
		return;
	if (i >= LEARNED_SNAPSHOT_RECORDS ||
	    !grow_to(&l->past, image->records, &image->used, i)) {
		learned_past_drop(&l->past);
		return;
	}
	r = &image->records[i];
	/* An entry that is there already stays the same name and address. */
	if (!is_whole(r) || r->port_list != port_list) {
		set_absent(r);
		store_pair(r, entry_addr(l, e), n->bytes, n->size, n->labels);
		r->port_list = port_list;
	}
	set_whole(r, e->expires_ms, e->serial);
}

void learned_snapshot_put_past(struct learned_past *p, uint32_t i)
{
	const struct past *item = past_at(p, i);
	struct learned_records *image = snapshot_of(p);
	struct snapshot_record *r;

	if (!image)
		return;
	if (i >= LEARNED_PAST_MAX || !grow_to(p, image->past, &image->past_used, i)) {
		learned_past_drop(p);
		return;
	}
	r = &image->past[i];
	if (!is_whole(r)) {
		store_pair(r, &item->addr, item->bytes, item->size, item->labels);
		r->port_list = 0;
	}
	set_whole(r, 0, item->serial);
}

void learned_past_drop(struct learned_past *p)
{
	struct learned_records *image = snapshot_of(p);

	p->has_dropped = true;
	if (image && begin(p))
		image->has_dropped = true;
}

/* What is fresh, or beyond what is used, holds nothing and may not be there. */
void learned_snapshot_clear(const struct learned_past *p, bool of_past, uint32_t i)
{
	const uint32_t room = of_past ? LEARNED_PAST_MAX : LEARNED_SNAPSHOT_RECORDS;
	struct learned_records *image = snapshot_of(p);
	struct snapshot_record *records;
	const _Atomic uint32_t *used;

	if (!image || p->snapshot->is_fresh)
		return;
	records = of_past ? image->past : image->records;
	used = of_past ? &image->past_used : &image->used;
	if (i < room && i < atomic_load_explicit(used, memory_order_relaxed))
		set_absent(&records[i]);
}

/* How many records are said to be used, but not more than there can be. */
static uint32_t used_of(const struct learned_records *image)
{
	return MIN((uint32_t)image->used, (uint32_t)LEARNED_SNAPSHOT_RECORDS);
}

static uint32_t past_used_of(const struct learned_records *image)
{
	return MIN((uint32_t)image->past_used, (uint32_t)LEARNED_PAST_MAX);
}

/* The header can be read and written; of what is fresh nothing has to be. */
static bool open_header(struct learned_snapshot *s)
{
	return s->bytes &&
	       (s->is_fresh || reserve(s, 0, offsetof(struct learned_records, records)));
}

/* So can everything that is said to be used. */
static bool open_records(struct learned_snapshot *s)
{
	const struct learned_records *image = s->bytes;
	uint32_t used = used_of(image), past_used = past_used_of(image);

	return (used == 0 || reserve_record(s, image->records, 0, used - 1)) &&
	       (past_used == 0 || reserve_record(s, image->past, 0, past_used - 1));
}

/* An image of ours, empty, in which something is missing. Return: whether it can be. */
static bool empty(struct learned_snapshot *s)
{
	struct learned_records *image = s->bytes;

	if (s->is_fresh)
		return true;
	if (image->magic != SNAPSHOT_MAGIC) {
		image->used = image->past_used = 0;
		image->magic = SNAPSHOT_MAGIC;
	}
	image->has_dropped = true;
	if (!open_records(s))
		return false;
	for (uint32_t i = 0, used = used_of(image); i < used; i++)
		set_absent(&image->records[i]);
	for (uint32_t i = 0, used = past_used_of(image); i < used; i++)
		set_absent(&image->past[i]);
	return true;
}

void learned_snapshot_keep(struct learned *l, struct learned_snapshot *s)
{
	l->past.snapshot = s && open_header(s) && empty(s) ? s : NULL;
	if (!l->past.snapshot)
		return;
	for (uint32_t i = 0; i < l->entries.used; i++)
		if (entry_at(l, i)->link.live)
			learned_snapshot_put(l, i);
	for (uint32_t i = l->past.oldest; i != NONE; i = past_at(&l->past, i)->newer)
		learned_snapshot_put_past(&l->past, i);
	if (l->past.has_dropped)
		learned_past_drop(&l->past);
	else if (!s->is_fresh)
		snapshot_of(&l->past)->has_dropped = false;
}

void learned_snapshot_move(struct learned *from, struct learned *to)
{
	struct learned_snapshot *s = from->past.snapshot;

	from->past.snapshot = NULL;
	learned_snapshot_keep(to, s);
}

/* ---- reading ---- */

/* What a record says, copied out. */
struct found {
	struct dns_name name;
	struct addr addr;
	uint8_t port_list;
	int64_t expires_ms;
};

/* Wire form, uncompressed, lower case, all of it: what the readers of names hold. */
static bool name_is_sound(const struct dns_name *n)
{
	unsigned int labels = 0;
	size_t at = 0;

	while (at < n->size && n->bytes[at] != 0) {
		size_t size = n->bytes[at];

		if (size > DNS_LABEL_MAX || at + 1 + size >= n->size)
			return false;
		for (size_t i = at + 1; i <= at + size; i++)
			if (n->bytes[i] >= 'A' && n->bytes[i] <= 'Z')
				return false;
		at += size + 1;
		labels++;
	}
	return at + 1 == n->size && labels == n->labels && dns_name_is_host(n);
}

/* False: it isn't whole, or not sound. */
static bool read_record(const struct snapshot_record *r, int64_t now_ms,
			struct found *ret)
{
	const int64_t longest_ms =
		(LEARNED_LIFETIME_MAX_SEC + LEARNED_GRACE_MAX_SEC) * INT64_C(1000);
	static const uint8_t zeros[12];
	struct found f = { .name = { .size = r->name_size, .labels = r->name_labels } };
	bool is_addr;

	static_assert(sizeof(r->name) >= UINT8_MAX, "whatever size a record says");
	if (!is_whole(r))
		return false;
	f.addr.family = r->family;
	memcpy(f.addr.bytes, r->addr, sizeof(r->addr));
	memcpy(f.name.bytes, r->name, f.name.size);
	f.port_list = r->port_list;
	f.expires_ms = atomic_load_explicit(&r->expires_ms, memory_order_relaxed);
	is_addr = f.addr.family == ADDR_V6 ||
		  (f.addr.family == ADDR_V4 &&
		   memcmp(f.addr.bytes + 4, zeros, sizeof(zeros)) == 0);
	if (!name_is_sound(&f.name) || !is_addr || f.port_list >= PLAN_PORT_LISTS_MAX ||
	    f.expires_ms < 0 || f.expires_ms > now_ms + longest_ms)
		return false;
	*ret = f;
	return true;
}

struct position {
	uint64_t serial;
	const struct snapshot_record *record;
};

/* Where whole records are, those that were learned first first. Return: how many. */
static size_t find_positions(const struct snapshot_record *records, uint32_t used,
			     struct position *ret)
{
	size_t count = 0;

	for (uint32_t i = 0; i < used; i++)
		if (is_whole(&records[i]))
			ret[count++] = (struct position){
				atomic_load_explicit(&records[i].serial,
						     memory_order_relaxed),
				&records[i],
			};
	qsort(ret, count, sizeof(*ret), compare_serials);
	return count;
}

static void adopt_past(struct learned *l, const struct found *f)
{
	struct plan_verdict v;

	if (learned_is_allowed(l->plan, &f->name, &f->addr, &v))
		learned_past_add(
			&l->past, &f->name, &f->addr,
			learned_past_hash(hash_name(l, &f->name), hash_addr(l, &f->addr)),
			v.port_list, false);
}

size_t learned_snapshot_adopt(struct learned *l, struct learned_snapshot *s,
			      int64_t now_ms, learned_has_fn *has, void *data)
{
	const struct learned_records *image = s->bytes;
	CLEAN(mem) struct position *positions = NULL;
	size_t past, count, adopted = 0;
	const bool is_open = open_header(s);
	uint32_t used, past_used;
	struct found f;

	/* Of elements that only the kernel remembers nothing is known: until they must
	 * have ended, what is learned anew may be there already. */
	l->doubt_until_ms =
		now_ms + LEARNED_SLACK_MS +
		(LEARNED_LIFETIME_MAX_SEC + LEARNED_GRACE_MAX_SEC) * INT64_C(1000);
	/* What can't be read is forgotten. */
	l->past.has_dropped = !is_open || (!s->is_fresh && image->magic != 0);
	if (!l->past.has_dropped || !is_open || image->magic != SNAPSHOT_MAGIC ||
	    !open_records(s))
		return 0;
	used = used_of(image);
	past_used = past_used_of(image);
	positions = calloc((size_t)used + past_used + 1, sizeof(*positions));
	if (!positions)
		return 0;
	l->past.has_dropped = image->has_dropped != 0;
	past = find_positions(image->past, past_used, positions);
	for (size_t i = 0; i < past; i++)
		if (read_record(positions[i].record, now_ms, &f))
			adopt_past(l, &f);
	count = find_positions(image->records, used, positions);
	for (size_t i = 0; i < count; i++) {
		struct learned_item item = { .name = &f.name };
		int64_t left_ms; /* how long the kernel has it for */

		if (!read_record(positions[i].record, now_ms, &f))
			continue;
		left_ms = has(data, &f.addr, f.port_list);
		if (left_ms == 0 || f.expires_ms <= now_ms) {
			adopt_past(l, &f);
			continue;
		}
		item.addr = f.addr;
		item.lifetime_ms = (uint32_t)MIN(f.expires_ms - now_ms, left_ms);
		if (learned_is_allowed(l->plan, item.name, &f.addr, &item.verdict) &&
		    item.verdict.port_list == f.port_list &&
		    learned_insert(l, &item, now_ms) == 0)
			adopted++;
		else
			adopt_past(l, &f);
	}
	return adopted;
}
