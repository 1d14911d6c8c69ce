// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/attach.h"
#include "cli/client.h"
#include "cli/policy.h"
#include "cli/run.h"

enum { HTTP_MULTIPLE = 300, HTTP_BAD_REQUEST = 400 };

static int send_policy(const char *method, const char *id, const char *body)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "/sandboxes/%s/policy", id);
	struct client_reply reply;
	struct err err = { 0 };

	if (strchr(id, '/') || strchr(id, ' ') || !path) {
		log_error("the id is not one");
		return RUN_STATUS_BAD_INPUT;
	}
	if (client_ask(NULL, method, path, text_of(body), &arena, &reply, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_FAILED;
	}
	if (reply.status < HTTP_MULTIPLE)
		return 0;
	log_error("%s", client_reason(&reply, &arena));
	return reply.status == HTTP_BAD_REQUEST ? RUN_STATUS_BAD_INPUT
						: RUN_STATUS_FAILED;
}

/* The file with everything that it extends, as one document, malloc'ed. */
static int read_whole(const char *file, char **ret)
{
	const struct cli_policy_args args = { .policy_file = file,
					      .verify = POLICY_VERIFY_DNS };
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct err err = { 0 };
	struct policy policy;
	struct plan plan;
	size_t size;
	FILE *out;
	int r = cli_policy_build(&args, &arena, false, &policy, &bytes, &size);

	if (r < 0)
		return r == -EINVAL ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED;
	if (plan_open(bytes, size, &plan, &err) < 0)
		return RUN_STATUS_FAILED;
	out = open_memstream(ret, &size);
	if (!out)
		return RUN_STATUS_FAILED;
	r = cli_policy_show(&policy, &plan, true, out);
	return fclose(out) != 0 || r < 0 ? RUN_STATUS_FAILED : 0;
}

int cli_daemon_policy_set(const char *id, const char *file)
{
	CLEAN(mem) char *text = NULL;
	int r = read_whole(file, &text);

	return r != 0 ? r : send_policy("POST", id, text);
}

/* The rules alone: the default and what else there is stay as they are. */
int cli_daemon_policy_patch(const char *id, const char *file)
{
	CLEAN(mem) char *text = NULL, *rules = NULL;
	int r = read_whole(file, &text);
	json_t *j = r == 0 ? json_loads(text, 0, NULL) : NULL;

	if (r != 0)
		return r;
	rules = json_dumps(json_object_get(j, "egress"), JSON_COMPACT);
	json_decref(j);
	if (!rules) {
		log_error("out of memory");
		return RUN_STATUS_FAILED;
	}
	return send_policy("PATCH", id, rules);
}
