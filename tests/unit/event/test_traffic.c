// SPDX-License-Identifier: Apache-2.0
/* Bytes by destination: each counted once, and no more destinations than the bytes pay
 * for. */
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include "event/traffic.h"

static void pass(struct traffic *t, const char *name, uint64_t sent, uint64_t received)
{
	struct event e = { .action = EVENT_ALLOW,
			   .layer = EVENT_NAME,
			   .bytes = sent,
			   .received = received };

	snprintf(e.name, sizeof(e.name), "%s", name);
	traffic_add(t, &e);
}

/* False: it isn't shown. */
static bool find(const struct traffic *t, const char *name, struct traffic_row *ret)
{
	for (size_t i = 0; traffic_row(t, i, ret); i++)
		if (strcmp(ret->destination, name) == 0)
			return true;
	return false;
}

static uint64_t shown(const struct traffic *t)
{
	const struct traffic_row others = traffic_others(t);
	uint64_t all = others.sent + others.received;
	struct traffic_row row;

	for (size_t i = 0; traffic_row(t, i, &row); i++)
		all += row.sent + row.received;
	return all;
}

TEST(each_byte_is_counted_once)
{
	struct traffic *t = traffic_new();
	struct event lookup = { .action = EVENT_ALLOW, .layer = EVENT_DNS, .bytes = 7 };
	struct event denied = { .action = EVENT_DENY, .layer = EVENT_NAME, .bytes = 7 };
	struct event unnamed = { .action = EVENT_ALLOW,
				 .layer = EVENT_ADDRESS,
				 .bytes = 5 };
	const uint8_t v4[] = { 93, 1, 2, 3 };
	struct traffic_row row;

	assert_non_null(t);
	unnamed.remote = addr_from_bytes(ADDR_V4, v4);
	traffic_add(t, &lookup);
	traffic_add(t, &denied);
	traffic_add(t, &unnamed);
	pass(t, "a.test", 10, 200);
	pass(t, "a.test", 1, 0);
	assert_true(find(t, "a.test", &row));
	assert_int_equal(row.sent, 11);
	assert_int_equal(row.received, 200);
	assert_true(find(t, "93.1.2.3", &row));
	assert_int_equal(row.sent, 5);
	assert_false(traffic_row(t, 2, &row));
	assert_int_equal(traffic_others(t).sent, 0);
	traffic_free(t);
}

/* Names without end, of a few bytes each, push none out; one that is heavy gets in. */
TEST(a_flood_of_names_is_the_others)
{
	enum { FLOOD = 20000 };
	struct traffic *t = traffic_new();
	struct traffic_row row;
	uint64_t all = 0;
	char name[32];

	for (unsigned int i = 0; i < TRAFFIC_SHOWN; i++, all += 1000) {
		snprintf(name, sizeof(name), "good%u.test", i);
		pass(t, name, 100, 900);
	}
	for (unsigned int i = 0; i < FLOOD; i++, all += 50) {
		snprintf(name, sizeof(name), "n%u.flood.test", i);
		pass(t, name, 50, 0);
	}
	for (unsigned int i = 0; i < TRAFFIC_SHOWN; i++) {
		snprintf(name, sizeof(name), "good%u.test", i);
		assert_true(find(t, name, &row));
	}
	assert_int_equal(traffic_others(t).sent, FLOOD * 50);
	for (int i = 0; i < 4; i++, all += 600)
		pass(t, "heavy.test", 0, 600);
	assert_true(find(t, "heavy.test", &row));
	/* Before it was shown its bytes were the others'. */
	assert_int_equal(row.received, 600);
	assert_int_equal(traffic_others(t).received, 3 * 600);
	/* What made room isn't shown, and its 1,000 bytes are in no row any more. */
	assert_int_equal(shown(t), all - 1000);
	assert_false(traffic_row(t, TRAFFIC_SHOWN, &row));
	traffic_free(t);
}

/* Whatever the sandbox sends, the names that were ever shown cost it bytes: for each
 * place one more than twice as many bytes each time. */
TEST(names_that_were_shown_cost_bytes)
{
	enum { STEPS = 200000 };
	struct traffic *t = traffic_new();
	const char *before[TRAFFIC_SHOWN] = { NULL };
	uint64_t all = 0, seed = 7, changes = 0, bits = 0;
	struct traffic_row row;
	char name[32];

	for (unsigned int i = 0; i < STEPS; i++) {
		uint64_t bytes;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		bytes = 1 + (seed >> 33) % (1 + i / 10);
		snprintf(name, sizeof(name), "n%u.test", (unsigned int)(seed >> 50));
		pass(t, name, bytes, 0);
		all += bytes;
		for (size_t n = 0; traffic_row(t, n, &row); n++) {
			changes += before[n] != row.destination;
			before[n] = row.destination;
		}
	}
	while (all >> bits)
		bits++;
	assert_in_range(changes, TRAFFIC_SHOWN, TRAFFIC_SHOWN * (bits + 1));
	traffic_free(t);
}
