// SPDX-License-Identifier: Apache-2.0
/* sys/mounts - what is mounted where: /proc/self/mountinfo as a sorted table. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct mount {
	const char *path;    /* absolute, unescaped */
	const char *type;    /* "ext4" */
	uint32_t device;     /* the kernel's own number: major << 20 | minor */
	const char *root;    /* what of the file system it shows: a path from its root */
	uint32_t id, parent; /* as statx() gives them */
};

/* Sorted by path, a parent before what is below it; each path once. */
struct mounts {
	struct mount *list; /* owned */
	size_t count;
	char *text; /* owned; the strings point into it */
};

/* @all: those that others cover, too. */
int mounts_read(bool all, struct mounts *ret, struct err *err) MUST_CHECK;
void mounts_done(struct mounts *m);

/* Read a table out of @text, which is changed and must outlive @ret. */
int mounts_parse(char *text, bool all, struct mounts *ret, struct err *err) MUST_CHECK;

/* Is something mounted strictly below @path? */
bool mounts_has_below(const struct mounts *m, const char *path);
/* The mount at @path, or NULL. */
const struct mount *mounts_find(const struct mounts *m, const char *path);
/* The mount that @path, which exists, lies on by its name. */
const struct mount *mounts_holding(const struct mounts *m, const char *path);
/* The mount with that number, or NULL. */
const struct mount *mounts_numbered(const struct mounts *m, uint64_t id);
/* The mount that @path lies on by what the kernel says, or NULL: it isn't in the table,
 * or has been mounted over there. */
const struct mount *mounts_containing(const struct mounts *m, const char *path);

/* Is @x covered by another mount, at its place or on the way to it? @m has them all. */
bool mounts_is_hidden(const struct mounts *m, const struct mount *x);

/* Where in its file system lies @path, which @m holds? Return: false when the name would
 * be too long. */
bool mount_inside(const struct mount *m, const char *path, char ret[PATH_MAX]);
/* Where @m shows what lies at @inside in its file system. Return: false when it doesn't.
 */
bool mount_shows(const struct mount *m, const char *inside, char ret[PATH_MAX]);

/* One of the parts that a path shows. The first is what lies there on its own mount, the
 * others are the mounts below it, each as a whole. Zeros stand before the first. */
struct mount_part {
	const struct mount *of;
	const char *path;      /* borrowed: the path itself, or where @of is mounted */
	char inside[PATH_MAX]; /* where in the file system of @of it lies */
	size_t next;	       /* index of the mount that is looked at next */
};

/* The next part of @path, which lies on the mount @id. Return: false at the end, where
 * @part->of is NULL if nothing can be told: that mount isn't in the table, or a name
 * would be too long. */
bool mounts_next_part(const struct mounts *m, const char *path, uint64_t id,
		      struct mount_part *part);
/* Where another mount, @m, shows @part as well, or a piece of it. Return: false when it
 * doesn't. */
bool mount_shows_part(const struct mount *m, const struct mount_part *part,
		      char ret[PATH_MAX]);

/* Does it show the kernel, its processes and devices, and not files? */
bool mount_is_of_kernel(const struct mount *m);

/* @path is @top or below it. Both absolute, without a slash at the end ("/" has
 * everything below it). */
bool path_is_within(const char *path, const char *top);

/* @path without "//", "/./" and a slash at the end, from "/" on; "" is the root. Docker
 * takes "dir/.." away before it follows links, podman doesn't: ".." is refused.
 * Return: 0; -EINVAL: ".."; -ENAMETOOLONG. */
int path_clean(const char *path, char ret[PATH_MAX]) MUST_CHECK;
