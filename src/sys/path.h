// SPDX-License-Identifier: Apache-2.0
/* sys/path - a path that was named from outside, looked up once.
 *
 * HOW IT WORKS
 *   Somebody who may write to a directory on the way to a path can exchange what the path
 *   leads to between two look-ups. So the path is walked component by component, each
 *   opened without following a link, and what is found at the end is held as a
 *   descriptor: it is judged by the descriptor and mounted from it. The name is kept for
 *   messages, for comparisons, and to show the file at its place.
 *
 *   Links on the way are followed here, and remembered. A link may have been left by an
 *   earlier command in a sandbox, for a later run to follow. Only links that no such
 *   command can have made are trusted: root's own, in directories that root alone may
 *   write to; and for root, whose sandboxes make root's links, only those in "/", "/usr",
 *   "/var" and "/etc".
 *
 *   What tells Weir what to do (its configuration, its profiles, the programs that it
 *   starts) must not be what another user has put there. That is so when nobody but root
 *   and the effective user may change the file, nor put another one in its place: they
 * own it and every directory on the way to it, and no group and nobody else may write
 * there. A group that has only this user in it counts as the user. In a sticky directory
 * (/tmp) what belongs to root or the user can't be replaced by others. For a symbolic
 * link on the way, and for the way to where it leads, the same holds. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

enum { PATH_LINKS_MAX = 40 }; /* on the way to one path: the kernel's own limit */

struct path {
	int fd;	    /* O_PATH; owned */
	char *name; /* canonical; owned */
	struct stat st;
	uint64_t mount_id; /* as in /proc/self/mountinfo; 0: the kernel doesn't say */
	char *links[PATH_LINKS_MAX]; /* that were followed, by canonical name; owned */
	size_t link_count;
	const char *untrusted; /* the first of them that isn't trusted, or NULL */
};

/* Look up @name, which counts from the working directory unless it begins with '/'.
 * Return: 0, -ENOENT, another -errno. */
int path_open(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* The same; directories that are missing are made, the last one for the user alone, but
 * none behind a link that isn't trusted: -ELOOP. */
int path_open_made(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* The directory that holds @name, which needn't exist. *@ret_last: its last component,
 * points into @name. */
int path_open_parent(const char *name, struct path *ret, const char **ret_last,
		     struct err *err) MUST_CHECK;
/* As path_open(), of what nobody but root and the effective user can have put there
 * (see above): -EPERM otherwise. What isn't there is -ENOENT whoever owns the way. */
int path_open_owned(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* The same of the way to it; what is at its end is the caller's to judge. */
int path_open_owned_way(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* As path_open_owned(), of what nobody but root can have put there. */
int path_open_roots(const char *name, struct path *ret, struct err *err) MUST_CHECK;
void path_done(struct path *p);
static inline void clean_path(struct path *p)
{
	path_done(p);
}

/* Are both of one file? */
static inline bool stat_is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The file of @fd, which may be of another mount namespace, opened by its @name in this
 * one. No link is followed, and another file is refused.
 * Return: 0 with an O_PATH descriptor, -ESTALE, another -errno. */
int path_reopen(int fd, const char *name, int *ret_fd) MUST_CHECK;
