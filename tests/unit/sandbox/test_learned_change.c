// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "sandbox/learned.h"
#include "test_plan.h"
#include "unit.h"

enum { NOW = 1000000, MAX_FOUND = 16 };

static const struct hash_key key = { 5, 6 };

/* A table under one policy, and what becomes of it under another. */
struct change {
	struct plan plan, next_plan;
	uint8_t *bytes, *next_bytes;
	struct learned *old;
	struct arena arena;
	struct learned_rebased next;
};

static void begin(struct change *c, const char *policy)
{
	*c = (struct change){ .bytes = NULL };
	c->bytes = plan_from(policy, &c->plan);
	c->old = learned_new(&c->plan, &key);
	assert_non_null(c->old);
	learned_keep_past(c->old);
}

static void rebase(struct change *c, const char *policy, int64_t now_ms)
{
	free(c->next_bytes);
	c->next_bytes = plan_from(policy, &c->next_plan);
	assert_int_equal(
		learned_rebase(c->old, &c->next_plan, now_ms, &c->arena, &c->next), 0);
}

/* The new table takes the old one's place. */
static void take_place(struct change *c)
{
	learned_free(c->old);
	c->old = c->next.table;
	c->next.table = NULL;
	free(c->bytes);
	c->bytes = c->next_bytes;
	c->next_bytes = NULL;
	c->plan = c->next_plan;
	learned_set_plan(c->old, &c->plan);
}

static void end(struct change *c)
{
	learned_free(c->old);
	learned_free(c->next.table);
	arena_done(&c->arena);
	free(c->bytes);
	free(c->next_bytes);
}

static struct addr host(uint32_t n)
{
	return addr_v4(45, (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n);
}

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static void learn_addr(struct learned *l, const struct plan *plan, const char *name,
		       struct addr a, uint32_t ttl, int64_t now_ms)
{
	struct dns_name n = name_of(name);
	struct learned_item item = { .name = &n,
				     .verdict = plan_match_name(plan, &n),
				     .addr = a,
				     .ttl_sec = ttl };
	struct filter_learn ignored;

	assert_int_equal(item.verdict.action, POLICY_ALLOW);
	assert_true(learned_prepare(l, &item, now_ms, &ignored) >= 0);
	learned_commit(l, &item, now_ms);
}

static void learn(struct change *c, const char *name, uint32_t n, uint32_t ttl,
		  int64_t now_ms)
{
	learn_addr(c->old, &c->plan, name, host(n), ttl, now_ms);
}

/* "a.x.test b.x.test": who taught it, newest first. */
static const char *who(const struct learned *l, uint32_t n, int64_t now_ms)
{
	static char text[1024];
	struct learned_use uses[MAX_FOUND];
	struct addr a = host(n);
	size_t count = learned_find(l, &a, now_ms, uses, MAX_FOUND), at = 0;

	text[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		char name[DNS_NAME_TEXT_SIZE];

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s",
				       i > 0 ? " " : "",
				       dns_name_format(&uses[i].name, name));
	}
	return text;
}

static const struct filter_learn *in(const struct filter_learn *items, size_t count,
				     uint32_t n)
{
	const struct filter_learn *found = NULL;
	struct addr a = host(n);

	for (size_t i = 0; i < count; i++)
		if (addr_equal(&items[i].addr, &a)) {
			assert_null(found);
			found = &items[i];
		}
	return found;
}

static const struct filter_learn *learned(const struct change *c, uint32_t n)
{
	return in(c->next.learned, c->next.learned_count, n);
}

static const struct filter_learn *draining_of(const struct change *c, uint32_t n)
{
	return in(c->next.draining, c->next.draining_count, n);
}

#define RULE(target)	     "{action: allow, target: '" target "'}"
#define PORTS(target, ports) "{action: allow, target: '" target "', ports: [" ports "]}"
#define ONLY(rules)	     "egress: [" rules "]\n"

/* ---- another plan ---- */

