// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A cgroup that is a sandbox may go and come again. Its parent is guarded meanwhile (the
 * first part), and its directory is watched (the second).
 *
 * When a cgroup that is guarded is made again, a process can send from it before anybody
 * has told the kernel its new id. So what is above it denies everything to those below it
 * whom nobody knows (filter/host.h): one that is made again is let through after its
 * rules stand. Others that are made there are let through as soon as they are seen, which
 * on a parent that they share with sandboxes refuses what they send in their first
 * moment. So this is done where all below the parent are sandboxes, and elsewhere only if
 * it was asked for. It lasts as long as there is a sandbox below that parent. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "filter/host.h"
#include "sys/cgroup.h"
#include "sys/files.h"

/* Somebody else's cgroup below the same parent. */
struct sibling {
	uint64_t id;
	struct sibling *next;
	char name[];
};

struct parent {
	struct daemon *daemon;
	int watch;
	uint64_t id;
	uint8_t level;
	char *dir;		  /* owned */
	struct sibling *siblings; /* owned */
	struct parent *next;
};

/* -- sandboxes, by the directory above and their name ------------------------------- */

static struct daemon_sandbox *daemon_sandbox_of(struct index_entry *e)
{
	return e ? CONTAINER_OF(e, struct daemon_sandbox, in_watched) : NULL;
}

static char *key_of(int watch, const char *name)
{
	char *key = NULL;

	return asprintf(&key, "%d/%s", watch, name) < 0 ? NULL : key;
}

/* The first sandbox whose cgroup has that name below the watched directory, or NULL. */
static struct daemon_sandbox *cgroup_watch_find(const struct daemon *w, int watch,
						const char *name)
{
	CLEAN(mem) char *key = key_of(watch, name);

	return key ? daemon_sandbox_of(index_find(&w->watched, key)) : NULL;
}

/* -- parents ------------------------------------------------------------------------ */

static struct parent *parent_find(const struct daemon *w, int watch)
{
	struct parent *p = w->host.parents;

	while (p && p->watch != watch)
		p = p->next;
	return p;
}

/* -- those who are let through ------------------------------------------------------ */

static void know(struct parent *p, uint64_t id)
{
	int r = filter_parents_know(p->daemon->host.guard, id, (uint8_t)(p->level + 1));

	if (r < 0)
		log_error("a cgroup below '%s' stays closed: %s", p->dir, strerror(-r));
}

static void parent_forget(struct parent *p, uint64_t id)
{
	/* The cgroup is gone: an element that can't be removed does no harm. */
	(void)!filter_parents_forget(p->daemon->host.guard, id);
}

static bool is_sandbox(const struct parent *p, const char *name, uint64_t inode)
{
	char key[DAEMON_TARGET_KEY_SIZE];

	snprintf(key, sizeof(key), "cgroup %llu", (unsigned long long)inode);
	if (index_find(&p->daemon->targets, key))
		return true;
	/* One that was just made again. */
	return cgroup_watch_find(p->daemon, p->watch, name) != NULL;
}

static void forget_sibling(struct parent *p, const char *name)
{
	for (struct sibling **at = &p->siblings; *at; at = &(*at)->next) {
		struct sibling *s = *at;

		if (strcmp(s->name, name) != 0)
			continue;
		*at = s->next;
		parent_forget(p, s->id);
		free(s);
		return;
	}
}

/* Compare what is there under @name now with what is known. A cgroup that is no sandbox's
 * is let through. */
static void parent_check(struct parent *p, int dir, const char *name)
{
	struct sibling *s = p->siblings;
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		forget_sibling(p, name);
		return;
	}
	if (!S_ISDIR(st.st_mode) || is_sandbox(p, name, st.st_ino))
		return;
	while (s && (s->id != st.st_ino || strcmp(s->name, name) != 0))
		s = s->next;
	if (s)
		return;
	forget_sibling(p, name);
	s = malloc(sizeof(*s) + strlen(name) + 1);
	if (!s) {
		log_error("a cgroup below '%s' stays closed: out of memory", p->dir);
		return;
	}
	s->id = st.st_ino;
	memcpy(s->name, name, strlen(name) + 1);
	s->next = p->siblings;
	p->siblings = s;
	know(p, s->id);
}

