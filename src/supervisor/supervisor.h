// SPDX-License-Identifier: Apache-2.0
/* supervisor/supervisor - what the keeper's files share.
 *
 *   keeper.c           start, signals, end
 *   keeper_children.c  engine, control and the others: started, introduced, started again
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

struct warden;

struct keeper {
	struct sidecar_spec *spec; /* borrowed */
	struct warden *warden;	   /* of `weir daemon`; NULL in a sidecar */
	struct loop *loop;
	struct keeper_held held;
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
int keeper_prepare(struct keeper *k, struct err *err) MUST_CHECK;
int keeper_check_right(struct err *err) MUST_CHECK;
/* Set the sources and timers of all children up. */
void keeper_children_init(struct keeper *k);
/* Return: 0 with the engine's process started, or -errno. */
int keeper_fork_engine(struct keeper *k, struct err *err) MUST_CHECK;
/* The engine and its channel are gone for good. */
void keeper_end_engine(struct keeper *k);
/* The engine has answered in time, as far as is known. */
bool keeper_engine_is_alive(const struct keeper *k);
/* From now on what the engine says is heard, and it has to answer. */
int keeper_watch_engine(struct keeper *k) MUST_CHECK;
/* And the webhook's program, when there is a URL. */
void keeper_start_control(struct keeper *k);
/* Tell control what stands, and why it is less than it should be. */
void keeper_tell_standing(struct keeper *k);
/* A fresh channel between the two, when both are there. */
void keeper_introduce(struct keeper *k);
/* Control is another warden's child: @fd, owned from now on, leads to it. */
void keeper_take_control(struct keeper *k, int fd);
/* Ours, and in a container everybody's orphans. */
void keeper_reap(struct keeper *k);

/* -- of any child ------------------------------------------------------------------- */

/* Return: its end of the channel, owned by the caller, or -errno. */
int keeper_open_channel(struct child *c) MUST_CHECK;
int keeper_watch_channel(struct keeper *k, struct child *c) MUST_CHECK;
void keeper_close_channel(struct keeper *k, struct child *c);
/* It has ended, and will be started again: told and counted. */
void keeper_count_end(struct child *c, int wait_status);
/* Now, or after a pause: c->again fires. */
void keeper_start_again(struct keeper *k, struct child *c);