TEST(what_is_still_allowed_is_carried_over)
{
	struct dns_name a = name_of("a.x.test");
	struct change c;

	begin(&c,
	      ONLY(RULE("a.x.test") "," RULE("b.x.test") "," PORTS("c.x.test", "443")));
	learn(&c, "a.x.test", 1, 300, NOW);
	learn(&c, "b.x.test", 2, 300, NOW);
	learn(&c, "c.x.test", 3, 300, NOW);
	rebase(&c,
	       ONLY(PORTS("x.x.test", "22") "," RULE("a.x.test") "," PORTS("c.x.test",
									   "80")),
	       NOW + 30000);
	assert_string_equal(who(c.next.table, 1, NOW + 30000), "a.x.test");
	assert_string_equal(who(c.next.table, 2, NOW + 30000), "");
	assert_string_equal(who(c.next.table, 3, NOW + 30000), "c.x.test");
	assert_int_equal(c.next.learned_count, 2);
	assert_int_equal(learned(&c, 1)->lifetime_ms, 300000);
	assert_int_equal(learned(&c, 1)->port_list,
			 plan_match_name(&c.next_plan, &a).port_list);
	assert_true(plan_port_list_has(&c.next_plan, learned(&c, 3)->port_list,
				       IPPROTO_TCP, 80));
	assert_false(plan_port_list_has(&c.next_plan, learned(&c, 3)->port_list,
					IPPROTO_TCP, 443));
	/* Open flows to them go on, too, when they have ended. */
	assert_non_null(draining_of(&c, 1));
	assert_null(draining_of(&c, 2));
	assert_int_equal(c.next.draining_count, 2);
	/* The old table is as it was. */
	assert_string_equal(who(c.old, 2, NOW + 30000), "b.x.test");
	end(&c);
}

TEST(the_rest_of_a_lifetime_is_the_same)
{
	struct change c;

	begin(&c, ONLY(RULE("a.x.test")));
	learn(&c, "a.x.test", 1, 300, NOW);
	rebase(&c, ONLY(RULE("a.x.test")), NOW + 200000);
	assert_int_equal(learned(&c, 1)->lifetime_ms, 130000);
	assert_string_equal(who(c.next.table, 1, NOW + 329999), "a.x.test");
	assert_string_equal(who(c.next.table, 1, NOW + 330000), "");
	end(&c);
}

TEST(an_address_lives_as_long_as_a_name_that_is_allowed)
{
	struct change c;

	begin(&c, ONLY(RULE("a.x.test") "," RULE("b.x.test")));
	learn(&c, "a.x.test", 1, 100, NOW);
	learn(&c, "b.x.test", 1, 3000, NOW);
	rebase(&c, ONLY(RULE("a.x.test")), NOW);
	assert_string_equal(who(c.next.table, 1, NOW), "a.x.test");
	assert_int_equal(learned(&c, 1)->lifetime_ms, 130000);
	end(&c);
}

TEST(the_newest_name_stays_the_newest)
{
	struct change c;

	begin(&c, ONLY(PORTS("a.x.test", "1") "," PORTS("b.x.test", "2") "," PORTS(
			  "c.x.test", "1") "," PORTS("d.x.test", "2")));
	learn(&c, "a.x.test", 1, 100, NOW);
	learn(&c, "b.x.test", 1, 100, NOW);
	learn(&c, "d.x.test", 1, 100, NOW);
	learn(&c, "c.x.test", 1, 100, NOW);
	learn(&c, "b.x.test", 1, 100, NOW);
	rebase(&c, ONLY(RULE("**.x.test")), NOW);
	assert_string_equal(who(c.old, 1, NOW), "b.x.test c.x.test d.x.test a.x.test");
	assert_string_equal(who(c.next.table, 1, NOW),
			    "b.x.test c.x.test d.x.test a.x.test");
	assert_int_equal(c.next.learned_count, 1);
	end(&c);
}

TEST(the_guard_counts_under_the_new_policy)
{
	struct addr ten = addr_v4(10, 0, 0, 1);
	struct learned_use use;
	struct change c;

	begin(&c, ONLY("{action: allow, target: a.x.test, private: true}"));
	learn_addr(c.old, &c.plan, "a.x.test", ten, 300, NOW);
	learn(&c, "a.x.test", 1, 300, NOW);
	learn(&c, "a.x.test", 2, 300, NOW);
	rebase(&c, ONLY(RULE("a.x.test") ",{action: deny, target: 45.0.0.2}"), NOW);
	assert_int_equal(learned_find(c.next.table, &ten, NOW, &use, 1), 0);
	assert_string_equal(who(c.next.table, 1, NOW), "a.x.test");
	assert_string_equal(who(c.next.table, 2, NOW), "");
	assert_int_equal(c.next.learned_count, 1);
	assert_int_equal(c.next.draining_count, 1);
	end(&c);
}

