// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <string.h>

#include "unit.h"

TEST(numbers_are_read_strictly)
{
	static const struct {
		const char *text;
		bool ok;
		uint32_t want;
	} rows[] = {
		{ "0", true, 0 },
		{ "443", true, 443 },
		{ "65535", true, 65535 },
		{ "65536", false, 0 },
		{ "010", false, 0 },
		{ "+1", false, 0 },
		{ "", false, 0 },
		{ "1 ", false, 0 },
		{ "99999999999999999999", false, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t v = 7;

		assert_int_equal(text_to_u32(text_of(rows[i].text), 65535, &v),
				 rows[i].ok);
		assert_int_equal(v, rows[i].ok ? rows[i].want : 7);
	}
}

TEST(durations_have_units)
{
	int64_t ms = 0;

	assert_true(text_to_duration_ms(text_of("6h"), &ms));
	assert_int_equal(ms, 6 * 3600 * 1000);
	assert_true(text_to_duration_ms(text_of("250ms"), &ms));
	assert_int_equal(ms, 250);
	assert_false(text_to_duration_ms(text_of("6"), &ms));
	assert_false(text_to_duration_ms(text_of("h"), &ms));
	assert_false(text_to_duration_ms(text_of("-1s"), &ms));
}

TEST(splitting_gives_every_part)
{
	static const char *const want[] = { "a", "", "b" };
	struct text t = text_of("a,,b"), part;
	size_t n = 0;

	while (text_split(&t, ',', &part)) {
		assert_true(n < ARRAY_SIZE(want));
		assert_true(text_equal(part, want[n++]));
	}
	assert_int_equal(n, 3);
}

static const char *first_word(const void *words, size_t i)
{
	return ((const char *const *)words)[i];
}

TEST(two_letters_mean_the_one_word_that_they_are_near_to)
{
	static const char *const near_one[] = { "learn", "run", "ps", NULL },
				 *const near_two[] = { "rw", "ro", "run", NULL };

	assert_string_equal(text_meant(text_of("rn"), first_word, near_one), "run");
	assert_null(text_meant(text_of("rv"), first_word, near_one));
	assert_null(text_meant(text_of("rx"), first_word, near_two));
	assert_null(text_meant(text_of("le"), first_word, near_one));
	assert_null(text_meant(text_of("p"), first_word, near_one));
	assert_string_equal(text_meant(text_of("rwo"), first_word, near_two), "rw");
}

TEST(a_typo_is_near_its_word)
{
	static const struct {
		const char *typed, *word;
		bool is_near;
	} rows[] = {
		{ "alow", "allow", true },
		{ "lalow", "allow", true },
		{ "allow", "allow", true },
		{ "pollicy", "policy", true },
		{ "pro", "profile", true },
		{ "pr", "profile", false },
		{ "rn", "run", true },
		{ "r", "rw", false },
		{ "rnu", "run", true },
		{ "nru", "run", false },
		{ "unr", "run", false },
		{ "sate-idr", "state-dir", false },
		{ "sate-dri", "state-dir", false },
		{ "", "run", false },
		{ "deny", "allow", false },
		{ "policies", "policy", false },
	};
	char word[64];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const words[] = { rows[i].word, NULL };

		assert_int_equal(text_meant(text_of(rows[i].typed), first_word, words) !=
					 NULL,
				 rows[i].is_near);
	}
	memset(word, 'a', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	assert_null(text_meant(text_of(word), first_word,
			       (const char *const[]){ word, NULL }));
}

TEST(hostile_text_is_escaped_and_cut)
{
	char buf[TEXT_ESCAPED_SIZE], small[12];

	assert_string_equal(
		text_escape((struct text){ "a\x1b[1m\0\\", 7 }, buf, sizeof(buf)),
		"a\\x1b[1m\\x00\\x5c");
	assert_string_equal(
		text_escape(text_of("0123456789abcdef"), small, sizeof(small)),
		"01234567...");
	assert_string_equal(text_escape(text_of("\n\n\n\n"), small, sizeof(small)),
			    "\\x0a\\x0a...");
}

TEST(texts_are_the_same_byte_by_byte)
{
	assert_true(text_same(text_of("abc"), text_of("abc")));
	assert_true(text_same((struct text){ 0 }, text_of("")));
	assert_false(text_same(text_of("abc"), text_of("abC")));
	assert_false(text_same(text_of("abc"), text_of("ab")));
}
