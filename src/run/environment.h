// SPDX-License-Identifier: Apache-2.0
/* run/environment - which variables the command gets.
 *
 * Weir's own (WEIR_...) are options of this run and no business of the command's. Under
 * `default` so is what looks like a secret (launch/secret.h). */
#pragma once

#include "run/options.h"

enum {
	ENVIRONMENT_TOLD_MAX = 12, /* names in the message; the others are counted */
	ENVIRONMENT_SPARE = 4,	   /* variables that environment_enter() adds */
};

struct environment {
	/* "NAME=value", NULL-ended, with spare places; the strings are borrowed or the
	 * arena's. */
	char **list;
	size_t count; /* without the NULL */
	/* Kept back because they look like secrets. */
	const char **held; /* "NAME=value"; the arena's */
	size_t held_count;
};

/* What @spec says of Weir's own environment. Say what was kept back, unless spec->quiet;
 * and in any case which variables that are named by --pass-env there are none of.
 * Return: 0, or -ENOMEM with @err. */
int environment_choose(struct run_spec *spec, struct environment *ret,
		       struct err *err) MUST_CHECK;
/* Add what a command needs that starts in the directory @cwd of the sandbox @id: $PWD is
 * that, whatever the caller's says. Return: 0, or -ENOMEM with @err. */
int environment_enter(struct run_spec *spec, struct environment *e, const char *cwd,
		      const char *id, struct err *err) MUST_CHECK;

/* Does an option set the variable @name? */
bool environment_is_set(const struct run_spec *spec, struct text name);

/* Does an option say what the variable @name is? */
bool environment_is_asked(const struct run_spec *spec, struct text name);

/* A setter of --set-env. Return: 0, or -EINVAL with @err. */
int environment_add_set(void *option_list, const char *value, struct err *err) MUST_CHECK;
/* A setter of --pass-env. Return: 0, or -EINVAL with @err. */
int environment_add_pass(void *option_list, const char *value,
			 struct err *err) MUST_CHECK;
