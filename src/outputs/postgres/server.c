// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/server.h"

#include <assert.h>
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

enum {
	SQL_SIZE = 1024,
	CONNECT_SEC = 5,
	CONNECT_SEC_MIN = 2, /* libpq's */
	CONNECT_SEC_MAX = 60,
	PATIENCE_MS = 300 * 1000,
};

struct server {
	PGconn *db;
	int connect_sec; /* connect_timeout, within reason */
	int answer_ms;
	int64_t until_ms; /* of the call that is under way */
	int64_t used_ms;  /* when the last one began */
	bool silent;	  /* it didn't answer within that time */
};

/* ---- waiting ---- */

/* What it said, its lines joined: one for each host that was tried. */
static int complain(struct server *s, const char *what, struct err *err)
{
	char said[ERR_TEXT_SIZE - 64], shown[ERR_TEXT_SIZE];
	struct text t = text_trim(text_of(PQerrorMessage(s->db)));
	size_t n = 0;

	if (s->silent)
		return err_set(err, -EIO,
			       "PostgreSQL: cannot %s: no answer within %d seconds", what,
			       s->answer_ms / 1000);
	for (size_t i = 0; i < t.len && n + 2 < sizeof(said); i++) {
		if (t.ptr[i] == '\n')
			said[n++] = ';';
		said[n++] = t.ptr[i] == '\n' || t.ptr[i] == '\t' ? ' ' : t.ptr[i];
	}
	return err_set(err, -EIO, "PostgreSQL: cannot %s: %s", what,
		       text_escape((struct text){ said, n }, shown, sizeof(shown)));
}

/* Return: false when the time is up. */
static bool wait_for(struct server *s, short events)
{
	struct pollfd p = { .fd = PQsocket(s->db), .events = events };
	int64_t left_ms = s->until_ms - clock_now_ms();

	s->silent = p.fd >= 0 && (left_ms <= 0 || poll(&p, 1, (int)left_ms) == 0);
	return p.fd >= 0 && !s->silent;
}

/* Return: the next result, or NULL after the last one, or with *@failed. */
static PGresult *next_result(struct server *s, bool *failed)
{
	int r;

	/* Everything that was said so far. The server may want to be heard meanwhile. */
	while ((r = PQflush(s->db)) == 1 && wait_for(s, POLLIN | POLLOUT) &&
	       PQconsumeInput(s->db) != 0)
		continue;
	*failed = r != 0;
	while (!*failed && PQisBusy(s->db) == 1)
		*failed = !wait_for(s, POLLIN) || PQconsumeInput(s->db) == 0;
	return *failed ? NULL : PQgetResult(s->db);
}

/* Of what was sent: the last result in @ret, owned by the caller. */
static int take_results(struct server *s, const char *what, PGresult **ret,
			struct err *err)
{
	CLEAN(result) PGresult *last = NULL;
	const char *state;
	PGresult *res;
	bool failed;
	int r = 0;

	while ((res = next_result(s, &failed))) {
		const ExecStatusType status = PQresultStatus(res);

		if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK &&
		    status != PGRES_COPY_IN && r == 0) {
			state = PQresultErrorField(res, PG_DIAG_SQLSTATE) ?: "";
			/* Classes 22, it is no such value, and 23, a constraint: other
			 * data might do. */
			if (strncmp(state, "22", 2) == 0 || strncmp(state, "23", 2) == 0)
				r = -EBADMSG;
			else
				r = strcmp(state, "42501") == 0 ? -EPERM : -EIO;
			complain(s, what, err);
		}
		PQclear(last);
		last = res;
		if (status == PGRES_COPY_IN)
			break; /* it waits for data */
	}
	if (r == 0 && (failed || !last))
		r = complain(s, what, err);
	if (r == 0)
		*ret = TAKE_PTR(last);
	return r;
}

/* ---- calls ---- */

static int ask(struct server *s, const char *what, const char *sql,
	       const char *const *parameters, int count, PGresult **ret, struct err *err)
{
	int sent;

	s->used_ms = clock_now_ms();
	s->until_ms = s->used_ms + s->answer_ms;
	s->silent = false;
	sent = count > 0 ? PQsendQueryParams(s->db, sql, count, NULL, parameters, NULL,
					     NULL, 0)
			 : PQsendQuery(s->db, sql);
	return sent == 1 ? take_results(s, what, ret, err) : complain(s, what, err);
}

PGresult *server_ask(struct server *s, const char *what, const char *sql,
		     const char *const *parameters, int count, struct err *err)
{
	PGresult *res = NULL;

	return ask(s, what, sql, parameters, count, &res, err) < 0 ? NULL : res;
}

int server_order(struct server *s, const char *what, const char *sql,
		 const char *const *parameters, int count, struct err *err)
{
	CLEAN(result) PGresult *res = NULL;

	return ask(s, what, sql, parameters, count, &res, err);
}

