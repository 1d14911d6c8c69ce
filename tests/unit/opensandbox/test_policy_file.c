// SPDX-License-Identifier: Apache-2.0
/* The file of a policy, in directories of its own; mounts in a namespace of its own. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "opensandbox/policy_file.h"
#include "unit.h"

static char dir[] = "/tmp/test-policy-file-XXXXXX";

static const char *in_dir(const char *name)
{
	static char paths[64][256];
	static size_t next;
	char *path = paths[next++ % 64];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static const char *get(const char *path)
{
	static char text[256];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n < 0)
		return NULL;
	text[n] = '\0';
	close(fd);
	return text;
}

static void expect_read(const struct policy_file *f, const char *want)
{
	struct arena arena = { 0 };
	struct err err = { 0 };
	struct text text;

	if (policy_file_read(f, &arena, &text, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(text_equal(text, want));
	arena_done(&arena);
}

static void expect_no_read(const char *path, int code)
{
	const struct policy_file f = { .path = path };
	struct arena arena = { 0 };
	struct err err = { 0 };
	struct text text;

	assert_int_equal(policy_file_read(&f, &arena, &text, &err), code);
	assert_int_equal(err.code, code);
	arena_done(&arena);
}

static void keep(struct policy_file *f, const char *text)
{
	struct err err = { 0 };

	if (policy_file_prepare(f, text_of(text), &err) < 0)
		fail_msg("%s", err.text);
	assert_true(f->prepared);
	if (policy_file_commit(f, &err) < 0)
		fail_msg("%s", err.text);
	assert_false(f->prepared);
}

/* Nothing of ours is beside the file. */
static void expect_clean(void)
{
	assert_true(access(in_dir(".p.weir-new"), F_OK) < 0);
	assert_true(access(in_dir(".p.weir-commit"), F_OK) < 0);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

TEST(without_a_path_nothing_is_kept)
{
	struct policy_file f = { 0 };

	keep((struct policy_file *)&(struct policy_file){ .path = in_dir("q") }, "x");
	assert_int_equal(policy_file_prepare(&f, text_of("x"), NULL), 0);
	assert_int_equal(policy_file_commit(&f, NULL), 0);
	policy_file_abort(&f);
	expect_read(&f, "");
}

static int without_the_file(void **state);

TEST_WITH(a_new_file_is_the_owners_alone, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };

	expect_no_read(f.path, -ENOENT);
	keep(&f, "one\n");
	assert_int_equal(mode_of(f.path), 0600);
	expect_read(&f, "one\n");
	expect_clean();
}

TEST_WITH(mode_and_owner_stay, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };
	struct stat st;

	put(f.path, "old", 0640);
	if (geteuid() == 0)
		assert_int_equal(chown(f.path, 12, 34), 0);
	keep(&f, "new");
	assert_int_equal(mode_of(f.path), 0640);
	assert_int_equal(stat(f.path, &st), 0);
	assert_int_equal(st.st_uid, geteuid() == 0 ? 12 : geteuid());
	expect_read(&f, "new");
	expect_clean();
}

TEST_WITH(until_the_commit_the_old_text_stands, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };

	put(f.path, "old", 0600);
	assert_int_equal(policy_file_prepare(&f, text_of("new"), NULL), 0);
	assert_string_equal(get(f.path), "old");
	assert_string_equal(get(in_dir(".p.weir-new")), "new");
	policy_file_abort(&f);
	assert_string_equal(get(f.path), "old");
	expect_clean();
	assert_true(policy_file_commit(&f, NULL) < 0);
}

/* What a kill between the steps leaves was never decided. */
TEST_WITH(a_kill_before_the_commit_changes_nothing, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };
	struct policy_file again = { .path = f.path };

	put(f.path, "old", 0600);
	assert_int_equal(policy_file_prepare(&f, text_of("new"), NULL), 0);
	expect_read(&again, "old");
	expect_clean();
	free(f.text);
}

