// SPDX-License-Identifier: Apache-2.0
/* tools/profile - the verbs `weir profile list` and `show`. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

#define CLI_PROFILE_WORDS "list|show"

/* @argv[0] is "profile". Return: the exit status. */
int cli_profile(int argc, char **argv);
void cli_profile_usage(FILE *out);
extern const struct cli_options cli_profile_options;
