// SPDX-License-Identifier: Apache-2.0
#include "launch/bind_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text.h"
#include "launch/git_repository.h"
#include "launch/hide.h"
#include "launch/launch.h"
#include "launch/mask.h"
#include "launch/startup_files.h"
#include "sys/files.h"
#include "sys/mounts.h"

/* --- which directories of the host a command may write to --- */

/* Writable, these would undo the sandbox: they hold the kernel's own files, or the
 * sockets of every daemon. A directory that contains one of them is as bad. */
static const char *const never[] = {
	"/proc", "/sys", "/dev/pts", "/dev/mqueue", "/run", "/var/run", "/etc",
};

/* What is run outside without anybody's doing: not these, nothing in them, and no
 * directory that contains one. */
static const char *const system_places[] = {
	"/etc", "/boot", "/usr", "/opt/bin", "/var/spool",
	"/bin", "/sbin", "/lib", "/lib64",
};

/* Not these themselves, though what lies in them may belong to one user alone. */
static const char *const shared_places[] = { "/tmp", "/var/tmp", "/dev/shm" };

/* Where services keep what they start from, and some of them a home. */
static const char services[] = "/var/lib";

/* Besides what begins with a dot. */
static const char *const home_places[] = { "bin", "go/bin" };

static bool touch(const char *path, const char *place)
{
	return path_is_within(path, place) || path_is_within(place, path);
}

/* May the command have it when it is asked for? */
static bool writable_when_named(const struct path *p)
{
	if (path_is_within(p->name, "/dev") && !path_is_within(p->name, "/dev/shm"))
		return false;
	if (path_is_within(p->name, "/proc") || path_is_within(p->name, "/sys"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
		if (path_is_within(never[i], p->name))
			return false;
	}
	return true;
}

/* Is @path the home directory @home, does it hold it, or is it one of its places? */
static bool belongs_to_home(const char *path, const char *home)
{
	char real[PATH_MAX], place[2 * PATH_MAX];

	if (!home || home[0] != '/' || !realpath(home, real) || strcmp(real, "/") == 0)
		return false;
	if (path_is_within(real, path))
		return true;
	if (path_is_within(path, real) && path[strlen(real) + 1] == '.')
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(home_places); i++) {
		snprintf(place, sizeof(place), "%s/%s", real, home_places[i]);
		if (touch(path, place))
			return true;
	}
	return false;
}

static bool belongs_to_home_of(const char *path, uid_t uid)
{
	const struct passwd *user = getpwuid(uid);

	return user && belongs_to_home(path, user->pw_dir);
}

static bool belongs_to_programs(const char *path)
{
	const char *list = getenv("PATH");
	char entry[PATH_MAX], real[PATH_MAX];

	while (list && *list) {
		size_t len = strcspn(list, ":");

		if (list[0] == '/' && len < sizeof(entry)) {
			memcpy(entry, list, len);
			entry[len] = '\0';
			if (touch(path, entry) ||
			    (realpath(entry, real) && touch(path, real)))
				return true;
		}
		list += len + (list[len] == ':');
	}
	return false;
}

static bool belongs_to_system(const char *path)
{
	const char *below;

	for (size_t i = 0; i < ARRAY_SIZE(system_places); i++) {
		if (touch(path, system_places[i]))
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(shared_places); i++) {
		if (path_is_within(shared_places[i], path))
			return true;
	}
	if (!path_is_within(path, services))
		return path_is_within(services, path);
	below = path + strlen(services);
	return below[0] == '\0' || !strchr(below + 1, '/');
}

/* And as the working directory, which nobody had to name? Not if it is, holds or lies in
 * what is run or obeyed outside without anybody's doing: directories of programs, those
 * of $PATH, what begins with a dot in a home, the start files of a project; nor a
 * directory that all users share. */
static bool writable_unasked(const struct path *p)
{
	const char *path = p->name;

	return writable_when_named(p) && !belongs_to_system(path) &&
	       !belongs_to_programs(path) && !path_is_within("/home", path) &&
	       !belongs_to_home(path, getenv("HOME")) &&
	       !belongs_to_home_of(path, geteuid()) &&
	       !belongs_to_home_of(path, p->st.st_uid) && !startup_files_has(path);
}

/* rootfs_plan() made room for as many as there can be. */
static struct tree *add_tree(struct rootfs *v, const struct path *p, enum tree_kind kind)
{
	struct tree *t = &v->trees[v->tree_count++];

