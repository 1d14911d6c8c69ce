// SPDX-License-Identifier: Apache-2.0
/* main/shared_internal - what the files of the sidecar's engine share.
 *
 *   shared.c          start, first ruleset, adoption
 *   shared_watch.c    others who change the ruleset; the way out for IPv6
 *   shared_control.c  what control asks for, and what it is told */
#pragma once

#include "main/engine_core.h"
#include "main/shared.h"

enum { LENT_MAX = 64 }; /* sockets that control has of us; over it: -EMFILE */

/* A socket that control uses: our copy keeps its port from everybody else. */
struct lent {
	int fd; /* owned; -1: free */
	struct ipc_socket socket;
};

struct shared {
	struct engine_core core;
	struct shared_config config;
	struct plan plan;
	void *image;
	struct loop_source from_keeper,
		from_control; /* control: fd -1 while there is none */
	struct loop_timer watch;
	unsigned int watched;		 /* turns */
	uint32_t generation_id, commits; /* of the kernel; of ours at that time */
	struct lent lent[LENT_MAX];
	struct rate answered_rate;
	struct ipc_standing standing;
};

/* shared_control.c */
void shared_tell_keeper(struct shared *e, const struct ipc_message *m);
/* @keeper or control. */
void shared_tell_standing(struct shared *e, enum ipc_type type, bool keeper);
/* Callbacks; the data is the engine. */
void shared_on_event(void *data, const struct event *event);
void shared_on_trouble(void *data, const struct upstream_trouble *t);
void shared_on_answered(void *data, const struct dns_name *name,
			const struct dns_answer_addr *addrs, size_t count);
void shared_on_keeper(struct loop_source *source, uint32_t events);

/* shared_watch.c */
/* The kernel's generation id is what it should be from now on. */
void shared_remember_ruleset(struct shared *e);
void shared_look_for_ipv6(struct shared *e);
int shared_watch(struct shared *e) MUST_CHECK;
