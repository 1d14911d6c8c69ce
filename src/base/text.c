// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <string.h>

enum { TYPO_MIN = 2, TYPO_START_MIN = 3, TYPO_MAX = 40 };

const void *text_find(struct text t, const void *list, size_t count, size_t size)
{
	const char *at = list;

	for (size_t i = 0; i < count; i++, at += size) {
		const char *const string = *(const char *const *)(const void *)at;

		if (string && text_equal(t, string))
			return at;
	}
	return NULL;
}

bool text_is_one_of(const char *text, const char *const *list, size_t count)
{
	return text_find(text_of(text), list, count, sizeof(*list)) != NULL;
}

bool text_same(struct text a, struct text b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

int text_hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct text text_trim(struct text t)
{
	while (t.len > 0 && text_is_blank(t.ptr[0])) {
		t.ptr++;
		t.len--;
	}
	while (t.len > 0 && text_is_blank(t.ptr[t.len - 1]))
		t.len--;
	return t;
}

bool text_split(struct text *t, char separator, struct text *ret_part)
{
	const char *cut;

	if (!t->ptr)
		return false;
	cut = t->len > 0 ? memchr(t->ptr, separator, t->len) : NULL;
	if (!cut) {
		*ret_part = *t;
		*t = (struct text){ 0 };
		return true;
	}
	*ret_part = (struct text){ t->ptr, (size_t)(cut - t->ptr) };
	t->len -= ret_part->len + 1;
	t->ptr = cut + 1;
	return true;
}

bool parse_u32(const char **cursor, const char *end, uint32_t max, uint32_t *ret)
{
	const char *p = *cursor;
	uint64_t value = 0;

	if (p >= end || *p < '0' || *p > '9')
		return false;
	if (*p == '0' && p + 1 < end && p[1] >= '0' && p[1] <= '9')
		return false;
	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		value = value * 10 + (uint64_t)(*p - '0');
		if (value > max)
			return false;
	}
	*cursor = p;
	*ret = (uint32_t)value;
	return true;
}

bool text_to_u32(struct text t, uint32_t max, uint32_t *ret)
{
	const char *p = t.ptr;
	uint32_t value;

	if (!p || !parse_u32(&p, t.ptr + t.len, max, &value) || p != t.ptr + t.len)
		return false;
	*ret = value;
	return true;
}

bool text_to_u64(struct text t, unsigned int base, uint64_t *ret)
{
	uint64_t value = 0;

	if (t.len == 0 || t.len > 20)
		return false;
	for (size_t i = 0; i < t.len; i++) {
		int digit = text_hex_value(t.ptr[i]);

		if (digit < 0 || (unsigned int)digit >= base ||
		    __builtin_mul_overflow(value, (uint64_t)base, &value) ||
		    __builtin_add_overflow(value, (uint64_t)digit, &value))
			return false;
	}
	*ret = value;
	return true;
}

bool text_to_duration_ms(struct text t, int64_t *ret_ms)
{
	static const struct unit {
		const char *name;
		int64_t ms;
	} units[] = {
		{ "ms", 1 },	      { "s", 1000 },	     { "m", 60 * 1000 },
		{ "h", 3600 * 1000 }, { "d", 86400 * 1000 },
	};
	const char *p = t.ptr;
	const struct unit *unit;
	uint32_t value;

	if (!p || !parse_u32(&p, t.ptr + t.len, 1000 * 1000, &value))
		return false;
	unit = TEXT_FIND(((struct text){ p, (size_t)(t.ptr + t.len - p) }), units);
	if (unit)
		*ret_ms = (int64_t)value * unit->ms;
	return unit != NULL;
}

bool text_to_size(struct text t, uint64_t *ret_bytes)
{
	static const char units[] = "KMG";
	const char *p = t.ptr, *unit;
	uint32_t value;

	if (!p || !parse_u32(&p, t.ptr + t.len, UINT32_MAX, &value))
		return false;
	*ret_bytes = value;
	if (p == t.ptr + t.len)
		return true;
	unit = *p != '\0' && p + 1 == t.ptr + t.len ? strchr(units, *p) : NULL;
	if (!unit || value > 1000 * 1000)
		return false;
	*ret_bytes = (uint64_t)value << 10 * (unit - units + 1);
	return true;
}

