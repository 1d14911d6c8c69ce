// SPDX-License-Identifier: Apache-2.0
#include "resolver/upstream_udp.h"

#include <assert.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

enum {
	BATCH = 32,	  /* datagrams read by one recvmmsg */
	SAME_ID_MAX = 64, /* requests of one socket that one datagram may be for */
	ID_SIZE = 2,
	OUT_MAX = 64, /* messages that wait to leave; full: they leave at once. As many
		       * as the kernel takes segments of one send */
};

static_assert(OUT_MAX <= 64, "send_socket() has a bit for each");

enum socket_state {
	SOCKET_FREE = 0,
	SOCKET_CURRENT, /* takes new requests */
	SOCKET_SPENT,	/* waits for its last responses */
};

struct upstream_udp_socket {
	struct loop_source source;
	struct upstream_udp *owner;
	enum socket_state state;
	int error;     /* seen while sending, -errno: its requests fail */
	uint16_t port; /* its own, of sys/self_ports; 0: none is held */
	uint32_t uses;
	struct server *server;
	uint32_t queued; /* messages in upstream_udp.out */
	int64_t born_ms;
	struct upstream_udp_request *requests;
	struct upstream_udp_socket *next_free;
};

struct server {
	bool unsegmented; /* the way there takes one datagram at a time */
	enum addr_family family;
	struct sockaddr_storage address;
	socklen_t address_size;
	uint32_t turn; /* index into current[] of the next request */
	struct upstream_udp_socket *current[UPSTREAM_UDP_PER_SERVER];
};

/* What the kernel is told of a segmented send: the size of each datagram. */
union segment_size {
	struct cmsghdr header;
	uint8_t bytes[CMSG_SPACE(sizeof(uint16_t))];
};

struct out_queue {
	size_t count;
	struct upstream_udp_socket *sockets[OUT_MAX];
	uint16_t sizes[OUT_MAX];
	uint8_t bytes[OUT_MAX][UPSTREAM_UDP_QUERY_MAX];
	/* Made from these when they leave. */
	size_t vector_count;
	struct iovec vectors[OUT_MAX];
	struct mmsghdr headers[OUT_MAX];
	union segment_size segments[OUT_MAX];
};

struct upstream_udp {
	struct upstream_udp_config config;
	struct server *servers; /* owned, config.count of them */
	struct upstream_udp_socket sockets[UPSTREAM_UDP_SOCKETS_MAX];
	struct upstream_udp_socket *free_sockets;
	struct upstream_udp_socket *reading; /* its handler runs: not to be closed */
	struct loop_timer failed_timer;
	struct out_queue out;
	struct mmsghdr headers[BATCH];
	struct iovec vectors[BATCH];
	uint8_t bytes[BATCH][UPSTREAM_UDP_MESSAGE_MAX];
};

static void request_leave(struct upstream_udp_request *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		r->socket->requests = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->prev = r->next = NULL;
	r->socket = NULL;
}

static void request_join(struct upstream_udp_request *r, struct upstream_udp_socket *s)
{
	r->socket = s;
	r->prev = NULL;
	r->next = s->requests;
	if (s->requests)
		s->requests->prev = r;
	s->requests = r;
}

