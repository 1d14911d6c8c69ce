// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "launch/git_repository.h"
#include "launch/startup_names.h"

enum {
	INCLUDES_MAX = 10,    /* files that include each other; more: git refuses them */
	GIT_MAX = 256,	      /* git directories; more: neither protected nor told */
	CONFIGURED_MAX = 512, /* names in all; more: neither protected nor told */
	/* The same in the caller's and the machine's, read for each git directory. */
	OWN_CONFIGURED_MAX = 4096,
};

struct config_reader {
	struct scan *scan;
	struct err *err;
	struct arena *names;
	const char *directory; /* of the file that is read: include.path counts from it */
	const char *worktree;  /* core.hooksPath counts from it */
	const char *git;       /* the git directory; NULL: none */
	size_t *configured;    /* names that such configs have */
	size_t configured_max;
	size_t depth;
	int r;
};

static const char *configured_name(struct arena *names, const char *base,
				   const char *path)
{
	const char *home = strncmp(path, "~/", 2) == 0 ? getenv("HOME") : NULL;

	if (path[0] == '/')
		return arena_text(names, text_of(path));
	return arena_printf(names, "%s/%s", home ?: base, home ? path + 2 : path);
}

static int read_named(const struct config_reader *from, const char *file);

static void add_setting(struct config_reader *c, const char *base, const char *value,
			const char *reason)
{
	const char *name = configured_name(c->names, base, value);

	if (c->r == 0)
		c->r = name ? scan_add_named(c->scan, name, reason, c->err)
			    : err_sys(c->err, -ENOMEM, "cannot read git's config");
}

static void on_setting(void *data, struct text section, struct text key,
		       const char *value)
{
	static const char runs[] = "git runs what is in it, for its config says so";
	struct config_reader *c = data;
	const bool is_core = text_equal_nocase(section, "core");
	const bool is_hooks = is_core && text_equal_nocase(key, "hooksPath");
	const bool is_template = text_equal_nocase(section, "init") &&
				 text_equal_nocase(key, "templateDir");
	const bool is_include = text_equal_nocase(key, "path") &&
				(text_equal_nocase(section, "include") ||
				 text_equal_nocase(section, "includeIf"));
	const char *name;

	if (c->r < 0 || !value[0] || !(is_hooks || is_template || is_include))
		return;
	if (++*c->configured > c->configured_max) {
		c->scan->files->cut = true;
		return;
	}
	if (!is_hooks) {
		add_setting(c, c->directory, value,
			    is_include ? "git's config includes it" : runs);
	} else {
		add_setting(c, c->worktree, value, runs);
		/* Where no working tree is looked for, for a push, it counts from here.
		 */
		if (c->git)
			add_setting(c, c->git, value, runs);
	}
	if (c->r == 0 && is_include && c->depth <= INCLUDES_MAX) {
		name = configured_name(c->names, c->directory, value);
		c->r = name ? read_named(c, name)
			    : err_sys(c->err, -ENOMEM, "cannot read git's config");
	}
}

/* core.worktree, wherever it stands: hooksPath counts from there. */
static void on_worktree(void *data, struct text section, struct text key,
			const char *value)
{
	struct config_reader *c = data;

	if (text_equal_nocase(section, "core") && text_equal_nocase(key, "worktree") &&
	    value[0])
		c->worktree = configured_name(c->names, c->git, value) ?: c->worktree;
}

/* Add what the config @file names that git runs or reads. */
static int read_named(const struct config_reader *from, const char *file)
{
	struct config_reader c = *from;
	const size_t length = (size_t)(strrchr(file, '/') - file);
	int r;

	c.depth++;
	c.directory = arena_text(c.names, (struct text){ file, length });
	r = c.directory ? git_config_read(file, on_setting, &c) : -ENOMEM;
	if (r == -ENOMEM)
		return err_sys(c.err, r, "cannot read '%s'", file);
	/* Git ends where a config is none, or may not be read. */
	if (r < 0 && r != -EINVAL && r != -EACCES && !scan_has_gone(r))
		c.scan->files->cut = true;
	return c.r;
}

/* The caller's own configs and the machine's count in every repository: a path in them
 * may count from the working tree, or lead to where a project is. */
