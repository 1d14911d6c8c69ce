// SPDX-License-Identifier: Apache-2.0
/* Others who change the filter in the kernel, and suspends, which change it against our
 * time. Here others do it over the socket that owns the table: before Linux 6.9 no socket
 * owns one. */
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

/* After netinet/in.h, which has the same names as the kernel's. */
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "engine/core.h"
#include "filter/message.h"
#include "filter/nft.h"
#include "filter/ruleset.h"
#include "sandbox/plan_file.h"
#include "sandbox/test_change_world.h"
#include "sys/netlink.h"
#include "unit.h"

enum { OTHERS_SEQ = 0x7f000000 }; /* the engine skips the answers */

static struct engine_core core;
static size_t readings;
static void (*after_reading)(void); /* what others do then, once; NULL: nothing */

/* The linker puts it in the place of the real one (--wrap). */
int __real_filter_verify(struct filter_conn *c, const struct ruleset *rs,
			 struct err *err);
int __wrap_filter_verify(struct filter_conn *c, const struct ruleset *rs,
			 struct err *err);

int __wrap_filter_verify(struct filter_conn *c, const struct ruleset *rs, struct err *err)
{
	int r = __real_filter_verify(c, rs, err);

	readings++;
	if (after_reading)
		TAKE_PTR(after_reading)();
	return r;
}

static void on_status(struct engine_sandbox *g)
{
}

static size_t changed;

static void on_changed(struct engine_sandbox *g, int r, const struct err *err)
{
	must(r, err);
	changed++;
}

static const struct engine_sandbox_observer observer = { .on_status = on_status,
							 .on_changed = on_changed };

static struct engine_sandbox *open_engine(void)
{
	const struct plan plan = plan_of(A_ALONE);
	static struct engine_sandbox g;
	struct err err = { 0 };

	open_sandbox(&plan);
	g.seen = (struct engine_sandbox_seen){ 0 };
	engine_sandbox_seen_now(&g.seen, &box.filter);
	must(sandbox_install(&box, &plan, &err), &err);
	readings = 0;
	core = (struct engine_core){ 0 };
	must(engine_core_init(&core, &(struct dns_service_config){ 0 }, &err), &err);
	g = (struct engine_sandbox){ .kind = ATTACH_NETNS,
				     .enforce = ENFORCED_FILTER,
				     .observer = &observer,
				     .sandbox = box,
				     .seen = g.seen,
				     .routes_ms = INT64_MAX };
	assert_int_equal(engine_core_add(&core, &g), 0);
	return &g;
}

static int close_engine(void **state)
{
	struct engine_sandbox *g = engine_core_find(&core, box.id);

	accounting_free(g->sandbox.accounting);
	engine_core_take_out(&core, g);
	relay_free(core.relay);
	dns_service_free(core.dns);
	close(core.route_fd);
	loop_free(core.loop);
	free(core.sandboxes);
	return stop(state);
}

static void begin(struct nl_writer *w)
{
	*w = nl_writer(NULL, 0, OTHERS_SEQ);
	nl_batch(w);
}

static void send_and_forget(struct nl_writer *w)
{
	nl_batch_end(w);
	assert_int_equal(w->failed, 0);
	assert_int_equal(nl_send(box.filter.fd, w->bytes, w->size), 0);
	nl_writer_done(w);
}

static void make_table(const char *name)
{
	struct nl_writer w;

	begin(&w);
	nl_message(&w, NFT_MSG_NEWTABLE, NLM_F_CREATE, NFPROTO_INET);
	nl_put_text(&w, NFTA_TABLE_NAME, name);
	nl_end(&w);
	send_and_forget(&w);
}

static void remove_the_filter(void)
{
	struct nl_writer w;

	begin(&w);
	nft_delete(&w, NFT_MSG_DELTABLE, filter_table(FILTER_NAMES_SHARED), NULL);
	send_and_forget(&w);
}

static uint64_t look(struct engine_sandbox *g)
{
	assert_true(engine_sandbox_audit(g));
	box = g->sandbox; /* for stop() */
	return box.counters[COUNT_REPAIRS];
}

