// SPDX-License-Identifier: Apache-2.0
/* sys/musl - what Debian's musl lacks of the GNU C library's declarations.
 *
 * Included in front of every file of the static build (tools/static), and there alone, so
 * that the code itself is written for one C library. */
#pragma once

#include <stddef.h>
#include <sys/mount.h>

#include <linux/mount.h>

/* Since 1.2.5 musl has a struct statx of its own, without the mount's id. The kernel's
 * takes its name. (The GNU C library, with which the checks compile this, has the
 * kernel's.) */
#ifndef __GLIBC__
#define statx		musl_statx
#define statx_timestamp musl_statx_timestamp
#endif
#include <sys/stat.h>
#undef statx
#undef statx_timestamp
#include <linux/stat.h>

#define RENAME_NOREPLACE	   1
#define W_EXITCODE(status, signal) ((status) << 8 | (signal))

/* musl's malloc() has none of these settings, nor what they are for. */
#define M_MMAP_THRESHOLD 0
#define M_TOP_PAD	 0
int mallopt(int what, int value);
int malloc_trim(size_t pad);

int close_range(unsigned int first, unsigned int last, int flags);
int execveat(int dir, const char *path, char *const argv[], char *const environment[],
	     int flags);
int statx(int dir, const char *path, int flags, unsigned int mask, struct statx *ret);
int renameat2(int from_dir, const char *from, int to_dir, const char *to,
	      unsigned int flags);
int open_tree(int dir, const char *path, unsigned int flags);
int move_mount(int from_dir, const char *from, int to_dir, const char *to,
	       unsigned int flags);
int mount_setattr(int dir, const char *path, unsigned int flags, struct mount_attr *attr,
		  size_t size);
int fsopen(const char *type, unsigned int flags);
int fsconfig(int fs, unsigned int cmd, const char *key, const void *value, int aux);
int fsmount(int fs, unsigned int flags, unsigned int attrs);
