// SPDX-License-Identifier: Apache-2.0
#include "sys/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/text.h"
#include "sys/files.h"
#include "sys/id_map.h"

enum { FD_LINK_SIZE = 32 }; /* "/proc/self/fd/N" */

enum look { LOOK_ANY = 0, LOOK_MAKE, LOOK_WAY, LOOK_OWNED, LOOK_ROOTS };

/* Is a path of root and this user alone? The judgement of one walk; { 0 } to begin with.
 */
struct owned {
	bool roots;	    /* root's alone: the effective user counts as another */
	struct err refused; /* the first reason not to trust the path, or code 0 */
};

/* A look-up under way. */
struct walk {
	struct path path; /* fd: where it stands */
	char rest[PATH_MAX];
	enum look look;
	struct owned owned;
};

/* --- is it root's and the user's alone? --- */

enum { TABLE_MAX = 1 << 20 };

static struct text field(struct text line, unsigned int n)
{
	struct text part = { 0 };

	for (unsigned int i = 0; i <= n; i++)
		if (!text_split(&line, ':', &part))
			return (struct text){ "", 0 };
	return part;
}

static bool read_table(const char *path, struct file_bytes *ret, struct text *ret_text)
{
	const struct file_how how = { .max_bytes = TABLE_MAX,
				      .follow = true,
				      .anybodys = true };

	if (file_read(AT_FDCWD, path, &how, ret, NULL) < 0)
		return false;
	*ret_text = (struct text){ ret->bytes, ret->size };
	return true;
}

/* In a user namespace the kernel shows everybody who has no id there as one user. The
 * host's root is one of them, so all of them count as root. */
static bool is_unmapped(uid_t uid)
{
	enum { OVERFLOW_UID = 65534 };
	struct id_range range;

	return uid == OVERFLOW_UID &&
	       id_map_find("/proc/self/uid_map", uid, &range, NULL) == -ENOENT;
}

static bool is_ours(const struct owned *o, uid_t uid)
{
	return uid == 0 || (!o->roots && uid == geteuid()) || is_unmapped(uid);
}

/* Does @uid alone have the primary group @gid, and what is the user's name? */
static bool has_alone(struct text users, gid_t gid, uid_t uid, struct text *ret_name)
{
	struct text line;
	bool found = false;
	uint32_t n;

	while (text_split(&users, '\n', &line)) {
		if (!text_to_u32(field(line, 3), UINT32_MAX, &n) || n != gid)
			continue;
		if (!text_to_u32(field(line, 2), UINT32_MAX, &n) || n != uid)
			return false;
		*ret_name = field(line, 0);
		found = true;
	}
	return found;
}

/* No member but the user @name. */
static bool lists_only(struct text groups, gid_t gid, struct text name)
{
	struct text line, members, member;
	bool found = false;
	uint32_t n;

	while (text_split(&groups, '\n', &line)) {
		if (!text_to_u32(field(line, 2), UINT32_MAX, &n) || n != gid)
			continue;
		found = true;
		members = text_trim(field(line, 3));
		while (members.len > 0 && text_split(&members, ',', &member))
			if (member.len != name.len ||
			    memcmp(member.ptr, name.ptr, name.len) != 0)
				return false;
	}
	return found;
}

/* Many systems give each user a group, and let it write to what the user makes. A group
 * that these files don't have may have anybody in it. */
static bool is_private_group(gid_t gid, uid_t uid)
{
	CLEAN(file_bytes) struct file_bytes passwd = { 0 };
	CLEAN(file_bytes) struct file_bytes group = { 0 };
	struct text users, groups, name = { 0 };

	return read_table("/etc/passwd", &passwd, &users) &&
	       read_table("/etc/group", &group, &groups) &&
	       has_alone(users, gid, uid, &name) && lists_only(groups, gid, name);
}

static bool is_owned(const struct owned *o, const struct stat *st)
{
	return is_ours(o, st->st_uid) && !(st->st_mode & S_IWOTH) &&
	       (!(st->st_mode & S_IWGRP) || is_private_group(st->st_gid, st->st_uid));
}

static void refuse_owner(struct owned *o, const struct stat *st, const char *what)
{
	if (o->refused.code < 0)
		return;
	if (is_ours(o, st->st_uid))
		err_set(&o->refused, -EPERM, "others than its owner may write to %s",
			what);
	else
		err_set(&o->refused, -EPERM, "%s belongs to another user (uid %u)", what,
			(unsigned int)st->st_uid);
}

