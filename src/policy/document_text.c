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

static int put_one_string(struct document_out *o, struct text quoted)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct json_cursor c = { quoted.ptr, quoted.ptr + quoted.len, 1, 1 };
	struct text t;
	int r = json_cursor_string(&c, &arena, &t);

	if (r == 0)
		put_string(o, t);
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
			put_bytes(o, c.p++, 1);
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
	put_bytes(o, own.ptr, own.len);
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
	struct json_cursor c = { t.ptr, t.ptr + t.len, 1, 1 };
	size_t depth = 0;

	while (c.p < c.end) {
		char byte = *c.p;

		if (byte == '"') {
			struct text s = json_cursor_skip(&c);

			put_bytes(o, s.ptr, s.len);
			continue;
		}
		c.p++;
		if ((byte == '}' || byte == ']') && depth > 0 && c.p[-2] != '{' &&
		    c.p[-2] != '[')
			put_line(o, depth - 1);
		put_bytes(o, &byte, 1);
		if (byte == '{' || byte == '[')
			depth++;
		else if (byte == '}' || byte == ']')
			depth--;
		if (((byte == '{' || byte == '[') && *c.p != '}' && *c.p != ']') ||
		    byte == ',')
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

/* --- JSON as Go reads it: the states of encoding/json's scanner, and its words --- */

enum { SCAN_DEPTH_MAX = 10000 }; /* deeper: "exceeded max depth" */

enum state {
	BEGIN_VALUE = 0,
	BEGIN_VALUE_OR_EMPTY, /* behind '[' */
	BEGIN_STRING,	      /* behind ',' in an object */
	BEGIN_STRING_OR_EMPTY,
	END_VALUE,
	END_TOP,
	IN_STRING,
	IN_ESCAPE,
	IN_HEX,
	IN_LITERAL,
	NUMBER_MINUS,
	NUMBER_DIGITS,
	NUMBER_ZERO,
	NUMBER_DOT,
	NUMBER_FRACTION,
	NUMBER_E,
	NUMBER_E_SIGN,
	NUMBER_EXPONENT,
};

enum open { OPEN_KEY = 1, OPEN_VALUE, OPEN_ARRAY };

struct scan {
	enum state state;
	unsigned int hex_left;
	const char *literal; /* "true": which one is read */
	size_t literal_at;
	size_t depth;
	char what[64]; /* where the byte was that was refused */
	uint8_t open[SCAN_DEPTH_MAX];
};

static bool refuse_syntax(struct scan *s, const char *what)
{
	snprintf(s->what, sizeof(s->what), "%s", what);
	return false;
}

static bool go_to(struct scan *s, enum state state)
{
	s->state = state;
	return true;
}

static bool push(struct scan *s, enum open open, enum state next)
{
	if (s->depth == SCAN_DEPTH_MAX)
		return refuse_syntax(s, "");
	s->open[s->depth++] = (uint8_t)open;
	return go_to(s, next);
}

static bool pop(struct scan *s)
{
	s->depth--;
	return go_to(s, s->depth == 0 ? END_TOP : END_VALUE);
}

static bool end_top(struct scan *s, uint8_t c)
{
	s->state = END_TOP;
	return text_is_blank((char)c) || refuse_syntax(s, "after top-level value");
}

static bool end_value(struct scan *s, uint8_t c)
{
	uint8_t *open;

	if (s->depth == 0)
		return end_top(s, c);
	s->state = END_VALUE;
	if (text_is_blank((char)c))
		return true;
	open = &s->open[s->depth - 1];
	if (*open == OPEN_KEY) {
		if (c != ':')
			return refuse_syntax(s, "after object key");
		*open = OPEN_VALUE;
		return go_to(s, BEGIN_VALUE);
	}
	if (*open == OPEN_VALUE) {
		if (c == '}')
			return pop(s);
		if (c != ',')
			return refuse_syntax(s, "after object key:value pair");
		*open = OPEN_KEY;
		return go_to(s, BEGIN_STRING);
	}
	if (c == ']')
		return pop(s);
	return c == ',' ? go_to(s, BEGIN_VALUE) : refuse_syntax(s, "after array element");
}

static bool begin_literal(struct scan *s, const char *literal)
{
	s->literal = literal;
	s->literal_at = 1;
	return go_to(s, IN_LITERAL);
}

static bool begin_value(struct scan *s, uint8_t c)
{
	if (text_is_blank((char)c))
		return true;
	if (s->state == BEGIN_VALUE_OR_EMPTY && c == ']')
		return end_value(s, c);
	switch (c) {
	case '{':
		return push(s, OPEN_KEY, BEGIN_STRING_OR_EMPTY);
	case '[':
		return push(s, OPEN_ARRAY, BEGIN_VALUE_OR_EMPTY);
	case '"':
		return go_to(s, IN_STRING);
	case '-':
		return go_to(s, NUMBER_MINUS);
	case '0':
		return go_to(s, NUMBER_ZERO);
	case 't':
		return begin_literal(s, "true");
	case 'f':
		return begin_literal(s, "false");
	case 'n':
		return begin_literal(s, "null");
	default:
		return text_is_digit((char)c)
			       ? go_to(s, NUMBER_DIGITS)
			       : refuse_syntax(s, "looking for beginning of value");
	}
}

static bool begin_string(struct scan *s, uint8_t c)
{
	if (text_is_blank((char)c))
		return true;
	if (s->state == BEGIN_STRING_OR_EMPTY && c == '}') {
		s->open[s->depth - 1] = OPEN_VALUE;
		return end_value(s, c);
	}
	return c == '"' ? go_to(s, IN_STRING)
			: refuse_syntax(s, "looking for beginning of object key string");
}

static bool in_string(struct scan *s, uint8_t c)
{
	if (c == '"')
		return go_to(s, END_VALUE);
	if (c == '\\')
		return go_to(s, IN_ESCAPE);
	return c >= 0x20 || refuse_syntax(s, "in string literal");
}

static bool in_escape(struct scan *s, uint8_t c)
{
	if (c == 'u') {
		s->hex_left = 4;
		return go_to(s, IN_HEX);
	}
	return c != '\0' && strchr("bfnrt\\/\"", c)
		       ? go_to(s, IN_STRING)
		       : refuse_syntax(s, "in string escape code");
}

static bool in_hex(struct scan *s, uint8_t c)
{
	uint8_t letter = c | 0x20;

	if (!text_is_digit((char)c) && !(letter >= 'a' && letter <= 'f'))
		return refuse_syntax(s, "in \\u hexadecimal character escape");
	return --s->hex_left > 0 || go_to(s, IN_STRING);
}

static bool in_literal(struct scan *s, uint8_t c)
{
	if (c != (uint8_t)s->literal[s->literal_at]) {
		snprintf(s->what, sizeof(s->what), "in literal %s (expecting '%c')",
			 s->literal, s->literal[s->literal_at]);
		return false;
	}
	return s->literal[++s->literal_at] != '\0' || go_to(s, END_VALUE);
}

/* Behind digits that may end here. */
static bool in_number(struct scan *s, uint8_t c)
{
	bool exponent = s->state == NUMBER_EXPONENT;
	bool fraction = s->state == NUMBER_FRACTION;

	if (text_is_digit((char)c) && s->state != NUMBER_ZERO)
		return true;
	if (c == '.' && !fraction && !exponent)
		return go_to(s, NUMBER_DOT);
	if ((c | 0x20) == 'e' && !exponent)
		return go_to(s, NUMBER_E);
	return end_value(s, c);
}

static bool step(struct scan *s, uint8_t c)
{
	switch (s->state) {
	case BEGIN_VALUE:
	case BEGIN_VALUE_OR_EMPTY:
		return begin_value(s, c);
	case BEGIN_STRING:
	case BEGIN_STRING_OR_EMPTY:
		return begin_string(s, c);
	case END_VALUE:
		return end_value(s, c);
	case END_TOP:
		return end_top(s, c);
	case IN_STRING:
		return in_string(s, c);
	case IN_ESCAPE:
		return in_escape(s, c);
	case IN_HEX:
		return in_hex(s, c);
	case IN_LITERAL:
		return in_literal(s, c);
	case NUMBER_MINUS:
		if (!text_is_digit((char)c))
			return refuse_syntax(s, "in numeric literal");
		return go_to(s, c == '0' ? NUMBER_ZERO : NUMBER_DIGITS);
	case NUMBER_DOT:
		return text_is_digit((char)c)
			       ? go_to(s, NUMBER_FRACTION)
			       : refuse_syntax(s,
					       "after decimal point in numeric literal");
	case NUMBER_E:
	case NUMBER_E_SIGN:
		if ((c == '+' || c == '-') && s->state == NUMBER_E)
			return go_to(s, NUMBER_E_SIGN);
		return text_is_digit((char)c)
			       ? go_to(s, NUMBER_EXPONENT)
			       : refuse_syntax(s, "in exponent of numeric literal");
	default:
		return in_number(s, c);
	}
}

/* One byte as Go shows it: 0xe9 is 'é'. */
static const char *show_byte(uint8_t c, char *buf, size_t size)
{
	static const char names[] = "a\ab\bf\fn\nr\rt\tv\v\\\\";

	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if ((char)c == names[i + 1]) {
			snprintf(buf, size, "'\\%c'", names[i]);
			return buf;
		}
	}
	if (c == '\'')
		return "'\\''";
	if (c < 0x20 || c == 0x7f)
		snprintf(buf, size, "'\\x%02x'", c);
	else if (c < 0x7f)
		snprintf(buf, size, "'%c'", c);
	else if (c <= 0xa0 || c == 0xad)
		snprintf(buf, size, "'\\u%04x'", c);
	else
		snprintf(buf, size, "'%c%c'", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
	return buf;
}

static int bad_byte(const struct scan *s, uint8_t c, struct err *err)
{
	char shown[16];

	if (s->what[0] == '\0')
		return err_set(err, -EINVAL, "exceeded max depth");
	return err_set(err, -EINVAL, "invalid character %s %s",
		       show_byte(c, shown, sizeof(shown)), s->what);
}

/* The bytes of a string that say nothing to the scanner. */
static size_t skip_plain(struct text t, size_t i)
{
	while (i < t.len && (uint8_t)t.ptr[i] >= 0x20 && t.ptr[i] != '"' &&
	       t.ptr[i] != '\\')
		i++;
	return i;
}

int document_scan(struct text body, struct err *err)
{
	CLEAN(mem) struct scan *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < body.len; i++) {
		if (s->state == IN_STRING)
			i = skip_plain(body, i);
		if (i < body.len && !step(s, (uint8_t)body.ptr[i]))
			return bad_byte(s, (uint8_t)body.ptr[i], err);
	}
	/* A text that was cut off in a word or a number is reported as one with a
	 * blank there. */
	if (s->state != END_TOP && !step(s, ' '))
		return bad_byte(s, ' ', err);
	if (s->state != END_TOP)
		return err_set(err, -EINVAL, "unexpected end of JSON input");
	return 0;
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
