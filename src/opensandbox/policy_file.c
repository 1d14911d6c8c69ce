// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/policy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sys/bytes.h"

static const char suffix_new[] = ".weir-new", suffix_commit[] = ".weir-commit";

/* Where a file stands: its directory, opened, and its name there. */
struct place {
	int dir; /* owned */
	char name[NAME_MAX + 1], fresh[NAME_MAX + 1], decided[NAME_MAX + 1];
};

static void clean_place(struct place *p)
{
	clean_fd(&p->dir);
}

static int name_of(char *buf, const char *name, const char *suffix)
{
	int n = snprintf(buf, NAME_MAX + 1, ".%s%s", name, suffix);

	return n > NAME_MAX ? -ENAMETOOLONG : 0;
}

/* @dir: in place of the file's own. Return: 0 or -errno. */
static int place_open(const char *path, const char *dir, struct place *ret)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char own[PATH_MAX];
	int r;

	ret->dir = -1;
	if (name[0] == '\0' || strlen(name) > NAME_MAX || strlen(path) >= sizeof(own))
		return -ENAMETOOLONG;
	memcpy(own, path, strlen(path) + 1);
	own[slash ? MAX(slash - path, 1) : 0] = '\0';
	memcpy(ret->name, name, strlen(name) + 1);
	r = name_of(ret->fresh, name, suffix_new);
	if (r == 0)
		r = name_of(ret->decided, name, suffix_commit);
	if (r < 0)
		return r;
	ret->dir = open(dir ?: own[0] ? own : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? -errno : 0;
}

static void shown_path(const struct policy_file *f, char *buf)
{
	text_escape(text_of(f->path), buf, TEXT_ESCAPED_SIZE);
}

/* --- bytes --- */

static int write_all(int fd, const char *bytes, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t n = pwrite(fd, bytes + done, size - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* The whole of an open regular file, malloc'ed. */
static int read_open(int fd, char **ret, size_t *ret_size)
{
	CLEAN(mem) char *buf = NULL;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size > POLICY_FILE_MAX)
		return -E2BIG;
	buf = malloc(POLICY_FILE_MAX + 1);
	if (!buf)
		return -ENOMEM;
	r = bytes_read(fd, buf, POLICY_FILE_MAX + 1, ret_size);
	if (r < 0)
		return r;
	if (*ret_size > POLICY_FILE_MAX)
		return -E2BIG;
	*ret = TAKE_PTR(buf);
	return 0;
}

/* Not blocking, so that a pipe in the file's place is refused, not waited for. */
static int read_at(int dir, const char *name, int flags, char **ret, size_t *ret_size)
{
	CLEAN(fd)
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);

	return fd < 0 ? -errno : read_open(fd, ret, ret_size);
}

/* --- a copy in place --- */

/* What is shorter than the file is filled up with blanks first, which are nothing behind
 * JSON: until the last step the file is as long as it was. */
static int overwrite(int fd, const char *text, size_t size)
{
	CLEAN(mem) char *padded = NULL;
	struct stat st;
	size_t room;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	room = MAX(size, MIN((size_t)st.st_size, (size_t)POLICY_FILE_MAX));
	padded = malloc(room + 1);
	if (!padded)
		return -ENOMEM;
	memcpy(padded, text, size);
	memset(padded + size, ' ', room - size);
	/* A full disk is found here, before a byte is changed. */
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)room) < 0 && errno == ENOSPC)
		return -ENOSPC;
	r = write_all(fd, padded, room);
	if (r == 0 && (ftruncate(fd, (off_t)size) < 0 || fsync(fd) < 0))
		r = -errno;
	return r;
}

