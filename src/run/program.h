// SPDX-License-Identifier: Apache-2.0
/* run/program - finding the programs that a sandbox is built with. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sys/program_path.h"

/* A program that the sandbox needs. */
struct program {
	const char *name;
	const char *package; /* "Debian, Ubuntu: apt install x; Fedora: dnf install x" */
	const char *option;  /* the one that came last of those that are used, as it
			      * stands in the program's file */
	const char *version; /* that has it: "bubblewrap 0.8" */
};

/* Find @p, as program_path() does: -ENOENT and -EPERM, with what to install; -ENOSYS: it
 * is too old. @ret holds PROGRAM_PATH_SIZE. */
int program_find(const struct program *p, char *ret, struct err *err) MUST_CHECK;
