// SPDX-License-Identifier: Apache-2.0
/* launch/git_links - symbolic links in a git directory.
 *
 * Git makes none there but such as lead to another of its refs, and writes through any: a
 * message, a log. Objects are not written so, and aren't looked at; nor is what isn't
 * git's in its directory. */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "base/arena.h"

/* A link; its name is the arena's. */
struct git_link {
	const char *name; /* whole */
	ino_t ino;
	struct timespec ctim; /* no call sets it */
};

struct git_links {
	struct git_link *items; /* owned */
	size_t count, capacity;
	const char *closed; /* a directory that can't be read, or NULL */
	bool is_cut;	    /* there was more than is looked at */
};

/* Add those in the git directory @directory to @links. @opens: a directory of the
 * effective user's own whose rights were taken away gets them back. */
void git_links_find(const char *directory, bool opens, struct arena *arena,
		    struct git_links *links);
/* Order them by name, once all are found. */
void git_links_sort(struct git_links *links);
/* Is @link in @links, which are sorted, as it is? */
bool git_links_has(const struct git_links *links, const struct git_link *link);
void git_links_done(struct git_links *links);
/* Give the owner of the open directory @fd, if that is the effective user, all rights in
 * it. */
void git_links_open_up(int fd);
