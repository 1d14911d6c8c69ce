// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "engine/core.h"
#include "engine/harden.h"
#include "proto/plan_file.h"
#include "sandbox/learned.h"

struct engine {
	struct engine_core core;
	struct engine_sandbox
		guarded; /* its sandbox's state is NONE until it is taken over */
	const struct engine_config *config; /* borrowed */
	struct plan plan;
	struct loop_source from_control, from_launch;
	/* dns: pinned */
	bool stands;		      /* the launch child has been told */
	size_t unpinned;	      /* names that lack something, in this round */
	struct err unpinned_required; /* the first of those that have to be pinned */
};

enum {
	UNPINNED_TOLD_MAX = 16, /* names of a round; the others are counted */
};

/* Control is the only one who can be told; when it is gone, so is the sandbox. While it
 * is stopped (Ctrl-Z) the channel fills up: events then wait. */
static bool run_give_control(struct engine *e, const struct ipc_message *m)
{
	int r = ipc_send(e->config->control_fd, m, NULL, 0);

	if (r < 0 && r != -EAGAIN)
		loop_stop(e->core.loop);
	return r == 0;
}

static void run_tell_control(struct engine *e, const struct ipc_message *m)
{
	if (!run_give_control(e, m))
		e->guarded.sandbox.counters[COUNT_EVENTS_DROPPED]++;
}

static int set_blocking(int fd, bool blocking)
{
	return fcntl(fd, F_SETFL, blocking ? 0 : O_NONBLOCK) < 0 ? -errno : 0;
}

static void run_tell_text(struct engine *e, enum ipc_type type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	run_tell_control(e, &m);
}

static bool on_run_event(void *data, const struct event *event)
{
	const struct ipc_message m = { .type = IPC_EVENT, .event = *event };

	return run_give_control(data, &m);
}

/* -- taking a sandbox over ---------------------------------------------------------- */

/* The ruleset is made once more from the plan and held against what the kernel has:
 * whoever installed it, it is this plan's, or the command doesn't start. */
static int verify_filter(struct engine *e, struct err *err)
{
	struct filter_params params = e->config->filter;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rules;
	int r;

	params.ipv6 = e->guarded.sandbox.fds.fd[SANDBOX_FD_DNS_UDP6] >= 0;
	r = ruleset_build_owned(&e->plan, &params, &arena, &rules, err);
	if (r == 0)
		r = filter_verify(&e->guarded.sandbox.filter, rules, err);
	return r < 0 ? err_context(err, "the filter does not stand as it was asked for")
		     : 0;
}

static int serve_run(struct engine *e, struct err *err)
{
	int r;

	e->guarded.sandbox.state = SANDBOX_TESTING;
	r = engine_core_add(&e->core, &e->guarded);
	if (r < 0)
		return err_set(err, r, "out of memory");
	r = engine_core_serve(&e->core, &e->guarded.sandbox, err);
	return r < 0 ? r : engine_sandbox_watch_refused(&e->guarded, err);
}

/* What the launch child waits for: it stands, or why not. */
static void answer_launch(struct engine *e, const struct err *err)
{
	struct ipc_message answer = { .type = err->code < 0 ? IPC_REFUSED : IPC_STANDS };

	e->stands = err->code == 0;
	snprintf(answer.text, sizeof(answer.text), "%s", err->text);
	if (ipc_send(e->config->launch_fd, &answer, NULL, 0) < 0)
		loop_stop(e->core.loop);
}

/* -- dns: pinned -------------------------------------------------------------------- */

static void run_tell_unpinned(struct engine *e, const struct resolver_unpinned *fault)
{
	char name[DNS_NAME_TEXT_SIZE], text[ERR_TEXT_SIZE];

	dns_name_format(fault->name, name);
	snprintf(text, sizeof(text), "dns: pinned: cannot resolve %.253s%s: %s%s", name,
		 fault->stays ? " fully" : "", fault->why,
		 fault->stays ? "; what is pinned stays" : "");
	if (fault->required && !fault->stays && e->unpinned_required.code == 0)
		err_set(&e->unpinned_required, -ENOENT, "%s (the rule says required)",
			text);
	if (e->unpinned < UNPINNED_TOLD_MAX)
		run_tell_text(e, IPC_WARNING, text);
	e->unpinned++;
}

