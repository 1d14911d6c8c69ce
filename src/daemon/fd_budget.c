// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Each network namespace takes descriptors of the daemon's and of its engine's. What both
 * may have (RLIMIT_NOFILE) is never used up by them: a quarter is for connections. So a
 * namespace is told that there is no room before anything of it is opened, and may go to
 * another engine; sandboxes of the host's own, which have none, may use what is left. */
#include <errno.h>
#include <sys/resource.h>

#include "daemon/internal.h"

enum {
	FDS_NAMESPACE = SANDBOX_FD_COUNT + 1, /* its own */
	/* For another namespace at most: its own, a plan, the process that names it. */
	FDS_NEXT = FDS_NAMESPACE + 2,
	/* That stay free: for one more sandbox while it is attached, and for answers. */
	FDS_SPARE = 64,
};

static int refuse(size_t used, const struct rlimit *files, struct err *err)
{
	return err_set(err, -EMFILE,
		       "the daemon has too few descriptors for another sandbox: %zu of "
		       "%llu are in use (RLIMIT_NOFILE)",
		       used, (unsigned long long)files->rlim_cur);
}

/* What was guarded before has had its descriptors, but maybe elsewhere. */
static rlim_t room(bool restarted, const struct rlimit *files)
{
	return restarted ? files->rlim_cur / 5 * 4 : files->rlim_cur / 4 * 3;
}

int room_check(const struct daemon_sandbox *d, struct err *err)
{
	const struct daemon *w = d->daemon;
	size_t used = w->fds_held + w->plan_count;
	struct rlimit files;

	if (d->spec.kind != ATTACH_NETNS || getrlimit(RLIMIT_NOFILE, &files) < 0 ||
	    used + FDS_NEXT <= room(d->restarted, &files))
		return 0;
	return refuse(used, &files, err);
}

void room_namespaces(size_t *ret_least, size_t *ret_most)
{
	struct rlimit files;
	size_t fds = SIZE_MAX;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		fds = (size_t)room(false, &files);
	*ret_least = MAX(fds / FDS_NEXT, (size_t)1);
	*ret_most = MAX(fds / FDS_NAMESPACE, (size_t)1);
}

size_t room_fds_of(const struct daemon_sandbox *d)
{
	size_t count = (size_t)(d->route_fd >= 0) + (size_t)(d->process.fd >= 0);

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		count += d->fds.fd[i] >= 0;
	return count;
}

/* New descriptors get the lowest numbers that are free: as many as the highest of these
 * says are in use, or nearly. */
static int highest_fd(const struct daemon_sandbox *d)
{
	int highest = MAX(daemon_plan_fd(d->plan), d->route_fd);

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		highest = MAX(highest, d->fds.fd[i]);
	return highest;
}

int room_check_opened(const struct daemon_sandbox *d, struct err *err)
{
	size_t used = (size_t)highest_fd(d) + 1;
	struct rlimit files;

	if (d->restarted || getrlimit(RLIMIT_NOFILE, &files) < 0 ||
	    used + FDS_SPARE <= files.rlim_cur)
		return 0;
	return refuse(used, &files, err);
}
