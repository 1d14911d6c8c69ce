// SPDX-License-Identifier: Apache-2.0
#include "run/sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { DEPTH_MAX = 128 };

struct finder {
	const struct mounts *mounts;
	const char *const *tops;
	size_t top_count;
	uint32_t devices[MOUNTS_MAX]; /* of the file systems in the tops */
	size_t device_count;
	uint32_t lost[SOCKETS_MAX]; /* inodes to search for */
	size_t lost_count;
	size_t searched;
	struct sockets *found;
};

static bool is_within_tops(const struct finder *f, const char *path)
{
	for (size_t i = 0; i < f->top_count; i++) {
		if (path_is_within(path, f->tops[i]))
			return true;
	}
	return false;
}

static bool has_device(const struct finder *f, uint32_t device)
{
	for (size_t i = 0; i < f->device_count; i++) {
		if (f->devices[i] == device)
			return true;
	}
	return false;
}

static void add_device(struct finder *f, const struct mount *m)
{
	if (!has_device(f, m->device) && f->device_count < MOUNTS_MAX)
		f->devices[f->device_count++] = m->device;
}

static int collect_devices(struct finder *f, struct err *err)
{
	for (size_t i = 0; i < f->top_count; i++) {
		const struct mount *m = mounts_containing(f->mounts, f->tops[i]);

		if (!m)
			return err_set(err, -ENOENT,
				       "cannot tell on which file system '%s' lies",
				       f->tops[i]);
		add_device(f, m);
	}
	for (size_t i = 0; i < f->mounts->count; i++) {
		if (is_within_tops(f, f->mounts->list[i].path))
			add_device(f, &f->mounts->list[i]);
	}
	return 0;
}

static int add_found(struct sockets *s, const char *path, struct err *err)
{
	if (s->count == SOCKETS_MAX)
		return err_set(
			err, -E2BIG,
			"more than %d unix sockets lie in the writable paths; use a "
			"directory without them",
			SOCKETS_MAX);
	s->paths[s->count] = strdup(path);
	if (!s->paths[s->count])
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	s->count++;
	return 0;
}

static int add_lost(struct finder *f, uint32_t inode, struct err *err)
{
	if (f->lost_count == SOCKETS_MAX)
		return err_set(
			err, -E2BIG,
			"cannot tell whether unix sockets lie in the writable paths: "
			"more than %d have no path",
			SOCKETS_MAX);
	f->lost[f->lost_count++] = inode;
	return 0;
}

static bool has_inode(const char *path, uint32_t inode)
{
	struct stat st;

	return lstat(path, &st) == 0 && (uint32_t)st.st_ino == inode;
}

/* Join @top, which may be "/", and @rest, which is empty or begins with '/'. */
static bool join(char out[PATH_MAX], const char *top, const char *rest)
{
	if (strcmp(top, "/") == 0)
		top = "";
	return snprintf(out, PATH_MAX, "%s%s", top, rest) < PATH_MAX;
}

/* What of @path is below @top, which holds it. */
static const char *below(const char *path, const char *top)
{
	return strcmp(top, "/") == 0 ? path : path + strlen(top);
}

/* The socket lies at @inside in its file system: it shows in every mount of that, also
 * in those that its name says nothing of (bind mounts, a socket mounted by itself). */
