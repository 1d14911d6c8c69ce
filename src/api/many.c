// SPDX-License-Identifier: Apache-2.0
/* /sandboxes: what a daemon guards, and each of them as a sidecar shows its one. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

#define TOP	    "/sandboxes"
#define TAKING_OVER "the daemon takes over the sandboxes that were there before it"

static const struct api_sandboxes *sandboxes_of(const struct api_request *r)
{
	return &r->api->config.sandboxes;
}

/* @json is malloc'ed, taken; NULL ends the connection: out of memory. */
static void reply_json(struct api_request *r, unsigned int status, char *json)
{
	struct MHD_Response *response =
		json ? MHD_create_response_from_buffer(strlen(json), json,
						       MHD_RESPMEM_MUST_FREE)
		     : NULL;

	if (json && !response)
		free(json);
	reply_queue(r, status, "application/json", response);
}

static void answer_list(struct api_request *r)
{
	reply_json(r, MHD_HTTP_OK, sandboxes_of(r)->list(sandboxes_of(r)->data));
}

static void answer_error(struct api_request *r, unsigned int status,
			 const struct err *err)
{
	const char *error = status == MHD_HTTP_SERVICE_UNAVAILABLE ? "not ready"
			    : status >= 500			   ? "failed_safety_setup"
								   : "refused";
	json_t *j = json_pack("{s:s, s:s}", "error", error, "reason", err->text);
	char *text = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII);

	json_decref(j);
	reply_json(r, status, text);
}

static void attach(struct api_request *r)
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
		reply_json(r, status,
			   sandboxes_of(r)->show(sandboxes_of(r)->data, r->id));
}

static void detach(struct api_request *r)
{
	struct err err = { 0 };
	unsigned int status = sandboxes_of(r)->detach(sandboxes_of(r)->data, r->id, &err);

	if (status >= 400)
		answer_error(r, status, &err);
	else
		reply_json(r, status, strdup("{\"status\":\"ok\"}"));
}

static void answer_no_sandbox(struct api_request *r)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (!sandboxes_of(r)->knows_all(sandboxes_of(r)->data)) {
		reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, TAKING_OVER);
		return;
	}
	reply_error(r, MHD_HTTP_NOT_FOUND, "no such sandbox: '%s'",
		    text_escape(text_of(r->id), shown, sizeof(shown)));
}

static void answer_one(struct api_request *r)
{
	if (r->method == METHOD_PUT)
		attach(r);
	else if (!r->is_about_one)
		answer_no_sandbox(r);
	else if (r->method == METHOD_DELETE)
		detach(r);
	else
		reply_json(r, MHD_HTTP_OK,
			   sandboxes_of(r)->show(sandboxes_of(r)->data, r->id));
}

static const struct api_route list_route = {
	TOP,
	METHOD_GET | METHOD_HEAD,
	"GET, HEAD",
	answer_list,
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

const struct api_route *many_route(struct api_request *r)
{
	const char *id = r->target + strlen(TOP "/");
	const char *rest;
	size_t len;

	if (strcmp(r->target, TOP) == 0)
		return &list_route;
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

void many_refresh(struct api_request *r)
{
	if (!r->is_about_one)
		return;
	r->is_about_one = sandboxes_of(r)->find(sandboxes_of(r)->data, r->id, &r->own_ops,
						&r->sandbox);
	if (!r->is_about_one && r->route != &one_route)
		r->answer = answer_no_sandbox;
}
