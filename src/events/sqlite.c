// SPDX-License-Identifier: Apache-2.0
/* The thread folds rows into a small table and writes it out when it is full or a
 * window old. What can't be written is tried once more after making room (full) or
 * after moving the file aside (broken), and else is lost and counted. */
#include "events/sqlite.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "event/json.h"
#include "events/review.h"
#include "events/sqlite_file.h"
#include "sys/worker.h"

enum {
	QUEUE_BYTES = 1 << 20,
	RESERVE_BYTES = 256 * 1024, /* for changes of policy */
	TICK_MS = 250,
	TIDY_EVERY_MS = 60 * 1000,
	TIDY_ON_MS = 1000,    /* while there is more to tidy */
	REOPEN_MS = 5000,     /* between tries */
	ROOM_EVERY_MS = 5000, /* a disk that others fill must not empty the store */
	FREE_TIMEOUT_MS = 2000,
	LAST_TRIES = 3,
	FOLD_HEADS = SQLITE_FOLD_MAX,
};
#define DAY_MS INT64_C(86400000)

/* ---- review tasks, opened by what was just written ---- */

/* WHICH TASKS A SANDBOX HAS WHEN IT MAY HAVE NO MORE
 * One that asks for thousands of names must not hide the one that matters, neither by
 * coming first nor by coming last. So those that there are, as far as they are open, and
 * the new ones are weighed: how many of them lie below the same domain (the same /24 or
 * /48), the same top level (/16, /32), and how many opened in the same minute. The ones
 * with the most company go, of two the later one; what they counted is one task without a
 * destination. */

enum {
	DECIDED_MS = 5000, /* a denial that comes so soon after a decision is from before
			    * it */
	CELLS = 2048,
	MINUTE_MS = 60 * 1000,
	DOMAIN_WEIGHT = 4, /* of the company in a domain; in a top level and a minute 1 */
	WEIGHED_MAX = SQLITE_FOLD_MAX + REVIEW_PER_SANDBOX,
};

/* The database's, for as long as it is open. */
struct statements {
	sqlite3_stmt *insert, *count, *sums[SQLITE_SUMS];
	/* Of tasks. */
	sqlite3_stmt *written, *tasks, *open, *put, *remove;
};

/* What was denied to a sandbox of one destination. */
struct task {
	struct review review; /* id 0: there is none yet */
	bool is_new;
	bool folds; /* it becomes part of the one without a destination */
	bool asks;  /* it waits: whoever dismissed it before is asked again */
};

/* One that may have to go. */
struct weighed {
	int64_t id; /* 0: it is @task */
	struct task *task;
	uint64_t domain, top, minute;
};

static int prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret)
{
	return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL);
}

/* Bind, run, reset. Return: a code of SQLite's. */
static int run(sqlite3_stmt *s, const struct sqlite_value *values, size_t count)
{
	sqlite_bind(s, values, count);
	sqlite3_step(s);
	return sqlite3_reset(s);
}

