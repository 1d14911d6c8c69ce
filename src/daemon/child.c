// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * What has to be done in a sandbox is done by a short-lived child, which the spawner
 * makes (supervisor/spawner.h), so that the daemon stays where it is:
 *
 *   inside   enters a network namespace, opens sockets there and hands them over, goes
 *            home, keeps nothing of that namespace, and waits for the next sandbox. It
 *            reads nothing that comes from inside: the self-test there is a fork of it,
 *            one for each sandbox, which has dropped what the daemon may do
 *   join     becomes one of a cgroup or of a user of the host's, and does the same test
 *   look     sees which sockets go round the filter */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/internal.h"
#include "proto/audit.h"
#include "supervisor/init.h"
#include "sys/cgroup.h"
#include "sys/confine.h"
#include "sys/link.h"
#include "sys/process.h"
#include "sys/tasks.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

enum {
	OPEN_MS = 5000,
	CHILD_FD = SPAWNER_FD_FIRST, /* the channel, in the child */
	PROC_USES = 64,
};

/* ---- in the child ---- */

/* A process file system of its own. In /proc/sys/net each namespace has an entry of the
 * same name, all below one directory, and where thousands of them were looked up the
 * kernel goes through all of them to find one. So this one is made anew after PROC_USES
 * namespaces. */
struct own_proc {
	int fd; /* -1: /proc itself */
	unsigned int uses;
};

static void own_proc_use(struct own_proc *p)
{
	CLEAN(fd) int fs = -1;

	if (p->uses++ % PROC_USES != 0)
		return;
	fd_close(&p->fd);
	fs = fsopen("proc", FSOPEN_CLOEXEC);
	if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		p->fd = fsmount(fs, FSMOUNT_CLOEXEC,
				MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

/* The kernel is to take up no TCP connection whose beginning it has not seen.
 * Otherwise an older one, on which the other end speaks first now, would count as
 * begun from there, and what the sandbox sends as its replies. The file is that of
 * the namespace that this process is in. */
static int forbid_pickup(const struct own_proc *proc, struct err *err)
{
	static const char path[] = "/proc/sys/net/netfilter/nf_conntrack_tcp_loose";
	CLEAN(fd)
	int fd = proc->fd < 0 ? open(path, O_WRONLY | O_CLOEXEC)
			      : openat(proc->fd, path + strlen("/proc/"),
				       O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "0", 1) != 1)
		return err_sys(err, -errno,
			       "cannot have open connections judged anew (%s)", path);
	return 0;
}

static void say(uint32_t type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(CHILD_FD, &m, NULL, 0);
}

static void self_test(const struct launch_probe *probe)
{
	char why[ERR_TEXT_SIZE] = "";

	if (self_test_deny(probe, why, sizeof(why)))
		say(IPC_RUNNING, "");
	else
		say(IPC_FAILED, why);
}

/* Wait until the daemon says that the rules are active. False: the daemon has ended. */
static bool wait_for_rules(void)
{
	struct ipc_message m;
	size_t count;

	return ipc_receive(CHILD_FD, &m, NULL, 0, &count) == 0 && m.type == IPC_RUN;
}

enum { NOBODY = 65534 };

static const char no_drop[] = "the self-test's process can't drop its rights";

/* Become another user, which drops all capabilities, and have no file and no settings of
 * the daemon's. That user's processes can't read this one. */
static int drop(uid_t uid, pid_t parent)
{
	int r;

	process_forget_environment();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(uid, uid, uid) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0) < 0)
		return -errno;
	r = landlock_enter(NULL, 0);
	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	return process_end_with(parent) ? 0 : -ESRCH;
}

/* What the daemon asks of a child: to open the sockets of a namespace, and to leave a
 * self-test there where there is a channel to it. */
struct inside_order {
	struct launch_probe probe;
	uint64_t cookie; /* of the namespace; 0: whatever it has */
};
enum { INSIDE_NS = 0, INSIDE_TEST, INSIDE_FD_COUNT }; /* the order's descriptors */

/* The self-test reads what the engine, and whoever else is inside, has to say. So it has
 * no right that another sandbox's namespace could be entered with, and no channel but its
 * own. @is_strict: forbid_pickup() is done; otherwise the right to do it is needed for as
 * long as the rules aren't there. */
