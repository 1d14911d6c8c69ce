// SPDX-License-Identifier: Apache-2.0
#include "resolver/tcp.h"

#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "base/rate.h"
#include "dns/framing.h"
#include "sys/sock.h"

enum {
	INDEX_BITS = 10,	   /* of a handle; the rest is the generation */
	KERNEL_BUFFER = 64 * 1024, /* of replies, in the kernel */
};
static_assert(DNS_TCP_OUT_MAX >= DNS_FRAME_PREFIX + DNS_MESSAGE_MAX, "one always fits");
static_assert(DNS_TCP_CONNECTIONS_MAX == 1 << INDEX_BITS, "handles hold the index");

struct dns_tcp_connection {
	struct loop_source source; /* fd -1: the slot is free */
	struct loop_timer timer;   /* fires no later than the deadline below */
	struct dns_tcp *owner;
	struct dns_tcp_side *side;
	LIST_ENTRY(dns_tcp_connection) of_side;
	struct dns_tcp_connection *next_free;
	uint32_t handle;
	struct endpoint peer, asked; /* no address: not known */
	uint32_t unanswered;
	bool at_end;		 /* the client sends no more; it still gets its replies */
	int64_t active_ms;	 /* the last message or reply */
	int64_t message_from_ms; /* the first byte of the one that isn't whole yet */
	int64_t written_ms;	 /* the last progress of `out` */
	struct dns_framing framing; /* over `in` */
	uint8_t in[DNS_FRAME_PREFIX + DNS_TCP_MESSAGE_MAX];
	uint8_t *out; /* owned; NULL while the kernel takes everything */
	size_t out_size, out_sent;
};

struct dns_tcp {
	struct loop *loop;
	dns_tcp_query_fn *on_query;
	void *data;
	int spare_fd; /* of all listeners; -1 while it is gone */
	struct dns_tcp_connection *slots[DNS_TCP_CONNECTIONS_MAX]; /* owned */
	uint32_t slot_count, open_count;
	struct dns_tcp_connection *free_slots;
};

static bool is_open(const struct dns_tcp_connection *c)
{
	return c->source.fd >= 0;
}

/* The slot stays allocated: a handler that is still running may look at it. */
static void connection_close(struct dns_tcp_connection *c)
{
	struct dns_tcp *t = c->owner;

	loop_remove(t->loop, &c->source);
	loop_timer_stop(t->loop, &c->timer);
	close(c->source.fd);
	c->source.fd = -1;
	free(TAKE_PTR(c->out));
	LIST_REMOVE(c, of_side);
	c->side->connections--;
	t->open_count--;
	c->handle += DNS_TCP_CONNECTIONS_MAX;
	c->next_free = t->free_slots;
	t->free_slots = c;
}

static void connection_reset(struct dns_tcp_connection *c)
{
	sock_reset(c->source.fd);
	connection_close(c);
}

static size_t out_left(const struct dns_tcp_connection *c)
{
	return c->out ? c->out_size - c->out_sent : 0;
}

/* When the connection is to be ended if nothing happens until then. */
static int64_t deadline(const struct dns_tcp_connection *c)
{
	int64_t at_ms =
		c->active_ms + (c->unanswered > 0 ? DNS_TCP_ANSWER_MS : DNS_TCP_IDLE_MS);

	if (dns_framing_is_within(&c->framing))
		at_ms = MIN(at_ms, c->message_from_ms + DNS_TCP_MESSAGE_MS);
	if (out_left(c) > 0)
		at_ms = MIN(at_ms, c->written_ms + DNS_TCP_WRITE_MS);
	return at_ms;
}

/* Read while the client may ask more, write while replies wait. Closes the connection
 * when neither will ever be. A deadline may have come nearer than the timer knows. */
static void update(struct dns_tcp_connection *c)
{
	struct loop *loop = c->owner->loop;
	uint32_t events = 0;
	int64_t at_ms;

	if (c->at_end && c->unanswered == 0 && out_left(c) == 0) {
		connection_close(c);
		return;
	}
	if (!c->at_end && out_left(c) == 0 && c->unanswered < DNS_TCP_UNANSWERED_MAX)
		events |= EPOLLIN;
	if (out_left(c) > 0)
		events |= EPOLLOUT;
	at_ms = deadline(c);
	if (loop_modify(loop, &c->source, events) < 0 ||
	    loop_timer_by(loop, &c->timer, at_ms) < 0)
		connection_reset(c);
}

/* Every deadline lies at least this far ahead, so one timer that looks again is
 * enough: moving it for each message would cost more. */
