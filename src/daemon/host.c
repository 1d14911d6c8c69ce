// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Sandboxes of the host's own namespace have one table, and listeners that they share.
 * They are opened when the first such sandbox comes, so that a host without any has
 * neither. An engine gets them before its first such sandbox, then all that were guarded
 * before, and then the word to install the table (IPC_HOST_LOAD): who is in it is never
 * without rules in between. Sandboxes that are new come after that. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "sys/cgroup.h"

/* State and event: the next state. HOST_NONE: the event means nothing. */
static const enum host_state table[HOST_STATE_COUNT][HOST_EVENT_COUNT] = {
	[HOST_NONE] = { [HOST_ON_OPENED] = HOST_OPEN },
	[HOST_OPEN] = { [HOST_ON_SENT] = HOST_SENT },
	[HOST_SENT] = { [HOST_ON_ORDERED] = HOST_LOADING,
			[HOST_ON_ENGINE_END] = HOST_OPEN },
	[HOST_LOADING] = { [HOST_ON_INSTALLED] = HOST_ACTIVE,
			   [HOST_ON_NOT_INSTALLED] = HOST_FAILED,
			   [HOST_ON_ENGINE_END] = HOST_OPEN },
	[HOST_FAILED] = { [HOST_ON_RETRY] = HOST_SENT, [HOST_ON_ENGINE_END] = HOST_OPEN },
	[HOST_ACTIVE] = { [HOST_ON_ENGINE_END] = HOST_OPEN },
};

bool host_change(struct host *h, enum host_event event)
{
	const enum host_state next = table[h->state][event];

	if (next != HOST_NONE)
		h->state = next;
	return next != HOST_NONE;
}

/* -- what the engine gets ----------------------------------------------------------- */

int host_send(struct daemon *w)
{
	struct ipc_message m = {
		.type = IPC_HOST,
		.host = { .dns_port = SUPERVISOR_DNS_PORT,
			  .relay_port = SUPERVISOR_RELAY_PORT },
	};
	struct host *h = &w->host;
	struct ipc_fds fds;
	int r;

	if (h->state != HOST_OPEN)
		return 0;
	ipc_fds_init(&fds, &h->fds);
	fds.fd[IPC_FD_CONNTRACK] = h->conntrack_fd;
	r = ipc_send_fds(w->supervisor.engine.source.fd, &m, &fds);
	if (r == 0)
		host_change(h, HOST_ON_SENT);
	return r;
}

int host_load(struct daemon *w)
{
	const struct ipc_message m = { .type = IPC_HOST_LOAD };
	int r = host_send(w);

	if (r == 0)
		r = ipc_send(w->supervisor.engine.source.fd, &m, NULL, 0);
	if (r == 0)
		host_change(&w->host, HOST_ON_ORDERED);
	return r;
}

void host_on_engine(struct daemon *w, struct ipc_message *m)
{
	struct host *h = &w->host;

	ipc_sanitize(m->text, sizeof(m->text));
	if (!host_change(h, m->text[0] ? HOST_ON_NOT_INSTALLED : HOST_ON_INSTALLED))
		return;
	if (m->text[0]) {
		log_error("the filter of the host's sandboxes can't be installed: %s; "
			  "what stood before stays",
			  m->text);
		daemon_sandbox_refuse_host(w, m->text);
	} else {
		cgroup_guard_load(w);
	}
	daemon_report_lacking(w);
}

/* -- who is meant ------------------------------------------------------------------- */

static int find_user(struct daemon_sandbox *d, struct err *err)
{
	uint32_t uid;

	if (!text_to_u32(text_of(d->spec.where), UINT32_MAX - 1, &uid))
		return err_set(err, -EINVAL, "'%.80s' is no user id", d->spec.where);
	if (uid == 0)
		return err_set(err, -EINVAL,
			       "root can undo every rule: it is not guarded by its user "
			       "id");
	if (uid == geteuid())
		return err_set(err, -EINVAL, "%u is the daemon's own user id", uid);
	d->member = (struct member){ .kind = MEMBER_UID, .uid = uid };
	return 0;
}

