// SPDX-License-Identifier: Apache-2.0
#include "container/docker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/http_status.h"
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
	const char *name, *variable;
	const char *rootless; /* below $XDG_RUNTIME_DIR */
	const char *socket;
};

/* Return: 1: it is there; 0: it isn't; -errno with @err. */
static int find(const struct kind *k, struct arena *arena, struct docker *ret,
		struct err *err)
{
	static const char unix_socket[] = "unix://";
	const char *given = getenv(k->variable), *home = getenv("XDG_RUNTIME_DIR");
	const char *rootless = home ? arena_printf(arena, "%s/%s", home, k->rootless)
				    : NULL;

	if (given && given[0]) {
		if (strncmp(given, unix_socket, strlen(unix_socket)) != 0)
			return err_set(err, -EINVAL,
				       "%s is '%.150s': only an engine of this machine "
				       "is asked, on a unix socket (unix:///PATH)",
				       k->variable, given);
		*ret = (struct docker){ k->name, given + strlen(unix_socket) };
		return 1;
	}
	*ret = (struct docker){ k->name, is_socket(rootless) ? rootless : k->socket };
	return is_socket(ret->socket);
}

int docker_find(enum container_engine which, struct arena *arena, struct docker *ret,
		struct err *err)
{
	static const struct kind docker = { "docker", "DOCKER_HOST", "docker.sock",
					    "/var/run/docker.sock" };
	static const struct kind podman = { "podman", "CONTAINER_HOST",
					    "podman/podman.sock",
					    "/run/podman/podman.sock" };
	int r = 0;

	if (which != CONTAINER_PODMAN)
		r = find(&docker, arena, ret, err);
	if (r == 0 && which != CONTAINER_DOCKER)
		r = find(&podman, arena, ret, err);
	if (r != 0)
		return r < 0 ? r : 0;
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
	json_t *answer = NULL;
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
	json_decref(answer);
	return *ret_id ? 0 : err_set(err, -EBADMSG, "%s says no id", e->name);
}

static int post(const struct docker *e, const char *id, const char *what, struct err *err)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "/containers/%s/%s", id, what);
	return docker_ask(e, "POST", path, NULL, NULL, err);
}

int docker_start(const struct docker *e, const char *id, struct err *err)
{
	return post(e, id, "start", err);
}

int docker_kill(const struct docker *e, const char *id, int sig, struct err *err)
{
	char what[32];

	snprintf(what, sizeof(what), "kill?signal=%d", sig);
	return post(e, id, what, err);
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

/* The whole answer: a head that came early, and {"StatusCode": 0}. */
static int read_end(const struct docker_wait *w, int *ret_status)
{
	struct client_reply reply;
	json_t *j, *code;
	int r = request_read((struct text){ w->bytes, w->size }, &reply);

	if (r < 0 || reply.status != HTTP_OK)
		return -EBADMSG;
	j = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	code = json_object_get(j, "StatusCode");
	if (!json_is_integer(code) || json_integer_value(code) < 0 ||
	    json_integer_value(code) > STATUS_MAX)
		r = -EBADMSG;
	else
		*ret_status = (int)json_integer_value(code);
	json_decref(j);
	return r;
}

int docker_wait_read(struct docker_wait *w, int *ret_status, struct err *err)
{
	ssize_t n = recv(w->fd, w->bytes + w->size, sizeof(w->bytes) - w->size, 0);
	int r = n < 0 ? -errno : -EAGAIN;

	if (n > 0)
		w->size += (size_t)n;
	if (n == 0)
		r = read_end(w, ret_status);
	if (r == 0 || r == -EAGAIN)
		return r;
	return err_sys(err, r, "the engine does not say how the container ended");
}

static int refusal(int fd, unsigned int status, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	char text[2048];
	ssize_t n = recv(fd, text, sizeof(text), MSG_WAITALL);
	const struct client_reply reply = { status, { text, n > 0 ? (size_t)n : 0 } };

	return err_set(err, -EREMOTEIO, "%s", request_reason(&reply, "message", &arena));
}

int docker_attach(const struct docker *e, const char *id, bool input, int *ret_fd,
		  struct err *err)
{
	static const char upgrade[] = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
	char path[PATH_SIZE];
	unsigned int status;
	CLEAN(fd) int fd = -1;
	int r;

	snprintf(path, sizeof(path), "/containers/%s/attach?stream=1&stdout=1&stderr=1%s",
		 id, input ? "&stdin=1" : "");
	r = send_request(e, "POST", path, upgrade, NULL, WAIT_SEC, &fd, err);
	if (r < 0)
		return r;
	r = request_receive_head(fd, &status);
	if (r == 0 && status >= HTTP_MULTIPLE)
		return refusal(fd, status, err);
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
