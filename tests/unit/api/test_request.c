// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/request.h"
#include "unit.h"

TEST(targets_are_cut_and_decoded)
{
	static const struct {
		const char *in, *path, *query; /* path NULL: refused */
	} rows[] = {
		{ "/policy", "/policy", NULL },
		{ "/policy?", "/policy", "" },
		{ "/p?a=%zz&b?c", "/p", "a=%zz&b?c" },
		{ "/%70%6F%6c", "/pol", NULL },
		{ "/a%3Fb?c", "/a?b", "c" },
		{ "/a+b", "/a+b", NULL },
		{ "http://h/p?q", "/p", "q" },
		{ "http://h", "/", NULL },
		{ "http:///p", "/p", NULL },
		{ "*", "*", NULL },
		{ "", NULL, NULL },
		{ "policy", NULL, NULL },
		{ "a.test:443", NULL, NULL },
		{ "https://h/p", NULL, NULL },
		{ "/%", NULL, NULL },
		{ "/%2", NULL, NULL },
		{ "/%2?41", NULL, NULL },
		{ "/%g0", NULL, NULL },
		{ "/a%00b", NULL, NULL },
		{ "/a b", NULL, NULL },
		{ "/a\x7f", NULL, NULL },
		{ "/a?b\rc", NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEAN(mem) char *target = strdup(rows[i].in);
		char *query = NULL;
		int r = request_target(target, &query);

		assert_int_equal(r, rows[i].path ? 0 : -EBADMSG);
		if (r < 0)
			continue;
		assert_string_equal(target, rows[i].path);
		assert_int_equal(query == NULL, rows[i].query == NULL);
		if (query)
			assert_string_equal(query, rows[i].query);
	}
}

TEST(paths_are_cleaned)
{
	static const char *const rows[][2] = {
		{ "/", "/" },
		{ "/a", "/a" },
		{ "/a/", "/a/" },
		{ "//a", "/a" },
		{ "/a//b", "/a/b" },
		{ "/./a", "/a" },
		{ "/a/.", "/a" },
		{ "/a/..", "/" },
		{ "/..", "/" },
		{ "/../../a", "/a" },
		{ "/a/b/../c", "/a/c" },
		{ "//", "/" },
		{ "/a/../", "/" },
		{ "/...", "/..." },
		{ "/.a/..b", "/.a/..b" },
		{ "/a/b/../../c/", "/c/" },
	};
	char clean[64];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		request_path_clean(rows[i][0], clean);
		assert_string_equal(clean, rows[i][1]);
	}
}

TEST(encoded_paths_end_no_line)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	request_path_encode("/a b\r\n\"<%?#\xff~:@", out);
	fclose(out);
	assert_string_equal(text, "/a%20b%0D%0A%22%3C%25%3F%23%FF~:@");
	free(text);
}

TEST(html_is_escaped)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	request_html("<a href=\"x\">'&", out);
	fclose(out);
	assert_string_equal(text, "&lt;a href=&#34;x&#34;&gt;&#39;&amp;");
	free(text);
}

TEST(queries_are_searched)
{
	char value[8];

	assert_int_equal(request_query(NULL, "a", value, sizeof(value)), 0);
	assert_int_equal(request_query("", "a", value, sizeof(value)), 0);
	assert_int_equal(request_query("b=1&aa=2", "a", value, sizeof(value)), 0);
	assert_int_equal(request_query("b=1&a=%41b&a=3", "a", value, sizeof(value)), 1);
	assert_string_equal(value, "Ab");
	assert_int_equal(request_query("a", "a", value, sizeof(value)), 1);
	assert_string_equal(value, "");
	assert_int_equal(request_query("a=b=c", "a", value, sizeof(value)), 1);
	assert_string_equal(value, "b=c");
	assert_int_equal(request_query("a=1234567", "a", value, sizeof(value)), 1);
	assert_int_equal(request_query("a=12345678", "a", value, sizeof(value)),
			 -EBADMSG);
	assert_int_equal(request_query("a=%4", "a", value, sizeof(value)), -EBADMSG);
	assert_int_equal(request_query("a=%00", "a", value, sizeof(value)), -EBADMSG);
}

TEST(tokens_are_equal_or_not)
{
	assert_true(request_token_equal(text_of("secret"), "secret"));
	assert_false(request_token_equal(text_of("Secret"), "secret"));
	assert_false(request_token_equal(text_of("secre"), "secret"));
	assert_false(request_token_equal(text_of("secrets"), "secret"));
	assert_false(request_token_equal(text_of(""), "secret"));
	assert_false(request_token_equal(text_of(""), ""));
	assert_false(request_token_equal((struct text){ 0 }, ""));
	assert_false(request_token_equal((struct text){ "se\0ret", 6 }, "secret"));
}

