// SPDX-License-Identifier: Apache-2.0
/* tools/inject - `weir inject`: Kubernetes workloads, with the sidecar in them. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

extern const struct cli_options cli_inject_options;
void cli_inject_usage(FILE *out);
/* @argv[0] is "inject". Return: the exit status. */
int cli_inject(int argc, char **argv);
