// SPDX-License-Identifier: Apache-2.0
#include "container/docker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/http_status.h"
#include "base/jansson.h"
#include "base/macros.h"
#include "base/text.h"
#include "sys/files.h"
#include "sys/process.h"

enum {
	WAIT_SEC = 120, /* a busy engine takes its time to start and to remove */
	PATH_SIZE = 512,
	ID_MIN = 12,
	ID_MAX = 64,
	STATUS_MAX = 255,
};

/* -- where it is --------------------------------------------------------------------- */

static bool is_socket(const char *path)
{
	struct stat st;

	return path && stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

struct kind {
	enum container_engine engine;
	const char *name, *variable;
	const char *rootless; /* below $XDG_RUNTIME_DIR */
	const char *socket;
};

int docker_find(enum container_engine which, struct arena *arena, struct docker *ret,
		struct err *err)
{
	static const struct kind kinds[] = {
		{ CONTAINER_DOCKER, "docker", "DOCKER_HOST", "docker.sock",
		  "/var/run/docker.sock" },
		{ CONTAINER_PODMAN, "podman", "CONTAINER_HOST", "podman/podman.sock",
		  "/run/podman/podman.sock" },
	};
	static const char unix_socket[] = "unix://";
	const char *home = getenv("XDG_RUNTIME_DIR");

	for (const struct kind *k = kinds; k < kinds + ARRAY_SIZE(kinds); k++) {
		const char *given = getenv(k->variable), *rootless;

		if (which != CONTAINER_ENGINE_ANY && which != k->engine)
			continue;
		if (given && given[0]) {
			if (strncmp(given, unix_socket, strlen(unix_socket)) != 0)
				return err_set(
					err, -EINVAL,
					"%s is '%.150s': only an engine of this machine "
					"is asked, on a unix socket (unix:///PATH)",
					k->variable, given);
			*ret = (struct docker){ k->name, given + strlen(unix_socket) };
			return 0;
		}
		rootless = home ? arena_printf(arena, "%s/%s", home, k->rootless) : NULL;
		*ret = (struct docker){ k->name,
					is_socket(rootless) ? rootless : k->socket };
		if (is_socket(ret->socket))
			return 0;
	}
	return err_set(err, -ENOENT,
		       "no container engine here: there is no socket of %s; start it "
		       "(dockerd; podman system service), or say in %s where it is",
		       which == CONTAINER_DOCKER   ? "Docker's"
		       : which == CONTAINER_PODMAN ? "podman's"
						   : "Docker's or podman's",
		       which == CONTAINER_PODMAN ? "CONTAINER_HOST" : "DOCKER_HOST");
}

/* -- requests ------------------------------------------------------------------------ */

static int send_request(const struct docker *e, const char *method, const char *path,
			const char *headers, const char *body, int wait_sec, int *ret_fd,
			struct err *err)
{
	const struct request_place to = { .socket = e->socket };
	const struct request q = { method, path, headers, text_of(body ? body : ""),
				   wait_sec };
	int r = request_send(&to, &q, ret_fd, err);

	if (r == 0)
		return 0;
	err_context(err, "%s", e->name);
	/* An engine that is away says nothing of what it has. */
	err->code = r == -ENOENT ? -ECONNREFUSED : r;
	return err->code;
}

/* Return: 0 with an answer, whatever its status. */
static int converse(const struct docker *e, const char *method, const char *path,
		    const char *body, struct arena *arena, struct client_reply *ret,
		    struct err *err)
{
	static const char headers[] = "Content-Type: application/json\r\n";
	CLEAN(fd) int fd = -1;
	int r = send_request(e, method, path, headers, body, WAIT_SEC, &fd, err);

	if (r < 0)
		return r;
	r = request_receive(fd, arena, ret);
	return r < 0 ? err_sys(err, r, "%s does not answer as it should", e->name) : 0;
}

int docker_ask(const struct docker *e, const char *method, const char *path, json_t *body,
	       json_t **ret, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
	struct client_reply reply;
	int r;

	json_decref(body);
	if (body && !text)
		return err_set(err, -ENOMEM, "out of memory");
	r = converse(e, method, path, text, &arena, &reply, err);
	if (r == 0 && reply.status >= HTTP_MULTIPLE)
		r = err_set(err, reply.status == HTTP_NOT_FOUND ? -ENOENT : -EREMOTEIO,
			    "%s: %s", e->name, request_reason(&reply, "message", &arena));
	if (r < 0 || !ret)
		return r;
	*ret = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	return *ret ? 0 : err_set(err, -EBADMSG, "%s's answer is no JSON", e->name);
}

int docker_create(const struct docker *e, const char *name, json_t *body,
		  struct arena *arena, const char **ret_id, struct err *err)
{
	char path[PATH_SIZE];
	CLEAN(json) json_t *answer = NULL;
	const char *id;
	size_t len;
	int r;

	snprintf(path, sizeof(path), "/containers/create?name=%s", name);
	r = docker_ask(e, "POST", path, body, &answer, err);
	if (r < 0)
		return r;
	id = json_string_value(json_object_get(answer, "Id"));
	/* The id becomes a part of paths, and is looked for in names of control groups.
	 */
	len = id ? strspn(id, "0123456789abcdef") : 0;
	*ret_id = len >= ID_MIN && len <= ID_MAX && id[len] == '\0'
			  ? arena_text(arena, text_of(id))
			  : NULL;
	return *ret_id ? 0 : err_set(err, -EBADMSG, "%s says no id", e->name);
}

int docker_post(const struct docker *e, const char *id, const char *what, struct err *err)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "/containers/%s/%s", id, what);
	return docker_ask(e, "POST", path, NULL, NULL, err);
}

