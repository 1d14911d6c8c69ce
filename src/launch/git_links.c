// SPDX-License-Identifier: Apache-2.0
#include "launch/git_links.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/files.h"

enum {
	ENTRIES_MAX = 50000, /* of one git directory; more are not looked at */
	DEPTH_MAX = 64,	     /* the same */
};

struct walk {
	struct arena *arena;
	struct git_links *links;
	const char *root; /* the git directory */
	bool opens;
	size_t entries, depth;
};

void git_links_open_up(int fd)
{
	char self[32];
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	(void)!chmod(self, (st.st_mode & 07777) | S_IRWXU);
}

static bool is_git_made(int dir, const char *name)
{
	char to[PATH_MAX];
	ssize_t n = readlinkat(dir, name, to, sizeof(to));

	return n >= 5 && (size_t)n < sizeof(to) && memcmp(to, "refs/", 5) == 0 &&
	       !memmem(to, (size_t)n, "..", 2);
}

/* Does git keep objects in the directory @name of @directory: in one of two hexadecimal
 * digits, or in packs? Among refs and logs, where links may lead, such names are refs. */
static bool is_of_objects(const struct walk *w, const char *directory, const char *name)
{
	const char *rest = directory + strlen(w->root), *last = strrchr(directory, '/');
	char way[PATH_MAX];

	if (snprintf(way, sizeof(way), "%s/", rest) >= (int)sizeof(way) ||
	    strstr(way, "/refs/") || strstr(way, "/logs/"))
		return false;
	return last && strcmp(last, "/objects") == 0 &&
	       ((isxdigit((unsigned char)name[0]) && isxdigit((unsigned char)name[1]) &&
		 !name[2]) ||
		strcmp(name, "pack") == 0);
}

/* Is @name, in the git directory itself, of those that git writes? Tools keep working
 * trees beside them, which are full of links, and a bare repository may have its own. */
static bool is_written(const struct walk *w, const char *name, unsigned char type)
{
	static const char *const directories[] = {
		"logs",	    "refs",	"info",		"modules",   "worktrees",
		"objects",  "lfs",	"rebase-merge", "sequencer", "rebase-apply",
		"rr-cache", "reftable", "svn",
	};
	static const char *const files[] = { "index",	"packed-refs", "description",
					     "shallow", "gc.log",      "gc.pid" };
	const char *last = strrchr(w->root, '/');

	if (type == DT_DIR)
		return text_is_one_of(name, directories, ARRAY_SIZE(directories));
	return (last && strcmp(last, "/.git") == 0) || isupper((unsigned char)name[0]) ||
	       text_is_one_of(name, files, ARRAY_SIZE(files)) ||
	       text_is_one_of(name, directories, ARRAY_SIZE(directories));
}

static void add(struct walk *w, int dir, const char *entry, const char *name)
{
	struct git_links *l = w->links;
	struct stat st;

	if (fstatat(dir, entry, &st, AT_SYMLINK_NOFOLLOW) < 0 || is_git_made(dir, entry))
		return;
	if (!ARRAY_GROW(l->items, l->count, l->capacity)) {
		l->is_cut = true;
		return;
	}
	l->items[l->count++] =
		(struct git_link){ .name = name, .ino = st.st_ino, .ctim = st.st_ctim };
}

static DIR *open_directory(const struct walk *w, int at, const char *name)
{
	const int flags = O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;
	DIR *dir = directory_open(openat(at, name, flags | O_RDONLY));
	CLEAN(fd) int closed = -1;

	if (dir || errno != EACCES || !w->opens)
		return dir;
	closed = openat(at, name, flags | O_PATH);
	if (closed >= 0)
		git_links_open_up(closed);
	return directory_open(openat(at, name, flags | O_RDONLY));
}

static void find_in(struct walk *w, int at, const char *entry, const char *directory)
{
	CLEAN(directory) DIR *dir = open_directory(w, at, entry);
	const struct dirent *e;

	if (!dir && errno != ENOENT)
		w->links->closed = directory;
	while (dir && (e = directory_next(dir))) {
		const unsigned char type = directory_type(dirfd(dir), e);
		const char *name;

		if (++w->entries > ENTRIES_MAX || w->depth == DEPTH_MAX) {
			w->links->is_cut = true;
			return;
		}
		if ((type != DT_LNK && type != DT_DIR) ||
		    (type == DT_DIR && is_of_objects(w, directory, e->d_name)) ||
		    (w->depth == 0 && !is_written(w, e->d_name, type)))
			continue;
		name = arena_printf(w->arena, "%s/%s", directory, e->d_name);
		if (!name) {
			w->links->is_cut = true;
		} else if (type == DT_LNK) {
			add(w, dirfd(dir), e->d_name, name);
		} else {
			w->depth++;
			find_in(w, dirfd(dir), e->d_name, name);
			w->depth--;
		}
	}
	w->links->is_cut = w->links->is_cut || (dir && errno != 0);
}

void git_links_find(const char *directory, bool opens, struct arena *arena,
		    struct git_links *links)
{
	struct walk w = {
		.arena = arena, .links = links, .root = directory, .opens = opens
	};

	find_in(&w, AT_FDCWD, directory, directory);
}

static int compare_links(const void *a, const void *b)
{
	const struct git_link *x = a, *y = b;

	return strcmp(x->name, y->name);
}

void git_links_sort(struct git_links *links)
{
	if (links->count > 0)
		qsort(links->items, links->count, sizeof(*links->items), compare_links);
}

bool git_links_has(const struct git_links *links, const struct git_link *link)
{
	const struct git_link *l = links->count > 0
					   ? bsearch(link, links->items, links->count,
						     sizeof(*links->items), compare_links)
					   : NULL;

	return l && l->ino == link->ino && l->ctim.tv_sec == link->ctim.tv_sec &&
	       l->ctim.tv_nsec == link->ctim.tv_nsec;
}

void git_links_done(struct git_links *links)
{
	free(links->items);
	*links = (struct git_links){ 0 };
}
