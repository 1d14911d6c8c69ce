// SPDX-License-Identifier: Apache-2.0
/* run/reviews - what the command of a run asks for (`action: ask`), and what became of
 * it: one task for each name or address with its port and protocol, in the order in which
 * they came. They end with the run. */
#pragma once

#include "events/review.h"

enum { RUN_REVIEWS_MAX = 256 }; /* then a decided one goes, or the oldest */

struct run_reviews {
	struct review *tasks; /* owned; NULL: none */
	size_t count;
	int64_t last_id;
};

/* Note an EVENT_ASK: it opens a task, or is one more of an open one, or opens one again.
 * Return: the task, borrowed until the next call; NULL: no rule can grant it, or memory
 * is out. */
struct review *run_reviews_note(struct run_reviews *r, const struct event *e,
				const char *sandbox);
/* NULL: there is none of that number. */
struct review *run_reviews_find(const struct run_reviews *r, int64_t id);
void run_reviews_done(struct run_reviews *r);
