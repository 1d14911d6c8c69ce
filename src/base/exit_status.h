// SPDX-License-Identifier: Apache-2.0
/* base/exit_status - the exit statuses that are Weir's own, and of a command that can't
 * be started. */
#pragma once

#include <errno.h>

enum run_status {
	RUN_STATUS_BAD_INPUT = 2,
	RUN_STATUS_STOPPED = 122, /* more was denied than on_denies takes */
	RUN_STATUS_DENIED = 123,  /* --fail-on-deny, and something was refused */
	RUN_STATUS_FAILED = 125,  /* Weir could not do what was asked */
	/* Of the command, as in a shell. */
	RUN_STATUS_NOT_EXECUTABLE = 126,
	RUN_STATUS_NOT_FOUND = 127,
};

/* Of a verb that reads what its caller names: 0, or what -errno @r means. Whatever is
 * wrong with that is bad input. */
static inline int run_status_of(int r)
{
	return r == 0			   ? 0
	       : r == -ENOMEM || r == -EIO ? RUN_STATUS_FAILED
					   : RUN_STATUS_BAD_INPUT;
}
