// SPDX-License-Identifier: Apache-2.0
/* JSON as a tree.
 *
 * HOW IT WORKS
 * jansson decides what is JSON: stricter than Go's reader in policy/document_scan, it
 * refuses what is no Unicode and a key that comes twice. It doesn't say where a value
 * stood, so the tree is made by a walk over the text that it let pass. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "policy/faults.h"
#include "policy/json_cursor.h"
#include "policy/node.h"

static void clean_json(json_t **j)
{
	json_decref(*j);
}

/* A string, decoded, or another scalar as written. */
static int read_word(const struct node_source *source, struct json_cursor *c,
		     struct text *ret)
{
	struct text t;
	int r = 0;

	if (json_cursor_peek(c) == JSON_KIND_STRING)
		r = json_cursor_string(c, source->arena, &t);
	else
		t = json_cursor_skip(c);
	if (r < 0)
		return r;
	ret->ptr = arena_text(source->arena, t);
	ret->len = t.len;
	return ret->ptr ? 0 : -ENOMEM;
}

static bool is_real(struct text t)
{
	return memchr(t.ptr, '.', t.len) || memchr(t.ptr, 'e', t.len) ||
	       memchr(t.ptr, 'E', t.len);
}

static int read_scalar(const struct node_source *source, struct json_cursor *c,
		       struct node *n)
{
	int r = read_word(source, c, &n->text);

	if (r < 0)
		return r;
	if (n->kind == NODE_TEXT)
		node_check_scalar(source, n->text, n->line, n->column);
	else if (n->kind == NODE_NUMBER && is_real(n->text))
		n->kind = NODE_REAL;
	return 0;
}

static int read_value(const struct node_source *source, struct json_cursor *c, int depth,
		      struct node **ret);

/* What a list or a map has. */
static int read_items(const struct node_source *source, struct json_cursor *c, int depth,
		      struct node *n)
{
	json_cursor_enter(c);
	while (json_cursor_next(c)) {
		const uint32_t line = c->line, column = c->column;
		struct text key = { 0 };
		struct node *item;
		int r = n->kind == NODE_MAP ? read_word(source, c, &key) : 0;

		if (r == 0)
			r = read_value(source, c, depth, &item);
		if (r < 0)
			return r;
		if (n->kind == NODE_MAP) {
			item->key = key;
			item->key_line = line;
			item->key_column = column;
		}
		node_append(source, n, item);
	}
	return 0;
}

static int read_value(const struct node_source *source, struct json_cursor *c, int depth,
		      struct node **ret)
{
	static const enum node_kind kinds[] = {
		[JSON_KIND_NULL] = NODE_NULL,	  [JSON_KIND_BOOL] = NODE_BOOL,
		[JSON_KIND_NUMBER] = NODE_NUMBER, [JSON_KIND_STRING] = NODE_TEXT,
		[JSON_KIND_ARRAY] = NODE_LIST,	  [JSON_KIND_OBJECT] = NODE_MAP,
	};
	enum json_kind kind = json_cursor_peek(c);
	struct node *n = node_new(source, kinds[kind], c->line, c->column);

	if (!n)
		return -ENOMEM;
	*ret = n;
	if (depth == NODE_DEPTH_MAX) {
		faults_add(source->faults, FAULT_ERROR, source->file, c->line, c->column,
			   "", "the document is nested too deeply");
		return -EINVAL;
	}
	if (n->kind == NODE_LIST || n->kind == NODE_MAP)
		return read_items(source, c, depth + 1, n);
	return read_scalar(source, c, n);
}

int node_read_json(const struct node_source *source, struct node **ret)
{
	struct json_cursor c = { source->text.ptr, source->text.ptr + source->text.len, 1,
				 1 };
	size_t errors = source->faults->errors;
	char shown[TEXT_ESCAPED_SIZE];
	CLEAN(json) json_t *root = NULL;
	json_error_t error;
	int r;

	if (text_trim(source->text).len == 0) {
		*ret = NULL;
		return 0;
	}
	root = json_loadb(source->text.ptr, source->text.len,
			  JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!root) {
		if (json_error_code(&error) == json_error_out_of_memory)
			return -ENOMEM;
		faults_add(source->faults, FAULT_ERROR, source->file,
			   (uint32_t)MAX(error.line, 1), (uint32_t)MAX(error.column, 1),
			   "", "this is not JSON: %s",
			   text_escape(text_of(error.text), shown, sizeof(shown)));
		return -EINVAL;
	}
	r = read_value(source, &c, 0, ret);
	if (r < 0)
		return r;
	if (json_is_null(root))
		*ret = NULL;
	return source->faults->errors > errors ? -EINVAL : 0;
}
