// SPDX-License-Identifier: Apache-2.0
/* The build runs this program once and embeds what it prints: compiling the list with
 * libseccomp takes longer (2 ms) than all of a launch's mounts.
 *
 * HOW IT WORKS
 * What isn't listed is allowed. Each line says which call, with which arguments, is
 * answered with which error, and why. An argument that the kernel reads as an int is
 * compared by its low 32 bits.
 *
 * Under `weir run` the namespaces, not this list, keep the command in. The list closes
 * what namespaces don't cover; on the host, where the command has none, it is what stands
 * beside the filter: the filter sees a packet's control group and user, so whatever has
 * the kernel send by itself is closed. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/btrfs.h>
#include <linux/filter.h>
#include <linux/ioprio.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>

#include "base/macros.h"
#include "sys/seccomp_arch.h"

#define LOW32		     0xffffffffULL
#define IOCTL_ALL_BUT_NUMBER 0xffffff00ULL
/* The kernel's own names are younger than the headers of Debian 12. */
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* One condition: argument @n is @value; has all of @bits. */
#define IS(n, value) SCMP_CMP(n, SCMP_CMP_MASKED_EQ, LOW32, value)
#define HAS(n, bits) SCMP_CMP(n, SCMP_CMP_MASKED_EQ, bits, bits)

enum {
	SOCK_TYPE_BITS = 0xf,
	TIOCLINUX_CALL = 0x541C,
	/* Whose file system an ioctl is one of, and the number of bcachefs. */
	IOCTL_TYPE_BITS = 0xff00,
	BCACHEFS_TYPE = 0xbc00,
	/* Of virtual consoles' ioctls, whose numbers say nothing of a size. */
	KEYBOARD_TYPE = 0x4b00,
	CONSOLE_TYPE = 0x5600,
	CALLS_MAX = 12,
	CONDITIONS_MAX = 3,
	PRETEND = 0, /* the error of a call that is not made, and says that it was */
};

struct refusal {
	const char *calls[CALLS_MAX]; /* up to the first NULL */
	int error;
	/* All of these; op 0 ends them. None: refused whatever the arguments. */
	struct scmp_arg_cmp when[CONDITIONS_MAX];
};

/* ENOSYS where programs know what to do without the call, EPERM where they should say
 * so. */
