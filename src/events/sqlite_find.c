// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "events/sqlite_file.h"

enum {
	SQL_SIZE = 1024,
	MAX_DEFAULT = 1000,
	LOOK_STEPS = 1000, /* between two looks at the clock */
	BUSY_MS = 200,
};

struct sqlite_reader {
	sqlite3 *db;
	int timeout_ms;
	int64_t until_ms;
};

static int is_too_late(void *data)
{
	const struct sqlite_reader *r = data;

	return clock_now_ms() > r->until_ms;
}

int sqlite_reader_open(const char *directory, int timeout_ms, struct sqlite_reader **ret,
		       struct err *err)
{
	struct sqlite_reader *r = calloc(1, sizeof(*r));
	char path[SQLITE_PATH_SIZE];
	int rc, code;

	if (!r)
		return err_sys(err, -ENOMEM, "cannot open the database");
	r->timeout_ms = timeout_ms;
	snprintf(path, sizeof(path), "%s/events.db", directory);
	/* Not read-only: the log's index is shared memory that a reader writes. */
	rc = sqlite3_open_v2(
		path, &r->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
	if (rc != SQLITE_OK) {
		code = sqlite_fault(r->db, rc, "cannot open the database", err);
		sqlite_reader_close(r);
		return code;
	}
	sqlite3_busy_timeout(r->db, BUSY_MS);
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(r->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_progress_handler(r->db, LOOK_STEPS, is_too_late, r);
	r->until_ms = clock_now_ms() + timeout_ms;
	code = sqlite_run(r->db,
			  "PRAGMA query_only = 1; PRAGMA cache_size = -512;"
			  "PRAGMA temp_store = MEMORY",
			  err);
	if (code < 0) {
		sqlite_reader_close(r);
		return code;
	}
	*ret = r;
	return 0;
}

void sqlite_reader_close(struct sqlite_reader *r)
{
	if (!r)
		return;
	sqlite3_close(r->db);
	free(r);
}

/* ---- the question ---- */

/* Each condition that is there, with a parameter; a '+' keeps SQLite from choosing that
 * column's index when one that tells more apart is there. */
static void put_where(const struct sqlite_query *q, const char *head, const char *tail,
		      char *sql)
{
	const bool narrow = q->sandbox || q->name || q->remote.family != ADDR_NONE;
	const bool address = q->remote.family != ADDR_NONE;
	const bool in_order = q->oldest_first; /* of their numbers: along the table */

	snprintf(sql, SQL_SIZE,
		 "%s FROM event WHERE %sts >= ?1 AND ts < ?2 AND id < ?3%s%s%s%s %s",
		 head, in_order ? "+" : "",
		 q->action == EVENT_NONE ? ""
		 : narrow || in_order	 ? " AND +action = ?4"
					 : " AND action = ?4",
		 !q->sandbox			  ? ""
		 : q->name || address || in_order ? " AND +sandbox = ?5"
						  : " AND sandbox = ?5",
		 !q->name	       ? ""
		 : address || in_order ? " AND +name = ?6"
				       : " AND name = ?6",
		 !address   ? ""
		 : in_order ? " AND +remote_ip = ?7"
			    : " AND remote_ip = ?7",
		 tail);
}

static void bind_query(sqlite3_stmt *s, const struct sqlite_query *q)
{
	char addr[ADDR_TEXT_SIZE];

	sqlite3_bind_int64(s, 1, q->since_ms);
	sqlite3_bind_int64(s, 2, q->until_ms ? q->until_ms : INT64_MAX);
	sqlite3_bind_int64(s, 3, q->below_id ? q->below_id : INT64_MAX);
	if (q->oldest_first)
		sqlite3_bind_int64(s, 8, q->above_id);
	if (q->action != EVENT_NONE)
		sqlite3_bind_int(s, 4, (int)q->action);
	if (q->sandbox)
		sqlite3_bind_text(s, 5, q->sandbox, -1, SQLITE_TRANSIENT);
	if (q->name)
		sqlite3_bind_text(s, 6, q->name, -1, SQLITE_TRANSIENT);
	if (q->remote.family != ADDR_NONE)
		sqlite3_bind_text(s, 7, addr_format(&q->remote, addr), -1,
				  SQLITE_TRANSIENT);
}

int sqlite_search_fault(struct sqlite_reader *r, int rc, struct err *err)
{
	return sqlite_fault(r->db, rc, "cannot search the database", err);
}

int sqlite_ask(struct sqlite_reader *r, const char *sql, sqlite3_stmt **ret,
	       struct err *err)
{
	int rc = sqlite3_prepare_v2(r->db, sql, -1, ret, NULL);

	if (rc != SQLITE_OK)
		return sqlite_search_fault(r, rc, err);
	r->until_ms = clock_now_ms() + r->timeout_ms;
	return 0;
}

static int ask(struct sqlite_reader *r, const char *sql, const struct sqlite_query *q,
	       sqlite3_stmt **ret, struct err *err)
{
	int code = sqlite_ask(r, sql, ret, err);

	if (code == 0)
		bind_query(*ret, q);
	return code;
}

/* ---- the answer ---- */

static void read_text(sqlite3_stmt *s, int column, char *buf, size_t size)
{
	const unsigned char *text = sqlite3_column_text(s, column);

	snprintf(buf, size, "%s", text ? (const char *)text : "");
}

static uint32_t read_number(sqlite3_stmt *s, int column, uint32_t otherwise)
{
	return sqlite3_column_type(s, column) == SQLITE_NULL
		       ? otherwise
		       : (uint32_t)sqlite3_column_int64(s, column);
}

static const char columns[] =
	"SELECT id, ts, sandbox, action, layer, remote_ip, remote_port, protocol, name,"
	" rule, rule_file, rule_line, packets, bytes, reason, query_type, limit_id, uid,"
	" pid, command, allowable";

static int64_t read_row(sqlite3_stmt *s, struct event_row *row)
{
	struct event *e = &row->event;
	char addr[ADDR_TEXT_SIZE];

	memset(row, 0, sizeof(*row));
	e->ts_ms = sqlite3_column_int64(s, 1);
	read_text(s, 2, row->sandbox, sizeof(row->sandbox));
	e->action = (uint8_t)read_number(s, 3, 0);
	e->layer = (uint8_t)read_number(s, 4, 0);
	read_text(s, 5, addr, sizeof(addr));
	if (!addr_parse(addr, strlen(addr), &e->remote))
		e->remote = (struct addr){ 0 };
	e->port = (uint16_t)read_number(s, 6, 0);
	e->protocol = (uint8_t)read_number(s, 7, 0);
	read_text(s, 8, e->name, sizeof(e->name));
	e->rule = EVENT_NO_RULE;
	read_text(s, 9, row->rule, sizeof(row->rule));
	read_text(s, 10, row->rule_file, sizeof(row->rule_file));
	row->rule_line = read_number(s, 11, 0);
	e->packets = (uint64_t)sqlite3_column_int64(s, 12);
	e->bytes = (uint64_t)sqlite3_column_int64(s, 13);
	read_text(s, 14, e->reason, sizeof(e->reason));
	e->query_type = (uint16_t)read_number(s, 15, 0);
	e->limit = (uint8_t)read_number(s, 16, 0);
	e->uid = read_number(s, 17, UINT32_MAX);
	row->pid = read_number(s, 18, 0);
	read_text(s, 19, row->command, sizeof(row->command));
	e->allowable = read_number(s, 20, 0) == 1;
	return sqlite3_column_int64(s, 0);
}

int sqlite_find(struct sqlite_reader *r, const struct sqlite_query *query,
		bool (*on_row)(void *data, int64_t id, const struct event_row *row),
		void *data, struct err *err)
{
	char sql[SQL_SIZE], tail[64];
	sqlite3_stmt *s = NULL;
	struct event_row row;
	bool go_on = true;
	int code, rc = SQLITE_DONE;

	snprintf(tail, sizeof(tail), "%s LIMIT %zu",
		 query->oldest_first ? "AND id > ?8 ORDER BY id"
				     : "ORDER BY ts DESC, id DESC",
		 query->max ? query->max : (size_t)MAX_DEFAULT);
	put_where(query, columns, tail, sql);
	code = ask(r, sql, query, &s, err);
	if (code < 0)
		return code;
	while (go_on && (rc = sqlite3_step(s)) == SQLITE_ROW)
		go_on = on_row(data, read_row(s, &row), &row);
	if (go_on && rc != SQLITE_DONE)
		code = sqlite_search_fault(r, rc, err);
	sqlite3_finalize(s);
	return code;
}

static int read_sum(struct sqlite_reader *r, sqlite3_stmt *s, struct sqlite_sum *ret,
		    struct err *err)
{
	int rc = sqlite3_step(s), code = 0;

	if (rc == SQLITE_ROW)
		*ret = (struct sqlite_sum){ (uint64_t)sqlite3_column_int64(s, 0),
					    (uint64_t)sqlite3_column_int64(s, 1) };
	else
		code = sqlite_search_fault(r, rc, err);
	sqlite3_finalize(s);
	return code;
}

int sqlite_count(struct sqlite_reader *r, const struct sqlite_query *query,
		 struct sqlite_sum *ret, struct err *err)
{
	char sql[SQL_SIZE];
	sqlite3_stmt *s = NULL;
	int code;

	put_where(query, "SELECT count(*), coalesce(sum(packets), 0)", "", sql);
	code = ask(r, sql, query, &s, err);
	return code < 0 ? code : read_sum(r, s, ret, err);
}

int sqlite_store_id(struct sqlite_reader *r, char *ret, struct err *err)
{
	sqlite3_stmt *s = NULL;
	const char *id = NULL;
	int rc, code = sqlite_ask(r, "SELECT id FROM store", &s, err);

	if (code < 0)
		return code;
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		id = (const char *)sqlite3_column_text(s, 0);
	if (id && strlen(id) == SQLITE_STORE_ID_SIZE - 1 &&
	    strspn(id, "0123456789abcdef") == SQLITE_STORE_ID_SIZE - 1)
		memcpy(ret, id, SQLITE_STORE_ID_SIZE);
	else
		code = rc == SQLITE_ROW || rc == SQLITE_DONE
			       ? err_set(err, -EBADMSG, "the database has no id")
			       : sqlite_search_fault(r, rc, err);
	sqlite3_finalize(s);
	return code;
}

int sqlite_id_before(struct sqlite_reader *r, int64_t since_ms, int64_t *ret,
		     struct err *err)
{
	sqlite3_stmt *s = NULL;
	int rc, code = sqlite_ask(
			r,
			"SELECT coalesce(min(id) - 1, (SELECT max(id) FROM event), 0)"
			" FROM event WHERE ts >= ?",
			&s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, since_ms);
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*ret = sqlite3_column_int64(s, 0);
	else
		code = sqlite_search_fault(r, rc, err);
	sqlite3_finalize(s);
	return code;
}

int sqlite_total(struct sqlite_reader *r, enum event_action action,
		 struct sqlite_sum *ret, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = sqlite_ask(r,
			      "SELECT coalesce(sum(rows), 0), coalesce(sum(packets), 0)"
			      " FROM counter WHERE action = ?",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, (int)action);
	return read_sum(r, s, ret, err);
}