static void on_run_pinned(void *data, const struct resolver_unpinned *fault)
{
	struct engine *e = data;
	char text[ERR_TEXT_SIZE];

	if (fault) {
		run_tell_unpinned(e, fault);
		return;
	}
	if (e->unpinned > UNPINNED_TOLD_MAX) {
		snprintf(text, sizeof(text),
			 "dns: pinned: %zu more names were not resolved",
			 e->unpinned - UNPINNED_TOLD_MAX);
		run_tell_text(e, IPC_WARNING, text);
	}
	e->unpinned = 0;
	if (!e->stands)
		answer_launch(e, &e->unpinned_required);
}

/* The launch child is answered when all names are pinned. */
static int pin(struct engine *e, struct err *err)
{
	int64_t repin_ms = plan_repin_sec(&e->plan) * INT64_C(1000);
	int r = dns_service_pin(e->core.dns, &e->guarded.sandbox,
				repin_ms > 0 ? repin_ms : e->config->repin_ms,
				on_run_pinned, e);

	return r < 0 ? err_sys(err, r, "cannot pin the policy's names") : 0;
}

static int adopt_sandbox(struct engine *e, const struct ipc_message *m,
			 const struct sandbox_fds *fds, struct err *err)
{
	struct sandbox *s = &e->guarded.sandbox;
	int r;

	s->plan = e->plan;
	s->fds = *fds;
	s->ipv6 = m->ipv6 && e->config->ipv6_out;
	s->relay = e->config->filter.relay;
	s->direct_udp = e->config->filter.direct_udp;
	s->on_event = on_run_event;
	s->on_event_data = e;
	s->probe_name = e->config->probe_name;
	s->probe_addr = e->config->probe.addr;
	s->probe_port = e->config->probe.port;
	r = filter_conn_init(&s->filter, TAKE_FD(s->fds.fd[SANDBOX_FD_NETLINK]), err);
	if (r < 0)
		return r;
	s->filter.owner = m->owner;
	s->learned = learned_new(&s->plan, &e->core.key);
	if (!s->learned)
		return err_set(err, -ENOMEM, "out of memory");
	r = verify_filter(e, err);
	if (r == 0)
		r = serve_run(e, err);
	if (r < 0)
		return r;
	if (plan_dns(&e->plan) == POLICY_DNS_PINNED)
		return pin(e, err);
	answer_launch(e, err);
	return 0;
}

static void on_launch(struct loop_source *source, uint32_t events)
{
	struct engine *e = CONTAINER_OF(source, struct engine, from_launch);
	struct ipc_message m;
	struct err err = { 0 };
	struct sandbox_fds sorted;
	int fds[SANDBOX_FD_COUNT], route = -1;
	size_t count = 0;
	int r = ipc_receive(source->fd, &m, fds, SANDBOX_FD_COUNT, &count);

	/* One hand-over, then the launch child has nothing more to say to us. */
	loop_remove(e->core.loop, source);
	if (r < 0)
		return;
	sandbox_fds_init(&sorted);
	r = engine_take_fds(&sorted, &route, &m, fds, 0, count);
	if (r < 0 || m.type != IPC_HANDOVER || route >= 0 || !engine_has_fds(&sorted))
		r = err_set(&err, -EBADMSG, "the hand-over of the sandbox is malformed");
	else
		r = adopt_sandbox(e, &m, &sorted, &err);
	if (r < 0)
		answer_launch(e, &err);
}

/* -- control ------------------------------------------------------------------------ */

