// SPDX-License-Identifier: Apache-2.0
#include "run/entry_filter.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#include "base/hash.h"
#include "base/macros.h"

enum { ENTRIES_READ_MAX = 1000 }; /* more: all bits are set */

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

static bool is_ascii(const char *name)
{
	while (*name && (unsigned char)*name < 0x80)
		name++;
	return !*name;
}

static bool read_entries(struct entry_filter *f, DIR *dir)
{
	const struct dirent *entry;

	errno = 0;
	for (size_t n = 0; (entry = readdir(dir)); n++) {
		size_t bit = entry_bit(entry->d_name, strlen(entry->d_name));

		if (n == ENTRIES_READ_MAX || !is_ascii(entry->d_name))
			return false;
		f->bits[bit / 64] |= UINT64_C(1) << bit % 64;
	}
	return errno == 0;
}

void entry_filter_read(struct entry_filter *f, const char *directory)
{
	DIR *dir = opendir(directory);

	if (!dir || !read_entries(f, dir))
		memset(f->bits, 0xff, sizeof(f->bits));
	if (dir)
		closedir(dir);
}

bool entry_filter_may_have(const struct entry_filter *f, const char *path)
{
	size_t bit = entry_bit(path, strcspn(path, "/"));

	return f->bits[bit / 64] >> bit % 64 & 1;
}
