// SPDX-License-Identifier: Apache-2.0
/* store/tally - events that wait to be told, equal ones folded into one.
 *
 * What is new is ready, or waits for the end of its window. What was told rests for a
 * window: what equals it is added up meanwhile, and told at the end of it. Pure: the
 * caller says what time it is, and when something may be told. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/event.h"

/* Events that all tallies of a process may hold together. */
struct tally_pool {
	int64_t left; /* below 0: of those that are always taken */
};

struct tally;
/* At most @max events. @window_ms 0: what is new waits for tally_close(), and nothing
 * rests. @pool is borrowed. NULL: no memory. */
struct tally *tally_new(struct tally_pool *pool, size_t max, int64_t window_ms);
void tally_free(struct tally *t);
/* Add packets and bytes of @e to what equals it, or hold a copy. Equal are those with the
 * same action, layer, destination, name, rule, type and limit; whose process it was says
 * the first one. Return: false when there is no room; nothing is taken then. */
bool tally_add(struct tally *t, const struct event *e, int64_t now_ms);
/* The same, and there is room as long as there is memory: for events of which there are
 * few different ones. */
bool tally_add_always(struct tally *t, const struct event *e, int64_t now_ms);
/* What is ready the longest; borrowed. NULL: nothing is. */
const struct event *tally_next(struct tally *t, int64_t now_ms);
/* That one has been told. */
void tally_told(struct tally *t, int64_t now_ms);
/* The window is over: whatever is held becomes ready. */
void tally_close(struct tally *t);
/* Nothing is held. */
bool tally_is_empty(const struct tally *t);
