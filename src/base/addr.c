// SPDX-License-Identifier: Apache-2.0
#include "base/addr.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

size_t addr_size(const struct addr *a)
{
	if (a->family == ADDR_V4)
		return 4;
	return a->family == ADDR_V6 ? 16 : 0;
}

bool addr_equal(const struct addr *a, const struct addr *b)
{
	return addr_compare(a, b) == 0;
}

/* Eight bytes of an address, the first one highest: to compare numbers is no call. */
static inline uint64_t word_at(const uint8_t *bytes)
{
	uint64_t word;

	memcpy(&word, bytes, sizeof(word));
	return be64toh(word);
}

int addr_compare(const struct addr *a, const struct addr *b)
{
	const uint64_t x = word_at(a->bytes), y = word_at(b->bytes);
	const uint64_t low_x = word_at(a->bytes + 8), low_y = word_at(b->bytes + 8);

	if (a->family != b->family)
		return a->family < b->family ? -1 : 1;
	if (x != y)
		return x < y ? -1 : 1;
	return low_x < low_y ? -1 : low_x > low_y;
}

struct addr addr_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	return (struct addr){ .family = ADDR_V4, .bytes = { a, b, c, d } };
}

struct addr addr_from_bytes(enum addr_family family, const uint8_t *bytes)
{
	struct addr a = { .family = (uint8_t)family };

	memcpy(a.bytes, bytes, addr_size(&a));
	return a;
}

static const uint8_t mapped[12] = { [10] = 0xff, 0xff };

bool addr_is_mapped(const struct addr *a)
{
	return a->family == ADDR_V6 && memcmp(a->bytes, mapped, sizeof(mapped)) == 0;
}

struct addr addr_unmapped(const struct addr *a)
{
	return addr_is_mapped(a) ? addr_from_bytes(ADDR_V4, a->bytes + sizeof(mapped))
				 : *a;
}

bool addr_parse(const char *text, size_t len, struct addr *ret)
{
	char copy[ADDR_TEXT_SIZE];
	struct addr a = { 0 };

	/* Most names differ from an address at a glance: IPv4 begins with a digit, IPv6
	 * has colons. */
	if (len == 0 || len >= ADDR_TEXT_SIZE ||
	    (!text_is_digit(text[0]) && !memchr(text, ':', len)) ||
	    memchr(text, '\0', len))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	/* inet_pton is strict: four decimal parts, no leading zeros, no zone. */
	if (inet_pton(AF_INET, copy, a.bytes) == 1)
		a.family = ADDR_V4;
	else if (inet_pton(AF_INET6, copy, a.bytes) == 1)
		a.family = ADDR_V6;
	else
		return false;
	*ret = a;
	return true;
}

char *addr_format(const struct addr *a, char *buf)
{
	int family = a->family == ADDR_V4 ? AF_INET : AF_INET6;

	if (a->family == ADDR_NONE)
		memcpy(buf, "-", 2);
	else if (!inet_ntop(family, a->bytes, buf, ADDR_TEXT_SIZE))
		buf[0] = '\0';
	return buf;
}

struct prefix prefix_of(const struct addr *a, unsigned int bits)
{
	struct prefix p = { .addr = *a, .bits = (uint8_t)bits };
	size_t whole = bits / 8;

	if (whole < sizeof(p.addr.bytes)) {
		p.addr.bytes[whole] &= (uint8_t)(0xff00 >> bits % 8);
		memset(p.addr.bytes + whole + 1, 0, sizeof(p.addr.bytes) - whole - 1);
	}
	return p;
}

struct prefix prefix_half(struct prefix p, bool upper)
{
	if (upper)
		p.addr.bytes[p.bits / 8] |= (uint8_t)(0x80 >> p.bits % 8);
	p.bits++;
	return p;
}

struct prefix prefix_translated(const struct prefix *p)
{
	uint8_t bytes[16] = { 0x00, 0x64, 0xff, 0x9b };
	struct addr a;

	memcpy(bytes + 12, p->addr.bytes, 4);
	a = addr_from_bytes(ADDR_V6, bytes);
	return prefix_of(&a, 96u + p->bits);
}

