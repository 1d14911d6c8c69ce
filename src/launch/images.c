// SPDX-License-Identifier: Apache-2.0
#include "launch/images.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

int image_create(const char *name, struct err *err)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? err_sys(err, -errno, "cannot create a memfd for %s", name) : fd;
}

int image_fill(int fd, const void *bytes, size_t size, struct err *err)
{
	ssize_t n = pwrite(fd, bytes, size, 0);

	if (n < 0)
		return err_sys(err, -errno, "cannot write a memfd");
	if ((size_t)n != size)
		return err_set(err, -ENOSPC, "cannot write a memfd: no memory");
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return err_sys(err, -errno, "cannot seal a memfd");
	return 0;
}

int image_open(const char *name, const void *bytes, size_t size, struct err *err)
{
	CLEAN(fd) int fd = image_create(name, err);
	int r = fd < 0 ? fd : image_fill(fd, bytes, size, err);

	return r < 0 ? err_context(err, "%s", name) : TAKE_FD(fd);
}
