// SPDX-License-Identifier: Apache-2.0
/* /review: what was denied and a rule could allow, for somebody to decide.
 *
 *     GET  /review[?state=open|accepted|dismissed|all]   the tasks
 *     GET  /review/7                  one, and what accepting it would change
 *     POST /review/7/accept[?who=…]   add its rule to the policy; {"for": "10m"}: for
 *                                     that long
 *     POST /review/7/dismiss[?who=…]  leave the policy as it is
 *
 * Of a daemon they are those of all its sandboxes, and each is decided for its own. */
#include <errno.h>
#include <string.h>

#include "api/diff.h"
#include "api/internal.h"
#include "base/clock.h"

#define PREFIX "/review/"

enum {
	REVIEW_ID_MAX = 0x7fffffff,
};

/* What an operation on the store ended with. */
static unsigned int status_of(int code)
{
	return code == -ENOENT	   ? HTTP_NOT_FOUND
	       : code == -EALREADY ? HTTP_CONFLICT
				   : HTTP_UNAVAILABLE;
}

static void refuse_review(struct api_request *r, int code, const struct err *err)
{
	reply_error(r, status_of(code), "%s", err->text);
}

/* @t and what changes with it; @diff is taken. */
static void reply_task(struct api_request *r, const struct review *t, json_t *diff)
{
	struct jtext j = { .grows = true };

	jtext_open(&j, NULL, '{');
	review_put(&j, t);
	reply_member_tree(&j, "diff", diff);
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}

/* The policy with @t granted for @length, or, with "", for good. @ret_rules is what
 * document_grant() took. Return: 0; -ENOENT: no rule can do that; or another -errno. */
static int merge_rule(struct api_request *r, const struct review *t, const char *length,
		      char *ret_rules, struct document **ret, struct err *err)
{
	if (!review_grant(t, length, ret_rules))
		return err_set(err, -ENOENT, "no rule can allow this");
	return document_grant(r->ops->policy(r->ops->data), text_of(ret_rules),
			      clock_wall_ms(), ret, err);
}

bool review_read_body(struct api_request *r, const struct review *t,
		      char ret[REVIEW_LENGTH_SIZE])
{
	const int code = review_read_accept(request_body(r), t, ret);

	if (code == -ESTALE)
		reply_error(r, HTTP_CONFLICT, REVIEW_CHANGED);
	else if (code < 0)
		reply_error(r, HTTP_BAD_REQUEST, REVIEW_ACCEPT_WORDS);
	return code == 0;
}

void review_go_to_sandbox(struct api_request *r, const struct review *t)
{
	const struct api_sandboxes *sandboxes = &r->api->config.sandboxes;

	if (r->is_about_one || !sandboxes->find)
		return;
	r->is_about_one =
		sandboxes->find(sandboxes->data, t->sandbox, &r->own_ops, &r->sandbox);
	if (r->is_about_one)
		r->ops = &r->own_ops;
}

/* ---- reading ---- */

static bool has_store(struct api_request *r)
{
	return r->ops->reviews ||
	       reply_error(r, HTTP_NOT_FOUND, "events are not stored here");
}

static bool put_task(void *data, const struct review *t)
{
	struct jtext *j = data;

	jtext_open(j, NULL, '{');
	review_put(j, t);
	jtext_close(j, '}');
	return true;
}

void answer_reviews(struct api_request *r)
{
	enum review_state state = REVIEW_OPEN;
	CLEAN(jtext) struct jtext j = { .grows = true };
	struct err err = { 0 };
	char text[16];
	int found = request_query(r->query, "state", text, sizeof(text)), code;

	if (!has_store(r))
		return;
	if (found < 0 || (found > 0 && strcmp(text, "all") != 0 &&
			  !review_state_parse(text, &state))) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid state");
		return;
	}
	if (found > 0 && strcmp(text, "all") == 0)
		state = REVIEW_NONE;
	jtext_open(&j, NULL, '{');
	jtext_open(&j, "tasks", '[');
	code = r->ops->reviews(r->ops->data, state, put_task, &j, &err);
	jtext_close(&j, ']');
	jtext_close(&j, '}');
	if (code < 0)
		refuse_review(r, code, &err);
	else
		reply_json(r, HTTP_OK, &j);
}

static void answer_task(struct api_request *r, const struct review *t)
{
	char rules[REVIEW_GRANT_SIZE];
	CLEAN(document) struct document *next = NULL;
	struct err err = { 0 };
	json_t *diff = NULL;

	if (request_has_policy(r) && merge_rule(r, t, "", rules, &next, &err) == 0)
		diff = document_diff(r->ops->policy(r->ops->data), next);
	reply_task(r, t, diff);
}

/* ---- deciding ---- */

