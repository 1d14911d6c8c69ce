// SPDX-License-Identifier: Apache-2.0
#include "tools/tools.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/http_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "outputs/client.h"
#include "proto/run_socket.h"
#include "settings/settings.h"
#include "sys/print.h"

enum {
	RESTART_MS = 10000,
	AWAY_MS = 3000,
	LOOK_MS = 50,
	LIST_WAIT_SEC = 1,
};

struct spec {
	const char *id, *netns, *cgroup, *uid, *socket;
	struct policy_args policy;
	bool guard_parent, again, oci_state;
};

#define IN(KIND, field) OPTION_IN(KIND, struct spec, field)

static const struct cli_option attach_options[] = {
	{ "id", "NAME", "what the sandbox is called", IN(TEXT_ONCE, id) },
	{ "netns", "NAMESPACE", "a network namespace: a path, or a process in it",
	  IN(TEXT_ONCE, netns) },
	{ "oci-state", NULL,
	  "a container: the state that an OCI runtime gives its hooks says --id and "
	  "--netns",
	  IN(FLAG, oci_state) },
	{ "cgroup", "PATH",
	  "a control group of this host: its directory, or a path as in "
	  "/proc/PID/cgroup",
	  IN(TEXT_ONCE, cgroup) },
	{ "uid", "USER", "a user of this host, by name or number", IN(TEXT_ONCE, uid) },
	{ "guard-parent", NULL,
	  "with --cgroup: close its parent to groups that the daemon doesn't know",
	  IN(FLAG, guard_parent) },
	{ "again", NULL,
	  "it may be attached already: it gets this policy (not with --netns)",
	  IN(FLAG, again) },
	POLICY_ARGS_ROWS(struct spec, policy),
	POLICY_VERIFY_ROW(struct spec, policy,
			  "what a connection must show, whatever the policy says (dns)"),
	{ "socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",
	  IN(TEXT, socket) },
};
const struct cli_options cli_attach_options = {
	OPTION_ROWS(attach_options),
	.usage = "usage: weir attach --id NAME --netns|--cgroup|--uid WHAT [OPTION]...\n"
		 "       weir attach --oci-state [OPTION]...\n\n"
		 "Have the daemon guard a sandbox. When this returns 0, the filter "
		 "stands, "
		 "was\nread back and tested from inside; else nothing is weaker than "
		 "before, and the\nstatus is 125 (failed_safety_setup), or 2 for bad "
		 "input. Without a policy\neverything is denied.\n",
};

/* What starts the sandbox is to read this word, and not go on. */
static int failed_setup(const char *why)
{
	return log_end(RUN_STATUS_FAILED, "failed_safety_setup: %s", why);
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

/* It is being stopped or started. What may be asked again is, after whatever became of
 * it. And the namespace that a container had before it was started again may not be quite
 * gone. */
static bool is_starting(const struct spec *s, int r, const struct client_reply *reply)
{
	if (r == 0)
		return s->oci_state && reply->status == HTTP_CONFLICT;
	return (s->again || s->oci_state) &&
	       (r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE ||
		r == -EBADMSG);
}

static int ask_until_ready(const struct spec *s, const struct client_wish *wish,
			   struct arena *arena, struct client_reply *ret, struct err *err)
{
	const int64_t now_ms = clock_now_ms();
	int r;

	do {
		*err = (struct err){ 0 };
		r = client_attach(s->socket, s->id, wish, arena, ret, err);
		if (!is_starting(s, r, ret))
			return r;
		(void)!poll(NULL, 0, LOOK_MS);
	} while (clock_now_ms() < now_ms + (r < 0 ? AWAY_MS : RESTART_MS));
	return r;
}

/* Say which `verify` the daemon enforces, and how to get the other one. */
static void say_verify(const struct spec *s, const struct client_reply *reply)
{
	CLEAN(json) json_t *one = json_loadb(reply->body.ptr, reply->body.len, 0, NULL);
	const char *mode = json_string_value(json_object_get(one, "mode"));

	if (mode && strcmp(mode, "dns+nftables+tls") == 0)
		log_warning("'%s' is guarded with verify: tls, so TCP leaves from the "
			    "daemon's network; with --verify dns it leaves from the "
			    "sandbox's own",
			    s->id);
	else if (mode)
		log_warning("'%s' is guarded with verify: dns, so other names of an "
			    "allowed address are reachable too; --verify tls refuses "
			    "them",
			    s->id);
}

static int attach(const struct spec *s, uint32_t uid, const char *policy)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct client_wish wish = {
		.policy = policy,
		.netns = s->netns ? absolute(s->netns, &arena) : NULL,
		/* A cgroup's path counts from the root of the hierarchy. */
		.cgroup = s->cgroup && s->cgroup[0] != '/'
				  ? arena_printf(&arena, "/%s", s->cgroup)
				  : s->cgroup,
		.uid = uid,
		.guard_parent = s->guard_parent,
		.again = s->again,
	};
	static const char already[] = " is that network namespace already";
	struct client_reply reply;
	const char *reason;
	struct err err = { 0 };
	size_t len;
	int r = ask_until_ready(s, &wish, &arena, &reply, &err);

	if (r < 0 && r != -EILSEQ)
		return failed_setup(err.text);
	if (r == 0 && reply.status < HTTP_MULTIPLE) {
		/* What a hook prints has no reader. */
		if (!s->oci_state)
			say_verify(s, &reply);
		return 0;
	}
	if (r < 0 || reply.status == HTTP_BAD_REQUEST)
		return log_end(RUN_STATUS_BAD_INPUT, "%s",
			       r < 0 ? err.text : client_reason(&reply, &arena));
	/* A container in the network of another one, as all of a pod are: it is guarded
	 * as that one is. */
	reason = client_reason(&reply, &arena);
	len = strlen(reason);
	if (s->oci_state && len >= strlen(already) &&
	    strcmp(reason + len - strlen(already), already) == 0)
		return 0;
	return failed_setup(reason);
}

