// SPDX-License-Identifier: Apache-2.0
/* What a scenario file can't say: memory, tokens, and a resolver under many queries. The
 * rest of the resolver is under tests/scenario. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <malloc.h>

#include "../../scenario/resolver_world.h"
#include "resolver/resolver_internal.h"
#include "sandbox/asks.h"

static struct world *world_of(const char *target)
{
	struct world *w = world_new(2);

	assert_non_null(w);
	w->policy.limits[LIMIT_QUERIES_PER_SECOND] = UINT32_MAX;
	w->policy.limits[LIMIT_NEW_NAMES_PER_MINUTE] = UINT32_MAX;
	assert_true(world_rule(w, POLICY_ALLOW, target, 443, 0, 0));
	assert_true(world_apply(w));
	return w;
}

static void answer(struct world *w, const char *name, const char *addr)
{
	struct world_request *q = world_request_find(w, 0, name, DNS_TYPE_A);
	struct world_response p;

	assert_non_null(q);
	world_response_begin(&p, q, 0);
	world_response_addr(&p, name, addr, 300);
	world_respond(w, q, &p);
}

TEST(a_repeated_query_allocates_nothing)
{
	struct world *w = world_of("api.ok.test");
	size_t before;

	world_query(w, 0, 1, "api.ok.test", DNS_TYPE_A, true, false);
	answer(w, "api.ok.test", "45.0.0.1");
	resolver_flush(w->resolver, w->now_ms);
	before = mallinfo2().uordblks;
	for (uint16_t i = 0; i < 1000; i++) {
		world_query(w, 0, i, "api.ok.test", DNS_TYPE_A, true, false);
		world_query(w, 0, i, "denied.test", DNS_TYPE_A, true, false);
		resolver_flush(w->resolver, w->now_ms);
	}
	assert_int_equal(mallinfo2().uordblks, before);
	world_free(w);
}

TEST(an_idle_sandbox_takes_less_than_16_kib)
{
	struct world *w = world_of("*.pkg.test");
	size_t before = mallinfo2().uordblks, used;

	world_query(w, 0, 1, "denied.test", DNS_TYPE_A, true, false);
	world_query(w, 0, 2, "a.pkg.test", DNS_TYPE_A, true, false);
	answer(w, "a.pkg.test", "45.0.0.1");
	resolver_flush(w->resolver, w->now_ms);
	before = mallinfo2().uordblks;
	/* The second one pays for nothing that the engine shares. */
	world_query(w, 1, 3, "a.pkg.test", DNS_TYPE_A, true, false);
	resolver_flush(w->resolver, w->now_ms);
	used = mallinfo2().uordblks - before + sizeof(struct sandbox);
	print_message("%zu bytes\n", used);
	assert_in_range(used, 1, 16 * 1024);
	world_free(w);
}

TEST(a_token_that_is_not_under_way_is_ignored)
{
	struct world *w = world_of("*.pkg.test");
	uint8_t bytes[64] = { 0 };
	uint32_t token;

	world_query(w, 0, 1, "a.pkg.test", DNS_TYPE_A, true, false);
	token = w->requests[0].token;
	for (uint32_t t = 0; t < 100000; t += 77)
		if (t != token)
			resolver_response(w->resolver, t, bytes, sizeof(bytes),
					  w->now_ms);
	resolver_send_failed(w->resolver, token ^ 1, -EIO, w->now_ms);
	resolver_send_failed(w->resolver, token + 4096, -EIO, w->now_ms);
	assert_int_equal(w->reply_count, 0);
	assert_int_equal(world_requests_open(w), 1);
	world_free(w);
}

TEST(one_sandbox_leaves_others_room_in_the_engine)
{
	struct world *w = world_of("*.pkg.test");
	const uint32_t others = RESOLVER_IN_FLIGHT_MAX - 20;
	char name[32];

	w->resolver->inflight_used = others;
	for (uint16_t i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "n%u.pkg.test", i);
		world_query(w, 0, i, name, DNS_TYPE_A, true, false);
	}
	assert_int_equal(world_requests_open(w), 10);
	assert_int_equal(w->reply_count, 10);
	world_query(w, 1, 1, "other.pkg.test", DNS_TYPE_A, true, false);
	assert_int_equal(world_requests_open(w), 11);
	w->resolver->inflight_used -= others;
	world_free(w);
}