static void test_inside(const struct launch_probe *probe, int channel, bool is_strict,
			pid_t parent)
{
	const struct own_proc proc = { .fd = -1 };
	struct err err = { 0 };

	prctl(PR_SET_NAME, "weir-self-test");
	if (process_place_fds(&channel, 1, CHILD_FD, O_CLOEXEC) < 0)
		return;
	if (!is_strict && !wait_for_rules())
		return;
	if (!is_strict && forbid_pickup(&proc, &err) < 0)
		say(IPC_FAILED, err.text);
	else if (drop(NOBODY, parent) < 0)
		say(IPC_FAILED, no_drop);
	else if (!is_strict || wait_for_rules())
		self_test(probe);
}

/* The kernel gives no two namespaces the same cookie, but the inode of one that is gone
 * to another one. 0: an older kernel than 5.14 has none. */
static uint64_t cookie_of(int socket)
{
	uint64_t cookie = 0;
	socklen_t size = sizeof(cookie);

	return getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) < 0
		       ? 0
		       : cookie;
}

/* In the namespace that this process is in. @test: the channel of the self-test; -1:
 * there is none. */
static void serve_inside(const struct inside_order *o, const struct own_proc *proc,
			 int test)
{
	const struct sandbox_ports ports = { SUPERVISOR_DNS_PORT, SUPERVISOR_RELAY_PORT };
	const pid_t parent = getpid();
	struct ipc_message m = { .type = IPC_SOCKETS },
			   done = { .type = IPC_SOCKETS_DONE };
	CLEAN(fd) int route = link_route_open();
	struct sandbox_fds fds;
	struct ipc_fds sent;
	struct err err = { 0 };
	bool is_strict = false;
	int r = route < 0 ? err_sys(&err, route, "cannot open a route socket") : 0;

	if (r == 0 && o->cookie != 0 && cookie_of(route) != o->cookie) {
		say(IPC_GONE, "it is another network namespace by now");
		return;
	}
	if (r == 0) {
		/* Before the rules come; where the kernel tracks nothing yet, after
		 * them. */
		is_strict = forbid_pickup(proc, NULL) == 0;
		/* Names are answered over loopback. */
		r = link_loopback_up(route);
		if (r < 0)
			err_sys(&err, r, "cannot bring the loopback device up");
	}
	if (r == 0)
		r = sandbox_fds_open(&fds, &ports, supervisor_has_ipv6(), &err);
	if (r < 0) {
		fd_close(&route);
		say(IPC_FAILED, err.text);
		return;
	}
	ipc_fds_init(&sent, &fds);
	sent.fd[IPC_FD_ROUTE] = route;
	r = ipc_send_fds(CHILD_FD, &m, &sent);
	/* The daemon closes its copies. */
	sandbox_fds_done(&fds);
	fd_close(&route);
	done.audit.network = tasks_own_network();
	if (r == 0)
		(void)!ipc_send(CHILD_FD, &done, NULL, 0);
	/* Without the fork nobody has the channel: the daemon sees its end. */
	if (r == 0 && test >= 0 && process_fork(NULL) == 0) {
		test_inside(&o->probe, test, is_strict, parent);
		_exit(0);
	}
}

/* One order after the other, each in its namespace and none anywhere but there and at
 * home. */
void inside_child(const struct spawner_order *ignored)
{
	CLEAN(fd) int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	/* Self-tests that have ended need nobody who waits for them. */
	const struct sigaction alone = { .sa_handler = SIG_IGN };
	struct own_proc proc = { .fd = -1 };
	struct inside_order order;

	prctl(PR_SET_NAME, "weir-inside");
	sigaction(SIGCHLD, &alone, NULL);
	while (home >= 0) {
		int fds[] = { [INSIDE_NS] = -1, [INSIDE_TEST] = -1 };
		size_t count = 0;

		if (fds_receive(CHILD_FD, &order, sizeof(order), fds, INSIDE_FD_COUNT,
				&count) != sizeof(order) ||
		    count == 0)
			break; /* the daemon has closed the channel */
		own_proc_use(&proc);
		if (setns(fds[INSIDE_NS], CLONE_NEWNET) == 0)
			serve_inside(&order, &proc, fds[INSIDE_TEST]);
		else
			say(IPC_FAILED, "cannot enter the network namespace");
		for (size_t i = 0; i < INSIDE_FD_COUNT; i++)
			fd_close(&fds[i]);
		/* A process that stayed would keep the namespace. */
		if (setns(home, CLONE_NEWNET) < 0)
			break;
	}
	/* Self-tests end with this process. */
	while (wait(NULL) > 0)
		continue;
}

/* ---- in the daemon ---- */

/* Receive the next message of the process that goes into namespaces, with up to @max
 * descriptors, in OPEN_MS at most. Return: 0, or -errno with @err. */