int docker_remove(const struct docker *e, const char *id, struct err *err)
{
	char path[PATH_SIZE];
	int r;

	snprintf(path, sizeof(path), "/containers/%s?force=true&v=true&timeout=0", id);
	r = docker_ask(e, "DELETE", path, NULL, NULL, err);
	if (r != -ENOENT)
		return r;
	*err = (struct err){ 0 };
	return 0;
}

int docker_inspect(const struct docker *e, const char *id, json_t **ret, struct err *err)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "/containers/%s/json", id);
	return docker_ask(e, "GET", path, NULL, ret, err);
}

int docker_list(const struct docker *e, const char *label, json_t **ret, struct err *err)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path),
		 "/containers/json?all=true&filters=%%7B%%22label%%22%%3A%%5B%%22%s"
		 "%%22%%5D%%7D",
		 label);
	return docker_ask(e, "GET", path, NULL, ret, err);
}

/* -- what takes its time ------------------------------------------------------------- */

int docker_wait_open(const struct docker *e, const char *id, struct docker_wait *ret,
		     struct err *err)
{
	char path[PATH_SIZE];
	int r;

	snprintf(path, sizeof(path), "/containers/%s/wait", id);
	ret->fd = -1;
	ret->size = 0;
	r = send_request(e, "POST", path, NULL, NULL, 0, &ret->fd, err);
	return r == 0 ? process_dont_wait(ret->fd) : r;
}

int docker_wait_read(struct docker_wait *w, int *ret_status, struct err *err)
{
	ssize_t n = recv(w->fd, w->bytes + w->size, sizeof(w->bytes) - w->size, 0);
	int r = n < 0 ? -errno : -EAGAIN;
	struct client_reply reply;
	CLEAN(json) json_t *j = NULL;
	const json_t *code;

	if (n > 0)
		w->size += (size_t)n;
	if (n == 0)
		r = -EBADMSG;
	if (r == -EAGAIN)
		return r;
	/* The whole answer: a head that came early, and {"StatusCode": 0}. */
	if (n == 0 && request_read((struct text){ w->bytes, w->size }, &reply) == 0 &&
	    reply.status == HTTP_OK)
		j = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	code = json_object_get(j, "StatusCode");
	if (!json_is_integer(code) || json_integer_value(code) < 0 ||
	    json_integer_value(code) > STATUS_MAX)
		return err_sys(err, r, "the engine does not say how the container ended");
	*ret_status = (int)json_integer_value(code);
	return 0;
}

int docker_attach(const struct docker *e, const char *id, bool input, int *ret_fd,
		  struct err *err)
{
	static const char upgrade[] = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
	CLEAN(arena) struct arena arena = { 0 };
	char path[PATH_SIZE], text[2048];
	unsigned int status;
	CLEAN(fd) int fd = -1;
	int r;

