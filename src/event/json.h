// SPDX-License-Identifier: Apache-2.0
/* event/json - JSON written into a buffer of the caller's, without an allocation.
 *
 * What comes out is ASCII: control bytes, quotes, everything over 0x7e and what HTML
 * would read (<, >, &) are \u escapes, and a byte that is no UTF-8 is \ufffd, so that
 * text of a sandbox's making can go to a terminal, a log and a page. What doesn't fit
 * sets @full, and nothing is written from then on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

struct jtext {
	char *buf; /* borrowed; no NUL at the end */
	size_t size, used;
	bool full;
};

/* An escaped byte takes as much at most. */
enum { JTEXT_ESCAPE_MAX = 6, JTEXT_TIME_SIZE = 32 };

void jtext_init(struct jtext *j, char *buf, size_t size);
/* As it is: brackets and the like. */
void jtext_put(struct jtext *j, struct text raw);
/* JSON that somebody else made: strings of it may hold UTF-8 and what HTML would read,
 * which are escaped, and line ends become spaces. */
void jtext_json(struct jtext *j, struct text json);
/* With quotes; at most @max bytes of @t. */
void jtext_string(struct jtext *j, struct text t, size_t max);

/* A comma if one is due, then "key": */
void jtext_key(struct jtext *j, const char *key);
/* A comma if one is due: before an element of a list. */
void jtext_next(struct jtext *j);

/* Every byte of it is part of a character. */
bool jtext_is_utf8(struct text t);

/* Whole members. An empty text, and a number that isn't @known, is null. */
void jtext_member_text(struct jtext *j, const char *key, struct text t, size_t max);
void jtext_member_number(struct jtext *j, const char *key, bool known, int64_t n);
void jtext_member_time(struct jtext *j, const char *key, int64_t wall_ms);

/* "2026-11-20T10:06:43.424Z"; without the milliseconds when @ms is false. @buf holds
 * JTEXT_TIME_SIZE. Return: @buf. */
char *jtext_time(int64_t wall_ms, bool ms, char *buf);