/* On failure the old text is put back. */
static int copy_in_place(int dir, const char *name, const char *text, size_t size)
{
	CLEAN(fd)
	int fd = openat(dir, name,
			O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
	CLEAN(mem) char *old = NULL;
	size_t old_size = 0;
	int r, back;

	if (fd < 0)
		return -errno;
	r = read_open(fd, &old, &old_size);
	if (r < 0)
		return r;
	r = overwrite(fd, text, size);
	if (r < 0) {
		back = overwrite(fd, old, old_size);
		r = back < 0 ? -EIO : r;
	}
	return r;
}

/* --- reading --- */

/* The text of a copy in place that was decided, and cut short or not told to be whole. */
static int read_decided(const struct policy_file *f, const char *dir, char **ret,
			size_t *ret_size)
{
	CLEAN(place) struct place beside = { .dir = -1 };
	CLEAN(place) struct place own = { .dir = -1 };
	int r = place_open(f->path, dir, &beside);

	if (r < 0)
		return -ENOENT;
	unlinkat(beside.dir, beside.fresh, 0);
	r = read_at(beside.dir, beside.decided, O_NOFOLLOW, ret, ret_size);
	if (r < 0)
		return r;
	if (place_open(f->path, NULL, &own) == 0 &&
	    copy_in_place(own.dir, own.name, *ret, *ret_size) == 0)
		unlinkat(beside.dir, beside.decided, 0);
	return 0;
}

static int read_own(const struct policy_file *f, char **ret, size_t *ret_size)
{
	return read_at(AT_FDCWD, f->path, 0, ret, ret_size);
}

int policy_file_read(const struct policy_file *f, struct arena *arena, struct text *ret,
		     struct err *err)
{
	CLEAN(mem) char *text = NULL;
	char shown[TEXT_ESCAPED_SIZE];
	size_t size = 0;
	char *copy;
	int r;

	*ret = (struct text){ "", 0 };
	if (!f->path)
		return 0;
	r = read_decided(f, NULL, &text, &size);
	if (r < 0 && f->spare_dir)
		r = read_decided(f, f->spare_dir, &text, &size);
	if (r < 0)
		r = read_own(f, &text, &size);
	shown_path(f, shown);
	if (r == -EINVAL)
		return err_set(err, r, "cannot read %s: it is not a regular file", shown);
	if (r == -E2BIG)
		return err_set(err, r, "cannot read %s: it is larger than %d MiB", shown,
			       POLICY_FILE_MAX >> 20);
	if (r < 0)
		return err_sys(err, r, "cannot read %s", shown);
	copy = arena_text(arena, (struct text){ text, size });
	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	*ret = (struct text){ copy, size };
	return 0;
}

/* --- writing --- */

/* The new text in a file of its own, synced. */
static int write_fresh(const struct place *p, const struct policy_file *f,
		       const struct stat *like, bool *ret_same_owner)
{
	CLEAN(fd) int fd = -1;
	int r;

	unlinkat(p->dir, p->fresh, 0);
	fd = openat(p->dir, p->fresh,
		    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	*ret_same_owner = true;
	if (like)
		*ret_same_owner = fchown(fd, like->st_uid, like->st_gid) == 0 &&
				  fchmod(fd, like->st_mode & 07777) == 0;
	r = write_all(fd, f->text, f->size);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(p->dir, p->fresh, 0);
	return r;
}

/* Nothing can be made there, but the file itself may be written to. */
static bool is_closed_dir(int r)
{
	return r == -EROFS || r == -EACCES || r == -EPERM;
}

static int try_to_open(const struct place *p)
{
	CLEAN(fd)
	int fd = openat(p->dir, p->name,
			O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);

	return fd < 0 ? -errno : 0;
}

static int write_somewhere(struct policy_file *f, const struct place *own,
			   const struct stat *like)
{
	CLEAN(place) struct place spare = { .dir = -1 };
	bool same_owner = false;
	int r = write_fresh(own, f, like, &same_owner);

	f->in_place = like && (like->st_nlink > 1 || !same_owner);
	if (!is_closed_dir(r) || !like)
		return r;
	r = try_to_open(own);
	if (r < 0)
		return r;
	f->in_place = f->spare = true;
	r = f->spare_dir ? place_open(f->path, f->spare_dir, &spare) : -ENOENT;
	if (r == 0)
		r = write_fresh(&spare, f, NULL, &same_owner);
	f->alone = r < 0;
	return 0;
}

/* A copy in place that another process left unfinished must not come back later. */
static void finish_decided(const struct policy_file *f, const char *dir)
{
	CLEAN(mem) char *text = NULL;
	size_t size;

	(void)!read_decided(f, dir, &text, &size);
}

static int prepare(struct policy_file *f)
{
	CLEAN(place) struct place own = { .dir = -1 };
	int r = place_open(f->path, NULL, &own);
	struct stat st;

	if (r < 0)
		return r;
	finish_decided(f, NULL);
	if (f->spare_dir)
		finish_decided(f, f->spare_dir);
	if (fstatat(own.dir, own.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? write_somewhere(f, &own, NULL) : -errno;
	if (S_ISLNK(st.st_mode))
		return -ELOOP;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return write_somewhere(f, &own, &st);
}

static void forget(struct policy_file *f)
{
	free(f->text);
	f->text = NULL;
	f->size = 0;
	f->prepared = f->in_place = f->spare = f->alone = false;
}

static int cannot_write(const struct policy_file *f, int r, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];

	shown_path(f, shown);
	if (r == -ELOOP)
		return err_set(err, r, "cannot write %s: it is a symbolic link", shown);
	if (r == -EINVAL)
		return err_set(err, r, "cannot write %s: it is not a regular file",
			       shown);
	return err_sys(err, r, "cannot write %s", shown);
}

int policy_file_prepare(struct policy_file *f, struct text text, struct err *err)
{
	int r;

	if (!f->path)
		return 0;
	policy_file_abort(f);
	if (text.len > POLICY_FILE_MAX)
		return cannot_write(f, -E2BIG, err);
	f->text = malloc(text.len + 1);
	if (!f->text)
		return err_set(err, -ENOMEM, "out of memory");
	if (text.len > 0)
		memcpy(f->text, text.ptr, text.len);
	f->size = text.len;
	r = prepare(f);
	f->prepared = r == 0;
	if (r < 0) {
		r = cannot_write(f, r, err);
		forget(f);
	}
	return r;
}

/* The copy that tells what was decided stands before the first byte is changed. */
static int commit_in_place(const struct policy_file *f, const struct place *own,
			   const struct place *beside)
{
	int r;

	if (!f->alone &&
	    (renameat(beside->dir, beside->fresh, beside->dir, beside->decided) < 0 ||
	     fsync(beside->dir) < 0)) {
		r = -errno;
		unlinkat(beside->dir, beside->decided, 0);
		return r;
	}
	r = copy_in_place(own->dir, own->name, f->text, f->size);
	if (!f->alone) {
		unlinkat(beside->dir, beside->decided, 0);
		fsync(beside->dir);
	}
	return r;
}

static int commit(const struct policy_file *f)
{
	CLEAN(place) struct place own = { .dir = -1 };
	CLEAN(place) struct place spare = { .dir = -1 };
	int r = place_open(f->path, NULL, &own);

	if (r == 0 && f->spare && !f->alone)
		r = place_open(f->path, f->spare_dir, &spare);
	if (r < 0)
		return r;
	if (f->in_place)
		return commit_in_place(f, &own, f->spare ? &spare : &own);
	if (renameat(own.dir, own.fresh, own.dir, own.name) < 0)
		return errno == EBUSY || errno == EXDEV ? commit_in_place(f, &own, &own)
							: -errno;
	/* Old or new, what a power cut leaves is whole: no reason to fail now. */
	fsync(own.dir);
	return 0;
}

/* What was made beside the file, and not used. */
static void take_away(const struct policy_file *f)
{
	CLEAN(place) struct place p = { .dir = -1 };

	if (!f->alone && place_open(f->path, f->spare ? f->spare_dir : NULL, &p) == 0)
		unlinkat(p.dir, p.fresh, 0);
}

int policy_file_commit(struct policy_file *f, struct err *err)
{
	int r;

	if (!f->path)
		return 0;
	if (!f->prepared)
		return cannot_write(f, -EBADF, err);
	r = commit(f);
	if (r < 0) {
		take_away(f);
		r = cannot_write(f, r, err);
	}
	forget(f);
	return r;
}

void policy_file_abort(struct policy_file *f)
{
	if (f->prepared)
		take_away(f);
	forget(f);
}

static bool was_prepared(const struct policy_file *f, const char *dir, struct text text)
{
	CLEAN(place) struct place p = { .dir = -1 };
	CLEAN(mem) char *fresh = NULL;
	size_t size = 0;

	return place_open(f->path, dir, &p) == 0 &&
	       read_at(p.dir, p.fresh, O_NOFOLLOW, &fresh, &size) == 0 &&
	       size == text.len && memcmp(fresh, text.ptr, size) == 0;
}

int policy_file_resume(struct policy_file *f, struct text text, struct err *err)
{
	int r;

	if (!f->path || (!was_prepared(f, NULL, text) &&
			 !(f->spare_dir && was_prepared(f, f->spare_dir, text))))
		return 0;
	r = policy_file_prepare(f, text, err);
	return r < 0 ? r : policy_file_commit(f, err);
}