/* Something has happened to @name below the watched directory, which is no sandbox's. */
static void parent_on_event(struct daemon *w, int watch, const char *name)
{
	struct parent *p = parent_find(w, watch);
	CLEAN(fd) int dir = -1;

	if (!p)
		return;
	dir = open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		parent_check(p, dir, name);
}

/* Compare all that is below the parent. */
static void parent_check_all(struct parent *p)
{
	CLEAN(directory) DIR *all = opendir(p->dir);
	const struct dirent *e;

	while (all && (e = directory_next(all)))
		if (e->d_type == DT_DIR)
			parent_check(p, dirfd(all), e->d_name);
}

/* A cgroup below @d's parent, @path, is no sandbox's. -errno: that can't be read. */
static int has_sibling(const char *path, const struct daemon_sandbox *d)
{
	const struct parent p = { .daemon = d->daemon, .watch = d->watch };
	char **known = &d->daemon->host.sibling;
	const char *name = *known ? strrchr(*known, '/') : NULL;
	CLEAN(directory) DIR *all = NULL;
	const struct dirent *e;
	struct stat st;
	bool found = false;

	/* Reading thousands takes time: mostly the one from last time is still there. */
	if (name && (size_t)(name - *known) == strlen(path) &&
	    strncmp(*known, path, strlen(path)) == 0 && stat(*known, &st) == 0 &&
	    S_ISDIR(st.st_mode) && !is_sandbox(&p, name + 1, st.st_ino))
		return 1;
	all = opendir(path);
	while (all && !found && (e = directory_next(all))) {
		found = e->d_type == DT_DIR && !is_sandbox(&p, e->d_name, e->d_ino);
		if (!found)
			continue;
		free(*known);
		if (asprintf(known, "%s/%s", path, e->d_name) < 0)
			*known = NULL;
	}
	return found ? 1 : -errno;
}

/* -- parents ------------------------------------------------------------------------ */

static int open_guard(struct host *h, struct err *err)
{
	CLEAN(fd) int fd = -1;
	int r;

	if (h->guard)
		return 0;
	r = sandbox_netlink_open(&fd, err);
	if (r == 0)
		r = filter_parents_new(fd, &h->guard, err);
	if (r == 0)
		(void)TAKE_FD(fd);
	return r;
}

/* Return: as filter_parents_unguard(). */
static int unlink_parent(struct parent *gone)
{
	struct parent **at = &gone->daemon->host.parents;
	int r = filter_parents_unguard(gone->daemon->host.guard, gone->id);

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	while (gone->siblings)
		forget_sibling(gone, gone->siblings->name);
	free(gone->dir);
	free(gone);
	return r;
}

/* Before the host's table is active, guards are only noted: see cgroup_guard_load(). */
static int guard_install(struct daemon *w, struct err *err)
{
	struct err why = { 0 };

	if (w->host.state != HOST_ACTIVE)
		return 0;
	if (filter_parents_load(w->host.guard, &why) == 0)
		return 0;
	return err_set(err, why.code, "cannot guard the parent: %s", why.text);
}

/* Write down for each active sandbox below @p that its parent is guarded, over a
 * restart as well. */
static void remember(const struct parent *p)
{
	struct err err = { 0 };

	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = p->daemon->sandboxes[id];

		/* One that is just being attached is kept with that. */
		if (!d || d->watch != p->watch || d->guards_parent ||
		    d->life.state != LIFECYCLE_ACTIVE || d->text_fd >= 0)
			continue;
		d->guards_parent = true;
		if (state_save(d, &err) < 0)
			log_warning("%s", err.text);
	}
}

