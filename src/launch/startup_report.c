// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/startup_files.h"
#include "launch/startup_names.h"
#include "sys/files.h"

enum { ASIDE_TRIES = 8 };

/* Has @name's directory a file @last that was known at the start? */
static bool has_known_beside(const struct startup_files *before, const char *name,
			     const char *last)
{
	const int length = (int)(strrchr(name, '/') + 1 - name);
	CLEAN(mem) char *beside = NULL;

	return asprintf(&beside, "%.*s%s", length, name, last) >= 0 &&
	       startup_files_known(before, beside);
}

/* Was the directory of @name a git directory at the start? Git obeys what is new there,
 * and has no reason to make it. That of another working tree has no config. */
static bool is_in_known_git(const struct startup_files *before, const char *name)
{
	return startup_why(startup_git, text_of(""), strrchr(name, '/') + 1) &&
	       (has_known_beside(before, name, "config") ||
		has_known_beside(before, name, "commondir"));
}

/* Of each git directory that was there at the start one name stands for it. */
static bool stands_for_git(const struct startup_files *before, size_t i)
{
	const char *name = before->found[i].name, *last = strrchr(name, '/') + 1;

	return !before->why[i] && (strcmp(last, "config") == 0 ||
				   (strcmp(last, "commondir") == 0 &&
				    !has_known_beside(before, name, "config")));
}

/* Return: the new name, the arena's, or NULL. */
static const char *move_aside(const char *name, struct arena *arena)
{
	CLEAN(path) struct path directory = { .fd = -1 };
	const char *last;
	char self[32];

	if (path_open_parent(name, &directory, &last, NULL) < 0 || directory.untrusted)
		return NULL;
	/* The command may have taken the right away that the owner has. */
	if (directory.st.st_uid == geteuid()) {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", directory.fd);
		(void)!chmod(self, (directory.st.st_mode & 07777) | S_IRWXU);
	}
	/* What the command put in the way of the first name is no reason to leave it. */
	for (size_t i = 0; i < ASIDE_TRIES; i++) {
		const char *aside = NULL;
		uint32_t number;

		if (i == 0)
			aside = arena_printf(arena, "%s.weir", name);
		else if (getrandom(&number, sizeof(number), 0) == sizeof(number))
			aside = arena_printf(arena, "%s.weir-%08x", name,
					     (unsigned int)number);
		if (aside && renameat2(directory.fd, last, directory.fd,
				       strrchr(aside, '/') + 1, RENAME_NOREPLACE) == 0)
			return aside;
	}
	return NULL;
}

enum {
	REPORTED_MAX = 16,	  /* the others are only counted */
	TODO_MAX_BYTES = 1 << 20, /* of a rebase's list */
};

/* What git would obey at once. The arena's, as the names are. */
struct obeyed {
	struct obeyed *next;
	const char *name, *why;
	const char *aside; /* its new name; NULL: it can't be renamed */
};

struct startup_report {
	struct arena arena;
	struct obeyed *obeyed, **last; /* the list, and where its next one goes */
	size_t count;
	bool quiet, is_obeyed; /* is_obeyed: there was some */
};

static void report_new(struct startup_report *r, const char *name, const char *reason)
{
	r->count++;
	if (!r->quiet && r->count <= REPORTED_MAX)
		log_warning("'%s' is new or has changed: %s; look at it first", name,
			    reason);
}

/* Has the list of what a rebase still has to do a command in it? What can't be read to
 * its end may have any. */
