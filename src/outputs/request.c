// SPDX-License-Identifier: Apache-2.0
#include "outputs/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/jansson.h"
#include "relay/http.h"

enum {
	ANSWER_MAX = 8 << 20,
	HEAD_SIZE = 2048,
};

static int dial(const struct request_place *to, int wait_sec, struct err *err)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	const struct timeval wait = { .tv_sec = wait_sec };
	struct endpoint at = to->at;
	struct sockaddr_storage sa;
	CLEAN(fd) int fd = -1;
	socklen_t size;

	if (to->socket && strlen(to->socket) >= sizeof(path.sun_path))
		return err_set(err, -EINVAL, "'%.100s' is too long for a socket",
			       to->socket);
	if (at.addr.family == ADDR_NONE)
		at.addr = addr_v4(127, 0, 0, 1);
	if (to->socket) {
		memcpy(path.sun_path, to->socket, strlen(to->socket));
		memcpy(&sa, &path, sizeof(path));
		size = sizeof(path);
	} else {
		size = endpoint_to_sockaddr(&at, &sa);
	}
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* Both directions, and the connecting, each. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0)
		return err_sys(err, -errno, "cannot open a socket");
	if (connect(fd, (const struct sockaddr *)&sa, size) == 0)
		return TAKE_FD(fd);
	if (to->socket)
		return err_sys(err, -errno, "cannot connect to '%.150s'", to->socket);
	return err_sys(err, -errno, "cannot connect to %s", ENDPOINT_SHOWN(&at));
}

static int send_all(int fd, const char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
	}
	return 0;
}

int request_send(const struct request_place *to, const struct request *q, int *ret_fd,
		 struct err *err)
{
	CLEAN(fd) int fd = dial(to, q->wait_sec, err);
	char head[HEAD_SIZE];
	int r;

	if (fd < 0)
		return fd;
	r = snprintf(head, sizeof(head),
		     "%s %s HTTP/1.0\r\nHost: weir\r\n%sContent-Length: %zu\r\n\r\n",
		     q->method, q->path, q->headers ? q->headers : "", q->body.len);
	if (r >= (int)sizeof(head))
		return err_set(err, -EINVAL, "the request's path is too long");
	r = send_all(fd, head, (size_t)r);
	if (r == 0)
		r = send_all(fd, q->body.ptr, q->body.len);
	/* A server may answer and close before it has read the whole request. */
	if (r < 0 && r != -EPIPE)
		return err_sys(err, r, "cannot send a request");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int request_read(struct text all, struct client_reply *ret)
{
	struct http_answer head;

	if (http_answer_read((const uint8_t *)all.ptr, all.len, &head) != HTTP_PASS)
		return -EBADMSG;
	*ret = (struct client_reply){ head.code,
				      { all.ptr + head.size, all.len - head.size } };
	return 0;
}

int request_receive(int fd, struct arena *arena, struct client_reply *ret)
{
	CLEAN(mem) char *bytes = malloc(ANSWER_MAX);
	struct client_reply reply;
	size_t size = 0;
	ssize_t n;
	int r;

	if (!bytes)
		return -ENOMEM;
	while ((n = recv(fd, bytes + size, ANSWER_MAX - size, 0)) > 0)
		size += (size_t)n;
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (size == ANSWER_MAX || size == 0)
		return size == 0 ? -ECONNRESET : -E2BIG;
	r = request_read((struct text){ bytes, size }, &reply);
	if (r < 0)
		return r;
	reply.body.ptr = arena_text(arena, reply.body);
	if (!reply.body.ptr)
		return -ENOMEM;
	*ret = reply;
	return 0;
}

int request_receive_head(int fd, unsigned int *ret_status)
{
	enum http_read r = HTTP_NEED_MORE;
	uint8_t bytes[HEAD_SIZE];
	struct http_answer head;

	for (size_t i = 0; i < sizeof(bytes) && r == HTTP_NEED_MORE; i++) {
		ssize_t n = recv(fd, bytes + i, 1, 0);

		if (n <= 0)
			return n == 0 ? -ECONNRESET
				      : (errno == EAGAIN ? -ETIMEDOUT : -errno);
		r = http_answer_read(bytes, i + 1, &head);
	}
	if (r != HTTP_PASS)
		return -EBADMSG;
	*ret_status = head.code;
	return 0;
}

const char *request_reason(const struct client_reply *reply, const char *key,
			   struct arena *arena)
{
	CLEAN(json) json_t *j = json_loadb(reply->body.ptr, reply->body.len, 0, NULL);
	const char *reason = json_string_value(json_object_get(j, key));
	struct text t = text_trim(reason ? text_of(reason) : reply->body);
	const char *kept = arena_printf(arena, "%s", TEXT_SHOWN(t));

	return kept ? kept : "out of memory";
}
