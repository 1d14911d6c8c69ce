// SPDX-License-Identifier: Apache-2.0
/* Rules that end and budgets that are used up, of many sandboxes. Nothing can be enforced
 * here: names and the relay go by the new plan all the same. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "engine/host.h"
#include "sandbox/budgets.h"
#include "sandbox/plan_file.h"
#include "sandbox/test_plan.h"

enum { BOXES = 4, SENT = 100, PATIENCE_TURNS = 100, LONG_MS = 3 };

static struct engine_core core;
static struct engine_host host;
static struct engine_sandbox boxes[BOXES];
static uint8_t *bytes;
static size_t gone_over, host_readings;
static void (*on_gone_over)(void);

/* The linker puts these in the places of the real ones (--wrap). */
struct filter_conn *__wrap_filter_host_conn(struct filter_host *h);
int __wrap_filter_counts_read(struct filter_conn *c, enum addr_family family,
			      bool refused, filter_counts_fn *fn, void *data);
int __wrap_filter_total(struct filter_conn *c, bool refused, uint64_t *ret);
int __wrap_resolver_pin(struct resolver *r, struct sandbox *s, int64_t repin_ms,
			resolver_pinned_fn *on_pinned, void *data, int64_t now_ms);

struct filter_conn *__wrap_filter_host_conn(struct filter_host *h)
{
	return NULL;
}

int __wrap_filter_counts_read(struct filter_conn *c, enum addr_family family,
			      bool refused, filter_counts_fn *fn, void *data)
{
	host_readings += !refused && family == ADDR_V4;
	return 0;
}

int __wrap_filter_total(struct filter_conn *c, bool refused, uint64_t *ret)
{
	return -ENOENT;
}

int __wrap_resolver_pin(struct resolver *r, struct sandbox *s, int64_t repin_ms,
			resolver_pinned_fn *on_pinned, void *data, int64_t now_ms)
{
	return -ENOMEM;
}

static void on_status(struct engine_sandbox *g)
{
	gone_over++;
	if (on_gone_over)
		on_gone_over();
}

static void on_changed(struct engine_sandbox *g, int r, const struct err *err)
{
}

static const struct engine_sandbox_observer observer = { .on_status = on_status,
							 .on_changed = on_changed };

static void open_boxes_with(enum attach_kind kind, const char *policy)
{
	struct err err = { 0 };
	struct plan plan;

	bytes = plan_from(policy, &plan);
	core = (struct engine_core){ 0 };
	assert_int_equal(engine_core_init(&core, &(struct dns_service_config){ 0 }, &err),
			 0);
	host = (struct engine_host){ .core = &core, .is_active = true };
	core.host = kind == ATTACH_HOST ? &host : NULL;
	gone_over = host_readings = 0;
	on_gone_over = NULL;
	for (uint32_t i = 0; i < BOXES; i++) {
		struct engine_sandbox *g = &boxes[i];

		engine_sandbox_init(g, kind, i + 1);
		g->enforce = ENFORCED_NOTHING;
		g->observer = &observer;
		g->plan = plan;
		g->sandbox.budgets = budgets_new(NULL, &g->plan, loop_now_ms(core.loop));
		g->sandbox.plan = g->plan;
		g->sandbox.on_spent = engine_grants_on_spent;
		assert_int_equal(engine_core_add(&core, g), 0);
	}
}

static void open_boxes(enum attach_kind kind)
{
	open_boxes_with(kind, "egress: [{action: allow, target: a.test, "
			      "budget: {sent: 100, per: 1h}}]\n");
}

static int close_boxes(void **state)
{
	for (size_t i = 0; i < BOXES; i++) {
		accounting_free(boxes[i].sandbox.accounting);
		budgets_free(boxes[i].sandbox.budgets);
		engine_core_take_out(&core, &boxes[i]);
	}
	relay_free(core.relay);
	dns_service_free(core.dns);
	close(core.route_fd);
	loop_free(core.loop);
	free(core.sandboxes);
	free(bytes);
	return 0;
}