	*t = (struct tree){ .path = p->name, .source = p, .kind = kind, .fd = -1 };
	return t;
}

/* Look @name up, and keep what it leads to in the view. */
static int resolve(struct rootfs *v, const char *name, const struct path **ret,
		   struct err *err)
{
	struct path *p = &v->paths[v->path_count];
	int r = path_open(name, p, err);

	if (r < 0)
		return r;
	v->path_count++;
	*ret = p;
	return 0;
}

bool place_is_among(const struct rootfs *v, size_t count, const char *path)
{
	for (size_t i = 0; i < count; i++) {
		if (!v->paths[i].untrusted && strcmp(v->paths[i].name, path) == 0)
			return true;
	}
	return false;
}

/* The paths that --rw names come first. */
static bool is_named(const struct rootfs *v, const struct path *p)
{
	return place_is_among(v, v->spec->rw_count, p->name);
}

static void add_writable(struct rootfs *v, const struct path *p)
{
	const mode_t mode = p->st.st_mode;
	const struct passwd *owner;
	char number[16];

	add_tree(v, p, TREE_WRITABLE);
	/* In a sandbox root has no right over what is another user's. */
	if (geteuid() != 0 || p->st.st_uid == 0 || (mode & S_IWOTH) ||
	    ((mode & S_IWGRP) && p->st.st_gid == getegid()))
		return;
	owner = getpwuid(p->st.st_uid);
	snprintf(number, sizeof(number), "%u", p->st.st_uid);
	launch_send_report(v->spec->control_fd, LAUNCH_WARNING, 0,
			   "'%s' belongs to '%s', and the command, as root of a sandbox, "
			   "can't write there; start weir as that user, or change the "
			   "owner",
			   p->name, owner ? owner->pw_name : number);
}

/* What --rw or --ro names: @kind, writable, or shown though something hides it. */
static int plan_given(struct rootfs *v, const char *const *list, size_t count,
		      enum tree_kind kind, struct err *err)
{
	const size_t first = v->path_count, end = first + count;
	const bool is_writable = kind == TREE_WRITABLE;
	const struct path *last;
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = resolve(v, list[i], &last, err);
	for (size_t i = first; r == 0 && i < end; i++) {
		const struct path *p = &v->paths[i];
		const struct mount *of = mounts_numbered(&v->mounts, p->mount_id);
		const mode_t mode = p->st.st_mode;
		const bool leads_out = !S_ISDIR(mode) && !S_ISREG(mode);

		/* An earlier command may have left the link for this run to follow. */
		if (p->untrusted && !place_is_among(v, end, p->name))
			r = err_set(err, -EINVAL,
				    "'%s' is a link, which an earlier command may have "
				    "left; if it should lead to '%s', name that too",
				    p->untrusted, p->name);
		/* A pipe or a socket leads to whoever is at its other end. */
		if (r == 0 && is_writable && leads_out)
			r = err_set(err, -EINVAL,
				    "'%s' is neither a directory nor a file", p->name);
		if (r == 0 && S_ISSOCK(mode))
			r = err_set(err, -EINVAL,
				    "'%s' is a unix socket, which leads out of the "
				    "sandbox: only an ssh-agent's is shown, by "
				    "--pass-env SSH_AUTH_SOCK",
				    p->name);
		if (r == 0 && (leads_out || !writable_when_named(p) || !of ||
			       mount_is_of_kernel(of)))
			r = err_set(err, -EINVAL, "'%s' can't be %s in a sandbox",
				    p->name, is_writable ? "writable" : "shown");
		if (r == 0 && is_writable)
			add_writable(v, p);
		else if (r == 0 && !is_named(v, p))
			add_tree(v, p, TREE_SHOWN);
	}
	return r;
}

bool place_is_writable(const struct rootfs *v, const char *path)
{
	for (size_t i = 0; i < v->tree_count; i++) {
		if (v->trees[i].kind == TREE_WRITABLE &&
		    path_is_within(path, v->trees[i].path))
			return true;
	}
	return false;
}

/* May @part of the working directory @p be writable under each name that it has, in other
 * mounts of its file system too, and does none of what is in it show where nothing may be
 * written unasked? @ret: the name under which it may not. */
