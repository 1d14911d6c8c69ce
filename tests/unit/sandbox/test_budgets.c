// SPDX-License-Identifier: Apache-2.0
#include "sandbox/budgets.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"

#include "policy/policy.h"
#include "test_plan.h"

enum { HOUR = 3600 * 1000, NOW = 1000, FIRST = 0, SECOND, THIRD, RULES };

struct world {
	uint8_t *bytes;
	struct plan plan;
	struct budgets *budgets;
};

/* a.test: 100 bytes an hour up, and 50 down; b.test: 100 for good, told of; c.test: any;
 * 1000 bytes in all when @total. */
static struct world open_world(const struct budgets *old, bool total, int64_t now_ms)
{
	static const char *const names[RULES] = { "a.test", "b.test", "c.test" };
	struct rule rules[RULES];
	struct policy p = { .rules = rules, .count = RULES };
	struct world w = { 0 };
	struct err err = { 0 };
	size_t size;

	for (int i = 0; i < RULES; i++) {
		rules[i] = (struct rule){ .action = POLICY_ALLOW,
					  .kind = TARGET_NAME,
					  .target = names[i],
					  .file = "f",
					  .comment = "" };
		assert_int_equal(dns_name_parse(text_of(names[i]), &rules[i].name), 0);
	}
	rules[FIRST].budget =
		(struct plan_budget){ .sent = 100, .received = 50, .per_sec = 3600 };
	rules[SECOND].budget =
		(struct plan_budget){ .sent = 100, .action = BUDGET_EVENT };
	p.budget.sent = total ? 1000 : 0;
	if (policy_compile(&p, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &w.plan, &err) < 0)
		fail_msg("%s", err.text);
	w.budgets = budgets_new(old, &w.plan, now_ms);
	return w;
}

static void close_world(struct world *w)
{
	budgets_free(w->budgets);
	free(w->bytes);
}

/* By @rule and by all together. */
static uint64_t payers(const struct world *w, uint32_t rule)
{
	return budgets_of(&w->plan, rule) | budgets_of(&w->plan, PLAN_NO_RULE);
}

static uint64_t left(const struct world *w, uint32_t rule, bool received, int64_t now_ms)
{
	return budgets_left(w->budgets, &w->plan, payers(w, rule), received, now_ms);
}

static bool spend(struct world *w, uint32_t rule, uint64_t sent, uint64_t received,
		  int64_t now_ms)
{
	return budgets_count(w->budgets, &w->plan, payers(w, rule), sent, received,
			     now_ms);
}

TEST(what_may_pass_is_what_is_left)
{
	struct world w = open_world(NULL, false, NOW);

	assert_true(left(&w, FIRST, false, NOW) == 100);
	assert_true(left(&w, FIRST, true, NOW) == 50);
	assert_true(left(&w, SECOND, false, NOW) == UINT64_MAX);
	assert_true(left(&w, THIRD, false, NOW) == UINT64_MAX);
	assert_true(left(&w, PLAN_NO_RULE, false, NOW) == UINT64_MAX);
	assert_false(spend(&w, FIRST, 99, 0, NOW));
	assert_true(left(&w, FIRST, false, NOW) == 1);
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW), 0);
	assert_true(spend(&w, FIRST, 1, 0, NOW));
	assert_true(left(&w, FIRST, false, NOW) == 0);
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW), 1);
	assert_int_equal(budgets_take_news(w.budgets), 1);
	assert_int_equal(budgets_take_news(w.budgets), 0);
	assert_false(spend(&w, FIRST, UINT64_MAX, 0, NOW));
	close_world(&w);
}

TEST(a_period_begins_with_its_first_byte)
{
	struct world w = open_world(NULL, false, NOW);

	assert_true(spend(&w, FIRST, 0, 50, NOW + HOUR));
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW + 2 * HOUR - 1), 1);
	assert_true(budgets_next_ms(w.budgets, &w.plan, NOW + HOUR) == HOUR);
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW + 2 * HOUR), 0);
	assert_true(left(&w, FIRST, true, NOW + 2 * HOUR) == 50);
	assert_true(budgets_next_ms(w.budgets, &w.plan, NOW + 2 * HOUR) == INT64_MAX);
	close_world(&w);
}

TEST(one_that_is_told_of_cuts_nothing)
{
	struct world w = open_world(NULL, false, NOW);

	assert_true(spend(&w, SECOND, 100, 0, NOW));
	assert_int_equal(budgets_take_news(w.budgets), 2);
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW), 0);
	assert_false(spend(&w, SECOND, 100, 0, NOW));
	close_world(&w);
}

