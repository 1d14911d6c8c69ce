// SPDX-License-Identifier: Apache-2.0
/* filter/parents - deny by default below a cgroup: a table inet weir_parents, in which
 * packets from any cgroup just below a guarded one are refused unless that is known. So a
 * cgroup that is made there, by whomever, is closed before its first packet, until
 * somebody says that it may be let through to the other tables.
 *
 * Processes of the guarded cgroup itself, and everybody else on the host, aren't asked
 * for more than one look-up for each level that is in use. */
#pragma once

#include "filter/filter.h"

struct filter_parents;

/* Take @fd, a bound netlink socket. Nothing is installed yet. It is never freed: the
 * daemon has one to its end. */
int filter_parents_new(int fd, struct filter_parents **ret, struct err *err) MUST_CHECK;

/* @level: of the guarded cgroup, from 1 on. Those below it that are to pass are known
 * before. Return: 0; 1, the kernel hears of it with the next load, for it needs other
 * rules (so it does before the first one); or -errno. */
int filter_parents_guard(struct filter_parents *p, uint64_t cgroup,
			 uint8_t level) MUST_CHECK;
int filter_parents_unguard(struct filter_parents *p, uint64_t cgroup) MUST_CHECK;
/* Put all of it in the place of whatever stands, in one transaction; no table when there
 * is nothing to guard. */
int filter_parents_load(struct filter_parents *p, struct err *err) MUST_CHECK;

/* A cgroup at @level is let through, or not any more. At once, if there is a table. */
int filter_parents_know(struct filter_parents *p, uint64_t cgroup,
			uint8_t level) MUST_CHECK;
int filter_parents_forget(struct filter_parents *p, uint64_t cgroup) MUST_CHECK;

/* The table is there and ours. Others can't change it on newer kernels. */
bool filter_parents_stands(struct filter_parents *p);