static int add_everywhere(struct finder *f, const char *inside, uint32_t device,
			  uint32_t inode, struct err *err)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < f->mounts->count; i++) {
		const struct mount *m = &f->mounts->list[i];
		int r;

		if (m->device != device || !path_is_within(inside, m->root))
			continue;
		if (!join(path, m->path, below(inside, m->root)))
			return add_lost(f, inode, err);
		if (!is_within_tops(f, path) || !has_inode(path, inode))
			continue;
		r = add_found(f->found, path, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* A socket on a file system that is writable: its name leads to it, or it is lost. */
static int judge(struct finder *f, const char *name, uint32_t device, uint32_t inode,
		 struct err *err)
{
	char real[PATH_MAX], inside[PATH_MAX];
	const struct mount *m;
	struct stat st;

	if (name[0] != '/' || !realpath(name, real) || lstat(real, &st) < 0 ||
	    (uint32_t)st.st_ino != inode || st.st_nlink > 1)
		return add_lost(f, inode, err);
	m = mounts_containing(f->mounts, real);
	if (!m || m->device != device || !path_is_within(real, m->path) ||
	    !join(inside, m->root, below(real, m->path)))
		return add_lost(f, inode, err);
	return add_everywhere(f, inside, device, inode, err);
}

/* A socket that is mounted by itself may be that of another network namespace, which
 * the kernel doesn't list here (a container's docker.sock). */
static int add_mounted(struct finder *f, struct err *err)
{
	struct stat st;
	int r = 0;

	for (size_t i = 0; r == 0 && i < f->mounts->count; i++) {
		const char *path = f->mounts->list[i].path;

		if (is_within_tops(f, path) && lstat(path, &st) == 0 &&
		    S_ISSOCK(st.st_mode))
			r = add_found(f->found, path, err);
	}
	return r;
}

/* --- asking the kernel --- */

static bool can_be_reached(const struct unix_diag_msg *m)
{
	return m->udiag_type == SOCK_DGRAM || m->udiag_state != TCP_ESTABLISHED;
}

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
	if (!has_file || !can_be_reached(m) || !has_device(f, vfs.udiag_vfs_dev))
		return 0;
	return judge(f, name, vfs.udiag_vfs_dev, vfs.udiag_vfs_ino, err);
}

/* Return: 1 at the end of the dump, 0 to go on, or -errno. */
static int read_messages(struct finder *f, char *buf, size_t size, struct err *err)
{
	for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, size);
	     h = NLMSG_NEXT(h, size)) {
		int r;

		if (h->nlmsg_type == NLMSG_DONE)
			return 1;
		if (h->nlmsg_type == NLMSG_ERROR)
			return err_set(err, -EIO,
				       "cannot list unix sockets: the kernel refuses");
		r = read_socket(f, h, err);
		if (r < 0)
			return r;
	}
	return 0;
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
	CLEAN(fd) int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int r = 0;

	if (s < 0 || send(s, &request, sizeof(request), 0) < 0)
		return err_sys(err, -errno, "cannot list unix sockets");
	while (r == 0) {
		ssize_t n = recv(s, buf, sizeof(buf), 0);

		if (n <= 0)
			return err_sys(err, n < 0 ? -errno : -EIO,
				       "cannot list unix sockets");
		r = read_messages(f, buf, (size_t)n, err);
	}
	return r < 0 ? r : 0;
}

/* --- searching by inode --- */

static bool is_lost(const struct finder *f, uint32_t inode)
{
	for (size_t i = 0; i < f->lost_count; i++) {
		if (f->lost[i] == inode)
			return true;
	}
	return false;
}

static int search(struct finder *f, int at, const char *path, unsigned int depth,
		  struct err *err);

static int search_entry(struct finder *f, int dir, const char *path,
			const struct dirent *entry, unsigned int depth, struct err *err)
{
	char child[PATH_MAX];

	if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
		return 0;
	if (++f->searched > SOCKETS_SEARCH_MAX || depth == DEPTH_MAX ||
	    snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) >=
		    (int)sizeof(child))
		return err_set(
			err, -E2BIG,
			"cannot tell whether a unix socket lies in the writable paths: "
			"there is too much in '%s' to search; use a smaller directory",
			path);
	if ((entry->d_type == DT_SOCK || entry->d_type == DT_UNKNOWN) &&
	    is_lost(f, (uint32_t)entry->d_ino))
		return add_found(f->found, child, err);
	if (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN)
		return search(f, dir, child, depth + 1, err);
	return 0;
}

/* A directory that can't be read can't be entered by the command either, except one that
 * may be searched but not listed: that is refused. */
static int search(struct finder *f, int at, const char *path, unsigned int depth,
		  struct err *err)
{
	const char *name = depth == 0 ? path : strrchr(path, '/') + 1;
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	const struct dirent *entry;
	DIR *dir;
	int r = 0;

	if (fd < 0 && errno == EACCES && faccessat(at, name, X_OK, 0) == 0)
		return err_set(err, -EACCES,
			       "cannot tell whether a unix socket lies in '%s': it can't "
			       "be read",
			       path);
	if (fd < 0)
		return 0;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return err_sys(err, -ENOMEM, "cannot search '%s'", path);
	}
	while (r == 0 && (entry = readdir(dir)))
		r = search_entry(f, fd, path, entry, depth, err);
	closedir(dir);
	return r;
}

int sockets_find(const struct mounts *m, const char *const *tops, size_t count,
		 struct sockets *ret, struct err *err)
{
	struct finder *f = calloc(1, sizeof(*f));
	int r;

	*ret = (struct sockets){ 0 };
	if (!f)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	f->mounts = m;
	f->tops = tops;
	f->top_count = count;
	f->found = ret;
	r = collect_devices(f, err);
	if (r == 0)
		r = add_mounted(f, err);
	if (r == 0 && f->device_count > 0)
		r = ask_kernel(f, err);
	for (size_t i = 0; r == 0 && f->lost_count > 0 && i < count; i++)
		r = search(f, AT_FDCWD, tops[i], 0, err);
	free(f);
	if (r < 0)
		sockets_done(ret);
	return r;
}

void sockets_done(struct sockets *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->paths[i]);
	s->count = 0;
}
