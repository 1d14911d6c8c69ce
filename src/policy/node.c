// SPDX-License-Identifier: Apache-2.0
#include "policy/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

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
		/* A terminal writes what stands behind a '\r' over the rest of the line,
		 * and YAML begins a line there that no editor counts. Before a line end
		 * it is Windows'. */
		if (p[i] == '\r' && (i + 1 == s->text.len || p[i + 1] != '\n'))
			why = "a carriage return within a line";
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
			faults_add(s->faults, FAULT_ERROR, s->file, line, column, s->path,
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
	for (struct node *n = map && map->kind == NODE_MAP ? map->first : NULL; n;
	     n = n->next)
		if (text_same(n->key, key))
			return n;
	return NULL;
}

void node_append(const struct node_source *s, struct node *parent, struct node *child)
{
	const size_t most = s->foreign ? NODE_FOREIGN_KEYS_MAX : NODE_KEYS_MAX;
	const bool is_checked = parent->kind == NODE_MAP && !s->err;
	struct node_source strict;

	if (is_checked) {
		strict = *s;
		strict.foreign = false;
		node_check_scalar(&strict, child->key, child->key_line,
				  child->key_column);
	}
	if (is_checked && parent->count == most)
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, s->path, "a mapping has more than %zu keys",
			   most);
	else if (is_checked && parent->count < most && node_find(parent, child->key))
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, s->path,
			   "'%s' is not the first of its name: a key can stand once",
			   TEXT_SHOWN(child->key));
	child->parent = parent;
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
	parent->count++;
}