TEST_WITH(what_others_have_not_changed_is_not_read, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();

	assert_int_equal(look(g), 0);
	assert_int_equal(readings, 0);
}

TEST_WITH(a_table_of_others_is_none_of_our_business, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();

	make_table("one");
	assert_int_equal(look(g), 0);
	assert_int_equal(readings, 1);
	assert_int_equal(look(g), 0);
	assert_int_equal(readings, 1);
}

TEST_WITH(what_is_removed_is_put_back, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();

	remove_the_filter();
	assert_int_equal(look(g), 1);
	assert_int_equal(look(g), 1);
}

TEST_WITH(what_is_removed_after_a_reading_is_put_back, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();

	make_table("another");
	after_reading = remove_the_filter;
	assert_int_equal(look(g), 0);
	assert_null(after_reading);
	assert_int_equal(look(g), 1);
}

static void change_element(const char *addr, uint32_t lifetime_ms)
{
	const struct filter_learn item = { .addr = addr_of(addr),
					   .lifetime_ms = lifetime_ms,
					   .present = true };

	assert_int_equal(filter_learn(&box.filter, &item, 1), 0);
}

static void after_a_suspend(struct engine_sandbox *g, int64_t ms)
{
	const int64_t before_ms = core.slept_ms;

	engine_core_look_for_suspend(&core, before_ms + ms);
	for (int i = 0; i < 3; i++)
		assert_int_equal(loop_turn(core.loop, 20), 0);
	/* What the machine really has slept. */
	core.slept_ms = before_ms;
	box = g->sandbox;
}

/* Of two addresses the kernel ends one, which counts, too soon, and the other too late.
 */
TEST_WITH(what_a_suspend_has_put_off_is_made_good, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();

	learn("a.x.test", FAR_A, LONG_MS);
	change_element(FAR_A, 0);
	change_element(FAR_C, LONG_MS);
	g->sandbox.filter = box.filter;
	after_a_suspend(g, 0);
	after_a_suspend(g, 1000);
	assert_int_equal(connect_result(FAR_A), -ECONNREFUSED);
	assert_int_equal(connect_result(FAR_C), 0);
	after_a_suspend(g, 1001);
	assert_int_equal(connect_result(FAR_A), 0);
	assert_int_equal(connect_result(FAR_C), -ECONNREFUSED);
	/* Nobody had changed anything. */
	assert_int_equal(look(g), 0);
	assert_int_equal(box.shared_params.generation, 2);
	after_a_suspend(g, 0);
	assert_int_equal(box.shared_params.generation, 2);
}

/* Return: the generation that stands then. */
static uint16_t change_again(struct engine_sandbox *g, const struct plan *plan)
{
	const size_t before = changed;
	struct err err = { 0 };
	CLEAN(fd) int fd = plan_file_make(plan->bytes, plan->size, &err);

	must(engine_sandbox_change(g, fd, &err), &err);
	for (int i = 0; i < 100 && changed == before; i++)
		assert_int_equal(loop_turn(core.loop, 0), 0);
	assert_int_equal(changed, before + 1);
	box = g->sandbox;
	return box.shared_params.generation;
}

/* There are 65,535 of them, and flows of one that comes again would pass again. */
TEST_WITH(the_plan_that_stands_takes_no_generation, NULL, close_engine)
{
	struct engine_sandbox *g = open_engine();
	const struct plan other = plan_of(A_AND_B), back = plan_of(A_ALONE);
	const uint16_t first = box.shared_params.generation;

	assert_int_equal(change_again(g, &other), first + 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(change_again(g, &other), first + 1);
	assert_int_equal(box.counters[COUNT_POLICY_CHANGES], 4);
	g->sandbox.filter.unsure = true;
	assert_int_equal(change_again(g, &other), first + 2);
	assert_int_equal(change_again(g, &back), first + 3);
	plan_file_unmap(&g->plan);
	box.plan = back;
}

int main(void)
{
	if (!make_namespaces()) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
