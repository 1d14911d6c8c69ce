// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "event/aggregation.h"
#include "unit.h"

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

static bool add_in(struct aggregation *t, const char *name, uint64_t packets,
		   int64_t now_ms, unsigned int line)
{
	const struct event e = sample(name, packets);

	return aggregation_fold(t, &e) || aggregation_hold(t, &e, line, now_ms);
}

static void add(struct aggregation *t, const char *name, uint64_t packets, int64_t now_ms)
{
	assert_true(add_in(t, name, packets, now_ms, AGGREGATION_NEW));
}

/* The first line with something in it, or AGGREGATION_LINES. */
static unsigned int first_line(struct aggregation *t, int64_t now_ms)
{
	unsigned int line = 0;

	while (line < AGGREGATION_LINES && !aggregation_oldest(t, line, now_ms))
		line++;
	return line;
}

static void assert_none(struct aggregation *t, int64_t now_ms)
{
	assert_int_equal(first_line(t, now_ms), AGGREGATION_LINES);
}

static void assert_next(struct aggregation *t, int64_t now_ms, const char *name,
			uint64_t packets)
{
	const unsigned int line = first_line(t, now_ms);
	const struct event *e;

	assert_int_not_equal(line, AGGREGATION_LINES);
	e = aggregation_oldest(t, line, now_ms);
	assert_string_equal(e->name, name);
	assert_int_equal(e->packets, packets);
	assert_int_equal(e->bytes, 10 * packets);
	aggregation_reported(t, e, now_ms);
}

TEST(the_first_is_told_at_once_and_the_rest_after_the_window)
{
	struct aggregation_pool pool = { 10 };
	struct aggregation *t = aggregation_new(&pool, 10, 1000);

	add(t, "a", 1, 0);
	assert_next(t, 0, "a", 1);
	add(t, "a", 3, 10);
	add(t, "a", 4, 20);
	assert_none(t, 999);
	add(t, "b", 1, 999);
	assert_next(t, 999, "b", 1);
	assert_next(t, 1000, "a", 7);
	/* A window without any more ends it. */
	assert_none(t, 2000);
	assert_int_equal(pool.left, 10);
	add(t, "a", 1, 2000);
	assert_next(t, 2000, "a", 1);
	aggregation_free(t);
}

TEST(what_waits_is_told_in_the_order_in_which_it_came)
{
	struct aggregation_pool pool = { 10 };
	struct aggregation *t = aggregation_new(&pool, 10, 1000);

	add(t, "a", 1, 0);
	add(t, "b", 1, 1);
	add(t, "a", 1, 2);
	assert_next(t, 50, "a", 2);
	assert_next(t, 50, "b", 1);
	assert_none(t, 50);
	aggregation_free(t);
}

TEST(a_full_one_takes_only_what_it_has)
{
	struct aggregation_pool pool = { 3 };
	struct aggregation *t = aggregation_new(&pool, 2, 1000);

	add(t, "a", 1, 0);
	add(t, "b", 1, 0);
	assert_false(add_in(t, "c", 1, 0, AGGREGATION_NEW));
	add(t, "a", 1, 0);
	assert_true(add_in(t, "c", 1, 0, AGGREGATION_ALWAYS));
	assert_int_equal(pool.left, 0);
	/* It is told before the others, and again in the same line. */
	assert_next(t, 0, "c", 1);
	add(t, "c", 2, 0);
	assert_next(t, 1000, "c", 2);
	assert_next(t, 1000, "a", 2);
	assert_next(t, 1000, "b", 1);
	/* What rested for nothing makes room. */
	add(t, "d", 1, 2000);
	aggregation_free(t);
	assert_int_equal(pool.left, 3);
}

TEST(each_has_its_own_however_much_the_others_hold)
{
	struct aggregation_pool pool = { 100 };
	struct aggregation *t = aggregation_new(&pool, 200, 1000),
			   *other = aggregation_new(&pool, 200, 1);
	char name[8];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "%d", i);
		add(t, name, 1, 0);
	}
	assert_false(add_in(t, "a", 1, 0, AGGREGATION_NEW));
	for (int i = 0; i < AGGREGATION_OWN; i++) {
		snprintf(name, sizeof(name), "%d", i);
		add(other, name, 1, 0);
	}
	assert_false(add_in(other, "a", 1, 0, AGGREGATION_NEW));
	assert_int_equal(pool.left, -AGGREGATION_OWN);
	aggregation_free(t);
	aggregation_free(other);
	assert_int_equal(pool.left, 100);
}

