// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * One connection at a time; others wait in the backlog. Its bytes are read until the
 * request is whole, on_request() is called, and when that has given the answer, this is
 * written and the connection closed. Whoever is slower than CONTROL_PATIENCE_MS is hung
 * up on, and so is whoever may not ask, without a word. */
#include "run/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/http_status.h"
#include "sys/files.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

enum { BACKLOG = 16, READ_BYTES = 64 * 1024, STATUS_MAX = 1 << 20, OPEN_TRIES = 10 };

/* --- who --- */

static bool is_same_namespace(pid_t pid)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat("/proc/self/ns/user", &ours) == 0 && stat(path, &theirs) == 0 &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* How many seccomp filters hold the process @name; before Linux 5.9 nobody can say. */
static int count_filters(const char *name, uint32_t *ret)
{
	static const char key[] = "\nSeccomp_filters:\t";
	CLEAN(file_bytes) struct file_bytes status = { 0 };
	CLEAN(fd) int fd = -1;
	char path[64];
	const char *at;
	int r;

	snprintf(path, sizeof(path), "/proc/%s/status", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : file_read_fd(fd, STATUS_MAX, &status);
	if (r < 0)
		return r;
	*ret = 0;
	at = strstr(status.bytes, key);
	if (!at)
		return 0;
	at += strlen(key);
	return text_to_u32((struct text){ at, strcspn(at, "\n") }, UINT32_MAX, ret)
		       ? 0
		       : -EBADMSG;
}

/* The command of a `weir run` on the host has a filter that its caller has not. */
static bool is_confined_more(const struct control_socket *s, pid_t pid)
{
	char name[16];
	uint32_t filters;

	snprintf(name, sizeof(name), "%d", (int)pid);
	return count_filters(name, &filters) < 0 || filters > s->filters;
}

static bool is_alive(int pid_fd)
{
	struct pollfd p = { .fd = pid_fd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* The process is held by a descriptor while it is looked at: a number may be another
 * process' by then. Before Linux 6.5 the socket has no such descriptor, and one that is
 * made from the number may already be the other process'. */
static bool may_ask(const struct control_socket *s, int fd)
{
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);
	CLEAN(fd) int pid_fd = -1;
	int held = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0 ||
	    peer.uid != geteuid())
		return false;
	size = sizeof(held);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &held, &size) < 0)
		held = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	pid_fd = held;
	return pid_fd >= 0 && is_same_namespace(peer.pid) &&
	       !is_confined_more(s, peer.pid) && is_alive(pid_fd);
}

/* --- where --- */

