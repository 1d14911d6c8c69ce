// SPDX-License-Identifier: Apache-2.0
/* run/writable - which directories of the host a command may write to. */
#pragma once

#include <stdbool.h>

#include "sys/path.h"

/* May the command have it when it is asked for? */
bool writable_when_named(const struct path *p);
/* And as the working directory, which nobody had to name? Not if it is, holds or lies in
 * what is run or obeyed outside without anybody's doing: directories of programs, those
 * of $PATH, what begins with a dot in a home, the start files of a project; nor a
 * directory that all users share. */
bool writable_unasked(const struct path *p);
