// SPDX-License-Identifier: Apache-2.0
/* The library on the caller's loop, and answers.
 *
 * HOW IT WORKS: this file accepts, so that it can choose who has to go when all places
 * are taken, and gives each socket to libmicrohttpd, which reads and writes without a
 * thread of its own: its epoll descriptor is one source of the loop, its next timeout
 * one timer. A request is judged when its head is there (route.c); its body is gathered
 * or thrown away; then it is answered, in one go, and nothing of it stays. Only streams
 * (events.c) live longer. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <microhttpd.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "api/internal.h"
#include "base/clock.h"
#include "sys/sock.h"

#define TLS_VERSIONS "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

enum {
	ACCEPTS_PER_TURN = 16,
	RUNS_PER_TURN = 32, /* of the library, while it has bytes to go on with, */
	RUN_MS = 10,	    /* and begun within this time */
	TICK_MS = 1000,
	BODY_FIRST = 4096,
	LARGE_BODY = 65536,  /* memory is given back behind it, */
	GIVE_BACK_MS = 1000, /* so much later: another one may follow */
	LIBRARY_STRICT = 0,  /* its answer to a missing Host is broken: see
				request_framing_fault() */
};

/* ---- running the library ---- */

/* A timer that can't be started is started at the next event. */
static void start_timer(struct api_http *h, struct loop_timer *t, int64_t in_ms)
{
	(void)!loop_timer_in(h->api.config.loop, t, in_ms);
}

void api_run_soon(struct api_http *h)
{
	start_timer(h, &h->run_timer, 0);
}

/* It reads a little of a body at a time; a timer between two reads is a millisecond. */
static void run(struct api_http *h)
{
	enum MHD_Result waits = MHD_YES;
	unsigned long long timeout_ms = 0;
	const int64_t begun_ms = clock_now_ms();

	for (int i = 0; i < RUNS_PER_TURN && waits == MHD_YES && timeout_ms == 0; i++) {
		if (i > 0 && clock_now_ms() - begun_ms >= RUN_MS)
			break;
		MHD_run(h->daemon);
		waits = MHD_get_timeout(h->daemon, &timeout_ms);
	}
	if (waits == MHD_YES)
		start_timer(h, &h->run_timer,
			    (int64_t)MIN(timeout_ms, (unsigned long long)TICK_MS));
	else
		loop_timer_stop(h->api.config.loop, &h->run_timer);
	if (h->conns.count > 0 && h->tick_timer.slot == 0)
		start_timer(h, &h->tick_timer, TICK_MS);
}

static void on_polled(struct loop_source *s, uint32_t events)
{
	run(CONTAINER_OF(s, struct api_http, polled));
}

static void on_run_timer(struct loop_timer *t)
{
	run(CONTAINER_OF(t, struct api_http, run_timer));
}

static void on_tick(struct loop_timer *t)
{
	struct api_http *h = CONTAINER_OF(t, struct api_http, tick_timer);
	const int64_t now_ms = loop_now_ms(h->api.config.loop);
	const int64_t limit_sec = h->api.config.request_sec ?: API_REQUEST_SEC;

	conns_expire(&h->conns, now_ms, limit_sec * 1000);
	streams_tick(h);
	turns_tick(h);
	(void)!api_listen(&h->api);
	run(h);
	if (!h->listening.added)
		start_timer(h, &h->tick_timer, TICK_MS);
}

/* ---- connections ---- */

static void adopt(struct api_http *h, int fd, const struct sockaddr_storage *from,
		  socklen_t size)
{
	const int one = 1;
	const struct addr peer = endpoint_from_sockaddr(from).addr;
	struct endpoint self = { 0 };
	struct prefix network;
	struct conn *conn;

	if (h->api.config.sandboxes.admits &&
	    !h->api.config.sandboxes.admits(h->api.config.sandboxes.data, fd)) {
		close(fd);
		return;
	}
	(void)!sock_here(fd, &self); /* none, where that can't be had */
	network = conns_network(&peer, &self.addr);
	conn = conns_take(&h->conns, fd, &network, loop_now_ms(h->api.config.loop));
	turns_drop(h);
	if (!conn) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* The socket is the library's from here on, whatever it says. */
	if (MHD_add_connection(h->daemon, fd, (const struct sockaddr *)from, size) !=
		    MHD_YES &&
	    conn->fd == fd)
		conns_release(&h->conns, conn);
}

static void on_newcomers(struct loop_source *s, uint32_t events)
{
	struct api_http *h = CONTAINER_OF(s, struct api_http, listening);

	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t size = sizeof(from);
		int fd = accept4(s->fd, (struct sockaddr *)&from, &size,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			adopt(h, fd, &from, size);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			/* Try again with the next tick, instead of spinning. */
			loop_remove(h->api.config.loop, s);
			start_timer(h, &h->tick_timer, TICK_MS);
		}
		break;
	}
	run(h);
}

