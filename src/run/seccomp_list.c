// SPDX-License-Identifier: Apache-2.0
/* The build runs this program once and embeds what it prints: compiling the list with
 * libseccomp takes longer (2 ms) than all of a launch's mounts.
 *
 * The namespaces, not this list, keep the command in. The list closes what namespaces
 * don't cover: address families that know no network namespace (vsock), kernel
 * machinery that makes calls without a filter seeing them (io_uring), terminal
 * input that the caller's shell would read, and parts of the kernel that are no use
 * without capabilities but wide open to attack. */
#include <errno.h>
#include <linux/netlink.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/macros.h"

#define LOW32 0xffffffffULL

enum { SOCK_TYPE_BITS = 0xf, TIOCLINUX_CALL = 0x541C };

/* Calls that are refused whatever their arguments, and how: ENOSYS where programs know
 * what to do without the call, EPERM where they should say so. */
static const struct {
	const char *name;
	int error;
} refused_calls[] = {
	{ "io_uring_setup", ENOSYS },
	{ "io_uring_enter", ENOSYS },
	{ "io_uring_register", ENOSYS },
	{ "socketcall", ENOSYS },
	{ "add_key", EPERM },
	{ "request_key", EPERM },
	{ "keyctl", EPERM },
	{ "bpf", EPERM },
	{ "perf_event_open", EPERM },
	{ "userfaultfd", EPERM },
	{ "kexec_load", EPERM },
	{ "kexec_file_load", EPERM },
	{ "init_module", EPERM },
	{ "finit_module", EPERM },
	{ "delete_module", EPERM },
	{ "open_by_handle_at", EPERM },
	{ "mount", EPERM },
	{ "umount2", EPERM },
	{ "pivot_root", EPERM },
	{ "move_mount", EPERM },
	{ "open_tree", EPERM },
	{ "fsopen", EPERM },
	{ "fsmount", EPERM },
	{ "fspick", EPERM },
	{ "fsconfig", EPERM },
	{ "mount_setattr", EPERM },
	{ "acct", EPERM },
	{ "swapon", EPERM },
	{ "swapoff", EPERM },
	{ "reboot", EPERM },
	{ "quotactl", EPERM },
	{ "lookup_dcookie", EPERM },
	{ "iopl", EPERM },
	{ "ioperm", EPERM },
};

static int refuse_calls(scmp_filter_ctx ctx)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(refused_calls); i++) {
		int nr = seccomp_syscall_resolve_name(refused_calls[i].name);

		/* A call that this libseccomp doesn't know can't be named; one that this
		 * architecture lacks is skipped by the library. */
		if (nr == __NR_SCMP_ERROR)
			continue;
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(refused_calls[i].error), nr, 0);
		if (r == -EDOM)
			r = 0;
	}
	return r;
}

/* Only AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK. The kernel reads 32 bits of the
 * family; whatever is in the upper half makes the number large, and is refused. */
static int refuse_families(scmp_filter_ctx ctx, int call)
{
	int r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
				 SCMP_A0(SCMP_CMP_GT, AF_NETLINK));

	for (unsigned int family = 0; r == 0 && family < AF_NETLINK; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
			continue;
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), call, 1,
				     SCMP_A0(SCMP_CMP_EQ, family));
	}
	return r;
}

/* Netlink for routes and addresses, which getaddrinfo and getifaddrs ask for; nothing
 * else. SOCK_RAW is what netlink sockets are; for INET it takes a capability that the
 * command doesn't have, and is refused here as well. */
static int refuse_types(scmp_filter_ctx ctx, int call)
{
	static const unsigned int families[] = { AF_INET, AF_INET6 };
	int r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), call, 2,
				 SCMP_A0(SCMP_CMP_EQ, AF_NETLINK),
				 SCMP_A2(SCMP_CMP_NE, NETLINK_ROUTE));

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(families); i++)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), call, 2,
			SCMP_A0(SCMP_CMP_EQ, families[i]),
			SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_BITS, SOCK_RAW));
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(families); i++)
		r = seccomp_rule_add(
			ctx, SCMP_ACT_ERRNO(EPERM), call, 2,
			SCMP_A0(SCMP_CMP_EQ, families[i]),
			SCMP_A1(SCMP_CMP_MASKED_EQ, SOCK_TYPE_BITS, SOCK_PACKET));
	return r;
}

static int refuse_sockets(scmp_filter_ctx ctx)
{
	static const int calls[] = { SCMP_SYS(socket), SCMP_SYS(socketpair) };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(calls); i++) {
		r = refuse_families(ctx, calls[i]);
		if (r == 0)
			r = refuse_types(ctx, calls[i]);
	}
	return r;
}

/* Both put characters into the terminal as if they had been typed. The kernel reads 32
 * bits of the request. */
static int refuse_typing(scmp_filter_ctx ctx)
{
	static const unsigned int requests[] = { TIOCSTI, TIOCLINUX_CALL };
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(requests); i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
				     SCMP_A1(SCMP_CMP_MASKED_EQ, LOW32, requests[i]));
	return r;
}

/* The machine runs programs of these too. x32 is not among them: a call with its bit
 * set is of no known architecture, and refused. */
static int add_architectures(scmp_filter_ctx ctx)
{
	uint32_t native = seccomp_arch_native();
	int r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));

	if (r == 0 && native == SCMP_ARCH_X86_64)
		r = seccomp_arch_add(ctx, SCMP_ARCH_X86);
	if (r == 0 && native == SCMP_ARCH_AARCH64)
		r = seccomp_arch_add(ctx, SCMP_ARCH_ARM);
	return r;
}

static int build(scmp_filter_ctx ctx)
{
	static int (*const parts[])(scmp_filter_ctx) = {
		add_architectures,
		refuse_calls,
		refuse_sockets,
		refuse_typing,
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(parts); i++)
		r = parts[i](ctx);
	return r;
}

int main(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
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
