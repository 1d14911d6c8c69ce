// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"

/* Whoever hears of it may ask for the same namespace at once, and another daemon may be
 * the one who gets it. */
static void close_sockets(struct daemon_sandbox *d)
{
	sandbox_fds_done(&d->fds);
	if (d->route_fd >= 0)
		close(d->route_fd);
	d->route_fd = -1;
}

void daemon_sandbox_refuse(struct daemon_sandbox *d, const char *text)
{
	struct ipc_message m = { .type = IPC_REFUSED, .sandbox = d->id };

	close_sockets(d);
	log_warning("sandbox '%s' is not guarded: %s", d->spec.name, text);
	snprintf(m.text, sizeof(m.text), "%s", text);
	if (d->asked)
		daemon_tell_control(d->daemon, &m, NULL);
	d->asked = false;
	/* What was guarded before is tried again. */
	if (d->restarted) {
		daemon_lacks(d->daemon, d->spec.name, text);
		daemon_tell_lacking(d->daemon);
	} else {
		state_forget(d);
	}
}

void daemon_sandbox_refuse_host(struct daemon *w, const char *text)
{
	struct daemon_sandbox *d, *next;

	for (d = TAILQ_FIRST(&w->queues[QUEUE_NEW]); d; d = next) {
		next = TAILQ_NEXT(d, in_queue);
		if (d->spec.kind != ATTACH_HOST)
			continue;
		daemon_sandbox_refuse(d, text);
		daemon_sandbox_free(d);
	}
}

/* -- the engine lets go of it ------------------------------------------------------- */

/* The table of the host may have what is not guarded: its id is kept with it. */
void daemon_sandbox_leave(struct daemon_sandbox *d)
{
	if (d->spec.kind != ATTACH_HOST || d->restarted || !d->daemon->engine_ready) {
		daemon_sandbox_free(d);
		return;
	}
	inside_end(d);
	follow_stop(d);
	daemon_sandbox_leave_queue(d);
	index_remove(&d->daemon->names, &d->named);
	d->spec.name[0] = '\0';
	free(d->refused);
	d->refused = NULL;
	d->state = DAEMON_SANDBOX_LEFT;
}

void daemon_sandbox_on_detached(struct daemon_sandbox *d, const char *text)
{
	struct ipc_message m = { .type = IPC_DETACHED, .sandbox = d->id };

	snprintf(m.text, sizeof(m.text), "%s", text);
	if (text[0])
		log_warning("sandbox '%s': %s", d->spec.name, text);
	if (d->refused) {
		daemon_sandbox_refuse(d, d->refused);
		daemon_sandbox_leave(d);
		return;
	}
	close_sockets(d);
	if (d->asked)
		daemon_tell_control(d->daemon, &m, NULL);
	/* Nobody has to ask for that again. */
	m.type = IPC_GONE;
	if (d->asked && text[0])
		daemon_tell_control(d->daemon, &m, NULL);
	daemon_sandbox_free(d);
}

void daemon_sandbox_detach(struct daemon_sandbox *d, bool forget)
{
	const struct ipc_message m = {
		.type = IPC_DETACH,
		.sandbox = d->id,
		.attach.forget = forget,
	};

	inside_end(d);
	gone_unwatch(d);
	daemon_sandbox_leave_queue(d);
	d->state = DAEMON_SANDBOX_ENDING;
	/* An engine that is gone has nothing of it any more. */
	if (ipc_send(d->daemon->supervisor.engine.source.fd, &m, NULL, 0) < 0)
		daemon_sandbox_on_detached(
			d, forget ? "" : "there is no engine; its rules stay");
}

void daemon_sandbox_fail(struct daemon_sandbox *d, const char *text)
{
	/* Whoever hears of it may ask for the same again at once: not before the engine
	 * has let go of it. */
	d->refused = strdup(text);
	if (!d->refused)
		daemon_sandbox_refuse(d, text);
	daemon_sandbox_detach(d, true);
}
