// SPDX-License-Identifier: Apache-2.0
/* tools/render - `weir render` and `weir teardown`: a policy as nft rules for a cgroup or
 * a user of this host, without a process that keeps them. */
#pragma once

#include <stdio.h>

#include "engine/pin_names.h"
#include "sys/options.h"

/* Return: the exit status. */
int cli_render(int argc, char **argv, render_resolve_fn *resolve);
void cli_render_usage(FILE *out);
extern const struct cli_options cli_render_options;

int cli_teardown(int argc, char **argv);
void cli_teardown_usage(FILE *out);
