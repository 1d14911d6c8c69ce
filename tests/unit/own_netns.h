// SPDX-License-Identifier: Apache-2.0
/* A network namespace of a test's own, for sockets of its own. */
#pragma once

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* With its loopback up. False: not possible here, the test is skipped. */
static inline bool own_netns_enter(bool *ret_has_ipv6)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	bool is_up;
	int fd;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return false;
	fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	*ret_has_ipv6 = fd >= 0;
	if (fd >= 0)
		close(fd);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	is_up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
	if (fd >= 0)
		close(fd);
	return is_up;
}
