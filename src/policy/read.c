// SPDX-License-Identifier: Apache-2.0
/* From texts to rules: files of targets, documents and what they extend, the rules of the
 * command line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/schema.h"

int policy_reserve_rules(struct policy *p, struct arena *arena, size_t more)
{
	struct rule *grown;

	if (more <= p->capacity - p->count)
		return 0;
	grown = arena_array(arena, p->count + more, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	if (p->count > 0)
		memcpy(grown, p->rules, p->count * sizeof(*grown));
	p->rules = grown;
	p->capacity = p->count + more;
	return 0;
}

int policy_add_rule(struct policy *p, struct arena *arena, const struct rule *r)
{
	if (p->count == p->capacity &&
	    policy_reserve_rules(p, arena, MAX(p->count, (size_t)32)) < 0)
		return -ENOMEM;
	p->rules[p->count++] = *r;
	return 0;
}

int policy_add_source(struct policy *p, struct arena *arena, const char *file)
{
	const char **grown = arena_array(arena, p->source_count + 1, sizeof(char *));

	if (!grown)
		return -ENOMEM;
	if (p->source_count > 0)
		memcpy(grown, p->sources, p->source_count * sizeof(char *));
	grown[p->source_count++] = file;
	p->sources = grown;
	return 0;
}

/* -- files of targets, one a line --------------------------------------------------- */

int policy_read_targets(const struct policy_reader *r, const char *file, struct text text,
			const struct policy_targets *how, struct policy *policy)
{
	struct text rest = text, line;
	uint32_t number = 0;
	size_t count = 0;
	int result = 0;

	while (text_split(&rest, '\n', &line))
		count += how->cut(line).len > 0;
	if (policy_reserve_rules(policy, r->arena, count) < 0)
		return -ENOMEM;
	while (result != -ENOMEM && text_split(&text, '\n', &line)) {
		struct text target = how->cut(line);
		struct rule rule = { .action = how->action,
				     .comment = "",
				     .file = file,
				     .line = ++number };
		int e;

		if (target.len == 0)
			continue;
		rule.column = (uint32_t)(target.ptr - line.ptr) + 1;
		e = how->parse(r, target, &rule);
		if (e == 1) {
			rule.target = arena_text(r->arena, target);
			e = rule.target ? policy_add_rule(policy, r->arena, &rule)
					: -ENOMEM;
		}
		result = faults_worse(result, e);
	}
	return result;
}

static int parse_listed(const struct policy_reader *r, struct text t, struct rule *rule)
{
	struct err err = { 0 };

	if (rule_target_parse(t, rule, &err) == 0)
		return 1;
	faults_add(r->faults, FAULT_ERROR, rule->file, rule->line, rule->column, "", "%s",
		   err.text);
	return -EINVAL;
}

/* -- documents ---------------------------------------------------------------------- */

/* The documents that are being read, innermost first: for cycles and depth. */
struct reading {
	const struct reading *from;
	const char *file;
	size_t depth;
};

static int read_document(const struct policy_reader *r, const struct reading *reading,
			 struct text text, enum policy_format format,
			 struct policy *policy);

static bool ends_with(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);

	return a >= b && strcmp(text + a - b, end) == 0;
}

enum policy_format policy_format_guess(const char *file, struct text text)
{
	struct text t = text_trim(text);

	if (ends_with(file, ".json"))
		return POLICY_FORMAT_JSON;
	if (ends_with(file, ".yaml") || ends_with(file, ".yml"))
		return POLICY_FORMAT_YAML;
	return t.len > 0 && t.ptr[0] == '{' ? POLICY_FORMAT_JSON : POLICY_FORMAT_YAML;
}

static void named_fault(const struct policy_reader *r, const char *file,
			const struct node *n, const char *key, size_t i, const char *why)
{
	char path[64];

	snprintf(path, sizeof(path), "%s[%zu]", key, i);
	faults_add(r->faults, FAULT_ERROR, file, n->line, n->column, path, "'%s' %s",
		   TEXT_SHOWN(n->text), why);
}