static void mark_failed(struct upstream_udp_socket *s, int error)
{
	struct upstream_udp *u = s->owner;

	s->error = error;
	if (loop_timer_start(u->config.loop, &u->failed_timer,
			     loop_now_ms(u->config.loop)) < 0)
		s->uses = UPSTREAM_UDP_USES_MAX; /* its requests time out */
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

/* Gather what is to go the same way as message @first: on the same socket, of the same
 * size if the way takes segments, and not gathered yet (@gathered has a bit for each).
 * Return: how many vectors were filled. */
static size_t gather(struct out_queue *q, size_t first, uint64_t *gathered)
{
	const struct upstream_udp_socket *s = q->sockets[first];
	struct iovec *vectors = q->vectors + q->vector_count;
	size_t count = 0, end = s->server->unsegmented ? first + 1 : q->count;

	for (size_t i = first; i < end; i++) {
		if (q->sockets[i] != s || q->sizes[i] != q->sizes[first] ||
		    *gathered >> i & 1)
			continue;
		*gathered |= UINT64_C(1) << i;
		vectors[count++] = (struct iovec){ q->bytes[i], q->sizes[i] };
	}
	return count;
}

/* The messages of a header that couldn't leave as segments, each by itself. */
static void send_singly(struct upstream_udp_socket *s, const struct msghdr *h)
{
	for (size_t i = 0; i < h->msg_iovlen; i++) {
		if (send(s->source.fd, h->msg_iov[i].iov_base, h->msg_iov[i].iov_len,
			 MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			continue;
		mark_failed(s, -errno);
		return;
	}
}

/* Devices that can't make checksums, and paths with a smaller MTU, refuse segments. */
static bool is_refusal_of_segments(const struct msghdr *h, int error)
{
	return h->msg_iovlen > 1 &&
	       (error == EIO || error == EINVAL || error == EMSGSIZE);
}

static void send_headers(struct out_queue *q, struct upstream_udp_socket *s, size_t count)
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
		if (is_refusal_of_segments(&next->msg_hdr, error)) {
			s->server->unsegmented = true;
			send_singly(s, &next->msg_hdr);
		} else {
			mark_failed(s, -error);
		}
	}
}

/* All that waits for the socket of message @first. */
static void send_socket(struct out_queue *q, size_t first, uint64_t *gathered)
{
	struct upstream_udp_socket *s = q->sockets[first];
	size_t headers = 0;

	q->vector_count = 0;
	for (size_t i = first; i < q->count; i++) {
		size_t count;

		if (q->sockets[i] != s || *gathered >> i & 1)
			continue;
		count = gather(q, i, gathered);
		fill_header(&q->headers[headers].msg_hdr, &q->segments[headers],
			    q->vectors + q->vector_count, count);
		q->vector_count += count;
		headers++;
	}
	send_headers(q, s, headers);
}

void upstream_udp_flush(struct upstream_udp *u)
{
	struct out_queue *q = &u->out;
	uint64_t gathered = 0;

	for (size_t i = 0; i < q->count; i++)
		if (!(gathered >> i & 1))
			send_socket(q, i, &gathered);
	for (size_t i = 0; i < q->count; i++)
		q->sockets[i]->queued = 0;
	q->count = 0;
	for (size_t i = 0; i < u->config.count; i++)
		u->servers[i].turn++;
}

static void socket_close(struct upstream_udp_socket *s)
{
	struct upstream_udp *u = s->owner;

	if (s->queued > 0)
		upstream_udp_flush(u);
	loop_remove(u->config.loop, &s->source);
	own_let_go(&u->config.own, s->source.fd, s->server->family, IPPROTO_UDP, s->port);
	close(s->source.fd);
	s->source.fd = -1;
	s->state = SOCKET_FREE;
	s->next_free = u->free_sockets;
	u->free_sockets = s;
}

static void socket_close_if_done(struct upstream_udp_socket *s)
{
	if (s->state == SOCKET_SPENT && !s->requests && s->owner->reading != s)
		socket_close(s);
}

/* All that wait on @s fail. What the callbacks send goes to other sockets. */
static void socket_fail(struct upstream_udp_socket *s, int error)
{
	const struct upstream_udp_config *config = &s->owner->config;

	s->error = 0;
	s->uses = UPSTREAM_UDP_USES_MAX;
	while (s->requests) {
		struct upstream_udp_request *r = s->requests;

		request_leave(r);
		config->on_failed(config->data, r->token, error);
	}
}

/* Hand one datagram to the requests with its id. They are gathered first: the
 * callbacks change the list. */
static void deliver(struct upstream_udp_socket *s, const uint8_t *bytes, size_t size)
{
	const struct upstream_udp_config *config = &s->owner->config;
	uint16_t id = (uint16_t)(bytes[0] << 8 | bytes[1]);
	uint32_t tokens[SAME_ID_MAX];
	size_t count = 0;

	for (const struct upstream_udp_request *r = s->requests; r && count < SAME_ID_MAX;
	     r = r->next)
		if (r->id == id)
			tokens[count++] = r->token;
	for (size_t i = 0; i < count; i++)
		config->on_message(config->data, tokens[i], bytes, size);
}

static void read_batch(struct upstream_udp_socket *s)
{
	struct upstream_udp *u = s->owner;
	int n = recvmmsg(s->source.fd, u->headers, BATCH, MSG_DONTWAIT, NULL);

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			socket_fail(s, -errno);
		return;
	}
	for (int i = 0; i < n; i++) {
		bool whole = !(u->headers[i].msg_hdr.msg_flags & MSG_TRUNC);

		if (whole && u->headers[i].msg_len >= ID_SIZE)
			deliver(s, u->bytes[i], u->headers[i].msg_len);
	}
}

