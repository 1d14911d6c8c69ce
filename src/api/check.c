// SPDX-License-Identifier: Apache-2.0
/* /policy/check: what is wrong with a policy, before it is put in force; /policy/explain:
 * what the one in force says of a name or an address. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "policy/explain.h"

enum { FAULTS_MAX = 100, TARGET_SIZE = 512 };

struct checking {
	json_t *faults; /* owned */
	size_t errors;
};

static void add_fault(struct checking *c, const char *text, enum fault_level level)
{
	static const char *const names[] = { [FAULT_ERROR] = "error",
					     [FAULT_WARNING] = "warning",
					     [FAULT_HINT] = "hint" };
	char shown[FAULT_TEXT_SIZE];

	c->errors += level == FAULT_ERROR;
	if (json_array_size(c->faults) < FAULTS_MAX)
		json_array_append_new(
			c->faults,
			json_pack("{s:s, s:s}", "level", names[level], "text",
				  text_escape(text_of(text), shown, sizeof(shown))));
}

static void on_fault(void *data, const char *text, enum fault_level level)
{
	add_fault(data, text, level);
}

static void note_unknown_key(void *data, const char *key)
{
	char text[160];

	snprintf(text, sizeof(text), "the key '%.100s' means nothing here, ignoring",
		 key);
	add_fault(data, text, FAULT_WARNING);
}

/* Return: 0, or -ENOMEM. */
static int check(struct api_request *r, struct checking *c, struct document **ret)
{
	const struct text body =
		text_trim((struct text){ r->body ? r->body : "", r->body_size });
	const size_t max = r->api->config.max_rules;
	struct err err = { 0 };
	char text[128];
	int code = document_parse(body, note_unknown_key, c, ret, &err);

	if (code == -EINVAL)
		add_fault(c, err.text, FAULT_ERROR);
	if (code < 0)
		return code == -EINVAL ? 0 : code;
	if (max > 0 && document_rule_count(*ret) > max) {
		snprintf(text, sizeof(text), "egress: %zu rules are more than %zu",
			 document_rule_count(*ret), max);
		add_fault(c, text, FAULT_ERROR);
	}
	code = document_settle_ends(*ret, clock_wall_ms());
	if (code == 0)
		code = r->ops->check(r->ops->data, *ret, on_fault, c, &err);
	return code == -EINVAL ? 0 : code;
}

void answer_policy_check(struct api_request *r)
{
	struct checking c = { .faults = json_array() };
	struct document *next = NULL;
	struct reply_stream s;

	if (!c.faults || check(r, &c, &next) < 0) {
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
	} else if (reply_open(r, &s)) {
		fprintf(s.out, "{\"valid\":%s,\"mode\":%s%s%s,\"faults\":",
			c.errors > 0 ? "false" : "true", next ? "\"" : "",
			next ? document_mode(next) : "null", next ? "\"" : "");
		json_dumpf(c.faults, s.out, JSON_COMPACT | JSON_ENSURE_ASCII);
		fputs("}\n", s.out);
		reply_close(r, &s, JSON_TYPE);
	}
	document_free(next);
	json_decref(c.faults);
}

void answer_explain(struct api_request *r)
{
	const struct plan *plan = r->ops->plan(r->ops->data);
	char target[TARGET_SIZE];
	struct err err = { 0 };
	struct reply_stream s;
	json_t *j;

	if (request_query(r->query, "target", target, sizeof(target)) <= 0) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid target");
		return;
	}
	if (!plan) {
		reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "no policy is in force yet");
		return;
	}
	j = policy_explain_json(plan, target, &err);
	if (!j) {
		reply_error(r,
			    err.code == -ENOMEM ? MHD_HTTP_INTERNAL_SERVER_ERROR
						: MHD_HTTP_BAD_REQUEST,
			    "%s", err.text);
		return;
	}
	if (reply_open(r, &s)) {
		json_dumpf(j, s.out, JSON_COMPACT | JSON_ENSURE_ASCII);
		fputc('\n', s.out);
		reply_close(r, &s, JSON_TYPE);
	}
	json_decref(j);
}
