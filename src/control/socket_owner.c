// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A denial that is told at once is asked about at once, and what else is to be done with
 * it goes on meanwhile. Its row waits for the answer, SOCKET_OWNER_WAIT_MS at most, and
 * then goes to whoever keeps or streams it, with a process or without. The socket_owner
 * answers in the order of the questions. Where more is denied than may be asked about,
 * rows go on at once: what isn't known is not waited for. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"
#include "proto/socket_owner.h"

enum {
	PENDING_MAX = 32, /* rows that wait; over it: nothing is asked */
	AGAIN_MS = 5000,
	CONTROL_SANDBOX_PER_SECOND =
		10, /* of one sandbox: others are asked about as well */
};

struct pending {
	struct event_row row;
	uint32_t number; /* of its question */
	int64_t until_ms;
};

struct control_socket_owner {
	struct control *side;
	struct loop_source source; /* fd -1: there is none */
	struct loop_timer late;	   /* the oldest is not waited for any more */
	struct loop_timer again;   /* another one is asked for */
	struct socket_owner_pace pace;
	uint32_t number; /* of the last question */
	struct pending pending[PENDING_MAX];
	size_t first, count; /* of those that wait */
};

/* ---- rows that wait ---- */

static struct pending *oldest(struct control_socket_owner *w)
{
	return &w->pending[w->first];
}

/* The oldest row is answered, or never will be. */
static void release(struct control_socket_owner *w)
{
	struct pending *h = oldest(w);

	w->first = (w->first + 1) % PENDING_MAX;
	w->count--;
	control_on_row(w->side, &h->row);
}

static void watch_oldest(struct control_socket_owner *w)
{
	loop_timer_stop(w->side->loop, &w->late);
	while (w->count > 0 &&
	       loop_timer_start(w->side->loop, &w->late, oldest(w)->until_ms) < 0)
		release(w);
}

static void on_answer_late(struct loop_timer *t)
{
	struct control_socket_owner *w =
		CONTAINER_OF(t, struct control_socket_owner, late);
	const int64_t now_ms = loop_now_ms(w->side->loop);

	while (w->count > 0 && oldest(w)->until_ms <= now_ms)
		release(w);
	watch_oldest(w);
}

static void on_answer(struct control_socket_owner *w, const struct socket_owner_answer *a)
{
	struct event_row *row;

	/* Rows that were asked for before this answer's get none any more. */
	while (w->count > 0 && (int32_t)(oldest(w)->number - a->number) < 0)
		release(w);
	if (w->count == 0 || oldest(w)->number != a->number)
		return;
	row = &oldest(w)->row;
	socket_owner_take(&row->event, &a->owner);
	if (row->event.pid > 0)
		control_on_process(w->side, &row->event);
	release(w);
}

/* ---- the channel ---- */

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct control_socket_owner *w =
		CONTAINER_OF(source, struct control_socket_owner, source);
	struct socket_owner_answer a;
	ssize_t n = sizeof(a);

	for (int i = 0; n == sizeof(a) && i < IPC_TURN_MAX; i++) {
		n = recv(source->fd, &a, sizeof(a), MSG_DONTWAIT);
		if (n == sizeof(a))
			on_answer(w, &a);
	}
	if (n == sizeof(a) || (n < 0 && errno == EAGAIN)) {
		watch_oldest(w);
		return;
	}
	if (w->source.fd < 0)
		return;
	loop_remove(w->side->loop, &w->source);
	fd_close(&w->source.fd);
	while (w->count > 0)
		release(w);
	loop_timer_stop(w->side->loop, &w->late);
	/* Without the memory for a timer there is none any more. */
	(void)!loop_timer_in(w->side->loop, &w->again, AGAIN_MS);
}

static void on_owner_again(struct loop_timer *t)
{
	const struct control_socket_owner *w =
		CONTAINER_OF(t, struct control_socket_owner, again);
	const struct ipc_message start = { .type = IPC_SOCKET_OWNER };

	(void)!ipc_send(w->side->link->from_supervisor.fd, &start, NULL, 0);
}

void control_socket_owner_open(struct control *s)
{
	struct control_socket_owner *w = calloc(1, sizeof(*w));

	if (!w)
		return; /* no process is ever known */
	w->side = s;
	w->source = (struct loop_source){ .fd = -1, .on_ready = on_ready };
	w->late.on_fire = on_answer_late;
	w->again.on_fire = on_owner_again;
	s->socket_owner = w;
	on_owner_again(&w->again);
}

void control_socket_owner_attach(struct control *s, int fd)
{
	struct control_socket_owner *w = s->socket_owner;

	if (!w || w->source.fd >= 0) {
		close(fd);
		return;
	}
	w->source.fd = fd;
	if (loop_add(s->loop, &w->source, EPOLLIN) == 0)
		return;
	close(fd);
	w->source.fd = -1;
}

void control_socket_owner_close(struct control *s)
{
	struct control_socket_owner *w = s->socket_owner;

	while (w && w->count > 0)
		release(w);
}

/* ---- questions ---- */

static bool about_whom(const struct control *s, const struct event_row *row,
		       struct socket_owner_question *q, int64_t now_ms)
{
	struct control_sandbox *w;

	if (!s->many) {
		q->kind = ATTACH_SHARED;
		return true;
	}
	w = control_sandbox_find(s, row->event.sandbox);
	if (!w || !rate_take(&w->asked, CONTROL_SANDBOX_PER_SECOND, 1000,
			     CONTROL_SANDBOX_PER_SECOND, now_ms))
		return false;
	q->kind = w->spec.kind;
	q->member = w->spec.member;
	memcpy(q->where, w->spec.where, sizeof(q->where));
	return true;
}

bool control_socket_owner_ask(struct control *s, const struct event_row *row)
{
	struct control_socket_owner *w = s->socket_owner;
	const int64_t now_ms = clock_now_ms();
	struct socket_owner_question q;
	struct pending *h;

	if (!w || w->source.fd < 0 || w->count == PENDING_MAX ||
	    !socket_owner_question_of(&row->event, now_ms, clock_wall_ms(), &q) ||
	    !about_whom(s, row, &q, now_ms) || !socket_owner_may(&w->pace, now_ms))
		return false;
	q.number = ++w->number;
	if (send(w->source.fd, &q, sizeof(q), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(q))
		return false;
	h = &w->pending[(w->first + w->count++) % PENDING_MAX];
	*h = (struct pending){ .row = *row,
			       .number = q.number,
			       .until_ms = now_ms + SOCKET_OWNER_WAIT_MS };
	watch_oldest(w);
	return true;
}
