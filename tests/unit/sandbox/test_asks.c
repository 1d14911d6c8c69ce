// SPDX-License-Identifier: Apache-2.0
#include "sandbox/asks.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "test_plan.h"

struct world {
	struct sandbox s;
	uint8_t *bytes;
};

/* @rules are in force from now on. */
static void set(struct world *w, const char *rules)
{
	uint8_t *before = w->bytes;
	struct plan plan;

	w->bytes = plan_from(rules, &plan);
	sandbox_set_plan(&w->s, &plan);
	free(before);
}

static void done(struct world *w)
{
	asks_free(&w->s);
	free(w->bytes);
}

static struct asked what(const char *destination, uint8_t protocol, uint16_t port)
{
	struct asked a = { .protocol = protocol, .port = port };

	if (!addr_parse(destination, strlen(destination), &a.addr))
		assert_int_equal(dns_name_parse(text_of(destination), &a.name), 0);
	return a;
}

static bool dismiss(struct world *w, const char *destination, uint8_t protocol,
		    uint16_t port)
{
	const struct asked a = what(destination, protocol, port);

	return asks_dismiss(&w->s, &a);
}

static bool is_dismissed(const struct world *w, const char *destination, uint8_t protocol,
			 uint16_t port)
{
	const struct asked a = what(destination, protocol, port);

	return asks_is_dismissed(&w->s, &a);
}

#define ASK                                                                              \
	"egress: [{action: ask, target: '**.x.test'}, {action: ask, target: "            \
	"93.0.0.0/8}]"

TEST(a_dismissal_is_of_one_port_or_of_all)
{
	struct world w = { 0 };

	set(&w, ASK);
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 443));
	assert_true(dismiss(&w, "a.x.test", IPPROTO_UDP, 443));
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 443));
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_UDP, 443));
	assert_false(is_dismissed(&w, "a.x.test", IPPROTO_UDP, 22));
	assert_false(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 80));
	/* A lookup's port isn't known. */
	assert_false(is_dismissed(&w, "a.x.test", 0, 0));
	assert_true(dismiss(&w, "a.x.test", 0, 0));
	assert_true(is_dismissed(&w, "a.x.test", 0, 0));
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 80));
	assert_true(dismiss(&w, "93.1.2.3", IPPROTO_UDP, 7));
	assert_true(is_dismissed(&w, "93.1.2.3", IPPROTO_UDP, 7));
	assert_false(is_dismissed(&w, "93.1.2.4", IPPROTO_UDP, 7));
	assert_false(is_dismissed(&w, "b.x.test", IPPROTO_UDP, 7));
	done(&w);
}

TEST(only_what_asks_is_dismissed)
{
	struct world w = { 0 };

	set(&w, "egress: [{action: ask, target: a.x.test, ports: [443]}, {action: allow,"
		" target: b.x.test}, {action: ask, target: 93.0.0.0/8, ports: [7]}]");
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 443));
	assert_false(dismiss(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_false(dismiss(&w, "b.x.test", 0, 0));
	assert_false(dismiss(&w, "c.test", 0, 0));
	assert_true(dismiss(&w, "93.1.2.3", IPPROTO_UDP, 7));
	assert_false(dismiss(&w, "93.1.2.3", IPPROTO_UDP, 8));
	assert_false(dismiss(&w, "94.1.2.3", 0, 0));
	/* A task of a sidecar or daemon is about every port. */
	assert_true(dismiss(&w, "93.1.2.4", 0, 0));
	assert_true(is_dismissed(&w, "93.1.2.4", IPPROTO_TCP, 7));
	assert_false(is_dismissed(&w, "b.x.test", IPPROTO_TCP, 443));
	done(&w);
}

/* What waits for the other port waits on meanwhile. */
TEST(a_port_is_dismissed_while_another_one_is_granted)
{
	struct world w = { 0 };

	set(&w, "egress: [{action: allow, target: a.x.test, ports: [443]}, {action: ask,"
		" target: '**.x.test'}]");
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_false(dismiss(&w, "a.x.test", IPPROTO_TCP, 443));
	set(&w, ASK);
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 22));
	done(&w);
}

TEST(a_grant_of_one_port_leaves_the_others_dismissed)
{
	struct world w = { 0 };

	set(&w, ASK);
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 443));
	assert_true(dismiss(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_true(dismiss(&w, "93.1.2.3", IPPROTO_UDP, 7));
	assert_true(dismiss(&w, "93.1.2.3", IPPROTO_UDP, 8));
	set(&w,
	    "egress: [{action: allow, target: a.x.test, ports: [443]}, {action: allow,"
	    " target: 93.1.2.3, ports: [7]}]");
	set(&w, ASK);
	assert_false(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 443));
	assert_true(is_dismissed(&w, "a.x.test", IPPROTO_TCP, 22));
	assert_false(is_dismissed(&w, "93.1.2.3", IPPROTO_UDP, 7));
	assert_true(is_dismissed(&w, "93.1.2.3", IPPROTO_UDP, 8));
	done(&w);
}

/* The sandbox chooses the names that it looks up, and none of the dismissals. */
TEST(names_that_are_looked_up_push_no_dismissal_out)
{
	struct world w = { 0 };
	char name[32];
	struct addr a;

	set(&w, ASK);
	assert_true(dismiss(&w, "no.x.test", 0, 0));
	for (int i = 0; i < 300; i++) {
		struct asked other;

		snprintf(name, sizeof(name), "x%d.x.test", i);
		other = what(name, 0, 0);
		assert_true(asks_address(&w.s, &other.name, ADDR_V4,
					 i * INT64_C(2) * ASKS_KEEP_MS, &a));
	}
	assert_true(is_dismissed(&w, "no.x.test", 0, 0));
	done(&w);
}

TEST(dismissals_take_no_stand_in_and_are_bounded)
{
	struct world w = { 0 };
	const struct asked site = what("site.x.test", 0, 0);
	char name[32];
	struct addr a;

	set(&w, ASK);
	for (int i = 0; i <= ASKS_DISMISSED_MAX; i++) {
		snprintf(name, sizeof(name), "x%d.x.test", i);
		assert_true(dismiss(&w, name, 0, 0));
	}
	assert_false(is_dismissed(&w, "x0.x.test", 0, 0));
	assert_true(is_dismissed(&w, "x1.x.test", 0, 0));
	assert_true(asks_address(&w.s, &site.name, ADDR_V4, 0, &a));
	done(&w);
}
