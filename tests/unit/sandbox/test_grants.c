// SPDX-License-Identifier: Apache-2.0
#include "sandbox/budgets.h"

#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "policy/policy.h"

enum { WALL = 1000 * 1000, NOW = 5000, SECOND = 1000 };

struct world {
	uint8_t *bytes;
	struct plan plan;
};

/* A plan of two rules that end 10 and 20 seconds after WALL. */
static struct world open_world(void)
{
	struct rule rules[2];
	struct policy p = { .rules = rules, .count = 2 };
	struct world w = { 0 };
	struct err err = { 0 };
	size_t size;

	for (int i = 0; i < 2; i++)
		rules[i] =
			(struct rule){ .action = POLICY_ALLOW,
				       .kind = TARGET_PREFIX,
				       .prefix = { { ADDR_V4, { 11, (uint8_t)i } }, 16 },
				       .target = "t",
				       .file = "f",
				       .comment = "",
				       .until_ms = WALL + (i + 1) * 10 * SECOND };
	if (policy_compile(&p, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &w.plan, &err) < 0)
		fail_msg("%s", err.text);
	return w;
}

struct step {
	const char *what;
	int64_t wall_ms, now_ms;
	uint64_t ahead;
};

static void follow(const struct step *steps, size_t count)
{
	struct world w = open_world();
	struct grants *g = grants_new(NULL, &w.plan, WALL, NOW);

	assert_int_equal(w.plan.ends_ahead, 3);
	for (size_t i = 0; i < count; i++) {
		uint64_t ahead =
			grants_ahead(g, WALL + steps[i].wall_ms, NOW + steps[i].now_ms);

		if (ahead != steps[i].ahead)
			fail_msg("%s: %d", steps[i].what, (int)ahead);
	}
	grants_free(g);
	free(w.bytes);
}

TEST(the_earlier_of_two_clocks_ends_a_rule_and_it_stays_so)
{
	static const struct step quiet[] = {
		{ "before", 9999, 9999, 3 },
		{ "at the first end", 10 * SECOND, 10 * SECOND, 2 },
		{ "at the second", 20 * SECOND, 20 * SECOND, 0 },
	};
	static const struct step back[] = {
		{ "the clock is set back", -3600 * SECOND, 9 * SECOND, 3 },
		{ "and the rule ends all the same", -3600 * SECOND, 10 * SECOND, 2 },
		{ "and the other", -3590 * SECOND, 20 * SECOND, 0 },
	};
	static const struct step forth[] = {
		{ "the clock is set forward", 15 * SECOND, 1 * SECOND, 2 },
		{ "and back again: what has ended stays so", 2 * SECOND, 2 * SECOND, 2 },
		{ "a second later", 3 * SECOND, 3 * SECOND, 2 },
		{ "the second end is on time", 19999, 19999, 2 },
		{ "and not later", 19 * SECOND, 20 * SECOND, 0 },
	};
	static const struct step asleep[] = {
		{ "a suspend: both clocks go on", 3600 * SECOND, 3600 * SECOND, 0 },
	};

	follow(quiet, ARRAY_SIZE(quiet));
	follow(back, ARRAY_SIZE(back));
	follow(forth, ARRAY_SIZE(forth));
	follow(asleep, ARRAY_SIZE(asleep));
}

/* The plan comes again, as with each change of other rules, after the clock was set back.
 */
TEST(another_policy_with_the_same_end_does_not_lengthen_it)
{
	struct world w = open_world();
	struct grants *first = grants_new(NULL, &w.plan, WALL, NOW);
	struct grants *second =
		grants_new(first, &w.plan, WALL - 3600 * SECOND, NOW + 9 * SECOND);

	assert_int_equal(grants_next_ms(second, WALL - 3600 * SECOND, NOW + 9 * SECOND),
			 1 * SECOND);
	assert_int_equal(grants_ahead(second, WALL - 3600 * SECOND, NOW + 10 * SECOND),
			 2);
	grants_free(first);
	first = grants_new(second, &w.plan, WALL - 3600 * SECOND, NOW + 11 * SECOND);
	assert_int_equal(w.plan.ends_ahead, 2);
	grants_free(first);
	grants_free(second);
	free(w.bytes);
}

TEST(after_a_restart_the_wall_clock_counts)
{
	struct world w = open_world();
	struct grants *g = grants_new(NULL, &w.plan, WALL + 12 * SECOND, 1);

	assert_int_equal(w.plan.ends_ahead, 2);
	assert_int_equal(grants_next_ms(g, WALL + 12 * SECOND, 1), 8 * SECOND);
	grants_free(g);
	g = grants_new(NULL, &w.plan, WALL + 20 * SECOND, 1);
	assert_int_equal(w.plan.ends_ahead, 0);
	assert_true(grants_next_ms(g, WALL, 1) == INT64_MAX);
	grants_free(g);
	free(w.bytes);
}

TEST(times_at_the_edge_of_the_numbers_have_ended)
{
	struct world w = open_world();
	struct grants *g = grants_new(NULL, &w.plan, INT64_MIN, INT64_MAX);

	assert_int_equal(w.plan.ends_ahead, 0);
	grants_free(g);
	assert_int_equal(grants_ahead(NULL, WALL, NOW), 0);
	free(w.bytes);
}
