// SPDX-License-Identifier: Apache-2.0
/* cli/options - options by table: one row gives the name, the help text and the setter,
 * so that parsing, usage and completion can't differ. */
#pragma once

#include <stdio.h>

#include "base/err.h"

struct cli_option {
	const char *name; /* without the dashes */
	const char *arg;  /* "FILE"; NULL for a flag */
	const char *help; /* one line */
	/* @value is NULL for a flag. Return: 0, or -EINVAL with @err. */
	int (*set)(void *target, const char *value, struct err *err);
};

/* Read options from @argv[1] on: "--name value", "--name=value", never abbreviated;
 * ends behind "--" or before the first argument that is no option.
 * Return: the index of the first argument that is left, or -EINVAL with @err. */
int cli_options_parse(const struct cli_option *table, size_t count, void *target,
		      int argc, char **argv, struct err *err) MUST_CHECK;

/* The "  --name ARG   help" lines. */
void cli_options_print(FILE *out, const struct cli_option *table, size_t count);
