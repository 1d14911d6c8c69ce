// SPDX-License-Identifier: Apache-2.0
#include "ipc/message.h"

#include <errno.h>

int ipc_send(int sock, const struct ipc_message *m, const int *fds, size_t count)
{
	ssize_t n = fds_send(sock, m, sizeof(*m), fds, count);

	if (n < 0)
		return (int)n;
	return n == sizeof(*m) ? 0 : -EIO;
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
