// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "opensandbox/static_rules.h"
#include "unit.h"

static char dir[] = "/tmp/test-always-XXXXXX";

static const char *in_dir(const char *name)
{
	static char paths[64][256];
	static size_t next;
	char *path = paths[next++ % 64];

	snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void take_away(void)
{
	unlink(in_dir("deny.always"));
	unlink(in_dir("allow.always"));
	unlink(in_dir("log_skip.always"));
}

static void expect_texts(struct static_rules *a, const char *deny, const char *allow,
			 const char *skip)
{
	struct text texts[STATIC_RULES_COUNT];
	struct arena arena = { 0 };
	struct err err = { 0 };

	if (static_rules_read(a, &arena, texts, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(text_equal(texts[STATIC_RULES_DENY], deny));
	assert_true(text_equal(texts[STATIC_RULES_ALLOW], allow));
	assert_true(text_equal(texts[STATIC_RULES_LOG_SKIP], skip));
	arena_done(&arena);
	assert_false(static_rules_changed(a));
}

static bool is_reported(const struct static_rules *a)
{
	struct pollfd p = { .fd = a->inotify_fd, .events = POLLIN };

	return poll(&p, 1, 60 * 1000) == 1;
}

/* F1, F2 */
TEST(files_come_change_and_go)
{
	struct static_rules a;

	assert_int_equal(static_rules_open(&a, dir), 0);
	assert_true(a.inotify_fd >= 0);
	assert_string_equal(a.paths[STATIC_RULES_DENY], in_dir("deny.always"));
	assert_false(static_rules_changed(&a));
	expect_texts(&a, "", "", "");
	put("deny.always", "evil.com\n");
	assert_true(is_reported(&a));
	assert_true(static_rules_changed(&a));
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "evil.com\n", "", "");
	put("allow.always", "192.0.2.1\n");
	put("log_skip.always", "*.internal\n");
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "evil.com\n", "192.0.2.1\n", "*.internal\n");
	/* The same size: the time tells. */
	put("deny.always", "good.com\n");
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "good.com\n", "192.0.2.1\n", "*.internal\n");
	assert_int_equal(unlink(in_dir("deny.always")), 0);
	assert_true(is_reported(&a));
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "", "192.0.2.1\n", "*.internal\n");
	static_rules_done(&a);
	take_away();
}

/* Another file with the same size and time, as a restored one has. */
TEST(another_file_in_its_place_is_a_change)
{
	const struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	struct static_rules a;

	assert_int_equal(static_rules_open(&a, dir), 0);
	put("deny.always", "a.b");
	assert_int_equal(utimensat(AT_FDCWD, in_dir("deny.always"), times, 0), 0);
	expect_texts(&a, "a.b", "", "");
	put("other", "c.d");
	assert_int_equal(utimensat(AT_FDCWD, in_dir("other"), times, 0), 0);
	assert_int_equal(rename(in_dir("other"), in_dir("deny.always")), 0);
	assert_true(is_reported(&a));
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "c.d", "", "");
	static_rules_done(&a);
	take_away();
}

TEST(log_skip_alone_is_no_change)
{
	struct static_rules a;

	assert_int_equal(static_rules_open(&a, dir), 0);
	expect_texts(&a, "", "", "");
	put("log_skip.always", "a.b");
	assert_false(static_rules_changed(&a));
	static_rules_done(&a);
	take_away();
}

TEST(a_directory_may_come_later)
{
	char path[512];
	struct static_rules a;

	snprintf(path, sizeof(path), "%s", in_dir("later"));
	assert_int_equal(static_rules_open(&a, path), 0);
	expect_texts(&a, "", "", "");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_false(static_rules_changed(&a));
	put("later/deny.always", "x");
	assert_true(is_reported(&a));
	assert_true(static_rules_changed(&a));
	expect_texts(&a, "x", "", "");
	static_rules_done(&a);
	unlink(in_dir("later/deny.always"));
	rmdir(path);
}

