// SPDX-License-Identifier: Apache-2.0
#include "sys/loop.h"

#include <string.h>
#include <sys/eventfd.h>

#include "unit.h"

enum { TIMERS = 200 };

static struct loop *loop;
static char trace[64];

static int setup(void **state)
{
	trace[0] = '\0';
	loop = loop_new();
	return loop ? 0 : -1;
}

static int teardown(void **state)
{
	loop_free(loop);
	return 0;
}

static void note(char c)
{
	size_t n = strlen(trace);

	assert_true(n + 1 < sizeof(trace));
	trace[n] = c;
	trace[n + 1] = '\0';
}

static void turn(void)
{
	assert_int_equal(loop_turn(loop, 0), 0);
}

struct named_timer {
	struct loop_timer timer;
	char name;
	struct loop_timer *starts; /* when it fires, at once */
	struct loop_timer *stops;
};

static void fire(struct loop_timer *timer)
{
	struct named_timer *t = CONTAINER_OF(timer, struct named_timer, timer);

	note(t->name);
	if (t->starts)
		assert_int_equal(loop_timer_start(loop, t->starts, 0), 0);
	if (t->stops)
		loop_timer_stop(loop, t->stops);
}

static void start(struct named_timer *t, int64_t at_ms)
{
	t->timer.on_fire = fire;
	assert_int_equal(loop_timer_start(loop, &t->timer, at_ms), 0);
}

TEST_WITH(timers_fire_in_the_order_of_their_times, setup, teardown)
{
	struct named_timer a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' };

	start(&c, 30);
	start(&a, 10);
	start(&b, 20);
	turn();
	assert_string_equal(trace, "abc");
	turn();
	assert_string_equal(trace, "abc");
}

TEST_WITH(a_moved_timer_fires_once_at_its_new_time, setup, teardown)
{
	struct named_timer a = { .name = 'a' }, b = { .name = 'b' };

	start(&a, 10);
	start(&b, 20);
	start(&a, 30);
	turn();
	assert_string_equal(trace, "ba");
}

TEST_WITH(of_several_who_want_a_timer_by_a_time_the_first_gets_it, setup, teardown)
{
	struct named_timer a = { .name = 'a' }, b = { .name = 'b' };

	start(&b, 20);
	a.timer.on_fire = fire;
	assert_int_equal(loop_timer_by(loop, &a.timer, 30), 0);
	assert_int_equal(loop_timer_by(loop, &a.timer, 10), 0);
	assert_int_equal(loop_timer_by(loop, &a.timer, 40), 0);
	turn();
	assert_string_equal(trace, "ab");
}

TEST_WITH(a_stopped_timer_does_not_fire, setup, teardown)
{
	struct named_timer a = { .name = 'a' }, b = { .name = 'b' };

	start(&b, 20);
	a.stops = &b.timer;
	start(&a, 10);
	turn();
	loop_timer_stop(loop, &b.timer);
	assert_string_equal(trace, "a");
}

TEST_WITH(a_timer_in_the_future_waits, setup, teardown)
{
	struct named_timer a = { .name = 'a' };

	start(&a, loop_now_ms(loop) + 60 * 1000);
	turn();
	assert_string_equal(trace, "");
	loop_timer_stop(loop, &a.timer);
}

TEST_WITH(a_timer_that_restarts_itself_starves_no_other, setup, teardown)
{
	struct named_timer a = { .name = 'a' }, b = { .name = 'b' };

	a.starts = &a.timer;
	start(&a, 1);
	start(&b, 2);
	turn();
	assert_string_equal(trace, "ab");
}

static int64_t last_fired_ms;
static size_t fired;

static void check_order(struct loop_timer *t)
{
	assert_true(t->at_ms >= last_fired_ms);
	last_fired_ms = t->at_ms;
	fired++;
}

TEST_WITH(many_timers_started_moved_and_stopped_keep_their_order, setup, teardown)
{
	struct loop_timer timers[TIMERS] = { 0 };
	size_t expected = 0;

	last_fired_ms = 0;
	fired = 0;
	for (size_t i = 0; i < TIMERS; i++) {
		timers[i].on_fire = check_order;
		assert_int_equal(loop_timer_start(loop, &timers[i], 1 + i * 7919 % 1009),
				 0);
	}
	for (size_t i = 0; i < TIMERS; i += 3)
		assert_int_equal(loop_timer_start(loop, &timers[i], 1 + i * 31 % 997), 0);
	for (size_t i = 0; i < TIMERS; i += 5)
		loop_timer_stop(loop, &timers[i]);
	for (size_t i = 0; i < TIMERS; i++)
		expected += timers[i].slot > 0;
	turn();
	assert_int_equal(fired, expected);
}

struct event_source {
	struct loop_source source;
	struct event_source *removes;
	char name;
};

