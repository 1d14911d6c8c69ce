// SPDX-License-Identifier: Apache-2.0
/* /policy: what is in force, and its changes. Texts and their order are the reference's:
 * clients compare them. /policy/check: what is wrong with a policy, before it is put in
 * force; /policy/explain: what the one in force says of a name or an address. */
#include <errno.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "base/jansson.h"
#include "policy/explain.h"

enum { UNKNOWN_KEYS_MAX = 8 }; /* told of one request; the rest is not */

struct change {
	struct api_request *request;
	const struct api_ops *ops; /* the request's */
	const struct document *old;
	struct document *next; /* owned until it is committed */
	char *rules;	       /* owned: for the log */
	const char *what;      /* in front of a fault of the policy as a whole */
	const char *reason;    /* for the answer, or NULL */
	bool is_reset;
	size_t unknown_keys;
	char unknown[TEXT_ESCAPED_SIZE + 32]; /* the first of them, as a fault */
};

static void log_change(const struct change *c, const char *error, bool callers_fault)
{
	c->ops->log_change(c->ops->data, c->rules, error, callers_fault);
}

/* Thousands of rules take a while to write. */
static bool logs_rules(const struct change *c)
{
	return c->ops->logs_rules && c->ops->logs_rules(c->ops->data);
}

static void refuse(struct change *c, unsigned int status, const char *prefix,
		   const char *text)
{
	char whole[ERR_TEXT_SIZE + 64];

	snprintf(whole, sizeof(whole), "%s%s", prefix, text);
	log_change(c, whole, status < 500);
	reply_error(c->request, status, "%s", whole);
}

/* -EINVAL is the caller's, -EPERM that of a sandbox that is closed, what else there is,
 * is ours. */
static void refuse_for(struct change *c, int code, const char *prefix,
		       const struct err *err)
{
	if (code == -EINVAL)
		refuse(c, HTTP_BAD_REQUEST, prefix, err->text);
	else if (code == -EPERM)
		refuse(c, HTTP_CONFLICT, "", err->text);
	else
		refuse(c, HTTP_FAILED, "", "out of memory");
}

/* The state of @d; @reason and @policy, which is JSON, may be NULL. The reference leaves
 * the enforcement out behind a reset. */
static void reply_state(struct api_request *r, const struct document *d, bool is_reset,
			const char *reason, const char *policy)
{
	/* A literal; status() may replace @d, which isn't read behind it. */
	const char *mode = document_mode(d);
	struct api_status status = { 0 };
	struct jtext j = { .grows = true };

	if (!is_reset && !r->api->enforcement_mode) {
		r->ops->status(r->ops->data, &status);
		r->api->enforcement_mode = status.enforcement_mode;
	}
	jtext_open(&j, NULL, '{');
	jtext_member(&j, "status", "ok");
	jtext_member(&j, "mode", mode);
	if (!is_reset)
		jtext_member(&j, "enforcementMode", r->api->enforcement_mode ?: "");
	if (reason)
		jtext_member(&j, "reason", reason);
	if (policy)
		jtext_raw(&j, "policy", policy);
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}

/* Say what came of a change. */
static void conclude(struct change *c, enum api_failure failure, const struct err *err)
{
	static const char *const steps[] = {
		[API_FAILED_CLOSED] = "",
		[API_FAILED_PERSIST] = "failed to persist policy: ",
		[API_FAILED_APPLY] = "failed to apply nftables policy: ",
	};

	if (failure != API_FAILED_NOT) {
		refuse(c, api_failure_status(failure),
		       failure == API_FAILED_POLICY ? c->what : steps[failure],
		       err->text);
		return;
	}
	log_change(c, NULL, false);
	reply_state(c->request, c->ops->policy(c->ops->data), c->is_reset, c->reason,
		    NULL);
}

static void commit(struct change *c)
{
	const struct api_ops *ops = c->ops;
	struct err err = { 0 };

	if (document_settle_ends(c->next, clock_wall_ms()) < 0)
		refuse_for(c, -ENOMEM, "", NULL);
	else
		conclude(c, ops->change(ops->data, TAKE_PTR(c->next), &err), &err);
}

/* @rules is what the change brings, taken; NULL: nothing logs it. */
static void commit_rules(struct change *c, char *rules)
{
	const size_t max = c->request->api->config.max_rules;
	struct err err = { 0 };

	c->rules = rules;
	if (document_check_rule_count(c->next, max, &err) == 0)
		commit(c);
	else
		refuse(c, HTTP_TOO_LARGE, "", err.text);
}

static void on_unknown_key(void *data, const char *key)
{
	struct change *c = data;

	if (c->unknown_keys == 0)
		snprintf(c->unknown, sizeof(c->unknown), "unknown key '%s'", key);
	if (c->unknown_keys++ < UNKNOWN_KEYS_MAX && c->ops->log_unknown_key)
		c->ops->log_unknown_key(c->ops->data, key);
}

/* ---- the three kinds of change ---- */

static void reset(struct change *c)
{
	c->is_reset = true;
	c->reason = "policy reset to default deny-all";
	c->rules = strdup("[]");
	c->next = document_deny_all();
	if (!c->next)
		refuse_for(c, -ENOMEM, "", NULL);
	else
		commit(c);
}

static void replace(struct change *c)
{
	const struct api_ops *ops = c->ops;
	const struct text body = request_body(c->request);
	struct err err = { 0 };
	int result;

	c->what = "invalid policy: ";
	if (ops->replace)
		conclude(c, ops->replace(ops->data, body, &err), &err);
	else if (body.len == 0)
		reset(c);
	else if ((result = document_parse(body, on_unknown_key, c, &c->next, &err)) < 0)
		refuse_for(c, result, c->what, &err);
	else
		commit_rules(c, logs_rules(c) ? document_rules_json(c->next) : NULL);
}

