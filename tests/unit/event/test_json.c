// SPDX-License-Identifier: Apache-2.0
/* What is written reads back, has its commas, stays in its buffer, and is cut where it
 * doesn't fit. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include "event/json.h"

static const char all[] = "{\"list\":[1,-2,null,\"a\",true,{},[]],\"empty\":[],"
			  "\"object\":{\"text\":null,\"string\":\"\",\"no\":false},"
			  "\"time\":\"1970-01-01T00:00:01.002Z\",\"raw\":{\"x\": 1}}";

static void write_all(struct jtext *j)
{
	jtext_open(j, NULL, '{');
	jtext_open(j, "list", '[');
	jtext_number(j, NULL, true, 1);
	jtext_number(j, NULL, true, -2);
	jtext_number(j, NULL, false, 3);
	jtext_member(j, NULL, "a");
	jtext_bool(j, NULL, true);
	jtext_open(j, NULL, '{');
	jtext_close(j, '}');
	jtext_open(j, NULL, '[');
	jtext_close(j, ']');
	jtext_close(j, ']');
	jtext_open(j, "empty", '[');
	jtext_close(j, ']');
	jtext_open(j, "object", '{');
	jtext_text(j, "text", "", SIZE_MAX);
	jtext_member(j, "string", "");
	jtext_bool(j, "no", false);
	jtext_close(j, '}');
	jtext_when(j, "time", 1002);
	jtext_raw(j, "raw", "{\"x\": 1}");
	jtext_close(j, '}');
}

TEST(members_and_elements_have_their_commas)
{
	struct jtext j = { .grows = true };
	char *text;

	write_all(&j);
	text = jtext_take(&j);
	assert_string_equal(text, all);
	free(text);
}

TEST(a_buffer_of_any_size_holds_the_begin_and_no_more)
{
	char buf[sizeof(all) + 1];

	for (size_t size = 0; size <= sizeof(all); size++) {
		struct jtext j;

		memset(buf, '#', sizeof(buf));
		jtext_init(&j, buf, size);
		write_all(&j);
		assert_int_equal(j.full, size < strlen(all));
		assert_true(j.used <= size);
		assert_memory_equal(buf, all, j.used);
		assert_int_equal(buf[size], '#');
	}
}

TEST(what_has_grown_can_be_taken_and_begun_again)
{
	struct jtext j = { .grows = true };
	char *text;

	for (size_t n = 0; n < 3000; n += 17) {
		for (size_t i = 0; i < n; i++)
			jtext_put(&j, text_of("x"));
		assert_int_equal(j.used, n);
		text = jtext_take(&j);
		assert_int_equal(strlen(text), n);
		assert_int_equal(strspn(text, "x"), n);
		free(text);
		assert_int_equal(j.used, 0);
	}
	clean_jtext(&j);
}

TEST(what_was_full_is_not_taken)
{
	struct jtext j = { .grows = true };

	jtext_put(&j, text_of("{"));
	j.full = true;
	jtext_put(&j, text_of("}"));
	assert_null(jtext_take(&j));
	assert_false(j.full);
}

TEST(any_number_is_written_as_it_is)
{
	static const int64_t numbers[] = { 0,	7,	    -7,	       10,
					   -10, 4294967296, INT64_MAX, INT64_MIN };

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		char buf[32], wanted[32];
		struct jtext j;

		jtext_init(&j, buf, sizeof(buf));
		jtext_number(&j, NULL, true, numbers[i]);
		buf[j.used] = '\0';
		snprintf(wanted, sizeof(wanted), "%lld", (long long)numbers[i]);
		assert_string_equal(buf, wanted);
	}
}

TEST(what_html_and_a_terminal_would_read_is_escaped)
{
	static const struct {
		const char *text, *json;
	} rows[] = {
		{ "plain text, \x7e", "\"plain text, ~\"" },
		{ "\"\\", "\"\\\"\\\\\"" },
		{ "<&>", "\"\\u003c\\u0026\\u003e\"" },
		{ "a\n\x1b\x7f", "\"a\\u000a\\u001b\\u007f\"" },
		{ "\xc3\xa9", "\"\\u00e9\"" },
		{ "\xf0\x9f\x92\xa9", "\"\\ud83d\\udca9\"" },
		{ "a\xff", "\"a\\ufffd\"" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct jtext j = { .grows = true };
		char *text;

		jtext_member(&j, NULL, rows[i].text);
		text = jtext_take(&j);
		assert_string_equal(text, rows[i].json);
		free(text);
	}
}

TEST(json_of_others_keeps_what_it_says)
{
	struct jtext j = { .grows = true };
	char *text;

	jtext_json(&j, text_of("{\"a\":\n\"\\u00e9\xc3\xa9<\\\"\"}"));
	text = jtext_take(&j);
	assert_string_equal(text, "{\"a\": \"\\u00e9\\u00e9\\u003c\\\"\"}");
	free(text);
}

TEST(what_does_not_fit_is_told)
{
	char buf[10];
	struct jtext j;

	jtext_init(&j, buf, sizeof(buf));
	jtext_string(&j, text_of("12345678"), 100);
	assert_false(j.full);
	assert_int_equal(j.used, 10);
	jtext_init(&j, buf, sizeof(buf));
	jtext_string(&j, text_of("123456789"), 100);
	assert_true(j.full);
}

TEST(a_time_before_the_epoch_is_the_epoch)
{
	char buf[JTEXT_TIME_SIZE];

	assert_string_equal(jtext_time(-5, true, buf), "1970-01-01T00:00:00.000Z");
	assert_string_equal(jtext_time(1763633456000, false, buf),
			    "2025-11-20T10:10:56Z");
	jtext_time(INT64_MAX, true, buf);
}
