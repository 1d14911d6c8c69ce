// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres_state - what others know of weir-postgres: how far a store's events
 * were copied into PostgreSQL, told by weir-postgres in a small file beside the store,
 * and read by control. */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct postgres_state {
	int64_t sent;		     /* number of the last row that is there */
	uint64_t missed, refused;    /* rows that will never be */
	uint64_t waiting;	     /* rows in the store that are to be copied */
	int64_t written_ms;	     /* wall clock: when it was written; read only */
	char trouble[ERR_TEXT_SIZE]; /* "" while all is well */
};

/* Return: 0 or -errno. */
int postgres_state_write(const char *directory,
			 const struct postgres_state *state) MUST_CHECK;
/* Printable ASCII, whatever is in the file. Return: 0, -ENOENT: nothing was told yet, or
 * another -errno. */
int postgres_state_read(const char *directory, struct postgres_state *ret) MUST_CHECK;

/* Its service that reads events back, for who
 * carries no libpq.
 *
 * Its arguments: the connection string; the wall clock of the first event in
 * milliseconds; where it is about one sandbox, the name of that. Events that are equal
 * but for their time, sandbox and rule are one. It writes struct event after struct event
 * to the descriptor INHERITED_FIRST. The last one has the action EVENT_NONE, without
 * which they aren't whole; its `packets` are the occurrences in events that were too many
 * to be read. */

#define POSTGRES_READ "read"
