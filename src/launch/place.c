// SPDX-License-Identifier: Apache-2.0
#include "launch/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "launch/channel.h"

/* Writable, these would undo the sandbox: they hold the kernel's own files, or the
 * sockets of every daemon. A directory that contains one of them is as bad. */
static const char *const never_writable[] = {
	"/proc", "/sys", "/dev/pts", "/dev/mqueue", "/run", "/var/run", "/etc",
};

static bool may_be_writable(const char *path)
{
	if (path_is_within(path, "/dev") && !path_is_within(path, "/dev/shm"))
		return false;
	if (path_is_within(path, "/proc") || path_is_within(path, "/sys"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(never_writable); i++) {
		if (path_is_within(never_writable[i], path))
			return false;
	}
	return true;
}

static int add_tree(struct view *v, const char *path, enum tree_kind kind,
		    struct err *err)
{
	if (v->tree_count == TREES_MAX)
		return err_set(err, -E2BIG, "more than %d mounts and paths", TREES_MAX);
	v->trees[v->tree_count++] = (struct tree){ .path = path, .kind = kind, .fd = -1 };
	return 0;
}

/* The path must be what it says it is: a symlink on the way could be changed by the
 * command, and the next run would share something else. */
static int check_path(const char *path, struct err *err)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return err_sys(err, -errno, "cannot share '%s'", path);
	if (strcmp(real, path) != 0)
		return err_set(err, -EINVAL, "cannot share '%s': it is a link to '%s'",
			       path, real);
	return 0;
}

static int plan_cwd(struct view *v, struct err *err)
{
	int r = check_path(v->spec->cwd, err);

	if (r < 0)
		return r;
	if (!may_be_writable(v->spec->cwd)) {
		channel_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"the working directory '%s' stays read-only in the sandbox",
			v->spec->cwd);
		return 0;
	}
	return add_tree(v, v->spec->cwd, TREE_WRITABLE, err);
}

static int plan_writable(struct view *v, const char *path, struct err *err)
{
	int r = check_path(path, err);

	if (r < 0)
		return r;
	if (!may_be_writable(path))
		return err_set(err, -EPERM, "'%s' can't be writable in a sandbox", path);
	return add_tree(v, path, TREE_WRITABLE, err);
}

static bool is_below_writable(const struct view *v, const char *path)
{
	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		if (v->trees[i].kind == TREE_WRITABLE &&
		    path_is_within(path, v->trees[i].path))
			return true;
	}
	return false;
}

static int plan_readonly(struct view *v, const char *path, struct err *err)
{
	int r = check_path(path, err);

	if (r < 0 || !is_below_writable(v, path))
		return r;
	return add_tree(v, path, TREE_READONLY, err);
}

/* The host's sockets in what is writable. */
static int plan_masks(struct view *v, struct err *err)
{
	const char **tops = calloc(v->tree_count + 1, sizeof(*tops));
	size_t count = 0;
	int r;

	if (!tops)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		if (v->trees[i].kind == TREE_WRITABLE)
			tops[count++] = v->trees[i].path;
	}
	r = sockets_find(&v->mounts, tops, count, &v->sockets, err);
	free(tops);
	return r;
}

int place_plan(struct view *v, struct err *err)
{
	int r = plan_cwd(v, err);

	for (size_t i = 0; r == 0 && i < v->spec->rw_count; i++)
		r = plan_writable(v, v->spec->rw[i], err);
	for (size_t i = 0; r == 0 && i < v->spec->ro_count; i++)
		r = plan_readonly(v, v->spec->ro[i], err);
	return r < 0 ? r : plan_masks(v, err);
}

/* --- in the child --- */

/* In a place that is private to the sandbox (/tmp, /run, /dev/shm) the host's
 * directories are missing: make those on the way to @path. */