/* Report all faults at once, those of the policy too. */
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
	if (s->id && !ipc_is_sandbox_name(s->id))
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

/* Return: 0; -EBADMSG: it is no such state, or says nothing of a process; -errno. */
static int oci_state_read(int fd, struct oci_state *ret, struct err *err)
{
	CLEAN(mem) char *bytes = malloc(STATE_MAX);
	CLEAN(json) json_t *j = NULL;
	int r = bytes ? 0 : -ENOMEM;
	size_t size = 0;
	ssize_t n = 1;
	const char *id;
	json_int_t pid;
	size_t len;

	while (r == 0 && n != 0) {
		n = read(fd, bytes + size, STATE_MAX - size);
		if (n < 0 && errno != EINTR)
			r = -errno;
		size += n > 0 ? (size_t)n : 0;
		if (size == STATE_MAX)
			r = -E2BIG;
	}
	if (r < 0)
		return err_sys(err, r, "cannot read a container's state");
	j = json_loadb(bytes, size, 0, NULL);
	id = json_string_value(json_object_get(j, "id"));
	pid = json_integer_value(json_object_get(j, "pid"));
	len = id ? strlen(id) : 0;
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

int cli_attach(int argc, char **argv)
{
	struct oci_state state = { 0 };
	struct spec spec = { .policy.verify = POLICY_VERIFY_DNS };
	CLEAN(mem) char *policy = NULL;
	uint32_t uid = 0;
	struct err err = { 0 };
	int r = cli_options_only(&cli_attach_options, &spec, argc, argv, NULL, &err);

	if (r == 0 && spec.oci_state &&
	    (spec.id || spec.netns || spec.cgroup || spec.uid)) {
		err_set(&err, -EINVAL,
			"--oci-state says --id and --netns: none of --id, --netns, "
			"--cgroup and --uid goes with it");
	} else if (r == 0 && spec.oci_state) {
		/* A hook gets nothing but the state. */
		spec.id = state.id;
		spec.netns = state.pid;
		(void)!oci_state_read(STDIN_FILENO, &state, &err);
	}
	if (err.code < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "attach: %s", err.text);
	r = check_spec(&spec, &uid, &policy);
	return r != 0 ? r : attach(&spec, uid, policy);
}

/* -- detach, ps, status: what the daemon guards, and how ---------------------------- */

struct show_spec {
	const char *socket;
	bool json;
	bool skips_gone; /* what isn't there is no failure */
};

#define SOCKET_OPTION                                                                    \
	{                                                                                \
		"socket", "PATH", "where the daemon's API is (/run/weir/weir.sock)",     \
			OPTION_IN(TEXT, struct show_spec, socket)                        \
	}

static const struct cli_option detach_options[] = { SOCKET_OPTION };
const struct cli_options cli_detach_options = {
	OPTION_ROWS(detach_options),
	.usage = "usage: weir detach [--socket PATH] ID\n\n"
		 "Guard a sandbox no more: its rules are removed, and it is open.\n",
	.notes = "Exit status: 0; 2 bad input; 125 its rules are not gone.\n",
};

static const struct cli_option show_options[] = {
	{ "json", NULL, "print JSON", OPTION_IN(FLAG, struct show_spec, json) },
	SOCKET_OPTION,
};
const struct cli_options cli_ps_options = {
	OPTION_ROWS(show_options),
	.usage = "usage: weir ps [--json] [--socket PATH]\n\n"
		 "List the sandboxes that the daemon guards, and the caller's runs; with "
		 "--socket\nthe daemon's alone.\n",
	.notes = "Exit status: 0; 2 bad input; 125 the daemon can't be asked.\n",
};
const struct cli_options cli_status_options = {
	OPTION_ROWS(show_options),
	.usage = "usage: weir status [--json] [--socket PATH] [ID]\n\n"
		 "Say how a sandbox of the daemon's or a run of the caller's is guarded, "
		 "or "
		 "each\nof them in a line, and what is weaker than asked for.\n",
	.notes = "Exit status: 0, also of what is degraded; 2 bad input; 125 the daemon "
		 "can't be\nasked, or has no such sandbox.\n",
};

/* Return: 0, or the exit status after a message. */
static int read_arguments(const struct cli_options *table, struct show_spec *spec,
			  int argc, char **argv, int at_least, int at_most,
			  int *ret_first)
{
	struct err err = { 0 };
	int first = cli_options_parse(table, spec, argc, argv, NULL, &err);

	if (first >= 0 && argc - first < at_least)
		err_set(&err, -EINVAL, "name one sandbox");
	if (first >= 0 && argc - first > at_most)
		err_set(&err, -EINVAL, "'%s' is one argument too many",
			SHOWN(argv[first + at_most]));
	if (err.code < 0)
		return log_end(RUN_STATUS_BAD_INPUT, "%s: %s", argv[0], err.text);
	*ret_first = first;
	return first < argc && !ipc_is_sandbox_name(argv[first])
		       ? daemon_bad_id(argv[first])
		       : 0;
}

int cli_detach(int argc, char **argv)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct show_spec spec = { 0 };
	struct client_reply reply;
	int first;
	int r = read_arguments(&cli_detach_options, &spec, argc, argv, 1, 1, &first);

	if (r != 0)
		return r;
	return daemon_ask(spec.socket, "DELETE",
			  arena_printf(&arena, "/sandboxes/%s", argv[first]), text_of(""),
			  &arena, &reply);
}

