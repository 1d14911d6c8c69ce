// SPDX-License-Identifier: Apache-2.0
/* event/json - JSON, and the only place in which its strings are escaped, but for two
 * dialects: OpenSandbox's documents (opensandbox/document.c) and what jansson writes.
 *
 * What comes out is ASCII: control bytes, quotes, everything over 0x7e and what HTML
 * would read (<, >, &) are \u escapes, and a byte that is no UTF-8 is \ufffd, so that
 * text of a sandbox's making can go to a terminal, a log and a page. It goes into a
 * buffer of the caller's, without an allocation, or, of a struct jtext j = { .grows =
 * true }, into memory that grows as it is written: whoever writes bounds that. What
 * doesn't fit, or finds no memory, sets @full, and nothing is written from then on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/text.h"

struct jtext {
	char *buf; /* borrowed, or owned where it @grows; no NUL at the end */
	size_t size, used;
	bool full, grows;
};

/* An escaped byte takes as much at most. */
enum { JTEXT_ESCAPE_MAX = 6, JTEXT_TIME_SIZE = 32 };

void jtext_init(struct jtext *j, char *buf, size_t size);
/* What has grown, with a NUL behind it, for free(); @j is empty then. Return: NULL: there
 * was no memory. */
char *jtext_take(struct jtext *j);
static inline void clean_jtext(struct jtext *j)
{
	if (j->grows)
		free(j->buf);
}
/* As it is: brackets and the like. */
void jtext_put(struct jtext *j, struct text raw);
/* JSON that somebody else made: strings of it may hold UTF-8 and what HTML would read,
 * which are escaped, and line ends become spaces. */
void jtext_json(struct jtext *j, struct text json);
/* With quotes; at most @max bytes of @t. */
void jtext_string(struct jtext *j, struct text t, size_t max);

/* A comma if one is due, and "key": unless @key is NULL (an element of a list). */
void jtext_key(struct jtext *j, const char *key);

/* Every byte of it is part of a character. */
bool jtext_is_utf8(struct text t);

/* What follows writes a whole member, or, with @key NULL, an element of a list. */

/* The begin of an object, '{', or of a list, '['; jtext_close() is its end, '}' or ']'.
 */
void jtext_open(struct jtext *j, const char *key, char bracket);
void jtext_close(struct jtext *j, char bracket);
/* A text; NULL is "". */
void jtext_member(struct jtext *j, const char *key, const char *value);
/* A text of at most @max bytes; an empty one is null. */
void jtext_text(struct jtext *j, const char *key, const char *value, size_t max);
/* Over INT64_MAX, which other readers have no more of, it is that. */
void jtext_count(struct jtext *j, const char *key, uint64_t n);
/* null unless it is @known. */
void jtext_number(struct jtext *j, const char *key, bool known, int64_t n);
void jtext_bool(struct jtext *j, const char *key, bool value);
void jtext_when(struct jtext *j, const char *key, int64_t wall_ms);
/* JSON already, as it is. */
void jtext_raw(struct jtext *j, const char *key, const char *json);

/* "2026-11-20T10:06:43.424Z"; without the milliseconds when @ms is false. @buf holds
 * JTEXT_TIME_SIZE. Return: @buf. */
char *jtext_time(int64_t wall_ms, bool ms, char *buf);
