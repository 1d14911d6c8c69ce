// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Control comes and goes (IPC_PEER). The engine doesn't wait for it: events that the
 * channel has no room for are counted and lost. What it asks for is answered in any case:
 * answers wait. It can change policies and read counters; it can attach, detach and open
 * nothing. The control of `weir run` is the supervisor, and hears events on that channel;
 * what it asks it asks over a channel of its own, which it makes for the first question.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "dns/answer.h"
#include "engine/host.h"
#include "engine/internal.h"
#include "sandbox/asks.h"
#include "sys/process.h"

enum {
	ANSWERED_PER_SEC = 100, /* lookups that are sent to control; others only count */
};

/* -- what goes to control ----------------------------------------------------------- */

static void break_control(struct engine *e, int error);
static void take_back(struct engine *e, struct engine_lent *l, int error);

static void count_lost(struct engine *e, uint32_t sandbox)
{
	struct engine_sandbox *g = engine_core_find(&e->core, sandbox);

	if (g)
		g->sandbox.counters[COUNT_EVENTS_DROPPED]++;
	else
		e->lost++;
}

/* Control may be slow or gone; the engine doesn't wait. Return: @m was sent. */
static bool offer_control(struct engine *e, const struct ipc_message *m)
{
	const bool is_run = e->config.attach.kind == ATTACH_OWNED;
	int fd = is_run ? e->config.supervisor_fd : e->from_control.fd;
	int r = -EAGAIN;

	if (fd >= 0 && !e->is_control_lost &&
	    (is_run || (e->owed_count == 0 && !e->is_status_due)))
		r = ipc_send(fd, m, NULL, 0);
	if (r < 0 && r != -EAGAIN)
		break_control(e, r);
	return r == 0;
}

void engine_control_send(struct engine *e, const struct ipc_message *m)
{
	if (!offer_control(e, m))
		count_lost(e, m->sandbox);
}

/* This user's processes, a sandbox's maybe, have as many descriptors under way as the
 * kernel lets them: the answer goes without the socket. Return: 0, or -ETOOMANYREFS. */
static int keep_socket(struct engine *e, int fd)
{
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++) {
		if (fd < 0 || e->lent[i].fd != fd)
			continue;
		take_back(e, &e->lent[i], -ETOOMANYREFS);
		return 0;
	}
	return -ETOOMANYREFS;
}

static struct ipc_message status_of(const struct engine_sandbox *g, uint32_t type)
{
	struct ipc_message m = { .type = type, .sandbox = g->sandbox.id };

	engine_sandbox_status(g, &m.status);
	return m;
}

/* What is owed, and then the status, as far as there is room. */
static void pay_or_wait(struct engine *e)
{
	struct ipc_message status;
	size_t paid = 0;
	int r = 0;

	while (paid < e->owed_count && r == 0) {
		const struct engine_owed *o = &e->owed[paid];

		r = ipc_send(e->from_control.fd, &o->message, &o->fd, o->fd < 0 ? 0 : 1);
		if (r == -ETOOMANYREFS)
			r = keep_socket(e, o->fd);
		else
			paid += r == 0;
	}
	e->owed_count -= paid;
	memmove(e->owed, e->owed + paid, e->owed_count * sizeof(*e->owed));
	if (r == 0 && e->is_status_due) {
		status = status_of(e->only, IPC_ACTIVE);
		r = ipc_send(e->from_control.fd, &status, NULL, 0);
		e->is_status_due = r < 0;
	}
	if (r == -EAGAIN || r == 0)
		r = loop_modify(e->core.loop, &e->from_control,
				EPOLLIN | (r == -EAGAIN ? EPOLLOUT : 0));
	if (r < 0)
		break_control(e, r);
}

/* What control waits for. @fd -1: none; it stays open until then. */
static void answer_control(struct engine *e, const struct ipc_message *m, int fd)
{
	if (e->from_control.fd < 0 || e->owed_count == ENGINE_OWED_MAX) {
		count_lost(e, m->sandbox);
		return;
	}
	e->owed[e->owed_count++] = (struct engine_owed){ *m, fd };
	if (e->owed_count == 1)
		pay_or_wait(e);
}

/* Control hears how its only sandbox is now, as soon as there is room; however often that
 * changes meanwhile. Of many sandboxes control asks for what it wants to know. */
