// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

#include "sandbox/sandbox.h"
#include "unit.h"

static const struct plan_on_denies five = { .count = 5, .window_sec = 64 };

TEST(without_a_count_nothing_is_told)
{
	const struct plan_on_denies none = { 0 };
	struct denies d = { 0 };

	for (int i = 0; i < 1000; i++)
		assert_false(denies_add(&d, &none, 1000, i));
}

TEST(one_more_than_the_count_is_told_once_a_window)
{
	struct denies d = { 0 };
	int64_t now_ms = 1000000;
	int told = 0;

	for (int i = 0; i < 5; i++)
		assert_false(denies_add(&d, &five, 1, now_ms + i));
	assert_true(denies_add(&d, &five, 1, now_ms + 5));
	for (int i = 6; i < 64000; i += 7)
		told += denies_add(&d, &five, 1, now_ms + i);
	assert_int_equal(told, 0);
	for (int i = 64010; i < 2 * 64000; i += 7)
		told += denies_add(&d, &five, 1, now_ms + i);
	assert_int_equal(told, 1);
}

TEST(packets_that_were_folded_all_count)
{
	struct denies d = { 0 };

	assert_false(denies_add(&d, &five, 5, 1000000));
	assert_true(denies_add(&d, &five, 1, 1000001));
	d = (struct denies){ 0 };
	assert_true(denies_add(&d, &five, UINT64_MAX, 1000000));
	assert_false(denies_add(&d, &five, UINT64_MAX, 1000001));
}

TEST(what_is_older_than_the_window_counts_no_more)
{
	struct denies d = { 0 };
	int64_t now_ms = 1000000;

	/* Five in a window and a part of it, for ever. */
	for (int i = 0; i < 1000; i++, now_ms += 13100)
		assert_false(denies_add(&d, &five, 1, now_ms));
	/* A long silence, and a burst. */
	now_ms += 86400000;
	for (int i = 0; i < 5; i++)
		assert_false(denies_add(&d, &five, 1, now_ms + i));
	assert_true(denies_add(&d, &five, 1, now_ms + 63000));
}

TEST(a_stop_is_told_again)
{
	const struct plan_on_denies stop = { 5, 600, ON_DENIES_STOP };
	struct denies d = { 0 };
	int told = 0;

	for (int i = 0; i < 10000; i += 10)
		told += denies_add(&d, &stop, 1, 1000000 + i);
	assert_int_equal(told, 10);
}
