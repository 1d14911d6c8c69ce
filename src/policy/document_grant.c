// SPDX-License-Identifier: Apache-2.0
/* Grants that stand side by side.
 *
 * HOW IT WORKS
 * Of the rules for one name the first that hasn't ended decides alone. So two grants of a
 * name, of port 443 until ten and of port 22 until twelve, are two rules like this:
 *
 *     {"target":"a.test","ports":["22","443"],"until":"10:00"}
 *     {"target":"a.test","ports":["22"],"until":"12:00"}
 *
 * The rules of the target that decide one after the other, each until its end, are what
 * is there. The new one is added to each of them as long as it lasts, which makes rules
 * in front; what decides later is left as it is. Rules behind a pattern that covers the
 * name, and after which they don't decide, are left alone too.
 *
 * Rules for an address add up by themselves. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/timestamp.h"
#include "policy/document_internal.h"
#include "policy/rule.h"

/* A rule with what it says. */
struct part {
	const struct document_rule *rule;
	struct text own[DOCUMENT_RULE_KEYS];
	int64_t end_ms; /* wall clock; INT64_MAX: it has none */
};

struct granting {
	struct document *d; /* that is made: the rules in front come first */
	struct part grant;
	struct rule target; /* of the grant */
	int64_t from_ms;    /* the rules that were looked at decide until then */
	bool is_done;	    /* @grant has all its time */
};

static int read_part(struct document *d, const struct document_rule *rule,
		     struct part *ret)
{
	int r = document_read_own(d, rule, ret->own);
	const struct text until = ret->own[KEY_UNTIL];

	ret->rule = rule;
	ret->end_ms = INT64_MAX;
	/* What is no time is a fault when a policy is made of it. */
	if (r == 0 && until.len > 2)
		(void)!timestamp_parse((struct text){ until.ptr + 1, until.len - 2 },
				       &ret->end_ms);
	return r;
}

static bool has_item(const struct document_out *items, struct text wanted)
{
	struct text rest = { items->bytes, items->used }, item;

	while (rest.ptr && text_split(&rest, ',', &item))
		if (document_same_text(item, wanted))
			return true;
	return false;
}

/* The items of the list @value behind those in @out, "443,tcp/22". */
static int put_items(struct arena *arena, struct text value, struct document_out *out)
{
	struct json_cursor c = { value.ptr, value.ptr + value.len, 1, 1 };

	if (!value.ptr || json_cursor_peek(&c) != JSON_KIND_ARRAY)
		return 0;
	json_cursor_enter(&c);
	while (json_cursor_next(&c)) {
		struct text item;

		if (json_cursor_peek(&c) != JSON_KIND_STRING)
			item = json_cursor_skip(&c);
		else if (json_cursor_string(&c, arena, &item) < 0)
			return -ENOMEM;
		if (has_item(out, item))
			continue;
		document_put_text(out, out->used > 0 ? "," : "");
		document_put_text(out, arena_text(arena, item) ?: "");
	}
	return out->failed ? -ENOMEM : 0;
}

/* "a,b" as ["a","b"]. */
static int write_list(struct arena *arena, const char *items, struct text *ret)
{
	CLEAN(document_out) struct document_out out = { 0 };
	struct text rest = text_of(items), item;
	const char *before = "[\"";

	for (; text_split(&rest, ',', &item); before = "\",\"") {
		document_put_text(&out, before);
		document_put_text(&out, arena_text(arena, item) ?: "");
	}
	document_put_text(&out, "\"]");
	*ret = (struct text){ arena_text(arena, (struct text){ out.bytes, out.used }),
			      out.used };
	return out.failed || !ret->ptr ? -ENOMEM : 0;
}

/* The ports of @a and, unless it is NULL, of @b as one list. A rule without has the
 * default list. */
static int join_ports(struct arena *arena, struct text a, const struct text *b,
		      struct text *ret, struct err *err)
{
	CLEAN(document_out) struct document_out out = { 0 };
	char text[PLAN_PORT_RANGES_MAX * 24];
	struct rule_ports ports;
	int r;