static void on_readable(struct loop_source *source, uint32_t events)
{
	struct upstream_udp_socket *s =
		CONTAINER_OF(source, struct upstream_udp_socket, source);

	s->owner->reading = s;
	read_batch(s);
	s->owner->reading = NULL;
	socket_close_if_done(s);
}

static int connect_and_add(struct upstream_udp *u, const struct server *server,
			   struct upstream_udp_socket *s, int fd)
{
	int r;

	if (connect(fd, (const struct sockaddr *)&server->address, server->address_size) <
	    0)
		return -errno;
	/* From the bind to the connect anybody could send to the port. */
	while (s->port > 0 && recv(fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0)
		;
	s->source.fd = fd;
	r = loop_add(u->config.loop, &s->source, EPOLLIN);
	if (r < 0)
		s->source.fd = -1;
	return r;
}

static int socket_connect(struct upstream_udp *u, const struct server *server,
			  struct upstream_udp_socket *s)
{
	CLEAN(fd)
	int fd = socket(server->address.ss_family,
			SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = own_hold(&u->config.own, fd, server->family, IPPROTO_UDP);
	if (r < 0)
		return r;
	s->port = (uint16_t)r;
	r = connect_and_add(u, server, s, fd);
	if (r < 0) {
		own_let_go(&u->config.own, fd, server->family, IPPROTO_UDP, s->port);
		return r;
	}
	TAKE_FD(fd);
	return 0;
}

/* Return: a new current socket, or NULL and errno in *ret_error. */
static struct upstream_udp_socket *socket_open(struct upstream_udp *u,
					       struct server *server, int *ret_error)
{
	struct upstream_udp_socket *s = u->free_sockets;

	*ret_error = -EMFILE;
	if (!s)
		return NULL;
	*ret_error = socket_connect(u, server, s);
	if (*ret_error < 0)
		return NULL;
	u->free_sockets = s->next_free;
	s->server = server;
	s->state = SOCKET_CURRENT;
	s->error = 0;
	s->queued = 0;
	s->uses = 0;
	s->born_ms = loop_now_ms(u->config.loop);
	s->requests = NULL;
	return s;
}

static bool is_spent(const struct upstream_udp_socket *s, int64_t now_ms)
{
	return s->uses >= UPSTREAM_UDP_USES_MAX ||
	       now_ms - s->born_ms >= UPSTREAM_UDP_AGE_MS;
}

/* The socket for the next request: made anew when the old one is spent. While no new
 * one can be had the old one goes on. */
static int socket_pick(struct upstream_udp *u, struct server *server,
		       struct upstream_udp_socket **ret)
{
	struct upstream_udp_socket **slot =
		&server->current[server->turn % UPSTREAM_UDP_PER_SERVER];
	struct upstream_udp_socket *old = *slot, *fresh;
	int r;

