// SPDX-License-Identifier: Apache-2.0
/* Sandboxes are attached, tested, active, refused and detached. lifecycle.h has their
 * states; a function here that ends in a change of state says what is done with it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "policy/policy.h"
#include "sandbox/plan_file.h"
#include "supervisor/probe.h"

struct daemon_sandbox *daemon_sandbox_find(const struct daemon *w, uint32_t id)
{
	return id <= SANDBOXES_MAX ? w->sandboxes[id] : NULL;
}

struct daemon_sandbox *daemon_sandbox_find_name(const struct daemon *w, const char *name)
{
	struct index_entry *e = index_find(&w->names, name);

	return e ? CONTAINER_OF(e, struct daemon_sandbox, in_names) : NULL;
}

struct ipc_sandbox daemon_sandbox_as_reported(const struct daemon_sandbox *d)
{
	struct ipc_sandbox spec = d->spec;

	spec.ns_dev = d->ns_dev;
	spec.ns_ino = d->ns_ino;
	return spec;
}

int daemon_sandbox_check(const struct ipc_sandbox *spec, struct err *err)
{
	if (!ipc_is_sandbox_name(spec->name))
		return err_set(err, -EINVAL, "%s", IPC_SANDBOX_NAME_RULE);
	if (spec->kind == ATTACH_HOST &&
	    (spec->member == MEMBER_CGROUP || spec->member == MEMBER_UID))
		return 0; /* host_find() says more */
	if (spec->kind != ATTACH_NETNS)
		return err_set(err, -EOPNOTSUPP, "this kind of sandbox is not known");
	if (strnlen(spec->where, sizeof(spec->where)) > IPC_SANDBOX_WHERE_MAX ||
	    (spec->where[0] != '/' && gone_pid_of(spec->where) == 0))
		return err_set(err, -EINVAL,
			       "a network namespace is given as a process id or as an "
			       "absolute path");
	return 0;
}

/* -- plans, which sandboxes share --------------------------------------------------- */

/* Thousands of sandboxes may have a handful of policies. Plans that are the same, byte by
 * byte, are one file here: a descriptor of the daemon's, and memory of the engine's that
 * all of its mappings share. */

/* @fd, a sealed memfd, is taken, whatever comes of it. Out of memory: *@ret is NULL. */
static int daemon_plan_take(struct daemon *w, int fd, struct daemon_plan **ret,
			    struct err *err)
{
	CLEAN(fd) int own = fd;
	CLEAN(mem) struct daemon_plan *made = NULL;
	struct daemon_plan *have = NULL;
	struct index_entry *e;
	struct plan plan = { 0 }, other = { 0 };
	char key[sizeof(made->key)];
	int r = plan_file_map(own, &plan, err);

