// SPDX-License-Identifier: Apache-2.0
/* text - reading numbers out of text, and printing text that is not ours. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/macros.h"

/* A piece of text, borrowed; not ended by NUL. */
struct text {
	const char *ptr;
	size_t len;
};

/* Of ASCII alone, whatever the locale is. */
static inline char text_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}
static inline bool text_is_digit(char c)
{
	return c >= '0' && c <= '9';
}
/* White space, line ends included. */
static inline bool text_is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Inline, as the length of a literal is no call then. */
static inline struct text text_of(const char *s)
{
	return (struct text){ .ptr = s, .len = s ? strlen(s) : 0 };
}
static inline bool text_equal(struct text a, const char *b)
{
	return a.len == strlen(b) && memcmp(a.ptr, b, a.len) == 0;
}
static inline bool text_equal_nocase(struct text a, const char *b)
{
	return a.len == strlen(b) && strncasecmp(a.ptr, b, a.len) == 0;
}
bool text_same(struct text a, struct text b);
/* The first of the @count elements at @list that is, or begins with, a string that equals
 * @t. @size is an element's; a string that is NULL equals nothing. Return: the element;
 * NULL: there is none. */
const void *text_find(struct text t, const void *list, size_t count, size_t size);
/* text_find() in @array: a pointer to the element, in its own type. */
#define TEXT_FIND(t, array)                                                              \
	((typeof(&(array)[0]))text_find((t), (array), ARRAY_SIZE(array),                 \
					sizeof((array)[0])))
/* @text is one of the @count texts of @list. */
bool text_is_one_of(const char *text, const char *const *list, size_t count);
/* A method's or header's name, as RFC 9110 has it. */
bool text_is_token(struct text t);
/* Without spaces, tabs and line ends at both ends. */
struct text text_trim(struct text t);
/* Of a hexadecimal digit; -1: it is none. */
int text_hex_value(char c);
/* One character of UTF-8 at the start of @t: shortest form, no surrogate, at most
 * U+10FFFF. Return: its bytes; 0: there is none. */
size_t text_utf8(struct text t, uint32_t *ret);
/* The character @c, at most U+10FFFF, as UTF-8 in @out of 4. Return: its bytes. */
size_t text_put_utf8(uint32_t c, char *out);
/* What names of sandboxes, users and hosts are made of. */
#define TEXT_NAME_LETTERS                                                                \
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
/* One to @max letters, digits, '-', '_' and '.'. */
bool text_is_name(const char *text, size_t max);
/* Is @t what @pattern says, whose '*' stands for any bytes? */
bool text_matches(const char *pattern, struct text t, bool any_case);
/* A line without its comment ('#' and what follows), trimmed. */
struct text text_without_comment(struct text line);
/* A line without its comment, trimmed, where a '#' begins a comment only at the start or
 * behind a blank. */
struct text text_without_spaced_comment(struct text line);
/* Cut @t at the first @separator: the part before it, and @t moves behind it (to
 * an empty text with ptr NULL after the last part). Return: false when t->ptr is
 * NULL. */
bool text_split(struct text *t, char separator, struct text *ret_part);

/* Read decimal digits at *@cursor, at most @end. Moves the cursor behind them only
 * on success. Refuses no digit, a leading zero of a longer number, over @max. */
bool parse_u32(const char **cursor, const char *end, uint32_t max, uint32_t *ret);
/* The whole text is one number. */
bool text_to_u32(struct text t, uint32_t max, uint32_t *ret);
/* The whole text is one number of @base, 16 at most; leading zeros don't matter. */
bool text_to_u64(struct text t, unsigned int base, uint64_t *ret);
/* "250ms", "5s", "10m", "6h", "1d" as milliseconds. */
bool text_to_duration_ms(struct text t, int64_t *ret_ms);
/* "20000", "512K", "20M", "4G" as bytes; K is 1024. */
bool text_to_size(struct text t, uint64_t *ret_bytes);

/* The word @i of a list; NULL behind the last one. */
typedef const char *text_word_fn(const void *words, size_t i);
/* The first word that @typed may have been meant to be: one that begins with @typed, or
 * from which @typed differs by a slip. Two letters are near to many words, and one says
 * nothing: two count where a slip leads to one word alone. NULL: none. */
const char *text_meant(struct text typed, text_word_fn *word_at, const void *words);

/* Write @t into @buf for a terminal or a log: printable ASCII as it is, everything
 * else as \xNN, cut with "..." when @size (8 at least) is reached. Always ends
 * with NUL. Return: @buf. */
char *text_escape(struct text t, char *buf, size_t size);
enum { TEXT_ESCAPED_SIZE = 300 }; /* what callers give for names and values */
/* text_escape() into a buffer that lives as long as the block around the call: of a text,
 * and of a string. */
#define TEXT_SHOWN(...)                                                                  \
	text_escape((__VA_ARGS__), (char[TEXT_ESCAPED_SIZE]){ 0 }, TEXT_ESCAPED_SIZE)
#define SHOWN(s) TEXT_SHOWN(text_of(s))
