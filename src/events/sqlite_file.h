// SPDX-License-Identifier: Apache-2.0
/* events/sqlite_file - the database file: opened, brought up to date, kept within its
 * size and age, moved aside when it is broken. Used by events/sqlite alone, most of it
 * in its thread.
 *
 * HOW AGE IS TOLD
 * Rows carry the wall clock, which is set now and then, wrongly at times, and may be
 * wrong over any number of restarts. So
 * - age is counted from a time that has surely come, which the store keeps (table `age`).
 *   It follows the wall clock by no more than the time that passed meanwhile and a day.
 *   When the clock is further ahead, the machine was away for long or the clock is wrong:
 *   the time that has surely come goes on with the time that passes, and jumps to the
 *   clock only when that has gone on for as long as rows are kept, without another jump;
 * - a row of the future has no age. Numbers grow with time whatever the clock says: it
 *   goes when a row that was written after it is too old;
 * - a clock that is behind makes all rows ones of the future, and none goes. */
#pragma once

#include <sqlite3.h>

#include "events/review.h"
#include "events/sqlite.h"

enum { SQLITE_PATH_SIZE = 4096 };

/* "…: <what SQLite says>". Return: @rc as -errno: 0 for SQLITE_OK, _ROW and _DONE;
 * -ENOSPC for full, -EBADMSG for a broken file, or rows that Weir can't go on from. */
int sqlite_fault(sqlite3 *db, int rc, const char *what, struct err *err);
int sqlite_run(sqlite3 *db, const char *sql, struct err *err) MUST_CHECK;
/* The first number of the answer; 0 when there is none. */
int64_t sqlite_number(sqlite3 *db, const char *sql);

/* Return: 0 with an open database, whose tables are of this version; -EBADMSG: it is
 * broken, has a trigger, an index or a table that isn't as Weir made it, or rows that
 * Weir did not write; or another -errno. */
int sqlite_file_open(const struct sqlite_config *config, sqlite3 **ret,
		     struct err *err) MUST_CHECK;
struct sqlite_inode {
	uint64_t device, number; /* 0: there is no such file */
};
/* Which file has the name now. */
struct sqlite_inode sqlite_file_inode(const char *directory);
/* The file is shorter than what its first opening writes: somebody has cut it. */
bool sqlite_file_is_cut(const char *directory);
/* Rename the file @broken and what belongs to it to events.db.broken-<time>; the last two
 * of those stay. The database is closed. Return: false when the name is another file's by
 * now. */
bool sqlite_file_move_aside(const char *directory, const struct sqlite_inode *broken,
			    int64_t wall_ms) MUST_CHECK;
bool sqlite_same_inode(const struct sqlite_inode *a, const struct sqlite_inode *b);

/* After a full disk: use what was put by for this, let as many rows go as are a
 * quarter, of the sandboxes that have most. Return: 0, also when less was let go;
 * -EBADMSG: the sums have no number, so none can go. */
int sqlite_file_make_room(sqlite3 *db, const char *directory) MUST_CHECK;
/* Put by (again) what that needs. Return: false when there is no room for it. */
bool sqlite_file_put_by(const char *directory) MUST_CHECK;
/* A reader that takes its time keeps the log (WAL) from being brought back into the file:
 * it must not grow for ever. Return: 0, or -EBUSY: nothing may be written now. */
int sqlite_file_check_log(sqlite3 *db, const struct sqlite_config *config,
			  struct err *err) MUST_CHECK;

/* ---- between two batches ---- */

struct sqlite_age {
	bool known;
	int64_t now_ms, wall_ms; /* at the last look */
	int64_t trusted_ms, doubted_ms;
	int64_t kept_trusted_ms, kept_doubted_ms; /* in the store */
};

/* Return: the time before which rows are too old. */
int64_t sqlite_age_limit(struct sqlite_age *a, sqlite3 *db, int64_t now_ms,
			 int64_t wall_ms, int64_t max_age_ms);

/* Let rows and review tasks go that are older than @oldest_ms, and the oldest of the
 * sandboxes that have most until the file is within @max_bytes. Some steps at a time;
 * returns true when there is more to do. */
bool sqlite_tidy(sqlite3 *db, uint64_t max_bytes, int64_t oldest_ms, int64_t wall_ms);
/* What is kept in sums: of events ?1 to ?2, by their numbers. @take is what the events in
 * table `gone` had added. */
enum { SQLITE_SUMS = 3 };
extern const struct sqlite_sums {
	const char *sql, *take;
} sqlite_sums[SQLITE_SUMS];

/* ---- for the files that search ---- */

/* The database of @directory as it is. *@ret is to be closed, whatever is returned.
 * Return: 0, -ENOENT when there is none, -EAGAIN when it has not all its tables yet,
 * -EBADMSG as above, or another -errno. */
int sqlite_file_use(const char *directory, int busy_ms, sqlite3 **ret,
		    struct err *err) MUST_CHECK;
/* The text of a column, "" for NULL, cut to @size. */
void sqlite_read_text(sqlite3_stmt *s, int column, char *buf, size_t size);
/* What was seen of a task, in nine columns from @column on: sandbox, destination,
 * is_name, port, protocol, packets, rows, and the first and last time. review.c. */
void review_read_seen(sqlite3_stmt *s, int column, struct review *t);

/* A statement that a local owns. */
DEFINE_CLEAN(statement, sqlite3_stmt *, sqlite3_finalize)
/* What a parameter of a statement is, in order of their numbers. */
struct sqlite_value {
	bool is_number;
	int64_t number;
	const char *text; /* NULL: null; copied */
};
#define NUMBER(n) ((struct sqlite_value){ .is_number = true, .number = (int64_t)(n) })
#define TEXT(t)	  ((struct sqlite_value){ .text = (t) })
/* A list of them as two arguments. */
#define WITH(...)                                                                        \
	(const struct sqlite_value[]){ __VA_ARGS__ },                                    \
		ARRAY_SIZE(((const struct sqlite_value[]){ __VA_ARGS__ }))
/* Values beyond the parameters of @s are passed over. */
void sqlite_bind(sqlite3_stmt *s, const struct sqlite_value *values, size_t count);
/* @sql with @values, whatever is returned to be finalized. Return: a code of SQLite's. */
int sqlite_ask(sqlite3 *db, const char *sql, const struct sqlite_value *values,
	       size_t count, sqlite3_stmt **ret) MUST_CHECK;
