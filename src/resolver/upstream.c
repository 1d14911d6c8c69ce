// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A request is known by the resolver's token, and found by it in a hash table. Over UDP
 * it is in the list of the socket that its message leaves from; over TCP it has a
 * connection.
 *
 * UDP
 *
 * Each server has a few sockets that new requests go to in turn. A socket is connected,
 * so the kernel drops what comes from elsewhere, and its source port is the kernel's
 * random choice. After UDP_USES_MAX requests or UDP_AGE_MS it is spent: a new socket,
 * with a new port, takes its place, and it is closed when its last request has gone. A
 * datagram goes to every request of its socket that has its message id; the resolver
 * checks the rest.
 *
 * Messages are gathered in the turn and leave together in upstreams_flush(), all for
 * one server through one socket: each on its own would cost a system call and, where
 * the server shares the core, a switch to it. Those of the same length go through the
 * network stack as one datagram that is cut at its end (UDP_SEGMENT), which a third of
 * the cost of a new name hangs on; where that is refused they go singly.
 *
 * A socket with a port of its own (sys/sock.h) is bound before it is connected.
 * What others send it in between is thrown away.
 *
 * TCP
 *
 * For a question whose UDP answer was truncated. A connection carries one message there
 * and one back, each behind its length of two bytes (RFC 1035, 4.2.2), and is reset
 * then. How long it may take is the resolver's to decide: it cancels. */
#include "resolver/upstream.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/queue.h>

#include "base/rate.h"
#include "dns/framing.h"
#include "dns/message.h"

enum {
	REQUESTS_MAX = 8192, /* outstanding; over it: -ENOBUFS */
	BUCKETS = 4096,	     /* of the map from token to request */
	BUCKET_SHIFT = 32 - 12,
};

enum {
	UDP_PER_SERVER = 4,
	UDP_USES_MAX = 64,
	UDP_AGE_MS = 10 * 1000,
	UDP_SOCKETS_MAX = 512, /* open at once; when all are, spent sockets stay in use */
	UDP_MESSAGE_MAX = 4096, /* longer datagrams are dropped */
	UDP_QUERY_MAX = 512,	/* bytes of a message that leaves */
	BATCH = 32,		/* datagrams read by one recvmmsg */
	SAME_ID_MAX = 64,	/* requests of one socket that one datagram may be for */
	ID_SIZE = 2,
	OUT_MAX = 64, /* messages that wait to leave; full: they leave at once. As many
		       * as the kernel takes segments of one send */
};
static_assert(OUT_MAX <= 64, "send_socket() has a bit for each");

enum {
	TCP_MAX = 128,	      /* connections, shared (base/rate.h); over it: -EMFILE */
	TCP_QUERY_MAX = 1024, /* bytes of a message that leaves */
};

enum socket_state {
	SOCKET_FREE = 0,
	SOCKET_CURRENT, /* takes new requests */
	SOCKET_SPENT,	/* waits for its last responses */
};

LIST_HEAD(request_list, request);

struct udp_socket {
	struct loop_source source;
	struct upstreams *owner;
	enum socket_state state;
	int error;     /* seen while sending, -errno: its requests fail */
	uint16_t port; /* its own, of sys/sock; 0: none is held */
	uint32_t uses;
	struct upstream_server *server;
	uint32_t queued; /* messages in upstreams.out */
	int64_t born_ms;
	struct request_list requests;
	struct udp_socket *next_free;
};

struct tcp_connection {
	struct loop_source source; /* fd -1: the slot is free */
	struct upstreams *owner;
	uint32_t token;
	const void *used_for; /* only to compare */
	enum addr_family family;
	uint16_t port; /* its own, of sys/sock; 0: none is held */
	size_t out_size, out_sent;
	uint8_t out[DNS_FRAME_PREFIX + TCP_QUERY_MAX];
	struct dns_framing framing; /* over `in` */
	uint8_t *in; /* owned: DNS_FRAME_PREFIX + DNS_MESSAGE_MAX, while open */
};

/* In a bucket's chain while outstanding, else in the list of free ones. */
struct request {
	uint32_t token;
	uint16_t id;		   /* first two bytes of the message */
	struct udp_socket *socket; /* NULL: no datagram is waited for */
	LIST_ENTRY(request) of_socket;
	struct tcp_connection *tcp;
	struct request *chained;
};

