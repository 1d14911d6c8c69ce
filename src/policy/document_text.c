// SPDX-License-Identifier: Apache-2.0
/* Documents as text: compact as Go's json.Marshal() writes them, or indented. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/sha256.h"
#include "policy/document_internal.h"
#include "policy/explain.h"

static void put_bytes(struct document_out *o, const char *bytes, size_t size)
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
	put_bytes(o, s, strlen(s));
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

/* How many bytes of @t need no escape. */
static size_t plain_size(struct text t)
{
	size_t i = 0;

	while (i < t.len && (unsigned char)t.ptr[i] >= 0x20 && t.ptr[i] != '"' &&
	       t.ptr[i] != '\\' && t.ptr[i] != '<' && t.ptr[i] != '>' &&
	       t.ptr[i] != '&' && t.ptr[i] != '\xe2')
		i++;
	return i;
}

/* With quotes and Go's escapes. */
static void put_string(struct document_out *o, struct text t)
{
	char buf[8];

	put_bytes(o, "\"", 1);
	while (t.len > 0) {
		size_t plain = plain_size(t), size;
		const char *escape;

		put_bytes(o, t.ptr, plain);
		t = (struct text){ t.ptr + plain, t.len - plain };
		if (t.len == 0)
			break;
		escape = escape_wide(t);
		size = escape ? 3 : 1;
		escape = escape ?: escape_of(t.ptr[0], buf, sizeof(buf));
		if (escape)
			document_put_text(o, escape);
		else
			put_bytes(o, t.ptr, 1);
		t = (struct text){ t.ptr + size, t.len - size };
	}
	put_bytes(o, "\"", 1);
}

/* Behind the string that begins at @t. */
static size_t string_size(struct text t)
{
	size_t i = 1;

	while (i < t.len && t.ptr[i] != '"')
		i += t.ptr[i] == '\\' ? 2 : 1;
	return MIN(i + 1, t.len);
}

static int put_one_string(struct document_out *o, struct text quoted)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct text t;
	bool lost;
	int r = node_json_string(quoted, &arena, &t, &lost);

	if (r == 0)
		put_string(o, t);
	return r;
}

