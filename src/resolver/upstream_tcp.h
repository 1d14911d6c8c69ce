// SPDX-License-Identifier: Apache-2.0
/* resolver/upstream_tcp - one TCP connection for each question whose UDP answer was
 * truncated; a part of resolver/upstream, for nobody else.
 *
 * A connection carries one message there and one back, each behind its length of two
 * bytes (RFC 1035, 4.2.2), and is closed then. How long it may take is the resolver's
 * to decide: it cancels. */
#pragma once

#include "sys/loop.h"
#include "sys/self_ports.h"

enum {
	UPSTREAM_TCP_MAX = 64,	       /* connections; over it: -EMFILE */
	UPSTREAM_TCP_QUERY_MAX = 1024, /* bytes of a message that leaves */
};

struct upstream_tcp;
struct upstream_tcp_connection;

struct upstream_tcp_config {
	struct loop *loop;
	const struct endpoint *servers; /* borrowed */
	struct own_ports own;
	void *data;
	/* The connection is over, whatever becomes of the message. */
	void (*on_message)(void *data, uint32_t token, const void *message, size_t size);
	/* @error is why, -errno; closed early is -ECONNRESET. */
	void (*on_failed)(void *data, uint32_t token, int error);
};

struct upstream_tcp *upstream_tcp_new(const struct upstream_tcp_config *config)
	MUST_CHECK;
void upstream_tcp_free(struct upstream_tcp *t);

/* *@ret_connection is valid until a callback for @token or until it is cancelled.
 * Return: 0 or -errno. */
int upstream_tcp_send(struct upstream_tcp *t, uint32_t token, size_t server,
		      const void *message, size_t size,
		      struct upstream_tcp_connection **ret_connection) MUST_CHECK;
void upstream_tcp_cancel(struct upstream_tcp_connection *c);
