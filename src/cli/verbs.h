// SPDX-License-Identifier: Apache-2.0
/* cli/verbs - the table of verbs: what `weir help` shows and what main() calls. */
#pragma once

#include <stdio.h>

#include "cli/run.h"

/* What the verbs need from main/, which this folder can't know. */
struct cli_hooks {
	int (*run)(struct run_spec *spec);
};

/* Return: the exit status. */
int cli_main(int argc, char **argv, const struct cli_hooks *hooks);
