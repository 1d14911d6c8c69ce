// SPDX-License-Identifier: Apache-2.0
/* resolver/upstream_udp - connected UDP sockets to the upstream servers; a part of
 * resolver/upstream, for nobody else.
 *
 * HOW IT WORKS
 * Each server has a few sockets that new requests go to in turn. A socket is connected,
 * so the kernel drops what comes from elsewhere, and its source port is the kernel's
 * random choice. After UPSTREAM_UDP_USES_MAX requests or UPSTREAM_UDP_AGE_MS it is spent:
 * a new socket, with a new port, takes its place, and it is closed when its last request
 * has gone. A datagram goes to every request of its socket that has its message id; the
 * resolver checks the rest.
 *
 * Messages are gathered in the turn and leave together in upstream_udp_flush(), all for
 * one server through one socket: each on its own would cost a system call and, where
 * the server shares the core, a switch to it. Those of the same length go through the
 * network stack as one datagram that is cut at its end (UDP_SEGMENT), which a third of
 * the cost of a new name hangs on; where that is refused they go singly.
 *
 * A socket with a port of its own (sys/self_ports.h) is bound before it is connected.
 * What others send it in between is thrown away. */
#pragma once

#include "sys/loop.h"
#include "sys/self_ports.h"

enum {
	UPSTREAM_UDP_PER_SERVER = 4,
	UPSTREAM_UDP_USES_MAX = 64,
	UPSTREAM_UDP_AGE_MS = 10 * 1000,
	/* Open at once; when all are, spent sockets stay in use. */
	UPSTREAM_UDP_SOCKETS_MAX = 512,
	UPSTREAM_UDP_MESSAGE_MAX = 4096, /* longer datagrams are dropped */
	UPSTREAM_UDP_QUERY_MAX = 512,	 /* bytes of a message that leaves */
};

struct upstream_udp;
struct upstream_udp_socket;

/* One message that waits for its response. */
struct upstream_udp_request {
	uint32_t token;
	uint16_t id;				  /* first two bytes of the message */
	struct upstream_udp_socket *socket;	  /* NULL: waits for nothing */
	struct upstream_udp_request *prev, *next; /* of the same socket */
};

struct upstream_udp_config {
	struct loop *loop;
	const struct endpoint *servers; /* borrowed */
	size_t count;
	size_t room; /* for more of them */
	struct own_ports own;
	void *data;
	/* The token may have been cancelled by an earlier call of the same batch. */
	void (*on_message)(void *data, uint32_t token, const void *message, size_t size);
	/* The request has already left its socket; @error is why, -errno. */
	void (*on_failed)(void *data, uint32_t token, int error);
};

struct upstream_udp *upstream_udp_new(const struct upstream_udp_config *config)
	MUST_CHECK;
void upstream_udp_free(struct upstream_udp *u);

/* One more server, behind the others; there is room. */
void upstream_udp_add(struct upstream_udp *u, const struct endpoint *server);

/* @request, owned by the caller, has token set; it joins the socket that the message
 * will leave from. Return: 0, or -errno and it joined none. What goes wrong with
 * leaving is told by on_failed, in a later turn. */
int upstream_udp_send(struct upstream_udp *u, struct upstream_udp_request *request,
		      size_t server, const void *message, size_t size) MUST_CHECK;
void upstream_udp_flush(struct upstream_udp *u);
void upstream_udp_cancel(struct upstream_udp *u, struct upstream_udp_request *request);
