// SPDX-License-Identifier: Apache-2.0
#include "ipc/places.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

int places_take(const int fds[PLACE_COUNT])
{
	int high[PLACE_COUNT];
	int end = PLACE_FIRST + PLACE_COUNT;

	/* First above all the places, so that none is overwritten. */
	for (int i = 0; i < PLACE_COUNT; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, end);
		if (high[i] < 0)
			return -errno;
	}
	for (int i = 0; i < PLACE_COUNT; i++)
		if (dup2(high[i], PLACE_FIRST + i) < 0)
			return -errno;
	return syscall(SYS_close_range, end, ~0u, 0) < 0 ? -errno : 0;
}
