// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "events/sqlite.h"
#include "events/sqlite_file.h"
#include "unit.h"

enum { PATIENCE_MS = 60 * 1000 }; /* a bound for a hang */

/* The beginning of an hour. */
#define HOUR INT64_C(3600000)
#define T0   (INT64_C(489898) * HOUR)

static char directory[64];

static int make_directory(void **state)
{
	snprintf(directory, sizeof(directory), "/tmp/weir-denied-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	static const char *const names[] = { "events.db", "events.db-wal",
					     "events.db-shm", "events.spare" };
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	return rmdir(directory);
}

static int open_file(uint64_t max_bytes, sqlite3 **ret)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = max_bytes };

	return sqlite_file_open(&config, ret, NULL);
}

static int64_t wall_ms(void)
{
	return T0 + 4 * HOUR;
}

/* What happened then is not too old to be kept. */
static struct sqlite_writer *writer(void)
{
	static const struct sqlite_clock clock = { clock_now_ms, wall_ms };
	const struct sqlite_config config = { .directory = directory, .clock = &clock };
	struct sqlite_writer *w = NULL;

	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	return w;
}

struct said {
	const char *sandbox, *name, *command, *rule;
	uint8_t address; /* 192.0.2.x; 0: a lookup */
	uint8_t packets;
	int64_t ts_ms;
};

static void add(struct sqlite_writer *w, const struct said *s)
{
	struct event e = { .ts_ms = s->ts_ms,
			   .packets = s->packets,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX,
			   .action = EVENT_DENY,
			   .layer = s->address ? EVENT_ADDRESS : EVENT_DNS };
	struct event_row row;

	if (s->address)
		e.remote = addr_v4(192, 0, 2, s->address);
	snprintf(e.name, sizeof(e.name), "%s", s->name ?: "");
	event_row_fill(&row, &e, s->sandbox, NULL);
	snprintf(row.event.command, sizeof(row.event.command), "%s", s->command ?: "");
	snprintf(row.rule, sizeof(row.rule), "%s", s->rule ?: "");
	sqlite_writer_add(w, &row);
}

static const struct said events[] = {
	{ "sb-1", "a.test", "curl", NULL, 0, 1, T0 - HOUR / 2 },
	{ "sb-1", "a.test", NULL, "deny a.test", 0, 2, T0 - 1 },
	{ "sb-2", "b.test", NULL, NULL, 0, 4, T0 },
	{ "sb-2", NULL, "curl", NULL, 7, 8, T0 + 1 },
	{ "sb-1", "a.test", NULL, NULL, 7, 16, T0 + 2 * HOUR },
	{ "sb-2", NULL, "nc", NULL, 9, 32, T0 + 3 * HOUR - 1 },
};

static void add_all(void)
{
	struct sqlite_writer *w = writer();

	/* In two transactions, so that sums are added to. */
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		add(w, &events[i]);
		if (i == 2)
			assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	}
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_free(w);
}

/* "key=packets/rows " of each, in order. */
static bool put(void *data, const struct sqlite_top *d)
{
	char *text = data;
	size_t used = strlen(text);

	snprintf(text + used, 512 - used, "%s=%llu/%llu ", d->key,
		 (unsigned long long)d->packets, (unsigned long long)d->rows);
	return true;
}

static void expect(enum sqlite_by by, struct sqlite_query q, const char *wanted)
{
	struct sqlite_reader *r = NULL;
	char text[512] = "";

	assert_int_equal(sqlite_reader_open(directory, 5000, &r, NULL), 0);
	assert_int_equal(sqlite_top(r, by, &q, put, text, NULL), 0);
	sqlite_reader_close(r);
	assert_string_equal(text, wanted);
}

TEST_WITH(each_property_is_summed, make_directory, remove_directory)
{
	const struct sqlite_query all = { 0 };

	add_all();
	expect(SQLITE_BY_DESTINATION, all,
	       "192.0.2.9=32/1 a.test=19/3 192.0.2.7=8/1 b.test=4/1 ");
	expect(SQLITE_BY_ADDRESS, all, "192.0.2.9=32/1 192.0.2.7=24/2 ");
	expect(SQLITE_BY_NAME, all, "a.test=19/3 b.test=4/1 ");
	expect(SQLITE_BY_SANDBOX, all, "sb-2=44/3 sb-1=19/3 ");
	expect(SQLITE_BY_RULE, all, "=61/5 deny a.test=2/1 ");
	expect(SQLITE_BY_PROCESS, all, "nc=32/1 =22/3 curl=9/2 ");
	expect(SQLITE_BY_NAME, (struct sqlite_query){ .sandbox = "sb-2" }, "b.test=4/1 ");
	expect(SQLITE_BY_DESTINATION, (struct sqlite_query){ .max = 1 },
	       "192.0.2.9=32/1 ");
}

