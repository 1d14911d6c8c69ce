// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Three tables, each an array that grows by doubling and is linked by indices, each with
 * a hash index over it:
 *
 *   names     the names that have taught something
 *   entries   (name, address): what learned_find() and the relay see
 *   elements  (address, port list): what the kernel's sets hold, as far as we know
 *
 * An entry holds on to one name and one element. The element counts its entries
 * (`users`), so that one name's end takes nothing from another name, and the replies
 * that are on their way to the kernel (`pins`). What holds at all times:
 *
 *   entry.expires_ms <= element.kernel_until_ms   nothing is valid here that the kernel
 *                                                 would refuse
 *   users == 0 and pins == 0                      the element is gone, or it waits in
 *                                                 the doomed list for learned_sweep()
 *
 * Entries are in a heap by expiry: what expires first makes room when a table is full.
 * Entries stay for LEARNED_SLACK_MS after they have expired: as long as the kernel's
 * timer, which started later than ours, may still hold the element, a new add needs a
 * refresh, and only the element's record says so. The kernel's timers stand still while
 * the machine is suspended, ours go on: engine/core.c then has the sets made anew. After
 * a failed transaction that had deletions the kernel may have elements without a record
 * here; until those must have ended (doubt) every add is a refresh. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "sandbox/learned_internal.h"

/* ---- tables ---- */

enum { FIRST_SIZE = 4 }; /* at the first use */

static void table_init(struct learned_table *t, size_t item_size)
{
	*t = (struct learned_table){ .item_size = item_size, .free = NONE };
}

static void table_done(struct learned_table *t)
{
	free(t->items);
	free(t->heads);
}

static void table_release(struct learned_table *t)
{
	assert(t->count == 0);
	table_done(t);
	table_init(t, t->item_size);
}

static uint32_t table_first(const struct learned_table *t, uint64_t hash)
{
	return t->size > 0 ? t->heads[hash & (t->size - 1)] : NONE;
}

static void table_push(struct learned_table *t, uint32_t i)
{
	struct learned_link *link = learned_table_at(t, i);
	uint32_t *head = &t->heads[link->hash & (t->size - 1)];

	link->next = *head;
	*head = i;
}

static int table_reserve(struct learned_table *t, uint32_t wanted)
{
	uint32_t size = t->size > 0 ? t->size : FIRST_SIZE, *heads;
	uint8_t *items;

	while (size - t->count < wanted)
		size *= 2;
	if (size <= t->size)
		return 0;
	heads = malloc(size * sizeof(*heads));
	items = heads ? realloc(t->items, size * t->item_size) : NULL;
	if (!items) {
		free(heads);
		return -ENOMEM;
	}
	free(t->heads);
	t->heads = heads;
	t->items = items;
	t->size = size;
	memset(heads, 0xff, size * sizeof(*heads));
	for (uint32_t i = 0; i < t->used; i++)
		if (((struct learned_link *)learned_table_at(t, i))->live)
			table_push(t, i);
	return 0;
}

static uint32_t table_take(struct learned_table *t, uint64_t hash)
{
	uint32_t i = t->free;
	struct learned_link *link;

	assert(t->count < t->size);
	if (i == NONE)
		i = t->used++;
	link = learned_table_at(t, i);
	if (i == t->free)
		t->free = link->next;
	memset(link, 0, t->item_size);
	link->hash = hash;
	link->live = true;
	table_push(t, i);
	t->count++;
	return i;
}

static void table_give(struct learned_table *t, uint32_t i)
{
	struct learned_link *link = learned_table_at(t, i);
	uint32_t *at = &t->heads[link->hash & (t->size - 1)];

	while (*at != i)
		at = &((struct learned_link *)learned_table_at(t, *at))->next;
	*at = link->next;
	link->live = false;
	link->next = t->free;
	t->free = i;
	t->count--;
}

/* ---- look-ups ---- */

