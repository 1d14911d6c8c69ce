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
	POSTGRES = 1 << 4, /* its list is the other way round: see refused[] */
};

enum {
	WHEN_MAX = 2,
	WRITES = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND,
	TYPE_FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK,
};

struct row {
	const char *name;
	int call;
	unsigned int programs;
	const char *why;
	struct scmp_arg_cmp when[WHEN_MAX]; /* all of these; op 0 ends it */
};

#define CALL(name)	       #name, SCMP_SYS(name)
#define IS(n, value)	       SCMP_CMP32(n, SCMP_CMP_EQ, value)
#define HAS_NOT(n, bits)       SCMP_CMP(n, SCMP_CMP_MASKED_EQ, bits, 0)
#define MASKED(n, bits, value) SCMP_CMP(n, SCMP_CMP_MASKED_EQ, bits, value)
#define TYPE_IS(value)	       MASKED(1, 0xffffffff & ~(uint64_t)TYPE_FLAGS, value)

static const struct row rows[] = {
	{ CALL(epoll_create1), CONTROL, "the event loop" },
	{ CALL(epoll_ctl), ENGINE | CONTROL, "the event loop" },
	{ CALL(epoll_wait), ENGINE | CONTROL, "the event loop" },
	{ CALL(epoll_pwait), ENGINE | CONTROL, "the event loop" },
	{ CALL(poll), CONTROL | WEBHOOK, "the event loop" },
	{ CALL(ppoll), CONTROL | WEBHOOK, "the event loop" },
	{ CALL(eventfd2), CONTROL, "the event loop" },
	{ CALL(signalfd4), CONTROL, "the event loop" },
	{ CALL(clock_gettime), ALL, "the event loop" },
	{ CALL(gettimeofday), CONTROL | WEBHOOK, "the event loop" },
	{ CALL(restart_syscall), ALL, "the event loop" },
	{ CALL(recvmmsg), ENGINE, "DNS and netlink, many at a time" },
	{ CALL(sendmmsg), ENGINE, "DNS and netlink, many at a time" },
	{ CALL(recvfrom), ALL, "channels, connections, netlink" },
	{ CALL(recvmsg), ALL, "channels, connections, netlink" },
	{ CALL(sendto), ALL, "channels, connections, netlink" },
	{ CALL(sendmsg), ALL, "channels, connections, netlink" },
	{ CALL(read), ALL, "channels, connections, netlink" },
	{ CALL(write), ENGINE | CONTROL | WEBHOOK, "channels, connections, netlink" },
	{ CALL(readv), ENGINE | CONTROL | WEBHOOK, "channels, connections, netlink" },
	{ CALL(writev), ENGINE | CONTROL | WEBHOOK, "channels, connections, netlink" },
	{ CALL(setsockopt), ALL, "channels, connections, netlink" },
	{ CALL(getsockopt), ENGINE | CONTROL | WEBHOOK,
	  "channels, connections, netlink" },
	{ CALL(getsockname), ENGINE | CONTROL | WEBHOOK,
	  "channels, connections, netlink" },
	{ CALL(getpeername), ENGINE | CONTROL | WEBHOOK,
	  "channels, connections, netlink" },
	{ CALL(shutdown), ENGINE | CONTROL | WEBHOOK, "channels, connections, netlink" },
	{ CALL(close), ALL, "channels, connections, netlink" },
	{ CALL(connect), ENGINE | CONTROL,
	  "connections of its own, and from the API's callers" },
	{ CALL(accept4), ENGINE | CONTROL,
	  "connections of its own, and from the API's callers" },
	{ CALL(bind), ENGINE, "sockets to the name servers" },
	{ CALL(splice), ENGINE, "the relay's bytes" },
	{ CALL(pipe2), ENGINE | CONTROL, "the relay's pipes, and a thread's" },
	{ CALL(sendfile), CONTROL, "libmicrohttpd" },
	{ CALL(dup3), CONTROL, "libmicrohttpd" },
	{ CALL(fcntl), CONTROL, "libmicrohttpd" },
	{ CALL(lseek), ENGINE | OWNER | CONTROL, "a memfd's size, and files" },
	{ CALL(readlink), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(readlinkat), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(getdents64), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(stat), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(lstat), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(fstat), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(newfstatat), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(statfs), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(fstatfs), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(getcwd), OWNER | CONTROL,
	  "/proc and /sys; the policy's file, the rules files, logs, SQLite" },
	{ CALL(open), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(openat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(statx), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(access), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(faccessat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(faccessat2), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(pread64), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(pwrite64), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(fsync), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(fdatasync), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(ftruncate), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(fallocate), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(rename), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(renameat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(renameat2), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(unlink), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(unlinkat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(mkdir), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(mkdirat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(rmdir), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(fchmod), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(fchown), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(umask), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(utimensat), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(flock), CONTROL, "the policy's file, the rules files, logs, SQLite" },
	{ CALL(inotify_init1), CONTROL,
	  "the policy's file, the rules files, logs, SQLite" },
	{ CALL(inotify_add_watch), CONTROL,
	  "the policy's file, the rules files, logs, SQLite" },
	{ CALL(inotify_rm_watch), CONTROL,
	  "the policy's file, the rules files, logs, SQLite" },
	{ CALL(memfd_create), CONTROL,
	  "the policy's file, the rules files, logs, SQLite" },
	{ CALL(getuid), CONTROL, "SQLite asks who it is" },
	{ CALL(geteuid), CONTROL, "SQLite asks who it is" },
	{ CALL(getgid), CONTROL, "SQLite asks who it is" },
	{ CALL(getegid), CONTROL, "SQLite asks who it is" },
	{ CALL(uname), CONTROL, "SQLite asks who it is" },
	{ CALL(sysinfo), CONTROL, "SQLite asks who it is" },
	{ CALL(set_robust_list), CONTROL, "threads of the log and the store" },
	{ CALL(rseq), CONTROL, "threads of the log and the store" },
	{ CALL(sched_yield), CONTROL, "threads of the log and the store" },
	{ CALL(sched_getaffinity), CONTROL, "threads of the log and the store" },
	{ CALL(nanosleep), CONTROL, "threads of the log and the store" },
	{ CALL(clock_nanosleep), CONTROL, "threads of the log and the store" },
	{ CALL(tgkill), CONTROL, "threads of the log and the store" },
	{ CALL(munmap), ALL, "memory and the C library's own" },
	{ CALL(mremap), ALL, "memory and the C library's own" },
	{ CALL(madvise), ALL, "memory and the C library's own" },
	{ CALL(brk), ALL, "memory and the C library's own" },
	{ CALL(futex), ALL, "memory and the C library's own" },
	{ CALL(getrandom), ALL, "memory and the C library's own" },
	{ CALL(getpid), ALL, "memory and the C library's own" },
	{ CALL(gettid), ALL, "memory and the C library's own" },
	{ CALL(rt_sigreturn), ALL, "memory and the C library's own" },
	{ CALL(rt_sigprocmask), ALL, "memory and the C library's own" },
	{ CALL(rt_sigaction), CONTROL | WEBHOOK, "memory and the C library's own" },
	{ CALL(sigaltstack), CONTROL, "memory and the C library's own" },
	{ CALL(prctl), CONTROL, "memory and the C library's own" },
	{ CALL(prlimit64), CONTROL, "memory and the C library's own" },
	{ CALL(exit), ALL, "memory and the C library's own" },
	{ CALL(exit_group), ALL, "memory and the C library's own" },
	/* under a condition */
	{ CALL(mmap),
	  ALL,
	  "memory, but none that can be executed",
	  { HAS_NOT(2, PROT_EXEC) } },
	{ CALL(mprotect), ALL, "the same", { HAS_NOT(2, PROT_EXEC) } },
	{ CALL(fcntl),
	  ENGINE | OWNER | WEBHOOK,
	  "flags of a socket, opendir()",
	  { IS(1, F_GETFL) } },
	{ CALL(fcntl), ENGINE | WEBHOOK, "flags of a socket", { IS(1, F_SETFL) } },
	{ CALL(fcntl), OWNER, "fdopendir()", { IS(1, F_SETFD) } },
	{ CALL(fcntl), ENGINE, "the relay's pipes", { IS(1, F_SETPIPE_SZ) } },
	{ CALL(fcntl), ENGINE, "another plan's memfd", { IS(1, F_GET_SEALS) } },
	{ CALL(ioctl), WEBHOOK, "libcurl's sockets", { IS(1, FIONBIO) } },
	{ CALL(ioctl), WEBHOOK, "what is not sent yet", { IS(1, SIOCOUTQ) } },
	{ CALL(socket),
	  ENGINE,
	  "name servers and the relay",
	  { IS(0, AF_INET), TYPE_IS(SOCK_STREAM) } },
	{ CALL(socket), ENGINE, "name servers", { IS(0, AF_INET), TYPE_IS(SOCK_DGRAM) } },
	{ CALL(socket),
	  ENGINE,
	  "name servers and the relay",
	  { IS(0, AF_INET6), TYPE_IS(SOCK_STREAM) } },
	{ CALL(socket),
	  ENGINE,
	  "name servers",
	  { IS(0, AF_INET6), TYPE_IS(SOCK_DGRAM) } },
	{ CALL(socket),
	  OWNER,
	  "whose socket it is",
	  { IS(0, AF_NETLINK), IS(2, NETLINK_SOCK_DIAG) } },
	{ CALL(openat), OWNER, "files are only read", { MASKED(2, WRITES, O_RDONLY) } },
	{ CALL(open), OWNER, "files are only read", { MASKED(1, WRITES, O_RDONLY) } },
	{ CALL(setns),
	  OWNER,
	  "to ask about the sockets of another network namespace",
	  { IS(1, CLONE_NEWNET) } },
	{ CALL(kcmp),
	  OWNER,
	  "have two threads one descriptor table?",
	  { IS(2, KCMP_FILES) } },
	{ CALL(clone),
	  CONTROL,
	  "threads, but no processes",
	  { MASKED(0, CLONE_THREAD | CLONE_NEWUSER, CLONE_THREAD) } },
};

/* libpq with its TLS, name services and threads does too much to be listed call by call:
 * what is taken away is what somebody who took weir-postgres over would want. A row with
 * a condition refuses the call where the condition holds. */
static const struct {
	int call;
	struct scmp_arg_cmp when; /* op 0: always */
} refused[] = {
	/* other programs, and other processes' memory and descriptors */
	{ SCMP_SYS(execve), { 0 } },
	{ SCMP_SYS(execveat), { 0 } },
	{ SCMP_SYS(ptrace), { 0 } },
	{ SCMP_SYS(process_vm_readv), { 0 } },
	{ SCMP_SYS(process_vm_writev), { 0 } },
	{ SCMP_SYS(pidfd_open), { 0 } },
	{ SCMP_SYS(pidfd_getfd), { 0 } },
	/* signals and limits of other processes: where there is no Landlock, or one that
	 * can't scope signals, Weir's others have the same user */
	{ SCMP_SYS(kill), { 0 } },
	{ SCMP_SYS(tkill), { 0 } },
	{ SCMP_SYS(tgkill), { 0 } },
	{ SCMP_SYS(rt_sigqueueinfo), { 0 } },
	{ SCMP_SYS(rt_tgsigqueueinfo), { 0 } },
	{ SCMP_SYS(pidfd_send_signal), { 0 } },
	{ SCMP_SYS(fcntl), IS(1, F_SETOWN) },
	{ SCMP_SYS(fcntl), IS(1, F_SETOWN_EX) },
	{ SCMP_SYS(ioctl), IS(1, FIOSETOWN) },
	{ SCMP_SYS(ioctl), IS(1, SIOCSPGRP) },
	{ SCMP_SYS(prlimit64), SCMP_CMP32(0, SCMP_CMP_NE, 0) },
	/* namespaces, in which a process has every capability */
	{ SCMP_SYS(unshare), { 0 } },
	{ SCMP_SYS(clone), MASKED(0, CLONE_NEWUSER, CLONE_NEWUSER) },
	{ SCMP_SYS(setns), { 0 } },
	{ SCMP_SYS(mount), { 0 } },
	{ SCMP_SYS(umount2), { 0 } },
	{ SCMP_SYS(chroot), { 0 } },
	/* parts of the kernel that libpq has no use for */
	{ SCMP_SYS(bpf), { 0 } },
	{ SCMP_SYS(perf_event_open), { 0 } },
	{ SCMP_SYS(userfaultfd), { 0 } },
	{ SCMP_SYS(io_uring_setup), { 0 } },
	{ SCMP_SYS(keyctl), { 0 } },
	{ SCMP_SYS(add_key), { 0 } },
	{ SCMP_SYS(request_key), { 0 } },
	{ SCMP_SYS(setuid), { 0 } },
	{ SCMP_SYS(setgid), { 0 } },
	{ SCMP_SYS(listen), { 0 } },
	{ SCMP_SYS(accept), { 0 } },
	{ SCMP_SYS(accept4), { 0 } },
};

static int build(scmp_filter_ctx ctx, const char *arch, enum program program)
{
	int r = seccomp_build_for(ctx, arch);

	for (const struct row *row = rows; row < rows + ARRAY_SIZE(rows) && r == 0;
	     row++) {
		unsigned int count = 0;

		if (!(row->programs & program))
			continue;
		while (count < WHEN_MAX && row->when[count].op != 0)
			count++;
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, row->call, count,
					   row->when);
	}
	for (size_t i = 0; program == POSTGRES && i < ARRAY_SIZE(refused) && r == 0; i++)
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EPERM), refused[i].call,
					   refused[i].when.op != 0, &refused[i].when);
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