static bool part_is_writable(const struct rootfs *v, const struct path *p,
			     const struct mount_part *part, char ret[PATH_MAX])
{
	struct path q = { .name = ret, .st = p->st };

	for (size_t i = 0; i < v->mounts.count; i++) {
		if (!mount_shows_part(&v->mounts.list[i], part, ret) ||
		    path_is_within(ret, p->name))
			continue;
		if ((part->path != p->name && lstat(part->path, &q.st) < 0) ||
		    !writable_unasked(&q))
			return false;
	}
	return true;
}

/* What is mounted below the working directory @p, and may not be written unasked, is
 * read-only there, unless --rw names it. */
static int plan_mounts_below(struct rootfs *v, const struct path *p,
			     struct mount_part *part, struct err *err)
{
	const struct path *below = NULL;
	char other[PATH_MAX];
	int r = 0;

	while (r == 0 && mounts_next_part(&v->mounts, p->name, p->mount_id, part)) {
		/* The kernel's own is masked. */
		if (mount_is_of_kernel(part->of) || place_is_writable(v, part->path) ||
		    part_is_writable(v, p, part, other))
			continue;
		r = resolve(v, part->path, &below, err);
		/* Another mount may cover it. */
		if (r < 0 || below->mount_id != part->of->id)
			continue;
		add_tree(v, below, TREE_READONLY);
		launch_send_report(v->spec->control_fd, LAUNCH_WARNING, 0,
				   "'%s' stays read-only in the sandbox, for it is '%s' "
				   "as well; name what is to be written with --rw",
				   below->name, other);
	}
	return r;
}

/* After the paths that were named: one of them may be it, or hold it. */
static int plan_cwd(struct rootfs *v, struct err *err)
{
	const char *pwd = getenv("PWD");
	struct mount_part part = { 0 };
	const struct path *p = NULL;
	char other[PATH_MAX];
	struct path logical;
	bool by_link = false;
	int r;

	/* The caller may have entered this directory with other rights: `sudo -u` keeps
	 * it. */
	if (access(v->spec->cwd, X_OK) < 0 && errno == EACCES)
		return err_set(
			err, -EINVAL,
			"the working directory '%s' or one above is closed to this "
			"user; start weir in another directory",
			v->spec->cwd);
	r = resolve(v, ".", &p, err);
	if (r < 0 || place_is_writable(v, p->name))
		return r;
	/* Did the caller come to it by a link that isn't to be trusted? Only the shell
	 * knows, and says so in $PWD. */
	if (pwd && pwd[0] == '/' && path_open(pwd, &logical, NULL) == 0) {
		by_link = logical.untrusted && stat_is_same(&logical.st, &p->st);
		path_done(&logical);
	}
	if (!by_link && writable_unasked(p) &&
	    mounts_next_part(&v->mounts, p->name, p->mount_id, &part) &&
	    !mount_is_of_kernel(part.of) && part_is_writable(v, p, &part, other)) {
		r = plan_mounts_below(v, p, &part, err);
		add_writable(v, p);
		return r;
	}
	launch_send_report(
		v->spec->control_fd, LAUNCH_WARNING, 0,
		"the working directory '%s'%s stays read-only in the sandbox%s", p->name,
		by_link ? ", which a link leads to," : "",
		writable_when_named(p) ? "; name what is to be written with --rw" : "");
	if (rootfs_own_place(p->name))
		add_tree(v, p, TREE_SHOWN);
	return 0;
}

/* What lies at @path, in the mount @of, may show elsewhere, where the command may write:
 * in another mount of the same file system. */
static bool shows_writable(const struct rootfs *v, const struct mount *of,
			   const char *path, char ret[PATH_MAX])
{
	char inside[PATH_MAX];

	if (!mount_inside(of, path, inside))
		return false;
	for (size_t i = 0; i < v->mounts.count; i++) {
		const struct mount *m = &v->mounts.list[i];

		if (m->device == of->device && mount_shows(m, inside, ret) &&
		    strcmp(ret, path) != 0 && place_is_writable(v, ret))
			return true;
	}
	return false;
}

/* A link that the command can change would lead the next run to another file. */
static int check_links(const struct rootfs *v, const struct path *p, struct err *err)
{
	for (size_t i = 0; i < p->link_count; i++) {
		const struct mount *of = mounts_holding(&v->mounts, p->links[i]);
		char other[PATH_MAX];

		if (place_is_writable(v, p->links[i]) ||
		    (of && shows_writable(v, of, p->links[i], other)))
			return err_set(err, -EINVAL,
				       "'%s' is a link in a directory that the command "
				       "may write to; name the file that it leads to",
				       p->links[i]);
	}
	return 0;
}

