// SPDX-License-Identifier: Apache-2.0
#include "launch/entry_filter.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stddef.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/hash.h"
#include "base/macros.h"
#include "sys/files.h"

enum { ENTRIES_READ_MAX = 1000 }; /* more: all bits are set */

enum { ZFS_MAGIC = 0x2fc12fc1, BCACHEFS_MAGIC = 0xca451a4e }; /* no header has them */

/* Does a listing of @dir have every name that a look-up finds? It has on these. An
 * automounter, FUSE or a server may make a name when it is asked for. */
static bool lists_all(int dir)
{
	static const uint32_t local[] = {
		EXT4_SUPER_MAGIC, /* ext2 and ext3 too */
		XFS_SUPER_MAGIC,  BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,	    ZFS_MAGIC,
		BCACHEFS_MAGIC,	  TMPFS_MAGIC,	     OVERLAYFS_SUPER_MAGIC,
	};
	struct statfs fs;

	if (fstatfs(dir, &fs) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(local); i++) {
		if ((uint32_t)fs.f_type == local[i])
			return true;
	}
	return false;
}

/* Without case, which some file systems don't tell apart. */
static size_t entry_bit(const char *name, size_t len)
{
	static const struct hash_key any = { 0 };
	char lower[NAME_MAX];

	len = MIN(len, sizeof(lower));
	for (size_t i = 0; i < len; i++)
		lower[i] = (char)(name[i] | 0x20);
	return hash_bytes(&any, lower, len) % ENTRY_FILTER_BITS;
}

void entry_filter_read(struct entry_filter *f, const char *directory)
{
	CLEAN(directory) DIR *dir = opendir(directory);
	const struct dirent *entry;
	bool is_known;

	/* Many of the system's users have a home that isn't there. */
	if (!dir && errno == ENOENT)
		return;
	is_known = dir && lists_all(dirfd(dir));
	errno = 0;
	for (size_t n = 0; is_known && (entry = readdir(dir)); n++) {
		const size_t len = strlen(entry->d_name);
		const size_t bit = entry_bit(entry->d_name, len);
		size_t ascii = 0;

		while (ascii < len && (unsigned char)entry->d_name[ascii] < 0x80)
			ascii++;
		is_known = n < ENTRIES_READ_MAX && ascii == len;
		f->bits[bit / 64] |= UINT64_C(1) << bit % 64;
	}
	if (!is_known || errno != 0)
		memset(f->bits, 0xff, sizeof(f->bits));
}

bool entry_filter_may_have(const struct entry_filter *f, const char *path)
{
	size_t bit = entry_bit(path, strcspn(path, "/"));

	return f->bits[bit / 64] >> bit % 64 & 1;
}
