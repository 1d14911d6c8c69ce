// SPDX-License-Identifier: Apache-2.0
#include "launch/spelling.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/text.h"
#include "launch/bind_mount.h"
#include "launch/hide.h"
#include "launch/launch.h"
#include "launch/mask.h"

/* Here a name has one spelling, or the kernel knows of the others. */
static const char *const exact[] = {
	"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay",
};

static bool is_exact(const struct rootfs *v, const char *path)
{
	const struct mount *m = mounts_holding(&v->mounts, path);

	return m && text_is_one_of(m->type, exact, ARRAY_SIZE(exact));
}

static const struct stat *stat_of(const struct tree *t)
{
	return t->kind == TREE_HIDDEN ? &t->hidden->st : &t->source->st;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Is what the view has at @other, another spelling of its path, the file of @t, and not
 * what was mounted over that? An overlay's files have other numbers than those below it.
 */
static bool shows_tree(const struct rootfs *v, const char *other, const void *data)
{
	const struct tree *t = data;
	CLEAN(fd) int at = rootfs_lookup(v, other);
	struct stat found, nothing;
	struct statvfs fs;

	if (at < 0 || fstat(at, &found) < 0)
		return false;
	if (t->kind == TREE_READONLY)
		return is_same(&found, stat_of(t)) &&
		       (fstatvfs(at, &fs) < 0 || !(fs.f_flag & ST_RDONLY));
	if (stat(ROOTFS_STAGE, &nothing) == 0 && found.st_dev == nothing.st_dev)
		return false;
	return is_same(&found, stat_of(t)) ||
	       (!place_is_bare(v, other) && lstat(other, &found) == 0 &&
		is_same(&found, stat_of(t)));
}

/* Is what the view has at @other, another spelling of a masked unix socket's path, that
 * socket, whose inode number @data points to? */
static bool shows_socket(const struct rootfs *v, const char *other, const void *data)
{
	const uint32_t *inode = data;
	CLEAN(fd) int at = rootfs_lookup(v, other);
	struct stat st;

	return at >= 0 && fstat(at, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       (uint32_t)st.st_ino == *inode;
}

/* The other case of each letter of @len bytes of @path. Return: false: they have none. */
static bool swap_case(char *path, size_t from, size_t len)
{
	bool swapped = false;

	for (size_t i = from; i < from + len; i++) {
		const unsigned char c = (unsigned char)path[i];

		if (c >= 0x80 || !isalpha(c))
			continue;
		path[i] = (char)(c ^ 0x20);
		swapped = true;
	}
	return swapped;
}

/* Does @shows say so of another spelling of @path? Each component by itself: a file
 * system may begin anywhere on the way. */
static bool has_other_spelling(const struct rootfs *v, const char *path,
			       bool (*shows)(const struct rootfs *v, const char *other,
					     const void *data),
			       const void *data)
{
	const size_t len = strlen(path);
	char other[PATH_MAX];
	bool found = false;

	if (is_exact(v, path) || len >= sizeof(other))
		return len >= sizeof(other);
	memcpy(other, path, len + 1);
	for (size_t from = 1, part; !found && from < len; from += part + 1) {
		part = strcspn(other + from, "/");
		found = swap_case(other, from, part) && shows(v, other, data);
		(void)swap_case(other, from, part);
	}
	return found;
}

static int cannot_hold(const struct tree *t, struct err *err)
{
	if (t->kind == TREE_HIDDEN)
		return err_set(err, -EPERM,
			       "'%s' can't be hidden: its file system finds it in upper "
			       "and lower case; keep it elsewhere, or show it with --ro",
			       t->path);
	return err_set(err, -EPERM,
		       "'%s' can't be read-only: its file system finds it in upper and "
		       "lower case; keep it where the command doesn't write",
		       t->path);
}

static const char *writable_at(const struct rootfs *v, const struct stat *st)
{
	for (size_t i = v->layer_count; i < v->tree_count; i++)
		if (v->trees[i].kind == TREE_WRITABLE &&
		    is_same(&v->trees[i].source->st, st))
			return v->trees[i].path;
	return NULL;
}

const char *spelling_writable_above(const struct rootfs *v, const struct path *p)
{
	const char *found = NULL;
	char way[PATH_MAX];
	struct stat st;

	if (is_exact(v, p->name) || snprintf(way, sizeof(way), "%s", p->name) >= PATH_MAX)
		return NULL;
	for (char *end = way + strlen(way); !found && end && end > way;
	     end = strrchr(way, '/')) {
		*end = '\0';
		if (lstat(way, &st) == 0)
			found = writable_at(v, &st);
	}
	return found;
}

int spelling_check_socket(const struct rootfs *v, const char *path, uint32_t inode,
			  struct err *err)
{
	return has_other_spelling(v, path, shows_socket, &inode)
		       ? err_set(err, -EPERM,
				 "the unix socket '%s' can't be masked: its file system "
				 "finds it in upper and lower case",
				 path)
		       : 0;
}

int spelling_check(const struct rootfs *v, struct err *err)
{
	const char *first = NULL;
	size_t count = 0;

	for (size_t i = v->layer_count; i < v->tree_count; i++) {
		const struct tree *t = &v->trees[i];

		if (t->kind != TREE_READONLY &&
		    (t->kind != TREE_HIDDEN || !t->hidden->is_masked))
			continue;
		if (!has_other_spelling(v, t->path, shows_tree, t))
			continue;
		if (!t->is_startup)
			return cannot_hold(t, err);
		first = first ?: t->path;
		count++;
	}
	if (count > 0)
		launch_send_report(v->spec->control_fd, LAUNCH_WARNING, 0,
				   "%zu files that run outside later, such as '%s', have "
				   "other names (upper and lower case), under which the "
				   "command may be able to change them",
				   count, first);
	return 0;
}
