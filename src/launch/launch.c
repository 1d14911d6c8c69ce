// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/exit_status.h"
#include "base/text.h"
#include "launch/hide.h"
#include "launch/rootfs.h"
#include "launch/std_fds.h"
#include "supervisor/init.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/id_map.h"
#include "sys/process.h"

/* === the machine === */

enum {
	RANGE_SIZE = 65536,
	RANGE_FIRST =
		0x60000000, /* above what useradd, systemd and container engines use */
	RANGE_TRIES = 64,
	ACCOUNTS_MAX = 1024 * 1024, /* bytes of /etc/passwd and the like; a longer one
				     * is taken to hold every id */
};

/* --- root's id range --- */

/* Does the file @path give somebody an id of the range that begins at @base? Each line of
 * /etc/subuid and /etc/subgid says "user:first:count" (@is_delegation), each of
 * /etc/passwd and /etc/group "name:x:id:...". A file that doesn't exist is empty. A
 * directory service can't be searched, and asking it for one id would load its libraries
 * for every launch. */
static bool has_id(const char *path, bool is_delegation, uint32_t base)
{
	const struct file_how how = { .max_bytes = ACCOUNTS_MAX,
				      .anybodys = true,
				      .follow = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	const int r = file_read(AT_FDCWD, path, &how, &file, NULL);
	struct text rest = { file.bytes ?: "", file.size }, line;

	if (r < 0 && r != -ENOENT)
		return true;
	while (text_split(&rest, '\n', &line)) {
		const int fields = is_delegation ? 2 : 3; /* up to the number */
		struct text field = { 0 };
		uint32_t first, count = 1;

		for (int i = 0; i < fields && text_split(&line, ':', &field); i++)
			;
		if (!text_to_u32(field, UINT32_MAX, &first) ||
		    (is_delegation && !text_to_u32(line, UINT32_MAX, &count)))
			continue;
		if (first < base + RANGE_SIZE && (uint64_t)first + count > base)
			return true;
	}
	return false;
}

int launch_choose_ids(struct launch_machine *m, struct err *err)
{
	struct id_range uids, gids;
	uint32_t end, base = RANGE_FIRST;
	int r;

	if (!m->root)
		return 0;
	r = id_map_find("/proc/self/uid_map", 0, &uids, err);
	if (r == 0)
		r = id_map_find("/proc/self/gid_map", 0, &gids, err);
	if (r < 0)
		return r;
	end = MIN(uids.count, gids.count);
	if (end < base + RANGE_SIZE * RANGE_TRIES)
		base = end / 2 / RANGE_SIZE * RANGE_SIZE;
	for (size_t i = 0;
	     i < RANGE_TRIES && base >= RANGE_SIZE && base + RANGE_SIZE <= end; i++) {
		if (!has_id("/etc/subuid", true, base) &&
		    !has_id("/etc/subgid", true, base) &&
		    !has_id("/etc/passwd", false, base) &&
		    !has_id("/etc/group", false, base)) {
			m->base_uid = base;
			return 0;
		}
		base += RANGE_SIZE;
	}
	return err_set(
		err, -ENOSPC,
		"cannot find %d unused user ids for the sandbox: this container maps too "
		"few, or /etc/subuid holds them all; start weir as an ordinary user",
		RANGE_SIZE);
}

struct launch_machine launch_machine_probe(void)
{
	struct launch_machine m = { 0 };

	/* Root of a container, without this right, can neither copy mounts nor map ids:
	 * it takes the way of an ordinary user, and is one inside. */
	m.root = id_map_is_root() && capabilities_raise(CAP_SYS_ADMIN);
	return m;
}

/* What the build made for the sandbox and embedded here (images.S). */
extern const uint8_t launch_init_start[], launch_init_end[]; /* weir-init */
extern const uint8_t launch_seccomp_start[],
	launch_seccomp_end[]; /* BPF, seccomp_list.c */

/* --- descriptors --- */

/* Those that are under way in unix sockets the kernel counts for all processes of a user
 * together, and whoever sends one needs that count to be below its own limit of
 * descriptors. So the command gets a lower limit than Weir: else it could keep Weir from
 * passing the engine another policy, and the user's next sandbox from its start. As many
 * are left as some processes can send at once that have all read the count before. */
static int leave_files(const struct rlimit *of_caller, struct err *err)
{
	enum { SPARE_PART = 4, SPARE_MAX = 4096 };
	const rlim_t most = of_caller->rlim_max;
	const rlim_t left = most - MIN(most / SPARE_PART, (rlim_t)SPARE_MAX);
	const struct rlimit files = { MIN(of_caller->rlim_cur, left), left };

	return setrlimit(RLIMIT_NOFILE, &files) < 0
		       ? err_sys(err, -errno, "cannot limit the command's descriptors")
		       : 0;
}

/* === from the view to weir-init === */

/* What crosses the exec, or is executed; all else is closed. */
struct enter_fds {
	int channel; /* weir-init's end of the channel to control */
	int orders;  /* memfd: struct init_orders */
	int init;    /* memfd: the program weir-init */
};

#define PROC	 ROOTFS_ROOT "/proc"
#define PROC_SYS PROC "/sys"

unsigned long enter_namespaces(void)
{
	const unsigned long all = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS |
				  CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

	return access("/proc/self/ns/cgroup", F_OK) < 0 ? all : all | CLONE_NEWCGROUP;
}

/* 0, where nobody but root may have any: some administrators' way to forbid them. */
static bool are_none_allowed(void)
{
	static const char path[] = "/proc/sys/user/max_user_namespaces";
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[2] = "";

	return fd >= 0 && read(fd, text, sizeof(text)) == 2 &&
	       memcmp(text, "0\n", 2) == 0;
}

int enter_explain(int code, struct err *err)
{
	switch (code) {
	case -EPERM:
		return err_set(
			err, code,
			"cannot create a user namespace: this system forbids it; see the "
			"sysctls kernel.unprivileged_userns_clone and "
			"kernel.apparmor_restrict_unprivileged_userns, or the "
			"container's seccomp profile; in a chroot there are "
			"none");
	case -ENOSPC:
	case -EUSERS:
		if (are_none_allowed())
			return err_set(
				err, code,
				"cannot create a user namespace: the sysctl "
				"user.max_user_namespaces is 0, which forbids them "
				"here; raise it");
		return err_set(
			err, code,
			"cannot create namespaces: too many exist already; raise the "
			"sysctls user.max_user_namespaces and user.max_net_namespaces");
	case -EAGAIN:
		return err_set(err, code,
			       "cannot start a process: this user's limit is reached "
			       "(ulimit -u)");
	case -EINVAL:
	case -ENOSYS:
		return err_set(
			err, code,
			"cannot create namespaces: this kernel has no user namespaces");
	default:
		return err_sys(err, code, "cannot create namespaces");
	}
}

/* --- the root --- */

static int set_mount(int at, const char *path, unsigned int flags, uint64_t attributes)
{
	struct mount_attr attr = { .attr_set = attributes };

	return mount_setattr(at, path, flags, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

static int protect_proc_sys(struct err *err)
{
	const unsigned int flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
	CLEAN(fd) int copy = open_tree(AT_FDCWD, PROC_SYS, flags);
	int r = copy < 0 ? -errno : set_mount(copy, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY);

	if (r == 0 &&
	    move_mount(copy, "", AT_FDCWD, PROC_SYS, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		r = -errno;
	return r < 0 ? err_sys(err, r, "cannot protect /proc/sys") : 0;
}

/* Return: the sandbox's /proc, mounted nowhere yet; the caller's to close. */
static int enter_proc(struct err *err)
{
	CLEAN(fd) int fs = fsopen("proc", FSOPEN_CLOEXEC);
	CLEAN(fd) int proc = -1;
	int r = 0;

	if (fs >= 0 && fsconfig(fs, FSCONFIG_SET_STRING, "source", "proc", 0) == 0 &&
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		proc = fsmount(fs, FSMOUNT_CLOEXEC,
			       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (proc < 0)
		return err_sys(err, -errno, "cannot mount the sandbox's /proc%s",
			       errno == EPERM ? ": something is mounted over a part of "
						"this machine's /proc, as in containers"
					      : "");
	/* Of this user namespace, which is the outer one: so that whatever is inside of
	 * the next one can make no other. */
	r = id_map_write(proc, "sys/user/max_user_namespaces", "1", err);
	/* The kernel's uid 0 writes to /proc/sys without any capability. In a container
	 * without SYS_ADMIN the command is that uid, and owns what else is in /proc. */
	if (r == 0 && id_map_is_root()) {
		r = set_mount(proc, "", AT_EMPTY_PATH, MOUNT_ATTR_RDONLY);
		if (r < 0)
			err_sys(err, r, "cannot make /proc read-only");
	}
	return r < 0 ? r : TAKE_FD(proc);
}

/* The view of rootfs_build(), with that @proc, becomes the root of this process. */
static int enter_root(int proc, struct err *err)
{
	int r;

	if (move_mount(proc, "", AT_FDCWD, PROC, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot mount the sandbox's /proc");
	r = protect_proc_sys(err);
	if (r < 0)
		return r;
	/* Each mount is nosuid already. This holds for a mount that is added later to the
	 * view's code. */
	r = set_mount(AT_FDCWD, ROOTFS_ROOT, AT_RECURSIVE, MOUNT_ATTR_NOSUID);
	if (r < 0)
		return err_sys(err, r, "cannot protect the view's mounts");
	/* The old root ends up on top of the new one, and goes with all that is mounted
	 * in it. */
	if (chdir(ROOTFS_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(err, -errno, "cannot make the view the root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(err, -errno, "cannot leave the host's file system");
	return 0;
}

/* --- the user --- */

/* Into the inner user namespace, without any capability, in the directory @cwd. @proc is
 * an open /proc that can be written to. The kernel may have forgotten PR_SET_PDEATHSIG
 * afterwards. */
static int enter_user(int proc, const char *cwd, struct err *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return enter_explain(-errno, err);
	r = id_map_self(proc, uid, gid, err);
	if (r == 0)
		r = capabilities_keep(0, err);
	/* capabilities_keep() passes over an ordinary user's full bounding set. Here it
	 * has to be empty. */
	for (int cap = 0; r == 0; cap++) {
		const int is_set = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		/* Past the last one that this kernel knows. */
		if (is_set < 0 && errno == EINVAL)
			break;
		if (is_set != 0)
			r = err_set(err, -EPERM, "cannot empty the bounding set");
	}
	if (r < 0)
		return r;
	/* Root's rights over others' files end here. */
	if (chdir(cwd) == 0)
		return 0;
	if (errno != EACCES)
		return err_sys(err, -errno, "cannot enter '%s' in the sandbox", cwd);
	return err_set(err, -EACCES,
		       "cannot enter '%s' in the sandbox: it or a directory above is "
		       "closed to others, and root is another there; start weir as its "
		       "owner, or in "
		       "another directory",
		       cwd);
}

/* --- weir-init --- */

int enter_filter(struct err *err)
{
	const size_t size = (size_t)(launch_seccomp_end - launch_seccomp_start);
	const struct sock_fprog filter = {
		.len = (unsigned short)(size / sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)launch_seccomp_start,
	};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot forbid new rights");
	if (filter.len == 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		return err_sys(err, filter.len == 0 ? -EBADMSG : -errno,
			       "cannot install the seccomp filter");
	return 0;
}

/* Become weir-init, which gets the command. Returns only when it failed; @fds says where
 * the descriptors are then.
 * Every signal stays blocked, so that what the terminal or control sends to the process
 * group doesn't end weir-init; the command gets the defaults back from weir-init. SIGCHLD
 * may be ignored by Weir's caller: children could not be waited for then. */
static int enter_init(struct enter_fds *fds, char *const *command, struct err *err)
{
	const int all[] = { fds->channel, fds->orders, fds->init };
	const struct enter_fds placed = { INIT_FD_CHANNEL, INIT_FD_ORDERS,
					  INIT_FD_ORDERS + 1 };
	const struct sigaction normal = { .sa_handler = SIG_DFL };
	static char name[] = "weir-init";
	char *const environment[] = { NULL };
	size_t count = 0;
	char **argv;
	int r;

	while (command[count])
		count++;
	argv = calloc(count + 2, sizeof(*argv));
	if (!argv)
		return err_sys(err, -ENOMEM, "cannot start weir-init");
	argv[0] = name;
	memcpy(argv + 1, command, count * sizeof(*argv));
	r = process_place_fds(all, ARRAY_SIZE(all), INIT_FD_CHANNEL, 0);
	if (r == 0)
		*fds = placed;
	if (r < 0 || fcntl(placed.init, F_SETFD, FD_CLOEXEC) < 0 ||
	    sigaction(SIGCHLD, &normal, NULL) < 0)
		r = err_sys(err, r < 0 ? r : -errno, "cannot start weir-init");
	if (r == 0) {
		execveat(placed.init, "", argv, environment, AT_EMPTY_PATH);
		r = err_sys(err, -errno, "cannot start weir-init");
	}
	free(argv);
	return r;
}

/* === the start === */

/* What the launch child waits for, each one message. The kernel doesn't order those of
 * two senders. */
enum {
	HAS_MAPS = 1, /* from control, for root: the ids */
	HAS_VIEW = 2, /* from the builder: the view stands */
	HAS_INIT = 4, /* from control: weir-init is in its memfd */
};

/* What control, the launch child and the builder of the view start from. */
struct start {
	struct launch_machine machine;
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
	struct rlimit files;	 /* the caller's */
	unsigned int changeable; /* std_fds_changeable() */
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

	assert(m->base_uid > 0); /* else the sandbox's root would be the machine's */
	snprintf(map, sizeof(map), "0 %u %d", m->base_uid, RANGE_SIZE);
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

static int take_ids(struct start *s, struct err *err)
{
	int r = follow_parent(s, err);

	if (r < 0)
		return r;
	if (s->machine.root) {
		r = await_sign(s, HAS_MAPS, err);
		if (r == 0)
			r = become_mapped_root(s, err);
		/* The change of user closed /proc/PID/ns to those without CAP_SYS_PTRACE,
		 * among them uplink programs, which find the namespaces there; whoever
		 * isn't root of the outer namespace stays out. */
		if (r == 0 && prctl(PR_SET_DUMPABLE, 1) < 0)
			r = err_sys(err, -errno, "cannot show the sandbox's namespaces");
		return r;
	}
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
	if (r == 0 && s->spec->input_fd > 0 &&
	    dup3(s->spec->input_fd, STDIN_FILENO, 0) < 0)
		r = err_sys(err, -errno, "cannot pass the command's standard input");
	if (r == 0)
		r = std_fds_protect(s->changeable, err);
	if (r == 0 && process_forbid_cores() < 0)
		r = err_sys(err, -errno, "cannot forbid cores");
	if (r == 0)
		r = take_ids(s, err);
	if (r < 0)
		return r;
	give_sign(s->sync[1], HAS_MAPS);
	r = s->spec->prepare(s->spec->prepare_data, err);
	if (r == 0)
		r = leave_files(&s->files, err);
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
		r = s->machine.root ? become_mapped_root(s, err) : follow_parent(s, err);
	if (r == 0 && !s->machine.root)
		r = rootfs_open_trees(&s->view, -1, err);
	return r < 0 ? r : rootfs_build(&s->view, err);
}

/* --- control --- */

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

/* Root: choose the ids and write the maps, while the child makes the other namespaces. */
static int serve_ids(struct start *s, pid_t child, struct err *err)
{
	int r;

	s->child_fd = (int)syscall(SYS_pidfd_open, child, 0);
	if (s->child_fd < 0)
		return err_sys(err, -errno, "cannot watch the sandbox");
	if (!s->machine.root)
		return 0;
	r = launch_choose_ids(&s->machine, err);
	if (r == 0)
		r = launch_write_maps(&s->machine, child, err);
	if (r < 0)
		return r;
	s->user_fd = open_namespace(child, "user");
	if (s->user_fd < 0)
		return err_sys(err, -errno, "cannot open the sandbox's user namespace");
	give_sign(s->sync[0], HAS_MAPS);
	return 0;
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

/* The child is PID 1 of a namespace of its own: whatever of its line dies when, its end
 * is the end of all of them. */
static pid_t start_child(struct start *s, struct err *err)
{
	const struct launch_spec *spec = s->spec;
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
	if (r == 0 && spec->beside)
		r = spec->beside(spec->beside_data, err);
	/* The view is planned while the child makes the network. For root, the mounts are
	 * copied with the child's maps. */
	if (r == 0) {
		r = rootfs_plan(&s->view, &s->machine, spec, err);
		if (spec->is_bad_path)
			*spec->is_bad_path = r == -EINVAL;
	}
	for (size_t i = 0; r == 0 && spec->on_hidden && i < s->view.hidden_count; i++)
		spec->on_hidden(spec->hidden_data, s->view.hidden[i].name);
	if (r == 0 && s->machine.root)
		r = rootfs_open_trees(&s->view, s->user_fd, err);
	if (r == 0)
		r = start_builder(s, child, err);
	/* Copying weir-init takes as long as ten mounts. */
	if (r == 0) {
		r = image_fill(s->fds.init, launch_init_start,
			       (size_t)(launch_init_end - launch_init_start), err);
		if (r < 0)
			err_context(err, "weir-init");
		else
			give_sign(s->sync[0], HAS_INIT);
	}
	if (r < 0) {
		process_reap(*spec->builder, true);
		process_reap(child, true);
		*spec->builder = 0;
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
	static const int kept[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM };
	struct sigaction old;
	pid_t r = std_fds_check(spec->control_fd, err);

	if (r < 0)
		return r;
	init_fd = image_create("weir-init", err);
	if (init_fd < 0)
		return init_fd;
	if (!s)
		return err_sys(err, -ENOMEM, "cannot start the sandbox");
	s->machine = *m;
	s->spec = spec;
	s->parent_fd = parent_fd;
	s->child_fd = s->user_fd = -1;
	s->proc_fd = proc_fd;
	s->fds = (struct enter_fds){ .channel = spec->control_fd, .init = init_fd };
	s->uid = geteuid();
	s->gid = getegid();
	s->changeable = std_fds_changeable(m->root);
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (sigaction(kept[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN)
			s->ignored_signals |= 1ULL << (kept[i] - 1);
	}
	r = process_raise_files(&s->files);
	if (r < 0)
		return err_sys(err, r, "cannot raise the descriptor limit");
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
	/* Of warnings there may be any number, before anybody reads. */
	const int flags = MSG_NOSIGNAL | (type == LAUNCH_WARNING ? MSG_DONTWAIT : 0);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(report.text, sizeof(report.text), fmt, ap);
	va_end(ap);
	(void)!send(fd, &report, sizeof(report), flags);
}
