// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/arena.h"
#include "base/text.h"
#include "launch/git_repository.h"
#include "launch/startup_names.h"
#include "launch/startup_report.h"
#include "launch/startup_scan.h"
#include "sys/files.h"
#include "sys/mounts.h"

/* Weir's programs stand beside this one, or where they are installed. */
static const char installed[] = "libexec/weir";

/* Not walked: the first is full of what others wrote, the others of what nobody runs. */
static const char *const left_out[] = { "node_modules" };
static const char *const git_left_out[] = { "objects", "refs", "logs", "lfs" };

enum {
	/* of one directory that is held or runs; more: neither protected nor told */
	LINKS_MAX = 32,
	LINKS_ENTRIES_MAX = 1000,
};

/* What one directory has of a git directory's. */
struct git_marks {
	bool head, objects, refs, commondir, config, hooks;
};

static int open_below(const struct path *top, const char *rest, uint64_t flags)
{
	struct open_how how = { .flags = flags | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	long fd = syscall(SYS_openat2, top->fd, rest[0] ? rest : ".", &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

static char *join_names(const char *directory, const char *name)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s", directory, directory[0] ? "/" : "", name) < 0)
		return NULL;
	return joined;
}

const struct path *startup_files_known(const struct startup_files *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->found[i].name, name) == 0)
			return &s->found[i];
	}
	return NULL;
}

void startup_files_note_other_names(struct startup_files *s, const char *name)
{
	if (s->other_names++ == 0)
		s->with_other_names = strdup(name);
}

/* --- the walk --- */

static int add_file(struct scan *scan, const char *directory, const char *name,
		    struct err *err)
{
	struct startup_files *s = scan->files;
	CLEAN(mem) char *rest = join_names(directory, name);
	struct path p = { .fd = -1 };

	if (s->count == STARTUP_MAX) {
		s->cut = true;
		return 0;
	}
	if (rest)
		p.name = join_names(scan->top->name[1] ? scan->top->name : "", rest);
	if (!p.name)
		return err_sys(err, -ENOMEM, "cannot list the project's files");
	/* No call takes a longer name. */
	if (strlen(p.name) >= PATH_MAX) {
		s->cut = true;
		path_done(&p);
		return 0;
	}
	p.fd = open_below(scan->top, rest, O_PATH);
	if (p.fd < 0 && !scan_has_gone(p.fd))
		s->cut = true;
	if (p.fd < 0 || fstat(p.fd, &p.st) < 0 || startup_files_known(s, p.name)) {
		path_done(&p); /* it has gone, or lies below two writable directories */
		return 0;
	}
	s->found[s->count++] = p;
	return 0;
}

/* The whole name of @directory, which is relative to the top. Return: to be freed, or
 * NULL. */
static char *whole_name(const struct scan *scan, const char *directory)
{
	return directory[0] ? join_names(scan->top->name, directory)
			    : strdup(scan->top->name);
}

static int push(struct scan *scan, const char *directory, const char *name,
		struct err *err)
{
	char *rest = join_names(directory, name);
	size_t depth = 0;

	if (!rest)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	for (const char *at = rest; (at = strchr(at, '/')); at++)
		depth++;
	if (depth >= STARTUP_DEPTH_MAX) {
		scan->files->cut = true;
		free(rest);
		return 0;
	}
	scan->queue[scan->last++] = rest;
	return 0;
}

/* In any case of the letters, as is_called(). */
static void mark(struct git_marks *marks, const char *name)
{
	marks->head |= strcasecmp(name, "HEAD") == 0;
	marks->objects |= strcasecmp(name, "objects") == 0;
	marks->refs |= strcasecmp(name, "refs") == 0;
	marks->commondir |= strcasecmp(name, "commondir") == 0;
	marks->config |= strcasecmp(name, "config") == 0;
	marks->hooks |= strcasecmp(name, "hooks") == 0;
}

