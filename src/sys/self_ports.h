// SPDX-License-Identifier: Apache-2.0
/* sys/self_ports - Weir's own sockets in a namespace that it shares with the sandbox.
 *
 * Their packets cross the sandbox's filter and are exempt there by three things together:
 * a mark, Weir's uid, and a local port that Weir holds bound and has told the filter of.
 * The port is bound without SO_REUSEADDR and SO_REUSEPORT and stays bound until the
 * socket is closed, whatever becomes of its connection; the filter is told before the
 * first packet, and told again before the port is let go.
 *
 * It is bound on the wildcard address, but connect() narrows the socket to the address
 * that it sends from: where the namespace has several of a family, the same port of
 * another of them can be bound meanwhile by others. Those still have to have mark and uid
 * to pass, which takes NET_RAW and SETUID.
 *
 * TCP ports rest in TIME_WAIT for a minute after a connection that we closed first: a
 * machine with 28,000 ephemeral ports has them for some 470 such connections a second.
 * Beyond that own_hold() says -EADDRINUSE. */
#pragma once

#include "base/addr.h"

struct own_ports {
	uint32_t mark; /* 0: sockets are not marked, and no port is held */
	void *data;
	/* Tell the filter. 0: from now on packets from there pass; or -errno. */
	int (*hold)(void *data, enum addr_family family, uint8_t protocol, uint16_t port);
	void (*let_go)(void *data, enum addr_family family, uint8_t protocol,
		       uint16_t port);
};

/* Mark @fd, a new socket, bind it to a port of its own and hold that. Nothing with
 * mark 0. Return: the port (0 with mark 0), or -errno, and nothing is held. */
int own_hold(const struct own_ports *o, int fd, enum addr_family family,
	     uint8_t protocol) MUST_CHECK;
/* Before @fd is closed; @port is what own_hold() gave. A TCP socket is shut down first,
 * so that its last segment still passes. */
void own_let_go(const struct own_ports *o, int fd, enum addr_family family,
		uint8_t protocol, uint16_t port);
