// SPDX-License-Identifier: Apache-2.0
/* opensandbox/static_rules - the operator's rules files in a directory: deny.always and
 * allow.always, which come before any policy, and log_skip.always, names that are not
 * logged. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "dns/name.h"

enum { STATIC_RULES_FILE_MAX = 1 << 20 }; /* bytes of one file; more is an error */

enum static_rules_which {
	STATIC_RULES_DENY = 0,
	STATIC_RULES_ALLOW,
	STATIC_RULES_LOG_SKIP,
	STATIC_RULES_COUNT
};

struct static_rules {
	const char *dir; /* borrowed */
	int inotify_fd;	 /* owned; -1: there is none, so poll */
	char *paths[STATIC_RULES_COUNT];
	/* What a file was like when it was last read: mtime, size, inode; all 0: none. */
	struct static_rules_seen {
		int64_t mtime_ns;
		uint64_t size, inode;
	} seen[STATIC_RULES_COUNT];
};

/* @dir need not be there. -ENOMEM. */
int static_rules_open(struct static_rules *a, const char *dir) MUST_CHECK;
void static_rules_done(struct static_rules *a);
/* Read away what inotify_fd has to say. */
void static_rules_drain(struct static_rules *a);
/* deny.always or allow.always is not as it was read. */
bool static_rules_changed(struct static_rules *a);
/* All texts, into @arena; a file that isn't there is empty. Return: 0, or -errno with
 * @err: nothing is taken as read. */
int static_rules_read(struct static_rules *a, struct arena *arena,
		      struct text ret[STATIC_RULES_COUNT], struct err *err) MUST_CHECK;

/* Names that a log_skip file lists, compiled. */
struct log_skip_names;
/* -EINVAL with the line: "line 2: '10.0.0.1' is not a domain pattern; …". */
int log_skip_names_parse(struct text text, const char *path, struct log_skip_names **ret,
			 struct err *err) MUST_CHECK;
void log_skip_names_free(struct log_skip_names *n);
/* @name as in events: no trailing dot needed, any case. NULL lists nothing. */
bool log_skip_names_has(const struct log_skip_names *n, const char *name);
