// SPDX-License-Identifier: Apache-2.0
/* Which answer a request gets, judged by its head alone: target, route, token, method.
 * The token comes before the method, so that a stranger learns nothing about it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

#define TOKEN_HEADER "OPENSANDBOX-EGRESS-AUTH"

enum {
	METHODS_CHANGE = METHOD_POST | METHOD_PUT | METHOD_PATCH | METHOD_DELETE,
	METHODS_READ = METHOD_GET | METHOD_HEAD,
	LINK_BODY_MAX = 64, /* anybody may send it: {"for": "10m"} */
};

static bool has_token(const struct api *a)
{
	return a->config.token && a->config.token[0];
}

/* ---- answers that need no file of their own ---- */

static void answer_health(struct api_request *r)
{
	const struct api_ops *ops = r->ops;
	const struct api_sandboxes *sandboxes = &r->api->config.sandboxes;

	if (ops->healthy(ops->data))
		reply_text(r, MHD_HTTP_OK, "ok");
	else if (sandboxes->knows_all && !sandboxes->knows_all(sandboxes->data))
		reply_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, "weir is restoring\n");
	else
		reply_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, "weir not ready\n");
}

static void answer_bad_target(struct api_request *r)
{
	reply_last_error(r, MHD_HTTP_BAD_REQUEST, "400 Bad Request");
}

