// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Which sockets go round the filter of a sandbox, a child looks up: in its namespace, or
 * among the processes of its cgroup. How much there is to look at is the sandbox's to
 * choose, a hundred processes with a hundred thousand descriptors each for example. So
 * the child has a second, and what it has not seen by then is not known. The daemon waits
 * no longer, and a child that is late is ended by its own alarm. */
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "daemon/internal.h"
#include "proto/audit.h"
#include "sys/cgroup.h"
#include "sys/tasks.h"

enum {
	LOOK_MS = 1000,
	OUT_FD = SPAWNER_FD_FIRST, /* a pipe's end, in the child */
	WHERE_FD = OUT_FD + 1,	   /* a network namespace, the hierarchy of cgroups */
};

/* ---- in the child ---- */

static struct ipc_look look_inside(void)
{
	struct ipc_look look = { 0 };

	if (setns(WHERE_FD, CLONE_NEWNET) < 0)
		return look;
	look = look_for_raw_sockets();
	look.network = tasks_own_network();
	return look;
}

static struct ipc_look look_at_cgroup(const char *name)
{
	static struct cgroup c;
	struct cgroup_strays s = { 0 };
	struct err ignored = { 0 };

	if (cgroup_find(WHERE_FD, name, &c, &ignored) == 0)
		s = cgroup_strays(&c);
	return (struct ipc_look){
		.known = s.known,
		.strays = s.sockets,
		.stray_of = s.first,
		.packet = s.packet > 0,
		.raw = s.raw > 0,
	};
}

void look_child(const struct spawner_order *o)
{
	struct ipc_look look;

	alarm(LOOK_MS / 1000);
	look = o->cgroup[0] ? look_at_cgroup(o->cgroup) : look_inside();
	(void)!write(OUT_FD, &look, sizeof(look));
}

/* ---- in the daemon ---- */

static struct ipc_look look_by_child(struct daemon *w, const struct spawner_order *order,
				     int where)
{
	struct pollfd wait = { .events = POLLIN };
	struct ipc_look look = { 0 };
	struct err ignored = { 0 };
	int ends[2], fds[] = { -1, where };
	CLEAN(fd) int out = -1;
	pid_t pid;

	if (where < 0 || pipe2(ends, O_CLOEXEC) < 0)
		return look;
	wait.fd = out = ends[0];
	fds[0] = ends[1];
	pid = spawner_order(&w->spawner, order, fds, ARRAY_SIZE(fds), &ignored);
	close(ends[1]);
	if (pid < 0 || poll(&wait, 1, LOOK_MS) <= 0 ||
	    read(out, &look, sizeof(look)) != sizeof(look))
		return (struct ipc_look){ 0 };
	return look;
}

struct ipc_look inside_look(const struct daemon_sandbox *d)
{
	const struct spawner_order order = { .task = SPAWNER_LOOK };
	CLEAN(fd) int ns = ioctl(d->route_fd, SIOCGSKNS);

	return look_by_child(d->daemon, &order, ns);
}

static struct ipc_look look_at_user(uint32_t uid)
{
	struct cgroup_strays s = user_raw_sockets(uid);

	return (struct ipc_look){
		.known = s.known,
		.packet = s.packet > 0,
		.raw = s.raw > 0,
	};
}

struct ipc_look host_look(const struct daemon_sandbox *d)
{
	struct spawner_order order = { .task = SPAWNER_LOOK };
	struct ipc_look look = { 0 };

	if (!d->dir)
		return look_at_user(d->member.uid);
	snprintf(order.cgroup, sizeof(order.cgroup), "%s", d->spec.where);
	/* In one that is gone is nobody. */
	if (!d->waiting)
		look = look_by_child(d->daemon, &order, d->daemon->host.hierarchy);
	look.known |= d->waiting;
	look.waiting = d->waiting;
	return look;
}
