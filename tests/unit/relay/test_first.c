// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/macros.h"
#include "relay/first.h"
#include "unit.h"

/* Each row is read whole; its prefixes may only ask for more, or say the same. */
TEST(first_bytes_tell_what_a_connection_is)
{
	static const struct {
		const char *text;
		size_t size; /* 0: up to the NUL */
		enum first_kind kind;
	} rows[] = {
		{ "", 0, FIRST_NEED_MORE },
		{ "GET / HTTP/1.1\r\n", 0, FIRST_HTTP },
		{ "GET ", 0, FIRST_HTTP },
		{ "GET /\r\n", 0, FIRST_HTTP },
		{ "PRI * HTTP/2.0\r\n", 0, FIRST_HTTP },
		{ "BREW / HTTP/1.1\r\n", 0, FIRST_HTTP },
		{ "M-SEARCH * HTTP/1.1\r\n", 0, FIRST_HTTP },
		{ "G", 0, FIRST_NEED_MORE },
		{ "PROPFIN", 0, FIRST_WORD },
		{ "BREW /", 0, FIRST_WORD },
		{ "LOGIN me", 0, FIRST_WORD },
		{ "\nLOGIN me", 0, FIRST_NEED_MORE },
		{ "PROX", 0, FIRST_NEED_MORE },
		{ "PR", 0, FIRST_NEED_MORE },
		{ "get / http/1.1\r\n", 0, FIRST_HTTP },
		{ "get /x", 0, FIRST_NEED_MORE },
		{ "GET\t/ HTTP/1.1\r\n", 0, FIRST_HTTP },
		{ "\x16\x03\x01\x02\x00\x01", 6, FIRST_TLS },
		{ "\x16\x03", 2, FIRST_TLS },
		{ "\x16", 1, FIRST_NEED_MORE },
		{ "\x15\x03\x01\x00\x02\x01\x00", 7, FIRST_TLS },
		{ "\x80\x2e\x01\x03\x01", 5, FIRST_TLS },
		{ "\x80\x2e\x01", 3, FIRST_NEED_MORE },
		{ "\x80\x2e\x05", 3, FIRST_NEITHER },
		/* made to look like neither */
		{ "\r\nGET / HTTP/1.1\r\n", 0, FIRST_BAD },
		{ "\n\n\nGET ", 0, FIRST_BAD },
		{ " GET / HTTP/1.1\r\n", 0, FIRST_BAD },
		{ "\r\n", 0, FIRST_NEED_MORE },
		{ "\r\n\x16\x03\x01", 5, FIRST_BAD },
		{ "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", 0, FIRST_BAD },
		{ "PROXY ", 0, FIRST_BAD },
		{ "PROXY", 0, FIRST_NEED_MORE },
		{ "\r\n\r\n\0\r\nQUIT\n\x21\x11", 14, FIRST_BAD },
		{ "\r\n\r\n\0", 5, FIRST_BAD },
		/* protocols of their own */
		{ "SSH-2.0-OpenSSH_9.2\r\n", 0, FIRST_NEITHER },
		{ "EHLO host.test\r\n", 0, FIRST_NEITHER },
		{ "USER x\r\n", 0, FIRST_NEITHER },
		{ "QUIT\r\n", 0, FIRST_NEITHER },
		{ "PING\n", 0, FIRST_NEITHER },
		{ "*1\r\n$4\r\nPING\r\n", 0, FIRST_NEITHER },
		{ "get key\r\n", 0, FIRST_NEITHER },
		{ "a1 LOGIN x y\r\n", 0, FIRST_NEITHER },
		{ "hi", 0, FIRST_NEITHER },
		{ "\x00\x00\x00\x08\x04\xd2\x16\x2f", 8, FIRST_NEITHER },
		{ "\x00", 1, FIRST_NEITHER },
		{ "\x16\x00\x00\x00", 4, FIRST_NEED_MORE },
		{ "\x16\x00\x00\x00{}", 6, FIRST_NEITHER },
		{ "\x16\x04\x01\x02\x00\x01", 6, FIRST_TLS },
		{ "\xff\xff", 2, FIRST_NEED_MORE },
		{ "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHI", 0, FIRST_NEITHER },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t size = rows[i].size ? rows[i].size : strlen(rows[i].text);

		for (size_t n = 0; n <= size; n++) {
			const char *reason = NULL;
			enum first_kind kind =
				first_kind((const uint8_t *)rows[i].text, n, &reason);

			if (n == size ? kind != rows[i].kind
				      : kind != rows[i].kind && kind != FIRST_NEED_MORE &&
						kind != FIRST_WORD)
				fail_msg("row %zu '%s', %zu bytes: %d", i, rows[i].text,
					 n, kind);
			if (kind == FIRST_BAD)
				assert_non_null(reason);
		}
	}
}

TEST(a_whole_line_of_http_is_http_whatever_its_method)
{
	static const char *const lines[] = { "Foo / HTTP/1.1\r\n", "x\t/\tHttp/1.1\n",
					     "0 / HTTP/1.1\r\n", "a http/9" };
	const char *reason = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
		assert_int_equal(
			first_kind((const uint8_t *)lines[i], strlen(lines[i]), &reason),
			FIRST_HTTP);
}

TEST(a_line_that_never_ends_is_refused)
{
	static uint8_t line[FIRST_LINE_MAX];
	const char *reason = NULL;

	memset(line, 'x', sizeof(line));
	memcpy(line, "BREW ", 5);
	assert_int_equal(first_kind(line, sizeof(line) - 1, &reason), FIRST_WORD);
	assert_int_equal(first_kind(line, sizeof(line), &reason), FIRST_BAD);
	memset(line, '\n', sizeof(line));
	assert_int_equal(first_kind(line, sizeof(line) - 1, &reason), FIRST_NEED_MORE);
	assert_int_equal(first_kind(line, sizeof(line), &reason), FIRST_BAD);
}
