// SPDX-License-Identifier: Apache-2.0
/* Whole hours are counted from the sums (table denied), the part of an hour at the
 * beginning from the events themselves: the answer is exact, not rounded to hours.
 * One sandbox's are few, and are counted from its events. */
#include "events/sqlite_denied.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/text.h"
#include "events/sqlite_file.h"

enum { MAX_DEFAULT = 1000, SLOTS_MIN = 256 };
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

/* ?1 kind, ?2 and ?3 the hours that are whole, ?4 the beginning, ?5 the end, ?6 the
 * sandbox. */
static const char of_all[] =
	"SELECT key, packets, rows, last_ts FROM denied"
	" WHERE kind = ?1 AND hour >= ?2 AND hour < ?3"
	" UNION ALL SELECT key, packets, 1, ts FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND ts >= ?4 AND ts < min(?2 * 3600000, ?5)"
	" UNION ALL SELECT key, packets, 1, ts FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND ts >= max(?2, ?3) * 3600000"
	" AND ts < ?5"
	/* Of whole hours, what isn't in the sums yet. */
	" UNION ALL SELECT d.key, d.packets, 1, d.ts FROM unsummed u"
	" CROSS JOIN denied_event d WHERE d.kind = ?1 AND d.key IS NOT NULL"
	" AND d.id >= u.next AND d.id <= u.last AND d.ts >= ?2 * 3600000"
	" AND d.ts < ?3 * 3600000";
static const char of_one[] =
	"SELECT key, packets, 1, ts FROM denied_event"
	" WHERE kind = ?1 AND key IS NOT NULL AND sandbox = ?6 AND ts >= ?4 AND ts < ?5";

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
	if (q->sandbox)
		sqlite3_bind_text(s, 6, q->sandbox, -1, SQLITE_TRANSIENT);
}

/* ---- adding up ---- */

/* A table of its own: SQLite would sort all rows to bring equal keys together, which
 * takes three times as long. */
struct sums {
	struct arena arena;
	struct hash_key hash;
	struct sqlite_denied **slots; /* a power of two of them, at most half used */
	size_t size, used;
};

static struct sqlite_denied **slot_of(const struct sums *t, const char *key)
{
	size_t i = hash_bytes(&t->hash, key, strlen(key)) & (t->size - 1);

	while (t->slots[i] && strcmp(t->slots[i]->key, key) != 0)
		i = (i + 1) & (t->size - 1);
	return &t->slots[i];
}

static int grow(struct sums *t)
{
	const struct sums old = *t;

	t->size = MAX(old.size * 2, (size_t)SLOTS_MIN);
	t->slots = calloc(t->size, sizeof(*t->slots));
	if (!t->slots) {
		*t = old;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old.size; i++)
		if (old.slots[i])
			*slot_of(t, old.slots[i]->key) = old.slots[i];
	free(old.slots);
	return 0;
}

static int add(struct sums *t, const struct sqlite_denied *d)
{
	struct sqlite_denied **slot, *sum;

	if (t->used * 2 >= t->size && grow(t) < 0)
		return -ENOMEM;
	slot = slot_of(t, d->key);
	if (!*slot) {
		sum = arena_alloc(&t->arena, sizeof(*sum));
		if (sum)
			sum->key = arena_text(&t->arena, text_of(d->key));
		if (!sum || !sum->key)
			return -ENOMEM;
		*slot = sum;
		t->used++;
	}
	(*slot)->packets += d->packets;
	(*slot)->rows += d->rows;
	(*slot)->last_ms = MAX((*slot)->last_ms, d->last_ms);
	return 0;
}

static int add_all(struct sqlite_reader *r, sqlite3_stmt *s, struct sums *t,
		   struct err *err)
{
	int rc, code = 0;

	while (code == 0 && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		const unsigned char *key = sqlite3_column_text(s, 0);
		const struct sqlite_denied d = {
			.key = key ? (const char *)key : "",
			.packets = (uint64_t)sqlite3_column_int64(s, 1),
			.rows = (uint64_t)sqlite3_column_int64(s, 2),
			.last_ms = sqlite3_column_int64(s, 3),
		};

		code = add(t, &d);
	}
	if (code < 0)
		return err_sys(err, code, "cannot count what was denied");
	return rc == SQLITE_DONE ? 0 : sqlite_search_fault(r, rc, err);
}

static int compare(const void *a, const void *b)
{
	const struct sqlite_denied *x = *(struct sqlite_denied *const *)a;
	const struct sqlite_denied *y = *(struct sqlite_denied *const *)b;

	if (x->packets != y->packets)
		return x->packets > y->packets ? -1 : 1;
	return strcmp(x->key, y->key);
}

static void tell(struct sums *t, size_t max,
		 bool (*on_denied)(void *data, const struct sqlite_denied *d), void *data)
{
	size_t count = 0;

	for (size_t i = 0; i < t->size; i++)
		if (t->slots[i])
			t->slots[count++] = t->slots[i];
	if (count > 0)
		qsort(t->slots, count, sizeof(struct sqlite_denied *), compare);
	for (size_t i = 0; i < MIN(count, max); i++)
		if (!on_denied(data, t->slots[i]))
			break;
}

int sqlite_denied(struct sqlite_reader *r, enum sqlite_by by,
		  const struct sqlite_query *query,
		  bool (*on_denied)(void *data, const struct sqlite_denied *d),
		  void *data, struct err *err)
{
	struct sums t = { .hash = { (uintptr_t)r, (uintptr_t)&t } };
	sqlite3_stmt *s = NULL;
	int code = sqlite_ask(r, query->sandbox ? of_one : of_all, &s, err);

	if (code < 0)
		return code;
	bind_query(s, by, query);
	code = add_all(r, s, &t, err);
	sqlite3_finalize(s);
	if (code == 0)
		tell(&t, query->max ? query->max : (size_t)MAX_DEFAULT, on_denied, data);
	arena_done(&t.arena);
	free(t.slots);
	return code;
}