/* Return: a code of SQLite's. */
static int prepare_all(struct statements *t, sqlite3 *db)
{
	static const char insert[] =
		"INSERT INTO event (ts, sandbox, action, layer, remote_ip, remote_port,"
		" protocol, name, rule, rule_file, rule_line, packets, bytes, reason,"
		" query_type, limit_id, uid, pid, command, allowable, advice,"
		" looks_like) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
	static const char count[] =
		"INSERT INTO counter (action, layer, packets, rows) VALUES (?,?,?,1)"
		" ON CONFLICT DO UPDATE SET packets = packets + excluded.packets,"
		" rows = rows + 1";
	static const char put[] =
		"INSERT INTO review (id, sandbox, destination, is_name, port, protocol,"
		" packets, rows, first_ts, last_ts, advice, looks_like) SELECT 1 + "
		"max((SELECT"
		" coalesce(max(id), 0) FROM review), last), ?,?,?,?,?,?,?,?,?,?11,?12 "
		"FROM"
		" review_number WHERE true"
		" ON CONFLICT (sandbox, destination) DO UPDATE SET"
		" packets = packets + excluded.packets, rows = rows + excluded.rows,"
		" first_ts = min(first_ts, excluded.first_ts),"
		" last_ts = max(last_ts, excluded.last_ts),"
		" port = excluded.port, protocol = excluded.protocol,"
		" advice = excluded.advice, looks_like = excluded.looks_like,"
		" state = iif((state = 3 AND NOT ?13) OR (state IN (2, 3) AND"
		" excluded.last_ts BETWEEN decided_ts - ?14 AND decided_ts +"
		" iif(?13, 0, ?10)), state, 1)";
	const struct {
		sqlite3_stmt **ret;
		const char *sql;
	} all[] = {
		{ &t->insert, insert },
		{ &t->count, count },
		{ &t->written,
		  /* The last row says what was denied: a mixture of rows was not. */
		  "SELECT s.sandbox, what, e.name IS NOT NULL, e.remote_port, e.protocol,"
		  " s.packets, s.rows, s.first_ts, s.last_ts, EXISTS (SELECT 1 FROM"
		  " review r WHERE r.sandbox = s.sandbox AND r.destination = what),"
		  " e.advice, e.looks_like, s.asks FROM (SELECT sandbox, coalesce(name,"
		  " remote_ip) AS what, max(id) AS last_id, sum(packets) AS packets,"
		  " count(*) AS rows, min(ts) AS first_ts, max(ts) AS last_ts,"
		  " max(action = 7) AS asks FROM event NOT INDEXED WHERE id >= ? AND"
		  " action IN (2, 7) AND allowable = 1 AND coalesce(name, remote_ip) IS"
		  " NOT NULL GROUP BY sandbox, what) s CROSS JOIN event e ON e.id ="
		  " s.last_id ORDER BY s.sandbox" },
		{ &t->tasks, "SELECT count(*) FROM review WHERE sandbox = ?" },
		{ &t->open, "SELECT id, destination, is_name, first_ts FROM review WHERE"
			    " sandbox = ? AND state = 1 AND destination <> ''" },
		{ &t->put, put },
		{ &t->remove, "DELETE FROM review WHERE id = ? RETURNING packets, rows,"
			      " first_ts, last_ts" },
	};
	int rc = SQLITE_OK;

	for (size_t i = 0; i < ARRAY_SIZE(all) && rc == SQLITE_OK; i++)
		rc = prepare(db, all[i].sql, all[i].ret);
	for (size_t i = 0; i < SQLITE_SUMS && rc == SQLITE_OK; i++)
		rc = prepare(db, sqlite_sums[i].sql, &t->sums[i]);
	return rc;
}

/* Open it, or add to what there is. A decision that is more than a day ahead doesn't
 * count: the clock was wrong, or somebody else wrote it. */
static int put_task(struct statements *t, const struct review *v, bool folds, bool asks)
{
	const bool looks = !folds && v->looks_like[0];

	return run(t->put,
		   WITH(TEXT(v->sandbox), TEXT(folds ? "" : v->destination),
			NUMBER(!folds && v->is_name),
			!folds && v->port > 0 ? NUMBER(v->port) : TEXT(NULL),
			!folds && v->protocol > 0 ? NUMBER(v->protocol) : TEXT(NULL),
			NUMBER(v->packets), NUMBER(v->rows), NUMBER(v->first_ms),
			NUMBER(v->last_ms), NUMBER(DECIDED_MS),
			TEXT(folds ? NULL : v->advice),
			TEXT(looks ? v->looks_like : NULL), NUMBER(asks),
			NUMBER(DAY_MS)));
}

/* ---- company ---- */

static const struct hash_key key; /* only counts hang on it, of one sandbox's own */

/* The last @labels labels of @name: all of it when it has no more. */
static uint64_t hash_tail(const char *name, size_t labels)
{
	const size_t len = strlen(name);
	size_t at = len;

	while (at > 0 && (name[at - 1] != '.' || --labels > 0))
		at--;
	return hash_bytes(&key, name + at, len - at);
}

