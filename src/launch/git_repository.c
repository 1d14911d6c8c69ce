// SPDX-License-Identifier: Apache-2.0
#include "launch/git_repository.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "sys/files.h"
#include "sys/mounts.h"

enum {
	LINE_MAX_BYTES = 1 << 20,   /* of a file that leads elsewhere, as git takes it */
	NESTED_MAX = 16,	    /* submodules in submodules; more is an error */
	CONFIG_MAX_BYTES = 1 << 20, /* of a config; more is an error */
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

int git_file_follow(const char *dir, const char *name, const char *prefix,
		    struct path *ret, struct err *err)
{
	const struct file_how how = { .max_bytes = LINE_MAX_BYTES,
				      .anybodys = true,
				      .follow = true };
	CLEAN(arena) struct arena arena = { 0 };
	const char *path = arena_printf(&arena, "%s/%s", dir, name), *whole;
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	const size_t skipped = strlen(prefix);
	int r = path ? file_read(AT_FDCWD, path, &how, &file, err) : out_of_memory(err);

	if (r < 0)
		return r;
	while (file.size > 0 && strchr("\r\n", file.bytes[file.size - 1]))
		file.size--;
	if (file.size <= skipped || memcmp(file.bytes, prefix, skipped) != 0)
		return err_set(err, -EINVAL, "'%s' is no file of git's", path);
	whole = arena_text(&arena,
			   (struct text){ file.bytes + skipped, file.size - skipped });
	if (whole && whole[0] != '/')
		whole = arena_printf(&arena, "%s/%s", dir, whole);
	return whole ? path_open(whole, ret, err) : out_of_memory(err);
}

/* The same, where no link that an earlier command may have left is on the way: the name.
 */
static int follow(struct arena *arena, const char *dir, const char *name,
		  const char *prefix, const char **ret, struct err *err)
{
	const char *file = arena_printf(arena, "%s/%s", dir, name);
	CLEAN(path) struct path p = { .fd = -1 };
	struct stat st;
	int r = file ? git_file_follow(dir, name, prefix, &p, err) : out_of_memory(err);

	if (r < 0)
		return r;
	if (lstat(file, &st) < 0 || S_ISLNK(st.st_mode))
		return err_set(err, -EPERM, "'%s' is a link", file);
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

/* What the entry `.git` of g->top is, or leads to. */
static int read_dot_git(struct arena *arena, struct git_repository *g, mode_t mode,
			size_t depth, struct err *err)
{
	int r;

	if (S_ISDIR(mode)) {
		g->dir = g->common = arena_printf(arena, "%s/.git", g->top);
		return g->dir ? 0 : out_of_memory(err);
	}
	r = follow(arena, g->top, ".git", "gitdir: ", &g->dir, err);
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
		/* Git goes past a directory that is no repository. */
		if (lstat(entry, &st) == 0 &&
		    (!S_ISDIR(st.st_mode) || git_repository_is(entry))) {
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

/* The bytes of the config @path, with a NUL at the end and nowhere else: one ends no text
 * here. */
static int read_config(const char *path, struct file_bytes *ret)
{
	const struct file_how how = { .max_bytes = CONFIG_MAX_BYTES,
				      .anybodys = true,
				      .follow = true };
	int r = file_read(AT_FDCWD, path, &how, ret, NULL);

	for (size_t i = 0; r == 0 && i < ret->size; i++)
		ret->bytes[i] = ret->bytes[i] ?: ' ';
	return r;
}

bool git_config_has_secret(const char *path)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };

	if (read_config(path, &file) < 0)
		return false;
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

/* The name of the section whose header begins behind the bracket at @at, without what
 * stands in quotes behind it. Return: what follows the header; NULL: it has no end. */
static const char *read_section(const char *at, struct text *ret)
{
	bool is_quoted = false;

	*ret = (struct text){ at, strcspn(at, " \t.\"]\n") };
	for (; *at && *at != '\n'; at++) {
		if (*at == '\\' && is_quoted && at[1] && at[1] != '\n')
			at++;
		else if (*at == '"')
			is_quoted = !is_quoted;
		else if (*at == ']' && !is_quoted)
			return at + 1;
	}
	return NULL;
}

/* The value at @at, with its quotes and escapes undone, to @ret, which has room for all
 * that is left of the file. Return: the end of its line; NULL: git refuses it. */
static const char *read_value(const char *at, char *ret)
{
	static const char escapes[] = "nt\"\\b", meant[] = "\n\t\"\\\b";
	bool is_quoted = false;
	char *const begin = ret, *kept = ret; /* behind the last that is no blank */

	for (; *at && *at != '\n'; at++) {
		const char *escape;

		if (!is_quoted && (*at == '#' || *at == ';')) {
			at += strcspn(at, "\n");
			break;
		}
		if (*at == '"') {
			is_quoted = !is_quoted;
			kept = ret;
			continue;
		}
		if (*at == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n'))) {
			at += at[1] == '\n' ? 1 : 2;
			continue;
		}
		if (!is_quoted && ret == begin && text_is_blank(*at))
			continue;
		escape = NULL;
		if (*at == '\\') {
			at++;
			escape = *at ? strchr(escapes, *at) : NULL;
			if (!escape)
				return NULL;
		}
		*ret++ = escape ? meant[escape - escapes] : *at;
		if (is_quoted || escape || !text_is_blank(*at))
			kept = ret;
	}
	*kept = '\0';
	return is_quoted ? NULL : at;
}

int git_config_read(const char *path, git_config_setting *on_setting, void *data)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	CLEAN(mem) char *value = NULL;
	struct text section = { 0 };
	const char *at;
	int r = read_config(path, &file);

	if (r < 0)
		return r;
	value = malloc(file.size + 1);
	if (!value)
		return -ENOMEM;
	at = file.bytes + (strncmp(file.bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0);
	while (at && *at) {
		struct text key = { at, strcspn(at, " \t\r\n=#;[") };

		if (text_is_blank(*at)) {
			at++;
		} else if (*at == '#' || *at == ';') {
			at += strcspn(at, "\n");
		} else if (*at == '[') {
			at = read_section(at + 1, &section);
		} else if (key.len == 0) {
			return -EINVAL;
		} else {
			at += key.len;
			at += strspn(at, " \t\r");
			if (*at != '=')
				continue; /* it is true, for git */
			at = read_value(at + 1, value);
			if (at)
				on_setting(data, section, key, value);
		}
	}
	return at ? 0 : -EINVAL;
}