TEST(bearers_are_found)
{
	static const char *const rows[][2] = {
		{ "Bearer t", "t" },  { "bearer   t ", "t" },
		{ " BEARER t", "t" }, { "Bearer a b", "a b" },
		{ "Bearer", "" },     { "Bearer ", "" },
		{ "Basic t", "" },    { "Bearert", "" },
		{ "", "" },	      { "t", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct text t = request_bearer(text_of(rows[i][0]));

		assert_int_equal(t.len, strlen(rows[i][1]));
		assert_true(t.len == 0 || text_equal(t, rows[i][1]));
	}
}

TEST(times_are_read)
{
	const int64_t now_ms = 1763719871500;
	static const struct {
		const char *text;
		int64_t ms; /* -1: refused */
	} rows[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "2025-11-21T10:11:11Z", 1763719871000 },
		{ "2025-11-21t10:11:11.5z", 1763719871500 },
		{ "2025-11-21 10:11:11.123456789Z", 1763719871123 },
		{ "2025-11-21T12:11:11+02:00", 1763719871000 },
		{ "2025-11-21T04:41:11-05:30", 1763719871000 },
		{ "2024-02-29T00:00:00Z", 1709164800000 },
		{ "2016-12-31T23:59:60Z", 1483228799000 },
		{ "1s", 1763719870500 },
		{ "10m", 1763719271500 },
		{ "2025-02-29T00:00:00Z", -1 },
		{ "2025-04-31T00:00:00Z", -1 },
		{ "2025-00-10T00:00:00Z", -1 },
		{ "2025-13-10T00:00:00Z", -1 },
		{ "2025-11-00T00:00:00Z", -1 },
		{ "1969-12-31T23:59:59Z", -1 },
		{ "2025-11-21T24:00:00Z", -1 },
		{ "2025-11-21T10:60:00Z", -1 },
		{ "2025-11-21T10:11:11", -1 },
		{ "2025-11-21T10:11:11.Z", -1 },
		{ "2025-11-21T10:11:11+0200", -1 },
		{ "2025-11-21T10:11:11ZZ", -1 },
		{ "2025-11-21", -1 },
		{ "1763719871", -1 },
		{ "10", -1 },
		{ "", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int64_t ms = -1;
		bool ok = request_time(text_of(rows[i].text), now_ms, &ms);

		assert_int_equal(ok, rows[i].ms >= 0);
		assert_int_equal(ms, rows[i].ms);
	}
}

TEST(event_ids_are_read)
{
	static const char *const wrong[] = { "",
					     "-",
					     "1",
					     "1-",
					     "-1",
					     "g-1",
					     "1-a",
					     "1-1-1",
					     "1 -1",
					     "1-+1",
					     "1-18446744073709551616",
					     "10000000000000000-1" };
	struct request_event_id id = { 7, 7 };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(request_event_id(text_of(wrong[i]), &id));
	assert_int_equal(id.epoch, 7);
	assert_true(request_event_id(text_of("19Af-0042"), &id));
	assert_int_equal(id.epoch, 0x19af);
	assert_int_equal(id.number, 42);
	assert_true(
		request_event_id(text_of("ffffffffffffffff-18446744073709551615"), &id));
	assert_true(id.epoch == UINT64_MAX && id.number == UINT64_MAX);
}

TEST(a_request_ends_at_one_place)
{
	static const struct {
		const char *lines[3][2];
		bool is_old, is_clear;
	} rows[] = {
		{ { { "Host", "a" } }, false, true },
		{ { { "Content-Length", "1" } }, true, true },
		{ { { "Content-Length", "1" } }, false, false }, /* no host */
		{ { { "Host", "a" }, { "host", "b" } }, true, false },
		{ { { "Host", "a" }, { "Transfer-Encoding", " Chunked " } },
		  false,
		  true },
		{ { { "Host", "a" }, { "Transfer-Encoding", "gzip" } }, false, false },
		{ { { "Host", "a" }, { "Transfer-Encoding", "" } }, false, false },
		{ { { "content-length", "1" }, { "Content-Length", "1" } }, true, false },
		{ { { "Content-Length", "1" }, { "Transfer-Encoding", "chunked" } },
		  true,
		  false },
		{ { { "Content-Length ", "1" } }, true, false },
		{ { { "", "1" } }, true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct request_framing f = { .is_old = rows[i].is_old };

		for (size_t n = 0; n < 3 && rows[i].lines[n][0]; n++)
			request_framing_line(&f, text_of(rows[i].lines[n][0]),
					     text_of(rows[i].lines[n][1]));
		assert_true(!request_framing_fault(&f) == rows[i].is_clear);
	}
}

TEST(names_match)
{
	assert_true(request_name_matches("a.test", "A.Test."));
	assert_true(request_name_matches("a.test.", "a.test"));
	assert_true(request_name_matches("*.test", "a.test"));
	assert_true(request_name_matches("*.test", "b.a.TEST."));
	assert_false(request_name_matches("*.test", "test"));
	assert_false(request_name_matches("*.test", ".test"));
	assert_false(request_name_matches("*.test", "atest"));
	assert_false(request_name_matches("a.test", "b.a.test"));
	assert_false(request_name_matches("a.test", ""));
}