TEST(the_limits_of_the_new_policy_hold)
{
	struct change c;

	begin(&c, ONLY(RULE("**.x.test")));
	for (uint32_t i = 0; i < 20; i++)
		learn(&c, "a.x.test", i, 100 + i, NOW);
	rebase(&c, ONLY(RULE("**.x.test")) "limits: {addresses: 16}\n", NOW);
	assert_int_equal(learned_counts(c.next.table).addresses, 16);
	assert_int_equal(c.next.learned_count, 16);
	assert_non_null(learned(&c, 19));
	assert_null(learned(&c, 3));
	/* What had no room is open to who has a flow there. */
	assert_int_equal(c.next.draining_count, 20);
	end(&c);
}

TEST(the_new_table_matches_the_new_sets)
{
	struct filter_learn change, swept[4];
	struct learned_item item;
	struct dns_name n = name_of("a.x.test");
	struct change c;

	begin(&c, ONLY(RULE("a.x.test") "," RULE("b.x.test")));
	learn(&c, "a.x.test", 1, 300, NOW);
	learn(&c, "b.x.test", 2, 300, NOW);
	rebase(&c, ONLY(RULE("a.x.test")), NOW);
	/* Nothing is to be deleted that isn't there. */
	assert_int_equal(learned_sweep(c.next.table, NOW, swept, 4), 0);
	item = (struct learned_item){ .name = &n,
				      .verdict = plan_match_name(&c.next_plan, &n),
				      .addr = host(1),
				      .ttl_sec = 600 };
	assert_int_equal(learned_prepare(c.next.table, &item, NOW, &change), 1);
	assert_true(change.refresh);
	learned_commit(c.next.table, &item, NOW);
	item.addr = host(2);
	assert_int_equal(learned_prepare(c.next.table, &item, NOW, &change), 1);
	assert_false(change.refresh);
	learned_commit(c.next.table, &item, NOW);
	end(&c);
}

/* ---- what has ended ---- */

TEST(open_flows_outlive_what_taught_their_address)
{
	struct change c;
	int64_t later = NOW + 200000;

	begin(&c, ONLY(RULE("a.x.test") "," RULE("b.x.test")));
	learn(&c, "a.x.test", 1, 60, NOW);
	learn(&c, "b.x.test", 2, 60, NOW);
	learned_expire(c.old, later);
	rebase(&c, ONLY(RULE("a.x.test")), later);
	assert_int_equal(c.next.learned_count, 0);
	assert_int_equal(c.next.draining_count, 1);
	assert_non_null(draining_of(&c, 1));
	/* And the next change, as long as the name is allowed without a break. */
	take_place(&c);
	rebase(&c, ONLY(RULE("a.x.test") "," RULE("b.x.test")), later);
	assert_int_equal(c.next.draining_count, 1);
	take_place(&c);
	rebase(&c, ONLY(RULE("b.x.test")), later);
	assert_int_equal(c.next.draining_count, 0);
	take_place(&c);
	rebase(&c, ONLY(RULE("a.x.test")), later);
	assert_int_equal(c.next.draining_count, 0);
	end(&c);
}

TEST(what_has_just_ended_counts_as_ended)
{
	struct change c;

	begin(&c, ONLY(RULE("a.x.test")));
	learn(&c, "a.x.test", 1, 60, NOW);
	rebase(&c, ONLY(RULE("a.x.test")), NOW + 90000);
	assert_int_equal(c.next.learned_count, 0);
	assert_non_null(draining_of(&c, 1));
	end(&c);
}

TEST(nothing_is_remembered_that_nobody_asked_for)
{
	struct change c;

	begin(&c, ONLY(RULE("a.x.test")));
	learned_free(c.old);
	c.old = learned_new(&c.plan, &key);
	learn(&c, "a.x.test", 1, 60, NOW);
	learned_expire(c.old, NOW + 200000);
	learn(&c, "a.x.test", 2, 60, NOW + 200000);
	rebase(&c, ONLY(RULE("a.x.test")), NOW + 200000);
	assert_null(draining_of(&c, 1));
	assert_non_null(draining_of(&c, 2));
	end(&c);
}

