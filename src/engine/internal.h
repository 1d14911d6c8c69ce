// SPDX-License-Identifier: Apache-2.0
/* engine/internal - what engine.c (the process, its sandboxes) and control.c (its channel
 * to control) share. */
#pragma once

#include "engine/core.h"
#include "engine/engine.h"

enum {
	ENGINE_LENT_MAX = 64, /* sockets that control has of us; over it: -EMFILE */
	/* Answers that control's channel had no room for; over it they are lost, and
	 * control takes us for stuck. It asks one at a time */
	ENGINE_OWED_MAX = 8,
};

/* A socket that control uses: our copy keeps its port from everybody else. */
struct engine_lent {
	int fd; /* owned; -1: free */
	struct ipc_socket socket;
};

/* An answer that waits until control's channel has room. */
struct engine_owed {
	struct ipc_message message;
	int fd; /* borrowed, -1: none */
};

struct engine {
	struct engine_core core;
	struct engine_config config;
	int fds_max; /* descriptors from this one on are for connections */
	/* The one that config.attach is about; NULL: not yet, or there are many */
	struct engine_sandbox *only;
	struct loop_source from_supervisor, from_launch;
	struct loop_source from_control; /* fd -1 while there is none */
	/* The channel to control, or to `weir run`, is broken: nothing is sent any more,
	 * and @control_end closes the channel in a turn of its own. */
	bool is_control_lost;
	struct loop_deferred control_end;
	struct engine_lent lent[ENGINE_LENT_MAX];
	/* Events may fill the channel to control: they are counted then. Answers wait. */
	struct engine_owed owed[ENGINE_OWED_MAX];
	size_t owed_count;
	bool is_status_due; /* IPC_ACTIVE of @only is to be sent, behind the answers */
	/* Probes that failed while there was no control: the first ones do, before it
	 * is there. More than these are not reported. */
	struct upstream_trouble failed[RESOLVER_UPSTREAMS_MAX];
	size_t failed_count;
	/* A sandbox of the host's whose policy is large: that is loaded first, some of it
	 * in each turn. The daemon gives one sandbox at a time. */
	struct engine_sandbox *coming; /* owned, in no engine yet; NULL: none */
	struct filter_host_stage *coming_stage;
	struct loop_deferred coming_turn;
	char no_host[ERR_TEXT_SIZE]; /* why the host's own network can't be guarded */
	uint64_t lost; /* messages that control did not take, of no sandbox's */
	/* dns: pinned, `weir run`: names of this round that lack something */
	size_t unpinned;
};

static inline struct engine *engine_of(const struct engine_sandbox *g)
{
	return CONTAINER_OF(g->core, struct engine, core);
}

/* -- engine.c ----------------------------------------------------------------------- */

/* To the process that attaches the sandboxes. */
void engine_report(struct engine *e, const struct ipc_message *m);
/* engine_report() of a message that is nothing but @text. */
void engine_report_text(struct engine *e, uint32_t type, uint32_t sandbox,
			const char *text);
/* @g is attached, and served: IPC_ACTIVE; unless @why not says something. */
void engine_attached(struct engine_sandbox *g, const char *why);

/* -- control.c ---------------------------------------------------------------------- */

/* Where the sandboxes' events go: to control, or to `weir run`. */
extern const struct engine_sandbox_observer engine_control_observer, engine_run_observer;
/* @fd leads to control from now on; owned. */
void engine_control_take(struct engine *e, int fd);
/* Control may be slow or gone: what it doesn't take is counted and lost. */
void engine_control_send(struct engine *e, const struct ipc_message *m);
/* A dns_service_config.on_trouble; the data is the struct engine. */
void engine_control_on_trouble(void *data, const struct upstream_trouble *t);
