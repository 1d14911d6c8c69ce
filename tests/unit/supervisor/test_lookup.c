// SPDX-License-Identifier: Apache-2.0
#include "supervisor/init.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 192, 0, 2, 7 };
static const uint8_t alias[] = { 0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 1, 0, 2, 0xc0, 12 };

static size_t ask(uint8_t *query)
{
	size_t size = lookup_write("a.example", 0x1234, query, LOOKUP_QUERY_MAX);

	assert_int_equal(size, 12 + 11 + 4);
	return size;
}

/* @query turned into an answer with @code and the records behind it. */
static size_t answer(const uint8_t *query, size_t size, unsigned int code, uint8_t *out)
{
	memcpy(out, query, size);
	out[2] |= 0x80;
	out[3] = (uint8_t)code;
	return size;
}

static void names_that_are_no_host_names_are_not_asked(void **state)
{
	static const char long_label[] = "0123456789012345678901234567890123456789"
					 "012345678901234567890123.x";
	static const char *const names[] = { "a..b", ".a", long_label };
	uint8_t query[LOOKUP_QUERY_MAX];
	char name[300];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(lookup_write(names[i], 1, query, sizeof(query)), 0);
	for (size_t i = 0; i < sizeof(name) - 1; i++)
		name[i] = i % 2 ? '.' : 'a';
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(lookup_write(name, 1, query, sizeof(query)), 0);
}

static void an_address_is_found_behind_an_alias(void **state)
{
	uint8_t query[LOOKUP_QUERY_MAX], bytes[LOOKUP_ANSWER_MAX];
	size_t asked = ask(query), size = answer(query, asked, 0, bytes);
	struct lookup_answer got;

	bytes[7] = 2;
	memcpy(bytes + size, alias, sizeof(alias));
	size += sizeof(alias);
	memcpy(bytes + size, record, sizeof(record));
	size += sizeof(record);
	assert_true(lookup_read(query, asked, bytes, size, &got));
	assert_int_equal(got.rcode, 0);
	assert_true(got.has_address);
	assert_memory_equal(got.address, ((uint8_t[]){ 192, 0, 2, 7 }), 4);
	/* Cut anywhere, it is no answer, and nothing behind it is read. */
	for (size_t n = 0; n < size; n++) {
		uint8_t *cut = malloc(n + 1);

		memcpy(cut, bytes, n);
		assert_false(lookup_read(query, asked, cut, n, &got));
		free(cut);
	}
}

static void the_code_of_a_denial_is_read(void **state)
{
	uint8_t query[LOOKUP_QUERY_MAX], bytes[LOOKUP_ANSWER_MAX];
	size_t asked = ask(query), size = answer(query, asked, 3, bytes);
	struct lookup_answer got;

	assert_true(lookup_read(query, asked, bytes, size, &got));
	assert_int_equal(got.rcode, 3);
	assert_false(got.has_address);
}

static void what_answers_something_else_is_refused(void **state)
{
	static const struct {
		const char *what;
		size_t at;
		uint8_t flip;
	} cases[] = {
		{ "another id", 0, 1 },	     { "a query", 2, 0x80 },
		{ "no question", 5, 1 },     { "another name", 13, 1 },
		{ "another type", 24, 1 },   { "a missing record", 7, 1 },
		{ "many records", 6, 0xff },
	};
	uint8_t query[LOOKUP_QUERY_MAX], bytes[LOOKUP_ANSWER_MAX];
	size_t asked = ask(query);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t size = answer(query, asked, 0, bytes);
		struct lookup_answer got;

		bytes[cases[i].at] ^= cases[i].flip;
		if (lookup_read(query, asked, bytes, size, &got))
			fail_msg("%s was taken", cases[i].what);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_are_no_host_names_are_not_asked),
		cmocka_unit_test(an_address_is_found_behind_an_alias),
		cmocka_unit_test(the_code_of_a_denial_is_read),
		cmocka_unit_test(what_answers_something_else_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
