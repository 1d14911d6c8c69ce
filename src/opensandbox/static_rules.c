// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/static_rules.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/addr.h"
#include "base/index.h"
#include "policy/rule.h"
#include "sys/files.h"

static const char *const names[STATIC_RULES_COUNT] = {
	[STATIC_RULES_DENY] = "deny.always",
	[STATIC_RULES_ALLOW] = "allow.always",
	[STATIC_RULES_LOG_SKIP] = "log_skip.always",
};

/* Not IN_MODIFY: what is half written is read when it is closed. */
enum {
	DRAIN_READS_MAX = 64,
	WATCHED = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
		  IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR
};

/* Again and again: the directory may come, or be another. */
static void watch(struct static_rules *a)
{
	if (a->inotify_fd >= 0)
		(void)inotify_add_watch(a->inotify_fd, a->dir, WATCHED);
}

int static_rules_open(struct static_rules *a, const char *dir)
{
	*a = (struct static_rules){ .dir = dir, .inotify_fd = -1 };
	for (size_t i = 0; i < STATIC_RULES_COUNT; i++) {
		size_t size = strlen(dir) + strlen(names[i]) + 2;

		a->paths[i] = malloc(size);
		if (!a->paths[i]) {
			static_rules_done(a);
			return -ENOMEM;
		}
		snprintf(a->paths[i], size, "%s/%s", dir, names[i]);
	}
	a->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	watch(a);
	return 0;
}

void static_rules_done(struct static_rules *a)
{
	for (size_t i = 0; i < STATIC_RULES_COUNT; i++)
		free(a->paths[i]);
	clean_fd(&a->inotify_fd);
	*a = (struct static_rules){ .inotify_fd = -1 };
}

static struct static_rules_seen seen_of(const struct stat *st)
{
	return (struct static_rules_seen){ .mtime_ns = (int64_t)st->st_mtim.tv_sec *
							       1000000000 +
						       st->st_mtim.tv_nsec,
					   .size = (uint64_t)st->st_size,
					   .inode = (uint64_t)st->st_ino };
}

static bool is_absent(int error)
{
	return error == ENOENT || error == ENOTDIR;
}

static bool has_changed(const struct static_rules *a, enum static_rules_which which)
{
	struct static_rules_seen now = { 0 };
	struct stat st;

	if (stat(a->paths[which], &st) == 0)
		now = seen_of(&st);
	else if (!is_absent(errno))
		return true; /* reading it says why */
	return now.mtime_ns != a->seen[which].mtime_ns ||
	       now.size != a->seen[which].size || now.inode != a->seen[which].inode;
}

void static_rules_drain(struct static_rules *a)
{
	char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];

	/* What is left then wakes the loop again. */
	for (int i = 0; i < DRAIN_READS_MAX && a->inotify_fd >= 0; i++)
		if (read(a->inotify_fd, events, sizeof(events)) <= 0)
			return;
}

bool static_rules_changed(struct static_rules *a)
{
	static_rules_drain(a);
	watch(a);
	return has_changed(a, STATIC_RULES_DENY) || has_changed(a, STATIC_RULES_ALLOW);
}

int static_rules_read(struct static_rules *a, struct arena *arena,
		      struct text ret[STATIC_RULES_COUNT], struct err *err)
{
	const struct file_how how = { .max_bytes = STATIC_RULES_FILE_MAX,
				      .follow = true,
				      .anybodys = true };
	struct static_rules_seen seen[STATIC_RULES_COUNT] = { 0 };
	struct text texts[STATIC_RULES_COUNT];

