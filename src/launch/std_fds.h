// SPDX-License-Identifier: Apache-2.0
/* launch/std_fds - are descriptors 0 to 2 harmless in a sandbox? */
#pragma once

#include "base/err.h"

/* Only terminals, files, pipes, null devices and unix sockets are. A TCP socket can be
 * connected again, to anywhere and outside of the sandbox; a directory opens
 * the host's file system; other devices (a TUN, a vsock) have ways out of their own.
 * @control_fd: must not be one of the three.
 * Return: 0, or -EPERM with a line that names the descriptor. */
int std_fds_check(int control_fd, struct err *err) MUST_CHECK;
