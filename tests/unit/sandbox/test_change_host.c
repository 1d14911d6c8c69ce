// SPDX-License-Identifier: Apache-2.0
/* A policy that changes, of a sandbox in the host's table. */
#include <errno.h>
#include <stdio.h>

#include "unit.h"
#include <poll.h>

#include "base/clock.h"
#include "sandbox/learned.h"
#include "test_change_world.h"

static void what_is_still_allowed_survives_a_change(void **state)
{
	struct flow a, b;

	install_on_host(A_AND_B);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	b = connect_flow(FAR_B, listener[1]);
	assert_true(passes(a));
	assert_true(passes(b));
	change(A_ALONE);
	assert_int_equal(box.counters[COUNT_POLICY_CHANGES], 1);
	assert_true(passes(a));
	assert_is_reset(b);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	/* Allowed once more, but nobody has asked for its address again. */
	change(A_AND_B);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	close_flow(a);
	close_flow(b);
}

static void the_ports_of_the_new_policy_count(void **state)
{
	struct flow a;

	install_on_host(A_ALONE);
	learn("a.x.test", FAR_A, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	change("egress: [{action: allow, target: x.x.test}, "
	       "{action: allow, target: a.x.test, ports: [443]}]\n");
	assert_is_reset(a);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	close_flow(a);
}

static void an_open_flow_outlives_its_address_and_then_a_change(void **state)
{
	struct flow a, b;

	install_on_host(A_AND_B);
	learn("a.x.test", FAR_A, 2000);
	learn("b.x.test", FAR_B, 2000);
	a = connect_flow(FAR_A, listener[0]);
	b = connect_flow(FAR_B, listener[1]);
	wait_until_refused(FAR_A);
	wait_until_refused(FAR_B);
	/* The kernel counts in ticks: its end may be some milliseconds before ours. */
	poll(NULL, 0, 50);
	learned_expire(box.learned, clock_now_ms());
	change(A_ALONE);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_is_reset(b);
	close_flow(a);
	close_flow(b);
}

static void a_change_that_fails_leaves_everything_as_it_was(void **state)
{
	struct plan next;
	struct err err = { 0 };
	struct flow a;

	install_on_host(A_ALONE);
	learn("a.x.test", FAR_A, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	next = plan_of("verify: tls\n" B_ALONE);
	assert_int_equal(sandbox_change(&box, &next, NULL, clock_now_ms(), &err),
			 -EOPNOTSUPP);
	must(sandbox_verify(&box, &err), &err);
	assert_true(passes(a));
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	close_flow(a);
}

#define T(name) cmocka_unit_test_teardown(name, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_still_allowed_survives_a_change),
		T(the_ports_of_the_new_policy_count),
		T(an_open_flow_outlives_its_address_and_then_a_change),
		T(a_change_that_fails_leaves_everything_as_it_was),
	};

	if (!make_namespaces()) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
