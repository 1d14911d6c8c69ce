// SPDX-License-Identifier: Apache-2.0
/* sandbox/learned_internal - what the files of the table share: learned.c (the tables,
 * their changes, what has ended, questions), learned_judge.c (what is found ahead of a
 * change to another plan), learned_carry.c (the table under another plan, and what that
 * changes in the kernel; the copy that outlives the engine). The head of learned.c says
 * how the tables hang together. */
#pragma once

#include <string.h>

#include "sandbox/learned.h"

#define NONE UINT32_MAX

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

static inline void *learned_table_at(const struct learned_table *t, uint32_t i)
{
	return t->items + i * t->item_size;
}

struct name {
	struct learned_link link;
	uint32_t entries; /* the first; linked by next_of_name */
	uint32_t count;	  /* of entries */
	struct dns_name name;
};

struct entry {
	struct learned_link link;
	uint32_t name;
	uint32_t element;
	uint32_t next_of_name;
	uint32_t newer, older; /* of the same element */
	uint32_t heap_slot;
	uint32_t rule;
	uint8_t flags;
	bool is_passing; /* it is in no snapshot */
	uint64_t serial; /* grows with each commit */
	int64_t expires_ms;
};

struct element {
	struct learned_link link;
	struct addr addr;
	uint8_t port_list;
	bool doomed; /* in the doomed list */
	bool drains; /* it is in learned.draining, maybe more than once */
	uint32_t next_doomed;
	uint32_t newest; /* entry */
	uint32_t users, pins;
	int64_t kernel_until_ms; /* acknowledged; 0: never */
	int64_t pinned_until_ms; /* prepared; 0 unless pins > 0 */
};

/* What a name has taught, and what has ended: (name, address), newest last. A pair that
 * ends once more becomes the newest. */
struct past {
	struct learned_link link;
	struct addr addr;
	uint8_t port_list; /* of the element that ended */
	bool drains;	   /* address and port list are in learned.draining */
	uint32_t newer, older;
	uint8_t size, labels; /* of the name */
	uint8_t *bytes;	      /* of the name; owned */
	uint64_t serial;      /* the newest has the highest */
};

struct learned_records;

struct learned_past {
	struct learned_table items;
	uint32_t newest, oldest;
	uint64_t serial;
	bool has_dropped; /* a pair was forgotten, or found no room in the snapshot */
	bool has_lost; /* learned.draining may have what no element and no item here has
			*/
	struct learned_snapshot *snapshot; /* borrowed; NULL: there is none */
};

/* What the kernel's sets for open flows hold. */
struct learned_draining {
	struct filter_learn *items; /* owned */
	size_t count;
};

struct learned {
	const struct plan *plan; /* borrowed */
	struct hash_key key;
	struct learned_table names, entries, elements;
	uint32_t *heap;	    /* of entries, the one that expires first on top */
	uint32_t heap_size; /* room in it */
	uint32_t doomed_first, doomed_last;
	uint32_t pins; /* of all elements */
	uint64_t serial;
	int64_t swept_until_ms; /* the last that a swept element would have lived */
	int64_t doubt_until_ms;
	size_t evicted;
	bool keeps_past;
	bool is_active; /* the kernel's sets are this table's: learned_set_active() */
	struct learned_draining draining;
	struct learned_past past; /* with the snapshot of all */
};

static inline struct name *name_at(const struct learned *l, uint32_t i)
{
	return learned_table_at(&l->names, i);
}

static inline struct entry *entry_at(const struct learned *l, uint32_t i)
{
	return learned_table_at(&l->entries, i);
}

static inline struct element *element_at(const struct learned *l, uint32_t i)
{
	return learned_table_at(&l->elements, i);
}

static inline uint64_t hash_name(const struct learned *l, const struct dns_name *n)
{
	return hash_bytes(&l->key, n->bytes, n->size);
}

/* All port lists of an address share a chain: the relay asks by the address alone. */
static inline uint64_t hash_addr(const struct learned *l, const struct addr *a)
{
	return hash_bytes(&l->key, a, sizeof(*a));
}

static inline struct past *past_at(const struct learned_past *p, uint32_t i)
{
	return learned_table_at(&p->items, i);
}

static inline const struct addr *entry_addr(const struct learned *l,
					    const struct entry *e)
{
	return &element_at(l, e->element)->addr;
}

/* -- learned.c -- */

/* The longest that any element can live under any plan. */
enum { LEARNED_LIFETIME_MAX_SEC = 7 * 24 * 3600, LEARNED_GRACE_MAX_SEC = 3600 };

/* @hash is the address's. Return: NONE when there is none. */
uint32_t learned_element_find(const struct learned *l, const struct addr *a,
			      uint64_t hash, uint8_t port_list);
static inline bool learned_has_element(const struct learned *l, const struct addr *a,
				       uint8_t port_list)
{
	return learned_element_find(l, a, hash_addr(l, a), port_list) != NONE;
}
/* Room in @to for what is in @from. */
int learned_reserve(struct learned *to, const struct learned *from) MUST_CHECK;
/* Learn @item as if the kernel had acknowledged it. -ENOMEM: nothing has changed. */
int learned_insert(struct learned *l, const struct learned_item *item,
		   int64_t now_ms) MUST_CHECK;
/* The kernel's sets are about to be made anew from this table: elements without an entry
 * are forgotten, and all others end with their last entry. */
void learned_settle(struct learned *l);

/* At most LEARNED_PAST_MAX: the oldest makes room. Without memory nothing is noted, and
 * a change of the policy ends the flow. @drains: see struct past. */
void learned_past_add(struct learned_past *p, const struct dns_name *n,
		      const struct addr *a, uint64_t hash, uint8_t port_list,
		      bool drains);

static inline uint64_t learned_past_hash(uint64_t hash_of_name, uint64_t hash_of_addr)
{
	return hash_of_addr ^ hash_of_name * UINT64_C(0x9e3779b97f4a7c15);
}

static inline struct dns_name past_name(const struct past *item)
{
	struct dns_name n = { .size = item->size, .labels = item->labels };

	memcpy(n.bytes, item->bytes, item->size);
	return n;
}

/* -- learned_carry.c -- */

/* All elements, and all that has ended, are in the kernel's sets for open flows, or none
 * is. */
void learned_set_drains(struct learned *l, bool drains);

/* Leave each address of a port list in @items once: two names may have taught it. Return:
 * how many are left. */
size_t learned_once(struct filter_learn *items, size_t count);

/* Does @plan let @n teach @a? *@ret is what it says of the name. */
bool learned_is_allowed(const struct plan *plan, const struct dns_name *n,
			const struct addr *a, struct plan_verdict *ret);

/* The entry at @i has been committed. */
void learned_snapshot_put(struct learned *l, uint32_t i);
/* The same of what has ended. */
void learned_snapshot_put_past(struct learned_past *p, uint32_t i);
/* A pair is about to be forgotten, or is not in the snapshot: this table and the next
 * engine, which reads the snapshot, know of it. */
void learned_past_drop(struct learned_past *p);
/* The entry at @i, or with @of_past what has ended there, is about to go. */
void learned_snapshot_clear(const struct learned_past *p, bool of_past, uint32_t i);
