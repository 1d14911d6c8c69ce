// SPDX-License-Identifier: Apache-2.0
#include "launch/hide.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "launch/bind_mount.h"
#include "launch/entry_filter.h"
#include "launch/launch.h"
#include "launch/mask.h"
#include "launch/secret.h"
#include "launch/secret_lists.h" /* generated: credentials_list[] */
#include "sys/files.h"

/* --- the other names (hard links) of files that are hidden --- */

enum {
	TWINS_MAX = 64,		    /* files with several names; more: refused */
	TWINS_ENTRIES_MAX = 100000, /* looked at in one search; the rest is not found */
};

struct twin_name {
	char *path;	       /* owned */
	struct stat directory; /* that has it: a path may lead there by two mounts */
};

struct twin {
	struct stat st;
	struct twin_name *names; /* owned, st.st_nlink of them at most */
	size_t count;
};

/* { 0 } is none. */
struct twins {
	struct twin list[TWINS_MAX];
	size_t count, entries;
};

static struct twin *find_twin(struct twins *t, const struct stat *st)
{
	for (size_t i = 0; i < t->count; i++) {
		if (stat_is_same(&t->list[i].st, st))
			return &t->list[i];
	}
	return NULL;
}

/* A name is left out whose directory can't be looked at, or that is known, as the same
 * one of the same directory; and every one once the file has as many as it can have. */
static int add_name(struct twin *w, const char *path, struct err *err)
{
	const char *last = strrchr(path, '/') + 1;
	struct twin_name name = { .path = strdup(path) };
	char directory[PATH_MAX];
	bool is_left_out;

	snprintf(directory, sizeof(directory), "%.*s", (int)(last - path), path);
	if (!name.path)
		return err_sys(err, -ENOMEM, "cannot list '%s'", path);
	is_left_out = stat(directory, &name.directory) < 0 || w->count == w->st.st_nlink;
	for (size_t i = 0; !is_left_out && i < w->count; i++)
		is_left_out = stat_is_same(&w->names[i].directory, &name.directory) &&
			      strcmp(strrchr(w->names[i].path, '/') + 1, last) == 0;
	if (is_left_out)
		free(name.path);
	else
		w->names[w->count++] = name;
	return 0;
}

/* Note the hidden file @path, if it is the effective user's and has several names. */
static int twins_add(struct twins *t, const struct stat *st, const char *path,
		     struct err *err)
{
	struct twin *w;

	if (!S_ISREG(st->st_mode) || st->st_nlink < 2 ||
	    (geteuid() != 0 && st->st_uid != geteuid()))
		return 0;
	w = find_twin(t, st);
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

/* In the directory @path, open at @fd, which is taken, and below it. */
static int search_names(struct twins *t, int fd, const char *path, struct err *err)
{
	CLEAN(directory) DIR *dir = directory_open(fd);
	const struct dirent *entry;
	bool is_theirs = false; /* the file system of one of them */
	struct stat st;
	int r = 0;

	if (!dir || fstat(fd, &st) < 0)
		return 0;
	for (size_t i = 0; i < t->count; i++)
		is_theirs = is_theirs || t->list[i].st.st_dev == st.st_dev;
	while (r == 0 && is_theirs && t->entries < TWINS_ENTRIES_MAX &&
	       (entry = directory_next(dir))) {
		bool may_be = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;
		char name[PATH_MAX];
		struct twin *w;

		t->entries++;
		for (size_t i = 0; !may_be && i < t->count; i++)
			may_be = t->list[i].st.st_ino == entry->d_ino;
		if (!may_be || fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    snprintf(name, sizeof(name), "%s/%s", path[1] ? path : "",
			     entry->d_name) >= (int)sizeof(name))
			continue;
		w = S_ISDIR(st.st_mode) ? NULL : find_twin(t, &st);
		if (S_ISDIR(st.st_mode))
			r = search_names(
				t,
				openat(fd, entry->d_name,
				       O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW),
				name, err);
		else if (w)
			r = add_name(w, name, err);
	}
	return r;
}

/* Look for their other names below @top. */
static int twins_search(struct twins *t, const char *top, struct err *err)
{
	bool all_found = true;

	for (size_t i = 0; i < t->count; i++)
		all_found = all_found && t->list[i].count >= t->list[i].st.st_nlink;
	if (all_found)
		return 0;
	t->entries = 0;
	return search_names(t, open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC), top, err);
}

