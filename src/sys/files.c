// SPDX-License-Identifier: Apache-2.0
#include "sys/files.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "sys/path.h"

enum {
	CREATE_TRIES = 8, /* while others make and remove the file */
	ROOM_MIN = 4096,
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
		fd = path_open_owned(path, &found, err);
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

/* Of a file of /proc nothing is known. */
static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size &&
	       (a->st_size == 0 || (a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
				    a->st_mtim.tv_nsec == b->st_mtim.tv_nsec));
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
	if (!is_unchanged(&f.stat, &after))
		return -EAGAIN;
	*ret = f;
	f.bytes = NULL;
	return 0;
}

static int cannot_read(int r, const char *path, size_t max_bytes, struct err *err)
{
	const char *shown = SHOWN(path);

	if (r == -EAGAIN)
		return err_set(err, r, "cannot read %s: it changes while it is read",
			       shown);
	if (r != -E2BIG)
		return err_sys(err, r, "cannot read %s", shown);
	if (max_bytes < 1 << 20)
		return err_set(err, r, "cannot read %s: it is larger than %zu KiB", shown,
			       max_bytes >> 10);
	return err_set(err, r, "cannot read %s: it is larger than %zu MiB", shown,
		       max_bytes >> 20);
}

int file_read(int dir, const char *path, const struct file_how *how,
	      struct file_bytes *ret, struct err *err)
{
	CLEAN(fd) int fd = file_open(dir, path, how, err);
	int r;

	if (fd < 0)
		return fd;
	r = file_read_fd(fd, how->max_bytes, ret);
	return r < 0 ? cannot_read(r, path, how->max_bytes, err) : 0;
}

/* ---- writing ---- */

int file_write_all(int fd, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;

	while (size > 0) {
		ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		size -= (size_t)n;
	}
	return 0;
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

static int replace(int dir, const char *fresh, const char *name, mode_t mode,
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
	return replace(dir, fresh, name, mode, NULL, bytes, size);
}

int file_replace_like(int dir, const char *fresh, const char *name,
		      const struct stat *like, const void *bytes, size_t size)
{
	return replace(dir, fresh, name, 0600, like, bytes, size);
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

const struct dirent *directory_next(DIR *dir)
{
	const struct dirent *e;

	do {
		errno = 0;
		e = readdir(dir);
	} while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
	return e;
}
