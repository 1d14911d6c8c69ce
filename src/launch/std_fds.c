// SPDX-License-Identifier: Apache-2.0
#include "launch/std_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static bool is_unix_socket(int fd)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
	       domain == AF_UNIX;
}

static bool is_harmless(int fd, const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
	case S_IFIFO:
		return true;
	case S_IFCHR:
		return major(st->st_rdev) == MEM_MAJOR || isatty(fd);
	case S_IFSOCK:
		return is_unix_socket(fd);
	default:
		return false;
	}
}

int std_fds_check(int control_fd, struct err *err)
{
	static const char *const names[] = { "input", "output", "error" };
	struct stat st;

	for (int fd = 0; fd < 3; fd++) {
		if (fd == control_fd || fstat(fd, &st) < 0)
			return err_set(
				err, -EPERM,
				"standard %s (descriptor %d) is closed; redirect it, for "
				"instance to /dev/null",
				names[fd], fd);
		if (!is_harmless(fd, &st))
			return err_set(
				err, -EPERM,
				"standard %s (descriptor %d) is a network socket, a "
				"directory or a device, which would lead out of the "
				"sandbox; connect it through a pipe (| cat)",
				names[fd], fd);
	}
	return 0;
}
