// SPDX-License-Identifier: Apache-2.0
/* A full disk: letting rows go writes to the log (WAL) first, and what is in the log
 * already has to find room in the database. So a file of two megabytes, more than the
 * log brings between two checkpoints, is put by; it is given up to let rows go, and put
 * by again when there is room. */
#include "events/sqlite_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "events/migrations_sqlite.h" /* generated: migrations[] */
#include "events/schema_sqlite.h"     /* generated: schema[] */
#include "sys/files.h"

enum {
	BUSY_MS = 2000,
	LOCK_MS = 10, /* between tries */
	PUT_BY_BYTES = 2 << 20,
	LOG_BYTES_MIN = 8 << 20, /* or an eighth of the file's size */
	PAGE_BYTES = 4096,
	ROOM_ROWS = 64, /* in one transaction, while there is hardly room for the log */
	ROOM_ROWS_MIN = 8,
	ROOM_PARTS = 4, /* one of them goes when the disk is full */
	BROKEN_MAX = 2, /* files that were moved aside; older ones go */
	SQL_SIZE = 512,
	TIDY_ROWS = 500, /* in one transaction */
	TIDY_STEPS = 20, /* at a time, which is no longer than: */
	TIDY_MS = 250,	 /* what comes meanwhile has to be written as well */
	KEEP_MS = 60 * 60 * 1000,
};
#define DAY_MS	       INT64_C(86400000)
#define NEWEST_VERSION ((int64_t)(FIRST_VERSION + ARRAY_SIZE(migrations) - 1))

/* A call of SQLite's as -errno: 0 for SQLITE_OK, _ROW and _DONE; -ENOSPC for full,
 * -EBADMSG for a broken file. */
static int sqlite_code(sqlite3 *db, int rc)
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
	/* Weir's statements suit Weir's tables, and what Weir writes there. They fail
	 * like this for what somebody else wrote, and would fail each time. */
	case SQLITE_CONSTRAINT:
	case SQLITE_MISMATCH:
	case SQLITE_ERROR:
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
	/* SQLite says "unable to open database file", whatever is the matter with it. */
	int error = db && (rc & 0xff) == SQLITE_CANTOPEN ? sqlite3_system_errno(db) : 0;

	return err_set(err, sqlite_code(db, rc), "%s: %s", what,
		       error != 0 ? strerror(error)
		       : db	  ? sqlite3_errmsg(db)
				  : sqlite3_errstr(rc));
}

int sqlite_run(sqlite3 *db, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0
			       : sqlite_fault(db, rc, "cannot change the database", err);
}

int64_t sqlite_number(sqlite3 *db, const char *sql)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;

	if (sqlite_ask(db, sql, NULL, 0, &s) == SQLITE_OK &&
	    sqlite3_step(s) == SQLITE_ROW)
		return sqlite3_column_int64(s, 0);
	return 0;
}

void sqlite_bind(sqlite3_stmt *s, const struct sqlite_value *values, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (values[i].is_number)
			sqlite3_bind_int64(s, (int)i + 1, values[i].number);
		else
			sqlite3_bind_text(s, (int)i + 1, values[i].text, -1,
					  SQLITE_TRANSIENT);
}

int sqlite_ask(sqlite3 *db, const char *sql, const struct sqlite_value *values,
	       size_t count, sqlite3_stmt **ret)
{
	int rc = sqlite3_prepare_v2(db, sql, -1, ret, NULL);

	if (rc == SQLITE_OK)
		sqlite_bind(*ret, values, count);
	return rc;
}

/* ---- opening ---- */

/* 0: it has no tables. Below: it is broken, as migrate() says. */
static bool is_behind(int64_t version)
{
	return version <= 0 || (version >= FIRST_VERSION && version < NEWEST_VERSION);
}

/* One version, unless another writer was there first: @ret_version is what there is
 * then. */