	if (r < 0)
		return r;
	snprintf(key, sizeof(key), "%llx", (unsigned long long)plan_file_id(&plan));
	e = index_find(&w->plans, key);
	if (e) {
		have = CONTAINER_OF(e, struct daemon_plan, entry);
		/* The id is a hash: only the bytes decide. */
		if (plan_file_map(have->fd, &other, NULL) < 0 ||
		    other.size != plan.size ||
		    memcmp(other.bytes, plan.bytes, plan.size) != 0)
			have = NULL;
		plan_file_unmap(&other);
	}
	plan_file_unmap(&plan);
	if (have) {
		have->users++;
		*ret = have;
		return 0;
	}
	made = calloc(1, sizeof(*made));
	if (made)
		memcpy(made->key, key, sizeof(key));
	*ret = NULL;
	if (!made || index_add(&w->plans, &made->entry, made->key) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	made->users = 1;
	made->fd = TAKE_FD(own);
	w->plan_count++;
	*ret = TAKE_PTR(made);
	return 0;
}

/* @p may be NULL. */
static void daemon_plan_drop(struct daemon *w, struct daemon_plan *p)
{
	if (!p || --p->users > 0)
		return;
	index_remove(&w->plans, &p->entry);
	w->plan_count--;
	close(p->fd);
	free(p);
}

/* -- the queues and the end --------------------------------------------------------- */

/* Sandboxes wait in three queues, one for each lifecycle_origin. The engine gets one
 * sandbox at a time: first those that were made again, then those that were guarded
 * before, then the host's table is loaded, and last come new sandboxes. */

static void daemon_sandbox_leave_queue(struct daemon_sandbox *d)
{
	if (d->queue)
		TAILQ_REMOVE(d->queue, d, in_queue);
	d->queue = NULL;
}

/* It is LIFECYCLE_QUEUED. */
static void daemon_sandbox_wait(struct daemon_sandbox *d)
{
	daemon_sandbox_leave_queue(d);
	d->queue = &d->daemon->queues[d->life.origin];
	TAILQ_INSERT_TAIL(d->queue, d, in_queue);
}

/* Close what is served. Whoever hears of the sandbox's end may ask for the same namespace
 * at once, and another daemon may be the one who gets it. */
static void close_sockets(struct daemon_sandbox *d)
{
	sandbox_fds_done(&d->fds);
	fd_close(&d->route_fd);
}

static void free_later(struct loop_deferred *l)
{
	free(CONTAINER_OF(l, struct daemon_sandbox, freed));
}

static void daemon_sandbox_free(struct daemon_sandbox *d)
{
	struct daemon *w = d->daemon;

	daemon_sandbox_leave_queue(d);
	index_remove(&w->names, &d->in_names);
	index_remove(&w->targets, &d->in_targets);
	if (w->sandboxes[d->id] == d) {
		w->sandboxes[d->id] = NULL;
		w->count--;
		w->fd_count -= d->fd_count;
		if (w->attaching == d->id)
			w->attaching = 0;
	}
	netns_child_end(d);
	gone_unwatch(d);
	cgroup_watch_stop(d);
	free(d->dir);
	free(d->refused);
	d->dir = d->refused = NULL;
	close_sockets(d);
	daemon_plan_drop(w, d->plan);
	d->plan = NULL;
	fd_close(&d->text_fd);
	fd_close(&d->snapshot_fd);
	/* A handler of the sandbox's own may be the caller. */
	d->freed.run = free_later;
	loop_defer(w->supervisor.loop, &d->freed);
}

/* -- one is refused or detached ----------------------------------------------------- */

/* It is not guarded, and whoever asked hears why. It ends with that, or its id stays with
 * what the host's table may have of it. */
static void daemon_sandbox_refuse(struct daemon_sandbox *d, const char *text)
{
	close_sockets(d);
	log_warning("sandbox '%s' is not guarded: %s", d->spec.name, text);
	if (d->control == CONTROL_ASKS)
		daemon_send_text(d->daemon, d->ask, IPC_REFUSED, d->id, text);
	/* What was guarded before is tried again. */
	if (d->life.origin != LIFECYCLE_NEW) {
		state_note_lacking(d->daemon, d->spec.name, text);
		daemon_report_lacking(d->daemon);
	} else {
		state_forget(d);
	}
	if (d->life.state != LIFECYCLE_RESERVED) {
		daemon_sandbox_free(d);
		return;
	}
	netns_child_end(d);
	cgroup_watch_stop(d);
	daemon_sandbox_leave_queue(d);
	index_remove(&d->daemon->names, &d->in_names);
	d->spec.name[0] = '\0';
	free(d->refused);
	d->refused = NULL;
}

/* The engine has let go of it; @text "": that went well. */
static void daemon_sandbox_on_detached(struct daemon_sandbox *d,
				       enum lifecycle_event event, const char *text)
{
	bool has_failed = d->life.state == LIFECYCLE_FAILING;

