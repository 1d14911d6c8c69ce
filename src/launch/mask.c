// SPDX-License-Identifier: Apache-2.0
#include "launch/mask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>

#include "launch/bind_mount.h"
#include "launch/spelling.h"
#include "sys/files.h"

enum {
	DEPTH_MAX = 128,
	SEARCH_MAX = 200000, /* directory entries in one search; more: refused */
	ROUNDS_MAX = 100,    /* looks until all is masked; more: refused */
	/* Longer than a tick: a change after it shows in a directory's time. */
	REST_MS = 12,
};

int mask_place(int at, const char *own, const char *path, struct err *err)
{
	struct mount_attr attr = { .attr_set = own ? 0 : MOUNT_ATTR_RDONLY };
	CLEAN(fd) int copy = -1;
	struct stat st;

	if (fstat(at, &st) < 0)
		return err_sys(err, -errno, "cannot look at '%s' to mask it", path);
	if (!own)
		own = S_ISDIR(st.st_mode) ? ROOTFS_EMPTY : ROOTFS_NOTHING;
	copy = open_tree(AT_FDCWD, own, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (copy < 0 || mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    move_mount(copy, "", at, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot mask '%s'", path);
	return 0;
}

static int too_busy(struct err *err)
{
	return err_set(err, -EBUSY,
		       "cannot tell whether a unix socket of the host lies in the "
		       "writable paths: files are moved there all the time");
}

static int mask_socket(const struct rootfs *v, int at, const char *path, ino_t inode,
		       struct err *err)
{
	int r = mask_place(at, NULL, path, err);

	return r < 0 ? r : spelling_check_socket(v, path, (uint32_t)inode, err);
}

/* --- mounts --- */

/* A directory is shared with all that is mounted below it. Should that be the host's
 * /proc (somebody's chroot), the processes outside, and through their "root" everything,
 * would be within reach. A socket that is mounted by itself may be that of another
 * network namespace, which the kernel doesn't list here (a container's docker.sock).
 * Return: 1 when another look is needed, 0, or -errno. */
static int mask_mount(struct rootfs *v, const struct mounts *all, const struct mount *m,
		      struct err *err)
{
	const char *path = m->path + strlen(ROOTFS_ROOT);
	CLEAN(fd) int at = -1;
	struct statx x;
	struct stat st;
	int r;

	if (!path_is_within(m->path, ROOTFS_ROOT) || !place_is_bare(v, path) ||
	    mounts_is_hidden(all, m))
		return 0;
	at = rootfs_lookup(v, path);
	if (at < 0 || statx(at, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) < 0 ||
	    x.stx_mnt_id != m->id)
		return 1;
	if (!mount_is_of_kernel(m) && (fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode)))
		return 0;
	r = mask_place(at, NULL, path, err);
	return r < 0 ? r : 1;
}

static int mask_mounts_once(struct rootfs *v, struct err *err)
{
	struct mounts all;
	int result = 0, r = mounts_read(true, &all, err);

	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < all.count; i++) {
		r = mask_mount(v, &all, &all.list[i], err);
		result = MAX(result, r);
	}
	mounts_done(&all);
	return r < 0 ? r : result;
}

/* --- sockets by name --- */

static bool is_masked(const struct rootfs *v, const char *path)
{
	CLEAN(fd) int at = rootfs_lookup(v, path);
	struct stat nothing, st;

	return at >= 0 && fstat(at, &st) == 0 && stat(ROOTFS_NOTHING, &nothing) == 0 &&
	       st.st_dev == nothing.st_dev && st.st_ino == nothing.st_ino;
}

/* A mask holds in its own mount: a socket that was moved into another one, a directory
 * that is mounted on itself, shows there. So what isn't masked where it was seen is
 * searched for. A file that shows in several mounts has its paths in a row. */
static void account_masked(struct rootfs *v)
{
	struct sockets *s = &v->sockets;
	bool all = true;

	for (size_t i = 0; i < s->count; i++) {
		all = all && is_masked(v, s->paths[i]);
		if (i + 1 < s->count && socket_file_equal(s->files[i], s->files[i + 1]))
			continue;
		if (all)
			sockets_account(s, s->files[i]);
		all = true;
	}
}

static int mask_all_named(struct rootfs *v, struct err *err)
{
	const struct sockets *s = &v->sockets;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->count; i++) {
		CLEAN(fd) int at = rootfs_lookup(v, s->paths[i]);
		struct stat st;

		if (at >= 0 && fstat(at, &st) == 0 && S_ISSOCK(st.st_mode) &&
		    (uint32_t)st.st_ino == s->files[i].inode && st.st_nlink == 1)
			r = mask_socket(v, at, s->paths[i], st.st_ino, err);
	}
	if (r == 0)
		account_masked(v);
	return r;
}

/* --- sockets by inode --- */

/* One pass over the writable paths. */
struct search {
	struct rootfs *view;
	struct socket_list lost;
	size_t entries, masked;
	uint64_t seen; /* of directories and their times: the same when nothing moved */
	struct timespec newest; /* of these times */
};

static bool is_lost(const struct search *s, ino_t inode)
{
	for (size_t i = 0; i < s->lost.count; i++) {
		if (s->lost.files[i].inode == (uint32_t)inode)
			return true;
	}
	return false;
}

static void mix(struct search *s, uint64_t value)
{
	s->seen = (s->seen ^ value) * 0x100000001b3ULL;
}

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

static void see_directory(struct search *s, const struct stat *st)
{
	mix(s, st->st_ino);
	mix(s, (uint64_t)st->st_ctim.tv_sec);
	mix(s, (uint64_t)st->st_ctim.tv_nsec);
	if (is_later(st->st_ctim, s->newest))
		s->newest = st->st_ctim;
}