/* Is @p on the file system @device, or something that is mounted below it? */
static bool shows_device(const struct rootfs *v, const struct path *p, dev_t device)
{
	struct mount_part part = { 0 };
	struct stat st;

	if (p->st.st_dev == device)
		return true;
	while (mounts_next_part(&v->mounts, p->name, p->mount_id, &part))
		if (lstat(part.path, &st) < 0 || st.st_dev == device)
			return true;
	return false;
}

/* Another name of the file may lie where the command writes: on the same file system. */
static int check_hard_links(const struct rootfs *v, const struct path *p, struct err *err)
{
	if (!S_ISREG(p->st.st_mode) || p->st.st_nlink < 2)
		return 0;
	for (size_t i = 0; i < v->tree_count; i++)
		if (v->trees[i].kind == TREE_WRITABLE &&
		    shows_device(v, v->trees[i].source, p->st.st_dev))
			return err_set(
				err, -EINVAL,
				"'%s' has other names (hard links), under which the "
				"command may be able to change it; name a copy of it",
				p->name);
	return 0;
}

static int plan_readonly(struct rootfs *v, const char *given, struct err *err)
{
	const struct path *p = NULL;
	const struct mount *of;
	char other[PATH_MAX];
	const char *above;
	int r = resolve(v, given, &p, err);

	if (r == 0)
		r = check_links(v, p, err);
	if (r < 0)
		return r;
	of = mounts_numbered(&v->mounts, p->mount_id);
	if (!of)
		return err_set(err, -ENOENT, "cannot tell on which mount '%s' lies",
			       p->name);
	if (shows_writable(v, of, p->name, other))
		return err_set(err, -EINVAL,
			       "'%s' is mounted at '%s' as well, where the command may "
			       "write to it; name it by that path",
			       p->name, other);
	r = check_hard_links(v, p, err);
	if (r < 0)
		return r;
	if (place_is_writable(v, p->name)) {
		add_tree(v, p, TREE_READONLY);
		return 0;
	}
	above = spelling_writable_above(v, p);
	return above ? err_set(err, -EINVAL,
			       "'%s' lies in '%s', where the command may write; name it "
			       "by "
			       "that path, in the same upper and lower case",
			       p->name, above)
		     : 0;
}

/* Which of the directories on the way to @name are there: may the command write to one,
 * or put something else in the place of a link? *@ret_owner: of the last one. */
static bool way_is_writable(const struct rootfs *v, const char *name, uid_t *ret_owner)
{
	char way[PATH_MAX];
	size_t len = strlen(name);
	bool found = false;

	for (size_t i = 1; i < len && len < sizeof(way); i++) {
		struct path p;

		if (name[i] != '/')
			continue;
		memcpy(way, name, i);
		way[i] = '\0';
		if (path_open(way, &p, NULL) < 0)
			break;
		found = found || place_is_writable(v, p.name);
		for (size_t l = 0; l < p.link_count; l++)
			found = found || place_is_writable(v, p.links[l]);
		*ret_owner = p.st.st_uid;
		path_done(&p);
	}
	return found;
}

/* Nothing can be mounted where nothing is: the command would make the directory, and in
 * it the next run's defaults. What the caller may not make the command can't make
 * either, unless the directory above is the caller's own. */
static int plan_settings(struct rootfs *v, struct err *err)
{
	const char *name = v->spec->settings;
	struct err why = { 0 };
	struct path made;
	uid_t owner = 0;
	struct stat st;
	int r;

	if (!name)
		return 0;
	if (stat(name, &st) == 0)
		return plan_readonly(v, name, err);
	if (!way_is_writable(v, name, &owner))
		return 0;
	r = path_open_made(name, &made, &why);
	if (r == 0) {
		path_done(&made);
		return plan_readonly(v, name, err);
	}
	if (r == -EROFS || ((r == -EACCES || r == -EPERM) && owner != geteuid()))
		return 0;
	return err_set(err, r == -ELOOP ? -EINVAL : r,
		       "make '%.200s' first, or the command can, and choose the next "
		       "run's defaults: %s",
		       name, why.text);
}

/* --- files that run outside later --- */

