// SPDX-License-Identifier: Apache-2.0
/* /policy/check: what is wrong with a policy, before it is put in force; /policy/explain:
 * what the one in force says of a name or an address. */
#include <errno.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "policy/explain.h"

enum { FAULTS_MAX = 100, TARGET_SIZE = 512 };

struct checking {
	struct jtext faults; /* the elements of a list */
	size_t count, errors;
};

static void add_fault(struct checking *c, const char *text, enum fault_level level)
{
	static const char *const names[] = { [FAULT_ERROR] = "error",
					     [FAULT_WARNING] = "warning",
					     [FAULT_HINT] = "hint" };
	char shown[FAULT_TEXT_SIZE];

	c->errors += level == FAULT_ERROR;
	if (c->count++ >= FAULTS_MAX)
		return;
	jtext_open(&c->faults, NULL, '{');
	jtext_member(&c->faults, "level", names[level]);
	jtext_member(&c->faults, "text",
		     text_escape(text_of(text), shown, sizeof(shown)));
	jtext_close(&c->faults, '}');
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
	struct checking c = { .faults = { .grows = true } };
	struct document *next = NULL;
	struct jtext j = { .grows = true };
	const int code = check(r, &c, &next);
	CLEAN(mem) char *faults = jtext_take(&c.faults);

	if (code < 0 || !faults) {
		reply_error(r, HTTP_FAILED, "out of memory");
	} else {
		jtext_open(&j, NULL, '{');
		jtext_bool(&j, "valid", c.errors == 0);
		jtext_text(&j, "mode", next ? document_mode(next) : "", SIZE_MAX);
		jtext_open(&j, "faults", '[');
		jtext_put(&j, text_of(faults));
		jtext_close(&j, ']');
		jtext_close(&j, '}');
		reply_json(r, HTTP_OK, &j);
	}
	document_free(next);
}

void answer_explain(struct api_request *r)
{
	const struct plan *plan = r->ops->plan(r->ops->data);
	char target[TARGET_SIZE];
	struct err err = { 0 };
	struct jtext j = { .grows = true };
	json_t *tree;

	if (request_query(r->query, "target", target, sizeof(target)) <= 0) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid target");
		return;
	}
	if (!plan) {
		reply_error(r, HTTP_UNAVAILABLE, "no policy is in force yet");
		return;
	}
	tree = policy_explain_json(plan, target, &err);
	if (!tree) {
		reply_error(r, err.code == -ENOMEM ? HTTP_FAILED : HTTP_BAD_REQUEST, "%s",
			    err.text);
		return;
	}
	reply_member_tree(&j, NULL, tree);
	reply_json(r, HTTP_OK, &j);
}
