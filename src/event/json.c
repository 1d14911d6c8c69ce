// SPDX-License-Identifier: Apache-2.0
#include "event/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void jtext_init(struct jtext *j, char *buf, size_t size)
{
	*j = (struct jtext){ .buf = buf, .size = size };
}

/* Room for @more bytes and a NUL. */
static bool grow(struct jtext *j, size_t more)
{
	const size_t size = MAX(j->used + more + 1, 2 * j->size + 512);
	char *buf = j->grows ? realloc(j->buf, size) : NULL;

	if (!buf)
		return false;
	j->buf = buf;
	j->size = size;
	return true;
}

char *jtext_take(struct jtext *j)
{
	char *ret = NULL;

	if (!j->full && (j->used < j->size || grow(j, 0))) {
		ret = TAKE_PTR(j->buf);
		ret[j->used] = '\0';
	}
	clean_jtext(j);
	*j = (struct jtext){ .grows = true };
	return ret;
}

void jtext_put(struct jtext *j, struct text raw)
{
	if (j->full || (raw.len > j->size - j->used && !grow(j, raw.len))) {
		j->full = true;
		return;
	}
	if (raw.len > 0)
		memcpy(j->buf + j->used, raw.ptr, raw.len);
	j->used += raw.len;
}

static void put_byte(struct jtext *j, char byte)
{
	jtext_put(j, (struct text){ &byte, 1 });
}

static void put_unit(struct jtext *j, uint32_t unit)
{
	static const char hex[] = "0123456789abcdef";
	const char text[] = { '\\',
			      'u',
			      hex[unit >> 12 & 15],
			      hex[unit >> 8 & 15],
			      hex[unit >> 4 & 15],
			      hex[unit & 15] };

	jtext_put(j, (struct text){ text, sizeof(text) });
}

bool jtext_is_utf8(struct text t)
{
	uint32_t c;
	size_t n;

	for (; t.len > 0; t.ptr += n, t.len -= n) {
		n = text_utf8(t, &c);
		if (n == 0)
			return false;
	}
	return true;
}

/* Does @c stand for itself in a string? */
static bool is_plain(char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\' && c != '<' && c != '>' &&
	       c != '&';
}

static void put_escaped(struct jtext *j, uint32_t c)
{
	if (c == '"' || c == '\\') {
		put_byte(j, '\\');
		put_byte(j, (char)c);
	} else if (c < 0x10000) {
		put_unit(j, c);
	} else {
		put_unit(j, 0xd800 + ((c - 0x10000) >> 10));
		put_unit(j, 0xdc00 + ((c - 0x10000) & 0x3ff));
	}
}

void jtext_string(struct jtext *j, struct text t, size_t max)
{
	t.len = MIN(t.len, max);
	put_byte(j, '"');
	while (t.len > 0 && !j->full) {
		uint32_t c = 0xfffd;
		size_t n = 0;

		while (n < t.len && is_plain(t.ptr[n]))
			n++;
		if (n > 0) {
			jtext_put(j, (struct text){ t.ptr, n });
		} else {
			n = MAX(text_utf8(t, &c), (size_t)1);
			put_escaped(j, c);
		}
		t.ptr += n;
		t.len -= n;
	}
	put_byte(j, '"');
}

/* Outside of strings JSON has neither of them, so that they can be escaped blindly. */
void jtext_json(struct jtext *j, struct text json)
{
	while (json.len > 0 && !j->full) {
		uint32_t c = 0xfffd;
		size_t n = MAX(text_utf8(json, &c), (size_t)1);

		if (is_plain(*json.ptr) || c == '"' || c == '\\')
			put_byte(j, *json.ptr);
		else if (c < 0x20)
			put_byte(j, ' ');
		else
			put_escaped(j, c);
		json.ptr += n;
		json.len -= n;
	}
}

void jtext_key(struct jtext *j, const char *key)
{
	if (j->used > 0 && j->buf[j->used - 1] != '{' && j->buf[j->used - 1] != '[')
		put_byte(j, ',');
	if (!key)
		return;
	jtext_string(j, text_of(key), SIZE_MAX);
	put_byte(j, ':');
}

void jtext_open(struct jtext *j, const char *key, char bracket)
{
	jtext_key(j, key);
	put_byte(j, bracket);
}

void jtext_close(struct jtext *j, char bracket)
{
	put_byte(j, bracket);
}

void jtext_raw(struct jtext *j, const char *key, const char *json)
{
	jtext_key(j, key);
	jtext_put(j, text_of(json));
}

void jtext_member(struct jtext *j, const char *key, const char *value)
{
	jtext_key(j, key);
	jtext_string(j, text_of(value), SIZE_MAX);
}

void jtext_text(struct jtext *j, const char *key, const char *value, size_t max)
{
	const struct text t = { value, strnlen(value, max) };

	jtext_key(j, key);
	if (t.len > 0)
		jtext_string(j, t, max);
	else
		jtext_put(j, text_of("null"));
}

void jtext_number(struct jtext *j, const char *key, bool known, int64_t n)
{
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;
	char text[24], *begin = text + sizeof(text);

	jtext_key(j, key);
	if (!known) {
		jtext_put(j, text_of("null"));
		return;
	}
	do
		*--begin = (char)('0' + rest % 10);
	while (rest /= 10);
	if (n < 0)
		*--begin = '-';
	jtext_put(j, (struct text){ begin, (size_t)(text + sizeof(text) - begin) });
}

void jtext_count(struct jtext *j, const char *key, uint64_t n)
{
	jtext_number(j, key, true, (int64_t)MIN(n, (uint64_t)INT64_MAX));
}

void jtext_bool(struct jtext *j, const char *key, bool value)
{
	jtext_raw(j, key, value ? "true" : "false");
}

char *jtext_time(int64_t wall_ms, bool ms, char *buf)
{
	const time_t seconds = (time_t)(MAX(wall_ms, 0) / 1000);
	const int thousandths = (int)(MAX(wall_ms, 0) % 1000);
	struct tm tm;
	size_t n;

	if (!gmtime_r(&seconds, &tm))
		memset(&tm, 0, sizeof(tm));
	n = strftime(buf, JTEXT_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	if (ms)
		snprintf(buf + n, JTEXT_TIME_SIZE - n, ".%03dZ", thousandths);
	else
		snprintf(buf + n, JTEXT_TIME_SIZE - n, "Z");
	return buf;
}

void jtext_when(struct jtext *j, const char *key, int64_t wall_ms)
{
	char text[JTEXT_TIME_SIZE];

	jtext_member(j, key, jtext_time(wall_ms, true, text));
}
