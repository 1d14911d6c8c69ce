// SPDX-License-Identifier: Apache-2.0
#include "resolver/upstream_tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>

#include "dns/framing.h"
#include "dns/message.h"

struct upstream_tcp_connection {
	struct loop_source source; /* fd -1: the slot is free */
	struct upstream_tcp *owner;
	uint32_t token;
	enum addr_family family;
	uint16_t port; /* its own, of sys/self_ports; 0: none is held */
	size_t out_size, out_sent;
	uint8_t out[DNS_FRAME_PREFIX + UPSTREAM_TCP_QUERY_MAX];
	struct dns_framing framing; /* over `in` */
	uint8_t *in; /* owned: DNS_FRAME_PREFIX + DNS_MESSAGE_MAX, while open */
};

struct upstream_tcp {
	struct upstream_tcp_config config;
	struct upstream_tcp_connection connections[UPSTREAM_TCP_MAX];
};

void upstream_tcp_cancel(struct upstream_tcp_connection *c)
{
	if (c->source.fd < 0)
		return;
	loop_remove(c->owner->config.loop, &c->source);
	own_let_go(&c->owner->config.own, c->source.fd, c->family, IPPROTO_TCP, c->port);
	close(c->source.fd);
	c->source.fd = -1;
	free(TAKE_PTR(c->in));
}

static void fail(struct upstream_tcp_connection *c, int error)
{
	upstream_tcp_cancel(c);
	c->owner->config.on_failed(c->owner->config.data, c->token, error);
}

/* The whole message is there: close first, since the callback may want the slot. */
static void finish(struct upstream_tcp_connection *c, const uint8_t *message, size_t size)
{
	const struct upstream_tcp_config *config = &c->owner->config;
	uint8_t *in = TAKE_PTR(c->in); /* where the message lies */

	upstream_tcp_cancel(c);
	config->on_message(config->data, c->token, message, size);
	free(in);
}

static void connection_read(struct upstream_tcp_connection *c)
{
	const uint8_t *message;
	uint8_t *to;
	size_t size, room = dns_framing_room(&c->framing, &to);
	ssize_t n = recv(c->source.fd, to, room, MSG_DONTWAIT);
	int r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		fail(c, n < 0 ? -errno : -ECONNRESET);
		return;
	}
	dns_framing_received(&c->framing, (size_t)n);
	r = dns_framing_next(&c->framing, &message, &size);
	if (r < 0)
		fail(c, r);
	else if (r > 0)
		finish(c, message, size);
}

/* Return: false when the connection has failed and is gone. */
static bool connection_write(struct upstream_tcp_connection *c)
{
	ssize_t n = send(c->source.fd, c->out + c->out_sent, c->out_size - c->out_sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
	int r = 0;

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		fail(c, -errno);
		return false;
	}
	c->out_sent += n > 0 ? (size_t)n : 0;
	if (c->out_sent == c->out_size)
		r = loop_modify(c->owner->config.loop, &c->source, EPOLLIN);
	if (r < 0)
		fail(c, r);
	return r == 0;
}

static void on_connection_ready(struct loop_source *source, uint32_t events)
{
	struct upstream_tcp_connection *c =
		CONTAINER_OF(source, struct upstream_tcp_connection, source);

	if (c->out_sent < c->out_size && !connection_write(c))
		return;
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		connection_read(c);
}

/* Begin to connect @c's socket, and be told of what becomes of it. */
static int connection_start(struct upstream_tcp_connection *c,
			    const struct endpoint *server, int fd)
{
	struct sockaddr_storage address;
	socklen_t size = endpoint_to_sockaddr(server, &address);
	int one = 1, r;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&address, size) < 0 && errno != EINPROGRESS)
		return -errno;
	c->source.fd = fd;
	r = loop_add(c->owner->config.loop, &c->source, EPOLLIN | EPOLLOUT);
	if (r < 0)
		c->source.fd = -1;
	return r;
}

static int open_socket(struct upstream_tcp_connection *c, const struct endpoint *server)
{
	const struct own_ports *own = &c->owner->config.own;
	int domain = server->addr.family == ADDR_V6 ? AF_INET6 : AF_INET;
	CLEAN(fd)
	int fd = socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	c->family = server->addr.family;
	r = own_hold(own, fd, c->family, IPPROTO_TCP);
	if (r < 0)
		return r;
	c->port = (uint16_t)r;
	r = connection_start(c, server, fd);
	if (r < 0) {
		own_let_go(own, fd, c->family, IPPROTO_TCP, c->port);
		return r;
	}
	TAKE_FD(fd);
	return 0;
}

static struct upstream_tcp_connection *free_slot(struct upstream_tcp *t)
{
	for (size_t i = 0; i < ARRAY_SIZE(t->connections); i++)
		if (t->connections[i].source.fd < 0)
			return &t->connections[i];
	return NULL;
}

int upstream_tcp_send(struct upstream_tcp *t, uint32_t token, size_t server,
		      const void *message, size_t size,
		      struct upstream_tcp_connection **ret_connection)
{
	struct upstream_tcp_connection *c = free_slot(t);
	int r;

	if (!c)
		return -EMFILE;
	if (size == 0 || size > UPSTREAM_TCP_QUERY_MAX)
		return -EMSGSIZE;
	c->in = malloc(DNS_FRAME_PREFIX + DNS_MESSAGE_MAX);
	if (!c->in)
		return -ENOMEM;
	dns_framing_init(&c->framing, c->in, DNS_FRAME_PREFIX + DNS_MESSAGE_MAX);
	dns_framing_write_prefix(c->out, size);
	memcpy(c->out + DNS_FRAME_PREFIX, message, size);
	c->out_size = DNS_FRAME_PREFIX + size;
	c->out_sent = 0;
	c->token = token;
	r = open_socket(c, &t->config.servers[server]);
	if (r < 0) {
		free(TAKE_PTR(c->in));
		return r;
	}
	*ret_connection = c;
	return 0;
}

struct upstream_tcp *upstream_tcp_new(const struct upstream_tcp_config *config)
{
	struct upstream_tcp *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->config = *config;
	for (size_t i = 0; i < ARRAY_SIZE(t->connections); i++) {
		t->connections[i].owner = t;
		t->connections[i].source.fd = -1;
		t->connections[i].source.on_ready = on_connection_ready;
	}
	return t;
}

void upstream_tcp_free(struct upstream_tcp *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(t->connections); i++)
		upstream_tcp_cancel(&t->connections[i]);
	free(t);
}
