// SPDX-License-Identifier: Apache-2.0
#include "sys/owned.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "sys/files.h"

enum {
	LINKS_MAX = 40, /* the kernel's own limit */
	TABLE_MAX = 1 << 20,
};

/* A path that is being walked: what was reached, and what is left to do. */
struct walk {
	int at; /* O_PATH; owned */
	char rest[2 * PATH_MAX];
	unsigned int links;
	bool follow;
	const char *path;   /* all of it, for messages */
	struct err refused; /* the first reason not to trust it */
	struct err *err;
};

/* ---- whose is it? ---- */

static struct text field(struct text line, unsigned int n)
{
	struct text part = { 0 };

	for (unsigned int i = 0; i <= n; i++)
		if (!text_split(&line, ':', &part))
			return (struct text){ "", 0 };
	return part;
}

static bool read_table(const char *path, struct file_bytes *ret, struct text *ret_text)
{
	const struct file_how how = { .max_bytes = TABLE_MAX,
				      .follow = true,
				      .anybodys = true };

	if (file_read(AT_FDCWD, path, &how, ret, NULL) < 0)
		return false;
	*ret_text = (struct text){ ret->bytes, ret->size };
	return true;
}

/* A line of uid_map: the first id here, the first id outside, how many. */
static bool maps(struct text line, uid_t uid)
{
	const char *p = line.ptr, *end = line.ptr + line.len;
	uint32_t numbers[3];

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		while (p < end && *p == ' ')
			p++;
		if (!parse_u32(&p, end, UINT32_MAX, &numbers[i]))
			return false;
	}
	return uid >= numbers[0] && uid - numbers[0] < numbers[2];
}

/* In a user namespace the kernel shows everybody who has no id there as one user. The
 * host's root is one of them, so all of them count as root. */
static bool is_unmapped(uid_t uid)
{
	enum { OVERFLOW_UID = 65534 };
	CLEAN(file_bytes) struct file_bytes buf = { 0 };
	struct text map, line;

	if (uid != OVERFLOW_UID || !read_table("/proc/self/uid_map", &buf, &map))
		return false;
	while (text_split(&map, '\n', &line))
		if (maps(line, uid))
			return false;
	return true;
}

static bool is_ours(uid_t uid)
{
	return uid == 0 || uid == geteuid() || is_unmapped(uid);
}

/* Does @uid alone have the primary group @gid, and what is the user's name? */
static bool has_alone(struct text users, gid_t gid, uid_t uid, struct text *ret_name)
{
	struct text line;
	bool found = false;
	uint32_t n;

	while (text_split(&users, '\n', &line)) {
		if (!text_to_u32(field(line, 3), UINT32_MAX, &n) || n != gid)
			continue;
		if (!text_to_u32(field(line, 2), UINT32_MAX, &n) || n != uid)
			return false;
		*ret_name = field(line, 0);
		found = true;
	}
	return found;
}