static int hear_inside(const struct daemon *w, struct ipc_message *ret, int *ret_fds,
		       size_t max, size_t *ret_count, struct err *err)
{
	struct pollfd wait = { .fd = w->inside, .events = POLLIN };
	int r;

	if (poll(&wait, 1, OPEN_MS) <= 0)
		return err_set(err, -ETIMEDOUT, "the namespace can't be entered in time");
	r = ipc_receive(w->inside, ret, ret_fds, max, ret_count);
	return r < 0 ? err_sys(err, r, "cannot hear the process in the namespace") : 0;
}

static int start_inside(struct daemon *w, struct err *err)
{
	const struct spawner_order order = { .task = SPAWNER_INSIDE };
	CLEAN(fd) int ours = -1, theirs = -1;
	pid_t pid;

	if (process_pair(&ours, &theirs, err) < 0)
		return err->code;
	pid = spawner_order(&w->spawner, &order, &theirs, 1, err);
	if (pid < 0)
		return (int)pid;
	w->inside = TAKE_FD(ours);
	return 0;
}

int netns_child_find(struct daemon_sandbox *d, int *ret_ns, struct err *err)
{
	/* One that is known was judged when it was attached. */
	const bool is_new = d->ns_ino == 0;
	CLEAN(fd)
	int ns = is_new ? tasks_open_named_network(d->spec.where) : gone_find(d);
	struct stat st, home;
	int r;

	if (ns == -EINVAL)
		return err_set(err, ns, "'%.200s' is no network namespace",
			       d->spec.where);
	if (ns < 0 && is_new)
		return err_sys(err, ns, "cannot open the network namespace '%.200s'",
			       d->spec.where);
	if (ns < 0)
		return err_set(err, ns,
			       ns == -ESTALE ? "no process is in its network namespace"
					     : "its network namespace can't be opened");
	if (fstat(ns, &st) < 0 || fstat(d->daemon->home, &home) < 0)
		return err_sys(err, -errno, "cannot look at the namespace");
	if (st.st_dev != home.st_dev)
		return err_set(err, -EINVAL, "'%.200s' is no network namespace",
			       d->spec.where);
	if (st.st_ino == home.st_ino)
		return err_set(err, -EINVAL,
			       "'%.200s' is the daemon's own network namespace",
			       d->spec.where);
	d->ns_dev = st.st_dev;
	d->ns_ino = st.st_ino;
	r = is_new ? guest_kernel_refuse(d->spec.where, err) : 0;
	if (r == 0)
		*ret_ns = TAKE_FD(ns);
	return r;
}

/* Have the child open the sockets in @ns, and take them. @test: the end of the channel to
 * the self-test that is the child's; -1: none. */
static int order_inside(struct daemon_sandbox *d, int ns, int test, struct err *err)
{
	const int given[] = { [INSIDE_NS] = ns, [INSIDE_TEST] = test };
	const struct inside_order order = { d->probe, d->ns_cookie };
	ssize_t n = d->daemon->inside < 0
			    ? -EPIPE
			    : fds_send(d->daemon->inside, &order, sizeof(order), given,
				       test < 0 ? 1 : INSIDE_FD_COUNT);
	int fds[SANDBOX_FD_COUNT + 1];
	struct ipc_fds all;
	struct ipc_message m;
	size_t count = 0;
	int r;

	if (n < 0)
		return err_sys(err, (int)n, "cannot ask the process in the namespace");
	r = hear_inside(d->daemon, &m, fds, ARRAY_SIZE(fds), &count, err);
	if (r < 0)
		return r;
	ipc_fds_init(&all, NULL);
	r = ipc_take_fds(&m, fds, count, &all);
	memcpy(d->fds.fd, all.fd, sizeof(d->fds.fd));
	d->route_fd = all.fd[IPC_FD_ROUTE];
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	if (m.type != IPC_SOCKETS) {
		m.text[sizeof(m.text) - 1] = '\0';
		return err_set(err, m.type == IPC_GONE ? -ESTALE : -EPERM, "%s", m.text);
	}
	if (r < 0)
		return err_set(err, r, "the namespace's sockets are malformed");
	d->ns_cookie = cookie_of(d->route_fd);
	/* The process has copies of the sockets until its next message: should the daemon
	 * close these sockets because its engine is full, the next engine's process would
	 * find their ports taken. */
	r = hear_inside(d->daemon, &m, NULL, 0, &count, err);
	if (r == 0 && m.type != IPC_SOCKETS_DONE)
		r = err_set(err, -EBADMSG, "the process in the namespace is out of step");
	d->ns_proc_ino = r < 0 ? 0 : m.audit.network;
	if (r < 0) {
		sandbox_fds_done(&d->fds);
		fd_close(&d->route_fd);
	}
	return r;
}

