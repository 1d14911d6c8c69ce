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

/* After needs_apply(), which may have made some of them: every path that an option names
 * and that can't be found. For the message alone: the launch opens the paths again, and
 * may be refused. Return: 0 or -errno with the last one in @err, the others logged. */
int needs_check_paths(const struct run_spec *spec, struct err *err) MUST_CHECK;

/* What is known of some programs: a line on standard error, if there is one to say. */
void needs_tell(struct run_spec *spec);

#define RW_PRESET_WORDS "pip|npm|cargo|go|apt|git"

/* A setter of --rw-preset: keep @name. Return: 0, or -EINVAL with @err. */
int rw_preset_add(void *option_list, const char *name, struct err *err) MUST_CHECK;
