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
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "main/warden_internal.h"
#include "net/cgroup.h"

enum { EVENTS_SIZE = 16 * 1024 };

static const char *name_of(const struct ward *d)
{
	return strrchr(d->dir, '/') + 1;
}

/* -- what is seen ------------------------------------------------------------------- */

static void look_at(struct warden *w, int watch, const char *name)
{
	for (uint32_t id = 1; id <= WARDS_MAX; id++) {
		struct ward *d = w->wards[id];

		if (d && d->dir && (watch < 0 || d->watch == watch) &&
		    (!name || strcmp(name_of(d), name) == 0))
			follow_look(d);
	}
}

static void on_event(struct warden *w, const struct inotify_event *e)
{
	if (e->mask & IN_Q_OVERFLOW) {
		look_at(w, -1, NULL);
		parents_look_again(w);
		return;
	}
	look_at(w, e->wd, e->len > 0 ? e->name : NULL);
	if (e->len > 0)
		parent_on_event(w, e->wd, e->name);
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct host *h = CONTAINER_OF(source, struct host, inotify);
	struct warden *w = CONTAINER_OF(h, struct warden, host);
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

static int open_inotify(struct warden *w)
{
	struct host *h = &w->host;
	int r;

	if (h->inotify.fd >= 0)
		return 0;
	h->inotify.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (h->inotify.fd < 0)
		return -errno;
	h->inotify.on_ready = on_ready;
	r = loop_add(w->keeper.loop, &h->inotify, EPOLLIN);
	if (r < 0) {
		close(h->inotify.fd);
		h->inotify.fd = -1;
	}
	return r;
}

int follow_start(struct ward *d, struct err *err)
{
	const uint32_t mask = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
			      IN_DELETE_SELF | IN_ONLYDIR;
	CLEAN(mem) char *above = strdup(d->dir);
	int r = above ? open_inotify(d->warden) : -ENOMEM;

	if (r == 0) {
		*strrchr(above, '/') = '\0';
		d->watch = inotify_add_watch(d->warden->host.inotify.fd, above, mask);
		r = d->watch < 0 ? -errno : 0;
	}
	return r < 0 ? err_sys(err, r, "cannot watch the cgroup '%.200s'", d->spec.where)
		     : 0;
}

/* Several may have the same directory above them. */
void follow_stop(struct ward *d)
{
	struct warden *w = d->warden;
	int watch = d->watch;

	d->watch = -1;
	if (watch < 0)
		return;
	for (uint32_t id = 1; id <= WARDS_MAX; id++) {
		if (!w->wards[id] || w->wards[id]->watch != watch)
			continue;
		/* Its cgroup is anybody's now. */
		parent_on_event(w, watch, name_of(d));
		return;
	}
	parent_leave(w, watch);
	(void)!inotify_rm_watch(w->host.inotify.fd, watch);
}

/* -- what comes of it --------------------------------------------------------------- */

static bool is_parent_there(const struct ward *d)
{
	CLEAN(mem) char *above = strdup(d->dir);
	struct stat st;

	if (!above)
		return true;
	*strrchr(above, '/') = '\0';
	return stat(above, &st) == 0;
}

static void on_gone(struct ward *d)
{
	struct ipc_message m = { .type = IPC_GONE, .sandbox = d->id };

	if (!d->waiting) {
		d->waiting = true;
		host_tell(d, "its cgroup is gone: waiting for it");
	}
	if (is_parent_there(d) || d->state != WARD_STANDING)
		return;
	log_warning("sandbox '%s' is gone: so is what was above its cgroup",
		    d->spec.name);
	snprintf(m.text, sizeof(m.text), "its cgroup is gone");
	state_forget(d);
	warden_tell_control(d->warden, &m, NULL);
	ward_detach(d, false);
}

/* It is guarded all the same: nothing else would be better. */
static void check_again(const struct ward *d)
{
	CLEAN(mem) struct cgroup *c = malloc(sizeof(*c));
	struct err err = { 0 };

	if (c && cgroup_open(d->dir, c, &err) == 0 &&
	    cgroup_check(c, d->warden->home, &err) < 0)
		log_warning("sandbox '%s': %s", d->spec.name, err.text);
}

static void on_another(struct ward *d, uint64_t id)
{
	d->waiting = false;
	d->fresh = true;
	parent_shut(d, d->member.cgroup);
	d->member.cgroup = id;
	ward_enter_again(d);
	host_tell(d, "its cgroup was made again");
	check_again(d);
}

void follow_look(struct ward *d)
{
	struct stat st;

	if (d->state == WARD_ENDING || d->state == WARD_LEFT)
		return;
	if (stat(d->dir, &st) < 0 || !S_ISDIR(st.st_mode))
		on_gone(d);
	else if (st.st_ino != d->member.cgroup)
		on_another(d, st.st_ino);
	else
		d->waiting = false;
}
