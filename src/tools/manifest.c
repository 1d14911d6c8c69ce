// SPDX-License-Identifier: Apache-2.0
#include "tools/manifest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/log.h"

void manifest_fault(struct manifest *m, int node, const char *fmt, ...)
{
	yaml_node_t *n = yaml_document_get_node(m->doc, node);
	char text[ERR_TEXT_SIZE];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_error("%s:%zu:%zu: %s: %s", m->file, n ? n->start_mark.line + 1 : 0,
		  n ? n->start_mark.column + 1 : 0, m->what, text);
	m->faults++;
}

yaml_node_t *manifest_node(const struct manifest *m, int node)
{
	return node ? yaml_document_get_node(m->doc, node) : NULL;
}

struct text manifest_text(const struct manifest *m, int node)
{
	const yaml_node_t *n = manifest_node(m, node);

	if (!n || n->type != YAML_SCALAR_NODE)
		return (struct text){ "", 0 };
	return (struct text){ (const char *)n->data.scalar.value, n->data.scalar.length };
}

bool manifest_is_plain(const yaml_node_t *n)
{
	return n->type == YAML_SCALAR_NODE &&
	       strcmp((const char *)n->tag, YAML_STR_TAG) == 0;
}

const char *manifest_key_trouble(const struct manifest *m, int key, const char *wanted)
{
	const yaml_node_t *n = manifest_node(m, key);
	struct text t = manifest_text(m, key);

	if (!n || !manifest_is_plain(n))
		return "a key that is not plain text: write it out";
	if (text_equal(t, "<<"))
		return "a merge key hides what is in force: write it out";
	if (text_equal_nocase(t, wanted) && !text_equal(t, wanted))
		return "a key in an unusual case";
	return NULL;
}

int manifest_find(struct manifest *m, int map, const char *key)
{
	const yaml_node_t *n = manifest_node(m, map);
	int found = 0;

	if (!n)
		return 0;
	if (n->type != YAML_MAPPING_NODE) {
		if (n->type != YAML_SCALAR_NODE || n->data.scalar.length > 0)
			manifest_fault(m, map, "not a mapping, where '%s' is looked for",
				       key);
		return 0;
	}
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
	     p < n->data.mapping.pairs.top; p++) {
		const char *trouble = manifest_key_trouble(m, p->key, key);

		if (trouble)
			manifest_fault(m, p->key, "%s", trouble);
		if (trouble || !text_equal(manifest_text(m, p->key), key))
			continue;
		if (found)
			manifest_fault(m, p->key, "'%s' for the second time", key);
		found = p->value;
	}
	return found;
}

bool manifest_is_yes(const struct manifest *m, int node)
{
	static const char *const words[] = { "", "false", "no", "off", "n", "null", "~" };
	const yaml_node_t *n = manifest_node(m, node);

	if (!n)
		return false;
	if (n->type != YAML_SCALAR_NODE ||
	    n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (text_equal_nocase(manifest_text(m, node), words[i]))
			return false;
	return true;
}

size_t manifest_count(struct manifest *m, int list)
{
	const yaml_node_t *n = manifest_node(m, list);

	if (!n || (n->type == YAML_SCALAR_NODE && !manifest_is_yes(m, list)))
		return 0;
	if (n->type != YAML_SEQUENCE_NODE) {
		manifest_fault(m, list, "not a list");
		return 0;
	}
	return (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
}

int manifest_item(const struct manifest *m, int list, size_t i)
{
	return manifest_node(m, list)->data.sequence.items.start[i];
}

/* --- templates --- */

struct copy {
	struct manifest *m;
	yaml_document_t from;
	const struct manifest_word *words;
	size_t word_count;
};

static const struct manifest_word *word_of(const struct copy *c, const yaml_node_t *n)
{
	return text_find(text_of((const char *)n->data.scalar.value), c->words,
			 c->word_count, sizeof(*c->words));
}

/* @node says a word that has no value. Templates are ours, and no deeper than a few. */
static bool is_left_out(struct copy *c, int node)
{
	const yaml_node_t *n = yaml_document_get_node(&c->from, node);

	if (n->type == YAML_SCALAR_NODE) {
		const struct manifest_word *w = word_of(c, n);

		return w && !w->value;
	}
	if (n->type == YAML_MAPPING_NODE)
		for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
		     p < n->data.mapping.pairs.top; p++)
			if (is_left_out(c, p->value))
				return true;
	return false;
}

/* Return: the copy; 0: without memory. */
static int copy_node(struct copy *c, int node)
{
	const yaml_node_t *n = yaml_document_get_node(&c->from, node);
	const struct manifest_word *w = n->type == YAML_SCALAR_NODE ? word_of(c, n)
								    : NULL;
	yaml_document_t *to = c->m->doc;
	const char *value;
	int copy;

	if (n->type == YAML_SCALAR_NODE) {
		value = w ? w->value : (const char *)n->data.scalar.value;
		return yaml_document_add_scalar(
			to, NULL, (const yaml_char_t *)value, (int)strlen(value),
			w ? YAML_DOUBLE_QUOTED_SCALAR_STYLE : n->data.scalar.style);
	}
	if (n->type == YAML_SEQUENCE_NODE) {
		copy = yaml_document_add_sequence(to, NULL, n->data.sequence.style);
		for (const yaml_node_item_t *i = n->data.sequence.items.start;
		     copy && i < n->data.sequence.items.top; i++) {
			int item = is_left_out(c, *i) ? -1 : copy_node(c, *i);

			if (item == 0 || (item > 0 && !yaml_document_append_sequence_item(
							      to, copy, item)))
				return 0;
		}
		return copy;
	}
	copy = yaml_document_add_mapping(to, NULL, n->data.mapping.style);
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
	     copy && p < n->data.mapping.pairs.top; p++) {
		int key = copy_node(c, p->key);
		int item = copy_node(c, p->value);

		if (!key || !item ||
		    !yaml_document_append_mapping_pair(to, copy, key, item))
			return 0;
	}
	return copy;
}

