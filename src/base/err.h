// SPDX-License-Identifier: Apache-2.0
/* err - why a call failed, in words for a person.
 *
 * A function whose failure somebody will read takes a struct err * last, fills it
 * with err_set() where the fault is seen, and callers put what they know in front
 * with err_context(). @err may be NULL everywhere. */
#pragma once

#include "base/macros.h"

enum { ERR_TEXT_SIZE = 512 }; /* longer text is cut */

struct err {
	int code;		  /* 0, or -errno */
	char text[ERR_TEXT_SIZE]; /* one line, lower case, no full stop */
};

/* Set the text and the code. Return: @code. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* "cannot <verb> <object>: <strerror>". Return: @code. */
int err_sys(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Put "<context>: " in front of the text that is there. Return: the code. */
int err_context(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Of all the faults of what a user has written each is a line: where @more is an error,
 * log the one that is there, and keep @more for the caller to print. Return: the code. */
int err_also(struct err *err, const struct err *more);