static void owned_step(struct owned *o, const struct stat *dir, const struct stat *entry)
{
	const bool sticky = dir->st_mode & S_ISVTX;

	if (!is_owned(o, dir) &&
	    !(is_ours(o, dir->st_uid) && sticky && is_ours(o, entry->st_uid)))
		refuse_owner(o, dir, "a directory on the way to it");
	if (S_ISLNK(entry->st_mode) && !is_ours(o, entry->st_uid))
		refuse_owner(o, entry, "a link on the way to it");
}

/* --- names of descriptors --- */

static int name_of(int fd, char ret[PATH_MAX])
{
	char link[FD_LINK_SIZE];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	if (n < 0)
		return -errno;
	ret[n] = '\0';
	return ret[0] == '/' ? 0 : -ENOENT;
}

int path_reopen(int fd, const char *name, int *ret_fd)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_NO_SYMLINKS };
	struct stat expected, st;
	/* The last component may be a link: then the link itself is meant. */
	CLEAN(fd) int again = -1;

	if (fstat(fd, &expected) < 0)
		return -errno;
	again = (int)syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof(how));
	if (again < 0 || fstat(again, &st) < 0)
		return -errno;
	if (st.st_dev != expected.st_dev || st.st_ino != expected.st_ino)
		return -ESTALE;
	*ret_fd = TAKE_FD(again);
	return 0;
}

/* --- links --- */

/* @directory is the name of @at, which holds the link. */
static bool is_trusted(int at, const char *directory, uid_t owner)
{
	static const char *const of_links[] = { "/", "/usr", "/var", "/etc" };
	struct stat st;

	if (owner != 0 || fstat(at, &st) < 0 || st.st_uid != 0 ||
	    (st.st_mode & (S_IWGRP | S_IWOTH)))
		return false;
	return geteuid() != 0 ||
	       text_is_one_of(directory, of_links, ARRAY_SIZE(of_links));
}

static int remember_link(struct path *p, const char *component, uid_t owner)
{
	char directory[PATH_MAX];
	char *link = NULL;
	int r = name_of(p->fd, directory);

	if (r < 0)
		return r;
	if (p->link_count == PATH_LINKS_MAX)
		return -ELOOP;
	if (asprintf(&link, "%s/%s", directory[1] ? directory : "", component) < 0)
		return -ENOMEM;
	p->links[p->link_count++] = link;
	if (!p->untrusted && !is_trusted(p->fd, directory, owner))
		p->untrusted = link;
	return 0;
}

