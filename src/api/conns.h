// SPDX-License-Identifier: Apache-2.0
/* api/conns - who is connected, who makes way when all connections are taken, and who
 * is not listened to for a while.
 *
 * A place is given to everybody who comes, so that the sandbox, which reaches the API
 * too, can't keep others out with connections that say nothing: the network that holds
 * most places loses the connection that has been silent longest. All addresses of this
 * machine are one network, an IPv6 /64 is one. Streams keep their place; they have a
 * limit of their own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "api/api.h"
#include "base/addr.h"

/* The library closes a connection that was shut down in its next turn; until then it
 * stands beside the one that came for it. */
enum {
	CONNS_DYING_MAX = 16,
	CONNS_SIZE = API_CONNECTIONS_MAX + API_STREAMS_MAX + CONNS_DYING_MAX,
};

struct conn {
	int fd; /* libmicrohttpd's; -1: a free place */
	struct prefix network;
	int64_t since_ms; /* came, or had its last answer */
	bool is_stream, is_dying;
};

struct conns {
	struct conn conn[CONNS_SIZE];
	size_t count, dying, streams; /* @dying: of those that are no streams */
	uint64_t evicted, timed_out;
};

void conns_init(struct conns *c);
/* Which network a peer belongs to. @self: the address that it connected to. */
struct prefix conns_network(const struct addr *peer, const struct addr *self);
bool conns_same_network(const struct prefix *a, const struct prefix *b);
/* A place, after shutting down whoever has to go. NULL: even the dying ones fill the
 * table. */
struct conn *conns_take(struct conns *c, int fd, const struct prefix *network,
			int64_t now_ms);
struct conn *conns_find(struct conns *c, int fd);
void conns_release(struct conns *c, struct conn *conn);
/* @conn is a stream's from now on: it makes room for nobody, and takes no place of the
 * others. */
void conns_keep(struct conns *c, struct conn *conn);
/* End those whose request takes longer than @limit_ms. */
void conns_expire(struct conns *c, int64_t now_ms, int64_t limit_ms);

/* -- wrong tokens ------------------------------------------------------------------- */

/* A network that shows wrong tokens is not listened to for a while: guessing takes longer
 * than anybody lives. */
enum {
	FAILURES_NETWORKS = 256, /* over it the one that failed first is forgotten */
	FAILURES_MAX = 10,	 /* of one network, within FAILURES_SEC */
	FAILURES_SEC = 60,
};

struct failures {
	struct {
		struct prefix network;
		uint32_t count; /* 0: a free place */
		int64_t since_ms;
	} places[FAILURES_NETWORKS];
};

void failures_add(struct failures *f, const struct prefix *network, int64_t now_ms);
/* Seconds until it is listened to again; 0: it is. */
uint32_t failures_wait(const struct failures *f, const struct prefix *network,
		       int64_t now_ms);
