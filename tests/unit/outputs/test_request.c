// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "outputs/request.h"

TEST(answers)
{
	static const struct {
		const char *what, *bytes;
		int r;
		unsigned int status;
		const char *body;
	} cases[] = {
		{ "1.1", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", 0, 200, "body" },
		{ "1.0", "HTTP/1.0 404 Not Found\r\n\r\n", 0, 404, "" },
		{ "an empty line in the body", "HTTP/1.0 200 OK\r\n\r\na\r\n\r\nb", 0,
		  200, "a\r\n\r\nb" },
		{ "no reason", "HTTP/1.1 204\r\n\r\n", 0, 204, "" },
		{ "the head doesn't end", "HTTP/1.1 200 OK\r\nA: b\r\n", -EBADMSG },
		{ "another protocol", "SSH-2.0-x 200\r\n\r\n", -EBADMSG },
		{ "no number", "HTTP/1.1 2x0 OK\r\n\r\n", -EBADMSG },
		{ "too large a number", "HTTP/1.1 999 OK\r\n\r\n", -EBADMSG },
		{ "cut in the number", "HTTP/1.1 2\r\n\r\n", -EBADMSG },
		{ "another line end", "HTTP/1.1 200 OK\n\r\n\r\n", -EBADMSG },
		{ "nothing", "", -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct client_reply reply = { 0 };

		print_message("%s\n", cases[i].what);
		assert_int_equal(request_read(text_of(cases[i].bytes), &reply),
				 cases[i].r);
		assert_int_equal(reply.status, cases[i].status);
		if (cases[i].body)
			assert_true(text_equal(reply.body, cases[i].body));
	}
}

TEST(reasons)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct client_reply reply = { 500, text_of("{\"message\": \"a\\nb\"}") };

	assert_string_equal(request_reason(&reply, "message", &arena), "a\\x0ab");
	assert_string_equal(request_reason(&reply, "reason", &arena),
			    "{\"message\": \"a\\x5cnb\"}");
	reply.body = text_of(" plain\n");
	assert_string_equal(request_reason(&reply, "message", &arena), "plain");
}
