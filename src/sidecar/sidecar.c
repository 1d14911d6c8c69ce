// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A sidecar is a supervisor (supervisor/supervisor.c) with one engine and one sandbox
 * that never leaves: the network namespace that it lives in itself. Nothing goes on
 * before the first engine's rules stand, or less of them, as far as --on-unenforceable
 * allows it. */
#include "sidecar/sidecar.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "filter/filter.h"
#include "sidecar/healthy.h"
#include "sidecar/host_network.h"
#include "supervisor/socket_owner.h"
#include "supervisor/supervisor.h"

enum { STAND_MS = 10 * 1000 }; /* for the first ruleset */

enum sidecar_status {
	SIDECAR_OK = 0,
	SIDECAR_FAILED = 1,
	SIDECAR_BAD_INPUT = 2,
};

/* -- what a sidecar does in its own way ---------------------------------------------- */

static struct engine_config engine_config(const struct supervisor *k, int channel)
{
	const struct sidecar_spec *s = k->spec;
	bool filters = s->mode != SIDECAR_MODE_DNS;

	struct engine_config c = {
		.supervisor_fd = channel,
		.attach_fd = -1,
		.attach = { .kind = ATTACH_SHARED,
			    .restarted = k->engine.started_ms > 0 ||
					 k->fds.snapshot_found },
		.enforce = k->enforce,
		.filter = {
			.relay = s->mode == SIDECAR_MODE_DNS_NFT_TLS &&
				 k->enforce == ENFORCED_FILTER,
			.mark = SUPERVISOR_MARK,
			.uid = geteuid(),
			.dns_port = SUPERVISOR_DNS_PORT,
			.relay_port = SUPERVISOR_RELAY_PORT,
			.exempt = s->exempt,
			.exempt_count = s->exempt_count,
			.doh = s->doh,
			.doh_count = s->block_doh_443 ? s->doh_count : 0,
			.refuse_443 = filters && s->block_doh_443 && s->doh_count == 0,
		},
		.upstreams = s->upstreams,
		.upstream_count = s->upstream_count,
		.try_ms = (int64_t)s->upstream_timeout_sec * 1000,
		.probe_every_ms = (int64_t)s->probe_every_sec * 1000,
		.probe_name = s->probe_name,
	};

	ipc_fds_init(&c.fds, &k->fds.sandbox);
	c.fds.fd[IPC_FD_PLAN] = k->fds.plan_fd;
	c.fds.fd[IPC_FD_SNAPSHOT] = k->fds.snapshot_fd;
	return c;
}

static void on_engine(struct supervisor *k, struct ipc_message *m)
{
	if (m->type == IPC_ACTIVE) {
		k->status = m->status;
		k->engine.serves = true;
		supervisor_introduce(k);
	} else if (m->type == IPC_FAILED) {
		ipc_sanitize(m->text, sizeof(m->text));
		log_error("the engine cannot go on: %s", m->text);
	}
}

/* A plan and its text are in force now. */
static void on_control(struct supervisor *k, const struct ipc_message *m, int *fds,
		       size_t count)
{
	const struct ipc_message kept = { .type = IPC_KEPT };

	if (m->type != IPC_KEEP || count != 2)
		return;
	close(k->fds.plan_fd);
	close(k->fds.text_fd);
	k->fds.plan_fd = TAKE_FD(fds[0]);
	k->fds.text_fd = TAKE_FD(fds[1]);
	child_notify(&k->control, &kept, NULL);
}

static pid_t start_socket_owner(struct supervisor *k, int channel)
{
	/* The first process of a container sees only the container's processes. */
	return getpid() == 1 ? -ESRCH : socket_owner_start(channel);
}

static const struct supervisor_ops ops = {
	.engine_config = engine_config,
	.on_engine = on_engine,
	.on_control = on_control,
	.start_socket_owner = start_socket_owner,
};

/* -- starting ----------------------------------------------------------------------- */

