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

static const struct api_sandboxes *sandboxes_of(const struct api_request *r)
{
	return &r->api->config.sandboxes;
}

static bool is_taking_over(const struct api_request *r)
{
	const struct api_sandboxes *s = sandboxes_of(r);

	return s->knows_all && !s->knows_all(s->data);
}

/* By their bits: METHOD_GET and on. */
static const char methods[][8] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE" };

/* ---- answers that need no file of their own ---- */

void answer_bad_method(struct api_request *r)
{
	char allow[64];
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (r->route->methods & 1U << i)
			used += (size_t)snprintf(allow + used, sizeof(allow) - used,
						 "%s%s", used > 0 ? ", " : "",
						 methods[i]);
	reply_text(r, HTTP_BAD_METHOD, "method not allowed\n", "Allow", allow);
}

static void answer_health(struct api_request *r)
{
	const struct api_ops *ops = r->ops;

	if (!ops->healthy || ops->healthy(ops->data))
		reply_text(r, HTTP_OK, "ok", NULL, NULL);
	else if (is_taking_over(r))
		reply_text(r, HTTP_UNAVAILABLE, "weir is restoring\n", NULL, NULL);
	else
		reply_text(r, HTTP_UNAVAILABLE, "weir not ready\n", NULL, NULL);
}

/* To a request whose target is none, or whose end is unclear; nothing more is read of
 * the connection. */
static void answer_bad_request(struct api_request *r)
{
	reply_text(r, HTTP_BAD_REQUEST, r->fault ?: "400 Bad Request", "Connection",
		   "close");
}

static void answer_options(struct api_request *r)
{
	reply_send(r, &(const struct api_reply){ .status = HTTP_OK, .bytes = "" });
}

static void answer_no_page(struct api_request *r)
{
	reply_error(r, HTTP_NOT_FOUND, "404 page not found");
}

static void answer_unauthorized(struct api_request *r)
{
	r->api->counts.unauthorized++;
	reply_error(r, HTTP_UNAUTHORIZED, "unauthorized");
}

static void answer_too_often(struct api_request *r)
{
	const uint32_t seconds = request_failures_wait(r);
	char text[16];

	r->api->counts.unauthorized++;
	snprintf(text, sizeof(text), "%u", MAX(seconds, 1U));
	reply_text(r, HTTP_TOO_MANY, "too many wrong tokens\n", "Retry-After", text);
}

static void answer_forbidden(struct api_request *r)
{
	r->api->counts.forbidden++;
	reply_error(r, HTTP_FORBIDDEN, "forbidden");
}

static void answer_sandboxes(struct api_request *r)
{
	struct jtext j = { .grows = true };

	sandboxes_of(r)->list(sandboxes_of(r)->data, &j);
	reply_json(r, HTTP_OK, &j);
}

/* The vault is the reference's with its proxy switched off: nothing is in it and
 * nothing can be put in. */
static void answer_vault(struct api_request *r)
{
	if (r->method == METHOD_GET)
		reply_error(r, HTTP_NOT_FOUND, "credential vault not found");
	else if (!has_token(r->api))
		reply_error(r, HTTP_PRECONDITION_FAILED,
			    "credential vault requires egress API auth token");
	else
		reply_error(r, HTTP_PRECONDITION_FAILED,
			    "credential vault requires transparent mitmproxy");
}

static void answer_vault_unknown(struct api_request *r)
{
	reply_error(r, HTTP_NOT_FOUND, "not found");
}

/* ---- the table: the first row that fits ---- */

#define VAULT "/credential-vault"

enum {
	OF_ONE = IN_SIDECAR | IN_SANDBOX, /* about one sandbox */
	OF_ALL = OF_ONE | IN_DAEMON,
	AT_TOP = IN_SIDECAR | IN_DAEMON,
};

