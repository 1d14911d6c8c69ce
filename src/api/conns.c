// SPDX-License-Identifier: Apache-2.0
#include "api/conns.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

void conns_init(struct conns *c)
{
	*c = (struct conns){ 0 };
	for (size_t i = 0; i < CONNS_SIZE; i++)
		c->conn[i].fd = -1;
}

struct prefix conns_network(const struct addr *peer, const struct addr *self)
{
	static const uint8_t one[16] = { [15] = 1 };
	const struct addr loopback = addr_from_bytes(ADDR_V6, one);
	/* An IPv4 peer of a socket that serves both families is mapped. */
	const struct addr a = addr_unmapped(peer), b = addr_unmapped(self);

	if ((a.family == ADDR_V4 ? a.bytes[0] == 127 : addr_equal(&a, &loopback)) ||
	    addr_equal(&a, &b))
		return (struct prefix){ 0 };
	return prefix_of(&a, a.family == ADDR_V4 ? 32 : 64);
}

bool conns_same_network(const struct prefix *a, const struct prefix *b)
{
	return a->bits == b->bits && addr_equal(&a->addr, &b->addr);
}

static bool may_go(const struct conn *conn)
{
	return conn->fd >= 0 && !conn->is_stream && !conn->is_dying;
}

static void end(struct conns *c, struct conn *conn)
{
	shutdown(conn->fd, SHUT_RDWR);
	conn->is_dying = true;
	c->dying++;
}

static void make_room(struct conns *c)
{
	struct conn *victim = NULL;
	size_t most = 0;

	for (size_t i = 0; i < CONNS_SIZE; i++) {
		struct conn *conn = &c->conn[i];
		size_t held = 0; /* of its network */

		if (!may_go(conn))
			continue;
		for (size_t k = 0; k < CONNS_SIZE; k++)
			held += c->conn[k].fd >= 0 && !c->conn[k].is_dying &&
				conns_same_network(&c->conn[k].network, &conn->network);
		if (held > most || (held == most && conn->since_ms < victim->since_ms)) {
			victim = conn;
			most = held;
		}
	}
	if (!victim)
		return;
	end(c, victim);
	c->evicted++;
}

struct conn *conns_take(struct conns *c, int fd, const struct prefix *network,
			int64_t now_ms)
{
	struct conn *conn;

	if (c->count - c->streams - c->dying >= API_CONNECTIONS_MAX)
		make_room(c);
	conn = c->count - c->streams < API_CONNECTIONS_MAX + CONNS_DYING_MAX
		       ? conns_find(c, -1)
		       : NULL;
	if (!conn)
		return NULL;
	*conn = (struct conn){ .fd = fd, .network = *network, .since_ms = now_ms };
	c->count++;
	return conn;
}

struct conn *conns_find(struct conns *c, int fd)
{
	for (size_t i = 0; i < CONNS_SIZE; i++)
		if (c->conn[i].fd == fd)
			return &c->conn[i];
	return NULL;
}

void conns_release(struct conns *c, struct conn *conn)
{
	c->dying -= conn->is_dying;
	c->streams -= conn->is_stream;
	c->count--;
	*conn = (struct conn){ .fd = -1 };
}

void conns_keep(struct conns *c, struct conn *conn)
{
	c->streams += !conn->is_stream;
	conn->is_stream = true;
}

void conns_expire(struct conns *c, int64_t now_ms, int64_t limit_ms)
{
	for (size_t i = 0; i < CONNS_SIZE; i++) {
		struct conn *conn = &c->conn[i];

		if (!may_go(conn) || now_ms - conn->since_ms <= limit_ms)
			continue;
		end(c, conn);
		c->timed_out++;
	}
}

/* ---- whoever shows wrong tokens ---- */

static bool is_past(int64_t since_ms, int64_t now_ms)
{
	return now_ms - since_ms >= (int64_t)FAILURES_SEC * 1000;
}

/* Its place, or the one that it would get: a free one, or the oldest. */
static size_t find_failed(const struct failures *f, const struct prefix *network,
			  bool *ret_is)
{
	size_t best = 0;

	for (size_t i = 0; i < FAILURES_NETWORKS; i++) {
		*ret_is = f->places[i].count > 0 &&
			  conns_same_network(&f->places[i].network, network);
		if (*ret_is)
			return i;
		if (f->places[best].count > 0 &&
		    (f->places[i].count == 0 ||
		     f->places[i].since_ms < f->places[best].since_ms))
			best = i;
	}
	return best;
}

void failures_add(struct failures *f, const struct prefix *network, int64_t now_ms)
{
	bool is;
	size_t i = find_failed(f, network, &is);

	if (!is || is_past(f->places[i].since_ms, now_ms)) {
		f->places[i].network = *network;
		f->places[i].count = 0;
		f->places[i].since_ms = now_ms;
	}
	f->places[i].count++;
}

uint32_t failures_wait(const struct failures *f, const struct prefix *network,
		       int64_t now_ms)
{
	bool is;
	size_t i = find_failed(f, network, &is);
	int64_t gone_ms;

	if (!is || f->places[i].count < FAILURES_MAX ||
	    is_past(f->places[i].since_ms, now_ms))
		return 0;
	gone_ms = now_ms - f->places[i].since_ms;
	return (uint32_t)(FAILURES_SEC - gone_ms / 1000);
}
