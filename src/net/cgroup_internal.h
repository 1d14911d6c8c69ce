// SPDX-License-Identifier: Apache-2.0
/* net/cgroup_internal - a walk through a cgroup and all below it. */
#pragma once

#include "net/cgroup.h"

/* What is to be done with each process and each cgroup of a tree; not 0 ends it. */
struct cgroup_walk {
	int (*on_process)(struct cgroup_walk *w, pid_t pid);
	int (*on_cgroup)(struct cgroup_walk *w, uint64_t id); /* may be NULL */
	void *data;
	struct err *err;
};
int cgroup_walk(struct cgroup_walk *w, const struct cgroup *c) MUST_CHECK;
