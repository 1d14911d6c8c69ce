// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/sender - rows of a store, copied into PostgreSQL in their order, each
 * once.
 *
 * HOW IT WORKS
 * The store (SQLite) is the spool: it is on disk, outlives everybody, and its rows have
 * numbers that only grow. PostgreSQL itself remembers how far a store was copied, in a
 * row that changes in the transaction that brings the events. So whoever is killed,
 * wherever, the next start asks and goes on there: nothing is lost and nothing is there
 * twice. What the store lets go (size, age) before the server is back is counted as
 * missed; what the server refuses as data is passed over and counted as refused. Review
 * tasks follow the events, by the number of their last change. */
#pragma once

#include "base/err.h"
#include "events/sqlite.h"

enum { SENDER_BATCH = 500 }; /* rows in a transaction */

struct sender_state {
	uint64_t missed, refused;    /* of this store, ever, as the server has them */
	uint64_t waiting;	     /* rows behind @sent */
	int64_t sent;		     /* number of the last row that is there */
	int64_t reviewed;	     /* of the last change of a review task */
	char trouble[ERR_TEXT_SIZE]; /* what keeps review tasks from being copied, or ""
				      */
};

struct sender;
/* @directory holds the store; both are borrowed. It lives as long as the process. Return:
 * NULL without memory. */
struct sender *sender_new(const char *directory, const char *conninfo);
/* Copy a batch, after connecting and opening what isn't open. Return: how many rows were
 * copied; 0: there are none; or -errno with @err: another time, from the start. */
int sender_step(struct sender *s, struct err *err) MUST_CHECK;
/* Rows that went while they waited are counted as missed already. */
struct sender_state sender_state(const struct sender *s);
