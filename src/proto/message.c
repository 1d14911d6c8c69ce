// SPDX-License-Identifier: Apache-2.0
#include "proto/message.h"

#include <errno.h>
#include <string.h>

int ipc_send(int sock, const struct ipc_message *m, const int *fds, size_t count)
{
	ssize_t n = fds_send(sock, m, sizeof(*m), fds, count);

	if (n < 0)
		return (int)n;
	return n == sizeof(*m) ? 0 : -EIO;
}

/* Whatever byte it came as, it is true or false. */
static void tame_flag(bool *flag)
{
	uint8_t byte;

	memcpy(&byte, flag, sizeof(byte));
	*flag = byte != 0;
}

static void tame_flags(struct ipc_message *m)
{
	tame_flag(&m->ipv6);
	tame_flag(&m->owner);
	switch (m->type) {
	case IPC_EVENT:
		tame_flag(&m->event.allowable);
		break;
	case IPC_STANDS:
	case IPC_CHANGED:
		tame_flag(&m->standing.nflog);
		break;
	case IPC_STATS:
		tame_flag(&m->stats.ipv6);
		tame_flag(&m->stats.nflog);
		tame_flag(&m->stats.snapshot_full);
		break;
	case IPC_ATTACH:
	case IPC_DETACH:
		tame_flag(&m->attach.restarted);
		tame_flag(&m->attach.forget);
		break;
	case IPC_WARD:
	case IPC_ATTACHED:
	case IPC_LISTED:
		tame_flag(&m->attached.guard_parent);
		break;
	case IPC_LOOKED:
		tame_flag(&m->look.known);
		tame_flag(&m->look.packet);
		tame_flag(&m->look.raw);
		tame_flag(&m->look.waiting);
		tame_flag(&m->look.unseen);
		break;
	default:
		break;
	}
}

int ipc_receive(int sock, struct ipc_message *ret, int *ret_fds, size_t max,
		size_t *ret_count)
{
	struct ipc_message m;
	size_t count = 0;
	ssize_t n = fds_receive(sock, &m, sizeof(m), ret_fds, max, &count);

	if (n == -ECONNRESET)
		return -EPIPE;
	if (n < 0)
		return (int)n;
	if (n != sizeof(m)) {
		for (size_t i = 0; i < count; i++)
			close(ret_fds[i]);
		return n == 0 ? -EPIPE : -EBADMSG;
	}
	tame_flags(&m);
	*ret = m;
	*ret_count = count;
	return 0;
}

void ipc_tame(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}
