// SPDX-License-Identifier: Apache-2.0
#include "events/review.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "events/sqlite_file.h"

/* ---- in the store ---- */

enum { BUSY_MS = 1000 };

struct review_store {
	sqlite3 *db;
};

int review_open(const char *directory, struct review_store **ret, struct err *err)
{
	CLEAN(review) struct review_store *r = calloc(1, sizeof(*r));
	int code = r ? sqlite_file_use(directory, BUSY_MS, &r->db, err)
		     : err_sys(err, -ENOMEM, "cannot open the database");

	if (code == 0)
		*ret = TAKE_PTR(r);
	return code;
}

void review_close(struct review_store *r)
{
	if (!r)
		return;
	sqlite3_close(r->db);
	free(r);
}

#define COLUMNS                                                                          \
	"SELECT id, sandbox, destination, is_name, port, protocol, packets, rows,"       \
	" first_ts, last_ts, state, who, decided_ts, change, advice, looks_like"         \
	" FROM review"

void review_read_seen(sqlite3_stmt *s, int column, struct review *t)
{
	sqlite_read_text(s, column++, t->sandbox, sizeof(t->sandbox));
	sqlite_read_text(s, column++, t->destination, sizeof(t->destination));
	t->is_name = sqlite3_column_int(s, column++) == 1;
	t->port = (uint16_t)sqlite3_column_int(s, column++);
	t->protocol = (uint8_t)sqlite3_column_int(s, column++);
	t->packets = (uint64_t)sqlite3_column_int64(s, column++);
	t->rows = (uint64_t)sqlite3_column_int64(s, column++);
	t->first_ms = sqlite3_column_int64(s, column++);
	t->last_ms = sqlite3_column_int64(s, column);
}

static void read_task(sqlite3_stmt *s, struct review *t)
{
	const int state = sqlite3_column_int(s, 10);

	memset(t, 0, sizeof(*t));
	t->id = sqlite3_column_int64(s, 0);
	review_read_seen(s, 1, t);
	t->state = state > REVIEW_NONE && state < REVIEW_STATE_COUNT
			   ? (enum review_state)state
			   : REVIEW_OPEN;
	sqlite_read_text(s, 11, t->who, sizeof(t->who));
	t->decided_ms = sqlite3_column_int64(s, 12);
	t->change = sqlite3_column_int64(s, 13);
	sqlite_read_text(s, 14, t->advice, sizeof(t->advice));
	sqlite_read_text(s, 15, t->looks_like, sizeof(t->looks_like));
}

static int read_fault(struct review_store *r, int rc, struct err *err)
{
	return sqlite_fault(r->db, rc, "cannot read the tasks", err);
}

/* @on_task with each row of @sql. */
static int each_task(struct review_store *r, const char *sql,
		     const struct sqlite_value *values, size_t count,
		     review_task_fn *on_task, void *data, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	struct review t;
	int rc = sqlite_ask(r->db, sql, values, count, &s);

	while (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		read_task(s, &t);
		if (!on_task(data, &t))
			return 0;
		rc = SQLITE_OK;
	}
	return rc == SQLITE_DONE ? 0 : read_fault(r, rc, err);
}

int review_list(struct review_store *r, enum review_state state, const char *sandbox,
		review_task_fn *on_task, void *data, struct err *err)
{
	/* As many of each sandbox: one with hundreds hides nobody's. */
	return each_task(
		r,
		COLUMNS " WHERE id IN (SELECT id FROM review WHERE (?1 = 0 OR state = ?1)"
			" AND (?2 IS NULL OR sandbox = ?2) ORDER BY row_number() OVER"
			" (PARTITION BY sandbox ORDER BY last_ts DESC, id DESC), last_ts"
			" DESC LIMIT ?3) ORDER BY last_ts DESC, id DESC",
		WITH(NUMBER(state), TEXT(sandbox), NUMBER(REVIEW_LIST_MAX)), on_task,
		data, err);
}

int review_changed(struct review_store *r, int64_t above, size_t max,
		   review_task_fn *on_task, void *data, struct err *err)
{
	return each_task(r, COLUMNS " WHERE change > ? ORDER BY change LIMIT ?",
			 WITH(NUMBER(above), NUMBER(max)), on_task, data, err);
}

int review_find(struct review_store *r, int64_t id, struct review *ret, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	int rc = sqlite_ask(r->db, COLUMNS " WHERE id = ?", WITH(NUMBER(id)), &s);

	if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_DONE)
		return err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	if (rc != SQLITE_ROW)
		return read_fault(r, rc, err);
	read_task(s, ret);
	return 0;
}

/* Run @sql; @what says what could not be done. */
static int change(struct review_store *r, const char *what, const char *sql,
		  const struct sqlite_value *values, size_t count, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	int rc = sqlite_ask(r->db, sql, values, count, &s);

	if (rc != SQLITE_OK)
		return read_fault(r, rc, err);
	rc = sqlite3_step(s);
	return rc == SQLITE_DONE ? 0 : sqlite_fault(r->db, rc, what, err);
}