TEST(that_of_all_counts_everything_that_is_sent)
{
	struct world w = open_world(NULL, true, NOW);
	struct dns_name name;

	assert_false(spend(&w, FIRST, 90, 0, NOW));
	assert_false(spend(&w, THIRD, 400, 9999, NOW));
	assert_false(spend(&w, PLAN_NO_RULE, 505, 0, NOW));
	assert_true(left(&w, FIRST, false, NOW) == 5);
	assert_true(spend(&w, THIRD, 5, 0, NOW));
	w.plan.spent = budgets_spent(w.budgets, &w.plan, NOW);
	assert_int_equal(dns_name_parse(text_of("c.test"), &name), 0);
	assert_int_equal(plan_match_name(&w.plan, &name).action, POLICY_DENY);
	assert_true(plan_match_name(&w.plan, &name).flags & PLAN_SPENT);
	close_world(&w);
}

/* Who may change other rules of a policy doesn't give a budget anew by it. */
TEST(another_policy_goes_on_counting)
{
	struct world w = open_world(NULL, false, NOW), next;

	assert_true(spend(&w, FIRST, 100, 0, NOW));
	next = open_world(w.budgets, true, NOW + 5);
	assert_int_equal(next.plan.spent, 1);
	assert_true(left(&next, FIRST, true, NOW + 5) == 50);
	close_world(&w);
	close_world(&next);
}

/* a.test: 100 bytes up, and what @period says. */
static struct world open_period(const char *period)
{
	struct world w = { 0 };
	char text[128];

	snprintf(text, sizeof(text),
		 "egress: [{action: allow, target: a.test, budget: {sent: 100%s}}]\n",
		 period);
	w.bytes = plan_from(text, &w.plan);
	return w;
}

/* It was used up when the policy changed. */
TEST(what_is_used_up_is_so_for_the_period_of_the_new_policy)
{
	static const struct {
		const char *what, *before, *after;
		int64_t ends_ms; /* INT64_MAX: never */
	} cases[] = {
		{ "the period is gone", ", per: 1m", "", INT64_MAX },
		{ "a period has come", "", ", per: 1h", HOUR },
		{ "a shorter one", ", per: 30d", ", per: 1m", HOUR / 60 },
		{ "a longer one", ", per: 1m", ", per: 30d", HOUR / 60 },
		{ "the same", ", per: 1h", ", per: 1h", HOUR },
	};

	for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		static _Alignas(8) uint8_t kept[BUDGETS_KEPT_SIZE];
		const bool restarts = i % 2;
		struct world w = open_period(cases[i / 2].before);
		struct world next = open_period(cases[i / 2].after);
		const int64_t ends_ms = cases[i / 2].ends_ms;

		memset(kept, 0, sizeof(kept));
		w.budgets = budgets_new(NULL, &w.plan, NOW);
		budgets_keep(w.budgets, kept);
		assert_true(spend(&w, FIRST, 100, 0, NOW));
		next.budgets = restarts ? budgets_adopt(kept, &next.plan, NOW)
					: budgets_new(w.budgets, &next.plan, NOW);
		if (budgets_next_ms(next.budgets, &next.plan, NOW) != ends_ms ||
		    next.plan.spent != 1 ||
		    (ends_ms < INT64_MAX &&
		     budgets_spent(next.budgets, &next.plan, NOW + ends_ms) != 0))
			fail_msg("%s%s: it ends in %lld ms", cases[i / 2].what,
				 restarts ? ", at a restart" : "",
				 (long long)budgets_next_ms(next.budgets, &next.plan,
							    NOW));
		close_world(&w);
		close_world(&next);
	}
}

/* Two rules for 10.0.0.0/8, which differ in their port: 100 bytes each. @only: there is
 * but that one. */
static struct world open_twins(const struct budgets *old, uint16_t only)
{
	static const uint16_t numbers[] = { 443, 80 };
	struct plan_port_range ports[ARRAY_SIZE(numbers)];
	struct rule rules[ARRAY_SIZE(numbers)];
	struct policy p = { .rules = rules, .count = only ? 1 : ARRAY_SIZE(rules) };
	struct world w = { 0 };
	struct err err = { 0 };
	size_t size;

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		const uint16_t n = only ?: numbers[i];

		ports[i] = (struct plan_port_range){ IPPROTO_TCP, 0, n, n };
		rules[i] = (struct rule){ .action = POLICY_ALLOW,
					  .kind = TARGET_PREFIX,
					  .flags = PLAN_PORTS_LISTED,
					  .prefix = { addr_v4(10, 0, 0, 0), 8 },
					  .ports = { &ports[i], 1, false },
					  .budget = { .sent = 100 },
					  .target = "10.0.0.0/8",
					  .file = "f",
					  .comment = "" };
	}
	if (policy_compile(&p, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &w.plan, &err) < 0)
		fail_msg("%s", err.text);
	w.budgets = budgets_new(old, &w.plan, NOW);
	return w;
}

