// SPDX-License-Identifier: Apache-2.0
#include "launch/sockets.h"

#include <errno.h>
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
	/* sockets_ask() */
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

static int collect_devices(struct finder *f, struct err *err)
{
	f->found->devices =
		calloc(f->top_count + f->mounts->count, sizeof(*f->found->devices));
	if (!f->found->devices)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	for (size_t i = 0; i < f->top_count; i++) {
		const struct mount *m = mounts_numbered(f->mounts, f->tops[i]->mount_id);

		if (!m)
			return err_set(err, -ENOENT,
				       "cannot tell on which file system '%s' lies",
				       f->tops[i]->name);
		add_device(f->found, m);
	}
	for (size_t i = 0; i < f->mounts->count; i++) {
		if (is_within_tops(f, f->mounts->list[i].path))
			add_device(f->found, &f->mounts->list[i]);
	}
	return 0;
}

bool socket_file_equal(struct socket_file a, struct socket_file b)
{
	return a.device == b.device && a.inode == b.inode;
}

void sockets_account(struct sockets *s, struct socket_file file)
{
	if (s->accounted_count < SOCKETS_ACCOUNTED_MAX)
		s->accounted[s->accounted_count++] = file;
}

/* --- by name --- */

static int add_socket(struct sockets *s, const char *path, struct socket_file file,
		      struct err *err)
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
	s->files[s->count++] = file;
	return 0;
}

/* The socket lies at @inside in its file system: it shows in every mount of that, also
 * in those that its name says nothing of (bind mounts). */
static int add_everywhere(struct finder *f, const char *inside, struct socket_file file,
			  struct err *err)
{
	char path[PATH_MAX];
	bool elsewhere = true;

	for (size_t i = 0; i < f->mounts->count; i++) {
		const struct mount *m = &f->mounts->list[i];
		struct stat st;
		int r;

		if (m->device != file.device || !mount_shows(m, inside, path) ||
		    !is_within_tops(f, path))
			continue;
		/* What isn't found there is searched for: it may have been moved. */
		elsewhere = false;
		if (lstat(path, &st) < 0 || (uint32_t)st.st_ino != file.inode)
			continue;
		r = add_socket(f->found, path, file, err);
		if (r < 0)
			return r;
	}
	if (elsewhere)
		sockets_account(f->found, file);
	return 0;
}

/* A socket whose name doesn't lead to it, or that has several, is left to the search. */
static int judge(struct finder *f, const char *name, struct socket_file file,
		 struct err *err)
{
	char real[PATH_MAX], inside[PATH_MAX];
	const struct mount *m;
	struct stat st;

	if (name[0] != '/' || !realpath(name, real) || lstat(real, &st) < 0 ||
	    (uint32_t)st.st_ino != file.inode || st.st_nlink > 1)
		return 0;
	m = mounts_containing(f->mounts, real);
	if (!m || m->device != file.device || !path_is_within(real, m->path) ||
	    !mount_inside(m, real, inside))
		return 0;
	return add_everywhere(f, inside, file, err);
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
	const int s = f->known->diag_fd;
	int r = 0;

	if (send(s, &request, sizeof(request), 0) < 0)
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

int sockets_find(const struct mounts *m, const struct path *const *tops, size_t count,
		 struct sockets *ret, struct err *err)
{
	struct finder f = { .known = ret,
			    .found = ret,
			    .on_socket = judge,
			    .mounts = m,
			    .tops = tops,
			    .top_count = count };
	int r;

	ret->diag_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (ret->diag_fd < 0)
		return err_sys(err, -errno, "cannot list unix sockets");
	r = collect_devices(&f, err);
	if (r == 0 && ret->device_count > 0)
		r = ask_kernel(&f, err);
	return r;
}

int sockets_ask(const struct sockets *s, struct socket_list *ret, struct err *err)
{
	struct finder f = { .known = s, .on_socket = list_unaccounted, .list = ret };

	ret->count = 0;
	return s->device_count > 0 ? ask_kernel(&f, err) : 0;
}

void sockets_done(struct sockets *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->paths[i]);
	s->count = 0;
	free(s->devices);
	s->devices = NULL;
	s->device_count = 0;
	if (s->diag_fd >= 0)
		close(s->diag_fd);
	s->diag_fd = -1;
}