enum {
	HOMES_MAX = 3,
	WALK_ENTRIES_MAX = 100000, /* of one directory of credentials; more: refused */
	WALK_DEPTH_MAX = 64,	   /* deeper: refused */
	CONTENT_MAX = 256 * 1024,  /* of a file that is hidden for what is in it; a larger
				    * one is hidden */
};

#define STAGE_HIDDEN ROOTFS_STAGE "/hidden"

struct plan_of_hidden {
	struct rootfs *view;
	struct twins twins;
	char *homes[HOMES_MAX]; /* owned */
	struct entry_filter entries_of[HOMES_MAX];
	struct entry_filter config_of[HOMES_MAX]; /* .config has a third of the places */
	size_t home_count;
	size_t entries; /* of the directory that is walked */
};

/* --- what can't be looked at --- */

/* The command has its caller's rights: what the caller alone has locked, the command may
 * open again. */
static bool is_ours(const struct stat *st)
{
	return st->st_uid == geteuid();
}

static int cannot_look(const char *path, const char *why, struct err *err)
{
	return err_set(err, -EPERM,
		       "cannot look through '%s' for links and other names of what is "
		       "hidden: %s",
		       path, why);
}

/* Another error than these doesn't say that there is nothing. */
static bool means_absent(int error)
{
	return error == ENOENT || error == ENOTDIR || error == ELOOP ||
	       error == ENAMETOOLONG;
}

/* @name leads into a directory that can't be searched. */
static int check_locked(const char *name, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;

	/* Then the part is in @path that could not be looked up. */
	if (realpath(name, path) || errno != EACCES)
		return cannot_look(name, strerror(EACCES), err);
	for (char *end = strrchr(path, '/'); end && end > path;
	     end = strrchr(path, '/')) {
		*end = '\0';
		if (stat(path, &st) == 0)
			return is_ours(&st) ? cannot_look(path, strerror(EACCES), err)
					    : 0;
	}
	return 0;
}

/* Why @name couldn't be opened, @r, is no reason to show it: only where the kernel says
 * that nothing is there, or no directory or file that has a place, may the start go on.
 * The kernel follows longer links than Weir. */
static int check_unopened(const char *name, int r, struct err *err)
{
	struct stat st;
	const int why = stat(name, &st) < 0 ? errno : 0;

	if (means_absent(why) || (why == 0 && !S_ISDIR(st.st_mode) &&
				  (!S_ISREG(st.st_mode) || st.st_nlink == 0)))
		return 0;
	return why == EACCES ? check_locked(name, err)
			     : cannot_look(name, strerror(why ? why : -r), err);
}

/* Another fault than a refusal is no answer: what can't be asked is hidden. */
static bool is_denied(const char *name, int right)
{
	return faccessat(AT_FDCWD, name, right, AT_EACCESS) < 0 && errno == EACCES;
}

/* --- homes --- */

static int add_home(struct plan_of_hidden *plan, const char *home, struct err *err)
{
	const size_t n = plan->home_count;
	CLEAN(mem) char *config = NULL;

	if (!home || home[0] != '/')
		return 0;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(plan->homes[i], home) == 0)
			return 0;
	}
	plan->homes[n] = strdup(home);
	if (!plan->homes[n])
		return err_sys(err, -ENOMEM, "cannot list what is hidden");
	plan->home_count++;
	if (asprintf(&config, "%s/.config", home) < 0) {
		config = NULL;
		return err_sys(err, -ENOMEM, "cannot list what is hidden");
	}
	entry_filter_read(&plan->entries_of[n], home);
	if (entry_filter_may_have(&plan->entries_of[n], ".config"))
		entry_filter_read(&plan->config_of[n], config);
	return 0;
}

