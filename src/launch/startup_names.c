// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_names.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What runs outside later, and why: weir-run(1) has the same table. */
const struct startup_row startup_project[] = {
	{ "a file of that name leads git to another directory", { ".git" } },
	{ "git takes submodules' addresses and branches from it", { ".gitmodules" } },
	{ "git runs the programs that it names", { ".gitconfig" } },
	{ "Git LFS takes its server's address from it", { ".lfsconfig" } },
	{ "Mercurial runs the hooks and programs that it names",
	  { "hgrc", "hgrc-not-shared" } },
	{ "it leads Mercurial to another directory's hgrc", { "sharedpath" } },
	{ "Jujutsu runs the programs that it names",
	  { ".jj/repo/config.toml", ".jj/workspace-config.toml" } },
	{ "Darcs runs the hooks that it names", { "_darcs/prefs/defaults" } },
	{ "Sapling runs the hooks and programs that it names",
	  { ".sl/config", ".git/sl/config" } },
	{ "Pijul runs the hooks that it names", { ".pijul/config" } },
	{ "Bazaar and Breezy take their settings from it",
	  { ".bzr/branch/branch.conf" } },
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
	    ".login", "fish/config.fish", "fish/conf.d" } },
	{ "a shell runs it at its end", { ".bash_logout", ".zlogout" } },
	{ "an interpreter runs it at its start",
	  { ".Rprofile", ".RData", ".irbrc", "_irbrc", "irb.rc", ".pryrc", ".iex.exs",
	    ".ghci", ".ocamlinit", ".octaverc", "readline.py", "rlcompleter.py" } },
	{ "rustup runs the compiler in the directory that it names",
	  { "rust-toolchain", "rust-toolchain.toml" } },
	{ "R takes variables from it, its start file among them", { ".Renviron" } },
	{ "Python's debugger runs it at its start", { ".pdbrc" } },
	{ "Perl's debugger runs it at its start", { ".perldb", "perldb.ini" } },
	{ "Ruby's debugger runs it at its start", { ".rdbgrc", ".byebugrc" } },
	{ "the debugger runs it where its settings say so", { ".gdbinit", ".lldbinit" } },
	{ "lazygit runs the programs that it names", { ".lazygit.yml" } },
	{ "shadowenv runs it in the shell", { ".shadowenv.d" } },
	{ "the editor starts the servers that it names", { "*.sublime-project" } },
	{ "Neovim's lazy.nvim runs it", { ".lazy.lua" } },
	{ "Emacs takes settings from it, some of which are run",
	  { ".dir-locals.el", ".dir-locals-2.el" } },
	{ "the agent loads the extensions in it", { ".pi" } },
	{ "the agent runs the commands in its files", { ".github/hooks" } },
	{ 0 },
};

const struct startup_row startup_git[] = {
	{ "git runs what is in it", { "hooks" } },
	{ "git runs the programs that it names", { "config", "config.worktree" } },
	{ "it leads git to another directory's config and hooks", { "commondir" } },
	{ "it leads git to another working tree", { "gitdir" } },
	{ "git takes remotes' addresses from the files in it",
	  { "remotes", "branches" } },
	{ "lazygit runs the programs that it names", { "lazygit.yml" } },
	{ 0 },
};

/* Below a writable path as well: the next run would be what the command had put in their
 * place. */
const struct startup_row startup_weir[] = {
	{ "Weir starts it",
	  { "weir-events", "weir-control", "weir-webhook", "weir-postgres" } },
	{ 0 },
};

/* A name of startup_project, or a directory that such a name begins with. */
struct pattern {
	const struct pattern *next; /* with the same first letter */
	const char *why;
	struct text above; /* the directories that it is in; empty: any */
	struct text last;  /* of a name: ended by NUL, for text_matches() */
};

enum { PATTERNS_MAX = 192, LETTERS = UINT8_MAX + 1 };

/* The patterns by their first letter, which may be an asterisk. A project has thousands
 * of entries: each is compared with the patterns of its own letter alone. */
