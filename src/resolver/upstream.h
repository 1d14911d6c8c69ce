// SPDX-License-Identifier: Apache-2.0
/* resolver/upstream - the transports to the upstream servers: connected UDP sockets from
 * random ports, TCP after truncation.
 *
 * Each UDP request has a socket that is connected to its server, so the kernel drops
 * what comes from elsewhere; sockets are pooled and re-made after a bounded number of
 * uses, so that the source port keeps changing. Reads in batches. */
#pragma once

#include "sys/loop.h"
#include "sys/sock.h"

struct upstreams;

struct upstreams_ops {
	void *data;
	/* A message from the server that @token was sent to. Any number per token. */
	void (*on_message)(void *data, uint32_t token, const void *message, size_t size);
	/* Nothing more will come: refused, reset, closed early, as -errno. */
	void (*on_failed)(void *data, uint32_t token, int error);
};

struct upstreams_config {
	struct loop *loop;		/* borrowed */
	const struct endpoint *servers; /* copied; with none every send fails */
	size_t count;
	size_t room;	      /* for more servers: see upstreams_add() */
	struct own_ports own; /* of all sockets */
	struct upstreams_ops ops;
};

/* Return: NULL when memory is out. */
struct upstreams *upstreams_new(const struct upstreams_config *config) MUST_CHECK;
void upstreams_free(struct upstreams *u);

/* One more server, behind the others. Return: its number, or -ENOBUFS. */
int upstreams_add(struct upstreams *u, const struct endpoint *server) MUST_CHECK;

/* UDP messages leave with the next upstreams_flush(). @tcp_for: over TCP, of which it
 * gets its share of connections; NULL: over UDP. Return: 0, or -errno when it can't
 * leave. */
int upstreams_send(struct upstreams *u, uint32_t token, size_t server,
		   const void *tcp_for, const void *message, size_t size) MUST_CHECK;
/* To be called once a turn. */
void upstreams_flush(struct upstreams *u);
void upstreams_cancel(struct upstreams *u, uint32_t token);
