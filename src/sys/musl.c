// SPDX-License-Identifier: Apache-2.0
#include "sys/musl.h"

#include <sys/syscall.h>
#include <unistd.h>

int mallopt(int what, int value)
{
	return 1;
}

int malloc_trim(size_t pad)
{
	return 0;
}

int close_range(unsigned int first, unsigned int last, int flags)
{
	return (int)syscall(SYS_close_range, first, last, flags);
}

int execveat(int dir, const char *path, char *const argv[], char *const environment[],
	     int flags)
{
	return (int)syscall(SYS_execveat, dir, path, argv, environment, flags);
}

int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *ret)
{
	return (int)syscall(SYS_statx, dir, path, flags, mask, ret);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
	      unsigned int flags)
{
	return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int open_tree(int dir, const char *path, unsigned int flags)
{
	return (int)syscall(SYS_open_tree, dir, path, flags);
}

int move_mount(int from_dir, const char *from, int to_dir, const char *to,
	       unsigned int flags)
{
	return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

int mount_setattr(int dir, const char *path, unsigned int flags, struct mount_attr *attr,
		  size_t size)
{
	return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, size);
}

int fsopen(const char *type, unsigned int flags)
{
	return (int)syscall(SYS_fsopen, type, flags);
}

int fsconfig(int fs, unsigned int cmd, const char *key, const void *value, int aux)
{
	return (int)syscall(SYS_fsconfig, fs, cmd, key, value, aux);
}

int fsmount(int fs, unsigned int flags, unsigned int attrs)
{
	return (int)syscall(SYS_fsmount, fs, flags, attrs);
}
