// SPDX-License-Identifier: Apache-2.0
#include "main/harden.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

/* Landlock, ABI 6: processes outside the domain can't be signalled, nor abstract unix
 * sockets reached. Not in the headers of Debian 12. */
enum {
	SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0,
	SCOPE_SIGNAL = 1 << 1,
};

struct landlock_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

static int drop_capabilities(struct err *err)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0 } };

	/* EINVAL: past the last one that this kernel knows. EPERM: an ordinary user
	 * has nothing to drop; no_new_privs keeps it so. */
	for (int cap = 0; cap <= 63; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL &&
		    errno != EPERM)
			return err_sys(err, -errno, "cannot drop capability %d", cap);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot clear the ambient capabilities");
	if (syscall(SYS_capset, &header, none) < 0)
		return err_sys(err, -errno, "cannot drop the capabilities");
	return 0;
}

static uint64_t landlock_fs_rights(long abi)
{
	/* Execute to make_sym came with ABI 1, refer 2, truncate 3, ioctl_dev 5. */
	uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

	if (abi >= 2)
		rights |= 1u << 13;
	if (abi >= 3)
		rights |= 1u << 14;
	if (abi >= 5)
		rights |= 1u << 15;
	return rights;
}

/* No rule follows: every right that is handled is refused everywhere. */
static int enter_landlock(char *ret_missing)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
			   LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_attr attr = { 0 };
	size_t size = offsetof(struct landlock_attr, handled_access_net);
	CLEAN(fd) int fd = -1;

	if (abi < 1) {
		snprintf(
			ret_missing, ERR_TEXT_SIZE,
			"this kernel has no Landlock: the engine's file access is cut by "
			"seccomp alone");
		return 0;
	}
	attr.handled_access_fs = landlock_fs_rights(abi);
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size = sizeof(attr);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	if (fd < 0)
		return -errno;
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

/* Calls without conditions on their arguments, and who needs them. */
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

static int fill_filter(scmp_filter_ctx ctx)
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
	return r;
}

/* Everything else fails with EPERM: an unforeseen call of a C library to come must
 * not end every sandbox, and it opens nothing. */
static int enter_seccomp(char *ret_missing, struct err *err)
{
#ifdef __SANITIZE_ADDRESS__
	/* The sanitizers' own calls (reading /proc/self/maps, executing a symbolizer)
	 * are not the engine's; their builds are for tests only. */
	snprintf(ret_missing, ERR_TEXT_SIZE, "built with a sanitizer: no seccomp");
	return 0;
#endif
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!ctx)
		return err_set(err, -ENOMEM, "cannot make a seccomp filter");
	r = fill_filter(ctx);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r < 0 ? err_sys(err, r, "cannot confine the engine by seccomp") : 0;
}

int harden_limits(struct err *err)
{
	const struct rlimit none = { 0, 0 };
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot read the descriptor limit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot raise the descriptor limit");
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_sys(err, -errno, "cannot forbid core dumps");
	return 0;
}

int harden_engine(char *ret_missing, struct err *err)
{
	int r;

	ret_missing[0] = '\0';
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot confine the engine");
	r = drop_capabilities(err);
	if (r < 0)
		return r;
	r = enter_landlock(ret_missing);
	if (r < 0)
		return err_sys(err, r, "cannot confine the engine by Landlock");
	return enter_seccomp(ret_missing, err);
}
