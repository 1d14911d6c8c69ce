// SPDX-License-Identifier: Apache-2.0
#include "events/sqlite_tasks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "events/review.h"
#include "events/sqlite_file.h"

enum {
	DECIDED_MS = 5000, /* what comes so soon after a decision is from before it */
	CELLS = 2048,
	MINUTE_MS = 60 * 1000,
	DOMAIN_WEIGHT = 4, /* of the company in a domain; in a top level and a minute 1 */
	WEIGHED_MAX = SQLITE_FOLD_MAX + REVIEW_PER_SANDBOX,
};

/* What was denied to a sandbox of one destination. */
struct task {
	struct review review; /* id 0: there is none yet */
	bool is_new;
	bool folds; /* it becomes part of the one without a destination */
};

/* One that may have to go. */
struct weighed {
	int64_t id; /* 0: it is @task */
	struct task *task;
	uint32_t weight;
	uint64_t domain, top, minute;
};

struct writing {
	struct sqlite_tasks *statements;
	struct task *tasks; /* owned; in order of their sandboxes */
	size_t count;
};

int sqlite_tasks_prepare(struct sqlite_tasks *t, sqlite3 *db)
{
	static const char put[] =
		"INSERT INTO review (id, sandbox, destination, is_name, port, protocol,"
		" packets, rows, first_ts, last_ts) SELECT 1 + max((SELECT"
		" coalesce(max(id), 0) FROM review), last), ?,?,?,?,?,?,?,?,? FROM"
		" review_number WHERE true"
		" ON CONFLICT (sandbox, destination) DO UPDATE SET"
		" packets = packets + excluded.packets, rows = rows + excluded.rows,"
		" first_ts = min(first_ts, excluded.first_ts),"
		" last_ts = max(last_ts, excluded.last_ts),"
		" port = excluded.port, protocol = excluded.protocol,"
		" state = iif(state = 2 AND excluded.last_ts > decided_ts + ?10, 1, "
		"state)";
	const struct {
		sqlite3_stmt **ret;
		const char *sql;
	} all[] = {
		{ &t->written,
		  "SELECT sandbox, coalesce(name, remote_ip) AS what, max(name IS NOT"
		  " NULL), max(remote_port), max(protocol), sum(packets), count(*),"
		  " min(ts), max(ts), EXISTS (SELECT 1 FROM review r WHERE r.sandbox ="
		  " e.sandbox AND r.destination = coalesce(e.name, e.remote_ip))"
		  " FROM event e NOT INDEXED WHERE id >= ? AND action = 2 AND"
		  " allowable = 1 AND coalesce(name, remote_ip) IS NOT NULL"
		  " GROUP BY sandbox, what" },
		{ &t->count, "SELECT count(*) FROM review WHERE sandbox = ?" },
		{ &t->open, "SELECT id, destination, is_name, first_ts FROM review WHERE"
			    " sandbox = ? AND state = 1 AND destination <> ''" },
		{ &t->put, put },
		{ &t->remove, "DELETE FROM review WHERE id = ? RETURNING packets, rows,"
			      " first_ts, last_ts" },
	};
	int rc = SQLITE_OK;

	for (size_t i = 0; i < ARRAY_SIZE(all) && rc == SQLITE_OK; i++)
		rc = sqlite3_prepare_v3(db, all[i].sql, -1, SQLITE_PREPARE_PERSISTENT,
					all[i].ret, NULL);
	return rc;
}

void sqlite_tasks_done(struct sqlite_tasks *t)
{
	sqlite3_finalize(t->written);
	sqlite3_finalize(t->count);
	sqlite3_finalize(t->open);
	sqlite3_finalize(t->put);
	sqlite3_finalize(t->remove);
	*t = (struct sqlite_tasks){ 0 };
}

/* ---- what was written ---- */

static int read_written(struct writing *w, int64_t first)
{
	sqlite3_stmt *s = w->statements->written;

	sqlite3_bind_int64(s, 1, first);
	while (w->count < SQLITE_FOLD_MAX && sqlite3_step(s) == SQLITE_ROW) {
		struct task *t = &w->tasks[w->count++];

		memset(t, 0, sizeof(*t));
		sqlite_read_text(s, 0, t->review.sandbox, sizeof(t->review.sandbox));
		sqlite_read_text(s, 1, t->review.destination,
				 sizeof(t->review.destination));
		t->review.is_name = sqlite3_column_int(s, 2) == 1;
		t->review.port = (uint16_t)sqlite3_column_int(s, 3);
		t->review.protocol = (uint8_t)sqlite3_column_int(s, 4);
		t->review.packets = (uint64_t)sqlite3_column_int64(s, 5);
		t->review.rows = (uint64_t)sqlite3_column_int64(s, 6);
		t->review.first_ms = sqlite3_column_int64(s, 7);
		t->review.last_ms = sqlite3_column_int64(s, 8);
		t->is_new = sqlite3_column_int(s, 9) == 0;
	}
	return sqlite3_reset(s);
}

static void bind_string(sqlite3_stmt *s, int i, const char *text)
{
	sqlite3_bind_text(s, i, text, -1, SQLITE_TRANSIENT);
}

static void bind_port(sqlite3_stmt *s, int i, int number)
{
	if (number > 0)
		sqlite3_bind_int(s, i, number);
	else
		sqlite3_bind_null(s, i);
}

