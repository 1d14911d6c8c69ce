// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "opensandbox/document_internal.h"

/* -- targets ----------------------------------------------------------------------- */

/* What the reference takes and Weir refuses is taken in a document of the API, and in
 * files of always-rules, where a safe meaning exists:
 *  - 10.0.0.1/8: the bits behind the length are cleared;
 *  - fe80::1%eth0 and ::ffff:1.2.3.4: no packet carries them. An allow opens nothing,
 *    with a warning; a deny refuses the address without the zone, or the IPv4 address;
 *  - a deny of *.com: it only closes. The allow is refused, as in any policy. */

/* An address or a prefix. Return: false when @t is none. @ret_carried: packets can
 * have it. */
static bool read_prefix(struct text t, struct prefix *ret, bool *ret_carried)
{
	const char *zone = memchr(t.ptr, '%', t.len);
	bool is_zoned = false, is_mapped;
	struct prefix p;
	struct addr a;

	/* "fe80::1%eth0" is read without its zone. */
	if (zone && zone + 1 < t.ptr + t.len)
		is_zoned = addr_parse(t.ptr, (size_t)(zone - t.ptr), &a) &&
			   a.family == ADDR_V6;
	if (is_zoned)
		t.len = (size_t)(zone - t.ptr);
	if (!prefix_parse(t.ptr, t.len, true, &p))
		return false;
	is_mapped = p.bits >= 96 && addr_is_mapped(&p.addr);
	*ret_carried = !is_zoned && !is_mapped;
	if (is_mapped) {
		struct addr v4 = addr_unmapped(&p.addr);

		p = prefix_of(&v4, p.bits - 96u);
	}
	*ret = p;
	return true;
}

int document_read_target(struct text t, struct rule *rule, bool *ret_says,
			 struct err *err)
{
	enum rule_target kind;
	bool carried;
	int r;

	*ret_says = true;
	if (read_prefix(t, &rule->prefix, &carried)) {
		rule->kind = TARGET_PREFIX;
		*ret_says = carried || rule->action == POLICY_DENY;
		return 0;
	}
	r = rule_target_parse(t, rule, err);
	if (r == 0 || rule->action != POLICY_DENY)
		return r;
	/* A pattern over a public suffix, which rule_target_parse() refuses. */
	kind = rule_target_stars(&t);
	if (kind == TARGET_NAME || rule_target_parse(t, rule, NULL) < 0 ||
	    rule->kind != TARGET_NAME)
		return r;
	rule->kind = kind;
	return 0;
}

enum { PLACE_SIZE = 48 };

/* "egress[3].target", or "" where there are only lines. */
static const char *path_of(size_t at, const char *key, char *buf)
{
	buf[0] = '\0';
	if (at != SIZE_MAX)
		snprintf(buf, PLACE_SIZE, "egress[%zu]%s", at, key);
	return buf;
}

/* The target of @rule, whose action and place are set. Return: 1, 0 when the rule says
 * nothing (after a warning), -EINVAL after a fault. */
static int read_target(const struct policy_reader *r, struct text t, size_t at,
		       struct rule *rule)
{
	struct err err; /* long, and without a word where nothing is wrong */
	char path[PLACE_SIZE];
	bool says = true;
	int e = document_read_target(t, rule, &says, &err);

	if (e < 0)
		faults_add(r->faults, FAULT_ERROR, rule->file, rule->line, rule->column,
			   path_of(at, ".target", path), "%s", err.text);
	else if (!says)
		faults_add(r->faults, FAULT_WARNING, rule->file, rule->line, rule->column,
			   path_of(at, ".target", path),
			   "'%s' opens nothing: no packet carries such an address",
			   TEXT_SHOWN(t));
	return e < 0 ? -EINVAL : says;
}

/* -- deny.always and allow.always -------------------------------------------------- */

static struct text cut_static_rule(struct text line)
{
	return document_trim(text_without_spaced_comment(line));
}

