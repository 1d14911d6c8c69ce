// SPDX-License-Identifier: Apache-2.0
/* policy/sinkhole - the addresses that stand for names that aren't open.
 *
 * A name that doesn't exist is asked for again: npm does so for 75 seconds. So, under
 * `deniedNames: refuse`, a denied name gets an address of a range that leads nowhere, and
 * the relay refuses what is dialled there in the client's own protocol. A name that asks
 * (`action: ask`) gets an address of its own in the same range, whose connections wait in
 * the relay (sandbox/asks.h). A plan that does either denies the whole range, whatever
 * else it says: nothing to it leaves, and no answer teaches it. */
#pragma once

#include "base/addr.h"
#include "dns/name.h"

enum {
	SINKHOLES = 2,		  /* a range of each family */
	SINKHOLE_ADDRESSES = 256, /* of each range and kind, that are given out */
	SINKHOLE_TTL_SEC = 1,	  /* a name may be allowed the next moment */
	/* 198.19.254.0/23, of the range for benchmarks (RFC 2544): names that ask, then
	 * names that are denied. */
	SINKHOLE_FIRST4 = 0xc613fe00,
	/* 100::/32, around the range that is to be thrown away (RFC 6666) */
	SINKHOLE_HEAD6 = 0x01000000,
};

struct prefix sinkhole_prefix(size_t i);
bool sinkhole_has(const struct addr *a);
/* That of the denied name @name, one of SINKHOLE_ADDRESSES; of @family. */
struct addr sinkhole_addr(enum addr_family family, const struct dns_name *name);

/* Number @n of those for names that ask; of @family. */
struct addr sinkhole_ask_addr(enum addr_family family, uint8_t n);
bool sinkhole_is_ask(const struct addr *a, uint8_t *ret_n);

/* Those that the look-ups of denied names of one sandbox got: a bit for each, of both
 * families. */
struct sinkholes {
	uint8_t given[SINKHOLE_ADDRESSES / 8];
};
void sinkholes_give(struct sinkholes *g, const struct addr *a);
/* A look-up got @a: that denial was told, and what is sent to @a is no other one. */
bool sinkholes_gave(const struct sinkholes *g, const struct addr *a);