static void on_connection(void *data, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct api_http *h = data;
	const union MHD_ConnectionInfo *info;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		*context = info ? conns_find(&h->conns, info->connect_fd) : NULL;
	} else if (*context) {
		conns_release(&h->conns, *context);
		*context = NULL;
	}
}

static struct conn *conn_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static struct text http_header(const struct api_request *r, const char *name)
{
	struct text value = { NULL, 0 };

	if (MHD_lookup_connection_value_n(r->mhd, MHD_HEADER_KIND, name, strlen(name),
					  &value.ptr, &value.len) != MHD_YES)
		return (struct text){ NULL, 0 };
	return value.ptr ? value : (struct text){ "", 0 };
}

/* ---- requests ---- */

/* The target as it came; the library's own reading of it isn't used. */
static void *on_target(void *data, const char *target, struct MHD_Connection *mhd)
{
	struct api_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->api = &((struct api_http *)data)->api;
	r->mhd = mhd;
	r->conn = conn_of(mhd);
	r->target = strdup(target);
	return r;
}

static size_t keep_escapes(void *data, struct MHD_Connection *mhd, char *text)
{
	return strlen(text);
}

static void on_completed(void *data, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct api_http *h = data;
	struct api_request *r = *context;
	struct conn *conn = conn_of(mhd);
	bool large;

	*context = NULL;
	if (!r)
		return;
	if (conn)
		conn->since_ms = loop_now_ms(h->api.config.loop);
	turns_leave(h, r);
	large = r->body_capacity > LARGE_BODY;
	request_done(r);
	free(r);
	/* Without memory for the timer at once. */
	if (large && loop_timer_by(h->api.config.loop, &h->trim_timer,
				   loop_now_ms(h->api.config.loop) + GIVE_BACK_MS) < 0)
		malloc_trim(0);
}

/* What was made of a large body lies in many pieces. */
static void on_trim(struct loop_timer *t)
{
	malloc_trim(0);
}

static enum MHD_Result note_line(void *data, enum MHD_ValueKind kind, const char *name,
				 size_t name_size, const char *value, size_t value_size)
{
	request_framing_line(data, (struct text){ name, name_size },
			     (struct text){ value ? value : "", value_size });
	return MHD_YES;
}

/* Who asks before sending is told at once, and who would send more than anybody reads. */
static enum MHD_Result on_head(struct api_request *r, const char *method,
			       const char *version)
{
	struct request_framing framing = { 0 };
	bool waits;

	r->started = true;
	if (!r->target)
		return MHD_NO;
	framing.is_old = strcmp(version, MHD_HTTP_VERSION_1_1) != 0;
	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, note_line, &framing);
	route_check(r, method, request_framing_fault(&framing));
	waits = text_equal_nocase(text_trim(request_header(r, "Expect")), "100-continue");
	/* A search isn't made that early: it has to wait its turn. */
	if (turns_is_search(r) && r->announced > API_DRAIN_MAX)
		r->answer = answer_too_large;
	if (r->fault || r->announced > API_DRAIN_MAX ||
	    (waits && !r->keeps_body && !turns_is_search(r))) {
		r->answer(r);
		return r->answered ? MHD_YES : MHD_NO;
	}
	return MHD_YES;
}

static void keep_body(struct api_request *r, const char *bytes, size_t size)
{
	size_t capacity = r->body_capacity;
	char *body;

	while (capacity < r->body_size + size)
		capacity = MAX(capacity * 2, (size_t)BODY_FIRST);
	body = r->body_size + size <= r->body_max ? realloc(r->body, capacity) : NULL;
	if (!body) {
		r->answer = answer_too_large;
		free(r->body);
		r->body = NULL;
		r->body_size = r->body_capacity = 0;
		r->keeps_body = false;
		return;
	}
	memcpy(body + r->body_size, bytes, size);
	r->body = body;
	r->body_size += size;
	r->body_capacity = capacity;
}

static enum MHD_Result on_request(void *data, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version,
				  const char *upload, size_t *upload_size, void **context)
{
	struct api_request *r = *context;
	enum turn turn;

	if (!r)
		return MHD_NO;
	if (!r->started)
		return on_head(r, method, version);
	if (*upload_size > 0) {
		r->seen += *upload_size;
		if (r->seen > API_DRAIN_MAX)
			return MHD_NO;
		if (r->keeps_body)
			keep_body(r, upload, *upload_size);
		*upload_size = 0;
		return MHD_YES;
	}
	route_refresh(r);
	if (!r->answered) {
		turn = turns_take(http_of(r->api), r);
		if (turn != TURN_NOW)
			return turn == TURN_LATER ? MHD_YES : MHD_NO;
		r->answer(r);
	}
	return r->answered ? MHD_YES : MHD_NO;
}

/* ---- answers ---- */

