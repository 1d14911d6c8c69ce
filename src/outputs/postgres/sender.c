// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/sender.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "events/postgres_state.h"
#include "outputs/postgres/copy.h"
#include "outputs/postgres/reviews.h"
#include "outputs/postgres/tables.h"

enum {
	SEARCH_MS = 10000,
	SQL_SIZE = 1024,
	REVIEW_AGAIN_MS = 5000, /* after they could not be copied */
};

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
	struct stat file;		 /* that @store reads */
	char uuid[SQLITE_STORE_ID_SIZE]; /* its */
	bool known;			 /* @state is the server's */
	struct sender_state state;
	size_t batch, review_batch;
	int64_t review_again_ms;
	/* The batch, as lines. */
	char *lines[TABLE_COUNT];
	size_t used[TABLE_COUNT];
	size_t rows;
	int64_t first, last;
};

/* What stood when the last sender ended is told until the server says more. */
static void remember_state(struct sender *s)
{
	struct postgres_state last;

	if (postgres_state_read(s->directory, &last) < 0)
		return;
	s->state.sent = last.sent;
	s->state.missed = last.missed;
	s->state.refused = last.refused;
}

struct sender *sender_new(const char *directory, const char *conninfo)
{
	struct sender *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->directory = directory;
	s->conninfo = conninfo;
	s->batch = SENDER_BATCH;
	s->review_batch = REVIEWS_BATCH;
	for (size_t i = 0; i < TABLE_COUNT; i++) {
		s->lines[i] = malloc((size_t)SENDER_BATCH * COPY_ROW_SIZE);
		if (!s->lines[i]) {
			sender_free(s);
			return NULL;
		}
	}
	remember_state(s);
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

static int connect_to(struct sender *s, struct err *err)
{
	int r;

	if (s->server)
		return 0;
	s->fresh = true;
	r = server_open(s->conninfo, &s->server, err);
	if (r == 0)
		r = tables_make(s->server, &s->version, err);
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

static bool on_first(void *data, int64_t id, const struct event_row *row)
{
	*(int64_t *)data = id;
	return row == NULL; /* one is enough */
}

/* How many rows wait, and how many were let go meanwhile: numbers have no gaps. */
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
	PGresult *res;
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
	PQclear(res);
	s->known = true;
	return 0;
}

/* Numbers only grow. A file that was put back from a copy of it uses some again, and
 * nobody can tell those events from the ones that were copied. */
static int check_order(struct sender *s, struct err *err)
{
	int64_t newest;
	int r = sqlite_id_before(s->store, INT64_MAX, &newest, err);

	if (r < 0 || newest >= s->state.sent)
		return r;
	return err_set(err, -ESTALE,
		       "PostgreSQL has %" PRId64 " rows of a store that has %" PRId64
		       ": is it an old copy? move events.db away, and a new one begins",
		       s->state.sent, newest);
}

static int finish(struct sender *s, uint64_t refused, struct err *err)
{
	/* What is missing was let go. Of a store that is new here it went before anybody
	 * asked. */
	const uint64_t missed =
		s->state.sent > 0 ? (uint64_t)(s->first - s->state.sent - 1) : 0;
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

static int copy_lines(struct sender *s, struct err *err)
{
	char into[SQL_SIZE];
	int r = 0;

	for (size_t i = 0; i < TABLE_COUNT && r == 0; i++) {
		snprintf(into, sizeof(into), "%s (%s)", tables[i], copy_columns);
		if (s->used[i] > 0)
			r = server_copy(s->server, into, s->lines[i], s->used[i], err);
	}
	return r;
}

/* Return: 0 within a transaction in which the rows behind the last one are at hand. */
static int begin_batch(struct sender *s, struct err *err)
{
	int r = server_begin(s->server, err);

	if (r == 0)
		r = lock_state(s, err);
	if (r == 0)
		r = check_order(s, err);
	return r < 0 ? r : read_batch(s, err);
}

/* A row that the server takes neither alone is passed over. */
static int pass_over(struct sender *s, struct err *err)
{
	int r = begin_batch(s, err);

	if (r == 0 && s->rows == 1)
		return finish(s, 1, err);
	return r < 0 ? r : server_roll_back(s->server, err);
}

/* Data that is refused: half of it the next time, down to the row that it is. */
static int on_refused(struct sender *s, struct err *err)
{
	int r = server_roll_back(s->server, err);

	if (r == 0 && s->batch == 1)
		r = pass_over(s, err);
	else
		s->batch /= 2;
	return r < 0 ? r : 1;
}

static int send_batch(struct sender *s, struct err *err)
{
	int r = begin_batch(s, err);

	if (r < 0)
		return r;
	if (s->rows == 0)
		return server_roll_back(s->server, err);
	r = copy_lines(s, err);
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
	int r = connect_to(s, err);

	if (r == 0)
		r = send_batch(s, err);
	if (r == 0)
		r = send_reviews(s);
	s->cut = r < 0 && !s->fresh && s->server && server_is_cut(s->server);
	if (r < 0)
		disconnect(s);
	return r;
}

/* Whether there is anything to be sent. */
static int look(struct sender *s, bool *ret, struct err *err)
{
	int r = read_batch(s, err);

	*ret = s->rows > 0;
	if (r == 0 && !*ret && clock_now_ms() >= s->review_again_ms)
		r = reviews_wait(s->reviews, s->state.reviewed, ret, err);
	return r;
}

int sender_step(struct sender *s, struct err *err)
{
	bool some = true;
	int r = open_store(s, err);

	/* While nothing is new, nobody is asked, and a server of thousands has its
	 * connection back. */
	if (r == 0 && s->known)
		r = look(s, &some, err);
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
