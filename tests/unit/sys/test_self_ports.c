// SPDX-License-Identifier: Apache-2.0
/* In a network namespace of its own: SO_MARK wants a right over it. */
#include "sys/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "unit.h"

enum { MARK = 0x77 };

/* What the filter was told. */
static struct {
	int holds, let_gos, fails;
	enum addr_family family;
	uint8_t protocol;
	uint16_t port;
	bool still_bound; /* when it was told of the end */
} filter;

static int socket_of(enum addr_family family, uint8_t protocol)
{
	int fd = socket(family == ADDR_V6 ? AF_INET6 : AF_INET,
			(protocol == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM) |
				SOCK_CLOEXEC,
			protocol);

	assert_true(fd >= 0);
	return fd;
}

TEST(a_socket_is_of_one_family_and_protocol)
{
	static const enum addr_family families[] = { ADDR_V4, ADDR_V6 };
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
	CLEAN(fd) int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CLEAN(fd) int channel = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	for (size_t i = 0; i < 4; i++) {
		CLEAN(fd) int fd = socket_of(families[i / 2], protocols[i % 2]);

		for (size_t k = 0; k < 4; k++)
			assert_int_equal(
				sock_is_of(fd, families[k / 2], protocols[k % 2]),
				i == k);
	}
	assert_false(sock_is_of(file, ADDR_V4, IPPROTO_UDP));
	assert_false(sock_is_of(channel, ADDR_V4, IPPROTO_UDP));
	assert_false(sock_is_of(-1, ADDR_V4, IPPROTO_UDP));
}

/* A connection that is under way at once stays so: the queue of who listens is full. */
TEST(a_call_on_a_socket_that_waits_is_short_where_the_wait_is_limited)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CLEAN(fd) int listener = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int first = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int second = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int third = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int datagrams = socket_of(ADDR_V4, IPPROTO_UDP);
	const struct sockaddr *to = (const struct sockaddr *)&at;
	socklen_t size = sizeof(at);
	char byte;

	assert_int_equal(bind(listener, to, size), 0);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
	assert_int_equal(connect(first, to, size), 0);
	assert_int_equal(sock_limit_wait(second), 0);
	assert_int_equal(sock_limit_wait(third), 0);
	(void)!connect(second, to, size);
	assert_int_equal(connect(third, to, size), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(sock_limit_wait(datagrams), 0);
	assert_int_equal(recv(datagrams, &byte, 1, 0), -1);
	assert_int_equal(errno, EAGAIN);
	assert_true(sock_limit_wait(-1) < 0);
}

TEST(a_connection_that_is_reset_is_so_before_its_socket_is_closed)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CLEAN(fd) int listener = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int fd = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int other = -1;
	const struct sockaddr *to = (const struct sockaddr *)&at;
	socklen_t size = sizeof(at);
	char byte;

	assert_int_equal(bind(listener, to, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
	assert_int_equal(connect(fd, to, size), 0);
	other = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(other >= 0);
	sock_reset(fd);
	assert_int_equal(recv(other, &byte, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	sock_reset(fd);
	sock_reset(-1);
}

TEST(no_call_on_a_sandboxs_sockets_waits)
{
	struct sandbox_fds fds;

	sandbox_fds_init(&fds);
	assert_int_equal(sandbox_fds_dont_wait(&fds), 0);
	fds.fd[SANDBOX_FD_DNS_TCP4] = socket_of(ADDR_V4, IPPROTO_TCP);
	fds.fd[SANDBOX_FD_RELAY6] = socket_of(ADDR_V6, IPPROTO_TCP);
	assert_int_equal(sandbox_fds_dont_wait(&fds), 0);
	assert_true(fcntl(fds.fd[SANDBOX_FD_DNS_TCP4], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fds.fd[SANDBOX_FD_RELAY6], F_GETFL) & O_NONBLOCK);
	sandbox_fds_done(&fds);
}

/* Try everything that lets sockets share a port. */
static bool can_bind(enum addr_family family, uint8_t protocol, uint16_t port, int share)
{
	CLEAN(fd) int fd = socket_of(family, protocol);
	struct endpoint e = { .port = port };
	struct sockaddr_storage sa;
	socklen_t size;
	int on = 1;

	e.addr = family == ADDR_V6
			 ? addr_from_bytes(ADDR_V6, (const uint8_t[16]){ [15] = 1 })
			 : addr_v4(127, 0, 0, 1);
	size = endpoint_to_sockaddr(&e, &sa);
	if (share > 0)
		assert_int_equal(
			setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	if (share > 1)
		assert_int_equal(
			setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
	return bind(fd, (struct sockaddr *)&sa, size) == 0;
}

static bool anybody_can_bind(enum addr_family family, uint8_t protocol, uint16_t port)
{
	bool can = false;

	for (int share = 0; share < 3; share++)
		can = can_bind(family, protocol, port, share) || can;
	return can;
}

static int on_hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	filter.holds++;
	filter.family = family;
	filter.protocol = protocol;
	filter.port = port;
	return filter.fails;
}

static void on_let_go(void *data, enum addr_family family, uint8_t protocol,
		      uint16_t port)
{
	filter.let_gos++;
	assert_int_equal(filter.family, family);
	assert_int_equal(filter.protocol, protocol);
	assert_int_equal(filter.port, port);
	filter.still_bound = !anybody_can_bind(family, protocol, port);
}

static const struct own_ports ports = {
	.mark = MARK,
	.hold = on_hold,
	.let_go = on_let_go,
};

static int setup(void **state)
{
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	CLEAN(fd) int fd = -1;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return 1;
	fd = socket_of(ADDR_V4, IPPROTO_UDP);
	return ioctl(fd, SIOCSIFFLAGS, &up);
}

static int reset(void **state)
{
	memset(&filter, 0, sizeof(filter));
	return 0;
}

static const struct {
	const char *what;
	enum addr_family family;
	uint8_t protocol;
} kinds[] = {
	{ "TCP", ADDR_V4, IPPROTO_TCP },
	{ "UDP", ADDR_V4, IPPROTO_UDP },
	{ "TCP over IPv6", ADDR_V6, IPPROTO_TCP },
	{ "UDP over IPv6", ADDR_V6, IPPROTO_UDP },
};

TEST_WITH(a_port_that_is_held_is_nobody_elses, reset, NULL)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int fd = socket_of(kinds[i].family, kinds[i].protocol);
		uint32_t mark = 0;
		socklen_t size = sizeof(mark);
		int port;

		print_message("%s\n", kinds[i].what);
		reset(NULL);
		port = own_hold(&ports, fd, kinds[i].family, kinds[i].protocol);
		assert_in_range(port, 1024, 65535);
		assert_int_equal(filter.port, port);
		assert_int_equal(filter.family, kinds[i].family);
		assert_int_equal(filter.protocol, kinds[i].protocol);
		assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_MARK, &mark, &size), 0);
		assert_int_equal(mark, MARK);
		assert_false(anybody_can_bind(kinds[i].family, kinds[i].protocol,
					      filter.port));
		own_let_go(&ports, fd, kinds[i].family, kinds[i].protocol, filter.port);
		assert_int_equal(filter.let_gos, 1);
		assert_true(filter.still_bound);
		close(fd);
		assert_true(anybody_can_bind(kinds[i].family, kinds[i].protocol,
					     filter.port));
	}
}

