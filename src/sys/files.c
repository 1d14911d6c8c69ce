// SPDX-License-Identifier: Apache-2.0
#include "sys/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "base/text.h"
#include "sys/id_map.h"

enum {
	CREATE_TRIES = 8, /* while others make and remove the file */
	ROOM_MIN = 4096,
	LOCK_TRIES = 50,
	LOCK_MS = 20, /* between them */
};

/* ---- opening ---- */

static int refuse(int r, const char *path, struct err *err)
{
	const char *shown = SHOWN(path);

	if (r == -EINVAL)
		return err_set(err, r, "cannot open %s: it is not a regular file", shown);
	if (r == -ELOOP)
		return err_set(err, r, "cannot open %s: it is a link", shown);
	return err_sys(err, r, "cannot open %s", shown);
}

/* Look up, without opening what is there. */
static int find(int dir, const char *path, const struct file_how *how, struct err *err)
{
	CLEAN(path) struct path found = { .fd = -1 };
	int fd;

	if (!how->anybodys) {
		fd = path_open_as(PATH_OWNED, path, &found, err);
		return fd < 0 ? fd : TAKE_FD(found.fd);
	}
	fd = openat(dir, path, O_PATH | O_CLOEXEC | (how->follow ? 0 : O_NOFOLLOW));
	return fd < 0 ? refuse(-errno, path, err) : fd;
}

/* Open what the descriptor @at stands for. */
static int open_found(int at, const char *path, const struct file_how *how,
		      struct err *err)
{
	const int flags = how->flags & ~(O_CREAT | O_EXCL);
	char self[32];
	struct stat st;
	int fd;

	if (fstat(at, &st) < 0)
		return refuse(-errno, path, err);
	if (!S_ISREG(st.st_mode))
		return refuse(S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL, path, err);
	if (how->own && (st.st_uid != geteuid() || st.st_nlink != 1))
		return refuse(-EPERM, path, err);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
	fd = open(self, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? refuse(-errno, path, err) : fd;
}

int file_open(int dir, const char *path, const struct file_how *how, struct err *err)
{
	int r = -EAGAIN;

	for (unsigned int i = 0; i < CREATE_TRIES; i++) {
		struct err why = { 0 };
		CLEAN(fd) int at = find(dir, path, how, &why);

		if (at >= 0)
			return open_found(at, path, how, err);
		if (at != -ENOENT || !(how->flags & O_CREAT))
			return err_set(err, at, "%s", why.text);
		r = openat(dir, path,
			   how->flags | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW |
				   O_NONBLOCK | O_NOCTTY,
			   how->mode);
		if (r >= 0)
			return r;
		r = -errno;
		if (r != -EEXIST)
			break;
	}
	return refuse(r, path, err);
}

/* ---- reading ---- */

int file_read_at(int fd, size_t from, void *buf, size_t room, size_t *ret_size)
{
	size_t used = 0;

	while (used < room) {
		ssize_t n = pread(fd, (uint8_t *)buf + used, room - used,
				  (off_t)(from + used));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	*ret_size = used;
	return 0;
}

/* To the end, if that comes before @max_bytes. The size of a file of /proc is 0: there
 * the room is found by doubling it. */
static int read_to_end(int fd, size_t max_bytes, struct file_bytes *f)
{
	const size_t expected = (size_t)f->stat.st_size;
	size_t room = MIN(MAX(expected, (size_t)ROOM_MIN), max_bytes) + 1;

	while (true) {
		char *grown = realloc(f->bytes, room + 1);
		size_t more;
		int r;

		if (!grown)
			return -ENOMEM;
		f->bytes = grown;
		r = file_read_at(fd, f->size, f->bytes + f->size, room - f->size, &more);
		if (r < 0)
			return r;
		f->size += more;
		if (f->size > max_bytes)
			return -E2BIG;
		f->bytes[f->size] = '\0';
		if (f->size < room)
			return 0;
		room = MIN(2 * room, max_bytes + 1);
	}
}

int file_read_fd(int fd, size_t max_bytes, struct file_bytes *ret)
{
	CLEAN(file_bytes) struct file_bytes f = { 0 };
	struct stat after;
	int r;

	if (fstat(fd, &f.stat) < 0)
		return -errno;
	if (!S_ISREG(f.stat.st_mode))
		return -EINVAL;
	if (f.stat.st_size > 0 && (uint64_t)f.stat.st_size > max_bytes)
		return -E2BIG;
	r = read_to_end(fd, max_bytes, &f);
	if (r < 0)
		return r;
	if (fstat(fd, &after) < 0)
		return -errno;
	/* Of a file of /proc nothing is known. */
	if (f.stat.st_size != after.st_size ||
	    (after.st_size > 0 && (f.stat.st_mtim.tv_sec != after.st_mtim.tv_sec ||
				   f.stat.st_mtim.tv_nsec != after.st_mtim.tv_nsec)))
		return -EAGAIN;
	*ret = f;
	f.bytes = NULL;
	return 0;
}

int file_read(int dir, const char *path, const struct file_how *how,
	      struct file_bytes *ret, struct err *err)
{
	CLEAN(fd) int fd = file_open(dir, path, how, err);
	const size_t most = how->max_bytes;
	const char *shown;
	int r;

	if (fd < 0)
		return fd;
	r = file_read_fd(fd, most, ret);
	if (r == 0)
		return 0;
	shown = SHOWN(path);
	if (r == -EAGAIN)
		return err_set(err, r, "cannot read %s: it changes while it is read",
			       shown);
	if (r != -E2BIG)
		return err_sys(err, r, "cannot read %s", shown);
	if (most < 1 << 20)
		return err_set(err, r, "cannot read %s: it is larger than %zu KiB", shown,
			       most >> 10);
	return err_set(err, r, "cannot read %s: it is larger than %zu MiB", shown,
		       most >> 20);
}

ssize_t file_read_kernel(int dir, const char *path, char *ret, size_t size)
{
	CLEAN(fd) int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);

	ret[MAX(n, (ssize_t)0)] = '\0';
	return n < 0 ? -errno : n;
}

/* ---- writing ---- */

int file_write_all(int fd, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;

	while (size > 0) {
		struct pollfd ready = { .fd = fd, .events = POLLOUT };
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EAGAIN)
			(void)poll(&ready, 1, 1000);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

int file_lock(int fd)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		(void)!poll(NULL, 0, LOCK_MS);
	}
	return -EWOULDBLOCK;
}