static void answer_options(struct api_request *r)
{
	reply_queue(r, MHD_HTTP_OK, NULL,
		    MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

static void answer_no_page(struct api_request *r)
{
	reply_error(r, MHD_HTTP_NOT_FOUND, "404 page not found");
}

static void answer_unauthorized(struct api_request *r)
{
	r->api->counts.unauthorized++;
	reply_error(r, MHD_HTTP_UNAUTHORIZED, "unauthorized");
}

static void answer_too_often(struct api_request *r)
{
	r->api->counts.unauthorized++;
	reply_wait(r, request_failures_wait(r, r->api->failures));
}

static void answer_forbidden(struct api_request *r)
{
	r->api->counts.forbidden++;
	reply_error(r, MHD_HTTP_FORBIDDEN, "forbidden");
}

/* The vault is the reference's with its proxy switched off: nothing is in it and
 * nothing can be put in. */
static void answer_vault(struct api_request *r)
{
	if (r->method == METHOD_GET)
		reply_error(r, MHD_HTTP_NOT_FOUND, "credential vault not found");
	else if (!has_token(r->api))
		reply_error(r, MHD_HTTP_PRECONDITION_FAILED,
			    "credential vault requires egress API auth token");
	else
		reply_error(r, MHD_HTTP_PRECONDITION_FAILED,
			    "credential vault requires transparent mitmproxy");
}

static void answer_vault_unknown(struct api_request *r)
{
	reply_error(r, MHD_HTTP_NOT_FOUND, "not found");
}

/* ---- the table: the first row that fits ---- */

#define VAULT "/credential-vault"

static const struct api_route routes[] = {
	{ "/healthz", METHOD_ANY, "", answer_health, .is_open = true, .is_below = true },
	{ "/policy", METHOD_GET | METHODS_CHANGE, "GET, POST, PUT, PATCH, DELETE",
	  answer_policy, .is_about_one = true, .is_change = true, .is_below = true },
	{ "/status", METHODS_READ, "GET, HEAD", answer_status, .is_below = true },
	{ "/metrics", METHODS_READ, "GET, HEAD", answer_metrics, .is_below = true },
	{ "/policy/check", METHOD_POST, "POST", answer_policy_check, .is_about_one = true,
	  .is_change = true, .is_below = true },
	{ "/policy/explain", METHODS_READ, "GET, HEAD", answer_explain,
	  .is_about_one = true, .is_below = true },
	{ "/events", METHOD_GET, "GET", answer_events, .is_below = true },
	{ "/events/stored", METHODS_READ, "GET, HEAD", answer_stored, .is_below = true },
	{ "/activity", METHODS_READ, "GET, HEAD", answer_activity, .is_below = true },
	{ "/top", METHODS_READ, "GET, HEAD", answer_top, .is_below = true },
	{ "/denies", METHODS_READ, "GET, HEAD", answer_denies, .is_about_one = true,
	  .is_below = true },
	{ "/denies/count", METHODS_READ, "GET, HEAD", answer_denies_count,
	  .is_below = true },
	{ "/review", METHODS_READ, "GET, HEAD", answer_reviews, .is_below = true },
	{ "/review/", METHODS_READ | METHOD_POST, "GET, HEAD, POST", answer_review,
	  .is_prefix = true, .is_change = true, .is_below = true },
	{ "/answer/", METHODS_READ | METHOD_POST, "GET, HEAD, POST", answer_link,
	  .is_prefix = true, .is_open = true, .own_body_max = LINK_BODY_MAX },
	{ "/openapi.yaml", METHODS_READ, "GET, HEAD", answer_openapi, .is_open = true },
	{ "/ui", METHODS_READ, "GET, HEAD", answer_page_moved, .is_open = true,
	  .is_page = true },
	{ "/ui/", METHODS_READ, "GET, HEAD", answer_page, .is_prefix = true,
	  .is_open = true, .is_page = true },
	{ VAULT, METHOD_GET | METHOD_POST | METHOD_PATCH | METHOD_DELETE,
	  "GET, POST, PATCH, DELETE", answer_vault, .is_sidecars = true },
	{ VAULT "/_active", METHOD_GET, "GET", answer_forbidden, .is_open = true,
	  .is_sidecars = true },
	{ VAULT "/credentials", METHOD_GET, "GET", answer_vault, .is_sidecars = true },
	{ VAULT "/credentials/", METHOD_GET, "GET", answer_vault, .is_prefix = true,
	  .is_sidecars = true },
	{ VAULT "/bindings", METHOD_GET, "GET", answer_vault, .is_sidecars = true },
	{ VAULT "/bindings/", METHOD_GET, "GET", answer_vault, .is_prefix = true,
	  .is_sidecars = true },
	{ VAULT "/", METHOD_ANY, "", answer_vault_unknown, .is_prefix = true,
	  .is_sidecars = true },
};

/* ---- /sandboxes: what a daemon guards, and each as a sidecar shows its one ---- */

#define TOP	    "/sandboxes"
#define TAKING_OVER "the daemon takes over the sandboxes that were there before it"

static const struct api_sandboxes *sandboxes_of(const struct api_request *r)
{
	return &r->api->config.sandboxes;
}

static void answer_sandboxes(struct api_request *r)
{
	struct jtext j = { .grows = true };

	sandboxes_of(r)->list(sandboxes_of(r)->data, &j);
	reply_json(r, MHD_HTTP_OK, &j);
}

static void answer_no_sandbox(struct api_request *r)
{
	if (!sandboxes_of(r)->knows_all(sandboxes_of(r)->data)) {
		reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, TAKING_OVER);
		return;
	}
	reply_error(r, MHD_HTTP_NOT_FOUND, "no such sandbox: '%s'", SHOWN(r->id));
}

static void reply_sandbox(struct api_request *r, unsigned int status)
{
	struct jtext j = { .grows = true };

	if (sandboxes_of(r)->show(sandboxes_of(r)->data, r->id, &j))
		reply_json(r, status, &j);
	else
		answer_no_sandbox(r);
}

static void answer_error(struct api_request *r, unsigned int status,
			 const struct err *err)
{
	const char *error = status == MHD_HTTP_SERVICE_UNAVAILABLE ? "not ready"
			    : status >= 500			   ? "failed_safety_setup"
								   : "refused";
	struct jtext j = { .grows = true };

	jtext_open(&j, NULL, '{');
	jtext_member(&j, "error", error);
	jtext_member(&j, "reason", err->text);
	jtext_close(&j, '}');
	reply_json(r, status, &j);
}

static void answer_attach(struct api_request *r)
{
	const struct text body = { r->body ? r->body : "", r->body_size };
	struct err err = { 0 };
	unsigned int status = MHD_HTTP_SERVICE_UNAVAILABLE;

	if (sandboxes_of(r)->knows_all(sandboxes_of(r)->data))
		status =
			sandboxes_of(r)->attach(sandboxes_of(r)->data, r->id, body, &err);
	else
		err_set(&err, -EBUSY, TAKING_OVER);
	if (status >= 400)
		answer_error(r, status, &err);
	else
		reply_sandbox(r, status);
}

static void answer_detach(struct api_request *r)
{
	struct err err = { 0 };
	struct jtext j = { .grows = true };
	unsigned int status = sandboxes_of(r)->detach(sandboxes_of(r)->data, r->id, &err);

	if (status >= 400) {
		answer_error(r, status, &err);
		return;
	}
	jtext_put(&j, text_of("{\"status\":\"ok\"}"));
	reply_json(r, status, &j);
}

static void answer_one(struct api_request *r)
{
	if (r->method == METHOD_PUT)
		answer_attach(r);
	else if (!r->is_about_one)
		answer_no_sandbox(r);
	else if (r->method == METHOD_DELETE)
		answer_detach(r);
	else
		reply_sandbox(r, MHD_HTTP_OK);
}

static const struct api_route sandboxes_route = {
	TOP,
	METHOD_GET | METHOD_HEAD,
	"GET, HEAD",
	answer_sandboxes,
};
static const struct api_route one_route = {
	TOP "/",
	METHOD_GET | METHOD_HEAD | METHOD_PUT | METHOD_DELETE,
	"GET, HEAD, PUT, DELETE",
	answer_one,
	.is_below = true,
	.is_change = true,
};
static const struct api_route no_route = {
	TOP "/", METHOD_ANY, "", answer_no_sandbox, .is_below = true,
};

static const struct api_route *sandbox_route(struct api_request *r)
{
	const char *id = r->target + strlen(TOP "/");
	const char *rest;
	size_t len;

	if (strcmp(r->target, TOP) == 0)
		return &sandboxes_route;
	if (strncmp(r->target, TOP "/", strlen(TOP "/")) != 0)
		return NULL;
	rest = strchr(id, '/');
	len = rest ? (size_t)(rest - id) : strlen(id);
	if (len == 0 || len > API_ID_MAX)
		return &no_route;
	memcpy(r->id, id, len);
	r->is_about_one = sandboxes_of(r)->find(sandboxes_of(r)->data, r->id, &r->own_ops,
						&r->sandbox);
	if (r->is_about_one)
		r->ops = &r->own_ops;
	if (!rest)
		return &one_route;
	if (!r->is_about_one)
		return &no_route;
	memmove(r->target, rest, strlen(rest) + 1);
	return NULL;
}

void route_refresh(struct api_request *r)
{
	if (!r->is_about_one)
		return;
	r->is_about_one = sandboxes_of(r)->find(sandboxes_of(r)->data, r->id, &r->own_ops,
						&r->sandbox);
	if (!r->is_about_one && r->route != &one_route)
		r->answer = answer_no_sandbox;
}

/* ---- judging ---- */

static const struct api_route *find_route(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const struct api_route *route = &routes[i];

		if (route->is_prefix
			    ? strncmp(path, route->path, strlen(route->path)) == 0
			    : strcmp(path, route->path) == 0)
			return route;
	}
	return NULL;
}