static int read_extended(const struct policy_reader *r, const struct reading *from,
			 const struct node *n, size_t i, struct policy *policy)
{
	struct reading reading = { .from = from, .depth = from->depth + 1 };
	const struct reading *same = from;
	struct err err = { 0 };
	struct text text;
	const char *name;
	char *cycle;
	int e;

	if (reading.depth > POLICY_EXTENDS_MAX) {
		named_fault(r, from->file, n, "extends", i,
			    "is extended too deeply: eight documents at most");
		return -EINVAL;
	}
	if (!r->load) {
		named_fault(r, from->file, n, "extends", i, "can't be extended here");
		return -EINVAL;
	}
	name = arena_text(r->arena, n->text);
	if (!name)
		return -ENOMEM;
	e = r->load(r->load_data, name, from->file, &text, &reading.file, &err);
	if (e == -ENOMEM)
		return e;
	if (e < 0) {
		named_fault(r, from->file, n, "extends", i,
			    arena_printf(r->arena, "can't be extended: %s", err.text)
				    ?: "");
		return -EINVAL;
	}
	while (same && strcmp(same->file, reading.file) != 0)
		same = same->from;
	if (same) {
		/* "a.yaml extends b.yaml extends a.yaml" */
		cycle = arena_text(r->arena, text_of(reading.file));
		for (const struct reading *at = from; cycle; at = at->from) {
			cycle = arena_printf(r->arena, "%s extends %s", at->file, cycle);
			if (at == same)
				break;
		}
		named_fault(r, from->file, n, "extends", i,
			    arena_printf(r->arena, "extends in a circle: %s", cycle ?: "")
				    ?: "");
		return -EINVAL;
	}
	return read_document(r, &reading, text, POLICY_FORMAT_GUESS, policy);
}

/* The targets of a file that `allow-list` names. */
static int read_named_list(const struct policy_reader *r, const struct reading *from,
			   const struct node *n, size_t i, struct policy *policy)
{
	static const struct policy_targets how = { POLICY_ALLOW, text_without_comment,
						   parse_listed };
	struct node_source source;
	const char *name = arena_text(r->arena, n->text), *file = NULL;
	struct err err = { 0 };
	struct text text;
	int e;

	if (!name)
		return -ENOMEM;
	e = r->load ? r->load(r->load_data, name, from->file, &text, &file, &err)
		    : err_set(&err, -EPERM, "not here");
	if (e == 0)
		e = policy_add_source(policy, r->arena, file);
	if (e == -ENOMEM)
		return e;
	if (e < 0) {
		named_fault(r, from->file, n, "allow-list", i,
			    arena_printf(r->arena, "can't be read: %s", err.text) ?: "");
		return -EINVAL;
	}
	/* A program writes such a file, a person only reads it. */
	source = (struct node_source){
		.arena = r->arena, .faults = r->faults, .file = file, .text = text
	};
	return node_check_text(&source) ? policy_read_targets(r, file, text, &how, policy)
					: -EINVAL;
}

/* Own rules first, then those of its list files, then those of each extended document
 * in order. */
static int read_document(const struct policy_reader *r, const struct reading *reading,
			 struct text text, enum policy_format format,
			 struct policy *policy)
{
	CLEAN(arena) struct arena tree = { 0 };
	const struct node_source source = {
		.arena = &tree, .faults = r->faults, .file = reading->file, .text = text
	};
	struct schema_document d = { .policy = policy,
				     .arena = r->arena,
				     .faults = r->faults,
				     .file = reading->file,
				     .now_ms = r->now_ms };
	struct node *root = NULL;
	int e = policy_add_source(policy, r->arena, reading->file);
	int result;

	if (e < 0)
		return e;
	if (text.len > POLICY_TEXT_MAX) {
		faults_add(r->faults, FAULT_ERROR, reading->file, 0, 0, "",
			   "the file is too large: %d bytes at most", POLICY_TEXT_MAX);
		return -EINVAL;
	}
	if (!node_check_text(&source))
		return -EINVAL;
	if (format == POLICY_FORMAT_GUESS)
		format = policy_format_guess(reading->file, text);
	e = format == POLICY_FORMAT_JSON ? node_read_json(&source, &root)
					 : node_read_yaml(&source, &root);
	if (e < 0 || !root)
		return e;
	result = schema_read(&d, root);
	for (size_t i = 0; result != -ENOMEM && i < d.list_count; i++)
		result = faults_worse(result,
				      read_named_list(r, reading, d.lists[i], i, policy));
	for (size_t i = 0; result != -ENOMEM && i < d.extends_count; i++)
		result = faults_worse(result,
				      read_extended(r, reading, d.extends[i], i, policy));
	return result;
}

