// SPDX-License-Identifier: Apache-2.0
/* run/needs - what a command gets besides the policy's hosts, so that its program works:
 * the presets of --rw-preset, what profiles say under `run`, and the home of --home.
 *
 * HOW IT WORKS
 *   A cache or a configuration that the user's programs outside share with a sandbox is a
 *   way out of it: they run what the sandbox has left there. So a profile makes nothing
 *   of the user's writable. For each variable that it names (`own`) there is a directory
 *   of the sandboxes' own, ~/.local/state/weir/PROFILE/VARIABLE, which no program outside
 *   knows of. It is kept for the next sandbox with that profile, and the variable leads
 *   to it. */
#pragma once

#include "run/options.h"

struct policy;

/* Not in a sandbox of weir run's, whose filter of system calls gives no user namespace.
 * Return: 0, or -EPERM with @err. */
int needs_check_place(struct err *err) MUST_CHECK;

/* When the policy has been read: add to the `rw`, `set_env`, `drop_env` and
 * `profile_env` of @spec. Return: 0 or -errno with @err. */
int needs_apply(struct run_spec *spec, const struct policy *policy,
		struct err *err) MUST_CHECK;

/* What is known of some programs: a line on standard error, if there is one to say. */
void needs_tell(struct run_spec *spec);

/* For presets. Make the directory @path, and have it writable. */
int needs_add_writable(struct run_spec *spec, const char *path,
		       struct err *err) MUST_CHECK;
/* The sandboxes' own directory @name of @group, writable; the path lives in the arena. */
int needs_own_directory(struct run_spec *spec, const char *group, const char *name,
			const char **ret, struct err *err) MUST_CHECK;
/* Show the file @a@b, also in a home below /tmp, of which the sandbox has its own. */
int needs_show(struct run_spec *spec, const char *a, const char *b,
	       struct err *err) MUST_CHECK;
/* Set a variable to @a and @b, unless the caller set it by an option. */
int needs_set(struct run_spec *spec, const char *name, const char *a, const char *b,
	      struct err *err) MUST_CHECK;
