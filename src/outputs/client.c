// SPDX-License-Identifier: Apache-2.0
#include "outputs/client.h"

#include <errno.h>
#include <jansson.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/exit_status.h"
#include "base/http_status.h"
#include "base/log.h"
#include "policy/explain.h"
#include "settings/settings.h"

enum {
	ANSWER_MAX = 8 << 20,
	WAIT_SEC = 30, /* an attach has its self-test before it is answered */
	HEAD_SIZE = 512,
};

static int dial(const char *path, struct err *err)
{
	const struct timeval wait = { .tv_sec = WAIT_SEC };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = -1;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, -EINVAL, "'%.100s' is too long for a socket", path);
	memcpy(sa.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0)
		return err_sys(err, -errno, "cannot open a socket");
	if (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
		return err_sys(err, -errno, "cannot reach the daemon at '%.150s'", path);
	return TAKE_FD(fd);
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

static int receive_all(int fd, char *bytes, size_t *ret_size)
{
	size_t size = 0;
	ssize_t n;

	while ((n = recv(fd, bytes + size, ANSWER_MAX - size, 0)) > 0)
		size += (size_t)n;
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (size == ANSWER_MAX)
		return -E2BIG;
	*ret_size = size;
	return 0;
}

/* "HTTP/1.1 200 …", and what is behind the empty line. */
static int read_answer(struct text all, struct arena *arena, struct client_reply *ret)
{
	static const char begin[] = "HTTP/1.1 ";
	const size_t begin_len = sizeof(begin) - 1;
	const char *end = memmem(all.ptr, all.len, "\r\n\r\n", 4);
	const char *body;
	uint32_t status;

	if (!end || all.len < begin_len + 3 || memcmp(all.ptr, begin, begin_len) != 0 ||
	    !text_to_u32((struct text){ all.ptr + begin_len, 3 }, 599, &status))
		return -EBADMSG;
	ret->status = status;
	body = end + 4;
	ret->body.len = all.len - (size_t)(body - all.ptr);
	ret->body.ptr = arena_text(arena, (struct text){ body, ret->body.len });
	return ret->body.ptr ? 0 : -ENOMEM;
}

int client_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret, struct err *err)
{
	const char *place = socket ? socket : getenv("WEIR_SOCKET");
	CLEAN(mem) char *bytes = malloc(ANSWER_MAX);
	CLEAN(fd) int fd = dial(place && place[0] ? place : CLI_DAEMON_SOCKET, err);
	char head[HEAD_SIZE];
	size_t size = 0;
	int r;

	if (fd < 0)
		return fd;
	if (!bytes)
		return err_set(err, -ENOMEM, "out of memory");
	r = snprintf(head, sizeof(head),
		     "%s %s HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n"
		     "Content-Length: %zu\r\n\r\n",
		     method, path, body.len);
	if (r >= (int)sizeof(head))
		return err_set(err, -EINVAL, "the id is too long");
	r = send_all(fd, head, (size_t)r);
	if (r == 0)
		r = send_all(fd, body.ptr, body.len);
	/* It may have answered and closed before it has read everything. */
	if (r == 0 || r == -EPIPE)
		r = receive_all(fd, bytes, &size);
	if (r == 0)
		r = read_answer((struct text){ bytes, size }, arena, ret);
	if (r < 0 && r != -ETIMEDOUT && size == 0)
		return err_set(err, r,
			       "the daemon has closed the connection without a word: its "
			       "API is for root and members of the group weir; a run "
			       "answers its own user alone, outside of sandboxes");
	return r < 0 ? err_sys(err, r, "the daemon does not answer as it should") : 0;
}

const char *client_reason(const struct client_reply *reply, struct arena *arena)
{
	json_t *j = json_loadb(reply->body.ptr, reply->body.len, 0, NULL);
	const char *reason = json_string_value(json_object_get(j, "reason"));
	struct text t = text_trim(reason ? text_of(reason) : reply->body);
	char shown[TEXT_ESCAPED_SIZE];
	const char *kept =
		arena_printf(arena, "%s", text_escape(t, shown, sizeof(shown)));

	json_decref(j);
	return kept ? kept : "out of memory";
}

/* ---- what the verbs share ---- */

int daemon_bad_id(const char *id)
{
	char shown[TEXT_ESCAPED_SIZE];

	log_error("'%s' is not an id: " DAEMON_ID_IS,
		  text_escape(text_of(id), shown, sizeof(shown)));
	return RUN_STATUS_BAD_INPUT;
}

int daemon_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret)
{
	struct err err = { 0 };

	if (!path) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	if (client_ask(socket, method, path, body, arena, ret, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_FAILED;
	}
	if (ret->status < HTTP_MULTIPLE)
		return 0;
	log_error("%s", client_reason(ret, arena));
	return ret->status == HTTP_BAD_REQUEST ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED;
}

int daemon_policy_json(const struct policy *policy, const struct plan *plan, char **ret)
{
	size_t size;
	FILE *out = open_memstream(ret, &size);
	int r;

	if (!out)
		return -ENOMEM;
	r = cli_policy_show(policy, plan, true, out);
	return fclose(out) != 0 ? -ENOMEM : r;
}

/* What no policy can give a sandbox that is there already. */
static void tell_of_needs(const struct policy *policy)
{
	for (size_t i = 0; i < policy->need_count; i++) {
		const struct policy_need *n = &policy->needs[i];

		if (!n->profile &&
		    strncmp(n->at.file, POLICY_BUILT_IN, strlen(POLICY_BUILT_IN)) != 0)
			log_warning("%s:%u: `run` counts in a profile that weir run "
				    "starts with, ignoring '%s'",
				    n->at.file, n->at.line, n->value);
	}
}

int daemon_policy_text(const struct policy_args *args, char **ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct policy policy;
	struct plan plan;
	struct err err = { 0 };
	size_t size;
	int r = cli_policy_build(args, &arena, true, &policy, &bytes, &size);

	if (r < 0)
		return r == -EINVAL ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED;
	tell_of_needs(&policy);
	r = plan_open(bytes, size, &plan, &err);
	if (r == 0)
		r = daemon_policy_json(&policy, &plan, ret);
	if (r == 0)
		return 0;
	log_error("%s", err.code < 0 ? err.text : "out of memory");
	return RUN_STATUS_FAILED;
}

int daemon_find_user(const char *name, uint32_t *ret)
{
	char shown[TEXT_ESCAPED_SIZE];
	const struct passwd *user;

	bool known = text_to_u32(text_of(name), UINT32_MAX - 1, ret);

	user = known ? NULL : getpwnam(name);
	if (user)
		*ret = user->pw_uid;
	if ((known || user) && *ret > 0)
		return 0;
	log_error("--uid: '%s' is %s", text_escape(text_of(name), shown, sizeof(shown)),
		  known || user ? "root, whom nothing can hold"
				: "not a user of this host");
	return RUN_STATUS_BAD_INPUT;
}
