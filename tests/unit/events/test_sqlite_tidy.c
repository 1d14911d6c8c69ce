// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"

#include <stdatomic.h>
#include <unistd.h>

#include "events/sqlite_file.h"

#define HOUR INT64_C(3600000)
#define DAY  (24 * HOUR)
#define T0   (INT64_C(20000) * DAY)

static char directory[64];
static sqlite3 *db;

static int make_store(void **state)
{
	struct sqlite_config config = { .directory = directory, .max_bytes = 64 << 20 };

	snprintf(directory, sizeof(directory), "/tmp/weir-tidy-XXXXXX");
	if (!mkdtemp(directory))
		return -1;
	return sqlite_file_open(&config, &db, NULL);
}

static int remove_store(void **state)
{
	static const char *const names[] = { "events.db", "events.db-wal",
					     "events.db-shm", "events.spare" };
	char path[128];

	sqlite3_close(db);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
		unlink(path);
	}
	return rmdir(directory);
}

static void run(const char *format, long long number)
{
	char sql[512];

	snprintf(sql, sizeof(sql), format, number, number, number);
	assert_int_equal(sqlite_run(db, sql, NULL), 0);
}

/* Three denials of one name, at @ms. */
static void write_three(long long ms)
{
	for (int i = 0; i < 3; i++)
		run("INSERT INTO event (ts, sandbox, action, layer, name, packets, bytes)"
		    " VALUES (%lld, 's', 2, 1, 'a.test', 1, 1)",
		    ms + i);
}

static int64_t rows(void)
{
	return sqlite_number(db, "SELECT count(*) FROM event");
}

/* ---- when the clock is believed ---- */

/* The time that has surely come, by days behind T0. */
struct look {
	const char *what;
	int64_t now_ms, wall_ms, trusted_ms;
	bool is_start; /* another process looks */
};

static void look_at(const struct look *looks, size_t count)
{
	struct sqlite_age age = { 0 };

	for (size_t i = 0; i < count; i++) {
		const struct look *l = &looks[i];
		int64_t limit;

		if (l->is_start)
			age = (struct sqlite_age){ 0 };
		limit = sqlite_age_limit(&age, db, l->now_ms, l->wall_ms, 30 * DAY);
		if (limit != l->trusted_ms - 30 * DAY)
			fail_msg("%s: %lld h", l->what,
				 (long long)((limit + 30 * DAY - T0) / HOUR));
	}
}

TEST_WITH(a_clock_that_is_ahead_makes_nothing_old, make_store, remove_store)
{
	static const struct look looks[] = {
		{ "at the start, near the newest row", 1000, T0 + HOUR, T0 + HOUR, true },
		{ "it goes on", 1000 + HOUR, T0 + 2 * HOUR, T0 + 2 * HOUR, false },
		{ "a day is nothing", 1000 + HOUR, T0 + 26 * HOUR, T0 + 26 * HOUR,
		  false },
		{ "a year ahead", 1000 + HOUR, T0 + 365 * DAY, T0 + 26 * HOUR, false },
		{ "an hour passes", 1000 + 2 * HOUR, T0 + 365 * DAY + HOUR,
		  T0 + 27 * HOUR, false },
		{ "a restart", 5000, T0 + 365 * DAY + HOUR, T0 + 27 * HOUR, true },
		{ "and another", 5000, T0 + 365 * DAY + 2 * HOUR, T0 + 27 * HOUR, true },
		{ "of which one has some time", 5000 + HOUR, T0 + 365 * DAY + 3 * HOUR,
		  T0 + 28 * HOUR, false },
		{ "two years", 5000 + HOUR, T0 + 730 * DAY, T0 + 28 * HOUR, false },
		{ "right again", 5000 + HOUR, T0 + 30 * HOUR, T0 + 30 * HOUR, false },
		{ "1970", 5000 + 2 * HOUR, 5000, 5000, false },
		{ "right again", 5000 + 3 * HOUR, T0 + 32 * HOUR, T0 + 32 * HOUR, false },
	};

	write_three(T0);
	look_at(looks, ARRAY_SIZE(looks));
}

TEST_WITH(rows_that_were_written_by_it_prove_nothing, make_store, remove_store)
{
	static const struct look looks[] = {
		{ "right", 1000, T0, T0, true },
		{ "a year ahead", 1000, T0 + 365 * DAY, T0, true },
		{ "with rows of then", 2000, T0 + 365 * DAY + HOUR, T0, true },
	};

	write_three(T0);
	look_at(looks, 1);
	write_three(T0 + 365 * DAY);
	look_at(looks + 1, 2);
}

TEST_WITH(a_machine_that_was_away_is_believed_in_the_end, make_store, remove_store)
{
	struct sqlite_age age = { 0 };
	int64_t limit = 0;

	write_three(T0);
	assert_true(sqlite_age_limit(&age, db, 0, T0, 30 * DAY) == T0 - 30 * DAY);
	/* A run of a minute, each third day. */
	for (int64_t day = 40; day <= 70; day += 3) {
		assert_true(limit < T0);
		age = (struct sqlite_age){ 0 };
		limit = sqlite_age_limit(&age, db, 0, T0 + day * DAY, 30 * DAY);
	}
	assert_true(limit == T0 + 40 * DAY);
}

