// SPDX-License-Identifier: Apache-2.0
#include "resolver/dns_service.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/special.h"
#include "resolver/tcp.h"
#include "resolver/upstream.h"

#ifndef SO_RCVMARK
#define SO_RCVMARK 75 /* since 5.19; not in Debian 12's headers */
#endif

enum {
	SEND_BATCH = 64,	  /* replies sent by one sendmmsg */
	REPLY_BYTES = 128 * 1024, /* of replies that wait; full: sent at once */
	DNS_PORT = 53,
	RANDOM_POOL = 4096, /* bytes from one getrandom() */
};

enum {
	/* Datagrams read from one socket in one turn: a sandbox that floods waits for
	 * the next turn, when all others have had theirs. */
	DNS_READ_MAX = 32,
	DNS_READ_SIZE = 2048, /* a longer datagram is malformed */
};

struct dns_read {
	struct mmsghdr headers[DNS_READ_MAX];
	struct iovec vectors[DNS_READ_MAX];
	struct sockaddr_storage peers[DNS_READ_MAX];
	_Alignas(struct cmsghdr) uint8_t control[DNS_READ_MAX][CMSG_SPACE(4)];
	uint8_t bytes[DNS_READ_MAX][DNS_READ_SIZE];
};

/* One sandbox that is served, or the sockets that many share. */
struct dns_sandbox {
	struct dns_service *service;
	struct sandbox *sandbox; /* NULL: whoever asks */
	struct dns_udp_listener {
		struct loop_source source;
		struct dns_sandbox *side;
	} udp[2]; /* IPv4, IPv6 */
	struct dns_tcp_side tcp;
	LIST_ENTRY(dns_sandbox) link;
};
LIST_HEAD(dns_sandboxes, dns_sandbox);

/* Replies over UDP, gathered in the turn. Entries of the same socket that follow each
 * other leave in one system call. */
struct reply_queue {
	size_t count, used; /* entries, bytes */
	struct sandbox *sandboxes[SEND_BATCH];
	int fds[SEND_BATCH];
	struct mmsghdr headers[SEND_BATCH];
	struct iovec vectors[SEND_BATCH];
	struct sockaddr_storage peers[SEND_BATCH];
	uint8_t bytes[REPLY_BYTES];
};

struct dns_service {
	struct loop *loop;
	struct resolver *resolver;
	struct upstreams *upstreams;
	struct dns_tcp *tcp;
	struct dns_sandboxes sides;
	struct endpoint servers[RESOLVER_UPSTREAMS_MAX];
	size_t server_count,
		given_count;  /* the others were found behind Docker's resolver */
	bool docker_reported; /* UPSTREAM_INNER: nobody was found */
	uint8_t docker;	      /* the number of Docker's resolver */
	upstream_trouble_fn *on_trouble;
	void *on_trouble_data;
	struct loop_timer tick;
	struct dns_read in;
	struct dns_shared shared; /* by_mark NULL: there is none */
	struct reply_queue out;
	size_t random_used;
	uint8_t random[RANDOM_POOL];
};

/* ---- datagrams, many at a time ---- */

/* What can't be sent is lost, as UDP may be: the client asks again. */
static void send_replies(struct reply_queue *q)
{
	for (size_t from = 0, to = 0; from < q->count;) {
		int n;

		to = MAX(to, from + 1);
		while (to < q->count && q->fds[to] == q->fds[from])
			to++;
		n = sendmmsg(q->fds[from], &q->headers[from], (unsigned int)(to - from),
			     MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n <= 0)
			q->sandboxes[from]->counters[COUNT_ANSWERS_LOST]++;
		from += n > 0 ? (size_t)n : 1;
	}
	q->count = q->used = 0;
}

static int udp_socket_for(const struct dns_service *d,
			  const struct resolver_client *client)
{
	bool v6 = client->peer.addr.family == ADDR_V6;
	const int *own = client->sandbox->fds.fd;
	int fd = own[v6 ? SANDBOX_FD_DNS_UDP6 : SANDBOX_FD_DNS_UDP4];

	return fd < 0 && d->shared.by_mark ? d->shared.udp[v6] : fd;
}

