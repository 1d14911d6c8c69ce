// SPDX-License-Identifier: Apache-2.0
/* How long a store of many events takes to say what was denied in a day: bench_store
 * DIRECTORY [EVENTS]. The store is made when it isn't there: a month of events, half of
 * them denials, of 500 sandboxes, 20,000 names that are asked for unequally often, 5,000
 * addresses, and one denial in fifty for a name that nobody else asks for. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "events/sqlite.h"
#include "events/sqlite_file.h"

#define DAY_MS	  INT64_C(86400000)
#define MAX_BYTES (UINT64_C(64) << 30)
enum { ROUNDS = 11, TIMEOUT_MS = 600000 };

static const char indexes[] =
	"CREATE INDEX event_by_ts ON event (ts);"
	"CREATE INDEX event_by_action ON event (action, ts, packets);"
	"CREATE INDEX event_by_sandbox ON event (sandbox, ts);"
	"CREATE INDEX event_by_address ON event (remote_ip, ts)"
	" WHERE remote_ip IS NOT NULL;"
	"CREATE INDEX event_by_name ON event (name, ts) WHERE name IS NOT NULL;";

/* The indexes are made behind the rows: that is the same in less time. */
static int fill(sqlite3 *db, uint32_t events, struct err *err)
{
	const int64_t begin = clock_wall_ms() - 30 * DAY_MS;
	char sql[2048];
	int r = sqlite_run(db,
			   "PRAGMA synchronous = OFF; PRAGMA cache_size = -200000;"
			   "DROP INDEX event_by_ts; DROP INDEX event_by_action;"
			   "DROP INDEX event_by_sandbox; DROP INDEX event_by_address;"
			   "DROP INDEX event_by_name",
			   err);

	snprintf(sql, sizeof(sql),
		 "WITH RECURSIVE n(i, a, b, c) AS (SELECT 0, 1, 1, 1 UNION ALL SELECT i "
		 "+ 1,"
		 " abs(random() %% 1000003), abs(random() %% 1000003), random() FROM n"
		 " WHERE i < %" PRIu32 ")"
		 " INSERT INTO event (ts, sandbox, action, layer, remote_ip, remote_port,"
		 " protocol, name, packets, bytes, reason)"
		 " SELECT %" PRId64 " + i * %" PRId64 " / %" PRIu32
		 ", 'sandbox-' || (a %% 500),"
		 " 1 + i %% 2, 1 + (c & 1),"
		 " iif(c & 1, '198.18.' || (b %% 20) || '.' || (a %% 250), NULL),"
		 " iif(c & 1, 443, NULL), iif(c & 1, 6, NULL),"
		 " iif(c & 1 AND c & 6, NULL, 'n' || iif(c & 0x3f00 = 0, 'ew' || i,"
		 " a * b %% 1000003 %% (1 + a %% 20000)) || '.bench.test'),"
		 " 1 + (c >> 20 & 3), 60, 'no rule allows it' FROM n",
		 events - 1, begin, 30 * DAY_MS, events);
	if (r == 0)
		r = sqlite_run(db, sql, err);
	if (r == 0)
		r = sqlite_run(db, indexes, err);
	if (r == 0)
		r = sqlite_run(db,
			       "INSERT INTO denied SELECT kind, ts / 3600000, key,"
			       " sum(packets), count(*), max(ts) FROM denied_written"
			       " WHERE key IS NOT NULL GROUP BY 1, 2, 3; ANALYZE;"
			       "PRAGMA wal_checkpoint(TRUNCATE)",
			       err);
	return r;
}

static int make(const char *directory, uint32_t events, struct err *err)
{
	const struct sqlite_config config = { .directory = directory,
					      .max_bytes = MAX_BYTES };
	char path[SQLITE_PATH_SIZE];
	sqlite3 *db = NULL;
	int r;

	snprintf(path, sizeof(path), "%s/events.db", directory);
	if (access(path, F_OK) == 0)
		return 0;
	r = sqlite_file_open(&config, &db, err);
	if (r == 0)
		r = fill(db, events, err);
	sqlite3_close(db);
	return r;
}

struct sums {
	uint64_t keys, packets;
};

static bool on_denied(void *data, const struct sqlite_top *d)
{
	struct sums *s = data;

	s->keys++;
	s->packets += d->packets;
	return true;
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Each time as whoever asks does it: opened, searched, closed. */
static int measure(const char *directory, enum sqlite_by by, struct err *err)
{
	const struct sqlite_query day = { .since_ms = clock_wall_ms() - DAY_MS,
					  .max = SIZE_MAX / 4 };
	double ms[ROUNDS], cpu_ms = now(CLOCK_PROCESS_CPUTIME_ID);
	struct sums sums;
	int r = 0;

	for (size_t i = 0; i < ROUNDS && r == 0; i++) {
		struct sqlite_reader *reader = NULL;

		sums = (struct sums){ 0 };
		ms[i] = now(CLOCK_MONOTONIC);
		r = sqlite_reader_open(directory, TIMEOUT_MS, &reader, err);
		if (r == 0)
			r = sqlite_top(reader, by, &day, on_denied, &sums, err);
		sqlite_reader_close(reader);
		ms[i] = now(CLOCK_MONOTONIC) - ms[i];
	}
	if (r < 0)
		return r;
	cpu_ms = (now(CLOCK_PROCESS_CPUTIME_ID) - cpu_ms) / ROUNDS;
	printf("denied in 24 h by %-12s first %7.1f ms", sqlite_by_name(by), ms[0]);
	qsort(ms, ROUNDS, sizeof(*ms), compare);
	printf(", median %6.1f ms, CPU %6.1f ms: %" PRIu64 " keys, %" PRIu64 " packets\n",
	       ms[ROUNDS / 2], cpu_ms, sums.keys, sums.packets);
	return 0;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	uint32_t events = 10000000;
	int r;

	if (argc < 2 || argc > 3 ||
	    (argc == 3 && !text_to_u32(text_of(argv[2]), 100000000, &events)))
		return 2;
	r = make(argv[1], events, &err);
	for (int by = SQLITE_BY_DESTINATION; by < SQLITE_BY_COUNT && r == 0; by++)
		r = measure(argv[1], (enum sqlite_by)by, &err);
	if (r < 0)
		fprintf(stderr, "%s\n", err.text);
	return r < 0;
}
