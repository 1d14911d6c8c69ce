// SPDX-License-Identifier: Apache-2.0
/* sys/program_path - where a program that Weir starts by itself lies.
 *
 * What $PATH names first may be a directory of the project (a virtual environment,
 * node_modules/.bin), where an earlier command in a sandbox could put a program that
 * would run outside. So the system's directories come first, and of $PATH only those
 * count in which nobody but root can have put the program. */
#pragma once

#include "base/err.h"

enum { PROGRAM_PATH_SIZE = 256 };

/* The path of the program @name. @ret holds PROGRAM_PATH_SIZE.
 * Return: 0, -ENOENT: it is nowhere; -EPERM: only where others than root may have put it,
 * with the place in @err. */
int program_path(const char *name, char *ret, struct err *err) MUST_CHECK;

/* A program that an uplink needs. */
struct program {
	const char *name;
	const char *package; /* "Debian, Ubuntu: apt install x; Fedora: dnf install x" */
	const char *option;  /* the one that came last of those that are used, as it
			      * stands in the program's file */
	const char *version; /* that has it: "slirp4netns 1.1" */
};

/* Find @p, as program_path() does: -ENOENT and -EPERM, with what to install; -ENOSYS: it
 * is too old. @ret holds PROGRAM_PATH_SIZE. */
int program_find(const struct program *p, char *ret, struct err *err) MUST_CHECK;
