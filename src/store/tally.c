// SPDX-License-Identifier: Apache-2.0
#include "store/tally.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/hash.h"

enum { HEADS = 256 };

struct entry {
	struct event event; /* packets 0: all of it was told */
	uint64_t hash;
	int64_t until_ms; /* of the rest */
	bool ready;
	LIST_ENTRY(entry) in_chain;
	TAILQ_ENTRY(entry) in_queue; /* ready, or resting: both in order of time */
};
TAILQ_HEAD(entry_queue, entry);

struct tally {
	struct tally_pool *pool;
	size_t max, count;
	int64_t window_ms;
	struct hash_key key;
	LIST_HEAD(, entry) heads[HEADS];
	struct entry_queue ready, resting;
};

struct tally *tally_new(struct tally_pool *pool, size_t max, int64_t window_ms)
{
	struct tally *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->pool = pool;
	t->max = max;
	t->window_ms = window_ms;
	/* As in event.c: only the chains must not be chosen from outside. */
	t->key = (struct hash_key){ (uintptr_t)t, (uintptr_t)t->heads };
	TAILQ_INIT(&t->ready);
	TAILQ_INIT(&t->resting);
	return t;
}

static struct entry_queue *queue_of(struct tally *t, const struct entry *e)
{
	return e->ready ? &t->ready : &t->resting;
}

static void drop(struct tally *t, struct entry *e)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	LIST_REMOVE(e, in_chain);
	t->count--;
	t->pool->left++;
	free(e);
}

void tally_free(struct tally *t)
{
	struct entry *e;

	if (!t)
		return;
	while ((e = TAILQ_FIRST(&t->ready)))
		drop(t, e);
	while ((e = TAILQ_FIRST(&t->resting)))
		drop(t, e);
	free(t);
}

static void move(struct tally *t, struct entry *e, bool ready)
{
	TAILQ_REMOVE(queue_of(t, e), e, in_queue);
	e->ready = ready;
	TAILQ_INSERT_TAIL(queue_of(t, e), e, in_queue);
}

/* ---- what is equal ---- */

static uint64_t hash_of(const struct tally *t, const struct event *e)
{
	uint8_t bytes[sizeof(e->remote) + 6 + EVENT_NAME_SIZE] = { 0 };
	size_t name = strnlen(e->name, sizeof(e->name)), n = 0;

	memcpy(bytes, &e->remote, sizeof(e->remote));
	n += sizeof(e->remote);
	bytes[n++] = (uint8_t)(e->port >> 8);
	bytes[n++] = (uint8_t)e->port;
	bytes[n++] = e->protocol;
	bytes[n++] = e->action;
	bytes[n++] = e->layer;
	bytes[n++] = e->limit;
	memcpy(bytes + n, e->name, name);
	return hash_bytes(&t->key, bytes, n + name);
}

static bool folds(const struct event *a, const struct event *b)
{
	return a->sandbox == b->sandbox && a->rule == b->rule && a->port == b->port &&
	       a->action == b->action && a->layer == b->layer &&
	       a->protocol == b->protocol && a->limit == b->limit &&
	       a->query_type == b->query_type && a->allowable == b->allowable &&
	       addr_equal(&a->remote, &b->remote) &&
	       strncmp(a->name, b->name, EVENT_NAME_SIZE) == 0;
}

static struct entry *find(const struct tally *t, uint64_t hash, const struct event *e)
{
	struct entry *at;

	LIST_FOREACH(at, &t->heads[hash % HEADS], in_chain)
	{
		if (at->hash == hash && folds(&at->event, e))
			return at;
	}
	return NULL;
}

static void fold(struct event *into, const struct event *e)
{
	if (into->packets == 0) {
		into->ts_ms = e->ts_ms;
		if (e->uid != UINT32_MAX)
			into->uid = e->uid;
	}
	into->packets += e->packets;
	into->bytes += e->bytes;
}

/* Rests that are over. */
static void wake(struct tally *t, int64_t now_ms)
{
	struct entry *e;

	while (t->window_ms > 0 && (e = TAILQ_FIRST(&t->resting)) &&
	       e->until_ms <= now_ms) {
		if (e->event.packets > 0)
			move(t, e, true);
		else
			drop(t, e);
	}
}

static bool add(struct tally *t, const struct event *e, int64_t now_ms, bool always)
{
	uint64_t hash = hash_of(t, e);
	struct entry *known = find(t, hash, e);

	if (known) {
		fold(&known->event, e);
		return true;
	}
	wake(t, now_ms);
	if (!always && (t->count >= t->max || t->pool->left <= 0))
		return false;
	known = calloc(1, sizeof(*known));
	if (!known)
		return false;
	known->event = *e;
	known->hash = hash;
	known->ready = t->window_ms > 0;
	LIST_INSERT_HEAD(&t->heads[hash % HEADS], known, in_chain);
	TAILQ_INSERT_TAIL(queue_of(t, known), known, in_queue);
	t->count++;
	t->pool->left--;
	return true;
}

bool tally_add(struct tally *t, const struct event *e, int64_t now_ms)
{
	return add(t, e, now_ms, false);
}

bool tally_add_always(struct tally *t, const struct event *e, int64_t now_ms)
{
	return add(t, e, now_ms, true);
}

const struct event *tally_next(struct tally *t, int64_t now_ms)
{
	wake(t, now_ms);
	return TAILQ_EMPTY(&t->ready) ? NULL : &TAILQ_FIRST(&t->ready)->event;
}

void tally_told(struct tally *t, int64_t now_ms)
{
	struct entry *e = TAILQ_FIRST(&t->ready);

	if (!e)
		return;
	e->event.packets = 0;
	e->event.bytes = 0;
	e->until_ms = now_ms + t->window_ms;
	if (t->window_ms > 0)
		move(t, e, false);
	else
		drop(t, e);
}

void tally_close(struct tally *t)
{
	struct entry *e, *next;

	for (e = TAILQ_FIRST(&t->resting); e; e = next) {
		next = TAILQ_NEXT(e, in_queue);
		if (e->event.packets > 0)
			move(t, e, true);
		else
			drop(t, e);
	}
}

bool tally_is_empty(const struct tally *t)
{
	return t->count == 0;
}