/* The home that the passwd entry of @uid names, if there is one. */
static int add_home_of(struct plan_of_hidden *plan, uint32_t uid, struct err *err)
{
	const struct passwd *user;

	errno = 0;
	user = getpwuid(uid);
	/* Where no entry is these may be left in errno: getpwuid(3). */
	if (!user && plan->view->spec->hide_credentials && errno != 0 &&
	    errno != ENOENT && errno != ESRCH && errno != EBADF && errno != EPERM)
		return err_sys(err, -errno, "cannot look up the home of user %u", uid);
	return add_home(plan, user ? user->pw_dir : NULL, err);
}

/* The homes in which credentials are hidden. The user who called sudo has one, too, and
 * root can read it. */
static int find_homes(struct plan_of_hidden *plan, struct err *err)
{
	const char *sudo = getenv("SUDO_UID");
	uint32_t uid;
	int r;

	static_assert(HOMES_MAX == 3, "as many as are added here");
	r = add_home(plan, getenv("HOME"), err);
	if (r < 0)
		return r;
	r = add_home_of(plan, geteuid(), err);
	if (r < 0 || !sudo || !text_to_u32(text_of(sudo), UINT32_MAX, &uid))
		return r;
	return add_home_of(plan, uid, err);
}

/* --- what is shown all the same --- */

static bool is_shown(const struct tree *t)
{
	return t->kind == TREE_WRITABLE || t->kind == TREE_SHOWN ||
	       t->kind == TREE_SOCKET;
}

/* Is @path out of sight because of @h, with nothing in between that was named? */
static bool hides(const struct rootfs *v, const struct hidden *h, const char *path)
{
	if (!path_is_within(path, h->name))
		return false;
	for (size_t i = 0; i < v->tree_count; i++) {
		const struct tree *t = &v->trees[i];

		if (is_shown(t) && path_is_within(t->path, h->name) &&
		    path_is_within(path, t->path))
			return false;
	}
	return true;
}

static bool is_hidden_already(const struct rootfs *v, const char *path)
{
	for (size_t i = 0; i < v->hidden_count; i++) {
		if (hides(v, &v->hidden[i], path))
			return true;
	}
	return false;
}

static bool is_named_by_option(const struct rootfs *v, const char *path)
{
	return place_is_among(v, v->spec->rw_count + v->spec->shown_count, path);
}

/* --- places --- */

static int add_place(struct plan_of_hidden *plan, const struct path *p, const char *kept,
		     struct err *err)
{
	struct rootfs *v = plan->view;
	struct hidden *h = &v->hidden[v->hidden_count];

	if (is_named_by_option(v, p->name) || is_hidden_already(v, p->name))
		return 0;
	if (v->hidden_count == HIDDEN_MAX)
		return err_set(err, -E2BIG, "more than %d hidden paths", HIDDEN_MAX);
	*h = (struct hidden){ .name = strdup(p->name), .st = p->st, .kept = kept };
	if (!h->name)
		return err_sys(err, -ENOMEM, "cannot list what is hidden");
	v->hidden_count++;
	return 0;
}

/* In another mount of the same file system, @m, @other is the place @p, or what is
 * mounted there or below, or a piece of that: @part. */
static int add_alias(struct plan_of_hidden *plan, const char *other, const struct path *p,
		     const struct mount_part *part, const struct mount *m,
		     const char *kept, struct err *err)
{
	const bool is_place = part->path == p->name,
		   is_whole = path_is_within(part->inside, m->root);
	CLEAN(path) struct path q = { .fd = -1 };
	struct stat st = p->st;
	const int r = path_open(other, &q, NULL);

	if (r < 0)
		return check_unopened(other, r, err);
	if (!is_whole && q.mount_id != m->id)
		return 0;
	if (!is_place && lstat(part->path, &st) < 0)
		st = q.st;
	if (is_whole && !stat_is_same(&q.st, &st))
		return 0;
	return add_place(plan, &q, is_place && is_whole ? kept : NULL, err);
}

