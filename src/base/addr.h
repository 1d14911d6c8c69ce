// SPDX-License-Identifier: Apache-2.0
/* addr - IPv4 and IPv6 addresses, prefixes, ports; as text and as kernel structs.
 *
 * Bytes are in network order here and nowhere else; ports are host order everywhere
 * outside a sockaddr. The zero value is "no address" and equals nothing that a
 * packet can carry. An IPv4-mapped IPv6 address stays IPv6. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/macros.h"

enum addr_family { ADDR_NONE = 0, ADDR_V4 = 4, ADDR_V6 = 6 };

enum {
	ADDR_TEXT_SIZE = 46,	 /* INET6_ADDRSTRLEN */
	PREFIX_TEXT_SIZE = 50,	 /* address, '/', three digits, NUL */
	ENDPOINT_TEXT_SIZE = 54, /* '[', address, ']', ':', five digits, NUL */
};

struct addr {
	uint8_t family;	   /* enum addr_family */
	uint8_t bytes[16]; /* IPv4 in the first four, the rest zero */
};

struct prefix {
	struct addr addr; /* host bits zero */
	uint8_t bits;	  /* 0 to 32 or 128 */
};

struct endpoint {
	struct addr addr;
	uint16_t port;
};

/* Bytes in an address of that family: 4, 16, or 0 for none. */
size_t addr_size(const struct addr *a);
bool addr_equal(const struct addr *a, const struct addr *b);
/* Order by family, then by bytes. Return: < 0, 0, > 0. */
int addr_compare(const struct addr *a, const struct addr *b);

struct addr addr_v4(uint8_t a, uint8_t b, uint8_t c, uint8_t d);
/* From 4 (@family ADDR_V4) or 16 bytes. */
struct addr addr_from_bytes(enum addr_family family, const uint8_t *bytes);

/* An IPv4 address in IPv6 clothes (::ffff:1.2.3.4): it goes out as IPv4. */
bool addr_is_mapped(const struct addr *a);
/* @a, or the IPv4 address that it is mapped from. */
struct addr addr_unmapped(const struct addr *a);

/* Strict text: dotted quad without leading zeros, or RFC 4291 text without a zone.
 * No brackets, no 0x7f.1, no surrounding space. @ret is written only on success. */
bool addr_parse(const char *text, size_t len, struct addr *ret);
/* RFC 5952. @buf holds at least ADDR_TEXT_SIZE. Return: @buf. */
char *addr_format(const struct addr *a, char *buf);
/* addr_format() into a buffer that lives as long as the block around the call. */
#define ADDR_SHOWN(x) addr_format(x, (char[ADDR_TEXT_SIZE]){ 0 })

/* "10.0.0.0/8"; an address alone is its full prefix. Host bits must be zero unless
 * @mask_host, which clears them. */
bool prefix_parse(const char *text, size_t len, bool mask_host, struct prefix *ret);
char *prefix_format(const struct prefix *p, char *buf);
/* prefix_format() into a buffer that lives as long as the block around the call. */
#define PREFIX_SHOWN(x) prefix_format(x, (char[PREFIX_TEXT_SIZE]){ 0 })
bool prefix_contains(const struct prefix *p, const struct addr *a);
/* @p holds one address alone. */
bool prefix_is_single(const struct prefix *p);
struct prefix prefix_of(const struct addr *a, unsigned int bits);
/* The lower or upper half of @p, which has bits left. */
struct prefix prefix_half(struct prefix p, bool upper);
/* IPv4's @p behind NAT64's well-known prefix (RFC 6052). */
struct prefix prefix_translated(const struct prefix *p);

/* Address and port. */
bool endpoint_equal(const struct endpoint *a, const struct endpoint *b);
/* "1.2.3.4", "1.2.3.4:53", "[2001:db8::1]:53", "2001:db8::1"; @default_port where
 * the text names none. */
bool endpoint_parse(const char *text, size_t len, uint16_t default_port,
		    struct endpoint *ret);
char *endpoint_format(const struct endpoint *e, char *buf);
/* endpoint_format() into a buffer that lives as long as the block around the call. */
#define ENDPOINT_SHOWN(x) endpoint_format(x, (char[ENDPOINT_TEXT_SIZE]){ 0 })

/* Kernel structs. addr_from_sockaddr gives ADDR_NONE for other families. */
socklen_t endpoint_to_sockaddr(const struct endpoint *e, struct sockaddr_storage *ret);
struct endpoint endpoint_from_sockaddr(const struct sockaddr_storage *sa);