static int migrate(sqlite3 *db, int64_t *ret_version, struct err *err)
{
	char sql[64];
	int64_t version;
	int r = sqlite_run(db, "BEGIN IMMEDIATE", err);

	if (r < 0)
		return r;
	version = sqlite_number(db, "PRAGMA user_version");
	if (version < 0)
		return err_set(err, -EBADMSG, "the database has no version");
	if (is_behind(version)) {
		version = MAX(version + 1, (int64_t)FIRST_VERSION);
		r = sqlite_run(db, migrations[version - FIRST_VERSION], err);
	}
	snprintf(sql, sizeof(sql), "PRAGMA user_version = %" PRId64 "; COMMIT", version);
	if (r == 0)
		r = sqlite_run(db, sql, err);
	*ret_version = version;
	return r;
}

/* Return: 0, -EPROTO: newer, or older than any release; -EAGAIN: older, as it is while a
 * writer makes it. */
static int check_version(int64_t version, struct err *err)
{
	if (version > 0 && version < FIRST_VERSION)
		return err_set(err, -EPROTO,
			       "the database is of a Weir before 0.1.0 (version %" PRId64
			       "): move its directory away",
			       version);
	if (version > NEWEST_VERSION)
		return err_set(err, -EPROTO,
			       "the database is of a newer Weir (version %" PRId64 ")",
			       version);
	if (version < NEWEST_VERSION)
		return err_set(err, -EAGAIN,
			       "the database is being made, or is of an older Weir "
			       "(version %" PRId64 ")",
			       version);
	return 0;
}

/* ---- is it Weir's own? ---- */

/* A database's schema is code, which whoever writes to it runs: a trigger drops or
 * changes what is written, an index or a constraint refuses it. Where a command could
 * write to a store's directory, in a run that didn't keep its events there, the schema
 * may be the command's. So what Weir made has to be there as Weir made it, and besides
 * nothing but tables and views, which Weir never uses.
 *
 * The rows may be the command's as well. Most that Weir can't go on from make the next
 * statement fail. check_rows() finds those which would make nothing fail, and hide what
 * is written. */

static bool is_text(sqlite3_stmt *s, int column, const char *expected)
{
	const char *text = (const char *)sqlite3_column_text(s, column);

	return text && expected ? strcmp(text, expected) == 0 : text == expected;
}

/* A table or a view, or what SQLite makes for a table's constraints. */
static bool is_beside(sqlite3_stmt *s)
{
	const struct text name = text_of((const char *)sqlite3_column_text(s, 1) ?: ""),
			  sql = text_of((const char *)sqlite3_column_text(s, 3) ?: "");

	return text_matches("CREATE TABLE *", sql, false) ||
	       text_matches("CREATE VIEW *", sql, false) ||
	       (sql.len == 0 && text_matches("sqlite_autoindex_*", name, false));
}

/* Without a row in review_number no task opens. An event behind the highest number gets
 * any number. */
static int check_rows(sqlite3 *db, struct err *err)
{
	static const char sql[] =
		"SELECT (SELECT count(*) FROM (SELECT 1 FROM store LIMIT 2)) = 1 AND"
		" (SELECT count(*) FROM (SELECT 1 FROM review_change LIMIT 2)) = 1 AND"
		" (SELECT count(*) FROM (SELECT 1 FROM review_number LIMIT 2)) = 1 AND"
		" (SELECT coalesce(max(id), 0) < 1 << 62 FROM event)";
	CLEAN(statement) sqlite3_stmt *s = NULL;
	int rc = sqlite_ask(db, sql, NULL, 0, &s);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	if (rc != SQLITE_ROW)
		return sqlite_fault(db, rc, "cannot read the database", err);
	return sqlite3_column_int(s, 0) == 1
		       ? 0
		       : err_set(err, -EBADMSG,
				 "the database has rows that Weir did not write");
}

