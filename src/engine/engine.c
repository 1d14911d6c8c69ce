// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * An engine has one sandbox that never leaves (`weir run`, `weir sidecar`), or is given
 * any number of them while it runs (`weir daemon`). Each comes by an attach, whose kind
 * says how the sandbox is recognised:
 *
 *   SHARED       the supervisor starts the engine with it
 *   OWNED        the engine is started with the plan and the self-test; the launch child
 *                adds the descriptors that it has made in the new namespace (IPC_ATTACH)
 *   NETNS, HOST  the daemon sends all of it (IPC_ATTACH)
 *
 * From there all kinds take the same way: open_sandbox(), begin_attach(),
 * engine_sandbox_activate(), engine_attached(). The engine hears the supervisor, whose
 * end is the engine's, and control (control.c). */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/harden.h"
#include "engine/host.h"
#include "engine/internal.h"
#include "sandbox/plan_file.h"
#include "sys/process.h"

/* For Docker's resolver, if that is the one to ask: a millisecond, when all is well. */
enum { SETTLE_MS = 250 };

void engine_report(struct engine *e, const struct ipc_message *m)
{
	int fd = e->config.attach_fd;

	/* Without a supervisor no engine follows this one: the rules stay. */
	if (ipc_send(fd >= 0 ? fd : e->config.supervisor_fd, m, NULL, 0) < 0)
		loop_stop(e->core.loop);
}

static void tell_supervisor(const struct engine *e, uint32_t type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(e->config.supervisor_fd, &m, NULL, 0);
}

void engine_report_text(struct engine *e, uint32_t type, uint32_t sandbox,
			const char *text)
{
	struct ipc_message m = { .type = type, .sandbox = sandbox };

	snprintf(m.text, sizeof(m.text), "%s", text);
	engine_report(e, &m);
}

void engine_attached(struct engine_sandbox *g, const char *why)
{
	struct ipc_message m = { .type = IPC_ACTIVE, .sandbox = g->sandbox.id };

	if (why[0]) {
		engine_report_text(engine_of(g), IPC_REFUSED, g->sandbox.id, why);
		return;
	}
	engine_sandbox_status(g, &m.status);
	engine_report(engine_of(g), &m);
}

/* -- a sandbox comes ---------------------------------------------------------------- */

/* What a sandbox of its kind can't do without. */
static bool is_complete(const struct engine_sandbox *g)
{
	const int *fds = g->sandbox.fds.fd;

	if (g->kind == ATTACH_HOST || g->kind == ATTACH_SHARED)
		return true;
	return fds[SANDBOX_FD_NETLINK] >= 0 && fds[SANDBOX_FD_NFLOG] >= 0 &&
	       fds[SANDBOX_FD_DNS_UDP4] >= 0 && fds[SANDBOX_FD_DNS_TCP4] >= 0 &&
	       (g->route_fd >= 0) == (g->kind == ATTACH_NETNS);
}

/* @g becomes what @a and @fds say; what it keeps of @fds is -1 then. */
static int open_sandbox(const struct engine *e, struct engine_sandbox *g,
			const struct ipc_attach *a, struct ipc_fds *fds, struct err *err)
{
	const struct engine_config *c = &e->config;
	const struct text probe_name = { a->probe_name,
					 strnlen(a->probe_name, sizeof(a->probe_name)) };
	struct sandbox *s = &g->sandbox;
	int r;

	/* A restored sandbox has had its descriptors before. New ones get the lowest
	 * numbers that are free, and those of the plan and the snapshot are free again
	 * soon. */
	for (size_t i = 0; i < IPC_FD_COUNT && !a->restarted; i++)
		if (fds->fd[i] >= e->fds_max)
			return err_set(err, -EMFILE,
				       "the engine has too few descriptors for another "
				       "sandbox (RLIMIT_NOFILE)");
	g->observer = a->kind == ATTACH_OWNED ? &engine_run_observer
					      : &engine_control_observer;
	g->enforce = c->enforce;
	g->restarted = a->restarted;
	g->remade = a->remade;
	g->owner = a->owner;
	s->ipv6 = a->ipv6;
	s->shared_params = c->filter;
	s->owned_params = c->owned_filter;
	s->member = a->member;
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		s->fds.fd[i] = TAKE_FD(fds->fd[i]);
	g->route_fd = TAKE_FD(fds->fd[IPC_FD_ROUTE]);
	s->probe_addr = a->probe_addr;
	s->probe_port = a->probe_port;
	if (probe_name.len > 0 && dns_name_parse(probe_name, &s->probe_name) < 0)
		return err_set(err, -EBADMSG, "the self-test's name is malformed");
	if (!is_complete(g))
		return err_set(err, -EBADMSG, "a descriptor of the sandbox is missing");
	/* An engine before this one had the same sockets, and may have been anybody's. */
	r = sandbox_fds_dont_wait(&s->fds);
	if (r < 0)
		return err_sys(err, r, "cannot use the sandbox's sockets");
	r = plan_file_map(fds->fd[IPC_FD_PLAN], &g->plan, err);
	if (r == 0 && fds->fd[IPC_FD_SNAPSHOT] >= 0)
		(void)!engine_sandbox_snapshot_map(g, fds->fd[IPC_FD_SNAPSHOT]);
	return r;
}

