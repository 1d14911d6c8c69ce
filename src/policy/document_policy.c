// SPDX-License-Identifier: Apache-2.0
/* The policy that a document and the files of always-rules make.
 *
 * HOW IT WORKS
 * Targets are read as any policy's, except where the reference takes what Weir refuses
 * and a safe meaning exists:
 *  - 10.0.0.1/8: the bits behind the length are cleared;
 *  - fe80::1%eth0 and ::ffff:1.2.3.4: no packet carries them. An allow opens nothing,
 *    with a warning; a deny refuses the address without the zone, or the IPv4 address;
 *  - a deny of *.com: it only closes. The allow is refused, as in any policy.
 * Everything else that isn't a name, an address or a prefix is a fault.
 *
 * Of a document that is closed nothing is read, and the files neither. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/document_internal.h"
#include "policy/explain.h"
#include "policy/faults.h"
#include "policy/schema.h"

struct making {
	const struct policy_reader *r;
	struct policy *policy;
	struct schema_document schema; /* .file: the text that is read */
	int result;		       /* 0, -EINVAL after a fault, -ENOMEM */
	struct arena tree;	       /* of what one rule has of Weir's own */
	bool in_rules;		       /* reading egress[at] */
	size_t at;
	/* The last rule with keys of its own: many have the same. */
	const struct document_rule *last;
	size_t last_index; /* in policy->rules */
};

static void clean_making(struct making **m)
{
	if (!*m)
		return;
	arena_done(&(*m)->tree);
	free(*m);
}

static void note(struct making *m, int r)
{
	if (r < 0 && m->result != -ENOMEM)
		m->result = r;
}

enum { PLACE_SIZE = 48 };

/* "egress[3].target", or "" where there are only lines. */
static const char *path_of(const struct making *m, const char *key, char *buf)
{
	buf[0] = '\0';
	if (m->in_rules)
		snprintf(buf, PLACE_SIZE, "egress[%zu]%s", m->at, key);
	return buf;
}

/* --- targets --- */

/* "fe80::1%eth0" without its zone. Return: false when @t has none. */
static bool cut_zone(struct text t, struct text *ret)
{
	const char *zone = memchr(t.ptr, '%', t.len);
	struct addr a;

	if (!zone || zone + 1 == t.ptr + t.len)
		return false;
	*ret = (struct text){ t.ptr, (size_t)(zone - t.ptr) };
	return addr_parse(ret->ptr, ret->len, &a) && a.family == ADDR_V6;
}

/* An address or a prefix. Return: false when @t is none. @ret_carried: packets can
 * have it. */
static bool read_prefix(struct text t, struct prefix *ret, bool *ret_carried)
{
	struct text plain = t;
	bool zoned = cut_zone(t, &plain), is_mapped;
	struct prefix p;

	if (!zoned)
		plain = t;
	if (!prefix_parse(plain.ptr, plain.len, true, &p))
		return false;
	is_mapped = p.bits >= 96 && addr_is_mapped(&p.addr);
	*ret_carried = !zoned && !is_mapped;
	if (is_mapped) {
		struct addr v4 = addr_unmapped(&p.addr);

		p = prefix_of(&v4, p.bits - 96u);
	}
	*ret = p;
	return true;
}

/* A pattern over a public suffix, which rule_target_parse() refuses. */
static bool read_suffix(struct text t, struct rule *ret)
{
	size_t stars = t.len > 3 && memcmp(t.ptr, "**.", 3) == 0  ? 3
		       : t.len > 2 && memcmp(t.ptr, "*.", 2) == 0 ? 2
								  : 0;
	struct text rest = { t.ptr + stars, t.len - stars };

	if (stars == 0 || rule_target_parse(rest, ret, NULL) < 0 ||
	    ret->kind != TARGET_NAME)
		return false;
	ret->kind = stars == 3 ? TARGET_WITHIN : TARGET_BELOW;
	return true;
}

bool document_read_target(const struct document_rule *rule, struct rule *ret)
{
	bool carried;

	if (read_prefix(rule->target, &ret->prefix, &carried)) {
		ret->kind = TARGET_PREFIX;
		return carried || rule->action == POLICY_DENY;
	}
	return rule_target_parse(rule->target, ret, NULL) == 0 ||
	       (rule->action == POLICY_DENY && read_suffix(rule->target, ret));
}

/* The target of @rule, whose action is set. Return: 1, 0 when the rule says nothing
 * (after a warning), -EINVAL after a fault. */
static int read_target(struct making *m, struct text t, struct rule *rule)
{
	struct faults *faults = m->r->faults;
	char path[PLACE_SIZE];
	struct err err = { 0 };
	bool carried;

	if (read_prefix(t, &rule->prefix, &carried)) {
		rule->kind = TARGET_PREFIX;
		if (carried || rule->action == POLICY_DENY)
			return 1;
		faults_add(faults, FAULT_WARNING, rule->file, rule->line, rule->column,
			   path_of(m, ".target", path),
			   "'%s' opens nothing: no packet carries such an address",
			   TEXT_SHOWN(t));
		return 0;
	}
	if (rule_target_parse(t, rule, &err) == 0 ||
	    (rule->action == POLICY_DENY && read_suffix(t, rule)))
		return 1;
	faults_add(faults, FAULT_ERROR, rule->file, rule->line, rule->column,
		   path_of(m, ".target", path), "%s", err.text);
	return -EINVAL;
}

static int add_made_rule(struct making *m, struct text target, struct rule *rule)
{
	rule->target = arena_text(m->r->arena, target);
	return rule->target ? policy_add_rule(m->policy, m->r->arena, rule) : -ENOMEM;
}

