// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * What a policy decides can only change at a target of one of its rules. So the targets
 * of both policies are gathered, each name once for itself and once for what is below
 * it, and both plans are asked about every one of them: order, overlap and `extends`
 * then need no thought. A name below another is asked by a label that no rule has, an
 * address range is asked by an address of it that lies in no smaller target; where
 * smaller ones fill it, they say all. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "event/json.h"
#include "policy/explain.h"
#include "policy/limits.h"
#include "policy/rule.h"
#include "sys/print.h"
#include "tools/policy.h"

enum { STATE_SIZE = 512 };

enum part { PART_NAME = 0, PART_BELOW, PART_PREFIX };

struct target {
	enum part part;
	const struct rule *rule; /* borrowed */
	const char *text;	 /* in the arena */
};

struct targets {
	struct arena arena;
	struct target *items; /* in the arena */
	size_t count;
	bool out_of_memory;
};

/* What a plan says of a target: "" when it is denied. */
struct state {
	char text[STATE_SIZE];
};

static const char *const changes[] = { "gains", "loses", "changes" };

/* --- the targets --- */

static void add_target(struct targets *list, enum part part, const struct rule *rule)
{
	char text[DNS_NAME_TEXT_SIZE]; /* longer than any prefix */
	struct target *t = &list->items[list->count++];

	t->part = part;
	t->rule = rule;
	if (part == PART_PREFIX)
		prefix_format(&rule->prefix, text);
	else
		dns_name_format(&rule->name, text);
	t->text =
		arena_printf(&list->arena, "%s%s", part == PART_BELOW ? "*." : "", text);
	if (!t->text)
		list->out_of_memory = true;
}

static void add_targets(struct targets *list, const struct policy *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind == TARGET_PREFIX)
			add_target(list, PART_PREFIX, r);
		if (r->kind == TARGET_NAME || r->kind == TARGET_WITHIN)
			add_target(list, PART_NAME, r);
		if (r->kind == TARGET_BELOW || r->kind == TARGET_WITHIN)
			add_target(list, PART_BELOW, r);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct target *)a)->text, ((const struct target *)b)->text);
}

/* Both sides have at most two targets a rule. */
static int gather_targets(struct targets *list, const struct policy *a,
			  const struct policy *b)
{
	size_t kept = 0;

	list->items = arena_array(&list->arena, 2 * (a->count + b->count) + 1,
				  sizeof(*list->items));
	if (!list->items)
		return -ENOMEM;
	add_targets(list, a);
	add_targets(list, b);
	if (list->out_of_memory)
		return -ENOMEM;
	qsort(list->items, list->count, sizeof(*list->items), by_text);
	for (size_t i = 0; i < list->count; i++)
		if (kept == 0 ||
		    strcmp(list->items[kept - 1].text, list->items[i].text) != 0)
			list->items[kept++] = list->items[i];
	list->count = kept;
	return 0;
}

/* --- what a plan says --- */

static void describe(const struct plan *plan, uint32_t rule, uint8_t port_list,
		     uint8_t flags, uint8_t types, struct state *ret)
{
	const int64_t until_ms = plan_rule(plan, rule).until_ms;
	static const char *const names[] = { "PTR", "SRV", "TXT", "MX" };
	char ports[256], time[JTEXT_TIME_SIZE];
	size_t used = (size_t)snprintf(
		ret->text, sizeof(ret->text), "%s%s%s",
		policy_explain_ports(plan, port_list, ports, sizeof(ports)),
		flags & PLAN_PRIVATE ? ", private" : "", flags & PLAN_RAW ? ", raw" : "");

	for (size_t i = 0; i < ARRAY_SIZE(names) && used < sizeof(ret->text); i++)
		if (types >> i & 1)
			used += (size_t)snprintf(ret->text + used,
						 sizeof(ret->text) - used, ", %s",
						 names[i]);
	if (until_ms != 0 && used < sizeof(ret->text))
		snprintf(ret->text + used, sizeof(ret->text) - used, ", until %s",
			 jtext_time(until_ms, true, time));
}

static void ask_name(const struct plan *plan, const struct target *t, struct state *ret)
{
	const struct dns_name *name = &t->rule->name;
	struct plan_verdict v = t->part == PART_BELOW ? plan_match_below(plan, name)
						      : plan_match_name(plan, name);

	ret->text[0] = '\0';
	if (v.action == POLICY_ALLOW)
		describe(plan, v.rule, v.port_list, v.flags, v.types, ret);
}

/* Move @a behind the end of @p. Return: false when there is nothing behind it. */
static bool step_over(struct addr *a, const struct prefix *p)
{
	size_t size = addr_size(a);
	unsigned int bits = p->bits;

	memcpy(a->bytes, p->addr.bytes, sizeof(a->bytes));
	while (bits > 0) {
		uint8_t bit = (uint8_t)(0x80 >> ((bits - 1) % 8));
		uint8_t *byte = &a->bytes[(bits - 1) / 8];

		*byte ^= bit;
		if (*byte & bit)
			return (bits - 1) / 8 < size;
		bits--;
	}
	return false;
}

static bool is_smaller(const struct target *t, const struct prefix *whole)
{
	return t->part == PART_PREFIX && t->rule->prefix.bits > whole->bits &&
	       prefix_contains(whole, &t->rule->prefix.addr);
}

/* The first address of @whole that is in no smaller target. */
static bool own_address(const struct targets *list, const struct prefix *whole,
			struct addr *ret)
{
	size_t i = 0;