static void destroy(struct engine_sandbox *g)
{
	engine_sandbox_done(g);
	free(g);
}

/* Return: 1, another turn is needed. */
static int stage(struct engine *e, struct engine_sandbox *g)
{
	bool relay = plan_verify(&g->plan) == POLICY_VERIFY_TLS;
	struct err ignored = { 0 };

	if (g->kind != ATTACH_HOST || !e->core.host)
		return 0;
	return filter_host_stage(e->core.host->table, (uint16_t)g->sandbox.id, &g->plan,
				 relay, &e->coming_stage, &ignored);
}

static void finish_attach(struct engine *e, struct engine_sandbox *g,
			  struct filter_host_stage *staged)
{
	struct err err = { 0 };
	uint32_t id = g->sandbox.id;
	bool is_only = e->config.attach.kind != ATTACH_NONE;

	if (engine_sandbox_activate(g, &e->core, &err) < 0) {
		destroy(g);
		engine_report_text(e, IPC_REFUSED, id, err.text);
	} else {
		if (is_only)
			e->only = g;
		/* `weir run` waits for the names as well: on_run_pinned() in control.c.
		 */
		if (g->kind != ATTACH_OWNED || plan_dns(&g->plan) != POLICY_DNS_PINNED)
			engine_attached(g, "");
	}
	if (staged)
		filter_host_stage_end(e->core.host->table, staged);
}

static void on_coming(struct loop_deferred *d)
{
	struct engine *e = CONTAINER_OF(d, struct engine, coming_turn);

	if (stage(e, e->coming) > 0)
		loop_defer(e->core.loop, d);
	else
		finish_attach(e, TAKE_PTR(e->coming), TAKE_PTR(e->coming_stage));
}

static void begin_attach(struct engine *e, struct engine_sandbox *g)
{
	if (e->coming || stage(e, g) <= 0) {
		finish_attach(e, g, e->coming ? NULL : TAKE_PTR(e->coming_stage));
		return;
	}
	e->coming = g;
	e->coming_turn.run = on_coming;
	loop_defer(e->core.loop, &e->coming_turn);
}

/* What this engine was started with, and what @m and @all add to it. */
static int complete_attach(const struct engine *e, const struct ipc_message *m,
			   struct ipc_attach *ret, struct err *err)
{
	const struct ipc_attach *own = &e->config.attach;
	const struct ipc_attach *a = &m->attach;

	if (e->only)
		return err_set(err, -EPERM, "this engine has its sandbox");
	*ret = own->kind == ATTACH_OWNED ? *own : *a;
	if (own->kind == ATTACH_OWNED) {
		ret->ipv6 = own->ipv6 && a->ipv6;
		ret->owner = a->owner;
	}
	if (own->kind == ATTACH_OWNED ? a->kind != ATTACH_OWNED || m->sandbox != 0
				      : a->kind != ATTACH_NETNS && a->kind != ATTACH_HOST)
		return err_set(err, -EBADMSG, "the attach message is malformed");
	if (a->kind == ATTACH_HOST && !e->core.host && e->no_host[0])
		return err_set(err, -ENOTCONN, "%s", e->no_host);
	return 0;
}

