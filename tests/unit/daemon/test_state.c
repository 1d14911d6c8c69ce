// SPDX-License-Identifier: Apache-2.0
/* What a daemon finds in its folder, and takes for damage. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "daemon/internal.h"
#include "directory_end.h"
#include "unit.h"

static const char netns[] = "{\"id\":1,\"netns\":\"/x\",\"dev\":1,\"ino\":1}";

static const char *const names[] = { "a", "b", "c" };

static char folder[64];
static struct daemon daemon_of_test;
static int reads, attached, attach_result;
static int policy_result; /* of reading a policy's file */

int __real_file_read_fd(int fd, size_t max_bytes, struct file_bytes *ret);
int __wrap_file_read_fd(int fd, size_t max_bytes, struct file_bytes *ret);

/* Each sandbox has two files that are read: what it is, and its policy. */
int __wrap_file_read_fd(int fd, size_t max_bytes, struct file_bytes *ret)
{
	return ++reads % 2 == 0 && policy_result < 0
		       ? policy_result
		       : __real_file_read_fd(fd, max_bytes, ret);
}

/* -- the rest of the daemon --------------------------------------------------------- */

struct daemon_sandbox *daemon_sandbox_find_name(const struct daemon *w, const char *name)
{
	return NULL;
}
int daemon_sandbox_attach(struct daemon *w, const struct daemon_sandbox *given,
			  int plan_fd, int text_fd, struct err *err)
{
	close(plan_fd);
	attached++;
	return attach_result < 0 ? err_set(err, attach_result, "not now") : 0;
}
void daemon_report_lacking(struct daemon *w)
{
}
void attach_queue_next(struct daemon *w)
{
}
void daemon_notify_ready(struct daemon *w)
{
}
int daemon_run_further(struct sidecar_spec *spec, uint32_t number, int channel)
{
	return 0;
}

/* -- the folder --------------------------------------------------------------------- */

static void write_file(const char *name, const char *text)
{
	const int dir = daemon_of_test.state_dir;
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static int setup(void **state)
{
	struct daemon *w = &daemon_of_test;

	*w = (struct daemon){ .supervisor.loop = loop_new() };
	snprintf(folder, sizeof(folder), "/tmp/weir-test-state-XXXXXX");
	if (!w->supervisor.loop || !mkdtemp(folder))
		return -1;
	w->state_dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	w->state_root = w->state_dir;
	reads = attached = attach_result = policy_result = directory_end = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[32];

		if (mkdirat(w->state_dir, names[i], 0700) < 0)
			return -1;
		snprintf(path, sizeof(path), "%s/attach.json", names[i]);
		write_file(path, netns);
		snprintf(path, sizeof(path), "%s/policy.json", names[i]);
		write_file(path, "{}");
	}
	return w->state_dir < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	struct daemon *w = &daemon_of_test;
	struct daemon_sandbox d = { .daemon = w };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(d.spec.name, sizeof(d.spec.name), "%s", names[i]);
		state_forget(&d);
	}
	close(w->state_dir);
	loop_free(w->supervisor.loop);
	return rmdir(folder);
}

static void turns(int count)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(loop_turn(daemon_of_test.supervisor.loop, 0), 0);
}

static bool has(const char *path)
{
	return faccessat(daemon_of_test.state_dir, path, F_OK, 0) == 0;
}

enum { ALL = 8 /* turns: one for each entry, and one for the end */ };

/* -- tests -------------------------------------------------------------------------- */

TEST_WITH(all_that_were_guarded_are_attached, setup, teardown)
{
	struct daemon *w = &daemon_of_test;

	state_restore(w);
	turns(ALL);
	assert_int_equal(attached, 3);
	assert_true(w->restored);
	assert_false(w->lacks);
}

TEST_WITH(what_cant_be_attached_is_lacking_until_all_were_looked_at_again, setup,
	  teardown)
{
	struct daemon *w = &daemon_of_test;

	attach_result = -EPERM;
	state_restore(w);
	turns(ALL);
	assert_true(w->restored && w->lacks);
	attach_result = 0;
	state_restore(w);
	assert_true(w->lacks);
	while (attached < 6) {
		assert_true(w->lacks);
		turns(1);
	}
	turns(ALL);
	assert_false(w->lacks);
}

