// SPDX-License-Identifier: Apache-2.0
/* sys/files - every regular file that is named from outside: opened, read, replaced; and
 * every path, looked up once.
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
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

/* The zero value opens nothing but a file that only root and this user can change, and
 * reads nothing of it. */
struct file_how {
	int flags;	  /* O_RDONLY, O_WRONLY, O_RDWR, with O_CREAT and O_APPEND */
	mode_t mode;	  /* of a file that is made */
	size_t max_bytes; /* file_read(): a larger file is -E2BIG */
	/* The file may be any user's, and anybody's to write to. Else path_open_as() of
	 * PATH_OWNED decides: @dir is AT_FDCWD then, and links that are root's or the
	 * user's are followed. */
	bool anybodys;
	/* anybodys: the effective user's, and without another name (hard link). */
	bool own;
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
/* As much of the file @path of /proc or /sys as @ret of @size holds, with a NUL behind
 * it; "" where it can't be read. Return: the bytes, or -errno. */
ssize_t file_read_kernel(int dir, const char *path, char *ret, size_t size);
/* Everything, however long @fd takes. Return: 0 or -errno. */
int file_write_all(int fd, const void *bytes, size_t size) MUST_CHECK;

/* Lock the file or directory @fd, for this process and those that it gives it to. A
 * process that was killed may hold it for a moment longer: a second is waited for that.
 * Return: 0; -EWOULDBLOCK: another one has it; -errno. */
int file_lock(int fd) MUST_CHECK;

/* Make the file @name in the directory @dir anew, removing what was there: an earlier
 * process may have left it half written, or somebody a link. Return: a descriptor to
 * write to, or -errno. */
int file_create(int dir, const char *name, mode_t mode) MUST_CHECK;

/* Put @bytes in the place of @dir/@name: what the name leads to is the old file or the
 * whole new one, also after a power cut. @dir may be O_PATH. @fresh: the name of the new
 * file until then, in the same directory, which is removed on failure. */
int file_replace(int dir, const char *fresh, const char *name, mode_t mode,
		 const void *bytes, size_t size) MUST_CHECK;
/* The same with the owner and the mode of @like, the old file, which the new one gets
 * before its bytes; @mode until then. -EPERM: that owner can't be kept. */
int file_replace_like(int dir, const char *fresh, const char *name, mode_t mode,
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
/* Which of DT_… @entry of the directory @dir is, whether its file system says so or not.
 * DT_UNKNOWN: it has gone. */
unsigned char directory_type(int dir, const struct dirent *entry);

static inline void clean_directory(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

/* ---- paths ----
 *
 * HOW IT WORKS
 *   Somebody who may write to a directory on the way to a path can exchange what the path
 *   leads to between two look-ups. So the path is walked component by component, each
 *   opened without following a link, and what is found at the end is held as a
 *   descriptor: it is judged by the descriptor and mounted from it. The name is kept for
 *   messages, for comparisons, and to show the file at its place.
 *
 *   Links on the way are followed here, and remembered. A link may have been left by an
 *   earlier command in a sandbox, for a later run to follow. Only links that no such
 *   command can have made are trusted: root's own, in directories that root alone may
 *   write to; and for root, whose sandboxes make root's links, only those in "/", "/usr",
 *   "/var" and "/etc".
 *
 *   What tells Weir what to do (its configuration, its profiles, the programs that it
 *   starts) must not be what another user has put there. That is so when nobody but root
 *   and the effective user may change the file, nor put another one in its place: they
 * own it and every directory on the way to it, and no group and nobody else may write
 * there. A group that has only this user in it counts as the user. In a sticky directory
 * (/tmp) what belongs to root or the user can't be replaced by others. For a symbolic
 * link on the way, and for the way to where it leads, the same holds. */

enum { PATH_LINKS_MAX = 40 }; /* on the way to one path: the kernel's own limit */

struct path {
	int fd;	    /* O_PATH; owned */
	char *name; /* canonical; owned */
	struct stat st;
	uint64_t mount_id; /* as in /proc/self/mountinfo; 0: the kernel doesn't say */
	char *links[PATH_LINKS_MAX]; /* that were followed, by canonical name; owned */
	size_t link_count;
	const char *untrusted; /* the first of them that isn't trusted, or NULL */
};

/* Look up @name, which counts from the working directory unless it begins with '/'.
 * Return: 0, -ENOENT, another -errno. */
int path_open(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* The same; directories that are missing are made, the last one for the user alone, but
 * none behind a link that isn't trusted: -ELOOP. */
int path_open_made(const char *name, struct path *ret, struct err *err) MUST_CHECK;
/* The directory that holds @name, which needn't exist. *@ret_last: its last component,
 * points into @name. */
int path_open_parent(const char *name, struct path *ret, const char **ret_last,
		     struct err *err) MUST_CHECK;
/* As path_open(), of what nobody but some can have put there (see above): -EPERM
 * otherwise. What isn't there is -ENOENT whoever owns the way. */
enum path_look {
	PATH_ANY = 0, /* path_open() */
	PATH_MADE,    /* path_open_made() */
	PATH_WAY,   /* root and the effective user, of the way: the end is the caller's to
		     * judge */
	PATH_OWNED, /* root and the effective user */
	PATH_ROOTS, /* root alone */
};
int path_open_as(enum path_look look, const char *name, struct path *ret,
		 struct err *err) MUST_CHECK;
void path_done(struct path *p);
static inline void clean_path(struct path *p)
{
	path_done(p);
}

/* Are both of one file? */
static inline bool stat_is_same(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The file of @fd, which may be of another mount namespace, opened by its @name in this
 * one. No link is followed, and another file is refused.
 * Return: 0 with an O_PATH descriptor, -ESTALE, another -errno. */
int path_reopen(int fd, const char *name, int *ret_fd) MUST_CHECK;