static void on_timer(struct loop_timer *timer)
{
	struct dns_tcp_connection *c =
		CONTAINER_OF(timer, struct dns_tcp_connection, timer);
	struct loop *loop = c->owner->loop;
	int64_t at_ms = deadline(c);
	bool clean = !dns_framing_is_within(&c->framing) && out_left(c) == 0;

	if (at_ms > loop_now_ms(loop) && loop_timer_start(loop, timer, at_ms) == 0)
		return;
	if (clean)
		connection_close(c);
	else
		connection_reset(c);
}

static bool may_ask(const struct dns_tcp_connection *c)
{
	return is_open(c) && c->unanswered < DNS_TCP_UNANSWERED_MAX;
}

/* Hand over what is whole, until too many replies are due. */
static void hand_over_all(struct dns_tcp_connection *c)
{
	enum { FLAGS_AT = 2, RESPONSE = 0x80 };
	struct dns_tcp *t = c->owner;
	const uint8_t *message;
	size_t size;

	while (may_ask(c)) {
		struct resolver_client client;
		int r = dns_framing_next(&c->framing, &message, &size);

		if (r == 0)
			return;
		/* What the resolver wouldn't answer must not come to it: a reply would be
		 * due for ever. */
		if (r < 0 || size < DNS_HEADER_SIZE || message[FLAGS_AT] & RESPONSE) {
			connection_reset(c);
			return;
		}
		client = (struct resolver_client){
			.sandbox = c->side->sandbox,
			.connection = c->handle,
			.tcp = true,
			.peer = c->peer,
			.asked = c->asked,
		};
		c->active_ms = c->message_from_ms = loop_now_ms(t->loop);
		c->unanswered++;
		t->on_query(t->data, &client, message, size);
	}
}

/* Look first, then take from the socket what was used: what isn't, because replies are
 * due, waits in the kernel. One look a turn keeps a busy client from starving others. */