static void group(struct weighed *w, const char *destination, bool is_name,
		  int64_t first_ms)
{
	struct addr a;

	w->minute = (uint64_t)(first_ms / MINUTE_MS);
	if (!is_name && addr_parse(destination, strlen(destination), &a)) {
		w->domain = hash_bytes(&key, a.bytes, a.family == ADDR_V4 ? 3 : 6);
		w->top = hash_bytes(&key, a.bytes, a.family == ADDR_V4 ? 2 : 4);
	} else {
		w->domain = hash_tail(destination, 2);
		w->top = hash_tail(destination, 1);
	}
}

/* How many there are in each domain, top level and minute. */
struct company {
	uint16_t domains[CELLS], tops[CELLS], minutes[CELLS];
};

static void add_company(struct company *c, const struct weighed *w, int n)
{
	c->domains[w->domain % CELLS] += n;
	c->tops[w->top % CELLS] += n;
	c->minutes[w->minute % CELLS] += n;
}

static uint32_t weight(const struct company *c, const struct weighed *w)
{
	return DOMAIN_WEIGHT * c->domains[w->domain % CELLS] + c->tops[w->top % CELLS] +
	       c->minutes[w->minute % CELLS];
}

/* Is @a the one of the two to go: the heavier one, or the one that came later? */
static bool goes_first(const struct company *c, const struct weighed *a,
		       const struct weighed *b)
{
	const uint32_t x = weight(c, a), y = weight(c, b);

	if (x != y)
		return x > y;
	if ((a->id == 0) != (b->id == 0))
		return a->id == 0;
	return a->id > b->id;
}

/* Move the @excess heaviest of the @count to the front. One that goes is company to none
 * of those that stay: a task of its own would else go for a flood that was there in its
 * minute, and has gone. */
static void choose(struct weighed *all, size_t count, size_t excess)
{
	struct company c = { 0 };

	for (size_t i = 0; i < count; i++)
		add_company(&c, &all[i], 1);
	for (size_t i = 0; i < excess; i++) {
		struct weighed *next = &all[i], chosen;

		for (size_t j = i + 1; j < count; j++)
			if (goes_first(&c, &all[j], next))
				next = &all[j];
		chosen = *next;
		*next = all[i];
		all[i] = chosen;
		add_company(&c, &chosen, -1);
	}
}

/* ---- room ---- */

/* It becomes part of the one without a destination. */
static int fold_task(struct statements *t, const char *sandbox, int64_t id)
{
	sqlite3_stmt *s = t->remove;
	struct review gone = { 0 };
	int rc;

	snprintf(gone.sandbox, sizeof(gone.sandbox), "%s", sandbox);
	sqlite3_bind_int64(s, 1, id);
	if (sqlite3_step(s) == SQLITE_ROW) {
		gone.packets = (uint64_t)sqlite3_column_int64(s, 0);
		gone.rows = (uint64_t)sqlite3_column_int64(s, 1);
		gone.first_ms = sqlite3_column_int64(s, 2);
		gone.last_ms = sqlite3_column_int64(s, 3);
	}
	while (sqlite3_step(s) == SQLITE_ROW)
		;
	rc = sqlite3_reset(s);
	return rc == SQLITE_OK && gone.rows > 0 ? put_task(t, &gone, true, false) : rc;
}

/* The @count tasks of one sandbox, @excess more than there may be. */
static int fold_some(struct statements *t, struct task *tasks, size_t count,
		     size_t excess)
{
	CLEAN(mem) struct weighed *all = calloc(WEIGHED_MAX, sizeof(*all));
	size_t used = 0;
	int rc;
	sqlite3_stmt *s;
	char destination[EVENT_NAME_SIZE];

	if (!all)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct review *v = &tasks[i].review;

		if (!tasks[i].is_new)
			continue;
		all[used].task = &tasks[i];
		group(&all[used++], v->destination, v->is_name, v->first_ms);
	}
	s = t->open;
	sqlite_bind(s, WITH(TEXT(tasks->review.sandbox)));
	while (used < WEIGHED_MAX && sqlite3_step(s) == SQLITE_ROW) {
		struct weighed *w = &all[used++];

		*w = (struct weighed){ .id = sqlite3_column_int64(s, 0) };
		sqlite_read_text(s, 1, destination, sizeof(destination));
		group(w, destination, sqlite3_column_int(s, 2) == 1,
		      sqlite3_column_int64(s, 3));
	}
	rc = sqlite3_reset(s);
	excess = MIN(excess, used);
	choose(all, used, excess);
	for (size_t i = 0; i < excess && rc == SQLITE_OK; i++) {
		if (all[i].task)
			all[i].task->folds = true;
		else
			rc = fold_task(t, tasks->review.sandbox, all[i].id);
	}
	return rc;
}

