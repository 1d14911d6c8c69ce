// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     daemon ──fork──> engine            holds every sandbox
 *        ├──exec──> weir-control daemon  HTTP on the unix socket
 *        └──fork──> spawner ──fork──> a child that goes into the namespaces, one by one
 *
 * A daemon is a supervisor (supervisor/supervisor.c): children that end are started
 * again, control is answered after the kernel has what it asked for, no rule is removed
 * but by a detach that was asked for. What a sidecar's supervisor holds once, the daemon
 * holds for each sandbox. More engines have a daemon each: see daemon/engines.c. */
#include "daemon/daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "daemon/internal.h"
#include "settings/settings.h"
#include "sys/cgroup.h"
#include "sys/files.h"
#include "sys/process.h"

static_assert((int)CLI_DAEMON_ENGINES_MAX == (int)IPC_ENGINES_MAX,
	      "what can be asked for");

/* -- systemd ------------------------------------------------------------------------ */

/* One datagram to the socket that systemd waits at, if it started us. */
static void notify(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = -1;
	size_t len = path ? strlen(path) : 0;

	if (len == 0 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(to.sun_path, path, len);
	if (path[0] == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
			      (const struct sockaddr *)&to,
			      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

static void on_watchdog(struct loop_timer *t)
{
	struct daemon *w = CONTAINER_OF(t, struct daemon, watchdog);

	/* A daemon whose engine doesn't come is started again by systemd. */
	if (supervisor_is_alive(&w->supervisor))
		notify(w->is_ready_notified ? "WATCHDOG=1"
					    : "EXTEND_TIMEOUT_USEC=30000000");
	loop_timer_need(w->supervisor.loop, t, w->watchdog_ms);
}

static int start_watchdog(struct daemon *w)
{
	const char *text = getenv("WATCHDOG_USEC");
	uint32_t usec;

	if (!text || !text_to_u32(text_of(text), UINT32_MAX, &usec) || usec < 4000)
		return 0;
	/* Four times in what systemd waits for: an engine that is started again may cost
	 * one or two of them. */
	w->watchdog_ms = usec / 4000;
	w->watchdog.on_fire = on_watchdog;
	return loop_timer_in(w->supervisor.loop, &w->watchdog, w->watchdog_ms);
}

/* -- the engine --------------------------------------------------------------------- */

static struct daemon *daemon_of(struct supervisor *k)
{
	return CONTAINER_OF(k, struct daemon, supervisor);
}

static void configure_engine(const struct supervisor *k, struct engine_config *c)
{
	c->enforce = ENFORCED_FILTER;
	c->filter.relay = true;
}

static void on_engine(struct supervisor *k, struct ipc_message *m)
{
	struct daemon *w = daemon_of(k);

	if (m->type == IPC_READY) {
		w->engine_ready = true;
		attach_queue_next(w);
	} else if (m->type == IPC_HOST_ACTIVE) {
		host_on_engine(w, m);
		attach_queue_next(w);
	} else {
		daemon_sandbox_on_engine(w, m);
	}
}

void daemon_report_lacking(struct daemon *w)
{
	const char *text = w->host.state == HOST_FAILED
				   ? "the filter of the host's sandboxes can't be "
				     "installed; what stood before stays"
			   : w->lacks ? w->lacking
				      : "";

	if (strcmp(w->supervisor.reason, text) == 0)
		return;
	snprintf(w->supervisor.reason, sizeof(w->supervisor.reason), "%s", text);
	supervisor_notify_status(&w->supervisor);
}

void daemon_on_all_attached(struct daemon *w)
{
	const struct ipc_message active = { .type = IPC_ACTIVE };
	struct err err = { 0 };

	w->supervisor.engine.serves = true;
	if (w->engine == 0 && supervisor_listen(&w->supervisor.fds, &err) < 0) {
		log_error("%s", err.text);
		w->supervisor.exit_status = RUN_STATUS_FAILED;
		loop_stop(w->supervisor.loop);
		return;
	}
	if (w->engine == 0) {
		cgroup_guard_clear(w);
		daemon_notify_ready(w);
	} else {
		(void)!ipc_send(w->parent.fd, &active, NULL, 0);
	}
	supervisor_introduce(&w->supervisor);
}

void daemon_notify_ready(struct daemon *w)
{
	if (w->is_ready_notified || !w->supervisor.engine.serves ||
	    !engines_are_active(w))
		return;
	notify("READY=1");
	w->is_ready_notified = true;
}

/* The engine's successor gets all sandboxes that were active or on their way. */
static void on_engine_end(struct supervisor *k)
{
	struct daemon *w = daemon_of(k);

	w->engine_ready = false;
	w->attaching = 0;
	host_change(&w->host, HOST_ON_ENGINE_END);
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = w->sandboxes[id];

		if (d)
			daemon_sandbox_on_engine_end(d);
	}
}

/* -- control ------------------------------------------------------------------------ */

void daemon_send_control(struct daemon *w, const struct ipc_message *m, const int *fd)
{
	child_notify(&w->supervisor.control, m, fd);
}

void daemon_send_text(struct daemon *w, uint32_t ask, uint32_t type, uint32_t sandbox,
		      const char *text)
{
	struct ipc_message m = { .type = type, .sandbox = sandbox, .ask = ask };

	snprintf(m.text, sizeof(m.text), "%s", text);
	daemon_send_control(w, &m, NULL);
}

static void on_attach(struct daemon *w, const struct ipc_message *m, int *fds)
{
	struct daemon_sandbox given = {
		.spec = m->attached,
		.control = CONTROL_ASKS,
		.ask = m->ask,
		.ns_dev = m->attached.ns_dev,
		.ns_ino = m->attached.ns_ino,
	};
	struct err err = { 0 };
	int r;

	given.spec.name[IPC_SANDBOX_NAME_MAX] = '\0';
	given.spec.where[IPC_SANDBOX_WHERE_MAX] = '\0';
	r = daemon_sandbox_user(&given.spec, &err);
	if (r == 0)
		r = daemon_sandbox_attach(w, &given, TAKE_FD(fds[0]), TAKE_FD(fds[1]),
					  &err);
	if (r < 0)
		daemon_send_text(w, m->ask, r == -EMFILE ? IPC_FULL : IPC_REFUSED, 0,
				 err.text);
}

static void on_whose(struct daemon *w, const struct ipc_message *m)
{
	struct ipc_message found = { .type = IPC_WHO, .ask = m->ask };
	struct daemon_sandbox d = { .daemon = w, .spec = m->attached };
	struct err err = { 0 };
	CLEAN(fd) int ns = -1;

	d.spec.name[IPC_SANDBOX_NAME_MAX] = '\0';
	d.spec.where[IPC_SANDBOX_WHERE_MAX] = '\0';
	if (daemon_sandbox_check(&d.spec, &err) < 0 ||
	    netns_child_find(&d, &ns, &err) < 0) {
		daemon_send_text(w, m->ask, IPC_REFUSED, 0, err.text);
		return;
	}
	found.attached = daemon_sandbox_as_reported(&d);
	daemon_send_control(w, &found, NULL);
}

static void on_more(struct daemon *w, uint32_t ask)
{
	const struct ipc_message more = { .type = IPC_MORE, .ask = ask };
	struct err err = { 0 };
	int r = w->engine == 0 ? engines_add(w, &err)
			       : err_set(&err, -EPERM,
					 "this is not the first engine's supervisor");

	if (r < 0)
		daemon_send_text(w, ask, IPC_REFUSED, 0, err.text);
	else
		daemon_send_control(w, &more, NULL);
}

static void on_again(struct daemon *w, const struct ipc_message *m)
{
	struct daemon_sandbox *d = daemon_sandbox_find(w, m->sandbox);
	struct ipc_sandbox spec = m->attached;
	struct err err = { 0 };

	spec.name[IPC_SANDBOX_NAME_MAX] = '\0';
	spec.where[IPC_SANDBOX_WHERE_MAX] = '\0';
	if (!d)
		err_set(&err, -ENOENT, "there is no such sandbox");
	else if (daemon_sandbox_user(&spec, &err) == 0)
		(void)!host_again(d, &spec, m->ask, &err);
	if (err.code < 0)
		daemon_send_text(w, m->ask, IPC_REFUSED, m->sandbox, err.text);
}

static void on_detach(struct daemon *w, uint32_t ask, uint32_t sandbox)
{
	struct daemon_sandbox *d = daemon_sandbox_find(w, sandbox);
	/* Else it may be one that is yet to be guarded again. */
	const bool is_gone = !d && w->restored && !w->lacks;

	if (!d || d->life.state != LIFECYCLE_ACTIVE || !w->engine_ready) {
		daemon_send_text(w, ask, IPC_DETACHED, sandbox,
				 is_gone ? ""
					 : "it is just being changed, or the engine is "
					   "being started");
		return;
	}
	state_forget(d);
	d->control = CONTROL_ASKS;
	d->ask = ask;
	daemon_sandbox_detach(d, false);
}

static bool is_listed(const struct daemon_sandbox *d)
{
	return d && d->control != CONTROL_ASKS && !lifecycle_is_ending(&d->life);
}

static void on_list(struct daemon *w, uint32_t ask, uint32_t after)
{
	struct ipc_message m = { .type = IPC_LISTED, .ask = ask };
	const struct daemon_sandbox *d = NULL;
	CLEAN(fd) int text = -1;

	/* Sandboxes on their way are reported when they are active. */
	while (after < SANDBOXES_MAX && !is_listed(d))
		d = w->sandboxes[++after];
	if (!is_listed(d)) {
		daemon_send_control(w, &m, NULL);
		return;
	}
	m.sandbox = d->id;
	m.attached = daemon_sandbox_as_reported(d);
	text = state_text(d);
	if (text < 0)
		log_error("cannot read the policy of '%s': %s", d->spec.name,
			  strerror(-text));
	daemon_send_control(w, &m, text < 0 ? NULL : &text);
}

static void on_audit(struct daemon *w, uint32_t ask, uint32_t sandbox)
{
	const struct daemon_sandbox *d = daemon_sandbox_find(w, sandbox);
	struct ipc_message m = { .type = IPC_AUDITED, .sandbox = sandbox, .ask = ask };

	if (d && d->life.state == LIFECYCLE_ACTIVE)
		m.audit = d->spec.kind == ATTACH_HOST ? host_audit(d) : netns_audit(d);
	if (d)
		m.audit.unseen = d->is_unseen;
	daemon_send_control(w, &m, NULL);
}

static void on_stop(struct daemon *w, uint32_t sandbox)
{
	const struct daemon_sandbox *d = daemon_sandbox_find(w, sandbox);
	struct err err = { 0 };

	if (!d || !d->dir)
		return;
	if (cgroup_kill(d->dir, &err) < 0)
		log_error("sandbox '%s' is closed, but %s", d->spec.name, err.text);
	else
		log_warning("sandbox '%s' is closed: its processes were killed",
			    d->spec.name);
}

static void on_replace_policy(struct daemon *w, const struct ipc_message *m, int *fds)
{
	const struct ipc_message kept = { .type = IPC_KEPT,
					  .sandbox = m->sandbox,
					  .ask = m->ask };
	struct daemon_sandbox *d = daemon_sandbox_find(w, m->sandbox);
	struct err err = { 0 };

	if (!d)
		err_set(&err, -ENOENT, "there is no such sandbox");
	else
		(void)!daemon_sandbox_replace_policy(d, TAKE_FD(fds[0]), TAKE_FD(fds[1]),
						     &err);
	if (err.code < 0)
		daemon_send_text(w, m->ask, IPC_REFUSED, m->sandbox, err.text);
	else
		daemon_send_control(w, &kept, NULL);
}

static void on_control(struct supervisor *k, const struct ipc_message *m, int *fds,
		       size_t count)
{
	struct daemon *w = daemon_of(k);

	if (m->type == IPC_ADD && count == 2)
		on_attach(w, m, fds);
	else if (m->type == IPC_AGAIN)
		on_again(w, m);
	else if (m->type == IPC_KEEP && count == 2)
		on_replace_policy(w, m, fds);
	else if (m->type == IPC_DETACH)
		on_detach(w, m->ask, m->sandbox);
	else if (m->type == IPC_LIST)
		on_list(w, m->ask, m->sandbox);
	else if (m->type == IPC_AUDIT)
		on_audit(w, m->ask, m->sandbox);
	else if (m->type == IPC_STOP)
		on_stop(w, m->sandbox);
	else if (m->type == IPC_WHO)
		on_whose(w, m);
	else if (m->type == IPC_MORE)
		on_more(w, m->ask);
	else if (m->type == IPC_STUCK)
		engines_kill(w, m->sandbox);
}

static pid_t start_socket_owner(struct supervisor *k, int channel)
{
	const struct spawner_order order = { .task = SPAWNER_SOCKET_OWNER };
	struct err ignored = { 0 };

	return spawner_order(&daemon_of(k)->spawner, &order, &channel, 1, &ignored);
}

static const struct supervisor_ops ops = {
	.configure_engine = configure_engine,
	.on_engine = on_engine,
	.on_engine_end = on_engine_end,
	.on_control = on_control,
	/* Before control hears of the first engine: it is not to take that for all there
	 * are. */
	.on_control_start = engines_introduce,
	.start_socket_owner = start_socket_owner,
};

/* -- where the API listens ---------------------------------------------------------- */

enum {
	SOCKET_MODE = 0660,
	SERVED_TRIES = 50,
	SERVED_MS = 20,
};

/* Another daemon answers there. One that was killed may hold the socket for a moment
 * longer. */
static bool stays_served(const struct sockaddr_un *sa)
{
	for (int i = 0; i < SERVED_TRIES; i++) {
		CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0)
			return false;
		(void)!poll(NULL, 0, SERVED_MS);
	}
	return true;
}

/* Give the socket to root and, where there is one, to the group. Whoever may replace
 * the file at @path would choose what the group gets, and be asked instead of the
 * daemon. */
static int share_with_group(const char *path, struct err *err)
{
	const struct group *g = getgrnam("weir");
	CLEAN(path) struct path p = { .fd = -1 };
	int r = path_open_as(PATH_WAY, path, &p, err);
	char self[32];

	if (r < 0)
		return r;
	if (!S_ISSOCK(p.st.st_mode) || p.st.st_uid != geteuid())
		return err_set(err, -EPERM, "another file stands at '%s'", path);
	snprintf(self, sizeof(self), "/proc/self/fd/%d", p.fd);
	if ((g && fchownat(p.fd, "", 0, g->gr_gid, AT_EMPTY_PATH) < 0) ||
	    chmod(self, SOCKET_MODE) < 0)
		return err_sys(err, -errno, "cannot give '%s' its mode", path);
	return 0;
}

/* The API's, at @path, bound as supervisor_open_http() does. -EADDRINUSE: another daemon
 * has it. */
static int daemon_open_socket(const char *path, int *ret, struct err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t old;
	int r;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, -EINVAL, "'%.100s' is too long for a socket", path);
	memcpy(sa.sun_path, path, strlen(path));
	if (stays_served(&sa))
		return err_set(err, -EADDRINUSE, "another daemon serves '%s'", path);
	(void)!unlink(path);
	old = umask(0177);
	r = fd < 0 || bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
	umask(old);
	if (r < 0)
		return err_sys(err, r, "cannot serve the API at '%s'", path);
	r = share_with_group(path, err);
	if (r < 0)
		return err_context(err, "cannot serve the API");
	*ret = TAKE_FD(fd);
	return 0;
}

