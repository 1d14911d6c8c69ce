// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The sockets that the engine has in a namespace keep it alive, so nobody is told when
 * all others have left it. What is looked at instead is how it was named: a process ends,
 * or a path leads elsewhere. Then every process of this machine is asked where it lives,
 * and if none lives there, the sandbox is gone: what the engine has of it is closed, and
 * with that the kernel takes the namespace and its rules away. Its rules are not removed
 * before: should anybody hold the namespace after all, it stays closed. A daemon that
 * starts finds the namespaces of its sandboxes in the same ways. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "sys/tasks.h"

enum {
	AUDIT_EVERY_MS = 1000,
	RESTORE_EVERY = 5, /* looks */
};

pid_t gone_pid_of(const char *where)
{
	uint32_t pid;

	return text_to_u32(text_of(where), INT32_MAX, &pid) ? (pid_t)pid : 0;
}

static bool is_network_of(const struct daemon_sandbox *d, const struct stat *st)
{
	return st->st_dev == d->ns_dev && st->st_ino == d->ns_ino;
}

/* The path that names the namespace leads there, or that can't be seen. False for a
 * process: its number may be another one's by now. */
static bool is_named(const struct daemon_sandbox *d)
{
	struct stat st;

	if (gone_pid_of(d->spec.where) != 0)
		return false;
	if (stat(d->spec.where, &st) < 0)
		return errno != ENOENT && errno != ENOTDIR && errno != ELOOP;
	return is_network_of(d, &st);
}

/* -- who lives in namespaces that nothing names any more ---------------------------- */

struct unnamed {
	struct daemon_sandbox *sandbox;
	/* 1: a thread is in there; 0: none is; -errno: that can't be seen. */
	int has_member;
};

struct search {
	struct unnamed *all;
	size_t count, left; /* without a member so far */
	int *ret_ns;	    /* a namespace that was found, opened; NULL: not wanted */
	bool is_seen;	    /* the namespace of a thread of the present process */
	int error;	    /* of a process that can't be seen */
};

/* Return: 1: @net is @d's; 0: it is another one; -EACCES: that can't be told. */
static int is_in(const struct daemon_sandbox *d, const struct tasks_network *net)
{
	if (net->ino != 0)
		return net->dev == d->ns_dev && net->ino == d->ns_ino;
	return d->ns_proc_ino == 0 ? -EACCES : net->proc_ino == d->ns_proc_ino;
}

static int look_at_thread(void *data, const struct task *t)
{
	struct search *s = data;
	struct tasks_network net;
	int r = tasks_network_of(t, &net);

	if (r < 0)
		return r;
	s->is_seen = true;
	for (size_t i = 0; i < s->count; i++) {
		struct unnamed *u = &s->all[i];

		if (u->has_member > 0)
			continue;
		r = is_in(u->sandbox, &net);
		if (r != 0)
			u->has_member = r;
		if (r <= 0)
			continue;
		s->left--;
		if (s->ret_ns)
			*s->ret_ns = openat(t->dir, "ns/net", O_RDONLY | O_CLOEXEC);
	}
	return s->left == 0;
}

static int look_at_process(void *data, int proc, pid_t pid)
{
	struct search *s = data;
	int r;

	s->is_seen = false;
	r = tasks_each(proc, pid, look_at_thread, s);
	/* A new thread is in the network namespace of the thread that made it. So threads
	 * that come and go too fast count as being where other threads of the process
	 * are: else one such process would keep every sandbox from being gone. */
	if (r < 0 && r != -ESRCH && !(r == -EAGAIN && s->is_seen))
		s->error = r;
	return s->left == 0;
}

/* Each thread of this machine is looked at once, for all. */
static void find_members(struct unnamed *all, size_t count, int *ret_ns)
{
	struct search s = { .all = all, .count = count, .left = count, .ret_ns = ret_ns };
	int r = tasks_each_process(look_at_process, &s);

	if (r == 0)
		r = s.error;
	for (size_t i = 0; r < 0 && i < count; i++)
		if (all[i].has_member == 0)
			all[i].has_member = r;
}

/* All of them are LIFECYCLE_ACTIVE. */
static void check(struct unnamed *all, size_t count)
{
	find_members(all, count, NULL);
	for (size_t i = 0; i < count; i++) {
		struct daemon_sandbox *d = all[i].sandbox;
		const int r = all[i].has_member;

		if (r < 0 && !d->is_unseen)
			log_warning("sandbox '%s' stays: cannot see whether its network "
				    "namespace is gone: %s",
				    d->spec.name, strerror(-r));
		d->is_unseen = r < 0;
		if (r == 0)
			daemon_sandbox_on_gone(d,
					       "no process is in its network namespace",
					       "its network namespace is gone", true);
	}
}

