// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "base/text.h"
#include "launch/git_repository.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum { NAMES_MAX = 20 }; /* of one row, with the NULL */

/* What runs outside later, and why: weir-run(1) has the same table. A name may say which
 * directories it is in. An asterisk stands for any text: such names are found by the walk
 * alone, the others of the writable directory itself however full that is. */
static const struct startup_names {
	const char *why;
	const char *names[NAMES_MAX]; /* up to the first NULL */
} names[] = {
	{ "a file of that name leads git to another directory", { ".git" } },
	{ "git takes submodules' addresses and branches from it", { ".gitmodules" } },
	{ "git runs the programs that it names", { ".gitconfig" } },
	{ "Mercurial runs the hooks and programs that it names",
	  { "hgrc", "hgrc-not-shared" } },
	{ "it leads Mercurial to another directory's hgrc", { "sharedpath" } },
	{ "Jujutsu runs the programs that it names",
	  { ".jj/repo/config.toml", ".jj/workspace-config.toml" } },
	{ "Darcs runs the hooks that it names", { "_darcs/prefs/defaults" } },
	{ "Sapling runs the hooks and programs that it names", { ".sl/config" } },
	{ "git's hooks run what is in it", { ".husky" } },
	{ "git runs what is in it where core.hooksPath says so", { ".githooks" } },
	{ "git's hooks run the commands in it",
	  { ".pre-commit-config.yaml", ".pre-commit-config.yml", "prek.toml", "hk.pkl",
	    "hk.local.pkl", "lefthook.yml", ".lefthook.yml", "lefthook-local.yml",
	    "lefthook*.y*ml", "lefthook*.toml", "lefthook*.json*", ".lefthook*",
	    ".overcommit.yml", ".rusty-hook.toml", "captainhook.json", "grumphp.yml",
	    ".lintstagedrc*", "lint-staged.config.*" } },
	{ "git's hooks run it or the programs that it names",
	  { ".commitlintrc*", "commitlint.config.*", ".huskyrc*", "husky.config.*",
	    "nano-staged.*", ".nano-staged.*", ".nanostagedrc", ".gitlint" } },
	{ "direnv runs it in the shell", { ".envrc" } },
	{ "direnv runs it where the .envrc says so", { ".envrc.*" } },
	{ "mise runs the hooks and programs that it names",
	  { "mise.toml", ".mise.toml", "mise.local.toml", ".mise.local.toml",
	    "mise.*.toml", ".mise.*.toml", "mise/config.toml", "mise/config.local.toml",
	    "mise/config.*.toml", ".rtx.toml", ".rtx.*.toml" } },
	{ "mise runs the hooks and programs that its files name", { "mise/conf.d" } },
	{ "mise runs the hooks and tasks in it", { ".config/mise", ".mise" } },
	{ "mise takes from it which files it reads", { "miserc.toml", ".miserc.toml" } },
	{ "asdf and mise put the directories that it names in $PATH",
	  { ".tool-versions" } },
	{ "the editor runs its tasks and the programs that it names",
	  { ".vscode", "*.code-workspace", ".zed" } },
	{ "the editor runs the configurations in it",
	  { ".idea", "*.run.xml", "*.ipr", "*.iws" } },
	{ "the editor starts the servers and programs that it names", { ".helix" } },
	{ "Vim's coc.nvim starts the servers that it names", { "coc-settings.json" } },
	{ "Vim runs it where its option exrc is set", { ".exrc", ".vimrc", ".gvimrc" } },
	{ "Neovim runs it where its option exrc is set", { ".nvimrc", ".nvim.lua" } },
	{ "editors start the containers and commands in it",
	  { ".devcontainer", ".devcontainer.json" } },
	{ "agents start the servers in it", { ".mcp.json" } },
	{ "the agent runs the hooks in it and takes its rights from it",
	  { ".claude", ".augment" } },
	{ "the agent starts the servers in it and takes rules from it",
	  { ".cursor", ".continue", ".roo", ".kilocode", ".junie" } },
	{ "the agent takes its configuration and rights from it", { ".codex" } },
	{ "the agent starts the servers in it and takes its rights from it",
	  { ".gemini", ".qwen", ".amazonq" } },
	{ "the agent runs the hooks in it and takes rules from it",
	  { ".windsurf", ".clinerules" } },
	{ "the agent runs the hooks in it and starts its servers",
	  { ".kiro", ".factory" } },
	{ "the agent starts the servers that it names",
	  { "crush.json", ".crush.json", ".continuerc.json" } },
	{ "the agent loads the plugins in it and starts its servers", { ".opencode" } },
	{ "the agent loads the plugins and starts the servers that it names",
	  { "opencode.json", "opencode.jsonc" } },
	{ "the agent runs the commands that it names", { ".aider.conf.yml" } },
	{ "a shell runs it at its start",
	  { ".bashrc", ".bash_profile", ".bash_login", ".bash_aliases", ".profile",
	    ".zshenv", ".zshrc", ".zprofile", ".zlogin", ".kshrc", ".cshrc", ".tcshrc",
	    ".login" } },
	{ "a shell runs it at its end", { ".bash_logout", ".zlogout" } },
	{ "an interpreter runs it at its start",
	  { ".Rprofile", ".irbrc", ".pryrc", ".iex.exs", ".ghci", ".ocamlinit",
	    ".octaverc" } },
	{ "R takes variables from it, its start file among them", { ".Renviron" } },
	{ "Python's debugger runs it at its start", { ".pdbrc" } },
	{ "the debugger runs it where its settings say so", { ".gdbinit", ".lldbinit" } },
	{ "lazygit runs the programs that it names", { ".lazygit.yml" } },
	{ "shadowenv runs it in the shell", { ".shadowenv.d" } },
	{ "the editor starts the servers that it names", { "*.sublime-project" } },
	{ "Neovim's lazy.nvim runs it", { ".lazy.lua" } },
	{ "Emacs takes settings from it, some of which are run",
	  { ".dir-locals.el", ".dir-locals-2.el" } },
	{ "the agent loads the extensions in it", { ".pi" } },
	{ "the agent runs the commands in its files", { ".github/hooks" } },
};