static int make_way(struct statements *t, struct task *tasks, size_t count)
{
	size_t there = 0, added = 0;
	int rc;

	sqlite_bind(t->tasks, WITH(TEXT(tasks->review.sandbox)));
	if (sqlite3_step(t->tasks) == SQLITE_ROW)
		there = (size_t)sqlite3_column_int64(t->tasks, 0);
	rc = sqlite3_reset(t->tasks);
	for (size_t i = 0; i < count; i++)
		added += tasks[i].is_new;
	if (rc != SQLITE_OK || added == 0 || there + added <= REVIEW_PER_SANDBOX)
		return rc;
	return fold_some(t, tasks, count, there + added - REVIEW_PER_SANDBOX);
}

/* ---- the tasks of what was written ---- */

/* The review tasks of the denials from row @first_row on. Return: a code of SQLite's. */
static int write_tasks(struct statements *s, int64_t first_row)
{
	/* In order of their sandboxes. */
	CLEAN(mem) struct task *tasks = malloc(SQLITE_FOLD_MAX * sizeof(*tasks));
	sqlite3_stmt *row = s->written;
	size_t count = 0;
	int rc;

	if (!tasks)
		return SQLITE_NOMEM;
	sqlite3_bind_int64(row, 1, first_row);
	while (count < SQLITE_FOLD_MAX && sqlite3_step(row) == SQLITE_ROW) {
		struct task *t = &tasks[count++];
		struct review *v = &t->review;

		memset(t, 0, sizeof(*t));
		review_read_seen(row, 0, v);
		t->is_new = sqlite3_column_int(row, 9) == 0;
		sqlite_read_text(row, 10, v->advice, sizeof(v->advice));
		sqlite_read_text(row, 11, v->looks_like, sizeof(v->looks_like));
		t->asks = sqlite3_column_int(row, 12) == 1;
	}
	rc = sqlite3_reset(row);
	for (size_t first = 0, end; first < count && rc == SQLITE_OK; first = end) {
		for (end = first + 1; end < count; end++)
			if (strcmp(tasks[end].review.sandbox,
				   tasks[first].review.sandbox) != 0)
				break;
		rc = make_way(s, &tasks[first], end - first);
		for (size_t i = first; i < end && rc == SQLITE_OK; i++)
			rc = put_task(s, &tasks[i].review, tasks[i].folds, tasks[i].asks);
	}
	return rc;
}

/* ---- the writer ---- */

static const struct sqlite_clock system_clock = { clock_now_ms, clock_wall_ms };

struct sqlite_writer {
	struct worker *worker;
	char directory[SQLITE_PATH_SIZE - 64];
	struct sqlite_config config; /* without zeros; of that directory */
	/* The thread's alone. */
	sqlite3 *db;		  /* NULL: to be opened from @reopen_ms on */
	struct sqlite_inode file; /* that is, or was tried */
	struct statements statements;
	int64_t reopen_ms, window_ms, tidy_ms, room_ms;
	struct sqlite_age age;
	bool lacks_spare;	  /* nothing is put by for a full disk */
	struct event_row *folded; /* SQLITE_FOLD_MAX, made with the first row */
	size_t folded_count;
	struct hash_key key;
	uint16_t heads[FOLD_HEADS], next[SQLITE_FOLD_MAX]; /* index + 1 */
	/* Both sides'. */
	pthread_mutex_t lock;
	struct sqlite_state state;
};

/* ---- the state ---- */

