// SPDX-License-Identifier: Apache-2.0
/* sandbox/learned_table - an array of items with a free list and a hash index over it,
 * growing by doubling. Items begin with a struct learned_link and are known by their
 * index, because the array moves when it grows. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

#define LEARNED_NONE UINT32_MAX

/* What every table's items begin with. */
struct learned_link {
	uint64_t hash;
	uint32_t next; /* in the hash chain, or in the free list */
	bool live;
};

/* An array with a free list and a hash index. */
struct learned_table {
	uint8_t *items;
	uint32_t *heads; /* @size of them */
	size_t item_size;
	uint32_t size; /* a power of two, or 0 */
	uint32_t used; /* high-water mark */
	uint32_t free; /* first of the free list */
	uint32_t count;
};

void learned_table_init(struct learned_table *t, size_t item_size);
void learned_table_done(struct learned_table *t);
/* Of an empty one: give its memory back. */
void learned_table_release(struct learned_table *t);

static inline void *learned_table_at(const struct learned_table *t, uint32_t i)
{
	return t->items + i * t->item_size;
}

/* The first item that may have @hash; the others follow by link.next. */
uint32_t learned_table_first(const struct learned_table *t, uint64_t hash);
/* Room for @wanted more. Return: 0 or -ENOMEM. */
int learned_table_reserve(struct learned_table *t, uint32_t wanted) MUST_CHECK;
/* A zeroed item. There has to be room: see learned_table_reserve(). */
uint32_t learned_table_take(struct learned_table *t, uint64_t hash);
void learned_table_give(struct learned_table *t, uint32_t i);
