// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "events/sqlite_file.h"

enum {
	SQL_SIZE = 1024,
	MAX_DEFAULT = 1000,
	LOOK_STEPS = 1000, /* between two looks at the clock */
	BUSY_MS = 200,
	SLOTS_MIN = 256,
};
#define HOUR_MS	  INT64_C(3600000)
#define MINUTE_MS INT64_C(60000)

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
	CLEAN(reader) struct sqlite_reader *r = calloc(1, sizeof(*r));
	int code = r ? sqlite_file_use(directory, BUSY_MS, &r->db, err)
		     : err_sys(err, -ENOMEM, "cannot open the database");

	if (code < 0)
		return code;
	r->timeout_ms = timeout_ms;
	sqlite3_progress_handler(r->db, LOOK_STEPS, is_too_late, r);
	r->until_ms = clock_now_ms() + timeout_ms;
	code = sqlite_run(r->db,
			  "PRAGMA query_only = 1; PRAGMA cache_size = -512;"
			  "PRAGMA temp_store = MEMORY",
			  err);
	if (code == 0)
		*ret = TAKE_PTR(r);
	return code;
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
		 "%s FROM event WHERE %sts >= ?1 AND ts < ?2 AND (ts < ?2 - 1 OR id < ?3)"
		 "%s%s%s%s %s",
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

static int search_fault(struct sqlite_reader *r, int rc, struct err *err)
{
	return sqlite_fault(r->db, rc, "cannot search the database", err);
}

/* @sql with @values as a statement whose time runs from now. */
static int ask(struct sqlite_reader *r, const char *sql,
	       const struct sqlite_value *values, size_t count, sqlite3_stmt **ret,
	       struct err *err)
{
	int rc = sqlite_ask(r->db, sql, values, count, ret);

	if (rc != SQLITE_OK)
		return search_fault(r, rc, err);
	r->until_ms = clock_now_ms() + r->timeout_ms;
	return 0;
}

/* ---- the answer ---- */

static uint32_t read_number(sqlite3_stmt *s, int column, uint32_t otherwise)
{
	return sqlite3_column_type(s, column) == SQLITE_NULL
		       ? otherwise
		       : (uint32_t)sqlite3_column_int64(s, column);
}

static const char columns[] =
	"SELECT id, ts, sandbox, action, layer, remote_ip, remote_port, protocol, name,"
	" rule, rule_file, rule_line, packets, bytes, reason, query_type, limit_id, uid,"
	" pid, command, allowable, advice";

static int64_t read_row(sqlite3_stmt *s, struct event_row *row)
{
	struct event *e = &row->event;
	char addr[ADDR_TEXT_SIZE];

	memset(row, 0, sizeof(*row));
	e->ts_ms = sqlite3_column_int64(s, 1);
	sqlite_read_text(s, 2, row->sandbox, sizeof(row->sandbox));
	e->action = (uint8_t)read_number(s, 3, 0);
	e->layer = (uint8_t)read_number(s, 4, 0);
	sqlite_read_text(s, 5, addr, sizeof(addr));
	if (!addr_parse(addr, strlen(addr), &e->remote))
		e->remote = (struct addr){ 0 };
	e->port = (uint16_t)read_number(s, 6, 0);
	e->protocol = (uint8_t)read_number(s, 7, 0);
	sqlite_read_text(s, 8, e->name, sizeof(e->name));
	e->rule = EVENT_NO_RULE;
	sqlite_read_text(s, 9, row->rule, sizeof(row->rule));
	sqlite_read_text(s, 10, row->rule_file, sizeof(row->rule_file));
	row->rule_line = read_number(s, 11, 0);
	e->packets = (uint64_t)sqlite3_column_int64(s, 12);
	e->bytes = (uint64_t)sqlite3_column_int64(s, 13);
	sqlite_read_text(s, 14, e->reason, sizeof(e->reason));
	e->query_type = (uint16_t)read_number(s, 15, 0);
	e->limit = (uint8_t)read_number(s, 16, 0);
	e->uid = read_number(s, 17, UINT32_MAX);
	e->pid = read_number(s, 18, 0);
	sqlite_read_text(s, 19, e->command, sizeof(e->command));
	e->allowable = read_number(s, 20, 0) == 1;
	sqlite_read_text(s, 21, e->advice, sizeof(e->advice));
	return sqlite3_column_int64(s, 0);
}

