// SPDX-License-Identifier: Apache-2.0
#include "sys/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ABI 6: processes outside the domain can't be signalled, nor abstract unix sockets
 * reached. Not in the headers of Debian 12. */
enum {
	SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0,
	SCOPE_SIGNAL = 1 << 1,
};

/* Rights that came later than Debian 12's headers. */
enum {
	RIGHT_REFER = 1 << 13,	   /* ABI 2 */
	RIGHT_TRUNCATE = 1 << 14,  /* 3 */
	RIGHT_IOCTL_DEV = 1 << 15, /* 5 */
};

struct landlock_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

/* All that this kernel can refuse. */
static uint64_t all_rights(long abi)
{
	/* Execute to make_sym came with ABI 1. */
	uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		rights |= RIGHT_REFER;
	if (abi >= 3)
		rights |= RIGHT_TRUNCATE;
	if (abi >= 5)
		rights |= RIGHT_IOCTL_DEV;
	return rights;
}

static uint64_t rights_of(const struct landlock_path *p, bool is_directory)
{
	uint64_t rights = LANDLOCK_ACCESS_FS_READ_FILE;

	if (p->write)
		rights |= LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE;
	if (!is_directory)
		return rights;
	rights |= LANDLOCK_ACCESS_FS_READ_DIR;
	if (p->write)
		rights |= LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR |
			  LANDLOCK_ACCESS_FS_REMOVE_FILE | RIGHT_REFER;
	return rights;
}

static int add_path(int ruleset, const struct landlock_path *p, uint64_t handled)
{
	struct landlock_path_beneath_attr attr = { 0 };
	CLEAN(fd) int fd = open(p->path, O_PATH | O_CLOEXEC);
	struct stat st;

	/* What isn't there, or can't be reached, is not granted. */
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0
									      : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	attr.parent_fd = fd;
	attr.allowed_access = rights_of(p, S_ISDIR(st.st_mode)) & handled;
	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr,
		       0) < 0
		       ? -errno
		       : 0;
}

int landlock_enter(const struct landlock_path *paths, size_t count)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_attr attr = { 0 };
	size_t size = offsetof(struct landlock_attr, handled_access_net);
	CLEAN(fd) int fd = -1;

	if (abi < 1)
		return -EOPNOTSUPP;
	attr.handled_access_fs = all_rights(abi);
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size = sizeof(attr);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < count; i++) {
		int r = add_path(fd, &paths[i], attr.handled_access_fs);

		if (r < 0)
			return r;
	}
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

int landlock_scope(void)
{
	const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
				 LANDLOCK_CREATE_RULESET_VERSION);
	/* Something has to be handled; moving files is refused unless it is, and is
	 * allowed. */
	struct landlock_attr attr = { .handled_access_fs = RIGHT_REFER };
	struct landlock_path_beneath_attr all = { .allowed_access = RIGHT_REFER };
	size_t size = offsetof(struct landlock_attr, handled_access_net);
	CLEAN(fd) int fd = -1, root = -1;

	if (abi < 2)
		return -EOPNOTSUPP;
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size = sizeof(attr);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	root = open("/", O_PATH | O_CLOEXEC);
	if (fd < 0 || root < 0)
		return -errno;
	all.parent_fd = root;
	if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &all, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return -errno;
	return 0;
}