int review_decide(struct review_store *r, int64_t id, enum review_state state,
		  const char *who, int64_t wall_ms, struct err *err)
{
	int code = change(r, "cannot note the decision",
			  "UPDATE review SET state = ?1, who = ?2, decided_ts = ?3"
			  " WHERE id = ?4 AND (?1 <> 3 OR state <> 2)",
			  WITH(NUMBER(state), TEXT(who), NUMBER(wall_ms), NUMBER(id)),
			  err);
	struct review now;

	if (code == 0 && sqlite3_changes(r->db) == 0)
		code = review_find(r, id, &now, err)
			       ?: err_set(err, -EALREADY, "task %lld was accepted by %s",
					  (long long)now.id, SHOWN(now.who));
	return code;
}

/* --- who has been told of which open task --- */

enum { TOLD_WEBHOOKS = 1, TOLD_COMMAND = 2 }; /* bits of the column */

static int notified_bit(int whom)
{
	return whom == REVIEW_COMMAND ? TOLD_COMMAND : TOLD_WEBHOOKS;
}

static const char note_who[] = "cannot note who was notified";

/* The numbers of those that it is the turn of, in @ids, and how many. A time that is far
 * ahead was noted by a clock that was wrong. */
static int find_unnotified(struct review_store *r, int whom, size_t max, int64_t wall_ms,
			   int64_t *ids, struct err *err)
{
	CLEAN(statement) sqlite3_stmt *s = NULL;
	int count = 0;
	int rc = sqlite_ask(
		r->db,
		"SELECT r.id FROM (SELECT id, sandbox FROM review WHERE state = 1 AND"
		" told < 3 AND told & ?1 = 0 ORDER BY id DESC LIMIT 5000) r"
		" LEFT JOIN review_try t ON t.review = r.id AND t.whom = ?2"
		" WHERE t.review IS NULL OR t.after <= ?3 OR t.after > ?3 + ?4"
		" ORDER BY coalesce(t.tries, 0), row_number() OVER (PARTITION BY"
		" r.sandbox ORDER BY r.id), r.id LIMIT ?5",
		WITH(NUMBER(notified_bit(whom)), NUMBER(whom), NUMBER(wall_ms),
		     NUMBER(2 * REVIEW_PAUSE_MAX_MS), NUMBER(max)),
		&s);

	if (rc != SQLITE_OK)
		return read_fault(r, rc, err);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW)
		ids[count++] = sqlite3_column_int64(s, 0);
	return rc == SQLITE_DONE ? count : read_fault(r, rc, err);
}

int review_notify(struct review_store *r, int whom, size_t max, int try_ms,
		  int64_t wall_ms, void (*on_task)(void *data, const struct review *t),
		  void *data, struct err *err)
{
	int64_t ids[REVIEW_NOTIFY_MAX];
	int count = find_unnotified(r, whom, MIN(max, (size_t)REVIEW_NOTIFY_MAX), wall_ms,
				    ids, err);

	for (int i = 0; i < count; i++) {
		struct review t;
		int code = review_find(r, ids[i], &t, err);

		if (code == 0)
			code = change(
				r, note_who,
				"INSERT INTO review_try (review, whom, tries, after)"
				" VALUES (?,?,1,?) ON CONFLICT DO UPDATE"
				" SET tries = tries + 1, after = excluded.after",
				WITH(NUMBER(ids[i]), NUMBER(whom),
				     NUMBER(wall_ms + try_ms)),
				err);
		if (code < 0)
			return code;
		on_task(data, &t);
	}
	return count;
}

int review_notified(struct review_store *r, int64_t id, int whom, size_t url_count,
		    struct err *err)
{
	const bool command = whom == REVIEW_COMMAND;
	const int64_t first = command ? whom : REVIEW_WEBHOOK;
	const int64_t count = command ? 1 : (int64_t)url_count;
	int code =
		change(r, note_who,
		       "UPDATE review_try SET after = NULL WHERE review = ? AND whom = ?",
		       WITH(NUMBER(id), NUMBER(whom)), err);

	if (code < 0)
		return code;
	return change(r, note_who,
		      "UPDATE review SET told = told | ?1 WHERE id = ?2 AND"
		      " (SELECT count(*) FROM review_try WHERE review = ?2"
		      " AND after IS NULL AND whom BETWEEN ?3 AND ?4) = ?5",
		      WITH(NUMBER(notified_bit(whom)), NUMBER(id), NUMBER(first),
			   NUMBER(first + count - 1), NUMBER(count)),
		      err);
}

int review_not_notified(struct review_store *r, int64_t id, int whom, int64_t wall_ms,
			struct err *err)
{
	return change(
		r, note_who,
		"UPDATE review_try SET after = ?3 + min(?4 << min(tries - 1, 16), ?5)"
		" WHERE review = ?1 AND whom = ?2 AND after IS NOT NULL",
		WITH(NUMBER(id), NUMBER(whom), NUMBER(wall_ms), NUMBER(REVIEW_PAUSE_MS),
		     NUMBER(REVIEW_PAUSE_MAX_MS)),
		err);
}

int review_notify_again(struct review_store *r, int whom, struct err *err)
{
	return change(r, note_who,
		      "UPDATE review_try SET after = 0 WHERE after IS NOT NULL"
		      " AND (whom = ?1 OR (?1 = ?2 AND whom > ?2))",
		      WITH(NUMBER(whom), NUMBER(REVIEW_WEBHOOK)), err);
}
