// SPDX-License-Identifier: Apache-2.0
#include "event/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void jtext_init(struct jtext *j, char *buf, size_t size)
{
	*j = (struct jtext){ .buf = buf, .size = size };
}

void jtext_put(struct jtext *j, struct text raw)
{
	if (j->full || raw.len > j->size - j->used) {
		j->full = true;
		return;
	}
	if (raw.len > 0)
		memcpy(j->buf + j->used, raw.ptr, raw.len);
	j->used += raw.len;
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

static void put_character(struct jtext *j, uint32_t c)
{
	const char byte = (char)c;

	if (c >= 0x20 && c < 0x7f && !strchr("\"\\<>&", (int)c)) {
		jtext_put(j, (struct text){ &byte, 1 });
	} else if (c == '"' || c == '\\') {
		jtext_put(j, text_of("\\"));
		jtext_put(j, (struct text){ &byte, 1 });
	} else if (c < 0x10000) {
		put_unit(j, c);
	} else {
		put_unit(j, 0xd800 + ((c - 0x10000) >> 10));
		put_unit(j, 0xdc00 + ((c - 0x10000) & 0x3ff));
	}
}

void jtext_string(struct jtext *j, struct text t, size_t max)
{
	jtext_put(j, text_of("\""));
	t.len = MIN(t.len, max);
	while (t.len > 0 && !j->full) {
		uint32_t c = 0xfffd;
		size_t n = text_utf8(t, &c);

		put_character(j, c);
		n = MAX(n, (size_t)1);
		t.ptr += n;
		t.len -= n;
	}
	jtext_put(j, text_of("\""));
}

/* Outside of strings JSON has neither of them, so that they can be escaped blindly. */
void jtext_json(struct jtext *j, struct text json)
{
	while (json.len > 0 && !j->full) {
		uint32_t c = 0xfffd;
		size_t n = MAX(text_utf8(json, &c), (size_t)1);

		if (c < 0x20)
			jtext_put(j, text_of(" "));
		else if (c == '"' || c == '\\')
			jtext_put(j, (struct text){ json.ptr, 1 });
		else
			put_character(j, c);
		json.ptr += n;
		json.len -= n;
	}
}

static void jtext_number(struct jtext *j, int64_t n)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRId64, n);
	jtext_put(j, text_of(text));
}

void jtext_next(struct jtext *j)
{
	if (j->used > 0 && j->buf[j->used - 1] != '{' && j->buf[j->used - 1] != '[')
		jtext_put(j, text_of(","));
}

void jtext_key(struct jtext *j, const char *key)
{
	jtext_next(j);
	jtext_string(j, text_of(key), SIZE_MAX);
	jtext_put(j, text_of(":"));
}

void jtext_member_text(struct jtext *j, const char *key, struct text t, size_t max)
{
	jtext_key(j, key);
	if (t.len > 0)
		jtext_string(j, t, max);
	else
		jtext_put(j, text_of("null"));
}

void jtext_member_number(struct jtext *j, const char *key, bool known, int64_t n)
{
	jtext_key(j, key);
	if (known)
		jtext_number(j, n);
	else
		jtext_put(j, text_of("null"));
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

void jtext_member_time(struct jtext *j, const char *key, int64_t wall_ms)
{
	char text[JTEXT_TIME_SIZE];

	jtext_member_text(j, key, text_of(jtext_time(wall_ms, true, text)), SIZE_MAX);
}