static const struct api_route routes[] = {
	{ "/healthz", METHOD_ANY, answer_health, OF_ALL | IN_RUN, .is_open = true },
	{ "/policy", METHOD_GET | METHODS_CHANGE, answer_policy, OF_ONE | IN_RUN,
	  .is_change = true },
	{ "/status", METHODS_READ, answer_status, OF_ALL | IN_RUN },
	{ "/metrics", METHODS_READ, answer_metrics, OF_ALL },
	{ "/policy/check", METHOD_POST, answer_policy_check, OF_ONE, .is_change = true },
	{ "/policy/explain", METHODS_READ, answer_explain, OF_ONE | IN_RUN },
	{ "/events", METHOD_GET, answer_events, OF_ALL },
	{ "/events/stored", METHODS_READ, answer_stored, OF_ALL, .is_search = true },
	{ "/activity", METHODS_READ, answer_activity, OF_ALL, .is_search = true },
	{ "/top", METHODS_READ, answer_top, OF_ALL, .is_search = true },
	{ "/denies", METHODS_READ, answer_denies, OF_ONE | IN_RUN },
	{ "/denies/count", METHODS_READ, answer_denies_count, OF_ALL, .is_search = true },
	{ "/review", METHODS_READ, answer_reviews, OF_ALL | IN_RUN, .is_search = true },
	{ "/review/", METHODS_READ | METHOD_POST, answer_review, OF_ALL | IN_RUN,
	  .is_change = true, .is_search = true },
	{ "/answer/", METHODS_READ | METHOD_POST, answer_link, AT_TOP, .is_open = true,
	  .own_body_max = LINK_BODY_MAX },
	{ "/openapi.yaml", METHODS_READ, answer_openapi, AT_TOP, .is_open = true },
	{ "/ui", METHODS_READ, answer_page_moved, AT_TOP, .is_open = true,
	  .is_page = true },
	{ "/ui/", METHODS_READ, answer_page, AT_TOP, .is_open = true, .is_page = true },
	{ "/sandboxes", METHODS_READ, answer_sandboxes, IN_DAEMON | IN_RUN_TOP },
	{ VAULT, METHOD_GET | METHOD_POST | METHOD_PATCH | METHOD_DELETE, answer_vault,
	  IN_SIDECAR },
	{ VAULT "/_active", METHOD_GET, answer_forbidden, IN_SIDECAR, .is_open = true },
	{ VAULT "/credentials", METHOD_GET, answer_vault, IN_SIDECAR },
	{ VAULT "/credentials/", METHOD_GET, answer_vault, IN_SIDECAR },
	{ VAULT "/bindings", METHOD_GET, answer_vault, IN_SIDECAR },
	{ VAULT "/bindings/", METHOD_GET, answer_vault, IN_SIDECAR },
	{ VAULT "/", METHOD_ANY, answer_vault_unknown, IN_SIDECAR },
};

/* ---- /sandboxes: what a daemon guards, and each as a sidecar shows its one ---- */

#define TOP	    "/sandboxes"
#define TAKING_OVER "the daemon takes over the sandboxes that were there before it"

static void answer_no_sandbox(struct api_request *r)
{
	if (is_taking_over(r))
		reply_error(r, HTTP_UNAVAILABLE, TAKING_OVER);
	else
		reply_error(r, HTTP_NOT_FOUND, "no such sandbox: '%s'", SHOWN(r->id));
}

static void show_one(struct api_request *r, unsigned int status)
{
	const struct api_sandboxes *s = sandboxes_of(r);
	struct jtext j = { .grows = true };

	if (s->show(s->data, r->id, &j))
		reply_json(r, status, &j);
	else
		answer_no_sandbox(r);
}

static void reply_refused(struct api_request *r, unsigned int status,
			  const struct err *err)
{
	const char *error = status == HTTP_UNAVAILABLE ? "not ready"
			    : status >= 500	       ? "failed_safety_setup"
						       : "refused";
	struct jtext j = { .grows = true };

	jtext_open(&j, NULL, '{');
	jtext_member(&j, "error", error);
	jtext_member(&j, "reason", err->text);
	jtext_close(&j, '}');
	reply_json(r, status, &j);
}

static void attach_one(struct api_request *r)
{
	const struct api_sandboxes *s = sandboxes_of(r);
	unsigned int status = HTTP_UNAVAILABLE;
	struct err err = { 0 };

	if (is_taking_over(r))
		err_set(&err, -EBUSY, TAKING_OVER);
	else
		status = s->attach(s->data, r->id, request_body(r), &err);
	if (status >= 400)
		reply_refused(r, status, &err);
	else
		show_one(r, status);
}