int sqlite_find(struct sqlite_reader *r, const struct sqlite_query *q,
		bool (*on_row)(void *data, int64_t id, const struct event_row *row),
		void *data, struct err *err)
{
	const bool by_address = q->remote.family != ADDR_NONE;
	CLEAN(statement) sqlite3_stmt *s = NULL;
	char sql[SQL_SIZE], tail[64];
	struct event_row row;
	int code, rc;

	snprintf(tail, sizeof(tail), "%s LIMIT %zu",
		 q->oldest_first ? "AND id > ?8 ORDER BY id"
				 : "ORDER BY ts DESC, id DESC",
		 q->max ? q->max : (size_t)MAX_DEFAULT);
	put_where(q, columns, tail, sql);
	code = ask(r, sql,
		   WITH(NUMBER(q->since_ms), NUMBER(q->until_ms ?: INT64_MAX),
			NUMBER(q->below_id ?: INT64_MAX), NUMBER(q->action),
			TEXT(q->sandbox), TEXT(q->name),
			TEXT(by_address ? ADDR_SHOWN(&q->remote) : NULL),
			NUMBER(q->above_id)),
		   &s, err);
	if (code < 0)
		return code;
	while ((rc = sqlite3_step(s)) == SQLITE_ROW)
		if (!on_row(data, read_row(s, &row), &row))
			return 0;
	return rc == SQLITE_DONE ? 0 : search_fault(r, rc, err);
}

int sqlite_store_id(struct sqlite_reader *r, char *ret, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	const char *id;
	int rc, code = ask(r, "SELECT id FROM store", NULL, 0, &s, err);

	if (code < 0)
		return code;
	rc = sqlite3_step(s);
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		return search_fault(r, rc, err);
	id = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
	if (!id || strlen(id) != SQLITE_STORE_ID_SIZE - 1 ||
	    strspn(id, "0123456789abcdef") != SQLITE_STORE_ID_SIZE - 1)
		return err_set(err, -EBADMSG, "the database has no id");
	memcpy(ret, id, SQLITE_STORE_ID_SIZE);
	return 0;
}

/* The @size numbers of the one row of @sql, in @ret. */
static int read_numbers(struct sqlite_reader *r, const char *sql,
			const struct sqlite_value *values, size_t count, int64_t *ret,
			int size, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	int rc, code = ask(r, sql, values, count, &s, err);

	if (code < 0)
		return code;
	rc = sqlite3_step(s);
	for (int i = 0; rc == SQLITE_ROW && i < size; i++)
		ret[i] = sqlite3_column_int64(s, i);
	return rc == SQLITE_ROW ? 0 : search_fault(r, rc, err);
}

int sqlite_id_before(struct sqlite_reader *r, int64_t since_ms, int64_t *ret,
		     struct err *err)
{
	return read_numbers(r,
			    "SELECT coalesce(min(id) - 1, (SELECT max(id) FROM event), 0)"
			    " FROM event WHERE ts >= ?",
			    WITH(NUMBER(since_ms)), ret, 1, err);
}

/* ---- the most of what was denied or allowed ----
 *
 * Whole hours are counted from the sums (tables denied and allowed), the part of an hour
 * at the beginning from the events themselves: the answer is exact, not rounded to hours.
 * One sandbox's are few, and are counted from its events. */

static const char *const by_names[] = {
	[SQLITE_BY_DESTINATION] = "destination",
	[SQLITE_BY_ADDRESS] = "address",
	[SQLITE_BY_NAME] = "name",
	[SQLITE_BY_SANDBOX] = "sandbox",
	[SQLITE_BY_RULE] = "rule",
	[SQLITE_BY_PROCESS] = "process",
};
static_assert(ARRAY_SIZE(by_names) == SQLITE_BY_COUNT, "every kind has a name");

