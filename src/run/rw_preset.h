// SPDX-License-Identifier: Apache-2.0
/* run/rw_preset - the paths outside of the working directory that programs of every day
 * write to: their caches, and nothing that is executed or configures them later. */
#pragma once

#include "run/options.h"

#define RW_PRESET_WORDS "pip|npm|cargo|go|apt"

/* A setter of --rw-preset: add the paths of the preset @name to the `rw` of @run_spec;
 * folders below the home directory that are missing are made. Return: 0, -EINVAL, -ENOMEM
 * or what mkdir() said, with @err. */
int rw_preset_add(void *run_spec, const char *name, struct err *err) MUST_CHECK;