/* -- start -------------------------------------------------------------------------- */

/* What every daemon has. */
static int open_own(struct daemon *w, struct err *err)
{
	struct supervisor *k = &w->supervisor;
	struct rlimit ignored;

	(void)!process_raise_files(&ignored);
	w->home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	k->fds.text_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return w->home < 0 || k->fds.text_fd < 0
		       ? err_sys(err, -errno, "cannot open the daemon's own namespace")
		       : 0;
}

static int start(struct daemon *w, struct err *err)
{
	struct supervisor *k = &w->supervisor;
	struct err ignored = { 0 };
	size_t engines;
	int r = supervisor_prepare(k, err);

	if (r == 0 && supervisor_check_right(&ignored) < 0)
		r = err_set(err, ignored.code,
			    "CAP_NET_ADMIN is missing: this has to be root");
	if (r == 0)
		r = supervisor_check_programs(k, err);
	/* Before there is anything that it would have to close. */
	if (r == 0)
		r = spawner_start(&w->spawner, err);
	if (r == 0)
		r = state_open(w, k->spec->run_dir, err);
	if (r == 0)
		r = daemon_open_socket(k->spec->socket, &k->fds.http_fd, err);
	if (r == 0 && k->spec->http_addr)
		r = supervisor_open_http(k->spec, supervisor_has_ipv6(), &k->fds.tls_fd,
					 err);
	if (r < 0)
		return r;
	supervisor_open_directories(k->spec);
	r = open_own(w, err);
	if (r < 0)
		return r;
	ended_start(w);
	r = engines_rebalance(w, k->spec->engines, &engines, err);
	while (r == 0 && w->engine_count < engines)
		r = engines_add(w, err);
	if (r == 0)
		r = child_start(&k->engine, err);
	if (r == 0 && (gone_start(w) < 0 || start_watchdog(w) < 0))
		r = err_set(err, -ENOMEM, "out of memory");
	if (r < 0)
		return r;
	child_start_if_needed(&k->control);
	state_restore_first(w);
	return 0;
}

