// SPDX-License-Identifier: Apache-2.0
#include "event/aggregation.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/hash.h"

enum { HEADS_FIRST = 16, HEADS_MAX = 1024 };

/* What a search reads comes first, in one line of the cache. */
struct entry {
	LIST_ENTRY(entry) in_chain;
	uint64_t hash;
	int64_t ready_ms, until_ms; /* since when; the end of its rest */
	TAILQ_ENTRY(entry) in_queue;
	uint8_t line; /* in which it is, or will be when its rest is over */
	bool ready;
	struct event event; /* packets 0: everything was reported */
};
TAILQ_HEAD(entry_queue, entry);
LIST_HEAD(entry_chain, entry);

struct aggregation {
	struct aggregation_pool *pool;
	size_t max, count;
	int64_t window_ms;
	struct hash_key key;
	struct entry_chain *heads; /* owned; as many as a search should be short for */
	size_t head_count;	   /* a power of two */
	struct entry *recent;	   /* that was added to last; NULL: none */
	struct entry_queue ready[AGGREGATION_LINES], resting; /* in order of time */
};

struct aggregation *aggregation_new(struct aggregation_pool *pool, size_t max,
				    int64_t window_ms)
{
	CLEAN(mem) struct aggregation *t = calloc(1, sizeof(*t));

	if (!t || !(t->heads = calloc(HEADS_FIRST, sizeof(*t->heads))))
		return NULL;
	t->head_count = HEADS_FIRST;
	t->pool = pool;
	t->max = max;
	t->window_ms = window_ms;
	/* As in event.c: only the chains must not be chosen from outside. */
	t->key = (struct hash_key){ (uintptr_t)t, (uintptr_t)t->heads };
	for (size_t i = 0; i < AGGREGATION_LINES; i++)
		TAILQ_INIT(&t->ready[i]);
	TAILQ_INIT(&t->resting);
	return TAKE_PTR(t);
}

static struct entry_queue *queue_of(struct aggregation *t, const struct entry *e)
{
	return e->ready ? &t->ready[e->line] : &t->resting;
}

static void drop(struct aggregation *t, struct entry *e)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	LIST_REMOVE(e, in_chain);
	if (t->recent == e)
		t->recent = NULL;
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
	free(t->heads);
	free(t);
}

/* The rest of @e is over: it is ready since @now_ms, or goes when nothing is to be told.
 */
static void end_rest(struct aggregation *t, struct entry *e, int64_t now_ms)
{
	if (e->event.packets == 0) {
		drop(t, e);
		return;
	}
	TAILQ_REMOVE(&t->resting, e, in_queue);
	e->ready = true;
	e->ready_ms = now_ms;
	TAILQ_INSERT_TAIL(queue_of(t, e), e, in_queue);
}

/* ---- what is equal ---- */

static struct entry_chain *chain_of(const struct aggregation *t, uint64_t hash)
{
	return &t->heads[hash & (t->head_count - 1)];
}

/* Twice the heads, once there are more events than heads. Without the memory searches
 * take longer. */
static void grow_heads(struct aggregation *t)
{
	struct entry_chain *old = t->heads, *grown;
	const size_t old_count = t->head_count;
	struct entry *e;

	if (t->count <= old_count || old_count == HEADS_MAX)
		return;
	grown = calloc(old_count * 2, sizeof(*grown));
	if (!grown)
		return;
	t->heads = grown;
	t->head_count = old_count * 2;
	for (size_t i = 0; i < old_count; i++) {
		while ((e = LIST_FIRST(&old[i]))) {
			LIST_REMOVE(e, in_chain);
			LIST_INSERT_HEAD(chain_of(t, e->hash), e, in_chain);
		}
	}
	free(old);
}

/* Rests that are over. */
static void wake(struct aggregation *t, int64_t now_ms)
{
	struct entry *e;

	while (t->window_ms > 0 && (e = TAILQ_FIRST(&t->resting)) &&
	       e->until_ms <= now_ms)
		end_rest(t, e, now_ms);
}

bool aggregation_fold(struct aggregation *t, const struct event *e)
{
	struct entry *known = t->recent;

	/* In a flood most are added to the one event without a destination. */
	if (!known || !event_is_equal(&known->event, e)) {
		const uint64_t hash = event_hash(&t->key, e);

		LIST_FOREACH(known, chain_of(t, hash), in_chain)
		{
			if (known->hash == hash && event_is_equal(&known->event, e))
				break;
		}
	}
	if (!known)
		return false;
	if (known->event.packets == 0) {
		known->event.ts_ms = e->ts_ms;
		known->event.from = e->from;
		known->event.to = e->to;
		if (e->uid != UINT32_MAX)
			known->event.uid = e->uid;
	}
	known->event.packets += e->packets;
	known->event.bytes += e->bytes;
	known->event.received += e->received;
	t->recent = known;
	return true;
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
	LIST_INSERT_HEAD(chain_of(t, held->hash), held, in_chain);
	TAILQ_INSERT_TAIL(queue_of(t, held), held, in_queue);
	t->count++;
	grow_heads(t);
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

void aggregation_reported(struct aggregation *t, const struct event *reported,
			  int64_t now_ms)
{
	struct entry *e = entry_of(reported);

	e->event.packets = 0;
	e->event.bytes = 0;
	e->event.received = 0;
	if (t->window_ms <= 0) {
		drop(t, e);
		return;
	}
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	e->ready = false;
	e->until_ms = now_ms + t->window_ms;
	if (e->line != AGGREGATION_ALWAYS)
		e->line = AGGREGATION_AGAIN;
	TAILQ_INSERT_TAIL(&t->resting, e, in_queue);
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
		end_rest(t, e, e->until_ms);
	}
}
