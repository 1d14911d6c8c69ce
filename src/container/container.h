// SPDX-License-Identifier: Apache-2.0
/* container/container - `weir container`: a container of Docker's or podman's that is
 * guarded from before its first process on. @argv[0] is the verb. Return: the exit
 * status. */
#pragma once

#include "sys/options.h"

#define CLI_CONTAINER_WORDS "run|hold"

int cli_container(int argc, char **argv);
extern const struct cli_options cli_container_options;
