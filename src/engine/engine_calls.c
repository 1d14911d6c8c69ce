// SPDX-License-Identifier: Apache-2.0
/* The system calls that the engine keeps, and who needs them. The build runs this
 * program once and embeds what it prints (harden.c loads it): compiling the list with
 * libseccomp costs every launch what a mount does, and a library in memory. */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/macros.h"

/* Calls without conditions on their arguments. */
static const int allowed_calls[] = {
	/* the event loop */
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(restart_syscall),
	/* DNS, netlink, NFLOG, the channel to control */
	SCMP_SYS(recvmmsg),
	SCMP_SYS(sendmmsg),
	SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendto),
	SCMP_SYS(read),
	SCMP_SYS(write),
	SCMP_SYS(readv),
	SCMP_SYS(writev),
	/* upstream sockets and the relay */
	SCMP_SYS(bind),
	SCMP_SYS(connect),
	SCMP_SYS(accept4),
	SCMP_SYS(shutdown),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(getpeername),
	SCMP_SYS(splice),
	SCMP_SYS(pipe2),
	SCMP_SYS(close),
	SCMP_SYS(lseek),
	SCMP_SYS(getrandom),
	/* memory and the C library's own */
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(futex),
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

static int allow_sockets(scmp_filter_ctx ctx)
{
	static const int families[] = { AF_INET, AF_INET6 };
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM };
	const uint64_t type_mask = 0xffffffff & ~(uint64_t)(SOCK_CLOEXEC | SOCK_NONBLOCK);
	int r = 0;

	for (size_t f = 0; f < ARRAY_SIZE(families); f++)
		for (size_t t = 0; t < ARRAY_SIZE(types) && r == 0; t++)
			r = seccomp_rule_add(
				ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
				SCMP_A0_32(SCMP_CMP_EQ, (uint32_t)families[f]),
				SCMP_A1(SCMP_CMP_MASKED_EQ, type_mask,
					(uint64_t)types[t]));
	return r;
}

static int build(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed_calls) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed_calls[i], 0);
	if (r == 0)
		r = allow_sockets(ctx);
	/* Memory, but none that can be executed. */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mmap),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(mprotect),
			     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_SETPIPE_SZ));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_GETFL));
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_SETFL));
	/* another plan's memfd */
	if (r == 0)
		r = allow_if(ctx, SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_GET_SEALS));
	return r;
}

/* Everything else fails with EPERM: an unforeseen call of a C library to come must
 * not end every sandbox, and it opens nothing. */
int main(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		return EXIT_FAILURE;
	/* As a tree: the kernel tries the filter on every call there is when it is
	 * loaded. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = build(ctx);
	if (r == 0)
		r = seccomp_export_bpf(ctx, STDOUT_FILENO);
	seccomp_release(ctx);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
