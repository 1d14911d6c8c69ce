// SPDX-License-Identifier: Apache-2.0
/* log - one line to stderr. Only api/, cli/ and main/ may call it; others return. */
#pragma once

#include <stdio.h>

#include "base/macros.h"

/* "weir: <text>\n", one write(). Control bytes in the text become '?'. */
void log_write(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* From now on lines wait in memory: whoever reads them may take as long as he likes, and
 * there is work to do first. */
void log_hold(void);
/* Where words of several lines go meanwhile; before log_hold(), and without memory: to
 * stderr. */
FILE *log_stream(void);
/* Write what has waited, and each later line at once again. A file that the command has
 * left too long for it is cut to its data. Return: 0, also where the reader has gone; or
 * -errno: not everything was written. */
int log_release(void) MUST_CHECK;

/* Weir can't do what it was asked to; or it can, and something is worth knowing. */
#define log_error(...)	 log_write(__VA_ARGS__)
#define log_warning(...) log_write(__VA_ARGS__)
/* The last words of a verb, which ends with @status. */
#define log_end(status, ...) (log_write(__VA_ARGS__), (status))
