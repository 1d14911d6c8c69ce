// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/static_rules.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "sys/files.h"

static const char *const names[ALWAYS_COUNT] = {
	[ALWAYS_DENY] = "deny.always",
	[ALWAYS_ALLOW] = "allow.always",
	[ALWAYS_LOG_SKIP] = "log_skip.always",
};

/* Not IN_MODIFY: what is half written is read when it is closed. */
enum {
	DRAIN_READS_MAX = 64,
	WATCHED = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
		  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
};

/* Again and again: the directory may come, or be another. */
static void watch(struct always *a)
{
	if (a->inotify_fd >= 0)
		(void)inotify_add_watch(a->inotify_fd, a->dir, WATCHED);
}

int always_open(struct always *a, const char *dir)
{
	*a = (struct always){ .dir = dir, .inotify_fd = -1 };
	for (size_t i = 0; i < ALWAYS_COUNT; i++) {
		size_t size = strlen(dir) + strlen(names[i]) + 2;

		a->paths[i] = malloc(size);
		if (!a->paths[i]) {
			always_done(a);
			return -ENOMEM;
		}
		snprintf(a->paths[i], size, "%s/%s", dir, names[i]);
	}
	a->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	watch(a);
	return 0;
}

void always_done(struct always *a)
{
	for (size_t i = 0; i < ALWAYS_COUNT; i++)
		free(a->paths[i]);
	clean_fd(&a->inotify_fd);
	*a = (struct always){ .inotify_fd = -1 };
}

static struct always_seen seen_of(const struct stat *st)
{
	return (struct always_seen){ .mtime_ns =
					     (int64_t)st->st_mtim.tv_sec * 1000000000 +
					     st->st_mtim.tv_nsec,
				     .size = (uint64_t)st->st_size,
				     .inode = (uint64_t)st->st_ino };
}

static bool is_absent(int error)
{
	return error == ENOENT || error == ENOTDIR;
}

static bool has_changed(const struct always *a, enum always_which which)
{
	struct always_seen now = { 0 };
	struct stat st;

	if (stat(a->paths[which], &st) == 0)
		now = seen_of(&st);
	else if (!is_absent(errno))
		return true; /* reading it says why */
	return now.mtime_ns != a->seen[which].mtime_ns ||
	       now.size != a->seen[which].size || now.inode != a->seen[which].inode;
}

void always_drain(struct always *a)
{
	char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];

	/* What is left then wakes the loop again. */
	for (int i = 0; i < DRAIN_READS_MAX && a->inotify_fd >= 0; i++)
		if (read(a->inotify_fd, events, sizeof(events)) <= 0)
			return;
}

bool always_changed(struct always *a)
{
	always_drain(a);
	watch(a);
	return has_changed(a, ALWAYS_DENY) || has_changed(a, ALWAYS_ALLOW);
}

/* What changes while it is read is not taken: half a list denies too little. */
static int read_one(const char *path, struct arena *arena, struct text *ret,
		    struct always_seen *ret_seen, struct err *err)
{
	const struct file_how how = { .max_bytes = ALWAYS_FILE_MAX,
				      .follow = true,
				      .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct err why = { 0 };
	int r = file_read(AT_FDCWD, path, &how, &file, &why);

	*ret = (struct text){ "", 0 };
	*ret_seen = (struct always_seen){ 0 };
	if (r < 0)
		return is_absent(-r) ? 0 : err_set(err, r, "%s", why.text);
	*ret = (struct text){ file.bytes, file.size };
	ret->ptr = arena_text(arena, *ret);
	*ret_seen = seen_of(&file.stat);
	return ret->ptr ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int always_read(struct always *a, struct arena *arena, struct text ret[ALWAYS_COUNT],
		struct err *err)
{
	struct always_seen seen[ALWAYS_COUNT];
	struct text texts[ALWAYS_COUNT];

	for (size_t i = 0; i < ALWAYS_COUNT; i++) {
		int r = read_one(a->paths[i], arena, &texts[i], &seen[i], err);

		if (r < 0)
			return r;
	}
	memcpy(ret, texts, sizeof(texts));
	memcpy(a->seen, seen, sizeof(seen));
	return 0;
}
