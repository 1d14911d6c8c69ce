// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * When a cgroup that is guarded is made again, a process can send from it before anybody
 * has told the kernel its new id. So what is above it denies everything to those below it
 * whom nobody knows (filter/parents.h): one that is made again is let through after its
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "filter/parents.h"

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

static struct parent *find(const struct daemon *w, int watch)
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

static void forget(struct parent *p, uint64_t id)
{
	/* It is gone: who can't be taken out is in nobody's way. */
	(void)!filter_parents_forget(p->daemon->host.guard, id);
}

static bool is_sandbox(const struct parent *p, const char *name, uint64_t inode)
{
	char place[DAEMON_SANDBOX_PLACE_SIZE];

	snprintf(place, sizeof(place), "cgroup %llu", (unsigned long long)inode);
	if (index_find(&p->daemon->places, place))
		return true;
	/* One that was just made again. */
	return follow_find(p->daemon, p->watch, name) != NULL;
}

static void forget_sibling(struct parent *p, const char *name)
{
	for (struct sibling **at = &p->siblings; *at; at = &(*at)->next) {
		struct sibling *s = *at;

		if (strcmp(s->name, name) != 0)
			continue;
		*at = s->next;
		forget(p, s->id);
		free(s);
		return;
	}
}

static void add_sibling(struct parent *p, const char *name, uint64_t id)
{
	struct sibling *s = p->siblings;

	while (s && (s->id != id || strcmp(s->name, name) != 0))
		s = s->next;
	if (s)
		return;
	forget_sibling(p, name);
	s = malloc(sizeof(*s) + strlen(name) + 1);
	if (!s) {
		log_error("a cgroup below '%s' stays closed: out of memory", p->dir);
		return;
	}
	s->id = id;
	memcpy(s->name, name, strlen(name) + 1);
	s->next = p->siblings;
	p->siblings = s;
	know(p, id);
}

/* What is there under @name now? */
static void look_at(struct parent *p, int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		forget_sibling(p, name);
	else if (S_ISDIR(st.st_mode) && !is_sandbox(p, name, st.st_ino))
		add_sibling(p, name, st.st_ino);
}

void parent_on_event(struct daemon *w, int watch, const char *name)
{
	struct parent *p = find(w, watch);
	CLEAN(fd) int dir = -1;

	if (!p)
		return;
	dir = open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		look_at(p, dir, name);
}

