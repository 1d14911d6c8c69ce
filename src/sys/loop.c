// SPDX-License-Identifier: Apache-2.0
#include "sys/loop.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

enum {
	BATCH_MAX = 64, /* events taken by one epoll_wait */
	WAIT_MAX_MS = 60 * 1000,
};

struct loop {
	int epoll_fd;
	bool stopping;
	int64_t now_ms;
	bool firing;
	struct epoll_event batch[BATCH_MAX];
	int batch_at, batch_count;
	struct loop_timer **heap; /* owned; the earliest first */
	uint32_t timer_count;
	size_t timer_capacity;
	struct loop_deferred *deferred, *running; /* the latter in this turn */
	void (*turn_end)(void *data);
	void *turn_end_data;
};

struct loop *loop_new(void)
{
	CLEAN(mem) struct loop *l = calloc(1, sizeof(*l));

	if (!l || (l->epoll_fd = epoll_create1(EPOLL_CLOEXEC)) < 0)
		return NULL;
	l->now_ms = clock_now_ms();
	return TAKE_PTR(l);
}

void loop_free(struct loop *l)
{
	if (!l)
		return;
	close(l->epoll_fd);
	free(l->heap);
	free(l);
}

int64_t loop_now_ms(const struct loop *l)
{
	return l->now_ms;
}

static int control(struct loop *l, int op, struct loop_source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (epoll_ctl(l->epoll_fd, op, s->fd, &ev) < 0)
		return -errno;
	s->events = events;
	s->added = true;
	return 0;
}

int loop_add(struct loop *l, struct loop_source *s, uint32_t events)
{
	return control(l, EPOLL_CTL_ADD, s, events);
}

int loop_modify(struct loop *l, struct loop_source *s, uint32_t events)
{
	if (s->added && s->events == events)
		return 0;
	return control(l, EPOLL_CTL_MOD, s, events);
}

void loop_remove(struct loop *l, struct loop_source *s)
{
	if (!s->added)
		return;
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	s->added = false;
	for (int i = l->batch_at; i < l->batch_count; i++)
		if (l->batch[i].data.ptr == s)
			l->batch[i].data.ptr = NULL;
}

static void heap_put(struct loop *l, uint32_t i, struct loop_timer *t)
{
	l->heap[i] = t;
	t->slot = i + 1;
}

static void heap_up(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->heap[i];

	while (i > 0) {
		uint32_t parent = (i - 1) / 2;

		if (l->heap[parent]->at_ms <= t->at_ms)
			break;
		heap_put(l, i, l->heap[parent]);
		i = parent;
	}
	heap_put(l, i, t);
}

static void heap_down(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->heap[i];

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= l->timer_count)
			break;
		if (child + 1 < l->timer_count &&
		    l->heap[child + 1]->at_ms < l->heap[child]->at_ms)
			child++;
		if (t->at_ms <= l->heap[child]->at_ms)
			break;
		heap_put(l, i, l->heap[child]);
		i = child;
	}
	heap_put(l, i, t);
}

/* A timer that another timer starts fires in a later turn at the soonest, so one that
 * restarts itself at once starves neither sockets nor other timers. */
int loop_timer_start(struct loop *l, struct loop_timer *t, int64_t at_ms)
{
	if (l->firing)
		at_ms = MAX(at_ms, l->now_ms + 1);
	if (t->slot > 0) {
		t->at_ms = at_ms;
		heap_up(l, t->slot - 1);
		heap_down(l, t->slot - 1);
		return 0;
	}
	if (!ARRAY_GROW(l->heap, l->timer_count, l->timer_capacity))
		return -ENOMEM;
	t->at_ms = at_ms;
	heap_put(l, l->timer_count++, t);
	heap_up(l, t->slot - 1);
	return 0;
}

int loop_timer_in(struct loop *l, struct loop_timer *t, int64_t ms)
{
	return loop_timer_start(l, t, loop_now_ms(l) + ms);
}

void loop_timer_need(struct loop *l, struct loop_timer *t, int64_t ms)
{
	if (loop_timer_in(l, t, ms) < 0)
		loop_stop(l);
}

int loop_timer_by(struct loop *l, struct loop_timer *t, int64_t at_ms)
{
	return t->slot > 0 && t->at_ms <= at_ms ? 0 : loop_timer_start(l, t, at_ms);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	struct loop_timer *last;
	uint32_t i;

	if (t->slot == 0)
		return;
	i = t->slot - 1;
	t->slot = 0;
	last = l->heap[--l->timer_count];
	if (last == t)
		return;
	heap_put(l, i, last);
	heap_up(l, i);
	heap_down(l, last->slot - 1);
}

void loop_defer(struct loop *l, struct loop_deferred *d)
{
	if (d->is_queued)
		return;
	d->is_queued = true;
	d->next = l->deferred;
	l->deferred = d;
}

static void take_out(struct loop_deferred **at, const struct loop_deferred *d)
{
	while (*at && *at != d)
		at = &(*at)->next;
	if (*at)
		*at = d->next;
}

void loop_defer_cancel(struct loop *l, struct loop_deferred *d)
{
	take_out(&l->deferred, d);
	take_out(&l->running, d);
	d->is_queued = false;
}

void loop_on_turn_end(struct loop *l, void (*fn)(void *data), void *data)
{
	l->turn_end = fn;
	l->turn_end_data = data;
}

int loop_turn(struct loop *l, int max_wait_ms)
{
	int64_t wait_ms = l->deferred ? 0 : WAIT_MAX_MS;
	int n;

	if (wait_ms > 0 && l->timer_count > 0)
		wait_ms = MIN(wait_ms, l->heap[0]->at_ms - clock_now_ms());
	if (max_wait_ms >= 0)
		wait_ms = MIN(wait_ms, (int64_t)max_wait_ms);
	n = epoll_wait(l->epoll_fd, l->batch, BATCH_MAX, (int)MAX(wait_ms, (int64_t)0));
	if (n < 0 && errno != EINTR)
		return -errno;
	l->now_ms = clock_now_ms();
	l->batch_count = n < 0 ? 0 : n;
	for (l->batch_at = 0; l->batch_at < l->batch_count;) {
		struct epoll_event *ev = &l->batch[l->batch_at++];
		struct loop_source *s = ev->data.ptr;

		if (s)
			s->on_ready(s, ev->events);
	}
	l->firing = true;
	while (l->timer_count > 0 && l->heap[0]->at_ms <= l->now_ms) {
		struct loop_timer *t = l->heap[0];

		loop_timer_stop(l, t);
		t->on_fire(t);
	}
	l->firing = false;
	if (l->turn_end)
		l->turn_end(l->turn_end_data);
	l->running = l->deferred;
	l->deferred = NULL;
	while (l->running) {
		struct loop_deferred *d = l->running;

		l->running = d->next;
		d->is_queued = false;
		d->run(d);
	}
	return 0;
}

int loop_run(struct loop *l)
{
	int r = 0;

	while (!l->stopping && r == 0)
		r = loop_turn(l, -1);
	return r;
}

void loop_stop(struct loop *l)
{
	l->stopping = true;
}
