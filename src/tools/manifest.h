// SPDX-License-Identifier: Apache-2.0
/* tools/manifest - one YAML document of Kubernetes as a tree that can be changed.
 *
 * libyaml's document is the tree: nodes are numbers from 1 on, 0 is none. What would make
 * it say something else to Kubernetes than it says here is refused where it is looked at:
 * the same key twice, keys in another case, merge keys, keys that are no text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "base/macros.h"
#include "base/text.h"

struct manifest {
	yaml_document_t *doc; /* borrowed */
	const char *file;     /* for messages */
	const char *what;     /* "Deployment 'x'", for messages */
	unsigned int faults;  /* printed so far */
	unsigned int raw;     /* containers that keep NET_RAW */
	bool out_of_memory;
};

/* The value of "$name" in a template. */
struct manifest_word {
	const char *name;  /* with the dollar */
	const char *value; /* NULL: list items that say it are left out */
};

/* "file:line:column: what: text", at the place of @node, to stderr; counts it. */
void manifest_fault(struct manifest *m, int node, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* NULL: @node is none. */
yaml_node_t *manifest_node(const struct manifest *m, int node);
/* The text of a scalar; empty for everything else. */
struct text manifest_text(const struct manifest *m, int node);
/* Is @n a scalar that says to Kubernetes what it shows? A tag may make something else of
 * its text. */
bool manifest_is_plain(const yaml_node_t *n);
/* Why @key is refused in a mapping that is searched for @wanted; NULL: it isn't. */
const char *manifest_key_trouble(const struct manifest *m, int key, const char *wanted);
/* The value of @key in the mapping @map; 0: there is none, or @map is none. A fault for
 * a @map that is no mapping, and for what is described above. */
int manifest_find(struct manifest *m, int map, const char *key);
/* Neither absent nor one of YAML's words for no. What isn't understood is yes. */
bool manifest_is_yes(const struct manifest *m, int node);
/* The items of a sequence. A fault if @list is something else, but not for none. */
size_t manifest_count(struct manifest *m, int list);
int manifest_item(const struct manifest *m, int list, size_t i);

/* --- changes --- */

/* A copy of @text, a YAML document, with its words replaced. Return: the node, or 0
 * when memory is out. */
int manifest_copy(struct manifest *m, const char *text, const struct manifest_word *words,
		  size_t word_count);
/* Make @node the value of @key in @map, where it isn't yet, before the key @before (or
 * at the end). */
void manifest_put(struct manifest *m, int map, const char *key, int node,
		  const char *before);
/* Put @node first into @list. */
void manifest_put_first(struct manifest *m, int list, int node);
/* Replace item @i by @node. */
void manifest_replace(struct manifest *m, int list, size_t i, int node);
/* Empty plain values become `null`: inside braces the emitter would write text. */
void manifest_spell_nulls(struct manifest *m);
