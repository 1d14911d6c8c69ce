// SPDX-License-Identifier: Apache-2.0
#include "run/bind_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "run/channel.h"
#include "run/writable.h"

static int add_tree(struct view *v, const char *path, enum tree_kind kind,
		    struct err *err)
{
	if (v->tree_count == TREES_MAX)
		return err_set(err, -E2BIG, "more than %d mounts and paths", TREES_MAX);
	v->trees[v->tree_count++] = (struct tree){ .path = path, .kind = kind, .fd = -1 };
	return 0;
}

/* The canonical form of @path, kept in the view. */
static int resolve(struct view *v, const char *path, const char **ret, struct err *err)
{
	char *real = realpath(path, NULL);

	if (!real)
		return err_sys(err, -errno, "cannot share '%s'", path);
	v->paths[v->path_count++] = real;
	*ret = real;
	return 0;
}

static bool is_of_kernel(const struct view *v, const char *path)
{
	const struct mount *m = mounts_containing(&v->mounts, path);

	return !m || mount_is_of_kernel(m);
}

static int plan_writable(struct view *v, const char *given, struct err *err)
{
	const char *path = NULL;
	struct stat st;
	int r = resolve(v, given, &path, err);

	if (r < 0)
		return r;
	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot share '%s'", path);
	/* A pipe or a socket leads to whoever is at its other end. */
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return err_set(err, -EPERM, "'%s' is neither a directory nor a file",
			       path);
	if (!writable_when_named(path) || is_of_kernel(v, path))
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

/* The sandbox has its own of these, where nothing of the host's is seen. */
static bool is_in_private_place(const char *path)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/run", "/dev/shm" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (strcmp(path, places[i]) != 0 && path_is_within(path, places[i]))
			return true;
	return false;
}

/* After the paths that were named: one of them may be it, or hold it. */
static int plan_cwd(struct view *v, struct err *err)
{
	const char *path = NULL;
	int r = resolve(v, v->spec->cwd, &path, err);

	if (r < 0 || is_below_writable(v, path))
		return r;
	if (writable_unasked(path) && !is_of_kernel(v, path))
		return add_tree(v, path, TREE_WRITABLE, err);
	channel_report(
		v->spec->control_fd, LAUNCH_WARNING, 0,
		"the working directory '%s' stays read-only in the sandbox%s", path,
		writable_when_named(path) ? "; name what is to be written with --rw"
					  : "");
	return is_in_private_place(path) ? add_tree(v, path, TREE_SHOWN, err) : 0;
}

/* Another name of the same file may lie in a writable directory too. */
static void warn_of_links(const struct view *v, const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1)
		channel_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"'%s' has other names (hard links), under which the command may "
			"be able to change it",
			path);
}

static int plan_readonly(struct view *v, const char *given, struct err *err)
{
	const char *path = NULL;
	int r = resolve(v, given, &path, err);

	if (r < 0 || !is_below_writable(v, path))
		return r;
	warn_of_links(v, path);
	return add_tree(v, path, TREE_READONLY, err);
}

static int check_links(const struct view *v, const char *path, unsigned int depth,
		       struct err *err);

/* @path up to @len is a link: may the command change it, or one that it leads to? */
static int check_link(const struct view *v, const char *path, size_t len,
		      unsigned int depth, struct err *err)
{
	char link[PATH_MAX], parent[PATH_MAX], target[PATH_MAX], next[2 * PATH_MAX];
	ssize_t n;

	snprintf(link, sizeof(link), "%.*s", (int)len, path);
	n = readlink(link, target, sizeof(target) - 1);
	if (n < 0)
		return errno == EINVAL ? 0
				       : err_sys(err, -errno, "cannot share '%s'", path);
	target[n] = '\0';
	*strrchr(link, '/') = '\0';
	if (!realpath(link[0] ? link : "/", parent))
		return err_sys(err, -errno, "cannot share '%s'", path);
	if (is_below_writable(v, parent))
		return err_set(
			err, -EPERM,
			"'%.*s' is a link in a directory that the command may write to; "
			"name the file that it leads to",
			(int)len, path);
	if (target[0] == '/')
		snprintf(next, sizeof(next), "%s", target);
	else
		snprintf(next, sizeof(next), "%s/%s", parent, target);
	return check_links(v, next, depth + 1, err);
}

/* A link that the command can change would lead the next run to share something else, or
 * to read another policy. */
