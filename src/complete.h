// SPDX-License-Identifier: Apache-2.0
/* complete - `weir completion`: what a shell needs to complete our command lines,
 * written from the table of verbs. */
#pragma once

#include <stdio.h>

#define CLI_COMPLETION_WORDS "bash|zsh|fish"

/* @argv[0] is "completion". Return: the exit status. */
int cli_completion(int argc, char **argv);
extern const struct cli_options cli_completion_options;