int netns_child_open(struct daemon_sandbox *d, int ns, struct err *err)
{
	struct daemon *w = d->daemon;
	CLEAN(fd) int test = -1;
	struct err ended = { 0 };
	int r;

	if (d->probe.allowed_name[0] && process_pair(&d->from_child.fd, &test, err) < 0)
		return err->code;
	r = order_inside(d, ns, test, &ended);
	/* Something may have ended the child that waits. */
	if (r == -EPIPE || r == -ECONNRESET) {
		fd_close(&w->inside);
		r = start_inside(w, err);
		if (r == 0)
			r = order_inside(d, ns, test, err);
	} else if (r < 0) {
		*err = ended;
	}
	if (r < 0) {
		/* What it says from now on would be taken for another sandbox's. */
		fd_close(&w->inside);
		netns_child_end(d);
	}
	return r;
}

void netns_child_close(struct daemon_sandbox *d)
{
	if (d->from_child.added)
		loop_remove(d->daemon->supervisor.loop, &d->from_child);
	fd_close(&d->from_child.fd);
	loop_timer_stop(d->daemon->supervisor.loop, &d->late);
}

void netns_child_end(struct daemon_sandbox *d)
{
	netns_child_close(d);
	join_end(d);
	/* The self-test in a namespace ends by itself: its channel is closed. */
}

/* -- as one of a cgroup's or a user's ----------------------------------------------- */

/* The self-test of a sandbox of the host's own namespace runs as one of those that are
 * guarded: in the cgroup, or as the user. A child is made, moved by the daemon, and drops
 * what it has; told to (IPC_RUN), it tries what must work and what must not, and says how
 * it went. It is killed after that at the latest: it may be frozen by then, and nothing
 * of ours is to stay in somebody's cgroup. */

enum {
	END_MS = 200,
	REMOVE_TRIES = 50, /* once a millisecond */
};

/* ---- in the child ---- */

void join_child(const struct spawner_order *o)
{
	if (drop(o->uid, getppid()) < 0)
		say(IPC_FAILED, no_drop);
	else if (wait_for_rules())
		self_test(&o->probe);
}

/* ---- in the daemon ---- */

static const char no_join[] = "the self-test cannot join the cgroup '%.200s'";

static int move_into(const char *dir, pid_t pid)
{
	char path[CGROUP_PATH_MAX + 32], text[16];
	CLEAN(fd) int fd = -1;
	int len = snprintf(text, sizeof(text), "%d", (int)pid);

	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, (size_t)len) != len)
		return -errno;
	return 0;
}

/* Processes can't be in one that shares its controllers out to those below it; one below
 * it is guarded as it is. */
