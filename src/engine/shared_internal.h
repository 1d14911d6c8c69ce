// SPDX-License-Identifier: Apache-2.0
/* engine/shared_internal - what the files of the sidecar's and the daemon's engine share.
 *
 *   shared.c          start; the sidecar's one sandbox
 *   shared_attach.c   the daemon's sandboxes come and go
 *   shared_control.c  what control asks for, and what it is told */
#pragma once

#include "engine/core.h"
#include "engine/shared.h"

enum {
	LENT_MAX = 64, /* sockets that control has of us; over it: -EMFILE */
	OWED_MAX = 8,  /* answers that control's channel had no room for; over it they are
			* lost, and control takes us for stuck. It asks one at a time */
};

/* A socket that control uses: our copy keeps its port from everybody else. */
struct lent {
	int fd; /* owned; -1: free */
	struct ipc_socket socket;
};

struct shared {
	struct engine_core core;
	struct shared_config config;
	int fds_max; /* descriptors from this one on are for connections */
	struct engine_sandbox *only; /* the sidecar's; NULL in the daemon's engine */
	struct loop_source from_supervisor,
		from_control; /* control: fd -1 while there is none */
	struct lent lent[LENT_MAX];
	/* Events may fill the channel to control: they are counted then. Answers wait. */
	struct owed {
		struct ipc_message message;
		int fd; /* borrowed, -1: none */
	} owed[OWED_MAX];
	size_t owed_count;
	/* Probes that failed while there was no control: the first ones do, before it
	 * is there. More than these are not told. */
	struct upstream_trouble failed[RESOLVER_UPSTREAMS_MAX];
	size_t failed_count;
	/* A sandbox of the host's whose policy is large: that is loaded first, some of it
	 * in each turn. The daemon gives one sandbox at a time. */
	struct engine_sandbox *coming; /* owned, in no engine yet; NULL: none */
	struct filter_host_stage *coming_stage;
	struct loop_deferred coming_turn;
	char no_host[ERR_TEXT_SIZE]; /* why the host's own network can't be guarded */
	uint64_t untold; /* messages that control did not take, of no sandbox's */
};

/* shared_attach.c */
void shared_attach(struct shared *e, const struct ipc_message *m, int *fds, size_t count);
void shared_detach(struct shared *e, const struct ipc_message *m);
void shared_host(struct shared *e, const struct ipc_message *m, int *fds, size_t count);
void shared_host_load(struct shared *e);

/* shared_control.c */
/* What the engine's sandboxes have to tell goes to control. */
extern const struct engine_sandbox_told shared_told;
void shared_tell_supervisor(struct shared *e, const struct ipc_message *m);
/* To the supervisor, or to control. */
void shared_tell_standing(struct shared *e, const struct engine_sandbox *g,
			  enum ipc_type type, bool supervisor);
/* Callbacks; the data is the engine. */
void shared_on_trouble(void *data, const struct upstream_trouble *t);
void shared_on_supervisor(struct loop_source *source, uint32_t events);
