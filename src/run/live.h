// SPDX-License-Identifier: Apache-2.0
/* run/live - what a run under way is asked over its socket: how it is, what its policy
 * is, and to change that policy. */
#pragma once

#include "proto/message.h"
#include "run/control_socket.h"
#include "run/policies.h"
#include "run/reviews.h"

struct live {
	struct control_socket socket;
	const struct run_spec *spec;	  /* borrowed */
	struct run_policy *const *newest; /* borrowed: the caller's */
	int engine_fd;			  /* the caller's channel, to introduce another */
	struct loop *loop;
	struct loop_source engine; /* that other channel; fd -1: not needed so far */
	struct run_policy *next;   /* owned; under way to the engine */
	bool asks_status;	   /* the engine is asked for its counters */
	bool whole_status;	   /* for /status */
	int64_t started_ms;	   /* wall clock */
	uint32_t failures;	   /* policies that were refused */
	struct run_reviews reviews;
	int64_t accepting;	   /* the task that @next grants; 0: none */
	char who[REVIEW_WHO_SIZE]; /* accepts it */
	/* @next is in force; the caller takes it. */
	void (*on_policy)(struct live *l, struct run_policy *next);
	/* A task that live_accept() began to grant: @fault is NULL, or why it isn't. */
	void (*on_granted)(struct live *l, struct review *t, const char *fault);
	bool grants; /* @accepting is that */
};

/* The socket, before anything else of the run exists. Where there can be none the run
 * goes without, unless it was to have an id. Return: 0, or -errno with @err. */
int live_open(struct live *l, const struct run_spec *spec, struct err *err) MUST_CHECK;
/* From now on requests are answered: the command runs. */
int live_serve(struct live *l, struct loop *loop, int engine_fd) MUST_CHECK;
/* Something is asked for, which may have its process by now. Return: the task, borrowed;
 * NULL: it is none. */
struct review *live_note(struct live *l, const struct event *e);
/* Grant @t by its rule, for @length ("10m"), or with "" for as long as the run lasts;
 * on_granted() says what came of it, at once or later. Return: false: another change is
 * under way, try again. */
bool live_accept(struct live *l, struct review *t, const char *length, const char *who);
/* Nobody grants task @t: what waits for it is refused. */
int live_dismiss(struct live *l, struct review *t, const char *who,
		 struct err *err) MUST_CHECK;
void live_close(struct live *l);
