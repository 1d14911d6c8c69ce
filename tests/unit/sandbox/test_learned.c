// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "sandbox/learned.h"
#include "unit.h"

/* A table under a plan with these limits; the others have their defaults. */
struct fixture {
	struct learned *l;
	struct plan plan;
	uint8_t *bytes;
};

static struct fixture open_fixture(uint32_t names, uint32_t per_name, uint32_t addresses)
{
	struct policy policy = { 0 };
	struct fixture f = { 0 };
	size_t size;

	policy.limits[LIMIT_LEARNED_NAMES] = names;
	policy.limits[LIMIT_ADDRESSES_PER_NAME] = per_name;
	policy.limits[LIMIT_ADDRESSES] = addresses;
	assert_int_equal(policy_compile(&policy, &f.bytes, &size, NULL), 0);
	assert_int_equal(plan_open(f.bytes, size, &f.plan, NULL), 0);
	return f;
}

static void start(struct fixture *f)
{
	struct hash_key key = { 3, 4 };

	f->l = learned_new(&f->plan, &key);
	assert_non_null(f->l);
}

static void stop(struct fixture *f)
{
	learned_free(f->l);
	free(f->bytes);
}

static struct dns_name *name_of(const char *text)
{
	static struct dns_name names[4];
	static size_t next;
	struct dns_name *n = &names[next++ % 4];

	assert_int_equal(dns_name_parse(text_of(text), n), 0);
	return n;
}

static struct learned_item item(const char *name, uint32_t host, uint32_t ttl,
				uint8_t list)
{
	return (struct learned_item){
		.name = name_of(name),
		.verdict = { .action = POLICY_ALLOW, .port_list = list },
		.addr = addr_v4(45, (uint8_t)(host >> 16), (uint8_t)(host >> 8),
				(uint8_t)host),
		.ttl_sec = ttl,
	};
}

/* Prepare and commit. Return: how many elements the kernel was asked for. */
static int learn(struct fixture *f, struct learned_item i, int64_t now_ms,
		 struct filter_learn *ret)
{
	struct filter_learn change = { 0 };
	int n = learned_prepare(f->l, &i, now_ms, &change);

	assert_in_range(n, 0, 1);
	learned_commit(f->l, &i, now_ms);
	if (ret)
		*ret = change;
	return n;
}

static size_t find(struct fixture *f, uint32_t host, int64_t now_ms)
{
	struct learned_item i = item("x.test", host, 0, 0);
	struct learned_use use[16];

	return learned_find(f->l, &i.addr, now_ms, use, 16);
}

