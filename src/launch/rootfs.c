// SPDX-License-Identifier: Apache-2.0
#include "launch/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "base/text.h"
#include "launch/bind_mount.h"
#include "launch/hide.h"
#include "launch/launch.h"
#include "launch/startup_files.h"
#include "sys/files.h"

/* === trees === */

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

/* Return: a descriptor of the copy, or -errno. */
static int copy_tree(const struct tree *t, bool own_namespace)
{
	const unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_NO_AUTOMOUNT |
				   AT_EMPTY_PATH;
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_NO_SYMLINKS };
	CLEAN(fd) int again = -1;
	struct statx x;
	int from, fd, r;

	if (!t->source) {
		/* A layer is the mount itself, whatever somebody has put in the place of
		 * a directory on the way. */
		again = (int)syscall(SYS_openat2, AT_FDCWD, t->path, &how, sizeof(how));
		if (again < 0 || statx(again, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) < 0)
			return -errno;
		/* The root of this process stays where it is when something is mounted
		 * over it. */
		if (strcmp(t->path, "/") != 0 && (x.stx_mask & STATX_MNT_ID) &&
		    x.stx_mnt_id != t->mount_id)
			return -ENOENT;
		fd = open_tree(again, "", flags);
		return fd < 0 ? -errno : fd;
	}
	from = t->source->fd;
	if (!own_namespace) {
		r = path_reopen(from, t->path, &again);
		if (r < 0)
			return r;
		from = again;
	}
	fd = open_tree(from, "", flags | AT_RECURSIVE);
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

/* === what is shown of the host === */

enum { FD_NAME_MAX = 32 }; /* "/proc/self/fd/N" */

#define STAGE_TOP   ROOTFS_STAGE "/top"
#define STAGE_LAYER ROOTFS_STAGE "/layer"
#define SYS_CGROUP  "/sys/fs/cgroup"
#define SYS_LINKS   "/sys/class/net"

static const char resolv_conf[] = "nameserver 127.0.0.1\noptions edns0\n";

/* Never taken from the host. /sys is bound by itself, resolv.conf is ours. */
static const char *const replaced[] = {
	"/proc",    "/dev",	"/run", "/tmp",
	"/var/tmp", "/var/run", "/sys", "/etc/resolv.conf",
};

/* Mounted elsewhere than in a replaced place, these are empty in the view: they show the
 * kernel, not files, or mount something when they are looked at. */
static const char *const emptied[] = {
	"proc",	    "devpts",	   "mqueue",	 "autofs",
	"devtmpfs", "binfmt_misc", "rpc_pipefs", "nsfs",
};

/* On these no unix socket can lie, so that a plain bind is as good as an overlay where
 * they can't be a layer of one. */
static const char *const socketless[] = {
	"vfat",	      "exfat",	  "iso9660",  "squashfs", "erofs",     "cgroup",
	"cgroup2",    "sysfs",	  "debugfs",  "tracefs",  "bpf",       "pstore",
	"securityfs", "configfs", "efivarfs", "fusectl",  "selinuxfs",
};

static bool is_replaced(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(replaced); i++) {
		if (path_is_within(path, replaced[i]))
			return true;
	}
	return false;
}

