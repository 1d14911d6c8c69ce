// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "relay/http.h"
#include "unit.h"

#define H    "GET / HTTP/1.1\r\n"
#define HOST "Host: a.test\r\n"

/* What one request is: read at once, and at every split. */
struct row {
	const char *what, *text;
	size_t size; /* 0: up to the NUL */
	enum http_fault fault;
	const char *host; /* NULL: none */
};

static size_t row_size(const struct row *r)
{
	return r->size ? r->size : strlen(r->text);
}

static void check_row(const struct row *r, enum http_read got,
		      const struct http_piece *piece)
{
	if (r->fault != HTTP_FAULT_NONE) {
		if (got != HTTP_BAD || piece->fault != r->fault)
			fail_msg("%s: %d, %s", r->what, got,
				 http_fault_text(piece->fault));
		return;
	}
	if (got != HTTP_REQUEST)
		fail_msg("%s: %d, %s", r->what, got, http_fault_text(piece->fault));
	assert_int_equal(piece->request.size, row_size(r));
	if (!r->host)
		assert_int_equal(piece->request.host.kind, WIRE_HOST_BAD);
	else
		assert_string_equal(piece->request.host.text, r->host);
}

/* A prefix of a request is never a request, and never bad in another way. */
static void check_splits(const struct row *r)
{
	const uint8_t *bytes = (const uint8_t *)r->text;

	for (size_t n = 0; n < row_size(r); n++) {
		struct http_stream s = { 0 };
		struct http_piece piece = { 0 };
		enum http_read got = http_next(&s, bytes, n, &piece);

		if (got == HTTP_BAD && r->fault == HTTP_FAULT_NONE)
			fail_msg("%s: bad at %zu", r->what, n);
		if (got == HTTP_REQUEST || got == HTTP_PASS)
			fail_msg("%s: read after %zu of its bytes", r->what, n);
	}
}

static void check_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct http_stream s = { 0 };
		struct http_piece piece = { 0 };
		enum http_read got = http_next(&s, (const uint8_t *)rows[i].text,
					       row_size(&rows[i]), &piece);

		check_row(&rows[i], got, &piece);
		check_splits(&rows[i]);
	}
}

TEST(requests_name_one_host)
{
	static const struct row rows[] = {
		{ "plain", H HOST "\r\n", 0, 0, "a.test" },
		{ "upper case", H "HOST: A.TEST\r\n\r\n", 0, 0, "a.test" },
		{ "port", H "Host: a.test:8080\r\n\r\n", 0, 0, "a.test" },
		{ "trailing dot", H "Host: a.test.\r\n\r\n", 0, 0, "a.test" },
		{ "no space behind the colon", H "Host:a.test\r\n\r\n", 0, 0, "a.test" },
		{ "tabs around the value", H "Host:\ta.test \t\r\n\r\n", 0, 0, "a.test" },
		{ "other headers", H "Accept: */*\r\n" HOST "X-Y: \xc3\xa4\r\n\r\n", 0, 0,
		  "a.test" },
		{ "absolute", "GET http://a.test/x?y HTTP/1.1\r\n" HOST "\r\n", 0, 0,
		  "a.test" },
		{ "absolute with the default port",
		  "GET http://a.test:80/ HTTP/1.1\r\n" HOST "\r\n", 0, 0, "a.test" },
		{ "absolute, case", "GET HTTP://A.test?x HTTP/1.1\r\n" HOST "\r\n", 0, 0,
		  "a.test" },
		{ "absolute, 1.0 without Host", "GET http://a.test/ HTTP/1.0\r\n\r\n", 0,
		  0, "a.test" },
		{ "1.0 with Host", "GET / HTTP/1.0\r\n" HOST "\r\n", 0, 0, "a.test" },
		{ "1.0 without Host", "GET / HTTP/1.0\r\n\r\n", 0, 0, NULL },
		{ "star", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 0, 0, "a.test" },
		{ "rare method", "VERSION-CONTROL / HTTP/1.1\r\n" HOST "\r\n", 0, 0,
		  "a.test" },
		{ "connect", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 0,
		  0, "a.test" },
		{ "connect, Host without port",
		  "CONNECT a.test:443 HTTP/1.1\r\n" HOST "\r\n", 0, 0, "a.test" },
		{ "two slashes are a path", "GET //b.test/ HTTP/1.1\r\n" HOST "\r\n", 0,
		  0, "a.test" },
		{ "a URI in the query", "GET /?http://b.test/ HTTP/1.1\r\n" HOST "\r\n",
		  0, 0, "a.test" },
	};

	check_rows(rows, ARRAY_SIZE(rows));
}

