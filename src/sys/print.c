// SPDX-License-Identifier: Apache-2.0
#include "sys/print.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/macros.h"

int print_json(json_t *j, size_t flags, FILE *out)
{
	int r = j ? json_dumpf(j, out, flags ? flags : JSON_INDENT(2)) : -1;

	json_decref(j);
	return fputc('\n', out) == EOF || r < 0 ? -EIO : 0;
}

void print_json_row(size_t before, struct text json)
{
	printf("%s%.*s", before > 0 ? ",\n  " : "[\n  ", (int)json.len, json.ptr);
}

void print_json_end(size_t count)
{
	puts(count > 0 ? "\n]" : "[]");
}

/* ---- for people, on a terminal ---- */

bool term_has_colour(FILE *out)
{
	const char *refused = getenv("NO_COLOR"), *term = getenv("TERM");

	if (refused && refused[0] != '\0')
		return false;
	if (!term || strcmp(term, "dumb") == 0)
		return false;
	return isatty(fileno(out)) == 1;
}

unsigned int term_width(FILE *out)
{
	struct winsize size;

	if (ioctl(fileno(out), TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
		return TERM_WIDTH_DEFAULT;
	return MIN(MAX(size.ws_col, TERM_WIDTH_MIN), TERM_WIDTH_MAX);
}

void term_wrap(FILE *out, const char *text, unsigned int column, unsigned int indent,
	       unsigned int width)
{
	bool first = true;

	for (;;) {
		size_t len = strcspn(text, " ");
		unsigned int wide = 0;

		/* A byte of UTF-8 that goes on takes no column. */
		for (size_t i = 0; i < len; i++)
			wide += (text[i] & 0xc0) != 0x80;
		if (!first && column + 1 + wide > width) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', out);
			column++;
		}
		fwrite(text, 1, len, out);
		column += wide;
		first = false;
		text += len + strspn(text + len, " ");
		if (*text == '\0')
			break;
	}
	fputc('\n', out);
}