TEST(room_is_made_by_what_comes_later_in_the_lines)
{
	struct aggregation_pool pool = { 10 };
	struct aggregation *t = aggregation_new(&pool, 3, 1000);
	struct event gone;

	assert_true(add_in(t, "a", 1, 0, AGGREGATION_NEW));
	assert_true(add_in(t, "b", 2, 0, AGGREGATION_NEW + 1));
	assert_true(add_in(t, "c", 3, 0, AGGREGATION_NEW + 1));
	assert_int_equal(aggregation_make_room(t, AGGREGATION_NEW + 1, &gone), -ENOSPC);
	assert_int_equal(aggregation_make_room(t, AGGREGATION_NEW, &gone), 1);
	assert_string_equal(gone.name, "b");
	assert_true(add_in(t, "d", 1, 50, AGGREGATION_NEW));
	assert_int_equal(
		aggregation_waited_ms(aggregation_oldest(t, AGGREGATION_NEW, 70), 70),
		70);
	assert_int_equal(
		aggregation_waited_ms(aggregation_newest(t, AGGREGATION_NEW, 70), 70),
		20);
	/* Told and quiet: nobody misses it. */
	assert_next(t, 70, "a", 1);
	assert_int_equal(aggregation_make_room(t, AGGREGATION_NEW_LAST, &gone), 0);
	assert_true(add_in(t, "e", 1, 80, AGGREGATION_NEW));
	/* Told, and there is more of it: that waits behind all that is new. */
	assert_next(t, 80, "d", 1);
	add(t, "d", 5, 81);
	assert_next(t, 1080, "e", 1);
	assert_next(t, 1080, "c", 3);
	assert_int_equal(first_line(t, 1080), AGGREGATION_AGAIN);
	assert_int_equal(aggregation_waited_ms(
				 aggregation_oldest(t, AGGREGATION_AGAIN, 1090), 1090),
			 10);
	assert_next(t, 1090, "d", 5);
	aggregation_free(t);
	assert_int_equal(pool.left, 10);
}

TEST(what_is_let_go_is_as_new_when_it_comes_again)
{
	struct aggregation_pool pool = { 10 };
	struct aggregation *t = aggregation_new(&pool, 3, 1000);

	add(t, "a", 1, 0);
	aggregation_let_go(t, aggregation_oldest(t, AGGREGATION_NEW, 0));
	assert_none(t, 2000);
	add(t, "a", 1, 1);
	assert_next(t, 1, "a", 1);
	aggregation_free(t);
}

TEST(without_a_window_all_waits_for_the_close)
{
	struct aggregation_pool pool = { 10 };
	struct aggregation *t = aggregation_new(&pool, 10, 0);

	add(t, "a", 1, 0);
	add(t, "a", 1, 1000000);
	assert_none(t, 2000000);
	aggregation_close(t);
	assert_next(t, 2000000, "a", 2);
	assert_none(t, 4000000);
	aggregation_free(t);
}

TEST(what_differs_in_any_key_is_another)
{
	struct aggregation_pool pool = { 20 };
	struct aggregation *t = aggregation_new(&pool, 20, 1000);
	struct event e[10];

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
	e[9].claimed = true;
	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		assert_true(!aggregation_fold(t, &e[i]) &&
			    aggregation_hold(t, &e[i], AGGREGATION_NEW, 0));
	for (size_t i = 0; i < ARRAY_SIZE(e); i++)
		assert_next(t, 0, "a", 1);
	assert_none(t, 0);
	aggregation_free(t);
}

/* More of them than a search goes through; and one that was just let go. */
TEST(each_of_many_is_found_again)
{
	enum { MANY = 3000 };
	struct aggregation_pool pool = { MANY };
	struct aggregation *t = aggregation_new(&pool, MANY, 1000);
	const struct event last = sample("n2999", 1);
	char name[16];

	for (size_t round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < MANY; i++) {
			snprintf(name, sizeof(name), "n%u", i);
			add(t, name, 1, 0);
		}
		assert_int_equal(pool.left, 0);
	}
	for (unsigned int i = 0; i < MANY - 1; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		assert_next(t, 0, name, 2);
	}
	assert_true(aggregation_fold(t, &last));
	aggregation_let_go(t, aggregation_oldest(t, AGGREGATION_NEW, 0));
	assert_false(aggregation_fold(t, &last));
	aggregation_free(t);
}