/* Nothing of the caller's that the run needs may vanish with it. */
static int check_hidden(const struct plan_of_hidden *plan, const struct path *p,
			struct err *err)
{
	const struct rootfs *v = plan->view;
	struct hidden h = { .name = p->name };

	if (!S_ISDIR(p->st.st_mode) && !S_ISREG(p->st.st_mode))
		return err_set(err, -EINVAL, "'%s' is neither a directory nor a file",
			       p->name);
	if (strcmp(p->name, "/") == 0)
		return err_set(err, -EINVAL, "'/' can't be hidden");
	if (strcmp(v->spec->cwd, p->name) == 0 || hides(v, &h, v->spec->cwd))
		return err_set(
			err, -EINVAL,
			"the working directory '%s' lies in '%s', which is hidden; "
			"name it with --rw or --ro, or start elsewhere",
			v->spec->cwd, p->name);
	return 0;
}

/* The place @p with what is mounted below it, under each name that they have in other
 * mounts of their file systems, too. */
static int add_whole(struct plan_of_hidden *plan, const struct path *p, const char *kept,
		     struct err *err)
{
	const struct mounts *all = &plan->view->mounts;
	struct mount_part part = { 0 };
	char other[PATH_MAX];
	int r = add_place(plan, p, kept, err);

	if (r == 0)
		r = twins_add(&plan->twins, &p->st, p->name, err);
	while (r == 0 && mounts_next_part(all, p->name, p->mount_id, &part))
		for (size_t i = 0; r == 0 && i < all->count; i++)
			if (mount_shows_part(&all->list[i], &part, other))
				r = add_alias(plan, other, p, &part, &all->list[i], kept,
					      err);
	if (r == 0 && !part.of)
		r = err_set(err, -ESTALE,
			    "cannot tell in which mounts '%s', which is hidden, shows",
			    p->name);
	return r;
}

/* --- what links in a directory of credentials lead to --- */

/* A link leads to credentials that are kept elsewhere, or to something that has nothing
 * to do with them: a package's files, what holds the home, and of others' files what
 * isn't given to the caller, or is given to everybody. */
static bool is_worth_hiding(const struct plan_of_hidden *plan, const struct path *p)
{
	const bool is_given = S_ISREG(p->st.st_mode) && !(p->st.st_mode & S_IROTH) &&
			      !is_denied(p->name, R_OK);

	if ((geteuid() != 0 && !is_ours(&p->st) && !is_given) ||
	    path_is_within(p->name, "/usr"))
		return false;
	for (size_t i = 0; i < plan->home_count; i++) {
		if (path_is_within(plan->homes[i], p->name))
			return false;
	}
	return !path_is_within(plan->view->spec->cwd, p->name) &&
	       (S_ISREG(p->st.st_mode) || S_ISDIR(p->st.st_mode));
}

static int walk(struct plan_of_hidden *plan, int dir, const char *name, const char *path,
		const char *kept, size_t depth, struct err *err);

static int walk_entry(struct plan_of_hidden *plan, int dir, const char *directory,
		      const char *name, size_t depth, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
		return cannot_look(directory, "its paths are too long", err);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return means_absent(errno) ? 0
					   : cannot_look(directory, strerror(errno), err);
	if (S_ISLNK(st.st_mode)) {
		CLEAN(path) struct path p = { .fd = -1 };
		const int r = path_open(path, &p, NULL);

		if (r < 0)
			return check_unopened(path, r, err);
		return is_worth_hiding(plan, &p) ? add_whole(plan, &p, NULL, err) : 0;
	}
	if (S_ISREG(st.st_mode))
		return twins_add(&plan->twins, &st, path, err);
	return S_ISDIR(st.st_mode) ? walk(plan, dir, name, path, "", depth + 1, err) : 0;
}

/* @name, in @dir, is @path. What somebody else has closed to the caller is closed to the
 * command as well. */