/* Not by the name sqlite_schema, which a table may have that takes its place. */
static int check_schema(sqlite3 *db, struct err *err)
{
	static const char sql[] = "SELECT type, name, tbl_name, sql FROM sqlite_master";
	bool seen[ARRAY_SIZE(schema)] = { false };
	CLEAN(statement) sqlite3_stmt *s = NULL;
	size_t count = 0, row;
	int rc = sqlite_ask(db, sql, NULL, 0, &s);

	while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		rc = SQLITE_OK;
		for (row = 0; row < ARRAY_SIZE(schema); row++)
			if (is_text(s, 0, schema[row].type) &&
			    is_text(s, 1, schema[row].name) &&
			    is_text(s, 2, schema[row].table) &&
			    is_text(s, 3, schema[row].sql))
				break;
		if (row < ARRAY_SIZE(schema) && !seen[row])
			count += seen[row] = true;
		else if (row < ARRAY_SIZE(schema) || !is_beside(s))
			return err_set(
				err, -EBADMSG,
				"the database has '%s', which Weir did not make, or "
				"made otherwise",
				SHOWN((const char *)sqlite3_column_text(s, 1) ?: ""));
	}
	if (rc != SQLITE_DONE)
		return sqlite_fault(db, rc, "cannot read the database", err);
	return count < ARRAY_SIZE(schema)
		       ? err_set(err, -EBADMSG,
				 "the database lacks what Weir has made there")
		       : check_rows(db, err);
}