static void read_some(struct dns_tcp_connection *c)
{
	uint8_t *to;
	size_t room = dns_framing_room(&c->framing, &to);
	int fd = c->source.fd;
	ssize_t n = recv(fd, to, room, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == 0) {
		c->at_end = true;
		dns_framing_put_back(&c->framing);
		return;
	}
	if (n < 0) {
		connection_reset(c);
		return;
	}
	if (!dns_framing_is_within(&c->framing))
		c->message_from_ms = loop_now_ms(c->owner->loop);
	dns_framing_received(&c->framing, (size_t)n);
	hand_over_all(c);
	if (is_open(c) && !may_ask(c))
		n -= (ssize_t)dns_framing_put_back(&c->framing);
	if (is_open(c) && recv(fd, NULL, (size_t)n, MSG_TRUNC | MSG_DONTWAIT) != n)
		connection_reset(c);
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct dns_tcp_connection *c =
		CONTAINER_OF(source, struct dns_tcp_connection, source);
	ssize_t n = 0;

	if (events & (EPOLLERR | EPOLLHUP)) {
		connection_reset(c);
		return;
	}
	if (events & EPOLLOUT) {
		n = send(c->source.fd, c->out + c->out_sent, out_left(c),
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			connection_reset(c);
	}
	if (n > 0) {
		c->out_sent += (size_t)n;
		c->written_ms = loop_now_ms(c->owner->loop);
		if (out_left(c) == 0)
			free(TAKE_PTR(c->out));
	}
	if (is_open(c) && (events & EPOLLIN))
		read_some(c);
	if (is_open(c))
		update(c);
}

/* Keep what the kernel didn't take. Return: false when it is too much. */
static bool keep(struct dns_tcp_connection *c, const struct iovec *parts, size_t skip)
{
	if (!c->out) {
		c->out = malloc(DNS_TCP_OUT_MAX);
		if (!c->out)
			return false;
		c->out_size = c->out_sent = 0;
		c->written_ms = loop_now_ms(c->owner->loop);
	}
	for (size_t i = 0; i < 2; i++) {
		size_t from = MIN(skip, parts[i].iov_len);
		size_t size = parts[i].iov_len - from;

		skip -= from;
		if (size > DNS_TCP_OUT_MAX - c->out_size)
			return false;
		memcpy(c->out + c->out_size, (const uint8_t *)parts[i].iov_base + from,
		       size);
		c->out_size += size;
	}
	return true;
}

void dns_tcp_reply(struct dns_tcp *t, uint32_t handle, const void *message, size_t size)
{
	const uint32_t index = handle & (DNS_TCP_CONNECTIONS_MAX - 1);
	struct dns_tcp_connection *c = index < t->slot_count ? t->slots[index] : NULL;
	uint8_t length[DNS_FRAME_PREFIX];
	struct iovec parts[2] = {
		{ length, sizeof(length) },
		{ (void *)(uintptr_t)message, size },
	};
	struct msghdr header = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t n = 0;

	if (!c || !is_open(c) || c->handle != handle)
		return;
	dns_framing_write_prefix(length, size);
	c->active_ms = loop_now_ms(t->loop);
	c->unanswered -= c->unanswered > 0;
	if (!c->out) {
		n = sendmsg(c->source.fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			n = 0;
	}
	if (n < 0 || ((size_t)n < sizeof(length) + size && !keep(c, parts, (size_t)n))) {
		connection_reset(c);
		return;
	}
	update(c);
}

/* Serve @fd, which is then owned by the connection. Return: false: not possible. */
static bool connection_open(struct dns_tcp_side *side, int fd)
{
	struct dns_tcp *t = side->tcp;
	struct dns_tcp_connection *c = t->free_slots;
	int one = 1, buffer = KERNEL_BUFFER;

	if (c) {
		t->free_slots = c->next_free;
	} else {
		c = t->slot_count < DNS_TCP_CONNECTIONS_MAX ? calloc(1, sizeof(*c))
							    : NULL;
		if (!c)
			return false;
		c->owner = t;
		c->handle = t->slot_count;
		c->source.on_ready = on_ready;
		c->timer.on_fire = on_timer;
		t->slots[t->slot_count++] = c;
	}
	/* Without them a connection is slower or takes more memory: no failure. */
	(void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	c->source.fd = fd;
	c->unanswered = 0;
	c->at_end = false;
	c->out_size = c->out_sent = 0;
	if (sock_ends(fd, &c->peer, &c->asked) < 0)
		c->peer = c->asked = (struct endpoint){ .port = 0 };
	dns_framing_init(&c->framing, c->in, sizeof(c->in));
	c->active_ms = loop_now_ms(t->loop);
	c->side = side;
	LIST_INSERT_HEAD(&side->open, c, of_side);
	side->connections++;
	t->open_count++;
	if (loop_add(t->loop, &c->source, EPOLLIN) < 0 ||
	    loop_timer_start(t->loop, &c->timer, deadline(c)) < 0)
		connection_reset(c);
	return true;
}

static bool may_open(const struct dns_tcp_side *side)
{
	const struct sandbox *s = side->sandbox;

	return dns_service_serves(s) &&
	       side->connections < plan_limit(&s->plan, LIMIT_DNS_TCP_CONNECTIONS) &&
	       share_has_room(side->connections, side->tcp->open_count,
			      DNS_TCP_CONNECTIONS_MAX);
}

static void count_limited(const struct dns_tcp_side *side)
{
	if (side && side->sandbox)
		side->sandbox->counters[COUNT_DNS_TCP_LIMITED]++;
}

static void on_dialled(struct listeners *l, int fd)
{
	struct dns_tcp_side *side = CONTAINER_OF(l, struct dns_tcp_side, listeners);
	struct dns_tcp_side *of = side;

	if (fd < 0) {
		count_limited(side);
		return;
	}
	if (side->from.who)
		of = side->from.who(side->from.data, fd);
	if (of && may_open(of) && connection_open(of, fd))
		return;
	count_limited(of);
	sock_reset(fd);
	close(fd);
}

int dns_tcp_attach(struct dns_tcp *t, struct dns_tcp_side *side, struct sandbox *s,
		   const struct dns_tcp_listeners *from)
{
	*side = (struct dns_tcp_side){
		.tcp = t,
		.sandbox = s,
		.from = *from,
		.listeners = { .loop = t->loop,
			       .on_connection = on_dialled,
			       .spare_fd = &t->spare_fd,
			       .batch = DNS_TCP_ACCEPTS_PER_TURN },
	};
	return listeners_open(&side->listeners, from->fd);
}

void dns_tcp_detach(struct dns_tcp_side *side)
{
	listeners_close(&side->listeners);
	while (!LIST_EMPTY(&side->open))
		connection_reset(LIST_FIRST(&side->open));
}

struct dns_tcp *dns_tcp_new(struct loop *loop, dns_tcp_query_fn *on_query, void *data)
{
	struct dns_tcp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->loop = loop;
	t->on_query = on_query;
	t->data = data;
	t->spare_fd = listeners_spare();
	return t;
}

void dns_tcp_free(struct dns_tcp *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->slot_count; i++) {
		if (is_open(t->slots[i]))
			connection_reset(t->slots[i]);
		free(t->slots[i]);
	}
	if (t->spare_fd >= 0)
		close(t->spare_fd);
	free(t);
}