int manifest_copy(struct manifest *m, const char *text, const struct manifest_word *words,
		  size_t word_count)
{
	struct copy c = { .m = m, .words = words, .word_count = word_count };
	yaml_parser_t parser;
	int copied = 0;

	if (yaml_parser_initialize(&parser)) {
		yaml_parser_set_input_string(&parser, (const unsigned char *)text,
					     strlen(text));
		if (yaml_parser_load(&parser, &c.from)) {
			copied = copy_node(&c, 1);
			yaml_document_delete(&c.from);
		}
		yaml_parser_delete(&parser);
	}
	m->out_of_memory |= copied == 0;
	return copied;
}

/* --- changes --- */

void manifest_put(struct manifest *m, int map, const char *key, int node,
		  const char *before)
{
	int name = yaml_document_add_scalar(m->doc, NULL, (const yaml_char_t *)key, -1,
					    YAML_PLAIN_SCALAR_STYLE);
	yaml_node_pair_t *p, *last;
	yaml_node_t *n;

	if (!name || !yaml_document_append_mapping_pair(m->doc, map, name, node)) {
		m->out_of_memory = true;
		return;
	}
	n = manifest_node(m, map);
	last = n->data.mapping.pairs.top - 1;
	for (p = n->data.mapping.pairs.start; p < last; p++)
		if (text_equal(manifest_text(m, p->key), before)) {
			const yaml_node_pair_t put = *last;

			memmove(p + 1, p, (size_t)(last - p) * sizeof(*p));
			*p = put;
			return;
		}
}

void manifest_put_first(struct manifest *m, int list, int node)
{
	yaml_node_item_t *start;
	yaml_node_t *n;

	if (!yaml_document_append_sequence_item(m->doc, list, node)) {
		m->out_of_memory = true;
		return;
	}
	n = manifest_node(m, list);
	start = n->data.sequence.items.start;
	memmove(start + 1, start,
		(size_t)(n->data.sequence.items.top - 1 - start) * sizeof(*start));
	*start = node;
	/* `[]` was written in one line; what is in it now is not. */
	n->data.sequence.style = YAML_BLOCK_SEQUENCE_STYLE;
}

void manifest_replace(struct manifest *m, int list, size_t i, int node)
{
	manifest_node(m, list)->data.sequence.items.start[i] = node;
}

void manifest_spell_nulls(struct manifest *m)
{
	static const char word[] = "null";

	for (yaml_node_t *n = m->doc->nodes.start; n < m->doc->nodes.top; n++) {
		char *value;

		if (n->type != YAML_SCALAR_NODE || n->data.scalar.length > 0 ||
		    n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE ||
		    strcmp((const char *)n->tag, YAML_STR_TAG) != 0)
			continue;
		/* Freed by libyaml, as it frees its own. */
		value = malloc(sizeof(word));
		if (!value) {
			m->out_of_memory = true;
			return;
		}
		memcpy(value, word, sizeof(word));
		free(n->data.scalar.value);
		n->data.scalar.value = (yaml_char_t *)value;
		n->data.scalar.length = sizeof(word) - 1;
	}
}