TEST_WITH(a_folder_that_cant_be_opened_is_not_an_empty_one, setup, teardown)
{
	struct daemon *w = &daemon_of_test;
	struct rlimit files, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = (struct rlimit){ 0, files.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	state_restore(w);
	turns(ALL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_true(w->restored && w->lacks);
	assert_non_null(strstr(w->lacking, strerror(EMFILE)));
	assert_int_equal(attached, 0);
	state_restore(w);
	turns(ALL);
	assert_int_equal(attached, 3);
	assert_false(w->lacks);
}

/* No daemon would look into the second engine's folder. */
TEST_WITH(engines_whose_folders_cant_be_read_are_not_left_out, setup, teardown)
{
	struct daemon *w = &daemon_of_test;
	struct rlimit files, none;
	struct err err = { 0 };
	size_t engines = 0;
	int r;

	assert_int_equal(mkdirat(w->state_root, ".1", 0700), 0);
	assert_int_equal(renameat(w->state_root, "c", w->state_root, ".1/c"), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = (struct rlimit){ 0, files.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	r = engines_rebalance(w, 0, &engines, &err);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	assert_int_equal(r, -EMFILE);
	directory_end = EIO;
	assert_int_equal(engines_rebalance(w, 0, &engines, &err), -EIO);
	directory_end = 0;
	assert_int_equal(engines_rebalance(w, 0, &engines, &err), 0);
	assert_int_equal(engines, 2);
	assert_true(has("a") && has(".1/c"));
	assert_int_equal(engines_rebalance(w, 1, &engines, &err), 0);
	assert_int_equal(engines, 1);
	assert_true(has("c") && !has(".1"));
}

static const struct {
	const char *what;
	int r;
	bool is_damage;
} policies[] = {
	{ "it is larger than any policy", -E2BIG, true },
	{ "it is no regular file", -EINVAL, true },
	{ "the disk has an error", -EIO, false },
	{ "somebody writes to it", -EAGAIN, false },
	{ "there is no memory", -ENOMEM, false },
	{ "there is no descriptor", -EMFILE, false },
};

TEST_WITH(a_policy_is_replaced_only_where_it_is_damaged, setup, teardown)
{
	struct daemon *w = &daemon_of_test;

	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		attached = 0;
		policy_result = policies[i].r;
		state_restore(w);
		turns(ALL);
		if (has("a/policy.json.broken") != policies[i].is_damage ||
		    w->lacks == policies[i].is_damage ||
		    attached != (policies[i].is_damage ? 3 : 0))
			fail_msg("%s: %d attached, lacks %d", policies[i].what, attached,
				 w->lacks);
		(void)!unlinkat(w->state_dir, "a/policy.json.broken", 0);
	}
}

static const struct {
	const char *what, *text;
	int r;
} specs[] = {
	{ "a cgroup",
	  "{\"id\":1,\"cgroup\":\"/"
	  "x\",\"cgroup_id\":5,\"level\":1,\"guard_parent\":false,"
	  "\"guards\":false}",
	  0 },
	{ "a cgroup whose path begins nowhere",
	  "{\"id\":1,\"cgroup\":\"x\",\"cgroup_id\":5,\"level\":1,\"guard_parent\":false,"
	  "\"guards\":false}",
	  -EBADMSG },
	{ "a cgroup without a path",
	  "{\"id\":1,\"cgroup\":\"\",\"cgroup_id\":5,\"level\":1,\"guard_parent\":false,"
	  "\"guards\":false}",
	  -EBADMSG },
};

TEST_WITH(what_a_sandbox_is_is_checked, setup, teardown)
{
	for (size_t i = 0; i < ARRAY_SIZE(specs); i++) {
		struct daemon_sandbox d = { 0 };
		int dir = state_folder_open(daemon_of_test.state_dir, "a");

		write_file("a/attach.json", specs[i].text);
		if (state_read(dir, "a", &d) != specs[i].r)
			fail_msg("%s", specs[i].what);
		close(dir);
	}
}
