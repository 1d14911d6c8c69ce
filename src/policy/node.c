// SPDX-License-Identifier: Apache-2.0
#include "policy/node.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "policy/faults.h"
#include "policy/json_cursor.h"

/* Why a policy can't have this character, or NULL. */
static const char *char_fault(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return "a control character";
	if (c == 0x2028 || c == 0x2029)
		return "a line separator";
	if ((c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x2069) || c == 0xfeff)
		return "an invisible character";
	return NULL;
}

bool node_check_text(const struct node_source *s)
{
	const unsigned char *p = (const unsigned char *)s->text.ptr;
	uint32_t line = 1, column = 1;
	bool good = true;

	for (size_t i = 0; i < s->text.len;) {
		uint32_t c = 0;
		size_t size =
			text_utf8((struct text){ s->text.ptr + i, s->text.len - i }, &c);
		const char *why = size == 0 ? "not UTF-8" : char_fault(c);

		if (size != 0 && (c == '\n' || c == '\r' || c == '\t'))
			why = NULL;
		if (why) {
			faults_add(s->faults, FAULT_ERROR, s->file, line, column, "",
				   "byte 0x%02x is %s, which a policy can't hold", p[i],
				   why);
			good = false;
		}
		i += MAX(size, (size_t)1);
		column = c == '\n' ? 1 : column + 1;
		line += c == '\n';
	}
	return good;
}

void node_check_scalar(const struct node_source *s, struct text t, uint32_t line,
		       uint32_t column)
{
	for (size_t i = 0; i < t.len;) {
		uint32_t c = 0;
		size_t size = text_utf8((struct text){ t.ptr + i, t.len - i }, &c);

		if (s->foreign && (c == '\n' || c == '\t')) {
			i++;
			continue;
		}
		if (size == 0 || char_fault(c)) {
			faults_add(s->faults, FAULT_ERROR, s->file, line, column, "",
				   "'%s' is not plain text: it holds %s", TEXT_SHOWN(t),
				   size == 0 ? "bytes that are not UTF-8"
					     : char_fault(c));
			return;
		}
		i += size;
	}
}

struct node *node_new(const struct node_source *s, enum node_kind kind, uint32_t line,
		      uint32_t column)
{
	struct node *n = arena_alloc(s->arena, sizeof(*n));

	if (n) {
		n->kind = kind;
		n->line = line;
		n->column = column;
	}
	return n;
}

struct node *node_find(const struct node *map, struct text key)
{
	for (struct node *n = map->kind == NODE_MAP ? map->first : NULL; n; n = n->next)
		if (n->key.len == key.len && memcmp(n->key.ptr, key.ptr, key.len) == 0)
			return n;
	return NULL;
}

static void check_key(const struct node_source *s, const struct node *parent,
		      const struct node *child)
{
	const size_t most = s->foreign ? NODE_FOREIGN_KEYS_MAX : NODE_KEYS_MAX;
	struct node_source strict = *s;

	strict.foreign = false;
	node_check_scalar(&strict, child->key, child->key_line, child->key_column);
	if (parent->count == most) {
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, "", "a mapping has more than %zu keys",
			   most);
	} else if (parent->count < most && node_find(parent, child->key)) {
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, "",
			   "'%s' is not the first of its name: a key can stand once",
			   TEXT_SHOWN(child->key));
	}
}

void node_append(const struct node_source *s, struct node *parent, struct node *child)
{
	if (parent->kind == NODE_MAP)
		check_key(s, parent, child);
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
	parent->count++;
}

const char *node_kind_name(enum node_kind kind)
{
	static const char *const names[] = {
		[NODE_NULL] = "nothing",    [NODE_BOOL] = "true or false",
		[NODE_NUMBER] = "a number", [NODE_REAL] = "a number with a fraction",
		[NODE_TEXT] = "text",	    [NODE_LIST] = "a list",
		[NODE_MAP] = "a mapping",
	};

	return names[kind];
}

/* -- YAML --------------------------------------------------------------------------- */

