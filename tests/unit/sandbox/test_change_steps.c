// SPDX-License-Identifier: Apache-2.0
/* A policy that changes in steps, and of which only what changes is sent. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "sandbox/learned.h"
#include "test_change_world.h"
#include "unit.h"

/* ---- in steps ---- */

static size_t stage_all(const struct plan *plan, struct sandbox_staging *st)
{
	struct err err = { 0 };
	size_t steps = 0;
	int r;

	do {
		r = sandbox_stage(&box, plan, st, &err);
		must(r, &err);
		steps++;
	} while (r > 0);
	return steps;
}

/* Ranges without number, besides a name. */
static struct plan plan_of_ranges(void)
{
	enum { RANGES = 4096, TEXT_SIZE = 256 * 1024 };
	CLEAN(mem) char *text = malloc(TEXT_SIZE);
	size_t at;

	assert_non_null(text);
	at = (size_t)snprintf(text, TEXT_SIZE,
			      "egress:\n- {action: allow, target: a.x.test}\n"
			      "- {action: allow, target: " FAR_B "}\n");
	for (unsigned int i = 0; i < RANGES; i++)
		at += (size_t)snprintf(text + at, TEXT_SIZE - at,
				       "- {action: allow, target: 20.%u.%u.0/30}\n",
				       i / 256, i % 256);
	return plan_of(text);
}

