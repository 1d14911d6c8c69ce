// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include "daemon/internal.h"
#include "supervisor/socket_owner.h"

void warden_start_witness(struct warden *w)
{
	const struct porter_order order = { .task = PORTER_WITNESS };
	const struct ipc_message m = { .type = IPC_WITNESS };
	struct err ignored = { 0 };
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	if (porter_order(&w->porter, &order, &fds[1], 1, &ignored) > 0)
		warden_tell_control(w, &m, &fds[0]);
	close(fds[0]);
	close(fds[1]);
}

/* In the porter's child. */
void witness_child(const struct porter_order *o)
{
	witness_serve(PORTER_FD_FIRST, true);
}
