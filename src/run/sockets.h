// SPDX-License-Identifier: Apache-2.0
/* run/sockets - unix sockets of the host that lie in a writable path.
 *
 * HOW IT WORKS
 *   The view's overlays make the host's sockets refuse, but a writable path is the
 *   host's own directory. Before the launch the kernel is asked for every socket
 *   that is bound to a file, with the file's device and inode. The mount table says under
 *   which paths that file shows; where one is in a writable path, an empty file is
 *   mounted over it. A socket on the same file
 *   system whose name no longer leads to its inode (bound by a relative name, renamed,
 *   linked twice, deleted) is searched for by inode; when there is too much
 *   to search, the launch is refused.
 *
 *   What can't be seen: sockets of other network namespaces (containers) whose
 *   files are shared with this one, and those that are bound later. */
#pragma once

#include "base/err.h"
#include "run/mounts.h"

enum {
	SOCKETS_MAX = 1024,	     /* to mask, and to search for; more: refused */
	SOCKETS_SEARCH_MAX = 200000, /* directory entries looked at; more: refused */
};

struct sockets {
	char *paths[SOCKETS_MAX]; /* canonical, owned: to be masked */
	size_t count;
};

/* Find the sockets in the @count directories @tops. */
int sockets_find(const struct mounts *m, const char *const *tops, size_t count,
		 struct sockets *ret, struct err *err) MUST_CHECK;
void sockets_done(struct sockets *s);