static void on_attach(struct engine *e, const struct ipc_message *m, int *fds,
		      size_t count)
{
	struct engine_sandbox *old = engine_core_find(&e->core, m->sandbox);
	struct engine_sandbox *g = calloc(1, sizeof(*g));
	struct ipc_attach attach;
	struct ipc_fds all = e->config.fds;
	struct err err = { 0 };
	int r;

	ipc_fds_init(&e->config.fds, NULL);
	/* A cgroup was made again: what comes takes the place of the old one, in one
	 * transaction. */
	if (old && (old->kind != ATTACH_HOST || m->attach.kind != ATTACH_HOST))
		old = NULL;
	if (old)
		engine_sandbox_leave(old);
	r = g ? complete_attach(e, m, &attach, &err)
	      : err_set(&err, -ENOMEM, "out of memory");
	if (r == 0 && ipc_take_fds(m, fds, count, &all) < 0)
		r = err_set(&err, -EBADMSG, "a descriptor of the sandbox is missing");
	if (g) {
		engine_sandbox_init(g, (enum attach_kind)m->attach.kind, m->sandbox);
		g->evaluated_ms = e->config.evaluated_ms;
	}
	if (r == 0)
		r = open_sandbox(e, g, &attach, &all, &err);
	ipc_fds_done(&all);
	if (r == 0 && old) {
		g->sandbox.denies = old->sandbox.denies;
		g->sandbox.asks = TAKE_PTR(old->sandbox.asks);
	} else if (old) {
		engine_sandbox_forget_rules(old);
	}
	if (old)
		destroy(old);
	if (r == 0) {
		begin_attach(e, g);
		return;
	}
	if (g)
		destroy(g);
	engine_report_text(e, IPC_REFUSED, m->sandbox, err.text);
}

/* -- and goes ----------------------------------------------------------------------- */

static int remove_rules(struct engine *e, struct engine_sandbox *g, struct err *err)
{
	int r = engine_sandbox_remove_rules(g, err);

	/* Others may just have taken the host's table away. */
	if (r < 0 && g->sandbox.host && engine_host_mend(e->core.host)) {
		*err = (struct err){ 0 };
		r = engine_sandbox_remove_rules(g, err);
	}
	return r;
}

/* Give up the sandbox that is on its way. The host's table may have an older member of
 * its id, whose rules stay. */
static void cancel_coming(struct engine *e)
{
	struct engine_sandbox *g = TAKE_PTR(e->coming);

	loop_defer_cancel(e->core.loop, &e->coming_turn);
	if (e->coming_stage)
		filter_host_stage_end(e->core.host->table, TAKE_PTR(e->coming_stage));
	filter_host_forget(e->core.host->table, (uint16_t)g->sandbox.id);
	destroy(g);
}

static void on_detach(struct engine *e, const struct ipc_message *m)
{
	struct engine_sandbox *g = engine_core_find(&e->core, m->sandbox);
	const bool is_coming = e->coming && e->coming->sandbox.id == m->sandbox;
	struct err err = { 0 };

	if (is_coming)
		cancel_coming(e);
	/* The host's table may have a sandbox of that id, which no engine serves. */
	if (!g && e->core.host && !m->attach.forget && m->sandbox <= IPC_SANDBOXES_MAX &&
	    filter_host_is_forgotten(e->core.host->table, (uint16_t)m->sandbox)) {
		(void)!filter_host_remove(e->core.host->table, (uint16_t)m->sandbox,
					  &err);
	} else if (is_coming) {
		/* Nothing more of it is there. */
	} else if (!g || g == e->only) {
		err_set(&err, -ENOENT, "there is no such sandbox");
	} else {
		engine_sandbox_leave(g);
		if (m->attach.forget || remove_rules(e, g, &err) < 0)
			engine_sandbox_forget_rules(g);
		destroy(g);
	}
	engine_report_text(e, IPC_DETACHED, m->sandbox, err.text);
}

/* -- the host's own network --------------------------------------------------------- */

static void on_host(struct engine *e, const struct ipc_message *m, int *fds, size_t count)
{
	struct ipc_fds all;
	struct sandbox_fds own;
	struct err err = { 0 };

	ipc_fds_init(&all, NULL);
	if (e->config.attach.kind != ATTACH_NONE ||
	    ipc_take_fds(m, fds, count, &all) < 0 || all.fd[IPC_FD_CONNTRACK] < 0) {
		err_set(&err, -EBADMSG, "the message about the host is malformed");
	} else {
		for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
			own.fd[i] = TAKE_FD(all.fd[i]);
		(void)!engine_host_open(&e->core, &m->host, &own,
					TAKE_FD(all.fd[IPC_FD_CONNTRACK]), &err);
	}
	ipc_fds_done(&all);
	snprintf(e->no_host, sizeof(e->no_host), "%s", err.text);
}

