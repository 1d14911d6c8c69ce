// SPDX-License-Identifier: Apache-2.0
/* tools/events_show - weir-events: what a store has, printed for people or programs.
 *
 *   events_main.c      `weir events`, `weir denies`, `weir learn --from`; what their
 *                      options mean
 *   events_review.c    `weir review`
 *   events_services.c  what `weir run` and the supervisor start: the store of a run, the
 *                      review command
 *
 * Whatever is printed for people is escaped: a name that a sandbox asked for can't move
 * a cursor. */
#pragma once

#include "base/arena.h"
#include "base/exit_status.h"
#include "base/jansson.h"
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

/* Services that other processes of Weir's start.
 * @argv[0] is the service. Return: the exit status. */
int events_store(int argc, char **argv);
int review_command(int argc, char **argv);
