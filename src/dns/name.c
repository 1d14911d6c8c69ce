// SPDX-License-Identifier: Apache-2.0
#include "dns/name.h"

#include <errno.h>
#include <string.h>

enum {
	POINTER_MASK = 0xc0, /* top bits of a length octet: 11 is a pointer */
	POINTERS_MAX = 127,  /* of one name: as many as it can have labels */
};

/* Copy @size octets of a name with its ASCII letters in lower case, eight at once: bit 7
 * of each octet of `is_upper` says that the octet is 'A' to 'Z'. Length octets are below
 * 64 and so below 'A': a whole name can be lowered without looking for its labels. */
static void lower_copy(uint8_t *to, const uint8_t *from, size_t size)
{
	const uint64_t ones = 0x0101010101010101u;
	size_t i = 0;

	for (; i + 8 <= size; i += 8) {
		uint64_t word, low7, from_a, over_z, is_upper;

		memcpy(&word, from + i, 8);
		low7 = word & (0x7f * ones);
		from_a = low7 + (0x80 - 'A') * ones;
		over_z = low7 + (0x80 - 'Z' - 1) * ones;
		is_upper = from_a & ~over_z & ~word & (0x80 * ones);
		word |= is_upper >> 2;
		memcpy(to + i, &word, 8);
	}
	for (; i < size; i++)
		to[i] = from[i] >= 'A' && from[i] <= 'Z' ? from[i] | 0x20 : from[i];
}

/* A name as it stands in a message, while its pieces are put together. */
struct gather {
	uint8_t bytes[DNS_NAME_MAX];
	size_t size;
	unsigned int labels;
};

/* Follow the labels from @at's position to the root. Each pointer has to point before
 * the piece that it ends (and behind the header), so the pieces' starts fall and the
 * walk ends; but a message has room for thousands of pointers to pointers. When the first
 * pointer was read, @ret_end is where the name ends in the message. */
static bool gather_name(struct gather *g, struct wire *at, size_t *ret_end)
{
	size_t piece = wire_offset(at);
	unsigned int pointers = 0;

	for (;;) {
		uint8_t length = wire_read_u8(at);
		size_t target;

		if (!wire_ok(at))
			return false;
		if (length == 0)
			break;
		if (length <= DNS_LABEL_MAX) {
			const uint8_t *label = wire_take(at, length);

			/* One octet stays free for the root label. */
			if (!label || g->size + 1 + length > DNS_NAME_MAX - 1)
				return false;
			g->bytes[g->size] = length;
			memcpy(g->bytes + g->size + 1, label, length);
			g->size += 1u + length;
			g->labels++;
			continue;
		}
		if ((length & POINTER_MASK) != POINTER_MASK)
			return false;
		target = (size_t)(length & ~POINTER_MASK) << 8 | wire_read_u8(at);
		if (!wire_ok(at) || target >= piece || target < DNS_HEADER_SIZE)
			return false;
		if (pointers == 0)
			*ret_end = wire_offset(at);
		if (pointers++ == POINTERS_MAX)
			return false;
		piece = target;
		wire_seek(at, target);
	}
	if (pointers == 0)
		*ret_end = wire_offset(at);
	g->bytes[g->size++] = 0;
	return true;
}

int dns_name_read(struct wire *w, struct dns_name *ret, uint8_t *ret_raw)
{
	struct wire at = *w;
	struct gather g;
	size_t end = 0;

	g.size = 0;
	g.labels = 0;
	if (!wire_ok(w) || !gather_name(&g, &at, &end)) {
		w->failed = true;
		return -EBADMSG;
	}
	wire_seek(w, end);
	ret->size = (uint8_t)g.size;
	ret->labels = (uint8_t)g.labels;
	lower_copy(ret->bytes, g.bytes, g.size);
	if (ret_raw)
		memcpy(ret_raw, g.bytes, g.size);
	return 0;
}

/* @label is @bytes, ASCII letters in any case. */
static bool label_is(const uint8_t *label, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		uint8_t c = label[i];

		if (c >= 'A' && c <= 'Z')
			c |= 0x20;
		if (c != bytes[i])
			return false;
	}
	return true;
}