TEST_WITH(parts_of_hours_are_exact, make_directory, remove_directory)
{
	static const struct {
		const char *what;
		int64_t since_ms, until_ms;
		const char *wanted;
	} rows[] = {
		{ "in the middle of the first hour", T0 - HOUR / 2 + 1, 0,
		  "sb-2=44/3 sb-1=18/2 " },
		{ "from an hour's beginning", T0, 0, "sb-2=44/3 sb-1=16/1 " },
		{ "just behind it", T0 + 1, 0, "sb-2=40/2 sb-1=16/1 " },
		{ "inside one hour", T0 + 1, T0 + 2, "sb-2=8/1 " },
		{ "up to the middle", 0, T0 + 1, "sb-2=4/1 sb-1=3/2 " },
		{ "to an hour's beginning", 0, T0 + 3 * HOUR, "sb-2=44/3 sb-1=19/3 " },
		{ "over two hours' parts", T0 - 1, T0 + 1, "sb-2=4/1 sb-1=2/1 " },
		{ "in the future", T0 + 9 * HOUR, 0, "" },
		{ "nothing at all", T0, T0, "" },
	};

	add_all();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		print_message("%s\n", rows[i].what);
		expect(SQLITE_BY_SANDBOX,
		       (struct sqlite_query){ .since_ms = rows[i].since_ms,
					      .until_ms = rows[i].until_ms },
		       rows[i].wanted);
	}
}

TEST_WITH(what_is_no_denial_is_in_no_sum, make_directory, remove_directory)
{
	const struct event e = { .ts_ms = T0, .packets = 3, .action = EVENT_ALLOW };
	struct sqlite_writer *w = writer();
	struct event_row row;

	event_row_fill(&row, &e, "sb-1", NULL);
	sqlite_writer_add(w, &row);
	assert_true(sqlite_writer_drain(w, PATIENCE_MS));
	sqlite_writer_free(w);
	expect(SQLITE_BY_SANDBOX, (struct sqlite_query){ 0 }, "");
}

/* What was let out: (sandbox, name, bytes, hours behind T0). */
static void add_allowed(void)
{
	static const struct {
		const char *sandbox, *name;
		uint64_t bytes;
		int64_t ts_ms;
	} rows[] = {
		{ "sb-1", "a.test", 100, T0 - HOUR / 2 },
		{ "sb-2", "b.test", 500, T0 + 1 },
		{ "sb-1", "a.test", 200, T0 + 90000 },
		{ "sb-1", "c.test", 400, T0 + 2 * HOUR + 1 },
	};
	struct sqlite_writer *w = writer();

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct event e = { .ts_ms = rows[i].ts_ms,
				   .packets = i + 1,
				   .bytes = rows[i].bytes,
				   .rule = EVENT_NO_RULE,
				   .action = EVENT_ALLOW };
		struct event_row row;

		snprintf(e.name, sizeof(e.name), "%s", rows[i].name);
		event_row_fill(&row, &e, rows[i].sandbox, NULL);
		sqlite_writer_add(w, &row);
		assert_true(sqlite_writer_drain(w, PATIENCE_MS)); /* or equal ones fold */
	}
	sqlite_writer_free(w);
}

static bool put_bytes(void *data, const struct sqlite_top *t)
{
	char *text = data;
	size_t used = strlen(text);

	snprintf(text + used, 512 - used, "%s=%llu ", t->key,
		 (unsigned long long)t->bytes);
	return true;
}

TEST_WITH(what_was_allowed_is_summed_by_bytes, make_directory, remove_directory)
{
	static const struct {
		struct sqlite_query q;
		enum sqlite_by by;
		int partial;
		const char *wanted;
	} rows[] = {
		{ { 0 }, SQLITE_BY_NAME, 0, "b.test=500 c.test=400 a.test=300 " },
		{ { .max = 1 }, SQLITE_BY_SANDBOX, 0, "sb-1=700 " },
		{ { .since_ms = T0 - 1 },
		  SQLITE_BY_NAME,
		  0,
		  "b.test=500 c.test=400 a.test=200 " },
		{ { .sandbox = "sb-1", .until_ms = T0 + HOUR },
		  SQLITE_BY_NAME,
		  0,
		  "a.test=300 " },
		{ { .sandbox = "sb-1", .scan = 1 }, SQLITE_BY_NAME, 1, "c.test=400 " },
		{ { .scan = 1 }, SQLITE_BY_NAME, 1, "c.test=400 " },
		/* its newest event is a denial, and no more is read */
		{ { .sandbox = "sb-2", .scan = 1 }, SQLITE_BY_NAME, 1, "" },
	};

	add_all(); /* denials, which are in none of it */
	add_allowed();
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sqlite_query q = rows[i].q;
		struct sqlite_reader *r = NULL;
		char text[512] = "";

		q.action = EVENT_ALLOW;
		assert_int_equal(sqlite_reader_open(directory, 5000, &r, NULL), 0);
		assert_int_equal(sqlite_top(r, rows[i].by, &q, put_bytes, text, NULL),
				 rows[i].partial);
		sqlite_reader_close(r);
		assert_string_equal(text, rows[i].wanted);
	}
}