char *text_escape(struct text t, char *buf, size_t size)
{
	static const char hex[] = "0123456789abcdef";
	const size_t room = size - sizeof("...");
	size_t used = 0;

	for (size_t i = 0; i < t.len; i++) {
		unsigned char c = (unsigned char)t.ptr[i];
		bool plain = c >= 0x20 && c < 0x7f && c != '\\';
		size_t need = plain ? 1 : 4;

		if (used + need > room) {
			memcpy(buf + used, "...", 3);
			used += 3;
			break;
		}
		if (plain) {
			buf[used++] = (char)c;
			continue;
		}
		buf[used++] = '\\';
		buf[used++] = 'x';
		buf[used++] = hex[c >> 4];
		buf[used++] = hex[c & 15];
	}
	buf[used] = '\0';
	return buf;
}

bool text_is_token(struct text t)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < t.len; i++) {
		const char c = t.ptr[i];

		if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !text_is_digit(c) &&
		    (c == '\0' || !strchr(others, c)))
			return false;
	}
	return t.len > 0;
}

size_t text_utf8(struct text t, uint32_t *ret)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *p = (const unsigned char *)t.ptr;
	size_t len = t.len == 0		     ? 0
		     : p[0] < 0x80	     ? 1
		     : (p[0] & 0xe0) == 0xc0 ? 2
		     : (p[0] & 0xf0) == 0xe0 ? 3
		     : (p[0] & 0xf8) == 0xf0 ? 4
					     : 0;
	uint32_t c;

	if (len == 0 || len > t.len)
		return 0;
	c = len == 1 ? p[0] : p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*ret = c;
	return len;
}

bool text_is_name(const char *text, size_t max)
{
	const size_t len = strspn(text, TEXT_NAME_LETTERS);

	return len > 0 && len <= max && text[len] == '\0';
}

size_t text_put_utf8(uint32_t c, char *out)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

struct text text_without_comment(struct text line)
{
	const char *comment = line.len > 0 ? memchr(line.ptr, '#', line.len) : NULL;

	if (comment)
		line.len = (size_t)(comment - line.ptr);
	return text_trim(line);
}

struct text text_without_spaced_comment(struct text line)
{
	size_t i = 0;

	while (i < line.len && (line.ptr[i] != '#' || (i > 0 && line.ptr[i - 1] != ' ' &&
						       line.ptr[i - 1] != '\t')))
		i++;
	line.len = i;
	return text_trim(line);
}

bool text_matches(const char *pattern, struct text t, bool any_case)
{
	size_t i = 0, after_star = 0;
	const char *star = NULL;

	while (i < t.len) {
		const char c = t.ptr[i];

		if (*pattern == '*') {
			star = ++pattern;
			after_star = i;
		} else if (*pattern == c ||
			   (any_case && text_lower(c) == text_lower(*pattern))) {
			pattern++;
			i++;
		} else if (star) {
			pattern = star;
			i = ++after_star;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

/* The optimal string alignment distance: two neighbours exchanged are one edit. */
static unsigned int edits(struct text a, struct text b)
{
	unsigned int row[3][TYPO_MAX + 1];

	for (size_t i = 0; i <= a.len; i++) {
		unsigned int *now = row[i % 3];
		const unsigned int *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];

		now[0] = (unsigned int)i;
		for (size_t k = 1; k <= b.len; k++) {
			if (i == 0) {
				now[k] = (unsigned int)k;
				continue;
			}
			now[k] = last[k - 1] + (a.ptr[i - 1] != b.ptr[k - 1]);
			now[k] = MIN(now[k], last[k] + 1);
			now[k] = MIN(now[k], now[k - 1] + 1);
			if (i > 1 && k > 1 && a.ptr[i - 1] == b.ptr[k - 2] &&
			    a.ptr[i - 2] == b.ptr[k - 1])
				now[k] = MIN(now[k], before[k - 2] + 1);
		}
	}
	return row[a.len % 3][b.len];
}

const char *text_meant(struct text typed, text_word_fn *word_at, const void *words)
{
	const char *word, *found = NULL;

	for (size_t i = 0; (word = word_at(words, i)); i++) {
		const struct text w = text_of(word);
		const bool is_start = typed.len >= TYPO_START_MIN && w.len > typed.len &&
				      memcmp(typed.ptr, w.ptr, typed.len) == 0;

		/* Is @typed the start of @word, or is one letter in five of @word, and
		 * one in a shorter word, wrong, missing, too many or exchanged with its
		 * neighbour? */
		if (typed.len < TYPO_MIN || typed.len > TYPO_MAX || w.len > TYPO_MAX ||
		    (!is_start && edits(typed, w) > MAX(w.len / 5, 1)))
			continue;
		if (found)
			return NULL;
		found = word;
		if (typed.len >= TYPO_START_MIN)
			break;
	}
	return found;
}