static int make_way(const struct view *v, const char *path, bool is_dir, struct err *err)
{
	char way[PATH_MAX];
	size_t len = strlen(path);

	if (len >= sizeof(way))
		return err_set(err, -ENAMETOOLONG, "the path '%s' is too long", path);
	for (size_t i = 1; i <= len; i++) {
		CLEAN(fd) int at = -1;
		CLEAN(fd) int parent = -1;
		char *name;

		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(way, path, i);
		way[i] = '\0';
		at = view_lookup(v, way);
		if (at >= 0)
			continue;
		name = strrchr(way, '/');
		*name++ = '\0';
		parent = view_lookup(v, way[0] ? way : "/");
		if (parent < 0)
			return err_sys(err, parent, "cannot find '%s' in the sandbox",
				       way);
		if (path[i] == '/' || is_dir) {
			if (mkdirat(parent, name, 0755) < 0)
				return err_sys(err, -errno,
					       "cannot create '%s' in the sandbox", path);
		} else {
			CLEAN(fd)
			int file =
				openat(parent, name, O_CREAT | O_EXCL | O_CLOEXEC, 0600);

			if (file < 0)
				return err_sys(err, -errno,
					       "cannot create '%s' in the sandbox", path);
		}
	}
	return 0;
}

/* Mount the directory @path of the view on itself. A mount point can't be renamed. */
static int pin_directory(struct view *v, const char *path, struct err *err)
{
	CLEAN(fd) int at = view_lookup(v, path);
	CLEAN(fd) int copy = -1;

	if (at < 0)
		return err_sys(err, at, "cannot find '%s' in the sandbox", path);
	copy = open_tree(at, "",
			 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
				 AT_RECURSIVE);
	if (copy < 0)
		return err_sys(err, -errno, "cannot protect '%s'", path);
	return view_attach(v, copy, path, err);
}

/* Were a directory on the way to a read-only file renamed, another file could be put
 * in its place for the next run to find. */
static int pin_way(struct view *v, const char *path, const char *top, struct err *err)
{
	char way[PATH_MAX];
	size_t len = strlen(path);
	int r = 0;

	for (size_t i = strlen(top) + 1; r == 0 && i < len && len < sizeof(way); i++) {
		if (path[i] != '/')
			continue;
		memcpy(way, path, i);
		way[i] = '\0';
		r = pin_directory(v, way, err);
	}
	return r;
}

/* The outermost writable tree that holds @path. */
static const char *writable_top(const struct view *v, const char *path)
{
	const char *top = NULL;

	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		const struct tree *t = &v->trees[i];

		if (t->kind == TREE_WRITABLE && path_is_within(path, t->path) &&
		    (!top || strlen(t->path) < strlen(top)))
			top = t->path;
	}
	return top;
}

static int attach_tree(struct view *v, const struct tree *t, struct err *err)
{
	struct stat st;
	int r;

	if (fstat(t->fd, &st) < 0)
		return err_sys(err, -errno, "cannot look at '%s'", t->path);
	r = make_way(v, t->path, S_ISDIR(st.st_mode), err);
	if (r == 0 && t->kind == TREE_READONLY)
		r = pin_way(v, t->path, writable_top(v, t->path), err);
	return r < 0 ? r : view_attach(v, t->fd, t->path, err);
}

/* A socket that has gone since it was found needs no mask. */
static int mask(struct view *v, const char *path, struct err *err)
{
	CLEAN(fd) int at = view_lookup(v, path);
	CLEAN(fd) int copy = -1;

	if (at == -ENOENT)
		return 0;
	copy = open_tree(AT_FDCWD, VIEW_NOTHING, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (copy < 0)
		return err_sys(err, -errno, "cannot mask the unix socket '%s'", path);
	return view_attach(v, copy, path, err);
}

int place_build(struct view *v, struct err *err)
{
	int r = 0;

	for (size_t i = v->layer_count; r == 0 && i < v->tree_count; i++)
		r = attach_tree(v, &v->trees[i], err);
	for (size_t i = 0; r == 0 && i < v->sockets.count; i++)
		r = mask(v, v->sockets.paths[i], err);
	return r;
}
