// SPDX-License-Identifier: Apache-2.0
/* launch/startup_scan - the search of startup_files, as its parts see it: startup_files.c
 * walks and follows links, startup_git.c knows where git looks. What is added here is
 * held where it lies in a writable directory, and left alone elsewhere. Each function
 * returns 0 or -errno, with @err set; what isn't there is no fault. */
#pragma once

#include <errno.h>

#include "launch/startup_files.h"

struct scan {
	struct startup_files *files;
	const struct path *tops; /* all writable directories */
	size_t top_count;
	const struct path *top; /* the one that is walked */
	char **queue;		/* owned, with what is left in it: relative to the top */
	size_t first, last;
	size_t entries;
	bool after; /* the end: nothing is made */
};

/* Since its directory was read. Another fault is no answer: what it hides may be there.
 */
static inline bool scan_has_gone(int code)
{
	return code == -ENOENT || code == -ENOTDIR || code == -ELOOP;
}

/* Add @name, which no link is on the way to, where it lies in a writable directory,
 * whichever it is. @reason NULL: its name says why. */
int scan_add_in_tops(struct scan *scan, const char *name, const char *reason,
		     struct err *err) MUST_CHECK;
/* Each link on the way to @p could be led elsewhere. */
int scan_add_way(struct scan *scan, const struct path *p, const char *reason,
		 struct err *err) MUST_CHECK;
/* Add what lies at @name, and the links on the way. Where that is a directory outside of
 * the writable ones, something in it may be a link to a script that is not. */
int scan_add_named(struct scan *scan, const char *name, const char *reason,
		   struct err *err) MUST_CHECK;

/* Add what git obeys in the git directory @dir, of the working tree @worktree.
 * @is_linked: git worktree made that, and @dir is its repository's. */
int scan_add_git(struct scan *scan, const char *dir, const char *worktree, bool is_linked,
		 struct err *err) MUST_CHECK;
/* Add what git obeys in the working tree @top, where its entry `.git` is, or leads to, a
 * git directory: whoever made that. */
int scan_add_repository(struct scan *scan, const char *top, struct err *err) MUST_CHECK;
/* Add what the configs of the caller and of the machine name, for a command of git's in
 * @top. */
int scan_add_own_configs(struct scan *scan, const char *top, struct err *err) MUST_CHECK;