char *node_path(const struct node *n, char *buf)
{
	size_t used, index = 0;

	buf[0] = '\0';
	if (!n->parent)
		return buf;
	used = strlen(node_path(n->parent, buf));
	if (n->parent->kind == NODE_MAP) {
		snprintf(buf + used, NODE_PATH_SIZE - used, "%s%s", used > 0 ? "." : "",
			 TEXT_SHOWN(n->key));
		return buf;
	}
	for (const struct node *i = n->parent->first; i != n; i = i->next)
		index++;
	snprintf(buf + used, NODE_PATH_SIZE - used, "[%zu]", index);
	return buf;
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

static void fault_at(struct yaml_reader *r, const yaml_mark_t *m, const char *what)
{
	faults_add(r->source->faults, FAULT_ERROR, r->source->file, (uint32_t)m->line + 1,
		   (uint32_t)m->column + 1, "", "%s", what);
}

static int event_next(struct yaml_reader *r)
{
	const yaml_parser_t *p = &r->parser;
	char what[ERR_TEXT_SIZE];

	if (r->has_event)
		yaml_event_delete(&r->event);
	r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
	if (r->has_event)
		return 0;
	if (p->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	/* The parser's own words, with the place that it names. */
	snprintf(what, sizeof(what), "this is not YAML: %s",
		 p->problem ? p->problem : "it can't be read");
	fault_at(r, &p->problem_mark, what);
	return -EINVAL;
}

/* What an unquoted scalar is, by the core schema of YAML 1.2 as far as policies need
 * it: `no` and `0x10` are text. */
static enum node_kind plain_kind(struct text t)
{
	size_t digits, sign;

	if (t.len == 0 || text_equal(t, "~") || text_equal(t, "null"))
		return NODE_NULL;
	if (text_equal(t, "true") || text_equal(t, "false"))
		return NODE_BOOL;
	sign = digits = t.ptr[0] == '-' ? 1 : 0;
	while (digits < t.len && text_is_digit(t.ptr[digits]))
		digits++;
	return digits == t.len && digits > sign ? NODE_NUMBER : NODE_TEXT;
}

/* What the current event has in front of its value; NULL: it hasn't. */
static void refuse_marks(struct yaml_reader *r, const yaml_char_t *anchor,
			 const yaml_char_t *tag)
{
	if (anchor)
		fault_at(r, &r->event.start_mark,
			 "anchors (&name) can't be used in a policy");
	if (tag)
		fault_at(r, &r->event.start_mark,
			 "tags (!name) can't be used in a policy");
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

/* The value that the current event starts; the event is its last one afterwards. */
static int node_read(struct yaml_reader *r, int depth, struct node **ret)
{
	const yaml_event_t *e = &r->event;
	const yaml_mark_t *m = &e->start_mark;
	struct node *n = node_new(r->source, NODE_NULL, (uint32_t)m->line + 1,
				  (uint32_t)m->column + 1);

	if (!n)
		return -ENOMEM;
	*ret = n;
	if (depth == NODE_DEPTH_MAX) {
		fault_at(r, m, "the document is nested too deeply");
		return -EINVAL;
	}
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		n->text.len = e->data.scalar.length;
		n->text.ptr = arena_text(
			r->source->arena,
			(struct text){ (const char *)e->data.scalar.value, n->text.len });
		if (!n->text.ptr)
			return -ENOMEM;
		refuse_marks(r, e->data.scalar.anchor, e->data.scalar.tag);
		n->kind = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE
				  ? plain_kind(n->text)
				  : NODE_TEXT;
		node_check_scalar(r->source, n->text, n->line, n->column);
		return 0;
	case YAML_SEQUENCE_START_EVENT:
		refuse_marks(r, e->data.sequence_start.anchor,
			     e->data.sequence_start.tag);
		n->kind = NODE_LIST;
		return list_read(r, depth + 1, n);
	case YAML_MAPPING_START_EVENT:
		refuse_marks(r, e->data.mapping_start.anchor, e->data.mapping_start.tag);
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
	e = event_next(&r); /* stream start */
	if (e == 0)
		e = event_next(&r);
	if (e == 0 && r.event.type != YAML_STREAM_END_EVENT) {
		if (r.event.data.document_start.version_directive ||
		    r.event.data.document_start.tag_directives.start !=
			    r.event.data.document_start.tag_directives.end)
			fault_at(&r, &r.event.start_mark,
				 "directives (%) can't be used in a policy");
		e = event_next(&r);
		if (e == 0)
			e = node_read(&r, 0, &root);
		if (e == 0)
			e = event_next(&r); /* document end */
		if (e == 0)
			e = event_next(&r);
		if (e == 0 && r.event.type != YAML_STREAM_END_EVENT)
			fault_at(&r, &r.event.start_mark,
				 "a policy is one document, and a second starts here");
	}
	if (e < 0)
		return e;
	if (s->faults->errors > errors)
		return -EINVAL;
	*ret = root && root->kind == NODE_NULL ? NULL : root;
	return 0;
}

/* -- JSON --------------------------------------------------------------------------- */

/* JSON as a tree, in one pass and without recursion.
 *
 * What is no JSON is said in the words of Go's encoding/json, in files as in what the API
 * is sent, where clients compare them: a text that was cut off in a word or a number is
 * reported as one with a blank there. Values that lie deeper than NODE_DEPTH_MAX are read
 * but don't become nodes. */

enum { JSON_DEPTH_MAX = 10000 }; /* deeper: "exceeded max depth" */

struct json {
	const struct node_source *source;
	const char *p, *end;
	uint32_t line;
	/* A column is p - line_start + shift, so that it counts characters. */
	const char *line_start;
	uint32_t shift;
	/* Of the member that is read; ptr NULL in a list. */
	struct text key;
	uint32_t key_line, key_column;
	struct err why; /* what is wrong at @p */
	struct node *root;
	/* The lists and mappings that have no end yet. */
	size_t depth, capacity;
	char *close; /* what ends each; malloc'ed */
	struct node *open[NODE_DEPTH_MAX];
};

static void clean_json(struct json *j)
{
	free(j->close);
}

static uint32_t json_column(const struct json *j)
{
	return (uint32_t)(j->p - j->line_start) + j->shift;
}

static char json_byte(const struct json *j)
{
	return j->p < j->end ? *j->p : ' ';
}

char *node_go_quoted(struct text t, char quote, char *buf, size_t size)
{
	static const char names[] = "a\ab\bf\fn\nr\rt\tv\v\\\\";
	const uint8_t *p = (const uint8_t *)t.ptr;
	char name = t.ptr[0] == quote ? quote : '\0';
	uint32_t u = 0;

	for (size_t i = 0; i + 1 < sizeof(names); i += 2)
		if (t.ptr[0] == names[i + 1])
			name = names[i];
	if (t.len >= 2 && p[0] == 0xc2 && (p[1] <= 0xa0 || p[1] == 0xad))
		u = p[1];
	else if (t.len >= 3 && p[0] == 0xe2 && (p[1] == 0x80 || p[1] == 0x81))
		u = 0x2000u | (p[1] & 1u) << 6 | (p[2] & 0x3fu);
	else if (t.len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		u = 0xfeff;
	if ((u >= 0x2010 && u <= 0x2027) || (u >= 0x2030 && u <= 0x205e))
		u = 0;
	if (name)
		snprintf(buf, size, "\\%c", name);
	else if (p[0] < 0x20 || p[0] == 0x7f)
		snprintf(buf, size, "\\x%02x", p[0]);
	else if (u != 0)
		snprintf(buf, size, "\\u%04x", u);
	else
		snprintf(buf, size, "%.*s", (int)MIN(t.len, size - 1), t.ptr);
	return buf;
}

/* One byte is shown as if it were a character of Latin-1: 0xe9 is 'é'. */
static int refuse_byte(struct json *j, const char *where)
{
	char byte[4], shown[16];
	const size_t size = text_put_utf8((uint8_t)json_byte(j), byte);

	return err_set(
		&j->why, -EINVAL, "invalid character '%s' %s",
		node_go_quoted((struct text){ byte, size }, '\'', shown, sizeof(shown)),
		where);
}

static int refuse_end(struct json *j)
{
	return err_set(&j->why, -EINVAL, "unexpected end of JSON input");
}

/* To the next byte that is not blank. Return: whether there is one. */
static bool skip_blanks(struct json *j)
{
	for (; j->p < j->end && text_is_blank(*j->p); j->p++) {
		if (*j->p == '\n') {
			j->line++;
			j->line_start = j->p + 1;
			j->shift = 1;
		}
	}
	return j->p < j->end;
}

/* "\u12ab" at @p. */
static bool hex_unit(const char *p, const char *end, uint32_t *ret)
{
	if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
		return false;
	*ret = 0;
	for (size_t i = 2; i < 6; i++)
		*ret = *ret << 4 | (text_hex_value(p[i]) & 15);
	return true;
}

/* The character behind '\' at @p; half a surrogate pair is none. Return: the bytes
 * read. */
static size_t read_escape(const char *p, const char *end, uint32_t *ret)
{
	static const char names[] = "b\bf\fn\nr\rt\t";
	uint32_t low;

	if (hex_unit(p, end, ret)) {
		if (*ret >= 0xd800 && *ret < 0xdc00 && hex_unit(p + 6, end, &low) &&
		    low >= 0xdc00 && low <= 0xdfff) {
			*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
			return 12;
		}
		return 6;
	}
	*ret = (uint8_t)p[1];
	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if (p[1] == names[i])
			*ret = (uint8_t)names[i + 1];
	}
	return 2;
}

/* The bytes that need no second look. */
static const char *skip_plain(const char *p, const char *end)
{
	static const bool is_special[UINT8_MAX + 1] = {
		[0 ... 0x1f] = true,
		['"'] = true,
		['\\'] = true,
		[0x80 ... 0xff] = true,
	};

	while (p < end && !is_special[(uint8_t)*p])
		p++;
	return p;
}

int node_json_string(struct text quoted, struct arena *arena, struct text *ret,
		     bool *ret_lost)
{
	const char *p = quoted.ptr + 1, *end = quoted.ptr + quoted.len - 1;
	size_t used = 0;
	char *out;

	if (quoted.len < 2)
		return -EINVAL;
	if (skip_plain(p, end) == end) {
		*ret = (struct text){ p, quoted.len - 2 };
		return 0;
	}
	/* Escapes only shrink; a byte that is no UTF-8 becomes three. */
	out = arena_alloc(arena, 3 * quoted.len);
	if (!out)
		return -ENOMEM;
	while (p < end) {
		const bool escaped = *p == '\\' && end - p >= 2;
		uint32_t u = 0;
		size_t size =
			escaped ? read_escape(p, end, &u)
				: text_utf8((struct text){ p, (size_t)(end - p) }, &u);

		/* What is no character is U+FFFD. */
		if (size == 0 || (u >= 0xd800 && u <= 0xdfff)) {
			u = 0xfffd;
			*ret_lost = true;
		}
		p += MAX(size, (size_t)1);
		used += text_put_utf8(u, out + used);
	}
	*ret = (struct text){ out, used };
	return 0;
}

/* @ret: decoded. */
static int json_string(struct json *j, struct text *ret)
{
	const uint32_t line = j->line, column = json_column(j);
	const char *start = j->p++;
	bool lost = false;
	char escape;
	int r;

	j->p = skip_plain(j->p, j->end);
	if (j->p < j->end && *j->p == '"') {
		*ret = (struct text){ start + 1, (size_t)(j->p++ - start - 1) };
		return 0;
	}
	while (j->p < j->end && *j->p != '"') {
		if ((uint8_t)*j->p < 0x20)
			return refuse_byte(j, "in string literal");
		j->shift -= (*j->p & 0xc0) == 0x80;
		if (*j->p++ != '\\')
			continue;
		escape = json_byte(j);
		if (escape == '\0' || !strchr("bfnrt\\/\"u", escape))
			return refuse_byte(j, "in string escape code");
		j->p++;
		for (size_t i = 0; escape == 'u' && i < 4; i++, j->p++)
			if (text_hex_value(json_byte(j)) < 0)
				return refuse_byte(j,
						   "in \\u hexadecimal character escape");
	}
	if (j->p == j->end)
		return refuse_end(j);
	j->p++;
	r = node_json_string((struct text){ start, (size_t)(j->p - start) },
			     j->source->arena, ret, &lost);
	if (r == 0 && lost && !j->source->err)
		faults_add(j->source->faults, FAULT_ERROR, j->source->file, line, column,
			   "", "'%s' is not plain text: an escape is no character",
			   TEXT_SHOWN(*ret));
	return r;
}

static int read_literal(struct json *j, const char *word)
{
	char where[64];

	for (size_t i = 1; word[i]; i++) {
		j->p++;
		if (json_byte(j) != word[i]) {
			snprintf(where, sizeof(where), "in literal %s (expecting '%c')",
				 word, word[i]);
			return refuse_byte(j, where);
		}
	}
	j->p++;
	return 0;
}

static int skip_digits(struct json *j, const char *where)
{
	if (!text_is_digit(json_byte(j)))
		return refuse_byte(j, where);
	while (text_is_digit(json_byte(j)))
		j->p++;
	return 0;
}

static int read_number(struct json *j, enum node_kind *ret_kind)
{
	int r = 0;

	j->p += *j->p == '-';
	if (json_byte(j) == '0')
		j->p++;
	else
		r = skip_digits(j, "in numeric literal");
	if (r == 0 && json_byte(j) == '.') {
		j->p++;
		*ret_kind = NODE_REAL;
		r = skip_digits(j, "after decimal point in numeric literal");
	}
	if (r == 0 && (json_byte(j) | 0x20) == 'e') {
		j->p++;
		*ret_kind = NODE_REAL;
		j->p += json_byte(j) == '+' || json_byte(j) == '-';
		r = skip_digits(j, "in exponent of numeric literal");
	}
	return r;
}

/* A node at @p below what is open, unless that lies too deep: *@ret is NULL then. */
static int add_node(struct json *j, enum node_kind kind, struct node **ret)
{
	const struct node_source *s = j->source;
	const uint32_t line = s->one_place ? s->line : j->line;
	const uint32_t column = s->one_place ? s->column : json_column(j);
	struct node *n;

	*ret = NULL;
	if (j->depth == NODE_DEPTH_MAX && !s->err)
		faults_add(s->faults, FAULT_ERROR, s->file, line, column, s->path,
			   "the document is nested too deeply");
	if (j->depth >= NODE_DEPTH_MAX)
		return 0;
	n = *ret = node_new(s, kind, line, column);
	if (!n)
		return -ENOMEM;
	n->key = j->key;
	n->key_line = j->key_line;
	n->key_column = j->key_column;
	if (j->depth == 0)
		j->root = n;
	else
		node_append(s, j->open[j->depth - 1], n);
	return 0;
}

static int open_value(struct json *j, enum node_kind kind)
{
	struct node *n;
	int r = add_node(j, kind, &n);

	if (r < 0)
		return r;
	if (j->depth == JSON_DEPTH_MAX)
		return err_set(&j->why, -EINVAL, "exceeded max depth");
	if (!ARRAY_GROW(j->close, j->depth, j->capacity))
		return -ENOMEM;
	j->close[j->depth] = kind == NODE_MAP ? '}' : ']';
	if (n) {
		n->raw = (struct text){ j->p, 1 };
		j->open[j->depth] = n;
	}
	j->depth++;
	j->p++;
	return 0;
}

static int read_scalar(struct json *j, enum node_kind kind)
{
	const char *start = j->p;
	struct text text = { 0 };
	struct node *n;
	int r = add_node(j, kind, &n);

	if (r < 0)
		return r;
	if (kind == NODE_TEXT)
		r = json_string(j, &text);
	else if (kind == NODE_NUMBER)
		r = read_number(j, &kind);
	else
		r = read_literal(j, *start == 't'   ? "true"
				    : *start == 'f' ? "false"
						    : "null");
	if (r < 0 || !n)
		return r;
	n->kind = kind;
	n->raw = (struct text){ start, (size_t)(j->p - start) };
	n->text = kind == NODE_TEXT ? text : n->raw;
	if (kind == NODE_TEXT && !j->source->err)
		node_check_scalar(j->source, n->text, n->line, n->column);
	return 0;
}

/* A scalar, or the beginning of a list or mapping. */
static int begin_value(struct json *j)
{
	if (!skip_blanks(j))
		return refuse_end(j);
	switch (*j->p) {
	case '{':
		return open_value(j, NODE_MAP);
	case '[':
		return open_value(j, NODE_LIST);
	case '"':
		return read_scalar(j, NODE_TEXT);
	case 't':
	case 'f':
		return read_scalar(j, NODE_BOOL);
	case 'n':
		return read_scalar(j, NODE_NULL);
	default:
		return *j->p == '-' || text_is_digit(*j->p)
			       ? read_scalar(j, NODE_NUMBER)
			       : refuse_byte(j, "looking for beginning of value");
	}
}

/* In a list or mapping: its next item, or its end. */
static int read_next(struct json *j, bool is_first, bool *ret_opened)
{
	const char close = j->close[j->depth - 1];
	const size_t depth = j->depth;
	int r;

	*ret_opened = false;
	if (!skip_blanks(j))
		return refuse_end(j);
	if (*j->p == close) {
		j->p++;
		j->depth--;
		if (j->depth < NODE_DEPTH_MAX)
			j->open[j->depth]->raw.len =
				(size_t)(j->p - j->open[j->depth]->raw.ptr);
		return 0;
	}
	if (!is_first && *j->p != ',')
		return refuse_byte(j, close == '}' ? "after object key:value pair"
						   : "after array element");
	if (!is_first) {
		j->p++;
		if (!skip_blanks(j))
			return refuse_end(j);
	}
	j->key = (struct text){ 0 };
	if (close == '}') {
		j->key_line = j->source->one_place ? j->source->line : j->line;
		j->key_column = j->source->one_place ? j->source->column : json_column(j);
		if (*j->p != '"')
			return refuse_byte(j,
					   "looking for beginning of object key string");
		r = json_string(j, &j->key);
		if (r < 0)
			return r;
		if (!skip_blanks(j))
			return refuse_end(j);
		if (*j->p != ':')
			return refuse_byte(j, "after object key");
		j->p++;
	}
	r = begin_value(j);
	*ret_opened = j->depth > depth;
	return r;
}

int node_read_json(const struct node_source *s, struct node **ret)
{
	CLEAN(json)
	struct json j = { .source = s,
			  .p = s->text.ptr,
			  .end = s->text.ptr + s->text.len,
			  .line_start = s->text.ptr,
			  .line = MAX(s->line, 1u),
			  .shift = MAX(s->column, 1u) };
	const size_t errors = s->faults ? s->faults->errors : 0;
	bool is_opened = true;
	int r = 0;

	*ret = NULL;
	if (!s->err && !skip_blanks(&j))
		return 0;
	r = begin_value(&j);
	while (r == 0 && j.depth > 0)
		r = read_next(&j, is_opened, &is_opened);
	if (r == 0 && skip_blanks(&j))
		r = refuse_byte(&j, "after top-level value");
	if (r == -EINVAL && s->err)
		*s->err = j.why;
	else if (r == -EINVAL)
		faults_add(s->faults, FAULT_ERROR, s->file, j.line, json_column(&j),
			   s->path, "this is not JSON: %s", j.why.text);
	if (r < 0)
		return r;
	if (s->faults && s->faults->errors > errors)
		return -EINVAL;
	if (j.root->kind != NODE_NULL)
		*ret = j.root;
	return 0;
}