static void notify_status(struct engine *e)
{
	e->is_status_due = e->only && e->from_control.fd >= 0;
	if (e->is_status_due)
		pay_or_wait(e);
}

static bool on_event(void *data, const struct event *event)
{
	const struct engine_sandbox *g = data;
	struct ipc_message m = {
		.type = IPC_EVENT,
		.sandbox = g->sandbox.id,
		.event = *event,
	};

	return offer_control(engine_of(g), &m);
}

static void on_answered(void *data, const struct dns_name *name,
			const struct dns_answer_addr *addrs, size_t count)
{
	struct engine_sandbox *g = data;
	struct engine *e = engine_of(g);
	struct ipc_message m = { .type = IPC_ANSWERED, .sandbox = g->sandbox.id };

	if (!rate_take(&g->answered_rate, ANSWERED_PER_SEC, 1000, ANSWERED_PER_SEC,
		       loop_now_ms(e->core.loop)))
		return;
	snprintf(m.answered.name, sizeof(m.answered.name), "%s", DNS_NAME_SHOWN(name));
	m.answered.count = (uint32_t)MIN(count, (size_t)IPC_ANSWERED_MAX);
	for (size_t i = 0; i < m.answered.count; i++)
		m.answered.addrs[i] = addrs[i].addr;
	engine_control_send(e, &m);
}

static void on_status(struct engine_sandbox *g)
{
	notify_status(engine_of(g));
}

static void send_trouble(struct engine *e, const struct upstream_trouble *t)
{
	const struct ipc_message m = {
		.type = IPC_TROUBLE,
		.trouble = *t,
	};

	engine_control_send(e, &m);
}

void engine_control_on_trouble(void *data, const struct upstream_trouble *t)
{
	struct engine *e = data;

	if (e->from_control.fd < 0 && t->kind == UPSTREAM_PROBE &&
	    e->failed_count < ARRAY_SIZE(e->failed))
		e->failed[e->failed_count++] = *t;
	else
		send_trouble(e, t);
}

/* -- sockets for control ------------------------------------------------------------ */

static struct engine_lent *find_lent(struct engine *e, const struct ipc_socket *s)
{
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++) {
		struct engine_lent *l = &e->lent[i];

		if (s ? l->fd >= 0 && l->socket.port == s->port &&
				    l->socket.family == s->family &&
				    l->socket.protocol == s->protocol
		      : l->fd < 0)
			return l;
	}
	return NULL;
}

/* An answer that still waits has nothing to hand over any more, and says @error. */
static void take_back(struct engine *e, struct engine_lent *l, int error)
{
	for (size_t i = 0; i < e->owed_count; i++) {
		if (e->owed[i].fd != l->fd)
			continue;
		e->owed[i].fd = -1;
		e->owed[i].message.socket.error = error;
	}
	if (e->only)
		own_let_go(&e->only->sandbox.own, l->fd,
			   (enum addr_family)l->socket.family, l->socket.protocol,
			   l->socket.port);
	fd_close(&l->fd);
}

/* Bind @fd to any port. The daemon's control lives where no filter has to exempt it.
 * Return: the port, or -errno. */
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

static int lend(struct engine *e, struct ipc_socket *s)
{
	struct engine_lent *l = find_lent(e, NULL);
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
	*l = (struct engine_lent){ .fd = TAKE_FD(fd), .socket = *s };
	return l->fd;
}

/* -- control ------------------------------------------------------------------------ */

static void lose_control(struct engine *e)
{
	loop_defer_cancel(e->core.loop, &e->control_end);
	e->is_control_lost = false;
	if (e->from_control.fd < 0)
		return;
	loop_remove(e->core.loop, &e->from_control);
	fd_close(&e->from_control.fd);
	e->owed_count = 0;
	e->is_status_due = false;
	for (size_t i = 0; i < ENGINE_LENT_MAX; i++)
		if (e->lent[i].fd >= 0)
			take_back(e, &e->lent[i], -ECANCELED);
	for (uint32_t i = 0; i < e->core.slots; i++)
		if (e->core.sandboxes[i])
			engine_sandbox_change_cancel(e->core.sandboxes[i]);
}

static void on_control_end(struct loop_deferred *d)
{
	lose_control(CONTAINER_OF(d, struct engine, control_end));
}

