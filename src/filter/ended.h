// SPDX-License-Identifier: Apache-2.0
/* filter/ended - refuse the sockets of sandboxes' cgroups that are gone.
 *
 * A socket keeps the cgroup in which it was made, and a process elsewhere may keep the
 * socket. The kernel gives the id of that cgroup to no other one. A table inet weir_ended
 * refuses what is sent from such a socket, and stands beside the table of members.
 *
 * The caller keeps the list of the cgroups, and gives it whole where the table is made
 * anew. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct filter_ended;

struct filter_ended_cgroup {
	uint64_t id;
	uint8_t level; /* from 1 on, as a member's */
	void *data;    /* the caller's own */
};

/* Take @fd, a bound netlink socket. Nothing is installed yet. It is never freed: the
 * daemon has one to its end. */
int filter_ended_new(int fd, struct filter_ended **ret, struct err *err) MUST_CHECK;

/* Called for each cgroup of a table that an earlier process has made; a negative value
 * ends the calls. */
typedef int filter_ended_fn(void *data, uint64_t cgroup, uint8_t level);
int filter_ended_read(struct filter_ended *e, filter_ended_fn *fn, void *data) MUST_CHECK;

/* Put @all in the place of whatever stands; no packet passes meanwhile that either has
 * refused. No table when @count is 0. */
int filter_ended_load(struct filter_ended *e, const struct filter_ended_cgroup *all,
		      size_t count, struct err *err) MUST_CHECK;
/* Add one, or remove some that are there. Return: 0; 1: there is no table yet, and
 * filter_ended_load() makes it; or -errno: nothing has changed. */
int filter_ended_add(struct filter_ended *e,
		     const struct filter_ended_cgroup *c) MUST_CHECK;
int filter_ended_remove(struct filter_ended *e, const struct filter_ended_cgroup *some,
			size_t count) MUST_CHECK;

/* The table is there and ours, or none is to be there. Others can't change it on newer
 * kernels. */
bool filter_ended_stands(struct filter_ended *e);
