// SPDX-License-Identifier: Apache-2.0
#include "opensandbox/static_rules.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "base/addr.h"
#include "policy/rule.h"
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

/* -- the names of log_skip.always -------------------------------------------------- */

/* The names of log_skip.always: sorted, each asked for by bisection, a name's suffixes
 * one by one. */

enum { ITSELF = 1, BELOW = 2 };

struct entry {
	const char *name; /* lower case, no trailing dot; in .text */
	size_t len;
	unsigned int covers; /* ITSELF, BELOW */
};

struct always_names {
	char *text; /* a copy of the file, owned */
	struct entry *entries;
	size_t count;
};

static void clean_names(struct always_names **n)
{
	always_names_free(*n);
}

void always_names_free(struct always_names *n)
{
	if (!n)
		return;
	free(n->text);
	free(n->entries);
	free(n);
}

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = memcmp(x->name, y->name, MIN(x->len, y->len));

	return c != 0 ? c : x->len < y->len ? -1 : x->len > y->len;
}

static bool entry_parse(struct text t, struct entry *ret)
{
	struct dns_name name;
	struct prefix address;
	enum rule_target kind;

	if (prefix_parse(t.ptr, t.len, true, &address))
		return false;
	kind = rule_target_stars(&t);
	ret->covers = kind == TARGET_WITHIN  ? ITSELF | BELOW
		      : kind == TARGET_BELOW ? BELOW
					     : ITSELF;
	if (dns_name_parse(t, &name) < 0 || name.labels == 0)
		return false;
	t.len -= t.ptr[t.len - 1] == '.';
	ret->name = t.ptr;
	ret->len = t.len;
	return true;
}

/* The same name twice becomes one entry, which covers what both do. */
static void sort(struct always_names *n)
{
	size_t kept = 0;

	if (n->count > 1)
		qsort(n->entries, n->count, sizeof(*n->entries), compare);
	for (size_t i = 0; i < n->count; i++) {
		if (kept > 0 && compare(&n->entries[kept - 1], &n->entries[i]) == 0)
			n->entries[kept - 1].covers |= n->entries[i].covers;
		else
			n->entries[kept++] = n->entries[i];
	}
	n->count = kept;
}

static struct always_names *names_new(struct text text)
{
	CLEAN(names) struct always_names *n = calloc(1, sizeof(*n));
	size_t lines = 1;

	for (size_t i = 0; i < text.len; i++)
		lines += text.ptr[i] == '\n';
	if (n) {
		n->text = malloc(text.len + 1);
		n->entries = calloc(lines, sizeof(*n->entries));
	}
	if (!n || !n->text || !n->entries)
		return NULL;
	for (size_t i = 0; i < text.len; i++)
		n->text[i] = text_lower(text.ptr[i]);
	return TAKE_PTR(n);
}

int always_names_parse(struct text text, const char *path, struct always_names **ret,
		       struct err *err)
{
	CLEAN(names) struct always_names *n = names_new(text);
	struct text rest, line;
	size_t number = 0;

	if (!n)
		return err_set(err, -ENOMEM, "out of memory");
	rest = (struct text){ n->text, text.len };
	while (text_split(&rest, '\n', &line)) {
		number++;
		line = text_without_spaced_comment(line);
		if (line.len == 0)
			continue;
		if (!entry_parse(line, &n->entries[n->count]))
			return err_set(err, -EINVAL,
				       "%s: line %zu: '%s' is not a domain pattern; only "
				       "host/domain entries are supported",
				       SHOWN(path), number, TEXT_SHOWN(line));
		n->count++;
	}
	sort(n);
	*ret = TAKE_PTR(n);
	return 0;
}

static bool covers(const struct always_names *n, const char *name, size_t len,
		   unsigned int how)
{
	const struct entry key = { .name = name, .len = len };
	const struct entry *e = NULL;

	if (n->count > 0)
		e = bsearch(&key, n->entries, n->count, sizeof(key), compare);
	return e && (e->covers & how) != 0;
}

bool always_names_has(const struct always_names *n, const char *name)
{
	char copy[DNS_NAME_TEXT_SIZE];
	size_t len = strlen(name);

	if (!n || n->count == 0 || len == 0 || len >= sizeof(copy))
		return false;
	for (size_t i = 0; i < len; i++)
		copy[i] = text_lower(name[i]);
	len -= copy[len - 1] == '.';
	if (covers(n, copy, len, ITSELF))
		return true;
	for (size_t i = 0; i < len; i++) {
		if (copy[i] == '.' && covers(n, copy + i + 1, len - i - 1, BELOW))
			return true;
	}
	return false;
}
