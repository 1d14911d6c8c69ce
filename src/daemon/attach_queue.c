// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Sandboxes wait in three queues: whose cgroup was made again has no time to lose; then
 * come those that were guarded before, and last, when there are no more of them, those
 * that are new. The engine has one of them at a time, and the host's table is loaded
 * between the second and the third. */
#include <stdio.h>
#include <unistd.h>

#include "daemon/internal.h"

void give_init(struct daemon *w)
{
	for (size_t i = 0; i < ATTACH_QUEUE_COUNT; i++)
		TAILQ_INIT(&w->queues[i]);
}

void daemon_sandbox_leave_queue(struct daemon_sandbox *d)
{
	if (d->queue)
		TAILQ_REMOVE(d->queue, d, in_queue);
	d->queue = NULL;
}

void daemon_sandbox_wait(struct daemon_sandbox *d)
{
	daemon_sandbox_leave_queue(d);
	d->state = DAEMON_SANDBOX_NEW;
	d->queue = &d->daemon->queues[!d->restarted ? QUEUE_NEW
				      : d->fresh    ? QUEUE_AGAIN
						    : QUEUE_RESTARTED];
	TAILQ_INSERT_TAIL(d->queue, d, in_queue);
}

static int give(struct daemon_sandbox *d)
{
	struct ipc_message m = {
		.type = IPC_ATTACH,
		.sandbox = d->id,
		.attach = {
			.kind = d->spec.kind,
			.restarted = d->restarted && !d->fresh,
			.member = d->member,
			.probe_addr = d->probe.allowed.addr,
			.probe_port = d->probe.allowed.port,
		},
	};
	int fds[2 + SANDBOX_FD_COUNT + 1] = { daemon_plan_fd(d->plan), d->snapshot_fd };
	size_t count = 2;

	snprintf(m.attach.probe_name, sizeof(m.attach.probe_name), "%.*s",
		 (int)sizeof(m.attach.probe_name) - 1, d->probe.allowed_name);
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++) {
		if (d->fds.fd[i] < 0)
			continue;
		m.present |= 1u << i;
		fds[count++] = d->fds.fd[i];
	}
	if (d->route_fd >= 0) {
		m.present |= 1u << SANDBOX_FD_COUNT;
		fds[count++] = d->route_fd;
	}
	return ipc_send(d->daemon->supervisor.engine.source.fd, &m, fds, count);
}

static struct daemon_sandbox *next_sandbox(const struct daemon *w, bool restarted)
{
	struct daemon_sandbox *d = NULL;

	if (!restarted)
		return TAILQ_FIRST(&w->queues[QUEUE_NEW]);
	for (size_t i = QUEUE_AGAIN; i <= QUEUE_RESTARTED && !d; i++)
		d = TAILQ_FIRST(&w->queues[i]);
	return d;
}

static bool has_host(const struct daemon *w)
{
	/* Seldom: before its table stands. */
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (w->sandboxes[id] && w->sandboxes[id]->spec.kind == ATTACH_HOST &&
		    w->sandboxes[id]->state != DAEMON_SANDBOX_LEFT)
			return true;
	return false;
}

/* False: it can't be, and is gone. */
static bool has_image(struct daemon_sandbox *d)
{
	struct err err = { 0 };

	if (d->snapshot_fd >= 0 || state_image(d, &err) == 0)
		return true;
	daemon_sandbox_refuse(d, err.text);
	daemon_sandbox_free(d);
	return false;
}

static void give_or_wait(struct daemon_sandbox *d)
{
	struct daemon *w = d->daemon;

	/* Should the engine be gone, it is given to the next. */
	if ((d->spec.kind == ATTACH_HOST && host_give(w) < 0) || give(d) < 0)
		return;
	close(TAKE_FD(d->snapshot_fd));
	daemon_sandbox_leave_queue(d);
	d->state = DAEMON_SANDBOX_GIVEN;
	w->giving = d->id;
}

void attach_queue_next(struct daemon *w)
{
	struct daemon_sandbox *d;

	if (!w->engine_ready || w->giving != 0 || w->host.state == HOST_LOADING)
		return;
	do
		d = next_sandbox(w, true);
	while (d && !has_image(d));
	if (!d && !w->restored)
		return;
	if (!d && w->host.state != HOST_NONE && w->host.state < HOST_LOADING &&
	    has_host(w)) {
		(void)!host_load(w);
		return;
	}
	while (!d && (d = next_sandbox(w, false)) && !has_image(d))
		d = NULL;
	if (d) {
		give_or_wait(d);
	} else if (!w->supervisor.engine.serves) {
		daemon_on_all_given(w);
	}
}