TEST(rules_of_one_target_are_told_apart_by_their_ports)
{
	static _Alignas(8) uint8_t kept[BUDGETS_KEPT_SIZE];
	struct world w = open_twins(NULL, 0), next;

	budgets_keep(w.budgets, kept);
	assert_true(spend(&w, FIRST, 100, 0, NOW));
	assert_false(spend(&w, SECOND, 10, 0, NOW));
	for (int i = 0; i < 2; i++) {
		next = open_twins(i ? NULL : w.budgets, 0);
		if (i) {
			budgets_free(next.budgets);
			next.budgets = budgets_adopt(kept, &next.plan, NOW);
		}
		assert_int_equal(next.plan.spent, 1);
		assert_true(left(&next, SECOND, false, NOW) == 90);
		close_world(&next);
	}
	close_world(&w);
}

/* A rule with other ports than before may have been any of that target. */
TEST(no_budget_begins_anew_by_other_ports)
{
	struct world w = open_twins(NULL, 0), next;

	assert_true(spend(&w, FIRST, 100, 0, NOW));
	next = open_twins(w.budgets, 8443);
	assert_int_equal(next.plan.spent, 1);
	close_world(&next);
	next = open_twins(w.budgets, 80);
	assert_int_equal(next.plan.spent, 0);
	close_world(&w);
	close_world(&next);
}

/* The engine is killed, and the next one counts on. */
TEST(what_was_counted_outlives_the_engine)
{
	static _Alignas(8) uint8_t kept[BUDGETS_KEPT_SIZE];
	struct world w = open_world(NULL, false, NOW), more;

	budgets_keep(w.budgets, kept);
	assert_false(spend(&w, FIRST, 99, 0, NOW));
	for (int i = 0; i < 3; i++) {
		budgets_free(w.budgets);
		w.budgets = budgets_adopt(kept, &w.plan, NOW + HOUR - 1);
		budgets_keep(w.budgets, kept);
		assert_true(left(&w, FIRST, false, NOW + HOUR - 1) == 1);
		assert_int_equal(w.plan.spent, 0);
	}
	assert_true(spend(&w, FIRST, 1, 0, NOW + HOUR - 1));
	/* The next engine comes with another plan. */
	more = open_world(NULL, true, NOW);
	budgets_free(more.budgets);
	more.budgets = budgets_adopt(kept, &more.plan, NOW + HOUR - 1);
	assert_int_equal(more.plan.spent, 1);
	assert_true(left(&more, THIRD, false, NOW) == 1000);
	assert_int_equal(budgets_spent(more.budgets, &more.plan, NOW + HOUR), 0);
	close_world(&w);
	close_world(&more);
}

/* A flow that was cut and stays idle has the mark of a generation until the kernel
 * forgets it, after five days. */
TEST(no_generation_returns_while_a_flow_may_have_it)
{
	enum { FIVE_DAYS_SEC = 5 * 24 * 3600, GENERATIONS = 65535 };
	struct world w = open_world(NULL, false, NOW);
	struct budgets *next;
	int opened[2] = { 0 };

	/* It is used up at once, and its period is a second. */
	for (int64_t s = 0; s < 2 * FIVE_DAYS_SEC; s++) {
		opened[s / FIVE_DAYS_SEC] +=
			budgets_hold(w.budgets, 1, 0, NOW + s * 1000) == 0;
		if (s % 1000 != 0)
			continue;
		/* A change of the policy gives nothing back. */
		next = budgets_new(w.budgets, &w.plan, NOW + s * 1000);
		budgets_free(w.budgets);
		w.budgets = next;
	}
	assert_in_range(opened[0], 25000, GENERATIONS / 2);
	assert_in_range(opened[1], 25000, GENERATIONS / 2);
	/* What is used up still is not held back by that, nor what is open. */
	assert_int_equal(budgets_hold(w.budgets, 3, 2, NOW), 3);
	assert_int_equal(budgets_hold(w.budgets, 0, 0, NOW), 0);
	close_world(&w);
}

/* A sandbox with many budgets may use each up, and see each begin anew, at its own
 * moment. */