static int found_cgroup(struct daemon_sandbox *d, const struct cgroup *c, struct err *err)
{
	struct err why = { 0 };
	int r;

	if (c->level > FILTER_HOST_LEVEL_MAX)
		return err_set(err, -EINVAL, "the cgroup is more than %d levels deep",
			       FILTER_HOST_LEVEL_MAX);
	if (d->spec.guard_parent && c->level < 2)
		return err_set(err, -EINVAL,
			       "above the cgroup is the root of all: that can't be "
			       "guarded");
	/* The cgroup was made again while no daemon ran: the rules are for the old
	 * one. */
	if (d->life.origin == LIFECYCLE_RESTORED && d->member.cgroup != c->id) {
		d->life.origin = LIFECYCLE_REMADE;
		ended_note(d, d->member.cgroup);
	}
	d->member = (struct member){
		.kind = MEMBER_CGROUP,
		.cgroup = c->id,
		.level = c->level,
	};
	d->above = host_above(d);
	/* What was guarded before is guarded again, whatever is the matter with it. */
	r = d->life.origin != LIFECYCLE_NEW ? 0 : cgroup_can_be_joined(c->path, &why);
	/* That would lock the daemon in, and with it all sandboxes. */
	if (r == 0 && cgroup_has_self(c))
		r = err_set(&why, -EINVAL,
			    "the daemon itself lives in the cgroup '%.200s'",
			    cgroup_name(c));
	if (r == 0)
		r = cgroup_check(c, d->daemon->home, &why);
	if (r == 0)
		return 0;
	if (d->life.origin == LIFECYCLE_NEW)
		return err_set(err, r, "%s", why.text);
	log_warning("sandbox '%s': %s", d->spec.name, why.text);
	return 0;
}