	if (!lifecycle_change(&d->life, event))
		return;
	if (text[0])
		log_warning("sandbox '%s': %s", d->spec.name, text);
	if (has_failed) {
		daemon_sandbox_refuse(d, d->refused ? d->refused : "out of memory");
		return;
	}
	close_sockets(d);
	if (d->control == CONTROL_ASKS)
		daemon_send_text(d->daemon, d->ask, IPC_DETACHED, d->id, text);
	if (d->gone)
		daemon_send_text(d->daemon, 0, IPC_GONE, d->id, d->gone);
	/* A client need not ask again. */
	else if (d->control == CONTROL_ASKS && text[0])
		daemon_send_text(d->daemon, 0, IPC_GONE, d->id, text);
	daemon_sandbox_free(d);
}

/* The engine lets go of it, and of its rules unless @forget. */
static void let_go(struct daemon_sandbox *d, bool forget)
{
	const struct ipc_message m = {
		.type = IPC_DETACH,
		.sandbox = d->id,
		.attach.forget = forget,
	};
	struct child *engine = &d->daemon->supervisor.engine;

	ended_note_if_gone(d);
	netns_child_end(d);
	gone_unwatch(d);
	daemon_sandbox_leave_queue(d);
	/* An engine that is gone has nothing of it any more. */
	child_notify(engine, &m, NULL);
	if (engine->pid == 0)
		daemon_sandbox_on_detached(d, LIFECYCLE_ON_DETACHED,
					   forget ? ""
						  : "there is no engine; its rules stay");
}

void daemon_sandbox_detach(struct daemon_sandbox *d, bool forget)
{
	if (lifecycle_change(&d->life, LIFECYCLE_ON_DETACH))
		let_go(d, forget);
}

void daemon_sandbox_on_gone(struct daemon_sandbox *d, const char *seen, const char *text,
			    bool forget)
{
	log_warning("sandbox '%s' is gone: %s", d->spec.name, seen);
	/* The folder is empty before anybody is notified. */
	state_forget(d);
	/* Whoever hears that may ask for one of that name: not before the engine has let
	 * go of @d. */
	d->gone = text;
	daemon_sandbox_detach(d, forget);
}

/* It won't be active. Whoever hears that may ask for the same again at once: not before
 * the engine has let go of it. */
static void daemon_sandbox_fail(struct daemon_sandbox *d, enum lifecycle_event event,
				const char *text)
{
	if (!lifecycle_change(&d->life, event))
		return;
	if (d->life.state == LIFECYCLE_ENDED) {
		daemon_sandbox_refuse(d, text);
		return;
	}
	d->refused = strdup(text);
	let_go(d, true);
}

void daemon_sandbox_refuse_host(struct daemon *w, const char *text)
{
	struct daemon_sandbox *d, *next;

	for (d = TAILQ_FIRST(&w->queues[LIFECYCLE_NEW]); d; d = next) {
		next = TAILQ_NEXT(d, in_queue);
		if (d->spec.kind == ATTACH_HOST)
			daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, text);
	}
}

/* -- the engine gets the next sandbox ----------------------------------------------- */

static bool has_host(const struct daemon *w)
{
	/* Called seldom: until the host's table is active. */
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++)
		if (w->sandboxes[id] && w->sandboxes[id]->spec.kind == ATTACH_HOST &&
		    w->sandboxes[id]->life.state != LIFECYCLE_RESERVED)
			return true;
	return false;
}

static void attach_or_wait(struct daemon_sandbox *d)
{
	struct daemon *w = d->daemon;
	struct ipc_message m = {
		.type = IPC_ATTACH,
		.sandbox = d->id,
		.attach = {
			.kind = d->spec.kind,
			.restarted = d->life.origin != LIFECYCLE_NEW,
			.remade = d->life.origin == LIFECYCLE_REMADE,
			.member = d->member,
			.probe_addr = d->probe.allowed.addr,
			.probe_port = d->probe.allowed.port,
		},
	};
	struct ipc_fds fds;

	/* Should the engine be gone, the next one gets the sandbox. */
	if (d->spec.kind == ATTACH_HOST && host_send(w) < 0)
		return;
	snprintf(m.attach.probe_name, sizeof(m.attach.probe_name), "%.*s",
		 (int)sizeof(m.attach.probe_name) - 1, d->probe.allowed_name);
	ipc_fds_init(&fds, &d->fds);
	fds.fd[IPC_FD_ROUTE] = d->route_fd;
	fds.fd[IPC_FD_PLAN] = d->plan->fd;
	fds.fd[IPC_FD_SNAPSHOT] = d->snapshot_fd;
	if (ipc_send_fds(w->supervisor.engine.source.fd, &m, &fds) < 0 ||
	    !lifecycle_change(&d->life, LIFECYCLE_ON_SENT))
		return;
	close(TAKE_FD(d->snapshot_fd));
	daemon_sandbox_leave_queue(d);
	d->attached_cgroup = d->member.cgroup;
	w->attaching = d->id;
}

