// SPDX-License-Identifier: Apache-2.0
/* launch/git_repository - where git keeps the repository of a working tree.
 *
 * HOW IT WORKS
 * A checkout has a directory `.git`. Another working tree (git worktree) and a submodule
 * have a file of that name, which leads to a directory elsewhere. Such a file lies where
 * an earlier command may have written, so it is believed only where git itself has made
 * the other end: the directory of a working tree names the working tree, and lies in the
 * `worktrees` of its repository; the directory of a submodule lies in the `modules` of
 * the repository around it. Neither can be made by a command that could not write to
 * that repository before. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"
#include "sys/files.h"

struct git_repository {
	const char *top;    /* of the working tree; NULL: there is no repository */
	const char *dir;    /* the working tree's own: index, HEAD */
	const char *common; /* objects, refs, config, hooks; holds @dir or is it */
};

/* Is the directory @dir a repository, to git? */
bool git_repository_is(const char *dir);
/* Find the repository of the directory @from, whose name is canonical; the names live in
 * @arena.
 * Return: 0, also when there is none; -EPERM when a file `.git` leads to what git did not
 * make for it; another -errno. */
int git_repository_find(struct arena *arena, const char *from, struct git_repository *ret,
			struct err *err) MUST_CHECK;
/* Open what the path in the file @dir/@name leads to, as git reads it: the path stands
 * behind @prefix and counts from @dir. Whoever wrote the file is believed.
 * Return: 0; -EINVAL when the file doesn't begin with @prefix; another -errno. */
int git_file_follow(const char *dir, const char *name, const char *prefix,
		    struct path *ret, struct err *err) MUST_CHECK;

/* Has the config @path of a repository what opens a server: a header of all requests, as
 * GitHub's checkout leaves it there, or a URL with a password, as GitLab's does? What
 * can't be read has nothing. */
bool git_config_has_secret(const char *path);

/* A setting of a config: the names as they are written, in any case of their letters, the
 * section's without a subsection; @value without quotes and escapes. */
typedef void git_config_setting(void *data, struct text section, struct text key,
				const char *value);
/* Give each setting of the config @path that has a value to @on_setting, in their order.
 * Return: 0; -EINVAL when git refuses the rest of it, or when it is no regular file;
 * -E2BIG when it is larger than 1 MiB; another -errno. */
int git_config_read(const char *path, git_config_setting *on_setting, void *data);
