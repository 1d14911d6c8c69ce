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
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include "api/internal.h"
#include "base/clock.h"
#include "sys/sock.h"

#define PLAIN	     "text/plain; charset=utf-8"
#define TLS_VERSIONS "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

enum {
	ACCEPTS_PER_TURN = 16,
	RUNS_PER_TURN = 32, /* of the library, while it has bytes to go on with */
	TICK_MS = 1000,
	BODY_FIRST = 4096,
	LARGE_BODY = 65536,  /* memory is given back behind it, */
	GIVE_BACK_MS = 1000, /* so much later: another one may follow */
	LIBRARY_STRICT =
		0, /* its answer to a missing Host is broken: see framing_fault() */
};

static uint32_t idle_sec(const struct api *a)
{
	return a->config.idle_sec ? a->config.idle_sec : API_IDLE_SEC;
}

static uint32_t request_sec(const struct api *a)
{
	return a->config.request_sec ? a->config.request_sec : API_REQUEST_SEC;
}

/* ---- running the library ---- */

/* A timer that can't be started is started at the next event. */
static void start_timer(struct api *a, struct loop_timer *t, int64_t in_ms)
{
	(void)!loop_timer_in(a->config.loop, t, in_ms);
}

void api_run_soon(struct api *a)
{
	start_timer(a, &a->run_timer, 0);
}

/* It reads a little of a body at a time; a timer between two reads is a millisecond. */
static void run(struct api *a)
{
	enum MHD_Result waits = MHD_YES;
	unsigned long long timeout_ms = 0;

	for (int i = 0; i < RUNS_PER_TURN && waits == MHD_YES && timeout_ms == 0; i++) {
		MHD_run(a->daemon);
		waits = MHD_get_timeout(a->daemon, &timeout_ms);
	}
	if (waits == MHD_YES)
		start_timer(a, &a->run_timer,
			    (int64_t)MIN(timeout_ms, (unsigned long long)TICK_MS));
	else
		loop_timer_stop(a->config.loop, &a->run_timer);
	if (a->conns.count > 0 && a->tick_timer.slot == 0)
		start_timer(a, &a->tick_timer, TICK_MS);
}

static void on_polled(struct loop_source *s, uint32_t events)
{
	run(CONTAINER_OF(s, struct api, polled));
}

static void on_run_timer(struct loop_timer *t)
{
	run(CONTAINER_OF(t, struct api, run_timer));
}

static void on_tick(struct loop_timer *t)
{
	struct api *a = CONTAINER_OF(t, struct api, tick_timer);
	const int64_t now_ms = loop_now_ms(a->config.loop);

	conns_expire(&a->conns, now_ms, (int64_t)request_sec(a) * 1000);
	streams_tick(a);
	(void)!api_listen(a);
	run(a);
	if (!a->listening.added)
		start_timer(a, &a->tick_timer, TICK_MS);
}

/* ---- connections ---- */

static struct addr self_of(int fd)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t size = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &size) < 0)
		return (struct addr){ 0 };
	return endpoint_from_sockaddr(&ss).addr;
}

static void adopt(struct api *a, int fd, const struct sockaddr_storage *from,
		  socklen_t size)
{
	const int one = 1;
	const struct addr self = self_of(fd), peer = endpoint_from_sockaddr(from).addr;
	const struct prefix network = conns_network(&peer, &self);
	struct conn *conn;

	if (a->config.sandboxes.admits &&
	    !a->config.sandboxes.admits(a->config.sandboxes.data, fd)) {
		close(fd);
		return;
	}
	conn = conns_take(&a->conns, fd, &network, loop_now_ms(a->config.loop));
	if (!conn) {
		close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/* The socket is the library's from here on, whatever it says. */
	if (MHD_add_connection(a->daemon, fd, (const struct sockaddr *)from, size) !=
		    MHD_YES &&
	    conn->fd == fd)
		conns_release(&a->conns, conn);
}

static void on_listening(struct loop_source *s, uint32_t events)
{
	struct api *a = CONTAINER_OF(s, struct api, listening);

	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t size = sizeof(from);
		int fd = accept4(s->fd, (struct sockaddr *)&from, &size,
				 SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			adopt(a, fd, &from, size);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
		    errno == ENOMEM) {
			/* Try again with the next tick, instead of spinning. */
			loop_remove(a->config.loop, s);
			start_timer(a, &a->tick_timer, TICK_MS);
		}
		break;
	}
	run(a);
}

