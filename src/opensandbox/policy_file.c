// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/policy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sys/files.h"

/* Where a file stands: its directory, opened, and its name there. */
struct place {
	int dir; /* owned */
	char name[NAME_MAX + 1], fresh[NAME_MAX + 1], decided[NAME_MAX + 1];
};

static void clean_place(struct place *p)
{
	clean_fd(&p->dir);
}

/* @dir: in place of the file's own. Return: 0 or -errno. */
static int place_open(const char *path, const char *dir, struct place *ret)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char own[PATH_MAX];

	ret->dir = -1;
	if (name[0] == '\0' || strlen(name) > NAME_MAX || strlen(path) >= sizeof(own))
		return -ENAMETOOLONG;
	memcpy(own, path, strlen(path) + 1);
	own[slash ? MAX(slash - path, 1) : 0] = '\0';
	memcpy(ret->name, name, strlen(name) + 1);
	if (snprintf(ret->fresh, sizeof(ret->fresh), ".%s.weir-new", name) > NAME_MAX ||
	    snprintf(ret->decided, sizeof(ret->decided), ".%s.weir-commit", name) >
		    NAME_MAX)
		return -ENAMETOOLONG;
	ret->dir = open(dir ?: own[0] ? own : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? -errno : 0;
}

/* --- bytes --- */

static int open_at(int dir, const char *name, int flags)
{
	const struct file_how how = { .flags = flags, .anybodys = true };

	return file_open(dir, name, &how, NULL);
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
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	r = file_write_all(fd, padded, room);
	if (r == 0 && (ftruncate(fd, (off_t)size) < 0 || fsync(fd) < 0))
		r = -errno;
	return r;
}

/* On failure the old text is put back. */
static int copy_in_place(int dir, const char *name, const char *text, size_t size)
{
	CLEAN(fd) int fd = open_at(dir, name, O_RDWR);
	CLEAN(file_bytes) struct file_bytes old = { 0 };
	int r = fd < 0 ? fd : file_read_fd(fd, POLICY_FILE_MAX, &old);

	if (r < 0)
		return r;
	r = overwrite(fd, text, size);
	if (r < 0 && overwrite(fd, old.bytes, old.size) < 0)
		return -EIO;
	return r;
}

/* --- reading --- */

/* Nobody else can have put it there: where the file stands, or in the spare directory,
 * others may be able to make files, and what was decided counts before the policy. */
static bool is_decided_by_us(int fd, const struct place *own)
{
	struct stat st, policy;

	if (fstat(fd, &st) < 0 || st.st_nlink != 1)
		return false;
	if (st.st_uid == 0 || st.st_uid == geteuid())
		return true;
	/* A copy that stands beside the file has the owner of that. */
	return own->dir >= 0 &&
	       fstatat(own->dir, own->name, &policy, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_uid == policy.st_uid;
}

/* The text of a copy in place that was decided, and cut short or not told to be whole. */
static int read_decided(const struct policy_file *f, const char *dir,
			struct file_bytes *ret)
{
	CLEAN(place) struct place beside = { .dir = -1 };
	CLEAN(place) struct place own = { .dir = -1 };
	CLEAN(fd) int fd = -1;
	bool has_own;
	int r = place_open(f->path, dir, &beside);

	if (r < 0)
		return -ENOENT;
	has_own = place_open(f->path, NULL, &own) == 0;
	unlinkat(beside.dir, beside.fresh, 0);
	fd = open_at(beside.dir, beside.decided, O_RDONLY);
	if (fd < 0 || !is_decided_by_us(fd, &own))
		return -ENOENT;
	r = file_read_fd(fd, POLICY_FILE_MAX, ret);
	if (r < 0)
		return r;
	if (has_own && copy_in_place(own.dir, own.name, ret->bytes, ret->size) == 0)
		unlinkat(beside.dir, beside.decided, 0);
	return 0;
}

int policy_file_read(const struct policy_file *f, struct arena *arena, struct text *ret,
		     struct err *err)
{
	const struct file_how how = { .max_bytes = POLICY_FILE_MAX,
				      .follow = true,
				      .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r;

	*ret = (struct text){ "", 0 };
	if (!f->path)
		return 0;
	r = f->is_shared ? -ENOENT : read_decided(f, NULL, &file);
	if (r < 0 && f->spare_dir)
		r = read_decided(f, f->spare_dir, &file);
	if (r < 0)
		r = file_read(AT_FDCWD, f->path, &how, &file, err);
	if (r < 0)
		return r;
	*ret = (struct text){ file.bytes, file.size };
	ret->ptr = arena_text(arena, *ret);
	return ret->ptr ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* --- writing --- */

/* The new text in a file of its own, synced. */
static int write_fresh(const struct place *p, const struct policy_file *f,
		       const struct stat *like, bool *ret_same_owner)
{
	CLEAN(fd) int fd = -1;
	int r;

	fd = file_create(p->dir, p->fresh, 0600);
	if (fd < 0)
		return fd;
	*ret_same_owner = true;
	if (like)
		*ret_same_owner = fchown(fd, like->st_uid, like->st_gid) == 0 &&
				  fchmod(fd, like->st_mode & 07777) == 0;
	r = file_write_all(fd, f->text, f->size);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(p->dir, p->fresh, 0);
	return r;
}

static int write_somewhere(struct policy_file *f, const struct place *own,
			   const struct stat *like)
{
	CLEAN(place) struct place spare = { .dir = -1 };
	CLEAN(fd) int fd = -1;
	bool same_owner = false;
	int r = write_fresh(own, f, like, &same_owner);

	f->in_place = like && (like->st_nlink > 1 || !same_owner);
	/* Where nothing can be made, the file itself may still be written to. */
	if ((r != -EROFS && r != -EACCES && r != -EPERM) || !like)
		return r;
	fd = open_at(own->dir, own->name, O_RDWR);
	if (fd < 0)
		return fd;
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
	CLEAN(file_bytes) struct file_bytes ignored = { 0 };

	(void)!read_decided(f, dir, &ignored);
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
	const char *shown = SHOWN(f->path);

	if (r == -ELOOP)
		return err_set(err, r, "cannot write %s: it is a symbolic link", shown);
	if (r == -EINVAL)
		return err_set(err, r, "cannot write %s: it is not a regular file",
			       shown);
	return err_sys(err, r, "cannot write %s", shown);
}

static int prepare(struct policy_file *f)
{
	CLEAN(place) struct place own = { .dir = -1 };
	int r = place_open(f->path, NULL, &own);
	struct stat st;

	if (r < 0)
		return r;
	if (!f->is_shared)
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

/* What was made beside the file, and not used. */
static void take_away(const struct policy_file *f)
{
	CLEAN(place) struct place p = { .dir = -1 };

	if (!f->alone && place_open(f->path, f->spare ? f->spare_dir : NULL, &p) == 0)
		unlinkat(p.dir, p.fresh, 0);
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
	CLEAN(file_bytes) struct file_bytes fresh = { 0 };
	CLEAN(fd) int fd = -1;

	if (place_open(f->path, dir, &p) != 0)
		return false;
	fd = open_at(p.dir, p.fresh, O_RDONLY);
	return fd >= 0 && file_read_fd(fd, POLICY_FILE_MAX, &fresh) == 0 &&
	       fresh.size == text.len && memcmp(fresh.bytes, text.ptr, text.len) == 0;
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