const char *rootfs_own_place(const char *path)
{
	static const char *const own[] = { "/tmp", "/var/tmp", "/run", "/dev/shm" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (path_is_within(path, own[i]) && strcmp(path, own[i]) != 0)
			return own[i];
	return NULL;
}

static bool is_emptied(const struct mount *m)
{
	return text_is_one_of(m->type, emptied, ARRAY_SIZE(emptied));
}

/* --- plan --- */

int rootfs_plan(struct rootfs *v, const struct launch_machine *m,
		const struct launch_spec *spec, struct err *err)
{
	int r;

	v->spec = spec;
	v->root = m->root;
	v->root_fd = v->sockets.diag_fd = -1;
	r = mounts_read(false, &v->mounts, err);
	if (r < 0)
		return r;
	v->layers = calloc(v->mounts.count, sizeof(*v->layers));
	/* What was named, the working directory and what is mounted below it, the
	 * settings, a socket, and each file that runs outside later with what it leads
	 * to, and what is hidden. */
	v->trees = calloc(spec->rw_count + spec->shown_count + spec->ro_count + 3 +
				  v->mounts.count + 2 * STARTUP_MAX + HIDDEN_MAX,
			  sizeof(*v->trees));
	if (!v->layers || !v->trees)
		return err_sys(err, -ENOMEM, "cannot plan the file system view");
	for (size_t i = 0; v->root && i < v->mounts.count; i++) {
		const struct mount *at = &v->mounts.list[i];

		if (!is_replaced(at->path))
			v->layers[v->layer_count++] =
				(struct tree){ .path = at->path,
					       .mount_id = at->id,
					       .kind = is_emptied(at) ? TREE_HIDDEN
								      : TREE_LAYER,
					       .fd = -1 };
	}
	return place_plan(v, err);
}

/* Is the mount of the layer @t out of sight because of another mount on the way to it? */
static bool is_covered(const struct tree *t)
{
	struct mounts all = { 0 };
	struct err ignored = { 0 };
	const struct mount *m = mounts_read(true, &all, &ignored) == 0
					? mounts_numbered(&all, t->mount_id)
					: NULL;
	bool covered = m && mounts_is_hidden(&all, m);

	mounts_done(&all);
	return covered;
}

/* A mount that is gone, or that the kernel doesn't copy, hides its place all the same. */
static int open_layer(struct tree *t, int userns_fd, struct err *err)
{
	const int r = tree_open(t, userns_fd, err);

	if (strcmp(t->path, "/") == 0 ||
	    (r != -ENOENT && r != -ENOTDIR && r != -ELOOP && r != -EINVAL))
		return r;
	t->kind = is_covered(t) ? TREE_NONE : TREE_HIDDEN;
	return 0;
}

int rootfs_open_trees(struct rootfs *v, int userns_fd, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < v->layer_count; i++) {
		if (v->layers[i].kind == TREE_LAYER)
			r = open_layer(&v->layers[i], userns_fd, err);
	}
	for (size_t i = 0; r == 0 && i < v->tree_count; i++) {
		if (v->trees[i].kind != TREE_HIDDEN)
			r = tree_open(&v->trees[i], userns_fd, err);
	}
	return r;
}

void rootfs_done(struct rootfs *v)
{
	/* Before rootfs_plan() a descriptor in it is 0, which is somebody else's. */
	if (!v->spec)
		return;
	for (size_t i = 0; i < v->layer_count; i++)
		fd_close(&v->layers[i].fd);
	free(v->layers);
	for (size_t i = 0; i < v->tree_count; i++)
		fd_close(&v->trees[i].fd);
	free(v->trees);
	mounts_done(&v->mounts);
	for (size_t i = 0; i < v->sockets.count; i++)
		free(v->sockets.paths[i]);
	free(v->sockets.devices);
	fd_close(&v->sockets.diag_fd);
	for (size_t i = 0; i < v->hidden_count; i++)
		free(v->hidden[i].name);
	free(v->hidden);
	for (size_t i = 0; i < v->path_count; i++)
		path_done(&v->paths[i]);
	free(v->paths);
	if (v->root_fd >= 0)
		close(v->root_fd);
}

/* --- attaching --- */

static int look_up_below(int root_fd, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS };
	long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

int rootfs_lookup(const struct rootfs *v, const char *path)
{
	return look_up_below(v->root_fd, path);
}

