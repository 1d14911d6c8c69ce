// SPDX-License-Identifier: Apache-2.0
/* JSON as a tree.
 *
 * HOW IT WORKS
 * jansson decides what is JSON and decodes it. It doesn't say where a value stood, so
 * afterwards a small scanner walks the text in step with jansson's values: the text is
 * known to be valid, objects keep the order of their keys, and no key comes twice. The
 * scanner only finds where the next token starts and ends. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "policy/faults.h"
#include "policy/node.h"

struct scanner {
	const struct node_source *source;
	const char *p, *end;
	uint32_t line, column; /* of @p, from 1, in characters */
};

static void clean_json(json_t **j)
{
	json_decref(*j);
}

static void step(struct scanner *s)
{
	if (*s->p == '\n') {
		s->line++;
		s->column = 1;
	} else if ((*s->p & 0xc0) != 0x80) {
		s->column++;
	}
	s->p++;
}

/* To the next byte that is neither blank nor a separator. */
static void skip_between(struct scanner *s)
{
	while (s->p < s->end && strchr(" \t\r\n,:", *s->p))
		step(s);
}

static void skip_string(struct scanner *s)
{
	step(s);
	while (s->p < s->end && *s->p != '"') {
		if (*s->p == '\\')
			step(s);
		if (s->p < s->end)
			step(s);
	}
	if (s->p < s->end)
		step(s);
}

/* A number or a word. */
static struct text skip_word(struct scanner *s)
{
	const char *start = s->p;

	while (s->p < s->end && !strchr(" \t\r\n,:]}", *s->p))
		step(s);
	return (struct text){ start, (size_t)(s->p - start) };
}

static int scan_value(struct scanner *s, json_t *value, int depth, struct node **ret);

static int copy_text(struct scanner *s, const char *ptr, size_t len, struct text *ret)
{
	char *copy = arena_text(s->source->arena, (struct text){ ptr, len });

	if (!copy)
		return -ENOMEM;
	*ret = (struct text){ copy, len };
	return 0;
}

static int scan_list(struct scanner *s, json_t *list, int depth, struct node *n)
{
	step(s); /* '[' */
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct node *item;
		int r = scan_value(s, json_array_get(list, i), depth, &item);

		if (r < 0)
			return r;
		node_append(s->source, n, item);
	}
	skip_between(s);
	if (s->p < s->end)
		step(s); /* ']' */
	return 0;
}

static int scan_map(struct scanner *s, json_t *map, int depth, struct node *n)
{
	step(s); /* '{' */
	for (void *i = json_object_iter(map); i; i = json_object_iter_next(map, i)) {
		const char *key = json_object_iter_key(i);
		uint32_t line, column;
		struct node *value;
		int r;

		skip_between(s);
		line = s->line;
		column = s->column;
		skip_string(s);
		r = scan_value(s, json_object_iter_value(i), depth, &value);
		if (r == 0)
			r = copy_text(s, key, strlen(key), &value->key);
		if (r < 0)
			return r;
		value->key_line = line;
		value->key_column = column;
		node_append(s->source, n, value);
	}
	skip_between(s);
	if (s->p < s->end)
		step(s); /* '}' */
	return 0;
}

static int scan_scalar(struct scanner *s, json_t *value, struct node *n)
{
	if (json_is_string(value)) {
		int r = copy_text(s, json_string_value(value), json_string_length(value),
				  &n->text);

		if (r < 0)
			return r;
		n->kind = NODE_TEXT;
		skip_string(s);
		node_check_scalar(s->source, n->text, n->line, n->column);
		return 0;
	}
	if (json_is_integer(value))
		n->kind = NODE_NUMBER;
	else if (json_is_real(value))
		n->kind = NODE_REAL;
	else
		n->kind = json_is_null(value) ? NODE_NULL : NODE_BOOL;
	n->text = skip_word(s);
	return copy_text(s, n->text.ptr, n->text.len, &n->text);
}

static int scan_value(struct scanner *s, json_t *value, int depth, struct node **ret)
{
	struct node *n;

	skip_between(s);
	if (s->p >= s->end)
		return -EINVAL;
	n = node_new(s->source, NODE_NULL, s->line, s->column);
	if (!n)
		return -ENOMEM;
	*ret = n;
	if (depth == NODE_DEPTH_MAX) {
		faults_add(s->source->faults, FAULT_ERROR, s->source->file, s->line,
			   s->column, "", "the document is nested too deeply");
		return -EINVAL;
	}
	if (json_is_array(value)) {
		n->kind = NODE_LIST;
		return scan_list(s, value, depth + 1, n);
	}
	if (json_is_object(value)) {
		n->kind = NODE_MAP;
		return scan_map(s, value, depth + 1, n);
	}
	return scan_scalar(s, value, n);
}

int node_read_json(const struct node_source *source, struct node **ret)
{
	struct scanner s = { .source = source,
			     .p = source->text.ptr,
			     .end = source->text.ptr + source->text.len,
			     .line = 1,
			     .column = 1 };
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
	r = scan_value(&s, root, 0, ret);
	if (r < 0)
		return r;
	if (json_is_null(root))
		*ret = NULL;
	return source->faults->errors > errors ? -EINVAL : 0;
}
