// SPDX-License-Identifier: Apache-2.0
/* sandbox/learned_internal - what learned.c (changes) and learned_find.c (questions)
 * share. How the tables hang together is told in learned.c. */
#pragma once

#include "sandbox/learned.h"
#include "sandbox/learned_table.h"

#define NONE LEARNED_NONE

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
	uint64_t serial; /* grows with each commit */
	int64_t expires_ms;
};

struct element {
	struct learned_link link;
	struct addr addr;
	uint8_t port_list;
	bool doomed; /* in the doomed list */
	uint32_t next_doomed;
	uint32_t newest; /* entry */
	uint32_t users, pins;
	int64_t kernel_until_ms; /* acknowledged; 0: never */
	int64_t pinned_until_ms; /* prepared; 0 unless pins > 0 */
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

static inline const struct addr *entry_addr(const struct learned *l,
					    const struct entry *e)
{
	return &element_at(l, e->element)->addr;
}

/* Return: NONE when it has taught nothing. */
uint32_t learned_name_find(const struct learned *l, const struct dns_name *n,
			   uint64_t hash);
