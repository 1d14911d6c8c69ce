// SPDX-License-Identifier: Apache-2.0
/* events/sqlite_tasks - review tasks, opened by what was just written. Used by
 * events/sqlite alone, in its thread and its transaction.
 *
 * WHICH TASKS A SANDBOX HAS WHEN IT MAY HAVE NO MORE
 * One that asks for thousands of names must not hide the one that matters, neither by
 * coming first nor by coming last. So those that there are, as far as they are open, and
 * the new ones are weighed: how many of them lie below the same domain (the same /24 or
 * /48), the same top level (/16, /32), and how many opened in the same minute. The ones
 * with the most company go, of two the later one; what they counted is one task without a
 * destination. */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/macros.h"

struct sqlite_tasks {
	sqlite3_stmt *written, *count, *open, *put, *remove; /* owned; NULL: not yet */
};

/* Return: a code of SQLite's; what was prepared is to be let go of. */
int sqlite_tasks_prepare(struct sqlite_tasks *t, sqlite3 *db) MUST_CHECK;
void sqlite_tasks_done(struct sqlite_tasks *t);
/* For the denials from row @first on. Return: a code of SQLite's. */
int sqlite_tasks_write(struct sqlite_tasks *t, int64_t first) MUST_CHECK;
