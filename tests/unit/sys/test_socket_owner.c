// SPDX-License-Identifier: Apache-2.0
/* Real processes with real sockets, in the network namespace that the test is in. */
#include "sys/netlink.h"
#include "sys/socket_owner.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "unit.h"

enum { PATIENCE_MS = 60 * 1000 };

/* Somebody who has a socket, until he is let go. */
struct holder {
	pid_t pid;
	int hold; /* its end lets him go */
	uint16_t port;
};

static int udp_open(struct sockaddr_in *ret)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htobe32(INADDR_LOOPBACK) };
	socklen_t size = sizeof(*ret);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_return_code(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), errno);
	assert_return_code(getsockname(fd, (struct sockaddr *)ret, &size), errno);
	return fd;
}

/* A child named @name. With @fd it inherits that one; else it opens one. */
static struct holder hold(const char *name, int fd)
{
	int life[2], told[2];
	struct holder h = { 0 };
	struct sockaddr_in sa = { 0 };
	char c;

	assert_return_code(pipe2(life, O_CLOEXEC), errno);
	assert_return_code(pipe2(told, O_CLOEXEC), errno);
	h.pid = fork();
	if (h.pid == 0) {
		close(life[1]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		if (fd < 0)
			fd = udp_open(&sa);
		(void)!write(told[1], &sa.sin_port, sizeof(sa.sin_port));
		(void)!read(life[0], &c, 1);
		_exit(0);
	}
	assert_return_code(h.pid, errno);
	close(life[0]);
	close(told[1]);
	assert_int_equal(read(told[0], &h.port, sizeof(h.port)), sizeof(h.port));
	close(told[0]);
	h.port = be16toh(h.port);
	h.hold = life[1];
	return h;
}

static void let_go(const struct holder *h)
{
	close(h->hold);
	kill(h->pid, SIGKILL); /* others may have inherited the end */
	assert_int_equal(waitpid(h->pid, NULL, 0), h->pid);
}

static int find(uint16_t port, int64_t age_ms, struct owner *ret)
{
	char network[OWNER_NETWORK_SIZE];
	struct owner_question q = { .among = OWNER_NETWORK,
				    .protocol = IPPROTO_UDP,
				    .from = { addr_v4(127, 0, 0, 1), port },
				    .age_ms = age_ms,
				    .until_ms = clock_now_ms() + PATIENCE_MS,
				    .network = network };
	CLEAN(fd) int diag = nl_diag_open();

	assert_true(diag >= 0);
	assert_true(owner_network(NULL, network));
	return owner_find(diag, &q, ret);
}

TEST(it_is_found_by_its_socket)
{
	struct holder a = hold("first", -1), b = hold("second", -1);
	struct owner o = { 0 };

	assert_int_equal(find(a.port, 0, &o), 0);
	assert_int_equal(o.pid, a.pid);
	assert_int_equal(o.uid, geteuid());
	assert_string_equal(o.command, "first (test_sys_socket_owner)");
	assert_int_equal(find(b.port, 0, &o), 0);
	assert_int_equal(o.pid, b.pid);
	assert_string_equal(o.command, "second (test_sys_socket_owner)");
	let_go(&a);
	let_go(&b);
	assert_int_equal(find(a.port, 0, &o), -ENOENT);
}

TEST(of_several_that_have_it_none_is_named)
{
	struct sockaddr_in sa;
	int fd = udp_open(&sa);
	struct holder a = hold("heir", fd);
	struct owner o = { 0 };

	assert_int_equal(find(be16toh(sa.sin_port), 0, &o), -ENOTUNIQ);
	assert_int_equal(o.pid, 0);
	/* Its parent was there first, and may have sent it. */
	close(fd);
	assert_int_equal(find(be16toh(sa.sin_port), 1000000, &o), -ENOTUNIQ);
	assert_int_equal(find(be16toh(sa.sin_port), 0, &o), 0);
	assert_int_equal(o.pid, a.pid);
	let_go(&a);
}

TEST(hostile_names_are_tame)
{
	static const struct {
		const char *name, *shown;
	} rows[] = {
		{ "\x1b[31mred\x1b[0m", "??31mred??0m (test_sys_socket_owner)" },
		{ "a\nUid:\t7\t7", "a?Uid??7?7 (test_sys_socket_owner)" },
		{ "<b>x</b>", "?b?x??b? (test_sys_socket_owner)" },
		{ "npm. [o]=deny", "npm.??o??deny (test_sys_socket_owner)" },
		{ "g++_2-x", "g++_2-x (test_sys_socket_owner)" },
		{ "\xff\xc3z", "??z (test_sys_socket_owner)" },
		{ ") R 1 2 3", "??R?1?2?3 (test_sys_socket_owner)" },
		{ "123456789012345", "123456789012345 (test_sys_socket_owner)" },
		{ "test_sys_socket_owner", "test_sys_socket_owner" },
	};
	struct owner o;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct holder a = hold(rows[i].name, -1);

		assert_int_equal(find(a.port, 0, &o), 0);
		assert_string_equal(o.command, rows[i].shown);
		assert_int_equal(o.uid, geteuid());
		let_go(&a);
	}
}

TEST(a_socket_of_ipv6_sends_over_ipv4)
{
	struct sockaddr_in6 sa = { .sin6_family = AF_INET6 };
	socklen_t size = sizeof(sa);
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct owner o = { 0 };

	if (fd < 0)
		skip();
	assert_return_code(bind(fd, (struct sockaddr *)&sa, size), errno);
	assert_return_code(getsockname(fd, (struct sockaddr *)&sa, &size), errno);
	assert_int_equal(find(be16toh(sa.sin6_port), 0, &o), 0);
	assert_int_equal(o.pid, getpid());
	close(fd);
}

/* Where a lookup went at first is not known, but what a lookup is. */
TEST(a_socket_that_speaks_elsewhere_asked_nothing)
{
	struct sockaddr_in sa, to = { .sin_family = AF_INET,
				      .sin_addr.s_addr = htobe32(INADDR_LOOPBACK),
				      .sin_port = htobe16(9) };
	int fd = udp_open(&sa);
	struct owner o = { 0 };

	assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof(to)), errno);
	assert_int_equal(find(be16toh(sa.sin_port), 0, &o), -ENOENT);
	to.sin_port = htobe16(53);
	assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof(to)), errno);
	assert_int_equal(find(be16toh(sa.sin_port), 0, &o), 0);
	assert_int_equal(o.pid, getpid());
	close(fd);
}

TEST(what_cannot_be_meant_is_refused)
{
	struct owner_question q = { .among = OWNER_NETWORK,
				    .protocol = IPPROTO_TCP,
				    .from = { addr_v4(127, 0, 0, 1), 9 },
				    .until_ms = INT64_MAX,
				    .network = "net:[1]" };
	CLEAN(fd) int diag = nl_diag_open();
	struct owner o;

	assert_int_equal(owner_find(diag, &q, &o), -EINVAL); /* dialled nobody */
	q.protocol = IPPROTO_ICMP;
	assert_int_equal(owner_find(diag, &q, &o), -EINVAL);
	q.protocol = IPPROTO_UDP;
	q.from.port = 0;
	assert_int_equal(owner_find(diag, &q, &o), -EINVAL);
}