struct upstream_server {
	bool unsegmented; /* the path there takes one datagram at a time */
	enum addr_family family;
	struct sockaddr_storage address;
	socklen_t address_size;
	uint32_t turn; /* index into current[] of the next request */
	struct udp_socket *current[UDP_PER_SERVER];
};

/* What the kernel is told of a segmented send: the size of each datagram. */
union segment_size {
	struct cmsghdr header;
	uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
};

struct out_queue {
	size_t count;
	struct udp_socket *sockets[OUT_MAX];
	uint16_t sizes[OUT_MAX];
	uint8_t bytes[OUT_MAX][UDP_QUERY_MAX];
	/* Made from these when they leave. */
	size_t vector_count;
	struct iovec vectors[OUT_MAX];
	struct mmsghdr headers[OUT_MAX];
	union segment_size segments[OUT_MAX];
};

struct upstreams {
	struct upstreams_ops ops;
	struct loop *loop;
	struct own_ports own;
	struct upstream_server *servers; /* owned */
	size_t server_count, server_capacity;
	/* requests */
	struct request *buckets[BUCKETS];
	struct request *free_requests;
	size_t touched; /* requests[] from here on have never been used */
	struct request requests[REQUESTS_MAX];
	/* UDP */
	size_t sockets_touched; /* as above */
	struct udp_socket sockets[UDP_SOCKETS_MAX];
	struct udp_socket *free_sockets;
	struct udp_socket *reading; /* its handler runs: not to be closed */
	struct loop_timer failed_timer;
	struct out_queue out;
	struct mmsghdr headers[BATCH];
	struct iovec vectors[BATCH];
	uint8_t bytes[BATCH][UDP_MESSAGE_MAX];
	/* TCP */
	size_t connections_touched; /* as above */
	struct tcp_connection connections[TCP_MAX];
};

/* ---- requests ---- */

static void request_leave(struct request *r)
{
	LIST_REMOVE(r, of_socket);
	r->socket = NULL;
}

/* Tokens are the resolver's own, so nobody chooses them to collide. */
static struct request **bucket_of(struct upstreams *u, uint32_t token)
{
	return &u->buckets[(token * 2654435761u) >> BUCKET_SHIFT];
}

/* Where the request of @token hangs; NULL is there when none does. */
static struct request **request_find(struct upstreams *u, uint32_t token)
{
	struct request **slot = bucket_of(u, token);

	while (*slot && (*slot)->token != token)
		slot = &(*slot)->chained;
	return slot;
}

static void request_free(struct upstreams *u, struct request *r)
{
	r->chained = u->free_requests;
	u->free_requests = r;
}

/* Its transport is over. */
static void request_fail(struct upstreams *u, uint32_t token, int error)
{
	struct request **slot = request_find(u, token), *r = *slot;

	if (r->socket)
		request_leave(r);
	*slot = r->chained;
	request_free(u, r);
	u->ops.on_failed(u->ops.data, token, error);
}

/* ---- sockets ---- */

/* Connect a socket of @type, with a port of its own, to @server, and be told of @events.
 * Return: the port that is held, 0: none; or -errno. */