int policy_read(const struct policy_reader *r, const char *file, struct text text,
		enum policy_format format, struct policy *policy)
{
	struct reading reading = { .file = arena_text(r->arena, text_of(file)) };

	if (!reading.file)
		return -ENOMEM;
	return read_document(r, &reading, text, format, policy);
}

/* -- rules of the command line ------------------------------------------------------ */

/* Cut "TARGET:PORTS". An IPv6 address with ports is in brackets; without brackets
 * everything is the target when it has two colons. */
static bool split_option(struct text value, struct text *ret_target,
			 struct text *ret_ports)
{
	const char *colon = value.len > 0 ? memchr(value.ptr, ':', value.len) : NULL;
	const char *end = value.ptr + value.len;
	const char *close;

	*ret_target = value;
	*ret_ports = (struct text){ 0 };
	if (value.len > 0 && value.ptr[0] == '[') {
		struct addr a;

		close = memchr(value.ptr, ']', value.len);
		if (!close || close + 1 >= end || close[1] != ':')
			return false;
		*ret_target =
			(struct text){ value.ptr + 1, (size_t)(close - value.ptr - 1) };
		*ret_ports = (struct text){ close + 2, (size_t)(end - close - 2) };
		close = memchr(ret_target->ptr, '/', ret_target->len);
		return addr_parse(ret_target->ptr,
				  close ? (size_t)(close - ret_target->ptr)
					: ret_target->len,
				  &a) &&
		       a.family == ADDR_V6;
	}
	if (!colon || memchr(colon + 1, ':', (size_t)(end - colon - 1)))
		return true;
	if (value.len > 3 && memmem(value.ptr, value.len, "://", 3))
		return true; /* the target's own message is better */
	ret_target->len = (size_t)(colon - value.ptr);
	*ret_ports = (struct text){ colon + 1, (size_t)(end - colon - 1) };
	return true;
}

static int option_fault(const struct policy_reader *r, const char *option,
			const char *text)
{
	faults_add(r->faults, FAULT_ERROR, option, 0, 0, "", "%s", text);
	return -EINVAL;
}

static int option_ports(const struct policy_reader *r, const char *option,
			struct text text, struct rule *rule)
{
	struct rule_ports ports;
	struct err err = { 0 };
	int e = rule_ports_read(text, r->arena, &ports, &err);

	if (e == -ENOMEM)
		return e;
	if (e < 0)
		return option_fault(r, option, err.text);
	if (rule->kind != TARGET_PREFIX && rule_ports_have(&ports, 53))
		return option_fault(r, option, RULE_NO_DNS_PORT);
	rule->ports = ports;
	if (ports.count > 0)
		rule->flags |= PLAN_PORTS_LISTED;
	return 0;
}

/* What stands behind the target: ports, and the words that a rule can have. */
static int option_parts(const struct policy_reader *r, const char *option,
			struct text target, struct text parts, struct rule *rule)
{
	char *ports = arena_alloc(r->arena, parts.len + 1);
	struct text part;
	size_t used = 0;
	bool words = false;

	if (!ports)
		return -ENOMEM;
	while (text_split(&parts, ',', &part)) {
		const struct text word = text_trim(part);
		const struct rule_flag_word *flag = TEXT_FIND(word, rule_flag_words);
		const char *const *type = TEXT_FIND(word, rule_type_words);

		if (flag)
			rule->flags |= flag->flag;
		if (type)
			rule->types |= (uint8_t)(1 << (type - rule_type_words));
		if (flag || type) {
			words = true;
			continue;
		}
		if (used > 0)
			ports[used++] = ',';
		memcpy(ports + used, part.ptr, part.len);
		used += part.len;
	}
	if (rule->kind == TARGET_PREFIX &&
	    (rule->types != 0 || rule->flags & (PLAN_PRIVATE | PLAN_REQUIRED)))
		return option_fault(
			r, option,
			"an address rule opens what it names: private, required, PTR, "
			"SRV, TXT and MX are for names");
	if (rule->flags & PLAN_UNMETERED && target.ptr[0] != '*')
		return option_fault(r, option,
				    "only the names below a wildcard are metered");
	if (used == 0 && words)
		return 0;
	return option_ports(r, option, (struct text){ ports, used }, rule);
}

