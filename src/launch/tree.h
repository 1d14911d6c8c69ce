// SPDX-License-Identifier: Apache-2.0
/* launch/tree - detached copies of mounts.
 *
 * When weir is started by root, the command runs under kernel user ids that own
 * nothing. So that root's files stay root's to read and write, each mount is copied
 * with an id map of the child's user namespace. Only control, which stays in the
 * namespace that owns the file systems, may do that; the builder of the view inherits the
 * copies as descriptors and attaches them. An ordinary user's builder makes its own,
 * unmapped.
 *
 * What was named is copied from the descriptor that it was judged by. An ordinary user's
 * builder can't copy mounts of the namespace that it came from: it opens the same file by
 * name in its own, and refuses another one. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "sys/path.h"

enum tree_kind {
	TREE_NONE = 0,
	TREE_LAYER,    /* one mount, without those below it: lower layer of the view */
	TREE_WRITABLE, /* a directory with all below it, writable in the view */
	TREE_SHOWN,    /* the same, but read-only */
	TREE_READONLY, /* read-only though below a writable directory */
	TREE_HIDDEN,   /* no copy: something empty in its place (launch/hide.h) */
	TREE_SOCKET,   /* a unix socket that the caller named, over its mask */
};

struct hidden;

struct tree {
	const char *path;	   /* borrowed */
	const struct path *source; /* borrowed; NULL: a layer, which @path leads to */
	struct hidden *hidden;	   /* borrowed: of a TREE_HIDDEN */
	enum tree_kind kind;
	bool is_startup; /* a TREE_READONLY that runs outside later; what can't be held is
			  * a warning */
	int fd;		 /* owned; -1: could not be copied, which only a TREE_LAYER may */
};

/* Copy what @t says. @userns_fd: the user namespace whose id map the copy gets, or -1:
 * this namespace isn't the one that @t->source was opened in. */
int tree_open(struct tree *t, int userns_fd, struct err *err) MUST_CHECK;
void tree_close(struct tree *t);