static int listen_at(const char path[RUN_SOCKET_PATH_SIZE])
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path, path, strlen(path));
	if (fd < 0 || bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* In the directory @directory, open at @fd, under its lock: between the look at who
 * answers there and the new socket nobody else does the same. */
static int open_in(struct control_socket *s, int fd, const char *directory)
{
	char path[RUN_SOCKET_PATH_SIZE];
	struct stat st;
	int r;

	if (!run_socket_path(directory, s->id, path))
		return -ENAMETOOLONG;
	if (flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -ENOENT;
	if (run_socket_answers(path))
		return -EADDRINUSE;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	r = listen_at(path);
	if (r < 0)
		return r;
	s->listener.fd = r;
	memcpy(s->path, path, sizeof(s->path));
	return 0;
}

/* Another run that ends may take the directory away while it is empty. */
static int open_at(struct control_socket *s, size_t place)
{
	char directory[RUN_SOCKET_PATH_SIZE];
	int r = -ENOENT;

	for (int tries = 0; r == -ENOENT && tries < OPEN_TRIES; tries++) {
		CLEAN(fd) int fd = run_socket_place(place, true, directory);

		if (fd < 0)
			return fd;
		r = open_in(s, fd, directory);
	}
	return r;
}

int control_socket_open(struct control_socket *s, const char *id, struct err *err)
{
	int r;

	*s = (struct control_socket){ .listener.fd = -1, .client.fd = -1 };
	if (id)
		snprintf(s->id, sizeof(s->id), "%s", id);
	else
		snprintf(s->id, sizeof(s->id), "run-%d", (int)getpid());
	r = count_filters("self", &s->filters);
	if (r < 0)
		return err_sys(err, r, "cannot tell who may ask");
	r = -ENOENT;
	for (size_t i = 0; i < RUN_SOCKET_PLACES && !s->path[0]; i++) {
		r = open_at(s, i);
		if (r == -EADDRINUSE)
			return err_set(err, r, "--id: '%s' is a run that is under way",
				       s->id);
	}
	return s->path[0] ? 0 : err_sys(err, r, "there is no safe place for its socket");
}

/* --- one connection --- */

static void hang_up(struct control_socket *s)
{
	loop_timer_stop(s->loop, &s->patience);
	loop_remove(s->loop, &s->client);
	close(s->client.fd);
	s->client.fd = -1;
	free(s->bytes);
	s->bytes = NULL;
	s->size = s->done = 0;
	s->is_answering = false;
	if (s->listener.fd >= 0 && loop_add(s->loop, &s->listener, EPOLLIN) < 0)
		control_socket_close(s);
}

static void on_patience(struct loop_timer *t)
{
	hang_up(CONTAINER_OF(t, struct control_socket, patience));
}

static void be_patient(struct control_socket *s)
{
	if (loop_timer_in(s->loop, &s->patience, CONTROL_PATIENCE_MS) < 0)
		hang_up(s);
}

static void send_some(struct control_socket *s)
{
	while (s->done < s->size) {
		ssize_t n = send(s->client.fd, s->bytes + s->done, s->size - s->done,
				 MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break;
		s->done += (size_t)n;
	}
	hang_up(s);
}

static bool is_digits(struct text t, size_t *ret)
{
	uint32_t n;

	if (!text_to_u32(t, CONTROL_BODY_MAX, &n))
		return false;
	*ret = n;
	return true;
}

bool control_request_header(const struct control_request *r, const char *name,
			    struct text *ret)
{
	struct text rest = r->headers, line, found;

	while (text_split(&rest, '\n', &line)) {
		if (!text_split(&line, ':', &found) || !line.ptr ||
		    !text_equal_nocase(text_trim(found), name))
			continue;
		*ret = text_trim(line);
		return true;
	}
	return false;
}

/* Return: false when it is malformed. */
static bool body_size(const struct control_request *r, size_t *ret)
{
	struct text value;

	*ret = 0;
	return !control_request_header(r, "Content-Length", &value) ||
	       is_digits(value, ret);
}

enum reading { READING = 0, READ_WHOLE, READ_BAD };

static enum reading read_request(const struct control_socket *s,
				 struct control_request *ret)
{
	const char *end = memmem(s->bytes, s->size, "\r\n\r\n", 4);
	struct text head, line;
	size_t body;

	if (!end)
		return s->size > CONTROL_HEAD_MAX ? READ_BAD : READING;
	head = (struct text){ s->bytes, (size_t)(end - s->bytes) };
	if (!text_split(&head, '\n', &line) || !text_split(&line, ' ', &ret->method) ||
	    !text_split(&line, ' ', &ret->path))
		return READ_BAD;
	ret->headers = head;
	if (!body_size(ret, &body))
		return READ_BAD;
	ret->body = (struct text){ end + 4, body };
	return s->size - (size_t)(end + 4 - s->bytes) < body ? READING : READ_WHOLE;
}

static void on_bytes(struct control_socket *s)
{
	struct control_request request = { 0 };

	switch (read_request(s, &request)) {
	case READ_WHOLE:
		loop_timer_stop(s->loop, &s->patience);
		/* Nothing more of it is read. */
		loop_remove(s->loop, &s->client);
		s->on_request(s, &request);
		break;
	case READ_BAD:
		hang_up(s);
		break;
	default:
		break;
	}
}

static void on_client(struct loop_source *source, uint32_t events)
{
	struct control_socket *s = CONTAINER_OF(source, struct control_socket, client);
	char *grown;
	ssize_t n;

	if (s->is_answering) {
		send_some(s);
		return;
	}
	grown = s->size < CONTROL_HEAD_MAX + CONTROL_BODY_MAX
			? realloc(s->bytes, s->size + READ_BYTES)
			: NULL;
	if (!grown) {
		hang_up(s);
		return;
	}
	s->bytes = grown;
	n = recv(source->fd, s->bytes + s->size, READ_BYTES, 0);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		hang_up(s);
		return;
	}
	s->size += (size_t)n;
	on_bytes(s);
}

static void on_listener(struct loop_source *source, uint32_t events)
{
	struct control_socket *s = CONTAINER_OF(source, struct control_socket, listener);
	int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	if (!may_ask(s, fd)) {
		close(fd);
		return;
	}
	loop_remove(s->loop, source);
	s->client = (struct loop_source){ .fd = fd, .on_ready = on_client };
	if (loop_add(s->loop, &s->client, EPOLLIN) < 0) {
		hang_up(s);
		return;
	}
	be_patient(s);
}

int control_socket_serve(struct control_socket *s, struct loop *loop)
{
	if (!s->path[0])
		return 0;
	s->loop = loop;
	s->listener.on_ready = on_listener;
	s->patience.on_fire = on_patience;
	return loop_add(loop, &s->listener, EPOLLIN);
}

/* --- the answer --- */

/* @json is taken; @headers are whole lines. */
static void answer(struct control_socket *s, unsigned int status, const char *headers,
		   char *json)
{
	CLEAN(mem) char *body = json;
	char *bytes = NULL;
	int n;

	if (s->client.fd < 0)
		return;
	n = asprintf(&bytes,
		     "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\n"
		     "Connection: close\r\n%sContent-Length: %zu\r\n\r\n%s",
		     body ? status : 500u, status < 300 ? "OK" : "Error", headers,
		     body ? strlen(body) : 0, body ? body : "");
	free(s->bytes);
	s->bytes = n < 0 ? NULL : bytes;
	s->size = n < 0 ? 0 : (size_t)n;
	s->done = 0;
	s->is_answering = true;
	if (loop_add(s->loop, &s->client, EPOLLOUT) < 0) {
		hang_up(s);
		return;
	}
	be_patient(s);
}

void control_socket_answer(struct control_socket *s, unsigned int status, char *json)
{
	answer(s, status, "", json);
}

void control_socket_answer_tagged(struct control_socket *s, const char *tag, char *json)
{
	char header[64];

	snprintf(header, sizeof(header), "ETag: %s\r\n", tag);
	answer(s, HTTP_OK, header, json);
}

void control_socket_refuse(struct control_socket *s, unsigned int status, const char *why)
{
	json_t *j = json_pack("{s:s}", "reason", why);

	control_socket_answer(s, status, j ? json_dumps(j, JSON_COMPACT) : NULL);
	json_decref(j);
}

void control_socket_close(struct control_socket *s)
{
	if (s->path[0]) {
		unlink(s->path);
		*strrchr(s->path, '/') = '\0';
		run_socket_leave(s->path);
	}
	s->path[0] = '\0';
	if (s->listener.fd >= 0) {
		if (s->loop)
			loop_remove(s->loop, &s->listener);
		close(s->listener.fd);
		s->listener.fd = -1;
	}
	if (s->client.fd >= 0)
		hang_up(s);
}
