// SPDX-License-Identifier: Apache-2.0
/* resolver/dns_service - the resolver's sockets: the sandboxes' UDP and TCP listeners on
 * one side, the upstream servers on the other. It is the engine's one struct
 * resolver_ops.
 *
 * UDP is read and written in batches (recvmmsg, sendmmsg). TCP follows RFC 7766: many
 * messages on a connection, each with a verdict of its own, split anywhere, answers in
 * any order, 10 s idle, LIMIT_DNS_TCP_CONNECTIONS per sandbox. */
#pragma once

#include "resolver/resolver.h"
#include "sys/loop.h"
#include "sys/sock.h"

struct dns_service;

typedef void upstream_trouble_fn(void *data, const struct upstream_trouble *t);

struct dns_service_config {
	struct loop *loop;		  /* borrowed */
	const struct endpoint *upstreams; /* copied */
	size_t upstream_count;		  /* up to RESOLVER_UPSTREAMS_MAX; with none,
					   * whatever has to be asked fails */
	struct hash_key key;
	struct own_ports own; /* of the upstream sockets */
	int64_t try_ms;	      /* of one upstream request; 0: RESOLVER_TRY_MS */
	/* One of them is 127.0.0.11, whose questions to others meet the redirect of the
	 * sandbox that is attached: servers.c. */
	bool may_come_back;
	/* Ask each server for @probe_name (size 0 or the root: NS of the root, else A)
	 * this often, for the first time in the loop's first turn; 0: never. Servers are
	 * then asked in the order given, and whoever doesn't answer probes comes last.
	 * Without probes those that answer sooner come first. */
	int64_t probe_every_ms;
	struct dns_name probe_name;
	upstream_trouble_fn *on_trouble; /* may be NULL */
	void *on_trouble_data;
};

struct dns_service *dns_service_new(const struct dns_service_config *config,
				    struct err *err) MUST_CHECK;
void dns_service_free(struct dns_service *d);

/* Sockets that many sandboxes ask: whose query it is says the mark that a datagram comes
 * with (SO_RCVMARK is set here), or of TCP the connection. NULL: nobody's, it is dropped.
 * The sandboxes are attached as well; their own DNS sockets are -1. */
struct dns_shared {
	int udp[2], tcp[2]; /* IPv4, IPv6; borrowed; -1: none */
	struct sandbox *(*by_mark)(void *data, uint32_t mark);
	struct sandbox *(*by_socket)(void *data, int fd);
	void *data;
};
/* Once, until the service ends. Return: 0 or -errno. */
int dns_service_share(struct dns_service *d, const struct dns_shared *shared) MUST_CHECK;

/* Serve the DNS sockets of @s from now on. Return: 0 or -errno. */
int dns_service_attach(struct dns_service *d, struct sandbox *s) MUST_CHECK;
void dns_service_detach(struct dns_service *d, struct sandbox *s);

/* The resolver, borrowed, for the calls about a sandbox that is attached: to look a name
 * up, to refuse the queries that wait for one, to pin names, to restore what is pinned of
 * names whose budgets begin anew, and to report a round of pinning once more. */
struct resolver *dns_service_resolver(const struct dns_service *d);

/* Turn the loop until it is known what Docker's resolver does with questions,
 * @patience_ms at the most. */
void dns_service_settle(struct dns_service *d, int64_t patience_ms);
/* Tell of the servers behind it once more. */
void dns_service_notify_behind(const struct dns_service *d);

/* To be called at the end of each turn of the loop: commits, then replies. */
void dns_service_flush(struct dns_service *d);
