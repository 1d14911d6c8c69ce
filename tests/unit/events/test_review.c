// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include <jansson.h>

#include "events/review.h"
#include "events/sqlite_file.h"

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
	size = review_json(&t, false, json);
	assert_int_equal(size, strlen(json));
	parsed = json_loads(json, 0, NULL);
	assert_non_null(parsed);
	assert_string_equal(json_string_value(json_object_get(parsed, "state")),
			    "dismissed");
	assert_true(json_is_null(json_object_get(parsed, "rule")));
	assert_int_equal(json_integer_value(json_object_get(parsed, "port")), 65535);
	json_decref(parsed);
}

TEST(accepting_takes_one_rule_and_one_length)
{
	const struct review t = task("a.test", "a.test");
	char shown[REVIEW_RULE_SIZE], body[3 * REVIEW_RULE_SIZE],
		length[REVIEW_LENGTH_SIZE];

	assert_true(review_rule(&t, shown));
	snprintf(body, sizeof(body), "{\"rule\": %s, \"for\": \"10m\"}", shown);
	assert_int_equal(review_read_accept(text_of(body), &t, length), 0);
	assert_string_equal(length, "10m");
	/* Two readers could take one each. */
	snprintf(body, sizeof(body), "{\"rule\": {\"action\": \"deny\"}, \"rule\": %s}",
		 shown);
	assert_int_equal(review_read_accept(text_of(body), &t, length), -EINVAL);
	assert_int_equal(
		review_read_accept(text_of("{\"for\": \"10m\", \"for\": \"10h\"}"), &t,
				   length),
		-EINVAL);
}

/* ---- a list of all sandboxes ---- */

static char directory[64];

static int make_store(void **state)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = 64 << 20 };
	sqlite3 *db = NULL;
	int r;

	snprintf(directory, sizeof(directory), "/tmp/weir-review-XXXXXX");
	if (!mkdtemp(directory) || sqlite_file_open(&config, &db, NULL) < 0)
		return -1;
	/* 600 of each of two, again and again, and three of a third, before all of
	 * them. */
	r = sqlite_run(
		db,
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i"
		" < 1203) INSERT INTO review (sandbox, destination, is_name, packets,"
		" rows, first_ts, last_ts) SELECT iif(i < 4, 'quiet', 'noisy-' || (i %"
		" 2)), i || '.test', 1, 1, 1, i, i FROM n",
		NULL);
	sqlite3_close(db);
	return r;
}

static int remove_store(void **state)
{
	static const char *const names[] = { "events.db", "events.db-wal",
					     "events.db-shm" };
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	return rmdir(directory);
}

struct listed {
	size_t count, quiet;
	int64_t before_ms;
};

static bool on_listed(void *data, const struct review *t)
{
	struct listed *l = data;

	assert_true(t->last_ms <= l->before_ms);
	l->before_ms = t->last_ms;
	l->count++;
	l->quiet += strcmp(t->sandbox, "quiet") == 0;
	return true;
}

TEST_WITH(each_sandbox_has_its_part_of_a_list, make_store, remove_store)
{
	struct listed all = { .before_ms = INT64_MAX }, one = all;
	struct review_store *r = NULL;

	assert_int_equal(review_open(directory, &r, NULL), 0);
	assert_int_equal(review_list(r, REVIEW_OPEN, NULL, on_listed, &all, NULL), 0);
	assert_int_equal(review_list(r, REVIEW_OPEN, "noisy-1", on_listed, &one, NULL),
			 0);
	review_close(r);
	assert_int_equal(all.count, REVIEW_LIST_MAX);
	assert_int_equal(all.quiet, 3);
	assert_int_equal(one.count, 600);
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
