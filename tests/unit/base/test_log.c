// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "unit.h"

enum { READ_SIZE = 4096 };

/* What log_error() writes of @line to stderr. */
static const char *written(const char *line)
{
	static char text[READ_SIZE];
	int ends[2], before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	ssize_t n;

	assert_true(before >= 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	log_error("%s", line);
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	assert_true(n >= 0);
	text[n] = '\0';
	return text;
}

TEST(control_bytes_never_reach_the_terminal)
{
	static const struct {
		const char *what, *text, *want;
	} rows[] = {
		{ "a colour", "a\x1b[1mb", "weir: a?[1mb\n" },
		{ "a second line", "a\nweir: b", "weir: a?weir: b\n" },
		{ "delete", "a\x7f", "weir: a?\n" },
		{ "CSI of Latin-1", "a\xc2\x9b", "weir: a\xc2?\n" },
		{ "letters of Latin-1", "\xc2\xa3 \xc3\xa9",
		  "weir: \xc2\xa3 \xc3\xa9\n" },
		{ "a letter that ends like a control byte", "\xc4\x9b",
		  "weir: \xc4\x9b\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *text = written(rows[i].text);

		if (strcmp(text, rows[i].want) != 0)
			fail_msg("%s: %s", rows[i].what, text);
	}
}

/* Standard error is the file @fd from now on. Return: what it was. */
static int put_in_place(int fd)
{
	const int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	assert_true(fd >= 0 && before >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	return before;
}

/* What log_release() says where a line waits and standard error is @fd. */
static int released(int fd)
{
	const int before = put_in_place(fd);
	int r;

	log_hold();
	log_error("%s", "waits");
	r = log_release();
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	return r;
}

TEST(what_waits_is_written_at_the_end_in_its_order)
{
	int ends[2], before;
	char text[64] = "";

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	before = put_in_place(ends[1]);
	log_hold();
	log_error("%s", "one");
	fputs("two\n", log_stream());
	assert_true(read(ends[0], text, sizeof(text)) < 0);
	assert_int_equal(log_release(), 0);
	log_error("%s", "three");
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	close(before);
	assert_true(read(ends[0], text, sizeof(text)) > 0);
	assert_string_equal(text, "weir: one\ntwo\nweir: three\n");
	close(ends[0]);
	close(ends[1]);
}

TEST(a_file_that_the_command_made_too_long_takes_words_behind_its_data)
{
	static const int flags[] = { 0, O_APPEND };
	char name[] = "/tmp/weir-log-XXXXXX", text[8192] = "";

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		int fd = mkstemp(name);
		off_t longest = INT64_MAX;

		assert_true(fd >= 0);
		unlink(name);
		snprintf(name, sizeof(name), "/tmp/weir-log-XXXXXX");
		assert_int_equal(write(fd, "said", 4), 4);
		while (ftruncate(fd, longest) < 0)
			longest -= longest / 16;
		for (off_t step = longest; step > 0; step /= 2)
			if (ftruncate(fd, longest + MIN(step, INT64_MAX - longest)) == 0)
				longest += MIN(step, INT64_MAX - longest);
		assert_int_equal(lseek(fd, 0, SEEK_END), longest);
		assert_int_equal(fcntl(fd, F_SETFL, flags[i]), 0);
		assert_int_equal(released(fd), 0);
		assert_true(lseek(fd, 0, SEEK_END) < (off_t)sizeof(text));
		assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
		assert_string_equal(text, "said");
		assert_non_null(memmem(text, sizeof(text), "weir: waits\n", 12));
		close(fd);
	}
}

TEST(words_that_cannot_be_written_are_an_error_but_for_a_reader_that_has_gone)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC), ends[2],
	    sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct sigaction before;

	assert_int_equal(sigaction(SIGPIPE, &ignore, &before), 0);
	assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	assert_int_equal(released(full), -ENOSPC);
	assert_int_equal(released(sealed), -EPERM);
	assert_int_equal(released(ends[1]), 0);
	assert_int_equal(sigaction(SIGPIPE, &before, NULL), 0);
	close(full);
	close(sealed);
	close(ends[1]);
}

TEST(a_long_line_is_cut_and_still_ends)
{
	static char text[3000];
	const char *got;

	memset(text, 'x', sizeof(text) - 1);
	got = written(text);
	assert_int_equal(strlen(got), 2047);
	assert_ptr_equal(strchr(got, '\n'), got + 2046);
}
