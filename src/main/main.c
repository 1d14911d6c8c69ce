// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>

#include "cli/verbs.h"
#include "main/control.h"

/* What is opened later must not end up as standard input, output or error. */
static int open_standard_streams(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return -errno;
	return 0;
}

/* Large pools get pages of their own, which are zero and no memory until they are used.
 * Without this the C library raises the size from which it does so with the first large
 * block that is freed. */
enum { LARGE_BLOCK = 128 * 1024 };

int main(int argc, char **argv)
{
	const struct cli_hooks hooks = { .run = control_run };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	/* A file size limit (ulimit -f) is an error to be told, not a way to die. */
	sigaction(SIGXFSZ, &ignore, NULL);
	if (open_standard_streams() < 0)
		return RUN_STATUS_FAILED;
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	return cli_main(argc, argv, &hooks);
}
