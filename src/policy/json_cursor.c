// SPDX-License-Identifier: Apache-2.0
#include "policy/json_cursor.h"

#include <errno.h>
#include <string.h>

static void move(struct json_cursor *c)
{
	if (c->p >= c->end)
		return;
	if (*c->p == '\n') {
		c->line++;
		c->column = 1;
	} else if ((*c->p & 0xc0) != 0x80) {
		c->column++;
	}
	c->p++;
}

static char at(const struct json_cursor *c)
{
	return c->p < c->end ? *c->p : '\0';
}

static bool is_between(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':';
}

/* To the next byte that is neither blank nor a separator. */
static void skip_between(struct json_cursor *c)
{
	while (c->p < c->end && is_between(*c->p))
		move(c);
}

const char *json_kind_name(enum json_kind k)
{
	static const char *const names[] = {
		[JSON_KIND_NULL] = "null",     [JSON_KIND_BOOL] = "bool",
		[JSON_KIND_NUMBER] = "number", [JSON_KIND_STRING] = "string",
		[JSON_KIND_ARRAY] = "array",   [JSON_KIND_OBJECT] = "object",
	};
	return names[k];
}

enum json_kind json_cursor_peek(struct json_cursor *c)
{
	skip_between(c);
	switch (at(c)) {
	case '{':
		return JSON_KIND_OBJECT;
	case '[':
		return JSON_KIND_ARRAY;
	case '"':
		return JSON_KIND_STRING;
	case 't':
	case 'f':
		return JSON_KIND_BOOL;
	case 'n':
	case '\0':
		return JSON_KIND_NULL;
	default:
		return JSON_KIND_NUMBER;
	}
}

static void skip_string(struct json_cursor *c)
{
	move(c);
	while (c->p < c->end && *c->p != '"') {
		if (*c->p == '\\')
			move(c);
		move(c);
	}
	move(c);
}

/* Without recursion: what nobody reads may be nested as deeply as Go takes it. */
struct text json_cursor_skip(struct json_cursor *c)
{
	size_t depth = 0;
	const char *start;

	skip_between(c);
	start = c->p;
	do {
		skip_between(c);
		switch (at(c)) {
		case '{':
		case '[':
			depth++;
			move(c);
			break;
		case '}':
		case ']':
			depth--;
			move(c);
			break;
		case '"':
			skip_string(c);
			break;
		default:
			while (c->p < c->end && !is_between(*c->p) && *c->p != ']' &&
			       *c->p != '}')
				move(c);
		}
	} while (depth > 0 && c->p < c->end);
	return (struct text){ start, (size_t)(c->p - start) };
}

/* --- strings --- */

/* "\u12ab" at @p. */
static bool hex_unit(const char *p, const char *end, uint32_t *ret)
{
	if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
		return false;
	*ret = 0;
	for (size_t i = 2; i < 6; i++)
		*ret = *ret << 4 | (text_hex_value(p[i]) & 15);
	return true;
}

/* The character behind '\' at @p. Return: the bytes read. */
static size_t read_escape(const char *p, const char *end, uint32_t *ret)
{
	static const char names[] = "b\bf\fn\nr\rt\t";
	uint32_t low;

	if (hex_unit(p, end, ret)) {
		if (*ret < 0xd800 || *ret > 0xdfff)
			return 6;
		if (*ret < 0xdc00 && hex_unit(p + 6, end, &low) && low >= 0xdc00 &&
		    low <= 0xdfff) {
			*ret = 0x10000 + ((*ret - 0xd800) << 10) + (low - 0xdc00);
			return 12;
		}
		*ret = 0xfffd;
		return 6;
	}
	*ret = (uint8_t)p[1];
	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if (p[1] == names[i])
			*ret = (uint8_t)names[i + 1];
	}
	return 2;
}

/* One character of a string; a byte that is no UTF-8 is U+FFFD. Return: bytes read. */
static size_t read_character(const char *p, const char *end, char *out, size_t *ret_size)
{
	uint32_t u = 0xfffd;
	size_t size;

	if (*p == '\\' && end - p >= 2) {
		size = read_escape(p, end, &u);
		*ret_size = text_put_utf8(u, out);
		return size;
	}
	size = text_utf8((struct text){ p, (size_t)(end - p) }, &u);
	if (size == 0) {
		*ret_size = text_put_utf8(0xfffd, out);
		return 1;
	}
	memcpy(out, p, size);
	*ret_size = size;
	return size;
}

/* Nothing in it is escaped, or could be no UTF-8. */
static bool is_plain(const char *p, const char *end)
{
	while (p < end && (uint8_t)*p < 0x80 && *p != '\\')
		p++;
	return p == end;
}

int json_cursor_string(struct json_cursor *c, struct arena *arena, struct text *ret)
{
	struct text quoted = json_cursor_skip(c);
	const char *p = quoted.ptr + 1, *end = quoted.ptr + quoted.len - 1;
	size_t used = 0;
	char *out;

	if (quoted.len < 2)
		return -EINVAL;
	if (is_plain(p, end)) {
		*ret = (struct text){ p, (size_t)(end - p) };
		return 0;
	}
	/* Escapes only shrink; a byte that is no UTF-8 becomes three. */
	out = arena_alloc(arena, 3 * quoted.len);
	if (!out)
		return -ENOMEM;
	while (p < end) {
		char one[4];
		size_t size;

		p += read_character(p, end, one, &size);
		memcpy(out + used, one, size);
		used += size;
	}
	*ret = (struct text){ out, used };
	return 0;
}

/* --- arrays and objects --- */

void json_cursor_enter(struct json_cursor *c)
{
	skip_between(c);
	move(c);
}

bool json_cursor_next(struct json_cursor *c)
{
	skip_between(c);
	if (c->p < c->end && *c->p != ']' && *c->p != '}')
		return true;
	move(c);
	return false;
}
