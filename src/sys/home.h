// SPDX-License-Identifier: Apache-2.0
/* sys/home - where the user's own configuration lies. */
#pragma once

#include "base/arena.h"

/* The home directory: $HOME. For the machine's root it is that of the passwd entry,
 * because sudo and its like may leave HOME as another user's, and what lies there would
 * decide what root's sandboxes may do. Return: an absolute path, which lives as long as
 * the environment; NULL: there is none. */
const char *home_directory(void);

/* @name in ~/.config/weir, or in $XDG_CONFIG_HOME/weir, which counts for the machine's
 * root as little as HOME. NULL: there is no home, or no memory. */
char *home_config(struct arena *arena, const char *name);
