// SPDX-License-Identifier: Apache-2.0
/* sys/loop - the event loop: epoll and a timer heap, one thread.
 *
 * Sources and timers are embedded in the structs that they serve; the loop never
 * frees. A handler runs to its end and must not free its own source or anybody
 * else's: it removes it (loop_remove, loop_timer_stop) and hands the struct to
 * loop_defer(), whose callback runs after the batch. The time is read once a turn. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/macros.h"

struct loop;

struct loop_source {
	int fd;		 /* borrowed */
	uint32_t events; /* EPOLLIN … as registered */
	void (*on_ready)(struct loop_source *s, uint32_t events);
	bool added; /* the loop's */
};

struct loop_timer {
	int64_t at_ms;
	void (*on_fire)(struct loop_timer *t);
	uint32_t slot; /* the loop's: place in the heap + 1, 0 when stopped */
};

/* Work for after the present batch of events. */
struct loop_deferred {
	void (*run)(struct loop_deferred *d);
	struct loop_deferred *next; /* the loop's */
	bool is_queued;		    /* the loop's */
};

struct loop *loop_new(void) MUST_CHECK;
void loop_free(struct loop *l);

/* The time of this turn, in ms of CLOCK_BOOTTIME. */
int64_t loop_now_ms(const struct loop *l);

/* Return: 0 or -errno. EPOLLET may be part of @events. */
int loop_add(struct loop *l, struct loop_source *s, uint32_t events) MUST_CHECK;
int loop_modify(struct loop *l, struct loop_source *s, uint32_t events) MUST_CHECK;
/* Events of @s that wait in the present batch are not delivered any more. */
void loop_remove(struct loop *l, struct loop_source *s);

/* Start, or move, a timer. Return: 0 or -ENOMEM (the timer is then stopped). */
int loop_timer_start(struct loop *l, struct loop_timer *t, int64_t at_ms) MUST_CHECK;
/* The same, @ms from now. */
int loop_timer_in(struct loop *l, struct loop_timer *t, int64_t ms) MUST_CHECK;
/* loop_timer_in() for a timer that nothing goes on without: no memory ends the loop. */
void loop_timer_need(struct loop *l, struct loop_timer *t, int64_t ms);
/* loop_timer_start(), unless @t fires earlier: of several who wait for @t, and of a
 * handler and what that calls, none puts off what another one has asked for. */
int loop_timer_by(struct loop *l, struct loop_timer *t, int64_t at_ms) MUST_CHECK;
void loop_timer_stop(struct loop *l, struct loop_timer *t);

/* @d runs after the present batch, once, however often that is asked for. */
void loop_defer(struct loop *l, struct loop_deferred *d);
/* It doesn't run after all; nothing when it was not to. */
void loop_defer_cancel(struct loop *l, struct loop_deferred *d);

/* Called at the end of every turn, after the batch, before the deferred work: what
 * was gathered in the turn goes out together. One hook. */
void loop_on_turn_end(struct loop *l, void (*fn)(void *data), void *data);

/* Run until loop_stop(). Return: 0 or -errno of epoll_wait. */
int loop_run(struct loop *l) MUST_CHECK;
/* One turn, waiting at most @max_wait_ms (-1: as long as it takes). For tests. */
int loop_turn(struct loop *l, int max_wait_ms) MUST_CHECK;
void loop_stop(struct loop *l);