static void op_reply(void *data, const struct resolver_client *client,
		     const void *message, size_t size)
{
	struct dns_service *d = data;
	struct reply_queue *q = &d->out;
	size_t i;

	assert(size <= DNS_MESSAGE_MAX);
	if (client->tcp) {
		dns_tcp_reply(d->tcp, client->connection, message, size);
		return;
	}
	if (q->count == SEND_BATCH || size > REPLY_BYTES - q->used)
		send_replies(q);
	i = q->count++;
	q->sandboxes[i] = client->sandbox;
	q->fds[i] = udp_socket_for(d, client);
	q->vectors[i] = (struct iovec){ q->bytes + q->used, size };
	q->headers[i].msg_hdr = (struct msghdr){
		.msg_name = &q->peers[i],
		.msg_namelen = endpoint_to_sockaddr(&client->peer, &q->peers[i]),
		.msg_iov = &q->vectors[i],
		.msg_iovlen = 1,
	};
	memcpy(q->bytes + q->used, message, size);
	q->used += size;
}

static int op_send(void *data, uint32_t token, size_t server,
		   const struct sandbox *tcp_for, const void *message, size_t size)
{
	struct dns_service *d = data;

	return upstreams_send(d->upstreams, token, server, tcp_for, message, size);
}

static void op_cancel(void *data, uint32_t token)
{
	struct dns_service *d = data;

	upstreams_cancel(d->upstreams, token);
}

static int op_commit(void *data, struct sandbox *s, const struct filter_learn *items,
		     size_t count)
{
	const struct dns_service *d = data;

	return sandbox_learn(s, items, count, loop_now_ms(d->loop));
}

/* The first call, in dns_service_new(), tells whether there is randomness at all; from
 * then on the kernel doesn't fail. */