/* Guard the parent of @d's cgroup, which has the directory @dir. Takes @dir. */
static int guard(struct daemon_sandbox *d, char *dir, struct err *err)
{
	struct host *h = &d->daemon->host;
	struct parent *p = calloc(1, sizeof(*p));
	struct stat st;
	int r;

	if (!p || stat(dir, &st) < 0) {
		r = err_sys(err, p ? -errno : -ENOMEM, "cannot look at the parent");
		free(p);
		free(dir);
		return r;
	}
	*p = (struct parent){
		.daemon = d->daemon,
		.watch = d->watch,
		.id = st.st_ino,
		.level = (uint8_t)(d->member.level - 1),
		.dir = dir,
		.next = h->parents,
	};
	h->parents = p;
	parent_check_all(p);
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (d->daemon->sandboxes[id] &&
		    d->daemon->sandboxes[id]->watch == p->watch)
			cgroup_guard_admit(d->daemon->sandboxes[id]);
	r = filter_parents_guard(h->guard, p->id, p->level);
	if (r < 0)
		err_sys(err, r, "cannot guard the parent");
	else if (r > 0)
		r = guard_install(d->daemon, err);
	if (r < 0)
		(void)!unlink_parent(p);
	else
		remember(p);
	return r;
}

int cgroup_guard_start(struct daemon_sandbox *d, struct err *err)
{
	CLEAN(mem) char *dir = NULL;
	int r;

	/* The root of the hierarchy has everybody below it. */
	if (!d->dir || d->member.level < 2 || d->is_unseen)
		return 0;
	if (parent_find(d->daemon, d->watch)) {
		d->guards_parent = true;
		cgroup_guard_admit(d);
		return 0;
	}
	dir = host_path_above(d->dir);
	if (!dir)
		return err_set(err, -ENOMEM, "out of memory");
	r = d->guards_parent || d->spec.guard_parent ? 0 : has_sibling(dir, d);
	if (r != 0)
		return r < 0 ? err_sys(err, r, "cannot look at the parent") : 0;
	r = open_guard(&d->daemon->host, err);
	if (r == 0)
		r = guard(d, TAKE_PTR(dir), err);
	d->guards_parent = r == 0;
	return r;
}

void cgroup_guard_admit(const struct daemon_sandbox *d)
{
	struct parent *p = d && d->dir ? parent_find(d->daemon, d->watch) : NULL;

	if (p && !d->is_cgroup_gone && !daemon_sandbox_is_outdated(d) &&
	    (d->life.state == LIFECYCLE_ACTIVE || d->life.state == LIFECYCLE_TESTING))
		know(p, d->member.cgroup);
}

/* Replace what an earlier daemon has installed, even by nothing: cgroups below such a
 * parent would stay closed. Not before all parents can be seen. */
void cgroup_guard_load(struct daemon *w)
{
	struct err err = { 0 };

	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (w->sandboxes[id] && w->sandboxes[id]->guards_parent &&
		    w->sandboxes[id]->is_unseen)
			return;
	if (open_guard(&w->host, &err) < 0 || guard_install(w, &err) < 0)
		log_error("%s", err.text);
}

void cgroup_guard_clear(struct daemon *w)
{
	struct err err = { 0 };

	if (w->host.state != HOST_NONE || w->lacks)
		return;
	if (open_guard(&w->host, &err) < 0 ||
	    filter_parents_load(w->host.guard, &err) < 0)
		log_error("%s", err.text);
}

void cgroup_guard_check(struct daemon *w)
{
	if (!w->host.guard || filter_parents_stands(w->host.guard))
		return;
	log_warning("another process has removed the guard of the cgroups' parents; "
		    "it is put back");
	cgroup_guard_load(w);
}

/* -- a cgroup goes and comes again -------------------------------------------------- */

