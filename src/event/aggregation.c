// SPDX-License-Identifier: Apache-2.0
#include "event/aggregation.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/hash.h"

enum { HEADS = 256 };

struct entry {
	struct event event; /* packets 0: everything was reported */
	uint64_t hash;
	int64_t ready_ms, until_ms; /* since when; the end of its rest */
	uint8_t line;		    /* in which it is, or will be when its rest is over */
	bool ready;
	LIST_ENTRY(entry) in_chain;
	TAILQ_ENTRY(entry) in_queue;
};
TAILQ_HEAD(entry_queue, entry);

struct aggregation {
	struct aggregation_pool *pool;
	size_t max, count;
	int64_t window_ms;
	struct hash_key key;
	LIST_HEAD(, entry) heads[HEADS];
	struct entry_queue ready[AGGREGATION_LINES], resting; /* in order of time */
};

struct aggregation *aggregation_new(struct aggregation_pool *pool, size_t max,
				    int64_t window_ms)
{
	struct aggregation *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->pool = pool;
	t->max = max;
	t->window_ms = window_ms;
	/* As in event.c: only the chains must not be chosen from outside. */
	t->key = (struct hash_key){ (uintptr_t)t, (uintptr_t)t->heads };
	for (size_t i = 0; i < AGGREGATION_LINES; i++)
		TAILQ_INIT(&t->ready[i]);
	TAILQ_INIT(&t->resting);
	return t;
}

static struct entry_queue *queue_of(struct aggregation *t, const struct entry *e)
{
	return e->ready ? &t->ready[e->line] : &t->resting;
}

static void drop(struct aggregation *t, struct entry *e)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	LIST_REMOVE(e, in_chain);
	t->count--;
	t->pool->left++;
	free(e);
}

void aggregation_free(struct aggregation *t)
{
	struct entry *e;

	if (!t)
		return;
	for (size_t i = 0; i < AGGREGATION_LINES; i++)
		while ((e = TAILQ_FIRST(&t->ready[i])))
			drop(t, e);
	while ((e = TAILQ_FIRST(&t->resting)))
		drop(t, e);
	free(t);
}

static void rest(struct aggregation *t, struct entry *e, int64_t until_ms)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	e->ready = false;
	e->until_ms = until_ms;
	if (e->line != AGGREGATION_ALWAYS)
		e->line = AGGREGATION_AGAIN;
	TAILQ_INSERT_TAIL(queue_of(t, e), e, in_queue);
}

static void make_ready(struct aggregation *t, struct entry *e, int64_t now_ms)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	e->ready = true;
	e->ready_ms = now_ms;
	TAILQ_INSERT_TAIL(queue_of(t, e), e, in_queue);
}

/* ---- what is equal ---- */

/* Events of different query types are different, and so are events of which only one
 * could be allowed. */
static struct entry *find(const struct aggregation *t, uint64_t hash,
			  const struct event *e)
{
	struct entry *at;

	LIST_FOREACH(at, &t->heads[hash % HEADS], in_chain)
	{
		if (at->hash == hash && at->event.query_type == e->query_type &&
		    at->event.allowable == e->allowable && event_is_same(&at->event, e))
			return at;
	}
	return NULL;
}

static void fold(struct event *into, const struct event *e)
{
	if (into->packets == 0) {
		into->ts_ms = e->ts_ms;
		into->from = e->from;
		into->to = e->to;
		if (e->uid != UINT32_MAX)
			into->uid = e->uid;
	}
	into->packets += e->packets;
	into->bytes += e->bytes;
}

/* Rests that are over. */
static void wake(struct aggregation *t, int64_t now_ms)
{
	struct entry *e;

	while (t->window_ms > 0 && (e = TAILQ_FIRST(&t->resting)) &&
	       e->until_ms <= now_ms) {
		if (e->event.packets > 0)
			make_ready(t, e, now_ms);
		else
			drop(t, e);
	}
}

bool aggregation_fold(struct aggregation *t, const struct event *e)
{
	struct entry *known = find(t, event_hash(&t->key, e), e);

	if (known)
		fold(&known->event, e);
	return known;
}

bool aggregation_hold(struct aggregation *t, const struct event *e, unsigned int line,
		      int64_t now_ms)
{
	struct entry *held;

	assert(line < AGGREGATION_LINES);
	wake(t, now_ms);
	if (line != AGGREGATION_ALWAYS &&
	    (t->count >= t->max || (t->pool->left <= 0 && t->count >= AGGREGATION_OWN)))
		return false;
	held = calloc(1, sizeof(*held));
	if (!held)
		return false;
	held->event = *e;
	held->hash = event_hash(&t->key, e);
	held->line = (uint8_t)line;
	held->ready = t->window_ms > 0;
	held->ready_ms = now_ms;
	LIST_INSERT_HEAD(&t->heads[held->hash % HEADS], held, in_chain);
	TAILQ_INSERT_TAIL(queue_of(t, held), held, in_queue);
	t->count++;
	t->pool->left--;
	return true;
}

const struct event *aggregation_oldest(struct aggregation *t, unsigned int line,
				       int64_t now_ms)
{
	const struct entry *e;

	wake(t, now_ms);
	e = TAILQ_FIRST(&t->ready[line]);
	return e ? &e->event : NULL;
}

const struct event *aggregation_newest(struct aggregation *t, unsigned int line,
				       int64_t now_ms)
{
	const struct entry *e;

	wake(t, now_ms);
	e = TAILQ_LAST(&t->ready[line], entry_queue);
	return e ? &e->event : NULL;
}

/* As aggregation_oldest() gave it. */
static struct entry *entry_of(const struct event *e)
{
	return CONTAINER_OF((struct event *)(uintptr_t)e, struct entry, event);
}

int64_t aggregation_waited_ms(const struct event *e, int64_t now_ms)
{
	return now_ms - entry_of(e)->ready_ms;
}

void aggregation_told(struct aggregation *t, const struct event *told, int64_t now_ms)
{
	struct entry *e = entry_of(told);

	e->event.packets = 0;
	e->event.bytes = 0;
	if (t->window_ms > 0)
		rest(t, e, now_ms + t->window_ms);
	else
		drop(t, e);
}

void aggregation_let_go(struct aggregation *t, const struct event *e)
{
	drop(t, entry_of(e));
}

int aggregation_make_room(struct aggregation *t, unsigned int line, struct event *ret)
{
	struct entry *e = TAILQ_FIRST(&t->resting);

	if (e && e->event.packets == 0) {
		drop(t, e);
		return 0;
	}
	for (unsigned int i = AGGREGATION_LINES - 1; i > line; i--) {
		e = TAILQ_FIRST(&t->ready[i]);
		if (!e)
			continue;
		*ret = e->event;
		drop(t, e);
		return 1;
	}
	return -ENOSPC;
}

void aggregation_close(struct aggregation *t)
{
	struct entry *e, *next;

	for (e = TAILQ_FIRST(&t->resting); e; e = next) {
		next = TAILQ_NEXT(e, in_queue);
		if (e->event.packets > 0)
			make_ready(t, e, e->until_ms);
		else
			drop(t, e);
	}
}

bool aggregation_is_empty(const struct aggregation *t)
{
	return t->count == 0;
}
