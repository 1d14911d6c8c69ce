// SPDX-License-Identifier: Apache-2.0
#include "outputs/ask.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "policy/explain.h"

enum { HTTP_MULTIPLE = 300, HTTP_BAD_REQUEST = 400 };

bool daemon_is_id(const char *id)
{
	return id[0] != '\0' && id[0] != '.' && strlen(id) <= DAEMON_ID_MAX &&
	       strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
			  "0123456789-_.") == strlen(id);
}

int daemon_bad_id(const char *id)
{
	char shown[TEXT_ESCAPED_SIZE];

	log_error("'%s' is not an id: up to %d letters, digits, '-', '_' and '.', and "
		  "no '.' at the front",
		  text_escape(text_of(id), shown, sizeof(shown)), DAEMON_ID_MAX);
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
