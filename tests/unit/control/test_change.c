// SPDX-License-Identifier: Apache-2.0
/* A change of the policy that meets the closing of the sandbox, and what is done again
 * when it fails. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control.h"
#include "sandbox/plan_file.h"
#include "sys/files.h"
#include "unit.h"

#define STOP "\"on_denies\":{\"count\":5,\"window\":\"1m\",\"action\":\"stop\"}"

static struct control control;
static struct control_sandbox *sandbox;
static bool is_denied_meanwhile; /* too often, while the engine is asked */
static size_t changes;		 /* that the engine has made */
static size_t keeps;		 /* that the supervisor was asked for */
static bool is_keep_refused;
static bool is_kept_closed;  /* what the supervisor has had last */
static bool is_engine_new;   /* after each KEEP, and the new one fails */
static size_t failures_left; /* times that the engine can't be asked */
static size_t drops;	     /* of the engine */

/* -- what change.c asks ------------------------------------------------------------- */

static void too_much_is_denied(void)
{
	struct event e = event_make(EVENT_LIMIT, EVENT_LAUNCH);

	event_set_reason(&e, "more than 5 denies in 1m");
	assert_true(control_on_denies(&control, &e));
}

int control_ask_engine(struct control_link *l, const struct ipc_message *m, int fd,
		       const struct control_answer *wanted, struct ipc_message *ret,
		       int *ret_fd)
{
	struct plan plan;
	struct err err = { 0 };

	if (failures_left > 0) {
		failures_left--;
		return -ETOOMANYREFS;
	}
	assert_int_equal(plan_file_map(fd, &plan, &err), 0);
	*ret = (struct ipc_message){ .type = IPC_CHANGED,
				     .status = { .enforced = ENFORCED_FILTER,
						 .plan_id = plan_file_id(&plan) } };
	plan_file_unmap(&plan);
	changes++;
	if (is_denied_meanwhile)
		too_much_is_denied();
	is_denied_meanwhile = false;
	return 0;
}

int control_ask_supervisor(struct control_link *l, const struct ipc_message *m,
			   const int *fds, size_t count,
			   const struct control_answer *wanted, struct ipc_message *ret,
			   int *ret_fd)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	struct document *d = NULL;
	struct err err = { 0 };

	keeps++;
	assert_int_equal(count, 2);
	assert_int_equal(file_read_fd(fds[1], SIZE_MAX - 1, &text), 0);
	assert_int_equal(document_parse((struct text){ text.bytes, text.size }, NULL,
					NULL, &d, &err),
			 0);
	if (!is_keep_refused)
		is_kept_closed = document_closed(d) != NULL;
	document_free(d);
	*ret = (struct ipc_message){ .type = is_keep_refused ? IPC_REFUSED : IPC_KEPT };
	return 0;
}

bool control_await_engine(struct control_link *l)
{
	return true;
}

bool control_engine_is_same(struct control_link *l)
{
	failures_left += is_engine_new;
	return !is_engine_new;
}

void control_drop_engine(struct control_link *l, int error)
{
	drops++;
}

void control_send_daemon(struct control_link *l, const struct ipc_message *m)
{
}

void control_on_event(struct control *s, const struct event *e)
{
}

struct control_sandbox *control_sandbox_of(struct control *s, uint32_t id)
{
	return sandbox;
}

static bool is_memory_out;

int __real_sidecar_policy_build(const struct sidecar_policy_context *c,
				const struct document *d, sidecar_fault_fn *on_fault,
				void *data, uint8_t **ret_plan, size_t *ret_size,
				struct err *err);
int __wrap_sidecar_policy_build(const struct sidecar_policy_context *c,
				const struct document *d, sidecar_fault_fn *on_fault,
				void *data, uint8_t **ret_plan, size_t *ret_size,
				struct err *err);

/* The linker puts it in the place of the real one (--wrap). */
int __wrap_sidecar_policy_build(const struct sidecar_policy_context *c,
				const struct document *d, sidecar_fault_fn *on_fault,
				void *data, uint8_t **ret_plan, size_t *ret_size,
				struct err *err)
{
	return is_memory_out ? err_set(err, -ENOMEM, "out of memory")
			     : __real_sidecar_policy_build(c, d, on_fault, data, ret_plan,
							   ret_size, err);
}

/* -- a daemon's sandbox ------------------------------------------------------------- */

static struct document *document_of(const char *text)
{
	struct document *d = NULL;
	struct err err = { 0 };

	assert_int_equal(document_parse(text_of(text), NULL, NULL, &d, &err), 0);
	return d;
}

static enum api_failure patch(const char *rules)
{
	struct document *next = NULL;
	struct err err = { 0 };

	assert_int_equal(document_merge(sandbox->document, text_of(rules), NULL, NULL,
					&next, &err),
			 0);
	return control_change(sandbox, next, &err);
}

static enum api_failure take_away(const char *targets)
{
	struct document *next = NULL;
	struct err err = { 0 };

	assert_int_equal(
		document_remove(sandbox->document, text_of(targets), &next, &err), 0);
	assert_non_null(next);
	return control_change(sandbox, next, &err);
}