static struct {
	struct pattern list[PATTERNS_MAX];
	size_t count;
	const struct pattern *names[LETTERS], *directories[LETTERS];
} by_letter;

/* The first @len characters of @path, cut up. */
static struct pattern cut_up(const char *why, const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const size_t above = slash ? (size_t)(slash - path) : 0;
	const size_t before = slash ? above + 1 : 0;

	return (struct pattern){ .why = why,
				 .above = { path, above },
				 .last = { path + before, len - before } };
}

static void add_pattern(const struct pattern **heads, struct pattern pattern)
{
	struct pattern *added = &by_letter.list[by_letter.count++];
	const struct pattern **head = &heads[(uint8_t)text_lower(pattern.last.ptr[0])];

	pattern.next = *head;
	*added = pattern;
	*head = added;
}

static void sort_by_letter(void)
{
	if (by_letter.count > 0)
		return;
	for (const struct startup_row *row = startup_project; row->why; row++)
		for (const char *const *name = row->names; *name; name++) {
			const char *slash = strchr(*name, '/');

			add_pattern(by_letter.names,
				    cut_up(row->why, *name, strlen(*name)));
			for (; slash; slash = strchr(slash + 1, '/'))
				add_pattern(
					by_letter.directories,
					cut_up(row->why, *name, (size_t)(slash - *name)));
		}
}

/* Does @directory end with @above, in any case of its letters? A file system may take no
 * notice of that. */
static bool ends_with(struct text directory, struct text above)
{
	const char *at;

	if (above.len == 0)
		return true;
	if (directory.len < above.len)
		return false;
	at = directory.ptr + directory.len - above.len;
	return strncasecmp(at, above.ptr, above.len) == 0 &&
	       (at == directory.ptr || at[-1] == '/');
}

static bool pattern_names(const struct pattern *p, struct text directory,
			  const char *name)
{
	return text_matches(p->last.ptr, text_of(name), true) &&
	       ends_with(directory, p->above);
}

static bool pattern_leads(const struct pattern *p, struct text directory,
			  const char *name)
{
	return text_equal_nocase(p->last, name) && ends_with(directory, p->above);
}

const char *startup_why(const struct startup_row *table, struct text directory,
			const char *name)
{
	const uint8_t letters[] = { (uint8_t)text_lower(name[0]), '*' };

	if (table != startup_project) {
		for (; table->why; table++)
			for (const char *const *n = table->names; *n; n++)
				if (strcasecmp(*n, name) == 0)
					return table->why;
		return NULL;
	}
	sort_by_letter();
	for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
		for (const struct pattern *p = by_letter.names[letters[i]]; p;
		     p = p->next)
			if (pattern_names(p, directory, name))
				return p->why;
	return NULL;
}

const char *startup_why_leading(struct text directory, const char *name, bool is_link)
{
	const struct pattern *p;

	sort_by_letter();
	p = by_letter.directories[(uint8_t)text_lower(name[0])];
	for (; p; p = p->next)
		if ((is_link || p->above.len > 0) && pattern_leads(p, directory, name))
			return p->why;
	return NULL;
}

const char *startup_rest_below(const char *wanted, struct text directory,
			       const char *name)
{
	const char *rest = NULL;

	for (const char *end = strchr(wanted, '/'); end; end = strchr(end + 1, '/')) {
		const struct pattern p = cut_up(NULL, wanted, (size_t)(end - wanted));

		if (pattern_leads(&p, directory, name))
			rest = end + 1;
	}
	return rest;
}

const char *startup_why_path(const char *path)
{
	const char *found = NULL;
	char way[PATH_MAX];
	char *last;

	snprintf(way, sizeof(way), "%s", path);
	for (; !found && (last = strrchr(way, '/')); *last = '\0') {
		const struct text directory = { way, (size_t)(last - way) };

		found = startup_why(startup_project, directory, last + 1)
				?: startup_why(startup_git, directory, last + 1)
				?: startup_why(startup_weir, directory, last + 1)
				?: startup_why_leading(directory, last + 1, true);
	}
	return found ?: "it is Weir itself";
}