const char *sqlite_by_name(enum sqlite_by by)
{
	return by < SQLITE_BY_COUNT && by_names[by] ? by_names[by] : "";
}

bool sqlite_by_parse(const char *text, enum sqlite_by *ret)
{
	const char *const *known = TEXT_FIND(text_of(text), by_names);

	if (known)
		*ret = (enum sqlite_by)(known - by_names);
	return known != NULL;
}

/* What an event is summed by, as the views denied_written and allowed_written have it. */
static const char *const key_of[SQLITE_BY_COUNT] = {
	[SQLITE_BY_DESTINATION] = "coalesce(name, remote_ip, '')",
	[SQLITE_BY_ADDRESS] = "remote_ip",
	[SQLITE_BY_NAME] = "name",
	[SQLITE_BY_SANDBOX] = "sandbox",
	[SQLITE_BY_RULE] = "coalesce(rule, '')",
	[SQLITE_BY_PROCESS] = "coalesce(command, '')",
};

/* ?1 kind, ?2 and ?3 the hours that are whole, ?4 the beginning, ?5 the end, ?6 the
 * sandbox, ?7 how many rows of each part, the newest of them first. Rows that don't count
 * have no key, so that ?7 is of all that are read. */
static void put_top(const struct sqlite_query *q, enum sqlite_by by, char *sql,
		    size_t size)
{
	const bool allowed = q->action == EVENT_ALLOW;
	const char *sums = allowed ? "bytes, rows, last_ts FROM allowed"
				   : "0, rows, last_ts FROM denied";
	const int action = allowed ? EVENT_ALLOW : EVENT_DENY;
	char events[160];

	if (q->sandbox) {
		snprintf(sql, size,
			 "SELECT iif(action = %d, %s, NULL), packets, bytes, 1, ts FROM"
			 " event WHERE sandbox = ?6 AND ts >= ?4 AND ts < ?5"
			 " ORDER BY ts DESC LIMIT ?7",
			 action, key_of[by]);
		return;
	}
	snprintf(events, sizeof(events),
		 "SELECT * FROM (SELECT %s, packets, bytes, 1, ts FROM event WHERE"
		 " action = %d",
		 key_of[by], action);
	snprintf(sql, size,
		 "SELECT * FROM (SELECT key, packets, %s WHERE kind = ?1 AND"
		 " hour >= ?2 AND hour < ?3 ORDER BY hour DESC LIMIT ?7)"
		 " UNION ALL %s AND ts >= max(?2, ?3) * 3600000 AND ts < ?5"
		 " ORDER BY ts DESC LIMIT ?7)"
		 " UNION ALL %s AND ts >= ?4 AND ts < min(?2 * 3600000, ?5)"
		 " ORDER BY ts DESC LIMIT ?7)",
		 sums, events, events);
}

/* ---- adding up ---- */

/* A table of its own: SQLite would sort all rows to bring equal keys together, which
 * takes three times as long. */
struct sums {
	struct arena arena;
	struct hash_key hash;
	struct sqlite_top **slots; /* a power of two of them, at most half used */
	size_t size, used;
};

static struct sqlite_top **slot_of(const struct sums *t, const char *key)
{
	size_t i = hash_bytes(&t->hash, key, strlen(key)) & (t->size - 1);

	while (t->slots[i] && strcmp(t->slots[i]->key, key) != 0)
		i = (i + 1) & (t->size - 1);
	return &t->slots[i];
}