TEST_WITH(what_was_decided_before_a_kill_is_finished, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") }, other = f;
	struct err err = { 0 };

	keep(&f, "old");
	assert_int_equal(policy_file_resume(&other, text_of("decided"), &err), 0);
	expect_read(&f, "old");
	assert_int_equal(policy_file_prepare(&f, text_of("decided"), &err), 0);
	assert_int_equal(policy_file_resume(&other, text_of("another"), &err), 0);
	assert_string_equal(get(in_dir("p")), "old");
	assert_int_equal(policy_file_resume(&other, text_of("decided"), &err), 0);
	assert_string_equal(get(in_dir("p")), "decided");
	expect_clean();
	free(f.text);
}

TEST(what_is_no_file_is_refused)
{
	static const char *const names[] = { "d", "fifo" };
	struct err err = { 0 };

	assert_int_equal(mkdir(in_dir("d"), 0700), 0);
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct policy_file f = { .path = in_dir(names[i]) };

		expect_no_read(f.path, -EINVAL);
		assert_int_equal(policy_file_prepare(&f, text_of("x"), &err), -EINVAL);
		assert_non_null(strstr(err.text, "it is not a regular file"));
	}
	expect_no_read(in_dir("none/p"), -ENOENT);
	assert_int_equal(
		policy_file_prepare(&(struct policy_file){ .path = in_dir("none/p") },
				    text_of("x"), NULL),
		-ENOENT);
	rmdir(in_dir("d"));
	unlink(in_dir("fifo"));
}

TEST_WITH(a_link_is_read_and_never_written, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("link") };
	struct err err = { 0 };

	put(in_dir("target"), "old", 0600);
	assert_int_equal(symlink(in_dir("target"), f.path), 0);
	expect_read(&f, "old");
	assert_int_equal(policy_file_prepare(&f, text_of("new"), &err), -ELOOP);
	assert_non_null(strstr(err.text, "it is a symbolic link"));
	assert_string_equal(get(in_dir("target")), "old");
	/* Nor is one that stands where the new text is made. */
	f.path = in_dir("p");
	put(f.path, "old", 0600);
	assert_int_equal(symlink(in_dir("target"), in_dir(".p.weir-new")), 0);
	keep(&f, "new");
	assert_string_equal(get(in_dir("target")), "old");
	assert_int_equal(symlink(in_dir("target"), in_dir(".p.weir-commit")), 0);
	expect_read(&f, "new");
	unlink(in_dir(".p.weir-commit"));
	unlink(in_dir("link"));
	unlink(in_dir("target"));
}

TEST(large_files_are_refused)
{
	struct policy_file f = { .path = in_dir("large") };
	char *text = malloc(POLICY_FILE_MAX + 1);

	memset(text, ' ', POLICY_FILE_MAX + 1);
	assert_int_equal(
		policy_file_prepare(&f, (struct text){ text, POLICY_FILE_MAX + 1 }, NULL),
		-E2BIG);
	put(f.path, "", 0600);
	assert_int_equal(truncate(f.path, POLICY_FILE_MAX + 1), 0);
	expect_no_read(f.path, -E2BIG);
	assert_int_equal(truncate(f.path, POLICY_FILE_MAX), 0);
	expect_read(&(struct policy_file){ .path = NULL }, "");
	unlink(f.path);
	free(text);
}

/* A second name goes on naming the same file. */
TEST_WITH(a_file_with_two_names_is_copied_in_place, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };

	put(f.path, "a longer old text", 0644);
	assert_int_equal(link(f.path, in_dir("other")), 0);
	keep(&f, "new");
	assert_string_equal(get(in_dir("other")), "new");
	keep(&f, "a text that is longer again");
	assert_string_equal(get(in_dir("other")), "a text that is longer again");
	assert_int_equal(mode_of(f.path), 0644);
	expect_clean();
	unlink(in_dir("other"));
}

TEST_WITH(a_copy_that_was_cut_short_is_finished, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };

	put(f.path, "{\"tor", 0600);
	put(in_dir(".p.weir-commit"), "{\"whole\":1}", 0600);
	expect_read(&f, "{\"whole\":1}");
	assert_string_equal(get(f.path), "{\"whole\":1}");
	expect_clean();
	/* It is finished before anything else is kept, or it would come back later. */
	put(in_dir(".p.weir-commit"), "older", 0600);
	keep(&f, "newest");
	expect_read(&f, "newest");
	expect_clean();
}

