// SPDX-License-Identifier: Apache-2.0
/* relay/relay - the way out for TCP: connections that the filter redirected are
 * accepted inside, judged, dialled, and spliced. Out of an owned namespace they are
 * dialled from outside; in a shared one from there, on ports that the filter knows as
 * Weir's own (sys/sock.h).
 *
 * A connection is dialled only if its original destination is, at this moment, allowed
 * for this sandbox: an address rule with that port allows it, or a name that is still
 * valid taught it and that name's rule has the port; no address rule denies it; it is
 * not the listener itself, not loopback, not unspecified, and no address of the host,
 * unless an address rule names that very address (a /32 or /128). In a namespace that
 * Weir lives in itself the host's addresses are the sandbox's own and never redirected:
 * none is dialled.
 *
 * A refused connection gets a reset at once. While the address that was asked for is
 * silent, or when it has failed, other learned addresses of the same name are dialled as
 * well (relay_dial.c); if all fail, the client gets a reset. Half-closes, resets and
 * back-pressure pass through in both directions. Bytes are moved with splice(); pipes
 * come from a pool and are borrowed only while bytes wait. */
#pragma once

#include "sandbox/sandbox.h"
#include "sys/loop.h"

enum {
	RELAY_PIPES_MAX = 256, /* of the engine's pool; without one: plain copies */
	RELAY_CONNECT_MS = 30 * 1000, /* dial timeout, per address */
	RELAY_ADDRESSES_MAX = 8,      /* dialled for one connection; others are not */
};

struct asked; /* sandbox/asks.h */
struct relay;

struct relay_config {
	struct loop *loop; /* borrowed */
	int route_fd;	   /* link_route_open(), owned by the caller */
	uint32_t ports;	   /* that connections may leave from; 0: as many as usual */
};

/* Ignores SIGPIPE for the whole process: splice() into a socket that is gone raises it.
 */
struct relay *relay_new(const struct relay_config *config, struct err *err) MUST_CHECK;
/* Resets what is open. The loop makes no turn after it. */
void relay_free(struct relay *r);

/* Listeners that many sandboxes are redirected to: whose connection it is. NULL:
 * nobody's, it is reset. The sandboxes are attached as well; their own listeners are -1.
 */
struct relay_shared {
	int listen[2]; /* IPv4, IPv6; borrowed; -1: none */
	struct sandbox *(*by_socket)(void *data, int fd);
	void *data;
};
/* Once, until the relay ends. Return: 0 or -errno. */
int relay_share(struct relay *r, const struct relay_shared *shared) MUST_CHECK;
int relay_attach(struct relay *r, struct sandbox *s) MUST_CHECK;
/* All its connections are reset. */
void relay_detach(struct sandbox *s);
/* The sandbox's plan has changed: flows that it no longer allows are reset, before others
 * move on, a bounded number in each turn; none moves another byte before it is judged. */
void relay_recheck(struct sandbox *s);
/* Not all of them are judged yet: what the kernel has buffered for others still leaves.
 */
bool relay_is_rechecking(const struct sandbox *s);

/* A look-up of @name for s->look_up() has ended. */
void relay_looked_up(struct sandbox *s, const struct dns_name *name);
/* Nobody grants @what, a name: connections that wait for it are refused, but those whose
 * port was granted before. */
void relay_dismiss(struct sandbox *s, const struct asked *what);

/* What has passed on its connections that are open, into its accounts; what ends is
 * there by itself. */
void relay_account(const struct sandbox *s);
