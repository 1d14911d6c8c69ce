// SPDX-License-Identifier: Apache-2.0
#include "sandbox/learned_internal.h"

void learned_past_init(struct learned_past *p)
{
	learned_table_init(&p->items, sizeof(struct past));
	p->newest = p->oldest = NONE;
}

void learned_past_done(struct learned_past *p)
{
	for (uint32_t i = p->oldest; i != NONE; i = past_at(p, i)->newer)
		free(past_at(p, i)->bytes);
	learned_table_done(&p->items);
}

void learned_keep_past(struct learned *l)
{
	l->keeps_past = true;
}

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

static void forget_oldest(struct learned_past *p)
{
	uint32_t i = p->oldest;

	learned_snapshot_clear_past(p, i);
	unlink_past(p, i);
	free(past_at(p, i)->bytes);
	learned_table_give(&p->items, i);
}

static uint32_t find_past(const struct learned_past *p, const struct dns_name *n,
			  const struct addr *a, uint64_t hash)
{
	uint32_t i = learned_table_first(&p->items, hash);

	while (i != NONE &&
	       (past_at(p, i)->link.hash != hash || past_at(p, i)->size != n->size ||
		memcmp(past_at(p, i)->bytes, n->bytes, n->size) != 0 ||
		!addr_equal(&past_at(p, i)->addr, a)))
		i = past_at(p, i)->link.next;
	return i;
}

static void past_new(struct learned_past *p, const struct dns_name *n,
		     const struct addr *a, uint64_t hash)
{
	CLEAN(mem) uint8_t *bytes = malloc(n->size);
	struct past *item;
	uint32_t i;

	if (!bytes || learned_table_reserve(&p->items, 1) < 0)
		return;
	memcpy(bytes, n->bytes, n->size);
	i = learned_table_take(&p->items, hash);
	item = past_at(p, i);
	item->addr = *a;
	item->size = n->size;
	item->labels = n->labels;
	item->bytes = TAKE_PTR(bytes);
	link_newest(p, i);
}

void learned_past_add(struct learned_past *p, const struct dns_name *n,
		      const struct addr *a, uint64_t hash)
{
	uint32_t i = find_past(p, n, a, hash);

	if (i != NONE) {
		unlink_past(p, i);
		link_newest(p, i);
		return;
	}
	if (p->items.count >= LEARNED_PAST_MAX)
		forget_oldest(p);
	past_new(p, n, a, hash);
}

void learned_past_note(struct learned *l, const struct entry *e)
{
	const struct name *n = name_at(l, e->name);
	const struct element *el = element_at(l, e->element);

	if (l->keeps_past)
		learned_past_add(&l->past, &n->name, &el->addr,
				 learned_past_hash(n->link.hash, el->link.hash));
}
