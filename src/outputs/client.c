// SPDX-License-Identifier: Apache-2.0
#include "outputs/client.h"

#include <errno.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/http_status.h"
#include "base/log.h"
#include "event/json.h"
#include "policy/explain.h"
#include "settings/settings.h"

enum {
	WAIT_SEC = 30, /* an attach has its self-test before it is answered */
	TAKE_OVER_MS = 10000,
	LOOK_MS = 50,
};

const char *client_named_socket(const char *given)
{
	const char *socket = given ? given : getenv("WEIR_SOCKET");

	return socket && socket[0] ? socket : NULL;
}

const char *client_socket(const char *given)
{
	return client_named_socket(given) ?: CLI_DAEMON_SOCKET;
}

const char *client_guard(const char *given, const char *id,
			 char run[RUN_SOCKET_PATH_SIZE])
{
	return !client_named_socket(given) && run_socket_find(id, run) ? run : given;
}

int client_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret, struct err *err)
{
	const struct request_place to = { .socket = client_socket(socket) };
	const struct request q = { method, path, .body = body, .wait_sec = WAIT_SEC };
	CLEAN(fd) int fd = -1;
	int r = request_send(&to, &q, &fd, err);
	const char *hint = "";

	if (r == -ENOENT || r == -ECONNREFUSED)
		hint = "; is `weir daemon` running?";
	else if (r == -EACCES)
		hint = "; its API is for root and members of the group weir";
	if (r < 0)
		return err_set(err, r, "cannot reach the daemon at '%.150s': %s%s",
			       to.socket, strerror(-r), hint);
	r = request_receive(fd, arena, ret);
	if (r == -ECONNRESET)
		return err_set(err, r,
			       "the daemon has closed the connection without a word: its "
			       "API is for root and members of the group weir; a run "
			       "answers its own user alone, outside of sandboxes");
	return r < 0 ? err_sys(err, r, "the daemon does not answer as it should") : 0;
}

int client_attach(const char *socket, const char *id, const struct client_wish *wish,
		  struct arena *arena, struct client_reply *ret, struct err *err)
{
	const int64_t until_ms = clock_now_ms() + TAKE_OVER_MS;
	const char *path = arena_printf(arena, "/sandboxes/%s", id);
	const struct text where = text_of(wish->netns ?: wish->cgroup);
	struct jtext j = { .grows = true };
	CLEAN(mem) char *body = NULL;
	int r;

	jtext_open(&j, NULL, '{');
	jtext_raw(&j, "policy", wish->policy);
	if (wish->netns)
		jtext_member(&j, "netns", wish->netns);
	if (wish->cgroup)
		jtext_member(&j, "cgroup", wish->cgroup);
	if (wish->uid > 0)
		jtext_count(&j, "uid", wish->uid);
	if (wish->guard_parent)
		jtext_bool(&j, "guardParent", true);
	if (wish->again)
		jtext_bool(&j, "again", true);
	jtext_close(&j, '}');
	body = jtext_take(&j);
	if (!path || !body)
		return err_set(err, -ENOMEM, "out of memory");
	/* Another one might be guarded in its place. */
	if (!jtext_is_utf8(where))
		return err_set(err, -EILSEQ, "the path '%s' is not UTF-8",
			       TEXT_SHOWN(where));
	while ((r = client_ask(socket, "PUT", path, text_of(body), arena, ret, err)) ==
		       0 &&
	       ret->status == HTTP_UNAVAILABLE && clock_now_ms() < until_ms)
		(void)!poll(NULL, 0, LOOK_MS);
	return r;
}

const char *client_reason(const struct client_reply *reply, struct arena *arena)
{
	return request_reason(reply, "reason", arena);
}

/* ---- what the verbs share ---- */

int daemon_bad_id(const char *id)
{
	return log_end(RUN_STATUS_BAD_INPUT, "'%s' is not an id: " DAEMON_ID_IS,
		       SHOWN(id));
}

int daemon_answer(const struct client_reply *reply, struct arena *arena)
{
	if (reply->status < HTTP_MULTIPLE)
		return 0;
	log_error("%s", client_reason(reply, arena));
	return reply->status == HTTP_BAD_REQUEST ? RUN_STATUS_BAD_INPUT
						 : RUN_STATUS_FAILED;
}

int daemon_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret)
{
	struct err err = { 0 };

	if (!path)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	if (client_ask(socket, method, path, body, arena, ret, &err) < 0)
		return log_end(RUN_STATUS_FAILED, "%s", err.text);
	return daemon_answer(ret, arena);
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
	/* What no policy can give a sandbox that is there already. */
	for (size_t i = 0; i < policy.need_count; i++) {
		const struct policy_need *n = &policy.needs[i];

		if (!n->profile && !policy_is_built_in(n->at.file))
			log_warning("%s:%u: `run` counts in a profile that weir run "
				    "starts with, ignoring '%s'",
				    n->at.file, n->at.line, n->value);
	}
	r = plan_open(bytes, size, &plan, &err);
	if (r == 0)
		r = daemon_policy_json(&policy, &plan, ret);
	return r == 0 ? 0
		      : log_end(RUN_STATUS_FAILED, "%s",
				err.code < 0 ? err.text : "out of memory");
}

const char *client_user_fault(const char *name, uint32_t *ret)
{
	bool known = text_to_u32(text_of(name), UINT32_MAX - 1, ret);
	const struct passwd *user = known ? NULL : getpwnam(name);

	if (user)
		*ret = user->pw_uid;
	if (!known && !user)
		return "not a user of this host";
	return *ret > 0 ? NULL : "root, whom nothing can hold";
}

int daemon_find_user(const char *name, uint32_t *ret)
{
	const char *fault = client_user_fault(name, ret);

	return fault ? log_end(RUN_STATUS_BAD_INPUT, "--uid: '%s' is %s", SHOWN(name),
			       fault)
		     : 0;
}
