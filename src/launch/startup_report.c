// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/git_links.h"
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

/* Of @name, which is whole; "/": there is no memory, and nothing of git's there. */
static const char *directory_of(const char *name, struct arena *arena)
{
	const size_t length = (size_t)(strrchr(name, '/') - name);

	return arena_text(arena, (struct text){ name, length }) ?: "/";
}

/* Return: the new name, the arena's, or NULL. */
static const char *move_aside(const char *name, struct arena *arena)
{
	CLEAN(path) struct path directory = { .fd = -1 };
	const char *last;

	if (path_open_parent(name, &directory, &last, NULL) < 0 || directory.untrusted)
		return NULL;
	/* The command may have taken the right away that the owner has. */
	git_links_open_up(directory.fd);
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
	struct obeyed *first_link;     /* behind those of the table; NULL: none yet */
	size_t count;
	bool quiet, is_obeyed; /* is_obeyed: there was some */
	bool is_cut; /* of a git directory there was more than is looked at for links */
};

static void report_new(struct startup_report *r, const char *name, const char *reason)
{
	r->count++;
	if (!r->quiet && r->count <= REPORTED_MAX)
		log_warning("'%s' is new or has changed: %s; look at it first", name,
			    reason);
}

static bool read_todo(const char *name, struct file_bytes *ret)
{
	const struct file_how how = { .max_bytes = TODO_MAX_BYTES,
				      .anybodys = true,
				      .follow = true };

	return file_read(AT_FDCWD, name, &how, ret, NULL) == 0;
}

/* Has the list of what a rebase still has to do a command in it? What can't be read to
 * its end may have any. */
static bool has_commands(const char *todo)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line;

	if (!read_todo(todo, &file))
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

/* A strategy with a slash is a program of the working tree. */
static bool has_strategy(const char *file)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };

	return !read_todo(file, &text) || memchr(text.bytes, '/', text.size);
}

static bool has_changed(const struct startup_files *before, const char *name)
{
	const struct timespec *began = &before->began;
	struct stat st;

	return lstat(name, &st) == 0 && (st.st_ctim.tv_sec > began->tv_sec ||
					 (st.st_ctim.tv_sec == began->tv_sec &&
					  st.st_ctim.tv_nsec >= began->tv_nsec));
}

/* A rebase, or what goes through several commits, that is under way in the git directory
 * of @known. The command may go on with it, and has to write there. A directory that it
 * renamed has changed. */
static void look_at_rebase(const struct startup_files *before, const char *known,
			   struct startup_report *r)
{
	static const struct {
		const char *directory, *name;
		bool (*runs)(const char *file);
		const char *why;
	} lists[] = {
		{ "rebase-merge", "git-rebase-todo", has_commands,
		  "git runs the commands in it when the rebase goes on" },
		{ "rebase-merge", "strategy", has_strategy,
		  "git runs the program that it names when the rebase goes on" },
		{ "sequencer", "opts", has_strategy,
		  "git runs the program that it names when it goes on" },
	};
	const int length = (int)(strrchr(known, '/') - known);

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		const char *directory = arena_printf(&r->arena, "%.*s/%s", length, known,
						     lists[i].directory);
		const char *name =
			arena_printf(&r->arena, "%s/%s", directory ?: "", lists[i].name);

		if (directory && name && access(name, F_OK) == 0 &&
		    (has_changed(before, directory) || has_changed(before, name)) &&
		    lists[i].runs(name))
			report_new(r, name, lists[i].why);
	}
}

/* It is moved when all is found: what is renamed could be listed once more. */
static void add_obeyed(struct startup_report *r, const char *name, const char *reason,
		       bool is_link)
{
	struct obeyed *o;

	r->is_obeyed = true;
	/* What has a name of the table may be a link, too. */
	for (o = r->obeyed; o && o != r->first_link; o = o->next)
		if (strcmp(o->name, name) == 0)
			return;
	o = arena_alloc(&r->arena, sizeof(*o));
	if (!o) {
		(void)!move_aside(name, &r->arena);
		return;
	}
	*o = (struct obeyed){ .name = name, .why = reason };
	*r->last = o;
	r->last = &o->next;
	r->first_link = r->first_link ?: is_link ? o : NULL;
}

