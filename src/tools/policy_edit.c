// SPDX-License-Identifier: Apache-2.0
#include "tools/policy_edit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/load.h"
#include "policy/node.h"
#include "policy/rule.h"

/* A policy as it is read from a text. */
struct reading {
	struct faults faults;
	struct policy policy;
	struct plan plan;
	uint8_t *bytes; /* of it, owned */
};

static void clean_reading(struct reading *r)
{
	faults_done(&r->faults);
	free(r->bytes);
}

static int read_policy(const char *path, struct text text, struct arena *arena,
		       struct reading *ret, struct err *err)
{
	char line[FAULT_TEXT_SIZE];
	size_t size;
	int r = cli_policy_load_text(path, text, arena, &ret->faults, &ret->policy,
				     &ret->bytes, &size);

	for (size_t i = 0; r == -EINVAL && i < ret->faults.count; i++)
		if (ret->faults.items[i].level == FAULT_ERROR)
			return err_set(
				err, r, "%s",
				fault_format(&ret->faults.items[i], line, sizeof(line)));
	if (r < 0)
		return err_sys(err, r, "cannot read the policy");
	return plan_open(ret->bytes, size, &ret->plan, err);
}

/* ---- what may differ ---- */

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->action == b->action && a->kind == b->kind &&
	       (a->kind == TARGET_PREFIX ? addr_equal(&a->prefix.addr, &b->prefix.addr) &&
						   a->prefix.bits == b->prefix.bits
					 : dns_name_equal(&a->name, &b->name)) &&
	       a->ports.count == b->ports.count &&
	       (a->ports.count == 0 ||
		memcmp(a->ports.ranges, b->ports.ranges,
		       a->ports.count * sizeof(*a->ports.ranges)) == 0) &&
	       a->flags == b->flags && a->types == b->types &&
	       strcmp(a->target, b->target) == 0 && strcmp(a->comment, b->comment) == 0;
}

static bool same_settings(const struct policy *a, const struct policy *b)
{
	return a->default_action == b->default_action && a->verify == b->verify &&
	       a->dns == b->dns && a->repin_ms == b->repin_ms &&
	       a->require_full_isolation == b->require_full_isolation &&
	       a->on_denies.count == b->on_denies.count &&
	       a->on_denies.window_sec == b->on_denies.window_sec &&
	       a->on_denies.action == b->on_denies.action &&
	       a->source_count == b->source_count &&
	       memcmp(a->limits, b->limits, sizeof(a->limits)) == 0;
}

static bool is_one_rule_more(const struct policy *before, const struct policy *after,
			     const struct rule *rule)
{
	if (after->count != before->count + 1 || !same_rule(&after->rules[0], rule) ||
	    !same_settings(before, after))
		return false;
	for (size_t i = 0; i < before->count; i++) {
		const struct rule *a = &before->rules[i], *b = &after->rules[i + 1];

		if (!same_rule(a, b) || strcmp(a->file, b->file) != 0)
			return false;
	}
	return true;
}

/* A deny of an address counts wherever it stands. */
static bool opens(const struct plan *plan, const struct rule *r)
{
	const struct plan_port_range *port = r->ports.count > 0 ? r->ports.ranges : NULL;
	struct plan_verdict v = r->kind == TARGET_PREFIX
					? plan_match_addr(plan, &r->prefix.addr,
							  port ? port->protocol : 0,
							  port ? port->from : 0)
					: plan_match_name(plan, &r->name);

	return v.action == POLICY_ALLOW;
}

static bool has_rule(const struct policy *p, const struct plan *plan,
		     const struct rule *rule)
{
	for (size_t i = 0; i < p->count; i++)
		if (same_rule(&p->rules[i], rule) && opens(plan, rule))
			return true;
	return false;
}

/* ---- where it goes ---- */

/* A place in a text, and what is put there. */
struct place {
	size_t at;
	uint32_t line;
	const char *put;
};

