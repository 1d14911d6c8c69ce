// SPDX-License-Identifier: Apache-2.0
#include "supervisor/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor/socket_owner.h"
#include "sys/process.h"
#include "sys/sock.h"

enum { ANSWER_MS = 5000, CHANNEL_FD = 3 };

static void socket_owner_child(const struct spawner_order *o)
{
	socket_owner_serve(SPAWNER_FD_FIRST, true);
}

static void (*const tasks[SPAWNER_TASK_COUNT])(const struct spawner_order *o) = {
	[SPAWNER_INSIDE] = inside_child,
	[SPAWNER_JOIN] = join_child,
	[SPAWNER_LOOK] = look_child,
	[SPAWNER_SOCKET_OWNER] = socket_owner_child,
};

/* -- in the spawner and its children ------------------------------------------------- */

/* Moved there later, it would wait for all processors to have seen it. Return: as fork();
 * -ENOSYS: the kernel, or what it is asked through, can't. */
static pid_t fork_into(int cgroup)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)cgroup,
	};
	pid_t parent = getpid();
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0 && !process_end_with(parent))
		_exit(0);
	if (pid >= 0)
		return (pid_t)pid;
	return errno == EINVAL || errno == E2BIG || errno == EPERM ? -ENOSYS : -errno;
}

static void serve(void)
{
	struct spawner_order o;
	int fds[SPAWNER_FDS_MAX];
	size_t count = 0;

	while (fds_receive(CHANNEL_FD, &o, sizeof(o), fds, ARRAY_SIZE(fds), &count) ==
	       sizeof(o)) {
		size_t passed = o.into && count > 0 ? count - 1 : count;
		struct spawner_child made = { .pid = -ENOSYS };

		/* Until now they have kept their numbers. */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			continue;
		if (passed < count)
			made.pid = fork_into(fds[passed]);
		made.joined = made.pid >= 0;
		if (made.pid == -ENOSYS)
			made.pid = process_fork(NULL);
		if (made.pid == 0) {
			if (o.task < SPAWNER_TASK_COUNT && tasks[o.task] &&
			    process_place_fds(fds, passed, SPAWNER_FD_FIRST, O_CLOEXEC) ==
				    0)
				tasks[o.task](&o);
			_exit(0);
		}
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		if (fds_send(CHANNEL_FD, &made, sizeof(made), NULL, 0) < 0)
			return;
	}
}

/* -- in the daemon ------------------------------------------------------------------ */

int spawner_start(struct spawner *p, struct err *err)
{
	pid_t pid;
	int pair[2];

	if (process_pair(&pair[0], &pair[1], err) < 0)
		return err->code;
	pid = process_fork("weir-spawner");
	if (pid == 0) {
		if (process_place_fds(&pair[1], 1, CHANNEL_FD, O_CLOEXEC) == 0)
			serve();
		_exit(0);
	}
	close(pair[1]);
	if (pid < 0) {
		close(pair[0]);
		return err_sys(err, pid, "cannot start a process");
	}
	p->channel = pair[0];
	return 0;
}

static int give(const struct spawner *p, const struct spawner_order *o, const int *fds,
		size_t count)
{
	ssize_t n = p->channel < 0 ? -EPIPE
				   : fds_send(p->channel, o, sizeof(*o), fds, count);

	return n < 0 ? (int)n : 0;
}

/* It is gone, or can't be relied on any more: what comes is of another order. */
static bool is_lost(int r)
{
	return r == -EPIPE || r == -ECONNRESET || r == -ETIMEDOUT;
}

int spawner_give(struct spawner *p, const struct spawner_order *o, const int *fds,
		 size_t count, struct err *err)
{
	int r = give(p, o, fds, count);

	if (is_lost(r)) {
		fd_close(&p->channel);
		if (spawner_start(p, err) < 0)
			return err->code;
		r = give(p, o, fds, count);
	}
	return r < 0 ? err_sys(err, r, "cannot start a process") : 0;
}

int spawner_take(struct spawner *p, struct spawner_child *ret, struct err *err)
{
	struct pollfd answer = { .fd = p->channel, .events = POLLIN };
	ssize_t n = p->channel < 0 ? -EPIPE : -ETIMEDOUT;
	size_t count;
	int r;

	if (p->channel >= 0 && poll(&answer, 1, ANSWER_MS) == 1)
		n = fds_receive(p->channel, ret, sizeof(*ret), NULL, 0, &count);
	r = n < 0 ? (int)n : n == sizeof(*ret) ? 0 : -EPIPE;
	if (is_lost(r))
		fd_close(&p->channel);
	if (r == 0 && ret->pid < 0)
		r = ret->pid;
	return r < 0 ? err_sys(err, r, "cannot start a process") : 0;
}

pid_t spawner_order(struct spawner *p, const struct spawner_order *o, const int *fds,
		    size_t count, struct err *err)
{
	struct spawner_child made;
	int r = spawner_give(p, o, fds, count, err);

	if (r < 0)
		return r;
	r = spawner_take(p, &made, err);
	if (is_lost(r)) {
		*err = (struct err){ 0 };
		r = spawner_give(p, o, fds, count, err);
		if (r == 0)
			r = spawner_take(p, &made, err);
	}
	return r < 0 ? r : made.pid;
}
