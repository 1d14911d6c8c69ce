// SPDX-License-Identifier: Apache-2.0
/* Any bytes as what weir-webhook says to its parent, with descriptors or without: one
 * that is taken is whole, of a known type and within its size; no descriptor is left
 * behind; the parent's end hands on only ids and URLs that it knows.
 *
 * The input: a byte, how many descriptors come along; two bytes, the size; the message.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/wire.h"
#include "outputs/webhook.h"
#include "sys/sock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = offsetof(struct webhook_message, text), MESSAGES_MAX = 32 };

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static void pair(int fds[2])
{
	require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
			   fds) == 0);
}

static int lowest_free(void)
{
	int fd = open("/", O_PATH | O_CLOEXEC);

	require(fd >= 0);
	close(fd);
	return fd;
}

static void put(int sock, struct text bytes, size_t fd_count)
{
	const int given[] = { sock, sock, sock };

	require(fds_send(sock, bytes.ptr, bytes.len, given, fd_count) ==
		(ssize_t)bytes.len);
}

static void check_message(struct text bytes, size_t fd_count)
{
	struct webhook_message m;
	int fds[2], fd = -1, r;

	pair(fds);
	put(fds[0], bytes, fd_count);
	r = webhook_message_receive(fds[1], &m, &fd);
	require(r == 0 || r == -EBADMSG);
	if (r == 0) {
		require(bytes.len == HEAD + m.size);
		require(m.type > WEBHOOK_NONE && m.type <= WEBHOOK_DONE);
		require(m.size <= WEBHOOK_PAYLOAD_SIZE);
		require((fd >= 0) == (fd_count == 1));
		require(fd_count <= 1 && (fd < 0 || m.type == WEBHOOK_SOCKET));
	} else {
		require(fd == -1);
	}
	if (fd >= 0)
		close(fd);
	close(fds[0]);
	close(fds[1]);
}

/* The parent's end. Return: whether it goes on. */
static bool take_all(struct webhook *w, uint32_t *open_count)
{
	struct webhook_message m;
	int r;

	while ((r = webhook_receive(w, &m)) == 1) {
		require(m.type == WEBHOOK_WANT || m.type == WEBHOOK_CLOSED ||
			m.type == WEBHOOK_DONE);
		if (m.type == WEBHOOK_DONE) {
			require(m.url < webhook_url_count(w) && m.id != 0);
			continue;
		}
		if (m.type == WEBHOOK_CLOSED) {
			require(*open_count > 0);
			--*open_count;
			continue;
		}
		require(m.url < webhook_url_count(w) && m.id != 0);
		require(++*open_count <= WEBHOOK_SOCKETS_MAX);
		if (m.attempt % 2) {
			require(webhook_answer(w, m.id, -ECONNREFUSED) <= 0);
			--*open_count;
		}
	}
	require(r == 0 || r == -EBADMSG || r == -EPIPE);
	return r == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const urls[] = { "http://a.test/", "http://b.test/" };
	struct wire in = wire_reader(data, size);
	struct webhook *w;
	uint32_t open_count = 0;
	int fds[2], before = lowest_free();
	struct err err;

	require(webhook_new(urls, 2, "sb", &w, &err) == 0);
	pair(fds);
	webhook_attach(w, fds[1]);
	for (int i = 0; i < MESSAGES_MAX && wire_left(&in) > 3; i++) {
		size_t fd_count = wire_read_u8(&in) & 3;
		size_t n = MIN((size_t)wire_read_u16(&in), wire_left(&in));
		struct text bytes = { (const char *)wire_take(&in, n), n };

		if (n == 0)
			continue;
		check_message(bytes, fd_count);
		put(fds[0], bytes, fd_count);
		if (!take_all(w, &open_count))
			break;
	}
	webhook_free(w);
	close(fds[0]);
	require(lowest_free() == before);
	return 0;
}