static const struct node *find_key(const struct node *map, const char *key)
{
	const struct node *n = map && map->kind == NODE_MAP ? map->first : NULL;

	while (n && !text_equal(n->key, key))
		n = n->next;
	return n;
}

/* Where that line begins; the text's end when there is none. */
static size_t line_start(struct text t, uint32_t line)
{
	size_t at = 0;

	for (uint32_t i = 1; i < line && at < t.len; at++)
		i += t.ptr[at] == '\n';
	return at;
}

/* The byte where @n stands, or the text's end. */
static size_t offset_of(struct text t, const struct node *n)
{
	size_t at = line_start(t, n->line);

	for (uint32_t i = 1; i < n->column && at < t.len; i++)
		do
			at++;
		while (at < t.len && (t.ptr[at] & 0xc0) == 0x80);
	return at;
}

static bool is_at(struct text t, const struct node *n, char byte)
{
	size_t at = offset_of(t, n);

	return at < t.len && t.ptr[at] == byte;
}

static const char *line_end(struct text t)
{
	const char *first = t.len > 0 ? memchr(t.ptr, '\n', t.len) : NULL;

	return first && first > t.ptr && first[-1] == '\r' ? "\r\n" : "\n";
}

/* Behind the line of the key, so that a comment over the first rule stays with it. */
static void into_block(struct text t, const struct node *list, const char *rule,
		       struct arena *arena, struct place *ret)
{
	ret->line = list->key_line + 1;
	ret->at = line_start(t, ret->line);
	ret->put = arena_printf(arena, "%*s- %s%s", (int)list->column - 1, "", rule,
				line_end(t));
}

static void into_brackets(struct text t, const struct node *n, const char *what,
			  struct arena *arena, struct place *ret)
{
	ret->line = n->line;
	ret->at = offset_of(t, n) + 1;
	ret->put = arena_printf(arena, "%s%s", what, n->count > 0 ? ", " : "");
}

static void at_the_end(struct text t, const char *rule, struct arena *arena,
		       struct place *ret)
{
	const char *end = line_end(t);
	bool whole = t.len == 0 || t.ptr[t.len - 1] == '\n';

	ret->line = 2 + !whole;
	for (size_t i = 0; i < t.len; i++)
		ret->line += t.ptr[i] == '\n';
	ret->at = t.len;
	ret->put = arena_printf(arena, "%segress:%s  - %s%s", whole ? "" : end, end, rule,
				end);
}

/* Return: false: there is no place that can be told. */
static bool find_place(struct text t, const struct node *root, const char *rule,
		       struct arena *arena, struct place *ret)
{
	const struct node *wrapper = find_key(root, "network_policy");
	const struct node *map = wrapper ?: root, *list = find_key(map, "egress");

	*ret = (struct place){ 0 };
	if (list && list->kind == NODE_LIST && is_at(t, list, '['))
		into_brackets(t, list, rule, arena, ret);
	else if (list && list->kind == NODE_LIST && is_at(t, list, '-') &&
		 list->line > list->key_line)
		into_block(t, list, rule, arena, ret);
	else if (!list && map && map->kind == NODE_MAP && is_at(t, map, '{'))
		into_brackets(t, map, arena_printf(arena, "\"egress\": [%s]", rule) ?: "",
			      arena, ret);
	else if (!list && !wrapper && (!root || root->column == 1))
		at_the_end(t, rule, arena, ret);
	return ret->put != NULL;
}

/* ---- the text ---- */

static bool is_json(const char *path, struct text t)
{
	return policy_format_guess(path, t) == POLICY_FORMAT_JSON;
}

