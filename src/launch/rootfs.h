// SPDX-License-Identifier: Apache-2.0
/* launch/rootfs - the file system as the command sees it.
 *
 * HOW IT WORKS
 * A read-only bind of a directory doesn't stop connect() to the unix sockets in it, and
 * every daemon of the host that listens on one is a way out. A socket seen through a
 * lower layer of an overlay refuses: its inode is another. So the view is made of
 * read-only overlays, one per file system that is mounted:
 *
 *     /tmp              our staging tmpfs, in the launch child's mount namespace
 *     /tmp/view         what becomes the root (launch/launch.h)
 *     /tmp/top          upper layer of "/": our /etc/resolv.conf, hiding whatever is
 *                       there (a file, a symlink into /run, nothing)
 *     /tmp/layer/N      root: the id-mapped mounts that are the lower layers
 *
 * Nor is a plain bind safe where no socket lies at the start: one that is made later
 * could be connected, those of other network namespaces can't be listed, and a named
 * pipe leads to whoever has it open. An overlay costs 1 to 3 us a file; paths that are
 * named have plain binds, with masks.
 *
 * The kernel doesn't let an ordinary user make a layer of a directory that has mounts
 * below it, for what they hide would show. For them such a directory is a directory of
 * the staging tmpfs, its entries one by one: "/" has /proc and /dev below it, so it is
 * always that. An entry that is an empty directory, or one that is closed to the user, is
 * an empty directory of the tmpfs, too.
 *
 * Nothing of the host's /proc, /run, /tmp, /var/tmp is there, and of its /dev only null,
 * zero, full, random, urandom and tty. /sys is a read-only bind. On top come the working
 * directory and the paths that were asked to be writable, and on these the read-only
 * files.
 *
 * TREES: DETACHED COPIES OF MOUNTS
 * When weir is started by root, the command runs under kernel user ids that own nothing.
 * So that root's files stay root's to read and write, each mount is copied with an id
 * map of the child's user namespace. Only control, which stays in the namespace that
 * owns the file systems, may do that; the builder of the view inherits the copies as
 * descriptors and attaches them. An ordinary user's builder makes its own, unmapped.
 *
 * Everything is mounted from a descriptor, and at one: somebody who may write to a
 * directory of the host could have a name lead elsewhere between the look and the mount.
 * What was named is copied from the descriptor that it was judged by. An ordinary user's
 * builder can't copy mounts of the namespace that it came from: it opens the same file
 * by name in its own, and refuses another one. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "launch/launch.h"
#include "launch/mask.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum tree_kind {
	TREE_NONE = 0, /* of a layer: another mount covers it */
	TREE_LAYER,    /* one mount, without those below it: lower layer of the view */
	TREE_WRITABLE, /* a directory with all below it, writable in the view */
	TREE_SHOWN,    /* the same, but read-only */
	TREE_READONLY, /* read-only though below a writable directory */
	TREE_HIDDEN,   /* no copy: something empty in its place (launch/hide.h); of a
			* layer: the mount can't be shown */
	TREE_SOCKET,   /* a unix socket that the caller named, over its mask */
};

struct hidden;

struct tree {
	const char *path;	   /* borrowed */
	const struct path *source; /* borrowed; NULL: a layer, which @path leads to */
	struct hidden *hidden;	   /* borrowed: of a TREE_HIDDEN */
	enum tree_kind kind;
	uint32_t mount_id; /* of a layer: the number of the mount */
	bool is_startup; /* a TREE_READONLY that runs outside later; what can't be held is
			  * a warning */
	int fd;		 /* owned; -1: there is no copy */
};

/* Copy what @t says. @userns_fd: the user namespace whose id map the copy gets, or -1:
 * this namespace isn't the one that @t->source was opened in. */
int tree_open(struct tree *t, int userns_fd, struct err *err) MUST_CHECK;

#define ROOTFS_STAGE "/tmp"
#define ROOTFS_ROOT  ROOTFS_STAGE "/view"
/* The home of --home tmp, in the sandbox. */
#define ROOTFS_HOME "/tmp/home"
/* An empty file and an empty directory, mounted over what must not be seen. */
#define ROOTFS_NOTHING ROOTFS_STAGE "/nothing"
#define ROOTFS_EMPTY   ROOTFS_STAGE "/empty"

struct rootfs {
	const struct launch_spec *spec; /* borrowed */
	bool root;
	struct mounts mounts;
	struct tree *layers, *trees; /* owned; root only; the paths */
	size_t layer_count, tree_count;
	int root_fd;	    /* ROOTFS_ROOT, once it stands */
	struct path *paths; /* owned: what the trees borrow; those of spec->rw first, then
			       of spec->shown */
	size_t path_count;
	struct hidden *hidden; /* owned */
	size_t hidden_count;
	struct sockets sockets; /* of the host, in writable paths: to be masked */
};

/* In control: what to mount. @v is all zeros, and ends with
 * rootfs_done() whatever is returned. -EINVAL: as place_plan() has it. */
int rootfs_plan(struct rootfs *v, const struct launch_machine *m,
		const struct launch_spec *spec, struct err *err) MUST_CHECK;
/* Open every tree: in control with the child's user namespace, or in the builder. */
int rootfs_open_trees(struct rootfs *v, int userns_fd, struct err *err) MUST_CHECK;
/* In the builder, in the child's namespaces, the trees open: make the view. */
int rootfs_build(struct rootfs *v, struct err *err) MUST_CHECK;
void rootfs_done(struct rootfs *v);

/* The place below which @path lies, of those of which the sandbox has its own and nothing
 * of the host's is seen; NULL: in none. */
const char *rootfs_own_place(const char *path);

/* @path is absolute and canonical: a link on the way is an error. Return: an O_PATH
 * descriptor of the view, or -errno. */
int rootfs_lookup(const struct rootfs *v, const char *path) MUST_CHECK;
/* Attach the mount @fd there. */
int rootfs_attach(struct rootfs *v, int fd, const char *path, struct err *err) MUST_CHECK;