TEST(a_lifetime_is_the_ttl_within_the_limits_and_the_grace)
{
	static const struct {
		const char *what;
		uint32_t ttl_sec, lifetime_sec;
	} rows[] = {
		{ "zero", 0, 90 },
		{ "below the shortest", 59, 90 },
		{ "the shortest", 60, 90 },
		{ "between", 300, 330 },
		{ "a day", 86400, 86430 },
		{ "over a day", 86401, 86430 },
		{ "the highest", 0x7fffffff, 86430 },
		{ "not a TTL", UINT32_MAX, 86430 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct fixture f = open_fixture(0, 0, 0);
		struct filter_learn c;

		start(&f);
		print_message("%s\n", rows[i].what);
		assert_int_equal(
			learn(&f, item("a.test", 1, rows[i].ttl_sec, 2), 1000, &c), 1);
		assert_int_equal(c.lifetime_ms, rows[i].lifetime_sec * 1000);
		assert_int_equal(c.port_list, 2);
		assert_false(c.refresh);
		assert_int_equal(find(&f, 1, 999 + rows[i].lifetime_sec * 1000), 1);
		assert_int_equal(find(&f, 1, 1000 + rows[i].lifetime_sec * 1000), 0);
		stop(&f);
	}
}

TEST(the_kernel_is_asked_only_when_its_element_would_end_too_early)
{
	struct fixture f = open_fixture(0, 0, 0);
	struct filter_learn c;

	start(&f);
	assert_int_equal(learn(&f, item("a.test", 1, 60, 0), 0, NULL), 1);
	assert_int_equal(learn(&f, item("a.test", 1, 60, 0), 0, NULL), 0);
	assert_int_equal(learn(&f, item("a.test", 1, 30, 0), 30000, NULL), 0);
	assert_int_equal(learn(&f, item("a.test", 1, 31, 0), 30000, &c), 1);
	assert_true(c.refresh);
	/* Another port list is another element. */
	assert_int_equal(learn(&f, item("a.test", 1, 30, 1), 30000, &c), 1);
	assert_false(c.refresh);
	/* One that has just ended here may still be in the kernel. */
	assert_int_equal(learn(&f, item("b.test", 2, 60, 0), 0, NULL), 1);
	assert_int_equal(learn(&f, item("b.test", 2, 60, 0), 90500, &c), 1);
	assert_true(c.refresh);
	stop(&f);
}

TEST(what_was_not_acknowledged_is_not_learned)
{
	struct fixture f = open_fixture(0, 0, 0);
	struct learned_item i = item("a.test", 1, 60, 0);
	struct filter_learn c;

	start(&f);
	assert_int_equal(learned_prepare(f.l, &i, 5000, &c), 1);
	assert_int_equal(find(&f, 1, 5000), 0);
	/* Prepared already in this transaction. */
	assert_int_equal(learned_prepare(f.l, &i, 5000, &c), 0);
	learned_abort(f.l, &i, 5000);
	learned_abort(f.l, &i, 5000);
	assert_int_equal(find(&f, 1, 5000), 0);
	assert_int_equal(learned_counts(f.l).names, 0);
	assert_int_equal(learn(&f, item("a.test", 1, 60, 0), 5000, NULL), 1);
	assert_int_equal(find(&f, 1, 5000), 1);
	stop(&f);
}

TEST(the_limits_hold_and_what_expires_first_goes)
{
	struct fixture f = open_fixture(16, 4, 32);
	char name[32];

	start(&f);
	for (uint32_t i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "n%u.test", i % 40);
		learn(&f, item(name, i, 60 + i % 7, 0), i, NULL);
		assert_true(learned_counts(f.l).names <= 16);
		assert_true(learned_counts(f.l).addresses <= 32);
		assert_int_equal(find(&f, i, i), 1);
	}
	for (uint32_t i = 0; i < 6; i++)
		learn(&f, item("one.test", 5000 + i, 3600 + i, 0), 1000, NULL);
	assert_int_equal(find(&f, 5000, 1000), 0);
	assert_int_equal(find(&f, 5001, 1000), 0);
	assert_int_equal(find(&f, 5002, 1000), 1);
	assert_int_equal(find(&f, 5005, 1000), 1);
	stop(&f);
}

TEST(an_element_is_deleted_when_its_last_name_goes)
{
	struct fixture f = open_fixture(0, 1, 0);
	struct filter_learn changes[4], c;

	start(&f);
	learn(&f, item("a.test", 1, 60, 0), 0, NULL);
	learn(&f, item("b.test", 1, 60, 0), 0, NULL);
	learn(&f, item("a.test", 2, 60, 0), 0,
	      NULL); /* a.test forgets 1; b.test has it */
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 0);
	learn(&f, item("b.test", 2, 60, 0), 0, NULL); /* nobody has 1 now */
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 1);
	assert_int_equal(changes[0].lifetime_ms, 0);
	assert_int_equal(changes[0].addr.bytes[3], 1);
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 0);
	/* Learned again before the sweep: it stays. */
	learn(&f, item("a.test", 3, 60, 0), 0, NULL);
	learn(&f, item("b.test", 3, 60, 0), 0, NULL);
	assert_int_equal(learn(&f, item("c.test", 2, 60, 0), 0, NULL), 0);
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 0);
	/* A transaction with a deletion failed: who knows what the kernel has. */
	learn(&f, item("c.test", 4, 60, 0), 0, NULL);
	c = (struct filter_learn){ 0 };
	struct learned_item i = item("d.test", 5, 60, 0);
	assert_int_equal(learned_prepare(f.l, &i, 0, &c), 1);
	assert_false(c.refresh);
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 1);
	learned_sweep_failed(f.l);
	learned_abort(f.l, &i, 0);
	assert_int_equal(learn(&f, item("d.test", 2, 60, 0), 0, &c), 1);
	assert_true(c.refresh);
	stop(&f);
}

