// SPDX-License-Identifier: Apache-2.0
#include "policy/explain.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "event/json.h"
#include "policy/limits.h"
#include "policy/rule.h"

const char *policy_action_name(enum policy_action action)
{
	static const char *const names[] = { "deny", "allow", "ask" };

	return (size_t)action < ARRAY_SIZE(names) ? names[action] : names[POLICY_DENY];
}

char *policy_explain_ports(const struct plan *p, uint8_t list, char *buf, size_t size)
{
	const struct plan_port_range *ranges;
	size_t count;

	if (list == 0) {
		snprintf(buf, size, "all but 53 and 853%s",
			 plan_verify(p) == POLICY_VERIFY_TLS ? " (and udp/443)" : "");
		return buf;
	}
	ranges = plan_port_list(p, list, &count);
	return rule_ports_format(ranges, count, buf, size);
}

/* As the rule's `ports` has them. */
static const char *named_ports(const struct plan *p, const struct plan_rule *r, char *buf,
			       size_t size)
{
	struct rule_ports ports = { .with_default = r->named_list != r->port_list };

	ports.ranges = plan_port_list(p, r->named_list, &ports.count);
	return rule_ports_text(&ports, buf, size);
}

char *policy_explain_rule(const struct plan *p, uint32_t rule, char *buf, size_t size)
{
	char target[TEXT_ESCAPED_SIZE], file[TEXT_ESCAPED_SIZE], ports[128],
		place[16] = "", until[JTEXT_TIME_SIZE + 8] = "", time[JTEXT_TIME_SIZE];
	struct plan_rule r;

	if (rule >= plan_rule_count(p)) {
		snprintf(buf, size, "the default action (%s)",
			 policy_action_name(plan_default_action(p)));
		return buf;
	}
	r = plan_rule(p, rule);
	text_escape(text_of(r.target), target, sizeof(target));
	text_escape(text_of(r.file), file, sizeof(file));
	if (r.line > 0)
		snprintf(place, sizeof(place), ":%u", r.line);
	if (r.until_ms != 0)
		snprintf(until, sizeof(until), " until %s",
			 jtext_time(r.until_ms, false, time));
	if (r.action != POLICY_DENY && r.flags & PLAN_PORTS_LISTED)
		snprintf(buf, size, "%s %s ports %s%s (%s%s)",
			 policy_action_name(r.action), target,
			 named_ports(p, &r, ports, sizeof(ports)), until, file, place);
	else
		snprintf(buf, size, "%s %s%s (%s%s)", policy_action_name(r.action),
			 target, until, file, place);
	return buf;
}

/* -- the whole policy --------------------------------------------------------------- */

/* The effective policy: one tree of JSON values, printed as JSON, or as YAML whose rules
 * are written on a line each. Both can be read back and mean the same. */

static json_t *ports_json(const struct rule *r)
{
	char buf[PLAN_PORT_RANGES_MAX * 24];
	struct text all, part;
	json_t *list = json_array();
	uint32_t number;

	all = text_of(rule_ports_text(&r->ports, buf, sizeof(buf)));
	while (list && text_split(&all, ',', &part)) {
		bool plain = text_to_u32(part, UINT16_MAX, &number);

		json_array_append_new(list, plain ? json_integer(number)
						  : json_stringn(part.ptr, part.len));
	}
	return list;
}

static json_t *types_json(uint8_t types)
{
	json_t *list = json_array();

	for (size_t i = 0; list && i < RULE_TYPE_COUNT; i++) {
		if (types & 1 << i)
			json_array_append_new(list, json_string(rule_type_words[i]));
	}
	return list;
}

/* "20M", or the number of bytes. */
static json_t *size_json(uint64_t bytes)
{
	static const char units[] = "KMG";
	char text[32];
	size_t unit = 0;

	while (unit < 3 && bytes % 1024 == 0 && bytes >> 10 > 0) {
		bytes /= 1024;
		unit++;
	}
	if (unit == 0)
		return json_integer((json_int_t)bytes);
	snprintf(text, sizeof(text), "%llu%c", (unsigned long long)bytes,
		 units[unit - 1]);
	return json_string(text);
}

static json_t *budget_json(const struct plan_budget *b)
{
	char window[POLICY_WINDOW_SIZE];
	json_t *o = json_object();

	if (b->sent > 0)
		json_object_set_new(o, "sent", size_json(b->sent));
	if (b->received > 0)
		json_object_set_new(o, "received", size_json(b->received));
	if (b->per_sec > 0)
		json_object_set_new(o, "per",
				    json_string(policy_window_text(b->per_sec, window)));
	json_object_set_new(o, "action",
			    json_string(b->action == BUDGET_EVENT ? "event" : "cut"));
	return o;
}