static int walk(struct plan_of_hidden *plan, int dir, const char *name, const char *path,
		const char *kept, size_t depth, struct err *err)
{
	const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	CLEAN(directory) DIR *stream = directory_open(fd);
	const int why = errno;
	const struct dirent *entry;
	struct stat st;
	int r = 0;

	if (!stream && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return means_absent(errno) ? 0 : cannot_look(path, strerror(errno), err);
	if (!stream)
		return S_ISDIR(st.st_mode) && (is_ours(&st) || why != EACCES)
			       ? cannot_look(path, strerror(why), err)
			       : 0;
	while (r == 0 && (entry = directory_next(stream))) {
		if (++plan->entries > WALK_ENTRIES_MAX || depth == WALK_DEPTH_MAX)
			return cannot_look(path,
					   "too much lies in it: name parts of it with "
					   "--hide, or show it with --ro",
					   err);
		if (strcmp(entry->d_name, kept) != 0)
			r = walk_entry(plan, fd, path, entry->d_name, depth, err);
	}
	return r == 0 && errno != 0 ? cannot_look(path, strerror(errno), err) : r;
}

static int walk_place(struct plan_of_hidden *plan, const struct path *p, const char *kept,
		      struct err *err)
{
	plan->entries = 0;
	return S_ISDIR(p->st.st_mode)
		       ? walk(plan, AT_FDCWD, p->name, p->name, kept, 0, err)
		       : 0;
}

/* --- what --hide names --- */

static int plan_named(struct plan_of_hidden *plan, struct err *err)
{
	const struct launch_spec *spec = plan->view->spec;
	int r = 0;

	for (size_t i = 0; r == 0 && i < spec->hide_count; i++) {
		CLEAN(path) struct path p = { .fd = -1 };

		r = path_open(spec->hide[i], &p, err);
		if (r == 0 && is_named_by_option(plan->view, p.name))
			r = err_set(err, -EINVAL, "'%s' is named by --rw or --ro too",
				    p.name);
		if (r == 0)
			r = check_hidden(plan, &p, err);
		if (r == 0)
			r = add_whole(plan, &p, NULL, err);
		if (r == 0)
			r = walk_place(plan, &p, "", err);
	}
	return r < 0 ? err_context(err, "--hide") : 0;
}

/* --- the store of events --- */

/* In a path that is writable or shown the command would have the store's own files.
 * Read-only, they can be locked all the same (flock(), fcntl(), a lease), and whoever
 * writes there would wait: this run's store, and that of every other run. Elsewhere an
 * overlay shows the files, whose locks are the overlay's. */
static int plan_store(struct plan_of_hidden *plan, struct err *err)
{
	const struct rootfs *v = plan->view;
	CLEAN(path) struct path p = { .fd = -1 };
	int r;

	if (!v->spec->store)
		return 0;
	r = path_open(v->spec->store, &p, err);
	if (r < 0 || !place_is_bare(v, p.name) || path_is_within(v->spec->cwd, p.name))
		return r;
	r = add_whole(plan, &p, NULL, err);
	return r < 0 ? r : walk_place(plan, &p, "", err);
}

/* --- the preset --- */

/* "if:A,B". What can't be read to its end may have anything in it. */
static bool has_content(const char *name, const char *words)
{
	const struct file_how how = { .max_bytes = CONTENT_MAX, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest = text_of(words), word;

	if (file_read(AT_FDCWD, name, &how, &file, NULL) < 0)
		return true;
	for (size_t i = 0; i < file.size; i++)
		file.bytes[i] = file.bytes[i] ?: ' ';
	while (text_split(&rest, ',', &word)) {
		char needle[64];

		snprintf(needle, sizeof(needle), "%.*s", (int)word.len, word.ptr);
		if (text_equal(word, "url") ? secret_has_user_info(file.bytes)
					    : strcasestr(file.bytes, needle) != NULL)
			return true;
	}
	return false;
}

static const char *behind(const char *text, const char *beginning)
{
	size_t len = strlen(beginning);

	return strncmp(text, beginning, len) == 0 ? text + len : NULL;
}

static int plan_credential(struct plan_of_hidden *plan, const char *name, const char *how,
			   struct err *err)
{
	const char *kept = behind(how, "keep:"), *words = behind(how, "if:");
	CLEAN(path) struct path p = { .fd = -1 };
	struct stat st;
	int r;

	/* Most aren't there. */
	if (lstat(name, &st) < 0 && means_absent(errno))
		return 0;
	r = path_open(name, &p, NULL);
	if (r < 0)
		return check_unopened(name, r, err);
	if (is_named_by_option(plan->view, p.name) ||
	    (!S_ISDIR(p.st.st_mode) && !S_ISREG(p.st.st_mode)) ||
	    (!is_ours(&p.st) && is_denied(p.name, R_OK) && is_denied(p.name, X_OK)))
		return 0;
	if (words && !has_content(p.name, words))
		return 0;
	r = check_hidden(plan, &p, err);
	if (r == 0)
		r = add_whole(plan, &p, kept, err);
	return r == 0 && (kept || strcmp(how, "links") == 0)
		       ? walk_place(plan, &p, kept ?: "", err)
		       : r;
}

/* @path is below a home, and in the folder that the XDG's variable names where it has
 * one. */
static int plan_in_homes(struct plan_of_hidden *plan, const char *path, const char *how,
			 struct err *err)
{
	static const char *const folders[][2] = {
		{ ".config/", "XDG_CONFIG_HOME" },
		{ ".local/share/", "XDG_DATA_HOME" },
		{ ".cache/", "XDG_CACHE_HOME" },
	};
	const char *in_config = behind(path, ".config/");
	char name[PATH_MAX];
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(folders); i++) {
		const char *rest = behind(path, folders[i][0]);
		const char *folder = rest ? getenv(folders[i][1]) : NULL;

		if (folder && folder[0] == '/' &&
		    snprintf(name, sizeof(name), "%s/%s", folder, rest) <
			    (int)sizeof(name))
			r = plan_credential(plan, name, how, err);
	}
	for (size_t i = 0; r == 0 && i < plan->home_count; i++) {
		if (entry_filter_may_have(&plan->entries_of[i], path) &&
		    (!in_config ||
		     entry_filter_may_have(&plan->config_of[i], in_config)) &&
		    snprintf(name, sizeof(name), "%s/%s", plan->homes[i], path) <
			    (int)sizeof(name))
			r = plan_credential(plan, name, how, err);
	}
	return r;
}

static int plan_value(struct plan_of_hidden *plan, struct text value, const char *below,
		      const char *how, struct err *err)
{
	const char *top = value.ptr[0] == '/' ? "" : plan->view->spec->cwd;
	char name[PATH_MAX];

	return snprintf(name, sizeof(name), "%s%s%.*s%s", top, top[0] ? "/" : "",
			(int)value.len, value.ptr, below) < (int)sizeof(name)
		       ? plan_credential(plan, name, how, err)
		       : 0;
}

/* "$NAME" or "$NAME/below": the value, and each part of a list. */
static int plan_variable(struct plan_of_hidden *plan, const char *path, const char *how,
			 struct err *err)
{
	const size_t len = strcspn(path, "/");
	struct text rest, part;
	char variable[64];
	int r;

	snprintf(variable, sizeof(variable), "%.*s", (int)len, path);
	rest = text_of(getenv(variable) ?: "");
	r = rest.len > 0 ? plan_value(plan, rest, path + len, how, err) : 0;
	while (r == 0 && text_split(&rest, ':', &part)) {
		if (part.len > 0)
			r = plan_value(plan, part, path + len, how, err);
	}
	return r;
}

static int plan_credentials(struct plan_of_hidden *plan, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(credentials_list); i++) {
		const char *path = credentials_list[i][0], *how = credentials_list[i][1];

		if (path[0] == '~')
			r = plan_in_homes(plan, path + strlen("~/"), how, err);
		else if (path[0] == '$')
			r = plan_variable(plan, path + 1, how, err);
		else
			r = plan_credential(plan, path, how, err);
	}
	return r < 0 ? err_context(err, "--hide-preset credentials") : 0;
}