TEST(the_oldest_that_has_ended_is_forgotten)
{
	struct change c;
	int64_t now = NOW;

	begin(&c, ONLY(RULE("**.x.test")));
	for (uint32_t i = 0; i < LEARNED_PAST_MAX + 10; i++) {
		learn(&c, i % 2 ? "a.x.test" : "b.x.test", i, 60, now);
		now += 200000;
		learned_expire(c.old, now);
	}
	/* Once more: it is the newest again. */
	learn(&c, "b.x.test", 10, 60, now);
	now += 200000;
	learned_expire(c.old, now);
	learn(&c, "b.x.test", 5000000, 60, now);
	now += 200000;
	learned_expire(c.old, now);
	rebase(&c, ONLY(RULE("**.x.test")), now);
	assert_int_equal(c.next.draining_count, LEARNED_PAST_MAX);
	assert_null(draining_of(&c, 9));
	assert_non_null(draining_of(&c, 10));
	assert_null(draining_of(&c, 11));
	assert_non_null(draining_of(&c, 12));
	assert_non_null(draining_of(&c, 5000000));
	end(&c);
}

/* ---- whatever happens ---- */

static uint32_t random_state;

static uint32_t any(uint32_t below)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % below;
}

static void check_name(const struct change *c, uint32_t n, const struct learned_use *use,
		       int64_t now_ms)
{
	struct plan_verdict v = plan_match_name(&c->next_plan, &use->name);
	struct learned_use after[MAX_FOUND];
	struct addr a = host(n);
	size_t count = learned_find(c->next.table, &a, now_ms, after, MAX_FOUND);
	const struct learned_use *found = NULL;

	for (size_t i = 0; i < count; i++)
		if (dns_name_equal(&after[i].name, &use->name))
			found = &after[i];
	assert_int_equal(found != NULL, v.action == POLICY_ALLOW);
	if (!found)
		return;
	assert_int_equal(found->expires_ms, use->expires_ms);
	assert_int_equal(found->port_list, v.port_list);
	assert_int_equal(found->rule, v.rule);
}

static void check_change(const struct change *c, uint32_t hosts, int64_t now_ms)
{
	struct learned_use uses[MAX_FOUND];

	for (uint32_t n = 0; n < hosts; n++) {
		struct addr a = host(n);
		size_t count = learned_find(c->old, &a, now_ms, uses, MAX_FOUND);

		for (size_t i = 0; i < count; i++)
			check_name(c, n, &uses[i], now_ms);
	}
}

TEST(any_table_becomes_what_the_policy_allows_of_it)
{
	static const char *const policies[] = {
		ONLY(RULE("**.x.test")),
		ONLY(PORTS("n1.x.test", "1") "," PORTS("n2.x.test",
						       "2") "," RULE("n3.x.test")),
		ONLY("{action: deny, target: n1.x.test},{action: deny, target: "
		     "n4.x.test}," RULE("**.x.test")),
		ONLY(PORTS("*.x.test", "22")),
	};
	enum { MOST_HOSTS = 40 };

	for (uint32_t round = 0; round < 200; round++) {
		struct change c;
		int64_t now = NOW;
		char name[32];

		random_state = round;
		begin(&c, policies[0]);
		for (uint32_t i = any(200); i > 0; i--) {
			snprintf(name, sizeof(name), "n%u.x.test", any(6));
			learn(&c, name, any(MOST_HOSTS), any(200), now);
			now += any(5000);
			learned_expire(c.old, now);
		}
		for (uint32_t i = 1; i < 4; i++) {
			rebase(&c, policies[any(ARRAY_SIZE(policies))], now);
			check_change(&c, MOST_HOSTS, now);
			take_place(&c);
		}
		end(&c);
	}
}

#define TWO_NAMES                                                                        \
	"egress: [{action: allow, target: a.x.test}, {action: allow, target: "           \
	"b.x.test, ports: [443]}]\n"

