// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include <jansson.h>

#include "events/review.h"

static struct review task(const char *destination, const char *advice)
{
	struct review t = { .id = 7,
			    .is_name = destination[0] != '2' && destination[0] != '1',
			    .packets = 3,
			    .rows = 2,
			    .first_ms = 1763633203424,
			    .last_ms = 1763633203424,
			    .state = REVIEW_OPEN };

	snprintf(t.destination, sizeof(t.destination), "%s", destination);
	snprintf(t.advice, sizeof(t.advice), "%s", advice);
	return t;
}

TEST(a_task_gives_a_rule_or_none)
{
	static const struct {
		const char *destination, *advice;
		const char *rule; /* NULL: none */
	} rows[] = {
		{ "a.test", "a.test", "{\"action\":\"allow\",\"target\":\"a.test\"}" },
		{ "192.0.2.7", "192.0.2.7:tcp/443",
		  "{\"action\":\"allow\",\"target\":\"192.0.2.7\",\"ports\":[\"tcp/"
		  "443\"]}" },
		{ "2001:db8::7", "[2001:db8::7]:udp/53",
		  "{\"action\":\"allow\",\"target\":\"2001:db8::7\",\"ports\":[\"udp/"
		  "53\"]}" },
		{ "192.0.2.7", "", NULL },
		{ "a.test", "b.test", NULL },
		{ "a.test", "a.test.evil.test", NULL },
		{ "a.test", "a", NULL },
		{ "0.2.3.4", "0.2.3.4", NULL }, /* a name, as the sandbox had it */
		{ "", "a.test", NULL },
		{ "*.test", "*.test", NULL },
		{ "a.test", "a.test\",\"target\":\"b.test", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct review t = task(rows[i].destination, rows[i].advice);
		char rule[REVIEW_RULE_SIZE];

		print_message("%s\n", rows[i].destination);
		assert_int_equal(review_rule(&t, rule), rows[i].rule != NULL);
		if (rows[i].rule)
			assert_string_equal(rule, rows[i].rule);
	}
}

TEST(a_task_is_json_whatever_is_in_it)
{
	struct review t = task("", "");
	char json[REVIEW_JSON_SIZE];
	json_t *parsed;
	size_t size;

	memset(t.destination, 0xff, sizeof(t.destination) - 1);
	memset(t.sandbox, '"', sizeof(t.sandbox) - 1);
	memset(t.who, '\n', sizeof(t.who) - 1);
	memset(t.looks_like, 0xff, sizeof(t.looks_like) - 1);
	t.port = UINT16_MAX;
	t.protocol = 255;
	t.packets = t.rows = INT64_MAX;
	t.state = REVIEW_DISMISSED;
	t.decided_ms = 1763633203424;
	size = review_json(&t, json);
	assert_int_equal(size, strlen(json));
	parsed = json_loads(json, 0, NULL);
	assert_non_null(parsed);
	assert_string_equal(json_string_value(json_object_get(parsed, "state")),
			    "dismissed");
	assert_true(json_is_null(json_object_get(parsed, "rule")));
	assert_int_equal(json_integer_value(json_object_get(parsed, "port")), 65535);
	json_decref(parsed);
}

TEST(states_have_names)
{
	enum review_state s = REVIEW_NONE;

	assert_true(review_state_parse("accepted", &s));
	assert_int_equal(s, REVIEW_ACCEPTED);
	assert_string_equal(review_state_name(REVIEW_NONE), "");
	assert_false(review_state_parse("", &s));
	assert_false(review_state_parse("all", &s));
}