/* --- other names of the same files --- */

/* Each name that a hidden file has, if all are known: -EPERM with @err when some aren't.
 */
static int plan_twins(struct plan_of_hidden *plan, struct err *err)
{
	const struct rootfs *v = plan->view;
	int r;

	if (plan->twins.count == 0)
		return 0;
	r = twins_search(&plan->twins, v->spec->cwd, err);
	for (size_t i = 0; r == 0 && i < v->tree_count; i++) {
		if (v->trees[i].kind == TREE_WRITABLE)
			r = twins_search(&plan->twins, v->trees[i].path, err);
	}
	for (size_t i = 0; r == 0 && i < plan->home_count; i++)
		r = twins_search(&plan->twins, plan->homes[i], err);
	for (size_t i = 0; r == 0 && i < plan->twins.count; i++) {
		const struct twin *w = &plan->twins.list[i];

		if (w->count < w->st.st_nlink)
			return err_set(
				err, -EPERM,
				"'%s' is hidden, and has other names (hard links), of "
				"which %zu can't be found in the home and the writable "
				"directories; name them with --hide, or show the file "
				"with --ro",
				w->names[0].path, (size_t)w->st.st_nlink - w->count);
		for (size_t j = 0; r == 0 && j < w->count; j++) {
			CLEAN(path) struct path p = { .fd = -1 };

			r = path_open(w->names[j].path, &p, err);
			if (r == 0)
				r = add_whole(plan, &p, NULL, err);
		}
	}
	return r;
}

