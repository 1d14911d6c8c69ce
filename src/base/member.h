// SPDX-License-Identifier: Apache-2.0
/* base/member - how the processes of a sandbox are recognised that has no network
 * namespace of its own. */
#pragma once

#include <stdint.h>

enum member_kind {
	MEMBER_NONE = 0,
	MEMBER_CGROUP, /* processes of a cgroup, and of those below it */
	MEMBER_UID,    /* processes of a user, in no cgroup that is a member */
};

/* A process in two cgroups that are members belongs to the deeper one. */
struct member {
	enum member_kind kind;
	uint64_t cgroup; /* its id: the directory's inode */
	uint8_t level;	 /* 1: just below the root */
	uint32_t uid;
};