/* All that are there. */
static void look_at_all(struct parent *p)
{
	DIR *all = opendir(p->dir);
	const struct dirent *e;

	while (all && (e = readdir(all)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			look_at(p, dirfd(all), e->d_name);
	if (all)
		closedir(all);
}

/* The one below @path that was found last is still nobody's sandbox. */
static bool is_sibling_there(const char *path, const struct parent *p)
{
	const char *known = p->daemon->host.sibling;
	const char *name = known ? strrchr(known, '/') : NULL;
	struct stat st;

	return name && (size_t)(name - known) == strlen(path) &&
	       strncmp(known, path, strlen(path)) == 0 && stat(known, &st) == 0 &&
	       S_ISDIR(st.st_mode) && !is_sandbox(p, name + 1, st.st_ino);
}

static void remember_sibling(struct host *h, const char *path, const char *name)
{
	free(h->sibling);
	if (asprintf(&h->sibling, "%s/%s", path, name) < 0)
		h->sibling = NULL;
}

/* Something below @d's parent, @path, is nobody's sandbox. A look at thousands takes its
 * time: mostly the one from last time is still there. */
static bool has_sibling(const char *path, const struct daemon_sandbox *d)
{
	const struct parent p = { .daemon = d->daemon, .watch = d->watch };
	DIR *all = is_sibling_there(path, &p) ? NULL : opendir(path);
	const struct dirent *e;
	bool found = !all;

	while (!found && (e = readdir(all))) {
		found = e->d_type == DT_DIR && e->d_name[0] != '.' &&
			!is_sandbox(&p, e->d_name, e->d_ino);
		if (found)
			remember_sibling(&d->daemon->host, path, e->d_name);
	}
	if (all)
		closedir(all);
	return found;
}

void parents_look_again(struct daemon *w)
{
	for (struct parent *p = w->host.parents; p; p = p->next)
		look_at_all(p);
}

/* -- parents ------------------------------------------------------------------------ */

static int open_guard(struct host *h, struct err *err)
{
	int fd, r;

	if (h->guard)
		return 0;
	r = sandbox_netlink_open(&fd, err);
	if (r < 0)
		return r;
	r = filter_parents_new(fd, &h->guard, err);
	if (r < 0)
		close(fd);
	return r;
}

static void parent_free(struct parent *p)
{
	while (p->siblings) {
		struct sibling *s = p->siblings;

		p->siblings = s->next;
		free(s);
	}
	free(p->dir);
	free(p);
}

/* Takes @dir. */
static struct parent *parent_new(const struct daemon_sandbox *d, char *dir,
				 struct err *err)
{
	struct parent *p = calloc(1, sizeof(*p));
	struct stat st;

	if (!p || !dir || stat(dir, &st) < 0) {
		err_sys(err, p && dir ? -errno : -ENOMEM, "cannot look at the parent");
		free(dir);
		free(p);
		return NULL;
	}
	*p = (struct parent){
		.daemon = d->daemon,
		.watch = d->watch,
		.id = st.st_ino,
		.level = (uint8_t)(d->member.level - 1),
		.dir = dir,
		.next = d->daemon->host.parents,
	};
	d->daemon->host.parents = p;
	return p;
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
	parent_free(gone);
	return r;
}

/* Before the table stands they are only written down: see parents_load(). */
static int load(struct daemon *w, struct err *err)
{
	struct err why = { 0 };

	if (w->host.state != HOST_STANDS)
		return 0;
	if (filter_parents_load(w->host.guard, &why) == 0)
		return 0;
	return err_set(err, why.code, "cannot guard the parent: %s", why.text);
}

/* Whoever stands below @p keeps it guarded, over a restart as well. */
static void remember(const struct parent *p)
{
	struct err err = { 0 };

	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = p->daemon->sandboxes[id];

		/* One that is just being attached is kept with that. */
		if (!d || d->watch != p->watch || d->guards ||
		    d->state != DAEMON_SANDBOX_STANDING || d->text_fd >= 0)
			continue;
		d->guards = true;
		if (state_keep(d, &err) < 0)
			log_warning("%s", err.text);
	}
}

static int guard(struct daemon_sandbox *d, char *dir, struct err *err)
{
	struct host *h = &d->daemon->host;
	struct parent *p = parent_new(d, dir, err);
	int r;

	if (!p)
		return err->code;
	look_at_all(p);
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (d->daemon->sandboxes[id] &&
		    d->daemon->sandboxes[id]->watch == p->watch)
			parent_let_through(d->daemon->sandboxes[id]);
	r = filter_parents_guard(h->guard, p->id, p->level);
	if (r < 0)
		err_sys(err, r, "cannot guard the parent");
	else if (r > 0)
		r = load(d->daemon, err);
	if (r < 0)
		(void)!unlink_parent(p);
	else
		remember(p);
	return r;
}

int parent_guard(struct daemon_sandbox *d, struct err *err)
{
	CLEAN(mem) char *dir = NULL;
	int r;

	/* The root of the hierarchy has everybody below it. */
	if (!d->dir || d->member.level < 2 || d->unseen)
		return 0;
	if (find(d->daemon, d->watch)) {
		d->guards = true;
		parent_let_through(d);
		return 0;
	}
	dir = strdup(d->dir);
	if (!dir)
		return err_set(err, -ENOMEM, "out of memory");
	*strrchr(dir, '/') = '\0';
	if (!d->guards && !d->spec.guard_parent && has_sibling(dir, d))
		return 0;
	r = open_guard(&d->daemon->host, err);
	if (r == 0)
		r = guard(d, TAKE_PTR(dir), err);
	d->guards = r == 0;
	return r;
}

void parent_let_through(const struct daemon_sandbox *d)
{
	struct parent *p = d && d->dir ? find(d->daemon, d->watch) : NULL;

	if (p && !d->waiting && !d->again &&
	    (d->state == DAEMON_SANDBOX_STANDING || d->state == DAEMON_SANDBOX_TESTING))
		know(p, d->member.cgroup);
}

void parent_shut(const struct daemon_sandbox *d, uint64_t cgroup)
{
	struct parent *p = find(d->daemon, d->watch);

	if (p)
		forget(p, cgroup);
}

void parent_leave(struct daemon *w, int watch)
{
	struct parent *p = find(w, watch);
	struct err err = { 0 };

	if (!p)
		return;
	if (unlink_parent(p) != 0 && load(w, &err) < 0)
		log_error("%s", err.text);
}

/* What a daemon before us has left is replaced, though it be by nothing: those below
 * such a parent would stay closed. Not before all parents can be seen. */
void parents_load(struct daemon *w)
{
	struct err err = { 0 };

	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (w->sandboxes[id] && w->sandboxes[id]->guards &&
		    w->sandboxes[id]->unseen)
			return;
	if (open_guard(&w->host, &err) < 0 || load(w, &err) < 0)
		log_error("%s", err.text);
}

void parents_leave_behind(struct daemon *w)
{
	struct err err = { 0 };

	if (w->host.state != HOST_NONE || w->lacks)
		return;
	if (open_guard(&w->host, &err) < 0 ||
	    filter_parents_load(w->host.guard, &err) < 0)
		log_error("%s", err.text);
}

void parents_look(struct daemon *w)
{
	if (!w->host.guard || filter_parents_stands(w->host.guard))
		return;
	log_warning("somebody has removed the guard of the cgroups' parents; it is put "
		    "back");
	parents_load(w);
}