static int connect_to(int fd, enum addr_family family, uint16_t port)
{
	struct endpoint e = { .port = port };
	struct sockaddr_storage sa;
	socklen_t size;

	e.addr = family == ADDR_V6
			 ? addr_from_bytes(ADDR_V6, (const uint8_t[16]){ [15] = 1 })
			 : addr_v4(127, 0, 0, 1);
	size = endpoint_to_sockaddr(&e, &sa);
	return connect(fd, (struct sockaddr *)&sa, size) < 0 ? -errno : 0;
}

/* The kernel takes a port that it chose itself back when the connection is over. */
TEST_WITH(a_refused_connection_keeps_its_port, reset, NULL)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		int fd = socket_of(kinds[i].family, kinds[i].protocol);
		struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
		int port = own_hold(&ports, fd, kinds[i].family, kinds[i].protocol);

		print_message("%s\n", kinds[i].what);
		assert_true(port > 0);
		assert_int_equal(connect_to(fd, kinds[i].family, 1),
				 kinds[i].protocol == IPPROTO_TCP ? -ECONNREFUSED : 0);
		assert_false(anybody_can_bind(kinds[i].family, kinds[i].protocol,
					      (uint16_t)port));
		assert_int_equal(connect(fd, &nowhere, sizeof(nowhere)), 0);
		assert_false(anybody_can_bind(kinds[i].family, kinds[i].protocol,
					      (uint16_t)port));
		close(fd);
	}
}

TEST_WITH(the_end_of_a_connection_is_said_before_the_port_is_let_go, reset, NULL)
{
	CLEAN(fd) int listener = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int fd = socket_of(ADDR_V4, IPPROTO_TCP);
	CLEAN(fd) int peer = -1;
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);
	char byte;
	int port;

	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&sa, &size), 0);
	port = own_hold(&ports, fd, ADDR_V4, IPPROTO_TCP);
	assert_true(port > 0);
	assert_int_equal(connect_to(fd, ADDR_V4, endpoint_from_sockaddr(&sa).port), 0);
	peer = accept(listener, NULL, NULL);
	assert_true(peer >= 0);
	own_let_go(&ports, fd, ADDR_V4, IPPROTO_TCP, (uint16_t)port);
	assert_int_equal(recv(peer, &byte, 1, 0), 0);
	assert_true(filter.still_bound);
}

TEST_WITH(without_a_mark_nothing_is_held, reset, NULL)
{
	const struct own_ports none = { 0 };
	CLEAN(fd) int fd = socket_of(ADDR_V4, IPPROTO_TCP);
	struct sockaddr_storage sa = { 0 };
	socklen_t size = sizeof(sa);

	assert_int_equal(own_hold(&none, fd, ADDR_V4, IPPROTO_TCP), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &size), 0);
	assert_int_equal(endpoint_from_sockaddr(&sa).port, 0);
	own_let_go(&none, fd, ADDR_V4, IPPROTO_TCP, 0);
	assert_int_equal(filter.holds + filter.let_gos, 0);
}

TEST_WITH(a_filter_that_says_no_fails_the_socket, reset, NULL)
{
	CLEAN(fd) int fd = socket_of(ADDR_V4, IPPROTO_TCP);

	filter.fails = -ENOSPC;
	assert_int_equal(own_hold(&ports, fd, ADDR_V4, IPPROTO_TCP), -ENOSPC);
	assert_int_equal(filter.let_gos, 0);
}

TEST_WITH(what_is_neither_tcp_nor_udp_is_refused, reset, NULL)
{
	CLEAN(fd) int fd = socket_of(ADDR_V4, IPPROTO_TCP);

	assert_int_equal(own_hold(&ports, fd, ADDR_V4, IPPROTO_SCTP), -EINVAL);
	assert_int_equal(own_hold(&ports, fd, ADDR_NONE, IPPROTO_TCP), -EINVAL);
	assert_int_equal(filter.holds, 0);
}

int main(void)
{
	if (setup(NULL) != 0)
		return 77; /* no network namespace to be had */
	return unit_run(NULL, NULL);
}
