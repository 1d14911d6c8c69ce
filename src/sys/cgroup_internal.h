// SPDX-License-Identifier: Apache-2.0
/* sys/cgroup_internal - a walk through a cgroup and all below it, and lists of numbers.
 */
#pragma once

#include "sys/cgroup.h"

/* All zero: empty. */
struct cgroup_ids {
	uint64_t *at; /* owned */
	size_t count, capacity;
};

/* What is to be done with each process and each cgroup of a tree; not 0 ends it. */
struct cgroup_walk {
	int (*on_process)(struct cgroup_walk *w, pid_t pid);
	int (*on_cgroup)(struct cgroup_walk *w, uint64_t id); /* may be NULL */
	void *data;
	struct err *err;
	struct cgroup_ids threads; /* the walk's own */
};
int cgroup_walk(struct cgroup_walk *w, const struct cgroup *c) MUST_CHECK;

struct nlmsghdr;

int cgroup_ids_add(struct cgroup_ids *n, uint64_t number) MUST_CHECK;
/* Before one is looked for. */
void cgroup_ids_sort(struct cgroup_ids *n);
void cgroup_ids_done(struct cgroup_ids *n);