/* --- all of it --- */

/* When all places are known. */
static void settle_trees(struct rootfs *v)
{
	size_t kept = 0;

	/* What is read-only in a place that is hidden isn't there. */
	for (size_t i = 0; i < v->tree_count; i++) {
		if (v->trees[i].kind != TREE_READONLY ||
		    !is_hidden_already(v, v->trees[i].path))
			v->trees[kept++] = v->trees[i];
	}
	v->tree_count = kept;
	/* A place in another one that is hidden, which came to the list later, is left
	 * out. */
	for (size_t i = 0; i < v->hidden_count; i++) {
		struct hidden *h = &v->hidden[i];
		bool unseen = false;

		for (size_t j = 0; !unseen && j < v->hidden_count; j++)
			unseen = i != j && hides(v, &v->hidden[j], h->name);
		if (unseen)
			continue;
		h->is_own = h->kept;
		for (size_t j = 0; !h->is_own && j < v->tree_count; j++)
			h->is_own = is_shown(&v->trees[j]) &&
				    path_is_within(v->trees[j].path, h->name) &&
				    strcmp(v->trees[j].path, h->name) != 0;
		v->trees[v->tree_count++] = (struct tree){
			.path = h->name, .hidden = h, .kind = TREE_HIDDEN, .fd = -1
		};
	}
	/* What --ro names below a writable path nobody can rename, unless it is in a
	 * place that is hidden there. */
	for (size_t i = 0; i < v->tree_count; i++) {
		struct tree *t = &v->trees[i];
		bool inside = false;

		if (t->kind != TREE_SHOWN || !place_is_writable(v, t->path))
			continue;
		for (size_t j = 0; j < v->hidden_count; j++)
			inside = inside || path_is_within(t->path, v->hidden[j].name);
		if (!inside)
			t->kind = TREE_READONLY;
	}
}

int hide_plan(struct rootfs *v, struct err *err)
{
	struct plan_of_hidden plan = { .view = v };
	int r;

	v->hidden = calloc(HIDDEN_MAX, sizeof(*v->hidden));
	if (!v->hidden)
		return err_sys(err, -ENOMEM, "cannot list what is hidden");
	r = find_homes(&plan, err);
	if (r == 0)
		r = plan_named(&plan, err);
	if (r == 0)
		r = plan_store(&plan, err);
	if (r == 0 && v->spec->hide_credentials)
		r = plan_credentials(&plan, err);
	if (r == 0)
		r = plan_twins(&plan, err);
	for (size_t i = 0; i < plan.twins.count; i++) {
		struct twin *w = &plan.twins.list[i];

		for (size_t j = 0; j < w->count; j++)
			free(w->names[j].path);
		free(w->names);
	}
	for (size_t i = 0; i < plan.home_count; i++)
		free(plan.homes[i]);
	if (r < 0)
		return r;
	settle_trees(v);
	return 0;
}