static int parse_static_rule(const struct policy_reader *r, struct text t,
			     struct rule *rule)
{
	return read_target(r, t, SIZE_MAX, rule);
}

static int add_static_rules(const struct policy_reader *r,
			    const struct static_rules_file *file,
			    enum policy_action action, struct policy *policy)
{
	const struct policy_targets how = { action, cut_static_rule, parse_static_rule };
	const char *path;
	int e;

	if (!file || file->text.len == 0)
		return 0;
	path = arena_text(r->arena, text_of(file->path));
	e = path ? policy_add_source(policy, r->arena, path) : -ENOMEM;
	return e < 0 ? e : policy_read_targets(r, path, file->text, &how, policy);
}

/* -- documents --------------------------------------------------------------------- */

struct making {
	const struct policy_reader *r;
	struct policy *policy;
	struct schema_document schema; /* .file: the text that is read */
	struct arena tree;	       /* of what one rule has of Weir's own */
	size_t at;		       /* reading egress[at]; SIZE_MAX: no rule */
	/* The last rule with keys of its own: many have the same. */
	const struct document_rule *last;
	size_t last_index; /* in policy->rules */
};

static void clean_making(struct making *m)
{
	arena_done(&m->tree);
}

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
					    .path = path_of(m->at, "", path),
					    .line = line,
					    .column = column,
					    .one_place = true };

	arena_done(&m->tree);
	return node_read_json(&source, ret);
}

static int add_document_rule(struct making *m, const struct document_rule *from)
{
	struct rule rule = { .action = from->action,
			     .target = from->target.ptr,
			     .comment = "",
			     .file = m->schema.file,
			     .line = from->line,
			     .column = from->column };
	struct rule like;
	char path[PLACE_SIZE];
	struct node *map;
	int r = read_target(m->r, from->target, m->at, &rule);

	if (r != 1)
		return r;
	if (from->own.len == 0)
		return policy_add_rule(m->policy, m->r->arena, &rule);
	/* What the schema reads of @from is known where it read the same for the last
	 * rule. */
	if (m->last && m->last->action == from->action &&
	    m->policy->rules[m->last_index].kind == rule.kind &&
	    text_same(m->last->own, from->own)) {
		like = m->policy->rules[m->last_index];
		like.kind = rule.kind;
		like.name = rule.name;
		like.prefix = rule.prefix;
		like.target = rule.target;
		like.line = rule.line;
		like.column = rule.column;
		r = policy_add_rule(m->policy, m->r->arena, &like);
	} else {
		r = own_nodes(m, from->own, from->line, from->column, &map);
		if (r == 0)
			r = schema_read_own(&m->schema, map, path_of(m->at, "", path),
					    &rule);
	}
	if (r < 0)
		return r;
	m->last = from;
	m->last_index = m->policy->count - 1;
	return 0;
}

int document_policy(const struct document *d, const struct static_rules_file *deny,
		    const struct static_rules_file *allow, const char *file,
		    const struct policy_reader *r, struct policy *ret)
{
	CLEAN(making)
	struct making m = {
		.r = r,
		.policy = ret,
		.schema = { .policy = ret,
			    .arena = r->arena,
			    .faults = r->faults,
			    .file = arena_text(r->arena, text_of(file)),
			    .now_ms = r->now_ms },
		.at = SIZE_MAX,
	};
	struct node *settings;
	int result = 0;

	if (!m.schema.file || policy_reserve_rules(ret, r->arena, d->count) < 0)
		return -ENOMEM;
	/* Nothing else is said then: everything is denied. */
	if (d->closed.ptr) {
		ret->has_default_action = true;
		ret->default_action = POLICY_DENY;
		return policy_add_source(ret, r->arena, m.schema.file);
	}
	result = add_static_rules(r, deny, POLICY_DENY, ret);
	result = faults_worse(result, add_static_rules(r, allow, POLICY_ALLOW, ret));
	result = faults_worse(result, policy_add_source(ret, r->arena, m.schema.file));
	if (!ret->has_default_action) {
		ret->has_default_action = true;
		ret->default_action = d->default_action;
	}
	if (d->own.len > 0) {
		int e = own_nodes(&m, d->own, 0, 0, &settings);

		result = faults_worse(result,
				      e == 0 ? schema_read(&m.schema, settings) : e);
	}
	for (size_t i = 0; i < d->count && result != -ENOMEM; i++) {
		m.at = i;
		result = faults_worse(result, add_document_rule(&m, &d->rules[i]));
	}
	return result;
}

