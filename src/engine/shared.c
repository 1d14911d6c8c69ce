// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A sidecar's engine has one sandbox, which is there from the start. A daemon's engine is
 * given any number of them while it runs, one at a time (IPC_ATTACH). Both hear the
 * supervisor, whose end is theirs, and control, which comes and goes (IPC_PEER): events
 * that control has no room for are counted and lost, answers wait. */
#include "engine/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "dns/answer.h"
#include "engine/core.h"
#include "engine/harden.h"
#include "engine/host.h"
#include "proto/plan_file.h"
#include "sandbox/learned.h"

enum {
	LENT_MAX = 64, /* sockets that control has of us; over it: -EMFILE */
	OWED_MAX = 8,  /* answers that control's channel had no room for; over it they are
			* lost, and control takes us for stuck. It asks one at a time */
};

/* A socket that control uses: our copy keeps its port from everybody else. */
struct lent {
	int fd; /* owned; -1: free */
	struct ipc_socket socket;
};

struct shared {
	struct engine_core core;
	struct shared_config config;
	int fds_max; /* descriptors from this one on are for connections */
	struct engine_sandbox *only; /* the sidecar's; NULL in the daemon's engine */
	struct loop_source from_supervisor,
		from_control; /* control: fd -1 while there is none */
	struct lent lent[LENT_MAX];
	/* Events may fill the channel to control: they are counted then. Answers wait. */
	struct owed {
		struct ipc_message message;
		int fd; /* borrowed, -1: none */
	} owed[OWED_MAX];
	size_t owed_count;
	/* Probes that failed while there was no control: the first ones do, before it
	 * is there. More than these are not told. */
	struct upstream_trouble failed[RESOLVER_UPSTREAMS_MAX];
	size_t failed_count;
	/* A sandbox of the host's whose policy is large: that is loaded first, some of it
	 * in each turn. The daemon gives one sandbox at a time. */
	struct engine_sandbox *coming; /* owned, in no engine yet; NULL: none */
	struct filter_host_stage *coming_stage;
	struct loop_deferred coming_turn;
	char no_host[ERR_TEXT_SIZE]; /* why the host's own network can't be guarded */
	uint64_t untold; /* messages that control did not take, of no sandbox's */
};

enum {
	ANSWERED_PER_SEC = 100, /* lookups that control is told of; others only count */
	FDS_MAX = 3 + SANDBOX_FD_COUNT, /* of one message */
};

static struct shared *engine_of(const struct engine_sandbox *g)
{
	return CONTAINER_OF(g->core, struct shared, core);
}

/* -- telling ------------------------------------------------------------------------ */

static void tell_supervisor(struct shared *e, const struct ipc_message *m)
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

static void tell_standing(struct shared *e, const struct engine_sandbox *g,
			  enum ipc_type type, bool supervisor)
{
	struct ipc_message m = { .type = type, .sandbox = g->sandbox.id };

	engine_sandbox_standing(g, &m.standing);
	if (supervisor)
		tell_supervisor(e, &m);
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
	tell_standing(engine_of(g), g, IPC_STANDS, false);
}

static void tell_trouble(struct shared *e, const struct upstream_trouble *t)
{
	const struct ipc_message m = { .type = IPC_TROUBLE, .trouble = *t };

	tell_control(e, &m);
}

static void on_trouble(void *data, const struct upstream_trouble *t)
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
		tell_standing(engine_of(g), g, IPC_CHANGED, false);
}

static void on_sandbox_pinned(struct engine_sandbox *g, const char *why)
{
	struct ipc_message m = { .type = IPC_PINNED, .sandbox = g->sandbox.id };

	snprintf(m.text, sizeof(m.text), "%s", why);
	tell_supervisor(engine_of(g), &m);
}

static const struct engine_sandbox_told shared_told = { on_event, on_answered,
							on_standing, on_changed,
							on_sandbox_pinned };

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
		tell_standing(e, e->only, IPC_STANDS, false);
	dns_service_tell_behind(e->core.dns);
	for (size_t i = 0; i < e->failed_count; i++)
		tell_trouble(e, &e->failed[i]);
	e->failed_count = 0;
}

/* -- the daemon's sandboxes come and go --------------------------------------------- */

/* In this order before those that `present` lists. */
enum { ATTACH_PLAN = 0, ATTACH_IMAGE, ATTACH_FIRST };

/* What a sandbox of its kind can't do without. */
static bool is_complete(const struct engine_sandbox *g)
{
	return g->kind == ATTACH_HOST ||
	       (engine_has_fds(&g->sandbox.fds) && g->route_fd >= 0);
}

static int take_probe(struct sandbox *s, const struct ipc_attach *a)
{
	size_t len = strnlen(a->probe_name, sizeof(a->probe_name));

	s->probe_addr = a->probe_addr;
	s->probe_port = a->probe_port;
	return len == 0 ? 0
			: dns_name_parse((struct text){ a->probe_name, len },
					 &s->probe_name);
}

