// SPDX-License-Identifier: Apache-2.0
#include "main/process.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/wait.h>

void process_reap(pid_t pid, bool kill_it)
{
	if (pid <= 0)
		return;
	if (kill_it)
		kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

void process_die_by(int sig)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	const struct rlimit none = { 0, 0 };
	sigset_t set;

	setrlimit(RLIMIT_CORE, &none);
	sigaction(sig, &by_default, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	kill(getpid(), sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}