int file_create(int dir, const char *name, mode_t mode)
{
	int fd;

	if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    mode);
	return fd < 0 ? -errno : fd;
}

/* A user may not give a file to a group that the user isn't in. The group that it has
 * then may do what anybody may. */
static int be_like(int fd, const struct stat *like)
{
	mode_t mode = like->st_mode & 07777;

	if (fchown(fd, like->st_uid, like->st_gid) < 0) {
		if (errno != EPERM || like->st_uid != geteuid())
			return -errno;
		mode = (mode & ~(mode_t)02070) | (mode & 07) << 3;
	}
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

int file_replace_like(int dir, const char *fresh, const char *name, mode_t mode,
		      const struct stat *like, const void *bytes, size_t size)
{
	CLEAN(fd) int fd = file_create(dir, fresh, mode);
	CLEAN(fd) int names = -1;
	int r = fd < 0 ? fd : like ? be_like(fd, like) : 0;

	if (r == 0)
		r = file_write_all(fd, bytes, size);
	if (r == 0 && (fsync(fd) < 0 || renameat(dir, fresh, dir, name) < 0))
		r = -errno;
	if (r < 0) {
		unlinkat(dir, fresh, 0);
		return r;
	}
	/* The name outlives a power cut, too. */
	names = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (names >= 0)
		fsync(names);
	return 0;
}

int file_replace(int dir, const char *fresh, const char *name, mode_t mode,
		 const void *bytes, size_t size)
{
	return file_replace_like(dir, fresh, name, mode, NULL, bytes, size);
}

int file_make_parents(const char *path)
{
	CLEAN(mem) char *part = strdup(path);
	char *slash = part;

	while (part && *slash && (slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return part ? 0 : -ENOMEM;
}

DIR *directory_open(int fd)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const int error = errno;

	if (!dir && fd >= 0)
		close(fd);
	errno = error;
	return dir;
}

unsigned char directory_type(int dir, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN)
		return entry->d_type;
	if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_UNKNOWN;
	return (unsigned char)IFTODT(st.st_mode);
}

const struct dirent *directory_next(DIR *dir)
{
	const struct dirent *e;

	do {
		errno = 0;
		e = readdir(dir);
	} while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	return e;
}

/* ---- paths ---- */

enum { FD_LINK_SIZE = 32 }; /* "/proc/self/fd/N" */

/* Is a path of root and this user alone? The verdict of one walk; { 0 } to begin with.
 */
struct owned {
	bool roots;	    /* root's alone: the effective user counts as another */
	struct err refused; /* the first reason not to trust the path, or code 0 */
};

/* A look-up under way. */
struct walk {
	struct path path; /* fd: where it stands */
	char rest[PATH_MAX];
	enum path_look look;
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

static bool is_ours(const struct owned *o, uid_t uid)
{
	enum { OVERFLOW_UID = 65534 };
	struct id_range range;

	if (uid == 0 || (!o->roots && uid == geteuid()))
		return true;
	/* In a user namespace the kernel shows everybody who has no id there as one user.
	 * The host's root is one of them, so all of them count as root. */
	return uid == OVERFLOW_UID &&
	       id_map_find("/proc/self/uid_map", uid, &range, NULL) == -ENOENT;
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
	if (!stat_is_same(&st, &expected))
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

/* Remember the link @fd, and put its target in front of what is left. */
static int follow(struct walk *w, int fd, const char *component, uid_t owner)
{
	char directory[PATH_MAX], target[PATH_MAX], rest[PATH_MAX];
	struct path *p = &w->path;
	char *link = NULL;
	int r = name_of(p->fd, directory);
	ssize_t n;

	if (r < 0)
		return r;
	if (p->link_count == PATH_LINKS_MAX)
		return -ELOOP;
	if (asprintf(&link, "%s/%s", directory[1] ? directory : "", component) < 0)
		return -ENOMEM;
	p->links[p->link_count++] = link;
	if (!p->untrusted && !is_trusted(p->fd, directory, owner))
		p->untrusted = link;
	n = readlinkat(fd, "", target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest))
		return -ENAMETOOLONG;
	memcpy(w->rest, rest, sizeof(rest));
	if (target[0] != '/')
		return 0;
	close(p->fd);
	p->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return p->fd < 0 ? -errno : 0;
}

/* --- the walk --- */

static int step(struct walk *w, const char *component)
{
	const int flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
	CLEAN(fd) int fd = openat(w->path.fd, component, flags);
	const bool is_last = w->rest[strspn(w->rest, "/")] == '\0';
	struct owned *o = &w->owned;
	struct stat dir, st;

	if (fd < 0 && errno == ENOENT && w->look == PATH_MADE) {
		if (w->path.untrusted)
			return -ELOOP;
		if (mkdirat(w->path.fd, component, is_last ? 0700 : 0755) < 0 &&
		    errno != EEXIST)
			return -errno;
		fd = openat(w->path.fd, component, flags);
	}
	if (fd < 0)
		return -errno;
	if (fstat(w->path.fd, &dir) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (w->look >= PATH_WAY && strcmp(component, "..") != 0) {
		/* In a sticky directory others can't replace what is ours. */
		if (!is_owned(o, &dir) &&
		    !(is_ours(o, dir.st_uid) && (dir.st_mode & S_ISVTX) &&
		      is_ours(o, st.st_uid)))
			refuse_owner(o, &dir, "a directory on the way to it");
		if (S_ISLNK(st.st_mode) && !is_ours(o, st.st_uid))
			refuse_owner(o, &st, "a link on the way to it");
	}
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

static int walk(struct walk *w)
{
	char component[NAME_MAX + 1];
	int r = 0;

	w->path.fd =
		open(w->rest[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->path.fd < 0)
		return -errno;
	while (r == 0) {
		const char *next = w->rest + strspn(w->rest, "/");
		const size_t len = strcspn(next, "/");

		if (len == 0)
			break;
		if (len > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(component, next, len);
		component[len] = '\0';
		memmove(w->rest, next + len, strlen(next + len) + 1);
		r = step(w, component);
	}
	return r;
}

int path_open_as(enum path_look look, const char *name, struct path *ret, struct err *err)
{
	struct walk w = { .look = look,
			  .owned.roots = look == PATH_ROOTS,
			  .path.fd = -1 };
	const struct open_how linkless = { .flags = O_PATH | O_CLOEXEC,
					   .resolve = RESOLVE_NO_SYMLINKS };
	int r = 0;

	if (strlen(name) >= sizeof(w.rest))
		return err_sys(err, -ENAMETOOLONG, "cannot find '%.64s...'", name);
	if (name[0] == '\0')
		return err_set(err, -ENOENT, "an empty path names nothing");
	memcpy(w.rest, name, strlen(name) + 1);
	/* All of it at once: the kernel says -ELOOP where a link is on the way. */
	if (look == PATH_ANY)
		w.path.fd = (int)syscall(SYS_openat2, AT_FDCWD, name, &linkless,
					 sizeof(linkless));
	if (w.path.fd < 0)
		r = walk(&w);
	if (r == 0)
		r = describe(&w.path);
	if (r == 0 && look >= PATH_OWNED && !is_owned(&w.owned, &w.path.st))
		refuse_owner(&w.owned, &w.path.st, "it");
	if (r == 0 && w.owned.refused.code < 0)
		r = err_set(err, w.owned.refused.code, "cannot trust '%s': %s", name,
			    w.owned.refused.text);
	else if (r == -ELOOP && w.path.untrusted && look == PATH_MADE)
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
	return path_open_as(PATH_ANY, name, ret, err);
}

int path_open_made(const char *name, struct path *ret, struct err *err)
{
	return path_open_as(PATH_MADE, name, ret, err);
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
	clean_fd(&p->fd);
	free(p->name);
	for (size_t i = 0; i < p->link_count; i++)
		free(p->links[i]);
	*p = (struct path){ .fd = -1 };
}