/* -- plans ------------------------------------------------------------------------- */

struct build {
	struct arena arena;
	struct faults faults;
	struct policy policy;
};

static int report_faults(const struct faults *f, sidecar_fault_fn *on_fault, void *data,
			 struct err *err)
{
	char text[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < f->count; i++) {
		const struct fault *fault = &f->items[i];

		/* The caller knows where its text is from: only what, and the words. */
		if (fault->level == FAULT_ERROR && err->code == 0)
			err_set(err, -EINVAL, "%s%s%s", fault->path,
				fault->path[0] ? ": " : "", fault->text);
		if (on_fault)
			on_fault(data, fault_format(fault, text, sizeof(text)),
				 fault->level);
	}
	if (f->errors > 0 && err->code == 0)
		err_set(err, -EINVAL, "the policy is not valid");
	return f->errors > 0 ? -EINVAL : 0;
}

/* What the sidecar as it runs can't do. */
#define NO_COUNT "a budget needs the full filter, which isn't enforced here"

static void check_means(const struct sidecar_policy_context *c, struct build *b)
{
	struct policy *p = &b->policy;

	/* OpenSandbox has variables of its own for that. */
	p->open_doh = !c->daemon;
	if (c->names && !c->daemon && !p->has_verify)
		p->verify = POLICY_VERIFY_TLS;
	if (p->verify == POLICY_VERIFY_TLS && !c->names)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "verify",
			   "'tls' needs the mode dns+nft+tls");
	if (p->dns == POLICY_DNS_PINNED && !c->daemon)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "dns",
			   "'pinned' is not for sidecars");
	for (size_t i = 0; !c->filters && i < p->count; i++)
		if (p->rules[i].budget.sent > 0 || p->rules[i].budget.received > 0)
			faults_add(&b->faults, FAULT_ERROR, c->file, p->rules[i].line,
				   p->rules[i].column, "", NO_COUNT);
	if (p->budget.sent > 0 && !c->filters)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0, "limits.sent_total",
			   NO_COUNT);
	if (p->require_full_isolation && !c->filters)
		faults_add(&b->faults, FAULT_ERROR, c->file, 0, 0,
			   "require_full_isolation",
			   "less than the full filter is enforced here");
}

int sidecar_policy_build(const struct sidecar_policy_context *c, const struct document *d,
			 sidecar_fault_fn *on_fault, void *data, uint8_t **ret_plan,
			 size_t *ret_size, struct err *err)
{
	const struct static_rules_file deny = { c->paths[STATIC_RULES_DENY],
						c->static_rules[STATIC_RULES_DENY] };
	const struct static_rules_file allow = { c->paths[STATIC_RULES_ALLOW],
						 c->static_rules[STATIC_RULES_ALLOW] };
	struct build b = { 0 };
	struct policy_reader reader = { .arena = &b.arena, .faults = &b.faults };
	struct err built = { 0 };
	int r = document_policy(d, &deny, &allow, c->file, &reader, &b.policy);

	if (r == 0)
		check_means(c, &b);
	if (r == 0 && b.faults.errors == 0)
		r = policy_build(&reader, &b.policy, ret_plan, ret_size);
	if (r == 0 || r == -EINVAL)
		r = report_faults(&b.faults, on_fault, data, &built);
	else
		err_sys(&built, r, "cannot compile the policy");
	faults_done(&b.faults);
	arena_done(&b.arena);
	if (r < 0)
		return err_set(err, r, "%s", built.text);
	return 0;
}