/* An earlier command may have left the link. */
static void report_whole(const struct rootfs *v, const struct path *link,
			 const struct path *target)
{
	for (size_t i = 0; i < v->tree_count; i++)
		if (v->trees[i].kind == TREE_WRITABLE &&
		    path_is_within(v->trees[i].path, target->name)) {
			launch_send_report(v->spec->control_fd, LAUNCH_WARNING, 0,
					   "'%s' is read-only in the sandbox, for '%s', "
					   "which is obeyed outside, leads there; remove "
					   "that link",
					   v->trees[i].path, link->name);
			return;
		}
}

static bool is_startup(const struct rootfs *v, const char *path)
{
	for (size_t i = 0; i < v->tree_count; i++)
		if (v->trees[i].is_startup && strcmp(v->trees[i].path, path) == 0)
			return true;
	return false;
}

/* A link is held, and where it leads to as well. Return: whether it leads anywhere. */
static bool plan_startup_file(struct rootfs *v, const struct path *p)
{
	struct path *target;

	/* A unix socket that somebody listens at is masked, and is no file to be run. */
	if (S_ISSOCK(p->st.st_mode))
		return true;
	add_tree(v, p, TREE_READONLY)->is_startup = true;
	/* Another name of the same file may lie in a writable directory too. */
	if (S_ISREG(p->st.st_mode) && p->st.st_nlink > 1)
		startup_files_note_other_names(v->spec->startup, p->name);
	if (!S_ISLNK(p->st.st_mode))
		return true;
	target = &v->paths[v->path_count];
	if (path_open(p->name, target, NULL) < 0)
		return false;
	v->path_count++;
	if (place_is_writable(v, target->name) && !is_named(v, target) &&
	    !is_startup(v, target->name) && !S_ISSOCK(target->st.st_mode)) {
		report_whole(v, p, target);
		add_tree(v, target, TREE_READONLY)->is_startup = true;
	}
	return true;
}

/* git needs its config, so the file can't be hidden as others with a token are. */
static void report_secrets(const struct rootfs *v)
{
	const struct startup_files *s = v->spec->startup;

	for (size_t i = 0; v->spec->hide_credentials && i < s->count; i++) {
		const char *name = s->found[i].name;

		if (strcmp(strrchr(name, '/') + 1, "config") != 0 ||
		    !git_config_has_secret(name))
			continue;
		launch_send_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"'%s' has a token or a password, which the command can read; "
			"keep it elsewhere (actions/checkout: persist-credentials: "
			"false)",
			name);
		return;
	}
}

/* Does @p lie in a directory that --rw names? */
static bool lies_in_named(const struct rootfs *v, const struct path *p)
{
	char above[PATH_MAX];
	const struct path directory = { .name = above };

	snprintf(above, sizeof(above), "%.*s", (int)(strrchr(p->name, '/') - p->name),
		 p->name);
	return is_named(v, &directory);
}

static int plan_startup_files(struct rootfs *v, struct err *err)
{
	struct startup_files *s = v->spec->startup;
	const size_t tree_count = v->tree_count;
	int r = 0;

	for (size_t i = 0; r == 0 && i < tree_count; i++) {
		const struct tree *t = &v->trees[i];

		/* Nothing outside looks into what only sandboxes use, and they write such
		 * files there themselves: checkouts, an agent's settings. */
		if (t->kind == TREE_WRITABLE && S_ISDIR(t->source->st.st_mode) &&
		    !text_is_one_of(t->source->name, v->spec->own, v->spec->own_count))
			r = startup_files_add(s, t->source, err);
	}
	if (r == 0)
		r = startup_files_find(s, err);

	for (size_t i = 0; r == 0 && i < s->count; i++) {
		s->is_named[i] = is_named(v, &s->found[i]) ||
				 (s->is_inside[i] && lies_in_named(v, &s->found[i]));
		if (!s->is_named[i])
			s->is_dangling[i] = !plan_startup_file(v, &s->found[i]);
	}
	report_secrets(v);
	if (s->other_names == 1)
		launch_send_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"'%s' has other names (hard links), under which the command may "
			"be able to change it",
			s->with_other_names ?: "a file");
	else if (s->other_names > 1)
		launch_send_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"%zu files that run outside later, such as '%s', have "
			"other names (hard links), under which the command may "
			"be able to change them",
			s->other_names, s->with_other_names ?: "one");
	if (s->cut)
		launch_send_report(
			v->spec->control_fd, LAUNCH_WARNING, 0,
			"the writable directories are too large to be searched for all "
			"files that run outside later, such as git's hooks, or can't all "
			"be read: some may be writable");
	return r;
}

