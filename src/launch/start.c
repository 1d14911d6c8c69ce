// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/exit_status.h"
#include "launch/enter.h"
#include "launch/hide.h"
#include "launch/images.h"
#include "launch/rootfs.h"
#include "launch/std_fds.h"
#include "supervisor/init.h"
#include "sys/id_map.h"
#include "sys/process.h"

enum { ID_RANGE = 65536 };

/* What the launch child waits for, each one message. The kernel doesn't order those of
 * two senders. */
enum {
	HAS_MAPS = 1, /* from control, for root: the ids */
	HAS_VIEW = 2, /* from the builder: the view stands */
	HAS_INIT = 4, /* from control: weir-init is in its memfd */
};

/* What control, the launch child and the builder of the view start from. */
struct start {
	const struct launch_machine *machine;
	const struct launch_spec *spec;
	struct rootfs view;
	int parent_fd; /* pidfd of control */
	int proc_fd;   /* control's /proc: the sandbox's may be read-only */
	/* To the launch child, whose end is [1]; from it, that it has its ids. */
	int sync[2];
	unsigned int has; /* in the launch child */
	int child_fd;	  /* pidfd of the launch child */
	int user_fd;	  /* root: its user namespace; or -1 */
	/* fds.init is empty at the fork: filled while the child makes its namespaces */
	struct enter_fds fds;
	uid_t uid;
	gid_t gid;
	uint64_t ignored_signals;
};

/* --- images --- */

/* An empty memfd, to be filled. Return: the descriptor, owned by the caller; or -errno.
 */
static int image_create(const char *name, struct err *err)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? err_sys(err, -errno, "cannot create a memfd for %s", name) : fd;
}

/* Write @size bytes into @fd and seal it; its offset stays at the start. */
static int image_fill(int fd, const void *bytes, size_t size, struct err *err)
{
	ssize_t n = pwrite(fd, bytes, size, 0);

	if (n < 0)
		return err_sys(err, -errno, "cannot write a memfd");
	if ((size_t)n != size)
		return err_set(err, -ENOSPC, "cannot write a memfd: no memory");
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return err_sys(err, -errno, "cannot seal a memfd");
	return 0;
}

/* --- ids --- */

int launch_write_maps(const struct launch_machine *m, pid_t child, struct err *err)
{
	static const char *const files[] = { "uid_map", "gid_map" };
	char path[64], map[64];
	int r = 0;

	snprintf(map, sizeof(map), "0 %u %d", m->base_uid, ID_RANGE);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)child, files[i]);
		r = id_map_write(AT_FDCWD, path, map, err);
	}
	return r;
}

/* Die with control. The kernel forgets this whenever credentials change. */
static int follow_parent(const struct start *s, struct err *err)
{
	struct pollfd parent = { .fd = s->parent_fd, .events = POLLIN };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_sys(err, -errno, "cannot bind the launch to its parent");
	/* It may have died before. From inside a process id namespace getppid() can't
	 * tell. */
	if (poll(&parent, 1, 0) != 0)
		_exit(RUN_STATUS_FAILED);
	return 0;
}

static int await_sign(struct start *s, unsigned int what, struct err *err)
{
	while (!(s->has & what)) {
		unsigned char now;
		ssize_t n = recv(s->sync[1], &now, sizeof(now), 0);

		if (n != sizeof(now))
			return err_set(err, -EPIPE,
				       "cannot start the sandbox: the process that "
				       "builds its file system view has ended");
		s->has |= now;
	}
	return 0;
}

/* Whoever has ended has said why on the launch child's channel. */
static void give_sign(int sync, unsigned char what)
{
	(void)!send(sync, &what, sizeof(what), MSG_NOSIGNAL);
}

/* The namespace's uid 0: a kernel uid that owns nothing. */
static int become_mapped_root(const struct start *s, struct err *err)
{
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot become the sandbox's user");
	return follow_parent(s, err);
}

static int take_mapped_ids(struct start *s, struct err *err)
{
	int r = await_sign(s, HAS_MAPS, err);

	if (r == 0)
		r = become_mapped_root(s, err);
	/* The change of user closed /proc/PID/ns to those without CAP_SYS_PTRACE, among
	 * them uplink programs, which find the namespaces there; whoever isn't root of
	 * the outer namespace stays out. */
	if (r == 0 && prctl(PR_SET_DUMPABLE, 1) < 0)
		r = err_sys(err, -errno, "cannot show the sandbox's namespaces");
	return r;
}

static int take_ids(struct start *s, struct err *err)
{
	int r = follow_parent(s, err);

	if (r < 0)
		return r;
	if (s->machine->root)
		return take_mapped_ids(s, err);
	r = id_map_self(s->proc_fd, s->uid, s->gid, err);
	if (r == -EPERM && s->uid == 0)
		return err_set(
			err, r,
			"cannot map root into a sandbox: root has neither the right "
			"SYS_ADMIN nor SETFCAP here; start the container with "
			"--cap-add SETFCAP, or weir as an ordinary user");
	return r;
}

/* --- the launch child --- */

