// SPDX-License-Identifier: Apache-2.0
#include "postgres/sender.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "migrations_postgres.h" /* generated: migrations[] */
#include "postgres/copy.h"

enum {
	SEARCH_MS = 10000,
	SQL_SIZE = 1024,
	LOCK_KEY = 0x77656972, /* of pg_advisory_xact_lock: one brings the tables up */
};

enum { TABLE_EVENT = 0, TABLE_NOTICE, TABLE_COUNT };
static const char *const tables[TABLE_COUNT] = {
	[TABLE_EVENT] = "sandbox_egress_event",
	[TABLE_NOTICE] = "sandbox_egress_notice",
};

struct sender {
	const char *directory, *conninfo;
	PGconn *db; /* NULL: not connected */
	struct sqlite_reader *store;
	struct stat file;		 /* that @store reads */
	char uuid[SQLITE_STORE_ID_SIZE]; /* its */
	bool known;			 /* @state is the server's */
	struct sender_state state;
	size_t batch;
	/* The batch, as lines. */
	char *lines[TABLE_COUNT];
	size_t used[TABLE_COUNT];
	size_t rows;
	int64_t first, last;
};

struct sender *sender_new(const char *directory, const char *conninfo)
{
	struct sender *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->directory = directory;
	s->conninfo = conninfo;
	s->batch = SENDER_BATCH;
	for (size_t i = 0; i < TABLE_COUNT; i++) {
		s->lines[i] = malloc((size_t)SENDER_BATCH * COPY_ROW_SIZE);
		if (!s->lines[i]) {
			sender_free(s);
			return NULL;
		}
	}
	return s;
}

static void disconnect(struct sender *s)
{
	PQfinish(s->db);
	s->db = NULL;
	s->known = false;
}

static void close_store(struct sender *s)
{
	sqlite_reader_close(s->store);
	s->store = NULL;
	s->known = false;
}

void sender_free(struct sender *s)
{
	if (!s)
		return;
	disconnect(s);
	close_store(s);
	for (size_t i = 0; i < TABLE_COUNT; i++)
		free(s->lines[i]);
	free(s);
}

struct sender_state sender_state(const struct sender *s)
{
	return s->state;
}

/* ---- the server ---- */

/* What it said, on one line. */
static int complain(struct sender *s, const char *what, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];
	struct text said = text_trim(text_of(PQerrorMessage(s->db)));
	const char *end = memchr(said.ptr, '\n', said.len);

	if (end)
		said.len = (size_t)(end - said.ptr);
	return err_set(err, -EIO, "PostgreSQL: cannot %s: %s", what,
		       text_escape(said, shown, sizeof(shown)));
}

/* Return: its result, owned by the caller, or NULL with @err. */
static PGresult *ask(struct sender *s, const char *what, const char *sql,
		     const char *parameter, struct err *err)
{
	PGresult *res =
		parameter ? PQexecParams(s->db, sql, 1, NULL, &parameter, NULL, NULL, 0)
			  : PQexec(s->db, sql);
	ExecStatusType status = PQresultStatus(res);

	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ||
	    status == PGRES_COPY_IN)
		return res;
	PQclear(res);
	complain(s, what, err);
	return NULL;
}

static int order(struct sender *s, const char *what, const char *sql, struct err *err)
{
	PGresult *res = ask(s, what, sql, NULL, err);

	PQclear(res);
	return res ? 0 : -EIO;
}

static int64_t number_at(const PGresult *res, int row, int column)
{
	struct text t = text_of(PQgetvalue(res, row, column));
	int64_t n = 0;

	/* Of our own making: digits. */
	for (size_t i = 0; i < t.len && t.ptr[i] >= '0' && t.ptr[i] <= '9'; i++)
		n = n * 10 + (t.ptr[i] - '0');
	return n;
}

/* The version of the tables; 0 when there are none. */
static int read_version(struct sender *s, int64_t *ret, struct err *err)
{
	PGresult *res = ask(s, "look for the tables",
			    "SELECT to_regclass('sandbox_egress_schema') IS NOT NULL",
			    NULL, err);
	bool there = res && strcmp(PQgetvalue(res, 0, 0), "t") == 0;

	PQclear(res);
	*ret = 0;
	if (!res || !there)
		return res ? 0 : -EIO;
	res = ask(s, "read the tables' version",
		  "SELECT coalesce(max(version), 0) FROM sandbox_egress_schema", NULL,
		  err);
	if (!res)
		return -EIO;
	*ret = number_at(res, 0, 0);
	PQclear(res);
	return 0;
}

