// SPDX-License-Identifier: Apache-2.0
/* supervisor/supervisor - the parent of a product's processes: one table of children,
 * which are started, heard, asked whether they serve, and started again when they end.
 * What a sidecar and a daemon do differently is in struct supervisor_ops. */
#pragma once

#include <sys/queue.h>

#include "engine/engine.h"
#include "settings/settings.h"
#include "supervisor/open.h"
#include "sys/loop.h"

struct supervisor;
struct child;

/* What is done with a child of this kind. What may be NULL says so. */
struct child_kind {
	bool has_channel; /* SOCK_SEQPACKET: the supervisor's end is child.source */
	uint32_t controls_channel; /* not IPC_NONE: the other end is control's, which gets
				    * that message with it */
	bool is_asked;		   /* IPC_ALIVE, and answers it while it serves */
	bool is_killed;		   /* when it has not answered for long */
	size_t fds_max; /* that may come with its messages; over it: no message */
	/* Fork it; @channel is its end (-1: none), which the caller closes. Return: its
	 * pid; 0: it isn't needed now; or -errno. */
	pid_t (*start)(struct child *c, int channel, struct err *err);
	/* It has been started. May be NULL. */
	void (*on_start)(struct child *c);
	/* All but IPC_ALIVE; @fds are the callee's. NULL: it has no channel. */
	void (*on_message)(struct child *c, struct ipc_message *m, int *fds,
			   size_t count);
	/* It has ended. Return: it is to be started again. May be NULL: it is. */
	bool (*on_end)(struct child *c, int wait_status);
};

enum { CHILD_FDS_MAX = 2 };

struct child {
	const char *name; /* borrowed */
	const struct child_kind *kind;
	struct supervisor *supervisor;
	SLIST_ENTRY(child) next;
	pid_t pid;     /* 0: it does not run */
	bool serves;   /* it has said so since it was started */
	bool advances; /* since supervisor_is_alive() was called last */
	int64_t started_ms, delay_ms;
	struct loop_source source; /* our end of its channel; fd -1 when there is none */
	struct loop_timer again;
	uint32_t restarts;
	unsigned int unanswered; /* times that it was asked since it answered */
};

/* What a product does in its own way; @k is its own. What may be NULL says so. */
struct supervisor_ops {
	/* Add to @c, which says what is the same in both (the name servers, the ports),
	 * what else an engine is told. */
	void (*configure_engine)(const struct supervisor *k, struct engine_config *c);
	/* All but why an engine can't go on. */
	void (*on_engine)(struct supervisor *k, struct ipc_message *m);
	void (*on_engine_end)(struct supervisor *k); /* may be NULL */
	/* All but what is the same in both; @fds are the callee's. */
	void (*on_control)(struct supervisor *k, const struct ipc_message *m, int *fds,
			   size_t count);
	/* Before control hears of the engine. May be NULL. */
	void (*on_control_start)(struct supervisor *k);
	/* Start a socket owner that serves at @channel. Return: its pid, or -errno. */
	pid_t (*start_socket_owner)(struct supervisor *k, int channel);
};

struct supervisor {
	const struct supervisor_ops *ops;
	struct sidecar_spec *spec; /* borrowed */
	char *const *args;	   /* of control and the other programs; borrowed */
	struct loop *loop;
	struct supervisor_fds fds;
	enum ipc_enforced enforce;
	char reason[ERR_TEXT_SIZE]; /* why less is enforced or served than should be */
	struct ipc_status status;
	SLIST_HEAD(, child) children;
	struct child engine, control;
	struct child webhook, postgres, review; /* if the settings ask for them */
	struct child socket_owner;		/* when control asks for one */
	int socket_owner_pidfd;			/* owned; of the last one; -1: none */
	struct loop_source signals;
	struct loop_timer stop, ask;
	bool introduced;       /* engine and control have a channel to each other */
	int64_t introduced_ms; /* since then */
	bool stopping;
	int exit_status;
};

/* Signals, loop, table of children: none of them runs yet. */
int supervisor_prepare(struct supervisor *k, struct err *err) MUST_CHECK;
/* Each program that the settings ask for is where it should be. */
int supervisor_check_programs(const struct supervisor *k, struct err *err) MUST_CHECK;
int supervisor_check_right(struct err *err) MUST_CHECK;
/* Control is another daemon's child: @fd, owned from now on, leads to it. */
void supervisor_take_control(struct supervisor *k, int fd);
/* The engine and its channel are gone for good. */
void supervisor_end_engine(struct supervisor *k);
/* Tell control what stands, and why it is less than it should be. */
void supervisor_notify_status(struct supervisor *k);
/* A fresh channel between engine and control, when both are there. */
void supervisor_introduce(struct supervisor *k);
/* All children that are asked serve, or come nearer to it: one that gets thousands of
 * sandboxes takes long. And they have answered in time, as far as is known. Who is not
 * killed has to have answered since this was called last, and is asked again. */
bool supervisor_is_alive(struct supervisor *k);

/* -- of any child ------------------------------------------------------------------- */

/* Into the table of @k; it does not run yet. @c stays where it is from now on. */
void child_add(struct supervisor *k, struct child *c, const char *name,
	       const struct child_kind *kind);
/* Start it, unheard. Return: 0, or -errno. */
int child_fork(struct child *c, struct err *err) MUST_CHECK;
/* From now on it is heard. What can't be heard is killed, and so started again. */
void child_hear(struct child *c);
/* Both, now. Return: 0, or -errno, and it is not started again. */
int child_start(struct child *c, struct err *err) MUST_CHECK;
/* Start it, unless it runs, or all are to end. What fails is tried again. When control
 * has started, the other programs follow it. */
void child_start_if_needed(struct child *c);
/* A child whose channel is full has not read for long: the channel is closed, and the
 * child replaced. Its successor gets everything. */
void child_notify(struct child *c, const struct ipc_message *m, const int *fd);
/* Give each of the two, with its message, one end of a fresh channel. Return: 0,
 * -ENOTCONN (one of them has no channel to the supervisor), or -errno. */
int child_connect(struct child *a, const struct ipc_message *to_a, struct child *b,
		  const struct ipc_message *to_b) MUST_CHECK;
