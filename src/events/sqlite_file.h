// SPDX-License-Identifier: Apache-2.0
/* events/sqlite_file - the database file: opened, brought up to date, kept within its
 * size and age, moved aside when it is broken. Used by events/sqlite alone, most of it
 * in its thread. */
#pragma once

#include <sqlite3.h>

#include "events/sqlite.h"

enum { SQLITE_PATH_SIZE = 4096 };

/* A call of SQLite's as -errno: 0 for SQLITE_OK, _ROW and _DONE; -ENOSPC for full,
 * -EBADMSG for a broken file. */
int sqlite_code(sqlite3 *db, int rc);
/* "…: <what SQLite says>". Return: the code. */
int sqlite_fault(sqlite3 *db, int rc, const char *what, struct err *err);
int sqlite_run(sqlite3 *db, const char *sql, struct err *err) MUST_CHECK;
/* The first number of the answer; 0 when there is none. */
int64_t sqlite_number(sqlite3 *db, const char *sql);

/* Return: 0 with an open database, whose tables are of this version, or -errno. */
int sqlite_file_open(const struct sqlite_config *config, sqlite3 **ret,
		     struct err *err) MUST_CHECK;
struct sqlite_inode {
	uint64_t device, number; /* 0: there is no such file */
};
/* Which file has the name now. */
/* The file is shorter than what its first opening writes: somebody has cut it. */
bool sqlite_file_is_cut(const char *directory);
struct sqlite_inode sqlite_file_inode(const char *directory);
/* Rename it and what belongs to it to events.db.broken-<time>; the last two of those
 * stay. The database is closed. */
void sqlite_file_move_aside(const char *directory, int64_t wall_ms);

/* After a full disk: use what was put by for this, let a quarter of the rows go. */
void sqlite_file_make_room(sqlite3 *db, const char *directory);
/* Put by (again) what that needs. Return: false when there is no room for it. */
bool sqlite_file_put_by(const char *directory) MUST_CHECK;
/* A reader that takes its time keeps the log (WAL) from being brought back into the file:
 * it must not grow for ever. Return: 0, or -EBUSY: nothing may be written now. */
int sqlite_file_check_log(sqlite3 *db, const struct sqlite_config *config,
			  struct err *err) MUST_CHECK;

/* ---- for the files that search ---- */

/* @sql as a statement whose time runs from now. Return: 0 or -errno. */
int sqlite_ask(struct sqlite_reader *r, const char *sql, sqlite3_stmt **ret,
	       struct err *err) MUST_CHECK;
/* Return: the code of what a step ended with. */
int sqlite_search_fault(struct sqlite_reader *r, int rc, struct err *err);
