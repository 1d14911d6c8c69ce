// SPDX-License-Identifier: Apache-2.0
#include "run/device.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define DEV ROOTFS_ROOT "/dev"

static int bind_node(struct rootfs *v, const char *from, const char *to, struct err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	CLEAN(fd) int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CLEAN(fd)
	int node = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int r = rootfs_count_mount(v, err);

	if (r < 0)
		return r;
	if (file < 0 || node < 0 ||
	    mount_setattr(node, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    move_mount(node, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot show '%s' in the sandbox", from);
	return 0;
}

static int bind_nodes(struct rootfs *v, struct err *err)
{
	static const char *const names[] = { "null",   "zero",	  "full",
					     "random", "urandom", "tty" };
	char from[32], to[sizeof(DEV) + 32];
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
		snprintf(from, sizeof(from), "/dev/%s", names[i]);
		snprintf(to, sizeof(to), DEV "/%s", names[i]);
		r = bind_node(v, from, to, err);
	}
	return r;
}

static int make_links(struct err *err)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", DEV "/fd" },
		{ "/proc/self/fd/0", DEV "/stdin" },
		{ "/proc/self/fd/1", DEV "/stdout" },
		{ "/proc/self/fd/2", DEV "/stderr" },
		{ "pts/ptmx", DEV "/ptmx" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		if (symlink(links[i][0], links[i][1]) < 0)
			return err_sys(err, -errno, "cannot make the sandbox's /dev");
	}
	return 0;
}

/* So that ttyname() finds the terminal that the caller gave the command. */
static int bind_console(struct rootfs *v, struct err *err)
{
	char tty[PATH_MAX];

	if (!isatty(STDOUT_FILENO) || ttyname_r(STDOUT_FILENO, tty, sizeof(tty)) != 0)
		return 0;
	return bind_node(v, tty, DEV "/console", err);
}

static int mount_terminals(struct rootfs *v, struct err *err)
{
	int r = rootfs_count_mount(v, err);

	if (r < 0)
		return r;
	if (mkdir(DEV "/pts", 0755) < 0 ||
	    mount("devpts", DEV "/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=620") < 0)
		return err_sys(err, -errno, "cannot make the sandbox's terminals");
	return 0;
}

int device_build(struct rootfs *v, struct err *err)
{
	int r = rootfs_mount_tmpfs(v, DEV, "mode=0755", err);

	if (r == 0)
		r = bind_nodes(v, err);
	if (r == 0)
		r = make_links(err);
	if (r == 0)
		r = mount_terminals(v, err);
	if (r == 0)
		r = bind_console(v, err);
	if (r < 0)
		return r;
	if (mkdir(DEV "/shm", 0755) < 0)
		return err_sys(err, -errno, "cannot create the sandbox's /dev/shm");
	return rootfs_mount_tmpfs(v, DEV "/shm", "mode=1777", err);
}
