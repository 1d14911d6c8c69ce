// SPDX-License-Identifier: Apache-2.0
/* run/channel - reports from the launch child to control. weir-init, which links
 * nothing of ours, has its own copy in init/channel.c. */
#pragma once

#include "run/launch.h"

/* Send one report, the text formatted and cut to fit. Failure is not reported: when
 * control is gone there is nobody to tell, and the caller is about to die. */
void channel_report(int fd, enum launch_report_type type, int value, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
