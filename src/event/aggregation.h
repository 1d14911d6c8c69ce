// SPDX-License-Identifier: Apache-2.0
/* event/aggregation - events that wait to be reported, equal ones folded into one.
 *
 * A new event is ready, or waits for the end of its window. A reported event rests for a
 * window: equal events are added to it meanwhile, and it is ready again at the end. Ready
 * events are in one of several lines, in order of time: the caller says in which line,
 * and from which lines something may be reported now. Pure: time is an argument. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "event/event.h"

/* Lines, the first ones before the others. */
enum {
	AGGREGATION_ALWAYS = 0, /* stays in it when it is reported again */
	AGGREGATION_NEW = 1,	/* to AGGREGATION_NEW_LAST, as the caller likes */
	AGGREGATION_NEW_LAST = 4,
	AGGREGATION_AGAIN = 5, /* was reported before */
	AGGREGATION_LINES,
};

/* Events that all aggregations of a process may have together. */
struct aggregation_pool {
	int64_t left; /* below 0: of the events that are always taken */
};
enum {
	AGGREGATION_OWN = 16
}; /* that each aggregation may have, whatever the others use */

struct aggregation;
/* At most @max events. @window_ms 0: what is new waits for aggregation_close(), and
 * nothing rests. @pool is borrowed. NULL: no memory. */
struct aggregation *aggregation_new(struct aggregation_pool *pool, size_t max,
				    int64_t window_ms);
void aggregation_free(struct aggregation *t);
/* Add packets and bytes of @e to the event that equals @e: one of the same action,
 * layer, destination, name, rule, type and limit. The first of equal events says
 * whose process it was. Return: false when no event equals @e; nothing is changed
 * then. */
bool aggregation_fold(struct aggregation *t, const struct event *e);
/* Put a copy of @e, which no event equals, into @line. Return: false when the budget
 * is used up. AGGREGATION_ALWAYS, for events of which there are few different ones,
 * ends only with the memory. */
bool aggregation_hold(struct aggregation *t, const struct event *e, unsigned int line,
		      int64_t now_ms);
/* What has been ready in @line for the longest time; borrowed. NULL: nothing is. */
const struct event *aggregation_oldest(struct aggregation *t, unsigned int line,
				       int64_t now_ms);
/* The shortest. */
const struct event *aggregation_newest(struct aggregation *t, unsigned int line,
				       int64_t now_ms);
/* How long @e, which is one of the ready ones, has been ready. */
int64_t aggregation_waited_ms(const struct event *e, int64_t now_ms);
/* @e has been reported. */
void aggregation_reported(struct aggregation *t, const struct event *e, int64_t now_ms);
/* Let @e go untold. */
void aggregation_let_go(struct aggregation *t, const struct event *e);
/* Make room for one of @line: what rests for nothing goes, else the first of the last
 * line behind @line, which is given in *@ret. Return: 1: *@ret has to be told in some
 * other way; 0: there is room; -ENOSPC: there is nothing that could go. */
int aggregation_make_room(struct aggregation *t, unsigned int line, struct event *ret);
/* End the window: every event becomes ready. */
void aggregation_close(struct aggregation *t);
