// SPDX-License-Identifier: Apache-2.0
#include "launch/mask.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <time.h>

#include "base/text.h"
#include "launch/bind_mount.h"
#include "launch/hide.h"
#include "launch/launch.h"
#include "sys/files.h"

/* === which sockets there are === */

struct socket_list {
	struct socket_file files[SOCKETS_MAX];
	size_t count;
};

/* One question to the kernel, and what is done with each socket that it tells of. */
struct finder {
	const struct sockets *known;
	int (*on_socket)(struct finder *f, const char *name, struct socket_file file,
			 struct err *err);
	/* sockets_find() */
	const struct mounts *mounts;
	const struct path *const *tops;
	size_t top_count;
	struct sockets *found;
	/* mask_lost() */
	struct socket_list *list;
};

static bool is_within_tops(const struct finder *f, const char *path)
{
	for (size_t i = 0; i < f->top_count; i++) {
		if (path_is_within(path, f->tops[i]->name))
			return true;
	}
	return false;
}

static bool has_device(const struct sockets *s, uint32_t device)
{
	for (size_t i = 0; i < s->device_count; i++) {
		if (s->devices[i] == device)
			return true;
	}
	return false;
}

static void add_device(struct sockets *s, const struct mount *m)
{
	if (!has_device(s, m->device))
		s->devices[s->device_count++] = m->device;
}

static bool socket_file_equal(struct socket_file a, struct socket_file b)
{
	return a.device == b.device && a.inode == b.inode;
}

static void sockets_account(struct sockets *s, struct socket_file file)
{
	if (s->accounted_count < SOCKETS_ACCOUNTED_MAX)
		s->accounted[s->accounted_count++] = file;
}

/* --- by name --- */

/* A socket that lies in the writable paths shows in every mount of its file system, also
 * in those that its name says nothing of (bind mounts). One whose name doesn't lead to
 * it, or that has several, is left to the search. */
static int on_socket(struct finder *f, const char *name, struct socket_file file,
		     struct err *err)
{
	struct sockets *s = f->found;
	char real[PATH_MAX], inside[PATH_MAX], path[PATH_MAX];
	const struct mount *of;
	bool elsewhere = true;
	struct stat st;

	if (name[0] != '/' || !realpath(name, real) || lstat(real, &st) < 0 ||
	    (uint32_t)st.st_ino != file.inode || st.st_nlink > 1)
		return 0;
	of = mounts_containing(f->mounts, real);
	if (!of || of->device != file.device || !path_is_within(real, of->path) ||
	    !mount_inside(of, real, inside))
		return 0;
	for (size_t i = 0; i < f->mounts->count; i++) {
		const struct mount *m = &f->mounts->list[i];

		if (m->device != file.device || !mount_shows(m, inside, path) ||
		    !is_within_tops(f, path))
			continue;
		/* What isn't found there is searched for: it may have been moved. */
		elsewhere = false;
		if (lstat(path, &st) < 0 || (uint32_t)st.st_ino != file.inode)
			continue;
		if (s->count == SOCKETS_MAX)
			return err_set(
				err, -E2BIG,
				"more than %d unix sockets lie in the writable paths; "
				"use a directory without them",
				SOCKETS_MAX);
		s->paths[s->count] = strdup(path);
		if (!s->paths[s->count])
			return err_sys(err, -ENOMEM, "cannot list unix sockets");
		s->files[s->count++] = file;
	}
	if (elsewhere)
		sockets_account(s, file);
	return 0;
}

static int list_unaccounted(struct finder *f, const char *name, struct socket_file file,
			    struct err *err)
{
	for (size_t i = 0; i < f->known->accounted_count; i++)
		if (socket_file_equal(f->known->accounted[i], file))
			return 0;
	if (f->list->count == SOCKETS_MAX)
		return err_set(
			err, -E2BIG,
			"cannot tell whether unix sockets lie in the writable paths: "
			"more than %d have no path",
			SOCKETS_MAX);
	f->list->files[f->list->count++] = file;
	return 0;
}

/* --- asking the kernel --- */

