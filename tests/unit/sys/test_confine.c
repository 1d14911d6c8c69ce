// SPDX-License-Identifier: Apache-2.0
/* What weir-postgres may not call, tried by a child that is confined as it is. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/confine.h"

/* A call that reaches another process, or makes a namespace. Signal 0 and arguments that
 * change nothing: only whether the call is refused counts. */
static const struct {
	const char *what;
	long number, arguments[4];
} calls[] = {
	{ "kill", SYS_kill, { 1, 0 } },
	{ "tgkill", SYS_tgkill, { 1, 1, 0 } },
	{ "rt_sigqueueinfo", SYS_rt_sigqueueinfo, { 1, 0, 0 } },
	{ "rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, { 1, 1, 0, 0 } },
	{ "another's limits", SYS_prlimit64, { 1, RLIMIT_CPU, 0, 0 } },
	{ "signals by a socket", SYS_fcntl, { -1, F_SETOWN, 1 } },
	{ "the same, of one thread", SYS_fcntl, { -1, F_SETOWN_EX, 0 } },
	{ "the same by ioctl", SYS_ioctl, { -1, FIOSETOWN, 0 } },
	{ "the same by its other name", SYS_ioctl, { -1, SIOCSPGRP, 0 } },
	{ "a user namespace", SYS_unshare, { CLONE_NEWUSER } },
	/* A parent of its own outside of a namespace that is new: EINVAL if it isn't
	 * refused. */
	{ "a child's user namespace", SYS_clone, { CLONE_NEWUSER | CLONE_FS, 0 } },
};

/* Which call of @calls isn't refused, from 1 on; 0: all are; -1: not confined. */
static int first_not_refused(void)
{
	struct rlimit limit;
	struct err err;

	if (confine_self(&err) < 0 || confine_calls(CONFINE_POSTGRES, &err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		const long *a = calls[i].arguments;

		if (syscall(calls[i].number, a[0], a[1], a[2], a[3]) != -1 ||
		    errno != EPERM)
			return (int)i + 1;
	}
	/* The C library makes threads by clone() where there is no clone3(). */
	if (syscall(SYS_clone3, NULL, 0) != -1 || errno != ENOSYS)
		return (int)ARRAY_SIZE(calls) + 1;
	/* What libpq needs of these calls is left. */
	return getrlimit(RLIMIT_NOFILE, &limit) < 0 || fcntl(0, F_GETFD) < 0 ? -1 : 0;
}

TEST(weir_postgres_reaches_no_other_process)
{
	pid_t child;
	size_t which;
	int status;

	if (!confine_has_calls())
		skip();
	child = fork();
	if (child == 0)
		_exit(first_not_refused());
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	which = (size_t)WEXITSTATUS(status);
	if (which > 0 && which <= ARRAY_SIZE(calls))
		print_message("not refused: %s\n", calls[which - 1].what);
	assert_int_equal(which, 0);
}
