// SPDX-License-Identifier: Apache-2.0
/* Documents as text: compact as Go's json.Marshal() writes them, or indented. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/document_internal.h"

void document_put(struct document_out *o, const char *bytes, size_t size)
{
	if (o->failed || size == 0)
		return;
	if (size > o->size - o->used) {
		size_t grown = MAX(2 * o->size, o->used + size + 64);
		char *more = realloc(o->bytes, grown);

		if (!more) {
			o->failed = true;
			return;
		}
		o->bytes = more;
		o->size = grown;
	}
	memcpy(o->bytes + o->used, bytes, size);
	o->used += size;
}

void document_put_text(struct document_out *o, const char *s)
{
	document_put(o, s, strlen(s));
}

/* How a byte is escaped, or NULL. */
static const char *escape_of(char c, char *buf, size_t size)
{
	switch (c) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\b':
		return "\\b";
	case '\f':
		return "\\f";
	case '\n':
		return "\\n";
	case '\r':
		return "\\r";
	case '\t':
		return "\\t";
	default:
		if ((unsigned char)c >= 0x20 && !strchr("<>&", c))
			return NULL;
		snprintf(buf, size, "\\u%04x", (unsigned char)c);
		return buf;
	}
}

/* U+2028 and U+2029 end a line in JavaScript. */
static const char *escape_wide(struct text t)
{
	if (t.len < 3 || memcmp(t.ptr, "\xe2\x80", 2) != 0)
		return NULL;
	if (t.ptr[2] == '\xa8')
		return "\\u2028";
	return t.ptr[2] == '\xa9' ? "\\u2029" : NULL;
}

/* How many bytes of @t stand for themselves. */
static size_t plain_size(struct text t)
{
	size_t i = 0;

	while (i < t.len && (unsigned char)t.ptr[i] >= 0x20 && t.ptr[i] != '"' &&
	       t.ptr[i] != '\\' && t.ptr[i] != '<' && t.ptr[i] != '>' &&
	       t.ptr[i] != '&' && t.ptr[i] != '\xe2')
		i++;
	return i;
}

void document_put_string(struct document_out *o, struct text t)
{
	char buf[8];

	document_put(o, "\"", 1);
	while (t.len > 0) {
		size_t plain = plain_size(t), size;
		const char *escape;

		document_put(o, t.ptr, plain);
		t = (struct text){ t.ptr + plain, t.len - plain };
		if (t.len == 0)
			break;
		escape = escape_wide(t);
		size = escape ? 3 : 1;
		escape = escape ?: escape_of(t.ptr[0], buf, sizeof(buf));
		if (escape)
			document_put_text(o, escape);
		else
			document_put(o, t.ptr, 1);
		t = (struct text){ t.ptr + size, t.len - size };
	}
	document_put(o, "\"", 1);
}

static int put_one_string(struct document_out *o, struct text quoted)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct json_cursor c = { quoted.ptr, quoted.ptr + quoted.len, 1, 1 };
	struct text t;
	int r = json_cursor_string(&c, &arena, &t);

	if (r == 0)
		document_put_string(o, t);
	return r;
}

int document_put_value(struct document_out *o, struct text value)
{
	struct json_cursor c = { value.ptr, value.ptr + value.len, 1, 1 };
	int r = 0;

	while (r == 0 && c.p < c.end) {
		if (*c.p == '"')
			r = put_one_string(o, json_cursor_skip(&c));
		else if (*c.p == ' ' || *c.p == '\t' || *c.p == '\r' || *c.p == '\n')
			c.p++;
		else
			document_put(o, c.p++, 1);
	}
	return r < 0 ? r : o->failed ? -ENOMEM : 0;
}

/* --- shown in messages --- */

/* Characters that Go's %q doesn't show as they are; the others outside ASCII it does. */
static bool is_hidden(struct text t, char *buf, size_t size)
{
	const uint8_t *p = (const uint8_t *)t.ptr;
	uint32_t u = 0;

	if (t.len >= 2 && p[0] == 0xc2 && (p[1] <= 0xa0 || p[1] == 0xad))
		u = p[1];
	else if (t.len >= 3 && p[0] == 0xe2 && (p[1] == 0x80 || p[1] == 0x81))
		u = 0x2000u | (p[1] & 1u) << 6 | (p[2] & 0x3fu);
	else if (t.len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		u = 0xfeff;
	if (u == 0 || (u >= 0x2010 && u <= 0x2027) || (u >= 0x2030 && u <= 0x205e))
		return false;
	snprintf(buf, size, "\\u%04x", u);
	return true;
}

static size_t character_size(struct text t)
{
	size_t size = 1;

	while (size < t.len && (t.ptr[size] & 0xc0) == 0x80)
		size++;
	return size;
}

static const char *quoted_of(struct text t, char *buf, size_t size)
{
	static const char names[] = "a\ab\bf\fn\nr\rt\tv\v\\\\\"\"";
	unsigned char c = (unsigned char)t.ptr[0];

	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if (t.ptr[0] == names[i + 1]) {
			snprintf(buf, size, "\\%c", names[i]);
			return buf;
		}
	}
	if (c < 0x20 || c == 0x7f)
		snprintf(buf, size, "\\x%02x", c);
	else if (!is_hidden(t, buf, size))
		snprintf(buf, size, "%.*s", (int)MIN(t.len, size - 1), t.ptr);
	return buf;
}

