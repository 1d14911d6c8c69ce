// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"

/* Whoever hears of it may ask for the same namespace at once, and another warden may be
 * the one who gets it. */
static void close_sockets(struct ward *d)
{
	sandbox_fds_done(&d->fds);
	if (d->route_fd >= 0)
		close(d->route_fd);
	d->route_fd = -1;
}

void ward_refuse(struct ward *d, const char *text)
{
	struct ipc_message m = { .type = IPC_REFUSED, .sandbox = d->id };

	close_sockets(d);
	log_warning("sandbox '%s' is not guarded: %s", d->spec.name, text);
	snprintf(m.text, sizeof(m.text), "%s", text);
	if (d->asked)
		warden_tell_control(d->warden, &m, NULL);
	d->asked = false;
	/* What was guarded before is tried again. */
	if (d->restarted) {
		warden_lacks(d->warden, d->spec.name, text);
		warden_tell_lacking(d->warden);
	} else {
		state_forget(d);
	}
}

void ward_refuse_host(struct warden *w, const char *text)
{
	struct ward *d, *next;

	for (d = TAILQ_FIRST(&w->queues[QUEUE_NEW]); d; d = next) {
		next = TAILQ_NEXT(d, in_queue);
		if (d->spec.kind != GUARDED_HOST)
			continue;
		ward_refuse(d, text);
		ward_free(d);
	}
}

/* -- the engine lets go of it ------------------------------------------------------- */

/* The table of the host may have what is not guarded: its id is kept with it. */
void ward_leave(struct ward *d)
{
	if (d->spec.kind != GUARDED_HOST || d->restarted || !d->warden->engine_ready) {
		ward_free(d);
		return;
	}
	inside_end(d);
	follow_stop(d);
	ward_leave_queue(d);
	roster_remove(&d->warden->names, &d->named);
	d->spec.name[0] = '\0';
	free(d->refused);
	d->refused = NULL;
	d->state = WARD_LEFT;
}

void ward_on_detached(struct ward *d, const char *text)
{
	struct ipc_message m = { .type = IPC_DETACHED, .sandbox = d->id };

	snprintf(m.text, sizeof(m.text), "%s", text);
	if (text[0])
		log_warning("sandbox '%s': %s", d->spec.name, text);
	if (d->refused) {
		ward_refuse(d, d->refused);
		ward_leave(d);
		return;
	}
	close_sockets(d);
	if (d->asked)
		warden_tell_control(d->warden, &m, NULL);
	/* Nobody has to ask for that again. */
	m.type = IPC_GONE;
	if (d->asked && text[0])
		warden_tell_control(d->warden, &m, NULL);
	ward_free(d);
}

void ward_detach(struct ward *d, bool forget)
{
	const struct ipc_message m = {
		.type = IPC_DETACH,
		.sandbox = d->id,
		.attach.forget = forget,
	};

	inside_end(d);
	gone_unwatch(d);
	ward_leave_queue(d);
	d->state = WARD_ENDING;
	/* An engine that is gone has nothing of it any more. */
	if (ipc_send(d->warden->keeper.engine.source.fd, &m, NULL, 0) < 0)
		ward_on_detached(d, forget ? "" : "there is no engine; its rules stay");
}

void ward_fail(struct ward *d, const char *text)
{
	/* Whoever hears of it may ask for the same again at once: not before the engine
	 * has let go of it. */
	d->refused = strdup(text);
	if (!d->refused)
		ward_refuse(d, text);
	ward_detach(d, true);
}