static void spend(size_t box)
{
	sandbox_spend(&boxes[box].sandbox, 1, SENT, 0, loop_now_ms(core.loop));
}

static void spend_all(void)
{
	for (size_t i = 0; i < BOXES; i++)
		spend(i);
}

/* Until @count of them have gone over to what is used up. Return: in how many turns. */
static size_t turn_until(size_t count)
{
	size_t turns = 0;

	for (; gone_over < count && turns < PATIENCE_TURNS; turns++)
		assert_int_equal(loop_turn(core.loop, 5), 0);
	assert_int_equal(gone_over, count);
	return turns;
}

/* Counters of others are read when a sandbox goes over. */
static void spend_the_first(void)
{
	spend(0);
}

TEST_WITH(a_budget_that_is_found_used_up_behind_the_look_at_it_is_cut, NULL, close_boxes)
{
	open_boxes(ATTACH_NETNS);
	on_gone_over = spend_the_first;
	spend(BOXES - 1);
	turn_until(2);
	assert_true(boxes[0].sandbox.plan.spent != 0);
	assert_true(boxes[1].sandbox.plan.spent == 0);
}

static void take_long(void)
{
	poll(NULL, 0, LONG_MS);
}

TEST_WITH(many_that_go_over_at_once_take_a_turn_each, NULL, close_boxes)
{
	open_boxes(ATTACH_NETNS);
	on_gone_over = take_long;
	spend_all();
	assert_true(turn_until(BOXES) >= BOXES);
}

static void spend_the_first_late(void)
{
	take_long();
	spend(0);
}

TEST_WITH(what_is_found_used_up_between_two_turns_is_cut, NULL, close_boxes)
{
	open_boxes(ATTACH_NETNS);
	on_gone_over = spend_the_first_late;
	spend(1);
	spend(BOXES - 1);
	turn_until(3);
	assert_true(boxes[0].sandbox.plan.spent != 0);
}

TEST_WITH(for_many_that_go_over_at_once_the_host_is_read_once, NULL, close_boxes)
{
	open_boxes(ATTACH_HOST);
	on_gone_over = take_long;
	spend_all();
	turn_until(BOXES);
	assert_int_equal(host_readings, 1);
	on_gone_over = NULL;
}

/* The policy that stands is set again. Return: it is put in force again. */
static bool is_set_anew(struct engine_sandbox *g)
{
	struct err err = { 0 };
	CLEAN(fd) int fd = plan_file_make(g->plan.bytes, g->plan.size, &err);
	bool is_anew;

	assert_true(fd >= 0);
	assert_int_equal(engine_sandbox_change(g, fd, &err), 0);
	is_anew = g->change.is_under_way;
	engine_sandbox_change_cancel(g);
	return is_anew;
}

TEST_WITH(setting_the_policy_again_mends_what_a_lack_of_room_has_closed, NULL,
	  close_boxes)
{
	struct engine_sandbox *g = &boxes[0];
	struct budgets *budgets;
	struct grants *grants;

	open_boxes_with(ATTACH_NETNS, "dns: pinned\n"
				      "egress: [{action: allow, target: a.test, "
				      "until: 2099-01-01T00:00:00Z, "
				      "budget: {sent: 100, per: 1h}}]\n");
	g->enforce = ENFORCED_FILTER;
	g->plan_id = plan_file_id(&g->plan);
	g->grants = engine_grants_new(g, &g->plan);
	g->sandbox.plan = g->plan;
	assert_false(is_set_anew(g));
	budgets = TAKE_PTR(g->sandbox.budgets);
	assert_true(is_set_anew(g));
	g->sandbox.budgets = budgets;
	grants = TAKE_PTR(g->grants);
	assert_true(is_set_anew(g));
	g->grants = grants;
	assert_false(is_set_anew(g));
	assert_int_equal(engine_sandbox_pin(g), -ENOMEM);
	assert_true(is_set_anew(g));
	grants_free(TAKE_PTR(g->grants));
}
