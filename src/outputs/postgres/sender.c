// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/sender.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "event/json.h"
#include "events/jsonl.h"
#include "events/review.h"
#include "events/sqlite_file.h"
#include "outputs/postgres/migrations_postgres.h" /* generated: migrations[] */
#include "outputs/postgres/server.h"
#include "outputs/postgres_state.h"

enum {
	SEARCH_MS = 10000,
	SQL_SIZE = 1024,
	REVIEW_AGAIN_MS = 5000, /* after they could not be copied */
	REVIEWS_BATCH = 50,	/* tasks in a transaction */
	COPY_ROW_SIZE = 16384,	/* holds any */
	LOCK_KEY = 0x77656972,	/* of pg_advisory_xact_lock: one brings tables up */
};

/* Versions of the tables, by what they brought. */
enum { TABLES_EVENT = 1, TABLES_REVIEW };

/* ---- rows, in the text format of COPY ---- */

static const char copy_columns[] =
	"analysis_id, ts, action, remote_ip, remote_port, fqdn_pinned, raw_pkts, layer,"
	" protocol, rule, rule_file, rule_line, packets, bytes, reason, query_type,"
	" limit_id, uid, pid, command, store, store_row";

/* Escaped, a byte takes four: \xff as text whose backslash is doubled takes five. */
static_assert((EVENT_NAME_SIZE + EVENT_REASON_SIZE + ROW_SANDBOX_SIZE + ROW_RULE_SIZE +
	       ROW_FILE_SIZE + EVENT_COMMAND_SIZE) *
				      5 +
			      1024 <=
		      COPY_ROW_SIZE,
	      "any row fits");

struct line {
	char *buf;
	size_t used;
};

static void put_byte(struct line *l, char c)
{
	if (l->used < COPY_ROW_SIZE - 1)
		l->buf[l->used++] = c;
}

static void put_raw(struct line *l, const char *text)
{
	for (; *text; text++)
		put_byte(l, *text);
}

static const char null_field[] = "\\N\t";

/* What isn't UTF-8 the server would refuse: that is escaped as everywhere. */
static void put_text(struct line *l, const char *value, size_t size)
{
	const struct text t = { value, strnlen(value, size) };
	char shown[4 * ROW_RULE_SIZE + 8];
	const char *p = t.ptr;

	if (t.len == 0) {
		put_raw(l, null_field);
		return;
	}
	if (!jtext_is_utf8(t))
		p = text_escape(t, shown, sizeof(shown));
	for (size_t i = 0; p == t.ptr ? i < t.len : p[i] != '\0'; i++) {
		switch (p[i]) {
		case '\\':
			put_raw(l, "\\\\");
			break;
		case '\t':
			put_raw(l, "\\t");
			break;
		case '\n':
			put_raw(l, "\\n");
			break;
		case '\r':
			put_raw(l, "\\r");
			break;
		default:
			put_byte(l, p[i]);
		}
	}
	put_byte(l, '\t');
}

static void put_number(struct line *l, bool known, uint64_t n)
{
	char digits[32];

	if (!known) {
		put_raw(l, null_field);
		return;
	}
	snprintf(digits, sizeof(digits), "%" PRIu64 "\t", MIN(n, (uint64_t)INT64_MAX));
	put_raw(l, digits);
}

/* One line of COPY with its end. @id is the row's number in the store @store (a UUID).
 * @buf holds COPY_ROW_SIZE. Return: the length. */