	*ret = (struct text){ 0 };
	if (!a.ptr && (!b || !b->ptr))
		return 0;
	document_put_text(&out, !a.ptr || (b && !b->ptr) ? "default" : "");
	r = put_items(arena, a, &out);
	if (r == 0 && b)
		r = put_items(arena, *b, &out);
	if (r == 0)
		r = rule_ports_read((struct text){ out.bytes, out.used }, arena, &ports,
				    err);
	if (r == 0 && ports.count > 0)
		r = write_list(arena, rule_ports_text(&ports, text, sizeof(text)), ret);
	return r;
}

/* What @has and the grant say together, until the sooner of both ends. *@ret_adds: it is
 * more than @has. */
static int join(struct granting *g, const struct part *has, struct part *ret,
		bool *ret_adds, struct err *err)
{
	const struct text *own = g->grant.own;
	struct arena *arena = &g->d->arena;
	struct text alone;
	int r = join_ports(arena, has->own[KEY_PORTS], NULL, &alone, err);

	*ret = *has;
	if (r == 0)
		r = join_ports(arena, has->own[KEY_PORTS], &own[KEY_PORTS],
			       &ret->own[KEY_PORTS], err);
	if (r < 0)
		return r;
	*ret_adds = !document_same_text(alone, ret->own[KEY_PORTS]);
	for (enum document_key k = KEY_TYPES; k <= KEY_UNMETERED; k++) {
		CLEAN(document_out) struct document_out words = { 0 };

		if (!own[k].ptr || document_same_text(own[k], has->own[k]))
			continue;
		*ret_adds = true;
		ret->own[k] = own[k];
		if (k != KEY_TYPES)
			continue;
		r = put_items(arena, has->own[k], &words);
		if (r == 0)
			r = put_items(arena, own[k], &words);
		if (r == 0)
			r = write_list(arena, words.bytes ?: "", &ret->own[k]);
		if (r < 0)
			return r;
	}
	if (g->grant.end_ms < has->end_ms)
		ret->own[KEY_UNTIL] = own[KEY_UNTIL];
	return 0;
}

static int put_in_front(struct granting *g, const struct part *part)
{
	struct document_rule rule = { .action = POLICY_ALLOW,
				      .target = g->grant.rule->target };
	int r = document_write_own(g->d, part->own, &rule.own);

	return r == 0 ? document_copy_rule(g->d, &rule) : r;
}

/* A budget counts for one rule: another one in front of it would lift it. */
static int leave_to_person(const struct granting *g, const char *why, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];

	return err_set(err, -EPERM, "the rule for '%s' %s: change it by hand",
		       text_escape(g->grant.rule->target, shown, sizeof(shown)), why);
}

/* @has, for the granted name, decides from g->from_ms until its end. *@ret_gone: what is
 * put in front takes its place. */
static int add_to(struct granting *g, const struct part *has, bool *ret_gone,
		  struct err *err)
{
	struct part joined;
	bool adds;
	int r;

	/* What asks, or is denied, does so again when the grant ends. */
	if (has->rule->action != POLICY_ALLOW) {
		*ret_gone = g->grant.end_ms == INT64_MAX;
		g->is_done = true;
		return put_in_front(g, &g->grant);
	}
	if (has->own[KEY_BUDGET].ptr)
		return leave_to_person(g, "has a budget", err);
	r = join(g, has, &joined, &adds, err);
	if (r < 0)
		return r;
	*ret_gone = g->grant.end_ms >= has->end_ms &&
		    (adds || g->d->count > 0 || has->end_ms < INT64_MAX);
	g->is_done = g->grant.end_ms <= has->end_ms;
	g->from_ms = has->end_ms;
	return adds || *ret_gone ? put_in_front(g, &joined) : 0;
}

/* The grant is put in front unless @has opens as much, as long. */
static int add_address(struct granting *g, const struct part *has, struct err *err)
{
	struct part joined;
	bool adds = true;
	int r;

	if (has->rule->action != POLICY_ALLOW)
		return 0;
	r = join(g, has, &joined, &adds, err);
	g->is_done = r == 0 && !adds && g->grant.end_ms <= has->end_ms &&
		     !has->own[KEY_BUDGET].ptr;
	return r;
}

static bool is_same_target(const struct granting *g, const struct document_rule *rule)
{
	return document_compare_targets(rule->target, g->grant.rule->target) == 0;
}

