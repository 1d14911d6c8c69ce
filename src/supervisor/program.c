// SPDX-License-Identifier: Apache-2.0
#include "supervisor/program.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "sys/inherited_fds.h"

enum { STATUS_NOT_STARTED = 127, NAME_SIZE = 64 };

static int find(const char *program, char ret[PATH_MAX])
{
	static const char *const places[] = { "", "/../libexec/weir" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return -errno;
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return -ENOENT;
	*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int len = snprintf(ret, PATH_MAX, "%s%s/%s", self, places[i], program);

		if (len < PATH_MAX && access(ret, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}

int helper_check(const char *program, struct err *err)
{
	char path[PATH_MAX];
	int r = find(program, path);

	return r < 0 ? err_sys(err, r, "cannot find %s", program) : 0;
}

/* @service may be NULL. @ret holds HELPER_ARGS_MAX + 3. */
static int arguments(char *name, char *service, char *const *args, char **ret)
{
	*ret++ = name;
	if (service)
		*ret++ = service;
	for (size_t i = 0; args && args[i]; i++) {
		if (i == HELPER_ARGS_MAX)
			return -E2BIG;
		*ret++ = args[i];
	}
	*ret = NULL;
	return 0;
}

int helper_become(const char *program, char *const *args, struct err *err)
{
	char path[PATH_MAX], name[NAME_SIZE];
	char *argv[HELPER_ARGS_MAX + 3];
	int r = find(program, path);

	if (r < 0)
		return err_sys(err, r, "cannot find %s", program);
	snprintf(name, sizeof(name), "%s", program);
	r = arguments(name, NULL, args, argv);
	if (r == 0) {
		execv(path, argv);
		r = -errno;
	}
	return err_sys(err, r, "cannot start %s", path);
}

/* In the child. Return: -errno, it could not be started. */
static int become(const struct helper *h, pid_t parent)
{
	char path[PATH_MAX], name[NAME_SIZE], service[NAME_SIZE];
	char *argv[HELPER_ARGS_MAX + 3];
	sigset_t none;
	int r;

	snprintf(name, sizeof(name), "%s", h->program);
	snprintf(service, sizeof(service), "%s", h->service ? h->service : "");
	r = arguments(name, h->service ? service : NULL, h->args, argv);
	if (r == 0)
		r = find(h->program, path);
	if (r == 0)
		r = places_take(h->fds, h->fd_count);
	if (r < 0)
		return r;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	if (getppid() != parent)
		return -ESRCH;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(path, argv);
	return -errno;
}

pid_t helper_start(const struct helper *h)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		log_error("cannot start %s: %s", h->program,
			  strerror(-become(h, parent)));
		_exit(STATUS_NOT_STARTED);
	}
	return pid;
}
