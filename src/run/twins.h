// SPDX-License-Identifier: Apache-2.0
/* run/twins - the other names (hard links) of files that are hidden. */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

#include "base/err.h"

enum {
	TWINS_MAX = 64,		    /* files with several names; more: refused */
	TWINS_ENTRIES_MAX = 100000, /* looked at in one search; the rest is not found */
};

struct twin_name {
	char *path;	       /* owned */
	struct stat directory; /* that has it: a path may lead there by two mounts */
};

struct twin {
	struct stat st;
	struct twin_name *names; /* owned, st.st_nlink of them at most */
	size_t count;
};

/* { 0 } is none. */
struct twins {
	struct twin list[TWINS_MAX];
	size_t count, entries;
};

/* Note the hidden file @path, if it is the effective user's and has several names. */
int twins_add(struct twins *t, const struct stat *st, const char *path,
	      struct err *err) MUST_CHECK;
/* Look for their other names below @top. */
int twins_search(struct twins *t, const char *top, struct err *err) MUST_CHECK;
/* Call @found for each name, if all are known: -EPERM with @err when some aren't. */
int twins_each(const struct twins *t,
	       int (*found)(void *data, const char *name, struct err *err), void *data,
	       struct err *err) MUST_CHECK;
void twins_done(struct twins *t);
