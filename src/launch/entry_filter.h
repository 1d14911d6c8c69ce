// SPDX-License-Identifier: Apache-2.0
/* launch/entry_filter - what a directory can't have.
 *
 * Of 200 paths below a home most aren't there, and one look into the home is cheaper than
 * one for each path. A bit is set for each entry by the hash of its name; all bits are,
 * where not every entry can be known by its name: a directory that can't be read, or has
 * too much, or names outside ASCII, which some file systems take for other ones; and
 * every directory that isn't on a known local file system, for others answer look-ups of
 * names that they don't list. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { ENTRY_FILTER_BITS = 4096 };

struct entry_filter {
	uint64_t bits[ENTRY_FILTER_BITS / 64];
};

/* Add the entries of @directory: none, where it isn't there. */
void entry_filter_read(struct entry_filter *f, const char *directory);
/* Can the directory have @path, which counts from there? */
bool entry_filter_may_have(const struct entry_filter *f, const char *path);