static void on_connection(void *data, struct MHD_Connection *mhd, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct api *a = data;
	const union MHD_ConnectionInfo *info;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		*context = info ? conns_find(&a->conns, info->connect_fd) : NULL;
	} else if (*context) {
		conns_release(&a->conns, *context);
		*context = NULL;
	}
}

struct conn *request_conn(const struct api_request *r)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(r->mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

void request_failures_add(const struct api_request *r, struct failures *f)
{
	const struct conn *conn = request_conn(r);

	if (f && conn)
		failures_add(f, &conn->network, loop_now_ms(r->api->config.loop));
}

uint32_t request_failures_wait(const struct api_request *r, const struct failures *f)
{
	const struct conn *conn = request_conn(r);

	return f && conn ? failures_wait(f, &conn->network,
					 loop_now_ms(r->api->config.loop))
			 : 0;
}

struct text request_header(const struct api_request *r, const char *name)
{
	struct text value = { "", 0 };

	if (MHD_lookup_connection_value_n(r->mhd, MHD_HEADER_KIND, name, strlen(name),
					  &value.ptr, &value.len) != MHD_YES ||
	    !value.ptr)
		return (struct text){ "", 0 };
	return value;
}

/* ---- requests ---- */

/* The target as it came; the library's own reading of it isn't used. */
static void *on_target(void *data, const char *target, struct MHD_Connection *mhd)
{
	struct api_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->api = data;
	r->mhd = mhd;
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
	struct api *a = data;
	struct api_request *r = *context;
	struct conn *conn;
	bool large;

	*context = NULL;
	if (!r)
		return;
	conn = request_conn(r);
	if (conn)
		conn->since_ms = loop_now_ms(a->config.loop);
	large = r->body_capacity > LARGE_BODY;
	free(r->target);
	free(r->clean);
	free(r->body);
	free(r);
	/* Without memory for the timer at once. */
	if (large && a->trim_timer.slot == 0 &&
	    loop_timer_start(a->config.loop, &a->trim_timer,
			     loop_now_ms(a->config.loop) + GIVE_BACK_MS) < 0)
		malloc_trim(0);
}

/* What was made of a large body lies in many pieces. */
static void on_trim(struct loop_timer *t)
{
	malloc_trim(0);
}

static void answer_too_large(struct api_request *r)
{
	reply_error(r, MHD_HTTP_CONTENT_TOO_LARGE, "request body too large");
}

static void drop_body(struct api_request *r)
{
	free(r->body);
	r->body = NULL;
	r->body_size = r->body_capacity = 0;
	r->keeps_body = false;
}

/* An announced length that can't be taken. Text that isn't a number is the library's. */
static uint64_t announced_size(const struct api_request *r)
{
	struct text t = text_trim(request_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH));
	uint32_t size;

	if (t.len == 0)
		return 0;
	return text_to_u32(t, UINT32_MAX, &size) ? size : UINT32_MAX;
}

/* The lines that say where a request ends, and whom it is for. */
struct framing {
	unsigned int lengths, encodings, hosts;
	bool is_odd;	 /* an encoding that isn't "chunked" */
	bool is_unclear; /* a name that isn't one: "Content-Length " */
};