static const struct refusal refusals[] = {
	/* Makes calls that no filter sees; sockets in a way that can't be judged. */
	{ { "io_uring_setup", "io_uring_enter", "io_uring_register", "socketcall" },
	  ENOSYS },
	/* Do what older calls do, with arguments that can't be judged. */
	{ { "openat2", "clone3" }, ENOSYS },
	/* Has the kernel start programs of root's. */
	{ { "add_key", "request_key", "keyctl" }, EPERM },
	/* Of no use without capabilities, and wide open to attack. */
	{ { "bpf", "perf_event_open", "userfaultfd", "lookup_dcookie" }, EPERM },
	{ { "kexec_load", "kexec_file_load", "init_module", "finit_module",
	    "delete_module", "reboot", "iopl", "ioperm" },
	  EPERM },
	{ { "mount", "umount2", "pivot_root", "move_mount", "open_tree", "fsopen",
	    "fsmount", "fspick", "fsconfig", "mount_setattr" },
	  EPERM },
	{ { "open_by_handle_at", "acct", "swapon", "swapoff", "quotactl", "quotactl_fd" },
	  EPERM },
	/* A user namespace gives capabilities, and with them the parts of the kernel
	 * that need some. */
	{ { "setns" }, EPERM },
	{ { "unshare", "clone" }, EPERM, { HAS(0, CLONE_NEWUSER) } },
	/* A copy of a subvolume has what is hidden, as files of its own. By its number a
	 * subvolume is removed wherever it lies, and by its name with all that is in it,
	 * what is hidden or read-only as well. bcachefs has one call for a copy and for
	 * an empty subvolume, and no program needs another of its calls. */
	{ { "ioctl" }, EPERM, { IS(1, BTRFS_IOC_SNAP_CREATE) } },
	{ { "ioctl" }, EPERM, { IS(1, BTRFS_IOC_SNAP_CREATE_V2) } },
	{ { "ioctl" }, EPERM, { IS(1, BTRFS_IOC_SNAP_DESTROY) } },
	{ { "ioctl" }, EPERM, { IS(1, BTRFS_IOC_SNAP_DESTROY_V2) } },
	{ { "ioctl" },
	  EPERM,
	  { SCMP_CMP(1, SCMP_CMP_MASKED_EQ, IOCTL_TYPE_BITS, BCACHEFS_TYPE) } },
	/* Put characters into the terminal as if they had been typed. */
	{ { "ioctl" }, EPERM, { IS(1, TIOCSTI) } },
	{ { "ioctl" }, EPERM, { IS(1, TIOCLINUX_CALL) } },
	/* Leaves the terminal with another driver between it and who types. */
	{ { "ioctl" }, EPERM, { IS(1, TIOCSETD) } },
	/* Leave a virtual console without a keyboard, a screen, or the keys that switch
	 * to another one. */
	{ { "ioctl" },
	  EPERM,
	  { SCMP_CMP(1, SCMP_CMP_MASKED_EQ, IOCTL_ALL_BUT_NUMBER, KEYBOARD_TYPE) } },
	{ { "ioctl" },
	  EPERM,
	  { SCMP_CMP(1, SCMP_CMP_MASKED_EQ, IOCTL_ALL_BUT_NUMBER, CONSOLE_TYPE) } },
	/* Keep others from writing to the terminal, Weir's report too, or from opening
	 * it, and no key ends either. */
	{ { "ioctl" }, EPERM, { IS(1, TCXONC), IS(2, TCOOFF) } },
	{ { "ioctl" }, EPERM, { IS(1, TIOCEXCL) } },
	/* The limit is 1, which alone keeps the kernel from starting the machine's
	 * handler of crashes. Programs that set it want no core, and get none. */
	{ { "setrlimit" }, PRETEND, { IS(0, RLIMIT_CORE) } },
	{ { "prlimit64" }, PRETEND, { IS(1, RLIMIT_CORE), SCMP_CMP(2, SCMP_CMP_NE, 0) } },
	/* Act on the caller's process group, or on any process of the user's where the
	 * command runs on the host. One process can be named: so are a program's own
	 * threads, by numbers that can't be judged. */
	{ { "setpriority" }, EPERM, { IS(0, PRIO_PGRP) } },
	{ { "setpriority" }, EPERM, { IS(0, PRIO_USER) } },
	{ { "ioprio_set" }, EPERM, { IS(0, IOPRIO_WHO_PGRP) } },
	{ { "ioprio_set" }, EPERM, { IS(0, IOPRIO_WHO_USER) } },
	{ { "prlimit64" },
	  EPERM,
	  { SCMP_CMP(0, SCMP_CMP_NE, 0), SCMP_CMP(2, SCMP_CMP_NE, 0) } },
	/* Send past the routes: to a neighbour on a link who says that an allowed
	 * address is his. */
	{ { "setsockopt" }, EPERM, { IS(1, SOL_SOCKET), IS(2, SO_BINDTODEVICE) } },
	{ { "setsockopt" }, EPERM, { IS(1, SOL_SOCKET), IS(2, SO_BINDTOIFINDEX) } },
	{ { "setsockopt" }, EPERM, { IS(1, SOL_SOCKET), IS(2, SO_DONTROUTE) } },
	{ { "send", "sendmsg" }, EPERM, { HAS(2, MSG_DONTROUTE) } },
	{ { "sendto", "sendmmsg" }, EPERM, { HAS(3, MSG_DONTROUTE) } },
	/* Of sockets that share a port, a program says which one gets a packet. The rules
	 * look one up to know whose listener it is, and the kernel looks again: a program
	 * that says something else each time has the packet go to a listener of the host.
	 */
	{ { "setsockopt" },
	  ENOPROTOOPT,
	  { IS(1, SOL_SOCKET), IS(2, SO_ATTACH_REUSEPORT_CBPF) } },
	{ { "setsockopt" },
	  ENOPROTOOPT,
	  { IS(1, SOL_SOCKET), IS(2, SO_ATTACH_REUSEPORT_EBPF) } },
	/* Makes a TCP socket one of SMC, which sends from a socket of the kernel's own.
	 * ENOENT is what a kernel says that lacks what is asked for (TLS, mostly). */
	{ { "setsockopt" }, ENOENT, { IS(1, IPPROTO_TCP), IS(2, TCP_ULP) } },
	/* Standard streams that are unix sockets take no descriptors: see std_fds.c.
	 * ENOPROTOOPT is what kernels before 6.16 say. */
	{ { "setsockopt" }, ENOPROTOOPT, { IS(1, SOL_SOCKET), IS(2, SO_PASSRIGHTS) } },
	/* No kernel makes any but these. */
	{ { "socketpair" }, EOPNOTSUPP, { SCMP_CMP(0, SCMP_CMP_NE, AF_UNIX) } },
	/* Of netlink what getaddrinfo() and getifaddrs() ask. */
	{ { "socket" },
	  EPROTONOSUPPORT,
	  { IS(0, AF_NETLINK), SCMP_CMP(2, SCMP_CMP_NE, NETLINK_ROUTE) } },
};