static int make_below(struct daemon_sandbox *d)
{
	char path[CGROUP_PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/weir-self-test-%u", d->dir, d->id);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	d->join.below = strdup(path);
	if (d->join.below)
		return 0;
	(void)!rmdir(path);
	return -ENOMEM;
}

int join_start(struct daemon_sandbox *d, const char *dir, struct err *err)
{
	const struct spawner_order order = {
		.task = SPAWNER_JOIN,
		.uid = d->member.kind == MEMBER_UID ? d->member.uid : NOBODY,
		.into = dir,
		.probe = d->probe,
	};
	CLEAN(fd)
	int cgroup = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	int pair[2], fds[] = { -1, cgroup }, r;

	if (dir && cgroup < 0)
		return err_sys(err, -errno, no_join, d->spec.where);
	if (process_pair(&pair[0], &pair[1], err) < 0)
		return err->code;
	d->from_child.fd = pair[0];
	fds[0] = pair[1];
	r = spawner_give(&d->daemon->spawner, &order, fds, dir ? 2 : 1, err);
	close(pair[1]);
	d->join.is_ordered = r == 0;
	return r;
}

int join_wait(struct daemon_sandbox *d, struct err *err)
{
	struct spawner_child made;
	int r;

	if (!d->join.is_ordered)
		return 0;
	d->join.is_ordered = false;
	r = spawner_take(&d->daemon->spawner, &made, err);
	if (r == -EBUSY && d->dir) {
		r = make_below(d);
		if (r < 0)
			return err_sys(err, r, no_join, d->spec.where);
		fd_close(&d->from_child.fd);
		*err = (struct err){ 0 };
		r = join_start(d, d->join.below, err);
		d->join.is_ordered = false;
		if (r == 0)
			r = spawner_take(&d->daemon->spawner, &made, err);
	}
	if (r < 0)
		return r;
	d->join.pid = made.pid;
	/* Nobody reaps it before the spawner has another order. */
	d->join.process = (int)syscall(SYS_pidfd_open, made.pid, 0);
	if (d->join.process < 0)
		return err_sys(err, -errno, "cannot watch a process");
	if (!d->dir || d->join.below || made.joined)
		return 0;
	/* An older kernel has made the child where the spawner is. */
	r = move_into(d->dir, made.pid);
	if (r == -EBUSY) {
		r = make_below(d);
		if (r == 0)
			r = move_into(d->join.below, made.pid);
	}
	return r < 0 ? err_sys(err, r, no_join, d->spec.where) : 0;
}

void join_end(struct daemon_sandbox *d)
{
	struct join *j = &d->join;
	struct err ignored = { 0 };
	struct pollfd ended = { .events = POLLIN };

	if (j->is_ordered)
		(void)!join_wait(d, &ignored);
	if (j->process >= 0) {
		ended.fd = j->process;
		(void)!syscall(SYS_pidfd_send_signal, j->process, SIGKILL, NULL, 0);
		(void)!poll(&ended, 1, END_MS);
		fd_close(&j->process);
		j->pid = 0;
	}
	if (!j->below)
		return;
	/* The kernel may be a moment late in seeing that the cgroup is empty. */
	for (int i = 0; i < REMOVE_TRIES && rmdir(j->below) < 0 && errno == EBUSY; i++)
		(void)!poll(NULL, 0, 1);
	free(j->below);
	j->below = NULL;
}

/* -- which sockets go round the filter ---------------------------------------------- */

/* Which sockets go round the filter of a sandbox, a child looks up: in its namespace, or
 * among the processes of its cgroup. How much there is to look at is the sandbox's to
 * choose, a hundred processes with a hundred thousand descriptors each for example. So
 * the child has a second, and what it has not seen by then is not known. The daemon waits
 * no longer, and a child that is late is ended by its own alarm. */

enum {
	AUDIT_MS = 1000,
	OUT_FD = SPAWNER_FD_FIRST, /* a pipe's end, in the child */
	WHERE_FD = OUT_FD + 1,	   /* a network namespace, the hierarchy of cgroups */
};

/* ---- in the child ---- */

static struct ipc_audit audit_of(struct cgroup_strays s)
{
	return (struct ipc_audit){
		.known = s.known,
		.strays = s.sockets,
		.stray_of = s.first,
		.packet = s.packet > 0,
		.raw = s.raw > 0,
	};
}

void look_child(const struct spawner_order *o)
{
	static struct cgroup c;
	struct ipc_audit look = { 0 };

	alarm(AUDIT_MS / 1000);
	if (o->cgroup[0] && cgroup_find(WHERE_FD, o->cgroup, &c, NULL) == 0) {
		look = audit_of(cgroup_strays(&c));
	} else if (!o->cgroup[0] && setns(WHERE_FD, CLONE_NEWNET) == 0) {
		look = audit_raw_sockets();
	}
	(void)!write(OUT_FD, &look, sizeof(look));
}

/* ---- in the daemon ---- */

static struct ipc_audit audit_by_child(struct daemon *w,
				       const struct spawner_order *order, int where)
{
	struct pollfd wait = { .events = POLLIN };
	struct ipc_audit look = { 0 };
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
	if (pid < 0 || poll(&wait, 1, AUDIT_MS) <= 0 ||
	    read(out, &look, sizeof(look)) != sizeof(look))
		return (struct ipc_audit){ 0 };
	return look;
}

struct ipc_audit netns_audit(const struct daemon_sandbox *d)
{
	const struct spawner_order order = { .task = SPAWNER_LOOK };
	CLEAN(fd) int ns = ioctl(d->route_fd, SIOCGSKNS);

	return audit_by_child(d->daemon, &order, ns);
}

struct ipc_audit host_audit(const struct daemon_sandbox *d)
{
	struct spawner_order order = { .task = SPAWNER_LOOK };
	struct ipc_audit look = { 0 };

	if (!d->dir)
		return audit_of(user_raw_sockets(d->member.uid));
	snprintf(order.cgroup, sizeof(order.cgroup), "%s", d->spec.where);
	/* A cgroup that is gone has no processes. */
	if (!d->is_cgroup_gone)
		look = audit_by_child(d->daemon, &order, d->daemon->host.hierarchy);
	look.known |= d->is_cgroup_gone;
	look.waiting = d->is_cgroup_gone;
	return look;
}
