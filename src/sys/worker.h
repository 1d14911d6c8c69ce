// SPDX-License-Identifier: Apache-2.0
/* sys/worker - a bounded queue and the thread that empties it: for whatever may block
 * (a full pipe, a slow disk), so that it never blocks who serves the API and the
 * policy.
 *
 * Records are copied in and come out in order, in the thread. A full queue refuses the
 * new record and counts it. The thread has every signal blocked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { WORKER_NAME_SIZE = 16 };

struct worker_config {
	const char *name; /* of the thread, 15 bytes */
	size_t queue_bytes;
	size_t reserve_bytes; /* beyond that, for records that may not be lost */
	int tick_ms;	      /* 0: no ticks */
	void *data;
	/* All in the thread. @record is aligned to 8 and gone afterwards. */
	void (*on_record)(void *data, const void *record, size_t size);
	/* The queue ran empty, or a tick passed. May be NULL. */
	void (*on_pause)(void *data);
};

struct worker;
int worker_new(const struct worker_config *config, struct worker **ret,
	       struct err *err) MUST_CHECK;
/* @kept: the reserve may be used. Never blocks. Return: false when it was dropped. */
bool worker_push(struct worker *w, const void *record, size_t size, bool kept);
/* Records that were refused. */
uint64_t worker_dropped(struct worker *w);
/* Wait until everything pushed so far has been handled and a pause followed. Return:
 * false when @timeout_ms passed before. */
bool worker_drain(struct worker *w, int timeout_ms);
/* Drain, and end the thread. Return: false when it hangs in a call beyond @timeout_ms:
 * it is left behind, and whatever its callbacks use has to stay. @w is gone either way.
 */
bool worker_free(struct worker *w, int timeout_ms);