/* A cgroup that is made again has another id, and the kernel knows nothing of what the
 * old one was. So the directory above it is watched: when it goes, its sandbox stays and
 * waits; when it is there again, its new id takes the place of the old one, with the same
 * policy and nothing learned. It ends when the directory above is gone, too. Events may
 * be lost: each second everything is looked at besides. */

enum { EVENTS_SIZE = 16 * 1024 };

static const char *name_of(const struct daemon_sandbox *d)
{
	return strrchr(d->dir, '/') + 1;
}

/* -- what is seen ------------------------------------------------------------------- */

/* Something has happened to the watched directory; @watch -1: to any of them. */
static void cgroup_watch_check_all(struct daemon *w, int watch)
{
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = w->sandboxes[id];

		if (d && d->dir && (watch < 0 || d->watch == watch))
			cgroup_watch_check(d);
	}
}

static void on_event(struct daemon *w, const struct inotify_event *e)
{
	struct daemon_sandbox *d, *next;

	if (e->mask & IN_Q_OVERFLOW) {
		/* Events were lost. */
		cgroup_watch_check_all(w, -1);
		for (struct parent *p = w->host.parents; p; p = p->next)
			parent_check_all(p);
		return;
	}
	if (e->len == 0) {
		cgroup_watch_check_all(w, e->wd);
		return;
	}
	for (d = cgroup_watch_find(w, e->wd, e->name); d; d = next) {
		next = daemon_sandbox_of(index_next(&d->in_watched));
		cgroup_watch_check(d);
	}
	parent_on_event(w, e->wd, e->name);
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct host *h = CONTAINER_OF(source, struct host, inotify);
	struct daemon *w = CONTAINER_OF(h, struct daemon, host);
	_Alignas(struct inotify_event) char buf[EVENTS_SIZE];
	ssize_t size;

	while (h->inotify.fd >= 0 && (size = read(h->inotify.fd, buf, sizeof(buf))) > 0)
		for (ssize_t at = 0; at < size;) {
			const struct inotify_event *e = (const void *)(buf + at);

			on_event(w, e);
			at += (ssize_t)(sizeof(*e) + e->len);
		}
}

/* -- watches ------------------------------------------------------------------------ */

static int open_inotify(struct daemon *w)
{
	struct host *h = &w->host;
	int r;

	if (h->inotify.fd >= 0)
		return 0;
	h->inotify.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (h->inotify.fd < 0)
		return -errno;
	h->inotify.on_ready = on_ready;
	r = loop_add(w->supervisor.loop, &h->inotify, EPOLLIN);
	if (r < 0)
		fd_close(&h->inotify.fd);
	return r;
}

/* A directory that is watched, and how many follow what is below it. */
struct watched {
	struct index_entry entry;
	char key[12]; /* the watch */
	size_t users;
};

static struct watched *find_watched(const struct daemon *w, int watch)
{
	struct index_entry *e;
	char key[12];

	snprintf(key, sizeof(key), "%d", watch);
	e = index_find(&w->watches, key);
	return e ? CONTAINER_OF(e, struct watched, entry) : NULL;
}

static int use_watch(struct daemon *w, int watch)
{
	struct watched *used = find_watched(w, watch);

	if (!used) {
		used = calloc(1, sizeof(*used));
		if (!used)
			return -ENOMEM;
		snprintf(used->key, sizeof(used->key), "%d", watch);
		if (index_add(&w->watches, &used->entry, used->key) < 0) {
			free(used);
			return -ENOMEM;
		}
	}
	used->users++;
	return 0;
}

int cgroup_watch_start(struct daemon_sandbox *d, struct err *err)
{
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
			      IN_DELETE_SELF | IN_ONLYDIR;
	struct daemon *w = d->daemon;
	CLEAN(mem) char *above = host_path_above(d->dir);
	int watch = -1, r = above ? open_inotify(w) : -ENOMEM;

	if (r == 0) {
		watch = inotify_add_watch(w->host.inotify.fd, above, mask);
		r = watch < 0 ? -errno : use_watch(w, watch);
	}
	if (r == 0) {
		d->watch = watch;
		d->watch_key = key_of(watch, name_of(d));
		r = d->watch_key ? index_add(&w->watched, &d->in_watched, d->watch_key)
				 : -ENOMEM;
	}
	if (r == 0)
		return 0;
	cgroup_watch_stop(d);
	return err_sys(err, r, "cannot watch the cgroup '%.200s'", d->spec.where);
}

