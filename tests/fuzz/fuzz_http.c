// SPDX-License-Identifier: Apache-2.0
/* However a connection is cut into segments, the same requests come out of it, naming the
 * same hosts, and it ends the same way. The first octet says how it is cut. What is
 * called neither TLS nor HTTP never reads as a request. */
#include <stdlib.h>
#include <string.h>

#include "relay/first.h"
#include "relay/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

enum { REQUESTS_MAX = 16 };

struct output {
	struct http_request requests[REQUESTS_MAX];
	size_t count;
	uint64_t passed;
	enum http_read end;
	uint8_t fault;
};

static void hold_request(const struct http_request *r, const uint8_t *bytes)
{
	HOLD(r->size >= 4 && r->size <= HTTP_HEAD_MAX);
	HOLD(memcmp(bytes + r->size - 4, "\r\n\r\n", 4) == 0);
	HOLD(r->host.kind != WIRE_HOST_NAME || r->host.size == strlen(r->host.text));
	HOLD(r->body != HTTP_BODY_CHUNKED || r->length == 0);
}

static void run(const uint8_t *data, size_t size, size_t step, struct output *out)
{
	struct http_stream s = { 0 };
	size_t there = 0;

	memset(out, 0, sizeof(*out));
	while (out->passed < size && out->count < REQUESTS_MAX) {
		struct http_piece piece = { 0 };
		size_t left = there > out->passed ? there - (size_t)out->passed : 0;

		out->end = http_next(&s, data + out->passed, left, &piece);
		out->fault = piece.fault;
		if (out->end == HTTP_BAD || (out->end == HTTP_NEED_MORE && there == size))
			return;
		if (out->end == HTTP_NEED_MORE) {
			there = size - there < step ? size : there + step;
			continue;
		}
		if (out->end == HTTP_REQUEST) {
			hold_request(&piece.request, data + out->passed);
			out->requests[out->count++] = piece.request;
		}
		HOLD(piece.pass > 0);
		out->passed += piece.pass;
	}
}

static void hold_equal(const struct output *a, const struct output *b)
{
	HOLD(a->count == b->count && a->passed == b->passed && a->end == b->end);
	HOLD(a->end != HTTP_BAD || a->fault == b->fault);
	for (size_t i = 0; i < a->count; i++)
		HOLD(wire_host_equal(&a->requests[i].host, &b->requests[i].host) ||
		     a->requests[i].host.kind == WIRE_HOST_BAD);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct output at_once, in_pieces;
	struct http_answer answer = { 0 };
	const char *reason = NULL;
	size_t step;

	if (size < 1 || size > 2 * HTTP_HEAD_MAX)
		return 0;
	step = 1u + data[0];
	data++;
	size--;
	run(data, size, size + 1, &at_once);
	run(data, size, step, &in_pieces);
	hold_equal(&at_once, &in_pieces);
	if (at_once.count > 0)
		HOLD(first_kind(data, size, &reason) == FIRST_HTTP || reason);
	if (http_answer_read(data, size, &answer) == HTTP_PASS)
		HOLD(answer.size <= size && answer.code >= 100 && answer.code < 600);
	return 0;
}
