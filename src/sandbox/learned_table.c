// SPDX-License-Identifier: Apache-2.0
#include "sandbox/learned_table.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { FIRST_SIZE = 4 }; /* at the first use */

void learned_table_init(struct learned_table *t, size_t item_size)
{
	*t = (struct learned_table){ .item_size = item_size, .free = LEARNED_NONE };
}

void learned_table_done(struct learned_table *t)
{
	free(t->items);
	free(t->heads);
}

void learned_table_release(struct learned_table *t)
{
	assert(t->count == 0);
	learned_table_done(t);
	learned_table_init(t, t->item_size);
}

uint32_t learned_table_first(const struct learned_table *t, uint64_t hash)
{
	return t->size > 0 ? t->heads[hash & (t->size - 1)] : LEARNED_NONE;
}

static void learned_table_push(struct learned_table *t, uint32_t i)
{
	struct learned_link *link = learned_table_at(t, i);
	uint32_t *head = &t->heads[link->hash & (t->size - 1)];

	link->next = *head;
	*head = i;
}

static int learned_table_grow(struct learned_table *t, uint32_t size)
{
	uint32_t *heads = malloc(size * sizeof(*heads));
	uint8_t *items = heads ? realloc(t->items, size * t->item_size) : NULL;

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
			learned_table_push(t, i);
	return 0;
}

int learned_table_reserve(struct learned_table *t, uint32_t wanted)
{
	uint32_t size = t->size > 0 ? t->size : FIRST_SIZE;

	while (size - t->count < wanted)
		size *= 2;
	return size > t->size ? learned_table_grow(t, size) : 0;
}

uint32_t learned_table_take(struct learned_table *t, uint64_t hash)
{
	uint32_t i = t->free;
	struct learned_link *link;

	assert(t->count < t->size);
	if (i == LEARNED_NONE)
		i = t->used++;
	link = learned_table_at(t, i);
	if (i == t->free)
		t->free = link->next;
	memset(link, 0, t->item_size);
	link->hash = hash;
	link->live = true;
	learned_table_push(t, i);
	t->count++;
	return i;
}

void learned_table_give(struct learned_table *t, uint32_t i)
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