static void finish(struct engine *e)
{
	struct ipc_message m = { .type = IPC_COUNTERS };

	/* Control asked for it, so it reads: nothing of this may be dropped. */
	if (set_blocking(e->config->control_fd, true) < 0)
		loop_stop(e->core.loop);
	if (e->guarded.sandbox.state != SANDBOX_NONE)
		engine_account_all(&e->guarded);
	memcpy(m.counters, e->guarded.sandbox.counters, sizeof(m.counters));
	run_tell_control(e, &m);
	loop_stop(e->core.loop);
}

/* What the self-test provoked is behind us, and nothing of it is the command's. */
static void forget_self_test(struct sandbox *s)
{
	uint64_t tests = s->counters[COUNT_SELF_TESTS];

	memset(s->counters, 0, sizeof(s->counters));
	s->counters[COUNT_SELF_TESTS] = tests;
}

static void on_run_control(struct loop_source *source, uint32_t events)
{
	struct engine *e = CONTAINER_OF(source, struct engine, from_control);
	struct ipc_message m;
	size_t count;
	int r = ipc_receive(source->fd, &m, NULL, 0, &count);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		loop_stop(e->core.loop);
		return;
	}
	if (m.type == IPC_RUN && e->guarded.sandbox.state == SANDBOX_TESTING) {
		engine_sandbox_drain_refused(&e->guarded);
		engine_account_begin(&e->guarded);
		forget_self_test(&e->guarded.sandbox);
		e->guarded.sandbox.state = SANDBOX_RUNNING;
		e->guarded.sandbox.probe_name.size = 0;
		run_tell_text(e, IPC_RUNNING, "");
	} else if (m.type == IPC_FINISH) {
		finish(e);
	}
}

/* -- the process -------------------------------------------------------------------- */

static int engine_init(struct engine *e, struct err *err)
{
	const struct dns_service_config dns = {
		.upstreams = e->config->upstreams,
		.upstream_count = e->config->upstream_count,
	};
	int r = harden_limits(err);

	if (r == 0)
		r = plan_file_map(e->config->plan_fd, &e->plan, err);
	if (r == 0)
		r = engine_core_init(&e->core, &dns, err);
	return r < 0 ? r : harden_engine(0, e->core.missing, err);
}

static int watch_channels(struct engine *e)
{
	int r;

	e->from_control = (struct loop_source){ .fd = e->config->control_fd,
						.on_ready = on_run_control };
	e->from_launch =
		(struct loop_source){ .fd = e->config->launch_fd, .on_ready = on_launch };
	r = set_blocking(e->config->control_fd, false);
	if (r == 0)
		r = loop_add(e->core.loop, &e->from_control, EPOLLIN);
	return r < 0 ? r : loop_add(e->core.loop, &e->from_launch, EPOLLIN);
}

static void engine_run(const void *given)
{
	struct engine_config config = *(const struct engine_config *)given;
	struct engine e = { .config = &config, .core.route_fd = -1 };
	int *const keep[] = { &config.control_fd, &config.launch_fd, &config.plan_fd };
	struct err err = { 0 };
	int r;

	engine_sandbox_init(&e.guarded, ENGINE_SANDBOX_OWNED, 0);
	r = engine_keep_only(keep, ARRAY_SIZE(keep));
	if (r < 0)
		err_sys(&err, r, "cannot set the engine apart");
	else
		r = engine_init(&e, &err);
	if (r < 0) {
		struct ipc_message m = { .type = IPC_FAILED };

		snprintf(m.text, sizeof(m.text), "%s", err.text);
		(void)!ipc_send(config.control_fd, &m, NULL, 0);
		return;
	}
	run_tell_text(&e, IPC_READY, e.core.missing);
	r = watch_channels(&e);
	if (r == 0)
		r = loop_run(e.core.loop);
	if (r < 0)
		run_tell_text(&e, IPC_FAILED, strerror(-r));
}

pid_t engine_start(const struct engine_config *config, struct err *err)
{
	return engine_fork(engine_run, config, err);
}
