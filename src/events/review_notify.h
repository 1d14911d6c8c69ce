// SPDX-License-Identifier: Apache-2.0
/* events/review_notify - who has been told of which open review task.
 *
 * The store is the queue: a try is noted before it begins, with the time before which
 * there is no other one, and that somebody was told when it is known. So whoever is
 * killed in between tells twice rather than never, and an outage may be as long as it
 * likes. A task that was decided is told no more. */
#pragma once

#include <sqlite3.h>

#include "events/review.h"

struct review_store {
	sqlite3 *db;
};
/* For the files that make up events/review. */
int review_ask(struct review_store *r, const char *sql, sqlite3_stmt **ret,
	       struct err *err) MUST_CHECK;

enum {
	REVIEW_COMMAND = 2,
	REVIEW_WEBHOOK = 4, /* and on, one for each URL */
	REVIEW_TELL_MAX = 64,
	REVIEW_PAUSE_MS = 10 * 1000, /* after the first failure; doubles */
	REVIEW_PAUSE_MAX_MS = 10 * 60 * 1000,
};

/* Begin a try of those that @whom is to be told of, @max at most: new ones before those
 * that failed, each sandbox's first before any second. Each has @try_ms, and waits
 * longer after each failure. Return: how many there were, or -errno. */
int review_tell(struct review_store *r, int whom, size_t max, int try_ms, int64_t wall_ms,
		void (*on_task)(void *data, const struct review *t), void *data,
		struct err *err) MUST_CHECK;
/* A try has ended: @whom was told of @id; or was not, and waits. */
int review_told(struct review_store *r, int64_t id, int whom, size_t url_count,
		struct err *err) MUST_CHECK;
int review_not_told(struct review_store *r, int64_t id, int whom, int64_t wall_ms,
		    struct err *err) MUST_CHECK;
/* Nobody is being told: what was begun (by a process that died) begins again. Of
 * REVIEW_WEBHOOK: all of them. */
int review_tell_anew(struct review_store *r, int whom, struct err *err) MUST_CHECK;
