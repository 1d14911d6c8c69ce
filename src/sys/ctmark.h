// SPDX-License-Identifier: Apache-2.0
/* sys/ctmark - the mark of the conntrack entry that a connection belongs to: of one that
 * the filter has let through, it says whose it is. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/addr.h"
#include "base/err.h"
#include "sys/netlink.h"

struct ctmark {
	int fd; /* NETLINK_NETFILTER in the namespace of the connections; owned */
	uint32_t port_id, seq;
};

/* Take @fd, a bound netlink socket (sandbox_netlink_open()) that nobody else uses. */
int ctmark_init(struct ctmark *c, int fd, struct err *err) MUST_CHECK;

/* The mark of the entry of @socket, a TCP connection that was accepted. Return: 0, or
 * -ENOENT: there is no such entry; another -errno: who it is can't be told. */
int ctmark_of_socket(struct ctmark *c, int socket, uint32_t *ret) MUST_CHECK;

/* Who began the TCP connection between @local and @peer, as conntrack has it. Return: one
 * of these, or -errno. */
enum ctmark_side {
	CTMARK_NOBODY = 0, /* there is no such entry, or not from its beginning on */
	CTMARK_LOCAL,	   /* or it has sent first, of what was seen */
	CTMARK_PEER,
};
int ctmark_begun_by(struct ctmark *c, const struct endpoint *local,
		    const struct endpoint *peer) MUST_CHECK;

/* The entry in @bytes, a datagram of replies to request @seq of @port_id. Return: 0; 1,
 * nothing here is about that request (but perhaps about one that was given up); or
 * -errno, -EBADMSG for what the kernel never says. */
int ctmark_read(const void *bytes, size_t size, uint32_t port_id, uint32_t seq,
		struct nl_attrs *ret) MUST_CHECK;
/* Its mark. Only an entry whose replies go from @local to @peer counts, as TCP. Return:
 * 0; -ENOENT, it has none; or -EBADMSG. */
int ctmark_of_entry(const struct nl_attrs *entry, const struct endpoint *local,
		    const struct endpoint *peer, uint32_t *ret) MUST_CHECK;
