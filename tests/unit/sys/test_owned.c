// SPDX-License-Identifier: Apache-2.0
/* Whose is a path? Run by root, who can make files of others; else there is less to see.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "sys/files.h"
#include "unit.h"

enum { OTHER = 4242 };

static char folder[] = "/tmp/test-sys-owned-XXXXXX";

static const char *in_folder(const char *name)
{
	static char paths[16][256];
	static size_t next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void put(const char *path, uid_t owner, mode_t mode)
{
	int fd;

	/* The kernel protects others' files in a sticky directory (protected_regular). */
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchown(fd, owner, owner == 0 ? 0 : OTHER), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void make(const char *path, uid_t owner, mode_t mode)
{
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	assert_int_equal(chown(path, owner, owner == 0 ? 0 : OTHER), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void expect_ours(const char *path)
{
	struct err err = { 0 };
	CLEAN(path) struct path found = { .fd = -1 };

	if (path_open_as(PATH_OWNED, path, &found, &err) < 0)
		fail_msg("%s", err.text);
}

static void expect_refused(const char *path, const char *why)
{
	CLEAN(path) struct path found = { .fd = -1 };
	struct err err = { 0 };

	assert_int_equal(path_open_as(PATH_OWNED, path, &found, &err), -EPERM);
	if (!strstr(err.text, why))
		fail_msg("'%s' doesn't say '%s'", err.text, why);
}

TEST(a_file_that_others_can_change_is_refused)
{
	put(in_folder("mine"), 0, 0644);
	put(in_folder("theirs"), OTHER, 0644);
	put(in_folder("anybodys"), 0, 0646);
	put(in_folder("groups"), 0, 0664);
	assert_int_equal(chown(in_folder("groups"), 0, OTHER), 0);
	expect_ours(in_folder("mine"));
	expect_refused(in_folder("theirs"), "belongs to another user (uid 4242)");
	expect_refused(in_folder("anybodys"), "others than its owner may write to it");
	expect_refused(in_folder("groups"), "others than its owner may write to it");
}

TEST(a_directory_that_others_can_change_is_refused)
{
	const char *const below = "d/mine";

	make(in_folder("d"), 0, 0755);
	put(in_folder(below), 0, 0600);
	expect_ours(in_folder(below));
	make(in_folder("d"), 0, 0777);
	expect_refused(in_folder(below), "may write to a directory on the way to it");
	make(in_folder("d"), 0, 01777);
	expect_ours(in_folder(below));
	put(in_folder(below), OTHER, 0600);
	expect_refused(in_folder(below), "may write to a directory on the way to it");
	put(in_folder(below), 0, 0600);
	make(in_folder("d"), OTHER, 0755);
	expect_refused(in_folder(below),
		       "a directory on the way to it belongs to another");
}

TEST(the_way_of_a_link_is_looked_at_as_well)
{
	make(in_folder("e"), OTHER, 0755);
	put(in_folder("mine"), 0, 0644);
	assert_int_equal(symlink("../mine", in_folder("e/link")), 0);
	assert_int_equal(symlink("e/link", in_folder("to-link")), 0);
	assert_int_equal(symlink("mine", in_folder("good")), 0);
	assert_int_equal(symlink(in_folder("mine"), in_folder("absolute")), 0);
	expect_ours(in_folder("good"));
	expect_ours(in_folder("absolute"));
	expect_refused(in_folder("e/link"), "directory on the way");
	expect_refused(in_folder("to-link"), "directory on the way");
	expect_refused(in_folder("e/../to-link"), "directory on the way");
	assert_int_equal(lchown(in_folder("good"), OTHER, OTHER), 0);
	expect_refused(in_folder("good"), "a link on the way to it belongs to another");
}

TEST(what_is_not_there_is_not_there_whoever_owns_the_way)
{
	CLEAN(path) struct path found = { .fd = -1 };
	char longer[512];

	make(in_folder("e"), OTHER, 0755);
	assert_int_equal(path_open_as(PATH_OWNED, in_folder("e/none"), &found, NULL),
			 -ENOENT);
	assert_int_equal(symlink("loop", in_folder("loop")), 0);
	assert_int_equal(path_open_as(PATH_OWNED, in_folder("loop"), &found, NULL),
			 -ELOOP);
	snprintf(longer, sizeof(longer), "%s/%0300d", folder, 0);
	assert_int_equal(path_open_as(PATH_OWNED, longer, &found, NULL), -ENAMETOOLONG);
}

static int set_up(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	static const char *const names[] = { "mine",   "theirs",  "anybodys", "groups",
					     "d/mine", "e/link",  "to-link",  "good",
					     "loop",   "absolute" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(in_folder(names[i]));
	rmdir(in_folder("d"));
	rmdir(in_folder("e"));
	return rmdir(folder);
}

int main(void)
{
	if (geteuid() != 0)
		return 77;
	return unit_run(set_up, tear_down);
}
