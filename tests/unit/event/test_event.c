// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "event/event.h"
#include "unit.h"

static struct event sample(const char *name)
{
	struct event e = { .ts_ms = 1,
			   .packets = 1,
			   .bytes = 10,
			   .sandbox = 1,
			   .rule = 2,
			   .port = 443,
			   .action = EVENT_DENY,
			   .layer = EVENT_DNS };

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

TEST(equal_events_fold_and_keep_the_first_time)
{
	struct event_ring *r = event_ring_new(4);
	struct event e = sample("a.test");

	event_ring_add(r, &e);
	e.ts_ms = 99;
	e.packets = 5;
	snprintf(e.reason, sizeof(e.reason), "another reason");
	event_ring_add(r, &e);
	assert_int_equal(event_ring_count(r), 1);
	assert_int_equal(event_ring_at(r, 0)->packets, 6);
	assert_int_equal(event_ring_at(r, 0)->bytes, 20);
	assert_int_equal(event_ring_at(r, 0)->ts_ms, 1);
	event_ring_free(r);
}

static void tell_process(struct event_ring *r, uint32_t pid, const char *command)
{
	struct event e = sample("a.test");

	e.pid = pid;
	e.uid = 7;
	snprintf(e.command, sizeof(e.command), "%s", command);
	event_ring_name(r, &e);
}

TEST(of_several_processes_none_is_named)
{
	static const struct {
		uint32_t pid;
		const char *command;
		uint32_t then_pid;
		const char *then_command;
	} steps[] = {
		{ 0, "", 0, "" },
		{ 11, "curl", 11, "curl" },
		{ 0, "", 11, "curl" },
		{ 11, "curl", 11, "curl" },
		{ 12, "curl", 0, "curl" },
		{ 12, "curl", 0, "curl" },
		{ 13, "wget", 0, "several" },
		{ 13, "wget", 0, "several" },
	};
	struct event_ring *r = event_ring_new(4);
	struct event e = sample("a.test");

	e.uid = UINT32_MAX;
	tell_process(r, 9, "nobody"); /* of what isn't there */
	assert_int_equal(event_ring_count(r), 0);
	event_ring_add(r, &e);
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		tell_process(r, steps[i].pid, steps[i].command);
		assert_int_equal(event_ring_at(r, 0)->pid, steps[i].then_pid);
		assert_string_equal(event_ring_at(r, 0)->command, steps[i].then_command);
	}
	assert_int_equal(event_ring_at(r, 0)->packets, 1);
	assert_int_equal(event_ring_at(r, 0)->uid, 7);
	event_ring_free(r);
}

TEST(what_differs_in_any_key_field_does_not_fold)
{
	struct event base = sample("a.test"), rows[9];
	struct event_ring *r = event_ring_new(16);

	for (size_t i = 0; i < 9; i++)
		rows[i] = base;
	rows[0].sandbox++;
	rows[1].rule++;
	rows[2].port++;
	rows[3].action++;
	rows[4].layer++;
	rows[5].protocol++;
	rows[6].limit++;
	rows[7].remote = addr_v4(1, 2, 3, 4);
	rows[8].name[0] = 'b';
	event_ring_add(r, &base);
	for (size_t i = 0; i < 9; i++)
		event_ring_add(r, &rows[i]);
	assert_int_equal(event_ring_count(r), 10);
	event_ring_free(r);
}

TEST(changes_fold_only_when_they_say_the_same)
{
	static const struct {
		enum event_action action;
		size_t rows;
	} cases[] = {
		{ EVENT_ALLOW, 1 }, { EVENT_DENY, 1 },	 { EVENT_LIMIT, 1 },
		{ EVENT_PANIC, 2 }, { EVENT_CHANGE, 2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct event_ring *r = event_ring_new(4);
		struct event e = { .packets = 1, .action = (uint8_t)cases[i].action };

		for (int k = 0; k < 4; k++) {
			snprintf(e.reason, sizeof(e.reason), "was %s",
				 k % 2 ? "detached" : "attached");
			event_ring_add(r, &e);
		}
		assert_int_equal(event_ring_count(r), cases[i].rows);
		assert_int_equal(event_ring_at(r, 0)->packets, 4 / cases[i].rows);
		event_ring_free(r);
	}
}

/* It is larger than the first piece of memory that it takes, and no power of two. */
TEST(a_ring_grows_up_to_its_capacity)
{
	enum { CAPACITY = 100, MORE = 30 };
	struct event_ring *r = event_ring_new(CAPACITY);
	struct event e = { .packets = 1 };

	for (int round = 0; round < 2; round++) {
		for (uint16_t i = 0; i < CAPACITY; i++) {
			e.port = i;
			event_ring_add(r, &e);
		}
		assert_int_equal(event_ring_count(r), CAPACITY);
		assert_int_equal(event_ring_dropped(r), 0);
	}
	for (uint16_t i = 0; i < MORE; i++) {
		e.port = (uint16_t)(CAPACITY + i);
		event_ring_add(r, &e);
	}
	assert_int_equal(event_ring_count(r), CAPACITY);
	assert_int_equal(event_ring_dropped(r), 2 * MORE);
	for (size_t i = 0; i < CAPACITY; i++) {
		assert_int_equal(event_ring_at(r, i)->port, MORE + i);
		assert_int_equal(event_ring_at(r, i)->packets,
				 i < CAPACITY - MORE ? 2 : 1);
	}
	event_ring_free(r);
}

TEST(a_full_ring_loses_its_oldest_and_counts_it)
{
	struct event_ring *r = event_ring_new(3);
	char name[24];

	for (int round = 0; round < 100; round++) {
		struct event e;

		snprintf(name, sizeof(name), "n%d.test", round);
		e = sample(name);
		event_ring_add(r, &e);
		event_ring_add(r, &e);
	}
	assert_int_equal(event_ring_count(r), 3);
	assert_string_equal(event_ring_at(r, 0)->name, "n97.test");
	assert_string_equal(event_ring_at(r, 2)->name, "n99.test");
	assert_null(event_ring_at(r, 3));
	assert_int_equal(event_ring_dropped(r), 97 * 2);
	event_ring_free(r);
}

TEST(a_name_that_fills_its_field_is_read_within_it)
{
	struct event_ring *r = event_ring_new(2);
	struct event e = sample("");

	memset(e.name, 'x', sizeof(e.name));
	event_ring_add(r, &e);
	event_ring_add(r, &e);
	assert_int_equal(event_ring_count(r), 1);
	event_ring_free(r);
}

TEST(a_ring_of_nothing_is_refused)
{
	assert_null(event_ring_new(0));
	event_ring_free(NULL);
}

TEST(every_action_and_layer_has_a_name)
{
	for (int i = 0; i < EVENT_ACTION_COUNT; i++)
		assert_non_null(event_action_name((enum event_action)i));
	for (int i = 0; i < EVENT_LAYER_COUNT; i++)
		assert_non_null(event_layer_name((enum event_layer)i));
	assert_string_equal(event_action_name(EVENT_DENY), "deny");
	assert_string_equal(event_action_name(EVENT_ACTION_COUNT), "unknown");
	assert_string_equal(event_layer_name((enum event_layer) - 1), "unknown");
}