static int add_sum(struct sums *t, const struct sqlite_top *d)
{
	struct sqlite_top **slot, *sum;

	if (t->used * 2 >= t->size) {
		const struct sums old = *t;

		t->size = MAX(old.size * 2, (size_t)SLOTS_MIN);
		t->slots = calloc(t->size, sizeof(*t->slots));
		if (!t->slots) {
			*t = old;
			return -ENOMEM;
		}
		for (size_t i = 0; i < old.size; i++)
			if (old.slots[i])
				*slot_of(t, old.slots[i]->key) = old.slots[i];
		free(old.slots);
	}
	slot = slot_of(t, d->key);
	if (!*slot) {
		sum = arena_alloc(&t->arena, sizeof(*sum));
		if (sum)
			sum->key = arena_text(&t->arena, text_of(d->key));
		if (!sum || !sum->key)
			return -ENOMEM;
		*slot = sum;
		t->used++;
	}
	(*slot)->packets += d->packets;
	(*slot)->bytes += d->bytes;
	(*slot)->rows += d->rows;
	(*slot)->last_ms = MAX((*slot)->last_ms, d->last_ms);
	return 0;
}

/* Return: how many rows there were, or -errno. */
static int add_all(struct sqlite_reader *r, sqlite3_stmt *s, struct sums *t,
		   struct err *err)
{
	int rc, code = 0, rows = 0;

	while (code == 0 && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		const struct sqlite_top d = {
			.key = (const char *)sqlite3_column_text(s, 0),
			.packets = (uint64_t)sqlite3_column_int64(s, 1),
			.bytes = (uint64_t)sqlite3_column_int64(s, 2),
			.rows = (uint64_t)sqlite3_column_int64(s, 3),
			.last_ms = sqlite3_column_int64(s, 4),
		};

		if (d.key)
			code = add_sum(t, &d);
		rows += rows < INT_MAX;
	}
	if (code < 0)
		return err_sys(err, code, "cannot add the events up");
	return rc == SQLITE_DONE ? rows : search_fault(r, rc, err);
}

static int by_bytes(const void *a, const void *b)
{
	const struct sqlite_top *x = *(struct sqlite_top *const *)a;
	const struct sqlite_top *y = *(struct sqlite_top *const *)b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->key, y->key);
}

static int by_packets(const void *a, const void *b)
{
	const struct sqlite_top *x = *(struct sqlite_top *const *)a;
	const struct sqlite_top *y = *(struct sqlite_top *const *)b;

	if (x->packets != y->packets)
		return x->packets > y->packets ? -1 : 1;
	return strcmp(x->key, y->key);
}

int sqlite_top(struct sqlite_reader *r, enum sqlite_by by,
	       const struct sqlite_query *query,
	       bool (*on_top)(void *data, const struct sqlite_top *t), void *data,
	       struct err *err)
{
	struct sums t = { .hash = { (uintptr_t)r, (uintptr_t)&t } };
	/* Nothing is later than the end of time: the hour that it is in is whole. */
	const int64_t since_ms = query->since_ms,
		      until_ms = query->until_ms ?: INT64_MAX / 2;
	/* The first hour that begins then or later. */
	const int64_t hour = since_ms <= 0 ? 0 : (since_ms - 1) / HOUR_MS + 1;
	CLEAN(statement) sqlite3_stmt *s = NULL;
	const size_t max = query->max ? query->max : (size_t)MAX_DEFAULT;
	char sql[2 * SQL_SIZE];
	size_t count = 0;
	int rows;

	put_top(query, by, sql, sizeof(sql));
	rows = ask(r, sql,
		   WITH(NUMBER(by), NUMBER(hour), NUMBER(until_ms / HOUR_MS),
			NUMBER(since_ms), NUMBER(until_ms), TEXT(query->sandbox),
			NUMBER(query->scan ? (int64_t)query->scan : -1)),
		   &s, err);
	if (rows < 0)
		return rows;
	rows = add_all(r, s, &t, err);
	/* The sums move to the front of the table, which is of no use any more. */
	for (size_t i = 0; rows >= 0 && i < t.size; i++)
		if (t.slots[i])
			t.slots[count++] = t.slots[i];
	if (count > 0)
		qsort(t.slots, count, sizeof(struct sqlite_top *),
		      query->action == EVENT_ALLOW ? by_bytes : by_packets);
	for (size_t i = 0; i < MIN(count, max); i++)
		if (!on_top(data, t.slots[i]))
			break;
	arena_done(&t.arena);
	free(t.slots);
	return rows < 0 ? rows : query->scan > 0 && (size_t)rows >= query->scan;
}

