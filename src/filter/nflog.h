// SPDX-License-Identifier: Apache-2.0
/* filter/nflog - the packets that the filter refused, as the kernel reports them.
 *
 * The socket is opened and bound inside the namespace (sys/sock.h opens it,
 * nflog_bind() configures group, copy range and threshold 1) and read by the engine.
 * Packet bytes are hostile: read with bounds, only headers. */
#pragma once

#include "base/err.h"
#include "event/event.h"

struct nflog_packet {
	struct addr source, destination;
	uint16_t source_port, destination_port; /* 0 where the protocol has none */
	uint8_t protocol;			/* IPPROTO_… */
	uint32_t uid;				/* of the sender, UINT32_MAX: unknown */
	uint32_t mark;				/* the packet's own, 0: none */
	uint16_t length;			/* of the IP packet */
	char prefix[32];			/* the rule's log prefix */
};

/* Configure @fd for @group: copy of 128 bytes, queue-threshold 1, a receive buffer
 * that bounds memory. */
int nflog_bind(int fd, uint16_t group, struct err *err) MUST_CHECK;

/* Read one datagram of netlink messages and call @fn for each packet in it.
 * Return: packets, 0 when there is none (EAGAIN), -ENOBUFS when the kernel dropped
 * some (counted by the caller, not an error), other -errno. */
int nflog_read(int fd, void (*fn)(void *data, const struct nflog_packet *p),
	       void *data) MUST_CHECK;
/* The packet as a denial by no rule. */
struct event nflog_event(const struct nflog_packet *p);
/* The parser alone, for fuzzing: one netlink datagram. Return: packets. */
int nflog_parse(const void *bytes, size_t size,
		void (*fn)(void *data, const struct nflog_packet *p), void *data);
