// SPDX-License-Identifier: Apache-2.0
#include "sys/inherited_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

int places_take(const int *fds, size_t count)
{
	int end = PLACE_FIRST + (int)count;
	int high[PLACES_MAX];

	if (count > PLACES_MAX)
		return -E2BIG;
	/* First above all the places, so that none is overwritten. */
	for (size_t i = 0; i < count; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, end);
		if (high[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < count; i++)
		if (dup2(high[i], PLACE_FIRST + (int)i) < 0)
			return -errno;
	return syscall(SYS_close_range, end, ~0u, 0) < 0 ? -errno : 0;
}
