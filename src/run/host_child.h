// SPDX-License-Identifier: Apache-2.0
/* run/host_child - the child that becomes a command on the host, in the one safe order:
 * nothing open but 0 to 2, in the cgroup, the user's ids, no capability, no new
 * privileges, the calls of `weir run` alone, then the command. */
#pragma once

#include <signal.h>

#include "run/options.h"
#include "sys/cgroup.h"

/* Where it lives: the control group, made for it or not, or a user. */
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

/* Who the command is: found before the fork, as much as can be. */
struct run_member {
	const struct run_place *place;
	char *const *argv, *const *environment; /* the command's */
	const char *name, *home, *shell; /* of whom --uid names; NULL: the caller's */
	uint32_t gid;
	gid_t *groups; /* owned */
	size_t group_count;
	bool becomes; /* ids are to be changed */
};

/* @closed_gid: of the daemon's API, 0 when there is none: whoever had it could have the
 * daemon guard the command no more. */
int run_member_find(const struct run_spec *spec, const struct run_place *place,
		    gid_t closed_gid, struct run_member *ret, struct err *err) MUST_CHECK;
void run_member_done(struct run_member *m);

/* Start it; signals are as in @mask for it. Return: its pid when everything before the
 * command itself has been done (that there is no such command is its exit status), or
 * -errno: nothing runs. */
pid_t run_member_start(const struct run_member *m, const sigset_t *mask,
		       struct err *err) MUST_CHECK;