/* --- order --- */

bool tree_is_bare(const struct tree *t)
{
	return t->kind == TREE_WRITABLE || t->kind == TREE_SHOWN;
}

bool place_is_bare(const struct rootfs *v, const char *path)
{
	for (size_t i = 0; i < v->tree_count; i++) {
		if (tree_is_bare(&v->trees[i]) && path_is_within(path, v->trees[i].path))
			return true;
	}
	return false;
}

/* A directory before what lies in it, and what is read-only last. */
static int compare_trees(const void *a, const void *b)
{
	const struct tree *x = a, *y = b;
	int r = strcmp(x->path, y->path);

	return r != 0 ? r : (int)x->kind - (int)y->kind;
}

int place_plan(struct rootfs *v, struct err *err)
{
	const struct path **bare;
	size_t bare_count = 0;
	int r;

	v->paths = calloc(v->spec->rw_count + v->spec->shown_count + v->spec->ro_count +
				  v->mounts.count + STARTUP_MAX + 2,
			  sizeof(*v->paths));
	if (!v->paths)
		return err_sys(err, -ENOMEM, "cannot plan the file system view");
	/* The paths of --rw come first in the view, then those of --ro. */
	r = plan_given(v, v->spec->rw, v->spec->rw_count, TREE_WRITABLE, err);
	if (r < 0)
		return err_context(err, "--rw");
	r = plan_given(v, v->spec->shown, v->spec->shown_count, TREE_SHOWN, err);
	if (r < 0)
		return err_context(err, "--ro");
	r = plan_cwd(v, err);
	for (size_t i = 0; r == 0 && i < v->spec->ro_count; i++)
		r = plan_readonly(v, v->spec->ro[i], err);
	if (r == 0)
		r = plan_settings(v, err);
	if (r == 0)
		r = plan_startup_files(v, err);
	if (v->spec->agent_socket)
		add_tree(v, v->spec->agent_socket, TREE_SOCKET);
	if (r == 0)
		r = hide_plan(v, err);
	if (r < 0)
		return r;
	qsort(v->trees, v->tree_count, sizeof(*v->trees), compare_trees);
	/* The host's sockets in what is bare. */
	bare = calloc(v->tree_count + 1, sizeof(*bare));
	if (!bare)
		return err_sys(err, -ENOMEM, "cannot list unix sockets");
	for (size_t i = 0; i < v->tree_count; i++) {
		if (tree_is_bare(&v->trees[i]))
			bare[bare_count++] = v->trees[i].source;
	}
	r = sockets_find(&v->mounts, bare, bare_count, &v->sockets, err);
	free(bare);
	return r == -EINVAL ? -EIO : r; /* the kernel's, not a path's */
}

/* --- in the builder --- */

/* In a place that is private to the sandbox (/tmp, /run, /dev/shm) the host's
 * directories are missing: make those on the way to @path. */
static int make_way(const struct rootfs *v, const char *path, bool is_dir,
		    struct err *err)
{
	char way[PATH_MAX];
	size_t len = strlen(path);

	if (len >= sizeof(way))
		return err_set(err, -ENAMETOOLONG, "the path '%s' is too long", path);
	for (size_t i = 1; i <= len; i++) {
		CLEAN(fd) int at = -1;
		CLEAN(fd) int parent = -1;
		char *name;

		if (path[i] != '/' && path[i] != '\0')
			continue;
		memcpy(way, path, i);
		way[i] = '\0';
		at = rootfs_lookup(v, way);
		if (at >= 0)
			continue;
		name = strrchr(way, '/');
		*name++ = '\0';
		parent = rootfs_lookup(v, way[0] ? way : "/");
		if (parent < 0)
			return err_sys(err, parent, "cannot find '%s' in the sandbox",
				       way);
		if (path[i] == '/' || is_dir) {
			if (mkdirat(parent, name, 0755) < 0)
				return err_sys(err, -errno,
					       "cannot create '%s' in the sandbox", path);
		} else {
			CLEAN(fd)
			int file =
				openat(parent, name, O_CREAT | O_EXCL | O_CLOEXEC, 0600);

			if (file < 0)
				return err_sys(err, -errno,
					       "cannot create '%s' in the sandbox", path);
		}
	}
	return 0;
}

