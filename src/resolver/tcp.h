// SPDX-License-Identifier: Apache-2.0
/* resolver/tcp - DNS over TCP from the sandboxes (RFC 7766); a part of
 * resolver/dns_service, for nobody else.
 *
 * HOW IT WORKS
 * A connection is known to the resolver by a handle: the index of its slot and the
 * slot's generation, which changes with every connection, so that a reply that comes
 * after the close finds nothing. Messages are taken from the stream one by one, however
 * it was cut, and each is a query of its own; replies are written in the order in which
 * they come.
 *
 * What a client can make us keep is bounded: one partial message, DNS_TCP_UNANSWERED_MAX
 * queries (then its socket isn't read) and DNS_TCP_OUT_MAX bytes of replies that it
 * doesn't read (then it is reset). */
#pragma once

#include <sys/queue.h>

#include "resolver/resolver.h"
#include "sys/listeners.h"

enum {
	DNS_TCP_CONNECTIONS_MAX =
		1024,		    /* of the engine, shared; over it: reset at once */
	DNS_TCP_MESSAGE_MAX = 1024, /* a query that says it is longer: reset */
	DNS_TCP_UNANSWERED_MAX = 16,
	DNS_TCP_OUT_MAX = 66 * 1024, /* one reply of any size, at least */
	DNS_TCP_ACCEPTS_PER_TURN = 16,
	DNS_TCP_IDLE_MS = 10 * 1000,	    /* with no query unanswered */
	DNS_TCP_ANSWER_MS = 10 * 60 * 1000, /* of a query; the servers may take as long */
	DNS_TCP_MESSAGE_MS = 5 * 1000,	    /* from its first byte to its last */
	DNS_TCP_WRITE_MS = 5 * 1000,	    /* without any progress */
};

struct dns_tcp;
struct dns_tcp_connection;

typedef void dns_tcp_query_fn(void *data, const struct resolver_client *client,
			      const void *message, size_t size);

struct dns_tcp_side;

/* Where connections come in. */
struct dns_tcp_listeners {
	int fd[2]; /* IPv4, IPv6; -1: none */
	/* Of listeners that many share: whose connection it is; NULL: it is reset. */
	struct dns_tcp_side *(*who)(void *data, int fd);
	void *data;
};

/* The TCP side of one sandbox, or of listeners that many share; embedded by the owner. */
struct dns_tcp_side {
	struct dns_tcp *tcp;
	struct sandbox *sandbox; /* NULL: shared listeners */
	struct dns_tcp_listeners from;
	struct listeners listeners;
	LIST_HEAD(, dns_tcp_connection) open;
	uint32_t connections; /* so many */
};

/* A sandbox in any other state has no new queries. */
static inline bool dns_service_serves(const struct sandbox *s)
{
	return s->state == SANDBOX_TESTING || s->state == SANDBOX_RUNNING;
}

struct dns_tcp *dns_tcp_new(struct loop *loop, dns_tcp_query_fn *on_query,
			    void *data) MUST_CHECK;
void dns_tcp_free(struct dns_tcp *t);

int dns_tcp_attach(struct dns_tcp *t, struct dns_tcp_side *side, struct sandbox *s,
		   const struct dns_tcp_listeners *from) MUST_CHECK;
/* Resets what is open. */
void dns_tcp_detach(struct dns_tcp_side *side);

/* Send a reply, or forget it when the connection has gone. */
void dns_tcp_reply(struct dns_tcp *t, uint32_t handle, const void *message, size_t size);
