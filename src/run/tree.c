// SPDX-License-Identifier: Apache-2.0
#include "run/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>

enum { BATCH = 128 }; /* descriptors in one message; the kernel takes 253 */

struct batch {
	uint8_t present[BATCH]; /* 1: a descriptor follows for this tree */
};

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
	if (r < 0 && userns_fd >= 0)
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

static int send_batch(int sock, const struct tree *trees, size_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * BATCH)];
	} control = { 0 };
	struct batch batch = { 0 };
	struct iovec iov = { &batch, sizeof(batch) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[BATCH];
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		if (trees[i].fd < 0)
			continue;
		batch.present[i] = 1;
		fds[n++] = trees[i].fd;
	}
	if (n > 0) {
		struct cmsghdr *c = &control.align;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int trees_send(int sock, const struct tree *trees, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i += BATCH)
		r = send_batch(sock, trees + i, MIN(count - i, (size_t)BATCH));
	return r;
}

static int receive_batch(int sock, struct tree *trees, size_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * BATCH)];
	} control = { 0 };
	struct batch batch;
	struct iovec iov = { &batch, sizeof(batch) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = got < 0 ? NULL : CMSG_FIRSTHDR(&msg);
	size_t have = c ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0, used = 0;

	if (got < 0)
		return -errno;
	if (got != sizeof(batch) || (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC)))
		return -EPIPE;
	for (size_t i = 0; i < count; i++) {
		trees[i].fd = -1;
		if (!batch.present[i])
			continue;
		if (used == have)
			return -EBADMSG;
		memcpy(&trees[i].fd, CMSG_DATA(c) + sizeof(int) * used++, sizeof(int));
	}
	return 0;
}

int trees_receive(int sock, struct tree *trees, size_t count)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i += BATCH)
		r = receive_batch(sock, trees + i, MIN(count - i, (size_t)BATCH));
	return r;
}