static int check_links(const struct view *v, const char *path, unsigned int depth,
		       struct err *err)
{
	enum { DEPTH_MAX = 40 }; /* the kernel's own limit */
	size_t len = strlen(path);
	int r = 0;

	if (depth == DEPTH_MAX || len >= PATH_MAX)
		return err_set(err, -ELOOP, "cannot share '%s': too many links", path);
	for (size_t i = 1; r == 0 && i <= len; i++) {
		if ((path[i] == '/' || path[i] == '\0') && path[i - 1] != '/')
			r = check_link(v, path, i, depth, err);
	}
	return r;
}

static int check_given(const struct view *v, const char *path, struct err *err)
{
	char absolute[2 * PATH_MAX];

	if (path[0] == '/')
		return check_links(v, path, 0, err);
	if (snprintf(absolute, sizeof(absolute), "%s/%s", v->spec->cwd, path) >=
	    (int)sizeof(absolute))
		return err_set(err, -ENAMETOOLONG, "the path '%s' is too long", path);
	return check_links(v, absolute, 0, err);
}

/* A directory of the host's, as it is: not seen through an overlay. */
static bool is_bare(const struct tree *t)
{
	return t->kind == TREE_WRITABLE || t->kind == TREE_SHOWN;
}

static bool is_below_bare(const struct view *v, const char *path)
{
	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		if (is_bare(&v->trees[i]) && path_is_within(path, v->trees[i].path))
			return true;
	}
	return false;
}

/* The host's sockets in what is bare. */
static int plan_masks(struct view *v, struct err *err)
{
	const char **tops = calloc(v->tree_count + 1, sizeof(*tops));
	size_t count = 0;
	int r;

	if (!tops)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		if (is_bare(&v->trees[i]))
			tops[count++] = v->trees[i].path;
	}
	r = sockets_find(&v->mounts, tops, count, &v->sockets, err);
	free(tops);
	return r;
}

int place_plan(struct view *v, struct err *err)
{
	int r = 0;

	v->paths = calloc(v->spec->rw_count + v->spec->ro_count + 1, sizeof(*v->paths));
	if (!v->paths)
		return err_sys(err, -ENOMEM, "cannot plan the file system view");
	for (size_t i = 0; r == 0 && i < v->spec->rw_count; i++)
		r = plan_writable(v, v->spec->rw[i], err);
	if (r < 0)
		return err_context(err, "--rw");
	r = plan_cwd(v, err);
	for (size_t i = 0; r == 0 && i < v->spec->ro_count; i++)
		r = plan_readonly(v, v->spec->ro[i], err);
	for (size_t i = 0; r == 0 && i < v->spec->rw_count; i++)
		r = check_given(v, v->spec->rw[i], err);
	for (size_t i = 0; r == 0 && i < v->spec->ro_count; i++)
		r = check_given(v, v->spec->ro[i], err);
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

/* Mount nothing over @path. What has gone since it was found needs no mask. */
static int mask(struct view *v, const char *path, struct err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	CLEAN(fd) int at = view_lookup(v, path);
	CLEAN(fd) int copy = -1;
	struct stat st;

	if (at == -ENOENT)
		return 0;
	if (at < 0 || fstat(at, &st) < 0)
		return err_sys(err, at < 0 ? at : -errno, "cannot find '%s' to mask it",
			       path);
	copy = open_tree(AT_FDCWD, S_ISDIR(st.st_mode) ? VIEW_EMPTY : VIEW_NOTHING,
			 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (copy < 0 || mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_sys(err, -errno, "cannot mask '%s'", path);
	return view_attach(v, copy, path, err);
}

/* A directory is shared with all that is mounted below it. Should that be the host's
 * /proc (somebody's chroot), the processes outside, and through their "root" everything,
 * would be within reach. */
static int mask_kernel(struct view *v, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < v->mounts.count; i++) {
		const struct mount *m = &v->mounts.list[i];

		if (mount_is_of_kernel(m) && is_below_bare(v, m->path))
			r = mask(v, m->path, err);
	}
	return r;
}

int place_build(struct view *v, struct err *err)
{
	int r = 0;

	for (size_t i = v->layer_count; r == 0 && i < v->tree_count; i++)
		r = attach_tree(v, &v->trees[i], err);
	for (size_t i = 0; r == 0 && i < v->sockets.count; i++)
		r = mask(v, v->sockets.paths[i], err);
	return r < 0 ? r : mask_kernel(v, err);
}