/* In a git directory, wherever that is: the .git of a checkout, of a submodule, of
 * another working tree, a bare repository. */
static const struct startup_names git_names[] = {
	{ "git runs what is in it", { "hooks" } },
	{ "git runs the programs that it names", { "config", "config.worktree" } },
	{ "it leads git to another directory's config and hooks", { "commondir" } },
	{ "it leads git to another working tree", { "gitdir" } },
	{ "lazygit runs the programs that it names", { "lazygit.yml" } },
};

/* Weir's own, below a writable path as well: the next run would be what the command had
 * put in their place. They stand beside this program, or where they are installed. */
static const struct startup_names programs[] = {
	{ "Weir starts it",
	  { "weir-events", "weir-control", "weir-webhook", "weir-postgres" } },
};
static const char installed[] = "libexec/weir";

/* Not walked: the first is full of what others wrote, the others of what nobody runs. */
static const char *const left_out[] = { "node_modules" };
static const char *const git_left_out[] = { "objects", "refs", "logs", "lfs" };

enum { ASIDE_TRIES = 8 };

struct scan {
	struct startup_files *files;
	const struct path *top;
	char **queue; /* owned, with what is left in it: relative to the top */
	size_t first, last;
	size_t entries;
	bool after; /* the end: nothing is made */
};

/* What one directory has of a git directory's. */
struct git_marks {
	bool head, objects, refs, commondir, config, hooks;
};

/* Is @name, in @directory, what @wanted says? In any case of its letters: a file system
 * may take no notice of that. */
static bool is_called(const char *wanted, struct text directory, const char *name)
{
	const char *slash = strrchr(wanted, '/');
	const size_t above = slash ? (size_t)(slash - wanted) : 0;
	const char *last = slash ? slash + 1 : wanted, *at;

	/* Most differ in the first letter: each entry is compared with each row. */
	if (last[0] != '*' &&
	    toupper((unsigned char)last[0]) != toupper((unsigned char)name[0]))
		return false;
	if (!text_matches(last, text_of(name), true))
		return false;
	if (directory.len < above)
		return false;
	at = directory.ptr + directory.len - above;
	return above == 0 || (strncasecmp(at, wanted, above) == 0 &&
			      (at == directory.ptr || at[-1] == '/'));
}

