// SPDX-License-Identifier: Apache-2.0
#include "relay/http.h"

#include <string.h>

/* A head while it is read. */
struct head {
	struct http_request request;
	struct wire_host target; /* from an absolute or authority form */
	uint16_t target_port;
	uint16_t default_port; /* of the target's scheme; 0: none */
	bool version_1_0;
	uint8_t hosts, lengths, encodings; /* headers seen, at most 2 */
};

/* --- lines --- */

enum line { LINE_NEED_MORE = 0, LINE_OK, LINE_BAD };

/* Take the line at the start of @t, without its CR LF. Only CR LF ends one; no other
 * control byte but a tab stands in it. */
static enum line read_line(struct text *t, struct text *ret)
{
	for (size_t i = 0; i < t->len; i++) {
		unsigned char c = (unsigned char)t->ptr[i];

		if (c == '\r') {
			if (i + 1 == t->len)
				return LINE_NEED_MORE;
			if (t->ptr[i + 1] != '\n')
				return LINE_BAD;
			*ret = (struct text){ t->ptr, i };
			t->ptr += i + 2;
			t->len -= i + 2;
			return LINE_OK;
		}
		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return LINE_BAD;
	}
	return LINE_NEED_MORE;
}

/* Cut the part before the first @separator off @t. False: there is none. */
static bool cut(struct text *t, char separator, struct text *ret)
{
	const char *p = t->len > 0 ? memchr(t->ptr, separator, t->len) : NULL;

	if (!p)
		return false;
	*ret = (struct text){ t->ptr, (size_t)(p - t->ptr) };
	t->len -= ret->len + 1;
	t->ptr = p + 1;
	return true;
}

/* --- the request line --- */

/* "http://host:port/…": only the host counts here. */
static enum http_fault read_absolute(struct text t, struct head *h)
{
	struct text scheme, authority;
	size_t n = 0;

	if (!cut(&t, ':', &scheme) || t.len < 2 || memcmp(t.ptr, "//", 2) != 0)
		return HTTP_BAD_TARGET;
	if (text_equal_nocase(scheme, "http"))
		h->default_port = 80;
	else if (text_equal_nocase(scheme, "https"))
		h->default_port = 443;
	else
		return HTTP_BAD_TARGET;
	authority = (struct text){ t.ptr + 2, t.len - 2 };
	while (n < authority.len && authority.ptr[n] != '/' && authority.ptr[n] != '?')
		n++;
	authority.len = n;
	if (wire_host_port_read(authority, &h->target, &h->target_port) == WIRE_HOST_BAD)
		return HTTP_BAD_TARGET;
	return HTTP_FAULT_NONE;
}

static enum http_fault read_request_line(struct text line, struct head *h)
{
	struct text method, target;

	if (text_equal(line, "PRI * HTTP/2.0"))
		return HTTP_VERSION_2;
	if (!cut(&line, ' ', &method) || !text_is_token(method))
		return HTTP_BAD_REQUEST_LINE;
	if (!cut(&line, ' ', &target))
		return HTTP_BAD_VERSION;
	h->version_1_0 = text_equal(line, "HTTP/1.0");
	if (!h->version_1_0 && !text_equal(line, "HTTP/1.1"))
		return HTTP_BAD_VERSION;
	h->request.method = method;
	h->request.target = target;
	for (size_t i = 0; i < target.len; i++) {
		/* Visible ASCII. */
		if (target.ptr[i] <= 0x20 || target.ptr[i] >= 0x7f ||
		    target.ptr[i] == '#')
			return HTTP_BAD_TARGET;
	}
	if (target.len == 0)
		return HTTP_BAD_REQUEST_LINE;
	h->request.connect = text_equal(method, "CONNECT");
	if (h->request.connect) {
		if (wire_host_port_read(target, &h->target, &h->target_port) ==
			    WIRE_HOST_BAD ||
		    h->target_port == 0)
			return HTTP_BAD_TARGET;
		return HTTP_FAULT_NONE;
	}
	if (target.ptr[0] == '/')
		return HTTP_FAULT_NONE;
	if (text_equal(target, "*"))
		return text_equal(method, "OPTIONS") ? HTTP_FAULT_NONE : HTTP_BAD_TARGET;
	return read_absolute(target, h);
}

/* --- headers --- */

static enum http_fault read_content_length(struct head *h, struct text value)
{
	uint64_t length = 0;

