// SPDX-License-Identifier: Apache-2.0
/* supervisor/spawner - a process of the daemon's that makes its short-lived children. It
 * is made before there is anything to copy: a child of the daemon itself would be given,
 * and have to close, tens of thousands of descriptors. It has the daemon's rights, stays
 * in its namespaces, and ends with it. */
#pragma once

#include "base/err.h"
#include "proto/launch.h"
#include "proto/message.h"

enum spawner_task {
	SPAWNER_NONE = 0,
	SPAWNER_INSIDE, /* descriptors: the channel; lives as long as that */
	SPAWNER_JOIN,	/* the channel, and with @into the directory of a cgroup */
	SPAWNER_LOOK,	/* a pipe's end; a network namespace, or with @cgroup the root
			 * of the hierarchy */
	SPAWNER_SOCKET_OWNER, /* the same */
	SPAWNER_TASK_COUNT
};

struct spawner_order {
	uint8_t task; /* enum spawner_task */
	uid_t uid;    /* SPAWNER_JOIN: whose it becomes */
	bool into; /* it begins its life in that cgroup, where the kernel can do that */
	char cgroup[IPC_SANDBOX_WHERE_MAX + 1]; /* SPAWNER_LOOK: its name; "": none */
	struct launch_probe probe;		/* SPAWNER_JOIN */
};

/* A child that was made. One that has ended keeps its number until the next order. */
struct spawner_child {
	pid_t pid;
	bool joined; /* it is in the cgroup */
};

/* Where a child finds its descriptors; there are no others but 0 to 2. */
enum { SPAWNER_FD_FIRST = 3, SPAWNER_FDS_MAX = 2 };

struct spawner {
	int channel; /* owned; -1: it isn't there */
};

int spawner_start(struct spawner *p, struct err *err) MUST_CHECK;
/* Have a child made. Should the spawner have died, there is another one. Return: its pid,
 * or -errno. */
pid_t spawner_order(struct spawner *p, const struct spawner_order *o, const int *fds,
		    size_t count, struct err *err) MUST_CHECK;
/* The same in two steps: the order is given, and the caller goes on; what came of it is
 * taken before the next order. -EBUSY: no process may be in that cgroup. */
int spawner_give(struct spawner *p, const struct spawner_order *o, const int *fds,
		 size_t count, struct err *err) MUST_CHECK;
int spawner_take(struct spawner *p, struct spawner_child *ret,
		 struct err *err) MUST_CHECK;

/* The tasks, run in the child, which ends after them: daemon/child.c. */
void inside_child(const struct spawner_order *o);
void join_child(const struct spawner_order *o);
void look_child(const struct spawner_order *o);
