// SPDX-License-Identifier: Apache-2.0
#include "run/twins.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct twin *find(struct twins *t, const struct stat *st)
{
	for (size_t i = 0; i < t->count; i++) {
		if (t->list[i].st.st_ino == st->st_ino &&
		    t->list[i].st.st_dev == st->st_dev)
			return &t->list[i];
	}
	return NULL;
}

static bool is_known(const struct twin *w, const char *last, const struct stat *directory)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct twin_name *n = &w->names[i];

		if (n->directory.st_ino == directory->st_ino &&
		    n->directory.st_dev == directory->st_dev &&
		    strcmp(strrchr(n->path, '/') + 1, last) == 0)
			return true;
	}
	return false;
}

static int add_name(struct twin *w, const char *path, struct err *err)
{
	const char *last = strrchr(path, '/') + 1;
	struct twin_name name = { .path = strdup(path) };
	char directory[PATH_MAX];

	snprintf(directory, sizeof(directory), "%.*s", (int)(last - path), path);
	if (!name.path || stat(directory, &name.directory) < 0 ||
	    w->count == w->st.st_nlink || is_known(w, last, &name.directory)) {
		free(name.path);
		return name.path ? 0 : err_sys(err, -ENOMEM, "cannot list '%s'", path);
	}
	w->names[w->count++] = name;
	return 0;
}

int twins_add(struct twins *t, const struct stat *st, const char *path, struct err *err)
{
	struct twin *w;

	if (!S_ISREG(st->st_mode) || st->st_nlink < 2 ||
	    (geteuid() != 0 && st->st_uid != geteuid()))
		return 0;
	w = find(t, st);
	if (!w && t->count == TWINS_MAX)
		return err_set(
			err, -E2BIG,
			"more than %d files that are hidden have other names (hard "
			"links)",
			TWINS_MAX);
	if (!w) {
		w = &t->list[t->count];
		*w = (struct twin){ .st = *st,
				    .names = calloc(st->st_nlink, sizeof(*w->names)) };
		if (!w->names)
			return err_sys(err, -ENOMEM, "cannot list '%s'", path);
		t->count++;
	}
	return add_name(w, path, err);
}

/* --- the search --- */

static bool is_on_their_file_system(const struct twins *t, const struct stat *st)
{
	for (size_t i = 0; i < t->count; i++) {
		if (t->list[i].st.st_dev == st->st_dev)
			return true;
	}
	return false;
}

static bool is_one_of_theirs(const struct twins *t, ino_t inode)
{
	for (size_t i = 0; i < t->count; i++) {
		if (t->list[i].st.st_ino == inode)
			return true;
	}
	return false;
}

static int search(struct twins *t, int fd, const char *path, struct err *err);

static int search_entry(struct twins *t, int dir, const char *directory,
			const struct dirent *entry, struct err *err)
{
	char path[PATH_MAX];
	struct twin *w;
	struct stat st;

	if (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN &&
	    !is_one_of_theirs(t, entry->d_ino))
		return 0;
	if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    snprintf(path, sizeof(path), "%s/%s", directory[1] ? directory : "",
		     entry->d_name) >= (int)sizeof(path))
		return 0;
	if (S_ISDIR(st.st_mode))
		return search(t,
			      openat(dir, entry->d_name,
				     O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
			      path, err);
	w = find(t, &st);
	return w ? add_name(w, path, err) : 0;
}

/* Takes @fd. */
static int search(struct twins *t, int fd, const char *path, struct err *err)
{
	const struct dirent *entry;
	struct stat st;
	DIR *dir;
	int r = 0;

	if (fd < 0)
		return 0;
	if (fstat(fd, &st) < 0 || !is_on_their_file_system(t, &st) ||
	    !(dir = fdopendir(fd))) {
		close(fd);
		return 0;
	}
	while (r == 0 && t->entries < TWINS_ENTRIES_MAX && (entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		t->entries++;
		r = search_entry(t, fd, path, entry, err);
	}
	closedir(dir);
	return r;
}

static bool all_found(const struct twins *t)
{
	for (size_t i = 0; i < t->count; i++) {
		if (t->list[i].count < t->list[i].st.st_nlink)
			return false;
	}
	return true;
}

int twins_search(struct twins *t, const char *top, struct err *err)
{
	if (all_found(t))
		return 0;
	t->entries = 0;
	return search(t, open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC), top, err);
}

int twins_each(const struct twins *t,
	       int (*found)(void *data, const char *name, struct err *err), void *data,
	       struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < t->count; i++) {
		const struct twin *w = &t->list[i];

		if (w->count < w->st.st_nlink)
			return err_set(
				err, -EPERM,
				"'%s' is hidden, and has other names (hard links), of "
				"which %zu can't be found in the home and the writable "
				"directories; name them with --hide, or show the file "
				"with --ro",
				w->names[0].path, (size_t)w->st.st_nlink - w->count);
		for (size_t j = 0; r == 0 && j < w->count; j++)
			r = found(data, w->names[j].path, err);
	}
	return r;
}

void twins_done(struct twins *t)
{
	for (size_t i = 0; i < t->count; i++) {
		for (size_t j = 0; j < t->list[i].count; j++)
			free(t->list[i].names[j].path);
		free(t->list[i].names);
	}
	*t = (struct twins){ 0 };
}
