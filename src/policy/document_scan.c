// SPDX-License-Identifier: Apache-2.0
/* The states of Go's encoding/json scanner, and its words. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/document_internal.h"

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
	char what[64]; /* what the byte that was refused stood in */
	uint8_t open[SCAN_DEPTH_MAX];
};

static bool refuse(struct scan *s, const char *what)
{
	snprintf(s->what, sizeof(s->what), "%s", what);
	return false;
}

static bool go_to(struct scan *s, enum state state)
{
	s->state = state;
	return true;
}

static bool is_blank(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

static bool push(struct scan *s, enum open open, enum state next)
{
	if (s->depth == SCAN_DEPTH_MAX)
		return refuse(s, "");
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
	return is_blank(c) || refuse(s, "after top-level value");
}

static bool end_value(struct scan *s, uint8_t c)
{
	uint8_t *open;

	if (s->depth == 0)
		return end_top(s, c);
	s->state = END_VALUE;
	if (is_blank(c))
		return true;
	open = &s->open[s->depth - 1];
	if (*open == OPEN_KEY) {
		if (c != ':')
			return refuse(s, "after object key");
		*open = OPEN_VALUE;
		return go_to(s, BEGIN_VALUE);
	}
	if (*open == OPEN_VALUE) {
		if (c == '}')
			return pop(s);
		if (c != ',')
			return refuse(s, "after object key:value pair");
		*open = OPEN_KEY;
		return go_to(s, BEGIN_STRING);
	}
	if (c == ']')
		return pop(s);
	return c == ',' ? go_to(s, BEGIN_VALUE) : refuse(s, "after array element");
}

static bool begin_literal(struct scan *s, const char *literal)
{
	s->literal = literal;
	s->literal_at = 1;
	return go_to(s, IN_LITERAL);
}

static bool begin_value(struct scan *s, uint8_t c)
{
	if (is_blank(c))
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
		return is_digit(c) ? go_to(s, NUMBER_DIGITS)
				   : refuse(s, "looking for beginning of value");
	}
}

static bool begin_string(struct scan *s, uint8_t c)
{
	if (is_blank(c))
		return true;
	if (s->state == BEGIN_STRING_OR_EMPTY && c == '}') {
		s->open[s->depth - 1] = OPEN_VALUE;
		return end_value(s, c);
	}
	return c == '"' ? go_to(s, IN_STRING)
			: refuse(s, "looking for beginning of object key string");
}

static bool in_string(struct scan *s, uint8_t c)
{
	if (c == '"')
		return go_to(s, END_VALUE);
	if (c == '\\')
		return go_to(s, IN_ESCAPE);
	return c >= 0x20 || refuse(s, "in string literal");
}

static bool in_escape(struct scan *s, uint8_t c)
{
	if (c == 'u') {
		s->hex_left = 4;
		return go_to(s, IN_HEX);
	}
	return c != '\0' && strchr("bfnrt\\/\"", c) ? go_to(s, IN_STRING)
						    : refuse(s, "in string escape code");
}

static bool in_hex(struct scan *s, uint8_t c)
{
	uint8_t letter = c | 0x20;

	if (!is_digit(c) && !(letter >= 'a' && letter <= 'f'))
		return refuse(s, "in \\u hexadecimal character escape");
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

	if (is_digit(c) && s->state != NUMBER_ZERO)
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
		if (!is_digit(c))
			return refuse(s, "in numeric literal");
		return go_to(s, c == '0' ? NUMBER_ZERO : NUMBER_DIGITS);
	case NUMBER_DOT:
		return is_digit(c) ? go_to(s, NUMBER_FRACTION)
				   : refuse(s, "after decimal point in numeric literal");
	case NUMBER_E:
	case NUMBER_E_SIGN:
		if ((c == '+' || c == '-') && s->state == NUMBER_E)
			return go_to(s, NUMBER_E_SIGN);
		return is_digit(c) ? go_to(s, NUMBER_EXPONENT)
				   : refuse(s, "in exponent of numeric literal");
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
	/* What was cut off in a word or a number is told as a blank in it. */
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
