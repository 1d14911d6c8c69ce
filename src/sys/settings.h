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
enum inherited_fd {
	INHERITED_SUPERVISOR = 0, /* SOCK_SEQPACKET */
	INHERITED_HTTP,		  /* a listening TCP socket */
	INHERITED_TEXT,		  /* sealed memfd: the policy in force, as JSON */
	INHERITED_TLS, /* of the daemon, where it serves TCP; else there is nothing */
	INHERITED_COUNT
};
enum { INHERITED_FIRST = 3 }; /* descriptor i stands at INHERITED_FIRST + i */

enum { INHERITED_MAX = 8 };
/* Put @fds at INHERITED_FIRST and on, and @last at INHERITED_FIRST + INHERITED_MAX, open
 * across execve(), and close everything else from INHERITED_FIRST up. */
int inherited_fds_take(const int *fds, size_t count, int last) MUST_CHECK;

enum {
	SETTINGS_FD = INHERITED_FIRST + INHERITED_MAX, /* of the program that is told */
	SETTINGS_MAX = 4 << 20,			       /* bytes; more: -E2BIG */
};

/* Both end with NULL; @args begins with the program's name. Return: a descriptor, -errno.
 */
int settings_make(char *const *args, char *const *environment) MUST_CHECK;

/* First thing in main(): close /proc to others, and take arguments and environment from
 * SETTINGS_FD. Who was started by hand has none there, and keeps its own. Return: 0,
 * -errno. */
int settings_take(int *argc, char ***argv) MUST_CHECK;
