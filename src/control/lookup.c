// SPDX-License-Identifier: Apache-2.0
#include "control/lookup.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
	TRY_MS = 2000, /* each server */
	TYPE_A = 1,
	TYPE_AAAA = 28,
	MESSAGE_MAX = 4096,
};

static void ask(struct lookup *l);

static void drop_socket(struct lookup *l)
{
	struct ipc_message done = { .type = IPC_SOCKET_DONE, .socket = l->socket };

	if (l->source.fd < 0)
		return;
	loop_remove(l->side->loop, &l->source);
	loop_timer_stop(l->side->loop, &l->timer);
	fd_close(&l->source.fd);
	control_send_engine(l->side->link, &done);
}

static void finish(struct lookup *l)
{
	uint32_t ttl_sec = MIN(MAX(l->ttl_sec, (uint32_t)LOOKUP_TTL_MIN_SEC),
			       (uint32_t)LOOKUP_TTL_MAX_SEC);

	drop_socket(l);
	l->busy = false;
	l->expires_ms = loop_now_ms(l->side->loop) +
			(int64_t)(l->count > 0 ? ttl_sec : LOOKUP_TTL_MIN_SEC) * 1000;
	l->on_done(l);
}

/* 127.0.0.11 knows the services of its network; other names would come back to the
 * engine as the app's, who may not ask for them. */
static size_t first_server(const struct lookup *l)
{
	const struct control *s = l->side;
	bool is_service = l->name.labels < 2;

	return s->upstreams_given > 0 && !is_service ? s->upstreams_given : 0;
}

/* This server has nothing to say: the next one, the next type, or the end. */
static void next_server(struct lookup *l)
{
	drop_socket(l);
	if (++l->server < l->side->spec.upstream_count) {
		ask(l);
		return;
	}
	if (l->type == TYPE_AAAA) {
		finish(l);
		return;
	}
	l->type = TYPE_AAAA;
	l->server = first_server(l);
	ask(l);
}

static void take(struct lookup *l, const struct dns_answer *a)
{
	for (size_t i = 0; i < a->addr_count && l->count < LOOKUP_ADDRS_MAX; i++) {
		l->addrs[l->count++] = a->addrs[i].addr;
		l->ttl_sec = MIN(l->ttl_sec, a->addrs[i].ttl_sec);
	}
	/* Whatever it was, it is this server's word. */
	l->server = l->side->spec.upstream_count;
	next_server(l);
}

static void on_readable(struct loop_source *source, uint32_t events)
{
	struct lookup *l = CONTAINER_OF(source, struct lookup, source);
	struct dns_answer *a = malloc(sizeof(*a));
	uint8_t bytes[MESSAGE_MAX];
	ssize_t n = recv(source->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		goto undo;
	if (n < 0 || !a) {
		next_server(l);
		goto undo;
	}
	dns_answer_read(bytes, (size_t)n, &l->asked, a);
	if (a->kind == DNS_ANSWER_RECORDS || a->kind == DNS_ANSWER_NODATA ||
	    a->kind == DNS_ANSWER_NXDOMAIN)
		take(l, a);
	else if (a->kind != DNS_ANSWER_MISMATCH && a->kind != DNS_ANSWER_BAD)
		next_server(l);
undo:
	free(a);
}

static void on_late(struct loop_timer *t)
{
	next_server(CONTAINER_OF(t, struct lookup, timer));
}

static int send_query(struct lookup *l)
{
	uint8_t message[512], random[34];
	int size;

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -errno;
	l->asked.type = l->type;
	l->asked.name = l->name;
	memcpy(&l->asked.id, random + 32, sizeof(l->asked.id));
	size = dns_query_write(message, sizeof(message), l->asked.id, &l->name, l->type,
			       false, random, l->asked.case_name);
	if (size < 0)
		return size;
	return send(l->source.fd, message, (size_t)size, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int open_socket(struct lookup *l)
{
	const struct endpoint *server = &l->side->spec.upstreams[l->server];
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(server, &sa);
	int fd;

	l->socket = (struct ipc_socket){ .family = (uint8_t)server->addr.family,
					 .protocol = IPPROTO_UDP };
	fd = control_borrow_socket(l->side, &l->socket);
	if (fd < 0)
		return fd;
	l->source.fd = fd;
	if (connect(fd, (const struct sockaddr *)&sa, size) < 0)
		return -errno;
	return loop_add(l->side->loop, &l->source, EPOLLIN);
}

static void ask(struct lookup *l)
{
	int r = -ENOENT;

	if (l->server < l->side->spec.upstream_count)
		r = open_socket(l);
	if (r == 0)
		r = send_query(l);
	if (r == 0)
		r = loop_timer_start(l->side->loop, &l->timer,
				     loop_now_ms(l->side->loop) + TRY_MS);
	if (r < 0)
		next_server(l);
}

void lookup_init(struct lookup *l, struct control *s)
{
	*l = (struct lookup){ .side = s };
	l->source = (struct loop_source){ .fd = -1, .on_ready = on_readable };
	l->timer.on_fire = on_late;
}

void lookup_start(struct lookup *l)
{
	if (l->busy)
		return;
	l->busy = true;
	l->count = 0;
	l->server = first_server(l);
	l->type = TYPE_A;
	l->ttl_sec = LOOKUP_TTL_MAX_SEC;
	ask(l);
}
