// SPDX-License-Identifier: Apache-2.0
/* resolver/udp - datagrams, many at a time; a part of resolver/dns_service. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/addr.h"

enum {
	/* Datagrams read from one socket in one turn: a sandbox that floods waits for
	 * the next turn, when all others have had theirs. */
	DNS_READ_MAX = 32,
	DNS_READ_SIZE = 2048, /* a longer datagram is malformed */
};

struct dns_read {
	struct mmsghdr headers[DNS_READ_MAX];
	struct iovec vectors[DNS_READ_MAX];
	struct sockaddr_storage peers[DNS_READ_MAX];
	_Alignas(struct cmsghdr) uint8_t control[DNS_READ_MAX][CMSG_SPACE(4)];
	uint8_t bytes[DNS_READ_MAX][DNS_READ_SIZE];
};

/* Let datagrams of @fd come with their mark. */
int dns_read_marks(int fd) MUST_CHECK;
/* Return: how many there were; at most 0 is none. */
int dns_read(struct dns_read *in, int fd);
/* Of datagram @i. One that was cut is its header alone, which makes it malformed. */
size_t dns_read_size(const struct dns_read *in, int i);
/* 0: it has none. */
uint32_t dns_read_mark(const struct dns_read *in, int i);
