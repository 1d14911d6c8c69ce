// SPDX-License-Identifier: Apache-2.0
#include "main/porter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/sock.h"

enum { ANSWER_MS = 5000, CHANNEL_FD = 3 };

static void (*const tasks[PORTER_TASK_COUNT])(const struct porter_order *o) = {
	[PORTER_INSIDE] = inside_child,
	[PORTER_JOIN] = join_child,
	[PORTER_LOOK] = look_child,
};

/* -- in the porter and its children ------------------------------------------------- */

/* @fds on @first and the next ones, and nothing above them. */
static int keep_only(const int *fds, size_t count, int first)
{
	int high[PORTER_FDS_MAX];

	for (size_t i = 0; i < count; i++) {
		high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, first + (int)count);
		if (high[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < count; i++)
		if (dup3(high[i], first + (int)i, O_CLOEXEC) < 0)
			return -errno;
	return syscall(SYS_close_range, first + (int)count, ~0u, 0) < 0 ? -errno : 0;
}

/* Should the parent have ended meanwhile, so does this one. */
static bool end_with(pid_t parent)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

static void run_child(const struct porter_order *o, const int *fds, size_t count,
		      pid_t parent)
{
	if (o->task < PORTER_TASK_COUNT && tasks[o->task] && end_with(parent) &&
	    keep_only(fds, count, PORTER_FD_FIRST) == 0)
		tasks[o->task](o);
}

static int32_t carry_out(const struct porter_order *o, const int *fds, size_t count)
{
	pid_t parent = getpid(), pid;

	/* Until now they have kept their numbers. */
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	pid = fork();
	if (pid == 0) {
		run_child(o, fds, count, parent);
		_exit(0);
	}
	return pid < 0 ? -errno : pid;
}

static void serve(void)
{
	struct porter_order o;
	int fds[PORTER_FDS_MAX];
	size_t count = 0;

	while (fds_receive(CHANNEL_FD, &o, sizeof(o), fds, ARRAY_SIZE(fds), &count) ==
	       sizeof(o)) {
		int32_t pid = carry_out(&o, fds, count);

		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		if (fds_send(CHANNEL_FD, &pid, sizeof(pid), NULL, 0) < 0)
			return;
	}
}

/* -- in the daemon ------------------------------------------------------------------ */

int porter_start(struct porter *p, struct err *err)
{
	pid_t parent = getpid(), pid;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(err, -errno, "cannot make a socket pair");
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_NAME, "weir-porter");
		if (end_with(parent) && keep_only(&pair[1], 1, CHANNEL_FD) == 0)
			serve();
		_exit(0);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(err, -errno, "cannot start a process");
	}
	p->channel = pair[0];
	return 0;
}

static pid_t ask(const struct porter *p, const struct porter_order *o, const int *fds,
		 size_t count)
{
	struct pollfd answer = { .fd = p->channel, .events = POLLIN };
	int32_t pid;
	ssize_t n;

	if (p->channel < 0)
		return -EPIPE;
	n = fds_send(p->channel, o, sizeof(*o), fds, count);
	if (n >= 0)
		n = poll(&answer, 1, ANSWER_MS) == 1
			    ? fds_receive(p->channel, &pid, sizeof(pid), NULL, 0, &count)
			    : -ETIMEDOUT;
	if (n < 0)
		return (pid_t)n;
	return n == sizeof(pid) ? pid : -EPIPE;
}

pid_t porter_order(struct porter *p, const struct porter_order *o, const int *fds,
		   size_t count, struct err *err)
{
	pid_t pid = ask(p, o, fds, count);

	if (pid == -EPIPE || pid == -ECONNRESET || pid == -ETIMEDOUT) {
		if (p->channel >= 0)
			close(p->channel);
		p->channel = -1;
		if (porter_start(p, err) < 0)
			return err->code;
		pid = ask(p, o, fds, count);
	}
	return pid < 0 ? err_sys(err, pid, "cannot start a process") : pid;
}