static int search_directory(struct search *s, int fd, const char *path,
			    unsigned int depth, struct err *err);

/* What can't be looked at may hold a socket: too few descriptors, say. What has gone
 * since its directory was read doesn't, or is found where it is now. */
static int cannot_search(int code, const char *path, struct err *err)
{
	if (code == -ENOENT || code == -ENOTDIR || code == -ELOOP)
		return 0;
	return err_sys(err, code, "cannot tell whether a unix socket lies in '%s'", path);
}

static int search_below(struct search *s, int dir, const char *name, const char *path,
			unsigned int depth, struct err *err)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0)
		return search_directory(s, fd, path, depth, err);
	/* A directory that can't be read can't be entered by the command either, except
	 * one that may be searched but not listed. */
	if (errno == EACCES && faccessat(dir, name, X_OK, 0) < 0)
		return 0;
	return cannot_search(-errno, path, err);
}

/* What is masked already is an empty file by now. */
static int search_socket(struct search *s, int dir, const char *name, const char *path,
			 struct err *err)
{
	CLEAN(fd) int at = openat(dir, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (at < 0)
		return cannot_search(-errno, path, err);
	if (fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode) || !is_lost(s, st.st_ino))
		return 0;
	s->masked++;
	return mask_socket(s->view, at, path, st.st_ino, err);
}

static int search_entry(struct search *s, int dir, const char *path,
			const struct dirent *entry, unsigned int depth, struct err *err)
{
	char child[PATH_MAX];
	int r = 0;

	if (++s->entries > SEARCH_MAX || depth == DEPTH_MAX ||
	    snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >=
		    (int)sizeof(child))
		return err_set(
			err, -E2BIG,
			"cannot tell whether a unix socket lies in the writable paths: "
			"there is too much in '%s' to search; use a smaller directory",
			path);
	if (entry->d_type == DT_SOCK || entry->d_type == DT_UNKNOWN)
		r = search_socket(s, dir, entry->d_name, child, err);
	if (r == 0 && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN))
		r = search_below(s, dir, entry->d_name, child, depth + 1, err);
	return r;
}

/* Takes @fd. */
static int search_directory(struct search *s, int fd, const char *path,
			    unsigned int depth, struct err *err)
{
	CLEAN(directory) DIR *dir = directory_open(fd);
	const struct dirent *entry;
	struct stat st;
	int r = 0;

	if (!dir)
		return err_sys(err, -ENOMEM, "cannot search '%s'", path);
	if (fstat(fd, &st) == 0)
		see_directory(s, &st);
	while (r == 0 && (entry = directory_next(dir)))
		r = search_entry(s, fd, path, entry, depth, err);
	return r == 0 && errno != 0 ? cannot_search(-errno, path, err) : r;
}

static int search_all(struct search *s, struct err *err)
{
	const struct rootfs *v = s->view;
	int r = 0;

	for (size_t i = v->layer_count; r == 0 && i < v->tree_count; i++) {
		const char *path = v->trees[i].path;
		CLEAN(fd) int top = -1;

		if (!tree_is_bare(&v->trees[i]) ||
		    !S_ISDIR(v->trees[i].source->st.st_mode))
			continue;
		top = rootfs_lookup(v, path);
		if (top < 0)
			return err_sys(err, top, "cannot find '%s' in the sandbox", path);
		r = search_below(s, top, ".", path, 0, err);
	}
	return r;
}

/* Two passes in a row saw the same, and the first began when the last change was over:
 * between the two nothing was moved from where it had yet to be looked for to where it
 * had been. */
static bool was_quiet(const struct search *before, const struct search *now,
		      struct timespec begin)
{
	const struct timespec tick = { .tv_nsec = REST_MS * 1000000 / 2 };

	begin.tv_nsec -= tick.tv_nsec;
	if (begin.tv_nsec < 0) {
		begin.tv_sec--;
		begin.tv_nsec += 1000000000;
	}
	return before->seen == now->seen && is_later(begin, before->newest);
}

/* Look for the sockets that aren't accounted for, until none is left unmasked. */
static int mask_lost(struct rootfs *v, struct err *err)
{
	struct search before = { 0 };
	struct timespec began = { 0 };

	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		struct search now = { .view = v };
		struct timespec begin;
		int r = sockets_ask(&v->sockets, &now.lost, err);

		if (r < 0 || now.lost.count == 0)
			return r;
		clock_gettime(CLOCK_REALTIME, &begin);
		r = search_all(&now, err);
		if (r < 0)
			return r;
		if (i > 0 && now.masked == 0 && was_quiet(&before, &now, began))
			return 0;
		before = now;
		began = begin;
		nanosleep(&(struct timespec){ .tv_nsec = REST_MS * 1000000 }, NULL);
	}
	return too_busy(err);
}

static bool has_bare_tree(const struct rootfs *v)
{
	for (size_t i = v->layer_count; i < v->tree_count; i++)
		if (tree_is_bare(&v->trees[i]))
			return true;
	return false;
}

/* What isn't bare shows no socket of the host's, and no mount of it. */
int mask_build(struct rootfs *v, struct err *err)
{
	int r = 1;

	if (!has_bare_tree(v))
		return 0;
	for (size_t i = 0; r > 0 && i < ROUNDS_MAX; i++)
		r = mask_mounts_once(v, err);
	if (r > 0)
		return too_busy(err);
	if (r == 0)
		r = mask_all_named(v, err);
	return r < 0 ? r : mask_lost(v, err);
}
