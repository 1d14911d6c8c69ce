// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

#include "api/conns.h"
#include "unit.h"

enum { START_MS = 5000 };

static struct prefix network(uint32_t n)
{
	return (struct prefix){
		.addr = addr_v4(10, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n),
		.bits = 32,
	};
}

static void guess(struct failures *f, uint32_t n, int times, int64_t now_ms)
{
	const struct prefix p = network(n);

	while (times-- > 0)
		failures_add(f, &p, now_ms);
}

static uint32_t wait_of(const struct failures *f, uint32_t n, int64_t now_ms)
{
	const struct prefix p = network(n);

	return failures_wait(f, &p, now_ms);
}

TEST(test_a_few_are_no_guessing)
{
	struct failures f = { 0 };

	assert_int_equal(wait_of(&f, 1, START_MS), 0);
	guess(&f, 1, FAILURES_MAX - 1, START_MS);
	assert_int_equal(wait_of(&f, 1, START_MS), 0);
	guess(&f, 1, 1, START_MS);
	assert_int_equal(wait_of(&f, 1, START_MS), FAILURES_SEC);
	assert_int_equal(wait_of(&f, 2, START_MS), 0);
}

TEST(test_it_ends)
{
	struct failures f = { 0 };
	const int64_t end_ms = START_MS + FAILURES_SEC * 1000;

	guess(&f, 1, FAILURES_MAX, START_MS);
	assert_int_equal(wait_of(&f, 1, end_ms - 1), 1);
	assert_int_equal(wait_of(&f, 1, end_ms), 0);
	guess(&f, 1, FAILURES_MAX - 1, end_ms);
	assert_int_equal(wait_of(&f, 1, end_ms), 0);
}

TEST(test_over_the_limit_the_oldest_is_forgotten)
{
	struct failures f = { 0 };

	guess(&f, 0, FAILURES_MAX, START_MS);
	for (uint32_t n = 1; n < FAILURES_NETWORKS; n++)
		guess(&f, n, FAILURES_MAX, START_MS + 1);
	assert_int_not_equal(wait_of(&f, 0, START_MS + 1), 0);
	guess(&f, FAILURES_NETWORKS, FAILURES_MAX, START_MS + 2);
	assert_int_equal(wait_of(&f, 0, START_MS + 2), 0);
	for (uint32_t n = 1; n <= FAILURES_NETWORKS; n++)
		assert_int_not_equal(wait_of(&f, n, START_MS + 2), 0);
}
