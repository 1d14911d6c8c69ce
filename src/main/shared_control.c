// SPDX-License-Identifier: Apache-2.0
#include "main/shared_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "dns/answer.h"
#include "ipc/plan_file.h"
#include "sandbox/change.h"
#include "sandbox/learned.h"

enum { ANSWERED_PER_SEC = 100 }; /* lookups that control is told of; others only count */

/* -- telling ------------------------------------------------------------------------ */

void shared_tell_keeper(struct shared *e, const struct ipc_message *m)
{
	/* Without a keeper nobody is left who could start us again: the rules stay. */
	if (ipc_send(e->config.keeper_fd, m, NULL, 0) < 0)
		loop_stop(e->core.loop);
}

static void lose_control(struct shared *e);

/* Control may be slow or gone; nobody waits for it. */
static void tell_control(struct shared *e, const struct ipc_message *m, const int *fd)
{
	int r;

	if (e->from_control.fd < 0) {
		e->core.sandbox.counters[COUNT_EVENTS_DROPPED]++;
		return;
	}
	r = ipc_send(e->from_control.fd, m, fd, fd ? 1 : 0);
	if (r == -EAGAIN)
		e->core.sandbox.counters[COUNT_EVENTS_DROPPED]++;
	else if (r < 0)
		lose_control(e);
}

void shared_tell_standing(struct shared *e, enum ipc_type type, bool keeper)
{
	struct ipc_message m = { .type = type, .standing = e->standing };

	m.standing.generation = e->config.enforce == ENFORCED_NOTHING
					? 0
					: e->core.sandbox.shared_params.generation;
	m.standing.plan_id = plan_file_id(&e->plan);
	if (keeper)
		shared_tell_keeper(e, &m);
	else
		tell_control(e, &m, NULL);
}

void shared_on_event(void *data, const struct event *event)
{
	struct ipc_message m = { .type = IPC_EVENT, .event = *event };

	tell_control(data, &m, NULL);
}

void shared_on_answered(void *data, const struct dns_name *name,
			const struct dns_answer_addr *addrs, size_t count)
{
	struct shared *e = data;
	struct ipc_message m = { .type = IPC_ANSWERED };
	char text[DNS_NAME_TEXT_SIZE];

	if (!rate_take(&e->answered_rate, ANSWERED_PER_SEC, 1000, ANSWERED_PER_SEC,
		       loop_now_ms(e->core.loop)))
		return;
	snprintf(m.answered.name, sizeof(m.answered.name), "%s",
		 dns_name_format(name, text));
	m.answered.count = (uint32_t)MIN(count, (size_t)IPC_ANSWERED_MAX);
	for (size_t i = 0; i < m.answered.count; i++)
		m.answered.addrs[i] = addrs[i].addr;
	tell_control(e, &m, NULL);
}

void shared_on_trouble(void *data, const struct upstream_trouble *t)
{
	struct ipc_message m = { .type = IPC_TROUBLE, .trouble = *t };

	tell_control(data, &m, NULL);
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
	own_let_go(&e->core.sandbox.own, l->fd, (enum addr_family)l->socket.family,
		   l->socket.protocol, l->socket.port);
	close(l->fd);
	l->fd = -1;
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
	r = own_hold(&e->core.sandbox.own, fd, (enum addr_family)s->family, s->protocol);
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
	tell_control(e, m, fd < 0 ? NULL : &fd);
}

/* -- control ------------------------------------------------------------------------ */

static void lose_control(struct shared *e)
{
	if (e->from_control.fd < 0)
		return;
	loop_remove(e->core.loop, &e->from_control);
	close(e->from_control.fd);
	e->from_control.fd = -1;
	for (size_t i = 0; i < LENT_MAX; i++)
		if (e->lent[i].fd >= 0)
			take_back(e, &e->lent[i]);
}

static int change(struct shared *e, int plan_fd, struct err *err)
{
	struct sandbox *s = &e->core.sandbox;
	struct plan old = e->plan, next;
	int r = plan_file_map(plan_fd, &next, err);

	if (r < 0)
		return r;
	if (e->config.enforce == ENFORCED_NOTHING)
		r = err_set(err, -EPERM, "nothing can be enforced here");
	else
		r = sandbox_change(s, &next, e->core.relay, loop_now_ms(e->core.loop),
				   err);
	if (r < 0) {
		munmap((void *)(uintptr_t)next.bytes, next.size);
		return r;
	}
	e->plan = next;
	munmap((void *)(uintptr_t)old.bytes, old.size);
	return 0;
}

static void on_change(struct shared *e, int plan_fd)
{
	struct ipc_message m = { .type = IPC_UNCHANGED };
	struct err err = { 0 };

	if (change(e, plan_fd, &err) == 0) {
		shared_tell_standing(e, IPC_CHANGED, false);
		return;
	}
	snprintf(m.text, sizeof(m.text), "%s", err.text);
	tell_control(e, &m, NULL);
}

static void on_stats(struct shared *e)
{
	struct sandbox *s = &e->core.sandbox;
	struct learned_counts counts = learned_counts(s->learned);
	struct ipc_message m = { .type = IPC_STATS };

	memcpy(m.stats.counters, s->counters, sizeof(m.stats.counters));
	m.stats.names = counts.names;
	m.stats.addresses = counts.addresses;
	m.stats.generation = s->shared_params.generation;
	m.stats.ipv6 = s->ipv6;
	tell_control(e, &m, NULL);
}

static void on_control_message(struct shared *e, struct ipc_message *m, const int *fds,
			       size_t count)
{
	struct lent *l;

	switch (m->type) {
	case IPC_CHANGE:
		if (count == 1)
			on_change(e, fds[0]);
		break;
	case IPC_STATS:
		on_stats(e);
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
	int r = ipc_receive(source->fd, &m, fds, ARRAY_SIZE(fds), &count);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		lose_control(e);
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
		return;
	}
	shared_tell_standing(e, IPC_STANDS, false);
}

void shared_on_keeper(struct loop_source *source, uint32_t events)
{
	struct shared *e = CONTAINER_OF(source, struct shared, from_keeper);
	struct ipc_message m;
	size_t count = 0;
	int fd;
	int r = ipc_receive(source->fd, &m, &fd, 1, &count);

	if (r == -EAGAIN)
		return;
	if (r < 0)
		loop_stop(e->core.loop);
	else if (m.type == IPC_PEER && count == 1)
		take_control(e, fd);
	else if (count == 1)
		close(fd);
}