static unsigned int method_of(const char *method)
{
	static const struct {
		const char *name;
		unsigned int bit;
	} methods[] = {
		{ "GET", METHOD_GET },	   { "HEAD", METHOD_HEAD },
		{ "POST", METHOD_POST },   { "PUT", METHOD_PUT },
		{ "PATCH", METHOD_PATCH }, { "DELETE", METHOD_DELETE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(method, methods[i].name) == 0)
			return methods[i].bit;
	return METHOD_OTHER;
}

static bool is_authorized(const struct api_request *r)
{
	const char *token = r->api->config.token;

	if (!has_token(r->api))
		return true;
	return request_token_equal(text_trim(request_header(r, TOKEN_HEADER)), token) ||
	       request_token_equal(
		       request_bearer(request_header(r, MHD_HTTP_HEADER_AUTHORIZATION)),
		       token);
}

/* Return: NULL, or what answers somebody who isn't authorized. Who shows no token guesses
 * none: else any page could have the browser that shows it locked out. */
static void (*stranger(const struct api_request *r))(struct api_request *r)
{
	if (request_failures_wait(r, r->api->failures) > 0)
		return answer_too_often;
	if (is_authorized(r))
		return NULL;
	if (request_header(r, TOKEN_HEADER).len > 0 ||
	    request_header(r, MHD_HTTP_HEADER_AUTHORIZATION).len > 0)
		request_failures_add(r, r->api->failures);
	return answer_unauthorized;
}

static struct text line_of(const struct api_request *r, const char *name)
{
	struct text value = { NULL, 0 };

	if (MHD_lookup_connection_value_n(r->mhd, MHD_HEADER_KIND, name, strlen(name),
					  &value.ptr, &value.len) == MHD_YES &&
	    !value.ptr)
		value = (struct text){ "", 0 };
	return value;
}

/* A page can leave some of these out or change them, but not all. */
static bool is_browser(const struct api_request *r)
{
	static const char *const lines[] = { "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode",
					     "Referer", "Accept-Language" };
	const struct text agent = request_header(r, MHD_HTTP_HEADER_USER_AGENT);

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		if (line_of(r, lines[i]).ptr)
			return true;
	return agent.len >= 8 && strncmp(agent.ptr, "Mozilla/", 8) == 0;
}

/* NULL, or why nobody is answered who asks like that. */
static const char *foreign_fault(const struct api_request *r)
{
	const struct browser_head head = {
		.host = text_trim(request_header(r, MHD_HTTP_HEADER_HOST)),
		.origin = line_of(r, "Origin"),
		.site = line_of(r, "Sec-Fetch-Site"),
		.is_browser = is_browser(r),
		.names = { r->api->config.hosts, r->api->config.host_count },
	};

	return has_token(r->api) ? NULL : browser_fault(&head);
}

static void answer_foreign(struct api_request *r)
{
	r->api->counts.forbidden++;
	reply_error(r, MHD_HTTP_FORBIDDEN, "%s", foreign_fault(r));
}

/* Return: false when the target alone decides the answer. */
static bool judge_target(struct api_request *r, const char *method)
{
	const size_t size = strlen(r->target);
	char *query;

	r->answer = answer_no_page;
	if (size > API_TARGET_MAX)
		return false;
	r->answer = answer_bad_target;
	if (request_target(r->target, &query) < 0)
		return false;
	r->query = query;
	if (strcmp(r->target, "*") == 0) {
		if (strcmp(method, "OPTIONS") == 0)
			r->answer = answer_options;
		return false;
	}
	r->clean = malloc(strlen(r->target) + 2);
	if (!r->clean)
		return false;
	request_path_clean(r->target, r->clean);
	if (strcmp(r->target, r->clean) == 0)
		return true;
	r->answer = reply_moved;
	return false;
}

/* Policies are of one sandbox, the page is the whole API's. */
static bool is_here(const struct api_request *r)
{
	const bool is_daemon = r->api->config.sandboxes.find != NULL;

	if (r->route->own_body_max > 0 && !r->api->config.review_key)
		return false;
	if (r->route->is_page)
		return r->api->config.ui && !r->id[0];
	if (r->id[0])
		return r->route->is_below;
	return !is_daemon || (!r->route->is_about_one && !r->route->is_sidecars);
}

/* Whoever asks is looked at first. A stranger isn't even told which sandboxes there are.
 */
static bool is_guarded(const struct api_request *r)
{
	return r->id[0] || (r->route && !r->route->is_open);
}

void route_judge(struct api_request *r, const char *method)
{
	void (*refused)(struct api_request * r);

	r->method = method_of(method);
	r->ops = &r->api->config.ops;
	if (!judge_target(r, method))
		return;
	r->route = r->api->config.sandboxes.find ? sandbox_route(r) : NULL;
	if (!r->route)
		r->route = find_route(r->target);
	refused = is_guarded(r) ? stranger(r) : NULL;
	if (refused)
		r->answer = refused;
	else if (is_guarded(r) && foreign_fault(r))
		r->answer = answer_foreign;
	else if (!r->route || !is_here(r))
		r->answer = answer_no_page;
	else if (r->route->methods != METHOD_ANY && !(r->route->methods & r->method))
		r->answer = reply_not_allowed;
	else if (r->route->is_change && (r->method & METHODS_CHANGE) &&
		 !has_token(r->api) && !r->api->config.open)
		r->answer = answer_forbidden;
	else
		r->answer = r->route->answer;
	r->keeps_body = r->route && r->answer == r->route->answer &&
			(r->route->is_change || r->route->own_body_max > 0) &&
			r->method != METHOD_GET;
	r->body_max = r->keeps_body && r->route->own_body_max > 0 ? r->route->own_body_max
								  : API_BODY_MAX;
}
