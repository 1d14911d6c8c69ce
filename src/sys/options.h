// SPDX-License-Identifier: Apache-2.0
/* sys/options - options by table: one row gives the name, the help text and the setter,
 * so that parsing, usage and completion can't differ. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"

struct cli_option {
	const char *name; /* without the dashes */
	const char *arg; /* "FILE", or the words that there are: "a|b"; NULL for a flag */
	const char *help; /* one line */
	/* @value is NULL for a flag. Return: 0, or -EINVAL with @err. */
	int (*set)(void *target, const char *value, struct err *err);
	/* May be repeated; what stands between the values in an environment variable.
	 * 0: once. */
	char separator;
};

enum { CLI_OPTIONS_MAX = 64 }; /* in one table; asserted where the tables are */

struct cli_options {
	const struct cli_option *items;
	size_t count;
};

/* Read options from @argv[1] on: "--name value", "--name=value", never abbreviated;
 * ends behind "--" or before the first argument that is no option. Each option that
 * was there has its bit set in *@given, which may be NULL. All faults are told at once.
 * Return: the index of the first argument that is left, or -EINVAL with @err. */
int cli_options_parse(const struct cli_options *table, void *target, int argc,
		      char **argv, uint64_t *given, struct err *err) MUST_CHECK;

/* Take the options that aren't in *@given from variables WEIR_NAME (--fail-on-deny:
 * WEIR_FAIL_ON_DENY) and set their bits. A flag's value is 1, 0, true or false; an
 * empty variable counts as not set. What is kept of the values lives in @arena. All
 * faults are told at once.
 * Return: 0, -EINVAL or -ENOMEM with @err. */
int cli_options_environment(const struct cli_options *table, void *target,
			    struct arena *arena, uint64_t *given,
			    struct err *err) MUST_CHECK;
/* A variable that begins with WEIR_ and belongs to no option, or NULL. */
const char *cli_options_stray_variable(const struct cli_options *table);

const struct cli_option *cli_option_find(const struct cli_options *table,
					 struct text name);

/* The "  --name ARG   help" lines. */
void cli_options_print(FILE *out, const struct cli_options *table);