TEST(what_is_forgotten_is_swept_unless_another_name_has_it)
{
	struct fixture f = open_fixture(0, 0, 0);
	struct addr first = addr_v4(45, 0, 0, 1), second = addr_v4(45, 0, 0, 2);
	struct filter_learn changes[4];
	struct learned_use use[4];

	start(&f);
	learn(&f, item("a.test", 1, 60, 0), 0, NULL);
	learn(&f, item("a.test", 2, 60, 0), 0, NULL);
	learn(&f, item("b.test", 2, 60, 0), 0, NULL);
	learned_forget(f.l, name_of("a.test"), &second, 0);
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 0);
	assert_int_equal(learned_find(f.l, &second, 0, use, 4), 1);
	learned_forget(f.l, name_of("a.test"), &first, 0);
	assert_int_equal(learned_sweep(f.l, 0, changes, 4), 1);
	assert_true(addr_equal(&changes[0].addr, &first));
	assert_int_equal(changes[0].lifetime_ms, 0);
	assert_int_equal(learned_find(f.l, &first, 0, use, 4), 0);
	/* Nobody has these. */
	learned_forget(f.l, name_of("a.test"), &first, 0);
	learned_forget(f.l, name_of("c.test"), &second, 0);
	assert_int_equal(learned_counts(f.l).addresses, 1);
	stop(&f);
}

TEST(names_of_an_address_come_newest_first_over_all_port_lists)
{
	struct fixture f = open_fixture(0, 0, 0);
	struct learned_item i = item("x.test", 1, 0, 0);
	struct learned_use use[4];

	start(&f);
	learn(&f, item("a.test", 1, 60, 0), 0, NULL);
	learn(&f, item("b.test", 1, 60, 1), 0, NULL);
	learn(&f, item("c.test", 1, 60, 0), 0, NULL);
	learn(&f, item("a.test", 1, 60, 0), 0, NULL);
	assert_int_equal(learned_find(f.l, &i.addr, 0, use, 4), 3);
	assert_true(dns_name_equal(&use[0].name, name_of("a.test")));
	assert_true(dns_name_equal(&use[1].name, name_of("c.test")));
	assert_true(dns_name_equal(&use[2].name, name_of("b.test")));
	assert_int_equal(use[2].port_list, 1);
	assert_int_equal(learned_find(f.l, &i.addr, 0, use, 1), 1);
	stop(&f);
}

TEST(the_addresses_of_a_name_are_listed_newest_first)
{
	struct fixture f = open_fixture(0, 0, 0);
	struct learned_item first = item("a.test", 1, 60, 0);
	struct learned_item last = item("a.test", 3, 60, 0);
	struct addr list[4];

	start(&f);
	for (uint32_t i = 1; i <= 3; i++)
		learn(&f, item("a.test", i, 60, 0), 0, NULL);
	assert_int_equal(learned_addrs(f.l, name_of("a.test"), ADDR_V4, 0, list, 4), 3);
	assert_true(addr_equal(&list[0], &last.addr));
	assert_true(addr_equal(&list[2], &first.addr));
	/* One that is learned again is the newest. */
	learn(&f, item("a.test", 1, 60, 0), 1000, NULL);
	assert_int_equal(learned_addrs(f.l, name_of("a.test"), ADDR_NONE, 0, list, 2), 2);
	assert_true(addr_equal(&list[0], &first.addr));
	assert_true(addr_equal(&list[1], &last.addr));
	assert_int_equal(learned_addrs(f.l, name_of("a.test"), ADDR_V6, 0, list, 4), 0);
	assert_true(learned_teaches(f.l, name_of("a.test"), &last.addr, 0));
	assert_false(learned_teaches(f.l, name_of("b.test"), &last.addr, 0));
	assert_false(learned_teaches(f.l, name_of("a.test"), &last.addr, 95000));
	assert_int_equal(learned_addrs(f.l, name_of("b.test"), ADDR_V4, 0, list, 4), 0);
	assert_int_equal(learned_addrs(f.l, name_of("a.test"), ADDR_V4, 95000, list, 4),
			 0);
	stop(&f);
}

TEST(what_has_expired_leaves_and_the_table_says_when)
{
	struct fixture f = open_fixture(0, 0, 0);
	int64_t at;

	start(&f);
	assert_int_equal(learned_expire(f.l, 0), INT64_MAX);
	learn(&f, item("a.test", 1, 60, 0), 0, NULL);
	learn(&f, item("b.test", 2, 600, 0), 0, NULL);
	at = learned_expire(f.l, 0);
	assert_in_range(at, 90000, 95000);
	at = learned_expire(f.l, at);
	assert_int_equal(learned_counts(f.l).addresses, 1);
	assert_int_equal(learned_expire(f.l, at), INT64_MAX);
	assert_int_equal(learned_counts(f.l).names, 0);
	assert_int_equal(learned_counts(f.l).evicted, 0);
	stop(&f);
}
