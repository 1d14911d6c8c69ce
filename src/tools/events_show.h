// SPDX-License-Identifier: Apache-2.0
/* tools/events_show - weir-events: what a store has, printed for people or programs.
 *
 *   events_main.c      `weir events`, `weir denies`; what their options mean
 *   events_review.c    `weir review`
 *   events_learn.c     `weir learn --from`
 *   events_postgres.c  events that are in PostgreSQL
 *   events_services.c  what `weir run` and the supervisor start: the store of a run, the
 *                      review command
 *
 * Whatever is printed for people is escaped: a name that a sandbox asked for can't move
 * a cursor. */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/exit_status.h"
#include "events/sqlite.h"
#include "tools/events.h"

enum show_status {
	SHOW_OK = 0,
	SHOW_UNWANTED = 1, /* somebody was asked, and said no */
	SHOW_BAD_INPUT = RUN_STATUS_BAD_INPUT,
	SHOW_FAILED = RUN_STATUS_FAILED,
};

enum { SHOW_TIMEOUT_MS = 60000 }; /* for one search */

struct show {
	struct events_spec spec;
	const char *directory; /* of the store, or */
	const char *database;  /* the connection string; NULL: none */
	struct sqlite_query query;
	enum sqlite_by by;
	bool colour, wrap; /* of standard output */
	unsigned int width;
	struct arena arena;
};

/* Return: the exit status. */
int show_review(struct show *s);
int show_learn(struct show *s);

/* The store, or why it can't be opened, said. Return: 0 or -errno. */
int show_open(const struct show *s, struct sqlite_reader **ret) MUST_CHECK;
/* @from names a database: "postgres", whose connection string is in WEIR_POSTGRES, or a
 * URI. Return: the connection string, borrowed; "": WEIR_POSTGRES isn't set; NULL: it
 * names a state directory. */
const char *show_postgres(const char *from);
/* Call @on_event for what @s->query finds in that database by its sandbox and since_ms;
 * outputs/postgres_read.h says what is one event. *@ret_unread: the occurrences in events
 * that were too many. Return: 0, or -errno with @err. */
int show_read_postgres(const struct show *s, const char *conninfo,
		       void (*on_event)(void *data, const struct event *e), void *data,
		       uint64_t *ret_unread, struct err *err) MUST_CHECK;
/* Say @err. Return: SHOW_FAILED. */
int show_failed(const struct err *err);

/* Services that other processes of Weir's start.
 * @argv[0] is the service. Return: the exit status. */
int events_store(int argc, char **argv);
int review_command(int argc, char **argv);
