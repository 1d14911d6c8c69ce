// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "sandbox/accounting.h"
#include "sandbox/budgets.h"
#include "sandbox/learned.h"
#include "sandbox/sandbox.h"
#include "test_plan.h"
#include "unit.h"

enum { PER_SECOND = 20, TICK_MS = 250 };

/* What was told. */
struct told {
	uint64_t rows, packets; /* with a destination */
	uint64_t others_rows, others_packets;
	uint32_t rule; /* of the last one */
	bool shut;     /* control takes nothing */
	char wanted[EVENT_NAME_SIZE];
	int64_t wanted_ms; /* 0: not yet */
	int64_t now_ms;
};

struct world {
	struct sandbox sandbox;
	struct aggregation_pool pool;
	struct told told;
	uint8_t *plan;
	int64_t now_ms;
};

static bool on_event(void *data, const struct event *e)
{
	struct told *t = data;
	bool is_others = e->name[0] == '\0';

	if (t->shut)
		return false;
	t->rule = e->rule;
	*(is_others ? &t->others_rows : &t->rows) += 1;
	*(is_others ? &t->others_packets : &t->packets) += e->packets;
	if (t->wanted[0] && strcmp(e->name, t->wanted) == 0 && t->wanted_ms == 0)
		t->wanted_ms = t->now_ms;
	return true;
}

static struct world *open_world(const char *policy)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->pool.left = ACCOUNTING_POOL_MAX;
	w->plan = plan_from(policy, &w->sandbox.plan);
	w->sandbox.state = SANDBOX_RUNNING;
	w->sandbox.on_event = on_event;
	w->sandbox.on_event_data = &w->told;
	w->sandbox.accounting = accounting_new(&w->pool);
	assert_non_null(w->sandbox.accounting);
	w->now_ms = 100000;
	return w;
}

static void close_world(struct world *w)
{
	accounting_free(w->sandbox.accounting);
	assert_int_equal(w->pool.left, ACCOUNTING_POOL_MAX);
	free(w->plan);
	free(w);
}

static void deny(struct world *w, const char *name)
{
	struct event e = { .action = EVENT_DENY,
			   .layer = EVENT_DNS,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX };

	snprintf(e.name, sizeof(e.name), "%s", name);
	w->told.now_ms = w->now_ms;
	sandbox_event(&w->sandbox, &e, w->now_ms);
}

static void pass_ms(struct world *w, int64_t ms)
{
	for (int64_t end = w->now_ms + ms; w->now_ms < end;) {
		w->now_ms++;
		w->told.now_ms = w->now_ms;
		if (w->now_ms % TICK_MS == 0)
			accounting_report(&w->sandbox, w->now_ms, false);
	}
}

/* One each millisecond, of @first and on. */
static void flood(struct world *w, const char *format, unsigned int first, int64_t ms)
{
	char name[64];

	for (int64_t i = 0; i < ms; i++) {
		snprintf(name, sizeof(name), format, first + (unsigned int)i);
		deny(w, name);
		pass_ms(w, 1);
	}
}

/* Deny it now. Return: after how long it was told. */
static int64_t look_for(struct world *w, const char *name)
{
	const int64_t begin_ms = w->now_ms;

	snprintf(w->told.wanted, sizeof(w->told.wanted), "%s", name);
	w->told.wanted_ms = 0;
	deny(w, name);
	for (int i = 0; i < 5000 && w->told.wanted_ms == 0; i++)
		pass_ms(w, 1);
	return w->told.wanted_ms > 0 ? w->told.wanted_ms - begin_ms : INT64_MAX;
}

static void assert_all_told(struct world *w, uint64_t packets)
{
	pass_ms(w, 3000);
	assert_int_equal(w->told.packets + w->told.others_packets, packets);
	assert_int_equal(w->told.others_packets,
			 w->sandbox.counters[COUNT_EVENTS_DROPPED]);
	for (unsigned int line = 0; line < AGGREGATION_LINES; line++)
		assert_null(aggregation_oldest(w->sandbox.accounting->denied, line,
					       w->now_ms));
}

TEST(what_is_quiet_is_told_at_once)
{
	struct world *w = open_world("egress: []\n");

	/* Of one domain, hundreds at a time: a build that asks for what it may not. */
	flood(w, "n%u.mirror.example", 0, 100);
	assert_int_equal(w->told.rows, 100);
	assert_int_equal(w->told.others_rows, 0);
	assert_all_told(w, 100);
	close_world(w);
}

/* What is told of rules, not of what the sandbox does, is told through every flood. */
TEST(a_flood_hides_no_notice)
{
	struct world *w = open_world("egress: []\n");
	struct event notice = { .action = EVENT_CHANGE,
				.layer = EVENT_LAUNCH,
				.uid = UINT32_MAX,
				.name = "rule.test" };

	accounting_free(w->sandbox.accounting);
	w->sandbox.accounting = NULL;
	for (int i = 0; i < 5000; i++)
		deny(w, "flood.test");
	assert_true(w->sandbox.counters[COUNT_EVENTS_DROPPED] > 0);
	snprintf(w->told.wanted, sizeof(w->told.wanted), "rule.test");
	sandbox_notice(&w->sandbox, &notice, w->now_ms);
	assert_int_equal(w->told.wanted_ms, w->now_ms);
	close_world(w);
}