/* Every server says SERVFAIL. Return: whether one was asked. */
static bool fail_at_all(struct world *w, const char *name)
{
	struct world_request *q;
	bool was_asked = false;

	for (size_t server = 0; server < 2; server++) {
		struct world_response p;

		q = world_request_find(w, server, name, DNS_TYPE_A);
		if (!q)
			continue;
		world_response_begin(&p, q, DNS_SERVFAIL);
		world_respond(w, q, &p);
		was_asked = true;
	}
	return was_asked;
}

static size_t ask_often(struct world *w, const char *name, uint16_t times)
{
	size_t asked = 0;

	for (uint16_t i = 0; i < times; i++) {
		world_query(w, 0, i, name, DNS_TYPE_A, true, false);
		asked += fail_at_all(w, name);
	}
	return asked;
}

/* A failure is not remembered, so each query of one name asks all servers. */
TEST(one_sandbox_leaves_others_room_at_the_servers)
{
	struct world *w = world_of("*.pkg.test");

	w->policy.limits[LIMIT_QUERIES_PER_SECOND] = 5000;
	w->policy.limits[LIMIT_QUERIES_BURST] = 10000;
	assert_true(world_apply(w));
	assert_int_equal(ask_often(w, "broken.pkg.test", 5000), 2500);
	assert_int_equal(w->reply_count, 5000);
	assert_int_equal(w->sandboxes[0].counters[COUNT_QUERIES_LIMITED], 2500);
	world_wait(w, 1000);
	assert_int_equal(ask_often(w, "broken.pkg.test", 1000), 500);
	/* What is under way already, or known, costs the servers nothing. */
	world_query(w, 1, 1, "a.pkg.test", DNS_TYPE_A, true, false);
	world_query(w, 0, 2, "a.pkg.test", DNS_TYPE_A, true, false);
	answer(w, "a.pkg.test", "45.0.0.1");
	world_query(w, 0, 3, "a.pkg.test", DNS_TYPE_A, true, false);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->reply_count, 6003);
	assert_int_equal(w->replies[6002 % WORLD_REPLIES_MAX].addr_count, 1);
	/* A strict limit counts as it is. */
	w->policy.limits[LIMIT_QUERIES_PER_SECOND] = 20;
	w->policy.limits[LIMIT_QUERIES_BURST] = 40;
	assert_true(world_apply(w));
	world_wait(w, 60 * 1000);
	assert_int_equal(ask_often(w, "broken.pkg.test", 100), 40);
	world_free(w);
}

TEST(one_sandbox_leaves_others_room_among_those_who_wait)
{
	struct world *w = world_of("*.pkg.test");
	const uint32_t others = RESOLVER_CLIENTS_MAX - 20;

	for (uint16_t i = 0; i < 20; i++) {
		world_query(w, 0, i, "a.pkg.test", DNS_TYPE_A, true, false);
		w->resolver->ask_total += i == 0 ? others : 0;
	}
	assert_int_equal(w->reply_count, 10);
	world_query(w, 1, 1, "a.pkg.test", DNS_TYPE_A, true, false);
	assert_int_equal(w->reply_count, 10);
	assert_int_equal(world_requests_open(w), 1);
	w->resolver->ask_total -= others;
	world_free(w);
}

TEST(one_sandbox_leaves_others_room_among_those_who_are_parked)
{
	struct world *w = world_of("*.pkg.test");
	const uint32_t others = RESOLVER_CLIENTS_MAX - 20;

	assert_true(world_rule(w, POLICY_ASK, "*.ask.test", 0, 0, 0));
	assert_true(world_apply(w));
	for (uint16_t i = 0; i < 20; i++) {
		world_query(w, 0, i, "a.ask.test", DNS_TYPE_A, true, false);
		w->resolver->ask_total += i == 0 ? others : 0;
	}
	/* While it is judged, a query takes a place besides the one where it is parked.
	 */
	assert_int_equal(w->reply_count, 11);
	world_query(w, 1, 1, "a.pkg.test", DNS_TYPE_A, true, false);
	assert_int_equal(w->reply_count, 11);
	assert_int_equal(world_requests_open(w), 1);
	w->resolver->ask_total -= others;
	world_free(w);
}