/* --- the files of always-rules --- */

static void add_always(struct making *m, const struct always_file *file,
		       enum policy_action action)
{
	struct text rest = file->text, line;
	uint32_t number = 0;

	while (m->result != -ENOMEM && text_split(&rest, '\n', &line)) {
		struct text target = document_trim(text_without_spaced_comment(line));
		struct rule rule = { .action = action,
				     .comment = "",
				     .file = m->schema.file,
				     .line = ++number };
		int r;

		if (target.len == 0)
			continue;
		rule.column = (uint32_t)(target.ptr - line.ptr) + 1;
		r = read_target(m, target, &rule);
		note(m, r == 1 ? add_made_rule(m, target, &rule) : r);
	}
}

/* --- keys of Weir's own --- */

/* What a document keeps of Weir's own keys as a mapping, which lives until the next one.
 * Every fault of it has the place of the rule. */
static int own_nodes(struct making *m, struct text own, uint32_t line, uint32_t column,
		     struct node **ret)
{
	char path[PLACE_SIZE];
	const struct node_source source = { .arena = &m->tree,
					    .faults = m->r->faults,
					    .file = m->schema.file,
					    .text = own,
					    .path = path_of(m, "", path),
					    .line = line,
					    .column = column,
					    .one_place = true };

	arena_done(&m->tree);
	return node_read_json(&source, ret);
}

/* What the schema reads of @from is known: it read the same for the rule before. */
static bool is_like_last(const struct making *m, const struct document_rule *from,
			 const struct rule *rule)
{
	return m->last && m->last->action == from->action &&
	       m->policy->rules[m->last_index].kind == rule->kind &&
	       document_same_text(m->last->own, from->own);
}

static int add_own_rule(struct making *m, const struct document_rule *from,
			struct rule *rule)
{
	struct rule like;
	char path[PLACE_SIZE];
	struct node *map;
	int r;

	rule->target = arena_text(m->r->arena, from->target);
	if (!rule->target)
		return -ENOMEM;
	if (is_like_last(m, from, rule)) {
		like = m->policy->rules[m->last_index];
		like.kind = rule->kind;
		like.name = rule->name;
		like.prefix = rule->prefix;
		like.target = rule->target;
		like.line = rule->line;
		like.column = rule->column;
		r = policy_add_rule(m->policy, m->r->arena, &like);
	} else {
		r = own_nodes(m, from->own, from->line, from->column, &map);
		if (r == 0)
			r = schema_read_own(&m->schema, map, path_of(m, "", path), rule);
	}
	if (r < 0)
		return r;
	m->last = from;
	m->last_index = m->policy->count - 1;
	return 0;
}

/* --- the document --- */

static void add_document_rule(struct making *m, const struct document *d, size_t i)
{
	const struct document_rule *from = &d->rules[i];
	struct rule rule = { .action = from->action,
			     .comment = "",
			     .file = m->schema.file,
			     .line = from->line,
			     .column = from->column };
	int r;

	m->at = i;
	r = read_target(m, from->target, &rule);
	if (r == 1)
		r = from->own.len > 0 ? add_own_rule(m, from, &rule)
				      : add_made_rule(m, from->target, &rule);
	note(m, r);
}

static int add_settings(struct making *m, const struct document *d)
{
	struct node *map;
	int r;

	if (!m->policy->has_default_action) {
		m->policy->has_default_action = true;
		m->policy->default_action = d->default_action;
	}
	if (d->own.len == 0)
		return 0;
	r = own_nodes(m, d->own, 0, 0, &map);
	return r == 0 ? schema_read(&m->schema, map) : r;
}

/* @file is what is read from now on. */
static int begin_file(struct making *m, const char *file)
{
	struct policy *p = m->policy;
	const char **sources =
		arena_array(m->r->arena, p->source_count + 1, sizeof(char *));

	m->schema.file = arena_text(m->r->arena, text_of(file));
	if (!sources || !m->schema.file)
		return -ENOMEM;
	if (p->source_count > 0)
		memcpy(sources, p->sources, p->source_count * sizeof(*sources));
	sources[p->source_count++] = m->schema.file;
	p->sources = sources;
	return 0;
}

static int add_always_file(struct making *m, const struct always_file *file,
			   enum policy_action action)
{
	int r;

	if (!file || file->text.len == 0)
		return 0;
	r = begin_file(m, file->path);
	if (r == 0)
		add_always(m, file, action);
	return r;
}

int document_policy(const struct document *d, const struct always_file *deny,
		    const struct always_file *allow, const char *file,
		    const struct policy_reader *r, struct policy *ret)
{
	CLEAN(making) struct making *m = calloc(1, sizeof(*m));

	if (!m || policy_reserve_rules(ret, r->arena, d->count) < 0)
		return -ENOMEM;
	m->r = r;
	m->policy = ret;
	m->schema = (struct schema_document){
		.policy = ret, .arena = r->arena, .faults = r->faults, .now_ms = r->now_ms
	};
	/* Nothing else is said then: everything is denied. */
	if (d->closed.ptr) {
		ret->has_default_action = true;
		ret->default_action = POLICY_DENY;
		return begin_file(m, file);
	}
	note(m, add_always_file(m, deny, POLICY_DENY));
	note(m, add_always_file(m, allow, POLICY_ALLOW));
	note(m, begin_file(m, file));
	if (m->result == -ENOMEM)
		return m->result;
	note(m, add_settings(m, d));
	m->in_rules = true;
	for (size_t i = 0; i < d->count && m->result != -ENOMEM; i++)
		add_document_rule(m, d, i);
	return m->result;
}
