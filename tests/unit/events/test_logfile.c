// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "events/logfile.h"

enum { DAY_MS = 86400 * 1000, PATIENCE_MS = 60 * 1000 };
#define T0 INT64_C(1763633203424) /* 2025-11-20T10:06:43.424Z */

static char directory[64];

static int make_directory(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/weir-logfile-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static void each_entry(void (*fn)(const char *path, void *data), void *data)
{
	DIR *d = opendir(directory);
	const struct dirent *e;
	char path[PATH_MAX];

	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		fn(path, data);
	}
	closedir(d);
}

static void remove_entry(const char *path, void *data)
{
	remove(path);
}

static int remove_directory(void **state)
{
	each_entry(remove_entry, NULL);
	return rmdir(directory);
}

static const char *at(const char *name)
{
	static char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

/* What comes of opening @path. */
static int try_open(const char *path, struct err *err)
{
	struct logfile *f = logfile_new(path, &(struct logfile_limits){ 0 });
	int r;

	assert_non_null(f);
	r = logfile_open(f, err);
	logfile_free(f);
	return r;
}

static struct logfile *opened_at(const char *path, struct logfile_limits limits)
{
	struct logfile *f = logfile_new(path, &limits);

	assert_non_null(f);
	assert_int_equal(logfile_open(f, NULL), 0);
	return f;
}

static struct logfile *opened(const char *name, struct logfile_limits limits)
{
	return opened_at(at(name), limits);
}

static int put(struct logfile *f, const char *text, int64_t wall_ms)
{
	return logfile_write(f, text, strlen(text), wall_ms, NULL);
}

static size_t size_of(const char *name)
{
	struct stat st;

	return stat(at(name), &st) == 0 ? (size_t)st.st_size : SIZE_MAX;
}

static void count_gz(const char *path, void *data)
{
	int *n = data;
	size_t len = strlen(path);

	n[strcmp(path + len - 3, ".gz") == 0]++;
}

TEST_WITH(it_is_turned_over_before_it_is_too_big, make_directory, remove_directory)
{
	struct logfile *f = opened("egress.log", (struct logfile_limits){ 100, 0, 0 });
	char back[64] = "";
	struct stat st;
	gzFile gz;

	for (int i = 0; i < 3; i++)
		assert_int_equal(
			put(f, "0123456789012345678901234567890123456789", T0 + i), 0);
	logfile_free(f);
	assert_int_equal(size_of("egress.log"), 40);
	assert_int_equal(size_of("egress-2025-11-20T10-06-43.426.log"), SIZE_MAX);
	gz = gzopen(at("egress-2025-11-20T10-06-43.426.log.gz"), "rb");
	assert_non_null(gz);
	assert_int_equal(gzread(gz, back, 10), 10);
	assert_string_equal(back, "0123456789");
	assert_int_equal(gzseek(gz, 0, SEEK_SET), 0);
	gzclose(gz);
	assert_int_equal(stat(at("egress.log"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

/* Whoever may write to its directory can put anything in its place. */
TEST_WITH(what_is_no_file_of_its_own_is_no_log, make_directory, remove_directory)
{
	struct logfile *f = opened("policy", (struct logfile_limits){ 0 });
	char policy[PATH_MAX];
	int reader;

	snprintf(policy, sizeof(policy), "%s/policy", directory);
	assert_int_equal(put(f, "{}\n", T0), 0);
	logfile_free(f);
	assert_int_equal(symlink("policy", at("to-file")), 0);
	assert_int_equal(try_open(at("to-file"), NULL), -ELOOP);
	assert_int_equal(symlink("nothing", at("to-nothing")), 0);
	assert_int_equal(try_open(at("to-nothing"), NULL), -ELOOP);
	assert_int_equal(size_of("nothing"), SIZE_MAX);
	assert_int_equal(symlink("/dev/null", at("to-device")), 0);
	assert_int_equal(try_open(at("to-device"), NULL), -ELOOP);
	/* Somebody reads from the pipe, and may stop to. */
	assert_int_equal(mkfifo(at("fifo"), 0600), 0);
	reader = open(at("fifo"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(reader >= 0);
	assert_int_equal(try_open(at("fifo"), NULL), -EINVAL);
	close(reader);
	/* The file that is written to is exchanged for a link, and for another name. */
	f = opened("log", (struct logfile_limits){ 0 });
	assert_int_equal(put(f, "first\n", T0), 0);
	assert_int_equal(unlink(at("log")), 0);
	assert_int_equal(symlink("policy", at("log")), 0);
	for (int ms = 0; ms < PATIENCE_MS && put(f, "next\n", T0) == 0; ms++)
		usleep(1000);
	assert_int_equal(put(f, "last\n", T0), -ELOOP);
	logfile_free(f);
	assert_int_equal(unlink(at("log")), 0);
	assert_int_equal(link(policy, at("log")), 0);
	assert_int_equal(try_open(at("log"), NULL), -EPERM);
	assert_int_equal(size_of("policy"), 3);
}

/* As after `rm`: the lines would go to a file that nobody sees. */
TEST_WITH(a_file_that_is_gone_is_begun_anew, make_directory, remove_directory)
{
	struct logfile *f = opened("log", (struct logfile_limits){ 0 });

	assert_int_equal(put(f, "first\n", T0), 0);
	assert_int_equal(unlink(at("log")), 0);
	for (int ms = 0; ms < PATIENCE_MS && size_of("log") == SIZE_MAX; ms++) {
		assert_int_equal(put(f, "next\n", T0), 0);
		usleep(1000);
	}
	assert_int_equal(size_of("log"), 5);
	logfile_free(f);
}

/* Older parts that somebody else has put there: a pipe where the compressed one goes
 * would be waited for, and one without end compressed for hours. */
TEST_WITH(what_it_did_not_write_is_not_compressed, make_directory, remove_directory)
{
	struct logfile *f = opened("n.log", (struct logfile_limits){ 4, 100, 0 });
	int fd;

	fd = open(at("n-2025-11-20T09-00-00.000.log"), O_CREAT | O_WRONLY | O_CLOEXEC,
		  0600);
	assert_int_equal(write(fd, "old\n", 4), 4);
	close(fd);
	assert_int_equal(mkfifo(at("n-2025-11-20T09-00-00.000.log.gz"), 0600), 0);
	fd = open(at("n-2025-11-20T09-00-01.000.log"), O_CREAT | O_WRONLY | O_CLOEXEC,
		  0600);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	close(fd);
	assert_int_equal(mkfifo(at("n-2025-11-20T09-00-02.000.log"), 0600), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(put(f, "line\n", T0), 0);
	logfile_free(f);
	assert_int_equal(size_of("n-2025-11-20T09-00-00.000.log"), SIZE_MAX);
	assert_in_range(size_of("n-2025-11-20T09-00-00.000.log.gz"), 1, 100);
	assert_int_equal(size_of("n-2025-11-20T09-00-01.000.log"), 1 << 20);
	assert_int_equal(size_of("n-2025-11-20T09-00-01.000.log.gz"), SIZE_MAX);
	assert_int_equal(size_of("n-2025-11-20T09-00-02.000.log"), 0);
	assert_int_equal(size_of("n-2025-11-20T09-00-02.000.log.gz"), SIZE_MAX);
}

TEST_WITH(standard_output_may_be_a_file_and_stays_the_same_one, make_directory,
	  remove_directory)
{
	const int saved = dup(STDOUT_FILENO),
		  fd = open(at("output"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct logfile *f =
		logfile_new("/dev/stdout", &(struct logfile_limits){ .file_bytes = 8 });
	int opened, written[2];

	assert_true(saved >= 0 && fd >= 0 && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
	opened = logfile_open(f, NULL);
	for (size_t i = 0; opened == 0 && i < ARRAY_SIZE(written); i++)
		written[i] = put(f, "line\n", T0);
	logfile_free(f);
	assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
	close(saved);
	close(fd);
	assert_int_equal(opened, 0);
	assert_int_equal(written[0], 0);
	assert_int_equal(written[1], 0);
	assert_int_equal(size_of("output"), 10);
}

TEST_WITH(it_goes_on_where_it_was, make_directory, remove_directory)
{
	struct logfile *f = opened("a", (struct logfile_limits){ 0 });

	assert_int_equal(put(f, "one\n", T0), 0);
	logfile_free(f);
	f = opened("a", (struct logfile_limits){ 0 });
	assert_int_equal(put(f, "two\n", T0), 0);
	logfile_free(f);
	assert_int_equal(size_of("a"), 8);
}

TEST_WITH(older_parts_go_by_number, make_directory, remove_directory)
{
	struct logfile *f = opened("n.log", (struct logfile_limits){ 4, 3, 0 });
	int n[2] = { 0 };

	for (int i = 0; i < 8; i++)
		assert_int_equal(put(f, "line\n", T0 + i * 1000), 0);
	logfile_free(f);
	each_entry(count_gz, n);
	assert_int_equal(n[0], 1);
	assert_int_equal(n[1], 3);
	assert_int_not_equal(size_of("n-2025-11-20T10-06-50.424.log.gz"), SIZE_MAX);
}

TEST_WITH(older_parts_go_by_age, make_directory, remove_directory)
{
	struct logfile *f = opened("n.log", (struct logfile_limits){ 4, 100, 2 });
	int n[2] = { 0 };

	for (int64_t day = 0; day < 6; day++)
		assert_int_equal(put(f, "line\n", T0 + day * DAY_MS), 0);
	logfile_free(f);
	each_entry(count_gz, n);
	assert_int_equal(n[1], 3);
}

TEST_WITH(files_that_are_not_its_own_stay, make_directory, remove_directory)
{
	static const char *const others[] = {
		"n-2001-01-01T00-00-00.000.txt",
		"m-2001-01-01T00-00-00.000.log",
		"n-2001-01-01T00-00-00.000.log.x",
		"n-2001-01-01T00:00:00.000.log",
		"n-old.log",
		"n.log.1",
	};
	struct logfile *f = opened("n.log", (struct logfile_limits){ 4, 1, 1 });

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		close(open(at(others[i]), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	for (int i = 0; i < 5; i++)
		assert_int_equal(put(f, "line\n", T0 + i), 0);
	logfile_free(f);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(size_of(others[i]), 0);
}

TEST_WITH(a_clock_that_stands_still_overwrites_nothing, make_directory, remove_directory)
{
	struct logfile *f = opened("n.log", (struct logfile_limits){ 4, 100, 0 });
	int n[2] = { 0 };

	for (int i = 0; i < 6; i++)
		assert_int_equal(put(f, "line\n", T0), 0);
	logfile_free(f);
	each_entry(count_gz, n);
	assert_int_equal(n[1], 5);
}

TEST_WITH(a_full_device_is_an_error_and_no_more, make_directory, remove_directory)
{
	struct logfile *f = opened_at("/dev/full", (struct logfile_limits){ 0 });

	assert_int_equal(put(f, "x", T0), -ENOSPC);
	assert_int_equal(put(f, "x", T0), -ENOSPC);
	logfile_free(f);
}

TEST_WITH(what_cannot_be_opened_says_why, make_directory, remove_directory)
{
	struct err err = { 0 };

	assert_int_equal(try_open(directory, &err), -EINVAL);
	assert_non_null(strstr(err.text, directory));
	assert_int_equal(try_open("/proc/none/x.log", &err), -ENOENT);
	logfile_free(NULL);
}

TEST_WITH(a_file_that_cannot_be_moved_grows_on, make_directory, remove_directory)
{
	struct logfile *f;
	char path[PATH_MAX], longer[256];

	/* Its backup's name would be too long for a directory entry. */
	memset(longer, 'x', 250);
	longer[250] = '\0';
	snprintf(path, sizeof(path), "%s/%s", directory, longer);
	f = opened_at(path, (struct logfile_limits){ 4, 0, 0 });
	for (int i = 0; i < 4; i++)
		assert_int_equal(put(f, "line\n", T0), 0);
	logfile_free(f);
	assert_int_equal(size_of(longer), 20);
}
