// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "dns/answer.h"
#include "engine/host.h"
#include "engine/shared_internal.h"

enum {
	ANSWERED_PER_SEC = 100, /* lookups that control is told of; others only count */
	FDS_MAX = 3 + SANDBOX_FD_COUNT, /* of one message */
};

static struct shared *engine_of(const struct engine_sandbox *g)
{
	return CONTAINER_OF(g->core, struct shared, core);
}

/* -- telling ------------------------------------------------------------------------ */

void shared_tell_supervisor(struct shared *e, const struct ipc_message *m)
{
	/* Without a supervisor nobody is left who could start us again: the rules stay.
	 */
	if (ipc_send(e->config.supervisor_fd, m, NULL, 0) < 0)
		loop_stop(e->core.loop);
}

static void break_control(struct shared *e, int error);

static void count_untold(struct shared *e, uint32_t sandbox)
{
	struct engine_sandbox *g = engine_core_find(&e->core, sandbox);

	if (g)
		g->sandbox.counters[COUNT_EVENTS_DROPPED]++;
	else
		e->untold++;
}

/* Control may be slow or gone; nobody waits for it. Return: whether it will hear it. */
static bool give_control(struct shared *e, const struct ipc_message *m)
{
	int r = -EAGAIN;

	if (e->from_control.fd >= 0 && e->owed_count == 0)
		r = ipc_send(e->from_control.fd, m, NULL, 0);
	if (r < 0 && r != -EAGAIN)
		break_control(e, r);
	return r == 0;
}

static void tell_control(struct shared *e, const struct ipc_message *m)
{
	if (!give_control(e, m))
		count_untold(e, m->sandbox);
}

/* What is owed, as far as there is room. */
static int pay(struct shared *e)
{
	size_t paid = 0;
	int r = 0;

	while (paid < e->owed_count && r == 0) {
		const struct owed *o = &e->owed[paid];

		r = ipc_send(e->from_control.fd, &o->message, &o->fd, o->fd < 0 ? 0 : 1);
		paid += r == 0;
	}
	e->owed_count -= paid;
	memmove(e->owed, e->owed + paid, e->owed_count * sizeof(*e->owed));
	return r;
}

static void pay_or_wait(struct shared *e)
{
	int r = pay(e);

	if (r == -EAGAIN || r == 0)
		r = loop_modify(e->core.loop, &e->from_control,
				EPOLLIN | (e->owed_count > 0 ? EPOLLOUT : 0));
	if (r < 0)
		break_control(e, r);
}

/* What control waits for. @fd -1: none; it stays open until then. */
static void answer_control(struct shared *e, const struct ipc_message *m, int fd)
{
	if (e->from_control.fd < 0 || e->owed_count == OWED_MAX) {
		count_untold(e, m->sandbox);
		return;
	}
	e->owed[e->owed_count++] = (struct owed){ *m, fd };
	if (e->owed_count == 1)
		pay_or_wait(e);
}

void shared_tell_standing(struct shared *e, const struct engine_sandbox *g,
			  enum ipc_type type, bool supervisor)
{
	struct ipc_message m = { .type = type, .sandbox = g->sandbox.id };

	engine_sandbox_standing(g, &m.standing);
	if (supervisor)
		shared_tell_supervisor(e, &m);
	else
		answer_control(e, &m, -1);
}

static bool on_event(void *data, const struct event *event)
{
	const struct engine_sandbox *g = data;
	struct ipc_message m = {
		.type = IPC_EVENT,
		.sandbox = g->sandbox.id,
		.event = *event,
	};

	return give_control(engine_of(g), &m);
}

static void on_answered(void *data, const struct dns_name *name,
			const struct dns_answer_addr *addrs, size_t count)
{
	struct engine_sandbox *g = data;
	struct shared *e = engine_of(g);
	struct ipc_message m = { .type = IPC_ANSWERED, .sandbox = g->sandbox.id };
	char text[DNS_NAME_TEXT_SIZE];

	if (!rate_take(&g->answered_rate, ANSWERED_PER_SEC, 1000, ANSWERED_PER_SEC,
		       loop_now_ms(e->core.loop)))
		return;
	snprintf(m.answered.name, sizeof(m.answered.name), "%s",
		 dns_name_format(name, text));
	m.answered.count = (uint32_t)MIN(count, (size_t)IPC_ANSWERED_MAX);
	for (size_t i = 0; i < m.answered.count; i++)
		m.answered.addrs[i] = addrs[i].addr;
	tell_control(e, &m);
}

static void on_standing(struct engine_sandbox *g)
{
	shared_tell_standing(engine_of(g), g, IPC_STANDS, false);
}

static void tell_trouble(struct shared *e, const struct upstream_trouble *t)
{
	const struct ipc_message m = { .type = IPC_TROUBLE, .trouble = *t };

	tell_control(e, &m);
}

