// SPDX-License-Identifier: Apache-2.0
/* Files that are named from outside: whatever stands there, nobody waits for it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "sys/files.h"
#include "unit.h"

static char folder[] = "/tmp/test-sys-files-XXXXXX";
static const struct file_how any = { .max_bytes = 64, .follow = true, .anybodys = true };
static const struct file_how no_link = { .max_bytes = 64, .anybodys = true };

static const char *in_folder(const char *name)
{
	static char paths[16][256];
	static size_t next;
	char *path = paths[next++ % ARRAY_SIZE(paths)];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void expect_text(const char *path, const char *want)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct err err = { 0 };

	if (file_read(AT_FDCWD, path, &any, &file, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(file.size, strlen(want));
	assert_string_equal(file.bytes, want);
}

static void expect_refused(const char *path, const struct file_how *how, int code,
			   const char *why)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct err err = { 0 };

	assert_int_equal(file_read(AT_FDCWD, path, how, &file, &err), code);
	assert_null(file.bytes);
	if (!strstr(err.text, why))
		fail_msg("'%s' doesn't say '%s'", err.text, why);
}

TEST(a_regular_file_is_read_whole)
{
	put(in_folder("plain"), "text");
	put(in_folder("empty"), "");
	expect_text(in_folder("plain"), "text");
	expect_text(in_folder("empty"), "");
}

TEST(a_file_of_proc_is_read_whatever_its_size)
{
	const struct file_how how = { .max_bytes = 1 << 20,
				      .follow = true,
				      .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };

	assert_int_equal(file_read(AT_FDCWD, "/proc/self/smaps", &how, &file, NULL), 0);
	assert_int_equal(file.stat.st_size, 0);
	assert_true(file.size > 8192); /* more than what is read at first */
	assert_int_equal(strlen(file.bytes), file.size);
	expect_refused("/proc/self/smaps", &any, -E2BIG, "larger than 0 KiB");
}

TEST(what_is_no_regular_file_is_refused_at_once)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	CLEAN(fd) int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *const paths[] = { in_folder("pipe"), in_folder("socket"), folder,
				      "/dev/zero", "/dev/null" };

	assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", in_folder("socket"));
	assert_int_equal(bind(s, (const struct sockaddr *)&at, sizeof(at)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		struct file_how write = any;

		expect_refused(paths[i], &any, -EINVAL, "is not a regular file");
		write.flags = O_WRONLY | O_CREAT;
		expect_refused(paths[i], &write, -EINVAL, "is not a regular file");
	}
	expect_refused(in_folder("none"), &any, -ENOENT, "No such file");
}

TEST(a_link_is_followed_when_the_caller_says_so)
{
	put(in_folder("target"), "led here");
	assert_int_equal(symlink("target", in_folder("link")), 0);
	expect_text(in_folder("link"), "led here");
	expect_refused(in_folder("link"), &no_link, -ELOOP, "it is a link");
}

TEST(what_is_too_large_is_refused)
{
	char text[66];

	memset(text, 'x', 65);
	text[65] = '\0';
	put(in_folder("large"), text);
	expect_refused(in_folder("large"), &any, -E2BIG, "it is larger than");
	text[64] = '\0';
	put(in_folder("large"), text);
	expect_text(in_folder("large"), text);
}

TEST(a_file_is_made_where_none_is)
{
	const struct file_how how = { .flags = O_RDWR | O_CREAT, .mode = 0640 };
	int fd = file_open(AT_FDCWD, in_folder("made"), &how, NULL);
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
	assert_int_equal(file_write_all(fd, "new", 3), 0);
	close(fd);
	fd = file_open(AT_FDCWD, in_folder("made"), &how, NULL);
	assert_true(fd >= 0);
	close(fd);
	expect_text(in_folder("made"), "new");
	/* Not through a link that leads to nothing. */
	assert_int_equal(symlink("nothing", in_folder("dangling")), 0);
	assert_true(file_open(AT_FDCWD, in_folder("dangling"), &how, NULL) < 0);
	assert_int_equal(access(in_folder("nothing"), F_OK), -1);
}

TEST(a_file_is_replaced_and_nothing_is_left_beside_it)
{
	CLEAN(fd) int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	put(in_folder("kept"), "not this one");
	assert_int_equal(symlink("kept", in_folder("fresh")), 0);
	assert_int_equal(file_replace(dir, "fresh", "replaced", 0600, "first", 5), 0);
	assert_int_equal(file_replace(dir, "fresh", "replaced", 0600, "second", 6), 0);
	expect_text(in_folder("replaced"), "second");
	expect_text(in_folder("kept"), "not this one");
	assert_int_equal(access(in_folder("fresh"), F_OK), -1);
	/* What can't be renamed leaves nothing either. */
	assert_int_equal(mkdir(in_folder("folder"), 0700), 0);
	assert_int_equal(file_replace(dir, "fresh", "folder", 0600, "third", 5), -EISDIR);
	assert_int_equal(access(in_folder("fresh"), F_OK), -1);
}

static int set_up(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
	static const char *const names[] = { "plain",	 "empty",    "pipe",  "socket",
					     "target",	 "link",     "large", "made",
					     "dangling", "replaced", "kept" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(in_folder(names[i]));
	rmdir(in_folder("folder"));
	return rmdir(folder);
}

int main(void)
{
	return unit_run(set_up, tear_down);
}