static bool send_reply(struct api_request *r, const struct api_reply *a)
{
	union {
		const char *in;
		void *out; /* the library only reads it */
	} bytes = { .in = a->bytes };
	struct MHD_Response *response = MHD_create_response_from_buffer(
		a->size, bytes.out,
		a->owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	struct reply_header header;
	bool sent;

	if (!response) {
		free(a->owned);
		return false;
	}
	/* Fails without memory: the answer then lacks it, which is what can be done. */
	for (size_t i = 0; reply_header_at(a, i, &header); i++)
		(void)!MHD_add_response_header(response, header.name, header.value);
	sent = MHD_queue_response(r->mhd, a->status, response) == MHD_YES;
	MHD_destroy_response(response);
	return sent;
}

static const struct api_transport transport = { http_header, send_reply };

/* ---- the daemon ---- */

static void ignore_log(void *data, const char *format, va_list args)
{
}

/* The library takes what it only reads without const. */
static void *pem(const char *text)
{
	return (void *)(uintptr_t)text;
}

static int start(struct api_http *h)
{
	const bool tls = h->api.config.tls_cert && h->api.config.tls_key;
	struct MHD_OptionItem secure[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, pem(h->api.config.tls_cert) },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, pem(h->api.config.tls_key) },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, pem(TLS_VERSIONS) },
		{ MHD_OPTION_END, 0, NULL },
	};
	const union MHD_DaemonInfo *info;
	int result;

	h->rows = calloc(API_EVENTS_KEPT, sizeof(*h->rows));
	if (h->api.config.limits_failures)
		h->api.failures = calloc(1, sizeof(*h->api.failures));
	if (!h->rows || (h->api.config.limits_failures && !h->api.failures))
		return -ENOMEM;
	/* The socket's opener may have left it blocking; nothing here may wait. */
	if (fcntl(h->listening.fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	h->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
			(tls ? MHD_USE_TLS : 0),
		0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, ignore_log,
		NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNS_SIZE,
		MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)(h->api.config.idle_sec ?: API_IDLE_SEC),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)API_HEAD_SIZE,
		MHD_OPTION_STRICT_FOR_CLIENT, (int)LIBRARY_STRICT,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_URI_LOG_CALLBACK, on_target, h, MHD_OPTION_UNESCAPE_CALLBACK,
		keep_escapes, NULL, MHD_OPTION_ARRAY, tls ? secure : &secure[3],
		MHD_OPTION_END);
	if (!h->daemon)
		return tls ? -EKEYREJECTED : -ENOMEM;
	info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info || info->epoll_fd < 0)
		return -ENOSYS;
	h->polled = (struct loop_source){ .fd = info->epoll_fd, .on_ready = on_polled };
	result = loop_add(h->api.config.loop, &h->polled, EPOLLIN);
	return result < 0 ? result : api_listen(&h->api);
}

/* One that doesn't listen would be ready all the time. */
int api_listen(struct api *a)
{
	struct api_http *h = http_of(a);

	return h->listening.added || !sock_listens(h->listening.fd)
		       ? 0
		       : loop_add(h->api.config.loop, &h->listening, EPOLLIN);
}

struct api *api_new(const struct api_config *config, struct err *err)
{
	struct api_http *h = calloc(1, sizeof(*h));
	int result;

	if (!h) {
		close(config->listen_fd);
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	h->api.config = *config;
	h->api.transport = &transport;
	h->epoch = (uint64_t)clock_wall_ms();
	h->run_timer.on_fire = on_run_timer;
	h->tick_timer.on_fire = on_tick;
	h->trim_timer.on_fire = on_trim;
	h->listening =
		(struct loop_source){ .fd = config->listen_fd, .on_ready = on_newcomers };
	h->polled.fd = -1;
	turns_init(h);
	conns_init(&h->conns);
	result = start(h);
	if (result < 0) {
		err_sys(err, result, "cannot start the HTTP API");
		api_free(&h->api);
		return NULL;
	}
	return &h->api;
}

void api_free(struct api *a)
{
	struct api_http *h = a ? http_of(a) : NULL;

	if (!h)
		return;
	loop_remove(h->api.config.loop, &h->listening);
	loop_remove(h->api.config.loop, &h->polled);
	if (h->daemon) {
		streams_wake(h);
		/* Before the library ends: no search waits any more. */
		h->is_ending = true;
		turns_drop(h);
		MHD_run(h->daemon);
		MHD_stop_daemon(h->daemon);
	}
	loop_timer_stop(h->api.config.loop, &h->run_timer);
	loop_timer_stop(h->api.config.loop, &h->tick_timer);
	loop_timer_stop(h->api.config.loop, &h->trim_timer);
	loop_timer_stop(h->api.config.loop, &h->search_timer);
	close(h->listening.fd);
	free(h->rows);
	free(h->api.failures);
	free(h);
}