/* Put the target of the link @fd in front of what is left. */
static int follow(struct walk *w, int fd, const char *component, uid_t owner)
{
	char target[PATH_MAX], rest[PATH_MAX];
	int r = remember_link(&w->path, component, owner);
	ssize_t n;

	if (r < 0)
		return r;
	n = readlinkat(fd, "", target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(w->rest, rest, sizeof(rest));
	if (target[0] != '/')
		return 0;
	close(w->path.fd);
	w->path.fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->path.fd < 0 ? -errno : 0;
}

/* --- the walk --- */

static bool next_component(struct walk *w, char ret[NAME_MAX + 1], int *ret_error)
{
	size_t skip = strspn(w->rest, "/"), len = strcspn(w->rest + skip, "/");

	*ret_error = len > NAME_MAX ? -ENAMETOOLONG : 0;
	if (len == 0 || len > NAME_MAX)
		return false;
	memcpy(ret, w->rest + skip, len);
	ret[len] = '\0';
	memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
	return true;
}

static int open_component(const struct walk *w, const char *component)
{
	const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(w->path.fd, component, flags);

	if (fd >= 0 || errno != ENOENT || w->look != LOOK_MAKE)
		return fd < 0 ? -errno : fd;
	if (w->path.untrusted)
		return -ELOOP;
	if (mkdirat(w->path.fd, component,
		    strspn(w->rest, "/") == strlen(w->rest) ? 0700 : 0755) < 0 &&
	    errno != EEXIST)
		return -errno;
	fd = openat(w->path.fd, component, flags);
	return fd < 0 ? -errno : fd;
}

static int step(struct walk *w, const char *component)
{
	CLEAN(fd) int fd = open_component(w, component);
	struct stat dir, st;

	if (fd < 0)
		return fd;
	if (fstat(w->path.fd, &dir) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (w->look >= LOOK_WAY && strcmp(component, "..") != 0)
		owned_step(&w->owned, &dir, &st);
	if (S_ISLNK(st.st_mode))
		return follow(w, fd, component, st.st_uid);
	close(w->path.fd);
	w->path.fd = TAKE_FD(fd);
	return 0;
}

static int describe(struct path *p)
{
	char name[PATH_MAX];
	struct statx x;
	int r = name_of(p->fd, name);

	if (r < 0)
		return r;
	if (fstat(p->fd, &p->st) < 0 ||
	    statx(p->fd, "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_MNT_ID, &x) < 0)
		return -errno;
	if (x.stx_mask & STATX_MNT_ID)
		p->mount_id = x.stx_mnt_id;
	p->name = strdup(name);
	return p->name ? 0 : -ENOMEM;
}

/* The whole of @name at once: the kernel says -ELOOP where a link is on the way. */
static int open_linkless(const char *name)
{
	const struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				      .resolve = RESOLVE_NO_SYMLINKS };

	return (int)syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof(how));
}

static int walk(struct walk *w)
{
	char component[NAME_MAX + 1];
	int r = 0;

	w->path.fd =
		open(w->rest[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->path.fd < 0)
		r = -errno;
	while (r == 0 && next_component(w, component, &r))
		r = step(w, component);
	return r;
}

static int look_up(const char *name, enum look look, struct path *ret, struct err *err)
{
	struct walk w = { .look = look, .owned.roots = look == LOOK_ROOTS };
	int r = 0;

	if (strlen(name) >= sizeof(w.rest))
		return err_sys(err, -ENAMETOOLONG, "cannot find '%.64s...'", name);
	if (name[0] == '\0')
		return err_set(err, -ENOENT, "an empty path names nothing");
	memcpy(w.rest, name, strlen(name) + 1);
	w.path.fd = look == LOOK_ANY ? open_linkless(name) : -1;
	if (w.path.fd < 0)
		r = walk(&w);
	if (r == 0)
		r = describe(&w.path);
	if (r == 0 && look >= LOOK_OWNED && !is_owned(&w.owned, &w.path.st))
		refuse_owner(&w.owned, &w.path.st, "it");
	if (r == 0 && w.owned.refused.code < 0)
		r = err_set(err, w.owned.refused.code, "cannot trust '%s': %s", name,
			    w.owned.refused.text);
	else if (r == -ELOOP && w.path.untrusted && look == LOOK_MAKE)
		err_set(err, r, "cannot make '%s' behind the link '%s'", name,
			w.path.untrusted);
	else if (r < 0)
		err_sys(err, r, "cannot find '%s'", name);
	if (r < 0)
		path_done(&w.path);
	else
		*ret = w.path;
	return r;
}

int path_open(const char *name, struct path *ret, struct err *err)
{
	return look_up(name, LOOK_ANY, ret, err);
}

int path_open_made(const char *name, struct path *ret, struct err *err)
{
	return look_up(name, LOOK_MAKE, ret, err);
}

int path_open_owned(const char *name, struct path *ret, struct err *err)
{
	return look_up(name, LOOK_OWNED, ret, err);
}

int path_open_owned_way(const char *name, struct path *ret, struct err *err)
{
	return look_up(name, LOOK_WAY, ret, err);
}

int path_open_roots(const char *name, struct path *ret, struct err *err)
{
	return look_up(name, LOOK_ROOTS, ret, err);
}

int path_open_parent(const char *name, struct path *ret, const char **ret_last,
		     struct err *err)
{
	const char *slash = strrchr(name, '/');
	const char *last = slash ? slash + 1 : name;
	char directory[PATH_MAX] = ".";

	if (last[0] == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
		return err_set(err, -EISDIR, "'%s' is not the name of a file", name);
	if (slash && snprintf(directory, sizeof(directory), "%.*s",
			      (int)MAX(slash - name, (ptrdiff_t)1),
			      name) >= (int)sizeof(directory))
		return err_sys(err, -ENAMETOOLONG, "cannot find '%.64s...'", name);
	*ret_last = last;
	return path_open(directory, ret, err);
}

void path_done(struct path *p)
{
	if (p->fd >= 0)
		close(p->fd);
	free(p->name);
	for (size_t i = 0; i < p->link_count; i++)
		free(p->links[i]);
	*p = (struct path){ .fd = -1 };
}