TEST(a_full_engine_answers_servfail_and_recovers)
{
	struct world *w = world_of("*.pkg.test");
	uint16_t rcodes[16] = { 0 };
	char name[32];

	w->policy.limits[LIMIT_QUERIES_IN_FLIGHT] = 4096;
	assert_true(world_apply(w));
	/* The world's upstream takes WORLD_REQUESTS_MAX; then sending fails. */
	for (uint16_t i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%u.pkg.test", i);
		world_query(w, 0, i, name, DNS_TYPE_A, true, false);
	}
	assert_int_equal(w->reply_count, 1000 - WORLD_REQUESTS_MAX);
	for (size_t i = 0; i < w->reply_count; i++)
		rcodes[w->replies[i].flags & 15]++;
	assert_int_equal(rcodes[DNS_SERVFAIL], w->reply_count);
	world_wait(w, 2 * RESOLVER_TRY_MS);
	assert_int_equal(w->reply_count, 1000);
	assert_int_equal(resolver_next_ms(w->resolver), INT64_MAX);
	world_query(w, 0, 9999, "later.pkg.test", DNS_TYPE_A, true, false);
	assert_int_equal(world_requests_open(w), 1);
	world_free(w);
}

TEST(one_turn_is_one_transaction_of_bounded_size)
{
	struct world *w = world_of("*.pkg.test");
	char name[32], addr[32];

	for (uint16_t i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "n%u.pkg.test", i);
		snprintf(addr, sizeof(addr), "45.0.1.%u", i);
		world_query(w, 0, i, name, DNS_TYPE_A, true, false);
		answer(w, name, addr);
	}
	assert_int_equal(w->commits, 0);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->reply_count, 200);
	assert_int_equal(w->commit_items, 200);
	assert_in_range(w->commits, 1, 2);
	assert_in_range(w->most_items, 1, FILTER_LEARN_MAX);
	/* Replies keep the order of their queries. */
	for (uint16_t i = 0; i < 200; i++)
		assert_int_equal(w->replies[i].id, i);
	world_free(w);
}

/* A flush that makes room for a reply looks up no name that was granted meanwhile: the
 * reply would be written from that name's answer. */
TEST(a_full_queue_mixes_no_answers)
{
	struct world *w = world_of("*.ok.test");

	world_query(w, 1, 1, "x.ok.test", DNS_TYPE_A, true, false);
	answer(w, "x.ok.test", "45.0.0.66");
	world_query(w, 0, 2, "a.ok.test", DNS_TYPE_A, true, false);
	answer(w, "a.ok.test", "45.0.0.1");
	resolver_flush(w->resolver, w->now_ms);
	world_no_rules(w);
	assert_true(world_rule(w, POLICY_ASK, "x.ok.test", 0, 0, 0));
	assert_true(world_rule(w, POLICY_ALLOW, "a.ok.test", 443, 0, 0));
	assert_true(world_change(w));
	world_query(w, 1, 3, "x.ok.test", DNS_TYPE_A, true, false);
	assert_int_equal(w->reply_count, 2);
	world_no_rules(w);
	assert_true(world_rule(w, POLICY_ALLOW, "*.ok.test", 443, 0, 0));
	assert_true(world_change(w));
	for (uint16_t i = 0; i < 1500; i++)
		world_query(w, 0, 100, "a.ok.test", DNS_TYPE_A, true, true);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->reply_count, 1502);
	for (size_t i = 0; i < WORLD_REPLIES_MAX; i++)
		assert_int_equal(w->replies[i].addrs[0].addr.bytes[3], 1);
	/* The granted one has its own answer. */
	resolver_parked_recheck(w->resolver, w->now_ms);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->reply_count, 1503);
	assert_int_equal(w->replies[1502 % WORLD_REPLIES_MAX].id, 3);
	assert_int_equal(w->replies[1502 % WORLD_REPLIES_MAX].addrs[0].addr.bytes[3], 66);
	world_free(w);
}