static void on_host_load(struct engine *e)
{
	struct err err = { 0 };

	if (e->core.host)
		(void)!engine_host_load(e->core.host, &err);
	else
		err_set(&err, -ENOTCONN, "%s",
			e->no_host[0] ? e->no_host : "nothing is known of the host");
	engine_report_text(e, IPC_HOST_ACTIVE, 0, err.text);
}

/* -- the supervisor ----------------------------------------------------------------- */

/* The self-test has passed. */
static void on_run(struct engine *e, uint32_t sandbox)
{
	struct engine_sandbox *g = engine_core_find(&e->core, sandbox);

	if (!g || g->sandbox.probe_name.size == 0)
		return;
	engine_sandbox_begin(g);
	if (g->kind == ATTACH_OWNED)
		tell_supervisor(e, IPC_RUNNING, "");
}

/* `weir run` asked for it, so it reads: nothing of what is still to come may be dropped.
 */
static void on_finish(struct engine *e)
{
	struct ipc_message m = { .type = IPC_COUNTERS };

	if (fcntl(e->config.supervisor_fd, F_SETFL, 0) < 0) /* without O_NONBLOCK */
		loop_stop(e->core.loop);
	if (e->only) {
		engine_account_all(e->only);
		memcpy(m.counters, e->only->sandbox.counters,
		       sizeof(e->only->sandbox.counters));
	}
	engine_control_send(e, &m);
	loop_stop(e->core.loop);
}

/* A descriptor that is taken is -1 in @fds then. */
static void on_supervisor_message(struct engine *e, const struct ipc_message *m, int *fds,
				  size_t count)
{
	bool is_run = e->config.attach.kind == ATTACH_OWNED;

	if (m->type == IPC_PEER && count == 1)
		engine_control_take(e, TAKE_FD(fds[0]));
	else if (m->type == IPC_ATTACH && !is_run)
		on_attach(e, m, fds, count);
	else if (m->type == IPC_DETACH)
		on_detach(e, m);
	else if (m->type == IPC_HOST)
		on_host(e, m, fds, count);
	else if (m->type == IPC_HOST_LOAD)
		on_host_load(e);
	else if (m->type == IPC_ALIVE)
		engine_report(e, m);
	else if (m->type == IPC_RUN)
		on_run(e, m->sandbox);
	else if (m->type == IPC_FINISH && is_run)
		on_finish(e);
}

/* Return: as ipc_receive(). */
static int hear(struct engine *e, int fd,
		void (*on_message)(struct engine *e, const struct ipc_message *m,
				   int *fds, size_t count))
{
	int fds[IPC_FD_COUNT];
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(fd, &m, fds, ARRAY_SIZE(fds), &count);

	if (r < 0)
		return r;
	on_message(e, &m, fds, count);
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return 0;
}

static void on_supervisor(struct loop_source *source, uint32_t events)
{
	struct engine *e = CONTAINER_OF(source, struct engine, from_supervisor);
	int r = hear(e, source->fd, on_supervisor_message);

	if (r < 0 && r != -EAGAIN)
		loop_stop(e->core.loop);
}

/* One message, whatever it is; then the launch child has nothing more to say. */
static void on_launch(struct loop_source *source, uint32_t events)
{
	struct engine *e = CONTAINER_OF(source, struct engine, from_launch);

	loop_remove(e->core.loop, source);
	(void)!hear(e, source->fd, on_attach);
}

/* -- the process -------------------------------------------------------------------- */

/* The sidecar's sandbox; the upstream sockets have ports that its filter exempts. */
static int open_only(struct engine *e, struct err *err)
{
	const struct engine_config *c = &e->config;
	struct engine_sandbox *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return err_set(err, -ENOMEM, "out of memory");
	e->only = g;
	engine_sandbox_init(g, ATTACH_SHARED, 0);
	if (c->enforce != ENFORCED_NOTHING)
		sandbox_own_ports(&g->sandbox, c->filter.mark);
	r = open_sandbox(e, g, &c->attach, &e->config.fds, err);
	ipc_fds_done(&e->config.fds);
	return r;
}