static size_t copy_row(const struct event_row *row, int64_t id, const char *store,
		       char *buf)
{
	const struct event *e = &row->event;
	struct line l = { .buf = buf };
	char small[ADDR_TEXT_SIZE + JTEXT_TIME_SIZE];

	put_text(&l, row->sandbox, sizeof(row->sandbox));
	put_raw(&l, jtext_time(e->ts_ms, true, small));
	put_byte(&l, '\t');
	put_raw(&l, event_action_name((enum event_action)e->action));
	put_byte(&l, '\t');
	if (e->remote.family != ADDR_NONE)
		put_text(&l, addr_format(&e->remote, small), sizeof(small));
	else
		put_raw(&l, null_field);
	put_number(&l, e->port > 0, e->port);
	put_text(&l, e->name, sizeof(e->name));
	put_number(&l, true, MIN(e->packets, (uint64_t)INT32_MAX));
	put_raw(&l, event_layer_name((enum event_layer)e->layer));
	put_byte(&l, '\t');
	put_text(&l, event_protocol_name(e->protocol, small), sizeof(small));
	put_text(&l, row->rule, sizeof(row->rule));
	put_text(&l, row->rule_file, sizeof(row->rule_file));
	put_number(&l, row->rule_line > 0, row->rule_line);
	put_number(&l, true, e->packets);
	put_number(&l, true, e->bytes);
	put_text(&l, e->reason, sizeof(e->reason));
	put_number(&l, e->query_type > 0, e->query_type);
	put_number(&l, e->limit > 0, e->limit);
	put_number(&l, e->uid != UINT32_MAX, e->uid);
	put_number(&l, e->pid > 0, e->pid);
	put_text(&l, e->command, sizeof(e->command));
	put_raw(&l, store);
	put_byte(&l, '\t');
	put_number(&l, true, (uint64_t)id);
	l.buf[l.used - 1] = '\n'; /* in the last tab's place */
	return l.used;
}

/* ---- tables ---- */

static const char make_tables[] = "make the tables";

/* 0 when there are none. */
static int read_version(struct server *server, int64_t *ret, struct err *err)
{
	CLEAN(result)
	PGresult *there = server_ask(
		server, "look for the tables",
		"SELECT to_regclass('sandbox_egress_schema') IS NOT NULL", NULL, 0, err);
	CLEAN(result) PGresult *res = NULL;

	*ret = 0;
	if (!there || strcmp(PQgetvalue(there, 0, 0), "t") != 0)
		return there ? 0 : -EIO;
	res = server_ask(server, "read the tables' version",
			 "SELECT coalesce(max(version), 0) FROM sandbox_egress_schema",
			 NULL, 0, err);
	if (!res)
		return -EIO;
	*ret = server_number(res, 0, 0);
	return 0;
}

/* Under a lock: others may be at it. A table that is there already and has many rows
 * gets its indexes, which takes its time. */
static int bring_up_to_date(struct server *server, struct err *err)
{
	char sql[SQL_SIZE];
	int64_t version = 0;
	int r = server_begin(server, err);

	snprintf(sql, sizeof(sql),
		 "SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(%d)",
		 LOCK_KEY);
	if (r == 0)
		r = server_order(server, make_tables, sql, NULL, 0, err);
	if (r == 0)
		r = read_version(server, &version, err);
	/* Each notes its own number. */
	for (size_t i = (size_t)version; r == 0 && i < ARRAY_SIZE(migrations); i++)
		r = server_order(server, make_tables, migrations[i], NULL, 0, err);
	return r < 0 ? r : server_commit(server, err);
}

/* One of many senders makes them; a role that may not is fine once those of the first
 * version are there, and so are tables of a newer Weir. Return: 0 with the version, or
 * -errno. */
static int tables_make(struct server *server, int64_t *ret_version, struct err *err)
{
	int64_t version = 0;
	int r = read_version(server, &version, err);

	if (r == 0 && version < (int64_t)ARRAY_SIZE(migrations)) {
		server_be_patient(server, true);
		r = bring_up_to_date(server, err);
		server_be_patient(server, false);
		if (r == 0)
			version = ARRAY_SIZE(migrations);
		else if (r == -EPERM && version >= TABLES_EVENT) {
			*err = (struct err){ 0 };
			r = server_roll_back(server, err);
		}
	}
	if (r == 0)
		*ret_version = version;
	return r;
}