static int refuse_calls(scmp_filter_ctx ctx, const struct refusal *row)
{
	unsigned int count = 0;
	int r = 0;

	while (count < CONDITIONS_MAX && row->when[count].op != 0)
		count++;
	for (size_t i = 0; row->calls[i] && r == 0; i++) {
		int nr = seccomp_syscall_resolve_name(row->calls[i]);

		if (nr == __NR_SCMP_ERROR) {
			fprintf(stderr, "this libseccomp doesn't know %s()\n",
				row->calls[i]);
			return -ENOSYS;
		}
		r = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(row->error), nr, count,
					   row->when);
		/* A call that this architecture lacks is skipped. */
		if (r == -EDOM)
			r = 0;
	}
	return r;
}

/* The machine runs programs of these too. x32 is not among them: a call with its bit
 * set is of no known architecture, and refused. 0: there is none. */
static uint32_t other_arch(uint32_t native)
{
	return native == SCMP_ARCH_X86_64    ? SCMP_ARCH_X86
	       : native == SCMP_ARCH_AARCH64 ? SCMP_ARCH_ARM
					     : 0;
}

/* ---- sockets ---- */

/* The numbers that one argument of socket() may have. */
struct choice {
	unsigned int family; /* 0: whatever it is */
	unsigned int arg;
	uint32_t bits; /* the part of the argument that counts */
	int error;
	size_t count;
	unsigned int allowed[4];
};

/* The other protocols send from sockets that the kernel makes by itself, and that have no
 * user: SMC its TCP connections, MPTCP further ones, wherever the server says, SCTP its
 * first answers. L2TP and UDP-Lite are tunnels and leftovers. Each is as on a kernel that
 * lacks it, and programs go on with TCP. ICMP is that of ping, where the machine lets
 * ordinary users send it. */
static const struct choice choices[] = {
	{ .arg = 0,
	  .bits = UINT32_MAX,
	  .error = EAFNOSUPPORT,
	  .count = 4,
	  .allowed = { AF_UNIX, AF_INET, AF_INET6, AF_NETLINK } },
	{ .family = AF_INET,
	  .arg = 2,
	  .bits = UINT32_MAX,
	  .error = EPROTONOSUPPORT,
	  .count = 4,
	  .allowed = { IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP } },
	{ .family = AF_INET6,
	  .arg = 2,
	  .bits = UINT32_MAX,
	  .error = EPROTONOSUPPORT,
	  .count = 4,
	  .allowed = { IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6 } },
	{ .family = AF_INET,
	  .arg = 1,
	  .bits = SOCK_TYPE_BITS,
	  .error = EPERM,
	  .count = 2,
	  .allowed = { SOCK_STREAM, SOCK_DGRAM } },
	{ .family = AF_INET6,
	  .arg = 1,
	  .bits = SOCK_TYPE_BITS,
	  .error = EPERM,
	  .count = 2,
	  .allowed = { SOCK_STREAM, SOCK_DGRAM } },
};

enum { CODE_MAX = 96 };

/* Instructions in front of those of libseccomp, which takes one condition for each
 * argument and would need a hundred for one choice. */
struct code {
	uint32_t arch; /* the machine's own */
	struct sock_filter at[CODE_MAX];
	size_t count;
};

static void add_code(struct code *c, uint16_t code, uint32_t k, size_t yes, size_t no)
{
	if (c->count < CODE_MAX)
		c->at[c->count] =
			(struct sock_filter){ code, (uint8_t)yes, (uint8_t)no, k };
	c->count++;
}

