// SPDX-License-Identifier: Apache-2.0
/* A full disk: letting rows go writes to the log (WAL) first, and what is in the log
 * already has to find room in the database. So a file of two megabytes, more than the
 * log brings between two checkpoints, is put by; it is given up to let rows go, and put
 * by again when there is room. */
#include "store/sqlite_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "migrations_sqlite.h" /* generated: migrations[] */

enum {
	BUSY_MS = 2000,
	PUT_BY_BYTES = 2 << 20,
	PAGE_BYTES = 4096,
	TIDY_ROWS = 500, /* in one transaction */
	ROOM_ROWS = 128, /* the same while there is hardly room for the log */
	ROOM_ROWS_MIN = 8,
	TIDY_STEPS = 20, /* at a time */
	ROOM_PARTS = 4,	 /* one of them goes when the disk is full */
};

int sqlite_code(sqlite3 *db, int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_INTERRUPT:
		return -ETIMEDOUT;
	case SQLITE_CANTOPEN:
		return -ENOENT;
	case SQLITE_BUSY:
		return -EBUSY;
	default:
		return db && sqlite3_system_errno(db) == ENOSPC ? -ENOSPC : -EIO;
	}
}

int sqlite_fault(sqlite3 *db, int rc, const char *what, struct err *err)
{
	return err_set(err, sqlite_code(db, rc), "%s: %s", what,
		       db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

int sqlite_run(sqlite3 *db, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0
			       : sqlite_fault(db, rc, "cannot change the database", err);
}

static int64_t number_of(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *s = NULL;
	int64_t n = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		n = sqlite3_column_int64(s, 0);
	sqlite3_finalize(s);
	return n;
}

/* ---- opening ---- */

static int bring_up_to_date(sqlite3 *db, struct err *err)
{
	const int64_t version = number_of(db, "PRAGMA user_version");
	char sql[64];
	int r = 0;

	if (version > (int64_t)ARRAY_SIZE(migrations))
		return err_set(err, -EPROTO,
			       "the database is of a newer Weir (version %" PRId64 ")",
			       version);
	for (size_t i = (size_t)version; i < ARRAY_SIZE(migrations) && r == 0; i++) {
		snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu; COMMIT", i + 1);
		r = sqlite_run(db, "BEGIN IMMEDIATE", err);
		if (r == 0)
			r = sqlite_run(db, migrations[i], err);
		if (r == 0)
			r = sqlite_run(db, sql, err);
	}
	return r;
}

static int set_up(sqlite3 *db, uint64_t max_bytes, struct err *err)
{
	char sql[512];

	sqlite3_busy_timeout(db, BUSY_MS);
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	/* page_size and auto_vacuum count for a new file only. The size is a second
	 * line: tidying keeps well below it. */
	snprintf(sql, sizeof(sql),
		 "PRAGMA page_size = %d; PRAGMA auto_vacuum = INCREMENTAL;"
		 "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
		 "PRAGMA cache_size = -512; PRAGMA wal_autocheckpoint = 250;"
		 "PRAGMA journal_size_limit = 1048576; PRAGMA temp_store = MEMORY;"
		 "PRAGMA max_page_count = %" PRIu64,
		 PAGE_BYTES, max_bytes / PAGE_BYTES * 5 / 4);
	return sqlite_run(db, sql, err);
}

static int make_file(const char *directory, char *path, struct err *err)
{
	CLEAN(fd) int fd = -1;

	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s'", directory);
	snprintf(path, SQLITE_PATH_SIZE, "%s/events.db", directory);
	/* With a mode that SQLite doesn't choose. */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	return fd < 0 ? err_sys(err, -errno, "cannot open '%s'", path) : 0;
}

int sqlite_file_open(const char *directory, uint64_t max_bytes, sqlite3 **ret,
		     struct err *err)
{
	char path[SQLITE_PATH_SIZE];
	sqlite3 *db = NULL;
	int r, rc;

	r = make_file(directory, path, err);
	if (r < 0)
		return r;
	rc = sqlite3_open_v2(
		path, &db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
	if (rc != SQLITE_OK)
		r = sqlite_fault(db, rc, "cannot open the database", err);
	if (r == 0)
		r = set_up(db, max_bytes, err);
	if (r == 0)
		r = bring_up_to_date(db, err);
	if (r < 0) {
		sqlite3_close(db);
		return r;
	}
	*ret = db;
	return 0;
}

void sqlite_file_move_aside(const char *directory, int64_t wall_ms)
{
	static const char *const suffixes[] = { "", "-wal", "-shm" };
	char from[SQLITE_PATH_SIZE], to[SQLITE_PATH_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		snprintf(from, sizeof(from), "%s/events.db%s", directory, suffixes[i]);
		snprintf(to, sizeof(to), "%s/events.db.broken-%" PRId64 "%s", directory,
			 wall_ms, suffixes[i]);
		(void)rename(from, to); /* the next opening says what is wrong */
	}
}

/* ---- size and age ---- */

static uint64_t bytes_used(sqlite3 *db)
{
	const int64_t pages = number_of(db, "PRAGMA page_count") -
			      number_of(db, "PRAGMA freelist_count");

	return (uint64_t)MAX(pages, INT64_C(0)) * PAGE_BYTES;
}

/* Return: how many went; < 0 when none could. The newest stays: its number is where the
 * next one's begins, and whoever copies rows goes by the numbers. */
static int let_go(sqlite3 *db, const char *where, int max)
{
	char sql[256];

	snprintf(sql, sizeof(sql),
		 "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE"
		 " id < (SELECT max(id) FROM event) AND %s LIMIT %d)",
		 where, max);
	return sqlite_run(db, sql, NULL) < 0 ? -1 : sqlite3_changes(db);
}

/* The sums of hours whose events are all gone. */
static void let_sums_go(sqlite3 *db)
{
	(void)!sqlite_run(db,
			  "DELETE FROM denied WHERE kind IN (1, 2, 3, 4, 5, 6) AND hour <"
			  " coalesce((SELECT min(ts) FROM event WHERE action = 2),"
			  " (SELECT max(ts) FROM event)) / 3600000",
			  NULL);
}

bool sqlite_file_tidy(sqlite3 *db, uint64_t max_bytes, int64_t oldest_ms)
{
	char old[96];
	int gone = TIDY_ROWS;
	bool over = true;

	snprintf(old, sizeof(old), "DELETE FROM review WHERE last_ts < %" PRId64,
		 oldest_ms);
	(void)!sqlite_run(db, old, NULL);
	snprintf(old, sizeof(old), "ts < %" PRId64, oldest_ms);
	for (int i = 0; i < TIDY_STEPS && gone == TIDY_ROWS; i++)
		gone = let_go(db, old, TIDY_ROWS);
	for (int i = 0; i < TIDY_STEPS && over; i++) {
		over = bytes_used(db) > max_bytes;
		if (over && let_go(db, "1 ORDER BY id", TIDY_ROWS) <= 0)
			over = false;
	}
	let_sums_go(db);
	sqlite3_exec(db, "PRAGMA incremental_vacuum(1000)", NULL, NULL, NULL);
	return gone == TIDY_ROWS || over;
}

static void put_by_path(const char *directory, char *buf)
{
	snprintf(buf, SQLITE_PATH_SIZE, "%s/events.spare", directory);
}

void sqlite_file_put_by(const char *directory)
{
	char path[SQLITE_PATH_SIZE];
	CLEAN(fd) int fd = -1;

	put_by_path(directory, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd >= 0 && posix_fallocate(fd, 0, PUT_BY_BYTES) != 0)
		unlink(path); /* there is no room: it would be half a promise */
}

static void checkpoint(sqlite3 *db)
{
	sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

void sqlite_file_make_room(sqlite3 *db, const char *directory)
{
	int64_t rows = number_of(db, "SELECT count(*) FROM event") / ROOM_PARTS + 1;
	char path[SQLITE_PATH_SIZE];
	int gone, max = ROOM_ROWS;

	put_by_path(directory, path);
	unlink(path);
	checkpoint(db);
	while (rows > 0 && max >= ROOM_ROWS_MIN) {
		gone = let_go(db, "1 ORDER BY id", max);
		checkpoint(db);
		if (gone == 0)
			break;
		if (gone < 0)
			max /= 2;
		else
			rows -= gone;
	}
	let_sums_go(db);
}
