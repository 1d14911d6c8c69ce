// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 1024 }; /* longer lines are cut */

void log_write(const char *fmt, ...)
{
	char line[LINE_SIZE] = "weir: ";
	size_t used = strlen(line);
	unsigned char before = 0;
	ssize_t written;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	/* A terminal obeys what is in a path or a name: the control bytes of ASCII, and
	 * those of Latin-1 as UTF-8 has them (C2 80 to C2 9F). */
	for (char *at = line; *at; at++) {
		unsigned char byte = (unsigned char)*at;

		if (byte < 0x20 || byte == 0x7f ||
		    (before == 0xc2 && byte >= 0x80 && byte < 0xa0))
			*at = '?';
		before = byte;
	}
	used = strlen(line);
	line[used++] = '\n';
	written = write(STDERR_FILENO, line, used);
	(void)written; /* nobody is left to tell */
}