/* A control that has ended gets a successor, and that a channel. One that is still there
 * gets none, and could change no policy any more: then this engine ends, and its
 * successor has a new one. The control of `weir run` has no successor.
 *
 * Whoever sends may be in the midst of a change, which has to outlive the sending: the
 * loop gives up the channel, and the changes under way, when the sender has returned. */
static void break_control(struct engine *e, int error)
{
	if (e->config.attach.kind == ATTACH_OWNED ||
	    (error != -EPIPE && error != -ECONNRESET))
		loop_stop(e->core.loop);
	if (e->is_control_lost)
		return;
	e->is_control_lost = true;
	e->control_end.run = on_control_end;
	loop_defer(e->core.loop, &e->control_end);
}

static void answer_unchanged(struct engine *e, uint32_t sandbox, const struct err *err)
{
	struct ipc_message m = { .type = IPC_UNCHANGED, .sandbox = sandbox };

	snprintf(m.text, sizeof(m.text), "%s", err->text);
	answer_control(e, &m, -1);
}

static void on_changed(struct engine_sandbox *g, int r, const struct err *err)
{
	const struct ipc_message changed = status_of(g, IPC_CHANGED);

	if (r < 0)
		answer_unchanged(engine_of(g), g->sandbox.id, err);
	else
		answer_control(engine_of(g), &changed, -1);
}