/* *@ret is to be closed, whatever is returned. */
static int open_path(const char *path, int busy_ms, sqlite3 **ret)
{
	int rc = sqlite3_open_v2(
		path, ret,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_busy_timeout(*ret, busy_ms);
	sqlite3_db_config(*ret, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(*ret, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return rc;
}

static int make_file(const struct sqlite_config *config, char *path, struct err *err)
{
	/* With a mode that SQLite doesn't choose. */
	const struct file_how how = { .flags = O_RDWR | O_CREAT,
				      .mode = 0600,
				      .anybodys = true,
				      .own = config->shared };
	CLEAN(fd) int fd = -1;

	snprintf(path, SQLITE_PATH_SIZE, "%s/events.db", config->directory);
	fd = file_open(AT_FDCWD, path, &how, err);
	return fd < 0 ? fd : 0;
}

/* Whoever opens the file shares the directory with those that open it too; whoever moves
 * it aside has the directory alone, so that nobody makes another file, or its log, of
 * what is half moved. A file system that locks no directories has one writer. And whoever
 * may read the directory may lock it: what is held for longer than Weir ever does keeps
 * no event from being written. Return: a descriptor that is the lock, or -errno. */
static int lock_directory(const char *directory, int how, struct err *err)
{
	CLEAN(fd) int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_sys(err, -errno, "cannot open '%s'", directory);
	for (int i = 0; i < BUSY_MS / LOCK_MS && flock(fd, how | LOCK_NB) < 0 &&
			errno == EWOULDBLOCK;
	     i++)
		(void)!poll(NULL, 0, LOCK_MS);
	return TAKE_FD(fd);
}

int sqlite_file_open(const struct sqlite_config *config, sqlite3 **ret, struct err *err)
{
	/* A log (WAL) that is there has its index in the memory of who has the file
	 * alone, and in a file that all map otherwise. */
	static const char rollback[] =
		"PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE;"
		"PRAGMA locking_mode = NORMAL";
	char path[SQLITE_PATH_SIZE], sql[SQL_SIZE];
	CLEAN(fd) int lock = -1;
	sqlite3 *db = NULL;
	int64_t version = 0;
	int r = 0, rc;

	if (mkdir(config->directory, 0700) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s'", config->directory);
	lock = lock_directory(config->directory, LOCK_SH, err);
	if (lock >= 0)
		r = make_file(config, path, err);
	if (lock < 0 || r < 0)
		return lock < 0 ? lock : r;
	rc = open_path(path, BUSY_MS, &db);
	if (rc != SQLITE_OK)
		r = sqlite_fault(db, rc, "cannot open the database", err);
	/* page_size and auto_vacuum count for a new file only. The size is a second
	 * line: tidying keeps well below it. */
	snprintf(sql, sizeof(sql),
		 "PRAGMA page_size = %d; PRAGMA auto_vacuum = INCREMENTAL;"
		 "%s; PRAGMA synchronous = %s;"
		 "PRAGMA cache_size = -512; PRAGMA wal_autocheckpoint = 250;"
		 "PRAGMA journal_size_limit = 1048576; PRAGMA temp_store = MEMORY;"
		 "PRAGMA max_page_count = %" PRIu64,
		 PAGE_BYTES, config->shared ? rollback : "PRAGMA journal_mode = WAL",
		 config->durable ? "FULL" : "NORMAL",
		 config->max_bytes / PAGE_BYTES * 5 / 4);
	if (r == 0)
		r = sqlite_run(db, sql, err);
	if (r == 0)
		version = sqlite_number(db, "PRAGMA user_version");
	while (r == 0 && is_behind(version))
		r = migrate(db, &version, err);
	if (r == 0)
		r = check_version(version, err);
	if (r == 0)
		r = check_schema(db, err);
	if (r < 0)
		sqlite3_close(db); /* with the transaction that may be open */
	else
		*ret = db;
	return r;
}

/* All zero where there is no such file. */
static struct stat stat_of(const char *directory, const char *suffix)
{
	char path[SQLITE_PATH_SIZE];
	struct stat st;

	snprintf(path, sizeof(path), "%s/events.db%s", directory, suffix);
	return stat(path, &st) == 0 ? st : (struct stat){ 0 };
}

bool sqlite_file_is_cut(const char *directory)
{
	const struct stat st = stat_of(directory, "");

	return st.st_ino != 0 && st.st_size < PAGE_BYTES;
}

struct sqlite_inode sqlite_file_inode(const char *directory)
{
	const struct stat st = stat_of(directory, "");

	return (struct sqlite_inode){ st.st_dev, st.st_ino };
}

/* Names of one length, whose numbers are times: the smallest is the oldest. */
static size_t find_broken(const char *directory, char *ret_oldest, size_t size)
{
	static const char prefix[] = "events.db.broken-";
	CLEAN(directory) DIR *dir = opendir(directory);
	const struct dirent *e;
	size_t count = 0;

	ret_oldest[0] = '\0';
	while (dir && (e = readdir(dir))) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
		    strspn(e->d_name + strlen(prefix), "0123456789") !=
			    strlen(e->d_name + strlen(prefix)))
			continue;
		count++;
		if (!ret_oldest[0] || strcmp(e->d_name, ret_oldest) < 0)
			snprintf(ret_oldest, size, "%s", e->d_name);
	}
	return count;
}

static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };

bool sqlite_same_inode(const struct sqlite_inode *a, const struct sqlite_inode *b)
{
	return a->number != 0 && a->number == b->number && a->device == b->device;
}

bool sqlite_file_move_aside(const char *directory, const struct sqlite_inode *broken,
			    int64_t wall_ms)
{
	CLEAN(fd) int lock = lock_directory(directory, LOCK_EX, NULL);
	const struct sqlite_inode there = sqlite_file_inode(directory);
	char from[SQLITE_PATH_SIZE], to[SQLITE_PATH_SIZE], oldest[NAME_MAX + 1];

	if (lock < 0 || !sqlite_same_inode(&there, broken))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		snprintf(from, sizeof(from), "%s/events.db%s", directory, suffixes[i]);
		snprintf(to, sizeof(to), "%s/events.db.broken-%" PRId64 "%s", directory,
			 wall_ms, suffixes[i]);
		(void)rename(from, to); /* the next opening says what is wrong */
	}
	/* A disk that breaks each file must not be filled by them. */
	while (find_broken(directory, oldest, sizeof(oldest)) > BROKEN_MAX) {
		for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
			snprintf(from, sizeof(from), "%s/%s%s", directory, oldest,
				 suffixes[i]);
			if (unlink(from) < 0 && i == 0)
				return true;
		}
	}
	return true;
}

