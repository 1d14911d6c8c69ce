// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/reviews - review tasks as they stand in the store, copied into
 * PostgreSQL.
 *
 * Only that way: what is written there decides nothing here, so that no row of a database
 * opens a way out. */
#pragma once

#include "events/review.h"
#include "outputs/postgres/server.h"

enum { REVIEWS_BATCH = 50 }; /* tasks in a transaction */

/* Whether a task has changed since the change of the number @above. */
int reviews_wait(struct review_store *store, int64_t above, bool *ret,
		 struct err *err) MUST_CHECK;
/* Within a transaction that it ends: @max tasks of the store @uuid from the change behind
 * *@reviewed on, which is moved. One task alone that the server doesn't take is passed
 * over. Return: how many; -EBADMSG: one of several is not taken; or another -errno. */
int reviews_copy(struct server *server, struct review_store *store, const char *uuid,
		 size_t max, int64_t *reviewed, struct err *err) MUST_CHECK;