/* -- runs of the caller's ------------------------------------------------------------ */

struct runs {
	json_t *list;
	bool whole; /* with the status */
};

/* A run that ends just now is left out. One that says nothing, as when it is stopped,
 * keeps the others from being listed for LIST_WAIT_SEC, and is listed as such. */
static void add_run(void *data, const char *id, const char *path)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct runs *runs = data;
	const char *what =
		arena_printf(&arena, "/sandboxes/%s%s", id, runs->whole ? "/status" : "");
	const struct request_place to = { .socket = path };
	const struct request q = { "GET", what, .wait_sec = LIST_WAIT_SEC };
	struct client_reply reply;
	CLEAN(json) json_t *one = NULL;
	CLEAN(fd) int fd = -1;
	int r = what ? request_send(&to, &q, &fd, NULL) : -ENOMEM;

	if (r == 0)
		r = request_receive(fd, &arena, &reply);
	if (r == 0)
		one = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	else if (r == -ETIMEDOUT || r == -EAGAIN)
		one = json_pack("{s:s,s:s,s:s}", "id", id, "kind", "run", "mode",
				"no answer");
	if (json_is_string(json_object_get(one, "id")))
		json_array_append(runs->list, one);
}

static int compare_ids(const void *a, const void *b)
{
	const json_t *const *x = a, *const *y = b;

	return strcmp(json_string_value(json_object_get(*x, "id")),
		      json_string_value(json_object_get(*y, "id")));
}

/* All of them, by their ids. */
static json_t *list_runs(bool whole)
{
	CLEAN(json) json_t *found = json_array();
	struct runs runs = { found, whole };
	CLEAN(mem) json_t **sorted = NULL;
	json_t *list = json_array();
	size_t count;

	run_socket_each(add_run, &runs);
	count = json_array_size(found);
	sorted = calloc(count + 1, sizeof(*sorted));
	for (size_t i = 0; sorted && i < count; i++)
		sorted[i] = json_array_get(found, i);
	if (sorted)
		qsort(sorted, count, sizeof(*sorted), compare_ids);
	for (size_t i = 0; sorted && i < count; i++)
		json_array_append(list, sorted[i]);
	return list;
}