TEST(a_flood_has_its_share_and_no_more)
{
	struct world *w = open_world("egress: []\n");

	flood(w, "n%u.flood.example", 0, 20000);
	assert_all_told(w, 20000);
	assert_in_range(w->told.rows, PER_SECOND * 20,
			PER_SECOND * (20 + ACCOUNTING_BURST_SEC + 2));
	/* One a second for what is left. */
	assert_in_range(w->told.others_rows, 15, 24);
	close_world(w);
}

TEST(what_differs_from_a_flood_is_told_at_once)
{
	static const char *const others[] = { "api.evil.example", "evil.test",
					      "n1.other.example" };
	struct world *w = open_world("egress: []\n");

	flood(w, "n%u.flood.example", 0, 10000);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_in_range(look_for(w, others[i]), 0, TICK_MS);
	assert_all_told(w, 10003);
	close_world(w);
}

TEST(a_flood_that_is_over_holds_nothing_up)
{
	struct world *w = open_world("egress: []\n");

	flood(w, "n%u.flood.example", 0, 10000);
	/* Even where it looks like one more of them. */
	assert_in_range(look_for(w, "after.flood.example"), 0, 2 * TICK_MS);
	assert_all_told(w, 10001);
	close_world(w);
}

TEST(what_comes_again_and_again_is_one_row_a_second)
{
	struct world *w = open_world("egress: []\n");

	for (int i = 0; i < 5000; i++) {
		deny(w, "api.test");
		pass_ms(w, 1);
	}
	assert_all_told(w, 5000);
	assert_in_range(w->told.rows, 5, 7);
	assert_int_equal(w->told.others_rows, 0);
	close_world(w);
}

TEST(what_control_does_not_take_waits)
{
	struct world *w = open_world("egress: []\n");

	w->told.shut = true;
	flood(w, "n%u.test", 0, 500);
	pass_ms(w, 3000);
	assert_int_equal(w->told.rows + w->told.others_rows, 0);
	w->told.shut = false;
	assert_all_told(w, 500);
	assert_in_range(w->told.rows, 100, 500);
	close_world(w);
}

TEST(a_flood_of_another_sandbox_takes_no_place)
{
	struct world *w = open_world("egress: []\n");

	w->pool.left = 0; /* the others have it all */
	assert_in_range(look_for(w, "api.test"), 0, 0);
	flood(w, "n%u.flood.example", 0, 3000);
	assert_in_range(look_for(w, "api.evil.example"), 0, TICK_MS);
	assert_all_told(w, 3002);
	w->pool.left = ACCOUNTING_POOL_MAX;
	close_world(w);
}

TEST(without_a_limit_all_is_told)
{
	struct world *w = open_world("egress: []\n"
				     "limits: {events_per_second: unlimited}\n");

	flood(w, "n%u.flood.example", 0, 5000);
	assert_all_told(w, 5000);
	assert_int_equal(w->told.rows, 5000);
	close_world(w);
}

/* Each that begins to pass is an event of its own, and denials have their share. What
 * finds no place is no loss: it comes again when it has passed. */
TEST(what_opens_has_its_share_and_no_more)
{
	struct world *w = open_world("egress: []\n");
	uint64_t told;

	for (size_t i = 0; i < 1000; i++) {
		struct event e = { .action = EVENT_ALLOW, .name = "a.test" };

		sandbox_opened(&w->sandbox, &e, w->now_ms);
	}
	told = w->told.rows;
	assert_in_range(told, 1, PER_SECOND);
	assert_int_equal(w->sandbox.counters[COUNT_PASSED_DROPPED], 0);
	flood(w, "n%u.mirror.example", 0, 10);
	assert_int_equal(w->told.rows, told + 10);
	close_world(w);
}

/* ---- what the kernel has counted, where a budget pays ---- */

enum { BUDGET = 1 << 30, BYTES = 100 };

#define BUDGETS                                                                          \
	"egress:\n"                                                                      \
	"- {action: allow, target: '*.a.test', budget: {sent: 1G}}\n"                    \
	"- {action: allow, target: b.test, budget: {sent: 1G}}\n"

static struct world *open_budgets(const char *policy)
{
	struct world *w = open_world(policy);
	const struct hash_key key = { 1, 2 };

	w->sandbox.learned = learned_new(&w->sandbox.plan, &key);
	assert_non_null(w->sandbox.learned);
	learned_keep_past(w->sandbox.learned);
	w->sandbox.budgets = budgets_new(NULL, &w->sandbox.plan, w->now_ms);
	assert_non_null(w->sandbox.budgets);
	return w;
}

