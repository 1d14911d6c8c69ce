// SPDX-License-Identifier: Apache-2.0
/* run/writable - which directories of the host a command may write to. Paths are
 * canonical. */
#pragma once

#include <stdbool.h>

/* May the command have it when it is asked for? */
bool writable_when_named(const char *path);
/* And as the working directory, which nobody had to name? Not if it is, or holds, what
 * the host runs later on by itself: programs, or the start files of a home. */
bool writable_unasked(const char *path);