	*ret = old;
	if (old && !is_spent(old, loop_now_ms(u->config.loop)))
		return 0;
	fresh = socket_open(u, server, &r);
	if (!fresh)
		return old ? 0 : r;
	if (old) {
		old->state = SOCKET_SPENT;
		socket_close_if_done(old);
	}
	*ret = *slot = fresh;
	return 0;
}

/* Not while sending: the callbacks may send again. */
static void on_failed_timer(struct loop_timer *timer)
{
	struct upstream_udp *u = CONTAINER_OF(timer, struct upstream_udp, failed_timer);

	for (size_t i = 0; i < ARRAY_SIZE(u->sockets); i++) {
		struct upstream_udp_socket *s = &u->sockets[i];

		if (s->state == SOCKET_FREE || s->error == 0)
			continue;
		socket_fail(s, s->error);
		socket_close_if_done(s);
	}
}

static void queue_message(struct out_queue *q, struct upstream_udp_socket *s,
			  const void *message, size_t size)
{
	size_t i = q->count++;

	q->sockets[i] = s;
	s->queued++;
	q->sizes[i] = (uint16_t)size;
	memcpy(q->bytes[i], message, size);
}

int upstream_udp_send(struct upstream_udp *u, struct upstream_udp_request *request,
		      size_t server, const void *message, size_t size)
{
	const uint8_t *bytes = message;
	struct upstream_udp_socket *s;
	int r;

	if (size < ID_SIZE || size > UPSTREAM_UDP_QUERY_MAX)
		return -EMSGSIZE;
	if (u->out.count == OUT_MAX)
		upstream_udp_flush(u);
	r = socket_pick(u, &u->servers[server], &s);
	if (r < 0)
		return r;
	s->uses++;
	queue_message(&u->out, s, message, size);
	request->id = (uint16_t)(bytes[0] << 8 | bytes[1]);
	request_join(request, s);
	return 0;
}

void upstream_udp_cancel(struct upstream_udp *u, struct upstream_udp_request *request)
{
	struct upstream_udp_socket *s = request->socket;

	if (!s)
		return;
	request_leave(request);
	socket_close_if_done(s);
}

static void prepare_batch(struct upstream_udp *u)
{
	for (size_t i = 0; i < BATCH; i++) {
		u->vectors[i] = (struct iovec){ u->bytes[i], sizeof(u->bytes[i]) };
		u->headers[i].msg_hdr.msg_iov = &u->vectors[i];
		u->headers[i].msg_hdr.msg_iovlen = 1;
	}
}

static void prepare_sockets(struct upstream_udp *u)
{
	for (size_t i = ARRAY_SIZE(u->sockets); i-- > 0;) {
		struct upstream_udp_socket *s = &u->sockets[i];

		s->owner = u;
		s->source.fd = -1;
		s->source.on_ready = on_readable;
		s->next_free = u->free_sockets;
		u->free_sockets = s;
	}
}

static void prepare_server(struct server *s, const struct endpoint *at)
{
	s->family = at->addr.family;
	s->address_size = endpoint_to_sockaddr(at, &s->address);
}

void upstream_udp_add(struct upstream_udp *u, const struct endpoint *server)
{
	prepare_server(&u->servers[u->config.count++], server);
}

struct upstream_udp *upstream_udp_new(const struct upstream_udp_config *config)
{
	struct upstream_udp *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->config = *config;
	u->servers =
		calloc(MAX(config->count + config->room, (size_t)1), sizeof(*u->servers));
	if (!u->servers) {
		free(u);
		return NULL;
	}
	for (size_t i = 0; i < config->count; i++)
		prepare_server(&u->servers[i], &config->servers[i]);
	u->failed_timer.on_fire = on_failed_timer;
	prepare_batch(u);
	prepare_sockets(u);
	return u;
}

void upstream_udp_free(struct upstream_udp *u)
{
	if (!u)
		return;
	loop_timer_stop(u->config.loop, &u->failed_timer);
	for (size_t i = 0; i < ARRAY_SIZE(u->sockets); i++)
		if (u->sockets[i].state != SOCKET_FREE)
			socket_close(&u->sockets[i]);
	free(u->servers);
	free(u);
}
