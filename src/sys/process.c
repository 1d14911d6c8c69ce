// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/exit_status.h"

pid_t process_fork(const char *name)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	if (name)
		prctl(PR_SET_NAME, name);
	if (!process_end_with(parent))
		_exit(RUN_STATUS_FAILED);
	return 0;
}

int process_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

void process_reap(pid_t pid, bool kill_it)
{
	if (pid <= 0)
		return;
	if (kill_it)
		kill(pid, SIGKILL);
	(void)process_wait(pid);
}

char *process_end_text(int wait_status, char buf[PROCESS_END_SIZE])
{
	if (WIFSIGNALED(wait_status))
		snprintf(buf, PROCESS_END_SIZE, "was killed by signal %d",
			 WTERMSIG(wait_status));
	else
		snprintf(buf, PROCESS_END_SIZE, "ended with status %d",
			 WEXITSTATUS(wait_status));
	return buf;
}

int process_watch_parent(pid_t parent, int *ret_fd, struct err *err)
{
	int fd;

	*ret_fd = -1;
	if (parent == 0)
		return 0;
	fd = (int)syscall(SYS_pidfd_open, parent, 0);
	if (fd < 0 && errno != ESRCH)
		return err_sys(err, -errno, "cannot watch process %d", (int)parent);
	/* Asked after the descriptor was made, so that it is that process's. */
	if (fd < 0 || getppid() != parent) {
		if (fd >= 0)
			close(fd);
		return err_set(err, -ESRCH, "process %d is not the parent", (int)parent);
	}
	*ret_fd = fd;
	return 0;
}

bool process_end_with(pid_t parent)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

void process_unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int process_place_fds(const int *fds, size_t count, int first, int flags)
{
	const int end = first + (int)count;
	int high[PROCESS_FDS_MAX];

	if (count > PROCESS_FDS_MAX)
		return -E2BIG;
	/* First above all of them, so that none is overwritten. */
	for (size_t i = 0; i < count; i++) {
		high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, end);
		if (fds[i] >= 0 && high[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < count; i++)
		if (high[i] < 0)
			close(first + (int)i);
		else if (dup3(high[i], first + (int)i, flags) < 0)
			return -errno;
	return syscall(SYS_close_range, end, ~0u, 0) < 0 ? -errno : 0;
}

int process_forbid_cores(void)
{
	const struct rlimit one = { 1, 1 }, none = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &one) == 0 || setrlimit(RLIMIT_CORE, &none) == 0)
		return 0;
	return -errno;
}

void process_die_by(int sig)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	sigset_t set;

	(void)!process_forbid_cores();
	sigaction(sig, &by_default, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	kill(getpid(), sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
				 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };

int process_open_signals(struct err *err)
{
	struct sigaction old;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCONT);
	/* What our caller ignores (nohup) stays ignored, here and by the command. */
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&set, forwarded[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(err, -errno, "cannot block signals");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(err, -errno, "cannot open a signalfd") : fd;
}

int process_pair(int *ret_ours, int *ret_theirs, struct err *err)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_sys(err, -errno, "cannot make a socket pair");
	*ret_ours = fds[0];
	*ret_theirs = fds[1];
	return 0;
}

int process_dont_wait(int fd)
{
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}