/* Of 4 buckets from an hour before T0 on: allowed/denied/bytes. */
static void expect_activity(const char *sandbox, const char *wanted)
{
	struct sqlite_bucket buckets[4];
	struct sqlite_reader *r = NULL;
	char text[256] = "";

	assert_int_equal(sqlite_reader_open(directory, 5000, &r, NULL), 0);
	assert_int_equal(
		sqlite_activity(r, sandbox, (T0 - HOUR) / 60000, 60, 4, buckets, NULL),
		0);
	sqlite_reader_close(r);
	for (size_t i = 0; i < 4; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "%llu/%llu/%llu ",
			 (unsigned long long)buckets[i].packets[EVENT_ALLOW],
			 (unsigned long long)buckets[i].packets[EVENT_DENY],
			 (unsigned long long)buckets[i].bytes);
	assert_string_equal(text, wanted);
}

TEST_WITH(minutes_are_summed, make_directory, remove_directory)
{
	sqlite3 *db = NULL;

	add_all();
	add_allowed();
	expect_activity(NULL, "1/3/100 5/12/700 0/0/0 4/48/400 ");
	expect_activity("sb-1", "1/3/100 3/0/200 0/0/0 4/16/400 ");
	expect_activity("sb-3", "0/0/0 0/0/0 0/0/0 0/0/0 ");
	/* And they go with their events. */
	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_false(sqlite_tidy(db, 1 << 20, T0 + HOUR, T0 + HOUR));
	assert_int_equal(sqlite_number(db, "SELECT min(minute) FROM activity"),
			 (T0 + 2 * HOUR) / 60000);
	assert_int_equal(
		sqlite_number(db, "SELECT sum(bytes) FROM allowed WHERE kind = 3"), 400);
	sqlite3_close(db);
}

static void expect_count(const char *sandbox, int64_t since_ms, size_t scan, int code,
			 uint64_t rows, uint64_t packets)
{
	struct sqlite_reader *r = NULL;
	struct sqlite_sum sum = { 0 };

	assert_int_equal(sqlite_reader_open(directory, 5000, &r, NULL), 0);
	assert_int_equal(sqlite_count_denied(r, sandbox, since_ms, scan, &sum, NULL),
			 code);
	sqlite_reader_close(r);
	assert_int_equal(sum.rows, rows);
	assert_int_equal(sum.packets, packets);
}

/* What was allowed is looked at as well where one sandbox is asked for. */
TEST_WITH(denials_are_counted_from_so_many_rows, make_directory, remove_directory)
{
	add_all();
	expect_count(NULL, 0, 100, 0, 6, 63);
	expect_count("sb-1", 0, 100, 0, 3, 19);
	expect_count("sb-3", 0, 100, 0, 0, 0);
	add_allowed();
	expect_count("sb-1", 0, 100, 0, 3, 19);
	expect_count(NULL, 0, 2, 1, 2, 63);
	expect_count("sb-1", 0, 1, 1, 0, 19);
	expect_count(NULL, T0 + 3 * HOUR, 100, 0, 0, 0);
}

TEST_WITH(sums_go_with_their_events, make_directory, remove_directory)
{
	sqlite3 *db = NULL;

	add_all();
	assert_int_equal(open_file(1 << 20, &db), 0);
	assert_false(sqlite_tidy(db, 1 << 20, T0 + HOUR, T0 + HOUR));
	sqlite3_close(db);
	expect(SQLITE_BY_SANDBOX, (struct sqlite_query){ 0 }, "sb-2=32/1 sb-1=16/1 ");
}

TEST(kinds_have_names)
{
	enum sqlite_by by = SQLITE_BY_NONE;

	assert_true(sqlite_by_parse("process", &by));
	assert_int_equal(by, SQLITE_BY_PROCESS);
	assert_string_equal(sqlite_by_name(SQLITE_BY_RULE), "rule");
	assert_false(sqlite_by_parse("", &by));
	assert_false(sqlite_by_parse("rules", &by));
}
