// SPDX-License-Identifier: Apache-2.0
#include "launch/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>

static int set_attributes(int fd, const struct tree *t, int userns_fd)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				   .propagation = MS_PRIVATE };
	unsigned int flags = AT_EMPTY_PATH;

	if (t->kind != TREE_LAYER)
		flags |= AT_RECURSIVE;
	if (t->kind == TREE_READONLY || t->kind == TREE_SHOWN || t->kind == TREE_SOCKET)
		attr.attr_set |= MOUNT_ATTR_RDONLY;
	if (userns_fd >= 0) {
		attr.attr_set |= MOUNT_ATTR_IDMAP;
		attr.userns_fd = (uint64_t)userns_fd;
	}
	return mount_setattr(fd, "", flags, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static int copy_tree(const struct tree *t, bool own_namespace)
{
	const unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_NO_AUTOMOUNT;
	CLEAN(fd) int again = -1;
	int from, fd, r;

	if (!t->source) {
		fd = open_tree(AT_FDCWD, t->path, flags);
		return fd < 0 ? -errno : fd;
	}
	from = t->source->fd;
	if (!own_namespace) {
		r = path_reopen(from, t->path, &again);
		if (r < 0)
			return r;
		from = again;
	}
	fd = open_tree(from, "", flags | AT_EMPTY_PATH | AT_RECURSIVE);
	return fd < 0 ? -errno : fd;
}

int tree_open(struct tree *t, int userns_fd, struct err *err)
{
	CLEAN(fd) int fd = copy_tree(t, userns_fd >= 0);
	int r;

	t->fd = -1;
	if (fd == -ESTALE)
		return err_set(err, fd, "'%s' was exchanged during the start", t->path);
	if (fd < 0)
		return err_sys(err, fd, "cannot open '%s'", t->path);
	r = set_attributes(fd, t, userns_fd);
	/* A layer whose file system can't map ids is shown as it is: its files then
	 * belong to nobody in the sandbox. */
	if (r < 0 && t->kind == TREE_LAYER)
		r = set_attributes(fd, t, -1);
	else if (r < 0 && userns_fd >= 0)
		return err_sys(
			err, r,
			"cannot give the files in '%s' to the sandbox: this kernel "
			"can't map ids on its file system; use another directory, or "
			"start weir as an ordinary user",
			t->path);
	if (r < 0)
		return err_sys(err, r, "cannot copy the mount at '%s'", t->path);
	t->fd = TAKE_FD(fd);
	return 0;
}

void tree_close(struct tree *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
}
