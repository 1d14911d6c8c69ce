// SPDX-License-Identifier: Apache-2.0
/* roster - things that are found by a text of theirs. Whoever is in it has a struct
 * roster_entry of its own, and keeps it and the text where they are as long.
 *
 * All zero is an empty one. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct roster_entry {
	struct roster_entry *next; /* with the same head */
	const char *text;	   /* borrowed; NULL: it is in no roster */
	uint64_t hash;
};

struct roster {
	struct roster_entry **heads; /* owned, @size of them */
	size_t size;		     /* a power of two, or 0 */
	size_t count;
};

/* Frees what is its own; the entries are as they were. */
void roster_done(struct roster *r);
/* The same text twice is taken; the later one is found. @e isn't in any. Return: 0 or
 * -ENOMEM. */
int roster_add(struct roster *r, struct roster_entry *e, const char *text) MUST_CHECK;
/* Nothing, when it isn't in there. */
void roster_remove(struct roster *r, struct roster_entry *e);
/* NULL: there is none. */
struct roster_entry *roster_find(const struct roster *r, const char *text);
/* The one with the same text that was added before @e; NULL: there is none. */
struct roster_entry *roster_next(const struct roster_entry *e);