TEST(what_cant_be_read_takes_nothing)
{
	struct text texts[STATIC_RULES_COUNT] = { { "kept", 4 } };
	struct arena arena = { 0 };
	struct err err = { 0 };
	struct static_rules a;

	assert_int_equal(static_rules_open(&a, dir), 0);
	put("deny.always", "x");
	assert_int_equal(mkdir(in_dir("allow.always"), 0700), 0);
	assert_int_equal(static_rules_read(&a, &arena, texts, &err), -EINVAL);
	assert_non_null(strstr(err.text, "/allow.always: it is not a regular file"));
	assert_true(text_equal(texts[STATIC_RULES_DENY], "kept"));
	assert_true(static_rules_changed(&a));
	rmdir(in_dir("allow.always"));
	put("deny.always", "");
	assert_int_equal(truncate(in_dir("deny.always"), STATIC_RULES_FILE_MAX + 1), 0);
	assert_int_equal(static_rules_read(&a, &arena, texts, &err), -E2BIG);
	static_rules_done(&a);
	arena_done(&arena);
	take_away();
}

static struct log_skip_names *names_of(const char *text)
{
	struct log_skip_names *n = NULL;
	struct err err = { 0 };

	if (log_skip_names_parse(text_of(text), "log_skip.always", &n, &err) < 0)
		fail_msg("%s", err.text);
	return n;
}

/* F4, P7 */
TEST(names_are_matched_as_in_a_policy)
{
	static const struct {
		const char *text, *name;
		bool has;
	} rows[] = {
		{ "metadata.internal", "METADATA.INTERNAL.", true },
		{ "  Metadata.Internal  \r\n", "metadata.internal", true },
		{ "metadata.internal.", "metadata.internal", true },
		{ "metadata.internal", "x.metadata.internal", false },
		{ "*.cluster.local", "cluster.local", false },
		{ "*.cluster.local", "svc.cluster.local", true },
		{ "*.cluster.local", "a.b.Cluster.local.", true },
		{ "*.cluster.local", "notcluster.local", false },
		{ "*.cluster.local\ncluster.local", "cluster.local", true },
		{ "*.cluster.local\ncluster.local", "a.cluster.local", true },
		{ "**.cluster.local", "cluster.local", true },
		{ "**.cluster.local", "a.cluster.local", true },
		{ "# a.b\n\n \t\n  # c\nd.e # f", "d.e", true },
		{ "# a.b\n", "a.b", false },
		{ "", "a.b", false },
		{ "a.b", "", false },
		{ "a.b", ".", false },
		{ "z.z\ny.y\na.a\nm.m\nb.b", "y.y", true },
		{ "z.z\ny.y\na.a\nm.m\nb.b", "c.c", false },
		{ "a.b\na.b.c\na", "a.b", true },
		{ "*.com", "x.com", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct log_skip_names *n = names_of(rows[i].text);

		if (log_skip_names_has(n, rows[i].name) != rows[i].has)
			fail_msg("'%s' and '%s'", rows[i].text, rows[i].name);
		log_skip_names_free(n);
	}
	assert_false(log_skip_names_has(NULL, "a.b"));
}

TEST(what_is_no_pattern_is_told_with_its_line)
{
	static const char *const lines[] = {
		"10.0.0.1", "10.0.0.0/8", "2001:db8::1", "a b",
		"http://x", "*",	  "a..b",	 ".",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct log_skip_names *n = NULL;
		struct err err = { 0 };
		char text[64], want[160];

		snprintf(text, sizeof(text), "a.b\n%s\n", lines[i]);
		snprintf(want, sizeof(want),
			 "/r/log_skip.always: line 2: '%s' is not a domain pattern; only "
			 "host/domain entries are supported",
			 lines[i]);
		assert_int_equal(log_skip_names_parse(text_of(text), "/r/log_skip.always",
						      &n, &err),
				 -EINVAL);
		assert_string_equal(err.text, want);
		assert_null(n);
	}
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return rmdir(dir);
}

int main(void)
{
	return unit_run(make_dir, remove_dir);
}
