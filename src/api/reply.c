// SPDX-License-Identifier: Apache-2.0
/* Answers, whoever sends them, and what is known of a request's head. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"

#define PLAIN "text/plain; charset=utf-8"

/* ---- the request ---- */

struct text request_header(const struct api_request *r, const char *name)
{
	const struct text value = r->api->transport->header(r, name);

	return value.ptr ? value : (struct text){ "", 0 };
}

struct text request_body(const struct api_request *r)
{
	return text_trim((struct text){ r->body ? r->body : "", r->body_size });
}

uint32_t request_failures_wait(const struct api_request *r)
{
	const struct failures *f = r->api->failures;

	return f && r->conn ? failures_wait(f, &r->conn->network,
					    loop_now_ms(r->api->config.loop))
			    : 0;
}

bool request_has_policy(const struct api_request *r)
{
	return r->is_about_one || !r->api->config.sandboxes.find;
}

bool request_is_about(const struct api_request *r, const struct event *e)
{
	/* A run's events have the numbers of its policies there. */
	return !r->is_about_one || r->api->config.is_run || e->sandbox == r->sandbox;
}

void request_done(struct api_request *r)
{
	free(r->target);
	free(r->clean);
	free(r->body);
}

/* ---- the answer ---- */

bool reply_header_at(const struct api_reply *a, size_t i, struct reply_header *ret)
{
	/* A page of another origin can't read the answer as a script or an image. */
	static const struct reply_header each[] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
	};

	if (a->type && i-- == 0) {
		*ret = (struct reply_header){ "Content-Type", a->type };
		return true;
	}
	if (i < ARRAY_SIZE(each)) {
		*ret = each[i];
		return true;
	}
	i -= ARRAY_SIZE(each);
	if (i >= REPLY_HEADERS_MAX || !a->headers[i].name)
		return false;
	*ret = a->headers[i];
	return true;
}

void reply_sent(struct api_request *r, unsigned int status)
{
	r->answered = true;
	r->api->counts.answers[MIN(status / 100, 5U)]++;
}

void reply_send(struct api_request *r, const struct api_reply *a)
{
	if (r->api->transport->send(r, a))
		reply_sent(r, a->status);
}

void reply_text(struct api_request *r, unsigned int status, const char *text,
		const char *name, const char *value)
{
	/* The caller's text is gone when the answer leaves. */
	char *copy = strdup(text);
	const struct api_reply a = { .status = status,
				     .type = PLAIN,
				     .bytes = copy,
				     .size = strlen(text),
				     .owned = copy,
				     .headers = { { name, value } } };

	if (copy)
		reply_send(r, &a);
}

bool reply_error(struct api_request *r, unsigned int status, const char *fmt, ...)
{
	const bool is_strange = status == HTTP_UNAUTHORIZED;
	const bool may_retry = status == HTTP_UNAVAILABLE;
	char text[ERR_TEXT_SIZE + 128];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	n = MIN(MAX(n, 0), (int)sizeof(text) - 2);
	text[n] = '\n';
	text[n + 1] = '\0';
	reply_text(r, status, text,
		   is_strange  ? "WWW-Authenticate"
		   : may_retry ? "Retry-After"
			       : NULL,
		   is_strange ? "Bearer" : "5");
	return false;
}

void reply_json(struct api_request *r, unsigned int status, struct jtext *j)
{
	size_t size;

	jtext_put(j, text_of("\n"));
	size = j->used;
	reply_taken(r, status, "application/json", jtext_take(j), size);
}

void reply_member_tree(struct jtext *j, const char *key, json_t *tree)
{
	CLEAN(mem) char *text = tree ? json_dumps(tree, JSON_COMPACT) : NULL;

	if (key)
		jtext_key(j, key);
	jtext_json(j, text_of(text ?: "null"));
	json_decref(tree);
}

bool reply_open(struct api_request *r, struct reply_stream *s)
{
	s->body = NULL;
	s->out = open_memstream(&s->body, &s->size);
	return s->out || reply_error(r, HTTP_FAILED, "out of memory");
}

bool reply_end(struct api_request *r, struct reply_stream *s)
{
	if (fclose(s->out) == 0)
		return true;
	free(TAKE_PTR(s->body));
	return reply_error(r, HTTP_FAILED, "out of memory");
}

void reply_moved(struct api_request *r)
{
	const bool has_body = (r->method & (METHOD_GET | METHOD_HEAD)) != 0;
	struct reply_stream location, page;

	if (!reply_open(r, &location))
		return;
	request_path_encode(r->clean, location.out);
	if (r->query)
		fprintf(location.out, "?%s", r->query);
	if (!reply_end(r, &location))
		return;
	if (reply_open(r, &page)) {
		if (has_body) {
			fputs("<a href=\"", page.out);
			request_html(location.body, page.out);
			fputs("\">Moved Permanently</a>.\n\n", page.out);
		}
		if (reply_end(r, &page))
			reply_send(
				r,
				&(const struct api_reply){
					.status = HTTP_MOVED,
					.type = has_body ? "text/html; charset=utf-8"
							 : NULL,
					.bytes = page.body,
					.size = page.size,
					.owned = page.body,
					.headers = { { "Location", location.body } } });
	}
	free(location.body);
}

void reply_taken(struct api_request *r, unsigned int status, const char *type, char *body,
		 size_t size)
{
	const struct api_reply a = {
		.status = status,
		.type = type,
		.bytes = body,
		.size = size,
		.owned = body,
		.headers = { { "Cache-Control", "no-store" },
			     { r->tag[0] ? "ETag" : NULL, r->tag } },
	};

	if (body)
		reply_send(r, &a);
	else
		reply_error(r, HTTP_FAILED, "out of memory");
}