	/* What changes while it is read is not taken: half a list denies too little. */
	for (size_t i = 0; i < STATIC_RULES_COUNT; i++) {
		CLEAN(file_bytes) struct file_bytes file = { 0 };
		struct err why = { 0 };
		int r = file_read(AT_FDCWD, a->paths[i], &how, &file, &why);

		texts[i] = (struct text){ "", 0 };
		if (r < 0 && is_absent(-r))
			continue;
		if (r < 0)
			return err_set(err, r, "%s", why.text);
		texts[i].ptr = arena_text(arena, (struct text){ file.bytes, file.size });
		texts[i].len = file.size;
		seen[i] = seen_of(&file.stat);
		if (!texts[i].ptr)
			return err_set(err, -ENOMEM, "out of memory");
	}
	memcpy(ret, texts, sizeof(texts));
	memcpy(a->seen, seen, sizeof(seen));
	return 0;
}

/* -- the names of log_skip.always -------------------------------------------------- */

enum { ITSELF = 1, BELOW = 2 };

struct entry {
	struct index_entry by_name; /* lower case, no trailing dot */
	unsigned int covers;	    /* ITSELF, BELOW */
};

struct log_skip_names {
	struct arena arena; /* of the entries and their names */
	struct index index;
};

static void clean_names(struct log_skip_names **n)
{
	log_skip_names_free(*n);
}

void log_skip_names_free(struct log_skip_names *n)
{
	if (!n)
		return;
	free(n->index.heads);
	arena_done(&n->arena);
	free(n);
}

/* Return: 0; -EINVAL: @t is no domain pattern; -ENOMEM. */
static int entry_add(struct log_skip_names *n, struct text t)
{
	struct dns_name name;
	struct prefix address;
	enum rule_target kind;
	struct entry *e;
	char *copy;

	if (prefix_parse(t.ptr, t.len, true, &address))
		return -EINVAL;
	kind = rule_target_stars(&t);
	if (dns_name_parse(t, &name) < 0 || name.labels == 0)
		return -EINVAL;
	t.len -= t.ptr[t.len - 1] == '.';
	e = arena_alloc(&n->arena, sizeof(*e));
	copy = arena_text(&n->arena, t);
	if (!e || !copy)
		return -ENOMEM;
	for (size_t i = 0; i < t.len; i++)
		copy[i] = text_lower(copy[i]);
	e->covers = kind == TARGET_WITHIN  ? ITSELF | BELOW
		    : kind == TARGET_BELOW ? BELOW
					   : ITSELF;
	return index_add(&n->index, &e->by_name, copy);
}

int log_skip_names_parse(struct text text, const char *path, struct log_skip_names **ret,
			 struct err *err)
{
	CLEAN(names) struct log_skip_names *n = calloc(1, sizeof(*n));
	struct text line;
	size_t number = 0;
	int r;

	if (!n)
		return err_set(err, -ENOMEM, "out of memory");
	while (text_split(&text, '\n', &line)) {
		number++;
		line = text_without_spaced_comment(line);
		if (line.len == 0)
			continue;
		r = entry_add(n, line);
		if (r == -EINVAL)
			return err_set(err, -EINVAL,
				       "%s: line %zu: '%s' is not a domain pattern; only "
				       "host/domain entries are supported",
				       SHOWN(path), number, TEXT_SHOWN(line));
		if (r < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = TAKE_PTR(n);
	return 0;
}

static bool covers(const struct log_skip_names *n, const char *name, unsigned int how)
{
	struct index_entry *e = index_find(&n->index, name);

	while (e && !(CONTAINER_OF(e, struct entry, by_name)->covers & how))
		e = index_next(e);
	return e;
}

bool log_skip_names_has(const struct log_skip_names *n, const char *name)
{
	char copy[DNS_NAME_TEXT_SIZE];
	const char *dot = copy;
	size_t len = strlen(name);

	if (!n || len == 0 || len >= sizeof(copy))
		return false;
	for (size_t i = 0; i < len; i++)
		copy[i] = text_lower(name[i]);
	copy[len - (copy[len - 1] == '.')] = '\0';
	if (covers(n, copy, ITSELF))
		return true;
	while ((dot = strchr(dot, '.')))
		if (covers(n, ++dot, BELOW))
			return true;
	return false;
}