/* Is there a daemon to be asked? Where there is none, or the caller may not ask it, his
 * runs are all that there is for him. */
static bool is_there_a_daemon(const struct show_spec *s)
{
	return client_named_socket(s->socket) ||
	       access(CLI_DAEMON_SOCKET, R_OK | W_OK) == 0;
}

/* -- what comes back ---------------------------------------------------------------- */

/* A member as a person reads it; it comes from the daemon, which has it from others. */
static const char *word(const json_t *of, const char *key, char buffer[TEXT_ESCAPED_SIZE])
{
	const json_t *value = json_object_get(of, key);

	if (json_is_integer(value))
		snprintf(buffer, TEXT_ESCAPED_SIZE, "%" JSON_INTEGER_FORMAT,
			 json_integer_value(value));
	else
		text_escape(
			text_of(json_is_string(value) ? json_string_value(value) : "?"),
			buffer, TEXT_ESCAPED_SIZE);
	return buffer;
}

#define WORD(of, key) word(of, key, (char[TEXT_ESCAPED_SIZE]){ 0 })

static const char *kind_of(const json_t *one)
{
	const char *kind = json_string_value(json_object_get(one, "kind"));

	return kind ? kind : "";
}

static json_int_t number(const json_t *of, const char *key)
{
	return json_integer_value(json_object_get(of, key));
}

/* Return: the JSON, or NULL with the exit status in @ret after a message. The status is 0
 * where what @path names is gone, and @s skips that. */
static json_t *get(const struct show_spec *s, const char *path, int *ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct client_reply reply;
	CLEAN(json) json_t *j = NULL;
	struct err err = { 0 };

	if (client_ask(s->socket, "GET", path, text_of(""), &arena, &reply, &err) < 0)
		*ret = log_end(RUN_STATUS_FAILED, "%s", err.text);
	else if (s->skips_gone && reply.status == HTTP_NOT_FOUND)
		*ret = 0;
	else
		*ret = daemon_answer(&reply, &arena);
	if (*ret != 0 || reply.status == HTTP_NOT_FOUND)
		return NULL;
	j = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	if (json_is_object(j))
		return TAKE_PTR(j);
	*ret = log_end(RUN_STATUS_FAILED, "the daemon's answer is not as it should be");
	return NULL;
}

/* Return: the exit status. */
static int print_answer(json_t *j)
{
	if (print_json(json_incref(j), JSON_COMPACT, stdout) == 0 && fflush(stdout) == 0)
		return 0;
	return log_end(RUN_STATUS_FAILED, "cannot write the output");
}

/* The list may look as if it were complete. */
static void warn_of_more(const json_t *list)
{
	if (json_is_true(json_object_get(list, "takingOver")))
		log_warning("the daemon is being started: there may be more");
}

/* Neither a run nor a daemon. */
static void warn_of_none(void)
{
	log_warning("you have no run under way, and there is no daemon for you "
		    "at " CLI_DAEMON_SOCKET);
}

/* -- ps ----------------------------------------------------------------------------- */

int cli_ps(int argc, char **argv)
{
	struct show_spec spec = { 0 };
	CLEAN(json) json_t *j = NULL, *runs = NULL;
	json_t *one;
	size_t i;
	int first;
	int r = read_arguments(&cli_ps_options, &spec, argc, argv, 0, 0, &first);

	if (r != 0)
		return r;
	j = is_there_a_daemon(&spec) ? get(&spec, "/sandboxes", &r)
				     : json_pack("{s:[]}", "sandboxes");
	if (!j)
		return r;
	if (!client_named_socket(spec.socket)) {
		runs = list_runs(false);
		json_array_extend(json_object_get(j, "sandboxes"), runs);
	}
	if (spec.json)
		return print_answer(j);
	printf("%-20s %-6s  %-16s  %-9s %5s %7s  %s\n", "ID", "KIND", "MODE", "POLICY",
	       "RULES", "DENIES", "WHERE");
	json_array_foreach(json_object_get(j, "sandboxes"), i, one)
		printf("%-20s %-6s  %-16s  %-9s %5s %7s  %s\n", WORD(one, "id"),
		       kind_of(one), WORD(one, "mode"), WORD(one, "policyMode"),
		       WORD(one, "rules"), WORD(one, "denies"), WORD(one, kind_of(one)));
	warn_of_more(j);
	if (!is_there_a_daemon(&spec) &&
	    json_array_size(json_object_get(j, "sandboxes")) == 0)
		warn_of_none();
	return r;
}

