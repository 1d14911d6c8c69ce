// SPDX-License-Identifier: Apache-2.0
/* index - objects that are found by a text of theirs. An object has a struct
 * index_entry for each index that it is in, and neither that nor the text moves
 * meanwhile. All zero is an empty index. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct index_entry {
	struct index_entry *next; /* with the same head */
	const char *text;	  /* borrowed; NULL: it is in no index */
	uint64_t hash;
};

struct index {
	struct index_entry **heads; /* owned, @size of them */
	size_t size;		    /* a power of two, or 0 */
	size_t count;
};

/* The same text twice is taken; the later one is found. @e isn't in any. Return: 0 or
 * -ENOMEM. */
int index_add(struct index *r, struct index_entry *e, const char *text) MUST_CHECK;
/* Nothing, when it isn't in there. */
void index_remove(struct index *r, struct index_entry *e);
/* NULL: there is none. */
struct index_entry *index_find(const struct index *r, const char *text);
/* The one with the same text that was added before @e; NULL: there is none. */
struct index_entry *index_next(const struct index_entry *e);