static void detach_one(struct api_request *r)
{
	const struct api_sandboxes *s = sandboxes_of(r);
	struct jtext j = { .grows = true };
	struct err err = { 0 };
	unsigned int status = s->detach(s->data, r->id, &err);

	if (status >= 400) {
		reply_refused(r, status, &err);
		return;
	}
	jtext_put(&j, text_of("{\"status\":\"ok\"}"));
	reply_json(r, status, &j);
}

static void answer_one(struct api_request *r)
{
	if (r->method == METHOD_PUT)
		attach_one(r);
	else if (!r->is_about_one)
		answer_no_sandbox(r);
	else if (r->method == METHOD_DELETE)
		detach_one(r);
	else
		show_one(r, HTTP_OK);
}

enum { ROUTE_ONE = 0, ROUTE_RUN, ROUTE_NONE };
static const struct api_route below[] = {
	[ROUTE_ONE] = { TOP "/", METHODS_READ | METHOD_PUT | METHOD_DELETE, answer_one,
			IN_SANDBOX, .is_change = true },
	[ROUTE_RUN] = { TOP "/", METHODS_READ, answer_one, IN_RUN },
	[ROUTE_NONE] = { TOP "/", METHOD_ANY, answer_no_sandbox, IN_SANDBOX | IN_RUN },
};

/* Below /sandboxes the rest of the target is that of the one sandbox, and it is looked
 * for in the same table. A path that ends with a slash is that of all below. */
