// SPDX-License-Identifier: Apache-2.0
#include "events/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "event/json.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum {
	STAMP_SIZE = 24,     /* "2026-11-20T10-06-43.424", NUL */
	BACKUPS_SEEN = 1024, /* more are looked at the next time */
	COPY_SIZE = 16 * 1024,
	SAME_STAMP_TRIES = 1000,
};

struct logfile {
	char *path;
	char *directory, *stem, *extension; /* of backups: stem-STAMP.extension */
	struct logfile_limits limits;
	uint64_t size;
	int fd;	      /* -1: it could not be opened again */
	bool regular; /* else it is never turned over */
};

struct backup {
	char stamp[STAMP_SIZE];
	bool compressed;
};

/* ---- opening ---- */

/* A fifo without a reader is ENXIO, not a wait. A link may lead to a device, but to no
 * file: whoever may write to the log's directory could have the lines put into another
 * file of Weir's, a policy or a store. The links of /dev are root's: /dev/stdout may be a
 * file, which is never turned over. */
static int open_file(struct logfile *f)
{
	const int flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	bool is_link = false;
	struct stat st;

	f->fd = open(f->path, flags | O_CREAT | O_NOFOLLOW, 0600);
	if (f->fd < 0 && errno == ELOOP) {
		is_link = true;
		f->fd = open(f->path, flags);
	}
	if (f->fd < 0)
		return -errno;
	if (fstat(f->fd, &st) < 0 ||
	    (is_link && S_ISREG(st.st_mode) && !path_is_within(f->path, "/dev"))) {
		fd_close(&f->fd);
		return is_link ? -ELOOP : -EIO;
	}
	f->regular = S_ISREG(st.st_mode) && !is_link;
	f->size = f->regular ? (uint64_t)st.st_size : 0;
	return 0;
}

static int split_path(struct logfile *f)
{
	const char *slash = strrchr(f->path, '/');
	const char *name = slash ? slash + 1 : f->path;
	const char *dot = strrchr(name, '.');

	if (*name == '\0')
		return -EISDIR;
	if (!dot || dot == name)
		dot = name + strlen(name);
	f->directory = !slash		  ? strdup(".")
		       : slash == f->path ? strdup("/")
					  : strndup(f->path, (size_t)(slash - f->path));
	f->stem = strndup(name, (size_t)(dot - name));
	f->extension = strdup(dot);
	return f->directory && f->stem && f->extension ? 0 : -ENOMEM;
}

int logfile_open(const char *path, const struct logfile_limits *limits,
		 struct logfile **ret, struct err *err)
{
	struct logfile *f = calloc(1, sizeof(*f));
	int r = -ENOMEM;

	if (!f)
		return err_sys(err, r, "cannot open '%s'", path);
	f->fd = -1;
	f->limits = *limits;
	if (f->limits.file_bytes == 0)
		f->limits.file_bytes = 100 << 20;
	if (f->limits.backups == 0)
		f->limits.backups = 10;
	if (f->limits.days == 0)
		f->limits.days = 30;
	f->path = strdup(path);
	if (f->path)
		r = split_path(f);
	if (r == 0)
		r = file_make_parents(f->path);
	if (r == 0)
		r = open_file(f);
	if (r < 0)
		logfile_close(f);
	else
		*ret = f;
	return r < 0 ? err_sys(err, r, "cannot open '%s'", path) : 0;
}

void logfile_close(struct logfile *f)
{
	if (!f)
		return;
	clean_fd(&f->fd);
	free(f->path);
	free(f->directory);
	free(f->stem);
	free(f->extension);
	free(f);
}

/* ---- older parts ---- */

static void format_stamp(int64_t wall_ms, char *buf)
{
	char text[JTEXT_TIME_SIZE];

	jtext_time(wall_ms, true, text);
	text[13] = text[16] = '-'; /* the colons */
	snprintf(buf, STAMP_SIZE, "%.23s", text);
}

/* The name of a part of @f's. */
static bool read_backup(const struct logfile *f, const char *name, struct backup *ret)
{
	static const char form[] = "0000-00-00T00-00-00.000";
	const size_t stem = strlen(f->stem);
	const char *stamp, *rest;

	if (strncmp(name, f->stem, stem) != 0 || name[stem] != '-' ||
	    strlen(name) < stem + STAMP_SIZE)
		return false;
	stamp = name + stem + 1;
	for (size_t i = 0; i < sizeof(form) - 1; i++)
		if (form[i] == '0' ? stamp[i] < '0' || stamp[i] > '9'
				   : stamp[i] != form[i])
			return false;
	rest = name + stem + STAMP_SIZE;
	if (strncmp(rest, f->extension, strlen(f->extension)) != 0)
		return false;
	rest += strlen(f->extension);
	if (*rest != '\0' && strcmp(rest, ".gz") != 0)
		return false;
	ret->compressed = *rest != '\0';
	memcpy(ret->stamp, stamp, STAMP_SIZE - 1);
	ret->stamp[STAMP_SIZE - 1] = '\0';
	return true;
}

