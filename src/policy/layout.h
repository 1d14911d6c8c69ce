// SPDX-License-Identifier: Apache-2.0
/* policy/layout - how a plan lies in memory. Only compile.c and plan.c know.
 *
 * One header, then sections that it names by offset and count; every section starts
 * at a multiple of 8. Numbers are in the machine's own order: a plan never leaves the
 * machine. Texts are offsets into one section of texts, each ended by NUL. */
#pragma once

#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "policy/plan.h"

#define LAYOUT_MAGIC UINT64_C(0x376e616c70726577) /* "werplan7" */

enum { LAYOUT_SIZE_MAX = 1 << 30 };

enum layout_section {
	LAYOUT_SLOTS = 0,  /* struct layout_slot; never full */
	LAYOUT_RULES,	   /* struct layout_rule */
	LAYOUT_PREFIXES,   /* struct layout_prefix, sorted */
	LAYOUT_TOPS,	   /* uint32_t: the prefixes that plan_prefix() shows */
	LAYOUT_ENDS,	   /* int64_t, ascending: the different ends of rules */
	LAYOUT_NEXT,	   /* struct layout_next of each rule; empty without ends */
	LAYOUT_BUDGETS,	   /* struct plan_budget, by rule; that of all is the last */
	LAYOUT_PORT_LISTS, /* struct layout_port_list */
	LAYOUT_PORTS,	   /* struct plan_port_range */
	LAYOUT_TEXTS,	   /* bytes; the last one is NUL */
	LAYOUT_NAMES,	   /* bytes: size, then the name's wire form, and so on */
	LAYOUT_SECTION_COUNT
};

struct layout_extent {
	uint32_t offset; /* from the start of the plan */
	uint32_t count;	 /* in items of the section's own size */
};

struct layout_header {
	uint64_t magic;
	struct hash_key key;
	uint32_t size; /* of everything */
	uint8_t default_action;
	uint8_t verify;
	uint8_t dns;
	uint8_t require_full_isolation;
	uint8_t denied_names;
	uint8_t asks;		  /* names; the default action or a rule does */
	uint32_t repin_sec;	  /* 0: not set */
	uint32_t on_denies_count; /* 0: nothing is counted */
	uint32_t on_denies_window_sec;
	uint32_t on_denies_action;
	uint32_t labels_max; /* of any name here; longer suffixes can't match */
	uint32_t every_name; /* 1 + the rule of names that no other rule is about; 0: none
			      */
	uint32_t limits[LIMIT_COUNT];
	struct layout_extent sections[LAYOUT_SECTION_COUNT];
};

/* An entry of the hash table: one name, and the first rule for it. */
struct layout_slot {
	uint32_t tag;	/* the hash's upper half */
	uint32_t name;	/* 1 + offset into LAYOUT_NAMES; 0: the slot is empty */
	uint32_t exact; /* rule for the name itself, or PLAN_NO_RULE */
	uint32_t below; /* rule for every name below it, or PLAN_NO_RULE */
};

struct layout_rule {
	uint8_t action;
	uint8_t port_list;
	uint8_t flags;
	uint8_t types;
	uint8_t named_list;
	uint8_t end;	/* 1 + index into LAYOUT_ENDS; 0: none */
	uint8_t budget; /* 1 + index into LAYOUT_BUDGETS; 0: none */
	uint8_t reserved[1];
	uint32_t line, column;
	uint32_t target, file, comment; /* offsets into LAYOUT_TEXTS */
};

/* What decides of the same name when the rule is over: a later rule, or PLAN_NO_RULE. */
struct layout_next {
	uint32_t exact, below; /* as in struct layout_slot */
};

/* Sorted by address, length, action, port list, end, budget; no two alike in all of
 * them. */
struct layout_prefix {
	struct prefix prefix; /* host bits zero */
	uint8_t action;
	uint8_t port_list;
	uint8_t flags;
	uint8_t end, budget; /* as in struct layout_rule */
	uint8_t reserved[1];
	uint32_t rule;	 /* the first of the rules that say the same */
	uint32_t parent; /* 1 + index of the narrowest earlier entry that holds this one;
			    0: none */
};

struct layout_port_list {
	uint32_t first; /* index into LAYOUT_PORTS */
	uint32_t count;
};

static inline const struct layout_header *layout_header(const struct plan *p)
{
	return (const struct layout_header *)(const void *)p->bytes;
}

static inline const void *layout_section(const struct plan *p, enum layout_section which)
{
	return p->bytes + layout_header(p)->sections[which].offset;
}

static inline uint32_t layout_count(const struct plan *p, enum layout_section which)
{
	return layout_header(p)->sections[which].count;
}

/* One step of a name's hash: @label (its length octet included) below what @above
 * stands for. The hash of the root is 0. */
static inline uint64_t layout_hash_label(const struct hash_key *key, uint64_t above,
					 const uint8_t *label)
{
	struct hash_key k = { key->k0 ^ above, key->k1 };

	return hash_bytes(&k, label, (size_t)label[0] + 1);
}

/* The entry of the name of @size bytes, whose hash is @hash, in the table of @count
 * @slots: the one that has it, or the first empty one. */
static inline uint32_t layout_slot_find(const struct layout_slot *slots, uint32_t count,
					const uint8_t *names, uint64_t hash,
					const uint8_t *name, size_t size)
{
	const uint32_t tag = (uint32_t)(hash >> 32);
	uint32_t i = (uint32_t)((uint64_t)(uint32_t)hash * count >> 32);

	/* Behind the last one comes the first. */
	for (; slots[i].name != 0; i = i + 1 < count ? i + 1 : 0) {
		const uint8_t *entry = names + slots[i].name - 1;

		if (slots[i].tag == tag && entry[0] == size &&
		    memcmp(entry + 1, name, size) == 0)
			break;
	}
	return i;
}

/* Bytes of one item of that section. */
size_t layout_item_size(enum layout_section which);
/* Where the labels of @n start, first to last. Return: how many. */
size_t layout_labels(const struct dns_name *n, uint8_t ret[DNS_LABELS_MAX]);
/* Order of LAYOUT_PREFIXES: < 0, 0, > 0. */
int layout_prefix_compare(const struct layout_prefix *a, const struct layout_prefix *b);
/* @outer holds all of @inner. */
bool layout_prefix_holds(const struct prefix *outer, const struct prefix *inner);