static enum MHD_Result count_line(void *data, enum MHD_ValueKind kind, const char *name,
				  size_t name_size, const char *value, size_t value_size)
{
	const struct text n = { name, name_size }, v = { value, value_size };
	struct framing *f = data;

	f->is_unclear |= !text_is_token(n);
	if (text_equal_nocase(n, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
		f->lengths++;
	} else if (text_equal_nocase(n, MHD_HTTP_HEADER_HOST)) {
		f->hosts++;
	} else if (text_equal_nocase(n, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
		f->encodings++;
		f->is_odd |= !value || !text_equal_nocase(text_trim(v), "chunked");
	}
	return MHD_YES;
}

/* What two readers could read as two different requests is read by nobody. Return: what
 * is wrong, or NULL. */
static const char *framing_fault(const struct api_request *r, const char *version)
{
	const bool is_old = strcmp(version, MHD_HTTP_VERSION_1_1) != 0;
	struct framing f = { 0 };

	MHD_get_connection_values_n(r->mhd, MHD_HEADER_KIND, count_line, &f);
	if (f.hosts != 1 && !(is_old && f.hosts == 0))
		return f.hosts ? "400 Bad Request: too many Host headers"
			       : "400 Bad Request: missing required Host header";
	if (f.is_unclear)
		return "400 Bad Request: a header's name has other letters than a name";
	if (f.is_odd || f.lengths + f.encodings > 1)
		return "400 Bad Request: unclear length of the body";
	return NULL;
}

/* Who asks before sending is told at once, and who would send more than anybody reads. */
static enum MHD_Result judge(struct api_request *r, const char *method,
			     const char *version)
{
	const uint64_t size = announced_size(r);
	const char *fault;
	bool waits;

	r->started = true;
	if (!r->target)
		return MHD_NO;
	fault = framing_fault(r, version);
	if (fault) {
		reply_last_error(r, MHD_HTTP_BAD_REQUEST, fault);
		return r->answered ? MHD_YES : MHD_NO;
	}
	route_judge(r, method);
	waits = text_equal_nocase(text_trim(request_header(r, MHD_HTTP_HEADER_EXPECT)),
				  "100-continue");
	if (r->keeps_body && size > r->body_max) {
		r->answer = answer_too_large;
		r->keeps_body = false;
	}
	if (size > API_DRAIN_MAX || (waits && !r->keeps_body)) {
		r->answer(r);
		return r->answered ? MHD_YES : MHD_NO;
	}
	return MHD_YES;
}

static void keep_body(struct api_request *r, const char *bytes, size_t size)
{
	size_t capacity = r->body_capacity;
	char *body;

	if (r->body_size + size > r->body_max) {
		r->answer = answer_too_large;
		drop_body(r);
		return;
	}
	while (capacity < r->body_size + size)
		capacity = MAX(capacity * 2, (size_t)BODY_FIRST);
	body = realloc(r->body, capacity);
	if (!body) {
		r->answer = answer_too_large;
		drop_body(r);
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

	if (!r)
		return MHD_NO;
	if (!r->started)
		return judge(r, method, version);
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
	if (!r->answered)
		r->answer(r);
	return r->answered ? MHD_YES : MHD_NO;
}

/* ---- answers ---- */

void reply_header(struct MHD_Response *response, const char *name, const char *value)
{
	/* Fails without memory: the answer then lacks it, which is what can be done. */
	(void)!MHD_add_response_header(response, name, value);
}

void reply_queue(struct api_request *r, unsigned int status, const char *type,
		 struct MHD_Response *response)
{
	if (!response)
		return;
	if (type)
		reply_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	/* A page of another origin can't read the answer as a script or an image. */
	reply_header(response, "X-Content-Type-Options", "nosniff");
	reply_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	if (MHD_queue_response(r->mhd, status, response) == MHD_YES) {
		r->answered = true;
		r->api->counts.answers[MIN(status / 100, 5U)]++;
	}
	MHD_destroy_response(response);
}

static struct MHD_Response *text_response(const char *text)
{
	union {
		const char *in;
		void *out; /* the library copies, but asks for writable bytes */
	} bytes = { .in = text };

	return MHD_create_response_from_buffer(strlen(text), bytes.out,
					       MHD_RESPMEM_MUST_COPY);
}

void reply_text(struct api_request *r, unsigned int status, const char *text)
{
	reply_queue(r, status, PLAIN, text_response(text));
}

void reply_error(struct api_request *r, unsigned int status, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE + 128];
	struct MHD_Response *response;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	n = MIN(MAX(n, 0), (int)sizeof(text) - 2);
	text[n] = '\n';
	text[n + 1] = '\0';
	response = text_response(text);
	if (response && status == MHD_HTTP_UNAUTHORIZED)
		reply_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (response && status == MHD_HTTP_SERVICE_UNAVAILABLE)
		reply_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "5");
	reply_queue(r, status, PLAIN, response);
}

void reply_wait(struct api_request *r, uint32_t seconds)
{
	struct MHD_Response *response = text_response("too many wrong tokens\n");
	char text[16];

	snprintf(text, sizeof(text), "%u", MAX(seconds, 1U));
	if (response)
		reply_header(response, MHD_HTTP_HEADER_RETRY_AFTER, text);
	reply_queue(r, MHD_HTTP_TOO_MANY_REQUESTS, PLAIN, response);
}

void reply_last_error(struct api_request *r, unsigned int status, const char *text)
{
	struct MHD_Response *response = text_response(text);

	if (response)
		reply_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	reply_queue(r, status, PLAIN, response);
}

void reply_not_allowed(struct api_request *r)
{
	struct MHD_Response *response = text_response("method not allowed\n");

	if (response)
		reply_header(response, MHD_HTTP_HEADER_ALLOW, r->route->allow);
	reply_queue(r, MHD_HTTP_METHOD_NOT_ALLOWED, PLAIN, response);
}

void reply_moved(struct api_request *r)
{
	const bool has_body = (r->method & (METHOD_GET | METHOD_HEAD)) != 0;
	struct reply_stream location, page;
	struct MHD_Response *response;

	if (!reply_open(r, &location))
		return;
	request_path_encode(r->clean, location.out);
	if (r->query)
		fprintf(location.out, "?%s", r->query);
	if (fclose(location.out) != 0 || !reply_open(r, &page)) {
		free(location.body);
		return;
	}
	fputs("<a href=\"", page.out);
	request_html(location.body, page.out);
	fputs("\">Moved Permanently</a>.\n\n", page.out);
	response = fclose(page.out) == 0 ? text_response(has_body ? page.body : "")
					 : NULL;
	if (response)
		reply_header(response, MHD_HTTP_HEADER_LOCATION, location.body);
	reply_queue(r, MHD_HTTP_MOVED_PERMANENTLY,
		    has_body ? "text/html; charset=utf-8" : NULL, response);
	free(page.body);
	free(location.body);
}

/* @body is malloc'ed, taken; NULL is 500. */
static void reply_taken(struct api_request *r, unsigned int status, const char *type,
			char *body, size_t size)
{
	struct MHD_Response *response = NULL;

	if (body)
		response = MHD_create_response_from_buffer(size, body,
							   MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(body);
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
		return;
	}
	reply_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (r->tag[0])
		reply_header(response, MHD_HTTP_HEADER_ETAG, r->tag);
	reply_queue(r, status, type, response);
}

bool reply_open(struct api_request *r, struct reply_stream *s)
{
	s->body = NULL;
	s->out = open_memstream(&s->body, &s->size);
	if (!s->out)
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
	return s->out != NULL;
}

void reply_close(struct api_request *r, struct reply_stream *s, const char *type)
{
	if (fclose(s->out) != 0) {
		free(s->body);
		s->body = NULL;
	}
	reply_taken(r, MHD_HTTP_OK, type, s->body, s->size);
}

void reply_json(struct api_request *r, unsigned int status, struct jtext *j)
{
	size_t size;

	jtext_put(j, text_of("\n"));
	size = j->used;
	reply_taken(r, status, "application/json", jtext_take(j), size);
}

void reply_member_tree(struct jtext *j, const char *key, json_t *tree)
{
	CLEAN(mem) char *text = tree ? json_dumps(tree, JSON_COMPACT) : NULL;

	if (key)
		jtext_key(j, key);
	jtext_json(j, text_of(text ?: "null"));
	json_decref(tree);
}

/* ---- the daemon ---- */

static void ignore_log(void *data, const char *format, va_list args)
{
}

/* The library takes what it only reads without const. */
static void *pem(const char *text)
{
	return (void *)(uintptr_t)text;
}

static int start_daemon(struct api *a)
{
	const bool tls = a->config.tls_cert && a->config.tls_key;
	struct MHD_OptionItem secure[] = {
		{ MHD_OPTION_HTTPS_MEM_CERT, 0, pem(a->config.tls_cert) },
		{ MHD_OPTION_HTTPS_MEM_KEY, 0, pem(a->config.tls_key) },
		{ MHD_OPTION_HTTPS_PRIORITIES, 0, pem(TLS_VERSIONS) },
		{ MHD_OPTION_END, 0, NULL },
	};
	const union MHD_DaemonInfo *info;

	a->daemon = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
			(tls ? MHD_USE_TLS : 0),
		0, NULL, NULL, on_request, a, MHD_OPTION_EXTERNAL_LOGGER, ignore_log,
		NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNS_SIZE,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)idle_sec(a),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)API_HEAD_SIZE,
		MHD_OPTION_STRICT_FOR_CLIENT, (int)LIBRARY_STRICT,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, a,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, a,
		MHD_OPTION_URI_LOG_CALLBACK, on_target, a, MHD_OPTION_UNESCAPE_CALLBACK,
		keep_escapes, NULL, MHD_OPTION_ARRAY, tls ? secure : &secure[3],
		MHD_OPTION_END);
	if (!a->daemon)
		return tls ? -EKEYREJECTED : -ENOMEM;
	info = MHD_get_daemon_info(a->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info || info->epoll_fd < 0)
		return -ENOSYS;
	a->polled = (struct loop_source){ .fd = info->epoll_fd, .on_ready = on_polled };
	return loop_add(a->config.loop, &a->polled, EPOLLIN);
}

