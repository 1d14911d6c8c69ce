// SPDX-License-Identifier: Apache-2.0
/* sys/process - how a process of Weir's and its children start and end, where the
 * programs lie that it starts, and what those of Weir's own are told. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macros.h"

/* The one way to make a process: a child that is called @name (NULL: as this process),
 * and that is killed when the thread that made it ends. Apart from it stand processes
 * that begin in new namespaces or in a control group, weir-init, which has a C library of
 * its own, and container/container, which outlives its parent. A child that changes its
 * user needs process_end_with() once more. Return: its pid; 0 in the child; -errno. */
pid_t process_fork(const char *name) MUST_CHECK;
/* Wipe this process' copy of the environment, with the secrets in it: for a process that
 * reads what strangers have written, and needs no variable any more. */
void process_forget_environment(void);
/* Return: the wait status of @pid, which has ended, or -errno. */
int process_wait(pid_t pid);
/* Wait for the end of @pid; 0 or less: there is none. @kill_it: don't wait for its own
 * end. */
void process_reap(pid_t pid, bool kill_it);

/* "was killed by signal 9", "ended with status 1". Return: @buf. */
enum { PROCESS_END_SIZE = 40 };
char *process_end_text(int wait_status, char buf[PROCESS_END_SIZE]);

/* Block the @count signals of @signals. Return: a signalfd of them, or -errno. */
int process_take_signals(const int *signals, size_t count, struct err *err) MUST_CHECK;
/* The same of what is forwarded to the command, and SIGCONT. */
int process_open_signals(struct err *err) MUST_CHECK;

/* A SOCK_SEQPACKET pair. Return: 0 or -errno. */
int process_pair(int *ret_ours, int *ret_theirs, struct err *err) MUST_CHECK;

/* In a child: be killed when @parent ends. Return: false when that has ended already, or
 * when it can't be had. */
bool process_end_with(pid_t parent) MUST_CHECK;
/* A descriptor that is readable once @parent, the process that started this one, has
 * ended, whichever of its threads did that; -1 where @parent is 0. Return: 0, or -errno
 * with @err: @parent is not the parent, or has ended already. */
int process_watch_parent(pid_t parent, int *ret_fd, struct err *err) MUST_CHECK;
/* In a child: let every signal through that the parent had blocked. */
void process_unblock_signals(void);
/* In a child: put @fds (-1: nothing) at @first and on, with @flags (O_CLOEXEC or 0), and
 * close everything above them. Return: 0 or -errno. */
enum { PROCESS_FDS_MAX = 16 };
int process_place_fds(const int *fds, size_t count, int first, int flags) MUST_CHECK;

/* Of this process and of what it starts: no core, and nothing that the kernel starts at a
 * crash. It gives cores to the machine's handler (core_pattern), as root and outside of
 * every sandbox, even when their size is limited to 0; the limit 1 alone says "don't".
 * Where the hard limit is 0 already, only root may raise it: it stays.
 * Return: 0 or -errno. */
int process_forbid_cores(void) MUST_CHECK;

struct rlimit;
/* Raise how many descriptors this process may have, as far as anybody may. @ret: the
 * limit as it was. Return: 0 or -errno. */
int process_raise_files(struct rlimit *ret) MUST_CHECK;

/* Die by the signal that the command died by, as a shell or make looks for. */
void process_die_by(int sig);
/* Calls on @fd, a socket, return at once from now on. Return: 0 or -errno. */
int process_dont_wait(int fd) MUST_CHECK;

/* ---- what another program of Weir's is started with ----
 *
 * One descriptor in each place, arguments and environment, secrets included.
 *
 * /proc/PID/cmdline is everybody's to read, and /proc/PID/environ, memory and descriptors
 * are for whoever has the same user id, from the exec on. So arguments and environment go
 * in a sealed memfd, and a program that takes them closes its /proc first. Installed, the
 * programs can't be read, and the kernel closes their /proc at the exec. */

/* weir-control's. */
enum inherited_fd {
	INHERITED_SUPERVISOR = 0, /* SOCK_SEQPACKET */
	INHERITED_HTTP,		  /* a listening TCP socket */
	INHERITED_TEXT,		  /* sealed memfd: the policy in force, as JSON */
	INHERITED_TLS, /* of the daemon, where it serves TCP; else there is nothing */
	INHERITED_COUNT
};
enum { INHERITED_FIRST = 3 }; /* descriptor i stands at INHERITED_FIRST + i */

enum { INHERITED_MAX = 8 };
/* Put @fds at INHERITED_FIRST and on, and @last at INHERITED_FIRST + INHERITED_MAX, open
 * across execve(), and close everything else from INHERITED_FIRST up. */
int inherited_fds_take(const int *fds, size_t count, int last) MUST_CHECK;

enum {
	SETTINGS_FD = INHERITED_FIRST + INHERITED_MAX, /* of the program that is told */
	SETTINGS_MAX = 4 << 20, /* bytes; settings_take() refuses more */
};

/* Both end with NULL; @args begins with the program's name. Return: a descriptor, -errno.
 */
int settings_make(char *const *args, char *const *environment) MUST_CHECK;

/* First thing in main(): close /proc to others, and take arguments and environment from
 * SETTINGS_FD. Who was started by hand has none there, and keeps its own. Return: 0,
 * -errno. */
int settings_take(int *argc, char ***argv) MUST_CHECK;

/* ---- where a program that Weir starts by itself lies ----
 *
 * What $PATH names first may be a directory of the project (a virtual environment,
 * node_modules/.bin), where an earlier command in a sandbox could put a program that
 * would run outside. So the system's directories come first, and of $PATH only those
 * count in which nobody but root can have put the program. */

enum { PROGRAM_PATH_SIZE = 256 };

/* The path of the program @name. @ret holds PROGRAM_PATH_SIZE.
 * Return: 0, -ENOENT: it is nowhere; -EPERM: only where others than root may have put it,
 * with the place in @err. */
int program_path(const char *name, char *ret, struct err *err) MUST_CHECK;

/* A program that an uplink needs. */
struct program {
	const char *name;
	const char *package; /* "Debian, Ubuntu: apt install x; Fedora: dnf install x" */
	const char *option;  /* the one that came last of those that are used, as it
			      * stands in the program's file */
	const char *version; /* that has it: "slirp4netns 1.1" */
};

/* Find @p, as program_path() does: -ENOENT and -EPERM, with what to install; -ENOSYS: it
 * is too old. @ret holds PROGRAM_PATH_SIZE. */
int program_find(const struct program *p, char *ret, struct err *err) MUST_CHECK;
