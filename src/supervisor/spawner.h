// SPDX-License-Identifier: Apache-2.0
/* supervisor/spawner - a process of the daemon's that makes its short-lived children. It
 * is made before there is anything to copy: a child of the daemon itself would be given,
 * and have to close, tens of thousands of descriptors. It has the daemon's rights, stays
 * in its namespaces, and ends with it. */
#pragma once

#include "base/err.h"
#include "proto/launch.h"

enum porter_task {
	PORTER_NONE = 0,
	PORTER_INSIDE,	/* descriptors: the channel, a network namespace */
	PORTER_JOIN,	/* the channel, and with @into the directory of a cgroup */
	PORTER_LOOK,	/* a pipe's end, a network namespace */
	PORTER_WITNESS, /* the channel; lives as long as that */
	PORTER_TASK_COUNT
};

struct porter_order {
	uint8_t task; /* enum porter_task */
	uid_t uid;    /* PORTER_JOIN: whose it becomes */
	bool into; /* it begins its life in that cgroup, where the kernel can do that */
	struct launch_probe probe; /* allowed_name "": no self-test */
};

/* A child that was made. One that has ended keeps its number until the next order. */
struct porter_child {
	pid_t pid;
	bool joined; /* it is in the cgroup */
};

/* Where a child finds its descriptors; there are no others but 0 to 2. */
enum { PORTER_FD_FIRST = 3, PORTER_FDS_MAX = 2 };

struct porter {
	int channel; /* owned; -1: it isn't there */
};

int porter_start(struct porter *p, struct err *err) MUST_CHECK;
/* Have a child made. Should the porter have died, there is another one. Return: its pid,
 * or -errno. */
pid_t porter_order(struct porter *p, const struct porter_order *o, const int *fds,
		   size_t count, struct err *err) MUST_CHECK;
/* The same in two steps: the order is given, and the caller goes on; what came of it is
 * taken before the next order. -EBUSY: no process may be in that cgroup. */
int porter_give(struct porter *p, const struct porter_order *o, const int *fds,
		size_t count, struct err *err) MUST_CHECK;
int porter_take(struct porter *p, struct porter_child *ret, struct err *err) MUST_CHECK;

/* The tasks, run in the child, which ends after them: warden_inside.c, warden_join.c,
 * warden_witness.c */
void inside_child(const struct porter_order *o);
void join_child(const struct porter_order *o);
void look_child(const struct porter_order *o);
void witness_child(const struct porter_order *o);
