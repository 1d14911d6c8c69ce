// SPDX-License-Identifier: Apache-2.0
/* verbs - the table of verbs: what `weir help` shows and what main() calls. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

struct cli_verb {
	const char *name;
	const char *help; /* one line */
	int (*main)(int argc, char **argv);
	const struct cli_options *options; /* with what `weir help` says */
	const char *words; /* what may follow, "a|b"; NULL: nothing fixed */
	const char
		*group; /* the title above it in `weir help`; NULL: as the one before */
	bool serves;	/* it runs a command or a service: more than a reader waits for */
};

/* In the order of `weir help`; NULL behind the last. */
const struct cli_verb *cli_verb_at(size_t i);

/* Return: the exit status. */
int cli_main(int argc, char **argv);
