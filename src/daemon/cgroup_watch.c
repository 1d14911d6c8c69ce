// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A cgroup that is made again has another id, and the kernel knows nothing of what the
 * old one was. So the directory above it is watched: when it goes, its sandbox stays and
 * waits; when it is there again, its new id takes the place of the old one, with the same
 * policy and nothing learned. It ends when the directory above is gone, too. Events may
 * be lost: each second everything is looked at besides. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "sys/cgroup.h"

enum { EVENTS_SIZE = 16 * 1024 };

static const char *name_of(const struct daemon_sandbox *d)
{
	return strrchr(d->dir, '/') + 1;
}

/* -- what is seen ------------------------------------------------------------------- */

static struct daemon_sandbox *daemon_sandbox_of(struct index_entry *e)
{
	return e ? CONTAINER_OF(e, struct daemon_sandbox, followed) : NULL;
}

static char *key_of(int watch, const char *name)
{
	char *key = NULL;

	return asprintf(&key, "%d/%s", watch, name) < 0 ? NULL : key;
}

struct daemon_sandbox *follow_find(const struct daemon *w, int watch, const char *name)
{
	CLEAN(mem) char *key = key_of(watch, name);

	return key ? daemon_sandbox_of(index_find(&w->followed, key)) : NULL;
}

struct daemon_sandbox *follow_next(const struct daemon_sandbox *d)
{
	return daemon_sandbox_of(index_next(&d->followed));
}

/* The directory itself, or nobody knows which: @watch -1. */
static void look_at_all(struct daemon *w, int watch)
{
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = w->sandboxes[id];

		if (d && d->dir && (watch < 0 || d->watch == watch))
			follow_look(d);
	}
}

static void look_at(struct daemon *w, int watch, const char *name)
{
	struct daemon_sandbox *d, *next;

	for (d = follow_find(w, watch, name); d; d = next) {
		next = follow_next(d);
		follow_look(d);
	}
}

static void on_event(struct daemon *w, const struct inotify_event *e)
{
	if (e->mask & IN_Q_OVERFLOW) {
		look_at_all(w, -1);
		parents_look_again(w);
		return;
	}
	if (e->len == 0) {
		look_at_all(w, e->wd);
		return;
	}
	look_at(w, e->wd, e->name);
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
	if (r < 0) {
		close(h->inotify.fd);
		h->inotify.fd = -1;
	}
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

/* Return: nobody uses it any more. */
static bool leave_watch(struct daemon *w, int watch)
{
	struct watched *used = find_watched(w, watch);

	if (!used || --used->users > 0)
		return !used;
	index_remove(&w->watches, &used->entry);
	free(used);
	return true;
}

static int follow(struct daemon_sandbox *d, const char *above)
{
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
			      IN_DELETE_SELF | IN_ONLYDIR;
	struct daemon *w = d->daemon;
	int watch = inotify_add_watch(w->host.inotify.fd, above, mask);
	int r = watch < 0 ? -errno : use_watch(w, watch);

	if (r < 0)
		return r;
	d->watch = watch;
	d->follow_key = key_of(watch, name_of(d));
	return d->follow_key ? index_add(&w->followed, &d->followed, d->follow_key)
			     : -ENOMEM;
}

int follow_start(struct daemon_sandbox *d, struct err *err)
{
	CLEAN(mem) char *above = strdup(d->dir);
	int r = above ? open_inotify(d->daemon) : -ENOMEM;

	if (r == 0) {
		*strrchr(above, '/') = '\0';
		r = follow(d, above);
	}
	if (r == 0)
		return 0;
	follow_stop(d);
	return err_sys(err, r, "cannot watch the cgroup '%.200s'", d->spec.where);
}

/* Several may have the same directory above them. */
void follow_stop(struct daemon_sandbox *d)
{
	struct daemon *w = d->daemon;
	int watch = d->watch;

	d->watch = -1;
	index_remove(&w->followed, &d->followed);
	free(d->follow_key);
	d->follow_key = NULL;
	if (watch < 0)
		return;
	if (!leave_watch(w, watch)) {
		/* Its cgroup is anybody's now. */
		parent_on_event(w, watch, name_of(d));
		return;
	}
	parent_leave(w, watch);
	(void)!inotify_rm_watch(w->host.inotify.fd, watch);
}

/* -- what comes of it --------------------------------------------------------------- */

static void on_gone(struct daemon_sandbox *d)
{
	struct ipc_message m = { .type = IPC_GONE, .sandbox = d->id };

	if (!d->waiting) {
		d->waiting = true;
		host_tell(d, "its cgroup is gone: waiting for it");
	}
	if (!host_is_parent_gone(d) || d->state != DAEMON_SANDBOX_STANDING)
		return;
	log_warning("sandbox '%s' is gone: so is what was above its cgroup",
		    d->spec.name);
	snprintf(m.text, sizeof(m.text), "its cgroup is gone");
	state_forget(d);
	daemon_tell_control(d->daemon, &m, NULL);
	daemon_sandbox_detach(d, false);
}

/* It is guarded all the same: nothing else would be better. */
static void check_again(const struct daemon_sandbox *d)
{
	CLEAN(mem) struct cgroup *c = malloc(sizeof(*c));
	struct err err = { 0 };

	if (c && cgroup_find(d->daemon->host.hierarchy, d->spec.where, c, &err) == 0 &&
	    cgroup_check(c, d->daemon->home, &err) < 0)
		log_warning("sandbox '%s': %s", d->spec.name, err.text);
}

static void on_another(struct daemon_sandbox *d, uint64_t id)
{
	d->waiting = false;
	d->fresh = true;
	parent_shut(d, d->member.cgroup);
	d->member.cgroup = id;
	daemon_sandbox_enter_again(d);
	host_tell(d, "its cgroup was made again");
	check_again(d);
}

/* What isn't seen isn't gone: its rules stay, for the id that it had. */
static void on_unseen(struct daemon_sandbox *d)
{
	if (!d->unseen)
		host_tell(d, "whether its cgroup is gone can't be seen");
	d->unseen = true;
}

static void on_seen(struct daemon_sandbox *d)
{
	struct err err = { 0 };

	if (!d->unseen)
		return;
	d->unseen = false;
	host_tell(d, "its cgroup is seen again");
	if (d->guards && d->state == DAEMON_SANDBOX_STANDING && parent_guard(d, &err) < 0)
		log_warning("sandbox '%s': %s", d->spec.name, err.text);
	parents_load(d->daemon);
}

void follow_look(struct daemon_sandbox *d)
{
	struct err ignored = { 0 };
	uint64_t id;
	int r = 0;

	if (d->state == DAEMON_SANDBOX_ENDING || d->state == DAEMON_SANDBOX_LEFT)
		return;
	if (d->watch < 0)
		r = host_follow(d, &ignored);
	if (r == 0)
		r = host_cgroup_id(d, &id);
	if (r < 0 && r != -ENOENT) {
		on_unseen(d);
		return;
	}
	on_seen(d);
	if (r < 0)
		on_gone(d);
	else if (id != d->member.cgroup)
		on_another(d, id);
	else
		d->waiting = false;
}