/* The file is a mount of its own, as `docker run -v FILE:FILE` makes it. */
TEST_WITH(a_mounted_file_is_copied_in_place, without_the_file, NULL)
{
	struct policy_file f = { .path = in_dir("p") };

	if (unshare(CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	put(f.path, "below", 0600);
	put(in_dir("outside"), "old", 0640);
	assert_int_equal(mount(in_dir("outside"), f.path, NULL, MS_BIND, NULL), 0);
	keep(&f, "new");
	assert_string_equal(get(f.path), "new");
	assert_string_equal(get(in_dir("outside")), "new");
	assert_int_equal(mode_of(in_dir("outside")), 0640);
	expect_clean();
	/* With the directory read-only, and with and without another place. */
	assert_int_equal(mount(dir, dir, NULL, MS_BIND | MS_REC, NULL), 0);
	assert_int_equal(mkdir(in_dir("spare"), 0700), 0);
	assert_int_equal(mount("none", in_dir("spare"), "tmpfs", 0, NULL), 0);
	assert_int_equal(mount(NULL, dir, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL),
			 0);
	keep(&f, "a longer text, alone");
	assert_string_equal(get(f.path), "a longer text, alone");
	keep(&f, "short");
	assert_string_equal(get(f.path), "short");
	f.spare_dir = in_dir("spare");
	assert_int_equal(policy_file_prepare(&f, text_of("spare"), NULL), 0);
	assert_string_equal(get(in_dir("spare/.p.weir-new")), "spare");
	assert_int_equal(policy_file_commit(&f, NULL), 0);
	assert_string_equal(get(f.path), "spare");
	assert_null(get(in_dir("spare/.p.weir-new")));
	assert_null(get(in_dir("spare/.p.weir-commit")));
	put(in_dir("spare/.p.weir-commit"), "whole", 0600);
	expect_read(&f, "whole");
	assert_string_equal(get(f.path), "whole");
	/* The file itself can't be written to. */
	assert_int_equal(
		mount(NULL, f.path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(policy_file_prepare(&f, text_of("x"), NULL), -EROFS);
	assert_null(get(in_dir("spare/.p.weir-new")));
	assert_string_equal(get(f.path), "whole");
	umount2(in_dir("spare"), MNT_DETACH);
	umount2(dir, MNT_DETACH);
	umount2(f.path, MNT_DETACH);
	rmdir(in_dir("spare"));
	unlink(in_dir("outside"));
}

/* A disk that is full is told before a byte is changed, in both ways. */
TEST(a_full_disk_changes_nothing)
{
	char *text = malloc(300 * 1024);
	struct policy_file f = { .path = in_dir("small/p") };

	memset(text, 'x', 300 * 1024);
	if (unshare(CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	assert_int_equal(mkdir(in_dir("small"), 0700), 0);
	assert_int_equal(mount("none", in_dir("small"), "tmpfs", 0, "size=256k"), 0);
	put(f.path, "old", 0600);
	assert_int_equal(policy_file_prepare(&f, (struct text){ text, 300 * 1024 }, NULL),
			 -ENOSPC);
	assert_string_equal(get(f.path), "old");
	assert_null(get(in_dir("small/.p.weir-new")));
	/* Room for the copy beside, none for the copy in place. */
	assert_int_equal(link(f.path, in_dir("small/other")), 0);
	assert_int_equal(policy_file_prepare(&f, (struct text){ text, 200 * 1024 }, NULL),
			 0);
	assert_int_equal(policy_file_commit(&f, NULL), -ENOSPC);
	assert_string_equal(get(f.path), "old");
	assert_null(get(in_dir("small/.p.weir-commit")));
	umount2(in_dir("small"), MNT_DETACH);
	rmdir(in_dir("small"));
	free(text);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	unlink(in_dir("p"));
	unlink(in_dir("q"));
	return rmdir(dir);
}

static int without_the_file(void **state)
{
	unlink(in_dir("p"));
	return 0;
}

int main(void)
{
	return unit_run(make_dir, remove_dir);
}
