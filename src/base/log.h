// SPDX-License-Identifier: Apache-2.0
/* log - one line to stderr. Only api/, cli/ and main/ may call it; others return. */
#pragma once

#include "base/macros.h"

/* "weir: <text>\n", one write(). Control bytes in the text become '?'. */
void log_write(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* Weir can't do what it was asked to; or it can, and something is worth knowing. */
#define log_error(...)	 log_write(__VA_ARGS__)
#define log_warning(...) log_write(__VA_ARGS__)
/* The last words of a verb, which ends with @status. */
#define log_end(status, ...) (log_write(__VA_ARGS__), (status))
