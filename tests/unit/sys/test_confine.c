// SPDX-License-Identifier: Apache-2.0
/* What Weir's programs may not call, tried by children that are confined as they are. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/confine.h"

enum { IPTABLES_REPLACE = 64 }; /* IPT_SO_SET_REPLACE, whose header excludes netinet's */

/* A call, with signal 0 and arguments that change nothing: only whether the call is
 * refused counts. */
struct call {
	const char *what;
	long number, arguments[4];
};

/* All of @calls are to be refused, or none is. Return: the first that is otherwise, from
 * 1 on; 0: there is none; -1: not confined. */
static int first_other(enum confine_program program, const struct call *calls,
		       size_t count, bool refused)
{
	struct err err;

	if (confine_self(&err) < 0 || confine_calls(program, &err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		const long *a = calls[i].arguments;
		const long r = syscall(calls[i].number, a[0], a[1], a[2], a[3], 0);

		if ((r == -1 && errno == EPERM) != refused)
			return (int)i + 1;
	}
	/* The C library makes threads by clone() where there is no clone3(). */
	if ((program == CONFINE_POSTGRES || program == CONFINE_CONTROL) &&
	    (syscall(SYS_clone3, NULL, 0) != -1 || errno != ENOSYS))
		return -1;
	return 0;
}

static void check(enum confine_program program, const struct call *calls, size_t count,
		  bool refused)
{
	pid_t child;
	size_t which;
	int status;

	if (!confine_has_calls())
		skip();
	child = fork();
	/* AddressSanitizer asks for the stack of signals before _exit(). */
	if (child == 0)
		syscall(SYS_exit_group, first_other(program, calls, count, refused));
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	which = (size_t)WEXITSTATUS(status);
	if (which > 0 && which <= count)
		print_message("%srefused: %s\n", refused ? "not " : "",
			      calls[which - 1].what);
	assert_int_equal(which, 0);
}

/* A daemon's processes are root's. They have no capability, but every other process of
 * root's has the same user. */
TEST(no_program_reaches_another_process)
{
	static const struct call calls[] = {
		{ "kill", SYS_kill, { 1, 0 } },
		{ "tgkill", SYS_tgkill, { 1, 1, 0 } },
		{ "rt_sigqueueinfo", SYS_rt_sigqueueinfo, { 1, 0, 0 } },
		{ "rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, { 1, 1, 0, 0 } },
		{ "another's limits", SYS_prlimit64, { 1, RLIMIT_CPU, 0, 0 } },
		{ "another's priority", SYS_setpriority, { PRIO_PROCESS, 1, 0 } },
		{ "another's processors", SYS_sched_setaffinity, { 1, 0, 0 } },
		{ "another's scheduler", SYS_sched_setscheduler, { 1, 0, 0 } },
		{ "signals by a socket", SYS_fcntl, { -1, F_SETOWN, 1 } },
		{ "the same, of one thread", SYS_fcntl, { -1, F_SETOWN_EX, 0 } },
		{ "the same by ioctl", SYS_ioctl, { -1, FIOSETOWN, 0 } },
		{ "the same by its other name", SYS_ioctl, { -1, SIOCSPGRP, 0 } },
		{ "a file that others wait for", SYS_fcntl, { -1, F_SETLEASE, F_WRLCK } },
		{ "a user namespace", SYS_unshare, { CLONE_NEWUSER } },
	};

	for (int program = 0; program < CONFINE_PROGRAM_COUNT; program++)
		check((enum confine_program)program, calls, ARRAY_SIZE(calls), true);
}

TEST(weir_postgres_makes_no_namespace_for_a_child)
{
	static const struct call calls[] = {
		/* A parent of its own outside of a namespace that is new: EINVAL if it
		 * isn't refused. */
		{ "a child's user namespace",
		  SYS_clone,
		  { CLONE_NEWUSER | CLONE_FS, 0 } },
	};

	check(CONFINE_POSTGRES, calls, ARRAY_SIZE(calls), true);
}

TEST(weir_postgres_has_what_libpq_needs)
{
	static const struct call calls[] = {
		{ "its own limits", SYS_prlimit64, { 0, RLIMIT_NOFILE, 0, 0 } },
		{ "flags of a descriptor", SYS_fcntl, { 0, F_GETFD } },
	};

	check(CONFINE_POSTGRES, calls, ARRAY_SIZE(calls), false);
}

TEST(control_has_what_its_libraries_need)
{
	static const struct call calls[] = {
		{ "its own limits", SYS_prlimit64, { 0, RLIMIT_NOFILE, 0, 0 } },
		{ "flags of a descriptor", SYS_fcntl, { -1, F_GETFD } },
		{ "flags of a descriptor", SYS_fcntl, { -1, F_SETFD, FD_CLOEXEC } },
		{ "flags of a socket", SYS_fcntl, { -1, F_GETFL } },
		{ "flags of a socket", SYS_fcntl, { -1, F_SETFL, O_NONBLOCK } },
		{ "a descriptor twice", SYS_fcntl, { -1, F_DUPFD_CLOEXEC, 0 } },
		{ "a lock", SYS_fcntl, { -1, F_SETLK, 0 } },
		{ "who has a lock", SYS_fcntl, { -1, F_GETLK, 0 } },
		{ "a plan's seals", SYS_fcntl, { -1, F_ADD_SEALS, F_SEAL_WRITE } },
		{ "a plan's seals", SYS_fcntl, { -1, F_GET_SEALS } },
		{ "an answer at once", SYS_setsockopt, { -1, IPPROTO_TCP, TCP_NODELAY } },
	};

	check(CONFINE_CONTROL, calls, ARRAY_SIZE(calls), false);
}

/* Its sockets outlive it: the next engine serves the same ones. */
TEST(the_engine_sets_nothing_on_a_socket_that_it_does_not_need)
{
	static const struct call calls[] = {
		{ "what hides answers of netlink",
		  SYS_setsockopt,
		  { -1, SOL_SOCKET, SO_ATTACH_FILTER } },
		{ "the same, as a program",
		  SYS_setsockopt,
		  { -1, SOL_SOCKET, SO_ATTACH_BPF } },
		{ "that it stays", SYS_setsockopt, { -1, SOL_SOCKET, SO_LOCK_FILTER } },
		{ "the machine's iptables",
		  SYS_setsockopt,
		  { -1, IPPROTO_IP, IPTABLES_REPLACE } },
		{ "the same of IPv6",
		  SYS_setsockopt,
		  { -1, IPPROTO_IPV6, IPTABLES_REPLACE } },
		{ "another's address",
		  SYS_setsockopt,
		  { -1, IPPROTO_IP, IP_TRANSPARENT } },
		{ "a link", SYS_setsockopt, { -1, SOL_SOCKET, SO_BINDTODEVICE } },
		{ "how long another's close() waits",
		  SYS_setsockopt,
		  { -1, SOL_SOCKET, SO_LINGER } },
		{ "a port that others have",
		  SYS_setsockopt,
		  { -1, SOL_SOCKET, SO_REUSEPORT } },
		{ "what others hear",
		  SYS_setsockopt,
		  { -1, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP } },
		{ "a connection without a handshake",
		  SYS_setsockopt,
		  { -1, IPPROTO_TCP, TCP_REPAIR } },
	};

	check(CONFINE_ENGINE, calls, ARRAY_SIZE(calls), true);
}

TEST(the_engine_sets_what_it_needs)
{
	static const struct call calls[] = {
		{ "keepalive", SYS_setsockopt, { -1, SOL_SOCKET, SO_KEEPALIVE } },
		{ "idle", SYS_setsockopt, { -1, IPPROTO_TCP, TCP_KEEPIDLE } },
		{ "interval", SYS_setsockopt, { -1, IPPROTO_TCP, TCP_KEEPINTVL } },
		{ "probes", SYS_setsockopt, { -1, IPPROTO_TCP, TCP_KEEPCNT } },
		{ "no delay", SYS_setsockopt, { -1, IPPROTO_TCP, TCP_NODELAY } },
		{ "urgent", SYS_setsockopt, { -1, SOL_SOCKET, SO_OOBINLINE } },
		{ "one family", SYS_setsockopt, { -1, IPPROTO_IPV6, IPV6_V6ONLY } },
		{ "mark", SYS_setsockopt, { -1, SOL_SOCKET, SO_MARK } },
		{ "send buffer", SYS_setsockopt, { -1, SOL_SOCKET, SO_SNDBUF } },
		{ "more of it", SYS_setsockopt, { -1, SOL_SOCKET, SO_SNDBUFFORCE } },
		{ "receive buffer", SYS_setsockopt, { -1, SOL_SOCKET, SO_RCVBUF } },
		{ "short errors", SYS_setsockopt, { -1, SOL_NETLINK, NETLINK_CAP_ACK } },
	};

	check(CONFINE_ENGINE, calls, ARRAY_SIZE(calls), false);
}
