// SPDX-License-Identifier: Apache-2.0
/* sys/before - TCP connections that a cgroup or a user had before they were guarded.
 * Those whose beginning the kernel's conntrack has seen are judged by the filter like any
 * other. Of one that it has not seen, the side that sends first counts as who began it:
 * should that be the peer, everything that the sandbox sends counts as its replies. So
 * such connections are ended, once the filter stands. */
#pragma once

#include "base/addr.h"
#include "sys/cgroup.h"

struct before_who {
	const struct cgroup *cgroup; /* and those below it; NULL: a user. Borrowed */
	uint32_t uid;
	pid_t except; /* of the cgroup's processes, is one of ours and has none; or 0 */
};

/* To be called once the filter stands: end all that nobody knows who began. -EOPNOTSUPP:
 * this kernel can't end connections. @ret: how many were ended. */
int before_end(const struct before_who *who, size_t *ret, struct err *err) MUST_CHECK;
