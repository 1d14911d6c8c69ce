// SPDX-License-Identifier: Apache-2.0
#include "events/sqlite_tidy.h"

#include <inttypes.h>
#include <stdio.h>

#include "events/sqlite_file.h"

enum {
	SQL_SIZE = 512,
	TIDY_ROWS = 500, /* in one transaction */
	TIDY_STEPS = 20, /* at a time */
	SLICE_ROWS = 1000,
	PAGE_BYTES = 4096,
	KEEP_MS = 60 * 60 * 1000,
};
#define DAY_MS INT64_C(86400000)

/* ---- age ---- */

static void read_age(struct sqlite_age *a, sqlite3 *db, int64_t wall_ms)
{
	int64_t newest_ms = sqlite_number(db, "SELECT ts FROM event ORDER BY id DESC");

	a->trusted_ms = a->kept_trusted_ms =
		sqlite_number(db, "SELECT trusted_ms FROM age");
	a->doubted_ms = a->kept_doubted_ms =
		sqlite_number(db, "SELECT doubted_ms FROM age");
	if (a->trusted_ms == 0)
		a->trusted_ms = newest_ms != 0 ? MIN(newest_ms, wall_ms) : wall_ms;
	a->known = true;
}

/* What can't be kept now is kept another time. */
static void keep_age(struct sqlite_age *a, sqlite3 *db)
{
	char sql[SQL_SIZE];

	if (a->trusted_ms - a->kept_trusted_ms < KEEP_MS &&
	    a->doubted_ms == a->kept_doubted_ms)
		return;
	snprintf(sql, sizeof(sql),
		 "BEGIN IMMEDIATE; DELETE FROM age; INSERT INTO age VALUES (%" PRId64
		 ", %" PRId64 "); COMMIT",
		 a->trusted_ms, a->doubted_ms);
	if (sqlite_run(db, sql, NULL) < 0) {
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
		return;
	}
	a->kept_trusted_ms = a->trusted_ms;
	a->kept_doubted_ms = a->doubted_ms;
}

int64_t sqlite_age_limit(struct sqlite_age *a, sqlite3 *db, int64_t now_ms,
			 int64_t wall_ms, int64_t max_age_ms)
{
	int64_t passed_ms = a->known ? now_ms - a->now_ms : 0;

	if (a->known && wall_ms - a->wall_ms > passed_ms + DAY_MS)
		a->doubted_ms = 0; /* it jumps once more */
	if (!a->known)
		read_age(a, db, wall_ms);
	if (wall_ms - a->trusted_ms <= passed_ms + DAY_MS) {
		a->trusted_ms = MAX(a->trusted_ms, wall_ms);
		a->doubted_ms = 0;
	} else if (a->doubted_ms == 0 || wall_ms < a->doubted_ms) {
		a->doubted_ms = wall_ms;
	}
	if (a->doubted_ms != 0 && wall_ms - a->doubted_ms >= max_age_ms) {
		a->trusted_ms = wall_ms;
		a->doubted_ms = 0;
	} else if (a->doubted_ms != 0) {
		a->trusted_ms += passed_ms;
	}
	a->now_ms = now_ms;
	a->wall_ms = wall_ms;
	keep_age(a, db);
	/* A clock that is behind makes nothing older. */
	return MIN(a->trusted_ms, wall_ms) - max_age_ms;
}

/* The newest stays: its number is where the next one's begins, and whoever copies rows
 * goes by the numbers. */
int sqlite_let_go(sqlite3 *db, const char *where, int max)
{
	char sql[SQL_SIZE];

	snprintf(sql, sizeof(sql),
		 "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE"
		 " id < (SELECT max(id) FROM event) AND %s LIMIT %d)",
		 where, max);
	return sqlite_run(db, sql, NULL) < 0 ? -1 : sqlite3_changes(db);
}

void sqlite_let_sums_go(sqlite3 *db)
{
	(void)!sqlite_run(
		db,
		"DELETE FROM denied WHERE kind IN (1, 2, 3, 4, 5, 6) AND (hour <"
		" coalesce((SELECT min(ts) FROM event WHERE action = 2),"
		" (SELECT max(ts) FROM event)) / 3600000 OR hour >"
		" (SELECT max(ts) FROM event WHERE action = 2) / 3600000)",
		NULL);
}

