// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sandbox/accounting.h"
#include "unit.h"

static struct event name_event(const char *name)
{
	struct event e = { .action = EVENT_DENY, .layer = EVENT_DNS };

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

static struct event addr_event(const char *text, uint16_t port)
{
	struct event e = { .action = EVENT_DENY, .layer = EVENT_ADDRESS, .port = port };

	assert_true(addr_parse(text, strlen(text), &e.remote));
	return e;
}

static unsigned int rank_of_name(struct novelty *c, const char *name, int64_t now_ms)
{
	const struct event e = name_event(name);

	return novelty_rank(c, &e, now_ms);
}

/* A thousand in a second, @format with two numbers. Return: the rank of the last one. */
static unsigned int flood(struct novelty *c, const char *format)
{
	unsigned int rank = 0;
	char name[64];

	for (unsigned int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), format, i);
		rank = rank_of_name(c, name, i);
	}
	return rank;
}

TEST(who_asks_for_little_is_first)
{
	struct novelty c = { 0 };

	for (int i = 0; i < NOVELTY_FEW; i++)
		assert_int_equal(rank_of_name(&c, "api.test", 0), 0);
}

TEST(a_flood_has_a_later_rank_than_what_it_does_not_resemble)
{
	const struct {
		const char *what, *flood, *other;
		unsigned int flooding, rank;
	} rows[] = {
		{ "names of one domain", "n%u.flood.example", "api.evil.example", 2, 1 },
		{ "another top level", "n%u.flood.example", "api.evil.test", 2, 0 },
		{ "a deep one", "n%u.a.flood.example", "b.flood.example", 3, 2 },
		{ "domains below one", "n%u.example", "evil.test", 1, 0 },
		{ "hosts of many domains", "api.n%u.example", "evil.test", 1, 0 },
		{ "without a dot", "n%u", "evil.test", 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct novelty c = { 0 };

		print_message("%s\n", rows[i].what);
		assert_int_equal(flood(&c, rows[i].flood), rows[i].flooding);
		assert_int_equal(rank_of_name(&c, rows[i].other, 1000), rows[i].rank);
	}
}

/* Which groups share a counter is the key's. */
TEST(hardly_any_key_hides_one_behind_a_flood)
{
	unsigned int hidden = 0;

	for (uint64_t i = 0; i < 2000; i++) {
		struct novelty c = { .key = { i, 0 } };

		flood(&c, "n%u.test");
		hidden += rank_of_name(&c, "api.evil.example", 1000) != 0;
	}
	assert_in_range(hidden, 0, 2);
}

TEST(addresses_are_grouped_by_their_first_bits)
{
	struct novelty c = { 0 };
	struct event e;
	char text[64];

	for (uint16_t i = 0; i < 1000; i++) {
		e = addr_event("93.9.9.9", i);
		(void)novelty_rank(&c, &e, 0);
	}
	e = addr_event("93.9.9.9", 2000);
	assert_int_equal(novelty_rank(&c, &e, 0), NOVELTY_LEVELS);
	e = addr_event("93.9.9.7", 443);
	assert_int_equal(novelty_rank(&c, &e, 0), 2);
	e = addr_event("93.9.8.9", 443);
	assert_int_equal(novelty_rank(&c, &e, 0), 1);
	e = addr_event("94.9.9.9", 443);
	assert_int_equal(novelty_rank(&c, &e, 0), 0);
	for (unsigned int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "2a0a:1:2:3::%x", i);
		e = addr_event(text, 443);
		(void)novelty_rank(&c, &e, 0);
	}
	assert_int_equal(novelty_rank(&c, &e, 0), NOVELTY_LEVELS);
	e = addr_event("2a0a:2::1", 443);
	assert_int_equal(novelty_rank(&c, &e, 0), 0);
}

TEST(a_novelty_is_forgotten)
{
	struct novelty c = { 0 };

	flood(&c, "n%u.a.flood.example");
	assert_int_equal(rank_of_name(&c, "b.a.flood.example", 1000), 3);
	assert_int_equal(rank_of_name(&c, "c.a.flood.example", 9000), 0);
	/* Time that stands still, goes back, or is far away. */
	assert_int_equal(rank_of_name(&c, "d.a.flood.example", 0), 0);
	assert_int_equal(rank_of_name(&c, "e.a.flood.example", INT64_C(1) << 60), 0);
}

TEST(any_name_will_do)
{
	struct novelty c = { 0 };
	struct event e = name_event("");

	assert_int_equal(novelty_rank(&c, &e, 0), 0);
	for (size_t i = 0; i < 300; i++) {
		memset(e.name, i % 2 ? '.' : 'a', sizeof(e.name)); /* no end */
		(void)novelty_rank(&c, &e, 0);
	}
}
