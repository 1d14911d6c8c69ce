// SPDX-License-Identifier: Apache-2.0
/* What names without a dot come to below the host's search domains. */
#include "policy/load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

void __wrap_search_domains_read(struct search_domains *ret);

void __wrap_search_domains_read(struct search_domains *ret)
{
	*ret = (struct search_domains){ .items = { "one.example", "two.example" },
					.count = 2 };
}

struct world {
	struct arena arena;
	struct faults faults;
	struct policy policy;
	struct plan plan;
	uint8_t *bytes;
};

static int load(struct world *w, const char *rules)
{
	const struct policy_args args = { .file = "p.yaml", .complete = true };
	const struct text text = text_of(rules);
	struct err err = { 0 };
	size_t size;
	int r;

	*w = (struct world){ 0 };
	r = cli_policy_load_text(&args, &text, &w->arena, &w->faults, &w->policy,
				 &w->bytes, &size);
	if (r == 0 && plan_open(w->bytes, size, &w->plan, &err) < 0)
		fail_msg("%s", err.text);
	return r;
}

static void world_done(struct world *w)
{
	faults_done(&w->faults);
	arena_done(&w->arena);
	free(w->bytes);
}

static struct plan_verdict verdict_of(const struct world *w, const char *name)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(name), &n), 0);
	return plan_match_name(&w->plan, &n);
}

static int budget_of(const struct world *w, const char *name)
{
	return plan_budget_of(&w->plan, verdict_of(w, name).rule);
}

static bool is_completed(const struct world *w, const char *name)
{
	const struct plan_verdict v = verdict_of(w, name);

	return v.action == POLICY_ALLOW && v.flags & PLAN_COMPLETED;
}

TEST(the_names_that_a_rule_comes_to_have_its_one_budget)
{
	struct world w;

	assert_int_equal(load(&w,
			      "egress:\n"
			      "- {action: allow, target: host, budget: {sent: 1M}}\n"
			      "- {action: allow, target: a.test, budget: {sent: 2M}}\n"
			      "- {action: allow, target: plain}\n"),
			 0);
	assert_int_equal(plan_budget_count(&w.plan), 2);
	assert_string_equal(plan_rule(&w.plan, plan_budget(&w.plan, 0).rule).target,
			    "host");
	assert_int_equal(budget_of(&w, "host"), 0);
	assert_int_equal(budget_of(&w, "host.one.example"), 0);
	assert_int_equal(budget_of(&w, "host.two.example"), 0);
	assert_int_equal(budget_of(&w, "a.test"), 1);
	assert_int_equal(budget_of(&w, "plain.one.example"), -1);
	assert_true(is_completed(&w, "host.one.example"));
	world_done(&w);
}

TEST(a_pattern_completes_the_names_alone_that_a_rule_has_without_a_dot)
{
	struct world w;

	assert_int_equal(load(&w, "egress:\n"
				  "- {action: allow, target: '**.one.example',"
				  " ports: [80], budget: {sent: 1M}}\n"
				  "- {action: deny, target: '*.two.example'}\n"
				  "- {action: allow, target: host}\n"
				  "- {action: allow, target: other}\n"),
			 0);
	assert_true(is_completed(&w, "host.one.example"));
	assert_true(is_completed(&w, "other.one.example"));
	assert_false(is_completed(&w, "a.one.example"));
	assert_false(is_completed(&w, "host.a.one.example"));
	assert_int_equal(verdict_of(&w, "host.two.example").action, POLICY_DENY);
	/* The pattern decides as before. */
	assert_int_equal(verdict_of(&w, "host.one.example").port_list,
			 verdict_of(&w, "a.one.example").port_list);
	assert_int_equal(plan_budget_count(&w.plan), 1);
	assert_int_equal(budget_of(&w, "host.one.example"), 0);
	assert_string_equal(plan_rule(&w.plan, plan_budget(&w.plan, 0).rule).target,
			    "**.one.example");
	assert_int_equal(budget_of(&w, "host"), -1);
	world_done(&w);
}

TEST(a_name_that_stands_for_several_is_not_required)
{
	static const struct {
		const char *rules;
		int result;
	} rows[] = {
		{ "dns: pinned\n"
		  "egress: [{action: allow, target: host, required: true}]\n",
		  -EINVAL },
		{ "dns: pinned\n"
		  "egress: [{action: allow, target: a.test, required: true}]\n",
		  0 },
		{ "dns: pinned\negress: [{action: allow, target: host}]\n", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w;

		assert_int_equal(load(&w, rows[i].rules), rows[i].result);
		assert_int_equal(w.faults.errors, rows[i].result < 0);
		world_done(&w);
	}
}
