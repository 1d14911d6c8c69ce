// SPDX-License-Identifier: Apache-2.0
#include "supervisor/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "base/exit_status.h"
#include "base/log.h"
#include "sys/confine.h"
#include "sys/process.h"

enum { NAME_SIZE = 64 };

static int find(const char *program, char ret[PATH_MAX], struct err *err)
{
	/* The packages, of Debian and of RPM, that have a program. */
	static const struct package {
		const char *program, *package;
	} packages[] = {
		{ PROGRAM_EVENTS, "weir" },
		{ "weir-postgres", "weir-postgres" },
	};
	const struct package *known = TEXT_FIND(text_of(program), packages);
	static const char *const places[] = { "", "/../libexec/weir" };
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n < 0)
		return err_sys(err, -errno, "cannot find %s", program);
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		int len = snprintf(ret, PATH_MAX, "%s%s/%s", self, places[i], program);

		if (len < PATH_MAX && access(ret, X_OK) == 0)
			return 0;
	}
	return err_set(err, -ENOENT, "cannot find %s; install it (package %s)", program,
		       known ? known->package : "weir-daemon");
}

int helper_check(const char *program, struct err *err)
{
	char path[PATH_MAX];

	return find(program, path, err);
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
	int r = find(program, path, err);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "%s", program);
	r = arguments(name, NULL, args, argv);
	if (r == 0) {
		execv(path, argv);
		r = -errno;
	}
	return err_sys(err, r, "cannot start %s", path);
}

/* In the child. Return: -errno, it could not be started. */
static int become(const struct helper *h, int settings)
{
	static const char *const kept[] = { "ASAN_OPTIONS", "UBSAN_OPTIONS" };
	const uint64_t reads = UINT64_C(1) << CAP_DAC_OVERRIDE |
			       UINT64_C(1) << CAP_DAC_READ_SEARCH;
	char *environment[ARRAY_SIZE(kept) + 1] = { NULL };
	char path[PATH_MAX], name[NAME_SIZE];
	char *const argv[] = { name, NULL };
	int r = find(h->program, path, NULL), fd;
	size_t n = 0;

	snprintf(name, sizeof(name), "%s", h->program);
	if (r == 0)
		r = inherited_fds_take(h->fds, h->fd_count, settings);
	if (r < 0)
		return r;
	process_unblock_signals();
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* What a sanitizer reads before main(). */
	for (char **e = environ; *e && n < ARRAY_SIZE(kept); e++)
		for (size_t i = 0; i < ARRAY_SIZE(kept) && n < ARRAY_SIZE(kept); i++)
			if (strncmp(*e, kept[i], strlen(kept[i])) == 0)
				environment[n++] = *e;
	/* The kernel closes the /proc of a program whose file can't be read by who
	 * executes it: rights that go past the file's mode are put aside. Who becomes it
	 * as root has them back then. */
	r = capabilities_lower(reads);
	if (r < 0)
		return r;
	execveat(fd, "", argv, environment, AT_EMPTY_PATH);
	return -errno;
}

pid_t helper_start(const struct helper *h)
{
	char name[NAME_SIZE], service[NAME_SIZE], *argv[HELPER_ARGS_MAX + 3];
	CLEAN(fd) int settings = -1;
	pid_t pid;
	int r;

	snprintf(name, sizeof(name), "%s", h->program);
	snprintf(service, sizeof(service), "%s", h->service ? h->service : "");
	r = arguments(name, h->service ? service : NULL, h->args, argv);
	if (r < 0)
		return r;
	settings = settings_make(argv, environ);
	if (settings < 0)
		return settings;
	pid = process_fork(NULL);
	if (pid == 0) {
		log_error("cannot start %s: %s", h->program,
			  strerror(-become(h, settings)));
		_exit(RUN_STATUS_NOT_FOUND);
	}
	return pid;
}