static int start(struct api *a)
{
	int result;

	a->rows = calloc(API_EVENTS_KEPT, sizeof(*a->rows));
	if (a->config.limits_failures)
		a->failures = calloc(1, sizeof(*a->failures));
	if (a->config.review_key)
		a->links = calloc(1, sizeof(*a->links));
	if (!a->rows || (a->config.limits_failures && !a->failures) ||
	    (a->config.review_key && !a->links))
		return -ENOMEM;
	/* Who opened it may have left it blocking; nothing here may wait. */
	if (fcntl(a->listening.fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	result = start_daemon(a);
	if (result < 0)
		return result;
	return api_listen(a);
}

/* One that doesn't listen would be ready all the time. */
int api_listen(struct api *a)
{
	return a->listening.added || !sock_listens(a->listening.fd)
		       ? 0
		       : loop_add(a->config.loop, &a->listening, EPOLLIN);
}

struct api *api_new(const struct api_config *config, struct err *err)
{
	struct api *a = calloc(1, sizeof(*a));
	int result;

	if (!a) {
		close(config->listen_fd);
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	a->config = *config;
	a->epoch = (uint64_t)clock_wall_ms();
	a->run_timer.on_fire = on_run_timer;
	a->tick_timer.on_fire = on_tick;
	a->trim_timer.on_fire = on_trim;
	a->listening =
		(struct loop_source){ .fd = config->listen_fd, .on_ready = on_listening };
	a->polled.fd = -1;
	conns_init(&a->conns);
	result = start(a);
	if (result < 0) {
		err_sys(err, result, "cannot start the HTTP API");
		api_free(a);
		return NULL;
	}
	return a;
}

void api_free(struct api *a)
{
	if (!a)
		return;
	loop_remove(a->config.loop, &a->listening);
	loop_remove(a->config.loop, &a->polled);
	if (a->daemon) {
		streams_wake(a);
		MHD_run(a->daemon);
		MHD_stop_daemon(a->daemon);
	}
	loop_timer_stop(a->config.loop, &a->run_timer);
	loop_timer_stop(a->config.loop, &a->tick_timer);
	loop_timer_stop(a->config.loop, &a->trim_timer);
	close(a->listening.fd);
	free(a->rows);
	free(a->failures);
	free(a->links);
	free(a);
}