static bool same(struct text a, struct text b)
{
	return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

/* No member but the user @name. */
static bool lists_only(struct text groups, gid_t gid, struct text name)
{
	struct text line, members, member;
	bool found = false;
	uint32_t n;

	while (text_split(&groups, '\n', &line)) {
		if (!text_to_u32(field(line, 2), UINT32_MAX, &n) || n != gid)
			continue;
		found = true;
		members = text_trim(field(line, 3));
		while (members.len > 0 && text_split(&members, ',', &member))
			if (!same(member, name))
				return false;
	}
	return found;
}

/* Many systems give each user a group, and let it write to what the user makes. A group
 * that these files don't have may have anybody in it. */
static bool is_private_group(gid_t gid, uid_t uid)
{
	CLEAN(file_bytes) struct file_bytes passwd = { 0 };
	CLEAN(file_bytes) struct file_bytes group = { 0 };
	struct text users, groups, name = { 0 };

	return read_table("/etc/passwd", &passwd, &users) &&
	       read_table("/etc/group", &group, &groups) &&
	       has_alone(users, gid, uid, &name) && lists_only(groups, gid, name);
}

static bool others_may_write(const struct stat *st)
{
	if (st->st_mode & S_IWOTH)
		return true;
	return (st->st_mode & S_IWGRP) && !is_private_group(st->st_gid, st->st_uid);
}

bool owned_is(const struct stat *st)
{
	return is_ours(st->st_uid) && !others_may_write(st);
}

/* The walk goes on: what isn't there needs no trust. */
static void refuse(struct walk *w, const struct stat *st, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (w->refused.code < 0)
		return;
	text_escape(text_of(w->path), shown, sizeof(shown));
	if (is_ours(st->st_uid))
		err_set(&w->refused, -EPERM,
			"cannot trust %s: others than its owner may write to %s", shown,
			what);
	else
		err_set(&w->refused, -EPERM,
			"cannot trust %s: %s belongs to another user (uid %u)", shown,
			what, (unsigned int)st->st_uid);
}

/* ---- the way to it ---- */

static int cannot(const struct walk *w, int r)
{
	char shown[TEXT_ESCAPED_SIZE];

	return err_sys(w->err, r, "cannot open %s",
		       text_escape(text_of(w->path), shown, sizeof(shown)));
}

/* May others put something else in the place of @entry in @dir? */
static void check_directory(struct walk *w, const struct stat *dir,
			    const struct stat *entry)
{
	const bool sticky = dir->st_mode & S_ISVTX;

	if (!owned_is(dir) && !(is_ours(dir->st_uid) && sticky && is_ours(entry->st_uid)))
		refuse(w, dir, "a directory on the way to it");
}

static int start(struct walk *w, int dir, bool absolute)
{
	int fd = openat(absolute ? AT_FDCWD : dir, absolute ? "/" : ".",
			O_PATH | O_DIRECTORY | O_CLOEXEC);

	clean_fd(&w->at);
	w->at = fd;
	return fd < 0 ? cannot(w, -errno) : 0;
}

/* Cut the first part of what is left off; one that is too long stays so. Return: false
 * when nothing is left. */
static bool next_part(struct walk *w, char ret[NAME_MAX + 2])
{
	const size_t skip = strspn(w->rest, "/");
	const size_t len = strcspn(w->rest + skip, "/");

	if (len == 0)
		return false;
	snprintf(ret, NAME_MAX + 2, "%.*s", (int)len, w->rest + skip);
	memmove(w->rest, w->rest + skip + len, strlen(w->rest + skip + len) + 1);
	return true;
}

static bool is_last(const struct walk *w)
{
	return w->rest[strspn(w->rest, "/")] == '\0';
}

/* What is left is what the link @fd leads to, and what was left. */
static int follow(struct walk *w, int fd)
{
	char target[PATH_MAX], rest[2 * PATH_MAX];
	ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);

	if (n < 0)
		return cannot(w, -errno);
	target[n] = '\0';
	if (++w->links > LINKS_MAX)
		return cannot(w, -ELOOP);
	if (snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= (int)sizeof(rest))
		return cannot(w, -ENAMETOOLONG);
	memcpy(w->rest, rest, strlen(rest) + 1);
	return target[0] == '/' ? start(w, AT_FDCWD, true) : 0;
}

static int step(struct walk *w, const char *part)
{
	CLEAN(fd) int fd = openat(w->at, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat dir, entry;

	if (fd < 0 || fstat(w->at, &dir) < 0 || fstat(fd, &entry) < 0)
		return cannot(w, -errno);
	if (strcmp(part, "..") != 0)
		check_directory(w, &dir, &entry);
	if (S_ISLNK(entry.st_mode) && !is_ours(entry.st_uid))
		refuse(w, &entry, "a link on the way to it");
	if (S_ISLNK(entry.st_mode) && (w->follow || !is_last(w)))
		return follow(w, fd);
	clean_fd(&w->at);
	w->at = TAKE_FD(fd);
	return 0;
}

static int walk(struct walk *w)
{
	char part[NAME_MAX + 2];
	struct stat st;
	int r = 0;

	while (r == 0 && next_part(w, part))
		r = step(w, part);
	if (r < 0)
		return r;
	if (fstat(w->at, &st) < 0)
		return cannot(w, -errno);
	if (!S_ISLNK(st.st_mode) && !owned_is(&st))
		refuse(w, &st, "it");
	return w->refused.code < 0
		       ? err_set(w->err, w->refused.code, "%s", w->refused.text)
		       : 0;
}

int owned_find(int dir, const char *path, bool follow_last, struct err *err)
{
	struct walk w = { .at = -1, .follow = follow_last, .path = path, .err = err };
	int r;

	if (strlen(path) >= PATH_MAX)
		return cannot(&w, -ENAMETOOLONG);
	memcpy(w.rest, path, strlen(path) + 1);
	r = start(&w, dir, path[0] == '/');
	if (r == 0)
		r = walk(&w);
	if (r < 0)
		clean_fd(&w.at);
	return r < 0 ? r : w.at;
}
