// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 1024 }; /* longer lines are cut */

/* A terminal obeys what is in a path or a name: the control bytes of ASCII, and those of
 * Latin-1 as UTF-8 has them (C2 80 to C2 9F). */
static void disarm(char *line)
{
	unsigned char before = 0;

	for (; *line; line++) {
		unsigned char byte = (unsigned char)*line;

		if (byte < 0x20 || byte == 0x7f ||
		    (before == 0xc2 && byte >= 0x80 && byte < 0xa0))
			*line = '?';
		before = byte;
	}
}

void log_write(const char *fmt, ...)
{
	char line[LINE_SIZE] = "weir: ";
	size_t used = strlen(line);
	ssize_t written;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	disarm(line);
	used = strlen(line);
	line[used++] = '\n';
	written = write(STDERR_FILENO, line, used);
	(void)written; /* nobody is left to tell */
}
