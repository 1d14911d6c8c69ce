// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The bytes of a request are gathered until it is whole. Its head is judged (route.c) as
 * soon as that is there, so that what is too long is refused before it comes. An answer
 * is made in one piece, leaves behind the handler, and ends the connection. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/internal.h"
#include "base/clock.h"
#include "relay/http.h"

enum { READ_BYTES = 64 * 1024 };

struct api_plain {
	struct api api;
	struct loop_source listening, client; /* fd -1: none */
	bool is_alone; /* @client is waited for here, and the loop stands still */
	struct loop_timer patience;
	struct api_request request; /* of @client */
	char *bytes;		    /* what came; owned */
	size_t size;
	size_t head_size; /* with the empty line behind it; 0: not all of it came */
	size_t headers_at, headers_size; /* the lines behind the first, in @bytes */
	char *answer;			 /* what goes; owned; NULL: not made yet */
	size_t answer_size, sent;
};

/* ---- the connection ---- */

static void stop_listening(struct api_plain *p)
{
	loop_remove(p->api.config.loop, &p->listening);
	close(p->listening.fd);
	p->listening.fd = -1;
}

static void hang_up(struct api_plain *p)
{
	struct loop *loop = p->api.config.loop;

	loop_timer_stop(loop, &p->patience);
	loop_remove(loop, &p->client);
	close(p->client.fd);
	p->client.fd = -1;
	request_done(&p->request);
	free(p->bytes);
	free(p->answer);
	p->bytes = p->answer = NULL;
	if (loop_modify(loop, &p->listening, EPOLLIN) < 0)
		stop_listening(p);
}

static void on_patience(struct loop_timer *t)
{
	hang_up(CONTAINER_OF(t, struct api_plain, patience));
}

/* Wait for @events of the client. Return: 0 or -errno. */
static int wait_for(struct api_plain *p, uint32_t events)
{
	struct loop *loop = p->api.config.loop;
	int r = p->is_alone ? 0
			    : loop_timer_in(loop, &p->patience, API_PLAIN_PATIENCE_MS);

	if (r < 0 || p->is_alone)
		return r;
	return p->client.added ? loop_modify(loop, &p->client, events)
			       : loop_add(loop, &p->client, events);
}

/* ---- the request ---- */

static struct text plain_header(const struct api_request *r, const char *name)
{
	const struct api_plain *p = CONTAINER_OF(r->api, struct api_plain, api);
	struct text rest = { p->bytes + p->headers_at, p->headers_size }, line, found;

	while (text_split(&rest, '\n', &line))
		if (text_split(&line, ':', &found) && text_equal_nocase(found, name))
			return text_trim(line);
	return (struct text){ NULL, 0 };
}

/* A body has its length in front; any other way to tell its end is unclear here.
 * Return: false without memory. */
static bool read_head(struct api_plain *p)
{
	struct http_stream stream = { 0 };
	struct http_piece piece = { .pass = 0 };
	enum http_read read =
		http_next(&stream, (const uint8_t *)p->bytes, p->size, &piece);
	const struct http_request *head = &piece.request;
	const bool is_long = (read == HTTP_REQUEST ? head->size : p->size) >
			     API_PLAIN_HEAD_MAX;
	struct api_request *r = &p->request;
	char method[16] = "";

	if (piece.fault == HTTP_TOO_LONG || (read != HTTP_BAD && is_long)) {
		reply_text(r, HTTP_HEAD_TOO_LARGE, "the request's head is too long",
			   "Connection", "close");
	} else if (read == HTTP_REQUEST) {
		p->head_size = head->size;
		p->headers_at = (size_t)(head->headers.ptr - p->bytes);
		p->headers_size = head->headers.len;
		if (head->method.len < sizeof(method))
			memcpy(method, head->method.ptr, head->method.len);
		r->target = strndup(head->target.ptr, head->target.len);
		if (!r->target)
			return false;
		route_check(r, method,
			    head->body == HTTP_BODY_CHUNKED
				    ? http_fault_text(HTTP_BAD_FRAMING)
				    : NULL);
	} else if (read == HTTP_BAD) {
		reply_text(r, HTTP_BAD_REQUEST, http_fault_text(piece.fault),
			   "Connection", "close");
	}
	return true;
}

/* Whatever more comes is not read. */
static bool is_whole(const struct api_plain *p)
{
	const struct api_request *r = &p->request;

	return r->answered ||
	       (p->head_size > 0 && (r->fault || r->announced > r->body_max ||
				     p->size - p->head_size >= r->announced));
}