TEST(what_two_readers_could_read_differently_is_bad)
{
	static const struct row rows[] = {
		{ "no Host", H "\r\n", 0, HTTP_NO_HOST, NULL },
		{ "two Hosts", H HOST "Host: b.test\r\n\r\n", 0, HTTP_SEVERAL_HOSTS,
		  NULL },
		{ "the same Host twice", H HOST HOST "\r\n", 0, HTTP_SEVERAL_HOSTS,
		  NULL },
		{ "Hosts in other case", H HOST "hOST: a.test\r\n\r\n", 0,
		  HTTP_SEVERAL_HOSTS, NULL },
		{ "a list of hosts", H "Host: a.test, b.test\r\n\r\n", 0, HTTP_BAD_HOST,
		  NULL },
		{ "empty Host", H "Host:\r\n\r\n", 0, HTTP_BAD_HOST, NULL },
		{ "tab in Host", H "Host: evil\tok\r\n\r\n", 0, HTTP_BAD_HOST, NULL },
		{ "userinfo in Host", H "Host: a.test@b.test\r\n\r\n", 0, HTTP_BAD_HOST,
		  NULL },
		{ "path in Host", H "Host: a.test/b\r\n\r\n", 0, HTTP_BAD_HOST, NULL },
		{ "NUL in Host", H "Host: a.test\0.b\r\n\r\n", 36, HTTP_BAD_LINE, NULL },
		{ "bad port", H "Host: a.test:x\r\n\r\n", 0, HTTP_BAD_HOST, NULL },
		{ "space before the colon", H "Host : a.test\r\n\r\n", 0, HTTP_BAD_LINE,
		  NULL },
		{ "tab before the colon", H "Host\t: a.test\r\n\r\n", 0, HTTP_BAD_LINE,
		  NULL },
		{ "folded", H HOST "X: a\r\n b\r\n\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "folded Host", H "Host:\r\n a.test\r\n\r\n", 0, HTTP_BAD_HOST, NULL },
		{ "space before the first header", H " Host: a.test\r\n\r\n", 0,
		  HTTP_BAD_LINE, NULL },
		{ "no colon", H HOST "X\r\n\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "no name", H HOST ": x\r\n\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "bare LF", "GET / HTTP/1.1\nHost: a.test\n\n", 0, HTTP_BAD_REQUEST_LINE,
		  NULL },
		{ "bare LF in a header", H "X: y\nHost: b.test\r\n" HOST "\r\n", 0,
		  HTTP_BAD_LINE, NULL },
		{ "bare CR", H "X: y\rHost: b.test\r\n" HOST "\r\n", 0, HTTP_BAD_LINE,
		  NULL },
		{ "two CRs", H HOST "\r\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "vertical tab", H "X: \v\r\n" HOST "\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "DEL", H "X: \x7f\r\n" HOST "\r\n", 0, HTTP_BAD_LINE, NULL },
		{ "Host differs from target",
		  "GET http://b.test/ HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_HOST_DIFFERS,
		  NULL },
		{ "port differs from target",
		  "GET http://a.test:81/ HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_HOST_DIFFERS,
		  NULL },
		{ "absolute without Host", "GET http://a.test/ HTTP/1.1\r\n\r\n", 0,
		  HTTP_NO_HOST, NULL },
		{ "connect differs", "CONNECT b.test:443 HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_HOST_DIFFERS, NULL },
		{ "connect without port", "CONNECT a.test HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "connect with a path", "CONNECT /x HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "userinfo", "GET http://a.test@b.test/ HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "backslash", "GET http://a.test\\@b.test/ HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "another scheme", "GET ftp://a.test/ HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "no form", "GET x HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_BAD_TARGET, NULL },
		{ "star for GET", "GET * HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_BAD_TARGET,
		  NULL },
		{ "fragment", "GET /#x HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_BAD_TARGET,
		  NULL },
		{ "tab in the target", "GET /\tx HTTP/1.1\r\n" HOST "\r\n", 0,
		  HTTP_BAD_TARGET, NULL },
		{ "two spaces", "GET  / HTTP/1.1\r\n" HOST "\r\n", 0, HTTP_BAD_VERSION,
		  NULL },
		{ "space at the end", "GET / HTTP/1.1 \r\n" HOST "\r\n", 0,
		  HTTP_BAD_VERSION, NULL },
		{ "0.9", "GET /\r\n", 0, HTTP_BAD_VERSION, NULL },
		{ "2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 0, HTTP_BAD_VERSION, NULL },
		{ "1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", 0, HTTP_BAD_VERSION, NULL },
		{ "lower case", "GET / http/1.1\r\n" HOST "\r\n", 0, HTTP_BAD_VERSION,
		  NULL },
		{ "HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, HTTP_VERSION_2,
		  NULL },
		{ "a line end first", "\r\n" H HOST "\r\n", 0, HTTP_BAD_REQUEST_LINE,
		  NULL },
		{ "both framings",
		  H HOST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "two lengths", H HOST "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
		  0, HTTP_BAD_FRAMING, NULL },
		{ "a list of lengths", H HOST "Content-Length: 1, 1\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "signed length", H HOST "Content-Length: +1\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "negative length", H HOST "Content-Length: -1\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "octal length", H HOST "Content-Length: 010\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "hexadecimal length", H HOST "Content-Length: 0x1\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "no length", H HOST "Content-Length:\r\n\r\n", 0, HTTP_BAD_FRAMING,
		  NULL },
		{ "length over 64 bits",
		  H HOST "Content-Length: 18446744073709551617\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "two encodings",
		  H HOST
		  "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		  0, HTTP_BAD_FRAMING, NULL },
		{ "another encoding", H HOST "Transfer-Encoding: gzip, chunked\r\n\r\n",
		  0, HTTP_BAD_FRAMING, NULL },
		{ "encoding disguised", H HOST "Transfer-Encoding: xchunked\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "encoding in 1.0",
		  "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "TLS in place of a body",
		  H HOST "Upgrade: TLS/1.0\r\nContent-Length: 5\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "TLS in place of chunks",
		  H HOST "Transfer-Encoding: chunked\r\nUpgrade: x, tls\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
		{ "connect with a body",
		  "CONNECT a.test:443 HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n", 0,
		  HTTP_BAD_FRAMING, NULL },
	};

	check_rows(rows, ARRAY_SIZE(rows));
}

TEST(upgrades_are_seen)
{
	static const struct {
		const char *value;
		bool upgrade, h2c;
	} rows[] = {
		{ "X: y", false, false },
		{ "Upgrade: websocket", true, false },
		{ "upgrade: H2C", true, true },
		{ "Upgrade: websocket, h2c", true, true },
		{ "Upgrade: h2c ,foo\r\nUpgrade: bar", true, true },
		{ "Upgrade: h2c-16", true, true },
		{ "Upgrade: foo, H2C-14", true, true },
		{ "Upgrade: h2", true, true },
		{ "Upgrade: HTTP/2.0", true, true },
		{ "Upgrade: h", true, false },
		{ "Upgrade: TLS/1.2, HTTP/1.1", true, false },
		{ "Upgrade: TLS/1.2\r\nContent-Length: 0", true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_stream s = { 0 };
		struct http_piece piece = { 0 };
		char text[200];
		int n = snprintf(text, sizeof(text), H HOST "%s\r\n\r\n", rows[i].value);

		assert_int_equal(http_next(&s, (uint8_t *)text, (size_t)n, &piece),
				 HTTP_REQUEST);
		assert_int_equal(piece.request.upgrade, rows[i].upgrade);
		assert_int_equal(piece.request.h2c, rows[i].h2c);
	}
}

/* Behind a head that offers HTTP/2, and passes without it: who sent "Expect" waits. */
TEST(a_body_passes_when_it_is_seen_to_be_no_http2)
{
	static const struct {
		unsigned int length;
		const char *body;
		enum http_read read;
	} rows[] = {
		{ 30, "", HTTP_NEED_MORE },
		{ 30, "PRI * HTTP/2.0\r\n", HTTP_NEED_MORE },
		{ 30, HTTP2_PREFACE, HTTP_BAD },
		{ 24, HTTP2_PREFACE, HTTP_BAD },
		{ 30, "x", HTTP_PASS },
		{ 30, "PRI * HTTP/2.0\n", HTTP_PASS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_stream s = { 0 };
		struct http_piece piece = { 0 };
		char text[200];
		size_t n = (size_t)snprintf(text, sizeof(text),
					    H HOST
					    "Upgrade: h2c\r\nContent-Length: %u\r\n\r\n",
					    rows[i].length);
		enum http_read r = http_next(&s, (uint8_t *)text, n, &piece);

		assert_int_equal(r, HTTP_REQUEST);
		assert_int_equal(piece.pass, n);
		r = http_next(&s, (const uint8_t *)rows[i].body, strlen(rows[i].body),
			      &piece);
		if (r != rows[i].read)
			fail_msg("%u, '%s': %d", rows[i].length, rows[i].body, r);
		if (r == HTTP_PASS)
			assert_int_equal(piece.pass, rows[i].length);
		if (r == HTTP_BAD)
			assert_int_equal(piece.fault, HTTP_VERSION_2);
	}
}

/* The preface doesn't fit in there. */
TEST(a_short_body_passes_with_its_head)
{
	static const char text[] = H HOST "Upgrade: h2c\r\nContent-Length: 23\r\n\r\n";
	struct http_stream s = { 0 };
	struct http_piece piece = { 0 };

	assert_int_equal(http_next(&s, (const uint8_t *)text, strlen(text), &piece),
			 HTTP_REQUEST);
	assert_int_equal(piece.pass, strlen(text) + 23);
	assert_int_equal(s.phase, HTTP_PHASE_HEAD);
}

/* Follow a stream that arrives in pieces of @step bytes. Return: the hosts, joined;
 * "!" for bad, "?" when it waits at the end. */
static const char *follow(const char *text, size_t size, size_t step)
{
	static char out[512];
	struct http_stream s = { 0 };
	uint64_t passed = 0;
	size_t there = 0, used = 0;

	out[0] = '\0';
	while (passed < size) {
		struct http_piece piece = { 0 };
		size_t left = there > passed ? there - (size_t)passed : 0;
		enum http_read r =
			http_next(&s, (const uint8_t *)text + passed, left, &piece);

		if (r == HTTP_BAD)
			return strcat(out, "!");
		if (r == HTTP_NEED_MORE) {
			if (there == size)
				return strcat(out, "?");
			there = MIN(there + step, size);
			continue;
		}
		if (r == HTTP_REQUEST)
			used += (size_t)snprintf(out + used, sizeof(out) - used, "%s ",
						 piece.request.host.text);
		passed += piece.pass;
	}
	return out;
}

TEST(every_request_of_a_connection_is_seen)
{
	static const struct {
		const char *what, *text, *hosts;
	} rows[] = {
		{ "keep-alive", H HOST "\r\n" H "Host: b.test\r\n\r\n",
		  "a.test b.test " },
		{ "a body of a length",
		  "POST / HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n"
		  "GET / HT\n" H "Host: b.test\r\n\r\n",
		  "a.test b.test " },
		{ "an empty body",
		  "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n" H
		  "Host: b.test\r\n\r\n",
		  "a.test b.test " },
		{ "chunks",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"
		  "3\r\nGET\r\nA\r\n0123456789\r\n0\r\n\r\n" H "Host: b.test\r\n\r\n",
		  "a.test b.test " },
		{ "a trailer",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		  "0\r\nX-Sum: 1\r\n\r\n" H "Host: b.test\r\n\r\n",
		  "a.test b.test " },
		{ "a trailer that is a header",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		  "0\r\nHost: c.test\r\n\r\n",
		  "a.test !" },
		{ "a chunk extension",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		  "3;a=b\r\nGET\r\n0\r\n\r\n",
		  "a.test !" },
		{ "a chunk that is longer",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		  "2\r\nGET\r\n0\r\n\r\n",
		  "a.test !" },
		{ "a huge chunk",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
		  "fffffffffffffffff\r\n",
		  "a.test !" },
		{ "a signed chunk",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
		  "a.test !" },
		{ "a chunk without digits",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n\r\n",
		  "a.test !" },
		{ "a chunk with LF",
		  "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n3\nGET",
		  "a.test !" },
		{ "a line end between requests", H HOST "\r\n\r\n" H HOST "\r\n",
		  "a.test !" },
		{ "cut in a head", H HOST "\r\n" H "Hos", "a.test ?" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t size = strlen(rows[i].text);

		for (size_t step = 1; step <= size; step++) {
			const char *hosts = follow(rows[i].text, size, step);

			if (strcmp(hosts, rows[i].hosts) != 0)
				fail_msg("%s, in pieces of %zu: %s", rows[i].what, step,
					 hosts);
		}
	}
}

TEST(a_head_has_an_end_within_16_kib)
{
	static char text[HTTP_HEAD_MAX + 1];
	struct http_stream s = { 0 };
	struct http_piece piece = { 0 };
	int n = snprintf(text, sizeof(text), H HOST "X: ");

	memset(text + n, 'y', sizeof(text) - (size_t)n);
	assert_int_equal(http_next(&s, (uint8_t *)text, HTTP_HEAD_MAX - 1, &piece),
			 HTTP_NEED_MORE);
	assert_int_equal(http_next(&s, (uint8_t *)text, HTTP_HEAD_MAX, &piece), HTTP_BAD);
	assert_int_equal(piece.fault, HTTP_TOO_LONG);
	memcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n", 4);
	assert_int_equal(http_next(&s, (uint8_t *)text, HTTP_HEAD_MAX, &piece),
			 HTTP_REQUEST);
}

TEST(status_codes_are_read_or_refused)
{
	static const struct {
		const char *text;
		int code; /* 0: more is needed, -1: bad */
		bool body;
	} rows[] = {
		{ "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", 101 },
		{ "HTTP/1.0 200\r\n\r\n", 200 },
		{ "HTTP/1.1 200 \r\n\r\n", 200 },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: 5\r\n\r\n", 200 },
		{ "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length:5\r\n\r\n", 200, true },
		{ "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n", 200, true },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\nX\r\n\r\n", 200, true },
		{ "HTTP/1.1 200 OK\r\nX: y\r\n", 0 },
		{ "HTTP/1.1 20", 0 },
		{ "HTTP/1.1 099 x\r\n\r\n", -1 },
		{ "HTTP/1.1 1010 x\r\n\r\n", -1 },
		{ "HTTP/1.1 600 x\r\n\r\n", -1 },
		{ "HTTP/2 200 x\r\n\r\n", -1 },
		{ "HTTP/1.1  101 x\r\n\r\n", -1 },
		{ "HTTP/1.1 200 OK\n\n", -1 },
		{ "SSH-2.0-x\r\n", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct http_answer st = { 0 };
		size_t size = strlen(rows[i].text);
		enum http_read r =
			http_answer_read((const uint8_t *)rows[i].text, size, &st);
		enum http_read want = rows[i].code < 0	  ? HTTP_BAD
				      : rows[i].code == 0 ? HTTP_NEED_MORE
							  : HTTP_PASS;

		if (r != want)
			fail_msg("%s: %d", rows[i].text, r);
		if (r == HTTP_PASS) {
			assert_int_equal(st.code, rows[i].code);
			assert_int_equal(st.size, size);
			assert_int_equal(st.body, rows[i].body);
		}
	}
}