/* The first of a queue that has a snapshot's file. One that can't have any is refused. */
static struct daemon_sandbox *first_of(struct daemon *w, enum lifecycle_origin origin)
{
	struct daemon_sandbox *d;
	struct err err = { 0 };

	while ((d = TAILQ_FIRST(&w->queues[origin]))) {
		if (d->snapshot_fd >= 0 || state_snapshot(d, &err) == 0)
			return d;
		daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, err.text);
	}
	return NULL;
}

void attach_queue_next(struct daemon *w)
{
	struct daemon_sandbox *d;

	if (!w->engine_ready || w->attaching != 0 || w->host.state == HOST_LOADING)
		return;
	d = first_of(w, LIFECYCLE_REMADE);
	if (!d)
		d = first_of(w, LIFECYCLE_RESTORED);
	if (!d && !w->restored)
		return;
	if (!d && w->host.state != HOST_NONE && w->host.state < HOST_LOADING &&
	    has_host(w)) {
		(void)!host_load(w);
		return;
	}
	if (!d)
		d = first_of(w, LIFECYCLE_NEW);
	if (d)
		attach_or_wait(d);
	else if (!w->supervisor.engine.serves)
		daemon_on_all_attached(w);
}

/* -- attaching ---------------------------------------------------------------------- */

static struct daemon_sandbox *daemon_sandbox_new(struct daemon *w,
						 const struct daemon_sandbox *given,
						 int text_fd)
{
	struct daemon_sandbox *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->daemon = w;
	d->id = given->id;
	d->spec = given->spec;
	d->life.origin = given->life.origin;
	d->life.is_in_table = d->spec.kind == ATTACH_HOST;
	d->control = given->control;
	d->ask = given->ask;
	d->ns_dev = given->ns_dev;
	d->ns_ino = given->ns_ino;
	d->ns_cookie = given->ns_cookie;
	d->ns_proc_ino = given->ns_proc_ino;
	d->member = given->member;
	d->above = given->above;
	d->guards_parent = given->guards_parent;
	d->watch = d->join.process = -1;
	sandbox_fds_init(&d->fds);
	d->route_fd = d->snapshot_fd = d->from_child.fd = d->process.fd = -1;
	d->text_fd = text_fd;
	/* An id from another engine may be in use here, or one that a new sandbox got
	 * while this one could not be restored. */
	if (d->life.origin != LIFECYCLE_NEW && daemon_sandbox_find(w, d->id))
		d->id = 0;
	for (uint32_t i = 0; d->id == 0 && i < SANDBOXES_MAX; i++) {
		w->last_id = w->last_id % SANDBOXES_MAX + 1;
		if (!w->sandboxes[w->last_id])
			d->id = w->last_id;
	}
	return d;
}

/* The self-test's targets, by the plan. What the engine answers is not dialled. */
static int choose_probe(struct daemon_sandbox *d, struct err *err)
{
	const struct policy none = { 0 };
	struct plan plan;
	int r = plan_file_map(d->plan->fd, &plan, err);

	if (r < 0)
		return r;
	d->life.pins = plan_dns(&plan) == POLICY_DNS_PINNED;
	r = probe_choose(&plan, &none, false, &d->probe, err);
	plan_file_unmap(&plan);
	return r;
}

static int check_free(const struct daemon *w, const struct daemon_sandbox *d,
		      struct err *err)
{
	if (w->engine != 0 && d->spec.kind == ATTACH_HOST)
		return err_set(err, -EINVAL, "that is the first engine's to guard");
	if (d->id == 0)
		return err_set(err, -EMFILE, "%d sandboxes are guarded already",
			       SANDBOXES_MAX);
	if (w->sandboxes[d->id] || daemon_sandbox_find_name(w, d->spec.name))
		return err_set(err, -EEXIST, "there is a sandbox '%s' already",
			       d->spec.name);
	return 0;
}

