// SPDX-License-Identifier: Apache-2.0
/* relay/http - which host each request of an HTTP/1.x connection names.
 *
 * HOW IT WORKS
 * The caller keeps the bytes (they stay in the socket) and a struct http_stream, which
 * is a few bytes: what comes next, and how much of a body is left. http_next() looks at
 * the unread bytes and says how many of them may pass: a request's head, when the caller
 * has judged its host, or a piece of a body. So every head is seen, at any split, and
 * nothing is copied or allocated.
 *
 * Whatever two readers could understand differently is bad, rather than read in one
 * way: a line end that isn't CR LF, folded lines, white space before a colon, two
 * Hosts, a Host that differs from the target, two kinds of framing, chunk extensions …
 * The server behind the relay may be any. The API of a run, and what asks programs of
 * this machine, read heads by the same rules. */
#pragma once

#include "relay/host.h"

enum {
	HTTP_HEAD_MAX = 16 * 1024, /* of a request's or a response's head; a longer one
				    * is bad */
	HTTP_CHUNK_DIGITS_MAX = 15,
	HTTP_CHUNK_LINE_MAX = HTTP_CHUNK_DIGITS_MAX + 2,
};

enum http_fault {
	HTTP_FAULT_NONE = 0,
	HTTP_BAD_REQUEST_LINE,
	HTTP_BAD_TARGET,
	HTTP_BAD_VERSION, /* HTTP/0.9 */
	HTTP_VERSION_2,	  /* with prior knowledge */
	HTTP_BAD_LINE,	  /* line ends, folding, control bytes, white space */
	HTTP_BAD_HOST,
	HTTP_SEVERAL_HOSTS,
	HTTP_NO_HOST, /* HTTP/1.1 without it */
	HTTP_HOST_DIFFERS,
	HTTP_BAD_FRAMING, /* Content-Length, Transfer-Encoding, chunks */
	HTTP_TOO_LONG,
	HTTP_FAULT_COUNT
};
const char *http_fault_text(enum http_fault f);

/* How a client begins that knows that the server speaks HTTP/2. */
#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum http_body { HTTP_BODY_NONE = 0, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED };

struct http_request {
	struct text method, target, headers; /* where they stand; @headers: whole lines */
	struct wire_host host; /* kind WIRE_HOST_BAD: HTTP/1.0 that names none */
	uint16_t port;	       /* beside the host, 0 when there is none */
	uint8_t body;	       /* enum http_body */
	bool connect, upgrade;
	bool h2c, tls;	 /* what it offers to switch to */
	uint64_t length; /* of HTTP_BODY_LENGTH */
	size_t size;	 /* of the head, the empty line included */
};

enum http_phase {
	HTTP_PHASE_HEAD = 0, /* the zero stream: a request begins here */
	HTTP_PHASE_OFFERED,  /* a body of known length, behind an offer of HTTP/2 */
	HTTP_PHASE_CHUNK,
	HTTP_PHASE_CHUNK_END,
	HTTP_PHASE_TRAILER,
};

struct http_stream {
	uint8_t phase;	 /* enum http_phase, behind what may pass already */
	uint64_t length; /* of the body, in HTTP_PHASE_OFFERED */
};

enum http_read {
	HTTP_NEED_MORE = 0,
	HTTP_REQUEST, /* a head, to be judged */
	HTTP_PASS,    /* a piece of a body */
	HTTP_BAD,
};

struct http_piece {
	struct http_request request; /* of HTTP_REQUEST */
	uint64_t pass;		     /* bytes that may pass; they needn't be there yet */
	uint8_t fault;		     /* enum http_fault, of HTTP_BAD */
};

/* @bytes are those behind all that passed. The stream moves on with what is returned,
 * so the next call has to come after @ret->pass bytes. */
enum http_read http_next(struct http_stream *s, const uint8_t *bytes, size_t size,
			 struct http_piece *ret);

struct http_answer {
	uint16_t code;
	bool body;   /* the head says that one follows */
	size_t size; /* of the head */
};
/* A response's head. HTTP_REQUEST never comes back: HTTP_PASS is a whole head. */
enum http_read http_answer_read(const uint8_t *bytes, size_t size,
				struct http_answer *ret);
