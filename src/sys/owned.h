// SPDX-License-Identifier: Apache-2.0
/* sys/owned - is a path root's and this user's alone?
 *
 * What tells Weir what to do (its configuration, its profiles, the programs that it
 * starts) must not be what another user has put there. That is so when nobody but root
 * and the effective user may change the file, nor put another one in its place: they own
 * it and every directory on the way to it, and no group and nobody else may write there.
 * A group that has only this user in it counts as the user. In a sticky directory (/tmp)
 * what belongs to root or the user can't be replaced by others. For a symbolic link on
 * the way, and for the way to where it leads, the same holds.
 *
 * path_open_owned() walks; the judgement is here. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* The judgement of one walk; { 0 } to begin with. */
struct owned {
	bool roots;	    /* root's alone: the effective user counts as another */
	struct err refused; /* the first reason not to trust the path, or code 0 */
};

/* The walk found @entry in the directory @dir. */
void owned_step(struct owned *o, const struct stat *dir, const struct stat *entry);
/* The walk ends at @st, no link. */
void owned_end(struct owned *o, const struct stat *st);
