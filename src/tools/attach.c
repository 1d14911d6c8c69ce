// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "base/macros.h"
#include "outputs/ask.h"
#include "tools/attach.h"

enum {
	HTTP_MULTIPLE = 300,
	HTTP_BAD_REQUEST = 400,
	HTTP_CONFLICT = 409,
	HTTP_UNAVAILABLE = 503,
	RESTART_MS = 10000,
	AWAY_MS = 3000,
	LOOK_MS = 50,
};

struct spec {
	const char *id, *netns, *cgroup, *uid, *socket;
	struct policy_args policy;
	bool guard_parent, again, oci_state;
};

static const struct cli_option attach_options[] = {
	{ "id", "NAME", "what the sandbox is called",
	  OPTION_IN(TEXT_ONCE, struct spec, id) },
	{ "netns", "NAMESPACE", "a network namespace: a path, or a process in it",
	  OPTION_IN(TEXT_ONCE, struct spec, netns) },
	{ "oci-state", NULL,
	  "a container: the state that an OCI runtime gives its hooks says --id and "
	  "--netns",
	  OPTION_IN(FLAG, struct spec, oci_state) },
	{ "cgroup", "PATH",
	  "a control group of this host: its directory, or a path as in "
	  "/proc/PID/cgroup",
	  OPTION_IN(TEXT_ONCE, struct spec, cgroup) },
	{ "uid", "USER", "a user of this host, by name or number",
	  OPTION_IN(TEXT_ONCE, struct spec, uid) },
	{ "guard-parent", NULL,
	  "with --cgroup: close its parent to groups that nobody knows",
	  OPTION_IN(FLAG, struct spec, guard_parent) },
	{ "again", NULL,
	  "it may be attached already: it gets this policy (not with --netns)",
	  OPTION_IN(FLAG, struct spec, again) },
	POLICY_ARGS_ROWS(struct spec, policy),
	{ "socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",
	  OPTION_IN(TEXT, struct spec, socket) },
};
const struct cli_options cli_attach_options = { attach_options,
						ARRAY_SIZE(attach_options) };

void cli_attach_usage(FILE *out)
{
	fputs("usage: weir attach --id NAME --netns|--cgroup|--uid WHAT [OPTION]...\n"
	      "       weir attach --oci-state [OPTION]...\n\n"
	      "Have the daemon guard a sandbox. When this returns 0, the filter stands, "
	      "was\nread back and tested from inside; else nothing is weaker than "
	      "before, and the\nstatus is 125 (failed_safety_setup), or 2 for bad "
	      "input. Without a policy\neverything is denied.\n\n",
	      out);
	cli_options_print(out, &cli_attach_options);
}

/* Whoever starts the sandbox is to look at this, and not go on. */
static int failed_setup(const char *why)
{
	log_error("failed_safety_setup: %s", why);
	return RUN_STATUS_FAILED;
}

/* Relative to where we are, not to where the daemon is. */
static const char *absolute(const char *where, struct arena *arena)
{
	CLEAN(mem) char *here = NULL;
	uint32_t pid;

	if (where[0] == '/' || text_to_u32(text_of(where), INT32_MAX, &pid))
		return where;
	here = get_current_dir_name();
	return here ? arena_printf(arena, "%s/%s", here, where) : NULL;
}

static json_t *body_of(const struct spec *s, uint32_t uid, const char *policy,
		       struct arena *arena)
{
	json_t *j = json_pack("{s:o?}", "policy", json_loads(policy, 0, NULL));

	if (j && s->netns)
		json_object_set_new(j, "netns", json_string(absolute(s->netns, arena)));
	if (j && s->cgroup)
		/* A cgroup's path counts from the root of the hierarchy. */
		json_object_set_new(
			j, "cgroup",
			json_sprintf("%s%s", s->cgroup[0] == '/' ? "" : "/", s->cgroup));
	if (j && uid > 0)
		json_object_set_new(j, "uid", json_integer(uid));
	if (j && s->guard_parent)
		json_object_set_new(j, "guardParent", json_true());
	if (j && s->again)
		json_object_set_new(j, "again", json_true());
	return j;
}

/* It is being stopped, started, or takes over what was there before. What may be asked
 * again is, after whatever became of it. And the namespace that a container had before it
 * was started again may not be quite gone. */
static bool is_starting(const struct spec *s, int r, const struct client_reply *reply)
{
	if (r == 0)
		return reply->status == HTTP_UNAVAILABLE ||
		       (s->oci_state && reply->status == HTTP_CONFLICT);
	return (s->again || s->oci_state) &&
	       (r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE ||
		r == -EBADMSG);
}

static int ask_until_ready(const struct spec *s, const char *path, const char *body,
			   struct arena *arena, struct client_reply *ret, struct err *err)
{
	const int64_t now_ms = clock_now_ms();
	int r;

	do {
		*err = (struct err){ 0 };
		r = client_ask(s->socket, "PUT", path, text_of(body), arena, ret, err);
		if (!is_starting(s, r, ret))
			return r;
		(void)!poll(NULL, 0, LOOK_MS);
	} while (clock_now_ms() < now_ms + (r < 0 ? AWAY_MS : RESTART_MS));
	return r;
}

/* A container in the network of another one, as all of a pod are: it is guarded as that
 * one is. */
static bool is_guarded_already(const struct spec *s, const char *why)
{
	static const char end[] = " is that network namespace already";
	size_t len = strlen(why);

	return s->oci_state && len >= strlen(end) &&
	       strcmp(why + len - strlen(end), end) == 0;
}

