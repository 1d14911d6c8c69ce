// SPDX-License-Identifier: Apache-2.0
#include "sys/inherited_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <unistd.h>

int places_take(const int *fds, size_t count, int last)
{
	const int last_place = PLACE_FIRST + PLACES_MAX, end = PLACE_FIRST + (int)count;
	int high[PLACES_MAX + 1];

	if (count > PLACES_MAX)
		return -E2BIG;
	/* First above all the places, so that none is overwritten. */
	for (size_t i = 0; i <= count; i++) {
		high[i] =
			fcntl(i < count ? fds[i] : last, F_DUPFD_CLOEXEC, last_place + 1);
		if (high[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < count; i++)
		if (dup2(high[i], PLACE_FIRST + (int)i) < 0)
			return -errno;
	if (dup2(high[count], last_place) < 0 ||
	    (end < last_place && syscall(SYS_close_range, end, last_place - 1, 0) < 0) ||
	    syscall(SYS_close_range, last_place + 1, ~0u, 0) < 0)
		return -errno;
	return 0;
}
