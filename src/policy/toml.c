// SPDX-License-Identifier: Apache-2.0
/* TOML 1.0 as a tree, for settings of other programs.
 *
 * All of the language is read but for dates with a space in them, and quotes just before
 * the end of a """block"""; these are faults like whatever else isn't understood. Dates
 * and numbers other than decimal ones are kept as written. A table that is opened a
 * second time goes on, which TOML forbids; a key that comes twice is a fault. */
#include <errno.h>
#include <string.h>

#include "policy/node.h"

struct toml {
	const struct node_source *source;
	const char *p, *end;
	const char *line_start;
	uint32_t line;
};

static uint32_t column_of(const struct toml *t)
{
	return (uint32_t)(t->p - t->line_start) + 1;
}

static int toml_fault(struct toml *t, const char *what)
{
	faults_add(t->source->faults, FAULT_ERROR, t->source->file, t->line, column_of(t),
		   "", "this is not TOML: %s", what);
	return -EINVAL;
}

static struct node *new_node(struct toml *t, enum node_kind kind)
{
	return node_new(t->source, kind, t->line, column_of(t));
}

static bool is_here(const struct toml *t, const char *text)
{
	return (size_t)(t->end - t->p) >= strlen(text) &&
	       memcmp(t->p, text, strlen(text)) == 0;
}

static void next_byte(struct toml *t)
{
	if (*t->p++ == '\n') {
		t->line++;
		t->line_start = t->p;
	}
}

static void skip_space(struct toml *t)
{
	while (t->p < t->end && (*t->p == ' ' || *t->p == '\t'))
		t->p++;
}

/* Spaces, line ends and comments. */
static void skip_blank(struct toml *t)
{
	while (t->p < t->end && strchr(" \t\r\n#", *t->p)) {
		if (*t->p == '#')
			while (t->p < t->end && *t->p != '\n')
				t->p++;
		else
			next_byte(t);
	}
}

/* --- strings --- */

/* Behind a backslash. */
static int toml_escape(struct toml *t, bool block, char *out, size_t *used)
{
	static const char letters[] = "btnfr\"\\", meant[] = "\b\t\n\f\r\"\\";
	const char c = t->p < t->end ? *t->p : '\0';
	const char *letter = c ? strchr(letters, c) : NULL;
	size_t digits = c == 'u' ? 4 : 8;
	uint32_t code = 0;

	if (letter) {
		t->p++;
		out[(*used)++] = meant[letter - letters];
		return 0;
	}
	if (c == 'u' || c == 'U') {
		for (t->p++; digits > 0; digits--, t->p++) {
			const int digit = t->p < t->end ? text_hex_value(*t->p) : -1;

			if (digit < 0)
				return toml_fault(t,
						  "an escape needs hexadecimal digits");
			code = code << 4 | (uint32_t)digit;
		}
		if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
			return toml_fault(t, "an escape is no character");
		*used += text_put_utf8(code, out + *used);
		return 0;
	}
	if (block && c && strchr(" \t\r\n", c)) {
		while (t->p < t->end && strchr(" \t\r\n", *t->p))
			next_byte(t);
		return 0;
	}
	return toml_fault(t, "this escape is none");
}

static int toml_string(struct toml *t, struct text *ret)
{
	static const char *const closes[] = { "\"\"\"", "'''", "\"", "'" };
	const char *close = closes[3];
	struct toml end;
	size_t used = 0;
	char *out;
	bool block;

	for (size_t i = ARRAY_SIZE(closes); i-- > 0;)
		if (is_here(t, closes[i]))
			close = closes[i];
	block = close[1] != '\0';
	t->p += strlen(close);
	if (block && is_here(t, "\r\n"))
		t->p++;
	if (block && is_here(t, "\n"))
		next_byte(t);
	/* As many bytes as the string can have. */
	for (end = *t; end.p < end.end && !is_here(&end, close);)
		end.p += *end.p == '\\' && *close == '"' && end.p + 1 < end.end ? 2 : 1;
	out = arena_alloc(t->source->arena, (size_t)(end.p - t->p) + 1);
	if (!out)
		return -ENOMEM;
	while (!is_here(t, close)) {
		int r = 0;

		if (t->p == t->end || (!block && *t->p == '\n'))
			return toml_fault(t, "a string has no end");
		if (*t->p == '\\' && *close == '"') {
			t->p++;
			r = toml_escape(t, block, out, &used);
		} else {
			out[used++] = *t->p;
			next_byte(t);
		}
		if (r < 0)
			return r;
	}
	t->p += strlen(close);
	*ret = (struct text){ out, used };
	return 0;
}

