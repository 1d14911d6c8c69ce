// SPDX-License-Identifier: Apache-2.0
#include "launch/init/init.h"

#include <errno.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* What the caller of weir had ignored stays ignored (nohup), all else is as new. */
static void reset_signals(uint64_t ignored)
{
	sigset_t none;

	for (int n = 1; n < 64; n++) {
		struct sigaction action = { .sa_handler = SIG_DFL };

		if (ignored >> (n - 1) & 1)
			action.sa_handler = SIG_IGN;
		sigaction(n, &action, NULL);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void complain(const char *command, const char *why)
{
	const char *const parts[] = { "weir: ", command, ": ", why, "\n" };
	struct iovec iov[ARRAY_SIZE(parts)];

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)parts[i], strlen(parts[i]) };
	(void)!writev(STDERR_FILENO, iov, ARRAY_SIZE(iov));
}

_Noreturn void command_exec(char **argv, uint64_t ignored_signals)
{
	int error;

	close_range(STDERR_FILENO + 1, ~0U, 0);
	reset_signals(ignored_signals);
	execvp(argv[0], argv);
	error = errno;
	if (error == ENOENT)
		complain(argv[0], strchr(argv[0], '/') ? "no such file or directory"
						       : "command not found");
	else
		complain(argv[0],
			 error == EACCES ? "permission denied" : strerror(error));
	_exit(error == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}
