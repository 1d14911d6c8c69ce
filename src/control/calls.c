// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>

#include "control/confine.h"

/* What control needs, and who of it. Sockets are lent by the engine and passed by the
 * keeper: none is made here, and nothing is executed. Files are Landlock's matter. */
static const int allowed_calls[] = {
	/* the event loop, libmicrohttpd's included */
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(eventfd2),
	SCMP_SYS(signalfd4),
	SCMP_SYS(pipe2),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(restart_syscall),
	/* the API's connections, the channels, lent sockets */
	SCMP_SYS(accept4),
	SCMP_SYS(connect),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(sendmsg),
	SCMP_SYS(sendfile),
	SCMP_SYS(shutdown),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	SCMP_SYS(close),
	SCMP_SYS(dup3),
	SCMP_SYS(fcntl),
	/* the policy's file, the rules files, logs, SQLite */
	SCMP_SYS(open),
	SCMP_SYS(openat),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statx),
	SCMP_SYS(fstatfs),
	SCMP_SYS(statfs),
	SCMP_SYS(access),
	SCMP_SYS(faccessat),
	SCMP_SYS(faccessat2),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getcwd),
	SCMP_SYS(getdents64),
	SCMP_SYS(lseek),
	SCMP_SYS(pread64),
	SCMP_SYS(pwrite64),
	SCMP_SYS(fsync),
	SCMP_SYS(fdatasync),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(rename),
	SCMP_SYS(renameat),
	SCMP_SYS(renameat2),
	SCMP_SYS(unlink),
	SCMP_SYS(unlinkat),
	SCMP_SYS(mkdir),
	SCMP_SYS(mkdirat),
	SCMP_SYS(rmdir),
	SCMP_SYS(fchmod),
	SCMP_SYS(fchown),
	SCMP_SYS(umask),
	SCMP_SYS(utimensat),
	SCMP_SYS(flock),
	SCMP_SYS(inotify_init1),
	SCMP_SYS(inotify_add_watch),
	SCMP_SYS(inotify_rm_watch),
	SCMP_SYS(memfd_create),
	/* who it is: SQLite asks */
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(uname),
	SCMP_SYS(sysinfo),
	SCMP_SYS(getrandom),
	/* threads of the log and the store */
	SCMP_SYS(futex),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(tgkill),
	/* memory and the C library's own */
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(prctl),
	SCMP_SYS(prlimit64),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(sigaltstack),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

static int allow_if(scmp_filter_ctx ctx, int call, struct scmp_arg_cmp condition)
{
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, call, 1, &condition);
}

static int build(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed_calls) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed_calls[i], 0);
	/* Memory, but none that can be executed. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mmap),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mprotect),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* Threads, but no processes; clone3() keeps its flags in memory, so the C library
	 * is told that there is none. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(clone),
			     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_NEWUSER,
				     CLONE_THREAD));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return r;
}

int confine_calls(struct err *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		return err_sys(err, -ENOMEM, "cannot confine control by seccomp");
	r = build(ctx);
#ifndef __SANITIZE_ADDRESS__ /* whose own calls are not ours; for tests only */
	if (r == 0)
		r = seccomp_load(ctx);
#endif
	seccomp_release(ctx);
	return r < 0 ? err_sys(err, r, "cannot confine control by seccomp") : 0;
}