/* What a patch brings is what it would make of an empty policy. */
static char *patch_rules(struct text body)
{
	CLEAN(document) struct document *empty = document_deny_all(), *alone = NULL;

	return empty && document_merge(empty, body, NULL, NULL, &alone, NULL) == 0
		       ? document_rules_json(alone)
		       : NULL;
}

static void patch(struct change *c)
{
	const struct text body = request_body(c->request);
	struct err err = { 0 };
	int result;

	c->what = "invalid merged policy: ";
	result = document_merge(c->old, body, on_unknown_key, c, &c->next, &err);
	if (result < 0)
		refuse_for(c, result, "", &err);
	/* A policy that replaces a run's is read strictly as well. */
	else if (c->ops->replace && c->unknown_keys > 0)
		refuse(c, HTTP_BAD_REQUEST, "invalid patch rules: ", c->unknown);
	else
		commit_rules(c, logs_rules(c) ? patch_rules(body) : NULL);
}

/* The rules of @old that @next has not, in order; the others are in the same order in
 * both. */
static char *removed_rules(const struct document *old, const struct document *next)
{
	CLEAN(mem) char *before = document_rules_json(old);
	CLEAN(mem) char *after = document_rules_json(next);
	CLEAN(json) json_t *b = before ? json_loads(before, 0, NULL) : NULL;
	CLEAN(json) json_t *a = after ? json_loads(after, 0, NULL) : NULL;
	CLEAN(json) json_t *removed = json_array();
	size_t kept = 0;

	for (size_t i = 0; i < json_array_size(b); i++) {
		if (json_equal(json_array_get(b, i), json_array_get(a, kept)))
			kept++;
		else
			json_array_append(removed, json_array_get(b, i));
	}
	return json_dumps(removed, JSON_COMPACT);
}

static void take_away(struct change *c)
{
	struct err err = { 0 };
	int result = document_remove(c->old, request_body(c->request), &c->next, &err);

	c->what = "invalid policy: ";
	if (result < 0) {
		refuse_for(c, result, "", &err);
	} else if (!c->next) {
		reply_state(c->request, c->old, false, "no matching targets found", NULL);
	} else {
		c->rules = logs_rules(c) ? removed_rules(c->old, c->next) : NULL;
		commit(c);
	}
}

/* ---- what is in force ---- */

void answer_policy(struct api_request *r)
{
	const struct api_ops *ops = r->ops;
	struct change c = { .request = r, .ops = ops, .old = ops->policy(ops->data) };
	CLEAN(mem)
	char *policy = r->method == METHOD_GET ? document_json(c.old, false) : NULL;
	/* Names what is in force, where it is there. */
	const struct text expected = r->api->transport->header(r, "If-Match");

	if (r->method == METHOD_GET && !policy) {
		reply_error(r, HTTP_FAILED, "out of memory");
	} else if (r->method == METHOD_GET) {
		document_tag(policy, r->tag);
		reply_state(r, c.old, false, NULL, policy);
	} else if (expected.ptr && !document_is_named(c.old, expected)) {
		reply_error(r, HTTP_PRECONDITION_FAILED, "%s", DOCUMENT_IS_ANOTHER);
	} else if (r->method == METHOD_PATCH) {
		patch(&c);
	} else if (r->method == METHOD_DELETE) {
		take_away(&c);
	} else {
		replace(&c);
	}
	document_free(c.next);
	free(c.rules);
}

/* ---- what is wrong with one, and what it says ---- */

enum { FAULTS_MAX = 100, TARGET_SIZE = 512 };

struct checking {
	struct jtext faults; /* the elements of a list */
	size_t count, errors;
};

static void add_fault(void *data, const char *text, enum fault_level level)
{
	struct checking *c = data;
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
	const size_t max = r->api->config.max_rules;
	struct err err = { 0 };
	int code = document_parse(request_body(r), note_unknown_key, c, ret, &err);

	if (code == -EINVAL)
		add_fault(c, err.text, FAULT_ERROR);
	if (code < 0)
		return code == -EINVAL ? 0 : code;
	if (document_check_rule_count(*ret, max, &err) < 0)
		add_fault(c, err.text, FAULT_ERROR);
	code = document_settle_ends(*ret, clock_wall_ms());
	if (code == 0)
		code = r->ops->check(r->ops->data, *ret, add_fault, c, &err);
	return code == -EINVAL ? 0 : code;
}

void answer_policy_check(struct api_request *r)
{
	struct checking c = { .faults = { .grows = true } };
	CLEAN(document) struct document *next = NULL;
	CLEAN(jtext) struct jtext j = { .grows = true };
	const int code = check(r, &c, &next);
	CLEAN(mem) char *faults = jtext_take(&c.faults);

	jtext_open(&j, NULL, '{');
	jtext_bool(&j, "valid", c.errors == 0);
	jtext_text(&j, "mode", next ? document_mode(next) : "", SIZE_MAX);
	jtext_open(&j, "faults", '[');
	jtext_put(&j, text_of(faults ?: ""));
	jtext_close(&j, ']');
	jtext_close(&j, '}');
	if (code < 0 || !faults)
		reply_error(r, HTTP_FAILED, "out of memory");
	else
		reply_json(r, HTTP_OK, &j);
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
	} else if (!plan) {
		reply_error(r, HTTP_UNAVAILABLE, "no policy is in force yet");
	} else if (!(tree = policy_explain_json(plan, target, &err))) {
		reply_error(r, err.code == -ENOMEM ? HTTP_FAILED : HTTP_BAD_REQUEST, "%s",
			    err.text);
	} else {
		reply_member_tree(&j, NULL, tree);
		reply_json(r, HTTP_OK, &j);
	}
}
