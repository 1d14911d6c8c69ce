// SPDX-License-Identifier: Apache-2.0
#include "run/bwrap.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "run/rootfs.h"
#include "sys/id_map.h"

enum { ID_TEXT = 12 };

/* argv without the command's part. What begins with "@" is replaced. */
static const char *const fixed_args[] = {
	"bwrap",
	/* The network namespace belongs to the outer user namespace. In the inner one
	 * even uid 0 with every capability has none over it. */
	"--unshare-user",
	"--disable-userns",
	"--uid",
	"@uid",
	"--gid",
	"@gid",
	"--cap-drop",
	"ALL",
	"--unshare-pid",
	"--unshare-ipc",
	"--unshare-uts",
	"--unshare-cgroup-try",
	"--die-with-parent",
	"--as-pid-1",
	/* All but the device nodes is mounted nodev already. */
	"--dev-bind",
	ROOTFS_ROOT,
	"/",
	"--proc",
	"/proc",
	"--ro-bind",
	"/proc/sys",
	"/proc/sys",
	"@proc",
	"/proc",
	"--chdir",
	"@cwd",
	"--seccomp",
	"6",
	"--",
	"/proc/self/fd/5",
};

static_assert(BWRAP_FD_INIT == 5 && BWRAP_FD_SECCOMP == 6,
	      "the numbers in the arguments");

static const char *replace_argument(const char *arg, const char *uid, const char *gid,
				    const char *cwd)
{
	if (strcmp(arg, "@uid") == 0)
		return uid;
	if (strcmp(arg, "@gid") == 0)
		return gid;
	/* The kernel's uid 0, in a container without SYS_ADMIN, owns what is in /proc,
	 * and could write to it. */
	if (strcmp(arg, "@proc") == 0)
		return id_map_is_root() ? "--remount-ro" : "--dir";
	return strcmp(arg, "@cwd") == 0 ? cwd : arg;
}

/* Above everything first: one of the descriptors may sit on a number that is wanted. */
static int move_descriptors(struct bwrap_fds *fds, struct err *err)
{
	int *const list[] = { &fds->channel, &fds->probe, &fds->init, &fds->seccomp };

	static_assert(ARRAY_SIZE(list) == BWRAP_FD_END - BWRAP_FD_CHANNEL, "one each");
	fds->bwrap = fcntl(fds->bwrap, F_DUPFD_CLOEXEC, BWRAP_FD_END);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		*list[i] = fcntl(*list[i], F_DUPFD_CLOEXEC, BWRAP_FD_END);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		if (dup2(*list[i], BWRAP_FD_CHANNEL + (int)i) < 0)
			return err_sys(err, -errno, "cannot pass descriptors to bwrap");
	}
	if (close_range(BWRAP_FD_END, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot close descriptors");
	return 0;
}

/* bwrap and weir-init live through whatever the terminal or control sends to the
 * process group; the command gets the defaults back from weir-init. */
static void ignore_signals(void)
{
	static const int ignored[] = {
		SIGHUP,	 SIGINT,  SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
		SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE, SIGWINCH,
	};
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct sigaction normal = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		sigaction(ignored[i], &ignore, NULL);
	sigaction(SIGCHLD, &normal, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* bwrap looks at its child, which is 2 in our namespace, in /proc, which shows the
 * caller's: mostly there is some 2 as well. In a container there may be none, and
 * hidepid= hides it. If it can't be mounted bwrap says what is wrong. */
static void show_processes(void)
{
	if (access("/proc/2/ns", F_OK) < 0)
		(void)!mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
			     NULL);
}

int bwrap_exec(const struct launch_spec *spec, const struct bwrap_fds *fds,
	       struct err *err)
{
	struct bwrap_fds moved = *fds;
	char uid[ID_TEXT], gid[ID_TEXT];
	const char **argv;
	/* weir-init has the command's from its orders; bwrap, which runs outside of the
	 * view, obeys none of it. */
	char *const environment[] = { NULL };
	size_t n = 0, extra = 0;
	int r;

	while (spec->argv[extra])
		extra++;
	argv = calloc(ARRAY_SIZE(fixed_args) + extra + 1, sizeof(*argv));
	if (!argv)
		return err_sys(err, -ENOMEM, "cannot start bwrap");
	snprintf(uid, sizeof(uid), "%u", geteuid());
	snprintf(gid, sizeof(gid), "%u", getegid());
	for (; n < ARRAY_SIZE(fixed_args); n++)
		argv[n] = replace_argument(fixed_args[n], uid, gid, spec->cwd);
	for (size_t i = 0; i < extra; i++)
		argv[n++] = spec->argv[i];
	show_processes();
	r = move_descriptors(&moved, err);
	if (r == 0) {
		ignore_signals();
		execveat(moved.bwrap, "", (char *const *)(uintptr_t)argv, environment,
			 AT_EMPTY_PATH);
		r = err_sys(err, -errno, "cannot start bwrap");
	}
	free(argv);
	return r;
}