TEST(what_goes_on_is_listed_ahead_of_a_change)
{
	enum { MAX = 8 };
	struct filter_learn items[MAX];
	struct learned_judging *j;
	struct change c;
	size_t count;

	begin(&c, TWO_NAMES);
	learn(&c, "a.x.test", 1, 600, NOW);
	learn(&c, "b.x.test", 2, 600, NOW);
	learn(&c, "a.x.test", 3, 600, NOW);
	rebase(&c, TWO_NAMES, NOW);
	take_place(&c);
	learned_set_active(c.old);
	learn(&c, "a.x.test", 4, 600, NOW);
	learn(&c, "b.x.test", 5, 600, NOW);
	/* 1 to 3 are there since the change; b's ports are to be others. */
	c.next_bytes = plan_from("egress: [{action: allow, target: a.x.test}, {action: "
				 "allow, target: b.x.test, ports: [80]}]\n",
				 &c.next_plan);
	j = learned_judging_new(c.old, &c.next_plan, &c.arena);
	assert_false(learned_judge(c.old, &c.next_plan, NOW, j, items, MAX, &count));
	assert_int_equal(count, 1);
	assert_non_null(in(items, 1, 4));
	/* Twice does no harm. */
	for (int i = 0; i < 2; i++)
		assert_int_equal(learned_note_draining(c.old, items, 1), 0);
	rebase(&c, TWO_NAMES, NOW);
	j = learned_judging_new(c.old, &c.next_plan, &c.arena);
	assert_false(learned_judge(c.old, &c.next_plan, NOW, j, items, MAX, &count));
	assert_int_equal(count, 1);
	assert_non_null(in(items, 1, 5));
	assert_non_null(c.next.difference);
	assert_int_equal(c.next.difference->draining_count, 1);
	assert_non_null(in(c.next.difference->draining, 1, 5));
	end(&c);
}

/* ---- a table that stays ---- */

/* In two steps, between which @between may be called. */
static const struct filter_difference *stays(
	struct change *c, const char *policy, int64_t now_ms,
	void (*between)(struct change *c, int64_t now_ms), struct learned_judging **ret)
{
	struct filter_learn items[64];
	struct learned_judging *j;
	size_t count;

	free(c->next_bytes);
	c->next_bytes = plan_from(policy, &c->next_plan);
	*ret = j = learned_judging_new(c->old, &c->next_plan, &c->arena);
	assert_non_null(j);
	(void)!learned_judge(c->old, &c->next_plan, now_ms, j, items, 1, &count);
	assert_int_equal(learned_note_draining(c->old, items, count), 0);
	if (between)
		between(c, now_ms);
	while (learned_judge(c->old, &c->next_plan, now_ms, j, items, 64, &count))
		assert_int_equal(learned_note_draining(c->old, items, count), 0);
	assert_int_equal(learned_note_draining(c->old, items, count), 0);
	return learned_stays(c->old, &c->next_plan, j, &c->arena);
}

/* A, B, C and G are learned, and have been there at a change; of D only that it was. The
 * tables have room for more. */
static void begin_active(struct change *c, const char *policy)
{
	begin(c, policy);
	learn(c, "d.x.test", 4, 60, NOW - 200000);
	learned_expire(c->old, NOW);
	learn(c, "a.x.test", 1, 600, NOW);
	learn(c, "b.x.test", 2, 600, NOW);
	learn(c, "c.x.test", 3, 600, NOW);
	learn(c, "g.x.test", 7, 600, NOW);
	rebase(c, policy, NOW);
	take_place(c);
	learned_set_active(c->old);
}

static void learn_more(struct change *c, int64_t now_ms)
{
	learn(c, "e.x.test", 5, 600, now_ms);
	learn(c, "a.x.test", 1, 900, now_ms);
}

static void forget_one(struct change *c, int64_t now_ms)
{
	struct dns_name n = name_of("b.x.test");
	struct addr a = host(2);

	learned_forget(c->old, &n, &a, now_ms);
}

#define ALL RULE("*.x.test")

TEST(a_table_stays_where_everything_in_it_goes_on)
{
	struct learned_judging *j;
	struct learned_use use;
	struct addr a = host(5);
	struct change c;
	const struct filter_difference *d;

	begin_active(&c, ONLY(ALL));
	assert_non_null(stays(&c, ONLY(ALL), NOW, NULL, &j));
	d = stays(&c, ONLY(RULE("z.test") "," ALL), NOW, learn_more, &j);
	assert_non_null(d);
	assert_int_equal(d->learned_count, 0);
	/* The last step has put it there. */
	assert_int_equal(d->draining_count, 0);
	learn(&c, "f.x.test", 6, 600, NOW);
	d = learned_stays(c.old, &c.next_plan, j, &c.arena);
	assert_int_equal(d->draining_count, 1);
	assert_non_null(in(d->draining, 1, 6));
	assert_int_equal(learned_stayed(c.old, j, d), 0);
	assert_int_equal(learned_find(c.old, &a, NOW, &use, 1), 1);
	assert_int_equal(use.rule, 1);
	assert_string_equal(who(c.old, 1, NOW + 700000), "a.x.test");
	end(&c);
}