/* Were a directory on the way to what is mounted there renamed, another could be put
 * in its place. */
int place_pin_way(struct rootfs *v, const char *path, struct err *err)
{
	const char *top = NULL; /* the outermost writable tree that holds @path */
	char way[PATH_MAX];
	size_t len = strlen(path);
	int r = 0;

	for (size_t i = 0; i < v->tree_count; i++) {
		const struct tree *t = &v->trees[i];

		if (t->kind == TREE_WRITABLE && path_is_within(path, t->path) &&
		    (!top || strlen(t->path) < strlen(top)))
			top = t->path;
	}
	if (!top)
		return 0;
	for (size_t i = strlen(top) + 1; r == 0 && i < len && len < sizeof(way); i++) {
		CLEAN(fd) int at = -1;
		CLEAN(fd) int copy = -1;
		struct statx x;

		if (path[i] != '/')
			continue;
		memcpy(way, path, i);
		way[i] = '\0';
		at = rootfs_lookup(v, way);
		if (at < 0)
			return err_sys(err, at, "cannot find '%s' in the sandbox", way);
		if (statx(at, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) == 0 &&
		    (x.stx_attributes & STATX_ATTR_MOUNT_ROOT))
			continue;
		/* Mounted on itself: a mount point can't be renamed. */
		copy = open_tree(at, "",
				 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
					 AT_RECURSIVE);
		if (copy < 0)
			return err_sys(err, -errno, "cannot protect '%s'", way);
		r = rootfs_attach(v, copy, way, err);
	}
	return r;
}

/* Is what the view has at the place of @t, below another writable path, that very file?
 */
static int check_place(const struct rootfs *v, const struct tree *t, struct err *err)
{
	CLEAN(fd) int at = rootfs_lookup(v, t->path);
	struct stat st;

	if (at < 0 || fstat(at, &st) < 0)
		return err_sys(err, at < 0 ? at : -errno,
			       "cannot find '%s' in the sandbox", t->path);
	if (!stat_is_same(&st, &t->source->st))
		return err_set(err, -ESTALE, "'%s' was exchanged during the start",
			       t->path);
	return 0;
}

static int attach_tree(struct rootfs *v, const struct tree *t, struct err *err)
{
	int r;

	if (t->kind == TREE_HIDDEN)
		return hide_attach(v, t, err);
	/* What is bare is the host's: nothing is made there. */
	if (t->kind == TREE_SOCKET)
		return place_is_bare(v, t->path) ? 0 : make_way(v, t->path, false, err);
	r = make_way(v, t->path, S_ISDIR(t->source->st.st_mode), err);
	if (r == 0 && t->kind == TREE_READONLY)
		r = place_pin_way(v, t->path, err);
	if (r == 0 && t->kind == TREE_READONLY)
		r = check_place(v, t, err);
	return r < 0 ? r : rootfs_attach(v, t->fd, t->path, err);
}

/* While the mounts were made, somebody who may write there too may have put another file
 * in the place of one that is read-only. */
static int check_readonly(const struct rootfs *v, const struct tree *t, struct err *err)
{
	CLEAN(fd) int at = rootfs_lookup(v, t->path);
	struct statvfs fs;
	int r = check_place(v, t, err);

	if (r < 0)
		return r;
	if (at < 0 || fstatvfs(at, &fs) < 0 || !(fs.f_flag & ST_RDONLY))
		return err_set(err, -ESTALE, "'%s' was exchanged during the start",
			       t->path);
	return 0;
}

int place_build(struct rootfs *v, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < v->tree_count; i++)
		r = attach_tree(v, &v->trees[i], err);
	if (r == 0)
		r = mask_build(v, err);
	if (r == 0)
		r = hide_finish(v, err);
	for (size_t i = 0; r == 0 && i < v->tree_count; i++) {
		if (v->trees[i].kind == TREE_READONLY)
			r = check_readonly(v, &v->trees[i], err);
		else if (v->trees[i].kind == TREE_SOCKET)
			/* Its place is masked by now, or an empty file. */
			r = rootfs_attach(v, v->trees[i].fd, v->trees[i].path, err)
				    ?: check_place(v, &v->trees[i], err);
	}
	return r < 0 ? r : spelling_check(v, err);
}
