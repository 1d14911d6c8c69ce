// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The self-test of a sandbox of the host's own namespace runs as one of those that are
 * guarded: in the cgroup, or as the user. A child is made, moved by the daemon, and drops
 * what it has; told to (IPC_RUN), it tries what must work and what must not, and says how
 * it went. It is killed after that at the latest: it may be frozen by then, and nothing
 * of ours is to stay in somebody's cgroup. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/internal.h"
#include "supervisor/init.h"
#include "sys/cgroup.h"

enum {
	CHILD_FD = SPAWNER_FD_FIRST, /* the channel, in the child */
	NOBODY = 65534,
	END_MS = 200,
	REMOVE_TRIES = 50, /* once a millisecond */
};

/* -- in the child ------------------------------------------------------------------- */

static void say(enum ipc_type type, const char *text)
{
	struct ipc_message m = { .type = type };

	snprintf(m.text, sizeof(m.text), "%s", text);
	(void)!ipc_send(CHILD_FD, &m, NULL, 0);
}

/* With another user id go all capabilities. Whoever has that id can't look into it. */
static int drop(uid_t uid, pid_t parent)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
	    setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(uid, uid, uid) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	return getppid() == parent ? 0 : -ESRCH;
}

void join_child(const struct spawner_order *o)
{
	char why[ERR_TEXT_SIZE] = "";
	struct ipc_message m;
	size_t count;

	if (drop(o->uid, getppid()) < 0) {
		say(IPC_FAILED, "the self-test's process can't become another user's");
		return;
	}
	if (ipc_receive(CHILD_FD, &m, NULL, 0, &count) < 0 || m.type != IPC_RUN)
		return;
	if (self_test_deny(&o->probe, why, sizeof(why)))
		say(IPC_RUNNING, "");
	else
		say(IPC_FAILED, why);
}

/* -- in the daemon ------------------------------------------------------------------ */

/* @dir: of the cgroup, NULL: none. */
static int give(struct daemon_sandbox *d, uid_t uid, const char *dir, struct err *err)
{
	const struct spawner_order order = {
		.task = SPAWNER_JOIN, .uid = uid, .into = dir, .probe = d->probe
	};
	CLEAN(fd)
	int cgroup = dir ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	int pair[2], fds[] = { -1, cgroup }, r;

	if (dir && cgroup < 0)
		return err_sys(err, -errno,
			       "the self-test cannot join the cgroup '%.200s'",
			       d->spec.where);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, -errno, "cannot make a socket pair");
	d->from_child.fd = pair[0];
	fds[0] = pair[1];
	r = spawner_give(&d->daemon->spawner, &order, fds, dir ? 2 : 1, err);
	close(pair[1]);
	d->join.is_ordered = r == 0;
	return r;
}

static int move(const char *dir, pid_t pid)
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

/* An older kernel has made it where the spawner is. */
static int join_cgroup(struct daemon_sandbox *d, const struct spawner_child *made,
		       struct err *err)
{
	int r = made->joined ? 0 : move(d->dir, made->pid);

	if (r == -EBUSY) {
		r = make_below(d);
		if (r == 0)
			r = move(d->join.below, made->pid);
	}
	return r < 0 ? err_sys(err, r, "the self-test cannot join the cgroup '%.200s'",
			       d->spec.where)
		     : 0;
}

static int take(struct daemon_sandbox *d, struct spawner_child *ret, struct err *err)
{
	d->join.is_ordered = false;
	return spawner_take(&d->daemon->spawner, ret, err);
}

static int take_below(struct daemon_sandbox *d, struct spawner_child *ret,
		      struct err *err)
{
	int r = make_below(d);

	if (r < 0)
		return err_sys(err, r, "the self-test cannot join the cgroup '%.200s'",
			       d->spec.where);
	close(d->from_child.fd);
	d->from_child.fd = -1;
	*err = (struct err){ 0 };
	r = give(d, NOBODY, d->join.below, err);
	return r < 0 ? r : take(d, ret, err);
}

int join_start(struct daemon_sandbox *d, struct err *err)
{
	bool is_user = d->member.kind == FILTER_MEMBER_UID;

	return give(d, is_user ? d->member.uid : NOBODY, d->dir, err);
}

int join_wait(struct daemon_sandbox *d, struct err *err)
{
	struct spawner_child made;
	int r;

	if (!d->join.is_ordered)
		return 0;
	r = take(d, &made, err);
	if (r == -EBUSY && d->dir)
		r = take_below(d, &made, err);
	if (r < 0)
		return r;
	d->join.pid = made.pid;
	/* Nobody reaps it before the spawner has another order. */
	d->join.process = (int)syscall(SYS_pidfd_open, made.pid, 0);
	if (d->join.process < 0)
		return err_sys(err, -errno, "cannot watch a process");
	return d->dir && !d->join.below ? join_cgroup(d, &made, err) : 0;
}

/* The kernel may be a moment late in seeing that nobody is in there any more. */
static void remove_below(struct join *j)
{
	for (int i = 0; i < REMOVE_TRIES && rmdir(j->below) < 0 && errno == EBUSY; i++)
		(void)!poll(NULL, 0, 1);
	free(j->below);
	j->below = NULL;
}

void join_end(struct daemon_sandbox *d)
{
	struct join *j = &d->join;
	struct err ignored = { 0 };
	struct pollfd ended = { .events = POLLIN };

	if (j->is_ordered)
		(void)!join_wait(d, &ignored);
	if (j->process < 0)
		return;
	ended.fd = j->process;
	(void)!syscall(SYS_pidfd_send_signal, j->process, SIGKILL, NULL, 0);
	(void)!poll(&ended, 1, END_MS);
	close(j->process);
	j->process = -1;
	j->pid = 0;
	if (j->below)
		remove_below(j);
}