/* --- keys --- */

static bool is_bare(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static void append_keyed(struct toml *t, struct node *map, struct text key,
			 struct node *value, uint32_t line, uint32_t column)
{
	value->key = key;
	value->key_line = line;
	value->key_column = column;
	node_append(t->source, map, value);
}

/* The table @key of @map, of an array of tables the last one; a new one when there is
 * none. */
static int table_below(struct toml *t, struct node *map, struct text key,
		       struct node **ret)
{
	struct node *n;

	/* The fault is found when the mapping is read; more keys would only cost time. */
	if (map->count > NODE_FOREIGN_KEYS_MAX)
		return toml_fault(t, "too many keys");
	n = node_find(map, key);
	if (!n) {
		n = new_node(t, NODE_MAP);
		if (!n)
			return -ENOMEM;
		append_keyed(t, map, key, n, t->line, column_of(t));
	}
	if (n->kind == NODE_LIST && n->last)
		n = n->last;
	if (n->kind != NODE_MAP)
		return toml_fault(t, "a key below one that is no table");
	*ret = n;
	return 0;
}

/* "a.b.c": the table that has the last one, and the last one. */
static int read_path(struct toml *t, struct node *map, struct node **ret_map,
		     struct text *ret_key)
{
	for (int depth = 0; depth < NODE_DEPTH_MAX; depth++) {
		const char *start;
		int r = 0;

		skip_space(t);
		start = t->p;
		while (t->p < t->end && is_bare(*t->p))
			t->p++;
		*ret_key = (struct text){ start, (size_t)(t->p - start) };
		if (ret_key->len == 0 && (is_here(t, "\"") || is_here(t, "'")))
			r = toml_string(t, ret_key);
		else if (ret_key->len == 0)
			r = toml_fault(t, "a key is missing");
		skip_space(t);
		if (r < 0)
			return r;
		if (!is_here(t, ".")) {
			*ret_map = map;
			return 0;
		}
		t->p++;
		r = table_below(t, map, *ret_key, &map);
		if (r < 0)
			return r;
	}
	return toml_fault(t, "it is nested too deeply");
}

/* --- values --- */

static int read_toml_value(struct toml *t, int depth, struct node **ret);

static int read_pair(struct toml *t, int depth, struct node *map)
{
	const uint32_t line = t->line, column = column_of(t);
	struct node *value;
	struct text key;
	int r = read_path(t, map, &map, &key);

	if (r < 0)
		return r;
	if (!is_here(t, "="))
		return toml_fault(t, "a key needs '=' and a value");
	t->p++;
	skip_space(t);
	r = read_toml_value(t, depth + 1, &value);
	if (r == 0)
		append_keyed(t, map, key, value, line, column);
	return r;
}

/* The items of an array, or the pairs of an inline table, to its end. */
static int read_items(struct toml *t, int depth, struct node *n)
{
	const bool is_array = n->kind == NODE_LIST;
	void (*const skip)(struct toml *) = is_array ? skip_blank : skip_space;
	const char *close = is_array ? "]" : "}";

	for (t->p++;; t->p++) {
		struct node *item = NULL;
		int r;

		skip(t);
		if (is_here(t, close) && (is_array || !n->first))
			break;
		r = is_array ? read_toml_value(t, depth + 1, &item)
			     : read_pair(t, depth, n);
		if (r < 0)
			return r;
		if (is_array)
			node_append(t->source, n, item);
		skip(t);
		if (is_here(t, close))
			break;
		if (!is_here(t, ","))
			return toml_fault(t, is_array ? "an array needs ',' or ']' here"
						      : "a table needs ',' or '}' here");
	}
	t->p++;
	return 0;
}

/* true, 5, 1.5, 2026-11-20T10:06:43Z */
static int read_word_value(struct toml *t, struct node *n)
{
	const char *start = t->p;
	size_t digits = 0;

	for (; t->p < t->end && (is_bare(*t->p) || strchr("+.:", *t->p)); t->p++)
		digits += text_is_digit(*t->p);
	n->text = (struct text){ start, (size_t)(t->p - start) };
	if (text_equal(n->text, "true") || text_equal(n->text, "false"))
		n->kind = NODE_BOOL;
	else if (digits > 0 && digits == n->text.len)
		n->kind = NODE_NUMBER;
	else if ((n->text.len > 0 && strchr("+-0123456789", start[0])) ||
		 text_equal(n->text, "inf") || text_equal(n->text, "nan"))
		n->kind = NODE_REAL;
	else
		return toml_fault(t, "a value is missing, or is no value");
	return 0;
}

static int read_toml_value(struct toml *t, int depth, struct node **ret)
{
	struct node *n = new_node(t, NODE_TEXT);
	int r;

	if (!n)
		return -ENOMEM;
	if (depth >= NODE_DEPTH_MAX)
		return toml_fault(t, "it is nested too deeply");
	*ret = n;
	if (is_here(t, "[") || is_here(t, "{")) {
		n->kind = is_here(t, "[") ? NODE_LIST : NODE_MAP;
		return read_items(t, depth, n);
	}
	if (!is_here(t, "\"") && !is_here(t, "'"))
		return read_word_value(t, n);
	r = toml_string(t, &n->text);
	if (r == 0)
		node_check_scalar(t->source, n->text, n->line, n->column);
	return r;
}

/* --- the document --- */

/* "[a.b]", or "[[a.b]]": one more table of an array. */
static int read_header(struct toml *t, struct node *root, struct node **ret)
{
	const bool is_array = is_here(t, "[[");
	struct node *map, *list, *item;
	struct text key;
	int r;

	t->p += is_array ? 2 : 1;
	r = read_path(t, root, &map, &key);
	if (r < 0)
		return r;
	if (!is_here(t, is_array ? "]]" : "]"))
		return toml_fault(t, "a table's name needs its ']'");
	if (!is_array) {
		r = table_below(t, map, key, ret);
		t->p++;
		return r;
	}
	list = node_find(map, key);
	item = new_node(t, NODE_MAP);
	if (!list) {
		list = new_node(t, NODE_LIST);
		if (list)
			append_keyed(t, map, key, list, t->line, column_of(t));
	}
	if (!list || !item)
		return -ENOMEM;
	if (list->kind != NODE_LIST)
		return toml_fault(t, "this is no array of tables");
	node_append(t->source, list, item);
	t->p += 2;
	*ret = item;
	return 0;
}

int node_read_toml(const struct node_source *s, struct node **ret)
{
	struct toml t = { .source = s,
			  .p = s->text.ptr,
			  .end = s->text.ptr + s->text.len,
			  .line_start = s->text.ptr,
			  .line = 1 };
	const size_t errors = s->faults->errors;
	struct node *root = new_node(&t, NODE_MAP), *table = root;

	if (!root)
		return -ENOMEM;
	for (skip_blank(&t); t.p < t.end; skip_blank(&t)) {
		int r = is_here(&t, "[") ? read_header(&t, root, &table)
					 : read_pair(&t, 0, table);

		if (r < 0)
			return r;
		skip_space(&t);
		if (t.p < t.end && !strchr("\r\n#", *t.p))
			return toml_fault(&t, "a line ends too late");
	}
	*ret = root->first ? root : NULL;
	return s->faults->errors > errors ? -EINVAL : 0;
}
