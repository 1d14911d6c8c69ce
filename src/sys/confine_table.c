// SPDX-License-Identifier: Apache-2.0
/* The system calls that each program of Weir's keeps, with the reason. The build runs
 * this program once for each and embeds what it prints (confine.S; sys/confine.h enters
 * it): compiling a list with libseccomp costs every launch what a mount does, and a
 * library in memory.
 *
 * Whatever isn't listed fails with EPERM: an unforeseen call of a library to come must
 * not end every sandbox, and it opens nothing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/macros.h"
#include "sys/seccomp_arch.h"

enum program {
	ENGINE = 1 << 0,
	OWNER = 1 << 1,	  /* the socket owner: it reads and asks, and changes nothing */
	CONTROL = 1 << 2, /* sockets are lent to it, and it executes nothing */
	WEBHOOK = 1 << 3,
	ALL = ENGINE | OWNER | CONTROL | WEBHOOK,
	POSTGRES = 1 << 4, /* its list is the other way round: what is refused */
};

enum {
	WHEN_MAX = 2,
	CALLS_MAX = 16,
	WRITES = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND,
	TYPE_FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK,
};

/* Calls that the same programs need for the same reason. */
struct row {
	const char *why;
	unsigned int programs;
	const char *calls[CALLS_MAX];	    /* up to the first NULL */
	struct scmp_arg_cmp when[WHEN_MAX]; /* all of these; op 0 ends it */
};

#define IS(n, value)	       SCMP_CMP32(n, SCMP_CMP_EQ, value)
#define HAS_NOT(n, bits)       SCMP_CMP(n, SCMP_CMP_MASKED_EQ, bits, 0)
#define MASKED(n, bits, value) SCMP_CMP(n, SCMP_CMP_MASKED_EQ, bits, value)
#define TYPE_IS(value)	       MASKED(1, 0xffffffff & ~(uint64_t)TYPE_FLAGS, value)
/* A row: one option of the engine's sockets. */
#define ENGINE_SETS(why, level, option)                                                  \
	{                                                                                \
		why, ENGINE, { "setsockopt" },                                           \
		{                                                                        \
			IS(1, level), IS(2, option)                                      \
		}                                                                        \
	}

#ifndef SO_RCVMARK
#define SO_RCVMARK 75 /* since 5.19; not in Debian 12's headers */
#endif