static int read_socket(struct finder *f, struct nlmsghdr *h, struct err *err)
{
	struct unix_diag_msg *m = NLMSG_DATA(h);
	size_t left = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
	char name[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1] = "";
	struct unix_diag_vfs vfs = { 0 };
	bool has_file = false;

	if (h->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return err_set(err, -EBADMSG, "cannot list unix sockets");
	for (struct rtattr *a = (void *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		size_t size = RTA_PAYLOAD(a);

		if (a->rta_type == UNIX_DIAG_NAME && size < sizeof(name))
			memcpy(name, RTA_DATA(a), size);
		if (a->rta_type == UNIX_DIAG_VFS && size >= sizeof(vfs)) {
			memcpy(&vfs, RTA_DATA(a), sizeof(vfs));
			has_file = true;
		}
	}
	/* A stream's end that is connected can't be reached by others. */
	if (!has_file ||
	    (m->udiag_type != SOCK_DGRAM && m->udiag_state == TCP_ESTABLISHED) ||
	    !has_device(f->known, vfs.udiag_vfs_dev))
		return 0;
	return f->on_socket(f, name,
			    (struct socket_file){ vfs.udiag_vfs_dev, vfs.udiag_vfs_ino },
			    err);
}

static int ask_kernel(struct finder *f, struct err *err)
{
	struct {
		struct nlmsghdr header;
		struct unix_diag_req body;
	} request = {
		.header = { .nlmsg_len = sizeof(request),
			    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			    .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.body = { .sdiag_family = AF_UNIX,
			  .udiag_states = ~0U,
			  .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_VFS },
	};
	_Alignas(struct nlmsghdr) char buf[32768];
	const int s = f->known->diag_fd;
	int r = 0;

	if (send(s, &request, sizeof(request), 0) < 0)
		return err_sys(err, -errno, "cannot list unix sockets");
	while (r == 0) {
		ssize_t n = recv(s, buf, sizeof(buf), 0);
		size_t size = (size_t)n;

		if (n <= 0)
			return err_sys(err, n < 0 ? -errno : -EIO,
				       "cannot list unix sockets");
		for (struct nlmsghdr *h = (void *)buf; r == 0 && NLMSG_OK(h, size);
		     h = NLMSG_NEXT(h, size)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return err_set(
					err, -EIO,
					"cannot list unix sockets: the kernel refuses");
			r = read_socket(f, h, err);
		}
	}
	return r;
}

int sockets_find(const struct mounts *m, const struct path *const *tops, size_t count,
		 struct sockets *ret, struct err *err)
{
	struct finder f = { .known = ret,
			    .found = ret,
			    .on_socket = on_socket,
			    .mounts = m,
			    .tops = tops,
			    .top_count = count };

	ret->diag_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (ret->diag_fd < 0)
		return err_sys(err, -errno, "cannot list unix sockets");
	ret->devices = calloc(count + m->count, sizeof(*ret->devices));
	if (!ret->devices)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	for (size_t i = 0; i < count; i++) {
		const struct mount *of = mounts_numbered(m, tops[i]->mount_id);

		if (!of)
			return err_set(err, -ENOENT,
				       "cannot tell on which file system '%s' lies",
				       tops[i]->name);
		add_device(ret, of);
	}
	for (size_t i = 0; i < m->count; i++) {
		if (is_within_tops(&f, m->list[i].path))
			add_device(ret, &m->list[i]);
	}
	return ret->device_count > 0 ? ask_kernel(&f, err) : 0;
}

/* === other spellings === */

/* Here a name has one spelling, or the kernel knows of the others. */
static const char *const exact[] = {
	"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay",
};

static bool is_exact(const struct rootfs *v, const char *path)
{
	const struct mount *m = mounts_holding(&v->mounts, path);

	return m && text_is_one_of(m->type, exact, ARRAY_SIZE(exact));
}

/* A path, one component of which is spelled otherwise. */
struct spelling {
	const char *path;
	size_t from, size; /* of that component */
};

/* Does its directory not list it, so that what is there has another name? Not every file
 * system has inode numbers that tell. @v: NULL: outside. */
static bool is_unlisted(const struct rootfs *v, const struct spelling *s)
{
	char above[PATH_MAX] = "/";
	CLEAN(fd) int at = -1;
	CLEAN(directory) DIR *dir = NULL;
	const struct dirent *e;

	if (s->from > 1)
		snprintf(above, sizeof(above), "%.*s", (int)s->from - 1, s->path);
	at = v ? rootfs_lookup(v, above) : open(above, O_PATH | O_CLOEXEC);
	dir = directory_open(
		at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	while (dir && (e = directory_next(dir)))
		if (strlen(e->d_name) == s->size &&
		    memcmp(e->d_name, s->path + s->from, s->size) == 0)
			return false;
	return dir;
}

/* Is what the view has at @s, another spelling of its path, the file of @t, and not
 * what was mounted over that? An overlay's files have other numbers than those below it.
 */
static bool shows_tree(const struct rootfs *v, const struct spelling *s, const void *data)
{
	const struct tree *t = data;
	const struct stat *is = t->kind == TREE_HIDDEN ? &t->hidden->st : &t->source->st;
	CLEAN(fd) int at = rootfs_lookup(v, s->path);
	struct stat found, nothing;
	struct statvfs fs;

	if (at < 0 || fstat(at, &found) < 0)
		return false;
	if (t->kind == TREE_READONLY
		    ? fstatvfs(at, &fs) == 0 && fs.f_flag & ST_RDONLY
		    : stat(ROOTFS_STAGE, &nothing) == 0 && found.st_dev == nothing.st_dev)
		return false;
	return stat_is_same(&found, is) ||
	       (t->kind == TREE_HIDDEN && !place_is_bare(v, s->path) &&
		lstat(s->path, &found) == 0 && stat_is_same(&found, is)) ||
	       is_unlisted(v, s);
}

/* Is what the view has at @s, another spelling of a masked unix socket's path, that
 * socket, whose inode number @data points to? */
static bool shows_socket(const struct rootfs *v, const struct spelling *s,
			 const void *data)
{
	const uint32_t *inode = data;
	CLEAN(fd) int at = rootfs_lookup(v, s->path);
	struct stat st;

	return at >= 0 && fstat(at, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       ((uint32_t)st.st_ino == *inode || is_unlisted(v, s));
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
			       bool (*shows)(const struct rootfs *v,
					     const struct spelling *s, const void *data),
			       const void *data)
{
	const size_t len = strlen(path);
	char other[PATH_MAX];
	struct spelling s = { .path = other };
	bool found = false;

	if (is_exact(v, path) || len >= sizeof(other))
		return len >= sizeof(other);
	memcpy(other, path, len + 1);
	for (s.from = 1; !found && s.from < len; s.from += s.size + 1) {
		s.size = strcspn(other + s.from, "/");
		found = swap_case(other, s.from, s.size) && shows(v, &s, data);
		(void)swap_case(other, s.from, s.size);
	}
	return found;
}

/* Is @path another spelling of @named, by its first component that is one? */
static bool respells(const char *path, const char *named)
{
	struct spelling s = { .path = path, .from = 1 };
	const size_t len = strlen(path);

	if (strcasecmp(path, named) != 0)
		return false;
	for (; s.from < len; s.from += s.size + 1) {
		s.size = strcspn(path + s.from, "/");
		if (memcmp(path + s.from, named + s.from, s.size) != 0)
			return is_unlisted(NULL, &s);
	}
	return false;
}

const char *spelling_writable_above(const struct rootfs *v, const struct path *p)
{
	char way[PATH_MAX];
	struct stat st;

	if (is_exact(v, p->name) || snprintf(way, sizeof(way), "%s", p->name) >= PATH_MAX)
		return NULL;
	for (char *end = way + strlen(way); end && end > way; end = strrchr(way, '/')) {
		*end = '\0';
		if (lstat(way, &st) < 0)
			continue;
		for (size_t i = 0; i < v->tree_count; i++)
			if (v->trees[i].kind == TREE_WRITABLE &&
			    (stat_is_same(&v->trees[i].source->st, &st) ||
			     respells(way, v->trees[i].path)))
				return v->trees[i].path;
	}
	return NULL;
}

int spelling_check(const struct rootfs *v, struct err *err)
{
	const char *first = NULL;
	size_t count = 0;

	for (size_t i = 0; i < v->tree_count; i++) {
		const struct tree *t = &v->trees[i];

		if (t->kind != TREE_READONLY &&
		    (t->kind != TREE_HIDDEN || !t->hidden->is_masked))
			continue;
		if (!has_other_spelling(v, t->path, shows_tree, t))
			continue;
		if (!t->is_startup && t->kind == TREE_HIDDEN)
			return err_set(
				err, -EPERM,
				"'%s' can't be hidden: its file system finds it in "
				"upper and lower case; keep it elsewhere, or show it "
				"with --ro",
				t->path);
		if (!t->is_startup)
			return err_set(
				err, -EPERM,
				"'%s' can't be read-only: its file system finds it in "
				"upper and lower case; keep it where the command doesn't "
				"write",
				t->path);
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

/* === masks === */

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
	const uint32_t low = (uint32_t)inode;
	int r = mask_place(at, NULL, path, err);

	/* It may be there under another spelling, and not masked. */
	if (r == 0 && has_other_spelling(v, path, shows_socket, &low))
		r = err_set(
			err, -EPERM,
			"the unix socket '%s' can't be masked: its file system finds it "
			"in upper and lower case",
			path);
	return r;
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

/* --- sockets by name --- */

static bool is_masked(const struct rootfs *v, const char *path)
{
	CLEAN(fd) int at = rootfs_lookup(v, path);
	struct stat nothing, st;

	return at >= 0 && fstat(at, &st) == 0 && stat(ROOTFS_NOTHING, &nothing) == 0 &&
	       stat_is_same(&st, &nothing);
}

/* A mask holds in its own mount: a socket that was moved into another one, a directory
 * that is mounted on itself, shows there. So what isn't masked where it was seen is
 * searched for. A file that shows in several mounts has its paths in a row. */
static int mask_all_named(struct rootfs *v, struct err *err)
{
	struct sockets *s = &v->sockets;
	struct stat st;
	bool all = true;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->count; i++) {
		CLEAN(fd) int at = rootfs_lookup(v, s->paths[i]);

		if (at >= 0 && fstat(at, &st) == 0 && S_ISSOCK(st.st_mode) &&
		    (uint32_t)st.st_ino == s->files[i].inode && st.st_nlink == 1)
			r = mask_socket(v, at, s->paths[i], st.st_ino, err);
	}
	for (size_t i = 0; r == 0 && i < s->count; i++) {
		all = all && is_masked(v, s->paths[i]);
		if (i + 1 < s->count && socket_file_equal(s->files[i], s->files[i + 1]))
			continue;
		if (all)
			sockets_account(s, s->files[i]);
		all = true;
	}
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

static bool is_later(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
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
	bool is_lost = false;
	struct stat st;

	if (at < 0)
		return cannot_search(-errno, path, err);
	if (fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode))
		return 0;
	for (size_t i = 0; !is_lost && i < s->lost.count; i++)
		is_lost = s->lost.files[i].inode == (uint32_t)st.st_ino;
	if (!is_lost)
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
	if (fstat(fd, &st) == 0) {
		const uint64_t told[] = { st.st_ino, (uint64_t)st.st_ctim.tv_sec,
					  (uint64_t)st.st_ctim.tv_nsec };

		for (size_t i = 0; i < ARRAY_SIZE(told); i++)
			s->seen = (s->seen ^ told[i]) * 0x100000001b3ULL;
		if (is_later(st.st_ctim, s->newest))
			s->newest = st.st_ctim;
	}
	while (r == 0 && (entry = directory_next(dir)))
		r = search_entry(s, fd, path, entry, depth, err);
	return r == 0 && errno != 0 ? cannot_search(-errno, path, err) : r;
}

static int search_all(struct search *s, struct err *err)
{
	const struct rootfs *v = s->view;
	int r = 0;

	for (size_t i = 0; r == 0 && i < v->tree_count; i++) {
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
		/* Those in the same file systems that aren't accounted for. */
		struct finder again = { .known = &v->sockets,
					.on_socket = list_unaccounted,
					.list = &now.lost };
		struct timespec begin;
		int r = v->sockets.device_count > 0 ? ask_kernel(&again, err) : 0;

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

/* What isn't bare shows no socket of the host's, and no mount of it. */
int mask_build(struct rootfs *v, struct err *err)
{
	bool has_bare = false;
	int r = 1;

	for (size_t i = 0; i < v->tree_count; i++)
		has_bare = has_bare || tree_is_bare(&v->trees[i]);
	if (!has_bare)
		return 0;
	for (size_t i = 0; r > 0 && i < ROUNDS_MAX; i++) {
		struct mounts all;

		r = mounts_read(true, &all, err);
		if (r < 0)
			return r;
		for (size_t j = 0; r >= 0 && j < all.count; j++) {
			const int one = mask_mount(v, &all, &all.list[j], err);

			r = one < 0 ? one : MAX(r, one);
		}
		mounts_done(&all);
	}
	if (r > 0)
		return too_busy(err);
	if (r == 0)
		r = mask_all_named(v, err);
	return r < 0 ? r : mask_lost(v, err);
}
