// SPDX-License-Identifier: Apache-2.0
/* Two buffers: records are appended to one under the lock, and the thread swaps it for
 * the other, empty one and reads it without the lock. A buffer grows as it is needed
 * and is let go when it was big. */
#include "sys/worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum {
	KEEP_BYTES = 64 * 1024, /* a buffer over this isn't kept for the next turn */
	STACK_BYTES = 512 * 1024,
};

struct buffer {
	uint8_t *bytes;
	size_t used, size;
};

struct worker {
	struct worker_config config;
	char name[WORKER_NAME_SIZE];
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	struct buffer filling;
	uint64_t dropped;
	uint64_t pushed, handled; /* records */
	bool stop;		  /* leave as soon as the queue is empty */
	bool left;		  /* the thread has left its loop */
	bool orphan;		  /* nobody waits for the thread: it frees @w itself */
};

/* What stands before each record; both are padded to 8 bytes. */
struct record {
	uint64_t size;
	uint8_t bytes[];
};

static size_t record_bytes(size_t size)
{
	return sizeof(struct record) + ((size + 7) & ~(size_t)7);
}

static struct timespec deadline(int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

static void destroy(struct worker *w)
{
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->idle);
	pthread_mutex_destroy(&w->lock);
	free(w->filling.bytes);
	free(w);
}

/* ---- the thread ---- */

/* Wait for work, with the lock held. Return: false when it is time to leave. */
static bool wait_for_work(struct worker *w)
{
	const struct timespec until = deadline(w->config.tick_ms);

	while (w->filling.used == 0 && !w->stop) {
		if (w->config.tick_ms == 0)
			pthread_cond_wait(&w->work, &w->lock);
		else if (pthread_cond_timedwait(&w->work, &w->lock, &until) == ETIMEDOUT)
			break;
	}
	return w->filling.used > 0 || !w->stop;
}

static void *run(void *arg)
{
	struct worker *w = arg;
	struct buffer mine = { 0 }, swap;
	uint64_t count;
	bool orphan;

	pthread_mutex_lock(&w->lock);
	while (wait_for_work(w)) {
		swap = w->filling;
		w->filling = mine;
		mine = swap;
		pthread_mutex_unlock(&w->lock);
		count = 0;
		for (size_t at = 0; at < mine.used; count++) {
			const struct record *r = (const void *)(mine.bytes + at);

			w->config.on_record(w->config.data, r->bytes, r->size);
			at += record_bytes(r->size);
		}
		mine.used = 0;
		if (mine.size > KEEP_BYTES) {
			free(mine.bytes);
			mine = (struct buffer){ 0 };
		}
		if (w->config.on_pause)
			w->config.on_pause(w->config.data);
		pthread_mutex_lock(&w->lock);
		w->handled += count;
		pthread_cond_broadcast(&w->idle);
	}
	w->left = true;
	orphan = w->orphan;
	pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
	free(mine.bytes);
	if (orphan)
		destroy(w);
	return NULL;
}

/* ---- everybody else ---- */

int worker_new(const struct worker_config *config, struct worker **ret, struct err *err)
{
	struct worker *w = calloc(1, sizeof(*w));
	pthread_condattr_t monotonic;
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	if (!w)
		return err_sys(err, -ENOMEM, "cannot start a thread");
	w->config = *config;
	memcpy(w->name, config->name, strnlen(config->name, WORKER_NAME_SIZE - 1));
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->work, &monotonic);
	pthread_cond_init(&w->idle, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_init(&w->lock, NULL);
	sigfillset(&all);
	r = -pthread_attr_init(&attr);
	if (r == 0) {
		pthread_attr_setstacksize(&attr, STACK_BYTES);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		r = -pthread_create(&w->thread, &attr, run, w);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
		pthread_attr_destroy(&attr);
	}
	if (r < 0) {
		destroy(w);
		return err_sys(err, r, "cannot start a thread");
	}
	pthread_setname_np(w->thread, w->name);
	*ret = w;
	return 0;
}

static bool make_room(struct buffer *b, size_t need)
{
	size_t size = MAX(b->size, (size_t)4096);
	uint8_t *bytes;

	while (size < b->used + need)
		size *= 2;
	if (size == b->size)
		return true;
	bytes = realloc(b->bytes, size);
	if (!bytes)
		return false;
	b->bytes = bytes;
	b->size = size;
	return true;
}

bool worker_push(struct worker *w, const void *bytes, size_t size, bool kept)
{
	const size_t need = record_bytes(size);
	size_t limit = w->config.queue_bytes;
	struct record *record;
	bool fits;

	if (kept)
		limit += w->config.reserve_bytes;
	pthread_mutex_lock(&w->lock);
	fits = need <= limit && w->filling.used <= limit - need &&
	       make_room(&w->filling, need);
	if (fits) {
		record = (void *)(w->filling.bytes + w->filling.used);
		record->size = size;
		memcpy(record->bytes, bytes, size);
		w->filling.used += need;
		w->pushed++;
		pthread_cond_signal(&w->work);
	} else {
		w->dropped++;
	}
	pthread_mutex_unlock(&w->lock);
	return fits;
}

uint64_t worker_dropped(struct worker *w)
{
	uint64_t n;

	pthread_mutex_lock(&w->lock);
	n = w->dropped;
	pthread_mutex_unlock(&w->lock);
	return n;
}

bool worker_drain(struct worker *w, int timeout_ms)
{
	const struct timespec until = deadline(timeout_ms);
	uint64_t target;
	bool done;

	pthread_mutex_lock(&w->lock);
	target = w->pushed;
	while (w->handled < target &&
	       pthread_cond_timedwait(&w->idle, &w->lock, &until) != ETIMEDOUT)
		continue;
	done = w->handled >= target;
	pthread_mutex_unlock(&w->lock);
	return done;
}

bool worker_free(struct worker *w, int timeout_ms)
{
	const struct timespec until = deadline(timeout_ms);
	bool left;

	if (!w)
		return true;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->work);
	while (!w->left)
		if (pthread_cond_timedwait(&w->idle, &w->lock, &until) == ETIMEDOUT)
			break;
	left = w->left;
	w->orphan = !left;
	pthread_mutex_unlock(&w->lock);
	if (left) {
		pthread_join(w->thread, NULL);
		destroy(w);
	} else {
		pthread_detach(w->thread);
	}
	return left;
}