/* What is left of @wanted below @name in @directory, where that is one of the directories
 * that @wanted names. NULL: it is none. */
static const char *rest_below(const char *wanted, struct text directory, const char *name)
{
	const char *rest = NULL;

	for (const char *end = strchr(wanted, '/'); end; end = strchr(end + 1, '/')) {
		char above[NAME_MAX + 1];

		snprintf(above, sizeof(above), "%.*s", (int)(end - wanted), wanted);
		if (is_called(above, directory, name))
			rest = end + 1;
	}
	return rest;
}

/* Why the name whose directory @name, in @directory, leads to is one of these. A link
 * does; below the first directory of a name a file does, too: .jj/repo may be one that
 * says where another is. NULL: it leads to none. */
static const char *why_leading(struct text directory, const char *name, bool is_link)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (const char *const *wanted = names[i].names; *wanted; wanted++) {
			const char *rest = rest_below(*wanted, directory, name);

			if (rest && (is_link || strchr(*wanted, '/') < rest - 1))
				return names[i].why;
		}
	return NULL;
}

/* Why @name, in @directory, is one of @list; NULL: it is none of it. */
static const char *why_named(const struct startup_names *list, size_t count,
			     struct text directory, const char *name)
{
	for (size_t i = 0; i < count; i++)
		for (const char *const *wanted = list[i].names; *wanted; wanted++)
			if (is_called(*wanted, directory, name))
				return list[i].why;
	return NULL;
}

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

static const struct path *find_known(const struct startup_files *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->found[i].name, name) == 0)
			return &s->found[i];
	}
	return NULL;
}

/* Since its directory was read. Another fault is no answer: what it hides may be there.
 */
