// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <string.h>

#include "api/internal.h"

#define PLAIN "text/plain; charset=utf-8"

void reply_header(struct MHD_Response *response, const char *name, const char *value)
{
	/* Fails without memory: the answer then lacks it, which is what can be done. */
	(void)!MHD_add_response_header(response, name, value);
}

void reply_queue(struct api_request *r, unsigned int status, const char *type,
		 struct MHD_Response *response)
{
	if (!response)
		return;
	if (type)
		reply_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	/* Nobody else's page reads it, as whatever. */
	reply_header(response, "X-Content-Type-Options", "nosniff");
	reply_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	if (MHD_queue_response(r->mhd, status, response) == MHD_YES) {
		r->answered = true;
		r->api->counts.answers[MIN(status / 100, 5U)]++;
	}
	MHD_destroy_response(response);
}

static struct MHD_Response *text_response(const char *text)
{
	union {
		const char *in;
		void *out; /* the library copies, but asks for writable bytes */
	} bytes = { .in = text };

	return MHD_create_response_from_buffer(strlen(text), bytes.out,
					       MHD_RESPMEM_MUST_COPY);
}

void reply_text(struct api_request *r, unsigned int status, const char *text)
{
	reply_queue(r, status, PLAIN, text_response(text));
}

void reply_error(struct api_request *r, unsigned int status, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE + 128];
	struct MHD_Response *response;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, args);
	va_end(args);
	n = MIN(MAX(n, 0), (int)sizeof(text) - 2);
	text[n] = '\n';
	text[n + 1] = '\0';
	response = text_response(text);
	if (response && status == MHD_HTTP_UNAUTHORIZED)
		reply_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
	if (response && status == MHD_HTTP_SERVICE_UNAVAILABLE)
		reply_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "5");
	reply_queue(r, status, PLAIN, response);
}

void reply_wait(struct api_request *r, uint32_t seconds)
{
	struct MHD_Response *response = text_response("too many wrong tokens\n");
	char text[16];

	snprintf(text, sizeof(text), "%u", MAX(seconds, 1U));
	if (response)
		reply_header(response, MHD_HTTP_HEADER_RETRY_AFTER, text);
	reply_queue(r, MHD_HTTP_TOO_MANY_REQUESTS, PLAIN, response);
}

void reply_last_error(struct api_request *r, unsigned int status, const char *text)
{
	struct MHD_Response *response = text_response(text);

	if (response)
		reply_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	reply_queue(r, status, PLAIN, response);
}

void reply_not_allowed(struct api_request *r)
{
	struct MHD_Response *response = text_response("method not allowed\n");

	if (response)
		reply_header(response, MHD_HTTP_HEADER_ALLOW, r->route->allow);
	reply_queue(r, MHD_HTTP_METHOD_NOT_ALLOWED, PLAIN, response);
}

static void write_location(struct api_request *r, FILE *out)
{
	request_path_encode(r->clean, out);
	if (r->query)
		fprintf(out, "?%s", r->query);
}

void reply_moved(struct api_request *r)
{
	const bool has_body = (r->method & (METHOD_GET | METHOD_HEAD)) != 0;
	struct reply_stream location, page;
	struct MHD_Response *response;

	if (!reply_open(r, &location))
		return;
	write_location(r, location.out);
	if (fclose(location.out) != 0 || !reply_open(r, &page)) {
		free(location.body);
		return;
	}
	fputs("<a href=\"", page.out);
	request_html(location.body, page.out);
	fputs("\">Moved Permanently</a>.\n\n", page.out);
	response = fclose(page.out) == 0 ? text_response(has_body ? page.body : "")
					 : NULL;
	if (response)
		reply_header(response, MHD_HTTP_HEADER_LOCATION, location.body);
	reply_queue(r, MHD_HTTP_MOVED_PERMANENTLY,
		    has_body ? "text/html; charset=utf-8" : NULL, response);
	free(page.body);
	free(location.body);
}

void reply_taken(struct api_request *r, const char *type, char *body, size_t size)
{
	struct MHD_Response *response = NULL;

	if (body)
		response = MHD_create_response_from_buffer(size, body,
							   MHD_RESPMEM_MUST_FREE);
	if (!response) {
		free(body);
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
		return;
	}
	reply_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	reply_queue(r, MHD_HTTP_OK, type, response);
}

bool reply_open(struct api_request *r, struct reply_stream *s)
{
	s->body = NULL;
	s->out = open_memstream(&s->body, &s->size);
	if (!s->out)
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
	return s->out != NULL;
}

void reply_close(struct api_request *r, struct reply_stream *s, const char *type)
{
	if (fclose(s->out) != 0) {
		free(s->body);
		s->body = NULL;
	}
	reply_taken(r, type, s->body, s->size);
}