/* That would tell the servers when a sandbox has sent how much, and let it have them
 * asked for all names as often as it likes. */
TEST(a_budget_that_ends_and_begins_anew_has_no_pinned_name_looked_up)
{
	struct world *w = world_of("a.ok.test");
	struct sandbox *s = &w->sandboxes[0];
	const struct addr a = addr_v4(45, 0, 0, 1);
	size_t items;

	w->policy.dns = POLICY_DNS_PINNED;
	assert_true(world_rule(w, POLICY_ALLOW, "b.ok.test", 0, 0, 0));
	w->rules[0].budget = (struct plan_budget){ .sent = 100, .per_sec = 1 };
	assert_true(world_apply(w));
	s->ipv6 = false;
	s->plan.spent = 1;
	/* Used up at the start: looked up, told to nobody, and closed. */
	assert_int_equal(resolver_pin(w->resolver, s, 600000, NULL, NULL, w->now_ms), 0);
	answer(w, "a.ok.test", "45.0.0.1");
	answer(w, "b.ok.test", "45.0.0.2");
	world_query(w, 0, 1, "a.ok.test", DNS_TYPE_A, true, false);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->replies[0].flags & 15, DNS_NXDOMAIN);
	assert_false(world_kernel_has(w, 0, &a));
	/* Then it begins anew: open without a query of the sandbox, too. The other name
	 * needs nothing. */
	s->plan.spent = 0;
	items = w->commit_items;
	resolver_pin_restore(w->resolver, s, 1, w->now_ms);
	world_wait(w, 1);
	assert_true(world_kernel_has(w, 0, &a));
	assert_int_equal(w->commit_items, items + 1);
	world_query(w, 0, 2, "a.ok.test", DNS_TYPE_A, true, false);
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->replies[1].addr_count, 1);
	assert_int_equal(world_requests_open(w), 0);
	world_free(w);
}

static void note_pinned(void *data, const struct resolver_unpinned *fault)
{
	size_t *rounds_and_faults = data;

	rounds_and_faults[fault != NULL]++;
}

/* What other sandboxes have leaves ten of something to this one, or nothing. */
TEST(names_are_pinned_as_soon_as_there_is_room)
{
	struct world *w = world_of("n0.ok.test");
	struct resolver *r = w->resolver;
	size_t told[2] = { 0 };
	char name[32];

	r->server_count = 1;
	for (unsigned int i = 1; i < 20; i++) {
		snprintf(name, sizeof(name), "n%u.ok.test", i);
		assert_true(world_rule(w, POLICY_ALLOW, name, 0, 0, 0));
	}
	w->policy.dns = POLICY_DNS_PINNED;
	assert_true(world_apply(w));
	for (size_t i = 0; i < 3; i++) {
		const uint32_t asks = i == 0 ? RESOLVER_CLIENTS_MAX - 20 : 0;
		const uint32_t flights = i == 1	  ? RESOLVER_IN_FLIGHT_MAX - 20
					 : i == 2 ? RESOLVER_IN_FLIGHT_MAX
						  : 0;
		struct sandbox *s = &w->sandboxes[i];

		s->ipv6 = false;
		world_query(w, i, 1, "denied.test", DNS_TYPE_A, true, false);
		r->ask_total += asks;
		r->inflight_used += flights;
		assert_int_equal(resolver_pin(r, s, 600000, note_pinned, told, w->now_ms),
				 0);
		assert_int_equal(world_requests_open(w), i < 2 ? 10 : 0);
		world_wait(w, 50);
		assert_int_equal(world_requests_open(w), i < 2 ? 10 : 0);
		r->inflight_used -= i == 2 ? flights : 0;
		world_wait(w, 50);
		for (unsigned int n = 0; world_requests_open(w) > 0; n++) {
			snprintf(name, sizeof(name), "n%u.ok.test", n % 20);
			if (world_request_find(w, 0, name, DNS_TYPE_A))
				answer(w, name, "45.0.0.1");
		}
		assert_int_equal(told[0], i + 1);
		assert_int_equal(told[1], 0);
		r->ask_total -= asks;
		r->inflight_used -= i == 1 ? flights : 0;
	}
	world_free(w);
}

