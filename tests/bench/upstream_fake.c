// SPDX-License-Identifier: Apache-2.0
/* upstream_fake - the upstream server of the benchmarks: answers every question of type
 * A or AAAA with one address that depends on the name, as fast as it can.
 *
 *   upstream_fake ADDRESS PORT */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BATCH = 32, SIZE = 1024, HEADER = 12, TYPE_A = 1, TYPE_AAAA = 28, TTL = 3600 };

static uint8_t in[BATCH][SIZE], out[BATCH][SIZE];
static struct sockaddr_storage peers[BATCH];

/* The end of the question, or 0 when there is none. */
static size_t question_end(const uint8_t *m, size_t size, uint32_t *ret_hash)
{
	size_t at = HEADER;
	uint32_t hash = 2166136261u;

	while (at < size && m[at] != 0) {
		for (size_t i = 0; i <= m[at] && at + i < size; i++)
			hash = (hash ^ (m[at + i] | 0x20)) * 16777619u;
		at += m[at] + 1u;
	}
	*ret_hash = hash;
	return at + 5 <= size ? at + 5 : 0;
}

/* 93.x.y.z or 2a00:…: addresses that nothing treats as special. */
static size_t write_answer(uint8_t *to, uint16_t type, uint32_t hash)
{
	size_t length = type == TYPE_A ? 4 : 16;
	uint8_t head[12] = { 0xc0, HEADER, 0,	     (uint8_t)type, 0, 1,
			     0,	   0,	   TTL >> 8, TTL & 255,	    0, (uint8_t)length };

	memcpy(to, head, sizeof(head));
	memset(to + 12, 0, length);
	to[12] = type == TYPE_A ? 93 : 0x2a;
	to[12 + length - 3] = (uint8_t)(hash >> 16);
	to[12 + length - 2] = (uint8_t)(hash >> 8);
	to[12 + length - 1] = (uint8_t)hash;
	return 12 + length;
}

static size_t reply(const uint8_t *query, size_t size, uint8_t *ret)
{
	uint32_t hash;
	size_t end = size < HEADER ? 0 : question_end(query, size, &hash);
	uint16_t type;

	if (end == 0)
		return 0;
	memcpy(ret, query, end);
	memset(ret + 2, 0, HEADER - 2);
	ret[2] = 0x81;
	ret[3] = 0x80;
	ret[5] = 1;
	type = (uint16_t)(query[end - 4] << 8 | query[end - 3]);
	if (type != TYPE_A && type != TYPE_AAAA)
		return end;
	ret[7] = 1;
	return end + write_answer(ret + end, type, hash);
}

static void serve(int fd)
{
	struct mmsghdr headers[BATCH], replies[BATCH];
	struct iovec from[BATCH], to[BATCH];
	int n, count = 0;

	for (int i = 0; i < BATCH; i++) {
		from[i] = (struct iovec){ in[i], SIZE };
		headers[i].msg_hdr = (struct msghdr){ .msg_name = &peers[i],
						      .msg_namelen = sizeof(peers[i]),
						      .msg_iov = &from[i],
						      .msg_iovlen = 1 };
	}
	n = recvmmsg(fd, headers, BATCH, MSG_WAITFORONE, NULL);
	for (int i = 0; i < n; i++) {
		size_t size = reply(in[i], headers[i].msg_len, out[i]);

		if (size == 0)
			continue;
		to[count] = (struct iovec){ out[i], size };
		replies[count] = headers[i];
		replies[count].msg_hdr.msg_iov = &to[count];
		count++;
	}
	for (int done = 0; done < count;) {
		int r = sendmmsg(fd, replies + done, (unsigned int)(count - done), 0);

		done += r > 0 ? r : 1;
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), room = 4 << 20;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[2]));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
		perror("bind");
		return 1;
	}
	for (;;)
		serve(fd);
}