/* The deny of an address counts wherever it stands. It gives way for good or not at all,
 * and so does what it has kept closed. */
static int replace_denied(struct granting *g, const struct document *old, bool *gone,
			  struct err *err)
{
	bool denies = false;

	for (size_t i = 0; i < old->count && g->target.kind == TARGET_PREFIX; i++)
		denies |= is_same_target(g, &old->rules[i]) &&
			  old->rules[i].action == POLICY_DENY;
	if (denies && g->grant.end_ms < INT64_MAX)
		return leave_to_person(g, "denies it", err);
	for (size_t i = 0; i < old->count && denies; i++)
		gone[i] = is_same_target(g, &old->rules[i]);
	return 0;
}

/* The pattern of @rule, or the same name in other letters, decides before what follows.
 */
static bool is_decided_by(const struct document_rule *rule, const struct rule *target)
{
	struct rule pattern = { 0 };

	if (target->kind != TARGET_NAME ||
	    rule_target_parse(rule->target, &pattern, NULL) < 0 ||
	    pattern.kind == TARGET_PREFIX ||
	    !dns_name_is_within(&target->name, &pattern.name))
		return false;
	return pattern.kind == TARGET_WITHIN ||
	       dns_name_equal(&target->name, &pattern.name) ==
		       (pattern.kind == TARGET_NAME);
}

static int add_rules(struct granting *g, const struct document *old, int64_t now_ms,
		     bool *gone, struct err *err)
{
	bool is_covered = false;
	int r = replace_denied(g, old, gone, err);

	g->from_ms = now_ms;
	for (size_t i = 0; r == 0 && i < old->count && !is_covered && !g->is_done; i++) {
		const struct document_rule *rule = &old->rules[i];
		struct part has;
		const bool is_same = is_same_target(g, rule);

		if (gone[i] || (!is_same && !is_decided_by(rule, &g->target)))
			continue;
		r = read_part(g->d, rule, &has);
		if (!is_same)
			is_covered = has.end_ms > now_ms;
		else if (r < 0 ||
			 (has.end_ms <= g->from_ms && rule->action == POLICY_ALLOW))
			gone[i] = r == 0;
		else
			r = g->target.kind == TARGET_NAME ? add_to(g, &has, &gone[i], err)
							  : add_address(g, &has, err);
	}
	return r == 0 && !g->is_done ? put_in_front(g, &g->grant) : r;
}

int document_grant(const struct document *old, struct text body, int64_t now_ms,
		   struct document **ret, struct err *err)
{
	CLEAN(document) struct document *patch = NULL, *d = NULL;
	CLEAN(mem) bool *gone = calloc(old->count + 1, sizeof(*gone));
	struct granting g = { 0 };
	int r = document_check_open(old, err);

	if (r == 0)
		r = document_read_patch(body, &patch, err);
	if (r < 0)
		return r;
	d = g.d = document_copy_settings(old);
	if (!gone || !d || document_settle_ends(patch, now_ms) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	if (patch->count > 0) {
		const struct document_rule *rule = &patch->rules[0];

		if (patch->count > 1 || rule->action != POLICY_ALLOW ||
		    rule_target_parse(rule->target, &g.target, err) < 0 ||
		    (g.target.kind != TARGET_NAME && g.target.kind != TARGET_PREFIX))
			return err_set(err, -EINVAL,
				       "a grant allows one name or one address");
		r = read_part(d, rule, &g.grant);
		if (r == 0 && (g.grant.own[KEY_FOR].ptr || (g.grant.own[KEY_UNTIL].ptr &&
							    g.grant.end_ms == INT64_MAX)))
			return err_set(err, -EINVAL, "a grant ends at a time, or never");
		if (r == 0)
			r = add_rules(&g, old, now_ms, gone, err);
	}
	for (size_t i = 0; r == 0 && i < old->count; i++)
		if (!gone[i])
			r = document_copy_rule(d, &old->rules[i]);
	if (r == 0)
		r = document_settle_ends(d, now_ms);
	if (r < 0)
		return r == -ENOMEM ? err_set(err, -ENOMEM, "out of memory") : r;
	*ret = TAKE_PTR(d);
	return 0;
}
