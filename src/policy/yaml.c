// SPDX-License-Identifier: Apache-2.0
/* YAML as a tree, by libyaml's events. What makes a document say something else than
 * it seems to is refused: anchors, aliases, tags, directives, a second document. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "policy/faults.h"
#include "policy/node.h"

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
