// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres_state - how far a store's events were copied into PostgreSQL, told by
 * weir-postgres in a small file beside the store, and read by control. */
#pragma once

#include "base/err.h"
#include <stdint.h>

struct postgres_state {
	int64_t sent;		     /* number of the last row that is there */
	uint64_t missed, refused;    /* rows that will never be */
	uint64_t waiting;	     /* rows in the store that are to be copied */
	int64_t told_ms;	     /* wall clock: when it was written; read only */
	char trouble[ERR_TEXT_SIZE]; /* "" while all is well */
};

/* Return: 0 or -errno. */
int postgres_state_write(const char *directory,
			 const struct postgres_state *state) MUST_CHECK;
/* Printable ASCII, whatever is in the file. Return: 0, -ENOENT: nothing was told yet, or
 * another -errno. */
int postgres_state_read(const char *directory, struct postgres_state *ret) MUST_CHECK;
