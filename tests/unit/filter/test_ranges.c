// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "filter/ruleset.h"
#include "unit.h"

static struct filter_range range2(uint16_t from, uint16_t to)
{
	return (struct filter_range){
		.from = { (uint8_t)(from >> 8), (uint8_t)from },
		.to = { (uint8_t)(to >> 8), (uint8_t)to },
	};
}

TEST(ranges_become_sorted_disjoint_and_apart)
{
	static const struct {
		const char *what;
		uint16_t in[8][2];
		size_t count;
		uint16_t out[8][2];
		size_t left;
	} rows[] = {
		{ "none", { { 0 } }, 0, { { 0 } }, 0 },
		{ "one", { { 5, 9 } }, 1, { { 5, 9 } }, 1 },
		{ "apart", { { 1, 2 }, { 4, 5 } }, 2, { { 1, 2 }, { 4, 5 } }, 2 },
		{ "out of order", { { 9, 9 }, { 1, 1 } }, 2, { { 1, 1 }, { 9, 9 } }, 2 },
		{ "twice the same", { { 7, 8 }, { 7, 8 } }, 2, { { 7, 8 } }, 1 },
		{ "touching", { { 1, 3 }, { 4, 6 } }, 2, { { 1, 6 } }, 1 },
		{ "touching over a byte",
		  { { 1, 255 }, { 256, 300 } },
		  2,
		  { { 1, 300 } },
		  1 },
		{ "overlapping", { { 1, 5 }, { 3, 9 } }, 2, { { 1, 9 } }, 1 },
		{ "one inside the other", { { 1, 9 }, { 3, 4 } }, 2, { { 1, 9 } }, 1 },
		{ "inside, then behind",
		  { { 1, 9 }, { 3, 4 }, { 6, 12 } },
		  3,
		  { { 1, 12 } },
		  1 },
		{ "up to the last",
		  { { 9, 65535 }, { 10, 20 }, { 65535, 65535 } },
		  3,
		  { { 9, 65535 } },
		  1 },
		{ "everything", { { 1, 65535 }, { 0, 0 } }, 2, { { 0, 65535 } }, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct filter_range r[8] = { 0 };

		for (size_t k = 0; k < rows[i].count; k++)
			r[k] = range2(rows[i].in[k][0], rows[i].in[k][1]);
		if (filter_ranges_merge(r, rows[i].count, 2) != rows[i].left)
			fail_msg("%s: wrong count", rows[i].what);
		for (size_t k = 0; k < rows[i].left; k++) {
			struct filter_range want =
				range2(rows[i].out[k][0], rows[i].out[k][1]);

			if (memcmp(&r[k], &want, sizeof(want)) != 0)
				fail_msg("%s: range %zu", rows[i].what, k);
		}
	}
}

TEST(a_key_is_cut_out_of_the_range_that_holds_it)
{
	static const struct {
		const char *what;
		uint16_t key, out[3][2];
		size_t left;
	} rows[] = {
		{ "in none", 5, { { 7, 7 }, { 255, 600 } }, 2 },
		{ "all of one", 7, { { 255, 600 } }, 1 },
		{ "the first", 255, { { 7, 7 }, { 256, 600 } }, 2 },
		{ "the last", 600, { { 7, 7 }, { 255, 599 } }, 2 },
		{ "in the middle", 256, { { 7, 7 }, { 255, 255 }, { 257, 600 } }, 3 },
		{ "behind all", 601, { { 7, 7 }, { 255, 600 } }, 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct filter_range r[3] = { range2(7, 7), range2(255, 600) };
		const uint8_t key[2] = { (uint8_t)(rows[i].key >> 8),
					 (uint8_t)rows[i].key };

		assert_int_equal(filter_ranges_cut(r, 2, key, 2), rows[i].left);
		for (size_t k = 0; k < rows[i].left; k++) {
			struct filter_range want =
				range2(rows[i].out[k][0], rows[i].out[k][1]);

			if (memcmp(&r[k], &want, sizeof(want)) != 0)
				fail_msg("%s: range %zu", rows[i].what, k);
		}
	}
}

TEST(the_key_behind_carries_and_ends)
{
	uint8_t key[4] = { 10, 0, 255, 255 }, last[4] = { 255, 255, 255, 255 }, next[4];
	const uint8_t want[4] = { 10, 1, 0, 0 };

	assert_true(filter_key_next(key, 4, next));
	assert_memory_equal(next, want, 4);
	assert_false(filter_key_next(last, 4, next));
	assert_memory_equal(next, want, 4); /* left alone */
}
