// SPDX-License-Identifier: Apache-2.0
/* run/host_target - where a command of `weir run --cgroup` or `--uid` lives on the host:
 * the control group, made for it or not, or a user; and who is left there at the end. */
#pragma once

#include "run/options.h"
#include "sys/cgroup.h"

struct run_place {
	struct cgroup cgroup; /* path "": by user id */
	int dir;      /* its directory, whatever becomes of the path; owned, -1: none */
	bool made;    /* the cgroup is ours to remove */
	uint32_t uid; /* whom the command runs as */
};

/* Find or make it, for @uid. */
int run_place_open(const struct run_spec *spec, uint32_t uid, struct run_place *ret,
		   struct err *err) MUST_CHECK;
/* Kill who is left in a cgroup that was made for this; of others nobody is touched.
 * Return: whether nobody is left whom the sandbox would set free. */
bool run_place_clear(const struct run_place *p);
/* Remove the cgroup that was made. */
void run_place_close(const struct run_place *p);