	snprintf(path, sizeof(path), "/containers/%s/attach?stream=1&stdout=1&stderr=1%s",
		 id, input ? "&stdin=1" : "");
	r = send_request(e, "POST", path, upgrade, NULL, WAIT_SEC, &fd, err);
	if (r < 0)
		return r;
	r = request_receive_head(fd, &status);
	if (r == 0 && status >= HTTP_MULTIPLE) {
		const ssize_t n = recv(fd, text, sizeof(text), MSG_WAITALL);
		const struct client_reply reply = { status,
						    { text, n > 0 ? (size_t)n : 0 } };

		return err_set(err, -EREMOTEIO, "%s",
			       request_reason(&reply, "message", &arena));
	}
	if (r == 0)
		r = process_dont_wait(fd);
	if (r < 0)
		return err_sys(err, r, "cannot attach to the container");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

const char *docker_last_words(const struct docker *e, const char *id, struct arena *arena)
{
	struct client_reply reply;
	struct err ignored = { 0 };
	char path[PATH_SIZE];
	struct text last = { "", 0 };

	snprintf(path, sizeof(path), "/containers/%s/logs?stdout=1&stderr=1&tail=1", id);
	if (converse(e, "GET", path, NULL, arena, &reply, &ignored) == 0 &&
	    reply.status == HTTP_OK && reply.body.len > DOCKER_STREAM_HEADER)
		last = (struct text){ reply.body.ptr + DOCKER_STREAM_HEADER,
				      reply.body.len - DOCKER_STREAM_HEADER };
	return arena_printf(arena, "%s", TEXT_SHOWN(text_trim(last)));
}

/* === the first process === */

enum { PROC_FILE_MAX = 65536 };

static int read_proc(const char *pid, const char *file, struct file_bytes *ret)
{
	const struct file_how how = { .max_bytes = PROC_FILE_MAX, .anybodys = true };
	struct err ignored = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
	return file_read(AT_FDCWD, path, &how, ret, &ignored);
}

bool container_process_is_of(const char *pid, const char *container)
{
	CLEAN(file_bytes) struct file_bytes groups = { 0 };

	return read_proc(pid, "cgroup", &groups) == 0 && strstr(groups.bytes, container);
}

/* 0: it can't be told. */
static pid_t parent_of(const char *pid)
{
	static const char key[] = "\nPPid:\t";
	CLEAN(file_bytes) struct file_bytes status = { 0 };
	const char *at;
	uint32_t parent;

	if (read_proc(pid, "status", &status) < 0)
		return 0;
	at = strstr(status.bytes, key);
	if (!at)
		return 0;
	at += strlen(key);
	return text_to_u32((struct text){ at, strspn(at, "0123456789") }, INT32_MAX,
			   &parent)
		       ? (pid_t)parent
		       : 0;
}

static int open_pidfd(pid_t pid)
{
	return pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

void container_process_open(const struct docker *e, const char *container,
			    struct container_process *ret)
{
	CLEAN(json) json_t *found = NULL;
	struct err ignored = { 0 };
	char pid[12];
	pid_t number;

	*ret = (struct container_process){ -1, -1 };
	if (docker_inspect(e, container, &found, &ignored) < 0)
		return;
	number = (pid_t)json_integer_value(
		json_object_get(json_object_get(found, "State"), "Pid"));
	snprintf(pid, sizeof(pid), "%d", (int)number);
	ret->first = open_pidfd(number);
	if (ret->first >= 0 && container_process_is_of(pid, container))
		ret->monitor = open_pidfd(parent_of(pid));
	else
		fd_close(&ret->first);
}

bool container_process_is_gone(const struct container_process *p)
{
	struct pollfd both[] = { { .fd = p->first, .events = POLLIN },
				 { .fd = p->monitor, .events = POLLIN } };

	return p->first >= 0 && p->monitor >= 0 && poll(both, 2, 0) == 2;
}

/* === the streams === */

enum {
	/* Into a pipe that poll() calls writable that much goes without blocking. */
	PIECE_SIZE = 4096,
	HEADER_STDERR = 2,
	POLL_ENGINE = 0,
	POLL_INPUT,
	POLL_OUTPUT,
};

static bool is_empty(const struct stream_buffer *b)
{
	return b->at == b->size;
}

/* Headers are taken out of the front of what has come. */
static void read_header(struct stream *s)
{
	while (!s->tty && s->left == 0 && !is_empty(&s->out)) {
		s->header[s->header_size++] = (uint8_t)s->out.bytes[s->out.at++];
		if (s->header_size < DOCKER_STREAM_HEADER)
			continue;
		s->header_size = 0;
		s->left = (size_t)s->header[4] << 24 | (size_t)s->header[5] << 16 |
			  (size_t)s->header[6] << 8 | s->header[7];
	}
}

static int output_of(const struct stream *s)
{
	return !s->tty && s->header[0] == HEADER_STDERR ? STDERR_FILENO : STDOUT_FILENO;
}

void stream_polls(const struct stream *s, struct pollfd polls[STREAM_POLLS])
{
	short events = is_empty(&s->out) ? POLLIN : 0;

	if (!is_empty(&s->in))
		events |= POLLOUT;
	polls[POLL_ENGINE] = (struct pollfd){ events ? s->fd : -1, events, 0 };
	polls[POLL_INPUT] = (struct pollfd){
		s->has_input && is_empty(&s->in) && s->fd >= 0 ? STDIN_FILENO : -1,
		POLLIN, 0
	};
	polls[POLL_OUTPUT] =
		(struct pollfd){ is_empty(&s->out) ? -1 : output_of(s), POLLOUT, 0 };
}

static void read_engine(struct stream *s)
{
	ssize_t n = recv(s->fd, s->out.bytes, sizeof(s->out.bytes), 0);

	if (n < 0 && errno == EAGAIN)
		return;
	s->out.at = 0;
	s->out.size = n > 0 ? (size_t)n : 0;
	if (n <= 0)
		fd_close(&s->fd);
	read_header(s);
}

static void read_input(struct stream *s)
{
	ssize_t n = read(STDIN_FILENO, s->in.bytes, PIECE_SIZE);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->in.at = 0;
	s->in.size = n > 0 ? (size_t)n : 0;
	if (n > 0)
		return;
	s->has_input = false;
	shutdown(s->fd, SHUT_WR);
}

static int write_output(struct stream *s)
{
	size_t size = MIN(s->out.size - s->out.at, (size_t)PIECE_SIZE);
	ssize_t n;

	if (!s->tty)
		size = MIN(size, s->left);
	n = write(output_of(s), s->out.bytes + s->out.at, size);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	s->out.at += (size_t)n;
	s->left -= s->tty ? 0 : (size_t)n;
	read_header(s);
	return 0;
}

int stream_turn(struct stream *s, const struct pollfd polls[STREAM_POLLS])
{
	int r = 0;

	if (polls[POLL_OUTPUT].revents)
		r = write_output(s);
	if (r == 0 && polls[POLL_ENGINE].revents & (POLLIN | POLLHUP | POLLERR) &&
	    is_empty(&s->out))
		read_engine(s);
	if (s->fd >= 0 && polls[POLL_ENGINE].revents & POLLOUT) {
		ssize_t n = send(s->fd, s->in.bytes + s->in.at, s->in.size - s->in.at,
				 MSG_NOSIGNAL);

		if (n > 0)
			s->in.at += (size_t)n;
		else if (n < 0 && errno != EAGAIN)
			s->in.at = s->in.size; /* the command has closed its input */
	}
	if (s->fd >= 0 && polls[POLL_INPUT].revents)
		read_input(s);
	return r;
}

bool stream_has_ended(const struct stream *s)
{
	return s->fd < 0 && is_empty(&s->out);
}

void stream_make_raw(struct stream *s)
{
	struct termios raw;

	if (!s->tty || !s->has_input || tcgetattr(STDIN_FILENO, &s->before) < 0)
		return;
	raw = s->before;
	cfmakeraw(&raw);
	s->is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void stream_done(struct stream *s)
{
	fd_close(&s->fd);
	if (s->is_raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
	s->is_raw = false;
}
