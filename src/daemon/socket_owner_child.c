// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include "daemon/internal.h"
#include "supervisor/socket_owner.h"

void daemon_start_socket_owner(struct daemon *w)
{
	const struct spawner_order order = { .task = SPAWNER_SOCKET_OWNER };
	const struct ipc_message m = { .type = IPC_SOCKET_OWNER };
	struct err ignored = { 0 };
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	if (spawner_order(&w->spawner, &order, &fds[1], 1, &ignored) > 0)
		daemon_tell_control(w, &m, &fds[0]);
	close(fds[0]);
	close(fds[1]);
}

/* In the spawner's child. */
void socket_owner_child(const struct spawner_order *o)
{
	socket_owner_serve(SPAWNER_FD_FIRST, true);
}