/* ---- review tasks, as they stand in the store ---- */

/* Copied only that way: what is written there decides nothing here, so that no row of a
 * database opens a way out. */

static const char upsert[] =
	"INSERT INTO sandbox_egress_review AS r (store, task, analysis_id, destination,"
	" remote_port, protocol, packets, events, first_ts, last_ts, state, who,"
	" decided_ts, rule)"
	" SELECT $1::uuid, t.id, t.sandbox, t.destination, t.port, t.protocol, t.packets,"
	" t.events, t.first, t.last, t.state, t.who, t.decided, t.rule"
	" FROM jsonb_to_recordset($2::jsonb) AS t (id BIGINT, sandbox TEXT,"
	" destination TEXT, port INT, protocol TEXT, packets BIGINT, events BIGINT,"
	" first TIMESTAMPTZ, last TIMESTAMPTZ, state TEXT, who TEXT,"
	" decided TIMESTAMPTZ, rule JSONB)"
	" ON CONFLICT (store, task) DO UPDATE SET remote_port = excluded.remote_port,"
	" protocol = excluded.protocol, packets = excluded.packets,"
	" events = excluded.events, first_ts = excluded.first_ts,"
	" last_ts = excluded.last_ts, state = excluded.state, who = excluded.who,"
	" decided_ts = excluded.decided_ts, rule = excluded.rule";

/* The tasks as a list in JSON. */
struct task_list {
	struct jtext json; /* grows */
	size_t count;
	int64_t last;
};

static bool on_task(void *data, const struct review *t)
{
	struct task_list *l = data;

	jtext_open(&l->json, NULL, '{');
	review_put(&l->json, t);
	jtext_close(&l->json, '}');
	l->count++;
	l->last = t->change;
	return true;
}

static bool on_any(void *data, const struct review *t)
{
	*(bool *)data = t->change > 0;
	return false;
}

/* Whether a task has changed since the change of the number @above. */
static int reviews_wait(struct review_store *store, int64_t above, bool *ret,
			struct err *err)
{
	*ret = false;
	return review_changed(store, above, 1, on_any, ret, err);
}

/* Within a transaction that it ends: @max tasks of the store @uuid from the change behind
 * *@reviewed on, which is moved. One task alone that the server doesn't take is passed
 * over. Return: how many; -EBADMSG: one of several is not taken; or another -errno. */
static int reviews_copy(struct server *server, struct review_store *store,
			const char *uuid, size_t max, int64_t *reviewed, struct err *err)
{
	struct task_list l = { .json = { .grows = true } };
	CLEAN(mem) char *json = NULL;
	char sql[SQL_SIZE];
	int r;

	jtext_open(&l.json, NULL, '[');
	r = review_changed(store, *reviewed, MIN(max, (size_t)REVIEWS_BATCH), on_task, &l,
			   err);
	jtext_close(&l.json, ']');
	json = jtext_take(&l.json);
	if (r == 0 && l.count == 0)
		r = server_roll_back(server, err);
	else if (r == 0 && !json)
		r = err_sys(err, -ENOMEM, "cannot copy review tasks");
	else if (r == 0)
		r = server_order(server, "copy review tasks", upsert,
				 (const char *const[]){ uuid, json }, 2, err);
	/* The others must not wait for one that the server will never have. */
	if (r == -EBADMSG && l.count == 1) {
		r = server_roll_back(server, err);
		if (r == 0)
			r = server_begin(server, err);
	}
	if (r < 0 || l.count == 0)
		return r;
	snprintf(sql, sizeof(sql),
		 "UPDATE sandbox_egress_store SET reviewed = %" PRId64
		 ", at = now() WHERE store = '%s'",
		 l.last, uuid);
	r = server_order(server, "note how far review tasks are copied", sql, NULL, 0,
			 err);
	if (r == 0)
		r = server_commit(server, err);
	if (r < 0)
		return r;
	*reviewed = l.last;
	return (int)l.count;
}