static bool has_commands(const char *todo)
{
	const struct file_how how = { .max_bytes = TODO_MAX_BYTES, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line;

	if (file_read(AT_FDCWD, todo, &how, &file, NULL) < 0)
		return true;
	rest = (struct text){ file.bytes, file.size };
	while (text_split(&rest, '\n', &line)) {
		struct text word = text_trim(line);

		for (size_t i = 0; i < word.len; i++)
			if (word.ptr[i] == ' ' || word.ptr[i] == '\t')
				word.len = i;
		if (text_equal(word, "exec") || text_equal(word, "x"))
			return true;
	}
	return false;
}

/* A rebase that is under way in the git directory of @known. The command may go on with
 * it, and has to write there. */
static void look_at_rebase(const struct startup_files *before, const char *known,
			   struct startup_report *r)
{
	const int length = (int)(strrchr(known, '/') + 1 - known);
	const struct timespec *began = &before->began;
	CLEAN(mem) char *todo = NULL;
	struct stat st;

	if (asprintf(&todo, "%.*srebase-merge/git-rebase-todo", length, known) < 0)
		todo = NULL;
	if (!todo || lstat(todo, &st) < 0 || st.st_ctim.tv_sec < began->tv_sec ||
	    (st.st_ctim.tv_sec == began->tv_sec && st.st_ctim.tv_nsec < began->tv_nsec))
		return;
	if (has_commands(todo))
		report_new(r, todo,
			   "git runs the commands in it when the rebase goes on");
}

/* What git obeys and was not there, beside the file @known of a git directory. By name:
 * however full the command made the directory, or whether it can be read. */
static void look_into_known_git(const struct startup_files *before, const char *known,
				struct startup_report *r)
{
	const size_t length = (size_t)(strrchr(known, '/') - known);
	const char *directory = arena_text(&r->arena, (struct text){ known, length });

	for (const struct startup_row *row = startup_git; row->why; row++)
		for (const char *const *n = row->names; *n; n++) {
			const char *name =
				arena_printf(&r->arena, "%s/%s", directory ?: "", *n);
			const char *aside;
			struct obeyed *o;
			struct stat st;

			if (directory && name &&
			    (startup_files_known(before, name) || lstat(name, &st) < 0 ||
			     startup_git_is_empty(directory, *n)))
				continue;
			r->is_obeyed = true;
			aside = directory && name ? move_aside(name, &r->arena) : NULL;
			o = arena_alloc(&r->arena, sizeof(*o));
			if (!o)
				continue;
			*o = (struct obeyed){ .name = name ?: known,
					      .why = row->why,
					      .aside = aside };
			*r->last = o;
			r->last = &o->next;
		}
}

static void report_obeyed(struct startup_report *r)
{
	for (const struct obeyed *o = r->obeyed; o; o = o->next) {
		r->count++;
		if (o->aside)
			log_error("the command made '%s' (%s); it is called '%s' now",
				  o->name, o->why, o->aside);
		else
			log_error("the command made '%s' (%s), which can't be renamed; "
				  "remove it before git runs there",
				  o->name, o->why);
	}
}

bool startup_report_new(const struct startup_files *s, bool quiet)
{
	struct startup_report report = { .quiet = quiet, .last = &report.obeyed };
	struct startup_files *now;
	struct stat st;
	int r;

	if (s->top_count == 0)
		return true;
	/* What git would obey is moved before the first word: who reads stderr may take
	 * as long as he likes. */
	for (size_t i = 0; i < s->count; i++)
		if (stands_for_git(s, i))
			look_into_known_git(s, s->found[i].name, &report);
	report_obeyed(&report);
	now = calloc(1, sizeof(*now));
	for (size_t i = 0; i < s->count; i++) {
		const struct path *p = &s->found[i];
		const char *name = p->name;

		/* Who replaces a file outside takes the mount away that held it. */
		if (!s->is_named[i] &&
		    (lstat(name, &st) < 0 || !stat_is_same(&st, &p->st) ||
		     st.st_ctim.tv_sec != p->st.st_ctim.tv_sec ||
		     st.st_ctim.tv_nsec != p->st.st_ctim.tv_nsec ||
		     (s->is_dangling[i] && access(name, F_OK) == 0)))
			report_new(&report, name, s->why[i] ?: startup_why_path(name));
		if (stands_for_git(s, i))
			look_at_rebase(s, name, &report);
	}
	r = now ? startup_files_find_again(s, now) : -ENOMEM;
	for (size_t i = 0; now && i < now->count; i++) {
		const char *name = now->found[i].name;

		if (!startup_files_known(s, name) && !is_in_known_git(s, name))
			report_new(&report, name, now->why[i] ?: startup_why_path(name));
	}
	if ((r < 0 || (now->cut && !s->cut)) && !quiet)
		log_warning("the writable directories have become too large to be "
			    "searched for all files that run outside later, or can't "
			    "all be read");
	if (now)
		startup_files_done(now);
	free(now);
	if (!quiet && report.count > REPORTED_MAX)
		log_warning("%zu such files are new or have changed", report.count);
	arena_done(&report.arena);
	return !report.is_obeyed;
}
