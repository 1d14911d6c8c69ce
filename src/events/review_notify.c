// SPDX-License-Identifier: Apache-2.0
#include "events/review_notify.h"

#include "events/sqlite_file.h"

enum { TOLD_WEBHOOKS = 1, TOLD_COMMAND = 2 }; /* bits of the column */

static int told_bit(int whom)
{
	return whom == REVIEW_COMMAND ? TOLD_COMMAND : TOLD_WEBHOOKS;
}

/* Run @s, which is let go of. */
static int finish(struct review_store *r, sqlite3_stmt *s, struct err *err)
{
	int rc = sqlite3_step(s), code = 0;

	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		code = sqlite_fault(r->db, rc, "cannot note who was told", err);
	sqlite3_finalize(s);
	return code;
}

/* The numbers of those that it is the turn of, in @ids, and how many. A time that is far
 * ahead was noted by a clock that was wrong. */
static int find_untold(struct review_store *r, int whom, size_t max, int64_t wall_ms,
		       int64_t *ids, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = SQLITE_DONE, count = 0;
	int code = review_ask(
		r,
		"SELECT r.id FROM (SELECT id, sandbox FROM review WHERE state = 1 AND"
		" told < 3 AND told & ?1 = 0 ORDER BY id DESC LIMIT 5000) r"
		" LEFT JOIN review_try t ON t.review = r.id AND t.whom = ?2"
		" WHERE t.review IS NULL OR t.after <= ?3 OR t.after > ?3 + ?4"
		" ORDER BY coalesce(t.tries, 0), row_number() OVER (PARTITION BY"
		" r.sandbox ORDER BY r.id), r.id LIMIT ?5",
		&s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, told_bit(whom));
	sqlite3_bind_int(s, 2, whom);
	sqlite3_bind_int64(s, 3, wall_ms);
	sqlite3_bind_int64(s, 4, 2 * REVIEW_PAUSE_MAX_MS);
	sqlite3_bind_int64(s, 5, (sqlite3_int64)max);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW)
		ids[count++] = sqlite3_column_int64(s, 0);
	if (rc != SQLITE_DONE)
		code = sqlite_fault(r->db, rc, "cannot read the tasks", err);
	sqlite3_finalize(s);
	return code < 0 ? code : count;
}

static int begin_try(struct review_store *r, int64_t id, int whom, int64_t until_ms,
		     struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = review_ask(r,
			      "INSERT INTO review_try (review, whom, tries, after)"
			      " VALUES (?,?,1,?) ON CONFLICT DO UPDATE SET"
			      " tries = tries + 1, after = excluded.after",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, id);
	sqlite3_bind_int(s, 2, whom);
	sqlite3_bind_int64(s, 3, until_ms);
	return finish(r, s, err);
}

int review_tell(struct review_store *r, int whom, size_t max, int try_ms, int64_t wall_ms,
		void (*on_task)(void *data, const struct review *t), void *data,
		struct err *err)
{
	int64_t ids[REVIEW_TELL_MAX];
	int count = find_untold(r, whom, MIN(max, (size_t)REVIEW_TELL_MAX), wall_ms, ids,
				err);

	for (int i = 0; i < count; i++) {
		struct review t;
		int code = review_find(r, ids[i], &t, err);

		if (code == 0)
			code = begin_try(r, ids[i], whom, wall_ms + try_ms, err);
		if (code < 0)
			return code;
		on_task(data, &t);
	}
	return count;
}

static int note_try(struct review_store *r, int64_t id, int whom, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = review_ask(r,
			      "UPDATE review_try SET after = NULL WHERE review = ? AND"
			      " whom = ?",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, id);
	sqlite3_bind_int(s, 2, whom);
	return finish(r, s, err);
}

int review_told(struct review_store *r, int64_t id, int whom, size_t url_count,
		struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = note_try(r, id, whom, err);

	if (code == 0)
		code = review_ask(r,
				  "UPDATE review SET told = told | ?1 WHERE id = ?2 AND"
				  " (SELECT count(*) FROM review_try WHERE review = ?2"
				  " AND after IS NULL AND whom BETWEEN ?3 AND ?4) = ?5",
				  &s, err);
	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, told_bit(whom));
	sqlite3_bind_int64(s, 2, id);
	sqlite3_bind_int(s, 3, whom == REVIEW_COMMAND ? whom : REVIEW_WEBHOOK);
	sqlite3_bind_int(s, 4,
			 whom == REVIEW_COMMAND ? whom
						: REVIEW_WEBHOOK + (int)url_count - 1);
	sqlite3_bind_int64(s, 5, whom == REVIEW_COMMAND ? 1 : (sqlite3_int64)url_count);
	return finish(r, s, err);
}

int review_not_told(struct review_store *r, int64_t id, int whom, int64_t wall_ms,
		    struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = review_ask(r,
			      "UPDATE review_try SET after = ?3 + min(?4 << min(tries - "
			      "1,"
			      " 16), ?5) WHERE review = ?1 AND whom = ?2 AND after IS NOT"
			      " NULL",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int64(s, 1, id);
	sqlite3_bind_int(s, 2, whom);
	sqlite3_bind_int64(s, 3, wall_ms);
	sqlite3_bind_int(s, 4, REVIEW_PAUSE_MS);
	sqlite3_bind_int(s, 5, REVIEW_PAUSE_MAX_MS);
	return finish(r, s, err);
}

int review_tell_anew(struct review_store *r, int whom, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int code = review_ask(r,
			      "UPDATE review_try SET after = 0 WHERE after IS NOT NULL"
			      " AND (whom = ?1 OR (?1 = ?2 AND whom > ?2))",
			      &s, err);

	if (code < 0)
		return code;
	sqlite3_bind_int(s, 1, whom);
	sqlite3_bind_int(s, 2, REVIEW_WEBHOOK);
	return finish(r, s, err);
}