static void set_trouble(struct sqlite_writer *w, const char *text)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->state.trouble, sizeof(w->state.trouble), "%s", text);
	pthread_mutex_unlock(&w->lock);
}

static void count_rows(struct sqlite_writer *w, bool kept)
{
	uint64_t packets = 0;

	for (size_t i = 0; i < w->folded_count; i++)
		packets += w->folded[i].event.packets;
	pthread_mutex_lock(&w->lock);
	if (kept) {
		w->state.rows += w->folded_count;
		w->state.packets += packets;
		/* All is well again, but what was stored before isn't there: that stays
		 * to be reported. */
		w->state.trouble[0] = '\0';
		if (w->state.moved_aside > 0)
			snprintf(w->state.trouble, sizeof(w->state.trouble),
				 "a broken database was moved aside (%" PRIu32
				 " since the start); events begin anew",
				 w->state.moved_aside);
	} else {
		w->state.lost_rows += w->folded_count;
		w->state.lost_packets += packets;
	}
	pthread_mutex_unlock(&w->lock);
}

/* ---- the database ---- */

static void close_database(struct sqlite_writer *w)
{
	sqlite3_stmt *s;

	while (w->db && (s = sqlite3_next_stmt(w->db, NULL)))
		sqlite3_finalize(s);
	sqlite3_close(w->db);
	w->db = NULL;
}

/* Unless another writer of the same store has done it. */
static void move_aside(struct sqlite_writer *w)
{
	close_database(w);
	if (!sqlite_file_move_aside(w->directory, &w->file, w->config.clock->wall_ms()))
		return;
	pthread_mutex_lock(&w->lock);
	w->state.moved_aside++;
	pthread_mutex_unlock(&w->lock);
}

static int open_again(struct sqlite_writer *w, struct err *err)
{
	int rc, r;

	w->file = sqlite_file_inode(w->directory);
	r = sqlite_file_open(&w->config, &w->db, err);
	if (r < 0)
		return r;
	rc = prepare_all(&w->statements, w->db);
	if (rc != SQLITE_OK) {
		r = sqlite_fault(w->db, rc, "cannot use the database", err);
		close_database(w);
		return r;
	}
	w->lacks_spare = !sqlite_file_put_by(w->directory);
	w->file = sqlite_file_inode(w->directory);
	return 0;
}

/* Return: 0 with an open database. A file that was taken away or moved aside by somebody
 * is written on by nobody. The @last call doesn't wait for the time of the next try. */
static int open_database(struct sqlite_writer *w, bool last, struct err *err)
{
	const int64_t now_ms = w->config.clock->now_ms();
	const struct sqlite_inode there = sqlite_file_inode(w->directory);
	int r;

	/* The name may be another file's: the one that was opened, or tried, may have
	 * been taken away while it was being opened. */
	if (w->db && sqlite_same_inode(&there, &w->file) &&
	    !sqlite_file_is_cut(w->directory))
		return 0;
	if (w->db)
		w->reopen_ms = now_ms;
	/* It could be written on, and nobody could read it. */
	if (w->db && sqlite_file_is_cut(w->directory))
		move_aside(w);
	close_database(w);
	if (now_ms < w->reopen_ms && !last)
		return -EAGAIN;
	w->reopen_ms = now_ms + REOPEN_MS;
	r = open_again(w, err);
	if (r == -EBADMSG) {
		move_aside(w);
		r = open_again(w, err);
	}
	if (r == -EBUSY)
		w->reopen_ms = now_ms;
	return r;
}

/* ---- writing ---- */

/* Text that isn't UTF-8 would stop whoever reads the file. */
static void bind_text(sqlite3_stmt *s, int i, const char *text, size_t size, bool empty)
{
	const struct text t = { text, strnlen(text, size) };
	char shown[4 * EVENT_NAME_SIZE + 8];

	if (t.len == 0 && !empty)
		sqlite3_bind_null(s, i);
	else if (jtext_is_utf8(t))
		sqlite3_bind_text(s, i, t.ptr, (int)t.len, SQLITE_TRANSIENT);
	else
		sqlite3_bind_text(s, i, text_escape(t, shown, sizeof(shown)), -1,
				  SQLITE_TRANSIENT);
}

