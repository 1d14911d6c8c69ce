// SPDX-License-Identifier: Apache-2.0
#include "policy/walk.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/faults.h"

void walk_fault(struct walk *w, const struct node *n, enum fault_level level,
		const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	faults_add(w->document->faults, level, w->document->file, n->line, n->column,
		   w->path, "%s", text);
}

void walk_is_not(struct walk *w, const struct node *n, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (n->kind == NODE_LIST || n->kind == NODE_MAP || n->kind == NODE_NULL)
		walk_fault(w, n, FAULT_ERROR, "%s stands here, not %s",
			   node_kind_name(n->kind), what);
	else
		walk_fault(w, n, FAULT_ERROR, "'%s' is not %s",
			   text_escape(n->text, shown, sizeof(shown)), what);
}

size_t walk_push(struct walk *w, const char *fmt, ...)
{
	size_t used = strlen(w->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->path + used, sizeof(w->path) - used, fmt, ap);
	va_end(ap);
	return used;
}

void walk_pop(struct walk *w, size_t used)
{
	w->path[used] = '\0';
}

static void unknown_key(struct walk *w, const struct node *n,
			const struct schema_key *keys, size_t count)
{
	char known[256] = "", shown[TEXT_ESCAPED_SIZE];
	struct node at = *n;

	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(known);

		snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
			 keys[i].name);
	}
	at.line = n->key_line;
	at.column = n->key_column;
	walk_fault(w, &at, FAULT_ERROR,
		   "'%s' is not a key that is known here: there are %s",
		   text_escape(n->key, shown, sizeof(shown)), known);
}

void walk_map(struct walk *w, const struct node *map, const struct schema_key *keys,
	      size_t count, void *data)
{
	if (map->kind != NODE_MAP) {
		walk_is_not(w, map, "a mapping");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		size_t i = 0, used;

		while (i < count && !text_equal(n->key, keys[i].name))
			i++;
		if (i == count) {
			unknown_key(w, n, keys, count);
			continue;
		}
		used = walk_push(w, "%s%s", w->path[0] ? "." : "", keys[i].name);
		keys[i].read(w, n, data);
		walk_pop(w, used);
	}
}

void walk_list(struct walk *w, const struct node *list,
	       void (*read)(struct walk *w, const struct node *n, void *data), void *data)
{
	size_t i = 0;

	if (list->kind != NODE_LIST) {
		walk_is_not(w, list, "a list: write [ ] around it");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next) {
		size_t used = walk_push(w, "[%zu]", i++);

		read(w, n, data);
		walk_pop(w, used);
	}
}

const char *walk_text(struct walk *w, struct text t)
{
	const char *copy = t.len > 0 ? arena_text(w->document->arena, t) : "";

	if (!copy)
		w->out_of_memory = true;
	return copy ? copy : "";
}

int walk_word(struct walk *w, const struct node *n, const char *const *words,
	      size_t count, const char *what)
{
	for (size_t i = 0; n->kind == NODE_TEXT && i < count; i++) {
		if (text_equal(n->text, words[i]))
			return (int)i;
	}
	walk_is_not(w, n, what);
	return -1;
}

bool walk_bool(struct walk *w, const struct node *n)
{
	if (n->kind == NODE_BOOL)
		return text_equal(n->text, "true");
	walk_is_not(w, n, "true or false");
	return false;
}