static const struct row rows[] = {
	{ "the event loop", CONTROL, { "epoll_create1", "eventfd2", "signalfd4" } },
	{ "the event loop",
	  ENGINE | CONTROL,
	  { "epoll_ctl", "epoll_wait", "epoll_pwait" } },
	{ "the event loop", CONTROL | WEBHOOK, { "poll", "ppoll", "gettimeofday" } },
	{ "the event loop", ALL, { "clock_gettime", "restart_syscall" } },
	{ "DNS and netlink, many at a time", ENGINE, { "recvmmsg", "sendmmsg" } },
	{ "channels, connections, netlink",
	  ALL,
	  { "recvfrom", "recvmsg", "sendto", "sendmsg", "read", "close" } },
	{ "what the libraries set on sockets", CONTROL | WEBHOOK, { "setsockopt" } },
	{ "channels, connections, netlink",
	  ENGINE | CONTROL | WEBHOOK,
	  { "write", "readv", "writev", "getsockopt", "getsockname", "getpeername",
	    "shutdown" } },
	{ "connections of its own, and from the API's callers",
	  ENGINE | CONTROL,
	  { "connect", "accept4" } },
	{ "sockets to the name servers", ENGINE, { "bind" } },
	{ "the relay's bytes", ENGINE, { "splice" } },
	{ "the relay's pipes, and a thread's", ENGINE | CONTROL, { "pipe2" } },
	{ "libmicrohttpd", CONTROL, { "sendfile", "dup3" } },
	{ "a memfd's size, and files", ENGINE | OWNER | CONTROL, { "lseek" } },
	{ "/proc and /sys; the policy's file, the rules files, logs, SQLite",
	  OWNER | CONTROL,
	  { "readlink", "readlinkat", "getdents64", "stat", "lstat", "fstat",
	    "newfstatat", "statfs", "fstatfs", "getcwd" } },
	{ "the policy's file, the rules files, logs, SQLite: to read and to write them",
	  CONTROL,
	  { "open", "openat", "statx", "access", "faccessat", "faccessat2", "pread64",
	    "pwrite64", "fsync", "fdatasync", "ftruncate", "fallocate" } },
	{ "the same: their names",
	  CONTROL,
	  { "rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat",
	    "rmdir" } },
	{ "the same: whose they are, and what others do to them",
	  CONTROL,
	  { "fchmod", "fchown", "umask", "utimensat", "flock", "inotify_init1",
	    "inotify_add_watch", "inotify_rm_watch" } },
	{ "a plan for the engine", CONTROL, { "memfd_create" } },
	{ "SQLite asks who it is",
	  CONTROL,
	  { "getuid", "geteuid", "getgid", "getegid", "uname", "sysinfo" } },
	{ "threads of the log and the store",
	  CONTROL,
	  { "set_robust_list", "rseq", "sched_yield", "sched_getaffinity", "nanosleep",
	    "clock_nanosleep" } },
	{ "memory and the C library's own",
	  ALL,
	  { "munmap", "mremap", "madvise", "brk", "futex", "getrandom", "getpid",
	    "gettid", "rt_sigreturn", "rt_sigprocmask", "exit", "exit_group" } },
	{ "memory and the C library's own", CONTROL | WEBHOOK, { "rt_sigaction" } },
	{ "memory and the C library's own", CONTROL, { "sigaltstack", "prctl" } },
	/* under a condition */
	{ "memory, but none that can be executed",
	  ALL,
	  { "mmap" },
	  { HAS_NOT(2, PROT_EXEC) } },
	{ "the same", ALL, { "mprotect" }, { HAS_NOT(2, PROT_EXEC) } },
	{ "limits of its own, not those of other processes",
	  CONTROL,
	  { "prlimit64" },
	  { IS(0, 0) } },
	/* Not F_SETOWN and F_SETSIG, by which a descriptor sends any signal to any
	 * process of the user, and not F_SETLEASE, for which whoever opens the file next
	 * waits. */
	{ "flags of a socket, opendir()", ALL, { "fcntl" }, { IS(1, F_GETFL) } },
	{ "flags of a socket",
	  ENGINE | CONTROL | WEBHOOK,
	  { "fcntl" },
	  { IS(1, F_SETFL) } },
	{ "fdopendir(), SQLite, libmicrohttpd",
	  OWNER | CONTROL,
	  { "fcntl" },
	  { IS(1, F_SETFD) } },
	{ "SQLite, libmicrohttpd", CONTROL, { "fcntl" }, { IS(1, F_GETFD) } },
	{ "the API's socket, twice", CONTROL, { "fcntl" }, { IS(1, F_DUPFD_CLOEXEC) } },
	{ "SQLite's locks", CONTROL, { "fcntl" }, { IS(1, F_SETLK) } },
	{ "SQLite's locks", CONTROL, { "fcntl" }, { IS(1, F_GETLK) } },
	{ "the relay's pipes", ENGINE, { "fcntl" }, { IS(1, F_SETPIPE_SZ) } },
	{ "a plan's memfd", ENGINE | CONTROL, { "fcntl" }, { IS(1, F_GET_SEALS) } },
	{ "a plan's memfd", CONTROL, { "fcntl" }, { IS(1, F_ADD_SEALS) } },
	/* Among the other options are those by which root changes the machine's iptables
	 * on any socket, a filter that stays on a netlink socket and hides rules from the
	 * next engine, and SO_LINGER, by which whoever is sent a socket waits as it is
	 * closed, as long as its sender likes. */
	ENGINE_SETS("connections that live long", SOL_SOCKET, SO_KEEPALIVE),
	ENGINE_SETS("connections that live long", IPPROTO_TCP, TCP_KEEPIDLE),
	ENGINE_SETS("connections that live long", IPPROTO_TCP, TCP_KEEPINTVL),
	ENGINE_SETS("connections that live long", IPPROTO_TCP, TCP_KEEPCNT),
	ENGINE_SETS("bytes that leave at once", IPPROTO_TCP, TCP_NODELAY),
	ENGINE_SETS("urgent bytes in their place", SOL_SOCKET, SO_OOBINLINE),
	ENGINE_SETS("addresses of one family", IPPROTO_IPV6, IPV6_V6ONLY),
	ENGINE_SETS("what the filter exempts", SOL_SOCKET, SO_MARK),
	ENGINE_SETS("who asks at the host's socket", SOL_SOCKET, SO_RCVMARK),
	ENGINE_SETS("room for answers and rulesets", SOL_SOCKET, SO_SNDBUF),
	ENGINE_SETS("room for rulesets", SOL_SOCKET, SO_SNDBUFFORCE),
	ENGINE_SETS("room for refused packets", SOL_SOCKET, SO_RCVBUF),
	ENGINE_SETS("short errors of netlink", SOL_NETLINK, NETLINK_CAP_ACK),
	{ "libcurl's sockets", WEBHOOK, { "ioctl" }, { IS(1, FIONBIO) } },
	{ "what is not sent yet", WEBHOOK, { "ioctl" }, { IS(1, SIOCOUTQ) } },
	{ "name servers and the relay",
	  ENGINE,
	  { "socket" },
	  { IS(0, AF_INET), TYPE_IS(SOCK_STREAM) } },
	{ "name servers", ENGINE, { "socket" }, { IS(0, AF_INET), TYPE_IS(SOCK_DGRAM) } },
	{ "name servers and the relay",
	  ENGINE,
	  { "socket" },
	  { IS(0, AF_INET6), TYPE_IS(SOCK_STREAM) } },
	{ "name servers",
	  ENGINE,
	  { "socket" },
	  { IS(0, AF_INET6), TYPE_IS(SOCK_DGRAM) } },
	{ "whose socket it is",
	  OWNER,
	  { "socket" },
	  { IS(0, AF_NETLINK), IS(2, NETLINK_SOCK_DIAG) } },
	{ "files are only read", OWNER, { "openat" }, { MASKED(2, WRITES, O_RDONLY) } },
	{ "files are only read", OWNER, { "open" }, { MASKED(1, WRITES, O_RDONLY) } },
	{ "to ask about the sockets of another network namespace",
	  OWNER,
	  { "setns" },
	  { IS(1, CLONE_NEWNET) } },
	{ "have two threads one descriptor table?",
	  OWNER,
	  { "kcmp" },
	  { IS(2, KCMP_FILES) } },
	{ "threads, but no processes",
	  CONTROL,
	  { "clone" },
	  { MASKED(0, CLONE_THREAD | CLONE_NEWUSER, CLONE_THREAD) } },
	/* libpq with its TLS, name services and threads does too much to be listed call
	 * by call: what is refused is what somebody who took weir-postgres over would
	 * want. */
	{ "to start programs", POSTGRES, { "execve", "execveat" } },
	{ "to act on other processes",
	  POSTGRES,
	  { "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open",
	    "pidfd_getfd" } },
	/* Where there is no Landlock, or one that can't scope signals, Weir's other
	 * processes have the same user. */
	{ "to signal other processes",
	  POSTGRES,
	  { "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
	    "pidfd_send_signal" } },
	{ "to signal other processes", POSTGRES, { "fcntl" }, { IS(1, F_SETOWN) } },
	{ "to signal other processes", POSTGRES, { "fcntl" }, { IS(1, F_SETOWN_EX) } },
	{ "to signal other processes", POSTGRES, { "ioctl" }, { IS(1, FIOSETOWN) } },
	{ "to signal other processes", POSTGRES, { "ioctl" }, { IS(1, SIOCSPGRP) } },
	{ "to have other processes wait", POSTGRES, { "fcntl" }, { IS(1, F_SETLEASE) } },
	{ "to limit other processes",
	  POSTGRES,
	  { "prlimit64" },
	  { SCMP_CMP32(0, SCMP_CMP_NE, 0) } },
	{ "to limit other processes",
	  POSTGRES,
	  { "setpriority", "ioprio_set", "sched_setaffinity", "sched_setscheduler",
	    "sched_setparam", "sched_setattr" } },
	{ "to go elsewhere",
	  POSTGRES,
	  { "unshare", "setns", "mount", "umount2", "chroot", "setuid", "setgid" } },
	/* In a new namespace a process has every capability. */
	{ "to go elsewhere",
	  POSTGRES,
	  { "clone" },
	  { MASKED(0, CLONE_NEWUSER, CLONE_NEWUSER) } },
	{ "to attack the kernel",
	  POSTGRES,
	  { "bpf", "perf_event_open", "userfaultfd", "io_uring_setup" } },
	{ "to use the keys of others", POSTGRES, { "keyctl", "add_key", "request_key" } },
	{ "to serve", POSTGRES, { "listen", "accept", "accept4" } },
};

