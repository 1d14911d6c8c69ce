// SPDX-License-Identifier: Apache-2.0
/* sys/owned - is a path root's and this user's alone?
 *
 * What tells Weir what to do (its configuration, its profiles, the programs that it
 * starts) must not be what another user has put there. That is so when nobody but root
 * and the effective user may change the file, nor put another one in its place: they own
 * it and every directory on the way to it, and no group and nobody else may write there.
 * A group that has only this user in it counts as the user. In a sticky directory (/tmp)
 * what belongs to root or the user can't be replaced by others. A symbolic link on the
 * way is followed, and the way to where it leads is looked at in the same manner. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* Find @path, relative to @dir or AT_FDCWD, without opening what is there.
 * @follow: its last part may be a link; otherwise the link itself is found.
 * Return: a descriptor (O_PATH), or -errno: -EPERM when somebody else could have put it
 * there, with whose it is in @err. */
int owned_find(int dir, const char *path, bool follow, struct err *err) MUST_CHECK;

/* Only root and the effective user may write to it. */
bool owned_is(const struct stat *st);