void shared_on_trouble(void *data, const struct upstream_trouble *t)
{
	struct shared *e = data;

	if (e->from_control.fd < 0 && t->kind == UPSTREAM_PROBE &&
	    e->failed_count < ARRAY_SIZE(e->failed))
		e->failed[e->failed_count++] = *t;
	else
		tell_trouble(e, t);
}

/* -- sockets for control ------------------------------------------------------------ */

static struct lent *find_lent(struct shared *e, const struct ipc_socket *s)
{
	for (size_t i = 0; i < LENT_MAX; i++) {
		struct lent *l = &e->lent[i];

		if (s ? l->fd >= 0 && l->socket.port == s->port &&
				    l->socket.family == s->family &&
				    l->socket.protocol == s->protocol
		      : l->fd < 0)
			return l;
	}
	return NULL;
}

static void take_back(struct shared *e, struct lent *l)
{
	if (e->only)
		own_let_go(&e->only->sandbox.own, l->fd,
			   (enum addr_family)l->socket.family, l->socket.protocol,
			   l->socket.port);
	close(l->fd);
	l->fd = -1;
}

/* A port by which it is known. The daemon's control lives where none has to be held.
 * Return: it, or -errno. */
static int bind_any(int fd, enum addr_family family)
{
	const struct endpoint any = { .addr = addr_from_bytes(family,
							      (const uint8_t[16]){ 0 }) };
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(&any, &sa);

	if (bind(fd, (const struct sockaddr *)&sa, size) < 0 ||
	    getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	return endpoint_from_sockaddr(&sa).port;
}

static int lend(struct shared *e, struct ipc_socket *s)
{
	struct lent *l = find_lent(e, NULL);
	bool tcp = s->protocol == IPPROTO_TCP;
	CLEAN(fd) int fd = -1;
	int r;

	if ((s->family != ADDR_V4 && s->family != ADDR_V6) ||
	    (!tcp && s->protocol != IPPROTO_UDP))
		return -EINVAL;
	if (!l)
		return -EMFILE;
	fd = socket(s->family == ADDR_V4 ? AF_INET : AF_INET6,
		    (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	r = e->only ? own_hold(&e->only->sandbox.own, fd, (enum addr_family)s->family,
			       s->protocol)
		    : bind_any(fd, (enum addr_family)s->family);
	if (r < 0)
		return r;
	s->port = (uint16_t)r;
	*l = (struct lent){ .fd = TAKE_FD(fd), .socket = *s };
	return l->fd;
}

static void on_socket_wanted(struct shared *e, struct ipc_message *m)
{
	int fd = lend(e, &m->socket);

	m->socket.error = fd < 0 ? fd : 0;
	answer_control(e, m, fd < 0 ? -1 : fd);
}

/* -- control ------------------------------------------------------------------------ */

static void lose_control(struct shared *e)
{
	if (e->from_control.fd < 0)
		return;
	loop_remove(e->core.loop, &e->from_control);
	close(e->from_control.fd);
	e->from_control.fd = -1;
	e->owed_count = 0;
	for (size_t i = 0; i < LENT_MAX; i++)
		if (e->lent[i].fd >= 0)
			take_back(e, &e->lent[i]);
	for (uint32_t i = 0; i < e->core.slots; i++)
		if (e->core.guarded[i])
			engine_sandbox_change_cancel(e->core.guarded[i]);
}

/* A control that has ended gets a successor, and that a channel. One that is still there
 * gets none, and could change no policy any more: then this engine ends, and its
 * successor has a new one. */
static void break_control(struct shared *e, int error)
{
	lose_control(e);
	if (error != -EPIPE && error != -ECONNRESET)
		loop_stop(e->core.loop);
}

static void tell_unchanged(struct shared *e, uint32_t sandbox, const struct err *err)
{
	struct ipc_message m = { .type = IPC_UNCHANGED, .sandbox = sandbox };

	snprintf(m.text, sizeof(m.text), "%s", err->text);
	answer_control(e, &m, -1);
}

static void on_changed(struct engine_sandbox *g, int r, const struct err *err)
{
	if (r < 0)
		tell_unchanged(engine_of(g), g->sandbox.id, err);
	else
		shared_tell_standing(engine_of(g), g, IPC_CHANGED, false);
}

static void on_pinned(struct engine_sandbox *g, const char *why)
{
	struct ipc_message m = { .type = IPC_PINNED, .sandbox = g->sandbox.id };

	snprintf(m.text, sizeof(m.text), "%s", why);
	shared_tell_supervisor(engine_of(g), &m);
}

const struct engine_sandbox_told shared_told = { on_event, on_answered, on_standing,
						 on_changed, on_pinned };

static void on_change(struct shared *e, const struct ipc_message *ask, int plan_fd)
{
	struct engine_sandbox *g = engine_core_find(&e->core, ask->sandbox);
	struct err err = { 0 };
	int r = g ? engine_sandbox_change(g, plan_fd, &err)
		  : err_set(&err, -ENOENT, "there is no such sandbox");

	if (r < 0)
		tell_unchanged(e, ask->sandbox, &err);
}

/* Of all sandboxes together, as far as it can be added. */
static void add_stats(const struct shared *e, struct ipc_stats *ret)
{
	for (size_t i = 0; i < e->core.slots; i++) {
		struct ipc_stats one;

		if (!e->core.guarded[i])
			continue;
		engine_sandbox_stats(e->core.guarded[i], &one);
		for (size_t c = 0; c < SANDBOX_COUNTER_COUNT; c++)
			ret->counters[c] += one.counters[c];
		ret->names += one.names;
		ret->addresses += one.addresses;
	}
	if (e->core.host) {
		ret->counters[COUNT_UNATTRIBUTED] += e->core.host->unattributed;
		ret->counters[COUNT_PACKETS_LOST] += e->core.host->lost;
	}
}

static void on_stats(struct shared *e, uint32_t sandbox)
{
	const struct engine_sandbox *g = engine_core_find(&e->core, sandbox);
	struct ipc_message m = { .type = IPC_STATS, .sandbox = sandbox };

	if (g)
		engine_sandbox_stats(g, &m.stats);
	else if (!e->only && sandbox == 0)
		add_stats(e, &m.stats);
	answer_control(e, &m, -1);
}

static void on_denies(struct shared *e, uint32_t sandbox)
{
	struct ipc_message m = { .type = IPC_DENIES };
	struct ipc_denies *d = &m.denies;

	for (size_t i = (size_t)sandbox + 1; i < e->core.slots; i++) {
		const struct engine_sandbox *g = e->core.guarded[i];
		const uint64_t *counted = g ? g->sandbox.counters : NULL;

		if (!g)
			continue;
		if (d->count == IPC_DENIES_MAX) {
			m.sandbox = d->of[d->count - 1].sandbox;
			break;
		}
		d->of[d->count].sandbox = (uint32_t)i;
		d->of[d->count++].denies = sandbox_denied(counted);
	}
	answer_control(e, &m, -1);
}

static void on_control_message(struct shared *e, struct ipc_message *m, const int *fds,
			       size_t count)
{
	struct lent *l;

	switch (m->type) {
	case IPC_CHANGE:
		if (count == 1)
			on_change(e, m, fds[0]);
		break;
	case IPC_STATS:
		on_stats(e, m->sandbox);
		break;
	case IPC_DENIES:
		on_denies(e, m->sandbox);
		break;
	case IPC_SOCKET:
		on_socket_wanted(e, m);
		break;
	case IPC_SOCKET_DONE:
		l = find_lent(e, &m->socket);
		if (l)
			take_back(e, l);
		break;
	default:
		break;
	}
}

static void on_control(struct loop_source *source, uint32_t events)
{
	struct shared *e = CONTAINER_OF(source, struct shared, from_control);
	struct ipc_message m;
	size_t count = 0;
	int fds[1];
	int r;

	if (events & EPOLLOUT)
		pay_or_wait(e);
	if (source->fd < 0)
		return;
	r = ipc_receive(source->fd, &m, fds, ARRAY_SIZE(fds), &count);
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		break_control(e, r);
		return;
	}
	on_control_message(e, &m, fds, count);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static void take_control(struct shared *e, int fd)
{
	lose_control(e);
	e->from_control = (struct loop_source){ .fd = fd, .on_ready = on_control };
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    loop_add(e->core.loop, &e->from_control, EPOLLIN) < 0) {
		close(fd);
		e->from_control.fd = -1;
		loop_stop(e->core.loop);
		return;
	}
	if (e->only)
		shared_tell_standing(e, e->only, IPC_STANDS, false);
	dns_service_tell_behind(e->core.dns);
	for (size_t i = 0; i < e->failed_count; i++)
		tell_trouble(e, &e->failed[i]);
	e->failed_count = 0;
}

/* A descriptor that is taken is -1 in @fds then. */
static void on_supervisor_message(struct shared *e, const struct ipc_message *m, int *fds,
				  size_t count)
{
	if (m->type == IPC_PEER && count == 1)
		take_control(e, TAKE_FD(fds[0]));
	else if (m->type == IPC_ATTACH)
		shared_attach(e, m, fds, count);
	else if (m->type == IPC_DETACH)
		shared_detach(e, m);
	else if (m->type == IPC_HOST)
		shared_host(e, m, fds, count);
	else if (m->type == IPC_HOST_LOAD)
		shared_host_load(e);
	else if (m->type == IPC_ALIVE)
		shared_tell_supervisor(e, m);
	else if (m->type == IPC_RUN && engine_core_find(&e->core, m->sandbox))
		engine_sandbox_begin(engine_core_find(&e->core, m->sandbox));
}

void shared_on_supervisor(struct loop_source *source, uint32_t events)
{
	struct shared *e = CONTAINER_OF(source, struct shared, from_supervisor);
	int fds[FDS_MAX];
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(source->fd, &m, fds, ARRAY_SIZE(fds), &count);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		loop_stop(e->core.loop);
		return;
	}
	on_supervisor_message(e, &m, fds, count);
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}