/* --- in the builder --- */

/* What is kept is copied from the view before it is covered. Return: a mount, or -1. */
static int copy_kept(const struct rootfs *v, const char *path)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	CLEAN(fd) int at = rootfs_lookup(v, path);
	CLEAN(fd) int copy = -1;
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0 || !S_ISREG(st.st_mode))
		return -1;
	copy = open_tree(at, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (copy < 0 || mount_setattr(copy, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -1;
	return TAKE_FD(copy);
}

static int cover(struct rootfs *v, const struct hidden *h, int at, struct err *err)
{
	char own[sizeof(STAGE_HIDDEN) + NAME_MAX], path[PATH_MAX] = "";
	CLEAN(fd) int kept = -1;
	int n, r;

	if (!h->is_own)
		return mask_place(at, NULL, h->name, err);
	if (h->kept &&
	    snprintf(path, sizeof(path), "%s/%s", h->name, h->kept) < (int)sizeof(path))
		kept = copy_kept(v, path);
	/* An empty directory of the hidden one's own, in which something will be shown.
	 */
	n = snprintf(own, sizeof(own), STAGE_HIDDEN "/%zu", (size_t)(h - v->hidden));
	if ((mkdir(STAGE_HIDDEN, 0755) < 0 && errno != EEXIST) || mkdir(own, 0755) < 0)
		return err_sys(err, -errno, "cannot create '%s'", own);
	if (kept >= 0) {
		snprintf(own + n, sizeof(own) - (size_t)n, "/%s", h->kept);
		if (mknod(own, S_IFREG | 0644, 0) < 0)
			return err_sys(err, -errno, "cannot create '%s'", own);
		own[n] = '\0';
	}
	r = mask_place(at, own, h->name, err);
	return r == 0 && kept >= 0 ? rootfs_attach(v, kept, path, err) : r;
}

int hide_attach(struct rootfs *v, const struct tree *t, struct err *err)
{
	struct hidden *h = t->hidden;
	CLEAN(fd) int at = -1;
	struct stat st;
	int r = 0;

	if (place_is_writable(v, h->name)) {
		/* Pins are mounts too: the place is looked up above them. Below a
		 * writable path the view has the host's own file. */
		r = place_pin_way(v, h->name, err);
		if (r < 0)
			return r;
		at = rootfs_lookup(v, h->name);
		if (at < 0 || fstat(at, &st) < 0 || !stat_is_same(&st, &h->st))
			return err_set(err, -ESTALE,
				       "'%s' was exchanged during the start", h->name);
	} else {
		at = rootfs_lookup(v, h->name);
		/* The view doesn't have it. */
		if (at == -ENOENT || at == -ENOTDIR || at == -EACCES)
			return 0;
		if (at < 0)
			r = err_sys(err, at, "cannot hide '%s'", h->name);
	}
	if (r == 0)
		r = cover(v, h, at, err);
	h->is_masked = r == 0;
	return r;
}

/* The mounts of the stage are on one file system, and no file of the host's is. */
int hide_finish(struct rootfs *v, struct err *err)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	struct stat stage, st;

	if (stat(ROOTFS_STAGE, &stage) < 0)
		return err_sys(err, -errno, "cannot look at '%s'", ROOTFS_STAGE);
	for (size_t i = 0; i < v->hidden_count; i++) {
		const struct hidden *h = &v->hidden[i];
		CLEAN(fd) int at = -1;

		if (!h->is_masked)
			continue;
		at = rootfs_lookup(v, h->name);
		if (at < 0 || fstat(at, &st) < 0 || st.st_dev != stage.st_dev)
			return err_set(err, -ESTALE,
				       "'%s' was exchanged during the start", h->name);
		if (h->is_own &&
		    mount_setattr(at, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
			return err_sys(err, -errno, "cannot hide '%s'", h->name);
	}
	return 0;
}
