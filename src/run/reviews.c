// SPDX-License-Identifier: Apache-2.0
#include "run/reviews.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct review *find_like(const struct run_reviews *r, const struct event *e,
				const char *destination)
{
	for (size_t i = 0; i < r->count; i++) {
		struct review *t = &r->tasks[i];

		if (t->port == e->port && t->protocol == e->protocol &&
		    strcmp(t->destination, destination) == 0)
			return t;
	}
	return NULL;
}

/* Room at the end of the table. */
static struct review *add_task(struct run_reviews *r)
{
	size_t gone = 0;

	if (!r->tasks)
		r->tasks = calloc(RUN_REVIEWS_MAX, sizeof(*r->tasks));
	if (!r->tasks || r->count < RUN_REVIEWS_MAX)
		return r->tasks ? &r->tasks[r->count++] : NULL;
	while (gone < r->count && r->tasks[gone].state == REVIEW_OPEN)
		gone++;
	if (gone == r->count)
		gone = 0;
	memmove(&r->tasks[gone], &r->tasks[gone + 1],
		(r->count - gone - 1) * sizeof(*r->tasks));
	return &r->tasks[r->count - 1];
}

struct review *run_reviews_note(struct run_reviews *r, const struct event *e,
				const char *sandbox)
{
	const char *destination = e->name[0] ? e->name : ADDR_SHOWN(&e->remote);
	struct review *t;

	if (e->action != EVENT_ASK || !e->advice[0])
		return NULL;
	t = find_like(r, e, destination);
	if (!t) {
		t = add_task(r);
		if (!t)
			return NULL;
		*t = (struct review){ .id = ++r->last_id,
				      .is_name = e->name[0] != '\0',
				      .port = e->port,
				      .protocol = e->protocol,
				      .first_ms = e->ts_ms };
		snprintf(t->sandbox, sizeof(t->sandbox), "%s", sandbox);
		snprintf(t->destination, sizeof(t->destination), "%s", destination);
	}
	t->state = REVIEW_OPEN;
	t->who[0] = '\0';
	t->decided_ms = 0;
	t->packets += e->packets;
	t->rows++;
	t->last_ms = e->ts_ms;
	snprintf(t->advice, sizeof(t->advice), "%s", e->advice);
	return t;
}

struct review *run_reviews_find(const struct run_reviews *r, int64_t id)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->tasks[i].id == id)
			return &r->tasks[i];
	return NULL;
}

void run_reviews_done(struct run_reviews *r)
{
	free(r->tasks);
	*r = (struct run_reviews){ 0 };
}