static int migrate_from(struct sender *s, size_t version, struct err *err)
{
	char sql[SQL_SIZE];
	int r = order(s, "make the tables",
		      "CREATE TABLE IF NOT EXISTS sandbox_egress_schema"
		      " (version INT PRIMARY KEY)",
		      err);

	for (size_t i = version; i < ARRAY_SIZE(migrations) && r == 0; i++) {
		r = order(s, "make the tables", migrations[i], err);
		snprintf(sql, sizeof(sql),
			 "INSERT INTO sandbox_egress_schema VALUES (%zu)", i + 1);
		if (r == 0)
			r = order(s, "make the tables", sql, err);
	}
	return r;
}

/* One of many senders makes the tables; a role that may not is fine once they are
 * there. */
static int bring_up_to_date(struct sender *s, struct err *err)
{
	char sql[SQL_SIZE];
	int64_t version;
	int r = read_version(s, &version, err);

	if (r < 0 || version >= (int64_t)ARRAY_SIZE(migrations))
		return r;
	snprintf(sql, sizeof(sql), "BEGIN; SELECT pg_advisory_xact_lock(%d)", LOCK_KEY);
	r = order(s, "make the tables", sql, err);
	if (r == 0)
		r = read_version(s, &version, err);
	if (r == 0)
		r = migrate_from(s, (size_t)version, err);
	return r < 0 ? r : order(s, "make the tables", "COMMIT", err);
}

static int connect_to(struct sender *s, struct err *err)
{
	/* What stands behind the conninfo counts before it; what is before, after it. */
	static const char *const keys[] = { "connect_timeout",
					    "keepalives_idle",
					    "tcp_user_timeout",
					    "application_name",
					    "dbname",
					    "client_encoding",
					    NULL };
	const char *const values[] = { "5",	    "30",   "20000", "weir",
				       s->conninfo, "UTF8", NULL };
	int r;

	if (s->db)
		return 0;
	s->db = PQconnectdbParams(keys, values, 1);
	if (!s->db)
		return err_sys(err, -ENOMEM, "cannot connect");
	r = PQstatus(s->db) == CONNECTION_OK
		    ? order(s, "begin",
			    "SET client_min_messages = error; SET "
			    "standard_conforming_strings"
			    " = on; SET statement_timeout = '30s'",
			    err)
		    : complain(s, "connect", err);
	if (r == 0)
		r = bring_up_to_date(s, err);
	if (r < 0)
		disconnect(s);
	return r;
}

/* ---- the store ---- */

static int open_store(struct sender *s, struct err *err)
{
	char path[4096];
	struct stat st;
	int r;

	snprintf(path, sizeof(path), "%s/events.db", s->directory);
	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot find the store");
	/* A broken file is moved aside and another begun. */
	if (s->store && st.st_ino == s->file.st_ino && st.st_dev == s->file.st_dev)
		return 0;
	close_store(s);
	s->file = st;
	r = sqlite_reader_open(s->directory, SEARCH_MS, &s->store, err);
	if (r == 0)
		r = sqlite_store_id(s->store, s->uuid, err);
	if (r < 0)
		close_store(s);
	return r;
}

static bool on_row(void *data, int64_t id, const struct event_row *row)
{
	struct sender *s = data;
	const uint8_t a = row->event.action;
	const size_t table = a == EVENT_ALLOW || a == EVENT_DENY || a == EVENT_PANIC
				     ? TABLE_EVENT
				     : TABLE_NOTICE;

	if (s->rows == 0)
		s->first = id;
	s->last = id;
	s->rows++;
	s->used[table] += copy_row(row, id, s->uuid, s->lines[table] + s->used[table]);
	return true;
}

static int read_batch(struct sender *s, struct err *err)
{
	const struct sqlite_query q = { .since_ms = INT64_MIN,
					.oldest_first = true,
					.above_id = s->state.sent,
					.max = s->batch };

	memset(s->used, 0, sizeof(s->used));
	s->rows = 0;
	return sqlite_find(s->store, &q, on_row, s, err);
}

/* ---- from one to the other ---- */

/* With the row locked, so that two senders of one store take turns. */
static int lock_state(struct sender *s, struct err *err)
{
	PGresult *res =
		ask(s, "note a store",
		    "INSERT INTO sandbox_egress_store (store, sent) VALUES ($1, 0)"
		    " ON CONFLICT DO NOTHING",
		    s->uuid, err);

	PQclear(res);
	if (!res)
		return -EIO;
	res = ask(
		s, "read how far a store is copied",
		"SELECT sent, missed, refused FROM sandbox_egress_store WHERE store = $1"
		" FOR UPDATE",
		s->uuid, err);
	if (!res)
		return -EIO;
	s->state = (struct sender_state){ .sent = number_at(res, 0, 0),
					  .missed = (uint64_t)number_at(res, 0, 1),
					  .refused = (uint64_t)number_at(res, 0, 2) };
	PQclear(res);
	s->known = true;
	return 0;
}

