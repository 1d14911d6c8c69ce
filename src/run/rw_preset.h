// SPDX-License-Identifier: Apache-2.0
/* run/rw_preset - the paths outside of the working directory that programs of every day
 * write to: their caches, and nothing that is executed or configures them later.
 *
 *   apt   lists, downloads and log of the sandboxes' own, and a configuration that names
 *         them: the machine's apt would install what a sandbox has left in the machine's.
 *   git   the repository that the working directory is a part of, where that lies
 *         elsewhere. Its hooks and config stay read-only: run/startup_files. */
#pragma once

#include "run/options.h"

#define RW_PRESET_WORDS "pip|npm|cargo|go|apt|git"

/* A setter of --rw-preset: keep @name. Return: 0, or -EINVAL with @err. */
int rw_preset_add(void *option_list, const char *name, struct err *err) MUST_CHECK;
/* Is there a preset among those of @spec whose place the variable @name names? */
bool rw_preset_has_variable(const struct run_spec *spec, const char *name);
/* Add the paths of the presets of @spec to its `rw`, and the variables that they need to
 * its `set_env`; directories that are missing are made. Return: 0, -EINVAL, -ENOMEM or
 * what mkdir() said, with @err. */
int rw_preset_apply(struct run_spec *spec, struct err *err) MUST_CHECK;