static int build(scmp_filter_ctx ctx, const char *arch, enum program program)
{
	const uint32_t action = program == POSTGRES ? SCMP_ACT_ERRNO(EPERM)
						    : SCMP_ACT_ALLOW;
	int r = seccomp_build_for(ctx, arch);

	for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows); row++) {
		unsigned int count = 0;

		while (count < WHEN_MAX && row->when[count].op != 0)
			count++;
		for (size_t i = 0; (row->programs & program) && row->calls[i] && r == 0;
		     i++)
			r = seccomp_rule_add_array(
				ctx, action, seccomp_syscall_resolve_name(row->calls[i]),
				count, row->when);
	}
	/* clone3() keeps its flags in memory, so the C library is told that there is
	 * none. */
	if (r == 0 && (program == CONTROL || program == POSTGRES))
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return r;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "engine", "socket_owner", "control",
					     "webhook", "postgres" };
	enum program program = (enum program)0;
	scmp_filter_ctx ctx;
	int r;

	for (size_t i = 0; argc == 3 && i < ARRAY_SIZE(names); i++)
		if (strcmp(argv[2], names[i]) == 0)
			program = (enum program)(1 << i);
	if (!program)
		return EXIT_FAILURE;
	ctx = seccomp_init(program == POSTGRES ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM));
	if (!ctx)
		return EXIT_FAILURE;
	/* As a tree: the kernel tries the filter on every call there is when it is
	 * loaded. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = build(ctx, argv[1], program);
	if (r == 0)
		r = seccomp_export_bpf(ctx, STDOUT_FILENO);
	seccomp_release(ctx);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
