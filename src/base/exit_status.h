// SPDX-License-Identifier: Apache-2.0
/* base/exit_status - the exit statuses that are Weir's own. */
#pragma once

/* The exit statuses that are Weir's own; 126 and 127 are weir-init's, as in a shell. */
enum run_status {
	RUN_STATUS_BAD_INPUT = 2,
	RUN_STATUS_STOPPED = 122, /* more was denied than on_denies takes */
	RUN_STATUS_DENIED = 123,  /* --fail-on-deny, and something was refused */
	RUN_STATUS_FAILED = 125,  /* Weir could not do what was asked */
};
