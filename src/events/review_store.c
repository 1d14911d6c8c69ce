// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/review_notify.h"
#include "events/sqlite_file.h"

enum { BUSY_MS = 1000 };

int review_open(const char *directory, struct review_store **ret, struct err *err)
{
	struct review_store *r = calloc(1, sizeof(*r));
	int code;

	if (!r)
		return err_sys(err, -ENOMEM, "cannot open the database");
	code = sqlite_file_use(directory, BUSY_MS, &r->db, err);
	if (code < 0) {
		review_close(r);
		return code;
	}
	*ret = r;
	return 0;
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
	" first_ts, last_ts, state, who, decided_ts, change FROM review"

static void read_task(sqlite3_stmt *s, struct review *t)
{
	const int state = sqlite3_column_int(s, 10);

	memset(t, 0, sizeof(*t));
	t->id = sqlite3_column_int64(s, 0);
	sqlite_read_text(s, 1, t->sandbox, sizeof(t->sandbox));
	sqlite_read_text(s, 2, t->destination, sizeof(t->destination));
	t->is_name = sqlite3_column_int(s, 3) == 1;
	t->port = (uint16_t)sqlite3_column_int(s, 4);
	t->protocol = (uint8_t)sqlite3_column_int(s, 5);
	t->packets = (uint64_t)sqlite3_column_int64(s, 6);
	t->rows = (uint64_t)sqlite3_column_int64(s, 7);
	t->first_ms = sqlite3_column_int64(s, 8);
	t->last_ms = sqlite3_column_int64(s, 9);
	t->state = state > REVIEW_NONE && state < REVIEW_STATE_COUNT
			   ? (enum review_state)state
			   : REVIEW_OPEN;
	sqlite_read_text(s, 11, t->who, sizeof(t->who));
	t->decided_ms = sqlite3_column_int64(s, 12);
}

int review_ask(struct review_store *r, const char *sql, sqlite3_stmt **ret,
	       struct err *err)
{
	int rc = sqlite3_prepare_v2(r->db, sql, -1, ret, NULL);

	return rc == SQLITE_OK ? 0
			       : sqlite_fault(r->db, rc, "cannot read the tasks", err);
}

int review_list(struct review_store *r, enum review_state state, const char *sandbox,
		bool (*on_task)(void *data, const struct review *t), void *data,
		struct err *err)
{
	sqlite3_stmt *s = NULL;
	struct review t;
	bool go_on = true;
	int rc = SQLITE_DONE;
	int code = review_ask(r,
			      COLUMNS
			      " WHERE (?1 = 0 OR state = ?1) AND (?2 IS NULL OR"
			      " sandbox = ?2) ORDER BY last_ts DESC, id DESC LIMIT ?3",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, (int)state);
	if (sandbox)
		sqlite3_bind_text(s, 2, sandbox, -1, SQLITE_TRANSIENT);
	sqlite3_bind_int(s, 3, REVIEW_LIST_MAX);
	while (go_on && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		read_task(s, &t);
		go_on = on_task(data, &t);
	}
	if (go_on && rc != SQLITE_DONE)
		code = sqlite_fault(r->db, rc, "cannot read the tasks", err);
	sqlite3_finalize(s);
	return code;
}

int review_changed(struct review_store *r, int64_t above, size_t max,
		   bool (*on_task)(void *data, int64_t change, const struct review *t),
		   void *data, struct err *err)
{
	sqlite3_stmt *s = NULL;
	struct review t;
	bool go_on = true;
	int rc = SQLITE_DONE;
	int code = review_ask(r, COLUMNS " WHERE change > ? ORDER BY change LIMIT ?", &s,
			      err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, above);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)max);
	while (go_on && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		read_task(s, &t);
		go_on = on_task(data, sqlite3_column_int64(s, 13), &t);
	}
	if (go_on && rc != SQLITE_DONE)
		code = sqlite_fault(r->db, rc, "cannot read the tasks", err);
	sqlite3_finalize(s);
	return code;
}

int review_find(struct review_store *r, int64_t id, struct review *ret, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int rc, code = review_ask(r, COLUMNS " WHERE id = ?", &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, id);
	rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		read_task(s, ret);
	else if (rc == SQLITE_DONE)
		code = err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	else
		code = sqlite_fault(r->db, rc, "cannot read the tasks", err);
	sqlite3_finalize(s);
	return code;
}

int review_decide(struct review_store *r, int64_t id, enum review_state state,
		  const char *who, int64_t wall_ms, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int rc, code = review_ask(
			r,
			"UPDATE review SET state = ?1, who = ?2, decided_ts = ?3"
			" WHERE id = ?4",
			&s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, (int)state);
	sqlite3_bind_text(s, 2, who, -1, SQLITE_TRANSIENT);
	sqlite3_bind_int64(s, 3, wall_ms);
	sqlite3_bind_int64(s, 4, id);
	rc = sqlite3_step(s);
	if (rc != SQLITE_DONE)
		code = sqlite_fault(r->db, rc, "cannot note the decision", err);
	else if (sqlite3_changes(r->db) == 0)
		code = err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	sqlite3_finalize(s);
	return code;
}
