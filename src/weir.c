// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>

#include "base/exit_status.h"
#include "verbs.h"

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

/* The names that OpenSandbox's image has its programs by: its own start scripts and tests
 * call them. What removes the rules there removes none here. */
enum alias { ALIAS_NONE = 0, ALIAS_EGRESS, ALIAS_SUPERVISOR, ALIAS_CLEANUP };

static enum alias alias_of(const char *path)
{
	static const char *const names[] = { [ALIAS_EGRESS] = "egress",
					     [ALIAS_SUPERVISOR] = "supervisor",
					     [ALIAS_CLEANUP] = "cleanup.sh" };
	const char *slash = strrchr(path, '/');

	for (size_t i = ALIAS_EGRESS; i < ARRAY_SIZE(names); i++)
		if (strcmp(slash ? slash + 1 : path, names[i]) == 0)
			return (enum alias)i;
	return ALIAS_NONE;
}

enum { ALIAS_ARGS_MAX = 128 };

static int run_alias(enum alias alias, int argc, char **argv)
{
	char weir[] = "weir", sidecar[] = "sidecar";
	char *args[ALIAS_ARGS_MAX + 3] = { weir, sidecar };
	int count = alias == ALIAS_EGRESS ? MIN(argc - 1, (int)ALIAS_ARGS_MAX) : 0;

	if (alias == ALIAS_CLEANUP)
		return 0;
	for (int i = 0; i < count; i++)
		args[2 + i] = argv[1 + i];
	return cli_main(2 + count, args);
}

int main(int argc, char **argv)
{
	enum alias alias = argc > 0 ? alias_of(argv[0]) : ALIAS_NONE;
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	/* A file size limit (ulimit -f) is an error to report, not a signal that
	 * kills. */
	sigaction(SIGXFSZ, &ignore, NULL);
	if (open_standard_streams() < 0)
		return RUN_STATUS_FAILED;
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	if (alias != ALIAS_NONE)
		return run_alias(alias, argc, argv);
	return cli_main(argc, argv);
}
