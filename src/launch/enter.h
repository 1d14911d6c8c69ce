// SPDX-License-Identifier: Apache-2.0
/* launch/enter - from the file system view that stands to weir-init inside of it.
 *
 * HOW IT WORKS
 *   The launch child has the namespaces of enter_namespaces(): the outer user
 *   namespace owns all of them. In the outer one it makes what nobody inside may ever
 *   change:
 *
 *     enter_proc()   /proc of the new process id namespace; the limit of one more user
 *                    namespace
 *     enter_root()   that /proc in the view, its /proc/sys read-only; the view becomes
 *                    the root, and the host's mounts are let go
 *     enter_user()   that one user namespace, with a mount namespace of its own: the
 *                    kernel copies the mounts from the outer, more privileged one, and
 *                    so locks each of them and its flags. All capabilities go.
 *     enter_filter() the seccomp list
 *     enter_init()   weir-init, PID 1
 *
 *   Even uid 0 with every capability in the inner user namespace has none over the
 *   network, the process ids, the mounts that it finds, or what else the outer one owns.
 *   It can't unmount a mask, make one writable, mount another /proc, or make one more
 *   user namespace.
 *
 * All of it in one process, which is single-threaded and PID 1. What fails ends it. */
#pragma once

#include "base/err.h"

/* What the launch child gets: a user, network, mount, process id, IPC and UTS
 * namespace, and one of control groups where the kernel has those. */
unsigned long enter_namespaces(void);
/* Why they, or those of enter_user(), could not be made: @code is the -errno. Return:
 * @code. */
int enter_explain(int code, struct err *err);

/* What crosses the exec, or is executed; all else is closed. */
struct enter_fds {
	int channel; /* weir-init's end of the channel to control */
	int orders;  /* memfd: struct init_orders */
	int init;    /* memfd: the program weir-init */
};

/* Return: the sandbox's /proc, mounted nowhere yet; the caller's to close. */
int enter_proc(struct err *err) MUST_CHECK;
/* The view of rootfs_build(), with that @proc, becomes the root of this process. */
int enter_root(int proc, struct err *err) MUST_CHECK;
/* Into the inner user namespace, without any capability, in the directory @cwd. @proc is
 * an open /proc that can be written to. The kernel may have forgotten PR_SET_PDEATHSIG
 * afterwards. */
int enter_user(int proc, const char *cwd, struct err *err) MUST_CHECK;
/* No new privileges, and the calls of seccomp_list.c are refused. */
int enter_filter(struct err *err) MUST_CHECK;
/* Become weir-init, which gets the command. Returns only when it failed; @fds says where
 * the descriptors are then. */
int enter_init(struct enter_fds *fds, char *const *command, struct err *err) MUST_CHECK;