static bool has_gone(int code)
{
	return code == -ENOENT || code == -ENOTDIR || code == -ELOOP;
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
	p.fd = open_below(scan->top, rest, O_PATH);
	if (p.fd < 0 && !has_gone(p.fd))
		s->cut = true;
	if (p.fd < 0 || fstat(p.fd, &p.st) < 0 || find_known(s, p.name)) {
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

	if (!rest)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
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

/* Is the directory @path one of git's? A command may have moved HEAD, objects or refs
 * away, for the next command to put back. What was held no command can have moved: that
 * alone is enough in a directory `.git`, and in a bare repository that is called so. */
static bool is_gits(const char *path, const struct git_marks *marks)
{
	static const char suffix[] = ".git";
	const size_t len = strlen(suffix);
	bool is_called_so = false;

	if (is_whole(marks) || (marks->head && marks->commondir))
		return true;
	for (const char *at = path; (at = strcasestr(at, suffix)); at += len) {
		if (at[len] == '\0' && at > path && at[-1] == '/')
			return true;
		is_called_so = is_called_so || at[len] == '\0' || at[len] == '/';
	}
	return is_called_so && (marks->commondir || (marks->config && marks->hooks));
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

static int add_git_directory(struct scan *scan, int dir, const char *directory,
			     const struct git_marks *marks, size_t queued,
			     struct err *err)
{
	CLEAN(mem) char *path = whole_name(scan, directory);
	size_t kept = queued;
	int r = 0;

	if (!path)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	if (!is_gits(path, marks))
		return 0;
	if (is_whole(marks) && !marks->commondir && !scan->after)
		make_hooks(dir);
	for (size_t i = 0; i < ARRAY_SIZE(git_names); i++)
		for (const char *const *n = git_names[i].names; r == 0 && *n; n++)
			r = add_file(scan, directory, *n, err);
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

	if (dir >= 0 && faccessat(dir, ".", X_OK, AT_EACCESS) < 0 && errno == EACCES)
		return 0;
	if (dir >= 0 || !has_gone(dir))
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
	struct stat st;
	int r = 0;

	if (!dir)
		return scan_unreadable(scan, directory, err);
	/* The directory may lie in one that a name says: the writable directory itself,
	 * too. */
	path = whole_name(scan, directory);
	if (!path)
		return err_sys(err, -ENOMEM, "cannot walk '%s'", scan->top->name);
	while (r == 0 && (entry = directory_next(dir))) {
		if (++scan->entries > STARTUP_ENTRIES_MAX) {
			scan->files->cut = true;
			mark_by_name(&marks, fd);
			break;
		}
		mark(&marks, entry->d_name);
		walked = entry->d_type == DT_DIR;
		if (entry->d_type == DT_UNKNOWN)
			walked = fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) ==
					 0 &&
				 S_ISDIR(st.st_mode);
		/* The directory .git is walked, and what is found in it is protected. */
		runs = why_named(names, ARRAY_SIZE(names), text_of(path),
				 entry->d_name) &&
		       !(walked && strcasecmp(entry->d_name, ".git") == 0);
		if (runs || (!walked && why_leading(text_of(path), entry->d_name,
						    entry->d_type != DT_REG)))
			r = add_file(scan, directory, entry->d_name, err);
		else if (walked &&
			 !text_is_one_of(entry->d_name, left_out, ARRAY_SIZE(left_out)))
			r = push(scan, directory, entry->d_name, err);
	}
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
	for (const char *const *p = programs[0].names; r == 0 && *p; p++) {
		r = add_program(scan, self[0] ? self : "/", *p, err);
		if (r == 0)
			r = add_program(scan, other, *p, err);
	}
	return r;
}

/* --- the three steps of a search --- */

static int find_git(struct scan *scan, struct err *err)
{
	int r = add_git_by_name(scan, "", err);

	return r < 0 ? r : add_git_by_name(scan, ".git", err);
}

/* What the writable directory itself has of all names. */
static int find_named(struct scan *scan, struct err *err)
{
	const char *top = scan->top->name, *last = strrchr(top, '/') + 1;
	const struct text above = { top, (size_t)(last - 1 - top) };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (const char *const *n = names[i].names; r == 0 && *n; n++) {
			const char *name = rest_below(*n, above, last) ?: *n;
			CLEAN(fd) int fd = open_below(scan->top, name, O_PATH);
			struct stat st;

			/* The directory .git is walked. */
			if (fd >= 0 && fstat(fd, &st) == 0 &&
			    (!S_ISDIR(st.st_mode) || strcmp(name, ".git") != 0))
				r = add_file(scan, "", name, err);
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

/* Fill @s with what the @count directories @tops have. Each step is taken in all of them
 * before the next one: an earlier command may have left as many files as it liked, which
 * take up the table or end a walk. What can be found by its name is found before. */
static int scan_tops(struct startup_files *s, const struct path *tops, size_t count,
		     bool after, struct err *err)
{
	static int (*const steps[])(struct scan * scan,
				    struct err * err) = { find_git, find_named,
							  find_deeper };
	int r = 0;

	for (size_t step = 0; step < ARRAY_SIZE(steps); step++)
		for (size_t i = 0; r == 0 && i < count; i++) {
			struct scan scan = { .files = s,
					     .top = &tops[i],
					     .after = after };

			r = steps[step](&scan, err);
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
	return scan_tops(s, s->tops, s->top_count, false, err);
}

/* --- after the end --- */

/* Has @name's directory a file @last that was known at the start? */
static bool has_known_beside(const struct startup_files *before, const char *name,
			     const char *last)
{
	const int length = (int)(strrchr(name, '/') + 1 - name);
	CLEAN(mem) char *beside = NULL;

	return asprintf(&beside, "%.*s%s", length, name, last) >= 0 &&
	       find_known(before, beside);
}

/* Was the directory of @name a git directory at the start? Git obeys what is new there,
 * and has no reason to make it. That of another working tree has no config. */
static bool is_in_known_git(const struct startup_files *before, const char *name)
{
	return why_named(git_names, ARRAY_SIZE(git_names), text_of(""),
			 strrchr(name, '/') + 1) &&
	       (has_known_beside(before, name, "config") ||
		has_known_beside(before, name, "commondir"));
}

/* Of each git directory that was there at the start one name stands for it. */
static bool stands_for_git(const struct startup_files *before, const char *name)
{
	const char *last = strrchr(name, '/') + 1;

	return strcmp(last, "config") == 0 || (strcmp(last, "commondir") == 0 &&
					       !has_known_beside(before, name, "config"));
}

/* Return: the new name, owned, or NULL. */
static char *move_aside(const char *name)
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
		CLEAN(mem) char *aside = NULL;
		uint32_t number;
		int n = -1;

		if (i == 0)
			n = asprintf(&aside, "%s.weir", name);
		else if (getrandom(&number, sizeof(number), 0) == sizeof(number))
			n = asprintf(&aside, "%s.weir-%08x", name, (unsigned int)number);
		if (n < 0)
			aside = NULL;
		if (aside && renameat2(directory.fd, last, directory.fd,
				       strrchr(aside, '/') + 1, RENAME_NOREPLACE) == 0)
			return TAKE_PTR(aside);
	}
	return NULL;
}

enum { REPORTED_MAX = 16 }; /* the others are only counted */

struct startup_report {
	size_t count;
	bool quiet, obeyed; /* by git */
};

static void report_new(struct startup_report *r, const char *name)
{
	const char *last = strrchr(name, '/') + 1, *why;
	const struct text directory = { name, (size_t)(last - 1 - name) };

	r->count++;
	if (r->quiet || r->count > REPORTED_MAX)
		return;
	why = why_named(names, ARRAY_SIZE(names), directory, last)
		      ?: why_named(git_names, ARRAY_SIZE(git_names), directory, last)
		      ?: why_named(programs, ARRAY_SIZE(programs), directory, last)
		      ?: why_leading(directory, last, true)
		      ?: "it is Weir itself";
	log_warning("'%s' is new or has changed: %s; look at it first", name, why);
}

/* What git obeys and was not there, beside the file @known of a git directory. By name:
 * however full the command made the directory, or whether it can be read. */
static void look_into_known_git(const struct startup_files *before, const char *known,
				struct startup_report *r)
{
	const int length = (int)(strrchr(known, '/') + 1 - known);

	for (size_t i = 0; i < ARRAY_SIZE(git_names); i++)
		for (const char *const *n = git_names[i].names; *n; n++) {
			CLEAN(mem) char *aside = NULL;
			CLEAN(mem) char *name = NULL;
			struct stat st;

			if (asprintf(&name, "%.*s%s", length, known, *n) < 0)
				name = NULL;
			if (name && (find_known(before, name) || lstat(name, &st) < 0))
				continue;
			aside = name ? move_aside(name) : NULL;
			r->count++;
			r->obeyed = true;
			if (aside)
				log_error("the command made '%s' (%s); it is called "
					  "'%s' now",
					  name, git_names[i].why, aside);
			else
				log_error("the command made '%s' (%s), which can't be "
					  "renamed; remove it before git runs there",
					  name ?: known, git_names[i].why);
		}
}

bool startup_files_report_new(const struct startup_files *s, bool quiet)
{
	struct startup_report report = { .quiet = quiet };
	struct startup_files *now;
	struct stat st;
	int r;

	if (s->top_count == 0)
		return true;
	now = calloc(1, sizeof(*now));
	for (size_t i = 0; i < s->count; i++) {
		const struct path *p = &s->found[i];
		const char *name = p->name;

		/* Somebody outside who replaces a file takes the mount away that held it.
		 */
		if (!s->is_named[i] &&
		    (lstat(name, &st) < 0 || !stat_is_same(&st, &p->st) ||
		     st.st_ctim.tv_sec != p->st.st_ctim.tv_sec ||
		     st.st_ctim.tv_nsec != p->st.st_ctim.tv_nsec))
			report_new(&report, name);
		if (stands_for_git(s, name))
			look_into_known_git(s, name, &report);
	}
	r = now ? scan_tops(now, s->tops, s->top_count, true, NULL) : -ENOMEM;
	for (size_t i = 0; now && i < now->count; i++) {
		const char *name = now->found[i].name;

		if (!find_known(s, name) && !is_in_known_git(s, name))
			report_new(&report, name);
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
	return !report.obeyed;
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
		if (why_named(names, ARRAY_SIZE(names), (struct text){ way, start - 1 },
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
	s->top_count = s->count = 0;
}