TEST_WITH(a_staged_policy_counts_once_it_is_changed_to, NULL, stop)
{
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;
	struct flow a, c;

	install("egress: [{action: allow, target: a.x.test}, "
		"{action: allow, target: " FAR_C "}]\n");
	learn("a.x.test", FAR_A, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	c = connect_flow(FAR_C, listener[2]);
	plan = plan_of_ranges();
	assert_true(stage_all(&plan, &st) > 2);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	assert_true(passes(c));
	assert_int_equal(box.shared_params.generation, 1);
	must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
	sandbox_staging_done(&st);
	must(sandbox_verify(&box, &err), &err);
	assert_int_equal(box.shared_params.generation, 2);
	assert_int_equal(connect_result(FAR_B), 0);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_true(passes(a));
	assert_is_reset(c);
	close_flow(a);
	close_flow(c);
}

TEST_WITH(what_is_staged_becomes_stale_by_a_repair, NULL, stop)
{
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;

	install(A_ALONE);
	plan = plan_of_ranges();
	assert_int_equal(sandbox_stage(&box, &plan, &st, &err), 1);
	assert_int_equal(sandbox_stage(&box, &plan, &st, &err), 1);
	must(sandbox_repair(&box, clock_now_ms(), &err), &err);
	assert_int_equal(sandbox_stage(&box, &plan, &st, &err), -ESTALE);
	must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
	sandbox_staging_done(&st);
	must(sandbox_verify(&box, &err), &err);
	assert_int_equal(connect_result(FAR_B), 0);
	assert_int_equal(connect_result(FAR_C), -ECONNREFUSED);
}

TEST_WITH(what_is_staged_and_given_up_leaves_nothing, NULL, stop)
{
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;

	install(A_ALONE);
	plan = plan_of_ranges();
	for (int i = 0; i < 3; i++)
		assert_int_equal(sandbox_stage(&box, &plan, &st, &err), 1);
	assert_true(sandbox_verify(&box, &err) < 0);
	sandbox_stage_abandon(&box, &st);
	assert_null(st.rules);
	must(sandbox_verify(&box, &err), &err);
	assert_true(stage_all(&plan, &st) > 2);
	sandbox_stage_abandon(&box, &st);
	must(sandbox_verify(&box, &err), &err);
	assert_int_equal(box.shared_params.generation, 1);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	/* The same once more, under the same names. */
	assert_true(stage_all(&plan, &st) > 2);
	must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
	sandbox_staging_done(&st);
	must(sandbox_verify(&box, &err), &err);
	assert_int_equal(connect_result(FAR_B), 0);
}

TEST_WITH(a_staged_policy_counts_though_the_table_was_lost, NULL, stop)
{
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;

	install(A_ALONE);
	plan = plan_of_ranges();
	assert_true(stage_all(&plan, &st) > 2);
	must(filter_remove(&box.filter, &err), &err);
	must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
	sandbox_staging_done(&st);
	must(sandbox_verify(&box, &err), &err);
	assert_int_equal(connect_result(FAR_B), 0);
	assert_int_equal(connect_result(FAR_C), -ECONNREFUSED);
}

/* ---- only what changes ---- */

enum { READ_MAX = 32, SOON_MS = 1500 };

struct have {
	struct filter_learn items[READ_MAX];
	size_t count;
};

static void on_element(void *data, uint16_t id, const struct filter_learn *item)
{
	struct have *h = data;

	assert_true(h->count < READ_MAX);
	h->items[h->count++] = *item;
}

/* The kernel's learned sets hold @count elements, and each of them is in the table. */
static void assert_kernel_has(size_t count)
{
	struct have have = { .count = 0 };
	struct learned_use uses[8];

	assert_int_equal(filter_learned_read(&box.filter, plan_port_list_count(&box.plan),
					     on_element, &have),
			 0);
	assert_int_equal(have.count, count);
	for (size_t i = 0; i < count; i++) {
		size_t n = learned_find(box.learned, &have.items[i].addr, clock_now_ms(),
					uses, ARRAY_SIZE(uses));
		bool known = false;

		while (n > 0)
			known |= uses[--n].port_list == have.items[i].port_list;
		assert_true(known);
	}
}

/* Into the kernel, and nobody knows. */
static void smuggle(const char *addr, uint32_t lifetime_ms)
{
	const struct filter_learn item = { .addr = addr_of(addr),
					   .lifetime_ms = lifetime_ms,
					   .present = true };

	assert_int_equal(filter_learn(&box.filter, &item, 1), 0);
}

TEST_WITH(sets_stay_unless_somebody_may_have_changed_them, NULL, stop)
{
	struct flow a;

	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	change(A_AND_B);
	smuggle(FAR_C, LONG_MS);
	change(A_ALONE);
	/* It shows that what stood still stands. */
	assert_int_equal(connect_result(FAR_C), 0);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	assert_true(passes(a));
	box.filter.unsure = true;
	change(A_AND_B);
	assert_false(box.filter.unsure);
	assert_kernel_has(1);
	assert_int_equal(connect_result(FAR_C), -ECONNREFUSED);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_true(passes(a));
	close_flow(a);
}

TEST_WITH(a_failed_transaction_makes_the_next_change_whole, NULL, stop)
{
	struct filter_learn absent = { .addr = addr_of(FAR_B), .present = true };

	install(A_ALONE);
	learn("a.x.test", FAR_A, LONG_MS);
	smuggle(FAR_C, LONG_MS);
	assert_true(filter_learn(&box.filter, &absent, 1) < 0);
	assert_true(box.filter.unsure);
	change(A_AND_B);
	assert_kernel_has(1);
	assert_int_equal(connect_result(FAR_C), -ECONNREFUSED);
}

TEST_WITH(what_the_kernel_has_lost_is_no_obstacle, NULL, stop)
{
	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	smuggle(FAR_A, 0);
	change(B_ALONE);
	assert_kernel_has(1);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_int_equal(connect_result(FAR_B), 0);
}

#define PORTS_OF(one, ports_one, two, ports_two)                                         \
	"egress: [{action: allow, target: " one ", ports: [" ports_one "]}, "            \
	"{action: allow, target: " two ", ports: [" ports_two "]}]\n"

TEST_WITH(port_lists_may_swap_places, NULL, stop)
{
	struct flow a, b;

	install(PORTS_OF("a.x.test", "9000", "b.x.test", "443"));
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	change(PORTS_OF("b.x.test", "443", "a.x.test", "9000"));
	assert_kernel_has(2);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	/* The lists stay, and the names swap. */
	change(PORTS_OF("a.x.test", "443", "b.x.test", "9000"));
	assert_kernel_has(2);
	assert_is_reset(a);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	b = connect_flow(FAR_B, listener[1]);
	change(PORTS_OF("b.x.test", "9000", "a.x.test", "443"));
	assert_kernel_has(2);
	assert_true(passes(b));
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_int_equal(connect_result(FAR_B), 0);
	close_flow(a);
	close_flow(b);
}

TEST_WITH(port_lists_may_vanish_and_come_back, NULL, stop)
{
	const char *listed = PORTS_OF("a.x.test", "9000", "b.x.test", "443");
	struct flow a;

	install(listed);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	change(A_AND_B);
	assert_kernel_has(2);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_B), 0);
	change(listed);
	assert_kernel_has(2);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	change("egress: []\n");
	assert_kernel_has(0);
	assert_is_reset(a);
	change(listed);
	assert_kernel_has(0);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	close_flow(a);
}

TEST_WITH(a_name_may_move_to_another_port_list, NULL, stop)
{
	struct flow a;

	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	change("egress: [{action: allow, target: b.x.test}, "
	       "{action: allow, target: a.x.test, ports: [9000]}]\n");
	assert_kernel_has(2);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), 0);
	change("egress: [{action: allow, target: b.x.test}, "
	       "{action: allow, target: a.x.test, ports: [443]}]\n");
	assert_kernel_has(2);
	assert_is_reset(a);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	close_flow(a);
}

TEST_WITH(what_is_left_ends_when_its_own_time_comes, NULL, stop)
{
	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	/* The same address by another name, which the kernel need not be told of. */
	learn("b.x.test", FAR_C, SOON_MS);
	learn("a.x.test", FAR_C, LONG_MS);
	change(B_ALONE);
	assert_kernel_has(2);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_int_equal(connect_result(FAR_C), 0);
	wait_until_refused(FAR_C);
	assert_int_equal(connect_result(FAR_B), 0);
}