/* @t was decided: say how, with what that changed. @diff is taken. */
static void reply_decided(struct api_request *r, const struct review *t,
			  enum review_state state, const char *who, json_t *diff)
{
	struct err ignored = { 0 };
	struct review now;

	if (r->ops->review(r->ops->data, t->id, &now, &ignored) < 0) {
		now = *t;
		now.state = state;
		now.decided_ms = clock_wall_ms();
		snprintf(now.who, sizeof(now.who), "%s", who);
	}
	reply_task(r, &now, diff ?: json_array());
}

/* Note that @t was accepted, and then put @next, which is taken, in force. Were the rule
 * in force and couldn't be noted, whoever asks once more, by a link that is to work once,
 * would have the rule for longer. Should what was noted stay, a denial opens the task
 * again. */
static unsigned int note_and_change(struct api_request *r, const struct review *t,
				    const char *who, struct document *next,
				    struct err *err)
{
	const struct api_ops *ops = r->ops;
	enum api_failure failure;
	struct err ignored = { 0 };
	int code = ops->decide(ops->data, t->id, REVIEW_ACCEPTED, who, err);

	if (code < 0) {
		document_free(next);
		return status_of(code);
	}
	failure = ops->change(ops->data, next, err);
	if (failure == API_FAILED_NOT)
		return 0;
	(void)!ops->decide(ops->data, t->id, t->state, t->who, &ignored);
	return api_failure_status(failure);
}

unsigned int review_accept(struct api_request *r, const struct review *t, const char *who,
			   const char *length, json_t **ret_diff, struct err *err)
{
	const struct api_ops *ops = r->ops;
	const size_t max = r->api->config.max_rules;
	struct document *next = NULL;
	char rules[REVIEW_GRANT_SIZE];
	unsigned int status;
	CLEAN(json) json_t *diff = NULL;

	if (!request_has_policy(r))
		err_set(err, -ENOENT, "no such sandbox");
	if (!request_has_policy(r) || merge_rule(r, t, length, rules, &next, err) < 0)
		return HTTP_CONFLICT;
	diff = ret_diff ? document_diff(ops->policy(ops->data), next) : NULL;
	if (document_check_rule_count(next, max, err) < 0) {
		document_free(next);
		status = HTTP_TOO_LARGE;
	} else {
		status = note_and_change(r, t, who, next, err);
	}
	ops->log_change(ops->data, rules, status ? err->text : NULL,
			status > 0 && status < 500);
	if (status == 0 && ret_diff)
		*ret_diff = TAKE_PTR(diff);
	return status;
}

static void accept_task(struct api_request *r, const struct review *t, const char *who)
{
	char length[REVIEW_LENGTH_SIZE];
	struct err err = { 0 };
	json_t *diff = NULL;
	unsigned int status;

	if (!review_read_body(r, t, length))
		return;
	status = review_accept(r, t, who, length, &diff, &err);
	if (status == 0)
		reply_decided(r, t, REVIEW_ACCEPTED, who, diff);
	else
		reply_error(r, status, "%s", err.text);
}

static void dismiss_task(struct api_request *r, const struct review *t, const char *who)
{
	struct err err = { 0 };
	int code = r->ops->decide(r->ops->data, t->id, REVIEW_DISMISSED, who, &err);

	if (code < 0)
		refuse_review(r, code, &err);
	else
		reply_decided(r, t, REVIEW_DISMISSED, who, NULL);
}

/* ---- the target ---- */

void answer_review(struct api_request *r)
{
	char who[REVIEW_WHO_SIZE];
	struct err err = { 0 };
	struct review t;
	/* "7", "7/accept", "7/dismiss" behind the prefix. */
	struct text verb = text_of(r->target + strlen(PREFIX)), number;
	uint32_t id;
	bool accept;
	int code, found;

	text_split(&verb, '/', &number);
	accept = verb.len > 0 && text_equal(verb, "accept");
	if (!text_to_u32(number, REVIEW_ID_MAX, &id) || (verb.ptr && verb.len == 0) ||
	    (verb.len > 0 && !accept && !text_equal(verb, "dismiss"))) {
		reply_error(r, HTTP_NOT_FOUND, "404 page not found");
		return;
	}
	if ((verb.len == 0) != (r->method != METHOD_POST)) {
		answer_bad_method(r);
		return;
	}
	if (!has_store(r))
		return;
	code = r->ops->review(r->ops->data, id, &t, &err);
	if (code == 0)
		review_go_to_sandbox(r, &t);
	found = request_query(r->query, "who", who, sizeof(who));
	if (found == 0)
		snprintf(who, sizeof(who), "api");
	if (code < 0)
		refuse_review(r, code, &err);
	else if (verb.len == 0)
		answer_task(r, &t);
	else if (found < 0)
		reply_error(r, HTTP_BAD_REQUEST, "invalid who");
	else if (accept)
		accept_task(r, &t, who);
	else
		dismiss_task(r, &t, who);
}