static int attach(const struct spec *s, uint32_t uid, const char *policy)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s", s->id);
	json_t *j = body_of(s, uid, policy, &arena);
	CLEAN(mem) char *body = j ? json_dumps(j, JSON_COMPACT) : NULL;
	struct client_reply reply;
	struct err err = { 0 };

	json_decref(j);
	if (!body || !path)
		return failed_setup("out of memory");
	if (ask_until_ready(s, path, body, &arena, &reply, &err) < 0)
		return failed_setup(err.text);
	if (reply.status < HTTP_MULTIPLE)
		return 0;
	if (reply.status == HTTP_BAD_REQUEST) {
		log_error("%s", client_reason(&reply, &arena));
		return RUN_STATUS_BAD_INPUT;
	}
	if (is_guarded_already(s, client_reason(&reply, &arena)))
		return 0;
	return failed_setup(client_reason(&reply, &arena));
}

/* All that is wrong with it is told, the policy too. */
static int check_spec(const struct spec *s, uint32_t *ret_uid, char **ret_policy)
{
	int kinds = (s->netns != NULL) + (s->cgroup != NULL) + (s->uid != NULL);
	int r = 0, policy;

	if (!s->id || kinds != 1) {
		log_error("attach: --id and exactly one of --netns, --cgroup and --uid "
			  "say what is attached");
		r = RUN_STATUS_BAD_INPUT;
	}
	if (s->guard_parent && !s->cgroup) {
		log_error("attach: --guard-parent goes with --cgroup alone");
		r = RUN_STATUS_BAD_INPUT;
	}
	if (s->again && s->netns) {
		log_error("attach: --again goes with --cgroup and --uid alone");
		r = RUN_STATUS_BAD_INPUT;
	}
	if (s->id && !daemon_is_id(s->id))
		r = daemon_bad_id(s->id);
	if (s->uid && daemon_find_user(s->uid, ret_uid) != 0)
		r = RUN_STATUS_BAD_INPUT;
	policy = daemon_policy_text(&s->policy, ret_policy);
	return r != 0 ? r : policy;
}

/* --- the container of --oci-state --- */

enum {
	STATE_MAX = 1024 * 1024, /* bytes; more is no state */
	SHORT_ID = 12,
};

struct oci_state {
	char id[64];  /* a sandbox's; of a long one of hex digits the first twelve, as
		       * `docker ps` shows it */
	char pid[12]; /* of its first process, in the network namespace of its own */
};

/* Return: its length, or -errno; -E2BIG. */
static ssize_t read_all(int fd, char *bytes, size_t size)
{
	size_t used = 0;
	ssize_t n;

	do {
		n = read(fd, bytes + used, size - used);
		if (n < 0 && errno != EINTR)
			return -errno;
		used += n > 0 ? (size_t)n : 0;
	} while (n != 0 && used < size);
	return used < size ? (ssize_t)used : -E2BIG;
}

static int read_container(const json_t *j, struct oci_state *ret, struct err *err)
{
	const char *id = json_string_value(json_object_get(j, "id"));
	json_int_t pid = json_integer_value(json_object_get(j, "pid"));
	size_t len = id ? strlen(id) : 0;

	if (len == 0 || pid <= 0 || pid > INT_MAX)
		return err_set(err, -EBADMSG,
			       "standard input is not the state of a container that is "
			       "being created: it has no id, or no pid");
	if (len > SHORT_ID && strspn(id, "0123456789abcdef") == len)
		len = SHORT_ID;
	if (len >= sizeof(ret->id))
		return err_set(err, -EBADMSG, "the container's id is longer than %zu",
			       sizeof(ret->id) - 1);
	snprintf(ret->id, sizeof(ret->id), "%.*s", (int)len, id);
	snprintf(ret->pid, sizeof(ret->pid), "%d", (int)pid);
	return 0;
}

/* Return: 0; -EBADMSG: it is no such state, or says nothing of a process; -errno. */
static int oci_state_read(int fd, struct oci_state *ret, struct err *err)
{
	CLEAN(mem) char *bytes = malloc(STATE_MAX);
	ssize_t size = bytes ? read_all(fd, bytes, STATE_MAX) : -ENOMEM;
	json_error_t why;
	json_t *j;
	int r;

	if (size < 0)
		return err_sys(err, (int)size, "cannot read a container's state");
	j = json_loadb(bytes, (size_t)size, 0, &why);
	r = read_container(j, ret, err);
	json_decref(j);
	return r;
}

/* A hook gets nothing but the state. */
static int take_state(struct spec *s, struct oci_state *state, struct err *err)
{
	if (!s->oci_state)
		return 0;
	if (s->id || s->netns || s->cgroup || s->uid)
		return err_set(err, -EINVAL,
			       "--oci-state says --id and --netns: none of --id, "
			       "--netns, --cgroup and --uid goes with it");
	s->id = state->id;
	s->netns = state->pid;
	return oci_state_read(STDIN_FILENO, state, err);
}

int cli_attach(int argc, char **argv)
{
	struct oci_state state = { 0 };
	struct spec spec = { .policy.verify = POLICY_VERIFY_DNS };
	CLEAN(mem) char *policy = NULL;
	uint32_t uid = 0;
	struct err err = { 0 };
	int r = cli_options_only(&cli_attach_options, &spec, argc, argv, NULL, &err);

	if (r == 0)
		(void)!take_state(&spec, &state, &err);
	if (err.code < 0) {
		log_error("attach: %s", err.text);
		return RUN_STATUS_BAD_INPUT;
	}
	r = check_spec(&spec, &uid, &policy);
	return r != 0 ? r : attach(&spec, uid, policy);
}
