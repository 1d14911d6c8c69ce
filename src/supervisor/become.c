// SPDX-License-Identifier: Apache-2.0
/* For weir-init and for what starts a command on the host: one message for both. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "supervisor/init.h"

/* execvp() gives EACCES also for a directory of PATH that it may not enter. Is there such
 * a file in one that it may? */
bool command_is_in_path(const char *name)
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

_Noreturn void command_become(char *const *argv)
{
	bool is_path = strchr(argv[0], '/');
	const char *parts[] = { "weir: ", argv[0], ": ", NULL, "\n" };
	struct iovec iov[ARRAY_SIZE(parts)];
	int error;

	execvp(argv[0], argv);
	error = errno;
	if (error == EACCES && !is_path && !command_is_in_path(argv[0]))
		error = ENOENT;
	if (error == ENOENT)
		parts[3] = is_path ? "no such file or directory" : "command not found";
	else
		parts[3] = error == EACCES ? "permission denied" : strerror(error);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)parts[i], strlen(parts[i]) };
	(void)!writev(STDERR_FILENO, iov, ARRAY_SIZE(iov));
	_exit(error == ENOENT ? RUN_STATUS_NOT_FOUND : RUN_STATUS_NOT_EXECUTABLE);
}
