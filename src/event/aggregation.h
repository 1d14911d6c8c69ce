// SPDX-License-Identifier: Apache-2.0
/* event/aggregation - events that wait to be told, equal ones folded into one.
 *
 * What is new is ready, or waits for the end of its window. What was told rests for a
 * window: what equals it is added up meanwhile, and told at the end of it. What is ready
 * stands in one of several lines, in order of time: the caller says in which, and from
 * which of them something may be told now. Pure: the caller says what time it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/event.h"

/* Lines, the first ones before the others. */
enum {
	AGGREGATION_ALWAYS = 0, /* stays in it when it is told again */
	AGGREGATION_NEW = 1,	/* to AGGREGATION_NEW_LAST, as the caller likes */
	AGGREGATION_NEW_LAST = 4,
	AGGREGATION_AGAIN = 5, /* was told before */
	AGGREGATION_LINES,
};

/* Events that all tallies of a process may hold together. */
struct aggregation_pool {
	int64_t left; /* below 0: of those that are always taken */
};
enum { AGGREGATION_OWN = 16 }; /* that each one may hold, whatever the others do */

struct aggregation;
/* At most @max events. @window_ms 0: what is new waits for aggregation_close(), and
 * nothing rests. @pool is borrowed. NULL: no memory. */
struct aggregation *aggregation_new(struct aggregation_pool *pool, size_t max,
				    int64_t window_ms);
void aggregation_free(struct aggregation *t);
/* Add packets and bytes of @e to what equals it. Equal are those with the same action,
 * layer, destination, name, rule, type and limit; whose process it was says the first
 * one. Return: false when nothing does; nothing is taken then. */
bool aggregation_fold(struct aggregation *t, const struct event *e);
/* Hold a copy of @e, which nothing equals, in @line. Return: false when there is no room;
 * in AGGREGATION_ALWAYS there is as long as there is memory: for events of which there
 * are few different ones. */
bool aggregation_hold(struct aggregation *t, const struct event *e, unsigned int line,
		      int64_t now_ms);
/* What has been ready in @line for the longest time; borrowed. NULL: nothing is. */
const struct event *aggregation_oldest(struct aggregation *t, unsigned int line,
				       int64_t now_ms);
/* The shortest. */
const struct event *aggregation_newest(struct aggregation *t, unsigned int line,
				       int64_t now_ms);
/* How long @e, of those two, has been ready. */
int64_t aggregation_waited_ms(const struct event *e, int64_t now_ms);
/* @e has been told. */
void aggregation_told(struct aggregation *t, const struct event *e, int64_t now_ms);
/* Let @e go untold. */
void aggregation_let_go(struct aggregation *t, const struct event *e);
/* Make room for one of @line: what rests for nothing goes, else the first of the last
 * line behind @line, which is given in *@ret. Return: 1: *@ret has to be told in some
 * other way; 0: there is room; -ENOSPC: there is nothing that could go. */
int aggregation_make_room(struct aggregation *t, unsigned int line, struct event *ret);
/* The window is over: whatever is held becomes ready. */
void aggregation_close(struct aggregation *t);
/* Nothing is held. */
bool aggregation_is_empty(const struct aggregation *t);
