// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

TEST(a_long_line_is_cut_and_still_ends)
{
	static char text[2000];
	const char *got;

	memset(text, 'x', sizeof(text) - 1);
	got = written(text);
	assert_int_equal(strlen(got), 1023);
	assert_ptr_equal(strchr(got, '\n'), got + 1022);
}