static void bind_number(sqlite3_stmt *s, int i, bool known, int64_t n)
{
	if (known)
		sqlite3_bind_int64(s, i, n);
	else
		sqlite3_bind_null(s, i);
}

static int write_row(struct sqlite_writer *w, const struct event_row *row)
{
	const struct event *e = &row->event;
	char addr[ADDR_TEXT_SIZE] = "";
	sqlite3_stmt *s = w->statements.insert;
	int i = 0;

	if (e->remote.family != ADDR_NONE)
		addr_format(&e->remote, addr);
	bind_number(s, ++i, true, e->ts_ms);
	bind_text(s, ++i, row->sandbox, sizeof(row->sandbox), true);
	bind_number(s, ++i, true, e->action);
	bind_number(s, ++i, true, e->layer);
	bind_text(s, ++i, addr, sizeof(addr), false);
	bind_number(s, ++i, e->port > 0, e->port);
	bind_number(s, ++i, e->protocol > 0, e->protocol);
	bind_text(s, ++i, e->name, sizeof(e->name), false);
	bind_text(s, ++i, row->rule, sizeof(row->rule), false);
	bind_text(s, ++i, row->rule_file, sizeof(row->rule_file), false);
	bind_number(s, ++i, row->rule_line > 0, row->rule_line);
	bind_number(s, ++i, true, (int64_t)e->packets);
	bind_number(s, ++i, true, (int64_t)e->bytes);
	bind_text(s, ++i, e->reason, sizeof(e->reason), false);
	bind_number(s, ++i, e->query_type > 0, e->query_type);
	bind_number(s, ++i, e->limit > 0, e->limit);
	bind_number(s, ++i, e->uid != UINT32_MAX, e->uid);
	bind_number(s, ++i, e->pid > 0, e->pid);
	bind_text(s, ++i, e->command, sizeof(e->command), false);
	bind_number(s, ++i, e->allowable, 1);
	bind_text(s, ++i, e->advice, sizeof(e->advice), false);
	bind_text(s, ++i, row->looks_like, sizeof(row->looks_like), false);
	sqlite3_step(s);
	return sqlite3_reset(s);
}