/* Tasks of the future go on as of now once no event of the future is left to say that it
 * may be the present that is wrong. */
static void tidy_reviews(sqlite3 *db, int64_t oldest_ms, int64_t wall_ms)
{
	const int64_t future_ms = wall_ms + DAY_MS;
	char sql[SQL_SIZE];

	snprintf(sql, sizeof(sql), "DELETE FROM review WHERE last_ts < %" PRId64,
		 oldest_ms);
	(void)!sqlite_run(db, sql, NULL);
	snprintf(sql, sizeof(sql),
		 "UPDATE review SET first_ts = min(first_ts, %" PRId64
		 "), last_ts = min(last_ts, %" PRId64
		 "), decided_ts = min(decided_ts, %" PRId64 ") WHERE (last_ts > %" PRId64
		 " OR decided_ts > %" PRId64
		 ") AND NOT EXISTS (SELECT 1 FROM event WHERE ts > %" PRId64 ")",
		 wall_ms, wall_ms, wall_ms, future_ms, future_ms, future_ms);
	(void)!sqlite_run(db, sql, NULL);
}

static bool tidy_age(sqlite3 *db, int64_t oldest_ms, int64_t wall_ms)
{
	char where[SQL_SIZE / 2];
	int gone = TIDY_ROWS;

	tidy_reviews(db, oldest_ms, wall_ms);
	/* While the row that is too old is there to tell it. */
	snprintf(where, sizeof(where),
		 "ts > %" PRId64
		 " AND id < (SELECT max(id) FROM event WHERE ts < %" PRId64 ")",
		 wall_ms + DAY_MS, oldest_ms);
	for (int i = 0; i < TIDY_STEPS && gone == TIDY_ROWS; i++)
		gone = sqlite_let_go(db, where, TIDY_ROWS);
	if (gone == TIDY_ROWS)
		return true;
	snprintf(where, sizeof(where), "ts < %" PRId64, oldest_ms);
	gone = TIDY_ROWS;
	for (int i = 0; i < TIDY_STEPS && gone == TIDY_ROWS; i++)
		gone = sqlite_let_go(db, where, TIDY_ROWS);
	return gone == TIDY_ROWS;
}

/* ---- size ---- */

static uint64_t bytes_used(sqlite3 *db)
{
	const int64_t pages = sqlite_number(db, "PRAGMA page_count") -
			      sqlite_number(db, "PRAGMA freelist_count");

	return (uint64_t)MAX(pages, INT64_C(0)) * PAGE_BYTES;
}

bool sqlite_tidy(sqlite3 *db, uint64_t max_bytes, int64_t oldest_ms, int64_t wall_ms)
{
	bool over = true;
	bool more = tidy_age(db, oldest_ms, wall_ms);

	for (int i = 0; i < TIDY_STEPS && over; i++) {
		over = bytes_used(db) > max_bytes;
		if (over && sqlite_let_go(db, "1 ORDER BY id", TIDY_ROWS) <= 0)
			over = false;
	}
	sqlite_let_sums_go(db);
	sqlite3_exec(db, "PRAGMA incremental_vacuum(1000)", NULL, NULL, NULL);
	return more || over;
}

/* ---- sums ---- */

bool sqlite_sum_slice(sqlite3 *db)
{
	const int64_t first = sqlite_number(db, "SELECT next FROM unsummed");
	char sql[SQL_SIZE * 2];

	if (first == 0)
		return false; /* numbers begin at 1 */
	snprintf(sql, sizeof(sql),
		 "BEGIN IMMEDIATE; INSERT INTO denied SELECT kind, ts / 3600000, key,"
		 " sum(packets), count(*), max(ts) FROM denied_written WHERE"
		 " id >= %" PRId64 " AND id < %" PRId64
		 " AND id <= (SELECT last FROM unsummed) AND key IS NOT NULL"
		 " GROUP BY 1, 2, 3 ON CONFLICT DO UPDATE SET packets = packets +"
		 " excluded.packets, rows = rows + excluded.rows, last_ts ="
		 " max(last_ts, excluded.last_ts); UPDATE unsummed SET next = %" PRId64
		 "; DELETE FROM unsummed WHERE next > last; COMMIT",
		 first, first + SLICE_ROWS, first + SLICE_ROWS);
	if (sqlite_run(db, sql, NULL) < 0) {
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
		return false; /* another time */
	}
	return true;
}
