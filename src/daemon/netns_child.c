// SPDX-License-Identifier: Apache-2.0
/* A child enters the namespace, so that the daemon stays where it is: it opens sockets
 * there, hands them over, and tests the filter from inside once it stands. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "daemon/internal.h"
#include "supervisor/init.h"
#include "sys/link.h"
#include "sys/tasks.h"

enum {
	OPEN_MS = 5000,
	CHILD_FD = SPAWNER_FD_FIRST, /* the channel, in the child */
	NS_FD = CHILD_FD + 1,
};

/* ---- in the child ---- */

/* A TCP connection whose beginning the kernel has not seen is nobody's: otherwise one
 * from before, on which the other end speaks first now, would count as begun from there,
 * and what the sandbox sends as its replies. The file is that of the namespace that this
 * process is in. */
static int forbid_pickup(struct err *err)
{
	static const char path[] = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";
	CLEAN(fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		return err_sys(err, -errno,
			       "cannot have open connections judged anew (%s)", path);
	return 0;
}

static int open_sockets(struct sandbox_fds *fds, int *ret_route, struct err *err)
{
	const struct sandbox_ports ports = { SUPERVISOR_DNS_PORT, SUPERVISOR_RELAY_PORT };
	CLEAN(fd) int route = -1;
	int r;

	if (setns(NS_FD, CLONE_NEWNET) < 0)
		return err_sys(err, -errno, "cannot enter the network namespace");
	route = link_route_open();
	if (route < 0)
		return err_sys(err, route, "cannot open a route socket");
	/* Before the rules come; where the kernel tracks nothing yet, after them. */
	if (forbid_pickup(err) < 0)
		*err = (struct err){ 0 };
	/* Names are answered over loopback. */
	r = link_loopback_up(route);
	if (r < 0)
		return err_sys(err, r, "cannot bring the loopback device up");
	r = sandbox_fds_open(fds, &ports, supervisor_has_ipv6(), err);
	if (r < 0)
		return r;
	*ret_route = TAKE_FD(route);
	return 0;
}

static int hand_over(const struct sandbox_fds *s, int route)
{
	struct ipc_message m = { .type = IPC_HANDOVER };
	int fds[SANDBOX_FD_COUNT + 1];
	size_t count = 0;

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++) {
		if (s->fd[i] < 0)
			continue;
		m.present |= 1u << i;
		fds[count++] = s->fd[i];
	}
	m.present |= 1u << SANDBOX_FD_COUNT;
	fds[count++] = route;
	return ipc_send(CHILD_FD, &m, fds, count);
}

static void say(enum ipc_type type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(CHILD_FD, &m, NULL, 0);
}

static void test_when_told(const struct launch_probe *probe)
{
	char why[ERR_TEXT_SIZE] = "";
	struct err err = { 0 };
	struct ipc_message m;
	size_t count;

	if (ipc_receive(CHILD_FD, &m, NULL, 0, &count) < 0 || m.type != IPC_RUN)
		return;
	if (forbid_pickup(&err) < 0)
		say(IPC_FAILED, err.text);
	else if (self_test_deny(probe, why, sizeof(why)))
		say(IPC_RUNNING, "");
	else
		say(IPC_FAILED, why);
}

void inside_child(const struct spawner_order *o)
{
	struct sandbox_fds fds;
	struct err err = { 0 };
	int route = -1, r;

	if (open_sockets(&fds, &route, &err) < 0) {
		say(IPC_FAILED, err.text);
		return;
	}
	r = hand_over(&fds, route);
	/* They are the daemon's to close. */
	sandbox_fds_done(&fds);
	close(route);
	if (r == 0 && o->probe.allowed_name[0])
		test_when_told(&o->probe);
}

/* ---- in the daemon ---- */

static void take(struct daemon_sandbox *d, const struct ipc_message *m, const int *fds,
		 size_t count)
{
	size_t next = 0;

	for (size_t i = 0; i <= SANDBOX_FD_COUNT && next < count; i++) {
		if (!(m->present & 1u << i))
			continue;
		if (i == SANDBOX_FD_COUNT)
			d->route_fd = fds[next++];
		else
			d->fds.fd[i] = fds[next++];
	}
}

