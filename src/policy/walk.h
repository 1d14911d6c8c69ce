// SPDX-License-Identifier: Apache-2.0
/* policy/walk - walking a document by tables of keys, with the path of every value for
 * messages ("egress[3].target").
 *
 * A reader that meets a fault adds it and goes on, so one walk finds them all. */
#pragma once

#include "policy/schema.h"

enum { PATH_SIZE = 256 }; /* a longer path is cut */

struct walk {
	struct schema_document *document;
	char path[PATH_SIZE];
	bool out_of_memory;
	const struct node *root;
	bool is_wrapped; /* below `network_policy` */
};

struct schema_key {
	const char *name;
	void (*read)(struct walk *w, const struct node *n, void *data);
};

/* Add a fault at @n, under the path of now. */
void walk_fault(struct walk *w, const struct node *n, enum fault_level level,
		const char *fmt, ...) PRINTF_LIKE(4, 5);
/* "'text' is not <what>", for a value of the wrong kind or outside its range. */
void walk_is_not(struct walk *w, const struct node *n, const char *what);

/* Make the path longer. Return: its length before, for walk_pop(). */
size_t walk_push(struct walk *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
void walk_pop(struct walk *w, size_t used);

/* Call the reader of every key of a mapping; keys that are not in the table are faults.
 */
void walk_map(struct walk *w, const struct node *map, const struct schema_key *keys,
	      size_t count, void *data);
/* Call @read for every item of a list. */
void walk_list(struct walk *w, const struct node *list,
	       void (*read)(struct walk *w, const struct node *n, void *data),
	       void *data);

/* A copy that lives as long as the rules; "" when memory is out. */
const char *walk_text(struct walk *w, struct text t);
/* One word of a few. Return: its index, or -1 with a fault. */
int walk_word(struct walk *w, const struct node *n, const char *const *words,
	      size_t count, const char *what);
/* False with a fault for anything but true and false. */
bool walk_bool(struct walk *w, const struct node *n);

/* policy/schema_rule.c: the reader of one rule, for walk_list(). */
void schema_read_rule(struct walk *w, const struct node *n, void *data);

/* The words for enum policy_action. */
extern const char *const schema_actions[2];
