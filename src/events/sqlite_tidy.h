// SPDX-License-Identifier: Apache-2.0
/* events/sqlite_tidy - what a store does to itself between two batches: old rows go, and
 * what an earlier version didn't sum is summed. Used in the writer's thread alone.
 *
 * HOW AGE IS TOLD
 * Rows carry the wall clock, which is set now and then, wrongly at times, and may be
 * wrong over any number of restarts. So
 * - age is counted from a time that has surely come, which the store keeps (table `age`).
 *   It follows the wall clock by no more than the time that passed meanwhile and a day.
 *   When the clock is further ahead, the machine was away for long or the clock is wrong:
 *   the time that has surely come goes on with the time that passes, and jumps to the
 *   clock only when that has gone on for as long as rows are kept, without another jump;
 * - a row of the future has no age. Numbers grow with time whatever the clock says: it
 *   goes when a row that was written after it is too old;
 * - a clock that is behind makes all rows ones of the future, and none goes. */
#pragma once

#include <sqlite3.h>

#include "events/sqlite.h"

struct sqlite_age {
	bool known;
	int64_t now_ms, wall_ms; /* at the last look */
	int64_t trusted_ms, doubted_ms;
	int64_t kept_trusted_ms, kept_doubted_ms; /* in the store */
};

/* Return: the time before which rows are too old. */
int64_t sqlite_age_limit(struct sqlite_age *a, sqlite3 *db, int64_t now_ms,
			 int64_t wall_ms, int64_t max_age_ms);

/* Let rows and review tasks go that are older than @oldest_ms, and the oldest until the
 * file is within @max_bytes. Some steps at a time; returns true when there is more to do.
 */
bool sqlite_tidy(sqlite3 *db, uint64_t max_bytes, int64_t oldest_ms, int64_t wall_ms);
/* Rows for which @where holds, at most @max. Return: how many went; < 0 when none
 * could. */
int sqlite_let_go(sqlite3 *db, const char *where, int max);
/* The sums of hours whose events are all gone. */
void sqlite_let_sums_go(sqlite3 *db);
/* Sum a slice of the events that an earlier version wrote. Return: whether there are
 * more. */
bool sqlite_sum_slice(sqlite3 *db);
