// SPDX-License-Identifier: Apache-2.0
#include "relay/relay_internal.h"
#include "unit.h"

enum { MAX_PORTS = 100, NOW = 1000 * 1000 };

struct sandboxes {
	struct ports_used all, one, two;
};

/* Return: how many @mine could take. */
static size_t take_all(struct sandboxes *s, struct ports_used *mine, size_t server,
		       int64_t now_ms)
{
	size_t n = 0;

	while (ports_take(mine, &s->all, server, MAX_PORTS, now_ms))
		n++;
	return n;
}

static void give_all(struct sandboxes *s, struct ports_used *mine, size_t server,
		     size_t count, bool rests, int64_t now_ms)
{
	for (size_t i = 0; i < count; i++) {
		ports_give(mine, server, rests, now_ms);
		ports_give(&s->all, server, rests, now_ms);
	}
}

TEST(a_sandbox_takes_no_more_than_it_leaves_free)
{
	struct sandboxes s = { 0 };

	assert_int_equal(take_all(&s, &s.one, 3, NOW), MAX_PORTS / 2);
	assert_int_equal(take_all(&s, &s.two, 3, NOW), MAX_PORTS / 4);
	assert_int_equal(take_all(&s, &s.one, 4, NOW), MAX_PORTS / 2);
}

TEST(a_port_that_is_free_again_is_anybodys)
{
	struct sandboxes s = { 0 };

	assert_int_equal(take_all(&s, &s.one, 3, NOW), MAX_PORTS / 2);
	give_all(&s, &s.one, 3, MAX_PORTS / 2, false, NOW);
	assert_int_equal(take_all(&s, &s.two, 3, NOW), MAX_PORTS / 2);
}

TEST(a_port_that_rests_is_taken_for_a_minute)
{
	struct sandboxes s = { 0 };
	int64_t free_ms = 0;

	assert_int_equal(take_all(&s, &s.one, 3, NOW), MAX_PORTS / 2);
	give_all(&s, &s.one, 3, MAX_PORTS / 2, true, NOW);
	assert_false(ports_take(&s.one, &s.all, 3, MAX_PORTS, NOW + 60 * 1000 - 1));
	for (free_ms = 60 * 1000; free_ms <= 80 * 1000; free_ms += 1000)
		if (ports_take(&s.one, &s.all, 3, MAX_PORTS, NOW + free_ms))
			break;
	assert_in_range(free_ms, 60 * 1000, 80 * 1000);
	assert_int_equal(take_all(&s, &s.one, 3, NOW + free_ms), MAX_PORTS / 2 - 1);
}

TEST(an_hour_later_nothing_rests)
{
	struct sandboxes s = { 0 };

	for (size_t i = 0; i < PORTS_SERVERS; i++) {
		take_all(&s, &s.one, i, NOW);
		give_all(&s, &s.one, i, MAX_PORTS / 2, true, NOW);
	}
	for (size_t i = 0; i < PORTS_SERVERS; i++)
		assert_int_equal(take_all(&s, &s.two, i, NOW + 3600 * 1000),
				 MAX_PORTS / 2);
}

TEST(servers_are_told_apart_by_address_and_port)
{
	const struct endpoint a = { .addr = addr_v4(93, 1, 2, 3), .port = 443 };
	struct endpoint b = a, c = a;

	b.port = 444;
	c.addr = addr_v4(93, 1, 2, 4);
	assert_int_equal(ports_server(&a), ports_server(&a));
	assert_int_not_equal(ports_server(&a), ports_server(&b));
	assert_int_not_equal(ports_server(&a), ports_server(&c));
	assert_in_range(ports_server(&a), 0, PORTS_SERVERS - 1);
}
