// SPDX-License-Identifier: Apache-2.0
/* sys/link - the inside of a fresh network namespace: loopback, and the stub link that
 * gives the namespace an address and a default route without reaching anything.
 *
 * The stub is a veth pair with both ends in the namespace, up, without ARP, with a
 * permanent neighbour as the gateway: without a default route the kernel answers
 * ENETUNREACH before the output hook, and nothing could be redirected or counted. */
#pragma once

#include <stdbool.h>

#include "base/addr.h"
#include "base/err.h"

enum {
	LINK_STUB_GROUP = 0x77656972
}; /* of both ends: `ip link show group`, nft's oifgroup */

/* Bring lo up, make the stub. *ret_ipv6: the namespace has IPv6. The stub's addresses
 * are local when this returns; -ETIMEDOUT: one was not after LINK_LOCAL_WAIT_MS. */
enum { LINK_LOCAL_WAIT_MS = 30 * 1000, LINK_LOOK_MS = 50 };
int link_setup_owned(bool *ret_ipv6, struct err *err) MUST_CHECK;
/* The two halves: make the stub; wait for its IPv6 address, which a worker of the kernel
 * makes local, once there is nothing else to do. */
int link_make_stub(bool *ret_ipv6, struct err *err) MUST_CHECK;
int link_await_stub(bool ipv6, struct err *err) MUST_CHECK;

/* In the namespace of @route_fd; it may be up already. */
int link_loopback_up(int route_fd) MUST_CHECK;

/* A link into the namespace that somebody outside makes and serves. */
struct link_uplink {
	const char *name;
	struct addr own[2], gateway[2]; /* IPv4, IPv6; family none: leave it out */
	bool silent[2];			/* nobody tells the gateway's link address */
};
/* Wait until that link is there, at most LINK_UPLINK_WAIT_MS, then bring it up and route
 * UDP over it. Everything else stays on the stub, so that connections of the relay don't
 * end when the uplink does. -ETIMEDOUT: the link did not come. */
enum { LINK_UPLINK_WAIT_MS = 10 * 1000 };
int link_setup_uplink(const struct link_uplink *u, struct err *err) MUST_CHECK;

/* Would a packet to this address be delivered on this machine itself? Asked of the
 * kernel's routing tables through @route_fd (link_route_open), so that every address
 * of the host, present or future, counts. Return: 1, 0, or -errno. */
int link_route_open(void) MUST_CHECK;
int link_addr_is_local(int route_fd, const struct addr *a) MUST_CHECK;
/* The host has a default route of that family (4 or 6). 1, 0, -errno. */
int link_has_default_route(int route_fd, int family) MUST_CHECK;

/* The prefixes that the machine delivers to itself: its own addresses, loopback,
 * broadcasts. What sends for a sandbox from outside must not send there. */
enum { LOCAL_PREFIXES_MAX = 4096 };

/* Of the network namespace that the caller is in, as of now. @ret holds
 * LOCAL_PREFIXES_MAX. -E2BIG: there are more, and nothing half is returned. */
int local_prefixes(struct prefix *ret, size_t *ret_count, struct err *err) MUST_CHECK;