bool prefix_parse(const char *text, size_t len, bool mask_host, struct prefix *ret)
{
	const char *slash = memchr(text, '/', len);
	size_t addr_len = slash ? (size_t)(slash - text) : len;
	unsigned int bits;
	struct prefix p;
	struct addr a;

	if (!addr_parse(text, addr_len, &a))
		return false;
	bits = (unsigned int)addr_size(&a) * 8;
	if (slash &&
	    !text_to_u32((struct text){ slash + 1, len - addr_len - 1 }, bits, &bits))
		return false;
	p = prefix_of(&a, bits);
	if (!mask_host && !addr_equal(&p.addr, &a))
		return false;
	*ret = p;
	return true;
}

bool prefix_is_single(const struct prefix *p)
{
	return p->bits == addr_size(&p->addr) * 8;
}

char *prefix_format(const struct prefix *p, char *buf)
{
	char text[ADDR_TEXT_SIZE];

	addr_format(&p->addr, text);
	if (prefix_is_single(p))
		snprintf(buf, PREFIX_TEXT_SIZE, "%s", text);
	else
		snprintf(buf, PREFIX_TEXT_SIZE, "%s/%u", text, p->bits);
	return buf;
}

bool prefix_contains(const struct prefix *p, const struct addr *a)
{
	const uint64_t high = word_at(p->addr.bytes) ^ word_at(a->bytes);
	const uint64_t low = word_at(p->addr.bytes + 8) ^ word_at(a->bytes + 8);
	const unsigned int bits = MIN(p->bits, 128u);

	if (p->addr.family != a->family || a->family == ADDR_NONE)
		return false;
	if (bits <= 64)
		return bits == 0 || high >> (64 - bits) == 0;
	return high == 0 && low >> (128 - bits) == 0;
}

static bool port_parse(const char *text, size_t len, uint16_t *ret)
{
	uint32_t port = 0;

	if (len == 0 || len > 5)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		port = port * 10 + (uint32_t)(text[i] - '0');
	}
	if (port == 0 || port > UINT16_MAX)
		return false;
	*ret = (uint16_t)port;
	return true;
}

bool endpoint_parse(const char *text, size_t len, uint16_t default_port,
		    struct endpoint *ret)
{
	struct endpoint e = { .port = default_port };
	const char *end = text + len;
	const char *colon;

	if (len > 0 && text[0] == '[') {
		const char *close = memchr(text, ']', len);

		if (!close ||
		    !addr_parse(text + 1, (size_t)(close - text - 1), &e.addr) ||
		    e.addr.family != ADDR_V6)
			return false;
		colon = close + 1;
		if (colon < end && *colon != ':')
			return false;
	} else if (addr_parse(text, len, &e.addr)) {
		colon = end;
	} else {
		colon = memchr(text, ':', len);
		if (!colon || !addr_parse(text, (size_t)(colon - text), &e.addr) ||
		    e.addr.family != ADDR_V4)
			return false;
	}
	if (colon < end && !port_parse(colon + 1, (size_t)(end - colon - 1), &e.port))
		return false;
	*ret = e;
	return true;
}

bool endpoint_equal(const struct endpoint *a, const struct endpoint *b)
{
	return a->port == b->port && addr_equal(&a->addr, &b->addr);
}

char *endpoint_format(const struct endpoint *e, char *buf)
{
	char text[ADDR_TEXT_SIZE];

	addr_format(&e->addr, text);
	snprintf(buf, ENDPOINT_TEXT_SIZE, e->addr.family == ADDR_V6 ? "[%s]:%u" : "%s:%u",
		 text, e->port);
	return buf;
}

socklen_t endpoint_to_sockaddr(const struct endpoint *e, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (e->addr.family == ADDR_V4) {
		struct sockaddr_in *in = (struct sockaddr_in *)ret;

		in->sin_family = AF_INET;
		in->sin_port = htons(e->port);
		memcpy(&in->sin_addr, e->addr.bytes, 4);
		return sizeof(*in);
	}
	if (e->addr.family == ADDR_V6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(e->port);
		memcpy(&in6->sin6_addr, e->addr.bytes, 16);
		return sizeof(*in6);
	}
	return 0;
}

struct endpoint endpoint_from_sockaddr(const struct sockaddr_storage *sa)
{
	struct endpoint e = { 0 };

	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		e.addr = addr_from_bytes(ADDR_V4, (const uint8_t *)&in->sin_addr);
		e.port = ntohs(in->sin_port);
	} else if (sa->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		e.addr = addr_from_bytes(ADDR_V6, (const uint8_t *)&in6->sin6_addr);
		e.port = ntohs(in6->sin6_port);
	}
	return e;
}