static void serve(struct api_plain *p)
{
	struct api_request *r = &p->request;

	loop_timer_stop(p->api.config.loop, &p->patience);
	if (!r->answered) {
		if (r->keeps_body && r->announced > 0) {
			r->body = p->bytes + p->head_size;
			r->body_size = r->announced;
		}
		r->answer(r);
		r->body = NULL; /* it is a part of the bytes */
	}
	if (!r->answered || wait_for(p, EPOLLOUT) < 0)
		hang_up(p);
}

static void send_some(struct api_plain *p)
{
	while (p->sent < p->answer_size) {
		ssize_t n = send(p->client.fd, p->answer + p->sent,
				 p->answer_size - p->sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break;
		p->sent += (size_t)n;
	}
	hang_up(p);
}

static void on_client(struct loop_source *source, uint32_t events)
{
	struct api_plain *p = CONTAINER_OF(source, struct api_plain, client);
	char *grown;
	ssize_t n;

	if (p->answer) {
		send_some(p);
		return;
	}
	grown = realloc(p->bytes, p->size + READ_BYTES);
	if (!grown) {
		hang_up(p);
		return;
	}
	p->bytes = grown;
	n = recv(source->fd, p->bytes + p->size, READ_BYTES, 0);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		hang_up(p);
		return;
	}
	p->size += (size_t)n;
	if (p->head_size == 0 && !read_head(p))
		hang_up(p);
	else if (is_whole(p))
		serve(p);
}

/* The kernel lets this user watch nothing more: a command in the sandbox may have used up
 * what all programs of the user share. */
static void serve_alone(struct api_plain *p)
{
	const int64_t until_ms = clock_now_ms() + API_PLAIN_PATIENCE_MS;

	p->is_alone = true;
	while (p->client.fd >= 0) {
		struct pollfd f = { .fd = p->client.fd,
				    .events = p->answer ? POLLOUT : POLLIN };
		const int64_t left_ms = until_ms - clock_now_ms();

		if (left_ms > 0 && poll(&f, 1, (int)left_ms) > 0)
			on_client(&p->client, 0);
		else
			hang_up(p);
	}
	p->is_alone = false;
}

static void on_listening(struct loop_source *source, uint32_t events)
{
	struct api_plain *p = CONTAINER_OF(source, struct api_plain, listening);
	const struct api_sandboxes *s = &p->api.config.sandboxes;
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;

	if (fd < 0)
		return;
	/* The listener stays in the loop: to add it again could fail, and nobody could
	 * reach this API any more. */
	if (!s->admits(s->data, fd) || loop_modify(p->api.config.loop, source, 0) < 0) {
		close(fd);
		return;
	}
	p->client = (struct loop_source){ .fd = fd, .on_ready = on_client };
	p->request = (struct api_request){ .api = &p->api };
	p->size = p->head_size = p->headers_at = p->headers_size = p->sent = 0;
	r = wait_for(p, EPOLLIN);
	if (r == -ENOSPC)
		serve_alone(p);
	else if (r < 0)
		hang_up(p);
}

/* ---- the answer ---- */

static bool make_answer(struct api_request *r, const struct api_reply *a)
{
	struct api_plain *p = CONTAINER_OF(r->api, struct api_plain, api);
	FILE *out = open_memstream(&p->answer, &p->answer_size);
	struct reply_header h;

	if (out) {
		fprintf(out, "HTTP/1.1 %u %s\r\n", a->status,
			a->status < 300 ? "OK" : "Error");
		for (size_t i = 0; reply_header_at(a, i, &h); i++)
			if (strcmp(h.name, "Connection") != 0)
				fprintf(out, "%s: %s\r\n", h.name, h.value);
		fprintf(out, "Connection: close\r\nContent-Length: %zu\r\n\r\n", a->size);
		if (r->method != METHOD_HEAD)
			fwrite(a->bytes, 1, a->size, out);
	}
	free(a->owned);
	if (out && fclose(out) == 0)
		return true;
	free(p->answer);
	p->answer = NULL;
	return false;
}

static const struct api_transport transport = { plain_header, make_answer };

/* ---- from its start to its end ---- */

struct api_plain *api_plain_new(const struct api_config *config, struct err *err)
{
	struct api_plain *p = calloc(1, sizeof(*p));
	int r;

	if (!p) {
		close(config->listen_fd);
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	p->api.config = *config;
	p->api.transport = &transport;
	p->client.fd = -1;
	p->patience.on_fire = on_patience;
	p->listening =
		(struct loop_source){ .fd = config->listen_fd, .on_ready = on_listening };
	r = loop_add(config->loop, &p->listening, EPOLLIN);
	if (r == 0)
		return p;
	err_sys(err, r, "cannot serve the HTTP API");
	api_plain_free(p);
	return NULL;
}

void api_plain_free(struct api_plain *p)
{
	if (!p)
		return;
	if (p->client.fd >= 0)
		hang_up(p);
	if (p->listening.fd >= 0)
		stop_listening(p);
	free(p);
}
