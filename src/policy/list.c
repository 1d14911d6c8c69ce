// SPDX-License-Identifier: Apache-2.0
/* Files of targets, one a line: what another program writes and a person only reads. */
#include <errno.h>
#include <string.h>

#include "policy/faults.h"
#include "policy/schema.h"

static struct text without_comment(struct text line)
{
	const char *comment = line.len > 0 ? memchr(line.ptr, '#', line.len) : NULL;

	if (comment)
		line.len = (size_t)(comment - line.ptr);
	return text_trim(line);
}

/* The rule of one target, at its place. Return: 0, -EINVAL after a fault, -ENOMEM. */
static int add_line(const struct policy_reader *r, struct rule *rule, struct text target,
		    struct policy *policy)
{
	struct err err = { 0 };

	if (rule_target_parse(target, rule, &err) < 0) {
		faults_add(r->faults, FAULT_ERROR, rule->file, rule->line, rule->column,
			   "", "%s", err.text);
		return -EINVAL;
	}
	rule->target = arena_text(r->arena, target);
	return rule->target ? policy_add_rule(policy, r->arena, rule) : -ENOMEM;
}

/* How many targets stand in @text. */
static size_t count_targets(struct text text)
{
	struct text line;
	size_t count = 0;

	while (text_split(&text, '\n', &line))
		count += without_comment(line).len > 0;
	return count;
}

int policy_read_list(const struct policy_reader *r, const char *file, struct text text,
		     struct policy *policy)
{
	const struct node_source source = {
		.arena = r->arena, .faults = r->faults, .file = file, .text = text
	};
	struct text line;
	uint32_t number = 0;
	int result = 0;

	if (!node_check_text(&source))
		return -EINVAL;
	if (policy_reserve_rules(policy, r->arena, count_targets(text)) < 0)
		return -ENOMEM;
	while (result != -ENOMEM && text_split(&text, '\n', &line)) {
		struct text target = without_comment(line);
		struct rule rule = { .action = POLICY_ALLOW,
				     .comment = "",
				     .file = file,
				     .line = ++number };
		int e;

		if (target.len == 0)
			continue;
		rule.column = (uint32_t)(target.ptr - line.ptr) + 1;
		e = add_line(r, &rule, target, policy);
		result = e < 0 ? e : result;
	}
	return result;
}
