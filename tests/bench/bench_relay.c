// SPDX-License-Identifier: Apache-2.0
/* The programs that tests/bench/bench_relay.py runs in its namespaces:
 *
 *   bench_relay relay NETNS ADDRESS   the relay alone; its listener is in NETNS, and the
 *                                     policy allows ADDRESS
 *   bench_relay echo ADDRESS PORT     one byte back for one byte, for any number
 *   bench_relay connect ADDRESS PORT COUNT
 *                                     µs from connect() to the first echoed byte, a line
 *                                     each */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "net/link.h"
#include "policy/policy.h"
#include "sandbox/learned.h"
#include "sandbox/relay.h"

enum { RELAY_PORT = 1021 };

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static struct endpoint endpoint_of(const char *addr, const char *port)
{
	struct endpoint e = { .port = (uint16_t)atoi(port) };

	if (!addr_parse(addr, strlen(addr), &e.addr))
		fprintf(stderr, "'%s' is not an address\n", addr);
	return e;
}

static int listen_on(const struct endpoint *e, int flags)
{
	int family = e->addr.family == ADDR_V4 ? AF_INET : AF_INET6, on = 1;
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(e, &sa);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&sa, size) < 0 || listen(fd, 512) < 0)
		return -1;
	return fd;
}

/* In the other namespace and back. */
static int listen_inside(const char *netns)
{
	struct endpoint e = { .addr = addr_v4(127, 0, 0, 1), .port = RELAY_PORT };
	int here = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	int there = open(netns, O_RDONLY | O_CLOEXEC);
	int fd;

	if (here < 0 || there < 0 || setns(there, CLONE_NEWNET) < 0)
		return -1;
	fd = listen_on(&e, SOCK_NONBLOCK);
	if (setns(here, CLONE_NEWNET) < 0)
		return -1;
	return fd;
}

static int make_plan(const char *addr, struct plan *ret)
{
	struct rule rule = { .action = POLICY_ALLOW,
			     .kind = TARGET_PREFIX,
			     .comment = "",
			     .file = "bench",
			     .target = addr };
	struct policy policy = { .rules = &rule, .count = 1, .capacity = 1 };
	struct err err = { 0 };
	uint8_t *bytes;
	size_t size;

	policy.limits[LIMIT_NEW_FLOWS_PER_SECOND] = UINT32_MAX;
	if (!prefix_parse(addr, strlen(addr), false, &rule.prefix) ||
	    policy_compile(&policy, &bytes, &size, &err) < 0 ||
	    plan_open(bytes, size, ret, &err) < 0) {
		fprintf(stderr, "no plan: %s\n", err.text);
		return -1;
	}
	return 0;
}

static int run_relay(const char *netns, const char *addr)
{
	struct sandbox s = { .state = SANDBOX_RUNNING, .relay = true };
	struct relay_config config = { .loop = loop_new(),
				       .route_fd = link_route_open() };
	const struct hash_key key = { 1, 2 };
	struct err err = { 0 };
	struct relay *r;

	sandbox_fds_init(&s.fds);
	s.fds.fd[SANDBOX_FD_RELAY4] = listen_inside(netns);
	if (s.fds.fd[SANDBOX_FD_RELAY4] < 0)
		return fail("listen");
	if (make_plan(addr, &s.plan) < 0)
		return 1;
	s.learned = learned_new(&s.plan, &key);
	r = relay_new(&config, &err);
	if (!r || relay_attach(r, &s) < 0)
		return fail(err.text);
	return loop_run(config.loop) < 0;
}

static void echo_one(int fd)
{
	char byte;

	while (read(fd, &byte, 1) == 1)
		if (write(fd, &byte, 1) != 1)
			break;
	close(fd);
}

static int run_echo(const char *addr, const char *port)
{
	struct endpoint e = endpoint_of(addr, port);
	int listener = listen_on(&e, 0);

	if (listener < 0)
		return fail("listen");
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd >= 0)
			echo_one(fd);
	}
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int connect_once(const struct endpoint *e)
{
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(e, &sa);
	int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	double start = now_us();
	char byte = 'x';

	if (connect(fd, (struct sockaddr *)&sa, size) < 0 || write(fd, &byte, 1) != 1 ||
	    read(fd, &byte, 1) != 1)
		return fail("connect");
	printf("%.1f\n", now_us() - start);
	close(fd);
	return 0;
}

static int run_connect(const char *addr, const char *port, int count)
{
	struct endpoint e = endpoint_of(addr, port);
	int r = 0;

	for (int i = 0; i < count && r == 0; i++)
		r = connect_once(&e);
	return r;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "relay") == 0)
		return run_relay(argv[2], argv[3]);
	if (argc == 4 && strcmp(argv[1], "echo") == 0)
		return run_echo(argv[2], argv[3]);
	if (argc == 5 && strcmp(argv[1], "connect") == 0)
		return run_connect(argv[2], argv[3], atoi(argv[4]));
	fprintf(stderr, "usage: bench_relay relay NETNS ADDRESS | echo ADDRESS PORT | "
			"connect ADDRESS PORT COUNT\n");
	return 2;
}