/* ---- room ---- */

static void put_by_path(const char *directory, char *buf)
{
	snprintf(buf, SQLITE_PATH_SIZE, "%s/events.spare", directory);
}

bool sqlite_file_put_by(const char *directory)
{
	char path[SQLITE_PATH_SIZE];
	CLEAN(fd) int fd = -1;

	put_by_path(directory, path);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd >= 0 && posix_fallocate(fd, 0, PUT_BY_BYTES) == 0)
		return true;
	unlink(path); /* half a promise */
	return false;
}

static uint64_t log_bytes(const char *directory)
{
	return (uint64_t)stat_of(directory, "-wal").st_size;
}

static void checkpoint(sqlite3 *db)
{
	sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

int sqlite_file_check_log(sqlite3 *db, const struct sqlite_config *config,
			  struct err *err)
{
	const uint64_t max = MAX(config->max_bytes / 8, (uint64_t)LOG_BYTES_MIN);

	if (log_bytes(config->directory) <= max)
		return 0;
	sqlite3_busy_timeout(db, 0);
	checkpoint(db);
	sqlite3_busy_timeout(db, BUSY_MS);
	if (log_bytes(config->directory) <= max)
		return 0;
	return err_set(err, -EBUSY,
		       "the log of the database is full: another process reads it and "
		       "doesn't end");
}

/* ---- sums ---- */

/* Rows that go. */
#define GONE "(SELECT id FROM temp.gone)"

const struct sqlite_sums sqlite_sums[SQLITE_SUMS] = {
	{ .sql = "INSERT INTO denied SELECT kind, ts / 3600000, key, sum(packets),"
		 " count(*), max(ts) FROM denied_written WHERE id >= ?1 AND id <= ?2 AND"
		 " key IS NOT NULL GROUP BY 1, 2, 3 ON CONFLICT DO UPDATE SET packets ="
		 " packets + excluded.packets, rows = rows + excluded.rows, last_ts ="
		 " max(last_ts, excluded.last_ts)",
	  .take = "UPDATE denied AS d SET packets = d.packets - g.packets, rows = d.rows"
		  " - g.rows FROM (SELECT kind, ts / 3600000 AS hour, key, sum(packets)"
		  " AS packets, count(*) AS rows FROM denied_written WHERE key IS NOT"
		  " NULL AND id IN " GONE " GROUP BY 1, 2, 3) AS g"
		  " WHERE d.kind = g.kind AND d.hour = g.hour AND d.key = g.key;"
		  "DELETE FROM denied WHERE rows <= 0 AND kind IN (1, 2, 3, 4, 5, 6) AND"
		  " hour IN (SELECT ts / 3600000 FROM event WHERE id IN " GONE ") AND"
		  " key IN (SELECT key FROM denied_written WHERE id IN " GONE ")" },
	{ .sql = "INSERT INTO allowed SELECT kind, ts / 3600000, key, sum(packets),"
		 " sum(bytes), count(*), max(ts) FROM allowed_written WHERE id >= ?1 AND"
		 " id <= ?2 AND key IS NOT NULL GROUP BY 1, 2, 3 ON CONFLICT DO UPDATE"
		 " SET packets = packets + excluded.packets, bytes = bytes +"
		 " excluded.bytes, rows = rows + excluded.rows, last_ts = max(last_ts,"
		 " excluded.last_ts)",
	  .take = "UPDATE allowed AS d SET packets = d.packets - g.packets, bytes ="
		  " d.bytes - g.bytes, rows = d.rows - g.rows FROM (SELECT kind, ts /"
		  " 3600000 AS hour, key, sum(packets) AS packets, sum(bytes) AS bytes,"
		  " count(*) AS rows FROM allowed_written WHERE key IS NOT NULL AND id"
		  " IN " GONE " GROUP BY 1, 2, 3) AS g"
		  " WHERE d.kind = g.kind AND d.hour = g.hour AND d.key = g.key;"
		  "DELETE FROM allowed WHERE rows <= 0 AND kind IN (1, 2, 3, 4) AND hour"
		  " IN (SELECT ts / 3600000 FROM event WHERE id IN " GONE ") AND key IN"
		  " (SELECT key FROM allowed_written WHERE id IN " GONE ")" },
	{ .sql = "INSERT INTO activity SELECT scope, ts / 60000, action, sum(packets),"
		 " sum(bytes) FROM activity_written WHERE id >= ?1 AND id <= ?2 GROUP BY"
		 " 1, 2, 3 ON CONFLICT DO UPDATE SET packets = packets +"
		 " excluded.packets, bytes = bytes + excluded.bytes",
	  .take = "UPDATE activity AS d SET packets = d.packets - g.packets, bytes ="
		  " d.bytes - g.bytes FROM (SELECT scope, ts / 60000 AS minute, action,"
		  " sum(packets) AS packets, sum(bytes) AS bytes FROM activity_written"
		  " WHERE id IN " GONE " GROUP BY 1, 2, 3) AS g"
		  " WHERE d.scope = g.scope AND d.minute = g.minute AND d.action ="
		  " g.action;"
		  "DELETE FROM activity INDEXED BY activity_by_minute WHERE packets <= 0"
		  " AND bytes <= 0 AND minute IN (SELECT ts / 60000 FROM event WHERE id"
		  " IN " GONE ")" },
};

/* ---- what goes ---- */

/* The newest stays: its number is where the next one's begins, and whoever copies rows
 * goes by the numbers. Return: how many went, or -errno: none. */
static int sqlite_let_go(sqlite3 *db, const char *where, int max)
{
	char sql[SQL_SIZE];
	int gone, r;

	snprintf(sql, sizeof(sql),
		 "CREATE TEMP TABLE IF NOT EXISTS gone (id INTEGER PRIMARY KEY);"
		 "DELETE FROM temp.gone; BEGIN IMMEDIATE;"
		 "INSERT INTO temp.gone SELECT id FROM event WHERE"
		 " id < (SELECT max(id) FROM event) AND %s LIMIT %d",
		 where, max);
	r = sqlite_run(db, sql, NULL);
	/* What the sums have of them, and the rows. */
	for (size_t i = 0; i < SQLITE_SUMS && r == 0; i++)
		r = sqlite_run(db, sqlite_sums[i].take, NULL);
	if (r == 0)
		r = sqlite_run(db, "DELETE FROM event WHERE id IN " GONE, NULL);
	gone = sqlite3_changes(db);
	if (r == 0)
		r = sqlite_run(db, "COMMIT", NULL);
	if (r == 0)
		return gone;
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

/* WHOSE ROWS GO WHEN THERE ARE TOO MANY
 * The oldest of the sandboxes that have most, of more than half as many as the first of
 * them: one that is refused all the time pushes out its own rows, and nobody else's.
 * Table `many` has their numbers. */
#define OF_MANY "id IN (SELECT id FROM temp.many)"

static int find_many(sqlite3 *db, int64_t max)
{
	char sql[SQL_SIZE];

	snprintf(sql, sizeof(sql),
		 "CREATE TEMP TABLE IF NOT EXISTS many (id INTEGER PRIMARY KEY);"
		 "DELETE FROM temp.many; INSERT INTO temp.many"
		 " WITH had AS MATERIALIZED (SELECT sandbox, count(*) AS n FROM event"
		 " GROUP BY sandbox) SELECT id FROM event NOT INDEXED WHERE sandbox IN"
		 " (SELECT sandbox FROM had WHERE n * 2 > (SELECT max(n) FROM had))"
		 " ORDER BY id LIMIT %" PRId64,
		 max);
	return sqlite_run(db, sql, NULL);
}

/* The sums of hours and minutes whose events are all gone. */
static void sqlite_let_sums_go(sqlite3 *db)
{
	(void)!sqlite_run(
		db,
		"DELETE FROM denied WHERE kind IN (1, 2, 3, 4, 5, 6) AND (hour <"
		" coalesce((SELECT min(ts) FROM event WHERE action = 2),"
		" (SELECT max(ts) FROM event)) / 3600000 OR hour >"
		" (SELECT max(ts) FROM event WHERE action = 2) / 3600000)",
		NULL);
	(void)!sqlite_run(
		db,
		"DELETE FROM allowed WHERE kind IN (1, 2, 3, 4) AND (hour <"
		" coalesce((SELECT min(ts) FROM event WHERE action = 1),"
		" (SELECT max(ts) FROM event)) / 3600000 OR hour >"
		" (SELECT max(ts) FROM event WHERE action = 1) / 3600000);"
		"DELETE FROM activity WHERE minute < (SELECT min(ts) FROM event) / 60000;"
		"DELETE FROM activity WHERE minute > (SELECT max(ts) FROM event) / 60000",
		NULL);
}

int sqlite_file_make_room(sqlite3 *db, const char *directory)
{
	int64_t rows = sqlite_number(db, "SELECT count(*) FROM event") / ROOM_PARTS + 1;
	char path[SQLITE_PATH_SIZE];
	int gone, max = ROOM_ROWS;

	put_by_path(directory, path);
	unlink(path);
	checkpoint(db);
	if (find_many(db, rows) < 0)
		return 0;
	while (rows > 0 && max >= ROOM_ROWS_MIN) {
		gone = sqlite_let_go(db, OF_MANY, max);
		checkpoint(db);
		if (gone == -EBADMSG)
			return gone;
		if (gone == 0)
			break;
		if (gone < 0)
			max /= 2;
		else
			rows -= gone;
	}
	sqlite_let_sums_go(db);
	return 0;
}

/* ---- for the files that search ---- */

int sqlite_file_use(const char *directory, int busy_ms, sqlite3 **ret, struct err *err)
{
	char path[SQLITE_PATH_SIZE];
	int64_t version, until_ms;
	int r, rc;

	snprintf(path, sizeof(path), "%s/events.db", directory);
	/* Not read-only: the log's index is shared memory that a reader writes. */
	rc = open_path(path, busy_ms, ret);
	if (rc != SQLITE_OK && access(path, F_OK) < 0 && errno == ENOENT)
		return err_set(err, -ENOENT,
			       "no events are stored here; --state-dir says where a "
			       "run (weir run --state-dir), a sidecar or a daemon stores "
			       "them");
	if (rc != SQLITE_OK)
		return sqlite_fault(*ret, rc, "cannot open the database", err);
	/* A writer that makes the tables takes some milliseconds. */
	until_ms = clock_now_ms() + BUSY_MS;
	version = sqlite_number(*ret, "PRAGMA user_version");
	while (version >= 0 && is_behind(version) && clock_now_ms() < until_ms) {
		(void)!poll(NULL, 0, LOCK_MS);
		version = sqlite_number(*ret, "PRAGMA user_version");
	}
	r = check_version(version, err);
	return r < 0 ? r : check_schema(*ret, err);
}

void sqlite_read_text(sqlite3_stmt *s, int column, char *buf, size_t size)
{
	const unsigned char *text = sqlite3_column_text(s, column);

	snprintf(buf, size, "%s", text ? (const char *)text : "");
}

/* ---- some at a time ---- */

static uint64_t bytes_used(sqlite3 *db)
{
	const int64_t pages = sqlite_number(db, "PRAGMA page_count") -
			      sqlite_number(db, "PRAGMA freelist_count");

	return (uint64_t)MAX(pages, INT64_C(0)) * PAGE_BYTES;
}

/* Until the file has @max_bytes; 0: all of them. Return: whether there are more. */
static bool let_steps_go(sqlite3 *db, const char *where, uint64_t max_bytes)
{
	const int64_t until_ms = clock_now_ms() + TIDY_MS;
	int gone = TIDY_ROWS;
	bool more = true;

	for (int i = 0; i < TIDY_STEPS && more; i++) {
		if (i > 0 && clock_now_ms() >= until_ms)
			break;
		gone = sqlite_let_go(db, where, TIDY_ROWS);
		more = max_bytes > 0 ? gone > 0 && bytes_used(db) > max_bytes
				     : gone == TIDY_ROWS;
	}
	return more;
}

/* ---- age ---- */

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
	if (!a->known) {
		int64_t newest_ms =
			sqlite_number(db, "SELECT ts FROM event ORDER BY id DESC");

		a->trusted_ms = a->kept_trusted_ms =
			sqlite_number(db, "SELECT trusted_ms FROM age");
		a->doubted_ms = a->kept_doubted_ms =
			sqlite_number(db, "SELECT doubted_ms FROM age");
		if (a->trusted_ms == 0)
			a->trusted_ms = newest_ms != 0 ? MIN(newest_ms, wall_ms)
						       : wall_ms;
		a->known = true;
	}
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

/* ---- what is too old, or too much ---- */

bool sqlite_tidy(sqlite3 *db, uint64_t max_bytes, int64_t oldest_ms, int64_t wall_ms)
{
	const int64_t future_ms = wall_ms + DAY_MS,
		      past_ms = MAX(wall_ms, DAY_MS) - DAY_MS;
	char where[SQL_SIZE / 2], sql[SQL_SIZE];
	bool more, over;

	snprintf(sql, sizeof(sql), "DELETE FROM review WHERE last_ts < %" PRId64,
		 oldest_ms);
	(void)!sqlite_run(db, sql, NULL);
	/* Tasks of the future go on as of now once no event of the future is left to say
	 * that it may be the present that is wrong. A decision of the future becomes one
	 * of a day ago: a denial that waits to be written is no denial from before that
	 * decision, and reopens the task. */
	snprintf(sql, sizeof(sql),
		 "UPDATE review SET first_ts = min(first_ts, %" PRId64
		 "), last_ts = min(last_ts, %" PRId64
		 "), decided_ts = min(decided_ts, %" PRId64 ") WHERE (last_ts > %" PRId64
		 " OR decided_ts > %" PRId64
		 ") AND NOT EXISTS (SELECT 1 FROM event WHERE ts > %" PRId64 ")",
		 wall_ms, wall_ms, past_ms, future_ms, future_ms, future_ms);
	(void)!sqlite_run(db, sql, NULL);
	/* Rows of the future, while the row that is too old is there to tell it. */
	snprintf(where, sizeof(where),
		 "ts > %" PRId64
		 " AND id < (SELECT max(id) FROM event WHERE ts < %" PRId64 ")",
		 future_ms, oldest_ms);
	more = let_steps_go(db, where, 0);
	snprintf(where, sizeof(where), "ts < %" PRId64, oldest_ms);
	if (!more)
		more = let_steps_go(db, where, 0);
	/* By size. */
	over = bytes_used(db) > max_bytes &&
	       find_many(db, (int64_t)TIDY_ROWS * TIDY_STEPS) == 0 &&
	       let_steps_go(db, OF_MANY, max_bytes);
	sqlite_let_sums_go(db);
	sqlite3_exec(db, "PRAGMA incremental_vacuum(1000)", NULL, NULL, NULL);
	return more || over;
}