/* ---- the sender ---- */

enum { TABLE_EVENT = 0, TABLE_NOTICE, TABLE_COUNT };
static const char *const tables[TABLE_COUNT] = {
	[TABLE_EVENT] = "sandbox_egress_event",
	[TABLE_NOTICE] = "sandbox_egress_notice",
};

struct sender {
	const char *directory, *conninfo;
	struct server *server; /* NULL: not connected */
	bool fresh;	       /* it was connected in this step */
	bool cut;	       /* it was cut, which it may have been for long */
	int64_t version;       /* of its tables */
	struct sqlite_reader *store;
	struct review_store *reviews;
	struct sqlite_inode file;	 /* that @store reads */
	char uuid[SQLITE_STORE_ID_SIZE]; /* its */
	bool known;			 /* @state is the server's */
	struct sender_state state;
	size_t batch, review_batch;
	int64_t review_again_ms;
	/* The batch, as lines. */
	char *lines[TABLE_COUNT];
	size_t used[TABLE_COUNT];
	size_t rows;
	int64_t last;
};

struct sender *sender_new(const char *directory, const char *conninfo)
{
	const size_t size = (size_t)SENDER_BATCH * COPY_ROW_SIZE; /* of a table's lines */
	struct sender *s = calloc(1, sizeof(*s));
	char *lines = malloc(TABLE_COUNT * size);
	struct postgres_state last;

	if (!s || !lines) {
		free(s);
		free(lines);
		return NULL;
	}
	s->directory = directory;
	s->conninfo = conninfo;
	s->batch = SENDER_BATCH;
	s->review_batch = REVIEWS_BATCH;
	for (size_t i = 0; i < TABLE_COUNT; i++)
		s->lines[i] = lines + i * size;
	/* What the last sender reported is reported until the server says more. */
	if (postgres_state_read(directory, &last) == 0) {
		s->state.sent = last.sent;
		s->state.missed = last.missed;
		s->state.refused = last.refused;
	}
	return s;
}

static void let_server_go(struct sender *s)
{
	server_close(s->server);
	s->server = NULL;
}

static void disconnect(struct sender *s)
{
	let_server_go(s);
	s->known = false;
}

static void close_store(struct sender *s)
{
	sqlite_reader_close(s->store);
	review_close(s->reviews);
	s->store = NULL;
	s->reviews = NULL;
	s->known = false;
}

/* ---- the store ---- */

