// SPDX-License-Identifier: Apache-2.0
/* sys/settings - what another program of Weir's is told at its start, secrets included.
 *
 * /proc/PID/cmdline is everybody's to read, and /proc/PID/environ, memory and descriptors
 * are for whoever has the same user id, from the exec on. So arguments and environment go
 * in a sealed memfd, and a program that takes them closes its /proc first. Installed, the
 * programs can't be read, and the kernel closes their /proc at the exec. */
#pragma once

#include "sys/inherited_fds.h"

enum {
	SETTINGS_FD = PLACE_FIRST + PLACES_MAX, /* of the program that is told */
	SETTINGS_MAX = 4 << 20,			/* bytes; more: -E2BIG */
};

/* Both end with NULL; @args begins with the program's name. Return: a descriptor, -errno.
 */
int settings_make(char *const *args, char *const *environment) MUST_CHECK;

/* First thing in main(): close /proc to others, and take arguments and environment from
 * SETTINGS_FD. Who was started by hand has none there, and keeps its own. Return: 0,
 * -errno. */
int settings_take(int *argc, char ***argv) MUST_CHECK;