TEST_WITH(what_has_just_ended_in_the_kernel_may_go, NULL, stop)
{
	struct flow a;

	install(A_AND_B);
	learn("a.x.test", FAR_A, 2000);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	wait_until_refused(FAR_A);
	change(A_AND_B);
	assert_kernel_has(1);
	assert_true(passes(a));
	/* It stays kept though nothing is learned of it, until it is revoked. */
	change(A_AND_B "limits: {addresses: 100}\n");
	assert_true(passes(a));
	change(B_ALONE);
	assert_is_reset(a);
	close_flow(a);
}

TEST_WITH(what_is_learned_is_there_though_the_table_was_lost, NULL, stop)
{
	struct err err = { 0 };

	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	change(A_ALONE);
	must(filter_remove(&box.filter, &err), &err);
	change(A_AND_B);
	must(sandbox_verify(&box, &err), &err);
	assert_kernel_has(1);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
}

TEST_WITH(the_generation_may_wrap, NULL, stop)
{
	struct plan plan = plan_of(A_AND_B);
	struct err err = { 0 };
	struct flow a, b;

	open_sandbox(&plan);
	box.shared_params.generation = UINT16_MAX - 1;
	must(sandbox_install(&box, &plan, &err), &err);
	assert_int_equal(box.shared_params.generation, UINT16_MAX);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	b = connect_flow(FAR_B, listener[1]);
	change(A_ALONE);
	assert_int_equal(box.shared_params.generation, FILTER_GENERATION_FIRST + 1);
	assert_kernel_has(1);
	assert_true(passes(a));
	assert_is_reset(b);
	change(A_AND_B);
	assert_int_equal(box.shared_params.generation, FILTER_GENERATION_FIRST + 2);
	assert_true(passes(a));
	close_flow(a);
	close_flow(b);
}

TEST_WITH(what_is_learned_stays_through_a_staged_change, NULL, stop)
{
	const struct learned *table;
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;
	struct flow a;

	install(A_ALONE);
	learn("a.x.test", FAR_A, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	table = box.learned;
	for (int i = 0; i < 3; i++) {
		plan = plan_of_ranges();
		assert_true(stage_all(&plan, &st) > 2);
		/* Learned between two steps. */
		if (i == 1)
			learn("a.x.test", FAR_C, LONG_MS);
		must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
		sandbox_staging_done(&st);
		must(sandbox_verify(&box, &err), &err);
		assert_kernel_has(i == 0 ? 1 : 2);
		assert_true(passes(a));
		assert_ptr_equal(box.learned, table);
	}
	assert_int_equal(connect_result(FAR_C), 0);
	change(B_ALONE);
	assert_kernel_has(0);
	assert_is_reset(a);
	close_flow(a);
}

static void change_in_steps(const char *policy)
{
	struct sandbox_staging st = { 0 };
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	stage_all(&plan, &st);
	must(sandbox_change_staged(&box, &st, clock_now_ms(), &err), &err);
	sandbox_staging_done(&st);
	must(sandbox_verify(&box, &err), &err);
}

TEST_WITH(what_has_ended_goes_on_while_the_table_stays, NULL, stop)
{
	const struct learned *table;
	struct flow b;

	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, SOON_MS);
	b = connect_flow(FAR_B, listener[1]);
	wait_until_refused(FAR_B);
	table = box.learned;
	for (int i = 0; i < 2; i++) {
		change_in_steps(A_AND_B);
		assert_ptr_equal(box.learned, table);
		assert_true(passes(b));
		assert_int_equal(connect_result(FAR_A), 0);
		assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
		/* From now on it is not in the table any more. */
		(void)!learned_expire(box.learned, clock_now_ms() + 10 * SOON_MS);
	}
	change_in_steps(A_ALONE);
	assert_is_reset(b);
	assert_kernel_has(1);
	close_flow(b);
}

TEST_WITH(what_was_to_drain_and_was_given_up_opens_nothing, NULL, stop)
{
	struct sandbox_staging st = { 0 };
	struct err err = { 0 };
	struct plan plan;
	struct flow a, b;

	install(A_AND_B);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	b = connect_flow(FAR_B, listener[1]);
	for (int i = 0; i < 2; i++) {
		plan = plan_of(A_AND_B "limits: {addresses: 100}\n");
		assert_true(stage_all(&plan, &st) > 1);
		sandbox_stage_abandon(&box, &st);
		must(sandbox_verify(&box, &err), &err);
	}
	change(B_ALONE);
	assert_kernel_has(1);
	assert_is_reset(a);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	change(A_AND_B);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_true(passes(b));
	close_flow(a);
	close_flow(b);
}

int main(void)
{
	if (!make_namespaces()) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