static int open_store(struct sender *s, struct err *err)
{
	const struct sqlite_inode there = sqlite_file_inode(s->directory);
	int r;

	if (there.number == 0)
		return err_sys(err, -errno, "cannot find the store");
	/* A broken file is moved aside and another begun. */
	if (s->store && sqlite_same_inode(&there, &s->file))
		return 0;
	close_store(s);
	s->file = there;
	r = sqlite_reader_open(s->directory, SEARCH_MS, &s->store, err);
	if (r == 0)
		r = sqlite_store_id(s->store, s->uuid, err);
	if (r == 0)
		r = review_open(s->directory, &s->reviews, err);
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

static bool on_first(void *data, int64_t id, const struct event_row *row)
{
	*(int64_t *)data = id;
	return row == NULL; /* one is enough */
}

/* How many rows wait at most, and how many went at least before they were copied: numbers
 * are in order, and where rows went in between, some are nobody's. */
struct sender_state sender_state(const struct sender *s)
{
	struct sender_state now = s->state;
	const struct sqlite_query q = { .since_ms = INT64_MIN,
					.oldest_first = true,
					.above_id = now.sent,
					.max = 1 };
	int64_t first = 0, newest = 0;

	if (!s->store || sqlite_find(s->store, &q, on_first, &first, NULL) < 0 ||
	    sqlite_id_before(s->store, INT64_MAX, &newest, NULL) < 0 || first == 0)
		return now;
	now.waiting = (uint64_t)MAX(newest - first + 1, INT64_C(0));
	if (now.sent > 0)
		now.missed += (uint64_t)(first - now.sent - 1);
	return now;
}

/* ---- from one to the other ---- */

/* With the row locked, so that two senders of one store take turns. */
static int lock_state(struct sender *s, struct err *err)
{
	const char *const uuid[] = { s->uuid };
	char sql[SQL_SIZE];
	CLEAN(result) PGresult *res = NULL;
	int r = server_order(s->server, "note a store",
			     "INSERT INTO sandbox_egress_store (store, sent) VALUES"
			     " ($1, 0) ON CONFLICT DO NOTHING",
			     uuid, 1, err);

	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	snprintf(sql, sizeof(sql),
		 "SELECT sent, missed, refused, %s FROM sandbox_egress_store WHERE"
		 " store = $1 FOR UPDATE",
		 s->version >= TABLES_REVIEW ? "reviewed" : "0");
	res = server_ask(s->server, "read how far a store is copied", sql, uuid, 1, err);
	if (!res)
		return -EIO;
	s->state.sent = server_number(res, 0, 0);
	s->state.missed = (uint64_t)server_number(res, 0, 1);
	s->state.refused = (uint64_t)server_number(res, 0, 2);
	s->state.reviewed = server_number(res, 0, 3);
	s->known = true;
	return 0;
}

static int finish(struct sender *s, uint64_t refused, struct err *err)
{
	/* A number that isn't there is a row that went. Of a store that is new here it
	 * went before anybody asked. */
	const uint64_t missed =
		s->state.sent > 0 ? (uint64_t)(s->last - s->state.sent) - s->rows : 0;
	char sql[SQL_SIZE];
	int r;

	snprintf(sql, sizeof(sql),
		 "UPDATE sandbox_egress_store SET sent = %" PRId64
		 ", missed = missed + %" PRIu64 ", refused = refused + %" PRIu64
		 ", at = now() WHERE store = '%s'",
		 s->last, missed, refused, s->uuid);
	r = server_order(s->server, "note how far a store is copied", sql, NULL, 0, err);
	if (r == 0)
		r = server_commit(s->server, err);
	if (r < 0)
		return r == -EBADMSG ? -EIO : r;
	s->state.sent = s->last;
	s->state.missed += missed;
	s->state.refused += refused;
	return 0;
}

/* Return: 0 within a transaction in which the rows behind the last one are at hand. */
static int begin_batch(struct sender *s, struct err *err)
{
	int64_t newest = 0;
	int r = server_begin(s->server, err);

	if (r == 0)
		r = lock_state(s, err);
	if (r == 0)
		r = sqlite_id_before(s->store, INT64_MAX, &newest, err);
	/* Numbers only grow. A file that was put back from a copy of it uses some again,
	 * and nobody can tell those events from the ones that were copied. */
	if (r == 0 && newest < s->state.sent)
		return err_set(err, -ESTALE,
			       "PostgreSQL has %" PRId64
			       " rows of a store that has %" PRId64
			       ": is it an old copy? move events.db away, and a new one "
			       "begins",
			       s->state.sent, newest);
	return r < 0 ? r : read_batch(s, err);
}

/* Data that is refused: half of it the next time, down to the row that it is. */
static int on_refused(struct sender *s, struct err *err)
{
	int r = server_roll_back(s->server, err);

	if (r < 0 || s->batch > 1) {
		s->batch = MAX(s->batch / 2, (size_t)1);
		return r < 0 ? r : 1;
	}
	/* A row that the server takes neither alone is passed over. */
	r = begin_batch(s, err);
	if (r == 0)
		r = s->rows == 1 ? finish(s, 1, err) : server_roll_back(s->server, err);
	return r < 0 ? r : 1;
}

static int send_batch(struct sender *s, struct err *err)
{
	char into[SQL_SIZE];
	int r = begin_batch(s, err);

	if (r < 0)
		return r;
	if (s->rows == 0)
		return server_roll_back(s->server, err);
	for (size_t i = 0; i < TABLE_COUNT && r == 0; i++) {
		snprintf(into, sizeof(into), "%s (%s)", tables[i], copy_columns);
		if (s->used[i] > 0)
			r = server_copy(s->server, into, s->lines[i], s->used[i], err);
	}
	if (r == 0)
		r = finish(s, 0, err);
	if (r == -EBADMSG)
		return on_refused(s, err);
	if (r < 0) {
		s->batch = MAX(s->batch / 2, (size_t)1); /* or it was too much */
		return r;
	}
	s->batch = MIN(s->batch * 2, (size_t)SENDER_BATCH);
	return (int)s->rows;
}

/* ---- reviews ---- */

static int copy_reviews(struct sender *s, struct err *err)
{
	int r = server_begin(s->server, err);

	if (r == 0)
		r = lock_state(s, err);
	if (r == 0)
		r = reviews_copy(s->server, s->reviews, s->uuid, s->review_batch,
				 &s->state.reviewed, err);
	if (r > 0)
		s->review_batch = MIN(s->review_batch * 2, (size_t)REVIEWS_BATCH);
	if (r >= 0)
		return r;
	if (r == -EBADMSG && s->review_batch > 1 &&
	    server_roll_back(s->server, err) == 0) {
		s->review_batch = 1;
		return 1; /* again, one by one */
	}
	return r;
}

/* Their trouble is not the events': it is told, and tried again after a while. */
static int send_reviews(struct sender *s)
{
	const int64_t now_ms = clock_now_ms();
	struct err err = { 0 };
	bool some = false;
	int r;

	if (now_ms < s->review_again_ms)
		return 0;
	s->state.trouble[0] = '\0';
	r = reviews_wait(s->reviews, s->state.reviewed, &some, &err);
	if (r == 0 && some && s->version < TABLES_REVIEW)
		r = err_set(&err, -EPERM,
			    "PostgreSQL: the role may not make sandbox_egress_review: "
			    "review tasks are not copied");
	else if (r == 0 && some)
		r = copy_reviews(s, &err);
	if (r >= 0)
		return r;
	s->review_again_ms = now_ms + REVIEW_AGAIN_MS;
	snprintf(s->state.trouble, sizeof(s->state.trouble), "%s", err.text);
	disconnect(s);
	return 0;
}

/* ---- a step ---- */

static int send_once(struct sender *s, struct err *err)
{
	int r = 0;

	if (!s->server) {
		s->fresh = true;
		r = server_open(s->conninfo, &s->server, err);
		if (r == 0)
			r = tables_make(s->server, &s->version, err);
	}
	if (r == 0)
		r = send_batch(s, err);
	if (r == 0)
		r = send_reviews(s);
	s->cut = r < 0 && !s->fresh && s->server && server_is_cut(s->server);
	if (r < 0)
		disconnect(s);
	return r;
}

int sender_step(struct sender *s, struct err *err)
{
	bool some = true;
	int r = open_store(s, err);

	/* While nothing is new, nobody is asked, and a server of thousands has its
	 * connection back. */
	if (r == 0 && s->known) {
		r = read_batch(s, err);
		some = s->rows > 0;
		if (r == 0 && !some && clock_now_ms() >= s->review_again_ms)
			r = reviews_wait(s->reviews, s->state.reviewed, &some, err);
	}
	if (r == 0 && !some && s->server && server_is_idle(s->server))
		let_server_go(s);
	if (r < 0 || !some)
		return r;
	s->fresh = false;
	r = send_once(s, err);
	/* A connection that lay idle may have been cut meanwhile. */
	if (r < 0 && s->cut) {
		memset(err, 0, sizeof(*err));
		r = send_once(s, err);
	}
	return r;
}