static int read_own_configs(const struct config_reader *c)
{
	const struct {
		const char *base, *name;
	} configs[] = {
		{ getenv("HOME"), ".gitconfig" },
		{ getenv("XDG_CONFIG_HOME"), "git/config" },
		{ getenv("HOME"), ".config/git/config" },
		{ getenv("GIT_CONFIG_GLOBAL"), "" },
		{ getenv("GIT_CONFIG_SYSTEM"), "" },
		{ "/etc", "gitconfig" },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(configs); i++) {
		const char *base = configs[i].base, *name = configs[i].name, *file;

		if (!base || base[0] != '/')
			continue;
		file = arena_printf(c->names, "%s%s%s", base, name[0] ? "/" : "", name);
		r = file ? scan_add_named(c->scan, file,
					  "git runs the programs that it names", c->err)
			 : err_sys(c->err, -ENOMEM, "cannot read git's config");
		if (r == 0)
			r = read_named(c, file);
	}
	return r;
}

int scan_add_git(struct scan *scan, const char *dir, const char *worktree, bool is_linked,
		 struct err *err)
{
	static const char *const configs[] = { "config", "config.worktree" };
	CLEAN(arena) struct arena names = { 0 };
	CLEAN(path) struct path common = { .fd = -1 };
	struct config_reader c = { .scan = scan,
				   .err = err,
				   .names = &names,
				   .configured = &scan->files->configured,
				   .configured_max = CONFIGURED_MAX,
				   .git = dir,
				   .worktree = worktree };
	int r = 0;

	/* Each is read anew: a command may have made as many as it liked. */
	if (++scan->files->git_count > GIT_MAX) {
		scan->files->cut = true;
		return 0;
	}
	for (const struct startup_row *row = startup_git; row->why; row++)
		for (const char *const *n = row->names; r == 0 && *n; n++) {
			const char *name = arena_printf(&names, "%s/%s", dir, *n);

			if (!name)
				return err_sys(err, -ENOMEM, "cannot look into '%s'",
					       dir);
			if (startup_git_is_empty(dir, *n))
				continue;
			r = scan_add_in_tops(scan, name, NULL, err);
			if (r == 0)
				r = scan_add_named(scan, name, row->why, err);
		}
	for (size_t i = 0; r == 0 && i < 2 * ARRAY_SIZE(configs); i++) {
		const char *file = arena_printf(&names, "%s/%s", dir, configs[i / 2]);

		if (!file)
			return err_sys(err, -ENOMEM, "cannot read the config in '%s'",
				       dir);
		if (i % 2 == 1)
			r = read_named(&c, file);
		else if (!is_linked)
			(void)!git_config_read(file, on_worktree, &c);
	}
	c.configured = &scan->files->own_configured;
	c.configured_max = OWN_CONFIGURED_MAX;
	if (r == 0 && !is_linked)
		r = read_own_configs(&c);
	if (r < 0 || is_linked ||
	    git_file_follow(dir, "commondir", "", &common, NULL) < 0)
		return r;
	r = scan_add_way(scan, &common,
			 startup_why(startup_git, text_of(""), "commondir"), err);
	return r < 0 ? r : scan_add_git(scan, common.name, worktree, true, err);
}

int scan_add_own_configs(struct scan *scan, const char *top, struct err *err)
{
	CLEAN(arena) struct arena names = { 0 };
	const struct config_reader own = { .scan = scan,
					   .err = err,
					   .names = &names,
					   .worktree = top,
					   .configured = &scan->files->own_configured,
					   .configured_max = OWN_CONFIGURED_MAX };

	return read_own_configs(&own);
}

int scan_add_repository(struct scan *scan, const char *top, struct err *err)
{
	CLEAN(mem) char *name = NULL;
	const char *reason = startup_why(startup_project, text_of(""), ".git");
	CLEAN(path) struct path entry = { .fd = -1 }, dir = { .fd = -1 };
	int r;

	if (asprintf(&name, "%s/.git", top[1] ? top : "") < 0) {
		name = NULL;
		return err_sys(err, -ENOMEM, "cannot look into '%s'", top);
	}
	if (path_open(name, &entry, NULL) < 0)
		return 0;
	r = scan_add_way(scan, &entry, reason, err);
	if (r == 0 && S_ISDIR(entry.st.st_mode))
		return scan_add_git(scan, entry.name, top, false, err);
	if (r < 0 || git_file_follow(top, ".git", "gitdir: ", &dir, NULL) < 0)
		return r;
	r = scan_add_way(scan, &dir, reason, err);
	return r < 0 ? r : scan_add_git(scan, dir.name, top, false, err);
}
