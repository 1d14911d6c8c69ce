// SPDX-License-Identifier: Apache-2.0
#include "launch/init/init.h"

#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* What the caller of weir had ignored stays ignored (nohup), all else is as new. By the
 * system call: the C library keeps two signals to itself, which a caller may have had
 * ignored as well. An action of zeros is SIG_DFL on every architecture. */
static void reset_signals(uint64_t ignored)
{
	const unsigned long by_default[8] = { 0 };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t none;

	for (int n = 1; n <= 64; n++) {
		if (ignored >> (n - 1) & 1)
			sigaction(n, &ignore, NULL);
		else
			syscall(SYS_rt_sigaction, n, by_default, NULL, 8);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The command shares its caller's process group, for the terminal's sake, and a process
 * group knows no namespaces: kill(0, sig) would reach who started us. Landlock ends that
 * (ABI 6, Linux 6.12; its headers are younger than Debian 12). Older kernels can't: the
 * threat model says so. no_new_privs, which it asks for, is set by bwrap. */
static void keep_signals_inside(void)
{
	const struct {
		uint64_t handled_access_fs, handled_access_net, scoped;
	} attr = { .scoped = 1 << 1 /* LANDLOCK_SCOPE_SIGNAL */ };
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (fd >= 0)
		syscall(SYS_landlock_restrict_self, fd, 0);
}

static void complain(const char *command, const char *why)
{
	const char *const parts[] = { "weir: ", command, ": ", why, "\n" };
	struct iovec iov[ARRAY_SIZE(parts)];

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)parts[i], strlen(parts[i]) };
	(void)!writev(STDERR_FILENO, iov, ARRAY_SIZE(iov));
}

/* execvp() gives EACCES also for a directory of PATH that it may not enter. Is there such
 * a file in one that it may? */
static bool is_in_path(const char *name)
{
	const char *path = getenv("PATH");
	char file[PATH_MAX];

	while (path && *path) {
		size_t len = strcspn(path, ":");

		if (snprintf(file, sizeof(file), "%.*s/%s", (int)len, path, name) <
			    (int)sizeof(file) &&
		    access(file, F_OK) == 0)
			return true;
		path += len + (path[len] == ':');
	}
	return false;
}

_Noreturn void command_exec(char **argv, uint64_t ignored_signals)
{
	bool is_path = strchr(argv[0], '/');
	int error;

	keep_signals_inside();
	close_range(STDERR_FILENO + 1, ~0U, 0);
	reset_signals(ignored_signals);
	execvp(argv[0], argv);
	error = errno;
	if (error == EACCES && !is_path && !is_in_path(argv[0]))
		error = ENOENT;
	if (error == ENOENT)
		complain(argv[0],
			 is_path ? "no such file or directory" : "command not found");
	else
		complain(argv[0],
			 error == EACCES ? "permission denied" : strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}