static uint32_t name_find(const struct learned *l, const struct dns_name *n,
			  uint64_t hash)
{
	uint32_t i = table_first(&l->names, hash);

	while (i != NONE && (name_at(l, i)->link.hash != hash ||
			     !dns_name_equal(&name_at(l, i)->name, n)))
		i = name_at(l, i)->link.next;
	return i;
}

/* The first entry of @n, or NONE. */
static uint32_t entries_of(const struct learned *l, const struct dns_name *n)
{
	uint32_t i = name_find(l, n, hash_name(l, n));

	return i != NONE ? name_at(l, i)->entries : NONE;
}

/* Of the entry of the name at @name for @element. */
static uint64_t hash_entry(const struct element *element, uint32_t name)
{
	return element->link.hash ^ (name + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

uint32_t learned_element_find(const struct learned *l, const struct addr *a,
			      uint64_t hash, uint8_t port_list)
{
	uint32_t i = table_first(&l->elements, hash);

	while (i != NONE && (element_at(l, i)->port_list != port_list ||
			     !addr_equal(&element_at(l, i)->addr, a)))
		i = element_at(l, i)->link.next;
	return i;
}

/* ---- the heap of entries ---- */

static int64_t heap_time(const struct learned *l, uint32_t slot)
{
	return entry_at(l, l->heap[slot])->expires_ms;
}

static void heap_put(struct learned *l, uint32_t slot, uint32_t entry)
{
	l->heap[slot] = entry;
	entry_at(l, entry)->heap_slot = slot;
}

/* The entry at @slot may be too low or too high: move it to its place. @count is
 * how many the heap holds. */
static void heap_settle(struct learned *l, uint32_t slot, uint32_t count)
{
	uint32_t entry = l->heap[slot];
	int64_t at = heap_time(l, slot);

	for (uint32_t up; slot > 0; slot = up) {
		up = (slot - 1) / 2;
		if (heap_time(l, up) <= at)
			break;
		heap_put(l, slot, l->heap[up]);
	}
	for (uint32_t down; (down = slot * 2 + 1) < count; slot = down) {
		if (down + 1 < count && heap_time(l, down + 1) < heap_time(l, down))
			down++;
		if (heap_time(l, down) >= at)
			break;
		heap_put(l, slot, l->heap[down]);
	}
	heap_put(l, slot, entry);
}

/* ---- elements ---- */

static bool element_has_ended(const struct element *el, int64_t now_ms)
{
	return el->kernel_until_ms == 0 ||
	       el->kernel_until_ms + LEARNED_SLACK_MS <= now_ms;
}

/* A user or a pin has gone. */
static void element_release(struct learned *l, uint32_t i, int64_t now_ms)
{
	struct element *el = element_at(l, i);

	if (el->users > 0 || el->pins > 0 || el->doomed)
		return;
	if (element_has_ended(el, now_ms)) {
		table_give(&l->elements, i);
		return;
	}
	el->doomed = true;
	el->next_doomed = NONE;
	if (l->doomed_first == NONE)
		l->doomed_first = i;
	else
		element_at(l, l->doomed_last)->next_doomed = i;
	l->doomed_last = i;
}

static void element_unpin(struct learned *l, uint32_t i, int64_t now_ms)
{
	struct element *el = element_at(l, i);

	assert(el->pins > 0);
	l->pins--;
	if (--el->pins == 0)
		el->pinned_until_ms = 0;
	element_release(l, i, now_ms);
}

/* ---- what has ended ---- */

static void unlink_past(struct learned_past *p, uint32_t i)
{
	struct past *item = past_at(p, i);

	if (item->newer != NONE)
		past_at(p, item->newer)->older = item->older;
	else
		p->newest = item->older;
	if (item->older != NONE)
		past_at(p, item->older)->newer = item->newer;
	else
		p->oldest = item->newer;
}

static void link_newest(struct learned_past *p, uint32_t i)
{
	struct past *item = past_at(p, i);

	item->newer = NONE;
	item->older = p->newest;
	if (p->newest != NONE)
		past_at(p, p->newest)->newer = i;
	else
		p->oldest = i;
	p->newest = i;
	item->serial = ++p->serial;
	learned_snapshot_put_past(p, i);
}

void learned_past_add(struct learned_past *p, const struct dns_name *n,
		      const struct addr *a, uint64_t hash, uint8_t port_list, bool drains)
{
	CLEAN(mem) uint8_t *bytes = NULL;
	uint32_t i = table_first(&p->items, hash);
	struct past *item;

	while (i != NONE &&
	       (past_at(p, i)->link.hash != hash || past_at(p, i)->size != n->size ||
		memcmp(past_at(p, i)->bytes, n->bytes, n->size) != 0 ||
		!addr_equal(&past_at(p, i)->addr, a)))
		i = past_at(p, i)->link.next;
	if (i != NONE) {
		item = past_at(p, i);
		p->has_lost |= item->drains && item->port_list != port_list;
		item->port_list = port_list;
		item->drains |= drains;
		unlink_past(p, i);
		link_newest(p, i);
		return;
	}
	if (p->items.count >= LEARNED_PAST_MAX) {
		i = p->oldest;
		learned_past_drop(p);
		p->has_lost |= past_at(p, i)->drains;
		learned_snapshot_clear(p, true, i);
		unlink_past(p, i);
		free(past_at(p, i)->bytes);
		table_give(&p->items, i);
	}
	bytes = malloc(n->size);
	if (!bytes || table_reserve(&p->items, 1) < 0) {
		p->has_lost |= drains;
		learned_past_drop(p);
		return;
	}
	memcpy(bytes, n->bytes, n->size);
	i = table_take(&p->items, hash);
	item = past_at(p, i);
	item->addr = *a;
	item->port_list = port_list;
	item->drains = drains;
	item->size = n->size;
	item->labels = n->labels;
	item->bytes = TAKE_PTR(bytes);
	link_newest(p, i);
}

/* ---- entries ---- */

static void entry_attach(struct learned *l, uint32_t i, uint32_t element)
{
	struct entry *e = entry_at(l, i);
	struct element *el = element_at(l, element);

	e->element = element;
	e->newer = NONE;
	e->older = el->newest;
	if (el->newest != NONE)
		entry_at(l, el->newest)->newer = i;
	el->newest = i;
	el->users++;
}

static void entry_detach(struct learned *l, uint32_t i, int64_t now_ms)
{
	struct entry *e = entry_at(l, i);
	struct element *el = element_at(l, e->element);

	if (e->newer != NONE)
		entry_at(l, e->newer)->older = e->older;
	else
		el->newest = e->older;
	if (e->older != NONE)
		entry_at(l, e->older)->newer = e->newer;
	el->users--;
	element_release(l, e->element, now_ms);
}

static void entry_remove(struct learned *l, uint32_t i, int64_t now_ms)
{
	struct entry *e = entry_at(l, i);
	struct name *n = name_at(l, e->name);
	const struct element *el = element_at(l, e->element);
	uint32_t *at = &n->entries, last = l->entries.count - 1, slot = e->heap_slot;

	if (!e->is_passing && l->keeps_past)
		learned_past_add(&l->past, &n->name, &el->addr,
				 learned_past_hash(n->link.hash, el->link.hash),
				 el->port_list, el->drains);
	else
		l->past.has_lost |= el->drains;
	if (!e->is_passing)
		learned_snapshot_clear(&l->past, false, i);
	if (slot != last) {
		heap_put(l, slot, l->heap[last]);
		heap_settle(l, slot, last);
	}
	while (*at != i)
		at = &entry_at(l, *at)->next_of_name;
	*at = e->next_of_name;
	if (--n->count == 0)
		table_give(&l->names, e->name);
	table_give(&l->entries, i);
	entry_detach(l, i, now_ms);
}

static void evict(struct learned *l, uint32_t i, int64_t now_ms)
{
	entry_remove(l, i, now_ms);
	l->evicted++;
}

static uint32_t limit_of(const struct learned *l, enum plan_limit which)
{
	return MAX(plan_limit(l->plan, which), 1u);
}

/* For an entry of @item's name that is not there yet; @name is the name's place, @hash
 * its hash. Each entry is evicted once at most, so what this costs was paid for by the
 * commits before. Return: the name's place, which may have gone with its last entry. */
static uint32_t make_room(struct learned *l, const struct dns_name *n, uint64_t hash,
			  uint32_t name, int64_t now_ms)
{
	size_t evicted = l->evicted;

	if (name != NONE &&
	    name_at(l, name)->count >= limit_of(l, LIMIT_ADDRESSES_PER_NAME)) {
		uint32_t first = name_at(l, name)->entries;

		for (uint32_t i = first; i != NONE; i = entry_at(l, i)->next_of_name)
			if (entry_at(l, i)->expires_ms < entry_at(l, first)->expires_ms)
				first = i;
		evict(l, first, now_ms);
	}
	while (l->entries.count >= limit_of(l, LIMIT_ADDRESSES))
		evict(l, l->heap[0], now_ms);
	if (l->evicted != evicted)
		name = name_find(l, n, hash);
	while (name == NONE && l->names.count >= limit_of(l, LIMIT_LEARNED_NAMES))
		evict(l, l->heap[0], now_ms);
	return name;
}

/* ---- public ---- */

struct learned *learned_new(const struct plan *plan, const struct hash_key *key)
{
	struct learned *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->plan = plan;
	l->key = *key;
	l->doomed_first = NONE;
	table_init(&l->names, sizeof(struct name));
	table_init(&l->entries, sizeof(struct entry));
	table_init(&l->elements, sizeof(struct element));
	table_init(&l->past.items, sizeof(struct past));
	l->past.newest = l->past.oldest = NONE;
	return l;
}

void learned_free(struct learned *l)
{
	if (!l)
		return;
	table_done(&l->names);
	table_done(&l->entries);
	table_done(&l->elements);
	for (uint32_t i = l->past.oldest; i != NONE; i = past_at(&l->past, i)->newer)
		free(past_at(&l->past, i)->bytes);
	table_done(&l->past.items);
	free(l->draining.items);
	free(l->heap);
	free(l);
}

uint32_t learned_ttl_max(const struct plan *plan)
{
	return MIN(plan_limit(plan, LIMIT_MAX_LIFETIME_SEC),
		   (uint32_t)LEARNED_LIFETIME_MAX_SEC);
}

/* How long an element for @item is asked for, and how long it is needed at least. */
static int64_t lifetime_ms(const struct learned *l, const struct learned_item *item,
			   int64_t *ret_needed)
{
	int64_t longest = learned_ttl_max(l->plan);
	int64_t shortest =
		MIN((int64_t)plan_limit(l->plan, LIMIT_MIN_LIFETIME_SEC), longest);
	int64_t grace = MIN(plan_limit(l->plan, LIMIT_GRACE_SEC),
			    (uint32_t)LEARNED_GRACE_MAX_SEC);
	int64_t ttl = MIN((int64_t)item->ttl_sec, longest);
	int64_t lifetime = MAX(ttl, shortest);

	if (item->lifetime_ms > 0)
		return *ret_needed = item->lifetime_ms;
	*ret_needed = (ttl + grace) * 1000;
	return MAX((lifetime + grace) * 1000, 1);
}

static int reserve_heap(struct learned *l)
{
	uint32_t *heap;

	if (l->heap_size >= l->entries.size)
		return 0;
	heap = realloc(l->heap, l->entries.size * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	l->heap = heap;
	l->heap_size = l->entries.size;
	return 0;
}

int learned_reserve(struct learned *to, const struct learned *from)
{
	if (table_reserve(&to->names, from->names.count + 1) < 0 ||
	    table_reserve(&to->entries, from->entries.count + 1) < 0 ||
	    table_reserve(&to->elements, from->elements.count + 1) < 0)
		return -ENOMEM;
	return reserve_heap(to);
}

int learned_prepare(struct learned *l, const struct learned_item *item, int64_t now_ms,
		    struct filter_learn *ret)
{
	uint8_t list = item->verdict.port_list;
	int64_t needed, lifetime = lifetime_ms(l, item, &needed);
	uint64_t hash = hash_addr(l, &item->addr);
	struct element *el;
	uint32_t i;

	if (table_reserve(&l->names, l->pins + 1) < 0 ||
	    table_reserve(&l->entries, l->pins + 1) < 0 ||
	    table_reserve(&l->elements, 1) < 0 || reserve_heap(l) < 0)
		return -ENOMEM;
	i = learned_element_find(l, &item->addr, hash, list);
	if (i == NONE) {
		i = table_take(&l->elements, hash);
		element_at(l, i)->addr = item->addr;
		element_at(l, i)->port_list = list;
		element_at(l, i)->newest = NONE;
	}
	el = element_at(l, i);
	el->pins++;
	l->pins++;
	if (MAX(el->kernel_until_ms, el->pinned_until_ms) >= now_ms + needed)
		return 0;
	*ret = (struct filter_learn){
		.addr = item->addr,
		.port_list = list,
		.refresh = el->kernel_until_ms > 0 || el->pinned_until_ms > 0 ||
			   now_ms < l->doubt_until_ms,
		.lifetime_ms = (uint32_t)lifetime,
	};
	el->pinned_until_ms = now_ms + lifetime;
	return 1;
}

static uint32_t pinned_element(const struct learned *l, const struct learned_item *item)
{
	return learned_element_find(l, &item->addr, hash_addr(l, &item->addr),
				    item->verdict.port_list);
}

/* The entry of @item's name for the address of @element, under whichever port list it was
 * learned; new, or until @expires_ms at least. */
static uint32_t entry_take(struct learned *l, const struct dns_name *n, uint32_t element,
			   int64_t expires_ms, int64_t now_ms)
{
	const struct addr *a = &element_at(l, element)->addr;
	uint64_t hash = hash_name(l, n);
	uint32_t name = name_find(l, n, hash), i = NONE;
	int64_t until_ms = element_at(l, element)->kernel_until_ms;
	struct entry *e;

	if (name != NONE)
		i = table_first(&l->entries, hash_entry(element_at(l, element), name));
	while (i != NONE && (entry_at(l, i)->name != name ||
			     !addr_equal(entry_addr(l, entry_at(l, i)), a)))
		i = entry_at(l, i)->link.next;
	if (i != NONE) {
		e = entry_at(l, i);
		e->expires_ms = MIN(MAX(e->expires_ms, expires_ms), until_ms);
		heap_settle(l, e->heap_slot, l->entries.count);
		l->past.has_lost |= e->element != element;
		entry_detach(l, i, now_ms);
		entry_attach(l, i, element);
		return i;
	}
	name = make_room(l, n, hash, name, now_ms);
	if (name == NONE) {
		name = table_take(&l->names, hash);
		name_at(l, name)->name = *n;
		name_at(l, name)->entries = NONE;
	}
	i = table_take(&l->entries, hash_entry(element_at(l, element), name));
	e = entry_at(l, i);
	e->name = name;
	e->next_of_name = name_at(l, name)->entries;
	name_at(l, name)->entries = i;
	name_at(l, name)->count++;
	e->expires_ms = MIN(expires_ms, until_ms);
	entry_attach(l, i, element);
	heap_put(l, l->entries.count - 1, i);
	heap_settle(l, l->entries.count - 1, l->entries.count);
	return i;
}

void learned_commit(struct learned *l, const struct learned_item *item, int64_t now_ms)
{
	uint32_t element = pinned_element(l, item);
	struct element *el = element_at(l, element);
	int64_t needed, expires = now_ms + lifetime_ms(l, item, &needed);
	struct entry *e;
	uint32_t i;

	el->kernel_until_ms = MAX(el->kernel_until_ms, el->pinned_until_ms);
	i = entry_take(l, item->name, element, expires, now_ms);
	e = entry_at(l, i);
	e->rule = item->verdict.rule;
	e->flags = item->verdict.flags;
	/* What an answer teaches as well doesn't pass any more. */
	e->is_passing = item->is_passing && (e->is_passing || e->serial == 0);
	e->serial = ++l->serial;
	if (l->past.snapshot)
		learned_snapshot_put(l, i);
	element_unpin(l, element, now_ms);
}

int learned_insert(struct learned *l, const struct learned_item *item, int64_t now_ms)
{
	struct filter_learn ignored;
	int r = learned_prepare(l, item, now_ms, &ignored);

	if (r < 0)
		return r;
	learned_commit(l, item, now_ms);
	return 0;
}

void learned_settle(struct learned *l)
{
	while (l->doomed_first != NONE) {
		uint32_t i = l->doomed_first;

		l->doomed_first = element_at(l, i)->next_doomed;
		element_at(l, i)->doomed = false;
		if (element_at(l, i)->users == 0)
			table_give(&l->elements, i);
	}
	for (uint32_t i = 0; i < l->elements.used; i++) {
		struct element *el = element_at(l, i);

		if (!el->link.live)
			continue;
		el->kernel_until_ms = 0;
		for (uint32_t e = el->newest; e != NONE; e = entry_at(l, e)->older)
			el->kernel_until_ms =
				MAX(el->kernel_until_ms, entry_at(l, e)->expires_ms);
	}
	l->doubt_until_ms = l->swept_until_ms = 0;
}

void learned_abort(struct learned *l, const struct learned_item *item, int64_t now_ms)
{
	element_unpin(l, pinned_element(l, item), now_ms);
}

size_t learned_sweep(struct learned *l, int64_t now_ms, struct filter_learn *changes,
		     size_t max)
{
	size_t n = 0;

	while (n < max && l->doomed_first != NONE) {
		uint32_t i = l->doomed_first;
		struct element *el = element_at(l, i);

		l->doomed_first = el->next_doomed;
		el->doomed = false;
		if (el->users > 0 || el->pins > 0)
			continue;
		if (!element_has_ended(el, now_ms)) {
			changes[n++] = (struct filter_learn){
				.addr = el->addr,
				.port_list = el->port_list,
				.present = el->kernel_until_ms >
					   now_ms + LEARNED_SLACK_MS,
			};
			l->swept_until_ms = MAX(l->swept_until_ms,
						el->kernel_until_ms + LEARNED_SLACK_MS);
		}
		table_give(&l->elements, i);
	}
	return n;
}

void learned_sweep_failed(struct learned *l)
{
	l->doubt_until_ms = MAX(l->doubt_until_ms, l->swept_until_ms);
}

void learned_forget(struct learned *l, const struct dns_name *name, const struct addr *a,
		    int64_t now_ms)
{
	uint32_t i = entries_of(l, name);

	while (i != NONE && !addr_equal(entry_addr(l, entry_at(l, i)), a))
		i = entry_at(l, i)->next_of_name;
	if (i != NONE)
		entry_remove(l, i, now_ms);
}

int64_t learned_expire(struct learned *l, int64_t now_ms)
{
	while (l->entries.count > 0 && heap_time(l, 0) + LEARNED_SLACK_MS <= now_ms)
		entry_remove(l, l->heap[0], now_ms);
	/* Nothing is learned, nor on its way: the memory goes back. */
	if (l->entries.count == 0 && l->elements.count == 0 && l->entries.size > 0) {
		table_release(&l->names);
		table_release(&l->entries);
		table_release(&l->elements);
		free(TAKE_PTR(l->heap));
		l->heap_size = 0;
	}
	return l->entries.count > 0 ? heap_time(l, 0) + LEARNED_SLACK_MS : INT64_MAX;
}

bool learned_bound_doubt(struct learned *l, int64_t until_ms)
{
	if (until_ms + LEARNED_SLACK_MS > l->doubt_until_ms)
		return false;
	l->doubt_until_ms = until_ms + LEARNED_SLACK_MS;
	return true;
}

void learned_keep_past(struct learned *l)
{
	l->keeps_past = true;
}

/* ---- questions ---- */

size_t learned_find(const struct learned *l, const struct addr *a, int64_t now_ms,
		    struct learned_use *ret, size_t max)
{
	uint32_t lists[PLAN_PORT_LISTS_MAX];
	size_t count = 0, n = 0;
	uint32_t i = table_first(&l->elements, hash_addr(l, a));

	for (; i != NONE && count < ARRAY_SIZE(lists); i = element_at(l, i)->link.next)
		if (addr_equal(&element_at(l, i)->addr, a))
			lists[count++] = element_at(l, i)->newest;
	while (n < max) {
		uint32_t *newest = NULL;
		const struct entry *e;

		/* The entry with the highest serial among the heads of the lists. */
		for (size_t at = 0; at < count; at++)
			if (lists[at] != NONE &&
			    (!newest || entry_at(l, lists[at])->serial >
						entry_at(l, *newest)->serial))
				newest = &lists[at];
		if (!newest)
			break;
		e = entry_at(l, *newest);
		*newest = e->older;
		if (e->expires_ms <= now_ms)
			continue;
		ret[n++] = (struct learned_use){
			.name = name_at(l, e->name)->name,
			.rule = e->rule,
			.port_list = element_at(l, e->element)->port_list,
			.flags = e->flags,
			.expires_ms = e->expires_ms,
		};
	}
	return n;
}

void learned_rules(const struct learned *l, const struct addr *a, learned_rule_fn *fn,
		   void *data)
{
	for (uint32_t i = table_first(&l->elements, hash_addr(l, a)); i != NONE;
	     i = element_at(l, i)->link.next) {
		const struct element *el = element_at(l, i);

		if (!addr_equal(&el->addr, a))
			continue;
		for (uint32_t j = el->newest; j != NONE; j = entry_at(l, j)->older)
			fn(data, entry_at(l, j)->rule, el->port_list);
	}
}

bool learned_past_rules(const struct learned *l, const struct addr *a,
			learned_rule_fn *fn, void *data)
{
	const struct learned_past *p = &l->past;
	struct plan_verdict v;

	for (uint32_t i = p->newest; i != NONE; i = past_at(p, i)->older) {
		struct dns_name n;

		if (!addr_equal(&past_at(p, i)->addr, a))
			continue;
		n = past_name(past_at(p, i));
		if (learned_is_allowed(l->plan, &n, a, &v))
			fn(data, v.rule, v.port_list);
	}
	return !p->has_dropped;
}

bool learned_teaches(const struct learned *l, const struct dns_name *name,
		     const struct addr *a, int64_t now_ms)
{
	uint32_t i = entries_of(l, name);

	for (; i != NONE; i = entry_at(l, i)->next_of_name)
		if (addr_equal(entry_addr(l, entry_at(l, i)), a) &&
		    entry_at(l, i)->expires_ms > now_ms)
			return true;
	return false;
}

size_t learned_addrs(const struct learned *l, const struct dns_name *name,
		     enum addr_family family, int64_t now_ms, struct addr *ret,
		     size_t max)
{
	uint32_t i = entries_of(l, name);
	uint64_t serials[LEARNED_ADDRS_MAX];
	size_t count = 0;

	max = MIN(max, ARRAY_SIZE(serials));
	for (; i != NONE; i = entry_at(l, i)->next_of_name) {
		const struct entry *e = entry_at(l, i);
		const struct addr *a = entry_addr(l, e);
		size_t at = count;

		if (e->expires_ms <= now_ms ||
		    (family != ADDR_NONE && a->family != family))
			continue;
		while (at > 0 && serials[at - 1] < e->serial)
			at--;
		if (at == max)
			continue;
		count = MIN(count + 1, max);
		memmove(&serials[at + 1], &serials[at],
			(count - at - 1) * sizeof(*serials));
		memmove(&ret[at + 1], &ret[at], (count - at - 1) * sizeof(*ret));
		serials[at] = e->serial;
		ret[at] = *a;
	}
	return count;
}

struct learned_counts learned_counts(const struct learned *l)
{
	return (struct learned_counts){ .names = l->names.count,
					.addresses = l->entries.count,
					.evicted = l->evicted,
					.elements = l->elements.count };
}