static json_t *rule_json(const struct rule *r)
{
	json_t *o = json_pack("{s:s, s:s}", "action", policy_action_name(r->action),
			      "target", r->target);
	char until[JTEXT_TIME_SIZE];
	int e = o ? 0 : -1;

	if (e == 0 && r->ports.count > 0)
		e = json_object_set_new(o, "ports", ports_json(r));
	if (e == 0 && r->types != 0)
		e = json_object_set_new(o, "types", types_json(r->types));
	for (size_t i = 0; e == 0 && i < RULE_FLAG_COUNT; i++) {
		if (r->flags & rule_flag_words[i].flag)
			e = json_object_set_new(o, rule_flag_words[i].key, json_true());
	}
	if (e == 0 && r->until_ms != 0)
		e = json_object_set_new(
			o, "until", json_string(jtext_time(r->until_ms, true, until)));
	if (e == 0 && (r->budget.sent > 0 || r->budget.received > 0))
		e = json_object_set_new(o, "budget", budget_json(&r->budget));
	if (e == 0 && r->comment[0])
		e = json_object_set_new(o, "comment", json_string(r->comment));
	if (e == 0)
		return o;
	json_decref(o);
	return NULL;
}

json_t *policy_grants_json(const struct plan *p, int64_t wall_ms)
{
	json_t *list = json_array();
	char until[JTEXT_TIME_SIZE];

	for (size_t i = 0; plan_end_count(p) > 0 && i < plan_rule_count(p); i++) {
		const struct plan_rule r = plan_rule(p, i);

		if (r.until_ms > wall_ms)
			json_array_append_new(
				list,
				json_pack("{s:s, s:s, s:I}", "target", r.target, "until",
					  jtext_time(r.until_ms, true, until),
					  "secondsLeft",
					  (json_int_t)((r.until_ms - wall_ms + 999) /
						       1000)));
	}
	return list;
}

static json_t *limits_json(const struct policy *p)
{
	json_t *o = json_object();

	for (size_t i = 0; o && i < LIMIT_COUNT; i++) {
		json_t *value;

		if (p->limits[i] == 0)
			continue;
		value = p->limits[i] == LIMIT_UNLIMITED ? json_string("unlimited")
							: json_integer(p->limits[i]);
		json_object_set_new(o, limit_info(i)->name, value);
	}
	if (o && p->budget.sent > 0)
		json_object_set_new(o, "sent_total", size_json(p->budget.sent));
	return o;
}

/* Everything but the rules. */
static json_t *settings_json(const struct policy *p)
{
	char window[POLICY_WINDOW_SIZE];
	json_t *limits = limits_json(p);
	json_t *o = json_pack("{s:s, s:s, s:s}", "defaultAction",
			      policy_action_name(p->default_action), "verify",
			      p->verify == POLICY_VERIFY_TLS ? "tls" : "dns", "dns",
			      p->dns == POLICY_DNS_PINNED ? "pinned" : "live");

	if (o && p->require_full_isolation)
		json_object_set_new(o, "require_full_isolation", json_true());
	if (o && p->denied_names == POLICY_DENIED_REFUSE)
		json_object_set_new(o, "deniedNames", json_string("refuse"));
	if (o && p->repin_ms > 0)
		json_object_set_new(o, "repin",
				    json_string(policy_window_text(
					    (uint32_t)(p->repin_ms / 1000), window)));
	if (o && p->on_denies.count > 0)
		json_object_set_new(
			o, "on_denies",
			json_pack("{s:i, s:s, s:s}", "count", (int)p->on_denies.count,
				  "window",
				  policy_window_text(p->on_denies.window_sec, window),
				  "action", policy_on_denies_name(p->on_denies.action)));
	if (o && json_object_size(limits) > 0)
		json_object_set(o, "limits", limits);
	json_decref(limits);
	return o;
}

static int show_json(const struct policy *p, FILE *out)
{
	json_t *o = settings_json(p), *rules = json_array();
	int r = o && rules ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < p->count; i++) {
		if (json_array_append_new(rules, rule_json(&p->rules[i])) < 0)
			r = -ENOMEM;
	}
	if (r == 0)
		r = json_object_set(o, "egress", rules) < 0 ? -ENOMEM : 0;
	if (r == 0 && json_dumpf(o, out, JSON_INDENT(2)) < 0)
		r = -ENOMEM;
	if (r == 0)
		fputc('\n', out);
	json_decref(rules);
	json_decref(o);
	return r;
}