static const struct api_route *find_route(struct api_request *r)
{
	const struct api_sandboxes *s = sandboxes_of(r);
	const char *id, *rest;
	size_t len;

	if (s->find && strncmp(r->target, TOP "/", strlen(TOP "/")) == 0) {
		id = r->target + strlen(TOP "/");
		rest = strchr(id, '/');
		len = rest ? (size_t)(rest - id) : strlen(id);
		if (len == 0 || len > API_ID_MAX)
			return &below[ROUTE_NONE];
		memcpy(r->id, id, len);
		r->is_about_one = s->find(s->data, r->id, &r->own_ops, &r->sandbox);
		if (r->is_about_one)
			r->ops = &r->own_ops;
		if (!rest)
			return &below[r->api->config.is_run ? ROUTE_RUN : ROUTE_ONE];
		if (!r->is_about_one)
			return &below[ROUTE_NONE];
		memmove(r->target, rest, strlen(rest) + 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
		const char *wanted = routes[i].path;
		const size_t size = strlen(wanted);

		if (strncmp(r->target, wanted, size) == 0 &&
		    (wanted[size - 1] == '/' || !r->target[size]))
			return &routes[i];
	}
	return NULL;
}

void route_refresh(struct api_request *r)
{
	if (!r->is_about_one)
		return;
	r->is_about_one = sandboxes_of(r)->find(sandboxes_of(r)->data, r->id, &r->own_ops,
						&r->sandbox);
	if (!r->is_about_one && r->route != &below[ROUTE_ONE])
		r->answer = answer_no_sandbox;
}

/* ---- checks ---- */

/* Return: NULL, or what answers somebody who isn't authorized. Who shows no token guesses
 * none: else any page could have the browser that shows it locked out. */
static void (*stranger(const struct api_request *r))(struct api_request *r)
{
	const struct text own = request_header(r, TOKEN_HEADER);
	const struct text authorization = request_header(r, "Authorization");
	const char *token = r->api->config.token;

	if (request_failures_wait(r) > 0)
		return answer_too_often;
	if (!has_token(r->api) || request_token_equal(text_trim(own), token) ||
	    request_token_equal(request_bearer(authorization), token))
		return NULL;
	if ((own.len > 0 || authorization.len > 0) && r->api->failures && r->conn)
		failures_add(r->api->failures, &r->conn->network,
			     loop_now_ms(r->api->config.loop));
	return answer_unauthorized;
}

/* NULL, or why nobody is answered who asks like that. */
static const char *foreign_fault(const struct api_request *r)
{
	/* A page can leave some of these out or change them, but not all. */
	static const char *const lines[] = { "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode",
					     "Referer", "Accept-Language" };
	const struct text agent = request_header(r, "User-Agent");
	struct browser_head head = {
		.host = text_trim(request_header(r, "Host")),
		.origin = r->api->transport->header(r, "Origin"),
		.site = r->api->transport->header(r, "Sec-Fetch-Site"),
		.is_browser = agent.len >= 8 && strncmp(agent.ptr, "Mozilla/", 8) == 0,
		.names = { r->api->config.hosts, r->api->config.host_count },
	};

	if (has_token(r->api))
		return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		head.is_browser |= r->api->transport->header(r, lines[i]).ptr != NULL;
	return browser_fault(&head);
}

static void answer_foreign(struct api_request *r)
{
	r->api->counts.forbidden++;
	reply_error(r, HTTP_FORBIDDEN, "%s", foreign_fault(r));
}

static bool is_here(const struct api_request *r)
{
	const struct api_config *c = &r->api->config;
	unsigned int here = IN_SIDECAR;

	if (c->sandboxes.find && c->is_run)
		here = r->id[0] ? IN_RUN : IN_RUN_TOP;
	else if (c->sandboxes.find)
		here = r->id[0] ? IN_SANDBOX : IN_DAEMON;
	return (r->route->where & here) && r->route->answer &&
	       (r->route->own_body_max == 0 || c->review_key) &&
	       (!r->route->is_page || c->ui);
}

static void check_head(struct api_request *r, const char *method)
{
	void (*refused)(struct api_request * r);
	bool guarded;
	char *query;

	r->answer = answer_no_page;
	if (strlen(r->target) > API_TARGET_MAX)
		return;
	r->answer = answer_bad_request;
	if (request_target(r->target, &query) < 0)
		return;
	r->query = query;
	if (strcmp(r->target, "*") == 0) {
		if (strcmp(method, "OPTIONS") == 0)
			r->answer = answer_options;
		return;
	}
	r->clean = malloc(strlen(r->target) + 2);
	if (!r->clean)
		return;
	request_path_clean(r->target, r->clean);
	r->answer = reply_moved;
	if (strcmp(r->target, r->clean) != 0)
		return;
	r->route = find_route(r);
	/* Whoever asks is looked at first. A stranger isn't even told which sandboxes
	 * there are. */
	guarded = r->id[0] || (r->route && !r->route->is_open);
	refused = guarded ? stranger(r) : NULL;
	if (refused)
		r->answer = refused;
	else if (guarded && foreign_fault(r))
		r->answer = answer_foreign;
	else if (!r->route || !is_here(r))
		r->answer = answer_no_page;
	else if (r->route->methods != METHOD_ANY && !(r->route->methods & r->method))
		r->answer = answer_bad_method;
	else if (r->route->is_change && (r->method & METHODS_CHANGE) &&
		 !has_token(r->api) && !r->api->config.open)
		r->answer = answer_forbidden;
	else
		r->answer = r->route->answer;
	r->keeps_body = r->route && r->answer == r->route->answer &&
			(r->route->is_change || r->route->own_body_max > 0) &&
			r->method != METHOD_GET;
	r->body_max = r->keeps_body && r->route->own_body_max > 0 ? r->route->own_body_max
		      : r->api->config.body_max > 0 ? r->api->config.body_max
						    : (size_t)API_BODY_MAX;
}

void answer_too_large(struct api_request *r)
{
	reply_error(r, HTTP_TOO_LARGE, "request body too large");
}

void route_check(struct api_request *r, const char *method, const char *fault)
{
	const struct text length = text_trim(request_header(r, "Content-Length"));

	r->method = METHOD_OTHER;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (strcmp(method, methods[i]) == 0)
			r->method = 1U << i;
	r->ops = &r->api->config.ops;
	/* UINT32_MAX: more than can be taken. Text that isn't a number is the library's.
	 */
	r->announced = 0;
	if (length.len > 0 && !text_to_u32(length, UINT32_MAX, &r->announced))
		r->announced = UINT32_MAX;
	r->fault = fault;
	if (r->fault) {
		r->answer = answer_bad_request;
		return;
	}
	check_head(r, method);
	if (r->keeps_body && r->announced > r->body_max) {
		r->answer = answer_too_large;
		r->keeps_body = false;
	}
}
