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

void ipc_sanitize_flag(bool *flag)
{
	uint8_t byte;

	memcpy(&byte, flag, sizeof(byte));
	*flag = byte != 0;
}

/* Flags are true or false, and an event's texts can be printed. */
static void sanitize(struct ipc_message *m)
{
	struct event *e = &m->event;

	switch (m->type) {
	case IPC_EVENT:
		ipc_sanitize_flag(&e->allowable);
		ipc_sanitize_flag(&e->claimed);
		ipc_sanitize(e->name, sizeof(e->name));
		ipc_sanitize(e->reason, sizeof(e->reason));
		ipc_sanitize(e->advice, sizeof(e->advice));
		ipc_sanitize(e->command, sizeof(e->command));
		break;
	case IPC_ACTIVE:
	case IPC_CHANGED:
		ipc_sanitize_flag(&m->status.nflog);
		break;
	case IPC_STATS:
		ipc_sanitize_flag(&m->stats.ipv6);
		ipc_sanitize_flag(&m->stats.nflog);
		ipc_sanitize_flag(&m->stats.snapshot_full);
		break;
	case IPC_ATTACH:
	case IPC_DETACH:
		ipc_sanitize_flag(&m->attach.restarted);
		ipc_sanitize_flag(&m->attach.remade);
		ipc_sanitize_flag(&m->attach.forget);
		ipc_sanitize_flag(&m->attach.ipv6);
		ipc_sanitize_flag(&m->attach.owner);
		break;
	case IPC_ADD:
	case IPC_ATTACHED:
	case IPC_LISTED:
		ipc_sanitize_flag(&m->attached.guard_parent);
		break;
	case IPC_AUDITED:
		ipc_sanitize_flag(&m->audit.known);
		ipc_sanitize_flag(&m->audit.packet);
		ipc_sanitize_flag(&m->audit.raw);
		ipc_sanitize_flag(&m->audit.waiting);
		ipc_sanitize_flag(&m->audit.unseen);
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

	if (n < 0)
		return (int)n;
	if (n != sizeof(m)) {
		for (size_t i = 0; i < count; i++)
			close(ret_fds[i]);
		return n == 0 ? -EPIPE : -EBADMSG;
	}
	sanitize(&m);
	*ret = m;
	*ret_count = count;
	return 0;
}

void ipc_fds_init(struct ipc_fds *f, const struct sandbox_fds *own)
{
	for (size_t i = 0; i < IPC_FD_COUNT; i++)
		f->fd[i] = own && i < SANDBOX_FD_COUNT ? own->fd[i] : -1;
}

void ipc_fds_done(struct ipc_fds *f)
{
	for (size_t i = 0; i < IPC_FD_COUNT; i++)
		if (f->fd[i] >= 0)
			close(f->fd[i]);
	ipc_fds_init(f, NULL);
}

int ipc_send_fds(int sock, struct ipc_message *m, const struct ipc_fds *f)
{
	int fds[IPC_FD_COUNT];
	size_t count = 0;

	m->present = 0;
	for (size_t i = 0; i < IPC_FD_COUNT; i++) {
		if (f->fd[i] < 0)
			continue;
		m->present |= 1u << i;
		fds[count++] = f->fd[i];
	}
	return ipc_send(sock, m, fds, count);
}

int ipc_take_fds(const struct ipc_message *m, int *fds, size_t count, struct ipc_fds *to)
{
	size_t next = 0;

	for (size_t i = 0; i < IPC_FD_COUNT; i++) {
		if (!(m->present & 1u << i))
			continue;
		if (next == count || to->fd[i] >= 0)
			return -EBADMSG;
		to->fd[i] = TAKE_FD(fds[next]);
		next++;
	}
	return next == count ? 0 : -EBADMSG;
}

void ipc_sanitize(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}
