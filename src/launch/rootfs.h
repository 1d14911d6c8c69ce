// SPDX-License-Identifier: Apache-2.0
/* launch/rootfs - the file system as the command sees it.
 *
 * HOW IT WORKS
 *   A read-only bind of a directory doesn't stop connect() to the unix sockets in it,
 *   and every daemon of the host that listens on one is a way out. A socket seen
 *   through a lower layer of an overlay refuses: its inode is another. So the view
 *   is made of read-only overlays, one per file system that is mounted:
 *
 *     /tmp              our staging tmpfs, in the launch child's mount namespace
 *     /tmp/view         what becomes the root (launch/enter.h)
 *     /tmp/top          upper layer of "/": our /etc/resolv.conf, hiding whatever is
 *                       there (a file, a symlink into /run, nothing)
 *     /tmp/layer/N      root: the id-mapped mounts that are the lower layers
 *
 *   Nor is a plain bind safe where no socket lies at the start: one that is made later
 *   could be connected, those of other network namespaces can't be listed, and a named
 *   pipe leads to whoever has it open. An overlay costs 1 to 3 us a file; paths that are
 *   named have plain binds, with masks.
 *
 *   The kernel doesn't let an ordinary user make a layer of a directory that has
 *   mounts below it, for what they hide would show. For them such a directory is
 *   a directory of the staging tmpfs, its entries one by one: "/" has /proc and /dev
 *   below it, so it is always that.
 *
 *   Nothing of the host's /proc, /run, /tmp, /var/tmp is there, and of its /dev only
 *   null, zero, full, random, urandom and tty. /sys is a read-only bind. On top come the
 * working directory and the paths that were asked to be writable, and on these the
 * read-only files. */
#pragma once

#include "launch/launch.h"
#include "launch/sockets.h"
#include "launch/tree.h"
#include "sys/mounts.h"

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
	struct tree *trees; /* owned; the layers first (root only), then the paths */
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

/* @path is absolute and canonical: a link on the way is an error. Return: an O_PATH
 * descriptor of the view, or -errno. */
int rootfs_lookup(const struct rootfs *v, const char *path) MUST_CHECK;
/* Attach the mount @fd there. */
int rootfs_attach(struct rootfs *v, int fd, const char *path, struct err *err) MUST_CHECK;