	*ret = whole->addr;
	while (i < list->count) {
		const struct target *t = &list->items[i++];

		if (!is_smaller(t, whole) || !prefix_contains(&t->rule->prefix, ret))
			continue;
		if (!step_over(ret, &t->rule->prefix) || !prefix_contains(whole, ret))
			return false;
		i = 0;
	}
	return true;
}

/* Every allow that covers the address, one behind the other; a deny ends it. */
static void ask_addr(const struct plan *plan, const struct addr *a, struct state *ret)
{
	size_t used = 0;

	ret->text[0] = '\0';
	for (size_t i = 0; i < plan_prefix_count(plan); i++) {
		struct plan_prefix have = plan_prefix(plan, i);
		struct state one;

		if (have.rule == PLAN_NO_RULE || !prefix_contains(&have.prefix, a))
			continue;
		if (have.action == POLICY_DENY) {
			ret->text[0] = '\0';
			return;
		}
		describe(plan, have.rule, have.port_list, have.flags, 0, &one);
		if (used < sizeof(ret->text))
			used += (size_t)snprintf(ret->text + used,
						 sizeof(ret->text) - used, "%s%s",
						 used > 0 ? "; " : "", one.text);
	}
	if (used == 0 && plan_default_action(plan) == POLICY_ALLOW)
		snprintf(ret->text, sizeof(ret->text), "the default");
}

/* --- saying it --- */

struct output {
	FILE *out;
	json_t *settings, *targets; /* NULL: words */
	size_t count;
};

static void say_setting(struct output *o, const char *name, const char *before,
			const char *after)
{
	if (strcmp(before, after) == 0)
		return;
	o->count++;
	if (o->settings)
		json_array_append_new(o->settings,
				      json_pack("{s:s, s:s, s:s}", "name", name, "before",
						before, "after", after));
	else
		fprintf(o->out, "  %s: %s, was %s\n", name, after, before);
}

static void say_target(struct output *o, const char *target, const struct state *before,
		       const struct state *after)
{
	const char *was = before->text[0] ? before->text : NULL;
	const char *is = after->text[0] ? after->text : NULL;
	int change = !was ? 0 : !is ? 1 : 2;

	if (strcmp(before->text, after->text) == 0)
		return;
	o->count++;
	if (o->targets)
		json_array_append_new(o->targets,
				      json_pack("{s:s, s:s, s:s?, s:s?}", "target",
						target, "change", changes[change],
						"before", was, "after", is));
	else if (change == 0)
		fprintf(o->out, "+ %s: allowed on %s\n", target, is);
	else if (change == 1)
		fprintf(o->out, "- %s: denied, was allowed on %s\n", target, was);
	else
		fprintf(o->out, "~ %s: allowed on %s, was on %s\n", target, is, was);
}

static void compare_settings(struct output *o, const struct policy *a,
			     const struct policy *b)
{
	static const char *const verify[] = { "dns", "tls" };
	static const char *const dns[] = { "live", "pinned" };
	static const char *const denied[] = { "nxdomain", "refuse" };
	char was[POLICY_ON_DENIES_SIZE], is[POLICY_ON_DENIES_SIZE];

	policy_on_denies_text(&a->on_denies, was);
	policy_on_denies_text(&b->on_denies, is);
	say_setting(o, "defaultAction", policy_action_name(a->default_action),
		    policy_action_name(b->default_action));
	say_setting(o, "verify", verify[a->verify], verify[b->verify]);
	say_setting(o, "dns", dns[a->dns], dns[b->dns]);
	say_setting(o, "deniedNames", denied[a->denied_names], denied[b->denied_names]);
	say_setting(o, "on_denies", was[0] ? was : "nothing", is[0] ? is : "nothing");
	say_setting(o, "require_full_isolation",
		    a->require_full_isolation ? "true" : "false",
		    b->require_full_isolation ? "true" : "false");
}

static int compare_targets(struct output *o, const struct cli_policy_side *before,
			   const struct cli_policy_side *after)
{
	struct targets list = { 0 };
	int r = gather_targets(&list, &before->policy, &after->policy);

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		const struct target *t = &list.items[i];
		struct state was, is;
		struct addr a;

		if (t->part != PART_PREFIX) {
			ask_name(&before->plan, t, &was);
			ask_name(&after->plan, t, &is);
		} else if (own_address(&list, &t->rule->prefix, &a)) {
			ask_addr(&before->plan, &a, &was);
			ask_addr(&after->plan, &a, &is);
		} else {
			continue;
		}
		say_target(o, t->text, &was, &is);
	}
	arena_done(&list.arena);
	return r;
}

int cli_policy_diff(const struct cli_policy_side *before,
		    const struct cli_policy_side *after, bool json, FILE *out)
{
	struct output o = { .out = out };
	int r;

	if (json) {
		o.settings = json_array();
		o.targets = json_array();
	}
	compare_settings(&o, &before->policy, &after->policy);
	r = compare_targets(&o, before, after);
	if (r == 0 && json)
		r = print_json(json_pack("{s:b, s:O, s:O}", "equal", o.count == 0,
					 "settings", o.settings, "targets", o.targets),
			       0, out) < 0
			    ? -ENOMEM
			    : 0;
	else if (r == 0 && o.count == 0)
		fputs("the policies decide the same\n", out);
	json_decref(o.settings);
	json_decref(o.targets);
	return r < 0 ? r : (int)MIN(o.count, INT32_MAX);
}