/* "--allow x:80 --allow x:443,private" means both: of two rules the second would never
 * be asked. */
static int option_join(const struct policy_reader *r, const char *option,
		       struct rule *old, const struct rule *rule)
{
	char one[PLAN_PORT_RANGES_MAX * 24], other[PLAN_PORT_RANGES_MAX * 24];
	const char *joined;

	old->flags |= rule->flags;
	old->types |= rule->types;
	if (old->ports.count == 0 && rule->ports.count == 0)
		return 0;
	rule_ports_text(&old->ports, one, sizeof(one));
	rule_ports_text(&rule->ports, other, sizeof(other));
	joined = arena_printf(r->arena, "%s,%s", one[0] ? one : "default",
			      other[0] ? other : "default");
	if (!joined)
		return -ENOMEM;
	return option_ports(r, option, text_of(joined), old);
}

/* As the last rule, or before the wildcard of an earlier option that would decide before
 * @rule could: @rule opens as much as that, too. */
static int option_add(const struct policy_reader *r, const char *option,
		      struct policy *policy, struct rule *rule)
{
	const bool may_be_below = rule->action == POLICY_ALLOW &&
				  rule->kind == TARGET_NAME;
	size_t at = may_be_below ? 0 : policy->count;
	struct rule with;
	int e = 0;

	for (; at < policy->count; at++) {
		const struct rule *old = &policy->rules[at];

		if (old->action == POLICY_ALLOW && strcmp(old->file, rule->file) == 0 &&
		    old->kind != TARGET_NAME && rule_covers(old, &rule->name))
			break;
	}
	if (at < policy->count) {
		with = policy->rules[at];
		with.flags &= (uint8_t)~PLAN_UNMETERED;
		e = option_join(r, option, rule, &with);
	}
	if (e == 0)
		e = policy_add_rule(policy, r->arena, rule);
	if (e < 0 || at + 1 >= policy->count)
		return e;
	memmove(&policy->rules[at + 1], &policy->rules[at],
		(policy->count - 1 - at) * sizeof(*rule));
	policy->rules[at] = *rule;
	return 0;
}

int policy_read_option(const struct policy_reader *r, const char *option,
		       enum policy_action action, struct text value,
		       struct policy *policy)
{
	struct rule rule = { .action = action, .comment = "", .file = option };
	struct text target, ports;
	struct err err = { 0 };
	char text[ERR_TEXT_SIZE];
	int e;

	if (!split_option(value, &target, &ports)) {
		snprintf(text, sizeof(text),
			 "'%s' is not a target: write [2001:db8::1]:443 or 2001:db8::1",
			 TEXT_SHOWN(value));
		return option_fault(r, option, text);
	}
	if (rule_target_parse(target, &rule, &err) < 0)
		return option_fault(r, option, err.text);
	if (ports.ptr && action == POLICY_DENY)
		return option_fault(r, option,
				    "a deny refuses every port: write the target alone");
	e = ports.ptr ? option_parts(r, option, target, ports, &rule) : 0;
	if (e < 0)
		return e;
	for (size_t i = 0; action == POLICY_ALLOW && i < policy->count; i++) {
		struct rule *old = &policy->rules[i];

		/* An earlier option made a rule of the same name. */
		if (rule.kind != TARGET_PREFIX && old->kind == rule.kind &&
		    old->action == rule.action && strcmp(old->file, rule.file) == 0 &&
		    dns_name_equal(&old->name, &rule.name))
			return option_join(r, option, old, &rule);
	}
	rule.target = arena_text(r->arena, target);
	if (!rule.target)
		return -ENOMEM;
	return option_add(r, option, policy, &rule);
}