int rootfs_attach(struct rootfs *v, int fd, const char *path, struct err *err)
{
	CLEAN(fd) int at = rootfs_lookup(v, path);

	if (at < 0)
		return err_sys(err, at, "cannot find '%s' in the sandbox", path);
	if (move_mount(fd, "", at, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot mount '%s' in the sandbox", path);
	return 0;
}

static int mount_tmpfs(const char *where, const char *options, struct err *err)
{
	if (mount("tmpfs", where, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		return err_sys(err, -errno, "cannot mount a tmpfs at '%s'", where);
	return 0;
}

/* @at is @where. */
static int attach_readonly(int fd, int at, const char *where, struct err *err)
{
	struct mount_attr attr = {
		.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
	};

	if (mount_setattr(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) <
		    0 ||
	    move_mount(fd, "", at, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot mount '%s'", where);
	return 0;
}

/* A read-only copy of @from, with all that is mounted below it, at @at, which is @where.
 */
static int bind_readonly(int from, int at, const char *where, struct err *err)
{
	const unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
	CLEAN(fd) int fd = open_tree(from, "", flags | AT_EMPTY_PATH);

	if (fd < 0)
		return err_sys(err, -errno, "cannot copy '%s'", where);
	return attach_readonly(fd, at, where, err);
}

/* --- layers --- */

/* Mount the overlay of the directory @source at @at. @path is what it is in the view: "/"
 * and "/etc" have a layer of ours above them. */
static int mount_overlay(const char *path, int source, int at, struct err *err)
{
	char options[128], where[FD_NAME_MAX];
	const char *top = ROOTFS_EMPTY;

	if (strcmp(path, "/") == 0)
		top = STAGE_TOP;
	else if (strcmp(path, "/etc") == 0)
		top = STAGE_TOP "/etc";
	snprintf(where, sizeof(where), "/proc/self/fd/%d", at);
	snprintf(options, sizeof(options), "lowerdir=%s:/proc/self/fd/%d", top, source);
	if (mount("overlay", where, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV,
		  options) < 0)
		return err_sys(err, -errno, "cannot make an overlay of '%s'", path);
	return 0;
}

/* It was there a moment ago, and there is nothing to show: files come and go. */
static bool is_gone(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* @r: why there is no overlay of the directory @source, which is @path, at @at; 0: there
 * is one. Show the directory as a bind when no socket lies there; else not at all. "/"
 * and "/etc" have to be overlays, for our own files are in them. Return: 1: it isn't
 * shown; 0; -errno. */
static int show_otherwise(struct rootfs *v, const char *path, int source, int at, int r,
			  struct err *err)
{
	const struct mount *m = mounts_holding(&v->mounts, path);
	struct stat st;

	if (r == 0 || r == -ENOSPC || strcmp(path, "/") == 0 || strcmp(path, "/etc") == 0)
		return r;
	/* @source is on the file system that the table of mounts names. */
	if (m && text_is_one_of(m->type, socketless, ARRAY_SIZE(socketless)) &&
	    fstat(source, &st) == 0 &&
	    (major(st.st_dev) << 20 | minor(st.st_dev)) == m->device)
		return bind_readonly(source, at, path, err);
	if (is_gone(source) || is_gone(at))
		return 1;
	launch_send_report(v->spec->control_fd, LAUNCH_WARNING, 0,
			   "'%s' is empty in the sandbox: its file system (%s) can't be "
			   "shown without the unix sockets in it (%s)",
			   path, m ? m->type : "unknown", strerror(-r));
	return 1;
}

/* Since the plan was made something may have been mounted below @path, and be in this
 * copy of the mounts: the kernel makes no overlay then. */
static bool has_more_below(const char *path)
{
	struct mounts now = { 0 };
	struct err ignored = { 0 };
	bool has = mounts_read(false, &now, &ignored) == 0 &&
		   mounts_has_below(&now, path);

	mounts_done(&now);
	return has;
}

static int write_resolv_conf(const struct rootfs *v, const char *dir, struct err *err)
{
	const char *search = v->spec->search;
	char path[PATH_MAX];
	CLEAN(fd) int fd = -1;

	snprintf(path, sizeof(path), "%s/resolv.conf", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || write(fd, resolv_conf, sizeof(resolv_conf) - 1) < 0 ||
	    (search && dprintf(fd, "search %s\n", search) < 0))
		return err_sys(err, -errno, "cannot write the sandbox's resolv.conf");
	return 0;
}

static int add_path(struct rootfs *v, int from, const char *path, const char *where,
		    const struct stat *st, struct err *err);

/* The directory @from, which is @path, can't be a layer: each entry by itself. */
static int add_split(struct rootfs *v, int from, const char *path, const char *where,
		     struct err *err)
{
	CLEAN(directory)
	DIR *dir = directory_open(openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	char child[PATH_MAX], child_where[PATH_MAX];
	const struct dirent *entry;
	int r = 0;

	if (!dir)
		return errno == EACCES || errno == ENOENT
			       ? 0
			       : err_sys(err, -errno, "cannot read '%s'", path);
	while (r == 0 && (entry = directory_next(dir))) {
		int n = snprintf(child, sizeof(child), "%s/%s", path[1] ? path : "",
				 entry->d_name);
		int m = snprintf(child_where, sizeof(child_where), "%s/%s", where,
				 entry->d_name);
		CLEAN(fd) int at = -1;
		struct stat st;

		if (n >= (int)sizeof(child) || m >= (int)sizeof(child_where))
			return err_set(err, -ENAMETOOLONG, "the path '%s' is too long",
				       path);
		if (is_replaced(child))
			continue;
		at = openat(dirfd(dir), entry->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (at < 0 && (errno == EMFILE || errno == ENFILE))
			return err_sys(err, -errno, "cannot open '%s'", child);
		if (at >= 0 && fstat(at, &st) == 0)
			r = add_path(v, at, child, child_where, &st, err);
	}
	if (r == 0 && strcmp(path, "/etc") == 0)
		r = write_resolv_conf(v, where, err);
	return r;
}

enum { OVERLAY_TRIES = 8 }; /* while mounts below the directory come and go */

static bool is_empty(int from, const struct stat *st)
{
	CLEAN(directory) DIR *dir = NULL;

	/* Where a directory's links are counted each directory in it has one. */
	if (st->st_nlink > 2)
		return false;
	dir = directory_open(openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return dir && !directory_next(dir) && errno == 0;
}

/* What is closed to the user, or has nothing in it, needs no overlay: a directory of the
 * view's own shows as little. An overlay is the most expensive mount to make and to let
 * go, and many machines have half a dozen such directories. The user owns what is made
 * here, so what is closed gets no right for anybody; the view is read-only in the end. */
static int add_directory(struct rootfs *v, int from, const char *path, const char *where,
			 const struct stat *st, struct err *err)
{
	const struct mount *m = mounts_find(&v->mounts, path);
	const bool has_ours = strcmp(path, "/etc") == 0;
	/* May this user, whose command it will be, neither list nor enter it? */
	const bool closed =
		!m && !has_ours && faccessat(from, "", R_OK, AT_EMPTY_PATH) < 0 &&
		errno == EACCES && faccessat(from, "", X_OK, AT_EMPTY_PATH) < 0 &&
		errno == EACCES;
	CLEAN(fd) int at = -1;
	int r = -EINVAL;

	if (mkdir(where, closed ? 0 : st->st_mode & 0755) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot create '%s'", where);
	if (closed || (m && is_emptied(m)))
		return 0;
	if (mounts_has_below(&v->mounts, path))
		return add_split(v, from, path, where, err);
	if (!m && !has_ours && is_empty(from, st))
		return 0;
	at = open(where, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return err_sys(err, -errno, "cannot open '%s'", where);
	for (int tries = 0; r == -EINVAL && tries < OVERLAY_TRIES; tries++) {
		r = mount_overlay(path, from, at, err);
		if (r == -EINVAL && has_more_below(path))
			return add_split(v, from, path, where, err);
	}
	r = show_otherwise(v, path, from, at, r, err);
	return MIN(r, 0);
}

static int add_link(int from, const char *path, const char *where, struct err *err)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from, "", target, sizeof(target) - 1);

	if (n < 0)
		return err_sys(err, -errno, "cannot read the link '%s'", path);
	target[n] = '\0';
	if (symlink(target, where) < 0)
		return err_sys(err, -errno, "cannot create '%s'", where);
	return 0;
}

/* @from is @path, and stays what it was found to be, whatever somebody puts in its place.
 * Sockets, pipes and devices that lie beside a mount point are left out. */
static int add_path(struct rootfs *v, int from, const char *path, const char *where,
		    const struct stat *st, struct err *err)
{
	CLEAN(fd) int at = -1;

	if (S_ISDIR(st->st_mode))
		return add_directory(v, from, path, where, st, err);
	if (S_ISLNK(st->st_mode))
		return add_link(from, path, where, err);
	if (!S_ISREG(st->st_mode))
		return 0;
	at = open(where, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (at < 0)
		return err_sys(err, -errno, "cannot create '%s'", where);
	return bind_readonly(from, at, path, err);
}

/* The place of @path in the view so far. Layers show directories that somebody may still
 * exchange. */
static int find_place(const char *path)
{
	CLEAN(fd) int root = open(ROOTFS_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);

	return root < 0 ? -errno : look_up_below(root, path);
}

/* Root: the copy @t of one mount becomes the lower layer of its place @at in the view.
 * Return: 1: nothing of it can be shown; 0; -errno. */
static int show_layer(struct rootfs *v, const struct tree *t, size_t n, int at,
		      struct err *err)
{
	char layer[64];
	struct stat st;
	int r;

	if (fstat(t->fd, &st) < 0)
		return err_sys(err, -errno, "cannot look at the mount '%s'", t->path);
	if (S_ISREG(st.st_mode))
		return attach_readonly(t->fd, at, t->path, err);
	if (!S_ISDIR(st.st_mode))
		return 1;
	snprintf(layer, sizeof(layer), STAGE_LAYER "/%zu", n);
	if (mkdir(layer, 0700) < 0)
		return err_sys(err, -errno, "cannot create '%s'", layer);
	if (move_mount(t->fd, "", AT_FDCWD, layer, MOVE_MOUNT_F_EMPTY_PATH) < 0) {
		/* What was opened is the directory below a mount that had gone by then,
		 * as a container's does, and the directory has been removed as well. */
		if (errno == ENOENT && strcmp(t->path, "/") != 0)
			return 1;
		return err_sys(err, -errno, "cannot attach the mount '%s'", t->path);
	}
	r = mount_overlay(t->path, t->fd, at, err);
	return show_otherwise(v, t->path, t->fd, at, r, err);
}

/* The layers below show what each mount of the host covers. So a mount that isn't shown
 * itself still has its place masked. */
static int add_layer(struct rootfs *v, const struct tree *t, size_t n, struct err *err)
{
	CLEAN(fd) int at = find_place(t->path);
	int r = 1;

	if (t->kind == TREE_NONE || at == -ENOENT || at == -ENOTDIR || at == -ELOOP)
		return 0;
	if (at < 0)
		return err_sys(err, at, "cannot find '%s' in the sandbox", t->path);
	if (t->kind == TREE_LAYER)
		r = show_layer(v, t, n, at, err);
	return r > 0 ? mask_place(at, NULL, t->path, err) : r;
}

static int add_host(struct rootfs *v, struct err *err)
{
	CLEAN(fd) int top = -1;
	int r = 0;

	if (!v->root) {
		top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (top < 0)
			return err_sys(err, -errno, "cannot open '/'");
		r = mount_tmpfs(ROOTFS_ROOT, "mode=0755", err);
		return r < 0 ? r : add_split(v, top, "/", ROOTFS_ROOT, err);
	}
	for (size_t i = 0; r == 0 && i < v->layer_count; i++)
		r = add_layer(v, &v->layers[i], i, err);
	return r;
}

/* --- the sandbox's own places --- */

static int make_stage(struct rootfs *v, struct err *err)
{
	static const char *const dirs[] = {
		ROOTFS_ROOT,	  ROOTFS_EMPTY,	     STAGE_LAYER,      STAGE_TOP,
		STAGE_TOP "/etc", STAGE_TOP "/proc", STAGE_TOP "/dev", STAGE_TOP "/run",
		STAGE_TOP "/tmp", STAGE_TOP "/sys",
	};
	int r;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(err, -errno,
			       "cannot mount in a user namespace; a security module may "
			       "forbid it "
			       "(sysctl kernel.apparmor_restrict_unprivileged_userns)");
	r = mount_tmpfs(ROOTFS_STAGE, "mode=0755", err);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dirs); i++) {
		if (mkdir(dirs[i], 0755) < 0)
			r = err_sys(err, -errno, "cannot create '%s'", dirs[i]);
	}
	if (r < 0)
		return r;
	/* Writable by its mode, so that connect() says "refused"; the mounts are
	 * read-only. */
	if (mknod(ROOTFS_NOTHING, S_IFREG, 0) < 0 || chmod(ROOTFS_NOTHING, 0666) < 0)
		return err_sys(err, -errno, "cannot create '%s'", ROOTFS_NOTHING);
	return write_resolv_conf(v, STAGE_TOP "/etc", err);
}

static bool is_directory(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Where the entries of a directory are shown one by one its place is missing. */
static int make_place(const char *where, bool wanted, struct err *err)
{
	const char *path = where + strlen(ROOTFS_ROOT);
	CLEAN(fd) int from = -1;
	struct stat there, host;

	if (lstat(where, &there) == 0)
		return 0;
	from = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (!wanted && (from < 0 || fstat(from, &host) < 0))
		return 0;
	if (!wanted && S_ISLNK(host.st_mode))
		return add_link(from, path, where, err);
	if ((wanted || S_ISDIR(host.st_mode)) && mkdir(where, 0755) < 0)
		return err_sys(err, -errno, "cannot create '%s'", where);
	return 0;
}

static int make_private_places(struct rootfs *v, struct err *err)
{
	static const struct {
		const char *where;
		const char *options;
		bool wanted; /* also where the host has none */
	} places[] = {
		{ ROOTFS_ROOT "/run", "mode=0755", true },
		{ ROOTFS_ROOT "/tmp", "mode=1777", true },
		{ ROOTFS_ROOT "/var/tmp", "mode=1777", false },
		{ ROOTFS_ROOT "/var/run", "mode=0755", false },
	};
	char user[sizeof(ROOTFS_ROOT "/run/user/") + 12];
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(places); i++) {
		if (!v->root)
			r = make_place(places[i].where, places[i].wanted, err);
		if (r == 0 && (places[i].wanted || is_directory(places[i].where)))
			r = mount_tmpfs(places[i].where, places[i].options, err);
	}
	if (r == 0 && v->spec->home_tmp && mkdir(ROOTFS_ROOT ROOTFS_HOME, 0700) < 0)
		r = err_sys(err, -errno, "cannot make the sandbox's home");
	snprintf(user, sizeof(user), ROOTFS_ROOT "/run/user/%u", geteuid());
	if (r == 0 && (mkdir(ROOTFS_ROOT "/run/lock", 01777) < 0 ||
		       chmod(ROOTFS_ROOT "/run/lock", 01777) < 0 ||
		       mkdir(ROOTFS_ROOT "/run/user", 0755) < 0 || mkdir(user, 0700) < 0))
		r = err_sys(err, -errno, "cannot make the sandbox's /run");
	return r;
}

/* Both are root's alone to exchange. */
static int bind_by_name(const char *path, const char *where, struct err *err)
{
	CLEAN(fd) int from = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	CLEAN(fd) int at = open(where, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (from < 0 || at < 0)
		return err_sys(err, -errno, "cannot mount '%s'", where);
	return bind_readonly(from, at, where, err);
}

/* A /sys of the sandbox's own network namespace, and of what is mounted in the host's the
 * control groups alone: programs look there for their limits. Where the host's is partly
 * hidden, as in containers, the kernel allows no other: then the host's without the list
 * of its links. */
static int make_sys(struct rootfs *v, struct err *err)
{
	unsigned long flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
	const char *path = SYS_CGROUP, *where = ROOTFS_ROOT SYS_CGROUP;
	int r = 0;

	if (!v->root &&
	    (mkdir(ROOTFS_ROOT "/proc", 0755) < 0 ||
	     mkdir(ROOTFS_ROOT "/dev", 0755) < 0 || mkdir(ROOTFS_ROOT "/sys", 0755) < 0))
		return err_sys(err, -errno, "cannot create the sandbox's /proc");
	if (!is_directory("/sys"))
		return 0;

	if (mount("sysfs", ROOTFS_ROOT "/sys", "sysfs", flags, NULL) < 0) {
		r = bind_by_name("/sys", ROOTFS_ROOT "/sys", err);
		path = ROOTFS_EMPTY;
		where = ROOTFS_ROOT SYS_LINKS;
	}
	return r == 0 && is_directory(where) ? bind_by_name(path, where, err) : r;
}

static int open_root(struct rootfs *v, struct err *err)
{
	v->root_fd = open(ROOTFS_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (v->root_fd < 0)
		return err_sys(err, -errno, "cannot open the file system view");
	return 0;
}

/* --- /dev: harmless nodes, terminals of its own, /dev/shm --- */

#define DEV ROOTFS_ROOT "/dev"

static int bind_node(const char *from, const char *to, struct err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC };
	CLEAN(fd) int file = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CLEAN(fd)
	int node = open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (file < 0 || node < 0 ||
	    mount_setattr(node, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    move_mount(node, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot show '%s' in the sandbox", from);
	return 0;
}

static int make_dev(struct rootfs *v, struct err *err)
{
	static const char *const names[] = { "null",   "zero",	  "full",
					     "random", "urandom", "tty" };
	static const char *const links[][2] = {
		{ "/proc/self/fd", DEV "/fd" },
		{ "/proc/self/fd/0", DEV "/stdin" },
		{ "/proc/self/fd/1", DEV "/stdout" },
		{ "/proc/self/fd/2", DEV "/stderr" },
		{ "pts/ptmx", DEV "/ptmx" },
	};
	/* A command with a terminal of its own has no way to the caller's. */
	const int own = v->spec->terminal_fd, terminal = own > 0 ? own : STDOUT_FILENO;
	char from[32], to[sizeof(DEV) + 32], tty[PATH_MAX];
	int r = mount_tmpfs(DEV, "mode=0755", err);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
		snprintf(from, sizeof(from), "/dev/%s", names[i]);
		snprintf(to, sizeof(to), DEV "/%s", names[i]);
		r = bind_node(from, to, err);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(links); i++) {
		if (symlink(links[i][0], links[i][1]) < 0)
			r = err_sys(err, -errno, "cannot make the sandbox's /dev");
	}
	if (r == 0 && (mkdir(DEV "/pts", 0755) < 0 ||
		       mount("devpts", DEV "/pts", "devpts", MS_NOSUID | MS_NOEXEC,
			     "newinstance,ptmxmode=0666,mode=620") < 0))
		r = err_sys(err, -errno, "cannot make the sandbox's terminals");
	/* So that ttyname() finds the terminal that the caller gave the command. */
	if (r == 0 && isatty(terminal) && ttyname_r(terminal, tty, sizeof(tty)) == 0)
		r = bind_node(tty, DEV "/console", err);
	if (r < 0)
		return r;
	if (mkdir(DEV "/shm", 0755) < 0)
		return err_sys(err, -errno, "cannot create the sandbox's /dev/shm");
	return mount_tmpfs(DEV "/shm", "mode=1777", err);
}

int rootfs_build(struct rootfs *v, struct err *err)
{
	static int (*const steps[])(struct rootfs * v, struct err * err) = {
		make_stage, add_host,  make_private_places, make_sys,
		make_dev,   open_root, place_build,
	};

	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int r = steps[i](v, err);

		if (r == -ENOSPC)
			return err_context(err,
					   "file system view, of as many mounts as the "
					   "kernel allows (sysctl fs.mount-max)");
		if (r < 0)
			return err_context(err, "file system view");
	}
	/* What we made directories in ourselves is closed for writing at the end. */
	if (mount_setattr(v->root_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_sys(err, -errno, "cannot make the view read-only");
	return 0;
}