static int copy_lines(struct sender *s, size_t table, struct err *err)
{
	char sql[SQL_SIZE];
	PGresult *res;
	int r = 0;

	if (s->used[table] == 0)
		return 0;
	snprintf(sql, sizeof(sql), "COPY %s (%s) FROM STDIN", tables[table],
		 copy_columns);
	r = order(s, "copy events", sql, err);
	if (r < 0)
		return r;
	if (PQputCopyData(s->db, s->lines[table], (int)s->used[table]) != 1 ||
	    PQputCopyEnd(s->db, NULL) != 1)
		return complain(s, "copy events", err);
	while ((res = PQgetResult(s->db))) {
		if (PQresultStatus(res) != PGRES_COMMAND_OK && r == 0) {
			const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

			/* 22: it is no such value; 23: a constraint */
			r = state && (strncmp(state, "22", 2) == 0 ||
				      strncmp(state, "23", 2) == 0)
				    ? -EBADMSG
				    : -EIO;
			complain(s, "copy events", err);
		}
		PQclear(res);
	}
	return r;
}

static int finish(struct sender *s, uint64_t refused, struct err *err)
{
	/* Numbers have no gaps: what is missing was let go. Of a store that is new here
	 * it went before anybody asked. */
	const uint64_t missed =
		s->state.sent > 0 ? (uint64_t)(s->first - s->state.sent - 1) : 0;
	char sql[SQL_SIZE];
	int r;

	snprintf(sql, sizeof(sql),
		 "UPDATE sandbox_egress_store SET sent = %" PRId64
		 ", missed = missed + %" PRIu64 ", refused = refused + %" PRIu64
		 ", at = now() WHERE store = '%s'",
		 s->last, missed, refused, s->uuid);
	r = order(s, "note how far a store is copied", sql, err);
	if (r == 0)
		r = order(s, "commit", "COMMIT", err);
	if (r < 0)
		return r;
	s->state.sent = s->last;
	s->state.missed += missed;
	s->state.refused += refused;
	return 0;
}

/* Inside a transaction. Return: 0; -EBADMSG: a row is refused; or another -errno. */
static int copy_batch(struct sender *s, struct err *err)
{
	int r = lock_state(s, err);

	if (r == 0)
		r = read_batch(s, err);
	for (size_t i = 0; i < TABLE_COUNT && r == 0; i++)
		r = copy_lines(s, i, err);
	if (r == 0 && s->rows > 0)
		r = finish(s, 0, err);
	return r;
}

/* A row that the server takes neither alone is passed over. */
static int pass_over(struct sender *s, struct err *err)
{
	int r = order(s, "begin", "BEGIN", err);

	if (r == 0)
		r = lock_state(s, err);
	if (r == 0)
		r = read_batch(s, err);
	if (r == 0 && s->rows == 1)
		r = finish(s, 1, err);
	return r < 0 ? r : order(s, "end", "ROLLBACK", err);
}

static int send_batch(struct sender *s, struct err *err)
{
	int r = order(s, "begin", "BEGIN", err);

	if (r == 0)
		r = copy_batch(s, err);
	if (r == 0 && s->rows > 0) {
		s->batch = MIN(s->batch * 2, (size_t)SENDER_BATCH);
		return (int)s->rows;
	}
	if (r == 0)
		return order(s, "end", "ROLLBACK", err);
	if (r != -EBADMSG || order(s, "end", "ROLLBACK", err) < 0)
		return r < 0 && r != -EBADMSG ? r : -EIO;
	if (s->batch > 1) {
		s->batch /= 2;
		return 1; /* again, with less */
	}
	r = pass_over(s, err);
	return r < 0 ? r : 1;
}

int sender_step(struct sender *s, struct err *err)
{
	int r = open_store(s, err);

	if (r < 0)
		return r;
	/* While nothing is new, nobody is asked. */
	if (s->db && s->known) {
		r = read_batch(s, err);
		if (r < 0 || s->rows == 0)
			return r;
	}
	r = connect_to(s, err);
	if (r == 0)
		r = send_batch(s, err);
	if (r < 0)
		disconnect(s);
	return r;
}
