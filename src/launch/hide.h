// SPDX-License-Identifier: Apache-2.0
/* launch/hide - paths of the host that the command doesn't see: an empty read-only file
 * or directory is mounted over each.
 *
 * HOW IT WORKS
 *   What --hide names, and what of profiles/credentials.txt is there, is looked up once,
 *   in control. A place counts under each name that it has: behind symbolic links, in
 *   other mounts of its file system, and, for files of the user, as a hard link. Another
 *   hard link is searched for in the home and in the writable directories; one that isn't
 *   found is an error, because it may be in sight.
 *
 *   Each place becomes a tree (TREE_HIDDEN) among the others, in the order of their
 *   paths: over what is mounted above it, below what was named inside it. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

enum { HIDDEN_MAX = 1024 }; /* places, by all their names; more: the launch is refused */

struct rootfs;
struct tree;

struct hidden {
	char *name; /* canonical; owned */
	struct stat st;
	const char *kept; /* a file of the directory that stays, or NULL; borrowed */
	bool is_own;	/* it gets a directory of its own, for something is shown in it */
	bool is_masked; /* in the builder: it was there, and is out of sight */
};

/* In control, when all other trees are planned: add those that hide. */
int hide_plan(struct rootfs *v, struct err *err) MUST_CHECK;
/* In the builder, in the order of the trees: put @t out of sight. */
int hide_attach(struct rootfs *v, const struct tree *t, struct err *err) MUST_CHECK;
/* When all is mounted: nothing can be written there, and nobody has exchanged a place. */
int hide_finish(struct rootfs *v, struct err *err) MUST_CHECK;
