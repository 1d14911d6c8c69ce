// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 1024 }; /* longer lines are cut */

static enum log_level current_level = LOG_WARNING;

void log_set_level(enum log_level level)
{
	current_level = level;
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[LINE_SIZE] = "weir: ";
	size_t used = strlen(line);
	ssize_t written;
	va_list ap;

	if (level > current_level)
		return;
	va_start(ap, fmt);
	vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	used = strlen(line);
	line[used++] = '\n';
	written = write(STDERR_FILENO, line, used);
	(void)written; /* nobody is left to tell */
}