/* All of the same kind and profile as the need @first, unless an earlier one was. */
static void explain_needs_like(const struct policy *p, size_t first, const char *prefix,
			       FILE *out)
{
	static const char *const texts[NEED_KIND_COUNT] = {
		[NEED_OWN] = "directories of the sandboxes' own for",
		[NEED_PASS_ENV] = "is passed, where it is set,",
		[NEED_SET_ENV] = "is set, where the caller doesn't set it,",
		[NEED_RW_PRESET] = "what --rw-preset makes writable for",
	};
	const struct policy_need *like = &p->needs[first];
	char shown[TEXT_ESCAPED_SIZE];

	for (size_t i = 0; i < p->need_count; i++) {
		const struct policy_need *n = &p->needs[i];

		if (!n->profile || strcmp(n->profile, like->profile) != 0 ||
		    n->kind != like->kind)
			continue;
		if (i < first)
			return;
		if (i == first)
			fprintf(out, "%sthe profile %s gives `weir run`: %s", prefix,
				n->profile, texts[n->kind]);
		fprintf(out, " %s", text_escape(text_of(n->value), shown, sizeof(shown)));
	}
	fputc('\n', out);
}

void policy_explain_needs(const struct policy *policy, const char *prefix, FILE *out)
{
	for (size_t i = 0; i < policy->need_count; i++) {
		if (policy->needs[i].profile)
			explain_needs_like(policy, i, prefix, out);
	}
}

static void show_head(const struct policy *p, const struct plan *plan, FILE *out)
{
	char shown[TEXT_ESCAPED_SIZE];

	fputs("# The effective policy. Read from:", out);
	for (size_t i = 0; i < p->source_count; i++)
		fprintf(out, "%s %s", i > 0 ? "," : "",
			text_escape(text_of(p->sources[i]), shown, sizeof(shown)));
	fputs(p->source_count > 0 ? "\n" : " the command line\n", out);
	fprintf(out,
		"# Enforced: names by their first rule, addresses by any deny, then any "
		"allow;\n"
		"# everything else is %s. Without `ports` a rule opens all but 53 and "
		"853.\n",
		p->default_action == POLICY_ALLOW ? "allowed"
		: p->default_action == POLICY_ASK ? "asked for"
						  : "denied");
	if (plan_rule_count(plan) > p->count)
		fprintf(out, "# Besides, %zu built-in denies: cloud metadata%s.\n",
			plan_rule_count(plan) - p->count,
			p->default_action != POLICY_DENY ? " and public DoH resolvers"
							 : "");
	policy_explain_needs(p, "# Besides, ", out);
}

/* "key: value" lines; values of JSON are values of YAML. */
static int show_settings(const struct policy *p, FILE *out)
{
	json_t *o = settings_json(p), *value;
	const char *key;

	if (!o)
		return -ENOMEM;
	json_object_foreach(o, key, value)
	{
		fprintf(out, "%s: ", key);
		if (json_is_string(value))
			fputs(json_string_value(value), out); /* one of our own words */
		else
			json_dumpf(value, out, JSON_ENCODE_ANY);
		fputc('\n', out);
	}
	json_decref(o);
	return 0;
}

static int show_rule(const struct rule *r, FILE *out)
{
	char file[TEXT_ESCAPED_SIZE];
	json_t *o = rule_json(r);

	if (!o)
		return -ENOMEM;
	fputs("  - ", out);
	json_dumpf(o, out, 0);
	fprintf(out, " # %s", text_escape(text_of(r->file), file, sizeof(file)));
	if (r->line > 0)
		fprintf(out, ":%u", r->line);
	fputc('\n', out);
	json_decref(o);
	return 0;
}

int cli_policy_show(const struct policy *policy, const struct plan *plan, bool json,
		    FILE *out)
{
	int r;

	if (json)
		return show_json(policy, out);
	show_head(policy, plan, out);
	r = show_settings(policy, out);
	if (r < 0)
		return r;
	fputs(policy->count > 0 ? "egress:\n" : "egress: []\n", out);
	for (size_t i = 0; r == 0 && i < policy->count; i++)
		r = show_rule(&policy->rules[i], out);
	return r;
}