/* -- status ------------------------------------------------------------------------- */

static void print_degradations(const json_t *status, const char *before)
{
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(status, "degradations"), i, one)
		printf("%s%s: %s\n", before, WORD(one, "what"), WORD(one, "reason"));
}

static const char *isolation(const json_t *status)
{
	const json_t *full = json_object_get(status, "fullIsolation");

	if (!full)
		return "?";
	return json_is_true(full) ? "full" : "degraded";
}

/* "9m12s" */
static const char *time_left(json_int_t seconds, char buf[32])
{
	const int days = (int)(seconds / 86400), hours = (int)(seconds / 3600 % 24);
	const int minutes = (int)(seconds / 60 % 60), rest = (int)(seconds % 60);

	if (days > 0)
		snprintf(buf, 32, "%dd%dh", days, hours);
	else if (hours > 0)
		snprintf(buf, 32, "%dh%dm", hours, minutes);
	else
		snprintf(buf, 32, "%dm%ds", minutes, rest);
	return buf;
}

static void print_one(const json_t *one, const json_t *status)
{
	const json_t *learned = json_object_get(status, "learned");
	char left[32];
	const char *key;
	json_t *value;
	size_t i;

	printf("id          %s\n", WORD(one, "id"));
	printf("%-12s%s\n", kind_of(one), WORD(one, kind_of(one)));
	printf("isolation   %s", isolation(status));
	printf(", %s", WORD(status, "mode"));
	printf(", since %s\n", WORD(status, "since"));
	printf("policy      %s, rules: %" JSON_INTEGER_FORMAT
	       ", generation %" JSON_INTEGER_FORMAT ", changes: %" JSON_INTEGER_FORMAT
	       "\n",
	       WORD(status, "policyMode"), number(status, "rules"),
	       number(status, "generation"), number(status, "policyUpdates"));
	json_array_foreach(json_object_get(status, "grants"), i, value) printf(
		"grant       %s, %s left, until %s\n", WORD(value, "target"),
		time_left(number(value, "secondsLeft"), left), WORD(value, "until"));
	printf("learned     addresses: %" JSON_INTEGER_FORMAT
	       ", names: %" JSON_INTEGER_FORMAT "\n",
	       number(learned, "addresses"), number(learned, "names"));
	printf("denies      %" JSON_INTEGER_FORMAT "\n", number(one, "denies"));
	if (json_is_string(json_object_get(status, "closed")))
		printf("closed      %s\n", WORD(status, "closed"));
	print_degradations(status, "degraded    ");
	puts("counters");
	json_object_foreach(json_object_get(status, "counters"), key,
			    value) if (json_integer_value(value) != 0)
		printf("  %-24s%" JSON_INTEGER_FORMAT "\n", key,
		       json_integer_value(value));
}

static json_t *get_of(const struct show_spec *s, const char *id, const char *below,
		      int *ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s%s", id, below);
	char run[RUN_SOCKET_PATH_SIZE];
	const struct show_spec at = { .socket = client_guard(s->socket, id, run),
				      .skips_gone = s->skips_gone };

	if (path)
		return get(&at, path, ret);
	*ret = log_end(RUN_STATUS_FAILED, "out of memory");
	return NULL;
}

static void print_status_line(const json_t *one, const json_t *status)
{
	printf("%-20s %-9s  %s\n", WORD(one, "id"), isolation(status),
	       WORD(status, "mode"));
	print_degradations(status, "    ");
}

/* What has gone since it was listed is taken out of @list. */
static int show_each(const struct show_spec *s, json_t *list)
{
	const struct show_spec each = { s->socket, s->json, .skips_gone = true };
	size_t i = 0;
	int r;

	while (i < json_array_size(list)) {
		json_t *one = json_array_get(list, i);
		const char *id = json_string_value(json_object_get(one, "id"));
		CLEAN(json) json_t *status = get_of(&each, id ?: "", "/status", &r);

		if (!status && r != 0)
			return r;
		if (!status) {
			json_array_remove(list, i);
			continue;
		}
		if (s->json)
			json_object_set(one, "status", status);
		else
			print_status_line(one, status);
		i++;
	}
	return 0;
}