static int refill_random(struct dns_service *d)
{
	for (size_t have = 0; have < RANDOM_POOL;) {
		ssize_t n = getrandom(d->random + have, RANDOM_POOL - have, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		have += n > 0 ? (size_t)n : 0;
	}
	d->random_used = 0;
	return 0;
}

/* Bytes leave the pool as they are given out, so none is used twice. */
static void op_random(void *data, void *bytes, size_t size)
{
	struct dns_service *d = data;
	uint8_t *to = bytes;

	while (size > 0) {
		size_t n = MIN(size, RANDOM_POOL - d->random_used);

		memcpy(to, d->random + d->random_used, n);
		memset(d->random + d->random_used, 0, n);
		d->random_used += n;
		to += n;
		size -= n;
		while (d->random_used == RANDOM_POOL && refill_random(d) < 0)
			continue;
	}
}

static void op_trouble(void *data, const struct upstream_trouble *t)
{
	struct dns_service *d = data;

	d->docker_reported = d->docker_reported || t->kind == UPSTREAM_INNER;
	if (d->on_trouble)
		d->on_trouble(d->on_trouble_data, t);
}

static const struct endpoint *op_server_at(void *data, size_t server)
{
	const struct dns_service *d = data;

	return &d->servers[server];
}

static void report_behind(const struct dns_service *d, size_t server)
{
	const struct upstream_trouble t = { .kind = UPSTREAM_BEHIND,
					    .server = (uint8_t)server,
					    .at = d->servers[server] };

	if (d->on_trouble)
		d->on_trouble(d->on_trouble_data, &t);
}

void dns_service_notify_behind(const struct dns_service *d)
{
	const struct upstream_trouble nobody = { .kind = UPSTREAM_INNER,
						 .server = d->docker };

	for (size_t i = d->given_count; i < d->server_count; i++)
		report_behind(d, i);
	if (d->docker_reported && d->server_count == d->given_count && d->on_trouble)
		d->on_trouble(d->on_trouble_data, &nobody);
}

static int op_add_behind(void *data, const struct resolver_client *client)
{
	struct dns_service *d = data;
	struct sandbox *s = client->sandbox;
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);
	enum addr_special special;
	struct endpoint at, to;
	int r;

	if (client->tcp || d->server_count == RESOLVER_UPSTREAMS_MAX)
		return client->tcp ? -EPROTONOSUPPORT : -ENOBUFS;
	if (getsockname(udp_socket_for(d, client), (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	at = endpoint_from_sockaddr(&sa);
	r = filter_original(&s->filter, IPPROTO_UDP, &client->peer, &at, &to);
	if (r < 0)
		return r;
	/* Only what can be a server outside. */
	special = addr_special(&to.addr);
	if (to.port != DNS_PORT || special == SPECIAL_LOOPBACK ||
	    special == SPECIAL_UNSPECIFIED || special == SPECIAL_MULTICAST)
		return -EADDRNOTAVAIL;
	for (size_t i = 0; i < d->server_count; i++)
		if (endpoint_equal(&d->servers[i], &to))
			return (int)i;
	r = upstreams_add(d->upstreams, &to);
	if (r < 0)
		return r;
	d->servers[d->server_count++] = to;
	report_behind(d, (size_t)r);
	return r;
}

static void on_upstream_message(void *data, uint32_t token, const void *message,
				size_t size)
{
	struct dns_service *d = data;

	resolver_response(d->resolver, token, message, size, loop_now_ms(d->loop));
}

static void on_upstream_failed(void *data, uint32_t token, int error)
{
	struct dns_service *d = data;

	resolver_send_failed(d->resolver, token, error, loop_now_ms(d->loop));
}

static void on_tcp_query(void *data, const struct resolver_client *client,
			 const void *message, size_t size)
{
	struct dns_service *d = data;

	resolver_query(d->resolver, client, message, size, loop_now_ms(d->loop));
}

/* Whose query datagram @i is; NULL: nobody's. The mark, of sockets that many share, is in
 * its control data; 0: it has none. */
static struct sandbox *who_asks(const struct dns_sandbox *side, int i)
{
	const struct dns_service *d = side->service;
	struct sandbox *s = side->sandbox;

	if (!s) {
		struct msghdr m = d->in.headers[i].msg_hdr;
		const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		uint32_t mark = 0;

		if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_MARK &&
		    c->cmsg_len == CMSG_LEN(sizeof(mark)))
			memcpy(&mark, CMSG_DATA(c), sizeof(mark));
		s = d->shared.by_mark(d->shared.data, mark);
	}
	return s && dns_service_serves(s) ? s : NULL;
}

static void on_datagrams(struct loop_source *source, uint32_t events)
{
	const struct dns_sandbox *side =
		CONTAINER_OF(source, struct dns_udp_listener, source)->side;
	struct dns_service *d = side->service;
	struct dns_read *in = &d->in;
	int n;

	for (size_t i = 0; i < DNS_READ_MAX; i++) {
		in->vectors[i] = (struct iovec){ in->bytes[i], sizeof(in->bytes[i]) };
		in->headers[i].msg_hdr = (struct msghdr){
			.msg_name = &in->peers[i],
			.msg_namelen = sizeof(in->peers[i]),
			.msg_iov = &in->vectors[i],
			.msg_iovlen = 1,
			.msg_control = in->control[i],
			.msg_controllen = sizeof(in->control[i]),
		};
	}
	n = recvmmsg(source->fd, in->headers, DNS_READ_MAX, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		struct resolver_client client = {
			.sandbox = who_asks(side, i),
			.peer = endpoint_from_sockaddr(&in->peers[i]),
		};
		const struct mmsghdr *h = &in->headers[i];
		/* One that was cut is its header alone, which makes it malformed. */
		size_t size = h->msg_hdr.msg_flags & MSG_TRUNC ? DNS_HEADER_SIZE
							       : h->msg_len;

		if (client.sandbox)
			resolver_query(d->resolver, &client, in->bytes[i], size,
				       loop_now_ms(d->loop));
	}
}

static void on_tick(struct loop_timer *timer)
{
	struct dns_service *d = CONTAINER_OF(timer, struct dns_service, tick);

	resolver_tick(d->resolver, loop_now_ms(d->loop));
}

/* Without a timer slot nothing would time out: look again at the next turn, which any
 * event brings. */
static void restart_tick(struct dns_service *d)
{
	int64_t at_ms = resolver_next_ms(d->resolver);

	if (at_ms == INT64_MAX)
		loop_timer_stop(d->loop, &d->tick);
	else if (d->tick.slot == 0 || d->tick.at_ms != at_ms)
		(void)!loop_timer_start(d->loop, &d->tick, at_ms);
}

void dns_service_flush(struct dns_service *d)
{
	resolver_parked_recheck(d->resolver, loop_now_ms(d->loop));
	upstreams_flush(d->upstreams);
	resolver_flush(d->resolver, loop_now_ms(d->loop));
	if (d->out.count > 0)
		send_replies(&d->out);
	restart_tick(d);
}

void dns_service_settle(struct dns_service *d, int64_t patience_ms)
{
	int64_t until_ms = clock_now_ms() + patience_ms, left_ms = patience_ms;

	while (left_ms > 0 && !resolver_is_settled(d->resolver) &&
	       loop_turn(d->loop, (int)left_ms) == 0)
		left_ms = until_ms - clock_now_ms();
}

static void unlisten_udp(struct dns_sandbox *side)
{
	for (size_t i = 0; i < ARRAY_SIZE(side->udp); i++)
		loop_remove(side->service->loop, &side->udp[i].source);
}

static int side_open(struct dns_service *d, struct sandbox *s, const int udp[2],
		     const struct dns_tcp_listeners *tcp)
{
	CLEAN(mem) struct dns_sandbox *side = calloc(1, sizeof(*side));
	int r = 0;

	if (!side)
		return -ENOMEM;
	side->service = d;
	side->sandbox = s;
	for (size_t i = 0; i < ARRAY_SIZE(side->udp); i++) {
		side->udp[i].source.fd = udp[i];
		side->udp[i].source.on_ready = on_datagrams;
		side->udp[i].side = side;
	}
	for (size_t i = 0; i < ARRAY_SIZE(side->udp) && r == 0; i++)
		if (udp[i] >= 0)
			r = loop_add(d->loop, &side->udp[i].source, EPOLLIN);
	if (r == 0)
		r = dns_tcp_attach(d->tcp, &side->tcp, s, tcp);
	if (r < 0) {
		unlisten_udp(side);
		return r;
	}
	LIST_INSERT_HEAD(&d->sides, side, link);
	if (s)
		s->dns = side;
	side = NULL;
	return 0;
}

int dns_service_attach(struct dns_service *d, struct sandbox *s)
{
	const int *fds = s->fds.fd;
	const int udp[2] = { fds[SANDBOX_FD_DNS_UDP4], fds[SANDBOX_FD_DNS_UDP6] };
	const struct dns_tcp_listeners tcp = {
		.fd = { fds[SANDBOX_FD_DNS_TCP4], fds[SANDBOX_FD_DNS_TCP6] },
	};

	return side_open(d, s, udp, &tcp);
}

static struct dns_tcp_side *who_dials(void *data, int fd)
{
	const struct dns_service *d = data;
	const struct sandbox *s = d->shared.by_socket(d->shared.data, fd);

	return s && s->dns ? &s->dns->tcp : NULL;
}

int dns_service_share(struct dns_service *d, const struct dns_shared *shared)
{
	const struct dns_tcp_listeners tcp = {
		.fd = { shared->tcp[0], shared->tcp[1] },
		.who = who_dials,
		.data = d,
	};
	int one = 1, r;

	for (size_t i = 0; i < ARRAY_SIZE(shared->udp); i++)
		if (shared->udp[i] >= 0 && setsockopt(shared->udp[i], SOL_SOCKET,
						      SO_RCVMARK, &one, sizeof(one)) < 0)
			return -errno;
	d->shared = *shared;
	r = side_open(d, NULL, shared->udp, &tcp);
	if (r < 0)
		d->shared = (struct dns_shared){ 0 };
	return r;
}

/* Replies that wait in the queue leave first: their sockets are about to go. */
static void side_close(struct dns_service *d, struct dns_sandbox *side)
{
	LIST_REMOVE(side, link);
	if (side->sandbox) {
		side->sandbox->dns = NULL;
		resolver_detach(d->resolver, side->sandbox);
	}
	send_replies(&d->out);
	unlisten_udp(side);
	dns_tcp_detach(&side->tcp);
	free(side);
}

void dns_service_detach(struct dns_service *d, struct sandbox *s)
{
	if (s->dns)
		side_close(d, s->dns);
}

static struct resolver *open_resolver(struct dns_service *d,
				      const struct dns_service_config *config)
{
	const struct endpoint docker = {
		.addr = addr_from_bytes(ADDR_V4, (const uint8_t[]){ 127, 0, 0, 11 }),
		.port = DNS_PORT,
	};
	struct resolver_config resolver = {
		.key = config->key,
		.upstream_count = config->upstream_count,
		.try_ms = config->try_ms,
		.probe_every_ms = config->probe_every_ms,
		.probe_name = config->probe_name,
	};
	const struct resolver_ops ops = {
		.data = d,
		.send = op_send,
		.cancel = op_cancel,
		.commit = op_commit,
		.reply = op_reply,
		.random = op_random,
		.trouble = op_trouble,
		.server_at = op_server_at,
		.add_behind = op_add_behind,
	};

	for (size_t i = 0; i < config->upstream_count && config->may_come_back; i++) {
		if (!endpoint_equal(&config->upstreams[i], &docker))
			continue;
		d->docker = (uint8_t)i;
		resolver.docker_resolver = i + 1;
		break;
	}
	return resolver_new(&ops, &resolver);
}

struct dns_service *dns_service_new(const struct dns_service_config *config,
				    struct err *err)
{
	struct upstreams_config upstreams = {
		.loop = config->loop,
		.servers = config->upstreams,
		.count = config->upstream_count,
		.room = RESOLVER_UPSTREAMS_MAX - config->upstream_count,
		.own = config->own,
		.ops = { .on_message = on_upstream_message,
			 .on_failed = on_upstream_failed },
	};
	struct dns_service *d;
	int r;

	if (config->upstream_count > RESOLVER_UPSTREAMS_MAX) {
		err_set(err, -EINVAL, "%zu upstream servers, over %d",
			config->upstream_count, RESOLVER_UPSTREAMS_MAX);
		return NULL;
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		err_sys(err, -ENOMEM, "cannot start the DNS service");
		return NULL;
	}
	d->loop = config->loop;
	d->server_count = d->given_count = config->upstream_count;
	if (config->upstream_count > 0)
		memcpy(d->servers, config->upstreams,
		       config->upstream_count * sizeof(*d->servers));
	d->on_trouble = config->on_trouble;
	d->on_trouble_data = config->on_trouble_data;
	d->tick.on_fire = on_tick;
	r = refill_random(d);
	if (r == 0) {
		upstreams.ops.data = d;
		d->upstreams = upstreams_new(&upstreams);
		d->tcp = dns_tcp_new(d->loop, on_tcp_query, d);
		d->resolver = open_resolver(d, config);
		r = d->upstreams && d->tcp && d->resolver ? 0 : -ENOMEM;
	}
	if (r < 0) {
		err_sys(err, r, "cannot start the DNS service");
		dns_service_free(d);
		return NULL;
	}
	restart_tick(d); /* probes begin before anybody asks */
	return d;
}

void dns_service_free(struct dns_service *d)
{
	if (!d)
		return;
	while (!LIST_EMPTY(&d->sides))
		side_close(d, LIST_FIRST(&d->sides));
	loop_timer_stop(d->loop, &d->tick);
	resolver_free(d->resolver);
	upstreams_free(d->upstreams);
	dns_tcp_free(d->tcp);
	free(d);
}

struct resolver *dns_service_resolver(const struct dns_service *d)
{
	return d->resolver;
}
