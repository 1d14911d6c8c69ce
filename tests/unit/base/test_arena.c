// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "unit.h"

TEST(pieces_are_zeroed_and_apart)
{
	CLEAN(arena) struct arena a = { 0 };

	for (size_t size = 1; size < 40000; size = size * 3 + 1) {
		unsigned char *p = arena_alloc(&a, size);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 16, 0);
		for (size_t i = 0; i < size; i++)
			assert_int_equal(p[i], 0);
		memset(p, 0xff, size);
	}
}

TEST(pieces_are_zeroed_where_others_have_written)
{
	for (int round = 0; round < 2; round++) {
		CLEAN(arena) struct arena a = { 0 };

		for (size_t n = 0; n < 200; n++) {
			unsigned char *p = arena_alloc(&a, 300);

			assert_non_null(p);
			for (size_t i = 0; i < 300; i++)
				assert_int_equal(p[i], 0);
			memset(p, 0xff, 300);
		}
	}
}

TEST(overflow_is_no_memory)
{
	CLEAN(arena) struct arena a = { 0 };

	assert_null(arena_array(&a, SIZE_MAX / 2, 3));
	assert_null(arena_alloc(&a, SIZE_MAX));
}

TEST(text_is_copied_and_ended)
{
	CLEAN(arena) struct arena a = { 0 };

	assert_string_equal(arena_text(&a, (struct text){ "abcdef", 3 }), "abc");
	assert_string_equal(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
}