/* Return: how many there are. */
static size_t show_runs(const struct show_spec *s, json_t *all)
{
	CLEAN(json) json_t *runs = list_runs(true);
	json_t *one;
	const size_t count = json_array_size(runs);
	size_t i;

	json_array_foreach(runs, i, one)
	{
		if (!s->json) {
			print_status_line(one, one);
			continue;
		}
		json_object_set_new(one, "status", json_deep_copy(one));
		json_array_append(json_object_get(all, "sandboxes"), one);
	}
	return count;
}

static int show_all(const struct show_spec *s)
{
	int r = 0;
	size_t runs = 0;
	const bool asks = is_there_a_daemon(s);
	CLEAN(json) json_t *daemon = asks ? get(s, "/status", &r) : NULL;
	CLEAN(json) json_t *all = daemon ? get(s, "/sandboxes", &r) : NULL;
	json_t *list = json_object_get(all, "sandboxes");

	if (!asks)
		all = json_pack("{s:[]}", "sandboxes");
	if (daemon && all && !s->json) {
		printf("weir daemon %s, sandboxes: %zu, engines: %" JSON_INTEGER_FORMAT
		       ", engine restarts: %" JSON_INTEGER_FORMAT "\n",
		       WORD(daemon, "version"), json_array_size(list),
		       number(daemon, "engines"), number(daemon, "engineRestarts"));
		print_degradations(daemon, "    ");
	}
	if (all && daemon)
		r = show_each(s, list);
	if (all && r == 0 && !client_named_socket(s->socket))
		runs = show_runs(s, all);
	if (!s->json && !asks && runs == 0)
		warn_of_none();
	if (all && !s->json)
		warn_of_more(all);
	if (r == 0 && s->json) {
		json_object_set(all, "status", daemon ? daemon : json_null());
		r = print_answer(all);
	}
	return r;
}

int cli_status(int argc, char **argv)
{
	struct show_spec spec = { 0 };
	CLEAN(json) json_t *one = NULL, *status = NULL;
	int first;
	int r = read_arguments(&cli_status_options, &spec, argc, argv, 0, 1, &first);

	if (r != 0)
		return r;
	if (first == argc)
		return show_all(&spec);
	one = get_of(&spec, argv[first], "", &r);
	status = one ? get_of(&spec, argv[first], "/status", &r) : NULL;
	if (status && spec.json) {
		json_object_set(one, "status", status);
		r = print_answer(one);
	} else if (status) {
		print_one(one, status);
	}
	return r;
}

/* -- the policy of a sandbox, or of a run -------------------------------------------- */

int cli_daemon_policy_change(const char *socket, const char *id, const char *file,
			     int64_t for_ms, bool patch)
{
	char run[RUN_SOCKET_PATH_SIZE];
	const char *guard = ipc_is_sandbox_name(id) ? client_guard(socket, id, run)
						    : NULL;
	const struct policy_args args = {
		.file = file,
		.verify = guard == run ? POLICY_VERIFY_TLS : POLICY_VERIFY_DNS,
		.for_ms = for_ms,
	};
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) char *whole = NULL, *rules = NULL;
	CLEAN(json) json_t *j = NULL;
	struct client_reply reply;
	int r = ipc_is_sandbox_name(id) ? daemon_policy_text(&args, &whole)
					: daemon_bad_id(id);

	if (r != 0)
		return r;
	/* The file with everything that it extends, or its rules alone: the default and
	 * what else there is stay as they are. */
	if (patch) {
		j = json_loads(whole, 0, NULL);
		rules = json_dumps(json_object_get(j, "egress"), JSON_COMPACT);
		if (!rules)
			return log_end(RUN_STATUS_FAILED, "out of memory");
	}
	return daemon_ask(guard, patch ? "PATCH" : "POST",
			  arena_printf(&arena, "/sandboxes/%s/policy", id),
			  text_of(patch ? rules : whole), &arena, &reply);
}

int cli_daemon_policy_show(const char *socket, const char *id)
{
	const struct show_spec spec = { .socket = socket };
	CLEAN(json) json_t *j = NULL;
	int r = ipc_is_sandbox_name(id) ? 0 : daemon_bad_id(id);

	if (r != 0)
		return r;
	j = get_of(&spec, id, "/policy", &r);
	if (j && (print_json(json_incref(json_object_get(j, "policy")), 0, stdout) < 0 ||
		  fflush(stdout) != 0))
		r = log_end(RUN_STATUS_FAILED, "cannot print the policy");
	return r;
}
