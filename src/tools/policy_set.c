// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "outputs/ask.h"
#include "sys/print.h"
#include "tools/attach.h"

static int send_policy(const char *socket, const char *method, const char *id,
		       const char *body)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct client_reply reply;

	return daemon_ask(socket, method,
			  arena_printf(&arena, "/sandboxes/%s/policy", id), text_of(body),
			  &arena, &reply);
}

/* The file with everything that it extends. */
static int read_whole(const char *file, char **ret)
{
	const struct policy_args args = { .file = file, .verify = POLICY_VERIFY_DNS };

	return daemon_policy_text(&args, ret);
}

int cli_daemon_policy_set(const char *socket, const char *id, const char *file)
{
	CLEAN(mem) char *text = NULL;
	int r = daemon_is_id(id) ? read_whole(file, &text) : daemon_bad_id(id);

	return r != 0 ? r : send_policy(socket, "POST", id, text);
}

/* The rules alone: the default and what else there is stay as they are. */
int cli_daemon_policy_patch(const char *socket, const char *id, const char *file)
{
	CLEAN(mem) char *text = NULL, *rules = NULL;
	int r = daemon_is_id(id) ? read_whole(file, &text) : daemon_bad_id(id);
	json_t *j = r == 0 ? json_loads(text, 0, NULL) : NULL;

	if (r != 0)
		return r;
	rules = json_dumps(json_object_get(j, "egress"), JSON_COMPACT);
	json_decref(j);
	if (!rules) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	return send_policy(socket, "PATCH", id, rules);
}

int cli_daemon_policy_show(const char *socket, const char *id)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct client_reply reply;
	json_t *j;
	int r = daemon_is_id(id) ? 0 : daemon_bad_id(id);

	if (r == 0)
		r = daemon_ask(socket, "GET",
			       arena_printf(&arena, "/sandboxes/%s/policy", id),
			       text_of(""), &arena, &reply);
	if (r != 0)
		return r;
	j = json_loadb(reply.body.ptr, reply.body.len, 0, NULL);
	if (print_json(json_incref(json_object_get(j, "policy")), 0, stdout) < 0 ||
	    fflush(stdout) != 0) {
		log_error("cannot print the policy");
		r = RUN_STATUS_FAILED;
	}
	json_decref(j);
	return r;
}
