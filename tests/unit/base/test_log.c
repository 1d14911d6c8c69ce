// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { READ_SIZE = 4096 };

/* What a child that calls @speak writes to its stderr. */
static const char *spoken(void (*speak)(const void *data), const void *data)
{
	static char text[READ_SIZE];
	size_t used = 0;
	int ends[2];
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		speak(data);
		_exit(0);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + used, sizeof(text) - 1 - used)) > 0)
		used += (size_t)n;
	close(ends[0]);
	text[used] = '\0';
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return text;
}

static void speak_all_levels(const void *data)
{
	const enum log_level *level = data;

	if (level)
		log_set_level(*level);
	log_error("e%d", 1);
	log_warning("w%d", 2);
	log_info("i%d", 3);
	log_debug("d%d", 4);
}

static void lines_above_the_level_are_dropped(void **state)
{
	static const enum log_level error = LOG_ERROR, debug = LOG_DEBUG;

	assert_string_equal(spoken(speak_all_levels, NULL), "weir: e1\nweir: w2\n");
	assert_string_equal(spoken(speak_all_levels, &error), "weir: e1\n");
	assert_string_equal(spoken(speak_all_levels, &debug),
			    "weir: e1\nweir: w2\nweir: i3\nweir: d4\n");
}

static void speak_text(const void *data)
{
	log_error("%s", (const char *)data);
}

static void control_bytes_never_reach_the_terminal(void **state)
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
		const char *text = spoken(speak_text, rows[i].text);

		if (strcmp(text, rows[i].want) != 0)
			fail_msg("%s: %s", rows[i].what, text);
	}
}

static void a_long_line_is_cut_and_still_ends(void **state)
{
	static char text[2000];
	const char *got;

	memset(text, 'x', sizeof(text) - 1);
	got = spoken(speak_text, text);
	assert_int_equal(strlen(got), 1023);
	assert_ptr_equal(strchr(got, '\n'), got + 1022);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_above_the_level_are_dropped),
		cmocka_unit_test(control_bytes_never_reach_the_terminal),
		cmocka_unit_test(a_long_line_is_cut_and_still_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