/* For a cgroup that is awaited: its last id. */
static void write_target_key(struct daemon_sandbox *d)
{
	const struct member *m = &d->member;

	if (d->spec.kind == ATTACH_NETNS)
		snprintf(d->target_key, sizeof(d->target_key), "netns %llx %llu",
			 (unsigned long long)d->ns_dev, (unsigned long long)d->ns_ino);
	else if (m->kind == MEMBER_CGROUP)
		snprintf(d->target_key, sizeof(d->target_key), "cgroup %llu",
			 (unsigned long long)m->cgroup);
	else
		snprintf(d->target_key, sizeof(d->target_key), "uid %u", m->uid);
}

/* Two sandboxes of one target would fight over it. One that is RESERVED leaves its id to
 * the new one: the host's table may have the member under that. */
static int check_alone(struct daemon_sandbox *d, struct err *err)
{
	struct index_entry *e;
	struct daemon_sandbox *other;

	write_target_key(d);
	e = index_find(&d->daemon->targets, d->target_key);
	if (!e)
		return 0;
	other = CONTAINER_OF(e, struct daemon_sandbox, in_targets);
	if (other->life.state != LIFECYCLE_RESERVED)
		return err_set(err, -EEXIST, "sandbox '%s' is that %s already",
			       other->spec.name,
			       d->spec.kind == ATTACH_NETNS ? "network namespace"
			       : d->dir			    ? "cgroup"
							    : "user");
	d->id = other->id;
	daemon_sandbox_free(other);
	return 0;
}

/* In its namespace, or in the host's own. */
static int open_sandbox(struct daemon_sandbox *d, struct err *err)
{
	bool is_host = d->spec.kind == ATTACH_HOST;
	CLEAN(fd) int ns = -1;
	int r = is_host ? host_find(d, err) : netns_child_find(d, &ns, err);

	if (r == 0)
		r = check_alone(d, err);
	if (r == 0 && !is_host)
		r = netns_child_open(d, ns, err);
	if (r == 0 && is_host && d->probe.allowed_name[0])
		r = join_start(d, d->dir, err);
	if (r == 0 && d->life.origin == LIFECYCLE_NEW)
		state_claim(d, d->spec.engines);
	if (r == 0)
		r = state_snapshot(d, err);
	return r < 0 || is_host ? r : gone_watch(d, err);
}

int daemon_sandbox_attach(struct daemon *w, const struct daemon_sandbox *given,
			  int plan_fd, int text_fd, struct err *err)
{
	struct daemon_sandbox *d = daemon_sandbox_new(w, given, text_fd);
	struct err why = { 0 };
	int r;

	if (!d) {
		fd_close(&plan_fd);
		fd_close(&text_fd);
		return err_set(err, -ENOMEM, "out of memory");
	}
	r = daemon_plan_take(w, plan_fd, &d->plan, err);
	if (r == 0)
		r = daemon_sandbox_check(&d->spec, err);
	if (r == 0)
		r = check_free(w, d, err);
	if (r == 0 && d->life.origin == LIFECYCLE_NEW)
		r = choose_probe(d, err);
	if (r == 0)
		r = fd_budget_check(d, err);
	if (r == 0)
		r = open_sandbox(d, err);
	if (r == 0)
		r = fd_budget_check_opened(d, err);
	if (r == 0 && (index_add(&w->names, &d->in_names, d->spec.name) < 0 ||
		       index_add(&w->targets, &d->in_targets, d->target_key) < 0))
		r = err_set(err, -ENOMEM, "out of memory");
	if (r < 0 || !lifecycle_change(&d->life, LIFECYCLE_ON_OPENED)) {
		daemon_sandbox_free(d);
		return r;
	}
	w->sandboxes[d->id] = d;
	w->count++;
	d->fd_count = fd_count_of(d);
	w->fd_count += d->fd_count;
	daemon_sandbox_wait(d);
	attach_queue_next(w);
	/* The child is awaited while the engine works. */
	if (join_wait(d, &why) < 0)
		daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, why.text);
	return 0;
}

/* -- active ------------------------------------------------------------------------- */

/* What was asked for has to be so. Of what was guarded before nothing is guarded less,
 * because its parent can't be, or because this can't be written down. */