/* The child is cloned with these: a new process id namespace is entered by children
 * alone, and control writes the maps of the user namespace. The child makes the others by
 * itself while control plans the view, for they take longest. */
#define CLONED_WITH ((unsigned long)(CLONE_NEWUSER | CLONE_NEWPID))

/* The orders, and behind them the command's environment. */
static int open_orders(const struct start *s, struct err *err)
{
	struct init_orders orders = { .self_test = s->spec->self_test,
				      .probe = s->spec->probe,
				      .ignored_signals = s->ignored_signals };
	char *const *list = s->spec->environment;
	CLEAN(mem) char *bytes = NULL;
	CLEAN(fd) int fd = -1;
	size_t used = sizeof(orders);

	for (; list[orders.environment_count]; orders.environment_count++)
		orders.environment_size +=
			(uint32_t)strlen(list[orders.environment_count]) + 1;
	bytes = malloc(sizeof(orders) + orders.environment_size);
	if (!bytes)
		return err_sys(err, -ENOMEM, "cannot pass the environment");
	memcpy(bytes, &orders, sizeof(orders));
	for (size_t i = 0; i < orders.environment_count; i++)
		used = (size_t)(stpcpy(bytes + used, list[i]) + 1 - bytes);
	fd = image_create("weir-orders", err);
	if (fd < 0 || image_fill(fd, bytes, used, err) < 0)
		return err_context(err, "weir-orders");
	return TAKE_FD(fd);
}

static int run_child(struct start *s, struct err *err)
{
	int proc, r = 0;

	close(s->sync[0]);
	if (unshare((int)(enter_namespaces() & ~CLONED_WITH)) < 0)
		return enter_explain(-errno, err);
	if (s->spec->terminal_fd > 0)
		r = std_fds_enter_terminal(s->spec->terminal_fd, err);
	if (r == 0)
		r = std_fds_protect(s->machine->root, err);
	if (r == 0 && process_forbid_cores() < 0)
		r = err_sys(err, -errno, "cannot forbid cores");
	if (r == 0)
		r = take_ids(s, err);
	if (r < 0)
		return r;
	give_sign(s->sync[1], HAS_MAPS);
	r = s->spec->prepare(s->spec->prepare_data, err);
	if (r != 0)
		return r;
	s->fds.orders = open_orders(s, err);
	if (s->fds.orders < 0)
		return s->fds.orders;
	proc = enter_proc(err);
	if (proc < 0)
		return proc;
	r = await_sign(s, HAS_VIEW, err);
	if (r == 0)
		r = enter_root(proc, err);
	close(proc);
	if (r == 0 && s->spec->confirm_has_rights)
		r = s->spec->confirm(s->spec->prepare_data, err);
	if (r == 0)
		r = enter_user(s->proc_fd, s->spec->cwd, err);
	/* Until here the parent's end could be missed: see enter_user(). */
	if (r == 0)
		r = follow_parent(s, err);
	if (r == 0)
		r = enter_filter(err);
	/* As late as can be: the engine reads the ruleset back meanwhile. */
	if (r == 0 && !s->spec->confirm_has_rights)
		r = s->spec->confirm(s->spec->prepare_data, err);
	if (r == 0)
		r = await_sign(s, HAS_INIT, err);
	if (r != 0)
		return r;
	return enter_init(&s->fds, s->spec->argv, err);
}

static _Noreturn void end_failed(const struct start *s, const struct err *err)
{
	launch_send_report(s->fds.channel, LAUNCH_FAILED, RUN_STATUS_FAILED, "%s",
			   err->text);
	_exit(RUN_STATUS_FAILED);
}

/* --- the builder of the view --- */

/* In the launch child's namespaces, all but that of process ids, which takes effect in
 * children alone. An ordinary user's trees are copies of what is mounted there. */
static int run_builder(struct start *s, struct err *err)
{
	const unsigned long all = enter_namespaces() & ~(unsigned long)CLONE_NEWPID;
	int r = follow_parent(s, err);

	prctl(PR_SET_NAME, "weir-rootfs");
	if (r == 0 && process_forbid_cores() < 0)
		r = err_sys(err, -errno, "cannot forbid cores");
	if (r == 0 && setns(s->child_fd, (int)all) < 0)
		r = err_sys(err, -errno, "cannot enter the sandbox's namespaces");
	if (r == 0)
		r = s->machine->root ? become_mapped_root(s, err) : follow_parent(s, err);
	if (r == 0 && !s->machine->root)
		r = rootfs_open_trees(&s->view, -1, err);
	return r < 0 ? r : rootfs_build(&s->view, err);
}

/* --- control --- */

