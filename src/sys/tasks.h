// SPDX-License-Identifier: Apache-2.0
/* sys/tasks - look at processes, thread by thread.
 *
 * /proc/PID/{ns,fd,status} show the main thread. When the main thread has ended they show
 * nothing, and the other threads run on. Each thread may also have a network namespace, a
 * descriptor table and a user id of its own. Whoever asks what a process has or is asks
 * all of its threads, here. Only what has ended counts as gone. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

struct task {
	pid_t pid, tid;
	int dir; /* /proc/PID/task/TID, borrowed */
};

/* Return: 0: go on; above 0: found, look no further; -errno: it can't be seen. */
typedef int task_fn(void *data, const struct task *t);
typedef int process_fn(void *data, int proc, pid_t pid);

/* @fn with each thread of @pid; @proc is a descriptor of /proc. What @fn can't see of a
 * thread that has ended meanwhile is no error.
 * Return: 0: all of them were looked at; what @fn has found; -ESRCH: there is no such
 * process; -EAGAIN: its threads come and go faster than they can be looked at; -errno: a
 * thread can't be seen. */
int tasks_each(int proc, pid_t pid, task_fn *fn, void *data) MUST_CHECK;

/* @fn with each process that /proc lists. Return: 0; what @fn returned that is not 0;
 * -EXDEV: /proc does not show the processes that this one lives among; -errno. */
int tasks_each_process(process_fn *fn, void *data) MUST_CHECK;

/* The process that thread @tid is of; -ESRCH: there is no such thread; -errno. */
pid_t tasks_process_of(int proc, pid_t tid) MUST_CHECK;

/* A network namespace: what tells it, or, of a process over which there are no rights,
 * only the inode of /proc/PID/net/dev, which can be seen of every one. 0: not known. */
struct tasks_network {
	dev_t dev;
	ino_t ino, proc_ino;
};

/* The network namespace of @t: either dev and ino or proc_ino. Return: 0 or -errno. */
int tasks_network_of(const struct task *t, struct tasks_network *ret) MUST_CHECK;
/* proc_ino of this process's own; 0: it can't be seen. */
ino_t tasks_own_network(void);

/* A descriptor of the network namespace that is named from outside, by a process's number
 * (its first thread that lives; -ESRCH: it has ended) or a path. Anything else at that
 * path is not opened: -EINVAL. */
int tasks_open_named_network(const char *where) MUST_CHECK;

/* Two threads have one descriptor table. False if that can't be seen. */
bool tasks_share_fds(pid_t a, pid_t b);

/* ---- processes whose packets don't come from this machine's kernel ----
 *
 * gVisor has a network stack of its own and sends its packets by a packet socket; a
 * virtual machine sends them by a tap device. Neither passes the output hook of the
 * network namespace that it sits in, so no rule there holds it. */

/* Refuse @where, a process's number or a path /proc/PID/…, where that is such a process
 * by what its program and its first argument are called. Return: 0, also of any other
 * path and of a process that can't be seen; -EOPNOTSUPP with @err. */
int guest_kernel_refuse(const char *where, struct err *err) MUST_CHECK;
