// SPDX-License-Identifier: Apache-2.0
/* run/host - `weir run --cgroup` and `--uid`: a command on the host, in a control
 * group or as a user that `weir daemon` guards. host_attach.c asks the daemon,
 * host_child.c is the child that becomes the command, and where it lives. */
#pragma once

#include "run/options.h"

/* Return: the exit status; it dies by the signal that the command died by. */
int run_host(struct run_spec *spec);
