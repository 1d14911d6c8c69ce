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

#include "base/clock.h"
#include "base/text.h"
#include "event/json.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum {
	STAMP_SIZE = 24,     /* "2026-11-20T10-06-43.424", NUL */
	BACKUPS_SEEN = 1024, /* more are looked at the next time */
	COPY_SIZE = 16 * 1024,
	SAME_STAMP_TRIES = 1000,
	LOOK_MS = 1000, /* between two looks at what the name leads to */
};

struct logfile {
	char *path;
	char *directory, *stem, *extension; /* of backups: stem-STAMP.extension */
	struct logfile_limits limits;
	uint64_t size;
	int64_t look_ms; /* the next look at what the name leads to */
	struct err why;	 /* fd is -1: why the file could not be opened */
	int fd;		 /* -1: not opened yet, or it could not be */
	bool regular;	 /* else it is never turned over */
};

struct backup {
	char stamp[STAMP_SIZE];
	bool compressed;
};

/* ---- opening ---- */

/* A device, or what standard output is. The links of /dev are root's: /dev/stdout may be
 * a file, which is never turned over. */
static int open_device(const struct logfile *f, struct err *err)
{
	int fd = open(f->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd < 0 ? err_sys(err, -errno, "cannot open %s", SHOWN(f->path)) : fd;
}

/* Whoever may write to the log's directory could put a link or another name there, of a
 * policy or a store of Weir's, which would be written to; or a pipe or a terminal that
 * takes nothing, which would be waited for. So the file is Weir's own, but for what is
 * named in /dev. */
static int open_file(struct logfile *f, struct err *err)
{
	const struct file_how own = { .flags = O_WRONLY | O_APPEND | O_CREAT,
				      .mode = 0600,
				      .anybodys = true,
				      .own = true };
	const bool may_be_device = path_is_within(f->path, "/dev") &&
				   !path_is_within(f->path, "/dev/shm");
	struct stat st;
	int r = file_make_parents(f->path);

	if (r < 0)
		return err_sys(err, r, "cannot open %s", SHOWN(f->path));
	r = file_open(AT_FDCWD, f->path, &own, err);
	f->regular = r >= 0;
	if (may_be_device && (r == -EINVAL || r == -ELOOP))
		r = open_device(f, err);
	if (r < 0)
		return r;
	f->fd = r;
	f->size = f->regular && fstat(f->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
	return 0;
}

int logfile_open(struct logfile *f, struct err *err)
{
	int r;

	fd_close(&f->fd);
	f->look_ms = clock_now_ms() + LOOK_MS;
	r = open_file(f, &f->why);
	return r < 0 ? err_set(err, r, "%s", f->why.text) : 0;
}

static int split_path(struct logfile *f)
{
	const char *slash = strrchr(f->path, '/');
	const char *name = slash ? slash + 1 : f->path;
	const char *dot = strrchr(name, '.');

	if (!dot || dot == name)
		dot = name + strlen(name);
	f->directory = !slash		  ? strdup(".")
		       : slash == f->path ? strdup("/")
					  : strndup(f->path, (size_t)(slash - f->path));
	f->stem = strndup(name, (size_t)(dot - name));
	f->extension = strdup(dot);
	return f->directory && f->stem && f->extension ? 0 : -ENOMEM;
}

struct logfile *logfile_new(const char *path, const struct logfile_limits *limits)
{
	struct logfile *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->fd = -1;
	f->limits = *limits;
	if (f->limits.file_bytes == 0)
		f->limits.file_bytes = 100 << 20;
	if (f->limits.backups == 0)
		f->limits.backups = 10;
	if (f->limits.days == 0)
		f->limits.days = 30;
	f->path = strdup(path);
	if (f->path && split_path(f) == 0)
		return f;
	logfile_free(f);
	return NULL;
}

void logfile_free(struct logfile *f)
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

/* A part that can't be compressed stays as it is, and so does what Weir has not written
 * there: whoever may write to the directory could have it compress a device, or a file
 * without end. */
static void compress_backup(const struct logfile *f, const char *stamp)
{
	const struct file_how own = { .anybodys = true, .own = true };
	char plain[PATH_MAX], packed[PATH_MAX], buf[COPY_SIZE];
	struct stat st;
	CLEAN(fd) int from = -1;
	CLEAN(fd) int to = -1;
	bool is_whole = true;
	ssize_t n;
	gzFile gz;

	backup_path(f, stamp, "", plain);
	backup_path(f, stamp, ".gz", packed);
	from = file_open(AT_FDCWD, plain, &own, NULL);
	if (from < 0 || fstat(from, &st) < 0 ||
	    (uint64_t)st.st_size > 2 * f->limits.file_bytes)
		return;
	to = file_create(AT_FDCWD, packed, 0600);
	if (to < 0)
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

/* The name still leads to the file: nobody has moved it away. */
static bool is_there(const struct logfile *f)
{
	struct stat named, opened;

	return !f->regular || (stat(f->path, &named) == 0 && fstat(f->fd, &opened) == 0 &&
			       stat_is_same(&named, &opened));
}

static int be_open(struct logfile *f, struct err *err)
{
	const int64_t now_ms = clock_now_ms();

	if (now_ms < f->look_ms)
		return f->fd < 0 ? err_set(err, f->why.code, "%s", f->why.text) : 0;
	f->look_ms = now_ms + LOOK_MS;
	return f->fd >= 0 && is_there(f) ? 0 : logfile_open(f, err);
}

/* Begin a new file. One that can't be moved away (a mount) goes on growing, rather than
 * losing lines. */
static int turn_over(struct logfile *f, int64_t wall_ms, struct err *err)
{
	int r = move_away(f, wall_ms);

	if (r < 0 && r != -ENOENT)
		return 0;
	r = logfile_open(f, err);
	tidy(f, wall_ms);
	return r;
}

int logfile_write(struct logfile *f, const void *bytes, size_t size, int64_t wall_ms,
		  struct err *err)
{
	struct stat st;
	int r = be_open(f, err);

	if (r == 0 && f->regular && f->size > 0 && f->size + size > f->limits.file_bytes)
		r = turn_over(f, wall_ms, err);
	if (r < 0)
		return r;
	r = file_write_all(f->fd, bytes, size);
	if (r == 0) {
		f->size += size;
		return 0;
	}
	/* A full disk has taken a part of a line: without it the next one stands alone.
	 */
	if (f->regular && fstat(f->fd, &st) == 0 && (uint64_t)st.st_size > f->size &&
	    (uint64_t)st.st_size < f->size + size)
		(void)!ftruncate(f->fd, (off_t)f->size);
	return err_sys(err, r, "cannot write %s", SHOWN(f->path));
}
