// SPDX-License-Identifier: Apache-2.0
/* log - one line to stderr. Only api/, cli/ and main/ may call it; others return. */
#pragma once

#include "base/macros.h"

enum log_level { LOG_ERROR = 0, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_LEVEL_COUNT };

/* Lines above this level are dropped. Default: LOG_WARNING. */
void log_set_level(enum log_level level);
/* "weir: <text>\n", one write(). Control bytes in the text become '?'. */
void log_write(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_error(...)	 log_write(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)	 log_write(LOG_DEBUG, __VA_ARGS__)
