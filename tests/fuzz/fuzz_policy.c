// SPDX-License-Identifier: Apache-2.0
/* Any text as YAML and as JSON: it is refused with at least one fault that has a place,
 * or it compiles, opens, and the plan decides as judging rule by rule does. */
#include <string.h>

#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static bool rule_matches(const struct rule *r, const struct dns_name *n)
{
	bool same = dns_name_equal(&r->name, n);

	switch (r->kind) {
	case TARGET_NAME:
		return same;
	case TARGET_BELOW:
		return !same && dns_name_is_within(n, &r->name);
	case TARGET_WITHIN:
		return dns_name_is_within(n, &r->name);
	default:
		return false;
	}
}

static uint32_t first_rule(const struct policy *p, const struct dns_name *n)
{
	for (size_t i = 0; i < p->count; i++) {
		if (rule_matches(&p->rules[i], n))
			return (uint32_t)i;
	}
	return PLAN_NO_RULE;
}

static bool is_denied(const struct policy *p, const struct addr *a)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind == TARGET_PREFIX && r->action == POLICY_DENY &&
		    prefix_contains(&r->prefix, a))
			return true;
	}
	return false;
}

/* The name that each rule names, and one below it. */
static void compare_names(const struct policy *p, const struct plan *plan,
			  const struct rule *r)
{
	struct dns_name below = { .size = (uint8_t)(r->name.size + 2),
				  .labels = (uint8_t)(r->name.labels + 1) };
	uint32_t want = first_rule(p, &r->name);
	struct plan_verdict v = plan_match_name(plan, &r->name);

	/* Implicit rules come last: they decide only what no rule names. */
	require(v.rule == want || (want == PLAN_NO_RULE && v.flags & PLAN_IMPLICIT));
	if (r->name.size + 2 > DNS_NAME_MAX)
		return;
	below.bytes[0] = 1;
	below.bytes[1] = 'q';
	memcpy(below.bytes + 2, r->name.bytes, r->name.size);
	want = first_rule(p, &below);
	v = plan_match_name(plan, &below);
	require(v.rule == want || (want == PLAN_NO_RULE && v.flags & PLAN_IMPLICIT));
}

static void compare(const struct policy *p, const struct plan *plan)
{
	for (size_t i = 0; i < p->count && i < 200; i++) {
		const struct rule *r = &p->rules[i];
		struct plan_verdict v;

		if (r->kind != TARGET_PREFIX) {
			compare_names(p, plan, r);
			continue;
		}
		v = plan_match_addr(plan, &r->prefix.addr, IPPROTO_TCP, 0);
		if (is_denied(p, &r->prefix.addr))
			require(v.action == POLICY_DENY);
		else
			require(v.action == POLICY_ALLOW || v.flags & PLAN_IMPLICIT);
	}
}

static void check_faults(const struct faults *f, struct text text)
{
	char line[FAULT_TEXT_SIZE];

	require(f->errors > 0);
	for (size_t i = 0; i < f->count; i++) {
		require(f->items[i].line > 0 && f->items[i].column > 0);
		fault_format(&f->items[i], line, sizeof(line));
		for (const char *c = line; *c; c++)
			require((unsigned char)*c >= 0x20 && (unsigned char)*c != 0x7f);
	}
}

static void run(struct text text, enum policy_format format)
{
	struct arena arena = { 0 };
	struct faults faults = { 0 };
	struct policy policy = { 0 };
	const struct policy_reader reader = { .arena = &arena, .faults = &faults };
	int r = policy_read(&reader, "p", text, format, &policy);
	uint8_t *bytes = NULL;
	struct plan plan;
	size_t size;

	if (r < 0)
		check_faults(&faults, text);
	else
		require(faults.errors == 0);
	if (r == 0 && policy_build(&reader, &policy, NULL, NULL) == 0 &&
	    policy_compile(&policy, &bytes, &size, NULL) == 0) {
		require(plan_open(bytes, size, &plan, NULL) == 0);
		compare(&policy, &plan);
	}
	free(bytes);
	arena_done(&arena);
	faults_done(&faults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text text = { (const char *)data, size };

	run(text, POLICY_FORMAT_YAML);
	run(text, POLICY_FORMAT_JSON);
	return 0;
}