/* As a person writes it in YAML: {action: allow, target: "a.test"}. */
static const char *yaml_rule(const struct rule *r, struct arena *arena)
{
	char ports[PLAN_PORT_RANGES_MAX * 24];

	if (r->ports.count == 0)
		return arena_printf(arena, "{action: allow, target: \"%s\"}", r->target);
	rule_ports_format(r->ports.ranges, r->ports.count, ports, sizeof(ports));
	return arena_printf(arena, "{action: allow, target: \"%s\", ports: [%s]}",
			    r->target, ports);
}

static struct text insert(struct text t, const struct place *p, struct arena *arena)
{
	size_t size = strlen(p->put);
	char *all = arena_alloc(arena, t.len + size + 1);

	if (!all)
		return (struct text){ 0 };
	memcpy(all, t.ptr, p->at);
	memcpy(all + p->at, p->put, size);
	memcpy(all + p->at + size, t.ptr + p->at, t.len - p->at);
	return (struct text){ all, t.len + size };
}

static int read_tree(const char *path, struct text text, bool json, struct arena *arena,
		     struct node **ret)
{
	struct faults faults = { 0 };
	const struct node_source source = {
		.arena = arena, .faults = &faults, .file = path, .text = text
	};
	int r = json ? node_read_json(&source, ret) : node_read_yaml(&source, ret);

	faults_done(&faults);
	return r;
}

static void print_warnings(const struct reading *r, const struct rule *rule)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < r->faults.count; i++)
		if (r->faults.items[i].line == rule->line &&
		    r->faults.items[i].level == FAULT_WARNING)
			fprintf(stderr, "%s\n",
				fault_format(&r->faults.items[i], line, sizeof(line)));
}

static int by_hand(struct err *err, const char *why, const char *rule)
{
	return err_set(err, -EINVAL,
		       "the file is left as it is: %s; add this by hand, first under "
		       "egress: - %s",
		       why, rule);
}

static int put_rule(const char *path, struct text text, const struct reading *before,
		    const struct rule *rule, const char *shown, struct arena *arena,
		    struct amended *ret, struct err *err)
{
	CLEAN(reading) struct reading after = { 0 };
	struct err why = { 0 };
	struct node *root = NULL;
	struct place place;
	int r = read_tree(path, text, is_json(path, text), arena, &root);

	if (r == -ENOMEM)
		return err_sys(err, r, "cannot read the policy");
	if (r < 0 || !find_place(text, root, shown, arena, &place))
		return by_hand(err, "there is no place in it that can be told", shown);
	ret->text = insert(text, &place, arena);
	if (!ret->text.ptr)
		return err_set(err, -ENOMEM, "out of memory");
	if (read_policy(path, ret->text, arena, &after, &why) < 0 ||
	    !is_one_rule_more(&before->policy, &after.policy, rule))
		return by_hand(err, "it would mean something else", shown);
	if (!opens(&after.plan, &after.policy.rules[0]))
		return by_hand(err, "a deny of this address counts all the same", shown);
	print_warnings(&after, &after.policy.rules[0]);
	ret->line = after.policy.rules[0].line;
	return 0;
}

int policy_edit(const char *path, struct text text, const char *rule, struct arena *arena,
		struct amended *ret, struct err *err)
{
	CLEAN(reading) struct reading before = { 0 }, alone = { 0 };
	const char *whole = arena_printf(arena, "{\"egress\":[%s]}", rule);
	const struct rule *wanted;
	int r;

	*ret = (struct amended){ .text = text };
	if (!whole)
		return err_set(err, -ENOMEM, "out of memory");
	r = read_policy(path, text, arena, &before, err);
	if (r == 0)
		r = read_policy("rule.json", text_of(whole), arena, &alone, err);
	if (r < 0)
		return r;
	wanted = &alone.policy.rules[0];
	ret->rule = is_json(path, text) ? rule : yaml_rule(wanted, arena);
	if (!ret->rule)
		return err_set(err, -ENOMEM, "out of memory");
	if (has_rule(&before.policy, &before.plan, wanted))
		return 0;
	return put_rule(path, text, &before, wanted, ret->rule, arena, ret, err);
}