static int wait_for_sockets(struct daemon_sandbox *d, struct err *err)
{
	struct pollfd wait = { .fd = d->from_child.fd, .events = POLLIN };
	int fds[SANDBOX_FD_COUNT + 1];
	struct ipc_message m;
	size_t count = 0;
	int r;

	if (poll(&wait, 1, OPEN_MS) <= 0)
		return err_set(err, -ETIMEDOUT, "the namespace can't be entered in time");
	r = ipc_receive(d->from_child.fd, &m, fds, ARRAY_SIZE(fds), &count);
	if (r < 0)
		return err_sys(err, r, "cannot hear the process in the namespace");
	if (m.type == IPC_HANDOVER) {
		take(d, &m, fds, count);
		return 0;
	}
	m.text[sizeof(m.text) - 1] = '\0';
	return err_set(err, -EPERM, "%s", m.text);
}

static int start_child(struct daemon_sandbox *d, int ns, struct err *err)
{
	const struct spawner_order order = { .task = SPAWNER_INSIDE, .probe = d->probe };
	int pair[2], fds[] = { -1, ns };
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, -errno, "cannot make a socket pair");
	d->from_child.fd = pair[0];
	fds[0] = pair[1];
	pid = spawner_order(&d->daemon->spawner, &order, fds, ARRAY_SIZE(fds), err);
	close(pair[1]);
	return pid < 0 ? (int)pid : 0;
}

/* Is it a network namespace, and not the one that everybody shares? */
static int check_namespace(struct daemon_sandbox *d, int ns, struct err *err)
{
	struct stat st, home;

	if (fstat(ns, &st) < 0 || fstat(d->daemon->home, &home) < 0)
		return err_sys(err, -errno, "cannot look at the namespace");
	if (d->ns_ino != 0 && (d->ns_dev != st.st_dev || d->ns_ino != st.st_ino))
		return err_set(err, -ESTALE, "'%.200s' is another namespace by now",
			       d->spec.where);
	if (st.st_dev != home.st_dev)
		return err_set(err, -EINVAL, "'%.200s' is no network namespace",
			       d->spec.where);
	if (st.st_ino == home.st_ino)
		return err_set(err, -EINVAL,
			       "'%.200s' is the daemon's own network namespace",
			       d->spec.where);
	d->ns_dev = st.st_dev;
	d->ns_ino = st.st_ino;
	return 0;
}

/* What is there now is no namespace, or nothing. */
static bool is_gone(int code)
{
	return code == ENOENT || code == EINVAL || code == ENOTDIR || code == ESRCH ||
	       code == ELOOP;
}

static int open_namespace(const struct daemon_sandbox *d, struct err *err)
{
	int fd = tasks_open_named_network(d->spec.where);

	if (fd >= 0)
		return fd;
	if (fd == -EINVAL && d->ns_ino == 0)
		return err_set(err, fd, "'%.200s' is no network namespace",
			       d->spec.where);
	return err_sys(err, d->ns_ino != 0 && is_gone(-fd) ? -ESTALE : fd,
		       "cannot open the network namespace '%.200s'", d->spec.where);
}

int inside_find(struct daemon_sandbox *d, int *ret_ns, struct err *err)
{
	CLEAN(fd) int ns = open_namespace(d, err);
	int r = ns < 0 ? ns : check_namespace(d, ns, err);

	if (r == 0)
		*ret_ns = TAKE_FD(ns);
	return r;
}

int inside_open(struct daemon_sandbox *d, int ns, struct err *err)
{
	int r = start_child(d, ns, err);

	if (r == 0)
		r = wait_for_sockets(d, err);
	if (r < 0 || !d->probe.allowed_name[0])
		inside_end(d);
	return r;
}

int inside_begin_test(struct daemon_sandbox *d)
{
	const struct ipc_message run = { .type = IPC_RUN };

	return ipc_send(d->from_child.fd, &run, NULL, 0);
}

int inside_result(struct daemon_sandbox *d, struct err *err)
{
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(d->from_child.fd, &m, NULL, 0, &count);

	if (r < 0)
		return err_sys(err, r, "the self-test has ended without a word");
	if (m.type == IPC_RUNNING)
		return 0;
	m.text[sizeof(m.text) - 1] = '\0';
	return err_set(err, -EPERM, "%s", m.text);
}

void inside_hear_no_more(struct daemon_sandbox *d)
{
	if (d->from_child.added)
		loop_remove(d->daemon->supervisor.loop, &d->from_child);
	if (d->from_child.fd >= 0)
		close(d->from_child.fd);
	d->from_child.fd = -1;
	loop_timer_stop(d->daemon->supervisor.loop, &d->late);
}

void inside_end(struct daemon_sandbox *d)
{
	inside_hear_no_more(d);
	join_end(d);
	/* In a namespace it ends by itself, for nobody hears it any more. */
}