/* What marks the directory @dir as git's, looked up by name: a listing may be too long,
 * or closed. */
static void mark_by_name(struct git_marks *marks, int dir)
{
	static const char *const marked[] = { "HEAD",	   "objects", "refs",
					      "commondir", "config",  "hooks" };

	for (size_t i = 0; i < ARRAY_SIZE(marked); i++)
		if (faccessat(dir, marked[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			mark(marks, marked[i]);
}

static bool is_whole(const struct git_marks *marks)
{
	return marks->head && marks->objects && marks->refs;
}

/* Has the open directory @dir what is held of git's? No command can have moved that, and
 * what makes it anew is told. */
static bool has_held(int dir, const struct git_marks *marks)
{
	struct stat config, hooks;

	return marks->config && marks->hooks && fstatat(dir, "config", &config, 0) == 0 &&
	       S_ISREG(config.st_mode) && fstatat(dir, "hooks", &hooks, 0) == 0 &&
	       S_ISDIR(hooks.st_mode);
}

/* Is the open directory @dir, which is called @name, one of git's? A command may have
 * moved HEAD, objects or refs away, for the next command to put back. */
static bool is_gits(int dir, const char *name, const struct git_marks *marks)
{
	return is_whole(marks) || marks->commondir || strcasecmp(name, ".git") == 0 ||
	       has_held(dir, marks);
}

/* --- by links --- */

/* Where @name lies in the writable directory @top. Return: NULL when it doesn't. */
static const char *rest_below(const struct path *top, const char *name)
{
	const size_t above = strlen(top->name);

	if (!path_is_within(name, top->name) || !name[above])
		return NULL;
	return name + above + (above > 1);
}

int scan_add_in_tops(struct scan *scan, const char *name, const char *reason,
		     struct err *err)
{
	struct startup_files *s = scan->files;
	int r = 0;

	for (size_t i = 0; r == 0 && i < scan->top_count; i++) {
		struct scan there = { .files = s, .top = &scan->tops[i] };
		const char *rest = rest_below(there.top, name);
		const size_t before = s->count;

		if (rest)
			r = add_file(&there, "", rest, err);
		if (s->count > before)
			s->why[before] = reason;
	}
	return r;
}

static bool is_in_tops(const struct scan *scan, const char *name)
{
	for (size_t i = 0; i < scan->top_count; i++)
		if (path_is_within(name, scan->tops[i].name))
			return true;
	return false;
}

int scan_add_way(struct scan *scan, const struct path *p, const char *reason,
		 struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < p->link_count; i++)
		r = scan_add_in_tops(scan, p->links[i], reason, err);
	return r;
}

/* Has @p all of a writable directory in it? */
static bool has_a_top(const struct scan *scan, const struct path *p)
{
	for (size_t i = 0; i < scan->top_count; i++)
		if (path_is_within(scan->tops[i].name, p->name))
			return true;
	return false;
}

/* What was looked at of a directory that is obeyed, with those in it. */
struct links_walk {
	struct scan *scan;
	const char *reason;
	struct err *err;
	size_t entries, links, depth;
	bool is_full; /* there is more than is looked at */
};

static int add_links(struct links_walk *w, int at, const char *entry, const char *name);

/* What a directory has that is obeyed may be a link, to a script of the project. One that
 * lies in a writable directory is held, and follow_links() goes on from there. */
static int add_obeyed_link(struct links_walk *w, const char *name)
{
	CLEAN(path) struct path p = { .fd = -1 };
	struct startup_files *s = w->scan->files;
	const bool leads = path_open(name, &p, NULL) == 0;
	const size_t before = s->count;
	int r;

	/* It may lead to the whole project. */
	if (leads && !S_ISREG(p.st.st_mode) &&
	    (!S_ISDIR(p.st.st_mode) || has_a_top(w->scan, &p)))
		return 0;
	w->links++;
	r = scan_add_in_tops(w->scan, name, w->reason, w->err);
	for (size_t i = before; i < s->count; i++)
		s->is_inside[i] = true;
	if (r < 0 || !leads || is_in_tops(w->scan, name))
		return r;
	r = scan_add_way(w->scan, &p, w->reason, w->err);
	if (r == 0)
		r = scan_add_in_tops(w->scan, p.name, w->reason, w->err);
	if (r == 0 && S_ISDIR(p.st.st_mode) && !is_in_tops(w->scan, p.name))
		r = add_links(w, p.fd, ".", p.name);
	return r;
}

/* An agent keeps whole working trees in its directory. */
static bool is_walked_for_links(const char *name)
{
	static const char *const others[] = { "node_modules", "worktrees" };

	return !text_is_one_of(name, others, ARRAY_SIZE(others));
}

/* A file in a directory that is held is not mounted by itself: under another name it can
 * be changed. */
static void note_other_names(struct scan *scan, int dir, const struct dirent *entry,
			     const char *directory)
{
	CLEAN(mem) char *name = NULL;
	struct stat st;

	if (directory_type(dir, entry) != DT_REG ||
	    fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    st.st_nlink < 2 || !is_in_tops(scan, directory))
		return;
	name = join_names(directory, entry->d_name);
	if (name)
		startup_files_note_other_names(scan->files, name);
}

static int add_links_of(struct links_walk *w, DIR *dir, const char *name, bool of_links)
{
	const struct dirent *entry;
	int r = 0;

	while (r == 0 && !w->is_full && (entry = directory_next(dir))) {
		CLEAN(mem) char *whole = NULL;

		w->is_full = of_links &&
			     (++w->entries > LINKS_ENTRIES_MAX || w->links == LINKS_MAX);
		if (of_links && !w->is_full)
			note_other_names(w->scan, dirfd(dir), entry, name);
		if (w->is_full ||
		    directory_type(dirfd(dir), entry) != (of_links ? DT_LNK : DT_DIR) ||
		    (!of_links && !is_walked_for_links(entry->d_name)))
			continue;
		whole = join_names(name, entry->d_name);
		if (!whole)
			return err_sys(w->err, -ENOMEM, "cannot walk '%s'", name);
		r = of_links ? add_obeyed_link(w, whole)
			     : add_links(w, dirfd(dir), entry->d_name, whole);
	}
	w->is_full = w->is_full || (r == 0 && errno != 0);
	return r;
}

/* Hold what the links lead to in the directory @name, which is @entry of @at, and then in
 * those in it. */
static int add_links(struct links_walk *w, int at, const char *entry, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
	CLEAN(directory) DIR *dir = directory_open(openat(at, entry, flags));
	int r = 0;

	w->is_full = w->is_full || w->depth == STARTUP_DEPTH_MAX ||
		     (!dir && !scan_has_gone(-errno));
	w->depth++;
	if (dir)
		r = add_links_of(w, dir, name, true);
	if (dir)
		rewinddir(dir);
	if (dir && r == 0)
		r = add_links_of(w, dir, name, false);
	w->depth--;
	w->scan->files->cut = w->scan->files->cut || w->is_full;
	return r;
}

/* Many git directories have the same hooks, by a config of the caller's. */
static bool is_new_elsewhere(struct startup_files *s, const struct path *p)
{
	for (size_t i = 0; i < s->elsewhere_count; i++)
		if (s->elsewhere[i].dev == p->st.st_dev &&
		    s->elsewhere[i].ino == p->st.st_ino)
			return false;
	if (s->elsewhere_count == STARTUP_ELSEWHERE_MAX) {
		s->cut = true;
		return false;
	}
	s->elsewhere[s->elsewhere_count].dev = p->st.st_dev;
	s->elsewhere[s->elsewhere_count++].ino = p->st.st_ino;
	return true;
}

/* Has the caller closed a directory on the way to @name to himself? A command may have
 * done that, and may open it again. */
static bool is_closed(const char *name)
{
	char way[PATH_MAX];
	struct stat st;

	for (size_t i = 1; name[i] && i < sizeof(way); i++) {
		if (name[i] != '/')
			continue;
		memcpy(way, name, i);
		way[i] = '\0';
		if (faccessat(AT_FDCWD, way, X_OK, AT_EACCESS) < 0 && errno == EACCES)
			return stat(way, &st) == 0 && st.st_uid == geteuid();
	}
	return false;
}

int scan_add_named(struct scan *scan, const char *name, const char *reason,
		   struct err *err)
{
	struct links_walk w = { .scan = scan, .reason = reason, .err = err };
	CLEAN(path) struct path p = { .fd = -1 };
	int r;

	r = path_open(name, &p, NULL);
	if (r == -EACCES && is_closed(name))
		scan->files->cut = true;
	if (r < 0)
		return 0; /* it is not there, and git goes on without it */
	r = scan_add_way(scan, &p, reason, err);
	if (r == 0)
		r = scan_add_in_tops(scan, p.name, reason, err);
	if (r < 0 || !S_ISDIR(p.st.st_mode) || scan->after)
		return r;
	/* All would be read-only. */
	if (has_a_top(scan, &p)) {
		scan->files->cut = true;
		return 0;
	}
	if (is_in_tops(scan, p.name))
		return 0;
	return is_new_elsewhere(scan->files, &p) ? add_links(&w, p.fd, ".", p.name) : 0;
}

/* git makes it itself in each new repository; without it, the command could. Root makes
 * it as the directory's owner: what that user puts in its place meanwhile isn't chowned.
 */
static void make_hooks(int dir)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return;
	setfsgid(st.st_gid);
	setfsuid(st.st_uid);
	(void)!mkdirat(dir, "hooks", 0755);
	setfsuid(geteuid());
	setfsgid(getegid());
}

bool startup_git_is_empty(const char *directory, const char *name)
{
	static const char *const lists[] = { "remotes", "branches" };
	CLEAN(directory) DIR *dir = NULL;
	CLEAN(mem) char *path = NULL;

	if (!text_is_one_of(name, lists, ARRAY_SIZE(lists)))
		return false;
	path = join_names(directory, name);
	dir = directory_open(
		path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1);
	return dir && !directory_next(dir) && errno == 0;
}

/* The working tree of the git directory @path, as far as its name says; else itself. */
static struct text worktree_of(const char *path)
{
	static const char own[] = "/.git";
	const size_t length = strlen(path), end = strlen(own);
	const bool is_checkout = length > end && strcmp(path + length - end, own) == 0;

	return (struct text){ path, is_checkout ? length - end : length };
}

static int add_git_directory(struct scan *scan, int dir, const char *directory,
			     const struct git_marks *marks, size_t queued,
			     struct err *err)
{
	CLEAN(arena) struct arena names = { 0 };
	CLEAN(mem) char *path = whole_name(scan, directory);
	const char *worktree = path ? arena_text(&names, worktree_of(path)) : NULL;
	size_t kept = queued;
	int r;

	if (!worktree)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	if (!is_gits(dir, strrchr(path, '/') + 1, marks))
		return 0;
	if (is_whole(marks) && !marks->commondir && !scan->after)
		make_hooks(dir);
	r = scan_add_git(scan, path, worktree, false, err);
	if (!has_held(dir, marks))
		return r;
	for (size_t i = queued; i < scan->last; i++) {
		const char *slash = strrchr(scan->queue[i], '/');

		if (text_is_one_of(slash ? slash + 1 : scan->queue[i], git_left_out,
				   ARRAY_SIZE(git_left_out)))
			free(scan->queue[i]);
		else
			scan->queue[kept++] = scan->queue[i];
	}
	scan->last = kept;
	return r;
}

/* However full @directory is. It may not be there. */
static int add_git_by_name(struct scan *scan, const char *directory, struct err *err)
{
	CLEAN(fd) int dir = open_below(scan->top, directory, O_PATH | O_DIRECTORY);
	struct git_marks marks = { 0 };

	if (dir < 0)
		return 0;
	mark_by_name(&marks, dir);
	return add_git_directory(scan, dir, directory, &marks, scan->last, err);
}

/* One that may be entered but not read: git takes what is in it by name. */
static int scan_unreadable(struct scan *scan, const char *directory, struct err *err)
{
	CLEAN(fd) int dir = open_below(scan->top, directory, O_PATH | O_DIRECTORY);
	struct stat st;

	if (dir >= 0 && faccessat(dir, ".", X_OK, AT_EACCESS) < 0 && errno == EACCES) {
		/* A command may have closed it. */
		if (fstat(dir, &st) == 0 && st.st_uid == geteuid())
			scan->files->cut = true;
		return 0;
	}
	if (dir >= 0 || !scan_has_gone(dir))
		scan->files->cut = true;
	return add_git_by_name(scan, directory, err);
}

static int scan_directory(struct scan *scan, const char *directory, struct err *err)
{
	int fd = open_below(scan->top, directory, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	CLEAN(directory) DIR *dir = directory_open(fd);
	CLEAN(mem) char *path = NULL;
	const size_t queued = scan->last;
	struct git_marks marks = { 0 };
	const struct dirent *entry;
	bool walked, runs;
	unsigned char type;
	struct text within;
	int r = 0;

	if (!dir)
		return scan_unreadable(scan, directory, err);
	/* The directory may lie in one that a name says: the writable directory itself,
	 * too. */
	path = whole_name(scan, directory);
	if (!path)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	within = text_of(path);
	while (r == 0 && (entry = directory_next(dir))) {
		if (++scan->entries > STARTUP_ENTRIES_MAX) {
			scan->files->cut = true;
			mark_by_name(&marks, fd);
			break;
		}
		mark(&marks, entry->d_name);
		type = directory_type(fd, entry);
		walked = type == DT_DIR;
		/* The directory .git is walked, and what is found in it is protected. */
		runs = startup_why(startup_project, within, entry->d_name) &&
		       !(walked && strcasecmp(entry->d_name, ".git") == 0);
		if (runs || (!walked && startup_why_leading(within, entry->d_name,
							    type != DT_REG))) {
			const size_t before = scan->files->count;

			r = add_file(scan, directory, entry->d_name, err);
			if (r == 0 && scan->files->count > before &&
			    strcasecmp(entry->d_name, ".git") == 0)
				r = scan_add_repository(scan, path, err);
		} else if (walked &&
			   !text_is_one_of(entry->d_name, left_out, ARRAY_SIZE(left_out)))
			r = push(scan, directory, entry->d_name, err);
	}
	scan->files->cut = scan->files->cut || (r == 0 && errno != 0);
	if (r == 0)
		r = add_git_directory(scan, fd, directory, &marks, queued, err);
	return r;
}

/* The file @name of the directory @path, which may lie elsewhere. */
static int add_program(struct scan *scan, const char *path, const char *name,
		       struct err *err)
{
	const char *top = scan->top->name[1] ? scan->top->name : "";

	if (!path_is_within(path, scan->top->name))
		return 0;
	path += strlen(top);
	return add_file(scan, path[0] == '/' ? path + 1 : path, name, err);
}

/* However deep they lie. */
static int add_programs(struct scan *scan, struct err *err)
{
	char self[PATH_MAX], other[PATH_MAX + sizeof(installed)];
	const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *name;
	int r;

	if (n <= 0)
		return 0;
	self[n] = '\0';
	name = strrchr(self, '/');
	*name++ = '\0';
	snprintf(other, sizeof(other), "%.*s/%s",
		 (int)(strrchr(self, '/') ? strrchr(self, '/') - self : 0), self,
		 installed);
	r = add_program(scan, self[0] ? self : "/", name, err);
	for (const char *const *p = startup_weir[0].names; r == 0 && *p; p++) {
		r = add_program(scan, self[0] ? self : "/", *p, err);
		if (r == 0)
			r = add_program(scan, other, *p, err);
	}
	return r;
}

/* --- the three steps of a search --- */

/* The repository of the working tree that the writable directory lies in may be one
 * above. Git takes the first that is one when it looks: all of them are held. */
static int find_git(struct scan *scan, struct err *err)
{
	CLEAN(mem) char *above = strdup(scan->top->name);
	int r = above ? scan_add_own_configs(scan, scan->top->name, err)
		      : err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);

	if (r == 0)
		r = add_git_by_name(scan, "", err);

	if (r == 0)
		r = add_git_by_name(scan, ".git", err);
	while (r == 0 && above[1]) {
		char *slash = strrchr(above, '/');

		r = scan_add_repository(scan, above, err);
		slash[slash == above] = '\0';
	}
	return r < 0 ? r : scan_add_repository(scan, "/", err);
}

/* What the caller's home has of all names may be a link to a project: one that keeps such
 * files, to begin with. */
static int find_in_home(struct scan *scan, struct err *err)
{
	const char *home = getenv("HOME");
	CLEAN(fd)
	int at = home && home[0] == '/' ? open(home, O_PATH | O_DIRECTORY | O_CLOEXEC)
					: -1;
	int r = 0;

	for (const struct startup_row *row = startup_project; at >= 0 && row->why; row++)
		for (const char *const *n = row->names; r == 0 && *n; n++) {
			CLEAN(path) struct path p = { .fd = -1 };
			CLEAN(mem) char *name = NULL;

			if (faccessat(at, *n, F_OK, 0) < 0)
				continue;
			name = join_names(home, *n);
			if (!name)
				return err_sys(err, -ENOMEM, "cannot look into '%s'",
					       home);
			if (path_open(name, &p, NULL) < 0 || p.link_count == 0)
				continue;
			r = scan_add_way(scan, &p, row->why, err);
			if (r == 0)
				r = scan_add_in_tops(scan, p.name, row->why, err);
		}
	return r;
}

/* What the writable directory itself has of all names. */
static int find_named(struct scan *scan, struct err *err)
{
	const char *top = scan->top->name, *last = strrchr(top, '/') + 1;
	const struct text above = { top, (size_t)(last - 1 - top) };
	int r = 0;

	for (const struct startup_row *row = startup_project; row->why; row++) {
		for (const char *const *n = row->names; r == 0 && *n; n++) {
			const char *name = startup_rest_below(*n, above, last) ?: *n;
			CLEAN(fd) int fd = open_below(scan->top, name, O_PATH);
			struct stat st;

			/* The directory .git is walked. */
			if (fd >= 0 && fstat(fd, &st) == 0 &&
			    (!S_ISDIR(st.st_mode) || strcmp(name, ".git") != 0))
				r = add_file(scan, "", name, err);
		}
	}
	return r < 0 ? r : add_programs(scan, err);
}

static int find_deeper(struct scan *scan, struct err *err)
{
	int r;

	scan->queue = malloc((STARTUP_ENTRIES_MAX + 2) * sizeof(*scan->queue));
	if (!scan->queue)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	r = push(scan, "", ".git", err);
	if (r == 0)
		r = push(scan, "", "", err);
	while (r == 0 && scan->first < scan->last &&
	       scan->entries <= STARTUP_ENTRIES_MAX) {
		CLEAN(mem) char *directory = scan->queue[scan->first++];

		r = scan_directory(scan, directory, err);
	}
	while (scan->first < scan->last)
		free(scan->queue[scan->first++]);
	free(scan->queue);
	return r;
}

/* What is found may be a directory, or a link to one: a hook is often a link to a script
 * of the project, which the command could change. What is found so is looked at, too. */
static int follow_links(struct scan *scan, struct err *err)
{
	struct startup_files *s = scan->files;
	int r = 0;

	for (; r == 0 && s->followed < s->count; s->followed++) {
		const struct path *found = &s->found[s->followed];
		const char *reason = s->why[s->followed] ?: startup_why_path(found->name);
		struct links_walk w = { .scan = scan, .reason = reason, .err = err };
		CLEAN(path) struct path p = { .fd = -1 };

		if (S_ISREG(found->st.st_mode) || path_open(found->name, &p, NULL) < 0)
			continue;
		r = scan_add_way(scan, &p, reason, err);
		/* What a git directory has in it is held by name. */
		if (r == 0 && S_ISDIR(p.st.st_mode) && !has_a_top(scan, &p) &&
		    strcasecmp(strrchr(found->name, '/') + 1, ".git") != 0)
			r = add_links(&w, p.fd, ".", p.name);
	}
	return r;
}

/* Fill @s with what the @count directories @tops have. Each step is taken in all of them
 * before the next one: an earlier command may have left as many files as it liked, which
 * take up the table or end a walk. What can be found by its name is found before. */
static int scan_tops(struct startup_files *s, const struct path *tops, size_t count,
		     bool after, struct err *err)
{
	static int (*const steps[])(struct scan * scan,
				    struct err * err) = { find_git, find_named,
							  find_deeper };
	struct scan scan = {
		.files = s, .tops = tops, .top_count = count, .after = after
	};
	int r = find_in_home(&scan, err);

	for (size_t step = 0; step < ARRAY_SIZE(steps); step++) {
		for (size_t i = 0; r == 0 && i < count; i++) {
			struct scan here = scan;

			here.top = &tops[i];
			r = steps[step](&here, err);
		}
		/* Before a walk, which what an earlier command left may end. */
		if (r == 0 && !after && steps[step] != find_git)
			r = follow_links(&scan, err);
	}
	return r;
}

int startup_files_add(struct startup_files *s, const struct path *top, struct err *err)
{
	struct path *kept = &s->tops[s->top_count];

	if (s->top_count == STARTUP_TOPS_MAX)
		return err_set(err, -E2BIG, "more than %d writable paths",
			       STARTUP_TOPS_MAX);
	*kept = (struct path){ .fd = fcntl(top->fd, F_DUPFD_CLOEXEC, 0),
			       .name = strdup(top->name) };
	s->top_count++;
	if (kept->fd < 0 || !kept->name)
		return err_sys(err, kept->fd < 0 ? -errno : -ENOMEM, "cannot walk '%s'",
			       top->name);
	return 0;
}

int startup_files_find(struct startup_files *s, struct err *err)
{
	/* The kernel takes a file's times from this clock. */
	int r;

	clock_gettime(CLOCK_REALTIME_COARSE, &s->began);
	r = scan_tops(s, s->tops, s->top_count, false, err);
	startup_report_begin(s);
	return r;
}

int startup_files_find_again(const struct startup_files *before,
			     struct startup_files *ret)
{
	return scan_tops(ret, before->tops, before->top_count, true, NULL);
}

/* --- names --- */

bool startup_files_has(const char *path)
{
	char way[PATH_MAX];
	size_t len = strlen(path), start = 1;

	if (len >= sizeof(way))
		return true;
	for (size_t i = 1; i <= len; i++) {
		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(way, path, i);
		way[i] = '\0';
		if (startup_why(startup_project, (struct text){ way, start - 1 },
				way + start) ||
		    (i < len && git_repository_is(way)))
			return true;
		start = i + 1;
	}
	return false;
}

void startup_files_done(struct startup_files *s)
{
	for (size_t i = 0; i < s->top_count; i++)
		path_done(&s->tops[i]);
	for (size_t i = 0; i < s->count; i++)
		path_done(&s->found[i]);
	free(s->with_other_names);
	git_links_done(&s->links);
	arena_done(&s->names);
	s->with_other_names = NULL;
	s->top_count = s->count = 0;
}
