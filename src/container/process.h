// SPDX-License-Identifier: Apache-2.0
/* container/process - the first process of a container, as this machine has it: an engine
 * may tell of its end late, and podman tells nothing of it whose monitor was killed. */
#pragma once

#include "container/docker.h"

struct container_process {
	int first;   /* a pidfd; -1: not of this machine, or nobody waits any more */
	int monitor; /* of its parent, which tells the engine of the end; -1: likewise */
};

/* Does /proc here show the process @pid that the engine means? The engine may live in a
 * machine of its own. */
bool container_process_is_of(const char *pid, const char *container);
/* Of a container that was started. What can't be had is -1. */
void container_process_open(const struct docker *e, const char *container,
			    struct container_process *ret);
/* Both have ended: what the engine doesn't know by now it won't hear. */
bool container_process_is_gone(const struct container_process *p);
void container_process_done(struct container_process *p);
