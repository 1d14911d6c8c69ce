// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * What comes of the text with the rule in it is read again and held against the policy
 * before: the one rule more, at its place, and nothing else may differ, and the rule has
 * to decide what it says. Where that can't be had the text stays as it is, and the rule
 * is for a person to add. */
#include "policy/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "policy/faults.h"
#include "policy/load.h"
#include "policy/node.h"

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
	const struct policy_args args = { .file = path };
	size_t size;
	int r = cli_policy_load_text(&args, &text, arena, &ret->faults, &ret->policy,
				     &ret->bytes, &size);

	for (size_t i = 0; r == -EINVAL && i < ret->faults.count; i++)
		if (ret->faults.items[i].level == FAULT_ERROR)
			return err_set(
				err, r, "%s",
				fault_format(&ret->faults.items[i], line, sizeof(line)));
	if (r < 0)
		return err_sys(err, r, "cannot read the policy");
	r = plan_open(ret->bytes, size, &ret->plan, err);
	if (r == 0)
		plan_set_time(&ret->plan, clock_wall_ms());
	return r;
}

static bool same_budget(const struct plan_budget *a, const struct plan_budget *b)
{
	return a->sent == b->sent && a->received == b->received &&
	       a->per_sec == b->per_sec && a->action == b->action;
}

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->action == b->action && a->kind == b->kind &&
	       (a->kind == TARGET_PREFIX ? addr_equal(&a->prefix.addr, &b->prefix.addr) &&
						   a->prefix.bits == b->prefix.bits
					 : dns_name_equal(&a->name, &b->name)) &&
	       rule_ports_equal(&a->ports, &b->ports) && a->flags == b->flags &&
	       a->types == b->types && a->until_ms == b->until_ms &&
	       same_budget(&a->budget, &b->budget) && strcmp(a->target, b->target) == 0 &&
	       strcmp(a->comment, b->comment) == 0;
}

static bool same_settings(const struct policy *a, const struct policy *b)
{
	return a->default_action == b->default_action && a->verify == b->verify &&
	       a->dns == b->dns && a->denied_names == b->denied_names &&
	       a->repin_ms == b->repin_ms &&
	       a->require_full_isolation == b->require_full_isolation &&
	       a->on_denies.count == b->on_denies.count &&
	       a->on_denies.window_sec == b->on_denies.window_sec &&
	       a->on_denies.action == b->on_denies.action &&
	       a->source_count == b->source_count && a->open_doh == b->open_doh &&
	       same_budget(&a->budget, &b->budget) &&
	       memcmp(a->limits, b->limits, sizeof(a->limits)) == 0;
}

/* @rule is the one more, as number @at. */
static bool is_one_rule_more(const struct policy *before, const struct policy *after,
			     const struct rule *rule, size_t at)
{
	if (after->count != before->count + 1 || !same_rule(&after->rules[at], rule) ||
	    !same_settings(before, after))
		return false;
	for (size_t i = 0; i < before->count; i++) {
		const struct rule *a = &before->rules[i],
				  *b = &after->rules[i + (i >= at)];

		if (!same_rule(a, b) || strcmp(a->file, b->file) != 0)
			return false;
	}
	return true;
}

/* A deny of an address counts in whatever order. */
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

/* A position in a text, and what is inserted there. */
struct position {
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

/* The offset of @n, or the text's end. */
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
		       struct arena *arena, struct position *ret)
{
	ret->line = list->key_line + 1;
	ret->at = line_start(t, ret->line);
	ret->put = arena_printf(arena, "%*s- %s%s", (int)list->column - 1, "", rule,
				line_end(t));
}

static void into_brackets(struct text t, const struct node *n, const char *what,
			  struct arena *arena, struct position *ret)
{
	ret->line = n->line;
	ret->at = offset_of(t, n) + 1;
	ret->put = arena_printf(arena, "%s%s", what, n->count > 0 ? ", " : "");
}

static void at_the_end(struct text t, const char *rule, struct arena *arena,
		       struct position *ret)
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

/* Return: false: no position is certain. */
static bool find_position(struct text t, const struct node *root, const char *rule,
			  struct arena *arena, struct position *ret)
{
	const struct node *wrapper = find_key(root, "network_policy");
	const struct node *map = wrapper ?: root, *list = find_key(map, "egress");