/* YAML as a tree, by libyaml's events. What makes a document say something else than
 * it seems to is refused: anchors, aliases, tags, directives, a second document. */

struct yaml_reader {
	const struct node_source *source;
	yaml_parser_t parser;
	yaml_event_t event; /* the current one */
	bool has_event;
};

static void clean_yaml_reader(struct yaml_reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	yaml_parser_delete(&r->parser);
}

static uint32_t mark_line(const yaml_mark_t *m)
{
	return (uint32_t)m->line + 1;
}

static uint32_t mark_column(const yaml_mark_t *m)
{
	return (uint32_t)m->column + 1;
}

static void fault_at(struct yaml_reader *r, const yaml_mark_t *m, const char *what)
{
	faults_add(r->source->faults, FAULT_ERROR, r->source->file, mark_line(m),
		   mark_column(m), "", "%s", what);
}

/* The parser's own words, with the place that it names. */
static int syntax_fault(struct yaml_reader *r)
{
	const yaml_parser_t *p = &r->parser;
	char what[ERR_TEXT_SIZE];

	if (p->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	snprintf(what, sizeof(what), "this is not YAML: %s",
		 p->problem ? p->problem : "it can't be read");
	fault_at(r, &p->problem_mark, what);
	return -EINVAL;
}

static int event_next(struct yaml_reader *r)
{
	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
	return r->has_event ? 0 : syntax_fault(r);
}

static bool is_digits(struct text t)
{
	size_t i = t.len > 0 && t.ptr[0] == '-' ? 1 : 0;

	if (i == t.len)
		return false;
	for (; i < t.len; i++) {
		if (t.ptr[i] < '0' || t.ptr[i] > '9')
			return false;
	}
	return true;
}

/* What an unquoted scalar is, by the core schema of YAML 1.2 as far as policies need
 * it: `no` and `0x10` are text. */
static enum node_kind plain_kind(struct text t)
{
	if (t.len == 0 || text_equal(t, "~") || text_equal(t, "null"))
		return NODE_NULL;
	if (text_equal(t, "true") || text_equal(t, "false"))
		return NODE_BOOL;
	return is_digits(t) ? NODE_NUMBER : NODE_TEXT;
}

static int scalar_read(struct yaml_reader *r, struct node *n)
{
	const yaml_event_t *e = &r->event;
	struct text t = { (const char *)e->data.scalar.value, e->data.scalar.length };
	bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	char *copy = arena_text(r->source->arena, t);

	if (!copy)
		return -ENOMEM;
	if (e->data.scalar.anchor)
		fault_at(r, &e->start_mark, "anchors (&name) can't be used in a policy");
	if (e->data.scalar.tag)
		fault_at(r, &e->start_mark, "tags (!name) can't be used in a policy");
	n->text = (struct text){ copy, t.len };
	n->kind = plain ? plain_kind(n->text) : NODE_TEXT;
	node_check_scalar(r->source, n->text, n->line, n->column);
	return 0;
}

static int node_read(struct yaml_reader *r, int depth, struct node **ret);

static int list_read(struct yaml_reader *r, int depth, struct node *list)
{
	for (;;) {
		struct node *item;
		int e = event_next(r);

		if (e < 0 || r->event.type == YAML_SEQUENCE_END_EVENT)
			return e;
		e = node_read(r, depth, &item);
		if (e < 0)
			return e;
		node_append(r->source, list, item);
	}
}

static int map_read(struct yaml_reader *r, int depth, struct node *map)
{
	for (;;) {
		struct node *key, *value;
		int e = event_next(r);

		if (e < 0 || r->event.type == YAML_MAPPING_END_EVENT)
			return e;
		if (r->event.type != YAML_SCALAR_EVENT) {
			fault_at(r, &r->event.start_mark,
				 "a key is a word, nothing else");
			return -EINVAL;
		}
		e = node_read(r, depth, &key);
		if (e == 0)
			e = event_next(r);
		if (e == 0)
			e = node_read(r, depth, &value);
		if (e < 0)
			return e;
		value->key = key->text;
		value->key_line = key->line;
		value->key_column = key->column;
		node_append(r->source, map, value);
	}
}

static void check_collection(struct yaml_reader *r)
{
	const yaml_event_t *e = &r->event;
	bool list = e->type == YAML_SEQUENCE_START_EVENT;

	if (list ? !!e->data.sequence_start.anchor : !!e->data.mapping_start.anchor)
		fault_at(r, &e->start_mark, "anchors (&name) can't be used in a policy");
	if (list ? !!e->data.sequence_start.tag : !!e->data.mapping_start.tag)
		fault_at(r, &e->start_mark, "tags (!name) can't be used in a policy");
}

/* The value that the current event starts; the event is its last one afterwards. */
static int node_read(struct yaml_reader *r, int depth, struct node **ret)
{
	const yaml_mark_t *m = &r->event.start_mark;
	struct node *n = node_new(r->source, NODE_NULL, mark_line(m), mark_column(m));

	if (!n)
		return -ENOMEM;
	*ret = n;
	if (depth == NODE_DEPTH_MAX) {
		fault_at(r, m, "the document is nested too deeply");
		return -EINVAL;
	}
	switch (r->event.type) {
	case YAML_SCALAR_EVENT:
		return scalar_read(r, n);
	case YAML_SEQUENCE_START_EVENT:
		check_collection(r);
		n->kind = NODE_LIST;
		return list_read(r, depth + 1, n);
	case YAML_MAPPING_START_EVENT:
		check_collection(r);
		n->kind = NODE_MAP;
		return map_read(r, depth + 1, n);
	case YAML_ALIAS_EVENT:
		fault_at(r, m,
			 "aliases (*name) can't be used in a policy; quote a target that "
			 "starts with *");
		return 0;
	default:
		fault_at(r, m, "this is not YAML that a policy can use");
		return -EINVAL;
	}
}

static int document_read(struct yaml_reader *r, struct node **ret)
{
	int e = event_next(r); /* stream start */

	if (e == 0)
		e = event_next(r);
	if (e < 0 || r->event.type == YAML_STREAM_END_EVENT)
		return e;
	if (r->event.data.document_start.version_directive ||
	    r->event.data.document_start.tag_directives.start !=
		    r->event.data.document_start.tag_directives.end)
		fault_at(r, &r->event.start_mark,
			 "directives (%) can't be used in a policy");
	e = event_next(r);
	if (e == 0)
		e = node_read(r, 0, ret);
	if (e == 0)
		e = event_next(r); /* document end */
	if (e == 0)
		e = event_next(r);
	if (e < 0)
		return e;
	if (r->event.type != YAML_STREAM_END_EVENT)
		fault_at(r, &r->event.start_mark,
			 "a policy is one document, and a second starts here");
	return 0;
}

int node_read_yaml(const struct node_source *s, struct node **ret)
{
	CLEAN(yaml_reader) struct yaml_reader r = { .source = s };
	size_t errors = s->faults->errors;
	struct node *root = NULL;
	int e;

	if (!yaml_parser_initialize(&r.parser))
		return -ENOMEM;
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)s->text.ptr,
				     s->text.len);
	e = document_read(&r, &root);
	if (e < 0)
		return e;
	if (s->faults->errors > errors)
		return -EINVAL;
	*ret = root && root->kind == NODE_NULL ? NULL : root;
	return 0;
}

/* -- JSON --------------------------------------------------------------------------- */

/* JSON as a tree.
 *
 * HOW IT WORKS
 * jansson decides what is JSON: stricter than Go's reader in policy/document_text, it
 * refuses what is no Unicode and a key that comes twice. It doesn't say where a value
 * stood, so the tree is made by a walk over the text that it let pass. */

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
			   "", "this is not JSON: %s", SHOWN(error.text));
		return -EINVAL;
	}
	r = read_value(source, &c, 0, ret);
	if (r < 0)
		return r;
	if (json_is_null(root))
		*ret = NULL;
	return source->faults->errors > errors ? -EINVAL : 0;
}
