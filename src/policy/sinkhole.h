// SPDX-License-Identifier: Apache-2.0
/* policy/sinkhole - the addresses that denied names get under `deniedNames: refuse`.
 *
 * A name that doesn't exist is asked for again: npm does so for 75 seconds. So a denied
 * name gets an address of a range that leads nowhere, and the relay refuses what is
 * dialled there in the client's own protocol. A plan that refuses so denies both ranges,
 * whatever else it says: nothing to them leaves, and no answer teaches them. */
#pragma once

#include "base/addr.h"
#include "dns/name.h"

enum {
	SINKHOLES = 2,		  /* a range of each family */
	SINKHOLE_ADDRESSES = 256, /* of each range, that are given out */
	SINKHOLE_TTL_SEC = 1,	  /* a name may be allowed the next moment */
	/* 198.19.255.0/24, of the range for benchmarks (RFC 2544) */
	SINKHOLE_FIRST4 = 0xc613ff00,
	/* 100::/32, around the range that is to be thrown away (RFC 6666) */
	SINKHOLE_HEAD6 = 0x01000000,
};

struct prefix sinkhole_prefix(size_t i);
bool sinkhole_has(const struct addr *a);
/* That of @name, one of SINKHOLE_ADDRESSES; of @family. */
struct addr sinkhole_addr(enum addr_family family, const struct dns_name *name);

/* Those that the look-ups of one sandbox got: a bit for each, of both families. */
struct sinkholes {
	uint8_t given[SINKHOLE_ADDRESSES / 8];
};
void sinkholes_give(struct sinkholes *g, const struct addr *a);
/* A look-up got @a: that denial was told, and what is sent to @a is no other one. */
bool sinkholes_gave(const struct sinkholes *g, const struct addr *a);