	h->request.body = HTTP_BODY_LENGTH;
	if (h->lengths++ > 0 || value.len == 0 || (value.len > 1 && value.ptr[0] == '0'))
		return HTTP_BAD_FRAMING;
	for (size_t i = 0; i < value.len; i++) {
		if (!text_is_digit(value.ptr[i]) ||
		    __builtin_mul_overflow(length, 10, &length) ||
		    __builtin_add_overflow(length, (uint64_t)(value.ptr[i] - '0'),
					   &length))
			return HTTP_BAD_FRAMING;
	}
	h->request.length = length;
	return length <= INT64_MAX ? HTTP_FAULT_NONE : HTTP_BAD_FRAMING;
}

static bool begins_with(struct text t, const char *start)
{
	t.len = MIN(t.len, strlen(start));
	return text_equal_nocase(t, start);
}

enum header { HEADER_HOST, HEADER_LENGTH, HEADER_ENCODING, HEADER_UPGRADE, HEADER_OTHER };

/* @h NULL: a trailer, in which none of those that are read may stand. */
static enum http_fault read_header(struct text line, struct head *h)
{
	static const char *const names[HEADER_OTHER] = {
		[HEADER_HOST] = "host",
		[HEADER_LENGTH] = "content-length",
		[HEADER_ENCODING] = "transfer-encoding",
		[HEADER_UPGRADE] = "upgrade",
	};
	enum header header = HEADER_HOST;
	struct text name, value, part;

	if (!cut(&line, ':', &name) || !text_is_token(name))
		return HTTP_BAD_LINE;
	while (header < HEADER_OTHER && !text_equal_nocase(name, names[header]))
		header++;
	if (header == HEADER_OTHER)
		return HTTP_FAULT_NONE;
	if (!h)
		return HTTP_BAD_LINE;
	value = text_trim(line);
	switch (header) {
	case HEADER_HOST:
		if (h->hosts++ > 0)
			return HTTP_SEVERAL_HOSTS;
		return wire_host_port_read(value, &h->request.host, &h->request.port) ==
				       WIRE_HOST_BAD
			       ? HTTP_BAD_HOST
			       : HTTP_FAULT_NONE;
	case HEADER_LENGTH:
		return read_content_length(h, value);
	case HEADER_ENCODING:
		h->request.body = HTTP_BODY_CHUNKED;
		return h->encodings++ > 0 || h->version_1_0 ||
				       !text_equal_nocase(value, "chunked")
			       ? HTTP_BAD_FRAMING
			       : HTTP_FAULT_NONE;
	case HEADER_UPGRADE:
		/* Protocols are told by how their names begin: TLS/1.0, TLS/1.2, …; and
		 * HTTP/2 is h2c, but servers still take the names of its drafts (h2c-14,
		 * h2c-16), and some h2. */
		h->request.upgrade = true;
		while (text_split(&value, ',', &part)) {
			part = text_trim(part);
			h->request.h2c = h->request.h2c || begins_with(part, "h2") ||
					 begins_with(part, "http/2");
			h->request.tls = h->request.tls || begins_with(part, "tls");
		}
		return HTTP_FAULT_NONE;
	default:
		return HTTP_FAULT_NONE;
	}
}

/* --- a head --- */

/* What the headers say together, and with the target. */
static enum http_fault settle(struct head *h)
{
	struct http_request *r = &h->request;
	uint16_t target_port = h->target_port ? h->target_port : h->default_port;
	/* CONNECT: a Host without a port can only mean the target's. */
	uint16_t host_port = r->connect ? h->target_port : h->default_port;

	if (r->port)
		host_port = r->port;
	if ((h->lengths > 0 && h->encodings > 0) ||
	    (r->connect && r->body != HTTP_BODY_NONE) || (r->connect && r->upgrade))
		return HTTP_BAD_FRAMING;
	/* A server that goes over to TLS at once would read the body as a ClientHello. */
	if (r->tls && (r->body == HTTP_BODY_CHUNKED || r->length > 0))
		return HTTP_BAD_FRAMING;
	if (h->hosts == 0 && !h->version_1_0)
		return HTTP_NO_HOST;
	if (h->target.kind == WIRE_HOST_BAD)
		return HTTP_FAULT_NONE;
	if (h->hosts > 0 && !wire_host_equal(&h->target, &r->host))
		return HTTP_HOST_DIFFERS;
	if (h->hosts > 0 && target_port != host_port)
		return HTTP_HOST_DIFFERS;
	r->host = h->target;
	r->port = h->target_port;
	return HTTP_FAULT_NONE;
}