/* More names than questions that are under way at a time: the rest waits. */
TEST(names_that_are_pinned_no_more_are_not_looked_up)
{
	enum { NAMES = 257 };
	static struct rule rules[NAMES];
	struct world *w = world_of("a.ok.test");
	struct world_response p;
	char text[32];

	for (size_t i = 0; i < NAMES; i++) {
		rules[i] = w->rules[0];
		snprintf(text, sizeof(text), "n%zu.ok.test", i);
		assert_int_equal(dns_name_parse(text_of(text), &rules[i].name), 0);
	}
	w->policy.dns = POLICY_DNS_PINNED;
	w->policy.rules = rules;
	w->policy.count = NAMES;
	assert_true(world_apply(w));
	w->sandboxes[0].ipv6 = false;
	assert_int_equal(resolver_pin(w->resolver, &w->sandboxes[0], 600000, NULL, NULL,
				      w->now_ms),
			 0);
	assert_int_equal(world_requests_open(w), NAMES - 1);
	w->policy.dns = POLICY_DNS_LIVE;
	w->policy.count = 1;
	assert_true(world_apply(w));
	world_response_begin(&p, &w->requests[0], DNS_NXDOMAIN);
	world_response_soa(&p, "ok.test", 300);
	world_respond(w, &w->requests[0], &p);
	assert_int_equal(world_requests_open(w), NAMES - 2);
	/* Nor are those asked for again that were under way. */
	world_wait(w, RESOLVER_TRY_MS);
	assert_int_equal(world_requests_open(w), 0);
	world_free(w);
}

/* One sandbox's policy asks for the name by the time that the answer to both comes. */
TEST(a_stand_in_is_nobody_elses_answer)
{
	struct world *w = world_of("*.ok.test");
	const struct plan allows = w->sandboxes[1].plan;

	w->sandboxes[0].owned_params.relay = true;
	world_query(w, 0, 1, "a.ok.test", DNS_TYPE_A, true, false);
	world_query(w, 1, 2, "a.ok.test", DNS_TYPE_A, true, false);
	world_no_rules(w);
	assert_true(world_rule(w, POLICY_ASK, "a.ok.test", 0, 0, 0));
	assert_true(world_change(w));
	sandbox_set_plan(&w->sandboxes[1], &allows);
	answer(w, "a.ok.test", "45.0.0.1");
	resolver_flush(w->resolver, w->now_ms);
	assert_int_equal(w->reply_count, 2);
	assert_int_equal(w->replies[0].id, 1);
	assert_int_equal(w->replies[0].addrs[0].addr.bytes[0], 198);
	assert_int_equal(w->replies[1].id, 2);
	assert_int_equal(w->replies[1].addrs[0].addr.bytes[0], 45);
	world_free(w);
}

static void ask_for(struct world *w, enum policy_action action)
{
	world_no_rules(w);
	assert_true(world_rule(w, action, "a.ok.test", 0, 0, 0));
	assert_true(world_change(w));
}

TEST(a_rule_that_allows_ends_a_dismissal)
{
	struct world *w = world_of("*.ok.test");
	struct asked what = { 0 };

	assert_int_equal(dns_name_parse(text_of("a.ok.test"), &what.name), 0);
	ask_for(w, POLICY_ASK);
	assert_true(asks_dismiss(&w->sandboxes[0], &what));
	world_query(w, 0, 1, "a.ok.test", DNS_TYPE_A, true, false);
	assert_int_equal(w->reply_count, 1);
	assert_int_equal(w->replies[0].flags & 15, DNS_NXDOMAIN);
	ask_for(w, POLICY_ALLOW);
	world_query(w, 0, 2, "a.ok.test", DNS_TYPE_A, true, false);
	ask_for(w, POLICY_ASK);
	/* It waits again. */
	world_query(w, 0, 3, "a.ok.test", DNS_TYPE_A, true, false);
	assert_int_equal(w->reply_count, 1);
	assert_int_equal(w->sandboxes[0].parked, 1);
	world_free(w);
}