static int fill(struct shared *e, struct engine_sandbox *g, const struct ipc_message *m,
		int *fds, size_t count, struct err *err)
{
	int r;

	if (count < ATTACH_FIRST ||
	    (m->attach.kind != ATTACH_NETNS && m->attach.kind != ATTACH_HOST))
		return err_set(err, -EBADMSG, "the attach message is malformed");
	/* What was guarded before has had its descriptors. New ones get the lowest
	 * numbers that are free, and those of the plan and the image are free again soon.
	 */
	if (fds[count - 1] >= e->fds_max && !m->attach.restarted)
		return err_set(err, -EMFILE,
			       "the engine has too few descriptors for another sandbox "
			       "(RLIMIT_NOFILE)");
	g->told = &shared_told;
	g->enforce = ENFORCED_FILTER;
	g->restarted = m->attach.restarted;
	g->sandbox.shared_params = e->config.filter;
	g->sandbox.member = m->attach.member;
	if (take_probe(&g->sandbox, &m->attach) < 0)
		return err_set(err, -EBADMSG, "the self-test's name is malformed");
	if (engine_take_fds(&g->sandbox.fds, &g->route_fd, m, fds, ATTACH_FIRST, count) <
		    0 ||
	    !is_complete(g))
		return err_set(err, -EBADMSG, "a descriptor of the sandbox is missing");
	r = plan_file_map(fds[ATTACH_PLAN], &g->plan, err);
	if (r == 0)
		(void)!engine_sandbox_snapshot_map(g, fds[ATTACH_IMAGE]);
	return r;
}

static void refuse(struct shared *e, uint32_t sandbox, const struct err *err)
{
	struct ipc_message m = { .type = IPC_REFUSED, .sandbox = sandbox };

	snprintf(m.text, sizeof(m.text), "%s", err->text);
	tell_supervisor(e, &m);
}

/* A cgroup was made again: what comes takes the place of the old one, in one transaction.
 */
static void make_place(struct shared *e, const struct ipc_message *m)
{
	struct engine_sandbox *old = engine_core_find(&e->core, m->sandbox);

	if (!old || old->kind != ATTACH_HOST || m->attach.kind != ATTACH_HOST)
		return;
	engine_sandbox_leave(old);
	engine_sandbox_forget_rules(old);
	engine_sandbox_done(old);
	free(old);
}

/* @g is taken. */
static void end_attach(struct shared *e, struct engine_sandbox *g, int r,
		       const struct err *err)
{
	uint32_t id = g->sandbox.id;

	if (r == 0) {
		tell_standing(e, g, IPC_STANDS, true);
		return;
	}
	engine_sandbox_done(g);
	free(g);
	refuse(e, id, err);
}

/* Return: 1, another turn is needed. */
static int stage(struct shared *e, struct engine_sandbox *g)
{
	bool relay = plan_verify(&g->plan) == POLICY_VERIFY_TLS;
	struct err ignored = { 0 };

	if (g->kind != ATTACH_HOST || !e->core.host)
		return 0;
	return filter_host_stage(e->core.host->table, (uint16_t)g->sandbox.id, &g->plan,
				 relay, &e->coming_stage, &ignored);
}

static void stand_attached(struct shared *e, struct engine_sandbox *g,
			   struct filter_host_stage *staged)
{
	struct err err = { 0 };
	int r = engine_sandbox_stand(g, &e->core, &err);

	end_attach(e, g, r, &err);
	if (staged)
		filter_host_stage_end(e->core.host->table, staged);
}

static void on_coming(struct loop_deferred *d)
{
	struct shared *e = CONTAINER_OF(d, struct shared, coming_turn);

	if (stage(e, e->coming) > 0)
		loop_defer(e->core.loop, d);
	else
		stand_attached(e, TAKE_PTR(e->coming), TAKE_PTR(e->coming_stage));
}

static void begin_attach(struct shared *e, struct engine_sandbox *g)
{
	if (e->coming || stage(e, g) <= 0) {
		stand_attached(e, g, e->coming ? NULL : TAKE_PTR(e->coming_stage));
		return;
	}
	e->coming = g;
	e->coming_turn.run = on_coming;
	loop_defer(e->core.loop, &e->coming_turn);
}

static void attach(struct shared *e, const struct ipc_message *m, int *fds, size_t count)
{
	struct engine_sandbox *g = calloc(1, sizeof(*g));
	struct err err = { 0 };
	int r;

	if (!g) {
		err_set(&err, -ENOMEM, "out of memory");
		refuse(e, m->sandbox, &err);
		return;
	}
	engine_sandbox_init(g, (enum attach_kind)m->attach.kind, m->sandbox);
	make_place(e, m);
	if (e->only)
		r = err_set(&err, -EPERM, "this engine has its sandbox");
	else if (m->attach.kind == ATTACH_HOST && !e->core.host && e->no_host[0])
		r = err_set(&err, -ENOTCONN, "%s", e->no_host);
	else
		r = fill(e, g, m, fds, count, &err);
	if (r < 0)
		end_attach(e, g, r, &err);
	else
		begin_attach(e, g);
}