TEST(changes_within_a_quarter_of_a_second_go_together)
{
	static const struct {
		const char *what;
		int64_t at_ms;
		uint64_t closed, spent, held;
	} steps[] = {
		{ "the first one at once", 0, 0, 1, 1 },
		{ "the next one is used up too soon", 1, 1, 3, 1 },
		{ "and still", 249, 1, 7, 1 },
		{ "then all together", 250, 1, 7, 7 },
		{ "the first begins anew too soon", 499, 7, 6, 7 },
		{ "then", 500, 7, 6, 6 },
		{ "nothing has changed", 501, 6, 6, 6 },
		{ "after a quiet time at once", 900, 6, 0, 0 },
	};
	struct world w = open_world(NULL, true, NOW);

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct budgets *next = budgets_new(w.budgets, &w.plan, NOW);

		/* A change of the policy hastens nothing. */
		budgets_free(w.budgets);
		w.budgets = next;
		if (budgets_hold(w.budgets, steps[i].closed, steps[i].spent,
				 NOW + steps[i].at_ms) != steps[i].held)
			fail_msg("%s", steps[i].what);
	}
	close_world(&w);
}

/* A flow for which nothing was left moves no more, and is to be cut, however soon the
 * next period begins. */
TEST(what_was_used_up_closes_though_its_period_is_over)
{
	for (int is_changed = 0; is_changed < 2; is_changed++) {
		struct world w = open_world(NULL, true, NOW), next;

		spend(&w, FIRST, 10, 0, NOW);
		assert_true(spend(&w, FIRST, 100, 0, NOW + HOUR - 1));
		assert_true(spend(&w, SECOND, 100, 0, NOW)); /* is told of alone */
		if (is_changed) {
			next = open_world(w.budgets, true, NOW + HOUR + 1);
			close_world(&w);
			w = next;
		}
		assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW + HOUR + 1), 0);
		assert_int_equal(budgets_hold(w.budgets, 0, 0, NOW + HOUR + 1), 1);
		/* Until that is in force. */
		assert_int_equal(budgets_hold(w.budgets, 1, 0, NOW + HOUR + 2), 1);
		assert_int_equal(
			budgets_hold(w.budgets, 1, 0, NOW + HOUR + 1 + BUDGETS_CHANGE_MS),
			0);
		close_world(&w);
	}
}

TEST(what_was_lost_is_used_up)
{
	static _Alignas(8) uint8_t kept[BUDGETS_KEPT_SIZE];
	struct world w = open_world(NULL, true, NOW);
	const uint64_t total = UINT64_C(1) << plan_budget_of(&w.plan, PLAN_NO_RULE);

	budgets_free(w.budgets);
	w.budgets = budgets_adopt(kept, &w.plan, NOW);
	assert_int_equal(w.plan.spent, 0); /* nobody has counted anything yet */
	for (int i = 0; i < 2; i++) {
		memset(kept, 0xff, sizeof(kept));
		budgets_free(w.budgets);
		w.budgets = budgets_adopt(i ? kept : NULL, &w.plan, NOW);
		assert_true(w.plan.spent == (total | 1));
		assert_true(budgets_spent(w.budgets, &w.plan, NOW + HOUR) == total);
		assert_true(left(&w, PLAN_NO_RULE, false, NOW + HOUR) == 0);
		assert_true(budgets_take_news(w.budgets) & total);
	}
	close_world(&w);
}

TEST(what_is_noted_as_lost_is_used_up_and_counted_from_there)
{
	CLEAN(fd) int fd = memfd_create("snapshot", MFD_CLOEXEC);
	struct world w = open_world(NULL, false, NOW);
	uint8_t *snapshot;

	assert_int_equal(budgets_lose(fd), 0);
	assert_int_equal(ftruncate(fd, LEARNED_SNAPSHOT_SIZE), 0);
	snapshot = mmap(NULL, LEARNED_SNAPSHOT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
			fd, 0);
	assert_true(snapshot != MAP_FAILED);
	/* Engine after engine. */
	for (int i = 0; i < 2; i++) {
		budgets_free(w.budgets);
		w.budgets = budgets_adopt(snapshot + BUDGETS_KEPT_AT, &w.plan, NOW);
		assert_int_equal(w.plan.spent, 1);
		budgets_keep(w.budgets, snapshot + BUDGETS_KEPT_AT);
	}
	assert_int_equal(budgets_spent(w.budgets, &w.plan, NOW + HOUR), 0);
	munmap(snapshot, LEARNED_SNAPSHOT_SIZE);
	close_world(&w);
}

TEST(without_an_account_everything_is_used_up)
{
	struct world w = open_world(NULL, false, NOW);

	assert_true(budgets_spent(NULL, &w.plan, NOW) == UINT64_MAX);
	assert_true(budgets_left(NULL, &w.plan, budgets_of(&w.plan, FIRST), false, NOW) ==
		    0);
	assert_true(budgets_left(NULL, &w.plan, budgets_of(&w.plan, THIRD), false, NOW) ==
		    UINT64_MAX);
	close_world(&w);
}