/* Open it, or add to what there is. */
static int put(struct sqlite_tasks *t, const struct review *v, bool folds)
{
	sqlite3_stmt *s = t->put;

	bind_string(s, 1, v->sandbox);
	bind_string(s, 2, folds ? "" : v->destination);
	sqlite3_bind_int(s, 3, !folds && v->is_name);
	bind_port(s, 4, folds ? 0 : v->port);
	bind_port(s, 5, folds ? 0 : v->protocol);
	sqlite3_bind_int64(s, 6, (int64_t)v->packets);
	sqlite3_bind_int64(s, 7, (int64_t)v->rows);
	sqlite3_bind_int64(s, 8, v->first_ms);
	sqlite3_bind_int64(s, 9, v->last_ms);
	sqlite3_bind_int(s, 10, DECIDED_MS);
	sqlite3_step(s);
	return sqlite3_reset(s);
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

static void weigh(struct weighed *all, size_t count)
{
	uint16_t domains[CELLS] = { 0 }, tops[CELLS] = { 0 }, minutes[CELLS] = { 0 };

	for (size_t i = 0; i < count; i++) {
		domains[all[i].domain % CELLS]++;
		tops[all[i].top % CELLS]++;
		minutes[all[i].minute % CELLS]++;
	}
	for (size_t i = 0; i < count; i++)
		all[i].weight = DOMAIN_WEIGHT * domains[all[i].domain % CELLS] +
				tops[all[i].top % CELLS] + minutes[all[i].minute % CELLS];
}

/* The heaviest first, of two the one that came later. */
static int by_weight(const void *a, const void *b)
{
	const struct weighed *x = a, *y = b;

	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	if ((x->id == 0) != (y->id == 0))
		return x->id == 0 ? -1 : 1;
	return x->id > y->id ? -1 : x->id < y->id;
}

/* ---- room ---- */

static int count_tasks(struct sqlite_tasks *t, const char *sandbox, size_t *ret)
{
	sqlite3_stmt *s = t->count;

	bind_string(s, 1, sandbox);
	*ret = sqlite3_step(s) == SQLITE_ROW ? (size_t)sqlite3_column_int64(s, 0) : 0;
	return sqlite3_reset(s);
}

static int read_open(struct sqlite_tasks *t, const char *sandbox, struct weighed *all,
		     size_t *count)
{
	sqlite3_stmt *s = t->open;
	char destination[EVENT_NAME_SIZE];

	bind_string(s, 1, sandbox);
	while (*count < WEIGHED_MAX && sqlite3_step(s) == SQLITE_ROW) {
		struct weighed *w = &all[(*count)++];

		*w = (struct weighed){ .id = sqlite3_column_int64(s, 0) };
		sqlite_read_text(s, 1, destination, sizeof(destination));
		group(w, destination, sqlite3_column_int(s, 2) == 1,
		      sqlite3_column_int64(s, 3));
	}
	return sqlite3_reset(s);
}

/* It becomes part of the one without a destination. */
static int fold(struct sqlite_tasks *t, const char *sandbox, int64_t id)
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
	return rc == SQLITE_OK && gone.rows > 0 ? put(t, &gone, true) : rc;
}

/* The @count tasks of one sandbox, @excess more than there may be. */
static int fold_some(struct sqlite_tasks *t, struct task *tasks, size_t count,
		     size_t excess)
{
	struct weighed *all = calloc(WEIGHED_MAX, sizeof(*all));
	size_t used = 0;
	int rc;

	if (!all)
		return SQLITE_NOMEM;
	for (size_t i = 0; i < count; i++) {
		const struct review *v = &tasks[i].review;

		if (!tasks[i].is_new)
			continue;
		all[used].task = &tasks[i];
		group(&all[used++], v->destination, v->is_name, v->first_ms);
	}
	rc = read_open(t, tasks->review.sandbox, all, &used);
	weigh(all, used);
	qsort(all, used, sizeof(*all), by_weight);
	for (size_t i = 0; i < MIN(excess, used) && rc == SQLITE_OK; i++) {
		if (all[i].task)
			all[i].task->folds = true;
		else
			rc = fold(t, tasks->review.sandbox, all[i].id);
	}
	free(all);
	return rc;
}

static int make_room(struct sqlite_tasks *t, struct task *tasks, size_t count)
{
	size_t there = 0, added = 0;
	int rc = count_tasks(t, tasks->review.sandbox, &there);

	for (size_t i = 0; i < count; i++)
		added += tasks[i].is_new;
	if (rc != SQLITE_OK || added == 0 || there + added <= REVIEW_PER_SANDBOX)
		return rc;
	return fold_some(t, tasks, count, there + added - REVIEW_PER_SANDBOX);
}

static int write_tasks(struct writing *w)
{
	int rc = SQLITE_OK;

	for (size_t first = 0, end; first < w->count && rc == SQLITE_OK; first = end) {
		for (end = first + 1; end < w->count; end++)
			if (strcmp(w->tasks[end].review.sandbox,
				   w->tasks[first].review.sandbox) != 0)
				break;
		rc = make_room(w->statements, &w->tasks[first], end - first);
		for (size_t i = first; i < end && rc == SQLITE_OK; i++)
			rc = put(w->statements, &w->tasks[i].review, w->tasks[i].folds);
	}
	return rc;
}

int sqlite_tasks_write(struct sqlite_tasks *t, int64_t first)
{
	struct writing w = { .statements = t };
	int rc;

	w.tasks = malloc(SQLITE_FOLD_MAX * sizeof(*w.tasks));
	if (!w.tasks)
		return SQLITE_NOMEM;
	rc = read_written(&w, first);
	if (rc == SQLITE_OK)
		rc = write_tasks(&w);
	free(w.tasks);
	return rc;
}