char *document_quote(struct text t, char *buf, size_t size)
{
	size_t used = 1;

	buf[0] = '"';
	for (size_t i = 0; i < t.len;) {
		struct text one = { t.ptr + i, t.len - i };
		char shown[16];
		const char *s;

		one.len = MIN(character_size(one), (size_t)4);
		s = quoted_of(one, shown, sizeof(shown));
		if (used + strlen(s) + sizeof("...\"") > size) {
			memcpy(buf + used, "...", 3);
			used += 3;
			break;
		}
		memcpy(buf + used, s, strlen(s));
		used += strlen(s);
		i += one.len;
	}
	buf[used++] = '"';
	buf[used] = '\0';
	return buf;
}

/* --- whole documents --- */

static void put_own(struct document_out *o, struct text own)
{
	if (own.len == 0)
		return;
	document_put(o, ",", 1);
	document_put(o, own.ptr, own.len);
}

static const char *action_name(enum policy_action action)
{
	return action == POLICY_ALLOW ? "allow" : "deny";
}

static void put_rules(struct document_out *o, const struct document *d)
{
	document_put(o, "[", 1);
	for (size_t i = 0; i < d->count; i++) {
		const struct document_rule *r = &d->rules[i];

		document_put_text(o, i > 0 ? ",{\"action\":\"" : "{\"action\":\"");
		document_put_text(o, action_name(r->action));
		document_put_text(o, "\",\"target\":");
		document_put_string(o, r->target);
		put_own(o, r->own);
		document_put(o, "}", 1);
	}
	document_put(o, "]", 1);
}

static void put_line(struct document_out *o, size_t depth)
{
	static const char blanks[] = "\n                ";

	document_put(o, blanks, 1 + MIN(2 * depth, sizeof(blanks) - 2));
	for (size_t i = (sizeof(blanks) - 2) / 2; i < depth; i++)
		document_put(o, "  ", 2);
}

/* Compact JSON with line ends and blanks. */
static void put_pretty(struct document_out *o, struct text t)
{
	struct json_cursor c = { t.ptr, t.ptr + t.len, 1, 1 };
	size_t depth = 0;

	while (c.p < c.end) {
		char byte = *c.p;

		if (byte == '"') {
			struct text s = json_cursor_skip(&c);

			document_put(o, s.ptr, s.len);
			continue;
		}
		c.p++;
		if ((byte == '}' || byte == ']') && depth > 0 && c.p[-2] != '{' &&
		    c.p[-2] != '[')
			put_line(o, depth - 1);
		document_put(o, &byte, 1);
		if (byte == '{' || byte == '[')
			depth++;
		else if (byte == '}' || byte == ']')
			depth--;
		if (((byte == '{' || byte == '[') && *c.p != '}' && *c.p != ']') ||
		    byte == ',')
			put_line(o, depth);
		else if (byte == ':')
			document_put(o, " ", 1);
	}
	document_put(o, "\n", 1);
}

/* End with NUL and give away. */
static char *finish(struct document_out *o)
{
	document_put(o, "", 1);
	return o->failed ? NULL : TAKE_PTR(o->bytes);
}

char *document_json(const struct document *d, bool pretty)
{
	CLEAN(document_out) struct document_out out = { 0 }, indented = { 0 };

	document_put_text(&out, "{\"egress\":");
	put_rules(&out, d);
	document_put_text(&out, ",\"defaultAction\":\"");
	document_put_text(&out, action_name(d->default_action));
	document_put(&out, "\"", 1);
	put_own(&out, d->own);
	if (d->closed.ptr) {
		document_put_text(&out, ",\"closed\":");
		document_put_string(&out, d->closed);
	}
	document_put(&out, "}", 1);
	if (!pretty || out.failed)
		return finish(&out);
	put_pretty(&indented, (struct text){ out.bytes, out.used });
	return finish(&indented);
}

char *document_rules_json(const struct document *d)
{
	CLEAN(document_out) struct document_out out = { 0 };

	put_rules(&out, d);
	return finish(&out);
}
