// SPDX-License-Identifier: Apache-2.0
/* supervisor/supervisor - what the supervisor's files share.
 *
 *   supervisor.c           start, signals, end
 *   supervisor_children.c  engine, control and the others: started, introduced, started
 * again
 */
#pragma once

#include "engine/shared.h"
#include "proto/settings.h"
#include "supervisor/open.h"

struct child {
	const char *name;
	pid_t pid; /* 0: it does not run */
	int64_t started_ms, delay_ms;
	struct loop_source source; /* our end of its channel; fd -1 when there is none */
	struct loop_timer again;
	uint32_t restarts;
	bool is_asked;	     /* whether it is alive, and has not answered */
	unsigned int missed; /* times that it was looked for an answer since */
};

struct daemon;

struct supervisor {
	struct sidecar_spec *spec; /* borrowed */
	struct daemon *daemon;	   /* of `weir daemon`; NULL in a sidecar */
	struct loop *loop;
	struct supervisor_fds held;
	enum ipc_enforced enforce;
	char reason[ERR_TEXT_SIZE]; /* why less is enforced or served than should be */
	struct ipc_standing standing;
	bool stands; /* the engine serves */
	struct child engine, control;
	struct child webhook, postgres,
		review; /* only when there is something to tell them */
	struct loop_source signals;
	struct loop_timer stop, ask;
	bool introduced; /* engine and control have a channel to each other */
	bool stopping;
	int status;
};

/* Signals, loop, children: none of them runs yet. */
int supervisor_prepare(struct supervisor *k, struct err *err) MUST_CHECK;
int supervisor_check_right(struct err *err) MUST_CHECK;
/* Set the sources and timers of all children up. */
void supervisor_children_init(struct supervisor *k);
/* Return: 0 with the engine's process started, or -errno. */
int supervisor_fork_engine(struct supervisor *k, struct err *err) MUST_CHECK;
/* The engine and its channel are gone for good. */
void supervisor_end_engine(struct supervisor *k);
/* The engine has answered in time, as far as is known. */
bool supervisor_engine_is_alive(const struct supervisor *k);
/* From now on what the engine says is heard, and it has to answer. */
int supervisor_watch_engine(struct supervisor *k) MUST_CHECK;
/* And the webhook's program, when there is a URL. */
void supervisor_start_control(struct supervisor *k);
/* Tell control what stands, and why it is less than it should be. */
void supervisor_tell_standing(struct supervisor *k);
/* A fresh channel between the two, when both are there. */
void supervisor_introduce(struct supervisor *k);
/* Control is another daemon's child: @fd, owned from now on, leads to it. */
void supervisor_take_control(struct supervisor *k, int fd);
/* Ours, and in a container everybody's orphans. */
void supervisor_reap(struct supervisor *k);

/* -- of any child ------------------------------------------------------------------- */

/* Return: its end of the channel, owned by the caller, or -errno. */
int supervisor_open_channel(struct child *c) MUST_CHECK;
int supervisor_watch_channel(struct supervisor *k, struct child *c) MUST_CHECK;
void supervisor_close_channel(struct supervisor *k, struct child *c);
/* It has ended, and will be started again: told and counted. */
void supervisor_count_end(struct child *c, int wait_status);
/* Now, or after a pause: c->again fires. */
void supervisor_start_again(struct supervisor *k, struct child *c);
