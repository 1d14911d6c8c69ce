// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "unit.h"

static void pieces_are_zeroed_and_apart(void **state)
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

static void overflow_is_no_memory(void **state)
{
	CLEAN(arena) struct arena a = { 0 };

	assert_null(arena_array(&a, SIZE_MAX / 2, 3));
	assert_null(arena_alloc(&a, SIZE_MAX));
}

static void text_is_copied_and_ended(void **state)
{
	CLEAN(arena) struct arena a = { 0 };

	assert_string_equal(arena_text(&a, (struct text){ "abcdef", 3 }), "abc");
	assert_string_equal(arena_printf(&a, "%d-%s", 7, "x"), "7-x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_zeroed_and_apart),
		cmocka_unit_test(overflow_is_no_memory),
		cmocka_unit_test(text_is_copied_and_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
