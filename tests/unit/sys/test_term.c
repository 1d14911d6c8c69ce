// SPDX-License-Identifier: Apache-2.0
#include "sys/print.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "unit.h"

TEST(text_is_wrapped_between_words)
{
	static const struct {
		const char *what, *text;
		unsigned int column, indent, width;
		const char *wrapped;
	} rows[] = {
		{ "fits", "one two", 0, 2, 10, "one two\n" },
		{ "to the last column", "one two", 0, 2, 7, "one two\n" },
		{ "over it", "one two", 0, 2, 6, "one\n  two\n" },
		{ "begins further right", "one two", 4, 2, 10, "one\n  two\n" },
		{ "a long word stands alone", "a bcdefghij k", 0, 1, 6,
		  "a\n bcdefghij\n k\n" },
		{ "many spaces", "a   b", 0, 0, 10, "a b\n" },
		{ "columns, not bytes", "\u00fc\u00fc\u00fc \u00fc", 0, 0, 5,
		  "\u00fc\u00fc\u00fc \u00fc\n" },
		{ "nothing", "", 0, 0, 10, "\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *text = NULL;
		size_t size;
		FILE *out = open_memstream(&text, &size);

		term_wrap(out, rows[i].text, rows[i].column, rows[i].indent,
			  rows[i].width);
		fclose(out);
		if (strcmp(text, rows[i].wrapped) != 0)
			fail_msg("%s: '%s'", rows[i].what, text);
		free(text);
	}
}

TEST(a_file_has_neither_colour_nor_width)
{
	FILE *out = fopen("/dev/null", "w");

	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	assert_false(term_has_colour(out));
	assert_int_equal(term_width(out), TERM_WIDTH_DEFAULT);
	fclose(out);
}
