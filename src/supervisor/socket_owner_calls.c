// SPDX-License-Identifier: Apache-2.0
/* The system calls that the witness keeps, as engine_calls.c does it. It reads files and
 * asks the kernel about sockets; it changes nothing and executes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/macros.h"

static const int allowed_calls[] = {
	/* the channel, netlink */
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendto),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg),
	SCMP_SYS(setsockopt),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(restart_syscall),
	/* /proc and /sys */
	SCMP_SYS(read),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(stat),
	SCMP_SYS(lstat),
	SCMP_SYS(fstat),
	SCMP_SYS(newfstatat),
	SCMP_SYS(statfs),
	SCMP_SYS(fstatfs),
	SCMP_SYS(lseek),
	SCMP_SYS(getcwd),
	SCMP_SYS(close),
	/* memory and the C library's own */
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(futex),
	SCMP_SYS(getrandom),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

/* One more call with one condition on one argument. */
static int allow_if(scmp_filter_ctx ctx, int call, struct scmp_arg_cmp condition)
{
	return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, call, 1, &condition);
}

static int build(scmp_filter_ctx ctx)
{
	const uint64_t writes = O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed_calls) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed_calls[i], 0);
	/* Files are only read. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(openat),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, writes, O_RDONLY));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(open),
			     SCMP_A1(SCMP_CMP_MASKED_EQ, writes, O_RDONLY));
	/* Another network namespace, to ask the kernel about sockets there. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(setns),
			     SCMP_A1(SCMP_CMP_EQ, 0x40000000 /* CLONE_NEWNET */));
	if (r == 0)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				     SCMP_A0_32(SCMP_CMP_EQ, AF_NETLINK),
				     SCMP_A2_32(SCMP_CMP_EQ, NETLINK_SOCK_DIAG));
	/* Have two threads one descriptor table? */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(kcmp), SCMP_A2(SCMP_CMP_EQ, KCMP_FILES));
	/* Memory, but none that can be executed. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mmap),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mprotect),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/* opendir() and fdopendir() */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_GETFL));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_SETFD));
	return r;
}

int main(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		return EXIT_FAILURE;
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = build(ctx);
	if (r == 0)
		r = seccomp_export_bpf(ctx, STDOUT_FILENO);
	seccomp_release(ctx);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