/* Until there is a hierarchy, a file that has nothing below it takes its number. */
int host_hold_hierarchy(struct host *h, struct err *err)
{
	CLEAN(fd) int fd = -1;

	if (h->has_hierarchy)
		return 0;
	if (h->hierarchy < 0)
		h->hierarchy = open("/dev/null", O_PATH | O_CLOEXEC);
	if (h->hierarchy < 0)
		return err_sys(err, -errno, "cannot open /dev/null");
	fd = cgroup_hierarchy_open(err);
	if (fd < 0)
		return fd;
	if (dup3(fd, h->hierarchy, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot hold the cgroups");
	h->has_hierarchy = true;
	return 0;
}

int host_cgroup_id(const struct daemon_sandbox *d, uint64_t *ret)
{
	const struct host *h = &d->daemon->host;
	struct stat st;

	if (!h->has_hierarchy)
		return -ENODEV;
	/* Mostly the cgroup is as it was. */
	if (fstatat(h->hierarchy, d->spec.where + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == d->member.cgroup)
		*ret = st.st_ino;
	else
		return cgroup_find_id(h->hierarchy, d->spec.where, ret);
	return 0;
}

char *host_path_above(const char *path)
{
	return strndup(path, (size_t)(strrchr(path, '/') - path));
}

uint64_t host_above(const struct daemon_sandbox *d)
{
	const struct host *h = &d->daemon->host;
	CLEAN(mem) char *above = host_path_above(d->spec.where);
	struct stat st;

	if (!h->has_hierarchy || !above)
		return 0;
	return fstatat(h->hierarchy, above[0] ? above + 1 : "", &st,
		       AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) < 0
		       ? 0
		       : st.st_ino;
}

bool host_is_parent_gone(const struct daemon_sandbox *d)
{
	const struct host *h = &d->daemon->host;
	CLEAN(mem) char *above = host_path_above(d->spec.where);
	uint64_t id;

	if (!h->has_hierarchy || !above)
		return false;
	return above[0] && cgroup_find_id(h->hierarchy, above, &id) == -ENOENT;
}

int host_watch_cgroup(struct daemon_sandbox *d, struct err *err)
{
	int r = host_hold_hierarchy(&d->daemon->host, err);

	return r < 0 ? r : cgroup_watch_start(d, err);
}

/* A cgroup from before may be gone as long as the directory above it isn't: the
 * sandbox waits for it. If that can't be seen, the sandbox is guarded as it was. */
static int find_again(struct daemon_sandbox *d, struct cgroup *c, struct err *err)
{
	struct err why = { 0 };
	int r = host_watch_cgroup(d, &why);

	if (host_is_parent_gone(d)) {
		ended_note(d, d->member.cgroup);
		return err_set(err, -ENOENT, "its cgroup is gone");
	}
	if (r == 0)
		r = cgroup_find(d->daemon->host.hierarchy, d->spec.where, c, &why);
	if (r == -ENOENT) {
		d->is_cgroup_gone = true;
		return 0;
	}
	if (r == 0)
		return found_cgroup(d, c, err);
	/* The rules identify the cgroup by its id. */
	log_warning("sandbox '%s': %s; its rules stay as they are", d->spec.name,
		    why.text);
	d->is_unseen = true;
	return 0;
}

static int find_cgroup(struct daemon_sandbox *d, struct err *err)
{
	CLEAN(mem) struct cgroup *c = calloc(1, sizeof(*c));
	struct err why = { 0 };
	uint64_t id;
	int r;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	r = host_hold_hierarchy(&d->daemon->host, &why);
	if (d->life.origin == LIFECYCLE_NEW) {
		r = r < 0 ? err_set(err, r, "%s", why.text)
			  : cgroup_open(d->spec.where, c, err);
		if (r < 0)
			return r;
		/* Its name, from where it was asked for. */
		if (strlen(cgroup_name(c)) > IPC_SANDBOX_WHERE_MAX)
			return err_set(err, -EINVAL,
				       "the path of the cgroup is longer than %d",
				       IPC_SANDBOX_WHERE_MAX);
		snprintf(d->spec.where, sizeof(d->spec.where), "%s", cgroup_name(c));
	}
	if (asprintf(&d->dir, "/proc/self/fd/%d%s", d->daemon->host.hierarchy,
		     d->spec.where) < 0) {
		d->dir = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	if (d->life.origin != LIFECYCLE_NEW)
		return find_again(d, c, err);
	/* The cgroup was found where it is mounted; from now on by its name. Whatever
	 * happens to it from now on is noticed. */
	id = c->id;
	r = cgroup_watch_start(d, err);
	if (r == 0)
		r = cgroup_find(d->daemon->host.hierarchy, d->spec.where, c, err);
	if (r == 0 && c->id != id)
		r = err_set(err, -ESTALE, "'%.200s' is another cgroup by now",
			    d->spec.where);
	return r < 0 ? r : found_cgroup(d, c, err);
}

int host_find(struct daemon_sandbox *d, struct err *err)
{
	const struct sandbox_ports ports = { SUPERVISOR_DNS_PORT, SUPERVISOR_RELAY_PORT };
	struct host *h = &d->daemon->host;
	int r = d->spec.member == MEMBER_CGROUP ? find_cgroup(d, err) : find_user(d, err);

	if (r == 0 && d->life.origin == LIFECYCLE_NEW && h->state == HOST_FAILED)
		r = err_set(err, -EIO,
			    "the filter of the host's sandboxes can't be "
			    "installed");
	if (r < 0 || h->state != HOST_NONE)
		return r;
	/* The first sandbox of the host's own: open what is served. */
	r = sandbox_netlink_open(&h->conntrack_fd, err);
	if (r == 0)
		r = sandbox_fds_open(&h->fds, &ports, supervisor_has_ipv6(), err);
	if (r == 0) {
		host_change(h, HOST_ON_OPENED);
		return 0;
	}
	fd_close(&h->conntrack_fd);
	return err_context(err, "cannot serve sandboxes of the host");
}

/* -- asked for again ---------------------------------------------------------------- */

/* A namespace is identified only by opening it, so two requests never count as the
 * same. */
static bool is_same(const struct daemon_sandbox *d, const struct ipc_sandbox *asked)
{
	CLEAN(mem) struct cgroup *c = NULL;

	if (d->spec.kind != ATTACH_HOST || asked->kind != ATTACH_HOST ||
	    d->spec.member != asked->member)
		return false;
	if (asked->member != MEMBER_CGROUP)
		return strcmp(asked->where, d->spec.where) == 0;
	c = calloc(1, sizeof(*c));
	return c && cgroup_open(asked->where, c, NULL) == 0 &&
	       strcmp(cgroup_name(c), d->spec.where) == 0;
}

int host_again(struct daemon_sandbox *d, const struct ipc_sandbox *asked, uint32_t ask,
	       struct err *err)
{
	struct ipc_message m = {
		.type = IPC_ATTACHED, .sandbox = d->id, .ask = ask, .attached = d->spec
	};

	if (!is_same(d, asked))
		return err_set(err, -EEXIST, "sandbox '%s' is something else",
			       d->spec.name);
	if (asked->guard_parent && !d->spec.guard_parent)
		return err_set(err, -EEXIST,
			       "sandbox '%s' was attached without its parent's guard",
			       d->spec.name);
	/* It may be another one since a moment ago. */
	if (d->dir)
		cgroup_watch_check(d);
	if (d->is_cgroup_gone || lifecycle_is_ending(&d->life))
		return err_set(err, -ENOENT, "sandbox '%s' is gone", d->spec.name);
	if (d->life.state == LIFECYCLE_ACTIVE) {
		daemon_send_control(d->daemon, &m, NULL);
	} else {
		d->control = CONTROL_ASKS;
		d->ask = ask;
	}
	return 0;
}

/* -- reports ------------------------------------------------------------------------ */

void host_report(const struct daemon_sandbox *d, const char *text)
{
	daemon_send_text(d->daemon, 0, IPC_HAPPENED, d->id, text);
}

int host_settle(struct daemon_sandbox *d, struct err *err)
{
	CLEAN(mem) struct cgroup *c = d->dir ? calloc(1, sizeof(*c)) : NULL;
	const struct before_who who = { c, d->member.uid, d->join.pid };
	int r;

	if (d->dir && !c)
		return err_set(err, -ENOMEM, "out of memory");
	/* The cgroup as it is now; it may be gone. */
	r = c ? cgroup_find(d->daemon->host.hierarchy, d->spec.where, c, err) : 0;
	return r < 0 ? r : before_end(&who, &d->ended, err);
}

void host_report_settled(const struct daemon_sandbox *d)
{
	struct ipc_audit look;
	char text[64];

	if (d->ended > 0) {
		snprintf(text, sizeof(text), "%zu connections from before were ended",
			 d->ended);
		host_report(d, text);
	}
	if (!d->dir)
		return;
	look = host_audit(d);
	if (!look.known)
		log_warning("sandbox '%s': whether its processes have sockets from "
			    "outside can't be seen, or not in time",
			    d->spec.name);
	if (look.strays == 0)
		return;
	log_warning("sandbox '%s': %u sockets of its processes (one is %d) were made "
		    "outside of the cgroup: the filter doesn't hold them",
		    d->spec.name, look.strays, (int)look.stray_of);
	snprintf(text, sizeof(text), "%u sockets from outside are not held", look.strays);
	host_report(d, text);
}

/* -- users by name ------------------------------------------------------------------ */

int daemon_sandbox_user(struct ipc_sandbox *spec, struct err *err)
{
	uint32_t uid = 0;
	const struct passwd *p = NULL;
	FILE *file;

	if (spec->kind != ATTACH_HOST || spec->member != MEMBER_UID ||
	    text_to_u32(text_of(spec->where), UINT32_MAX - 1, &uid))
		return 0;
	/* Among the machine's own users: other sources of names may take long to ask, and
	 * what is guarded must not wait for them. `weir attach` asks all. */
	file = fopen("/etc/passwd", "re");
	while (file && (p = fgetpwent(file)) && strcmp(p->pw_name, spec->where) != 0)
		continue;
	if (p)
		uid = p->pw_uid;
	if (file)
		fclose(file);
	if (!p)
		return err_set(err, -ENOENT, "there is no user '%.80s' in /etc/passwd",
			       SHOWN(spec->where));
	if (uid == 0)
		return err_set(err, -EINVAL, "root is not a user to be guarded");
	snprintf(spec->where, sizeof(spec->where), "%u", uid);
	return 0;
}