static void backup_path(const struct logfile *f, const char *stamp, const char *suffix,
			char *buf)
{
	snprintf(buf, PATH_MAX, "%s/%s-%s%s%s", f->directory, f->stem, stamp,
		 f->extension, suffix);
}

static int newest_first(const void *a, const void *b)
{
	return strcmp(((const struct backup *)b)->stamp,
		      ((const struct backup *)a)->stamp);
}

static size_t list_backups(const struct logfile *f, struct backup *list)
{
	CLEAN(directory) DIR *dir = opendir(f->directory);
	const struct dirent *entry;
	size_t n = 0;

	if (!dir)
		return 0;
	while (n < BACKUPS_SEEN && (entry = readdir(dir)))
		n += read_backup(f, entry->d_name, &list[n]);
	qsort(list, n, sizeof(*list), newest_first);
	return n;
}

/* A part that can't be compressed stays as it is. */
static void compress_backup(const struct logfile *f, const char *stamp)
{
	char plain[PATH_MAX], packed[PATH_MAX], buf[COPY_SIZE];
	CLEAN(fd) int from = -1;
	CLEAN(fd) int to = -1;
	bool is_whole = true;
	ssize_t n;
	gzFile gz;

	backup_path(f, stamp, "", plain);
	backup_path(f, stamp, ".gz", packed);
	from = open(plain, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	to = open(packed, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (from < 0 || to < 0)
		return;
	gz = gzdopen(to, "wb6");
	if (!gz)
		return;
	TAKE_FD(to);
	while (is_whole && (n = read(from, buf, sizeof(buf))) != 0)
		is_whole = n > 0 && gzwrite(gz, buf, (unsigned int)n) == n;
	if (gzclose(gz) != Z_OK)
		is_whole = false;
	unlink(is_whole ? plain : packed);
}

static void tidy(const struct logfile *f, int64_t wall_ms)
{
	CLEAN(mem) struct backup *list = calloc(BACKUPS_SEEN, sizeof(*list));
	char oldest[STAMP_SIZE], path[PATH_MAX];
	size_t n;

	if (!list)
		return;
	format_stamp(MAX(wall_ms - (int64_t)f->limits.days * 86400 * 1000, 0), oldest);
	n = list_backups(f, list);
	for (size_t i = 0; i < n; i++) {
		if (i >= f->limits.backups || strcmp(list[i].stamp, oldest) < 0) {
			backup_path(f, list[i].stamp, list[i].compressed ? ".gz" : "",
				    path);
			unlink(path);
		} else if (!list[i].compressed) {
			compress_backup(f, list[i].stamp);
		}
	}
}

/* ---- turning over ---- */

/* A clock that was set back may give the same name twice. */
static int move_away(const struct logfile *f, int64_t wall_ms)
{
	char stamp[STAMP_SIZE], path[PATH_MAX];

	for (int i = 0; i < SAME_STAMP_TRIES; i++) {
		format_stamp(wall_ms + i, stamp);
		backup_path(f, stamp, ".gz", path);
		if (access(path, F_OK) == 0)
			continue;
		backup_path(f, stamp, "", path);
		if (renameat2(AT_FDCWD, f->path, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

bool logfile_is_there(const struct logfile *f)
{
	struct stat named, opened;

	return !f->regular || (stat(f->path, &named) == 0 && fstat(f->fd, &opened) == 0 &&
			       stat_is_same(&named, &opened));
}

int logfile_write(struct logfile *f, const void *bytes, size_t size, int64_t wall_ms)
{
	struct stat st;
	int r = 0, moved = -EALREADY; /* not tried */

	if (f->fd < 0)
		r = open_file(f);
	else if (f->regular && f->size > 0 && f->size + size > f->limits.file_bytes)
		moved = move_away(f, wall_ms);
	/* Where it can't be moved (a mount) it goes on growing, rather than losing
	 * lines. */
	if (moved == 0 || moved == -ENOENT) {
		close(f->fd);
		r = open_file(f);
		tidy(f, wall_ms);
	}
	if (r == 0)
		r = file_write_all(f->fd, bytes, size);
	if (r == 0) {
		f->size += size;
		return 0;
	}
	/* A full disk has taken a part of a line: without it the next one stands alone.
	 */
	if (f->regular && f->fd >= 0 && fstat(f->fd, &st) == 0 &&
	    (uint64_t)st.st_size > f->size && (uint64_t)st.st_size < f->size + size)
		(void)!ftruncate(f->fd, (off_t)f->size);
	return r;
}
