// SPDX-License-Identifier: Apache-2.0
#include "launch/enter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "launch/images.h"
#include "launch/rootfs.h"
#include "supervisor/init.h"
#include "sys/confine.h"
#include "sys/id_map.h"
#include "sys/process.h"

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

int enter_proc(struct err *err)
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

int enter_root(int proc, struct err *err)
{
	int r;

	if (move_mount(proc, "", AT_FDCWD, PROC, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(err, -errno, "cannot mount the sandbox's /proc");
	r = protect_proc_sys(err);
	/* Each mount is nosuid already. This holds for a mount that is added later to the
	 * view's code. */
	if (r == 0) {
		r = set_mount(AT_FDCWD, ROOTFS_ROOT, AT_RECURSIVE, MOUNT_ATTR_NOSUID);
		if (r < 0)
			err_sys(err, r, "cannot protect the view's mounts");
	}
	if (r < 0)
		return r;
	/* The old root ends up on top of the new one, and goes with all that is mounted
	 * in it. */
	if (chdir(ROOTFS_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(err, -errno, "cannot make the view the root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(err, -errno, "cannot leave the host's file system");
	return 0;
}

/* --- the user --- */

/* capabilities_keep() passes over an ordinary user's full bounding set. Here it has to be
 * empty. */
static int drop_capabilities(struct err *err)
{
	int r = capabilities_keep(0, err);

	for (int cap = 0; r == 0; cap++) {
		int is_set = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		/* Past the last one that this kernel knows. */
		if (is_set < 0 && errno == EINVAL)
			return 0;
		if (is_set != 0)
			r = err_set(err, -EPERM, "cannot empty the bounding set");
	}
	return r;
}

/* Root's rights over others' files end here. */
static int enter_directory(const char *cwd, struct err *err)
{
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

int enter_user(int proc, const char *cwd, struct err *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return enter_explain(-errno, err);
	r = id_map_self(proc, uid, gid, err);
	if (r == 0)
		r = drop_capabilities(err);
	if (r < 0)
		return r;
	return enter_directory(cwd, err);
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

/* Every signal stays blocked, so that what the terminal or control sends to the process
 * group doesn't end weir-init; the command gets the defaults back from weir-init. SIGCHLD
 * may be ignored by Weir's caller: children could not be waited for then. */
int enter_init(struct enter_fds *fds, char *const *command, struct err *err)
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