static void put_load(struct code *c, size_t offset)
{
	add_code(c, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void put_equal(struct code *c, uint32_t value, size_t yes, size_t no)
{
	add_code(c, BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
}

/* The low half of an argument, which is what the kernel reads of an int. */
static void put_load_arg(struct code *c, unsigned int arg)
{
	const bool is_little = c->arch & __AUDIT_ARCH_LE;

	put_load(c, offsetof(struct seccomp_data, args[arg]) + (is_little ? 0 : 4));
}

/* Is it socket() of @arch? Then past @yes instructions. Return: 0, or -ENOSYS. */
static int put_call(struct code *code, uint32_t arch, size_t yes)
{
	enum { OF_X86 = 359 };
	/* libseccomp has a number of its own for a call that 32-bit x86 had as
	 * socketcall() alone once, and that is refused. */
	const int found = arch == SCMP_ARCH_X86
				  ? OF_X86
				  : seccomp_syscall_resolve_name_arch(arch, "socket");
	char *name = seccomp_syscall_resolve_num_arch(arch, found);
	const int nr = found >= 0 && name && strcmp(name, "socket") == 0 ? found : -1;

	free(name);
	put_load(code, offsetof(struct seccomp_data, arch));
	put_equal(code, arch, 0, 2);
	put_load(code, offsetof(struct seccomp_data, nr));
	put_equal(code, (uint32_t)nr, yes, 0);
	return nr < 0 ? -ENOSYS : 0;
}

/* On all architectures alike, of which the kernel knows the first two of a machine. */
static int refuse_sockets(int fd, const char *name)
{
	const uint32_t native = seccomp_arch_resolve_name(name),
		       other = other_arch(native);
	struct code choice = { .arch = native }, code = { .arch = native };
	size_t size;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		const struct choice *c = &choices[i];
		const bool is_part = c->bits != UINT32_MAX;

		if (c->family != 0) {
			put_load_arg(&choice, 0);
			put_equal(&choice, c->family, 0, c->count + 2 + is_part);
		}
		put_load_arg(&choice, c->arg);
		if (is_part)
			add_code(&choice, BPF_ALU | BPF_AND | BPF_K, c->bits, 0, 0);
		for (size_t j = 0; j < c->count; j++)
			put_equal(&choice, c->allowed[j], c->count - j, 0);
		add_code(&choice, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)c->error,
			 0, 0);
	}
	r = put_call(&code, native, other ? 5 : 1);
	if (r == 0 && other)
		r = put_call(&code, other, 1);
	if (r < 0)
		return r;
	add_code(&code, BPF_JMP | BPF_JA, (uint32_t)choice.count, 0, 0);
	if (choice.count > CODE_MAX || code.count > CODE_MAX)
		return -E2BIG;
	size = code.count * sizeof(code.at[0]);
	if (write(fd, code.at, size) != (ssize_t)size)
		return -EIO;
	size = choice.count * sizeof(choice.at[0]);
	return write(fd, choice.at, size) == (ssize_t)size ? 0 : -EIO;
}

/* ---- set-uid files ---- */

/* The kernel user that the command has owns what it makes in a writable directory, and
 * outside of the sandbox whoever starts such a file gets that user's rights. A directory
 * gets neither bit by mkdir(), but for what its parent hands on. */
static const struct {
	const char *call;
	unsigned int mode; /* which argument; its flags, if any, come before it */
	bool has_flags;	   /* the mode counts when they say that a file is made */
} mode_calls[] = {
	{ "chmod", 1 },	  { "fchmod", 1 }, { "fchmodat", 2 },	{ "mknod", 1 },
	{ "mknodat", 2 }, { "creat", 1 },  { "open", 2, true }, { "openat", 3, true },
};

static int refuse_mode(scmp_filter_ctx ctx, size_t n, unsigned int bit)
{
	static const unsigned int makes[] = { O_CREAT, O_TMPFILE & ~O_DIRECTORY };
	const unsigned int mode = mode_calls[n].mode;
	struct refusal row = { { mode_calls[n].call }, EPERM, { HAS(mode, bit) } };
	int r = 0;

	if (!mode_calls[n].has_flags)
		return refuse_calls(ctx, &row);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(makes); i++) {
		row.when[1] = HAS(mode - 1, makes[i]);
		r = refuse_calls(ctx, &row);
	}
	return r;
}

/* ---- the whole ---- */

/* What is younger than this list doesn't exist: nobody has looked at what it can do.
 * These numbers are the same on all architectures, and libseccomp may know none of them,
 * so that they come before what it makes. fchmodat2() is fchmodat(), which is judged;
 * 32-bit ARM has calls of its own from 0xf0000 on. */
static int refuse_new_calls(int fd)
{
	enum { FCHMODAT2 = 452, FIRST_UNKNOWN = 463, FIRST_OF_ARM = 0xf0000 };
	static const struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FCHMODAT2, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_UNKNOWN, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_OF_ARM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};

	return write(fd, code, sizeof(code)) == (ssize_t)sizeof(code) ? 0 : -EIO;
}

int main(int argc, char **argv)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	uint32_t other;
	int r;

	if (argc != 2 || !ctx)
		return EXIT_FAILURE;
	/* As a tree: the kernel tries the filter on every call there is when it is
	 * loaded. */
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH,
				     SCMP_ACT_ERRNO(ENOSYS));
	if (r == 0)
		r = seccomp_build_for(ctx, argv[1]);
	other = other_arch(seccomp_arch_resolve_name(argv[1]));
	if (r == 0 && other)
		r = seccomp_arch_add(ctx, other);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(refusals); i++)
		r = refuse_calls(ctx, &refusals[i]);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(mode_calls); i++) {
		r = refuse_mode(ctx, i, S_ISUID);
		if (r == 0)
			r = refuse_mode(ctx, i, S_ISGID);
	}
	if (r == 0)
		r = refuse_new_calls(STDOUT_FILENO);
	if (r == 0)
		r = refuse_sockets(STDOUT_FILENO, argv[1]);
	if (r == 0)
		r = seccomp_export_bpf(ctx, STDOUT_FILENO);
	seccomp_release(ctx);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