/* Several may have the same directory above them. */
void cgroup_watch_stop(struct daemon_sandbox *d)
{
	struct daemon *w = d->daemon;
	struct err err = { 0 };
	struct watched *used;
	struct parent *p;
	int watch = d->watch;

	d->watch = -1;
	index_remove(&w->watched, &d->in_watched);
	free(d->watch_key);
	d->watch_key = NULL;
	if (watch < 0)
		return;
	used = find_watched(w, watch);
	if (used && --used->users > 0) {
		/* No sandbox has this cgroup any more. */
		parent_on_event(w, watch, name_of(d));
		return;
	}
	if (used) {
		index_remove(&w->watches, &used->entry);
		free(used);
	}
	p = parent_find(w, watch);
	if (p && unlink_parent(p) != 0 && guard_install(w, &err) < 0)
		log_error("%s", err.text);
	(void)!inotify_rm_watch(w->host.inotify.fd, watch);
}

/* -- what comes of it --------------------------------------------------------------- */

static void on_gone(struct daemon_sandbox *d)
{
	if (!d->is_cgroup_gone) {
		d->is_cgroup_gone = true;
		host_report(d, "its cgroup is gone: waiting for it");
	}
	if (host_is_parent_gone(d) && d->life.state == LIFECYCLE_ACTIVE)
		daemon_sandbox_on_gone(d, "so is what was above its cgroup",
				       "its cgroup is gone", false);
}

static void on_another(struct daemon_sandbox *d, uint64_t id)
{
	CLEAN(mem) struct cgroup *c = NULL;
	struct err err = { 0 };
	struct parent *p;

	d->is_cgroup_gone = false;
	ended_note(d, d->member.cgroup);
	p = parent_find(d->daemon, d->watch);
	if (p)
		parent_forget(p, d->member.cgroup);
	d->member.cgroup = id;
	d->above = host_above(d);
	daemon_sandbox_on_remade(d);
	host_report(d, "its cgroup was made again");
	/* The cgroup is guarded whatever is the matter with it: nothing is better. */
	c = malloc(sizeof(*c));
	if (c && cgroup_find(d->daemon->host.hierarchy, d->spec.where, c, &err) == 0 &&
	    cgroup_check(c, d->daemon->home, &err) < 0)
		log_warning("sandbox '%s': %s", d->spec.name, err.text);
}

void cgroup_watch_check(struct daemon_sandbox *d)
{
	struct err ignored = { 0 }, err = { 0 };
	uint64_t id;
	int r = 0;

	if (lifecycle_is_ending(&d->life))
		return;
	if (d->watch < 0)
		r = host_watch_cgroup(d, &ignored);
	if (r == 0)
		r = host_cgroup_id(d, &id);
	/* What isn't seen isn't gone: its rules stay, for the id that it had. */
	if (r < 0 && r != -ENOENT) {
		if (!d->is_unseen)
			host_report(d, "whether its cgroup is gone can't be seen");
		d->is_unseen = true;
		return;
	}
	if (d->is_unseen) {
		d->is_unseen = false;
		host_report(d, "its cgroup is seen again");
		if (d->guards_parent && d->life.state == LIFECYCLE_ACTIVE &&
		    cgroup_guard_start(d, &err) < 0)
			log_warning("sandbox '%s': %s", d->spec.name, err.text);
		cgroup_guard_load(d->daemon);
	}
	if (r < 0)
		on_gone(d);
	else if (id != d->member.cgroup)
		on_another(d, id);
}