/* What git obeys and was not there in the git directory @directory. By name: however full
 * the command made the directory, or whether it can be read. */
static void look_into_known_git(const struct startup_files *before, const char *directory,
				struct startup_report *r)
{
	for (const struct startup_row *row = startup_git; row->why; row++)
		for (const char *const *n = row->names; *n; n++) {
			const char *name =
				arena_printf(&r->arena, "%s/%s", directory, *n);
			struct stat st;

			if (name &&
			    (startup_files_known(before, name) || lstat(name, &st) < 0 ||
			     startup_git_is_empty(directory, *n)))
				continue;
			add_obeyed(r, name ?: directory, row->why, false);
		}
}

/* Does another git directory have it in it? It is searched along with that one. */
static bool is_in_another(const struct startup_files *s, size_t i)
{
	const char *name = s->found[i].name;

	for (size_t j = 0; j < s->count; j++) {
		const char *other = s->found[j].name;
		const size_t length = (size_t)(strrchr(other, '/') + 1 - other);

		if (j != i && stands_for_git(s, j) && strncmp(name, other, length) == 0 &&
		    (strncmp(name + length, "modules/", 8) == 0 ||
		     strncmp(name + length, "worktrees/", 10) == 0) &&
		    !strstr(name + length, "/objects/"))
			return true;
	}
	return false;
}

/* In all git directories that were there at the start. */
static void find_links(const struct startup_files *s, bool opens, struct arena *arena,
		       struct git_links *ret)
{
	for (size_t i = 0; i < s->count; i++)
		if (stands_for_git(s, i) && !is_in_another(s, i))
			git_links_find(directory_of(s->found[i].name, arena), opens,
				       arena, ret);
}

void startup_report_begin(struct startup_files *s)
{
	find_links(s, false, &s->names, &s->links);
	git_links_sort(&s->links);
	s->cut = s->cut || s->links.is_cut || s->links.closed;
}

/* Git writes through what is a link in its directory. Those that the command made, or
 * moved to where they are, are moved aside. */
static void look_for_links(const struct startup_files *before, struct startup_report *r)
{
	const bool knows_all = !before->links.is_cut && !before->links.closed;
	struct git_links now = { .items = NULL };

	find_links(before, true, &r->arena, &now);
	for (size_t i = 0; i < now.count; i++) {
		const struct git_link *l = &now.items[i];

		if (!git_links_has(&before->links, l) &&
		    (knows_all || has_changed(before, l->name)) &&
		    !startup_files_known(before, l->name))
			add_obeyed(r, l->name, "a link: git writes where it leads", true);
	}
	/* Nobody but the command has closed a directory of the caller's. */
	if (now.closed && knows_all)
		add_obeyed(r, now.closed, "it can't be searched for links", true);
	r->is_cut = now.is_cut;
	git_links_done(&now);
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
	struct obeyed **links;
	struct stat st;
	int r;

	if (s->top_count == 0)
		return true;
	/* What git would obey is moved before the first word: who reads stderr may take
	 * as long as he likes. */
	for (size_t i = 0; i < s->count; i++)
		if (stands_for_git(s, i))
			look_into_known_git(s,
					    directory_of(s->found[i].name, &report.arena),
					    &report);
	links = report.last;
	look_for_links(s, &report);
	/* A directory of the table after what is in it. */
	for (struct obeyed *o = *links; o; o = o->next)
		o->aside = move_aside(o->name, &report.arena);
	for (struct obeyed **o = &report.obeyed; o != links; o = &(*o)->next)
		(*o)->aside = move_aside((*o)->name, &report.arena);
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
	if ((r < 0 || ((now->cut || report.is_cut) && !s->cut)) && !quiet)
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
