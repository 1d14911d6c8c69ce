// SPDX-License-Identifier: Apache-2.0
/* A link decides one task, once, in one way, for as long as it says; any other text
 * decides nothing. */
#include "unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "events/review.h"

enum { NOW_SEC = 1763633203, UNTIL_SEC = NOW_SEC + 60 };
#define NOW_MS (INT64_C(1000) * NOW_SEC)

static const struct review_key key = { { 1, 2, 3 } }, other_key = { { 1, 2, 4 } };

static struct review task(void)
{
	return (struct review){ .id = 7,
				.sandbox = "sb-1",
				.destination = "a.test",
				.advice = "a.test:tcp/443",
				.is_name = true,
				.state = REVIEW_OPEN };
}

static bool decides(const struct review_key *k, const char *link, const struct review *t,
		    int64_t now_ms, bool *ret_accepts)
{
	struct review_answer a;

	if (!review_answer_read(k, text_of(link), now_ms, &a) ||
	    !review_answer_holds(k, &a, t))
		return false;
	*ret_accepts = a.accepts;
	return true;
}

TEST(a_link_decides_what_it_says)
{
	const struct review t = task();
	char link[REVIEW_ANSWER_SIZE];
	bool accepts;

	for (int yes = 0; yes < 2; yes++) {
		review_answer_write(&key, &t, yes, UNTIL_SEC, link);
		assert_true(decides(&key, link, &t, NOW_MS, &accepts));
		assert_int_equal(accepts, yes);
		assert_true(decides(&key, link, &t, NOW_MS + 59999, &accepts));
		assert_false(decides(&key, link, &t, NOW_MS + 60000, &accepts));
		assert_false(decides(&other_key, link, &t, NOW_MS, &accepts));
	}
}

TEST(its_time_alone_refuses_it)
{
	const struct review t = task();
	struct review_answer a;
	char link[REVIEW_ANSWER_SIZE];

	review_answer_write(&key, &t, true, NOW_SEC + REVIEW_ANSWER_VALID_SEC, link);
	assert_true(review_answer_read(&key, text_of(link), NOW_MS, &a));
	assert_false(review_answer_read(&key, text_of(link), NOW_MS - 1000, &a));
	review_answer_write(&key, &t, true, NOW_SEC, link);
	assert_true(review_answer_read(&key, text_of(link), NOW_MS - 1, &a));
	assert_false(review_answer_read(&key, text_of(link), NOW_MS, &a));
	review_answer_write(&key, &t, true, UINT32_MAX, link);
	assert_false(review_answer_read(&key, text_of(link), NOW_MS, &a));
}

TEST(no_byte_can_be_another_one)
{
	const struct review t = task();
	char link[REVIEW_ANSWER_SIZE + 1], was;
	bool accepts;
	size_t size;

	review_answer_write(&key, &t, true, UNTIL_SEC, link);
	size = strlen(link);
	for (size_t i = 0; i < size; i++) {
		was = link[i];
		for (int c = 1; c < 256; c++) {
			/* The digits of a number in hexadecimal have two cases. */
			if (text_lower((char)c) == was)
				continue;
			link[i] = (char)c;
			assert_false(decides(&key, link, &t, NOW_MS, &accepts));
		}
		link[i] = '\0';
		assert_false(decides(&key, link, &t, NOW_MS, &accepts));
		link[i] = was;
	}
	memcpy(link + size, "0", 2);
	assert_false(decides(&key, link, &t, NOW_MS, &accepts));
}

TEST(no_other_task_is_decided)
{
	const struct review t = task();
	struct review others[8];
	char link[REVIEW_ANSWER_SIZE];
	bool accepts;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		others[i] = t;
	others[0].id = 8;
	others[1].sandbox[0] = 'x';
	others[2].destination[0] = 'b';
	snprintf(others[3].advice, sizeof(others[3].advice), "a.test:tcp/22");
	others[4].state = REVIEW_ACCEPTED;
	others[5].state = REVIEW_DISMISSED;
	others[6].decided_ms = NOW_MS; /* it has opened again */
	/* What moves from one text to the next */
	snprintf(others[7].sandbox, sizeof(others[7].sandbox), "sb-1a");
	snprintf(others[7].destination, sizeof(others[7].destination), ".test");
	review_answer_write(&key, &t, true, UNTIL_SEC, link);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(decides(&key, link, &others[i], NOW_MS, &accepts));
	assert_true(decides(&key, link, &t, NOW_MS, &accepts));
}

TEST(a_link_of_another_task_is_known_as_a_link)
{
	const struct review t = task();
	struct review other = t;
	struct review_answer a;
	char link[REVIEW_ANSWER_SIZE];

	other.advice[0] = 'b';
	review_answer_write(&key, &other, true, UNTIL_SEC, link);
	assert_true(review_answer_read(&key, text_of(link), NOW_MS, &a));
	assert_false(review_answer_holds(&key, &a, &t));
	assert_false(review_answer_read(&other_key, text_of(link), NOW_MS, &a));
}

TEST(links_stand_in_what_webhooks_get)
{
	struct review t = task();
	char json[REVIEW_JSON_SIZE];
	const char *base = "https://weir.test", *link;
	json_t *parsed;
	bool accepts;
	size_t size;

	for (int can = 1; can >= 0; can--) {
		if (!can)
			t.advice[0] = '\0';
		size = review_json(&t, true, json);
		size = review_answer_add(&key, base, &t, NOW_MS, json, size);
		assert_int_equal(size, strlen(json));
		parsed = json_loads(json, 0, NULL);
		assert_non_null(parsed);
		link = json_string_value(json_object_get(parsed, "accept_url"));
		assert_int_equal(link != NULL, can);
		if (link)
			assert_true(decides(&key,
					    link + strlen("https://weir.test/answer/"),
					    &t, NOW_MS, &accepts) &&
				    accepts);
		link = json_string_value(json_object_get(parsed, "deny_url"));
		assert_true(decides(&key, link + strlen("https://weir.test/answer/"), &t,
				    NOW_MS, &accepts) &&
			    !accepts);
		json_decref(parsed);
	}
}
