// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The sockets that the engine has in a namespace keep it alive, so nobody is told when
 * all others have left it. What is looked at instead is how it was named: a process ends,
 * or a path leads elsewhere. Then every process of this machine is asked where it lives,
 * and if none lives there, the sandbox is gone: what the engine has of it is closed, and
 * with that the kernel takes the namespace and its rules away. Its rules are not removed
 * before: should anybody hold the namespace after all, it stays closed. */
#include <errno.h>
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

struct search {
	struct tasks_network net;
	int error; /* of a process that can't be seen */
};

static int is_member(void *data, int proc, pid_t pid)
{
	struct search *s = data;
	int r = tasks_in_network(proc, pid, &s->net);

	if (r < 0)
		s->error = r;
	return r > 0;
}

/* Return: 1: a process is in the network; 0: none is; -errno: none that can be seen. */
static int find_member(struct search *s)
{
	int r;

	s->error = 0;
	r = tasks_each_process(is_member, s);
	return r != 0 ? r : s->error;
}

/* Does any thread live in there? When that can't be seen: yes. A child in there says what
 * tells its namespace from others without any right over the processes in it. */
static bool has_members(struct daemon_sandbox *d)
{
	struct search s = { .net = { .dev = d->ns_dev, .ino = d->ns_ino } };
	int r = find_member(&s);

	if (r < 0) {
		s.net.proc_ino = netns_audit(d).network;
		r = find_member(&s);
	}
	if (r < 0 && !d->is_unseen)
		log_warning("sandbox '%s' stays: cannot see whether its network "
			    "namespace is gone: %s",
			    d->spec.name, strerror(-r));
	d->is_unseen = r < 0;
	return r != 0;
}

static void check(struct daemon_sandbox *d)
{
	struct stat st;

	if (d->life.state != LIFECYCLE_ACTIVE)
		return;
	/* A path may still lead to the namespace. It counts as leading there also where
	 * that can't be seen. */
	if (gone_pid_of(d->spec.where) == 0) {
		bool is_there = stat(d->spec.where, &st) < 0
					? errno != ENOENT && errno != ENOTDIR
					: st.st_dev == d->ns_dev &&
						  st.st_ino == d->ns_ino;

		if (is_there)
			return;
	}
	if (!has_members(d))
		daemon_sandbox_on_gone(d, "no process is in its network namespace",
				       "its network namespace is gone", true);
}

static void on_process_end(struct loop_source *source, uint32_t events)
{
	struct daemon_sandbox *d = CONTAINER_OF(source, struct daemon_sandbox, process);

	/* From now on the timer checks whether other processes are there. */
	gone_unwatch(d);
	check(d);
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
		else if (d->spec.kind == ATTACH_NETNS && d->process.fd < 0)
			check(d);
	}
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

int gone_watch(struct daemon_sandbox *d, struct err *err)
{
	pid_t pid = gone_pid_of(d->spec.where);
	int r;

	if (pid == 0)
		return 0;
	d->process = (struct loop_source){ .fd = -1, .on_ready = on_process_end };
	d->process.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (d->process.fd < 0)
		return err_sys(err, -errno, "cannot watch process %d", (int)pid);
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