TEST_WITH(without_rows_the_clock_is_believed, make_store, remove_store)
{
	struct sqlite_age age = { 0 };

	assert_true(sqlite_age_limit(&age, db, 1, T0, DAY) == T0 - DAY);
}

/* ---- what goes ---- */

static void tidy(int64_t wall_ms)
{
	assert_false(sqlite_tidy(db, 64 << 20, wall_ms - 30 * DAY, wall_ms));
}

TEST_WITH(rows_of_the_future_go_with_those_written_after_them, make_store, remove_store)
{
	write_three(T0 + 1000 * DAY); /* the clock was wrong */
	write_three(T0);	      /* and was put right */
	write_three(T0 + DAY);
	tidy(T0 + DAY);
	assert_int_equal(rows(), 9);
	tidy(T0 + 30 * DAY);
	assert_int_equal(rows(), 9);
	tidy(T0 + 30 * DAY + HOUR);
	assert_int_equal(rows(), 3);
	assert_int_equal(sqlite_number(db, "SELECT min(ts) FROM event"), T0 + DAY);
}

TEST_WITH(a_clock_that_is_behind_wipes_nothing, make_store, remove_store)
{
	write_three(T0);
	write_three(T0 + DAY);
	tidy(5000);
	assert_int_equal(rows(), 6);
	write_three(6000); /* it stays so for a while */
	tidy(7000 + 20 * DAY);
	assert_int_equal(rows(), 9);
	write_three(T0 + 2 * DAY); /* it is right again: those of then are old */
	tidy(T0 + 2 * DAY);
	assert_int_equal(rows(), 9);
	assert_int_equal(sqlite_number(db, "SELECT min(ts) FROM event"), T0);
}

TEST_WITH(sums_of_the_future_go_with_their_rows, make_store, remove_store)
{
	write_three(T0 + 1000 * DAY);
	write_three(T0);
	write_three(T0 + DAY);
	run("INSERT INTO denied SELECT kind, ts / 3600000, key, sum(packets), count(*),"
	    " max(ts) FROM denied_written WHERE id > %lld AND key IS NOT NULL GROUP BY"
	    " 1, 2, 3",
	    0);
	tidy(T0 + 31 * DAY);
	assert_int_equal(sqlite_number(db, "SELECT count(DISTINCT hour) FROM denied"), 1);
	assert_int_equal(sqlite_number(db, "SELECT max(hour) FROM denied"),
			 (T0 + DAY) / HOUR);
}

TEST_WITH(tasks_of_the_future_neither_stay_for_ever_nor_go_at_once, make_store,
	  remove_store)
{
	static const char task[] =
		"INSERT INTO review (sandbox, destination, is_name, packets, rows,"
		" first_ts, last_ts, decided_ts) VALUES ('s', 'x' || %lld, 1, 1, 1, %lld,"
		" %lld, NULL)";

	write_three(T0 + 1000 * DAY);
	run(task, T0 + 1000 * DAY);
	write_three(T0);
	run(task, T0);
	tidy(T0 + DAY);
	assert_int_equal(sqlite_number(db, "SELECT count(*) FROM review"), 2);
	write_three(T0 + 31 * DAY);
	tidy(T0 + 31 * DAY); /* the events of the future go, the task gets its time */
	tidy(T0 + 31 * DAY);
	assert_int_equal(sqlite_number(db, "SELECT count(*) FROM review"), 1);
	assert_int_equal(sqlite_number(db, "SELECT last_ts FROM review"), T0 + 31 * DAY);
	tidy(T0 + 62 * DAY);
	assert_int_equal(sqlite_number(db, "SELECT count(*) FROM review"), 0);
	/* A clock that is behind makes none of it older. */
	write_three(T0 + 62 * DAY);
	run(task, T0 + 62 * DAY);
	tidy(5000);
	assert_int_equal(sqlite_number(db, "SELECT last_ts FROM review"), T0 + 62 * DAY);
}

static void sum_all(void)
{
	for (size_t i = 0; i < SQLITE_SUMS; i++) {
		sqlite3_stmt *s = NULL;

		assert_int_equal(sqlite3_prepare_v2(db, sqlite_sums[i].sql, -1, &s, NULL),
				 0);
		sqlite3_bind_int64(s, 1, 0);
		sqlite3_bind_int64(s, 2, INT64_MAX);
		assert_int_equal(sqlite3_step(s), SQLITE_DONE);
		sqlite3_finalize(s);
	}
}

