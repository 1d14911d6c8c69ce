// SPDX-License-Identifier: Apache-2.0
#include "engine/shared_internal.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "engine/harden.h"
#include "proto/plan_file.h"
#include "sandbox/learned.h"

/* For Docker's resolver, if that is the one to ask: a millisecond, when all is well. */
enum { SETTLE_MS = 250 };

/* -- the sidecar's sandbox ---------------------------------------------------------- */

static int open_only(struct shared *e, struct err *err)
{
	const struct shared_config *c = &e->config;
	struct engine_sandbox *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return err_set(err, -ENOMEM, "out of memory");
	e->only = g;
	engine_sandbox_init(g, ATTACH_SHARED, 0);
	g->told = &shared_told;
	g->enforce = c->enforce;
	g->restarted = c->restarted;
	g->sandbox.fds = c->fds;
	g->sandbox.shared_params = c->filter;
	if (c->enforce != ENFORCED_NOTHING)
		sandbox_own_ports(&g->sandbox, c->filter.mark);
	r = plan_file_map(c->plan_fd, &g->plan, err);
	if (r == 0)
		(void)!engine_sandbox_snapshot_map(g, c->snapshot_fd);
	return r;
}

/* -- the process -------------------------------------------------------------------- */

static int shared_init(struct shared *e, struct err *err)
{
	const struct shared_config *c = &e->config;
	const bool changes = c->many || c->enforce != ENFORCED_NOTHING;
	struct dns_service_config dns = {
		.upstreams = c->upstreams,
		.upstream_count = c->upstream_count,
		.try_ms = c->try_ms,
		.probe_every_ms = c->probe_every_ms,
		.probe_name = c->probe_name,
		.on_trouble = shared_on_trouble,
		.on_trouble_data = e,
	};
	struct rlimit files = { 0 };
	int r = harden_limits(err);

	if (r == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0)
		/* The daemon stops before that (daemon_room.c). */
		e->fds_max = (int)(MIN(files.rlim_cur, (rlim_t)INT32_MAX) / 6 * 5);
	if (r == 0 && !c->many)
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

static int stand(struct shared *e, struct err *err)
{
	int r = 0;

	if (e->only)
		r = engine_sandbox_stand(e->only, &e->core, err);
	if (r < 0)
		return r;
	r = engine_core_watch(&e->core);
	return r < 0 ? err_sys(err, r, "cannot watch the filter") : 0;
}

static int watch_supervisor(struct shared *e, struct err *err)
{
	int r;

	e->from_supervisor = (struct loop_source){ .fd = e->config.supervisor_fd,
						   .on_ready = shared_on_supervisor };
	r = loop_add(e->core.loop, &e->from_supervisor, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the supervisor") : 0;
}

static void tell_text(struct shared *e, enum ipc_type type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(e->config.supervisor_fd, &m, NULL, 0);
}

static int keep_descriptors(struct shared_config *c)
{
	int *keep[3 + SANDBOX_FD_COUNT] = { &c->supervisor_fd, &c->plan_fd,
					    &c->snapshot_fd };

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		keep[3 + i] = &c->fds.fd[i];
	return engine_keep_only(keep, ARRAY_SIZE(keep));
}

static struct shared *shared_new(const struct shared_config *config)
{
	struct shared *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->config = *config;
	e->core.route_fd = -1;
	e->from_control.fd = -1;
	for (size_t i = 0; i < LENT_MAX; i++)
		e->lent[i].fd = -1;
	return e;
}

static void shared_run(const struct shared_config *config, pid_t supervisor)
{
	struct shared *e = shared_new(config);
	struct err err = { 0 };
	int r;

	prctl(PR_SET_NAME, "weir-engine");
	if (!e || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != supervisor)
		return;
	engine_reset_signals();
	r = keep_descriptors(&e->config);
	if (r < 0)
		err_sys(&err, r, "cannot set the engine apart");
	else
		r = shared_init(e, &err);
	if (r == 0)
		r = stand(e, &err);
	if (r == 0)
		r = watch_supervisor(e, &err);
	if (r < 0) {
		tell_text(e, IPC_FAILED, err.text);
		return;
	}
	dns_service_settle(e->core.dns, SETTLE_MS);
	if (e->only)
		shared_tell_standing(e, e->only, IPC_STANDS, true);
	else
		tell_text(e, IPC_READY, e->core.missing);
	(void)!loop_run(e->core.loop);
}

pid_t shared_start(const struct shared_config *config, struct err *err)
{
	pid_t supervisor = getpid();
	pid_t pid = fork();

	if (pid < 0)
		return err_sys(err, -errno, "cannot start the engine");
	if (pid == 0) {
		shared_run(config, supervisor);
		/* No cleanup: the kernel takes everything back, but the rules. */
		_exit(0);
	}
	return pid;
}