static int settle(struct daemon_sandbox *d, struct err *err)
{
	bool is_new = d->life.origin == LIFECYCLE_NEW;
	struct err why = { 0 };
	int r = is_new && d->spec.kind == ATTACH_HOST ? host_settle(d, err) : 0;

	if (r < 0)
		return r;
	r = cgroup_guard_start(d, &why);
	if (r < 0 && is_new && d->spec.guard_parent)
		return err_set(err, r, "%s", why.text);
	if (r < 0)
		log_warning("sandbox '%s': %s", d->spec.name, why.text);
	r = d->life.origin == LIFECYCLE_RESTORED ? 0 : state_save(d, &why);
	if (r < 0 && is_new)
		return err_set(err, r, "%s", why.text);
	if (r < 0)
		log_warning("sandbox '%s': %s", d->spec.name, why.text);
	return 0;
}

bool daemon_sandbox_is_outdated(const struct daemon_sandbox *d)
{
	return d->dir && d->attached_cgroup != d->member.cgroup;
}

/* It is LIFECYCLE_ACTIVE. */
static void activate(struct daemon_sandbox *d)
{
	struct ipc_message m = { .type = IPC_ATTACHED, .sandbox = d->id, .ask = d->ask };
	struct err ignored = { 0 };

	if (daemon_sandbox_is_outdated(d) && d->life.origin != LIFECYCLE_NEW) {
		daemon_sandbox_on_remade(d);
		return;
	}
	/* A new one was settled while it was tested. */
	if (d->life.origin != LIFECYCLE_NEW)
		(void)!settle(d, &ignored);
	/* The client finds no process in its cgroup that wasn't there before. */
	join_end(d);
	fd_close(&d->text_fd);
	/* From now on a successor of the engine takes over. */
	d->life.origin = LIFECYCLE_RESTORED;
	d->probe.allowed_name[0] = '\0';
	m.attached = daemon_sandbox_as_reported(d);
	if (d->control != CONTROL_INFORMED) {
		daemon_send_control(d->daemon, &m, NULL);
		if (d->spec.kind == ATTACH_HOST)
			host_report_settled(d);
	}
	d->control = CONTROL_INFORMED;
	d->ask = 0;
	if (daemon_sandbox_is_outdated(d))
		daemon_sandbox_on_remade(d);
}

static void send_run(const struct daemon_sandbox *d)
{
	const struct ipc_message m = { .type = IPC_RUN, .sandbox = d->id };

	child_notify(&d->daemon->supervisor.engine, &m, NULL);
}

static void on_late(struct loop_timer *t)
{
	struct daemon_sandbox *d = CONTAINER_OF(t, struct daemon_sandbox, late);

	daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED,
			    d->life.state == LIFECYCLE_PINNING
				    ? "the names can't be pinned in time"
				    : "the self-test has not ended in time");
}

static int start_late(struct daemon_sandbox *d, int64_t ms)
{
	struct loop *loop = d->daemon->supervisor.loop;

	d->late.on_fire = on_late;
	return loop_timer_in(loop, &d->late, ms);
}

static void on_tested(struct loop_source *source, uint32_t events)
{
	struct daemon_sandbox *d =
		CONTAINER_OF(source, struct daemon_sandbox, from_child);
	struct err err = { 0 };
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(d->from_child.fd, &m, NULL, 0, &count);

	netns_child_close(d);
	m.text[sizeof(m.text) - 1] = '\0';
	if (r < 0)
		err_sys(&err, r, "the self-test has ended without a word");
	else if (m.type != IPC_RUNNING)
		err_set(&err, -EPERM, "%s", m.text);
	if (err.code < 0) {
		daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, err.text);
		return;
	}
	if (!lifecycle_change(&d->life, LIFECYCLE_ON_TESTED))
		return;
	send_run(d);
	if (d->life.state == LIFECYCLE_ACTIVE) {
		activate(d);
		return;
	}
	join_end(d);
	if (start_late(d, DAEMON_SANDBOX_PIN_MS) < 0)
		daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, "out of memory");
}