/* Differences between the sums and what they are of. */
static int64_t wrong_sums(void)
{
	static const char *const both[] = {
		"SELECT kind, ts / 3600000, key, sum(packets), count(*) FROM "
		"denied_written"
		" WHERE key IS NOT NULL GROUP BY 1, 2, 3",
		"SELECT kind, hour, key, packets, rows FROM denied",
		"SELECT kind, ts / 3600000, key, sum(packets), sum(bytes), count(*) FROM"
		" allowed_written WHERE key IS NOT NULL GROUP BY 1, 2, 3",
		"SELECT kind, hour, key, packets, bytes, rows FROM allowed",
		"SELECT scope, ts / 60000, action, sum(packets), sum(bytes) FROM"
		" activity_written GROUP BY 1, 2, 3",
		"SELECT scope, minute, action, packets, bytes FROM activity",
	};
	char sql[512];
	int64_t wrong = 0;

	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		snprintf(sql, sizeof(sql),
			 "SELECT count(*) FROM (SELECT * FROM (%s) EXCEPT SELECT * FROM"
			 " (%s))",
			 both[i], both[i ^ 1]);
		wrong += sqlite_number(db, sql);
	}
	return wrong;
}

/* Half of a day, all of it within the last hour, from one sandbox. */
static void write_noise(void)
{
	for (int day = 0; day < 20; day++)
		write_three(T0 + day * DAY);
	run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <"
	    " 20000) INSERT INTO event (ts, sandbox, action, layer, name, packets,"
	    " bytes) SELECT %lld + i * 500, 'noisy', 2, 1, 'n' || i ||"
	    " '.test', 1, 1 FROM n",
	    T0 + 20 * DAY);
	run("UPDATE event SET action = 1 + (id %% 8 > 1)", 0);
	sum_all();
}

static int64_t pages(void)
{
	return sqlite_number(db, "PRAGMA page_count") -
	       sqlite_number(db, "PRAGMA freelist_count");
}

TEST_WITH(who_has_most_rows_loses_rows, make_store, remove_store)
{
	int64_t most, noisy;
	int i = 0;

	write_noise();
	most = pages() * 4096 / 2;
	while (sqlite_tidy(db, (uint64_t)most, T0 - DAY, T0 + 21 * DAY))
		assert_true(++i < 200);
	assert_true(pages() * 4096 <= most);
	noisy = sqlite_number(db, "SELECT count(*) FROM event WHERE sandbox = 'noisy'");
	assert_in_range(noisy, 2000, 12000);
	assert_int_equal(rows() - noisy, 60);
	assert_int_equal(wrong_sums(), 0);
	/* A full disk is no other case, and neither is age. */
	assert_int_equal(sqlite_file_make_room(db, directory), 0);
	assert_in_range(rows(), noisy / 2, noisy * 3 / 4 + 60);
	tidy(T0 + 32 * DAY + HOUR);
	assert_int_equal(
		sqlite_number(db, "SELECT count(*) FROM event WHERE sandbox = 's'"),
		3 * 17);
	assert_int_equal(wrong_sums(), 0);
}

TEST_WITH(of_equals_the_oldest_rows_go, make_store, remove_store)
{
	run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <"
	    " 4000) INSERT INTO event (ts, sandbox, action, layer, name, packets, bytes)"
	    " SELECT %lld + i, 's' || (i %% 7), 2, 1, 'n' || i, 1, 1 FROM n",
	    T0);
	assert_int_equal(sqlite_file_make_room(db, directory), 0);
	assert_int_equal(rows(), 2999);
	assert_int_equal(sqlite_number(db, "SELECT min(ts) FROM event"), T0 + 1002);
}

/* ---- the writer's own clock ---- */

static _Atomic int64_t fake_now_ms, fake_wall_ms;

static int64_t fake_now(void)
{
	return fake_now_ms;
}

static int64_t fake_wall(void)
{
	return fake_wall_ms;
}

/* The writer looks once a minute. */
static void pass(int64_t now_ms, int64_t wall_ms)
{
	fake_now_ms += now_ms;
	fake_wall_ms += wall_ms;
	usleep(600 * 1000); /* two ticks of its thread */
}

TEST_WITH(a_writer_whose_clock_jumps_keeps_its_rows, make_store, remove_store)
{
	static const struct sqlite_clock fake = { fake_now, fake_wall };
	const struct sqlite_config config = { .directory = directory, .clock = &fake };
	struct sqlite_writer *w = NULL;

	fake_now_ms = HOUR;
	fake_wall_ms = T0;
	write_three(T0);
	write_three(T0);
	assert_int_equal(sqlite_writer_new(&config, &w, NULL), 0);
	pass(0, 0);
	pass(2 * 60000, 90 * DAY); /* set to some day after */
	assert_int_equal(rows(), 6);
	pass(2 * 60000, -180 * DAY); /* and before */
	assert_int_equal(rows(), 6);
	pass(2 * 60000, 90 * DAY + 6 * 60000); /* it is right again */
	pass(2 * HOUR, 2 * HOUR);
	assert_int_equal(rows(), 6);
	pass(2 * 60000, 29 * DAY + 18 * HOUR); /* a step once more, within the age */
	pass(2 * HOUR, 2 * HOUR);
	pass(5 * HOUR, 5 * HOUR);
	assert_int_equal(rows(), 6);
	pass(30 * DAY, 30 * DAY); /* and time that passes: the newest stays */
	for (int i = 0; i < 3000 && rows() > 1; i++)
		usleep(20 * 1000);
	assert_int_equal(rows(), 1);
	sqlite_writer_free(w);
}
