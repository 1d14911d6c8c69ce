// SPDX-License-Identifier: Apache-2.0
/* policy/json_cursor - walking a text that is known to be JSON: document_scan() or
 * jansson let it pass. The ends are compared all the same: a slip must not read on. */
#pragma once

#include "base/arena.h"

struct json_cursor {
	const char *p, *end;
	uint32_t line, column; /* of @p, from 1, in characters */
};

enum json_kind {
	JSON_KIND_NULL = 0,
	JSON_KIND_BOOL,
	JSON_KIND_NUMBER,
	JSON_KIND_STRING,
	JSON_KIND_ARRAY,
	JSON_KIND_OBJECT,
};

/* "number", "array" …, as Go names them. */
const char *json_kind_name(enum json_kind k);
/* The kind of the next value; the cursor is then at its first byte. */
enum json_kind json_cursor_peek(struct json_cursor *c);
/* Step over a value. Return: its text. */
struct text json_cursor_skip(struct json_cursor *c);
/* The string that comes next, decoded; what is no Unicode becomes U+FFFD. It borrows
 * from the text where it can, and is in @arena where it can't. */
int json_cursor_string(struct json_cursor *c, struct arena *arena,
		       struct text *ret) MUST_CHECK;
/* Step into an array or object. */
void json_cursor_enter(struct json_cursor *c);
/* Is there another item, or another member, whose key comes before its value? False:
 * the cursor is behind the whole. */
bool json_cursor_next(struct json_cursor *c);
