// SPDX-License-Identifier: Apache-2.0
/* run/bwrap - the last step of the launch child: becoming bwrap. */
#pragma once

#include "run/launch.h"

/* What crosses the exec, at these numbers; everything above is closed. */
enum {
	BWRAP_FD_CHANNEL = 3, /* weir-init's end of the channel to control */
	BWRAP_FD_PROBE,	      /* memfd: struct init_orders */
	BWRAP_FD_INIT,	      /* memfd: the program weir-init */
	BWRAP_FD_SECCOMP,     /* memfd: the filter */
	BWRAP_FD_END
};

struct bwrap_fds {
	int channel, probe, init, seccomp;
	int bwrap; /* the program */
};

/* Returns only when it failed. */
int bwrap_exec(const struct launch_spec *spec, const struct bwrap_fds *fds,
	       struct err *err) MUST_CHECK;
