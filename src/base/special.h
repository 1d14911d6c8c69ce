// SPDX-License-Identifier: Apache-2.0
/* special - which addresses are not ordinary addresses of the Internet.
 *
 * From the IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890 and its
 * updates), the multicast registries, and the metadata addresses that large clouds
 * document. An IPv4 address inside an IPv6 one (mapped, compatible, NAT64, 6to4,
 * Teredo, ISATAP) counts as the IPv4 address. */
#pragma once

#include <stdbool.h>

#include "base/addr.h"

enum addr_special {
	SPECIAL_INVALID = 0, /* ADDR_NONE */
	SPECIAL_NOT,	     /* an ordinary, global address */
	SPECIAL_PRIVATE,     /* RFC 1918, unique local */
	SPECIAL_SHARED,	     /* 100.64.0.0/10 */
	SPECIAL_LOOPBACK,
	SPECIAL_LINK_LOCAL,
	SPECIAL_UNSPECIFIED, /* 0.0.0.0/8, :: */
	SPECIAL_MULTICAST,
	SPECIAL_BROADCAST,
	SPECIAL_METADATA, /* a cloud's instance metadata or host agent */
	SPECIAL_RESERVED, /* the registries' rest: documentation, benchmarking, 240/4 … */
	SPECIAL_COUNT
};

enum addr_special addr_special(const struct addr *a);
/* "a private address", "a cloud metadata address" … for messages. */
const char *addr_special_name(enum addr_special kind);
/* Somebody may be asked for such an address, or advised to open it: nobody is led to open
 * a metadata service, a loopback or a whole network's address. */
bool addr_special_is_offered(enum addr_special kind);
/* The IPv4 address that an IPv6 address carries. False when it carries none. */
bool addr_embedded_v4(const struct addr *a, struct addr *ret);
/* A range of another kind begins within @p: its halves have to be asked. */
bool addr_special_splits(const struct prefix *p);
/* The metadata addresses, one by one from 0. False behind the last. */
bool addr_metadata(size_t i, struct addr *ret);
