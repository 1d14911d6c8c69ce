// SPDX-License-Identifier: Apache-2.0
#include "launch/images.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

int image_open(const char *name, const void *bytes, size_t size, struct err *err)
{
	CLEAN(fd) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	ssize_t n;

	if (fd < 0)
		return err_sys(err, -errno, "cannot create a memfd for %s", name);
	n = pwrite(fd, bytes, size, 0);
	if (n < 0)
		return err_sys(err, -errno, "cannot write %s", name);
	if ((size_t)n != size)
		return err_set(err, -ENOSPC, "cannot write %s: no memory", name);
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return err_sys(err, -errno, "cannot seal %s", name);
	return TAKE_FD(fd);
}
