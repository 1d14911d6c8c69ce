// SPDX-License-Identifier: Apache-2.0
/* Whole hours are counted from the sums (table denied), the part of an hour at the
 * beginning from the events themselves: the answer is exact, not rounded to hours.
 * One sandbox's are few, and are counted from its events. */
#include "store/sqlite_denied.h"

#include <assert.h>

#include "base/text.h"
#include "store/sqlite_file.h"

enum { MAX_DEFAULT = 1000 };
#define HOUR_MS INT64_C(3600000)

static const char *const by_names[] = {
	[SQLITE_BY_DESTINATION] = "destination",
	[SQLITE_BY_ADDRESS] = "address",
	[SQLITE_BY_NAME] = "name",
	[SQLITE_BY_SANDBOX] = "sandbox",
	[SQLITE_BY_RULE] = "rule",
	[SQLITE_BY_PROCESS] = "process",
};
static_assert(ARRAY_SIZE(by_names) == SQLITE_BY_COUNT, "every kind has a name");

const char *sqlite_by_name(enum sqlite_by by)
{
	return by < SQLITE_BY_COUNT && by_names[by] ? by_names[by] : "";
}

bool sqlite_by_parse(const char *text, enum sqlite_by *ret)
{
	for (size_t i = SQLITE_BY_DESTINATION; i < SQLITE_BY_COUNT; i++) {
		if (!text_equal(text_of(text), by_names[i]))
			continue;
		*ret = (enum sqlite_by)i;
		return true;
	}
	return false;
}

/* ?1 kind, ?2 and ?3 the hours that are whole, ?4 the beginning, ?5 the end, ?6 how many
 * at most, ?7 the sandbox. */
static const char of_all[] =
	"SELECT key, sum(packets), sum(rows), max(last_ts) FROM ("
	" SELECT key, packets, rows, last_ts FROM denied"
	" WHERE kind = ?1 AND hour >= ?2 AND hour < ?3"
	" UNION ALL SELECT key, packets, 1, ts FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND ts >= ?4 AND ts < min(?2 * 3600000, ?5)"
	" UNION ALL SELECT key, packets, 1, ts FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND ts >= max(?2, ?3) * 3600000"
	" AND ts < ?5)"
	" GROUP BY key ORDER BY 2 DESC, key LIMIT ?6";
static const char of_one[] =
	"SELECT key, sum(packets), count(*), max(ts) FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND sandbox = ?7 AND ts >= ?4 AND ts < ?5"
	" GROUP BY key ORDER BY 2 DESC, key LIMIT ?6";

/* The first hour that begins at @ms or later. */
static int64_t hour_from(int64_t ms)
{
	return ms <= 0 ? 0 : (ms - 1) / HOUR_MS + 1;
}

static void bind_query(sqlite3_stmt *s, enum sqlite_by by, const struct sqlite_query *q)
{
	/* Nothing is later than the end of time: the hour that it is in is whole. */
	const int64_t until_ms = q->until_ms ? q->until_ms : INT64_MAX / 2;

	sqlite3_bind_int(s, 1, (int)by);
	sqlite3_bind_int64(s, 2, hour_from(q->since_ms));
	sqlite3_bind_int64(s, 3, until_ms / HOUR_MS);
	sqlite3_bind_int64(s, 4, q->since_ms);
	sqlite3_bind_int64(s, 5, until_ms);
	sqlite3_bind_int64(s, 6, (int64_t)(q->max ? q->max : (size_t)MAX_DEFAULT));
	if (q->sandbox)
		sqlite3_bind_text(s, 7, q->sandbox, -1, SQLITE_TRANSIENT);
}

int sqlite_denied(struct sqlite_reader *r, enum sqlite_by by,
		  const struct sqlite_query *query,
		  bool (*on_denied)(void *data, const struct sqlite_denied *d),
		  void *data, struct err *err)
{
	sqlite3_stmt *s = NULL;
	int rc = SQLITE_DONE;
	int code = sqlite_ask(r, query->sandbox ? of_one : of_all, &s, err);

	if (code < 0)
		return code;
	bind_query(s, by, query);
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		const unsigned char *key = sqlite3_column_text(s, 0);
		const struct sqlite_denied d = {
			.key = key ? (const char *)key : "",
			.packets = (uint64_t)sqlite3_column_int64(s, 1),
			.rows = (uint64_t)sqlite3_column_int64(s, 2),
			.last_ms = sqlite3_column_int64(s, 3),
		};

		if (!on_denied(data, &d))
			break;
	}
	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		code = sqlite_search_fault(r, rc, err);
	sqlite3_finalize(s);
	return code;
}
