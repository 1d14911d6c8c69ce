// SPDX-License-Identifier: Apache-2.0
/* run/host - `weir run --cgroup` and `--uid`: a command on the host, in a control
 * group or as a user that `weir daemon` guards.
 *
 *   run_host.c     from the policy to the report
 *   run_place.c    the control group, and who is left at the end
 *   run_member.c   the child that becomes the command */
#pragma once

#include "run/options.h"

/* Return: the exit status; it dies by the signal that the command died by. */
int run_host(struct run_spec *spec);
