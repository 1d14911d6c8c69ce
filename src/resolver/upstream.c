// SPDX-License-Identifier: Apache-2.0
#include "resolver/upstream.h"

#include <errno.h>
#include <string.h>

#include "resolver/upstream_tcp.h"
#include "resolver/upstream_udp.h"

enum {
	REQUESTS_MAX = 8192, /* outstanding; over it: -ENOBUFS */
	BUCKETS = 4096,	     /* of the map from token to request */
	BUCKET_SHIFT = 32 - 12,
};

/* In a bucket's chain while outstanding, else in the list of free ones. */
struct request {
	struct upstream_udp_request udp; /* also holds the token */
	struct upstream_tcp_connection *tcp;
	struct request *next;
};

struct upstreams {
	struct upstreams_ops ops;
	struct endpoint *servers; /* owned */
	size_t server_count, server_room;
	struct upstream_udp *udp;
	struct upstream_tcp *tcp;
	struct request *buckets[BUCKETS];
	struct request *free_requests;
	size_t touched; /* requests[] from here on have never been used */
	struct request requests[REQUESTS_MAX];
};

/* Tokens are the resolver's own, so nobody chooses them to collide. */
static struct request **bucket_of(struct upstreams *u, uint32_t token)
{
	return &u->buckets[(token * 2654435761u) >> BUCKET_SHIFT];
}

static struct request **request_find(struct upstreams *u, uint32_t token)
{
	struct request **slot = bucket_of(u, token);

	while (*slot && (*slot)->udp.token != token)
		slot = &(*slot)->next;
	return slot;
}

static struct request *request_new(struct upstreams *u)
{
	struct request *r = u->free_requests;

	if (r)
		u->free_requests = r->next;
	else if (u->touched < REQUESTS_MAX)
		r = &u->requests[u->touched++];
	if (r)
		memset(r, 0, sizeof(*r));
	return r;
}

static void request_free(struct upstreams *u, struct request *r)
{
	r->next = u->free_requests;
	u->free_requests = r;
}

/* Return: whether @token was outstanding. Its transport is the caller's. */
static bool forget(struct upstreams *u, uint32_t token)
{
	struct request **slot = request_find(u, token);
	struct request *r = *slot;

	if (!r)
		return false;
	*slot = r->next;
	request_free(u, r);
	return true;
}

static void on_udp_message(void *data, uint32_t token, const void *message, size_t size)
{
	struct upstreams *u = data;

	if (*request_find(u, token))
		u->ops.on_message(u->ops.data, token, message, size);
}

/* The connection is over with its first message: the one that was wanted, or a
 * failure. */
static void on_tcp_message(void *data, uint32_t token, const void *message, size_t size)
{
	struct upstreams *u = data;
	struct request *r = *request_find(u, token);

	if (!r)
		return;
	r->tcp = NULL;
	u->ops.on_message(u->ops.data, token, message, size);
	r = *request_find(u, token);
	if (r && !r->tcp && !r->udp.socket && forget(u, token))
		u->ops.on_failed(u->ops.data, token, -EBADMSG);
}

static void on_transport_failed(void *data, uint32_t token, int error)
{
	struct upstreams *u = data;

	if (forget(u, token))
		u->ops.on_failed(u->ops.data, token, error);
}

int upstreams_send(struct upstreams *u, uint32_t token, size_t server, bool tcp,
		   const void *message, size_t size)
{
	struct request **slot, *r;
	int error;

	if (server >= u->server_count)
		return -EINVAL;
	upstreams_cancel(u, token);
	r = request_new(u);
	if (!r)
		return -ENOBUFS;
	r->udp.token = token;
	error = tcp ? upstream_tcp_send(u->tcp, token, server, message, size, &r->tcp)
		    : upstream_udp_send(u->udp, &r->udp, server, message, size);
	if (error < 0) {
		request_free(u, r);
		return error;
	}
	slot = bucket_of(u, token);
	r->next = *slot;
	*slot = r;
	return 0;
}

void upstreams_flush(struct upstreams *u)
{
	upstream_udp_flush(u->udp);
}

void upstreams_cancel(struct upstreams *u, uint32_t token)
{
	struct request *r = *request_find(u, token);

	if (!r)
		return;
	upstream_udp_cancel(u->udp, &r->udp);
	if (r->tcp)
		upstream_tcp_cancel(r->tcp);
	forget(u, token);
}

static int open_transports(struct upstreams *u, const struct upstreams_config *config)
{
	struct upstream_udp_config udp = {
		.loop = config->loop,
		.servers = u->servers,
		.count = u->server_count,
		.room = u->server_room - u->server_count,
		.own = config->own,
		.data = u,
		.on_message = on_udp_message,
		.on_failed = on_transport_failed,
	};
	struct upstream_tcp_config tcp = {
		.loop = config->loop,
		.servers = u->servers,
		.own = config->own,
		.data = u,
		.on_message = on_tcp_message,
		.on_failed = on_transport_failed,
	};

	u->udp = upstream_udp_new(&udp);
	u->tcp = upstream_tcp_new(&tcp);
	return u->udp && u->tcp ? 0 : -ENOMEM;
}

struct upstreams *upstreams_new(const struct upstreams_config *config)
{
	size_t count = config->count;
	struct upstreams *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->ops = config->ops;
	u->server_count = count;
	u->server_room = count + config->room;
	u->servers = calloc(MAX(u->server_room, (size_t)1), sizeof(*u->servers));
	if (u->servers && count > 0)
		memcpy(u->servers, config->servers, count * sizeof(*u->servers));
	if (!u->servers || open_transports(u, config) < 0) {
		upstreams_free(u);
		return NULL;
	}
	return u;
}

int upstreams_add(struct upstreams *u, const struct endpoint *server)
{
	if (u->server_count == u->server_room)
		return -ENOBUFS;
	u->servers[u->server_count] = *server;
	upstream_udp_add(u->udp, server);
	return (int)u->server_count++;
}

void upstreams_free(struct upstreams *u)
{
	if (!u)
		return;
	upstream_udp_free(u->udp);
	upstream_tcp_free(u->tcp);
	free(u->servers);
	free(u);
}
