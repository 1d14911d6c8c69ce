// SPDX-License-Identifier: Apache-2.0
/* opensandbox/static_rules - the operator's rules files in a directory: deny.always and
 * allow.always, which come before any policy, and log_skip.always, names that are not
 * logged. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "dns/name.h"

enum { ALWAYS_FILE_MAX = 1 << 20 }; /* bytes of one file; more is an error */

enum always_which { ALWAYS_DENY = 0, ALWAYS_ALLOW, ALWAYS_LOG_SKIP, ALWAYS_COUNT };

struct always {
	const char *dir; /* borrowed */
	int inotify_fd;	 /* owned; -1: there is none, so poll */
	char *paths[ALWAYS_COUNT];
	/* What a file was like when it was last read: mtime, size, inode; all 0: none. */
	struct always_seen {
		int64_t mtime_ns;
		uint64_t size, inode;
	} seen[ALWAYS_COUNT];
};

/* @dir need not be there. -ENOMEM. */
int always_open(struct always *a, const char *dir) MUST_CHECK;
void always_done(struct always *a);
/* Read away what inotify_fd has to say. */
void always_drain(struct always *a);
/* deny.always or allow.always is not as it was read. */
bool always_changed(struct always *a);
/* All texts, into @arena; a file that isn't there is empty. Return: 0, or -errno with
 * @err: nothing is taken as read. */
int always_read(struct always *a, struct arena *arena, struct text ret[ALWAYS_COUNT],
		struct err *err) MUST_CHECK;

/* Names that a log_skip file lists, compiled. */
struct always_names;
/* -EINVAL with the line: "line 2: '10.0.0.1' is not a domain pattern; …". */
int always_names_parse(struct text text, const char *path, struct always_names **ret,
		       struct err *err) MUST_CHECK;
void always_names_free(struct always_names *n);
/* @name as in events: no trailing dot needed, any case. NULL lists nothing. */
bool always_names_has(const struct always_names *n, const char *name);