bool dns_name_is_at(const struct wire *message, size_t offset, const uint8_t *bytes)
{
	struct wire at = *message;
	unsigned int pointers = 0;
	size_t piece = offset;

	wire_seek(&at, offset);
	for (;;) {
		uint8_t length = wire_read_u8(&at);
		const uint8_t *label;
		size_t target;

		if (length <= DNS_LABEL_MAX) {
			label = wire_take(&at, length);
			if (!label || length != bytes[0] ||
			    !label_is(label, bytes + 1, length))
				return false;
			if (length == 0)
				return true;
			bytes += 1u + length;
			continue;
		}
		target = (size_t)(length & ~POINTER_MASK) << 8 | wire_read_u8(&at);
		if ((length & POINTER_MASK) != POINTER_MASK || !wire_ok(&at) ||
		    target >= piece || target < DNS_HEADER_SIZE ||
		    pointers++ == POINTERS_MAX)
			return false;
		piece = target;
		wire_seek(&at, target);
	}
}

static bool is_host_octet(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static bool parse_label(struct text label, struct gather *g)
{
	if (label.len == 0 || label.len > DNS_LABEL_MAX ||
	    g->size + 1 + label.len > DNS_NAME_MAX - 1)
		return false;
	g->bytes[g->size++] = (uint8_t)label.len;
	for (size_t i = 0; i < label.len; i++) {
		uint8_t c = (uint8_t)label.ptr[i];

		if (!is_host_octet(c))
			return false;
		g->bytes[g->size++] = c;
	}
	g->labels++;
	return true;
}

int dns_name_parse(struct text t, struct dns_name *ret)
{
	struct text label;
	struct gather g;

	g.size = 0;
	g.labels = 0;
	if (t.len == 0)
		return -EINVAL;
	if (t.ptr[t.len - 1] == '.')
		t.len--;
	if (t.len > 0) {
		while (text_split(&t, '.', &label)) {
			if (!parse_label(label, &g))
				return -EINVAL;
		}
	}
	g.bytes[g.size++] = 0;
	ret->size = (uint8_t)g.size;
	ret->labels = (uint8_t)g.labels;
	lower_copy(ret->bytes, g.bytes, g.size);
	return 0;
}

char *dns_name_format(const struct dns_name *n, char *buf)
{
	char *p = buf;

	if (n->size == 1)
		*p++ = '.';
	for (size_t i = 0; i + 1 < n->size; i += 1u + n->bytes[i]) {
		if (i > 0)
			*p++ = '.';
		for (size_t j = 1; j <= n->bytes[i]; j++) {
			uint8_t c = n->bytes[i + j];

			if (c > 0x20 && c < 0x7f) {
				if (c == '.' || c == '\\')
					*p++ = '\\';
				*p++ = (char)c;
			} else {
				*p++ = '\\';
				*p++ = (char)('0' + c / 100);
				*p++ = (char)('0' + c / 10 % 10);
				*p++ = (char)('0' + c % 10);
			}
		}
	}
	*p = '\0';
	return buf;
}

bool dns_name_equal(const struct dns_name *a, const struct dns_name *b)
{
	return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

bool dns_name_is_within(const struct dns_name *n, const struct dns_name *ancestor)
{
	size_t at = 0;

	if (ancestor->size == 0 || n->size < ancestor->size ||
	    n->labels < ancestor->labels)
		return false;
	for (int i = n->labels - ancestor->labels; i > 0; i--)
		at += 1u + n->bytes[at];
	return n->size - at == ancestor->size &&
	       memcmp(n->bytes + at, ancestor->bytes, ancestor->size) == 0;
}

bool dns_name_is_host(const struct dns_name *n)
{
	if (n->labels == 0)
		return false;
	for (size_t i = 0; n->bytes[i] != 0; i += 1u + n->bytes[i]) {
		for (size_t j = 1; j <= n->bytes[i]; j++) {
			if (!is_host_octet(n->bytes[i + j]))
				return false;
		}
	}
	return true;
}

bool dns_name_is_localhost(const struct dns_name *n)
{
	static const struct dns_name localhost = {
		.size = 11,
		.labels = 1,
		.bytes = "\x09localhost",
	};

	return dns_name_is_within(n, &localhost);
}
