// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/host.h"
#include "engine/shared_internal.h"
#include "proto/plan_file.h"
#include "sandbox/learned.h"

/* In this order before those that `present` lists. */
enum { ATTACH_PLAN = 0, ATTACH_IMAGE, ATTACH_FIRST };

/* What `present` lists, from fds[@next] on, the last one to *@last. Every descriptor that
 * is taken is -1 in @fds then. */
static int take_fds(struct sandbox_fds *to, int *last, const struct ipc_message *m,
		    int *fds, size_t next, size_t count)
{
	for (size_t i = 0; i <= SANDBOX_FD_COUNT; i++) {
		int *fd = i == SANDBOX_FD_COUNT ? last : &to->fd[i];

		if (!(m->present & 1u << i))
			continue;
		if (next == count || *fd >= 0)
			return -EBADMSG;
		*fd = TAKE_FD(fds[next]);
		next++;
	}
	return next == count ? 0 : -EBADMSG;
}

/* What a sandbox of its kind can't do without. */
static bool is_complete(const struct engine_sandbox *g)
{
	const int *fd = g->sandbox.fds.fd;

	return g->kind == ATTACH_HOST ||
	       (fd[SANDBOX_FD_NETLINK] >= 0 && fd[SANDBOX_FD_NFLOG] >= 0 &&
		fd[SANDBOX_FD_DNS_UDP4] >= 0 && fd[SANDBOX_FD_DNS_TCP4] >= 0 &&
		g->route_fd >= 0);
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
	if (take_fds(&g->sandbox.fds, &g->route_fd, m, fds, ATTACH_FIRST, count) < 0 ||
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
	shared_tell_supervisor(e, &m);
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
		shared_tell_standing(e, g, IPC_STANDS, true);
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

static void stand(struct shared *e, struct engine_sandbox *g,
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
		stand(e, TAKE_PTR(e->coming), TAKE_PTR(e->coming_stage));
}

static void begin_attach(struct shared *e, struct engine_sandbox *g)
{
	if (e->coming || stage(e, g) <= 0) {
		stand(e, g, e->coming ? NULL : TAKE_PTR(e->coming_stage));
		return;
	}
	e->coming = g;
	e->coming_turn.run = on_coming;
	loop_defer(e->core.loop, &e->coming_turn);
}

void shared_attach(struct shared *e, const struct ipc_message *m, int *fds, size_t count)
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

void shared_detach(struct shared *e, const struct ipc_message *m)
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
	shared_tell_supervisor(e, &answer);
}

/* -- the host's own network --------------------------------------------------------- */

void shared_host(struct shared *e, const struct ipc_message *m, int *fds, size_t count)
{
	struct sandbox_fds all;
	struct err err = { 0 };
	int none = -1;

	sandbox_fds_init(&all);
	/* The last one is for conntrack. */
	if (e->only || count == 0 || take_fds(&all, &none, m, fds, 0, count - 1) < 0) {
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

void shared_host_load(struct shared *e)
{
	struct ipc_message answer = { .type = IPC_HOST_STANDS };
	struct err err = { 0 };

	if (e->core.host)
		(void)!engine_host_load(e->core.host, &err);
	else
		err_set(&err, -ENOTCONN, "%s",
			e->no_host[0] ? e->no_host : "nothing is known of the host");
	snprintf(answer.text, sizeof(answer.text), "%s", err.text);
	shared_tell_supervisor(e, &answer);
}