/* The kernel is told of an address once, however many names have taught it. */
TEST(what_several_names_taught_comes_once)
{
	const int64_t later = NOW + 200000;
	const struct filter_difference *d;
	struct learned_judging *j;
	struct change c;

	begin_active(&c, ONLY(ALL));
	learn(&c, "e.x.test", 5, 60, NOW);
	learn(&c, "f.x.test", 5, 60, NOW);
	learn(&c, "h.x.test", 6, 60, NOW);
	learn(&c, "i.x.test", 6, 6000, NOW);
	learned_expire(c.old, later);
	/* Nothing was put there ahead of the change. */
	c.next_bytes = plan_from(ONLY(ALL), &c.next_plan);
	j = learned_judging_new(c.old, &c.next_plan, &c.arena);
	d = learned_stays(c.old, &c.next_plan, j, &c.arena);
	assert_non_null(d);
	assert_int_equal(d->draining_count, 2);
	assert_non_null(in(d->draining, 2, 5));
	assert_non_null(in(d->draining, 2, 6));
	/* And where the one that goes on was. */
	d = stays(&c, ONLY(ALL), later, NULL, &j);
	assert_non_null(d);
	assert_int_equal(d->draining_count, 1);
	assert_non_null(in(d->draining, 1, 5));
	end(&c);
}

TEST(a_table_does_not_stay_where_something_does_not_go_on)
{
	static const struct {
		const char *what, *policy;
		void (*between)(struct change *c, int64_t now_ms);
	} rows[] = {
		{ "a name is denied", ONLY("{action: deny, target: b.x.test}," ALL),
		  NULL },
		{ "an address is denied", ONLY("{action: deny, target: 45.0.0.3}," ALL),
		  NULL },
		{ "a name has other ports", ONLY(PORTS("b.x.test", "443") "," ALL),
		  NULL },
		{ "what has ended is denied",
		  ONLY("{action: deny, target: d.x.test}," ALL), NULL },
		{ "what came meanwhile is denied",
		  ONLY("{action: deny, target: e.x.test}," ALL), learn_more },
		{ "a limit is lower", ONLY(ALL) "limits: {addresses: 5000}\n", NULL },
		{ "the kernel has what no name wants", ONLY(ALL), forget_one },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct learned_judging *j;
		struct change c;

		print_message("%s\n", rows[i].what);
		begin_active(&c, ONLY(ALL));
		assert_null(stays(&c, rows[i].policy, NOW, rows[i].between, &j));
		end(&c);
	}
}

TEST(a_table_that_may_not_know_all_of_the_kernels_sets_is_made_anew)
{
	struct learned_judging *j;
	struct change c;
	int64_t now = NOW;

	begin_active(&c, ONLY(ALL));
	for (uint32_t i = 0; i < LEARNED_PAST_MAX; i++) {
		learn(&c, "a.x.test", 100 + i, 60, now);
		now += 200000;
		learned_expire(c.old, now);
	}
	/* An open flow to D would go on though D is forgotten. */
	assert_null(stays(&c, ONLY(ALL), now, NULL, &j));
	rebase(&c, ONLY(ALL), now);
	take_place(&c);
	learned_set_active(c.old);
	assert_non_null(stays(&c, ONLY(ALL), now, NULL, &j));
	end(&c);
}

/* ---- what the kernel's sets hold after any changes ---- */

enum { NAMES = 6, HOSTS = 24, ROUNDS = 2000 };

/* A copy of the kernel's sets, kept by what is sent to the kernel alone, and what each
 * name has taught since a policy last refused it. */
struct model {
	int64_t until_ms[HOSTS][PLAN_PORT_LISTS_MAX]; /* 0: no element */
	bool drains[HOSTS][PLAN_PORT_LISTS_MAX];
	int64_t taught_until_ms[NAMES][HOSTS]; /* 0: not, or refused since */
};

static const char *const model_policies[] = {
	ONLY(RULE("**.x.test")),
	ONLY(PORTS("n1.x.test", "1") "," PORTS("n2.x.test", "2") "," RULE("n3.x.test")),
	ONLY("{action: deny, target: n1.x.test}," RULE("**.x.test")),
	ONLY(PORTS("*.x.test", "22")),
	ONLY(RULE("n0.x.test") "," PORTS("n1.x.test", "2")),
	ONLY("{action: deny, target: 45.0.0.2}," RULE("**.x.test")),
};

