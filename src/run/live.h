// SPDX-License-Identifier: Apache-2.0
/* run/live - what a run under way is asked over its socket: how it is, what its policy
 * is, what its command asks for, and to change that policy. The verbs that ask the daemon
 * ask here, in the same words (api/plain.c).
 *
 * Who may ask: processes of the caller's user that are in the run's own user namespace,
 * and that no more seccomp filters hold than the caller. No command in a sandbox is:
 * neither that of this run nor that of another one, nor one that the daemon guards on the
 * host. */
#pragma once

#include <stdint.h>

#include "api/api.h"
#include "base/err.h"
#include "events/review.h"
#include "proto/message.h"
#include "proto/run_socket.h"
#include "run/policies.h"
#include "sandbox/sandbox.h"

/* For one task more a decided one goes, or the oldest that nobody is asked for. */
enum { RUN_REVIEWS_MAX = 256 };

struct run_reviews {
	struct review *tasks; /* owned; NULL: none */
	size_t count;
	int64_t last_id;
};

/* NULL: there is none of that number. */
struct review *run_reviews_find(const struct run_reviews *r, int64_t id);

/* What the engine told last of what is counted. */
struct live_counts {
	struct ipc_stats stats;
	struct api_counter counters[SANDBOX_COUNTER_COUNT]; /* of @stats, by name */
};

struct live {
	char path[RUN_SOCKET_PATH_SIZE];  /* of the socket; "": there is none */
	char id[64];			  /* what the run is called */
	uint32_t filters;		  /* of seccomp, that hold the run itself */
	int fd;				  /* it listens; owned until the API has it; -1 */
	struct api_plain *api;		  /* owned; NULL: nobody is served */
	const struct run_spec *spec;	  /* borrowed */
	struct run_policy *const *newest; /* borrowed: the caller's */
	struct event_ring *const *ring;	  /* the same: what was refused */
	int engine_fd;			  /* the caller's channel, to introduce another */
	struct loop *loop;
	struct loop_source engine; /* that other channel; fd -1: not needed so far */
	uint32_t awaited;	   /* what the engine is to answer; IPC_NONE */
	struct document *document; /* the policy in force; owned; NULL: not asked for */
	struct run_policy *next;   /* owned; under way to the engine */
	struct document *next_document; /* of @next; owned */
	struct err *fault;		/* of who waits for a change; NULL: nobody does */
	struct live_counts *counts;	/* owned; NULL: nobody has asked */
	int64_t stats_ms;		/* the turn in which it was asked for them, */
	int stats_fault;		/* 0, or -errno: and did not answer */
	int64_t started_ms;		/* wall clock */
	uint32_t failures;		/* policies that were refused */
	struct run_reviews reviews;
	/* @next is in force; the caller takes it. */
	void (*on_policy)(struct live *l, struct run_policy *next);
	/* Does the caller ask somebody for the task @id? */
	bool (*is_asked)(struct live *l, int64_t id);
};

/* Name the run. If the caller has chosen the name, make the socket, before anything else
 * of the run exists: the name may be taken. Return: 0, or -errno with @err. */
int live_open(struct live *l, const struct run_spec *spec, struct err *err) MUST_CHECK;
/* Make the socket of a run whose name nobody has chosen. Where there can be none the run
 * goes without. */
void live_open_unnamed(struct live *l);
/* From now on requests are answered: the command runs. */
int live_serve(struct live *l, struct loop *loop, int engine_fd) MUST_CHECK;
/* Something is asked for, which may have its process by now: it opens a task, or is one
 * more of an open one, or opens one again. Return: the task, borrowed until the next
 * call; NULL: no rule can grant it, or memory is out. */
struct review *live_note(struct live *l, const struct event *e);
/* Grant @t by its rule, for @length ("10m"), or with "" for as long as the run lasts.
 * Return: 0; or -errno with @err: it isn't granted. */
int live_accept(struct live *l, struct review *t, const char *length, const char *who,
		struct err *err) MUST_CHECK;
/* Nobody grants task @t: what waits for it is refused. */
int live_dismiss(struct live *l, struct review *t, const char *who,
		 struct err *err) MUST_CHECK;
void live_close(struct live *l);
