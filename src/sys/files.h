// SPDX-License-Identifier: Apache-2.0
/* sys/files - every regular file that is named from outside: opened, read, replaced.
 *
 * Anything may stand at a name: a pipe, which blocks whoever opens it; a device, which
 * has no end, or does something when it is opened; a link; another user's file. So a name
 * is looked up once, without opening what is there (O_PATH); the descriptor shows a
 * regular file with the owner that is asked for; that very file is opened, through
 * /proc/self/fd. No name is judged and then opened.
 *
 * Files of /proc and /sys are regular files of size 0. file_read() reads to the end,
 * whatever the size was, so it reads these too. A caller whose path is a constant below
 * /proc or /sys may as well call open() and read() itself: nobody can put anything there.
 */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/err.h"

/* The zero value opens nothing but a file that only root and this user can change, and
 * reads nothing of it. */
struct file_how {
	int flags;	  /* O_RDONLY, O_WRONLY, O_RDWR, with O_CREAT and O_APPEND */
	mode_t mode;	  /* of a file that is made */
	size_t max_bytes; /* file_read(): a larger file is -E2BIG */
	bool anybodys;	  /* the file may be any user's, and anybody's to write to; else
			   * path_open_owned() decides: @dir is AT_FDCWD then, and links
			   * that are root's or the user's are followed */
	bool own; /* anybodys: the effective user's, and without another name (hard link)
		   */
	bool follow; /* anybodys: the last part of the name may be a symbolic link */
};

/* Open the regular file @path, relative to the directory @dir or AT_FDCWD. @err says
 * "cannot open PATH: …". The descriptor is closed on exec.
 * Return: it, or -errno: -EINVAL when it is no regular file, -ELOOP when it is a link,
 * -EPERM when somebody else could have written it. */
int file_open(int dir, const char *path, const struct file_how *how,
	      struct err *err) MUST_CHECK;

/* A file's bytes; { 0 } is none. */
struct file_bytes {
	char *bytes; /* malloc'ed; owned; a NUL that @size doesn't count is behind them */
	size_t size;
	struct stat stat; /* of the file */
};

/* All of a file. *@ret is written on success only. Return: 0, or -errno: as above,
 * -E2BIG, -EAGAIN when somebody writes to it meanwhile. */
int file_read(int dir, const char *path, const struct file_how *how,
	      struct file_bytes *ret, struct err *err) MUST_CHECK;
/* The same for an open descriptor, which may stand anywhere. */
int file_read_fd(int fd, size_t max_bytes, struct file_bytes *ret) MUST_CHECK;

static inline void clean_file_bytes(struct file_bytes *f)
{
	free(f->bytes);
}

/* From the offset @from until the end of the file, or until @room bytes are there.
 * Return: 0 or -errno. */
int file_read_at(int fd, size_t from, void *buf, size_t room,
		 size_t *ret_size) MUST_CHECK;
int file_write_all(int fd, const void *bytes, size_t size) MUST_CHECK;

/* Make the file @name in the directory @dir anew, removing what was there: an earlier
 * process may have left it half written, or somebody a link. Return: a descriptor to
 * write to, or -errno. */
int file_create(int dir, const char *name, mode_t mode) MUST_CHECK;

/* Put @bytes in the place of @dir/@name: what the name leads to is the old file or the
 * whole new one, also after a power cut. @dir may be O_PATH. @fresh: the name of the new
 * file until then, in the same directory, which is removed on failure. */
int file_replace(int dir, const char *fresh, const char *name, mode_t mode,
		 const void *bytes, size_t size) MUST_CHECK;
/* The same with the owner and the mode of @like, the old file. -EPERM: that owner can't
 * be kept. */
int file_replace_like(int dir, const char *fresh, const char *name,
		      const struct stat *like, const void *bytes, size_t size) MUST_CHECK;

/* Make the directories on the way to @path that are missing, with mode 0755. Return: 0 or
 * -errno. */
int file_make_parents(const char *path) MUST_CHECK;

/* The entries of the directory @fd, which belongs to the result from now on; it is closed
 * where there is none. Return: NULL with errno, which @fd of -1 leaves as it is. */
DIR *directory_open(int fd);
/* The next entry that isn't "." or "..". Return: NULL at the end, where errno is 0, and
 * where the directory can't be read. */
const struct dirent *directory_next(DIR *dir);

static inline void clean_directory(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}