/* All or nothing. */
static int write_folded(struct sqlite_writer *w, struct err *err)
{
	struct statements *s = &w->statements;
	int64_t first = 0;
	int rc = SQLITE_OK, r;

	r = sqlite_run(w->db, "BEGIN IMMEDIATE", err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < w->folded_count && rc == SQLITE_OK; i++) {
		const struct event *e = &w->folded[i].event;

		rc = write_row(w, &w->folded[i]);
		if (rc == SQLITE_OK)
			rc = run(s->count, WITH(NUMBER(e->action), NUMBER(e->layer),
						NUMBER(e->packets)));
		if (i == 0)
			first = sqlite3_last_insert_rowid(w->db);
	}
	/* These rows, into the sums and the review tasks. */
	for (size_t i = 0; i < SQLITE_SUMS && rc == SQLITE_OK; i++)
		rc = run(s->sums[i], WITH(NUMBER(first), NUMBER(INT64_MAX)));
	if (rc == SQLITE_OK)
		rc = write_tasks(s, first);
	if (rc != SQLITE_OK)
		r = sqlite_fault(w->db, rc, "cannot write to the database", err);
	else
		r = sqlite_run(w->db, "COMMIT", err);
	if (r < 0)
		sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

/* Return: whether another try is worth it. */
static bool mend(struct sqlite_writer *w, int fault)
{
	const int64_t now_ms = w->config.clock->now_ms();

	if (fault == -EBUSY)
		return false; /* somebody else writes */
	if (fault == -ENOSPC && now_ms < w->room_ms)
		return false;
	if (fault == -ENOSPC) {
		w->room_ms = now_ms + ROOM_EVERY_MS;
		fault = sqlite_file_make_room(w->db, w->directory);
		if (fault == 0)
			return true;
	}
	if (fault == -EBADMSG) {
		move_aside(w);
		return open_again(w, NULL) == 0;
	}
	/* The file may have been taken away: begin anew. */
	close_database(w);
	return false;
}

/* What can't be written waits for the next window, unless there is no room for more or
 * this is the @last call. */
static void write_out(struct sqlite_writer *w, bool last)
{
	struct err err = { 0 };
	int r = open_database(w, last, &err);

	if (r == 0)
		r = sqlite_file_check_log(w->db, &w->config, &err);
	if (r == 0) {
		r = write_folded(w, &err);
		if (r < 0 && mend(w, r)) {
			w->lacks_spare = true; /* it may have been used up */
			r = write_folded(w, &err);
		}
	}
	if (r == 0 && w->lacks_spare)
		w->lacks_spare = !sqlite_file_put_by(w->directory);
	if (r < 0 && err.text[0])
		set_trouble(w, err.text);
	w->window_ms = w->config.clock->now_ms();
	if (r < 0 && !last && w->folded_count < SQLITE_FOLD_MAX)
		return;
	count_rows(w, r == 0);
	w->folded_count = 0;
	memset(w->heads, 0, sizeof(w->heads));
}

/* ---- folding ---- */

static bool folds(const struct event_row *a, const struct event_row *b)
{
	const struct event *x = &a->event, *y = &b->event;

	return x->action == y->action && x->layer == y->layer && x->port == y->port &&
	       x->protocol == y->protocol && x->limit == y->limit &&
	       x->query_type == y->query_type && x->allowable == y->allowable &&
	       x->pid == y->pid && x->uid == y->uid && a->rule_line == b->rule_line &&
	       addr_equal(&x->remote, &y->remote) && event_same_reason(x, y) &&
	       strncmp(x->name, y->name, sizeof(x->name)) == 0 &&
	       strncmp(x->advice, y->advice, sizeof(x->advice)) == 0 &&
	       strncmp(a->looks_like, b->looks_like, sizeof(a->looks_like)) == 0 &&
	       strncmp(x->command, y->command, sizeof(x->command)) == 0 &&
	       strncmp(a->sandbox, b->sandbox, sizeof(a->sandbox)) == 0 &&
	       strncmp(a->rule, b->rule, sizeof(a->rule)) == 0 &&
	       strncmp(a->rule_file, b->rule_file, sizeof(a->rule_file)) == 0;
}

static void fold_row(struct sqlite_writer *w, const struct event_row *row)
{
	const struct event *e = &row->event;
	struct event *known;
	uint16_t *head, i;
	uint64_t h[3];

	h[0] = hash_bytes(&w->key, e->name, strnlen(e->name, sizeof(e->name)));
	h[1] = hash_bytes(&w->key, e->remote.bytes, sizeof(e->remote.bytes)) ^ e->port;
	h[2] = hash_bytes(&w->key, row->sandbox, strnlen(row->sandbox, ROW_SANDBOX_SIZE));
	head = &w->heads[hash_bytes(&w->key, h, sizeof(h)) % FOLD_HEADS];
	i = *head;
	while (i > 0 && !folds(&w->folded[i - 1], row))
		i = w->next[i - 1];
	if (i > 0) {
		known = &w->folded[i - 1].event;
		known->packets += row->event.packets;
		known->bytes += row->event.bytes;
		known->ts_ms = MIN(known->ts_ms, row->event.ts_ms);
		return;
	}
	w->folded[w->folded_count] = *row;
	w->next[w->folded_count] = *head;
	*head = (uint16_t)++w->folded_count;
}

/* In the thread. */
static void on_record(void *data, const void *record, size_t size)
{
	struct sqlite_writer *w = data;

	if (size == 0) { /* sqlite_writer_drain() asks; somebody else may be writing */
		for (int i = 1; i <= LAST_TRIES && w->folded_count > 0; i++)
			write_out(w, i == LAST_TRIES);
		return;
	}
	if (!w->folded)
		w->folded = calloc(SQLITE_FOLD_MAX, sizeof(*w->folded));
	if (!w->folded) {
		pthread_mutex_lock(&w->lock);
		w->state.lost_rows++;
		pthread_mutex_unlock(&w->lock);
		return;
	}
	if (w->folded_count == 0)
		w->window_ms = w->config.clock->now_ms();
	fold_row(w, record);
	if (w->folded_count == SQLITE_FOLD_MAX)
		write_out(w, false);
}

/* ---- between two batches ---- */

static void on_pause(void *data)
{
	struct sqlite_writer *w = data;
	const int64_t now_ms = w->config.clock->now_ms();
	struct err err = { 0 };
	int64_t wall_ms, oldest_ms;
	bool more;

	if (w->folded_count > 0 && now_ms - w->window_ms >= SQLITE_WINDOW_MS)
		write_out(w, false);
	if (now_ms < w->tidy_ms)
		return;
	w->tidy_ms = now_ms + TIDY_EVERY_MS;
	if (open_database(w, false, &err) < 0) {
		if (err.text[0])
			set_trouble(w, err.text);
		return;
	}
	wall_ms = w->config.clock->wall_ms();
	oldest_ms = sqlite_age_limit(&w->age, w->db, now_ms, wall_ms,
				     w->config.max_days * DAY_MS);
	more = sqlite_tidy(w->db, w->config.max_bytes, oldest_ms, wall_ms);
	if (more)
		w->tidy_ms = now_ms + TIDY_ON_MS;
}

/* ---- the other side ---- */

int sqlite_writer_new(const struct sqlite_config *config, struct sqlite_writer **ret,
		      struct err *err)
{
	CLEAN(mem) struct sqlite_writer *w = calloc(1, sizeof(*w));
	const struct worker_config worker = { .name = "weir-sqlite",
					      .queue_bytes = QUEUE_BYTES,
					      .reserve_bytes = RESERVE_BYTES,
					      .tick_ms = TICK_MS,
					      .data = w,
					      .on_record = on_record,
					      .on_pause = on_pause };
	int r = 0;

	if (!w)
		return err_sys(err, -ENOMEM, "cannot store events");
	if (strlen(config->directory) >= sizeof(w->directory))
		r = err_sys(err, -ENAMETOOLONG, "cannot store events in '%s'",
			    config->directory);
	snprintf(w->directory, sizeof(w->directory), "%s", config->directory);
	w->config = *config;
	w->config.directory = w->directory;
	w->config.max_bytes = config->max_bytes ?: 256 << 20;
	w->config.max_days = config->max_days ?: 30;
	w->config.clock = config->clock ?: &system_clock;
	w->key = (struct hash_key){ (uintptr_t)w, (uintptr_t)&w->key };
	pthread_mutex_init(&w->lock, NULL);
	if (r == 0)
		r = worker_new(&worker, &w->worker, err);
	if (r == 0)
		*ret = TAKE_PTR(w);
	return r;
}

/* An empty record asks the thread to write now, whatever the window says. */
bool sqlite_writer_drain(struct sqlite_writer *w, int timeout_ms)
{
	return worker_push(w->worker, "", 0, true) && worker_drain(w->worker, timeout_ms);
}

void sqlite_writer_free(struct sqlite_writer *w)
{
	if (!w)
		return;
	(void)sqlite_writer_drain(w, FREE_TIMEOUT_MS);
	if (!worker_free(w->worker, FREE_TIMEOUT_MS))
		return; /* the disk hangs: the thread still uses it */
	close_database(w);
	pthread_mutex_destroy(&w->lock);
	free(w->folded);
	free(w);
}

void sqlite_writer_add(struct sqlite_writer *w, const struct event_row *row)
{
	if (worker_push(w->worker, row, sizeof(*row), row->event.action == EVENT_CHANGE))
		return;
	pthread_mutex_lock(&w->lock);
	w->state.lost_rows++;
	w->state.lost_packets += row->event.packets;
	pthread_mutex_unlock(&w->lock);
}

void sqlite_writer_state(struct sqlite_writer *w, struct sqlite_state *ret)
{
	pthread_mutex_lock(&w->lock);
	*ret = w->state;
	pthread_mutex_unlock(&w->lock);
}