/* The first engine: nothing goes on before its rules are active. */
static int first_engine(struct supervisor *k, struct err *err)
{
	struct pollfd wait = { .events = POLLIN };
	struct ipc_message m;
	size_t count = 0;
	int r = child_fork(&k->engine, err);

	if (r < 0)
		return r;
	wait.fd = k->engine.source.fd;
	if (poll(&wait, 1, STAND_MS) <= 0)
		r = err_set(err, -ETIMEDOUT, "the engine does not answer");
	else
		r = ipc_receive(k->engine.source.fd, &m, NULL, 0, &count);
	if (r < 0)
		return err->code < 0 ? r : err_sys(err, r, "the engine has ended");
	if (m.type == IPC_ACTIVE) {
		k->status = m.status;
		k->engine.serves = true;
		return 0;
	}
	ipc_sanitize(m.text, sizeof(m.text));
	return err_set(err, -EPERM, "%s",
		       m.type == IPC_FAILED ? m.text
					    : "the engine said what is no answer");
}

/* Weaker than what was asked for only as far as the operator has spelled. */
static int enforce(struct supervisor *k, struct err *err)
{
	enum sidecar_unenforceable may =
		k->fds.needs_full_isolation ? SIDECAR_FAIL : k->spec->on_unenforceable;
	struct err second = { 0 };
	int r;

	k->enforce = k->spec->mode == SIDECAR_MODE_DNS ? ENFORCED_REDIRECT
						       : ENFORCED_FILTER;
	r = supervisor_check_right(err);
	if (r == 0)
		r = first_engine(k, err);
	if (r == 0 || may == SIDECAR_FAIL)
		return r;
	snprintf(k->reason, sizeof(k->reason), "%s", err->text);
	supervisor_end_engine(k);
	if (k->enforce == ENFORCED_FILTER && may == SIDECAR_DNS) {
		k->enforce = ENFORCED_REDIRECT;
		r = first_engine(k, &second);
	}
	if (r < 0 && may == SIDECAR_OPEN) {
		supervisor_end_engine(k);
		k->enforce = ENFORCED_NOTHING;
		r = supervisor_deny_all(&k->fds, &second);
		if (r == 0)
			r = first_engine(k, &second);
	}
	if (r == 0)
		log_warning("%s; going on with less, as --on-unenforceable says",
			    k->reason);
	return r;
}

static int remove_rules(struct err *err)
{
	struct sandbox_fds fds;
	struct filter_conn conn = { .fd = -1 };
	int r;

	sandbox_fds_init(&fds);
	r = supervisor_check_right(err);
	if (r == 0)
		r = sandbox_netlink_open(&fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = filter_conn_init(&conn, fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0) {
		conn.naming = FILTER_NAMES_SHARED;
		r = filter_remove(&conn, err);
		if (r == -EPERM)
			err_context(err, "a sidecar still runs here; stop it first");
	}
	sandbox_fds_done(&fds);
	return r;
}

static int start(struct supervisor *k, struct err *err)
{
	int r = supervisor_prepare(k, err);

	if (r == 0 && k->spec->host_network_check) {
		r = host_network_check(err);
		if (r < 0)
			return err_context(
				err, "this looks like the host's own network namespace "
				     "(--host-network-check=off goes on)");
	}
	if (r == 0)
		r = supervisor_check_programs(k, err);
	if (r == 0)
		r = supervisor_open(k->spec, &k->fds, err);
	if (r < 0)
		return r;
	/* It loads its libraries while the engine installs the rules. */
	supervisor_start_control(k);
	r = enforce(k, err);
	if (r == 0)
		r = supervisor_listen(&k->fds, err);
	if (r == 0)
		child_hear(&k->engine);
	return r;
}

int sidecar_run(struct sidecar_spec *spec)
{
	struct supervisor k = {
		.ops = &ops,
		.spec = spec,
		.args = spec->argv + 1,
	};
	struct err err = { 0 };
	int r;

	supervisor_fds_init(&k.fds);
	if (spec->remove)
		r = remove_rules(&err);
	else if (spec->healthy)
		r = healthy_ask(spec, &err);
	else
		r = start(&k, &err);
	if (r < 0) {
		if (err.text[0])
			log_error("%s", err.text);
		return r == -EINVAL ? SIDECAR_BAD_INPUT : SIDECAR_FAILED;
	}
	if (spec->remove || spec->healthy)
		return SIDECAR_OK;
	supervisor_introduce(&k);
	r = loop_run(k.loop);
	/* Whoever waits for our end may start another one, or remove the rules. */
	supervisor_end_engine(&k);
	loop_free(k.loop);
	return r < 0 ? SIDECAR_FAILED : k.exit_status;
}