/* Queries for the name fail until an answer comes in a round to come. */
static void report_unpinned(struct engine_sandbox *g, const char *name,
			    const struct resolver_unpinned *fault)
{
	struct event e = event_make(EVENT_DENY, EVENT_DNS);

	if (fault->stays)
		return;
	snprintf(e.name, sizeof(e.name), "%.*s", EVENT_NAME_SIZE - 1, name);
	snprintf(e.reason, sizeof(e.reason), "not pinned: %.*s", EVENT_REASON_SIZE - 16,
		 fault->why);
	sandbox_event(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

static void report_pinned(struct engine_sandbox *g, const char *why)
{
	if (!g->is_pinned)
		engine_report_text(engine_of(g), IPC_PINNED, g->sandbox.id, why);
}

const struct engine_sandbox_observer engine_control_observer = {
	on_event, on_answered, on_status, on_changed, report_unpinned, report_pinned,
};

/* -- what `weir run` hears ----------------------------------------------------------- */

enum { UNPINNED_MAX = 16 }; /* names of a round; the others are counted */

/* Its rules are those of the policy of that number, the first one's 0. */
static bool on_run_event(void *data, const struct event *event)
{
	const struct engine_sandbox *g = data;
	struct event e = *event;

	e.sandbox = g->policy_number;
	return on_event(data, &e);
}

static void on_run_unpinned(struct engine_sandbox *g, const char *name,
			    const struct resolver_unpinned *fault)
{
	struct engine *e = engine_of(g);
	struct ipc_message m = { .type = IPC_WARNING };

	snprintf(m.text, sizeof(m.text), "dns: pinned: cannot resolve %.253s%s: %s%s",
		 name, fault->stays ? " fully" : "", fault->why,
		 fault->stays ? "; what is pinned stays" : "");
	if (e->unpinned++ < UNPINNED_MAX)
		engine_control_send(e, &m);
}

static void on_run_pinned(struct engine_sandbox *g, const char *why)
{
	struct engine *e = engine_of(g);
	struct ipc_message m = { .type = IPC_WARNING };

	snprintf(m.text, sizeof(m.text), "dns: pinned: %zu more names were not resolved",
		 e->unpinned - UNPINNED_MAX);
	if (e->unpinned > UNPINNED_MAX)
		engine_control_send(e, &m);
	e->unpinned = 0;
	/* Another policy of a command that runs keeps nobody waiting. */
	if (!g->is_pinned && g->sandbox.state == SANDBOX_TESTING)
		engine_attached(g, why);
}

/* `weir run` has the first status, and asks for no other. */
static void on_run_status(struct engine_sandbox *g)
{
}

const struct engine_sandbox_observer engine_run_observer = {
	.on_event = on_run_event,
	.on_status = on_run_status,
	.on_changed = on_changed,
	.on_unpinned = on_run_unpinned,
	.on_pinned = on_run_pinned,
};

/* -- what control asks --------------------------------------------------------------- */

static void on_change(struct engine *e, const struct ipc_message *ask, int plan_fd)
{
	struct engine_sandbox *g = engine_core_find(&e->core, ask->sandbox);
	struct err err = { 0 };
	int r = g ? engine_sandbox_change(g, plan_fd, &err)
		  : err_set(&err, -ENOENT, "there is no such sandbox");

	if (r < 0)
		answer_unchanged(e, ask->sandbox, &err);
}

/* Of all sandboxes together, as far as it can be added. */
static void add_stats(const struct engine *e, struct ipc_stats *ret)
{
	for (size_t i = 0; i < e->core.slots; i++) {
		struct ipc_stats one;

		if (!e->core.sandboxes[i])
			continue;
		engine_sandbox_stats(e->core.sandboxes[i], &one);
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

static void on_stats(struct engine *e, uint32_t sandbox)
{
	struct engine_sandbox *g = engine_core_find(&e->core, sandbox);
	struct ipc_message m = { .type = IPC_STATS, .sandbox = sandbox };

	if (g) {
		engine_account_read(g);
		engine_sandbox_stats(g, &m.stats);
	} else if (!e->only && sandbox == 0) {
		add_stats(e, &m.stats);
	}
	answer_control(e, &m, -1);
}

static void on_denies(struct engine *e, uint32_t sandbox)
{
	struct ipc_message m = { .type = IPC_DENIES };
	struct ipc_denies *d = &m.denies;

	for (size_t i = (size_t)sandbox + 1; i < e->core.slots; i++) {
		const struct engine_sandbox *g = e->core.sandboxes[i];
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

static void on_dismiss(struct engine *e, struct ipc_message *m)
{
	struct engine_sandbox *g = engine_core_find(&e->core, m->sandbox);
	struct ipc_dismissed *d = &m->dismissed;
	struct asked what = { .protocol = d->protocol, .port = d->port };

	ipc_sanitize(d->destination, sizeof(d->destination));
	if (!g || (!addr_parse(d->destination, strlen(d->destination), &what.addr) &&
		   dns_name_parse(text_of(d->destination), &what.name) < 0))
		return;
	asks_dismiss(&g->sandbox, &what);
	if (what.name.size == 0)
		return;
	relay_dismiss(&g->sandbox, &what);
	resolver_dismiss(dns_service_resolver(e->core.dns), &g->sandbox, &what.name,
			 loop_now_ms(e->core.loop));
}

static void on_control(struct loop_source *source, uint32_t events)
{
	struct engine *e = CONTAINER_OF(source, struct engine, from_control);
	struct ipc_message m;
	size_t count = 0;
	int fds[1];
	int r;
	struct engine_lent *l;
	int fd;

	if (events & EPOLLOUT)
		pay_or_wait(e);
	if (e->is_control_lost)
		return;
	r = ipc_receive(source->fd, &m, fds, ARRAY_SIZE(fds), &count);
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		break_control(e, r);
		return;
	}
	switch (m.type) {
	case IPC_CHANGE:
		if (count == 1)
			on_change(e, &m, fds[0]);
		break;
	case IPC_STATS:
		on_stats(e, m.sandbox);
		break;
	case IPC_DENIES:
		on_denies(e, m.sandbox);
		break;
	case IPC_DISMISS:
		on_dismiss(e, &m);
		break;
	case IPC_SOCKET:
		fd = lend(e, &m.socket);
		m.socket.error = MIN(fd, 0);
		answer_control(e, &m, MAX(fd, -1));
		break;
	case IPC_SOCKET_DONE:
		l = find_lent(e, &m.socket);
		if (l)
			take_back(e, l, -ECANCELED);
		break;
	default:
		break;
	}
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

void engine_control_take(struct engine *e, int fd)
{
	lose_control(e);
	e->from_control = (struct loop_source){ .fd = fd, .on_ready = on_control };
	if (process_dont_wait(fd) < 0 ||
	    loop_add(e->core.loop, &e->from_control, EPOLLIN) < 0) {
		close(fd);
		e->from_control.fd = -1;
		loop_stop(e->core.loop);
		return;
	}
	notify_status(e);
	dns_service_notify_behind(e->core.dns);
	for (size_t i = 0; i < e->failed_count; i++)
		send_trouble(e, &e->failed[i]);
	e->failed_count = 0;
}