static int engine_init(struct engine *e, struct err *err)
{
	const struct engine_config *c = &e->config;
	const enum attach_kind kind = (enum attach_kind)c->attach.kind;
	const bool changes = kind != ATTACH_OWNED && c->enforce != ENFORCED_NOTHING;
	struct dns_service_config dns = {
		.upstreams = c->upstreams,
		.upstream_count = c->upstream_count,
		.try_ms = c->try_ms,
		.probe_every_ms = c->probe_every_ms,
		.probe_name = c->probe_name,
		.on_trouble = kind == ATTACH_OWNED ? NULL : engine_control_on_trouble,
		.on_trouble_data = e,
	};
	struct rlimit files = { 0 };
	int r = harden_limits(err);

	e->fds_max = INT_MAX;
	if (r == 0 && kind == ATTACH_NONE && getrlimit(RLIMIT_NOFILE, &files) == 0)
		/* The daemon stops before that (daemon/engines.c). */
		e->fds_max = (int)(MIN(files.rlim_cur, (rlim_t)INT32_MAX) / 6 * 5);
	if (r == 0 && kind == ATTACH_SHARED)
		r = open_only(e, err);
	if (r < 0)
		return r;
	if (e->only)
		dns.own = e->only->sandbox.own;
	dns.may_come_back = dns.own.mark != 0;
	r = engine_core_init(&e->core, &dns, err);
	if (r < 0)
		return r;
	e->core.repin_ms = c->repin_ms;
	return harden_engine(changes ? UINT64_C(1) << CAP_NET_ADMIN : 0, e->core.missing,
			     err);
}

/* Nobody but its own processes lives in an OWNED namespace, and none of them can change
 * its filter: there is nothing to watch. */
static int begin(struct engine *e, struct err *err)
{
	const struct engine_config *c = &e->config;
	bool is_run = c->attach.kind == ATTACH_OWNED;
	int r = e->only ? engine_sandbox_activate(e->only, &e->core, err) : 0;

	if (r < 0)
		return r;
	if (!is_run &&
	    loop_timer_in(e->core.loop, &e->core.watch, ENGINE_WATCH_EVERY_MS) < 0)
		return err_set(err, -ENOMEM, "cannot watch the filter");
	e->from_supervisor =
		(struct loop_source){ .fd = c->supervisor_fd, .on_ready = on_supervisor };
	e->from_launch =
		(struct loop_source){ .fd = c->attach_fd, .on_ready = on_launch };
	/* While `weir run` is stopped (Ctrl-Z) the channel fills up: events then wait. */
	r = is_run ? process_dont_wait(c->supervisor_fd) : 0;
	if (r == 0)
		r = loop_add(e->core.loop, &e->from_supervisor, EPOLLIN);
	if (r == 0 && is_run)
		r = loop_add(e->core.loop, &e->from_launch, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the supervisor") : 0;
}

static void engine_run(const void *config)
{
	struct engine *e = calloc(1, sizeof(*e));
	int *keep[2 + IPC_FD_COUNT] = { 0 };
	struct err err = { 0 };
	int r;

	if (!e)
		return;
	e->config = *(const struct engine_config *)config;
	e->core.route_fd = -1;
	e->from_control.fd = -1;
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++)
		e->lent[i].fd = -1;
	keep[0] = &e->config.supervisor_fd;
	keep[1] = &e->config.attach_fd;
	for (size_t i = 0; i < IPC_FD_COUNT; i++)
		keep[2 + i] = &e->config.fds.fd[i];
	r = engine_keep_only(keep, ARRAY_SIZE(keep));
	if (r < 0)
		err_sys(&err, r, "cannot set the engine apart");
	else
		r = engine_init(e, &err);
	if (r == 0)
		r = begin(e, &err);
	if (r < 0) {
		tell_supervisor(e, IPC_FAILED, err.text);
		return;
	}
	if (e->config.attach.kind != ATTACH_OWNED)
		dns_service_settle(e->core.dns, SETTLE_MS);
	if (e->only)
		engine_attached(e->only, "");
	else
		tell_supervisor(e, IPC_READY, e->core.missing);
	r = loop_run(e->core.loop);
	if (r < 0)
		tell_supervisor(e, IPC_FAILED, strerror(-r));
}

pid_t engine_start(const struct engine_config *config, struct err *err)
{
	return engine_fork(engine_run, config, err);
}