static struct daemon *daemon_new(struct sidecar_spec *spec, uint32_t engine)
{
	struct daemon *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->supervisor = (struct supervisor){
		.ops = &ops,
		.spec = spec,
		.args = spec->argv,
	};
	supervisor_fds_init(&w->supervisor.fds);
	w->engine = engine;
	w->engine_count = 1;
	w->spawner.channel = w->inside = w->parent.fd = -1;
	sandbox_fds_init(&w->host.fds);
	w->host.conntrack_fd = w->host.inotify.fd = w->host.hierarchy = -1;
	for (size_t i = 0; i < LIFECYCLE_ORIGIN_COUNT; i++)
		TAILQ_INIT(&w->queues[i]);
	return w;
}

int daemon_run_further(struct sidecar_spec *spec, uint32_t number, int channel)
{
	struct daemon *w = daemon_new(spec, number);
	struct err err = { 0 };
	struct supervisor *k;
	int r;

	if (!w)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	k = &w->supervisor;
	r = supervisor_prepare(k, &err);
	if (r == 0)
		r = spawner_start(&w->spawner, &err);
	if (r == 0)
		r = state_open(w, k->spec->run_dir, &err);
	if (r == 0)
		r = open_own(w, &err);
	if (r == 0)
		r = engines_listen_to_first(w, channel, &err);
	if (r == 0)
		r = child_start(&k->engine, &err);
	if (r == 0 && gone_start(w) < 0)
		r = err_set(&err, -ENOMEM, "out of memory");
	if (r == 0) {
		state_restore_first(w);
		r = loop_run(k->loop);
	}
	if (err.code < 0)
		log_error("%s", err.text);
	return r < 0 ? RUN_STATUS_FAILED : 0;
}

int daemon_run(struct sidecar_spec *spec)
{
	struct daemon *w = daemon_new(spec, 0);
	struct err err = { 0 };
	int r;

	if (!w)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	r = start(w, &err);
	if (r < 0)
		return log_end(r == -EINVAL ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED,
			       "%s", err.text);
	r = loop_run(w->supervisor.loop);
	notify("STOPPING=1");
	(void)!unlink(spec->socket);
	return r < 0 ? RUN_STATUS_FAILED : w->supervisor.exit_status;
}