static uint64_t ignored_signals(void)
{
	static const int kept[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	struct sigaction old;
	uint64_t bits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (sigaction(kept[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			bits |= 1ULL << (kept[i] - 1);
	}
	return bits;
}

/* Control's signal handlers must not run in the child, so none arrives there. */
static pid_t clone_child(unsigned long namespaces)
{
	sigset_t all, old;
	long pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0)
		return 0;
	if (pid < 0)
		pid = -errno;
	sigprocmask(SIG_SETMASK, &old, NULL);
	return (pid_t)pid;
}

static int open_namespace(pid_t child, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)child, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Root: write the maps. */
static int serve_ids(struct start *s, pid_t child, struct err *err)
{
	int r;

	s->child_fd = (int)syscall(SYS_pidfd_open, child, 0);
	if (s->child_fd < 0)
		return err_sys(err, -errno, "cannot watch the sandbox");
	if (!s->machine->root)
		return 0;
	r = launch_write_maps(s->machine, child, err);
	if (r < 0)
		return r;
	s->user_fd = open_namespace(child, "user");
	if (s->user_fd < 0)
		return err_sys(err, -errno, "cannot open the sandbox's user namespace");
	give_sign(s->sync[0], HAS_MAPS);
	return 0;
}

/* The view is planned while the child makes the network. For root, the mounts are copied
 * with the child's maps. */
static int plan_view(struct start *s, struct err *err)
{
	const struct launch_spec *spec = s->spec;
	int r = rootfs_plan(&s->view, s->machine, spec, err);

	if (spec->is_bad_path)
		*spec->is_bad_path = r == -EINVAL;
	for (size_t i = 0; r == 0 && spec->on_hidden && i < s->view.hidden_count; i++)
		spec->on_hidden(spec->hidden_data, s->view.hidden[i].name);
	if (r == 0 && s->machine->root)
		r = rootfs_open_trees(&s->view, s->user_fd, err);
	return r;
}

/* Not before the child has its namespaces and ids: what is mounted belongs to them. A
 * child that has ended has said why. */
static int start_builder(struct start *s, pid_t child, struct err *err)
{
	unsigned char ready;
	pid_t builder;

	if (recv(s->sync[0], &ready, sizeof(ready), 0) != sizeof(ready))
		return 0;
	if (s->spec->outer_mounts)
		*s->spec->outer_mounts = open_namespace(child, "mnt");
	builder = clone_child(0);
	if (builder == 0) {
		if (run_builder(s, err) < 0)
			end_failed(s, err);
		give_sign(s->sync[0], HAS_VIEW);
		_exit(0);
	}
	if (builder < 0)
		return enter_explain(builder, err);
	*s->spec->builder = builder;
	return 0;
}

/* Copying it takes as long as ten mounts. */
static int serve_init(const struct start *s, struct err *err)
{
	int r = image_fill(s->fds.init, launch_init_start,
			   (size_t)(launch_init_end - launch_init_start), err);

	if (r < 0)
		return err_context(err, "weir-init");
	give_sign(s->sync[0], HAS_INIT);
	return 0;
}

/* The child is PID 1 of a namespace of its own: whatever of its line dies when, its end
 * is the end of all of them. */
static pid_t start_child(struct start *s, struct err *err)
{
	pid_t child = clone_child(CLONED_WITH);
	int r;

	if (child == 0) {
		run_child(s, err);
		end_failed(s, err);
	}
	fd_close(&s->sync[1]);
	if (child < 0)
		return enter_explain(child, err);
	r = serve_ids(s, child, err);
	if (r == 0)
		r = plan_view(s, err);
	if (r == 0)
		r = start_builder(s, child, err);
	if (r == 0)
		r = serve_init(s, err);
	if (r < 0) {
		process_reap(*s->spec->builder, true);
		process_reap(child, true);
		*s->spec->builder = 0;
		return r;
	}
	return child;
}

pid_t launch_start(const struct launch_machine *m, const struct launch_spec *spec,
		   struct err *err)
{
	CLEAN(fd) int parent_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	CLEAN(fd) int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	CLEAN(fd) int init_fd = -1;
	/* Large, and most of it stays untouched. */
	CLEAN(mem) struct start *s = calloc(1, sizeof(*s));
	pid_t r = std_fds_check(spec->control_fd, err);

	if (r < 0)
		return r;
	init_fd = image_create("weir-init", err);
	if (init_fd < 0)
		return init_fd;
	if (!s)
		return err_sys(err, -ENOMEM, "cannot start the sandbox");
	s->machine = m;
	s->spec = spec;
	s->parent_fd = parent_fd;
	s->child_fd = s->user_fd = -1;
	s->proc_fd = proc_fd;
	s->fds = (struct enter_fds){ .channel = spec->control_fd, .init = init_fd };
	s->uid = geteuid();
	s->gid = getegid();
	s->ignored_signals = ignored_signals();
	if (parent_fd < 0 || proc_fd < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->sync) < 0)
		return err_sys(err, -errno, "cannot make what the launch needs");
	r = start_child(s, err);
	fd_close(&s->sync[0]);
	fd_close(&s->sync[1]);
	fd_close(&s->child_fd);
	fd_close(&s->user_fd);
	rootfs_done(&s->view);
	return r;
}

void launch_send_report(int fd, enum launch_report_type type, int value, const char *fmt,
			...)
{
	struct launch_report report = { .type = type, .value = value };
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(report.text, sizeof(report.text), fmt, ap);
	va_end(ap);
	(void)!send(fd, &report, sizeof(report), MSG_NOSIGNAL);
}
