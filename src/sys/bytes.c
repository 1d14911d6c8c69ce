// SPDX-License-Identifier: Apache-2.0
#include "sys/bytes.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

int bytes_read(int fd, void *buf, size_t room, size_t *ret_size)
{
	size_t used = 0;

	while (used < room) {
		ssize_t n = read(fd, (uint8_t *)buf + used, room - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	*ret_size = used;
	return 0;
}
