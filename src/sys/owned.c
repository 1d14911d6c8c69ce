// SPDX-License-Identifier: Apache-2.0
#include "sys/owned.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/text.h"
#include "sys/files.h"
#include "sys/id_map.h"

enum { TABLE_MAX = 1 << 20 };

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

/* In a user namespace the kernel shows everybody who has no id there as one user. The
 * host's root is one of them, so all of them count as root. */
static bool is_unmapped(uid_t uid)
{
	enum { OVERFLOW_UID = 65534 };
	struct id_range range;

	return uid == OVERFLOW_UID &&
	       id_map_find("/proc/self/uid_map", uid, &range, NULL) == -ENOENT;
}

static bool is_ours(const struct owned *o, uid_t uid)
{
	return uid == 0 || (!o->roots && uid == geteuid()) || is_unmapped(uid);
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

static bool is_owned(const struct owned *o, const struct stat *st)
{
	return is_ours(o, st->st_uid) && !others_may_write(st);
}

static void refuse_owner(struct owned *o, const struct stat *st, const char *what)
{
	if (o->refused.code < 0)
		return;
	if (is_ours(o, st->st_uid))
		err_set(&o->refused, -EPERM, "others than its owner may write to %s",
			what);
	else
		err_set(&o->refused, -EPERM, "%s belongs to another user (uid %u)", what,
			(unsigned int)st->st_uid);
}

void owned_step(struct owned *o, const struct stat *dir, const struct stat *entry)
{
	const bool sticky = dir->st_mode & S_ISVTX;

	if (!is_owned(o, dir) &&
	    !(is_ours(o, dir->st_uid) && sticky && is_ours(o, entry->st_uid)))
		refuse_owner(o, dir, "a directory on the way to it");
	if (S_ISLNK(entry->st_mode) && !is_ours(o, entry->st_uid))
		refuse_owner(o, entry, "a link on the way to it");
}

void owned_end(struct owned *o, const struct stat *st)
{
	if (!is_owned(o, st))
		refuse_owner(o, st, "it");
}