static void close_budgets(struct world *w)
{
	budgets_free(w->sandbox.budgets);
	learned_free(w->sandbox.learned);
	close_world(w);
}

/* The name x@number.a.test has taught @a. */
static void teach(struct world *w, unsigned int number, const struct addr *a)
{
	struct learned_item item = { .addr = *a, .ttl_sec = 1 };
	struct filter_learn ignored;
	struct dns_name name;
	char text[32];

	snprintf(text, sizeof(text), "x%u.a.test", number);
	assert_int_equal(dns_name_parse(text_of(text), &name), 0);
	item.name = &name;
	item.verdict = plan_match_name(&w->sandbox.plan, &name);
	assert_true(learned_prepare(w->sandbox.learned, &item, w->now_ms, &ignored) >= 0);
	learned_commit(w->sandbox.learned, &item, w->now_ms);
}

static void forget_all(struct world *w)
{
	w->now_ms += 1000 * 1000;
	assert_true(learned_expire(w->sandbox.learned, w->now_ms) == INT64_MAX);
}

static void count(struct world *w, struct passed_payers *payers, const struct addr *a,
		  unsigned int port)
{
	const struct filter_count c = {
		.addr = *a,
		.port = (uint16_t)port,
		.protocol = IPPROTO_UDP,
		.packets = 1,
		.bytes = BYTES,
	};

	passed_count(&w->sandbox, &c, payers, w->now_ms);
}

static uint64_t used_by(const struct world *w, uint32_t rule)
{
	const struct plan *p = &w->sandbox.plan;
	const uint64_t which = budgets_of(p, rule);

	return BUDGET - budgets_left(w->sandbox.budgets, p, which, false, w->now_ms);
}

static int64_t cpu_ms(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* A sandbox chooses how many names it asks for, and to how many ports it sends. */
TEST(what_went_to_many_ports_of_an_address_of_many_names_is_counted_at_once)
{
	enum { PORTS = 4096, FIRST_PORT = 1000 };
	const struct addr a = addr_v4(93, 1, 2, 3);
	struct passed_payers payers = { .sandbox = NULL };
	struct world *w = open_budgets(BUDGETS);
	int64_t began_ms;

	for (unsigned int i = 0; i < LEARNED_PAST_MAX; i++)
		teach(w, i, &a);
	forget_all(w);
	began_ms = cpu_ms();
	for (unsigned int i = 0; i < PORTS; i++)
		count(w, &payers, &a, FIRST_PORT + i);
	assert_true(cpu_ms() - began_ms < 500);
	assert_int_equal(used_by(w, 0), PORTS * BYTES);
	assert_int_equal(used_by(w, 1), 0);
	close_budgets(w);
}

TEST(of_too_many_addresses_that_have_ended_every_budget_pays)
{
	enum { MORE = 10 };
	struct passed_payers payers = { .sandbox = NULL };
	struct world *w = open_budgets(BUDGETS);
	struct addr a = addr_v4(93, 1, 0, 0);

	for (unsigned int i = 0; i < PASSED_PAST_MAX + MORE; i++) {
		a.bytes[2] = (uint8_t)(i >> 8);
		a.bytes[3] = (uint8_t)i;
		teach(w, i, &a);
	}
	forget_all(w);
	for (unsigned int i = 0; i < PASSED_PAST_MAX + MORE; i++) {
		a.bytes[2] = (uint8_t)(i >> 8);
		a.bytes[3] = (uint8_t)i;
		count(w, &payers, &a, 1000);
		count(w, &payers, &a, 1001);
	}
	assert_int_equal(used_by(w, 0), (PASSED_PAST_MAX + MORE) * 2 * BYTES);
	assert_int_equal(used_by(w, 1), MORE * 2 * BYTES);
	close_budgets(w);
}

/* Whoever was asked for opens what a rule would ask about. */
TEST(a_rule_that_asks_pays_for_nothing_and_opens_nothing)
{
	struct world *w = open_budgets(BUDGETS "- {action: ask, target: 0.0.0.0/0}\n");
	const struct addr a = addr_v4(93, 1, 2, 3);
	struct passed_payers payers = { .sandbox = NULL };

	teach(w, 0, &a);
	count(w, &payers, &a, 1000);
	assert_int_equal(used_by(w, 0), BYTES);
	accounting_close(&w->sandbox, w->now_ms);
	accounting_report(&w->sandbox, w->now_ms, true);
	assert_int_equal(w->told.rule, 0);
	forget_all(w);
	payers = (struct passed_payers){ .sandbox = NULL };
	count(w, &payers, &a, 1000);
	assert_int_equal(used_by(w, 0), 2 * BYTES);
	assert_int_equal(used_by(w, 1), 0);
	accounting_close(&w->sandbox, w->now_ms);
	accounting_report(&w->sandbox, w->now_ms, true);
	assert_int_equal(w->told.rule, EVENT_NO_RULE);
	close_budgets(w);
}