	*ret = (struct position){ 0 };
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

static bool is_json(const char *path, struct text t)
{
	return policy_format_guess(path, t) == POLICY_FORMAT_JSON;
}

static struct text insert(struct text t, const struct position *p, struct arena *arena)
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

static int read_edited(const char *path, struct text text, bool json, struct arena *arena,
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

/* The lines of @t from @line on begin a rule of a list, with comments above it. Return:
 * the first of these lines; 0: that isn't so. */
static uint32_t item_start(struct text t, uint32_t line)
{
	struct text rest = { t.ptr + line_start(t, line), 0 }, one;

	rest.len = t.len - (size_t)(rest.ptr - t.ptr);
	if (line == 0 || !text_split(&rest, '\n', &one))
		return 0;
	one = text_trim(one);
	if (one.len < 2 || one.ptr[0] != '-' || one.ptr[1] != ' ')
		return 0;
	for (; line > 1; line--) {
		rest.ptr = t.ptr + line_start(t, line - 1);
		rest.len = t.len - (size_t)(rest.ptr - t.ptr);
		if (!text_split(&rest, '\n', &one) || text_trim(one).len == 0 ||
		    text_trim(one).ptr[0] != '#')
			break;
	}
	return line;
}

/* Before the first rule of the file whose target is a greater text. Return: the rule's
 * number; 0: in front of all, where find_position() has put it. */
static size_t move_by_target(const char *path, struct text t, const struct policy *p,
			     const struct rule *rule, struct position *position)
{
	size_t i = 0;
	uint32_t line = 0;

	while (i < p->count && strcmp(p->rules[i].file, path) == 0 &&
	       strcmp(p->rules[i].target, rule->target) < 0)
		i++;
	if (i == 0)
		return 0;
	if (i < p->count && strcmp(p->rules[i].file, path) == 0) {
		line = item_start(t, p->rules[i].line);
	} else if (item_start(t, p->rules[i - 1].line) > 0) {
		/* Behind the last one, where that is one line. */
		size_t at = line_start(t, p->rules[i - 1].line);
		struct text rest = { t.ptr + at, t.len - at }, one;

		if (text_split(&rest, '\n', &one) && rest.ptr &&
		    text_without_comment(one).len > 0 &&
		    text_without_comment(one).ptr[text_without_comment(one).len - 1] ==
			    '}')
			line = p->rules[i - 1].line + 1;
	}
	if (line == 0)
		return 0;
	position->line = line;
	position->at = line_start(t, line);
	return i;
}

/* Return: 0 and *@after is what comes of it; -EINVAL: the place isn't good. */
static int try_position(const char *path, struct text text, const struct reading *before,
			const struct rule *rule, const struct position *position,
			size_t at, struct arena *arena, struct reading *after,
			struct policy_edited *ret)
{
	struct err why = { 0 };

	ret->text = insert(text, position, arena);
	if (!ret->text.ptr)
		return -ENOMEM;
	return read_policy(path, ret->text, arena, after, &why) < 0 ||
			       !is_one_rule_more(&before->policy, &after->policy, rule,
						 at)
		       ? -EINVAL
		       : 0;
}

/* The rule @at decides its own name: no rule before it matches the name. */
static bool decides(const struct reading *after, size_t at)
{
	const struct rule *r = &after->policy.rules[at];

	return opens(&after->plan, r) &&
	       (r->kind != TARGET_NAME ||
		plan_match_name(&after->plan, &r->name).rule == at);
}

static int put_rule(const char *path, struct text text, const struct reading *before,
		    const struct rule *rule, const char *shown, bool sorted,
		    struct arena *arena, struct policy_edited *ret, struct err *err)
{
	CLEAN(reading) struct reading after = { 0 }, moved = { 0 };
	const bool json = is_json(path, text);
	struct node *root = NULL;
	struct position position, other;
	int r = read_edited(path, text, json, arena, &root);
	size_t at = 0;

	if (r == -ENOMEM)
		return err_sys(err, r, "cannot read the policy");
	if (r < 0 || !find_position(text, root, shown, arena, &position))
		return by_hand(err, "there is no place in it that can be told", shown);
	other = position;
	if (sorted && !json)
		at = move_by_target(path, text, &before->policy, rule, &other);
	if (at > 0 &&
	    try_position(path, text, before, rule, &other, at, arena, &moved, ret) == 0 &&
	    decides(&moved, at)) {
		ret->line = moved.policy.rules[at].line;
		return 0;
	}
	r = try_position(path, text, before, rule, &position, 0, arena, &after, ret);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	if (r < 0)
		return by_hand(err, "it would mean something else", shown);
	if (!opens(&after.plan, &after.policy.rules[0]))
		return by_hand(err, "a deny of this address counts all the same", shown);
	print_warnings(&after, &after.policy.rules[0]);
	ret->line = after.policy.rules[0].line;
	return 0;
}

int policy_edit(const char *path, struct text text, const char *rule, bool sorted,
		struct arena *arena, struct policy_edited *ret, struct err *err)
{
	char *yaml = arena_alloc(arena, POLICY_RULE_SIZE);
	CLEAN(reading) struct reading before = { 0 }, alone = { 0 };
	const char *whole = arena_printf(arena, "{\"egress\":[%s]}", rule);
	const struct rule *wanted;
	int r;

	*ret = (struct policy_edited){ .text = text };
	if (!whole || !yaml)
		return err_set(err, -ENOMEM, "out of memory");
	r = read_policy(path, text, arena, &before, err);
	if (r == 0)
		r = read_policy("rule.json", text_of(whole), arena, &alone, err);
	if (r < 0)
		return r;
	wanted = &alone.policy.rules[0];
	if (!rule_write_yaml(wanted, yaml, POLICY_RULE_SIZE))
		return err_set(err, -EINVAL, "the rule is too long");
	ret->rule = is_json(path, text) ? rule : yaml;
	for (size_t i = 0; i < before.policy.count; i++)
		if (same_rule(&before.policy.rules[i], wanted) &&
		    opens(&before.plan, wanted))
			return 0;
	return put_rule(path, text, &before, wanted, ret->rule, sorted, arena, ret, err);
}