static enum http_read bad_piece(struct http_piece *ret, enum http_fault fault)
{
	ret->fault = (uint8_t)fault;
	return HTTP_BAD;
}

static enum http_read need_more(const struct text *rest, const uint8_t *bytes,
				struct http_piece *ret)
{
	size_t seen = (size_t)((const uint8_t *)rest->ptr - bytes) + rest->len;

	return seen >= HTTP_HEAD_MAX ? bad_piece(ret, HTTP_TOO_LONG) : HTTP_NEED_MORE;
}

enum { PREFACE_SIZE = sizeof(HTTP2_PREFACE) - 1 };

static enum http_read read_head(struct http_stream *s, const uint8_t *bytes, size_t size,
				struct http_piece *ret)
{
	struct text rest = { (const char *)bytes, MIN(size, (size_t)HTTP_HEAD_MAX) };
	struct text line;
	struct head h = { 0 };
	bool first = true;
	enum http_fault fault;
	enum line l;

	while ((l = read_line(&rest, &line)) == LINE_OK) {
		if (!first && line.len == 0) {
			fault = settle(&h);
			if (fault != HTTP_FAULT_NONE)
				return bad_piece(ret, fault);
			h.request.size = (size_t)((const uint8_t *)rest.ptr - bytes);
			h.request.headers.len =
				(size_t)(line.ptr - h.request.headers.ptr);
			ret->request = h.request;
			ret->pass = h.request.size;
			if (h.request.body == HTTP_BODY_CHUNKED) {
				s->phase = HTTP_PHASE_CHUNK;
			} else if (h.request.h2c && h.request.length >= PREFACE_SIZE) {
				s->phase = HTTP_PHASE_OFFERED;
				s->length = h.request.length;
			} else {
				ret->pass += h.request.length;
			}
			return HTTP_REQUEST;
		}
		if (first)
			h.request.headers.ptr = rest.ptr;
		fault = first ? read_request_line(line, &h) : read_header(line, &h);
		if (fault != HTTP_FAULT_NONE)
			return bad_piece(ret, fault);
		first = false;
	}
	if (l == LINE_BAD)
		return bad_piece(ret, first ? HTTP_BAD_REQUEST_LINE : HTTP_BAD_LINE);
	return need_more(&rest, bytes, ret);
}

/* --- bodies --- */

/* Its line and its data. */
static enum http_read read_chunk(struct http_stream *s, struct text rest,
				 struct http_piece *ret)
{
	struct text line;
	uint64_t size = 0;

	rest.len = MIN(rest.len, (size_t)HTTP_CHUNK_LINE_MAX);
	switch (read_line(&rest, &line)) {
	case LINE_OK:
		break;
	case LINE_NEED_MORE: /* nothing was taken */
		return rest.len == HTTP_CHUNK_LINE_MAX ? bad_piece(ret, HTTP_BAD_FRAMING)
						       : HTTP_NEED_MORE;
	default:
		return bad_piece(ret, HTTP_BAD_FRAMING);
	}
	if (line.len == 0 || line.len > HTTP_CHUNK_DIGITS_MAX)
		return bad_piece(ret, HTTP_BAD_FRAMING);
	for (size_t i = 0; i < line.len; i++) {
		int digit = text_hex_value(line.ptr[i]);

		if (digit < 0)
			return bad_piece(ret, HTTP_BAD_FRAMING);
		size = size << 4 | (uint64_t)digit;
	}
	s->phase = size > 0 ? HTTP_PHASE_CHUNK_END : HTTP_PHASE_TRAILER;
	ret->pass = line.len + 2 + size;
	return HTTP_PASS;
}

/* All of it at once, so that none passes before it was seen to be sound. */
static enum http_read read_trailer(struct http_stream *s, const uint8_t *bytes,
				   size_t size, struct http_piece *ret)
{
	struct text rest = { (const char *)bytes, MIN(size, (size_t)HTTP_HEAD_MAX) };
	struct text line;
	enum line l;

	while ((l = read_line(&rest, &line)) == LINE_OK) {
		if (line.len == 0) {
			s->phase = HTTP_PHASE_HEAD;
			ret->pass = (uint64_t)((const uint8_t *)rest.ptr - bytes);
			return HTTP_PASS;
		}
		if (read_header(line, NULL) != HTTP_FAULT_NONE)
			return bad_piece(ret, HTTP_BAD_LINE);
	}
	return l == LINE_BAD ? bad_piece(ret, HTTP_BAD_LINE)
			     : need_more(&rest, bytes, ret);
}