static struct dns_name model_name(uint32_t i)
{
	char text[32];

	snprintf(text, sizeof(text), "n%u.x.test", i);
	return name_of(text);
}

static uint32_t host_of(const struct filter_learn *item)
{
	for (uint32_t n = 0; n < HOSTS; n++) {
		struct addr a = host(n);

		if (addr_equal(&a, &item->addr))
			return n;
	}
	fail();
	return 0;
}

static void send_learned(struct model *m, const struct filter_learn *items, size_t count,
			 int64_t now_ms)
{
	for (size_t i = 0; i < count; i++) {
		int64_t *at = &m->until_ms[host_of(&items[i])][items[i].port_list];

		/* The kernel refuses to delete what it does not have. */
		if (items[i].present && items[i].lifetime_ms == 0)
			assert_true(*at > now_ms);
		/* An element that is there keeps its time. */
		if (items[i].lifetime_ms > 0 && !items[i].refresh && *at > now_ms)
			continue;
		*at = items[i].lifetime_ms > 0 ? now_ms + items[i].lifetime_ms : 0;
	}
}

static void send_draining(struct model *m, const struct filter_learn *items, size_t count,
			  bool are_all)
{
	for (size_t i = 0; i < count; i++)
		m->drains[host_of(&items[i])][items[i].port_list] =
			are_all || items[i].lifetime_ms > 0;
}

static void send_change(struct model *m, const struct learned_rebased *n, int64_t now_ms)
{
	const struct filter_difference *d = n->difference;

	if (d) {
		send_learned(m, d->learned, d->learned_count, now_ms);
		send_draining(m, d->draining, d->draining_count, false);
		return;
	}
	memset(m->until_ms, 0, sizeof(m->until_ms));
	memset(m->drains, 0, sizeof(m->drains));
	send_learned(m, n->learned, n->learned_count, now_ms);
	send_draining(m, n->draining, n->draining_count, true);
}

static bool model_allows(const struct plan *plan, uint32_t name, uint32_t n,
			 uint8_t *ret_list)
{
	struct dns_name text = model_name(name);
	struct plan_verdict v = plan_match_name(plan, &text);
	struct addr a = host(n);

	*ret_list = v.port_list;
	return v.action == POLICY_ALLOW && !plan_denies_addr(plan, &a);
}

static void model_learn(struct change *c, struct model *m, int64_t now_ms)
{
	uint32_t name = any(NAMES), n = any(HOSTS);
	struct dns_name text = model_name(name);
	struct learned_item item = { .name = &text,
				     .verdict = plan_match_name(&c->plan, &text),
				     .addr = host(n),
				     .lifetime_ms = 1000 + any(200000) };
	struct filter_learn sent;
	int64_t *until_ms = &m->taught_until_ms[name][n];
	uint8_t list;
	int count;

	if (!model_allows(&c->plan, name, n, &list))
		return;
	count = learned_prepare(c->old, &item, now_ms, &sent);
	assert_true(count >= 0);
	if (any(8) == 0) {
		learned_abort(c->old, &item, now_ms);
		return;
	}
	send_learned(m, &sent, (size_t)count, now_ms);
	learned_commit(c->old, &item, now_ms);
	*until_ms = MAX(*until_ms, now_ms + item.lifetime_ms);
}

/* Addresses are put ahead of a change that another one overtakes. */
static void model_overtake(struct change *c, struct model *m, int64_t now_ms)
{
	struct plan plan;
	uint8_t *bytes =
		plan_from(model_policies[any(ARRAY_SIZE(model_policies))], &plan);
	struct learned_judging *j = learned_judging_new(c->old, &plan, &c->arena);
	struct filter_learn items[4];
	size_t count;

	(void)!learned_judge(c->old, &plan, now_ms, j, items, 4, &count);
	send_draining(m, items, count, false);
	assert_int_equal(learned_note_draining(c->old, items, count), 0);
	free(bytes);
}

static void model_sweep(struct change *c, struct model *m, int64_t now_ms)
{
	struct filter_learn swept[16];
	size_t count;

	learned_expire(c->old, now_ms);
	count = learned_sweep(c->old, now_ms, swept, ARRAY_SIZE(swept));
	send_learned(m, swept, count, now_ms);
}