static void on_process_end(struct loop_source *source, uint32_t events)
{
	struct daemon_sandbox *d = CONTAINER_OF(source, struct daemon_sandbox, process);
	struct unnamed u = { .sandbox = d };

	/* From now on the timer checks whether other processes are there. */
	gone_unwatch(d);
	if (d->life.state == LIFECYCLE_ACTIVE)
		check(&u, 1);
}

static void check_all(struct daemon *w)
{
	CLEAN(mem) struct unnamed *all = NULL;
	size_t count = 0, capacity = 0;

	/* A sandbox that finds no memory is checked the next time. */
	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = w->sandboxes[id];

		if (d && d->spec.kind == ATTACH_NETNS && d->process.fd < 0 &&
		    d->life.state == LIFECYCLE_ACTIVE && !is_named(d) &&
		    ARRAY_GROW(all, count, capacity))
			all[count++] = (struct unnamed){ .sandbox = d };
	}
	if (count > 0)
		check(all, count);
}

static void on_audit_time(struct loop_timer *t)
{
	struct daemon *w = CONTAINER_OF(t, struct daemon, audit_timer);

	for (uint32_t id = 1; id <= SANDBOXES_MAX; id++) {
		struct daemon_sandbox *d = w->sandboxes[id];
		uint64_t cgroup = d ? d->member.cgroup : 0;

		if (!d)
			continue;
		/* An id that is reserved for a cgroup that is gone: no other cgroup gets
		 * that number. */
		if (d->life.state == LIFECYCLE_RESERVED && d->dir && w->engine_ready &&
		    (host_cgroup_id(d, &cgroup) == -ENOENT || cgroup != d->member.cgroup))
			daemon_sandbox_detach(d, false);
		else if (d->dir)
			cgroup_watch_check(d);
	}
	check_all(w);
	/* Try again to install a table that could not be installed. */
	if (w->engine_ready && w->attaching == 0 && host_change(&w->host, HOST_ON_RETRY))
		attach_queue_next(w);
	cgroup_guard_check(w);
	ended_check(w);
	if (w->lacks && ++w->audits % RESTORE_EVERY == 0)
		state_restore(w);
	if (gone_start(w) < 0)
		loop_stop(w->supervisor.loop);
}

int gone_start(struct daemon *w)
{
	w->audit_timer.on_fire = on_audit_time;
	return loop_timer_in(w->supervisor.loop, &w->audit_timer, AUDIT_EVERY_MS);
}

static bool is_open(const struct daemon_sandbox *d, int ns)
{
	struct stat st;

	return ns >= 0 && fstat(ns, &st) == 0 && is_network_of(d, &st);
}

int gone_find(struct daemon_sandbox *d)
{
	struct unnamed u = { .sandbox = d };
	CLEAN(fd) int named = tasks_open_named_network(d->spec.where);
	CLEAN(fd) int found = -1;

	if (is_open(d, named))
		return TAKE_FD(named);
	/* Without a cookie another namespace may have got the inode meanwhile. */
	if (d->ns_cookie != 0)
		find_members(&u, 1, &found);
	if (is_open(d, found))
		return TAKE_FD(found);
	return u.has_member || is_named(d) ? -EAGAIN : -ESTALE;
}

int gone_watch(struct daemon_sandbox *d, struct err *err)
{
	pid_t pid = gone_pid_of(d->spec.where);
	CLEAN(fd) int process = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	CLEAN(fd) int ns = -1;
	int r;

	/* The number may be a thread's by now: EINVAL, from newer kernels ENOENT. */
	if (pid == 0 ||
	    (process < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT)))
		return 0;
	if (process < 0)
		return err_sys(err, -errno, "cannot watch process %d", (int)pid);
	/* The number may be another process's by now: the timer checks then. */
	ns = tasks_open_named_network(d->spec.where);
	if (!is_open(d, ns))
		return 0;
	d->process = (struct loop_source){ .fd = TAKE_FD(process),
					   .on_ready = on_process_end };
	r = loop_add(d->daemon->supervisor.loop, &d->process, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch process %d", (int)pid) : 0;
}

void gone_unwatch(struct daemon_sandbox *d)
{
	if (d->process.fd < 0)
		return;
	loop_remove(d->daemon->supervisor.loop, &d->process);
	fd_close(&d->process.fd);
}