static int remove_rules(struct shared *e, struct engine_sandbox *g, struct err *err)
{
	int r = engine_sandbox_remove_rules(g, err);

	/* Others may just have taken the host's table away. */
	if (r < 0 && g->sandbox.host && engine_host_mend(e->core.host)) {
		*err = (struct err){ 0 };
		r = engine_sandbox_remove_rules(g, err);
	}
	return r;
}

/* Whom only the host's table still has: nobody is that any more. */
static bool is_left(const struct shared *e, const struct ipc_message *m)
{
	return e->core.host && !m->attach.forget && m->sandbox <= IPC_SANDBOXES_MAX &&
	       filter_host_is_forgotten(e->core.host->table, (uint16_t)m->sandbox);
}

static void detach(struct shared *e, const struct ipc_message *m)
{
	struct ipc_message answer = { .type = IPC_DETACHED, .sandbox = m->sandbox };
	struct engine_sandbox *g = engine_core_find(&e->core, m->sandbox);
	struct err err = { 0 };

	if (!g && is_left(e, m)) {
		(void)!filter_host_remove(e->core.host->table, (uint16_t)m->sandbox,
					  &err);
	} else if (!g || g == e->only) {
		err_set(&err, -ENOENT, "there is no such sandbox");
	} else {
		engine_sandbox_leave(g);
		if (m->attach.forget || remove_rules(e, g, &err) < 0)
			engine_sandbox_forget_rules(g);
		engine_sandbox_done(g);
		free(g);
	}
	snprintf(answer.text, sizeof(answer.text), "%s", err.text);
	tell_supervisor(e, &answer);
}

/* -- the host's own network --------------------------------------------------------- */

static void host(struct shared *e, const struct ipc_message *m, int *fds, size_t count)
{
	struct sandbox_fds all;
	struct err err = { 0 };
	int none = -1;

	sandbox_fds_init(&all);
	/* The last one is for conntrack. */
	if (e->only || count == 0 ||
	    engine_take_fds(&all, &none, m, fds, 0, count - 1) < 0) {
		sandbox_fds_done(&all);
		if (none >= 0)
			close(none);
		err_set(&err, -EBADMSG, "the message about the host is malformed");
	} else {
		(void)!engine_host_open(&e->core, &m->host, &all, TAKE_FD(fds[count - 1]),
					&err);
	}
	snprintf(e->no_host, sizeof(e->no_host), "%s", err.text);
}

static void host_load(struct shared *e)
{
	struct ipc_message answer = { .type = IPC_HOST_STANDS };
	struct err err = { 0 };

	if (e->core.host)
		(void)!engine_host_load(e->core.host, &err);
	else
		err_set(&err, -ENOTCONN, "%s",
			e->no_host[0] ? e->no_host : "nothing is known of the host");
	snprintf(answer.text, sizeof(answer.text), "%s", err.text);
	tell_supervisor(e, &answer);
}

/* -- the supervisor ----------------------------------------------------------------- */

/* A descriptor that is taken is -1 in @fds then. */
static void on_supervisor_message(struct shared *e, const struct ipc_message *m, int *fds,
				  size_t count)
{
	if (m->type == IPC_PEER && count == 1)
		take_control(e, TAKE_FD(fds[0]));
	else if (m->type == IPC_ATTACH)
		attach(e, m, fds, count);
	else if (m->type == IPC_DETACH)
		detach(e, m);
	else if (m->type == IPC_HOST)
		host(e, m, fds, count);
	else if (m->type == IPC_HOST_LOAD)
		host_load(e);
	else if (m->type == IPC_ALIVE)
		tell_supervisor(e, m);
	else if (m->type == IPC_RUN && engine_core_find(&e->core, m->sandbox))
		engine_sandbox_begin(engine_core_find(&e->core, m->sandbox));
}

static void on_supervisor(struct loop_source *source, uint32_t events)
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
		.on_trouble = on_trouble,
		.on_trouble_data = e,
	};
	struct rlimit files = { 0 };
	int r = harden_limits(err);

	if (r == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0)
		/* The daemon stops before that (daemon/engines.c). */
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

static int begin(struct shared *e, struct err *err)
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
						   .on_ready = on_supervisor };
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

static void shared_run(const void *config)
{
	struct shared *e = shared_new(config);
	struct err err = { 0 };
	int r;

	if (!e)
		return;
	r = keep_descriptors(&e->config);
	if (r < 0)
		err_sys(&err, r, "cannot set the engine apart");
	else
		r = shared_init(e, &err);
	if (r == 0)
		r = begin(e, &err);
	if (r == 0)
		r = watch_supervisor(e, &err);
	if (r < 0) {
		tell_text(e, IPC_FAILED, err.text);
		return;
	}
	dns_service_settle(e->core.dns, SETTLE_MS);
	if (e->only)
		tell_standing(e, e->only, IPC_STANDS, true);
	else
		tell_text(e, IPC_READY, e->core.missing);
	(void)!loop_run(e->core.loop);
}

pid_t shared_start(const struct shared_config *config, struct err *err)
{
	return engine_fork(shared_run, config, err);
}