/* What @m's names want of the sets under the policy of @c. */
static void check_sets(const struct change *c, struct model *m, int64_t now_ms)
{
	int64_t until_ms[HOSTS][PLAN_PORT_LISTS_MAX] = { 0 };
	bool drains[HOSTS][PLAN_PORT_LISTS_MAX] = { 0 };
	uint8_t list;

	for (uint32_t name = 0; name < NAMES; name++)
		for (uint32_t n = 0; n < HOSTS; n++) {
			int64_t *taught_ms = &m->taught_until_ms[name][n];

			if (!model_allows(&c->plan, name, n, &list))
				*taught_ms = 0;
			if (*taught_ms == 0)
				continue;
			drains[n][list] = true;
			if (*taught_ms > now_ms)
				until_ms[n][list] = MAX(until_ms[n][list], *taught_ms);
		}
	for (uint32_t n = 0; n < HOSTS; n++)
		for (uint32_t i = 0; i < PLAN_PORT_LISTS_MAX; i++) {
			int64_t has_ms = m->until_ms[n][i];

			assert_int_equal(has_ms > now_ms ? has_ms : 0, until_ms[n][i]);
			assert_int_equal(m->drains[n][i], drains[n][i]);
		}
}

/* The rules of all that is learned are those of the plan. */
static void check_rules(const struct change *c, int64_t now_ms)
{
	struct learned_use uses[MAX_FOUND];

	for (uint32_t n = 0; n < HOSTS; n++) {
		struct addr a = host(n);
		size_t count = learned_find(c->old, &a, now_ms, uses, MAX_FOUND);

		while (count-- > 0)
			assert_int_equal(
				uses[count].rule,
				plan_match_name(&c->plan, &uses[count].name).rule);
	}
}

/* In steps, between which more is learned. Return: the table may stay. */
static const struct filter_difference *model_judge(struct change *c, struct model *m,
						   struct learned_judging **ret,
						   int64_t now_ms)
{
	struct filter_learn items[5];
	size_t count;
	bool more;

	*ret = learned_judging_new(c->old, &c->next_plan, &c->arena);
	do {
		more = learned_judge(c->old, &c->next_plan, now_ms, *ret, items,
				     1 + any(5), &count);
		send_draining(m, items, count, false);
		assert_int_equal(learned_note_draining(c->old, items, count), 0);
		if (any(4) == 0)
			model_learn(c, m, now_ms);
	} while (more);
	return learned_stays(c->old, &c->next_plan, *ret, &c->arena);
}

static size_t stayed;

static void model_change(struct change *c, struct model *m, int64_t now_ms)
{
	const char *policy = model_policies[any(ARRAY_SIZE(model_policies))];
	const struct filter_difference *d = NULL;
	struct learned_judging *j;

	c->next_bytes = plan_from(policy, &c->next_plan);
	if (any(2) == 0)
		d = model_judge(c, m, &j, now_ms);
	if (!d)
		assert_int_equal(learned_rebase(c->old, &c->next_plan, now_ms, &c->arena,
						&c->next),
				 0);
	/* The kernel refuses it: nothing has changed. */
	if (any(4) == 0) {
		learned_free(c->next.table);
		c->next.table = NULL;
		free(c->next_bytes);
		c->next_bytes = NULL;
		return;
	}
	if (d) {
		stayed++;
		send_draining(m, d->draining, d->draining_count, false);
		assert_int_equal(learned_stayed(c->old, j, d), 0);
		c->next.table = c->old;
		c->old = NULL;
	} else {
		send_change(m, &c->next, now_ms);
	}
	take_place(c);
	learned_set_active(c->old);
	check_sets(c, m, now_ms);
	check_rules(c, now_ms);
}

TEST(after_any_changes_the_sets_hold_what_the_policy_allows)
{
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct model m = { 0 };
		struct change c;
		int64_t now = NOW;

		random_state = round;
		begin(&c, model_policies[0]);
		model_change(&c, &m, now);
		for (uint32_t i = 0; i < 60; i++) {
			uint32_t what = any(16);

			now += any(8000);
			if (what == 0)
				model_sweep(&c, &m, now);
			else if (what == 1)
				model_overtake(&c, &m, now);
			else if (what < 5)
				model_change(&c, &m, now);
			else
				model_learn(&c, &m, now);
		}
		end(&c);
	}
	assert_true(stayed > ROUNDS);
}
