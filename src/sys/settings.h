// SPDX-License-Identifier: Apache-2.0
/* sys/settings - what another program of Weir's is started with: one descriptor in each
 * place, arguments and environment, secrets included.
 *
 * /proc/PID/cmdline is everybody's to read, and /proc/PID/environ, memory and descriptors
 * are for whoever has the same user id, from the exec on. So arguments and environment go
 * in a sealed memfd, and a program that takes them closes its /proc first. Installed, the
 * programs can't be read, and the kernel closes their /proc at the exec. */
#pragma once

#include "base/macros.h"

/* weir-control's. */
enum place {
	PLACE_SUPERVISOR = 0, /* SOCK_SEQPACKET */
	PLACE_HTTP,	      /* a listening TCP socket */
	PLACE_TEXT,	      /* sealed memfd: the policy in force, as JSON */
	PLACE_TLS, /* of the daemon, where it serves TCP; else there is nothing */
	PLACE_COUNT
};
enum { PLACE_FIRST = 3 }; /* descriptor i stands at PLACE_FIRST + i */

enum { PLACES_MAX = 8 };
/* Put @fds at PLACE_FIRST and on, and @last at PLACE_FIRST + PLACES_MAX, open across
 * execve(), and close everything else from PLACE_FIRST up. */
int places_take(const int *fds, size_t count, int last) MUST_CHECK;

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