enum http_read http_next(struct http_stream *s, const uint8_t *bytes, size_t size,
			 struct http_piece *ret)
{
	if (size == 0)
		return HTTP_NEED_MORE;
	switch (s->phase) {
	case HTTP_PHASE_HEAD:
		return read_head(s, bytes, size, ret);
	case HTTP_PHASE_OFFERED:
		/* A server that goes over to HTTP/2 at once, without the body of the
		 * request that offered it, as Go's did for years, goes on only if the
		 * body begins as HTTP/2 does. The head has passed: a client may send no
		 * body before the server has said "100 Continue". */
		if (memcmp(bytes, HTTP2_PREFACE, MIN(size, (size_t)PREFACE_SIZE)) == 0)
			return size < PREFACE_SIZE ? HTTP_NEED_MORE
						   : bad_piece(ret, HTTP_VERSION_2);
		s->phase = HTTP_PHASE_HEAD;
		ret->pass = s->length;
		return HTTP_PASS;
	case HTTP_PHASE_CHUNK:
		return read_chunk(s, (struct text){ (const char *)bytes, size }, ret);
	case HTTP_PHASE_CHUNK_END:
		if (memcmp(bytes, "\r\n", MIN(size, (size_t)2)) != 0)
			return bad_piece(ret, HTTP_BAD_FRAMING);
		if (size < 2)
			return HTTP_NEED_MORE;
		s->phase = HTTP_PHASE_CHUNK;
		ret->pass = 2;
		return HTTP_PASS;
	case HTTP_PHASE_TRAILER:
		return read_trailer(s, bytes, size, ret);
	default:
		return bad_piece(ret, HTTP_BAD_FRAMING);
	}
}

const char *http_fault_text(enum http_fault f)
{
	static const char *const texts[HTTP_FAULT_COUNT] = {
		[HTTP_FAULT_NONE] = "none",
		[HTTP_BAD_REQUEST_LINE] = "a malformed HTTP request line",
		[HTTP_BAD_TARGET] = "a malformed HTTP request target",
		[HTTP_BAD_VERSION] = "HTTP of another version than 1.0 and 1.1",
		[HTTP_VERSION_2] = ("HTTP/2 without TLS (plaintext gRPC) is not read: "
				    "allow the address and port, or use verify: dns"),
		[HTTP_BAD_LINE] = "a malformed HTTP header",
		[HTTP_BAD_HOST] = "HTTP with a malformed Host",
		[HTTP_SEVERAL_HOSTS] = "HTTP with several Hosts",
		[HTTP_NO_HOST] = "HTTP/1.1 without a Host",
		[HTTP_HOST_DIFFERS] = "HTTP whose Host and target differ",
		[HTTP_BAD_FRAMING] = "HTTP with doubtful framing",
		[HTTP_TOO_LONG] = "an HTTP head over 16 KiB",
	};

	return f < HTTP_FAULT_COUNT ? texts[f] : "none";
}

/* --- responses --- */

enum http_read http_answer_read(const uint8_t *bytes, size_t size,
				struct http_answer *ret)
{
	struct text rest = { (const char *)bytes, MIN(size, (size_t)HTTP_HEAD_MAX) };
	struct http_answer answer = { 0 };
	struct text line, name, version, code;
	uint32_t value;
	enum line l;

	while ((l = read_line(&rest, &line)) == LINE_OK) {
		if (answer.code == 0) {
			/* "HTTP/1.1 101 Switching Protocols" */
			if (!cut(&line, ' ', &version) ||
			    (!text_equal(version, "HTTP/1.1") &&
			     !text_equal(version, "HTTP/1.0")))
				return HTTP_BAD;
			if (!cut(&line, ' ', &code))
				code = line;
			if (code.len != 3 || !text_to_u32(code, 599, &value) ||
			    value < 100)
				return HTTP_BAD;
			answer.code = (uint16_t)value;
		} else if (line.len == 0) {
			answer.size = (size_t)((const uint8_t *)rest.ptr - bytes);
			*ret = answer;
			return HTTP_PASS;
		} else if (cut(&line, ':', &name)) {
			name = text_trim(name);
			answer.body = answer.body ||
				      text_equal_nocase(name, "transfer-encoding") ||
				      (text_equal_nocase(name, "content-length") &&
				       !text_equal(text_trim(line), "0"));
		}
	}
	return l == LINE_BAD || size >= HTTP_HEAD_MAX ? HTTP_BAD : HTTP_NEED_MORE;
}
