// SPDX-License-Identifier: Apache-2.0
#include "base/exit_status.h"
#include "supervisor/init.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the caller of weir had ignored stays ignored (nohup), all else is as new. By the
 * system call: the C library keeps two signals to itself, which a caller may have had
 * ignored as well. An action of zeros is SIG_DFL on every architecture. */
static void reset_signals(uint64_t ignored)
{
	const unsigned long by_default[8] = { 0 };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	for (int n = 1; n <= 64; n++) {
		if (ignored >> (n - 1) & 1)
			sigaction(n, &ignore, NULL);
		else
			syscall(SYS_rt_sigaction, n, by_default, NULL, 8);
	}
}

/* The command shares its caller's process group, for the terminal's sake, and a process
 * group knows no namespaces: kill(0, sig) would reach who started us. Landlock ends that
 * (ABI 6, Linux 6.12; its headers are younger than Debian 12). Older kernels can't, and
 * some containers refuse it: the threat model says so. no_new_privs, which it asks for,
 * has been set. Return: whether that is done, or can't be had here; else errno says
 * what failed. */
static bool keep_signals_inside(void)
{
	const struct {
		uint64_t handled_access_fs, handled_access_net, scoped;
	} attr = { .scoped = 1 << 1 /* LANDLOCK_SCOPE_SIGNAL */ };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (fd < 0)
		return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
	return syscall(SYS_landlock_restrict_self, fd, 0) == 0;
}

_Noreturn void command_exec(char **argv, uint64_t ignored_signals, int go)
{
	sigset_t none;
	char byte;

	if (!keep_signals_inside()) {
		init_report(LAUNCH_FAILED, RUN_STATUS_FAILED,
			    "cannot keep the command's signals in the sandbox");
		_exit(RUN_STATUS_FAILED);
	}
	reset_signals(ignored_signals);
	/* For the walk alone: the kernel has read the directories of PATH when the byte
	 * comes. */
	(void)command_is_in_path(argv[0]);
	if (read(go, &byte, 1) != 1)
		_exit(RUN_STATUS_FAILED);
	close_range(STDERR_FILENO + 1, ~0U, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	command_become(argv);
}
