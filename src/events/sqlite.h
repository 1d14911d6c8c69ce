// SPDX-License-Identifier: Apache-2.0
/* events/sqlite - events in a SQLite database: written by a thread of its own, found
 * again by anybody.
 *
 * Writing never waits and never fails for the caller: events go into a bounded queue,
 * are folded over a second by all that tells them apart, and are written in one
 * transaction. A disk that is full makes room by letting old rows go; a file that is
 * broken is moved aside and a new one begun; what still can't be written is counted,
 * and the reason stands in the state. A kill loses the last second. */
#pragma once

#include "events/jsonl.h"

enum {
	SQLITE_WINDOW_MS = 1000, /* what is equal within it becomes one row */
	SQLITE_FOLD_MAX = 256,	 /* different rows within it; more are written sooner */
};

/* Both clocks, as base/clock has them. */
struct sqlite_clock {
	int64_t (*now_ms)(void), (*wall_ms)(void);
};

struct sqlite_config {
	const char *directory; /* holds events.db; made with mode 0700 */
	uint64_t max_bytes;    /* 0: 256 MiB; the oldest rows of who has most go */
	uint32_t max_days;     /* 0: 30 */
	/* What was written is on the disk before anybody can read it: no row that was
	 * copied elsewhere goes with the power. */
	bool durable;
	/* Others may write to the directory: nothing there is mapped into memory, where
	 * whoever cuts the file ends the process (SIGBUS). Readers and the writer wait
	 * for each other then. */
	bool shared;
	const struct sqlite_clock *clock; /* NULL: the system's; static */
};

struct sqlite_state {
	uint64_t rows, packets;		  /* written by this process */
	uint64_t lost_rows, lost_packets; /* that could not be kept */
	uint32_t moved_aside;		  /* broken files */
	char trouble[ERR_TEXT_SIZE];	  /* "" while all is well; that a file was moved
					   * aside stays there */
};

struct sqlite_writer;
/* The database is opened by the thread: what is wrong with it shows in the state.
 * Return: 0 or -errno when there is no thread to be had. */
int sqlite_writer_new(const struct sqlite_config *config, struct sqlite_writer **ret,
		      struct err *err) MUST_CHECK;
/* Writes what it has, for at most two seconds. */
void sqlite_writer_free(struct sqlite_writer *w);
void sqlite_writer_add(struct sqlite_writer *w, const struct event_row *row);
void sqlite_writer_state(struct sqlite_writer *w, struct sqlite_state *ret);
/* Wait until all that was added is in the file, or counted as lost. For tests. */
bool sqlite_writer_drain(struct sqlite_writer *w, int timeout_ms);

/* ---- finding ---- */

struct sqlite_query {
	enum event_action action; /* EVENT_NONE: any */
	const char *sandbox;	  /* NULL: any */
	const char *name;	  /* NULL: any; lower case, no dot at the end */
	struct addr remote;	  /* ADDR_NONE: any */
	int64_t since_ms;	  /* wall clock, included */
	int64_t until_ms;	  /* excluded; 0: no end */
	int64_t below_id;	  /* for the next page: of the millisecond before until_ms
				   * only rows before it; 0: all */
	bool oldest_first;	  /* in the order in which they were written */
	int64_t above_id;	  /* with oldest_first: only rows behind it; 0: all */
	size_t max;		  /* rows; 0: 1000 */
	size_t scan; /* of sqlite_top(): rows that are read at most; 0: all */
};

struct sqlite_sum {
	uint64_t rows, packets;
};

struct sqlite_reader;
/* @timeout_ms: a search that takes longer is ended with -ETIMEDOUT. Return: 0,
 * -ENOENT when there is no database, -EAGAIN when it has not all its tables yet, or
 * another -errno. */
int sqlite_reader_open(const char *directory, int timeout_ms, struct sqlite_reader **ret,
		       struct err *err) MUST_CHECK;
void sqlite_reader_close(struct sqlite_reader *r);
DEFINE_CLEAN(reader, struct sqlite_reader *, sqlite_reader_close)
/* Newest first, unless @query says otherwise. @on_row says whether to go on. */
int sqlite_find(struct sqlite_reader *r, const struct sqlite_query *query,
		bool (*on_row)(void *data, int64_t id, const struct event_row *row),
		void *data, struct err *err) MUST_CHECK;
enum { SQLITE_STORE_ID_SIZE = 33 };
/* 32 hexadecimal digits that no other file has. */
int sqlite_store_id(struct sqlite_reader *r, char *ret, struct err *err) MUST_CHECK;
/* The number that is the last before the rows since @since_ms begin; of the newest row
 * when there are none. For a query that begins there and goes on. */
int sqlite_id_before(struct sqlite_reader *r, int64_t since_ms, int64_t *ret,
		     struct err *err) MUST_CHECK;

/* ---- sums by one property of the events ---- */

/* As in sql/sqlite/012_store.sql. */
enum sqlite_by {
	SQLITE_BY_NONE = 0,
	SQLITE_BY_DESTINATION, /* the name, or the address of what has none */
	SQLITE_BY_ADDRESS,
	SQLITE_BY_NAME,
	SQLITE_BY_SANDBOX,
	SQLITE_BY_RULE,
	SQLITE_BY_PROCESS,
	SQLITE_BY_COUNT
};

/* "destination", "address", … */
const char *sqlite_by_name(enum sqlite_by by);
bool sqlite_by_parse(const char *text, enum sqlite_by *ret);

struct sqlite_top {
	const char *key; /* borrowed for the call; "": the default action, or nobody knows
			    which */
	uint64_t packets, rows;
	uint64_t bytes; /* of what was allowed; 0 of what was denied */
	int64_t last_ms;
};

/* What was denied, the most packets first; with the action EVENT_ALLOW what was allowed,
 * the most bytes first, by destination, address, name or sandbox. Of @query sandbox,
 * since_ms, until_ms, max and scan count. @on_top says whether to go on. Return: 0; 1:
 * there was more than @query->scan rows, and the newest were counted; -errno. */
int sqlite_top(struct sqlite_reader *r, enum sqlite_by by,
	       const struct sqlite_query *query,
	       bool (*on_top)(void *data, const struct sqlite_top *t), void *data,
	       struct err *err) MUST_CHECK;

/* ---- sums by time ---- */

enum { SQLITE_BUCKETS_MAX = 500 };
/* What happened in some minutes. */
struct sqlite_bucket {
	uint64_t packets[EVENT_ACTION_COUNT]; /* lookups and connections among them */
	uint64_t bytes;			      /* that were let out */
};
/* @count buckets of @minutes each, from the minute @first on; @sandbox may be NULL: all
 * of them. */
int sqlite_activity(struct sqlite_reader *r, const char *sandbox, int64_t first,
		    int64_t minutes, size_t count, struct sqlite_bucket *ret,
		    struct err *err) MUST_CHECK;
/* How much was denied since @since_ms; @sandbox as above. @scan rows are looked at.
 * Return: 0; 1: there are more, the rows are those of the newest ones, and the packets
 * are summed by whole minutes; or -errno. */
int sqlite_count_denied(struct sqlite_reader *r, const char *sandbox, int64_t since_ms,
			size_t scan, struct sqlite_sum *ret, struct err *err) MUST_CHECK;