static int connect_to(struct upstreams *u, const struct upstream_server *server, int type,
		      struct loop_source *source, uint32_t events)
{
	const uint8_t protocol = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
	CLEAN(fd)
	int fd =
		socket(server->address.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int one = 1, port, r = 0;

	if (fd < 0)
		return -errno;
	port = own_hold(&u->own, fd, server->family, protocol);
	if (port < 0)
		return port;
	if (type == SOCK_STREAM &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		r = -errno;
	if (r == 0 &&
	    connect(fd, (const struct sockaddr *)&server->address, server->address_size) <
		    0 &&
	    errno != EINPROGRESS)
		r = -errno;
	/* From the bind to the connect anybody could send to the port. */
	while (r == 0 && type == SOCK_DGRAM && port > 0 &&
	       recv(fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
	source->fd = fd;
	if (r == 0)
		r = loop_add(u->loop, source, events);
	if (r < 0) {
		source->fd = -1;
		own_let_go(&u->own, fd, server->family, protocol, (uint16_t)port);
		return r;
	}
	TAKE_FD(fd);
	return port;
}

/* ---- UDP ---- */

static void mark_failed(struct udp_socket *s, int error)
{
	struct upstreams *u = s->owner;

	s->error = error;
	if (loop_timer_in(u->loop, &u->failed_timer, 0) < 0)
		s->uses = UDP_USES_MAX; /* its requests time out */
}

/* A header for the messages of @vectors, which are all of one size: one datagram, or
 * one that the kernel cuts. */
static void fill_header(struct msghdr *h, union segment_size *segment,
			struct iovec *vectors, size_t count)
{
	uint16_t size = (uint16_t)vectors[0].iov_len;

	*h = (struct msghdr){ .msg_iov = vectors, .msg_iovlen = count };
	if (count == 1)
		return;
	h->msg_control = segment;
	h->msg_controllen = sizeof(segment->bytes);
	segment->header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(size)),
					    .cmsg_level = SOL_UDP,
					    .cmsg_type = UDP_SEGMENT };
	memcpy(CMSG_DATA(&segment->header), &size, sizeof(size));
}

/* The messages of a header that couldn't leave as segments, each by itself. */
static void send_singly(struct udp_socket *s, const struct msghdr *h)
{
	for (size_t i = 0; i < h->msg_iovlen; i++) {
		if (send(s->source.fd, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len,
			 MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			continue;
		mark_failed(s, -errno);
		return;
	}
}

static void send_headers(struct out_queue *q, struct udp_socket *s, size_t count)
{
	for (size_t sent = 0; sent < count;) {
		struct mmsghdr *next = &q->headers[sent];
		int n = sendmmsg(s->source.fd, next, (unsigned int)(count - sent),
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		int error = errno;

		if (n > 0) {
			sent += (size_t)n;
			continue;
		}
		sent++;
		/* Devices that can't make checksums, and paths with a smaller MTU, refuse
		 * segments. */
		if (next->msg_hdr.msg_iovlen > 1 &&
		    (error == EIO || error == EINVAL || error == EMSGSIZE)) {
			s->server->unsegmented = true;
			send_singly(s, &next->msg_hdr);
		} else {
			mark_failed(s, -error);
		}
	}
}

/* All that waits for the socket of message @first. What is to go the same way leaves in
 * one piece: of the same size, if the way takes segments. @gathered has a bit for each
 * message that is in a header. */
static void send_socket(struct out_queue *q, size_t first, uint64_t *gathered)
{
	struct udp_socket *s = q->sockets[first];
	size_t headers = 0;

	q->vector_count = 0;
	for (size_t i = first; i < q->count; i++) {
		struct iovec *vectors = q->vectors + q->vector_count;
		size_t count = 0, end = s->server->unsegmented ? i + 1 : q->count;

		if (q->sockets[i] != s || *gathered >> i & 1)
			continue;
		for (size_t n = i; n < end; n++) {
			if (q->sockets[n] != s || q->sizes[n] != q->sizes[i] ||
			    *gathered >> n & 1)
				continue;
			*gathered |= UINT64_C(1) << n;
			vectors[count++] = (struct iovec){ q->bytes[n], q->sizes[n] };
		}
		fill_header(&q->headers[headers].msg_hdr, &q->segments[headers], vectors,
			    count);
		q->vector_count += count;
		headers++;
	}
	send_headers(q, s, headers);
}

void upstreams_flush(struct upstreams *u)
{
	struct out_queue *q = &u->out;
	uint64_t gathered = 0;

	for (size_t i = 0; i < q->count; i++)
		if (!(gathered >> i & 1))
			send_socket(q, i, &gathered);
	for (size_t i = 0; i < q->count; i++)
		q->sockets[i]->queued = 0;
	q->count = 0;
	for (size_t i = 0; i < u->server_count; i++)
		u->servers[i].turn++;
}

static void socket_close(struct udp_socket *s)
{
	struct upstreams *u = s->owner;

	if (s->queued > 0)
		upstreams_flush(u);
	loop_remove(u->loop, &s->source);
	own_let_go(&u->own, s->source.fd, s->server->family, IPPROTO_UDP, s->port);
	close(s->source.fd);
	s->source.fd = -1;
	s->state = SOCKET_FREE;
	s->next_free = u->free_sockets;
	u->free_sockets = s;
}

static void socket_close_if_done(struct udp_socket *s)
{
	if (s->state == SOCKET_SPENT && LIST_EMPTY(&s->requests) &&
	    s->owner->reading != s)
		socket_close(s);
}

/* All requests that wait on @s now fail. @s is upstreams.reading: it stays open
 * meanwhile. What the callbacks send goes to other sockets, or to @s where no other can
 * be had. */
static void socket_fail(struct udp_socket *s, int error)
{
	struct request_list failed = LIST_HEAD_INITIALIZER(failed);
	struct request *r;

	s->error = 0;
	s->uses = UDP_USES_MAX;
	while ((r = LIST_FIRST(&s->requests))) {
		LIST_REMOVE(r, of_socket);
		LIST_INSERT_HEAD(&failed, r, of_socket);
	}
	while ((r = LIST_FIRST(&failed)))
		request_fail(s->owner, r->token, error);
}

static void on_socket_readable(struct loop_source *source, uint32_t events)
{
	struct udp_socket *s = CONTAINER_OF(source, struct udp_socket, source);
	struct upstreams *u = s->owner;
	int n = recvmmsg(source->fd, u->headers, BATCH, MSG_DONTWAIT, NULL);

	u->reading = s;
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		socket_fail(s, -errno);
	for (int i = 0; i < n; i++) {
		const struct mmsghdr *h = &u->headers[i];
		const uint8_t *bytes = u->bytes[i];
		const struct request *r;
		uint32_t tokens[SAME_ID_MAX];
		size_t count = 0;
		uint16_t id;

		if (h->msg_hdr.msg_flags & MSG_TRUNC || h->msg_len < ID_SIZE)
			continue;
		id = (uint16_t)(bytes[0] << 8 | bytes[1]);
		/* The requests with its id are gathered first: the callbacks change the
		 * list. */
		LIST_FOREACH(r, &s->requests, of_socket)
		{
			if (r->id == id && count < SAME_ID_MAX)
				tokens[count++] = r->token;
		}
		for (size_t t = 0; t < count; t++)
			if (*request_find(u, tokens[t]))
				u->ops.on_message(u->ops.data, tokens[t], bytes,
						  h->msg_len);
	}
	u->reading = NULL;
	socket_close_if_done(s);
}

/* The socket for the next request: made anew when the old one is spent. While no new
 * one can be had the old one goes on. */
static int socket_pick(struct upstreams *u, struct upstream_server *server,
		       struct udp_socket **ret)
{
	struct udp_socket **slot = &server->current[server->turn % UDP_PER_SERVER];
	struct udp_socket *old = *slot, *s = u->free_sockets;
	int r;

	*ret = old;
	if (old && old->uses < UDP_USES_MAX &&
	    loop_now_ms(u->loop) - old->born_ms < UDP_AGE_MS)
		return 0;
	if (!s && u->sockets_touched == ARRAY_SIZE(u->sockets))
		return old ? 0 : -EMFILE;
	if (!s) { /* it stays free if it can't be connected */
		s = &u->sockets[u->sockets_touched];
		s->owner = u;
		s->source.fd = -1;
		s->source.on_ready = on_socket_readable;
	}
	r = connect_to(u, server, SOCK_DGRAM, &s->source, EPOLLIN);
	if (r < 0)
		return old ? 0 : r;
	s->port = (uint16_t)r;
	if (s == u->free_sockets)
		u->free_sockets = s->next_free;
	else
		u->sockets_touched++;
	s->server = server;
	s->state = SOCKET_CURRENT;
	s->error = 0;
	s->queued = 0;
	s->uses = 0;
	s->born_ms = loop_now_ms(u->loop);
	LIST_INIT(&s->requests);
	if (old) {
		old->state = SOCKET_SPENT;
		socket_close_if_done(old);
	}
	*ret = *slot = s;
	return 0;
}

/* Not while sending: the callbacks may send again. */
static void on_failed_timer(struct loop_timer *timer)
{
	struct upstreams *u = CONTAINER_OF(timer, struct upstreams, failed_timer);

	for (size_t i = 0; i < u->sockets_touched; i++) {
		struct udp_socket *s = &u->sockets[i];

		if (s->state == SOCKET_FREE || s->error == 0)
			continue;
		u->reading = s;
		socket_fail(s, s->error);
		u->reading = NULL;
		socket_close_if_done(s);
	}
}

static int udp_send(struct upstreams *u, struct request *request,
		    struct upstream_server *server, const void *message, size_t size)
{
	struct out_queue *q = &u->out;
	const uint8_t *bytes = message;
	struct udp_socket *s;
	int r;

	if (size < ID_SIZE || size > UDP_QUERY_MAX)
		return -EMSGSIZE;
	if (q->count == OUT_MAX)
		upstreams_flush(u);
	r = socket_pick(u, server, &s);
	if (r < 0)
		return r;
	s->uses++;
	s->queued++;
	q->sockets[q->count] = s;
	q->sizes[q->count] = (uint16_t)size;
	memcpy(q->bytes[q->count++], message, size);
	request->id = (uint16_t)(bytes[0] << 8 | bytes[1]);
	request->socket = s;
	LIST_INSERT_HEAD(&s->requests, request, of_socket);
	return 0;
}

/* ---- TCP ---- */

/* Nothing that it could still say is wanted. So the connection ends by a reset: after an
 * end that is said first its port would be taken for a minute, towards this server, from
 * everybody on the machine. */
static void tcp_close(struct tcp_connection *c)
{
	if (c->source.fd < 0)
		return;
	loop_remove(c->owner->loop, &c->source);
	sock_reset(c->source.fd);
	own_let_go(&c->owner->own, c->source.fd, c->family, IPPROTO_TCP, c->port);
	close(c->source.fd);
	c->source.fd = -1;
	free(TAKE_PTR(c->in));
}

static void tcp_fail(struct tcp_connection *c, int error)
{
	tcp_close(c);
	request_fail(c->owner, c->token, error);
}

static void connection_read(struct tcp_connection *c)
{
	struct upstreams *u = c->owner;
	const uint32_t token = c->token;
	const struct request *request;
	const uint8_t *message;
	uint8_t *to, *in;
	size_t size, room = dns_framing_room(&c->framing, &to);
	ssize_t n = recv(c->source.fd, to, room, MSG_DONTWAIT);
	int r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		tcp_fail(c, n < 0 ? -errno : -ECONNRESET);
		return;
	}
	dns_framing_received(&c->framing, (size_t)n);
	r = dns_framing_next(&c->framing, &message, &size);
	if (r < 0)
		tcp_fail(c, r);
	if (r <= 0)
		return;
	/* The whole message is there, and the connection is over with it: the message is
	 * the one that was wanted, or the request has failed. Closed first, since the
	 * callback may want the slot. */
	in = TAKE_PTR(c->in); /* where the message lies */
	tcp_close(c);
	(*request_find(u, token))->tcp = NULL;
	u->ops.on_message(u->ops.data, token, message, size);
	request = *request_find(u, token);
	if (request && !request->tcp && !request->socket)
		request_fail(u, token, -EBADMSG);
	free(in);
}

static void on_connection_ready(struct loop_source *source, uint32_t events)
{
	struct tcp_connection *c = CONTAINER_OF(source, struct tcp_connection, source);
	ssize_t n;
	int r = 0;

	if (c->out_sent < c->out_size) {
		n = send(source->fd, c->out + c->out_sent, c->out_size - c->out_sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			r = -errno;
		c->out_sent += n > 0 ? (size_t)n : 0;
		if (c->out_sent == c->out_size)
			r = loop_modify(c->owner->loop, source, EPOLLIN);
		if (r < 0) {
			tcp_fail(c, r);
			return;
		}
	}
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		connection_read(c);
}

/* A server may be slow for the names of one sandbox: others have connections left.
 * Return: a slot for one more of @tcp_for's, or NULL. */
static struct tcp_connection *free_connection(struct upstreams *u, const void *tcp_for)
{
	struct tcp_connection *c, *unused = NULL;
	size_t mine = 0, used = 0;

	for (c = u->connections; c < u->connections + u->connections_touched; c++) {
		if (c->source.fd < 0 && !unused)
			unused = c;
		used += c->source.fd >= 0;
		mine += c->source.fd >= 0 && c->used_for == tcp_for;
	}
	if (!share_has_room(mine, used, ARRAY_SIZE(u->connections)))
		return NULL;
	if (unused || u->connections_touched == ARRAY_SIZE(u->connections))
		return unused;
	c = &u->connections[u->connections_touched++];
	c->owner = u;
	c->source.fd = -1;
	c->source.on_ready = on_connection_ready;
	return c;
}

static int tcp_send(struct upstreams *u, struct request *request,
		    const struct upstream_server *server, const void *tcp_for,
		    const void *message, size_t size)
{
	struct tcp_connection *c;
	int r;

	if (size == 0 || size > TCP_QUERY_MAX)
		return -EMSGSIZE;
	c = free_connection(u, tcp_for);
	if (!c)
		return -EMFILE;
	c->in = malloc(DNS_FRAME_PREFIX + DNS_MESSAGE_MAX);
	if (!c->in)
		return -ENOMEM;
	dns_framing_init(&c->framing, c->in, DNS_FRAME_PREFIX + DNS_MESSAGE_MAX);
	dns_framing_write_prefix(c->out, size);
	memcpy(c->out + DNS_FRAME_PREFIX, message, size);
	c->out_size = DNS_FRAME_PREFIX + size;
	c->out_sent = 0;
	c->token = request->token;
	c->used_for = tcp_for;
	c->family = server->family;
	r = connect_to(u, server, SOCK_STREAM, &c->source, EPOLLIN | EPOLLOUT);
	if (r < 0) {
		free(TAKE_PTR(c->in));
		return r;
	}
	c->port = (uint16_t)r;
	request->tcp = c;
	return 0;
}

/* ---- both ---- */

int upstreams_send(struct upstreams *u, uint32_t token, size_t server,
		   const void *tcp_for, const void *message, size_t size)
{
	struct request **bucket, *r;
	int error;

	if (server >= u->server_count)
		return -EINVAL;
	upstreams_cancel(u, token);
	r = u->free_requests;
	if (r)
		u->free_requests = r->chained;
	else if (u->touched < REQUESTS_MAX)
		r = &u->requests[u->touched++];
	else
		return -ENOBUFS;
	*r = (struct request){ .token = token };
	error = tcp_for ? tcp_send(u, r, &u->servers[server], tcp_for, message, size)
			: udp_send(u, r, &u->servers[server], message, size);
	if (error < 0) {
		request_free(u, r);
		return error;
	}
	bucket = bucket_of(u, token);
	r->chained = *bucket;
	*bucket = r;
	return 0;
}

void upstreams_cancel(struct upstreams *u, uint32_t token)
{
	struct request **slot = request_find(u, token), *r = *slot;
	struct udp_socket *s;

	if (!r)
		return;
	*slot = r->chained;
	s = r->socket;
	if (s) {
		request_leave(r);
		socket_close_if_done(s);
	}
	if (r->tcp)
		tcp_close(r->tcp);
	request_free(u, r);
}

int upstreams_add(struct upstreams *u, const struct endpoint *server)
{
	struct upstream_server *s = &u->servers[u->server_count];

	if (u->server_count == u->server_capacity)
		return -ENOBUFS;
	s->family = server->addr.family;
	s->address_size = endpoint_to_sockaddr(server, &s->address);
	return (int)u->server_count++;
}

struct upstreams *upstreams_new(const struct upstreams_config *config)
{
	struct upstreams *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->ops = config->ops;
	u->loop = config->loop;
	u->own = config->own;
	u->server_capacity = config->count + config->room;
	u->servers = calloc(MAX(u->server_capacity, (size_t)1), sizeof(*u->servers));
	if (!u->servers) {
		free(u);
		return NULL;
	}
	for (size_t i = 0; i < config->count; i++)
		(void)!upstreams_add(u, &config->servers[i]); /* there is room */
	u->failed_timer.on_fire = on_failed_timer;
	for (size_t i = 0; i < BATCH; i++) {
		u->vectors[i] = (struct iovec){ u->bytes[i], sizeof(u->bytes[i]) };
		u->headers[i].msg_hdr.msg_iov = &u->vectors[i];
		u->headers[i].msg_hdr.msg_iovlen = 1;
	}
	return u;
}

void upstreams_free(struct upstreams *u)
{
	if (!u)
		return;
	loop_timer_stop(u->loop, &u->failed_timer);
	for (size_t i = 0; i < u->sockets_touched; i++)
		if (u->sockets[i].state != SOCKET_FREE)
			socket_close(&u->sockets[i]);
	for (size_t i = 0; i < u->connections_touched; i++)
		tcp_close(&u->connections[i]);
	free(u->servers);
	free(u);
}