static enum api_failure grant(const char *rule)
{
	struct document *next = NULL;
	struct err err = { 0 };

	assert_int_equal(document_grant(sandbox->document, text_of(rule), 0, &next, &err),
			 0);
	return control_change(sandbox, next, &err);
}

static enum api_failure replace(const char *text)
{
	struct err err = { 0 };

	return control_change(sandbox, document_of(text), &err);
}

static int open_sandbox_of(bool is_daemon)
{
	const struct loglines_config silent = { .level = LOGLINES_FATAL };
	struct err err = { 0 };

	memset(&control, 0, sizeof(control));
	sandbox = &control.own;
	control.loop = loop_new();
	assert_non_null(control.loop);
	assert_int_equal(loglines_new(&silent, &control.log, &err), 0);
	control.many = control.policy.names = control.policy.daemon = is_daemon;
	control.policy.file = POLICY_IN_FORCE;
	control.link = &control.links[0];
	sandbox->side = &control;
	sandbox->link = control.link;
	sandbox->id = is_daemon;
	control_change_init(sandbox);
	control.link->heard = true;
	is_denied_meanwhile = is_keep_refused = is_memory_out = is_engine_new = false;
	failures_left = 0;
	assert_int_equal(
		replace("{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}]," STOP
			"}"),
		API_FAILED_NOT);
	changes = keeps = drops = 0;
	return 0;
}

static int open_sandbox(void **state)
{
	return open_sandbox_of(true);
}

static char folder[] = "/tmp/weir-test-XXXXXX", file[64], closed_file[64];

/* A sidecar's, whose file for its policy is a symbolic link. */
static int open_sidecar(void **state)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/policy.json", folder);
	snprintf(closed_file, sizeof(closed_file), "%s/closed.json", folder);
	open_sandbox_of(false);
	assert_int_equal(symlink("elsewhere.json", file), 0);
	control.file.path = file;
	control.spec.state_dir = folder;
	return 0;
}

static int close_sandbox_again(void **state)
{
	document_free(sandbox->document);
	free(sandbox->plan_bytes);
	loglines_free(control.log,
		      60 * 1000); /* else its thread frees it, perhaps later */
	loop_free(control.loop);
	return 0;
}

static int close_sidecar(void **state)
{
	unlink(file);
	unlink(closed_file);
	snprintf(file, sizeof(file), "%s/policy.set", folder);
	unlink(file);
	assert_int_equal(rmdir(folder), 0);
	return close_sandbox_again(state);
}

#define CHANGE_TEST(name) TEST_WITH(name, open_sandbox, close_sandbox_again)

static bool is_closed(void)
{
	assert_int_equal(loop_turn(control.loop, 0), 0);
	return document_closed(sandbox->document) != NULL;
}

CHANGE_TEST(what_is_about_to_be_closed_is_changed_by_no_part_of_a_policy)
{
	too_much_is_denied();
	assert_int_equal(patch("[{\"action\":\"allow\",\"target\":\"b.test\"}]"),
			 API_FAILED_CLOSED);
	assert_int_equal(take_away("[\"a.test\"]"), API_FAILED_CLOSED);
	assert_int_equal(grant("[{\"action\":\"allow\",\"target\":\"b.test\"}]"),
			 API_FAILED_CLOSED);
	assert_int_equal(changes, 0);
	assert_non_null(control_closed(sandbox));
	assert_true(is_closed());
}

CHANGE_TEST(what_is_about_to_be_closed_is_open_with_another_policy)
{
	too_much_is_denied();
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_NOT);
	assert_null(control_closed(sandbox));
	assert_false(is_closed());
}

CHANGE_TEST(what_is_denied_while_a_policy_changes_closes)
{
	is_denied_meanwhile = true;
	assert_int_equal(patch("[{\"action\":\"allow\",\"target\":\"b.test\"}]"),
			 API_FAILED_NOT);
	assert_int_equal(changes, 1);
	assert_true(is_closed());
	assert_int_equal(replace("{\"egress\":[]," STOP "}"), API_FAILED_NOT);
	assert_false(is_closed());
	is_denied_meanwhile = true;
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_NOT);
	assert_true(is_closed());
}

/* As when the timer fires. Return: the milliseconds to the next try; 0: there is none. */
static int64_t fire(struct loop_timer *t)
{
	loop_timer_stop(control.loop, t);
	t->on_fire(t);
	return t->slot > 0 ? t->at_ms - loop_now_ms(control.loop) : 0;
}

CHANGE_TEST(what_cannot_be_kept_is_closed_once_and_kept_later)
{
	static const int64_t pauses_ms[] = { 1000,  2000,  4000,  8000,
					     16000, 32000, 60000, 60000 };

	is_keep_refused = true;
	too_much_is_denied();
	for (size_t i = 0; i < ARRAY_SIZE(pauses_ms); i++) {
		assert_int_equal(fire(&sandbox->closing.again), pauses_ms[i]);
		assert_non_null(document_closed(sandbox->document));
	}
	assert_int_equal(changes, 1);
	assert_int_equal(keeps, ARRAY_SIZE(pauses_ms));
	assert_int_equal(sandbox->updates, 2);
	is_keep_refused = false;
	assert_int_equal(fire(&sandbox->closing.again), 0);
	assert_int_equal(changes, 1);
}

