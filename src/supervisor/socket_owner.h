// SPDX-License-Identifier: Apache-2.0
/* supervisor/socket_owner - the process that finds out whose a denial was.
 *
 * It sees the processes of the sandboxes, where it has the right: in the daemon as root
 * with the three capabilities that takes, in a sidecar with those of them that the
 * container has, mostly none. It writes nothing, executes nothing, makes no connection,
 * and nobody's decision hangs on it: it answers whoever holds the other end of its
 * channel, and ends with that. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Serve the channel at @channel, the only descriptor above 2. @enters: it may be asked
 * about other network namespaces than its own. */
void socket_owner_serve(int channel, bool enters);
/* Of a sidecar: make that process. @channel is borrowed. Return: its pid, or -errno. */
pid_t socket_owner_start(int channel);