/* ---- what happened when ---- */

/* As table activity has it. @buf holds ROW_SANDBOX_SIZE and one. */
static const char *scope_of(const char *sandbox, char *buf)
{
	snprintf(buf, ROW_SANDBOX_SIZE + 1, "%s%s", sandbox ? "=" : "*", sandbox ?: "");
	return buf;
}

int sqlite_activity(struct sqlite_reader *r, const char *sandbox, int64_t first,
		    int64_t minutes, size_t count, struct sqlite_bucket *ret,
		    struct err *err)
{
	static const char sql[] =
		"SELECT (minute - ?2) / ?3, action, sum(packets), sum(bytes) FROM"
		" activity WHERE scope = ?1 AND minute >= ?2 AND minute < ?4 AND action"
		" >= 0 AND action < ?5 GROUP BY 1, 2";
	CLEAN(statement) sqlite3_stmt *s = NULL;
	char scope[ROW_SANDBOX_SIZE + 1];
	int rc, code = ask(r, sql,
			   WITH(TEXT(scope_of(sandbox, scope)), NUMBER(first),
				NUMBER(minutes), NUMBER(first + minutes * (int64_t)count),
				NUMBER(EVENT_ACTION_COUNT)),
			   &s, err);

	if (code < 0)
		return code;
	memset(ret, 0, count * sizeof(*ret));
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		struct sqlite_bucket *b = &ret[sqlite3_column_int64(s, 0)];
		const int action = sqlite3_column_int(s, 1);

		b->packets[action] = (uint64_t)sqlite3_column_int64(s, 2);
		if (action == EVENT_ALLOW)
			b->bytes = (uint64_t)sqlite3_column_int64(s, 3);
	}
	return rc == SQLITE_DONE ? 0 : search_fault(r, rc, err);
}

/* ?1 the beginning, ?2 how many rows, ?3 the sandbox. Rows that don't count have no
 * packets, so that ?2 is of all that are read. */
#define OF_ALL                                                                           \
	"SELECT packets AS p FROM event WHERE action = 2 AND ts >= ?1 ORDER BY ts DESC"  \
	" LIMIT ?2"
#define OF_ONE                                                                           \
	"SELECT iif(action = 2, packets, NULL) AS p FROM event WHERE sandbox = ?3 AND"   \
	" ts >= ?1 ORDER BY ts DESC LIMIT ?2"

int sqlite_count_denied(struct sqlite_reader *r, const char *sandbox, int64_t since_ms,
			size_t scan, struct sqlite_sum *ret, struct err *err)
{
	const char *sql = sandbox ? "SELECT count(*), count(p), coalesce(sum(p), 0) FROM"
				    " (" OF_ONE ")"
				  : "SELECT count(*), count(p), coalesce(sum(p), 0) FROM"
				    " (" OF_ALL ")";
	char scope[ROW_SANDBOX_SIZE + 1];
	int64_t counted[3], packets;
	int code = read_numbers(r, sql,
				WITH(NUMBER(since_ms), NUMBER(scan), TEXT(sandbox)),
				counted, ARRAY_SIZE(counted), err);

	static_assert(EVENT_DENY == 2, "as the statements have it");
	if (code < 0)
		return code;
	*ret = (struct sqlite_sum){ (uint64_t)counted[1], (uint64_t)counted[2] };
	if ((size_t)counted[0] < scan)
		return 0;
	code = read_numbers(
		r,
		"SELECT coalesce(sum(packets), 0) FROM activity WHERE scope = ?1"
		" AND minute >= ?2 AND action = 2",
		WITH(TEXT(scope_of(sandbox, scope)), NUMBER(since_ms / MINUTE_MS)),
		&packets, 1, err);
	if (code < 0)
		return code;
	ret->packets = MAX(ret->packets, (uint64_t)packets);
	return 1;
}
