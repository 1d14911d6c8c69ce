// SPDX-License-Identifier: Apache-2.0
/* launch/startup_files - files of a project that a program outside of the sandbox runs
 * or obeys later, without anybody asking it to: git's hooks, an editor's tasks.
 *
 * HOW IT WORKS
 * Before the start each writable directory is walked, breadth first, as far as
 * STARTUP_ENTRIES_MAX goes; node_modules and what git keeps objects in are left out. What
 * git obeys in the directory itself is looked for first, and by name, and then what else
 * of the table lies there: an earlier command may have filled the directory, or may have
 * taken away what shows a git directory, for the next command to put back.
 * What is found of the table in startup_names.c, and what a repository's config names,
 * becomes read-only in the sandbox, unless --rw names it. Each directory on the way to it
 * is mounted on itself, so that it can't be renamed and made anew.
 *
 * What doesn't exist can't be mounted over, and a made-up file in its place would be
 * seen by everybody. So it can be made by the command. When the command has ended the
 * directories are walked again, and what is new is told. Only in git directories that
 * were there at the start nothing is left to be made: an empty `hooks` is put there
 * before, and what git obeys there is moved aside after, looked for by name. */
#pragma once

#include <time.h>

#include "base/arena.h"
#include "base/err.h"
#include "launch/git_links.h"
#include "sys/files.h"

enum {
	/* Of one run; more are neither protected nor told: a warning. */
	STARTUP_MAX = 256,
	STARTUP_ENTRIES_MAX = 50000, /* of one writable directory; more: the same */
	/* Below a writable directory; deeper: the same. Each directory on the way to what
	 * is held is a mount, and a lookup from the top. */
	STARTUP_DEPTH_MAX = 64,
	STARTUP_TOPS_MAX = 300,	    /* writable directories */
	STARTUP_ELSEWHERE_MAX = 64, /* directories outside that are looked at for links */
};

struct startup_files {
	struct path tops[STARTUP_TOPS_MAX]; /* owned */
	size_t top_count;
	struct path found[STARTUP_MAX]; /* owned */
	bool is_named[STARTUP_MAX];	/* by --rw: may be changed; the caller sets it */
	bool is_inside[STARTUP_MAX];	/* a link in a directory that was found */
	bool is_dangling[STARTUP_MAX];	/* a link that led nowhere; the caller sets it */
	const char *why[STARTUP_MAX];	/* NULL: its name says why */
	size_t count;
	size_t followed; /* of these: what their links lead to is found */
	size_t configured, own_configured; /* names that git's configs have */
	size_t git_count;		   /* git directories that were looked into */
	/* Directories outside that were looked at for links. */
	struct {
		dev_t dev;
		ino_t ino;
	} elsewhere[STARTUP_ELSEWHERE_MAX];
	size_t elsewhere_count;
	struct git_links links; /* in git directories, at the start */
	struct arena names;	/* of these */
	/* Files that have hard links: how many, and the first, or NULL; owned. */
	size_t other_names;
	char *with_other_names;
	bool cut; /* there was more than was looked at */
	struct timespec began;
};

/* Remember the writable directory @top. */
int startup_files_add(struct startup_files *s, const struct path *top,
		      struct err *err) MUST_CHECK;
/* Find those below all that were added. */
int startup_files_find(struct startup_files *s, struct err *err) MUST_CHECK;
/* After the end: fill @ret, which is all zeros, with what the writable directories of
 * @before have now. startup_files_done() frees that, after a failure too. */
int startup_files_find_again(const struct startup_files *before,
			     struct startup_files *ret) MUST_CHECK;
/* Is @name of the git directory @directory an empty list of remotes? Git makes that, and
 * takes nothing from it. */
bool startup_git_is_empty(const char *directory, const char *name);
/* The file of @s whose name is @name, or NULL. */
const struct path *startup_files_known(const struct startup_files *s, const char *name);
/* Is a component of the canonical @path one of the table, or does it lie in a git
 * directory? */
bool startup_files_has(const char *path);
/* The file @name can be changed under another name. */
void startup_files_note_other_names(struct startup_files *s, const char *name);
void startup_files_done(struct startup_files *s);
