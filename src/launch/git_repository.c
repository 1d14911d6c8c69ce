// SPDX-License-Identifier: Apache-2.0
#include "launch/git_repository.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum {
	LINE_MAX_BYTES = 8192,	    /* of a file that leads elsewhere; more is an error */
	NESTED_MAX = 16,	    /* submodules in submodules; more is an error */
	CONFIG_MAX_BYTES = 1 << 20, /* of a config; a larger one is not looked at */
};

static int out_of_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static bool has(const char *dir, const char *name)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "%s/%s", dir, name);
	struct stat st;

	return path && lstat(path, &st) == 0;
}

bool git_repository_is(const char *dir)
{
	return has(dir, "HEAD") && has(dir, "objects") && has(dir, "refs");
}

/* The canonical name of the path that the file @dir/@name has in it behind @prefix. The
 * path counts from @dir. */
static int follow(struct arena *arena, const char *dir, const char *name,
		  const char *prefix, const char **ret, struct err *err)
{
	const struct file_how how = { .max_bytes = LINE_MAX_BYTES, .anybodys = true };
	const char *path = arena_printf(arena, "%s/%s", dir, name), *whole;
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	CLEAN(path) struct path p = { .fd = -1 };
	const size_t skipped = strlen(prefix);
	struct text line;
	int r = path ? file_read(AT_FDCWD, path, &how, &file, err) : out_of_memory(err);

	if (r < 0)
		return r;
	line = text_trim((struct text){ file.bytes, file.size });
	if (line.len <= skipped || memcmp(line.ptr, prefix, skipped) != 0)
		return err_set(err, -EINVAL, "'%s' is no file of git's", path);
	whole = arena_text(arena, text_trim((struct text){ line.ptr + skipped,
							   line.len - skipped }));
	if (whole && whole[0] != '/')
		whole = arena_printf(arena, "%s/%s", dir, whole);
	r = whole ? path_open(whole, &p, err) : out_of_memory(err);
	if (r < 0)
		return r;
	if (p.untrusted)
		return err_set(err, -EPERM, "'%s' is a link", p.untrusted);
	*ret = arena_text(arena, text_of(p.name));
	return *ret ? 0 : out_of_memory(err);
}

static int not_gits(const struct git_repository *g, struct err *err)
{
	return err_set(err, -EPERM,
		       "'%s/.git' leads to '%s', which git did not make for it; if it "
		       "should be writable, name it with --rw",
		       g->top, g->dir);
}

/* Does the repository know this working tree? What git has in a directory of the name
 * "worktrees", anybody may have put into another one: so it has to be a repository. */
static int check_worktree(struct arena *arena, struct git_repository *g, struct err *err)
{
	const char *worktrees, *back = NULL, *own;
	int r = follow(arena, g->dir, "commondir", "", &g->common, err);

	if (r == 0)
		r = follow(arena, g->dir, "gitdir", "", &back, err);
	if (r < 0)
		return r;
	worktrees = arena_printf(arena, "%s/worktrees", g->common);
	own = arena_printf(arena, "%s/.git", g->top);
	if (!worktrees || !own)
		return out_of_memory(err);
	if (!git_repository_is(g->common) ||
	    strlen(worktrees) != (size_t)(strrchr(g->dir, '/') - g->dir) ||
	    !path_is_within(g->dir, worktrees) || strcmp(back, own) != 0)
		return not_gits(g, err);
	return 0;
}

static int find_from(struct arena *arena, const char *from, size_t depth,
		     struct git_repository *ret, struct err *err);

/* Does it lie in the repository around it? */
static int check_submodule(struct arena *arena, struct git_repository *g, size_t depth,
			   struct err *err)
{
	const char *above = arena_text(
		arena, (struct text){ g->top, (size_t)(strrchr(g->top, '/') - g->top) });
	struct git_repository around = { 0 };
	const char *modules;
	int r = above ? find_from(arena, above, depth + 1, &around, err)
		      : out_of_memory(err);

	if (r < 0)
		return r;
	modules = arena_printf(arena, "%s/modules", around.top ? around.dir : "");
	if (!modules)
		return out_of_memory(err);
	if (!around.top || strcmp(g->dir, modules) == 0 ||
	    !path_is_within(g->dir, modules))
		return not_gits(g, err);
	g->common = g->dir;
	return 0;
}

/* @dot_git is the entry `.git` of g->top. */
static int read_dot_git(struct arena *arena, struct git_repository *g, mode_t mode,
			size_t depth, struct err *err)
{
	int r;

	if (S_ISDIR(mode)) {
		g->dir = g->common = arena_printf(arena, "%s/.git", g->top);
		return g->dir ? 0 : out_of_memory(err);
	}
	r = follow(arena, g->top, ".git", "gitdir:", &g->dir, err);
	if (r < 0)
		return r;
	return has(g->dir, "commondir") ? check_worktree(arena, g, err)
					: check_submodule(arena, g, depth, err);
}

static int find_from(struct arena *arena, const char *from, size_t depth,
		     struct git_repository *ret, struct err *err)
{
	char *top = arena_text(arena, text_of(from));

	if (depth == NESTED_MAX)
		return err_set(err, -ELOOP, "too many repositories around '%s'", from);
	while (top && top[0] == '/') {
		const char *entry = arena_printf(arena, "%s/.git", top);
		struct git_repository g = { .top = top };
		struct stat st;
		int r;

		if (!entry)
			return out_of_memory(err);
		if (lstat(entry, &st) == 0 &&
		    (!S_ISDIR(st.st_mode) || has(entry, "HEAD"))) {
			r = read_dot_git(arena, &g, st.st_mode, depth, err);
			if (r == 0)
				*ret = g;
			return r;
		}
		*strrchr(top, '/') = '\0';
	}
	return top ? 0 : out_of_memory(err);
}

int git_repository_find(struct arena *arena, const char *from, struct git_repository *ret,
			struct err *err)
{
	*ret = (struct git_repository){ 0 };
	return find_from(arena, from, 0, ret, err);
}

/* --- what is in a config --- */

bool git_config_has_secret(const char *path)
{
	const struct file_how how = { .max_bytes = CONFIG_MAX_BYTES, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };

	if (file_read(AT_FDCWD, path, &how, &file, NULL) < 0)
		return false;
	/* A NUL ends no text here. */
	for (size_t i = 0; i < file.size; i++)
		file.bytes[i] = file.bytes[i] ?: ' ';
	if (strcasestr(file.bytes, "extraheader"))
		return true;
	/* "https://user:password@host" */
	for (const char *at = file.bytes; (at = strstr(at, "://"));) {
		const char *end, *colon;

		at += strlen("://");
		end = at + strcspn(at, "@/?# \t\r\n\"'");
		colon = memchr(at, ':', (size_t)(end - at));
		if (*end == '@' && colon && colon > at && colon + 1 < end)
			return true;
	}
	return false;
}