static void source_ready(struct loop_source *source, uint32_t events)
{
	struct event_source *s = CONTAINER_OF(source, struct event_source, source);

	note(s->name);
	if (s->removes)
		loop_remove(loop, &s->removes->source);
}

static void source_open(struct event_source *s, char name)
{
	s->name = name;
	s->source.fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	s->source.on_ready = source_ready;
	assert_true(s->source.fd >= 0);
	assert_int_equal(loop_add(loop, &s->source, EPOLLIN), 0);
}

static void source_close(struct event_source *s)
{
	loop_remove(loop, &s->source);
	close(s->source.fd);
}

TEST_WITH(a_source_removed_by_another_of_the_batch_is_not_called, setup, teardown)
{
	struct event_source a = { 0 }, b = { 0 };

	source_open(&a, 'a');
	source_open(&b, 'b');
	a.removes = &b;
	b.removes = &a;
	turn();
	assert_int_equal(strlen(trace), 1);
	source_close(&a);
	source_close(&b);
}

TEST_WITH(a_source_without_interest_is_silent_until_it_is_modified, setup, teardown)
{
	struct event_source a = { 0 };

	source_open(&a, 'a');
	assert_int_equal(loop_modify(loop, &a.source, 0), 0);
	turn();
	assert_string_equal(trace, "");
	assert_int_equal(loop_modify(loop, &a.source, EPOLLIN), 0);
	turn();
	assert_string_equal(trace, "a");
	source_close(&a);
}

TEST_WITH(a_bad_descriptor_is_an_error, setup, teardown)
{
	struct loop_source s = { .fd = -1 };

	assert_int_equal(loop_add(loop, &s, EPOLLIN), -9 /* EBADF */);
	assert_false(s.added);
}

static void turn_end(void *data)
{
	note('e');
}

static void deferred_run(struct loop_deferred *d)
{
	note('d');
}

static void source_defers(struct loop_source *source, uint32_t events)
{
	static struct loop_deferred d = { .run = deferred_run };

	note('s');
	loop_defer(loop, &d);
}

TEST_WITH(a_turn_is_sources_then_timers_then_its_end_then_deferred_work, setup, teardown)
{
	struct event_source a = { 0 };
	struct named_timer t = { .name = 't' };

	source_open(&a, 'a');
	a.source.on_ready = source_defers;
	start(&t, 1);
	loop_on_turn_end(loop, turn_end, NULL);
	turn();
	assert_string_equal(trace, "sted");
	source_close(&a);
}

struct chain {
	struct loop_deferred deferred;
	struct loop_deferred *again, *cancels;
};

static void chain_run(struct loop_deferred *d)
{
	struct chain *c = CONTAINER_OF(d, struct chain, deferred);

	note('c');
	if (c->again)
		loop_defer(loop, c->again);
	if (c->cancels)
		loop_defer_cancel(loop, c->cancels);
}

TEST_WITH(deferred_work_may_defer_itself_to_the_next_turn, setup, teardown)
{
	struct chain c = { .deferred.run = chain_run, .again = &c.deferred };

	loop_defer(loop, &c.deferred);
	turn();
	assert_string_equal(trace, "c");
	/* Nothing else is due, and the turn does not wait. */
	assert_int_equal(loop_turn(loop, -1), 0);
	assert_string_equal(trace, "cc");
	loop_defer_cancel(loop, &c.deferred);
	turn();
	assert_string_equal(trace, "cc");
}

TEST_WITH(deferred_work_that_is_queued_is_not_queued_again, setup, teardown)
{
	struct chain first = { .deferred.run = chain_run },
		     c = { .deferred.run = chain_run };

	loop_defer(loop, &first.deferred);
	loop_defer(loop, &c.deferred);
	loop_defer(loop, &c.deferred);
	loop_defer(loop, &first.deferred);
	turn();
	assert_string_equal(trace, "cc");
	/* What was cancelled can be queued again. */
	loop_defer(loop, &c.deferred);
	loop_defer_cancel(loop, &c.deferred);
	loop_defer(loop, &c.deferred);
	turn();
	assert_string_equal(trace, "ccc");
}

TEST_WITH(deferred_work_that_is_cancelled_does_not_run, setup, teardown)
{
	struct loop_deferred never = { .run = deferred_run };
	struct chain c = { .deferred.run = chain_run, .cancels = &never };

	loop_defer_cancel(loop, &never);
	loop_defer(loop, &never);
	loop_defer(loop, &c.deferred); /* the last one runs first */
	turn();
	turn();
	assert_string_equal(trace, "c");
}

static void stop_run(struct loop_timer *t)
{
	loop_stop(loop);
}

TEST_WITH(run_ends_after_stop, setup, teardown)
{
	struct loop_timer t = { .on_fire = stop_run };

	assert_int_equal(loop_timer_start(loop, &t, loop_now_ms(loop) + 5), 0);
	assert_int_equal(loop_run(loop), 0);
}

int main(void)
{
	return unit_run(NULL, NULL);
}