static void begin_test(struct daemon_sandbox *d)
{
	const struct ipc_message run = { .type = IPC_RUN };
	struct err err = { 0 };

	cgroup_guard_admit(d); /* its rules are active */
	d->from_child.on_ready = on_tested;
	if (ipc_send(d->from_child.fd, &run, NULL, 0) < 0 ||
	    loop_add(d->daemon->supervisor.loop, &d->from_child, EPOLLIN) < 0 ||
	    start_late(d, DAEMON_SANDBOX_TEST_MS) < 0)
		err_set(&err, -EIO, "the self-test can't be started");
	else if (settle(d, &err) == 0) /* meanwhile */
		return;
	daemon_sandbox_fail(d, LIFECYCLE_ON_FAILED, err.text);
}

void daemon_sandbox_on_engine_end(struct daemon_sandbox *d)
{
	switch (d->life.state) {
	case LIFECYCLE_TESTING:
	case LIFECYCLE_PINNING:
		daemon_sandbox_fail(d, LIFECYCLE_ON_ENGINE_END,
				    "the engine has ended before the sandbox was active; "
				    "attach it again");
		return;
	case LIFECYCLE_FAILING:
	case LIFECYCLE_DETACHING:
		daemon_sandbox_on_detached(d, LIFECYCLE_ON_ENGINE_END,
					   "the engine has ended; rules of it may be "
					   "left");
		return;
	default:
		break;
	}
	if (!lifecycle_change(&d->life, LIFECYCLE_ON_ENGINE_END))
		return;
	if (d->life.state == LIFECYCLE_QUEUED)
		daemon_sandbox_wait(d);
	else
		daemon_sandbox_free(d);
}

void daemon_sandbox_on_remade(struct daemon_sandbox *d)
{
	/* Without memory for the new key, another sandbox may get the same target. */
	index_remove(&d->daemon->targets, &d->in_targets);
	write_target_key(d);
	(void)!index_add(&d->daemon->targets, &d->in_targets, d->target_key);
	if (d->life.origin != LIFECYCLE_NEW)
		d->life.origin = LIFECYCLE_REMADE;
	/* While the engine is at the old one: when that is active. */
	if (!lifecycle_change(&d->life, LIFECYCLE_ON_REMADE))
		return;
	fd_close(&d->snapshot_fd); /* it is opened again */
	daemon_sandbox_wait(d);
	attach_queue_next(d->daemon);
}

void daemon_sandbox_on_engine(struct daemon *w, const struct ipc_message *given)
{
	struct ipc_message m = *given;
	struct daemon_sandbox *d = daemon_sandbox_find(w, m.sandbox);
	enum lifecycle_event event = lifecycle_event_of(&m);

	if (!d)
		return;
	ipc_sanitize(m.text, sizeof(m.text));
	if (w->attaching == d->id) {
		w->attaching = 0;
		w->supervisor.engine.advances = true;
	}
	if (event == LIFECYCLE_ON_DETACHED) {
		daemon_sandbox_on_detached(d, event, m.text);
	} else if (event == LIFECYCLE_ON_NOT_PINNED) {
		daemon_sandbox_fail(d, event, m.text);
	} else if (lifecycle_change(&d->life, event)) {
		if (event == LIFECYCLE_ON_REFUSED) {
			daemon_sandbox_refuse(d, m.text);
		} else if (d->life.state == LIFECYCLE_TESTING) {
			begin_test(d);
		} else {
			loop_timer_stop(w->supervisor.loop, &d->late);
			if (d->life.origin == LIFECYCLE_REMADE)
				send_run(d);
			activate(d);
		}
	}
	attach_queue_next(w);
}

int daemon_sandbox_replace_policy(struct daemon_sandbox *d, int plan_fd, int text_fd,
				  struct err *err)
{
	CLEAN(fd) int text = text_fd;
	struct daemon_plan *plan;
	int r = daemon_plan_take(d->daemon, plan_fd, &plan, err);

	if (r < 0)
		return r;
	/* A restart must not bring back what was in force before. */
	r = state_save_text(d, text, err);
	if (r < 0) {
		daemon_plan_drop(d->daemon, plan);
		return r;
	}
	daemon_plan_drop(d->daemon, d->plan);
	d->plan = plan;
	/* A sandbox whose policy isn't in its folder yet saves this one. */
	if (d->text_fd >= 0) {
		close(d->text_fd);
		d->text_fd = TAKE_FD(text);
	}
	return 0;
}