/* What libpq has no room for waits until the server takes some. */
static bool put_all(struct server *s, const char *lines, size_t size)
{
	int put = 0;

	while (put == 0 && (put = PQputCopyData(s->db, lines, (int)size)) == 0)
		if (!wait_for(s, POLLIN | POLLOUT) || PQconsumeInput(s->db) == 0)
			return false;
	if (put != 1)
		return false;
	while ((put = PQputCopyEnd(s->db, NULL)) == 0)
		if (!wait_for(s, POLLIN | POLLOUT) || PQconsumeInput(s->db) == 0)
			return false;
	return put == 1;
}

int server_copy(struct server *s, const char *into, const char *lines, size_t size,
		struct err *err)
{
	const char *what = "copy events";
	char sql[SQL_SIZE];
	CLEAN(result) PGresult *res = NULL;
	int r;

	snprintf(sql, sizeof(sql), "COPY %s FROM STDIN", into);
	r = server_order(s, what, sql, NULL, 0, err);
	if (r == 0 && !put_all(s, lines, size))
		r = complain(s, what, err);
	if (r == 0)
		r = take_results(s, what, &res, err);
	return r;
}

int64_t server_number(const PGresult *res, int row, int column)
{
	struct text t = text_of(PQgetvalue(res, row, column));
	uint64_t n;

	t.len = MIN(t.len, (size_t)18);
	return text_to_u64(t, 10, &n) ? (int64_t)n : 0;
}

/* ---- transactions ---- */

/* In the transaction alone, so that a pooler between them gives nobody else these
 * settings. The keepalives are the server's: a client that is gone without a word must
 * not keep its locks. */
int server_begin(struct server *s, struct err *err)
{
	char sql[SQL_SIZE];

	snprintf(sql, sizeof(sql),
		 "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
		 " SET LOCAL client_min_messages = error;"
		 " SET LOCAL standard_conforming_strings = on;"
		 " SET LOCAL statement_timeout = '%ds'; SET LOCAL lock_timeout = '%ds';"
		 " SET LOCAL idle_in_transaction_session_timeout = '%ds';"
		 " SET LOCAL tcp_keepalives_idle = 10;"
		 " SET LOCAL tcp_keepalives_interval = 5;"
		 " SET LOCAL tcp_keepalives_count = 4",
		 2 * s->connect_sec - 1, s->connect_sec, 3 * s->connect_sec);
	return server_order(s, "begin", sql, NULL, 0, err);
}

int server_commit(struct server *s, struct err *err)
{
	return server_order(s, "commit", "COMMIT", NULL, 0, err);
}

int server_roll_back(struct server *s, struct err *err)
{
	return server_order(s, "end", "ROLLBACK", NULL, 0, err);
}

/* ---- opening ---- */

int server_open(const char *conninfo, struct server **ret, struct err *err)
{
	/* What stands behind the conninfo counts before it; what is before, after it. */
	static const char *const keys[] = { "connect_timeout",	    "keepalives_idle",
					    "keepalives_interval",  "keepalives_count",
					    "tcp_user_timeout",	    "application_name",
					    "target_session_attrs", "dbname",
					    "client_encoding",	    NULL };
	const char *const values[] = { "5",    "30",	  "5",	    "4",    "20000",
				       "weir", "primary", conninfo, "UTF8", NULL };
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	CLEAN(server) struct server *s = NULL;
	uint32_t seconds = CONNECT_SEC;
	int r = 0;

	static_assert(ARRAY_SIZE(keys) == ARRAY_SIZE(values), "each has one");
	/* What libpq says of a text that it can't read repeats it, passwords included. */
	if (!options)
		return err_set(err, -EINVAL,
			       "PostgreSQL: what is given is no connection string");
	PQconninfoFree(options);
	s = calloc(1, sizeof(*s));
	if (s)
		s->db = PQconnectdbParams(keys, values, 1);
	options = s && s->db ? PQconninfo(s->db) : NULL;
	/* What the connection string says, or the service that it names, or we. */
	for (const PQconninfoOption *o = options; o && o->keyword; o++)
		if (strcmp(o->keyword, "connect_timeout") == 0 && o->val)
			(void)text_to_u32(text_of(o->val), CONNECT_SEC_MAX, &seconds);
	PQconninfoFree(options);
	if (s) {
		s->connect_sec = MAX((int)seconds, (int)CONNECT_SEC_MIN);
		server_be_patient(s, false);
	}
	if (!s || !s->db)
		r = err_sys(err, -ENOMEM, "cannot connect");
	else if (PQstatus(s->db) != CONNECTION_OK || PQsetnonblocking(s->db, 1) < 0)
		r = complain(s, "connect", err);
	if (r == 0)
		*ret = TAKE_PTR(s);
	return r;
}

void server_close(struct server *s)
{
	if (!s)
		return;
	PQfinish(s->db);
	free(s);
}

bool server_is_cut(const struct server *s)
{
	return !s->silent && PQstatus(s->db) == CONNECTION_BAD;
}

bool server_is_idle(const struct server *s)
{
	return clock_now_ms() - s->used_ms > (int64_t)2000 * s->connect_sec;
}

void server_be_patient(struct server *s, bool patient)
{
	s->answer_ms = patient ? PATIENCE_MS : 2000 * s->connect_sec;
}
