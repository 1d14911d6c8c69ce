// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "store/tally.h"

static struct event sample(const char *name, uint64_t packets)
{
	struct event e = { .ts_ms = 1,
			   .packets = packets,
			   .bytes = 10 * packets,
			   .rule = 2,
			   .port = 443,
			   .uid = UINT32_MAX,
			   .action = EVENT_DENY,
			   .layer = EVENT_DNS };

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

static void add(struct tally *t, const char *name, uint64_t packets, int64_t now_ms)
{
	const struct event e = sample(name, packets);

	assert_true(tally_add(t, &e, now_ms));
}

static void assert_next(struct tally *t, int64_t now_ms, const char *name,
			uint64_t packets)
{
	const struct event *e = tally_next(t, now_ms);

	assert_non_null(e);
	assert_string_equal(e->name, name);
	assert_int_equal(e->packets, packets);
	assert_int_equal(e->bytes, 10 * packets);
	tally_told(t, now_ms);
}

static void the_first_is_told_at_once_and_the_rest_after_the_window(void **state)
{
	struct tally_pool pool = { 10 };
	struct tally *t = tally_new(&pool, 10, 1000);

	add(t, "a", 1, 0);
	assert_next(t, 0, "a", 1);
	add(t, "a", 3, 10);
	add(t, "a", 4, 20);
	assert_null(tally_next(t, 999));
	add(t, "b", 1, 999);
	assert_next(t, 999, "b", 1);
	assert_next(t, 1000, "a", 7);
	/* A window without any more ends it. */
	assert_null(tally_next(t, 2000));
	assert_true(tally_is_empty(t));
	assert_int_equal(pool.left, 10);
	tally_free(t);
}

static void what_waits_is_told_in_the_order_in_which_it_came(void **state)
{
	struct tally_pool pool = { 10 };
	struct tally *t = tally_new(&pool, 10, 1000);

	add(t, "a", 1, 0);
	add(t, "b", 1, 1);
	add(t, "a", 1, 2);
	assert_next(t, 50, "a", 2);
	assert_next(t, 50, "b", 1);
	assert_null(tally_next(t, 50));
	tally_free(t);
}

static void a_full_one_takes_only_what_it_has(void **state)
{
	struct tally_pool pool = { 3 };
	struct tally *t = tally_new(&pool, 2, 1000), *other = tally_new(&pool, 2, 1000);
	const struct event e = sample("c", 1);

	add(t, "a", 1, 0);
	add(t, "b", 1, 0);
	assert_false(tally_add(t, &e, 0));
	add(t, "a", 1, 0);
	assert_true(tally_add_always(t, &e, 0));
	assert_false(tally_add(other, &e, 0));
	assert_int_equal(pool.left, 0);
	tally_free(t);
	t = tally_new(&pool, 2, 1000);
	add(t, "a", 2, 0);
	add(t, "b", 1, 0);
	/* What all have together counts as well. */
	add(other, "a", 1, 0);
	assert_false(tally_add(other, &e, 0));
	/* What rested for nothing makes room. */
	assert_next(t, 0, "a", 2);
	add(t, "c", 1, 1000);
	tally_free(t);
	tally_free(other);
	assert_int_equal(pool.left, 3);
}

static void without_a_window_all_waits_for_the_close(void **state)
{
	struct tally_pool pool = { 10 };
	struct tally *t = tally_new(&pool, 10, 0);

	add(t, "a", 1, 0);
	add(t, "a", 1, 1000000);
	assert_null(tally_next(t, 2000000));
	tally_close(t);
	assert_next(t, 2000000, "a", 2);
	assert_true(tally_is_empty(t));
	tally_free(t);
}

static void what_differs_in_any_key_is_another(void **state)
{
	struct tally_pool pool = { 20 };
	struct tally *t = tally_new(&pool, 20, 1000);
	struct event e[9];

	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		e[i] = sample("a", 1);
	e[1].rule = 3;
	e[2].port = 80;
	e[3].action = EVENT_ALLOW;
	e[4].layer = EVENT_NAME;
	e[5].protocol = 6;
	e[6].limit = 1;
	e[7].query_type = 28;
	e[8].allowable = true;
	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		assert_true(tally_add(t, &e[i], 0));
	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		assert_next(t, 0, "a", 1);
	assert_null(tally_next(t, 0));
	tally_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_is_told_at_once_and_the_rest_after_the_window),
		cmocka_unit_test(what_waits_is_told_in_the_order_in_which_it_came),
		cmocka_unit_test(a_full_one_takes_only_what_it_has),
		cmocka_unit_test(without_a_window_all_waits_for_the_close),
		cmocka_unit_test(what_differs_in_any_key_is_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