int document_put_value(struct document_out *o, struct text value)
{
	int r = 0;

	while (r == 0 && value.len > 0) {
		size_t size = 0;

		while (size < value.len && value.ptr[size] != '"' &&
		       !text_is_blank(value.ptr[size]))
			size++;
		put_bytes(o, value.ptr, size);
		value = (struct text){ value.ptr + size, value.len - size };
		if (value.len == 0)
			break;
		size = *value.ptr == '"' ? string_size(value) : 1;
		if (*value.ptr == '"')
			r = put_one_string(o, (struct text){ value.ptr, size });
		value = (struct text){ value.ptr + size, value.len - size };
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
	put_bytes(o, ",", 1);
	put_bytes(o, own.ptr + 1, own.len - 2);
}

static void put_rules(struct document_out *o, const struct document *d)
{
	put_bytes(o, "[", 1);
	for (size_t i = 0; i < d->count; i++) {
		const struct document_rule *r = &d->rules[i];

		document_put_text(o, i > 0 ? ",{\"action\":\"" : "{\"action\":\"");
		document_put_text(o, policy_action_name(r->action));
		document_put_text(o, "\",\"target\":");
		put_string(o, r->target);
		put_own(o, r->own);
		put_bytes(o, "}", 1);
	}
	put_bytes(o, "]", 1);
}

static void put_line(struct document_out *o, size_t depth)
{
	static const char blanks[] = "\n                ";

	put_bytes(o, blanks, 1 + MIN(2 * depth, sizeof(blanks) - 2));
	for (size_t i = (sizeof(blanks) - 2) / 2; i < depth; i++)
		put_bytes(o, "  ", 2);
}

/* Compact JSON with line ends and blanks. */
static void put_pretty(struct document_out *o, struct text t)
{
	size_t depth = 0;

	for (size_t i = 0, size; i < t.len; i += size) {
		const char byte = t.ptr[i];
		const bool opens = byte == '{' || byte == '[';
		const bool closes = byte == '}' || byte == ']';
		const bool is_empty = closes &&
				      (t.ptr[i - 1] == '{' || t.ptr[i - 1] == '[');

		size = byte == '"' ? string_size((struct text){ t.ptr + i, t.len - i })
				   : 1;
		depth += opens;
		depth -= closes;
		if (closes && !is_empty)
			put_line(o, depth);
		put_bytes(o, t.ptr + i, size);
		if ((opens && t.ptr[i + 1] != '}' && t.ptr[i + 1] != ']') || byte == ',')
			put_line(o, depth);
		else if (byte == ':')
			put_bytes(o, " ", 1);
	}
	put_bytes(o, "\n", 1);
}

/* End with NUL. The caller owns the result. */
static char *finish(struct document_out *o)
{
	put_bytes(o, "", 1);
	return o->failed ? NULL : TAKE_PTR(o->bytes);
}

char *document_json(const struct document *d, bool pretty)
{
	CLEAN(document_out) struct document_out out = { 0 }, indented = { 0 };

	document_put_text(&out, "{\"egress\":");
	put_rules(&out, d);
	document_put_text(&out, ",\"defaultAction\":\"");
	document_put_text(&out, policy_action_name(d->default_action));
	put_bytes(&out, "\"", 1);
	put_own(&out, d->own);
	if (d->closed.ptr) {
		document_put_text(&out, ",\"closed\":");
		put_string(&out, d->closed);
	}
	put_bytes(&out, "}", 1);
	if (!pretty || out.failed)
		return finish(&out);
	put_pretty(&indented, (struct text){ out.bytes, out.used });
	return finish(&indented);
}

void document_tag(const char *json, char ret[DOCUMENT_TAG_SIZE])
{
	uint8_t digest[SHA256_SIZE];
	struct sha256 s;
	size_t used = 1;

	sha256_init(&s);
	sha256_add(&s, json, strlen(json));
	sha256_end(&s, digest);
	ret[0] = '"';
	for (size_t i = 0; used < DOCUMENT_TAG_SIZE - 2; i++, used += 2)
		snprintf(ret + used, DOCUMENT_TAG_SIZE - used, "%02x", digest[i]);
	snprintf(ret + used, DOCUMENT_TAG_SIZE - used, "\"");
}

bool document_is_named(const struct document *d, struct text list)
{
	CLEAN(mem) char *json = list.len > 0 ? document_json(d, false) : NULL;
	char tag[DOCUMENT_TAG_SIZE];
	struct text part;

	if (!json)
		return false;
	document_tag(json, tag);
	while (text_split(&list, ',', &part))
		if (text_equal(text_trim(part), "*") || text_equal(text_trim(part), tag))
			return true;
	return false;
}

char *document_rules_json(const struct document *d)
{
	CLEAN(document_out) struct document_out out = { 0 };

	put_rules(&out, d);
	return finish(&out);
}

/* --- white space --- */

/* How many bytes of white space @t begins with: 0 to 3. */
static size_t space_ahead(struct text t)
{
	static const char *const wide[] = {
		"\xc2\x85",	"\xc2\xa0",	"\xe1\x9a\x80", "\xe2\x80\xa8",
		"\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
	};

	if (t.len == 0)
		return 0;
	if ((uint8_t)t.ptr[0] < 0x80)
		return t.ptr[0] == ' ' || (t.ptr[0] >= '\t' && t.ptr[0] <= '\r');
	for (size_t i = 0; i < ARRAY_SIZE(wide); i++) {
		size_t size = strlen(wide[i]);

		if (t.len >= size && memcmp(t.ptr, wide[i], size) == 0)
			return size;
	}
	/* U+2000 to U+200A */
	if (t.len >= 3 && memcmp(t.ptr, "\xe2\x80", 2) == 0 &&
	    (uint8_t)t.ptr[2] >= 0x80 && (uint8_t)t.ptr[2] <= 0x8a)
		return 3;
	return 0;
}

static size_t space_behind(struct text t)
{
	if (t.len > 0 && (uint8_t)t.ptr[t.len - 1] < 0x80)
		return space_ahead((struct text){ t.ptr + t.len - 1, 1 });
	for (size_t size = 1; size <= 3 && size <= t.len; size++) {
		struct text last = { t.ptr + t.len - size, size };

		if (space_ahead(last) == size)
			return size;
	}
	return 0;
}

struct text document_trim(struct text t)
{
	size_t n;

	while ((n = space_ahead(t)) > 0)
		t = (struct text){ t.ptr + n, t.len - n };
	while ((n = space_behind(t)) > 0)
		t.len -= n;
	return t;
}
