// SPDX-License-Identifier: Apache-2.0
/* run/run - the process that a person started: it reads the policy, starts engine
 * and launch child, forwards signals, keeps the events, and says at the end what was
 * refused. */
#pragma once

#include "run/options.h"

/* `weir run`. Prints what has to be said. Return: the exit status; a command that was
 * killed by a signal is answered by the same signal, and this does not return. */
int control_run(struct run_spec *spec);
/* With --cgroup or --uid (host.c): a command on the host, in a control group or as a user
 * that `weir daemon` guards. Return: as control_run(). */
int run_host(struct run_spec *spec);