TEST_WITH(a_closed_sandbox_is_kept_in_the_state_directory_whatever_its_file, open_sidecar,
	  close_sidecar)
{
	too_much_is_denied();
	for (int i = 0; i < 3; i++)
		assert_true(fire(&sandbox->closing.again) > 0);
	assert_int_equal(changes, 1);
	assert_int_equal(keeps, 1);
	assert_int_equal(access(closed_file, F_OK), 0);
	/* Nothing opens it that a restart would not find. */
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_PERSIST);
	assert_int_equal(access(closed_file, F_OK), 0);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_NOT);
	assert_int_equal(access(closed_file, F_OK), -1);
	assert_int_equal(access(file, F_OK), 0);
}

static void open_with_another_plan(void)
{
	const struct ipc_status other = { .enforced = ENFORCED_FILTER, .plan_id = 1 };

	open_sandbox_of(false);
	control_on_status(&control, &other);
	assert_false(control.link->is_active);
}

TEST_WITH(another_plan_of_the_engine_is_replaced_however_often_that_fails, NULL,
	  close_sandbox_again)
{
	open_with_another_plan();
	failures_left = 3;
	for (int64_t pause_ms = 1000; pause_ms <= 4000; pause_ms *= 2)
		assert_int_equal(fire(&sandbox->restore), pause_ms);
	assert_int_equal(fire(&sandbox->restore), 0);
	assert_true(control.link->is_active);
	assert_int_equal(changes, 1);
	assert_int_equal(drops, 0);
}

TEST_WITH(an_engine_that_does_not_take_the_plan_gets_a_successor, NULL,
	  close_sandbox_again)
{
	open_with_another_plan();
	failures_left = SIZE_MAX;
	for (int i = 0; i < 5; i++)
		assert_true(fire(&sandbox->restore) > 0);
	assert_int_equal(fire(&sandbox->restore), 0);
	assert_int_equal(drops, 1);
}

CHANGE_TEST(a_plan_of_a_daemons_is_restored_however_often_that_fails)
{
	failures_left = 2;
	control_restore_plan(sandbox);
	assert_true(sandbox->restore.slot > 0);
	assert_int_equal(fire(&sandbox->restore), 2000);
	assert_int_equal(fire(&sandbox->restore), 0);
	assert_int_equal(changes, 1);
	/* Under its number another daemon may have another sandbox. */
	sandbox->stale = true;
	control_restore_plan(sandbox);
	assert_int_equal(changes, 1);
}

CHANGE_TEST(a_lack_of_memory_is_no_fault_of_the_policy)
{
	assert_int_equal(
		replace("{\"egress\":[{\"action\":\"allow\",\"target\":\"x..y\"}]}"),
		API_FAILED_POLICY);
	is_memory_out = true;
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_APPLY);
}

TEST_WITH(while_the_engine_is_away_a_policy_asks_for_no_more_than_was_enforced, NULL,
	  close_sandbox_again)
{
	const struct ipc_status dns = { .enforced = ENFORCED_REDIRECT, .plan_id = 1 };

	open_sandbox_of(false);
	control_on_status(&control, &dns);
	control.link->heard = control.link->is_active = false;
	assert_int_equal(replace("{\"require_full_isolation\":true}"), API_FAILED_POLICY);
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_NOT);
}

/* The supervisor has the closed policy, and the engine is away. */
static void begin_to_close(void)
{
	too_much_is_denied();
	failures_left = 1;
	assert_int_equal(fire(&sandbox->closing.again), 1000);
	assert_true(is_kept_closed);
	assert_null(document_closed(sandbox->document));
}

TEST_WITH(a_new_engine_does_not_open_what_is_about_to_be_closed, NULL,
	  close_sandbox_again)
{
	const struct ipc_status closed = { .enforced = ENFORCED_FILTER, .plan_id = 1 };

	open_sandbox_of(false);
	begin_to_close();
	control_on_status(&control, &closed);
	if (sandbox->restore.slot > 0)
		assert_int_equal(fire(&sandbox->restore), 0);
	assert_int_equal(changes, 0);
	assert_int_equal(fire(&sandbox->closing.again), 0);
	assert_int_equal(changes, 1);
	assert_true(is_kept_closed);
}

CHANGE_TEST(a_change_that_fails_leaves_the_closed_policy_to_be_kept_again)
{
	begin_to_close();
	control_restore_plan(sandbox);
	assert_int_equal(changes, 0);
	is_engine_new = true;
	assert_int_equal(replace("{\"egress\":[]}"), API_FAILED_APPLY);
	assert_false(is_kept_closed);
	assert_int_equal(fire(&sandbox->closing.again), 0);
	assert_true(is_kept_closed);
	assert_non_null(document_closed(sandbox->document));
}
