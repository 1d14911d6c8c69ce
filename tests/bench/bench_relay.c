// SPDX-License-Identifier: Apache-2.0
/* The programs that tests/bench/bench_relay.py runs in its namespaces:
 *
 *   bench_relay relay NETNS ADDRESS [PORT]
 *                                     the relay alone; its listener is in NETNS, and the
 *                                     policy allows ADDRESS. With PORT it checks names:
 *                                     ADDRESS is open on PORT, and for bench.test
 *   bench_relay echo ADDRESS PORT     back come the bytes that came
 *   bench_relay connect ADDRESS PORT COUNT
 *                                     µs from connect() to the first echoed byte of a
 *                                     request for bench.test, a line each
 *   bench_relay idle ADDRESS PORT COUNT
 *                                     as many connections as that, each used once and
 *                                     then kept until standard input ends
 *   bench_relay size ADDRESS PORT BYTES COUNT
 *                                     µs from connect() until BYTES have been sent and
 *                                     have come back, a line each */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

#include "base/clock.h"
#include "policy/policy.h"
#include "relay/relay.h"
#include "sandbox/learned.h"
#include "sys/link.h"

enum { RELAY_PORT = 1021 };
#define NAME "bench.test"

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

/* With @port (may be NULL): the address on that port only, and a name. */
static int make_plan(const char *addr, const char *port, struct plan *ret)
{
	struct plan_port_range ports[PLAN_PORT_RANGES_MAX];
	struct rule rules[2] = {
		{ .action = POLICY_ALLOW, .kind = TARGET_PREFIX },
		{ .action = POLICY_ALLOW, .kind = TARGET_NAME },
	};
	struct policy policy = { .rules = rules, .count = port ? 2 : 1, .capacity = 2 };
	struct err err = { 0 };
	uint8_t *bytes;
	size_t size;

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		rules[i].comment = rules[i].file = rules[i].target = "bench";
	policy.limits[LIMIT_NEW_FLOWS_PER_SECOND] = UINT32_MAX;
	if (port) {
		policy.verify = POLICY_VERIFY_TLS;
		rules[0].ports.ranges = ports;
		rules[0].ports.count =
			(size_t)rule_ports_parse(text_of(port), ports, NULL, &err);
		rules[0].flags = PLAN_PORTS_LISTED;
	}
	if (!prefix_parse(addr, strlen(addr), false, &rules[0].prefix) ||
	    dns_name_parse(text_of(NAME), &rules[1].name) < 0 ||
	    policy_compile(&policy, &bytes, &size, &err) < 0 ||
	    plan_open(bytes, size, ret, &err) < 0) {
		fprintf(stderr, "no plan: %s\n", err.text);
		return -1;
	}
	return 0;
}

/* @addr is what the name resolved to. */
static void teach(struct sandbox *s, const char *addr)
{
	struct learned_item item = { .ttl_sec = 86400 };
	struct filter_learn change;
	struct dns_name name;

	if (dns_name_parse(text_of(NAME), &name) < 0 ||
	    !addr_parse(addr, strlen(addr), &item.addr))
		return;
	item.name = &name;
	item.verdict = plan_match_name(&s->plan, &name);
	if (learned_prepare(s->learned, &item, clock_now_ms(), &change) >= 0)
		learned_commit(s->learned, &item, clock_now_ms());
}

static int run_relay(const char *netns, const char *addr, const char *port)
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
	if (make_plan(addr, port, &s.plan) < 0)
		return 1;
	s.learned = learned_new(&s.plan, &key);
	if (port)
		teach(&s, addr);
	r = relay_new(&config, &err);
	if (!r || relay_attach(r, &s) < 0)
		return fail(err.text);
	return loop_run(config.loop) < 0;
}

/* Return: false when @fd has ended. */
static bool echo_one(int fd)
{
	static char bytes[256 << 10];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	return n > 0 && write(fd, bytes, (size_t)n) == n;
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (fd >= 0)
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static int run_echo(const char *addr, const char *port)
{
	struct endpoint e = endpoint_of(addr, port);
	int listener = listen_on(&e, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event events[64];

	if (listener < 0 || epoll < 0)
		return fail("listen");
	watch(epoll, listener);
	for (;;) {
		int count = epoll_wait(epoll, events, ARRAY_SIZE(events), -1);

		for (int i = 0; i < count; i++) {
			int fd = events[i].data.fd;

			if (fd == listener)
				watch(epoll, accept(fd, NULL, NULL));
			else if (!echo_one(fd))
				close(fd);
		}
	}
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int reach(const struct endpoint *e)
{
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(e, &sa);
	int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&sa, size) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Return: a connection on which the first byte came back, or -1. */
static int talk(const struct endpoint *e)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: " NAME "\r\n\r\n";
	const ssize_t length = sizeof(request) - 1;
	int fd = reach(e);
	char byte;

	if (fd >= 0 && write(fd, request, (size_t)length) == length &&
	    read(fd, &byte, 1) == 1)
		return fd;
	close(fd);
	return -1;
}

/* Send @size bytes while @back bytes come back. */
static bool there_and_back(int fd, uint64_t size, uint64_t back)
{
	static char bytes[256 << 10];
	uint64_t sent = 0;

	while (back > 0) {
		struct pollfd p = { fd, POLLIN | (sent < size ? POLLOUT : 0), 0 };
		ssize_t n = 0;

		poll(&p, 1, -1);
		if (p.revents & POLLOUT)
			n = send(fd, bytes, MIN(size - sent, sizeof(bytes)),
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN)
			return false;
		sent += n > 0 ? (uint64_t)n : 0;
		if (!(p.revents & POLLIN))
			continue;
		n = read(fd, bytes, sizeof(bytes));
		if (n <= 0)
			return false;
		back -= MIN((uint64_t)n, back);
	}
	return true;
}

static int run_size(const char *addr, const char *port, uint64_t size, int count)
{
	struct endpoint e = endpoint_of(addr, port);

	for (int i = 0; i < count; i++) {
		char head[128];
		int length = snprintf(head, sizeof(head),
				      "PUT / HTTP/1.1\r\nHost: " NAME
				      "\r\nContent-Length: %llu\r\n\r\n",
				      (unsigned long long)size);
		double start = now_us();
		int fd = reach(&e);

		if (fd < 0 || write(fd, head, (size_t)length) != length ||
		    !there_and_back(fd, size, size + (uint64_t)length))
			return fail("transfer");
		printf("%.1f\n", now_us() - start);
		close(fd);
	}
	return 0;
}

static int run_connect(const char *addr, const char *port, int count)
{
	struct endpoint e = endpoint_of(addr, port);

	for (int i = 0; i < count; i++) {
		double start = now_us();
		int fd = talk(&e);

		if (fd < 0)
			return fail("connect");
		printf("%.1f\n", now_us() - start);
		close(fd);
	}
	return 0;
}

static int run_idle(const char *addr, const char *port, int count)
{
	struct endpoint e = endpoint_of(addr, port);
	char byte;

	for (int i = 0; i < count; i++)
		if (talk(&e) < 0)
			return fail("connect");
	puts("idle");
	fflush(stdout);
	return read(STDIN_FILENO, &byte, 1) < 0;
}

int main(int argc, char **argv)
{
	if ((argc == 4 || argc == 5) && strcmp(argv[1], "relay") == 0)
		return run_relay(argv[2], argv[3], argv[4]);
	if (argc == 4 && strcmp(argv[1], "echo") == 0)
		return run_echo(argv[2], argv[3]);
	if (argc == 5 && strcmp(argv[1], "connect") == 0)
		return run_connect(argv[2], argv[3], atoi(argv[4]));
	if (argc == 5 && strcmp(argv[1], "idle") == 0)
		return run_idle(argv[2], argv[3], atoi(argv[4]));
	if (argc == 6 && strcmp(argv[1], "size") == 0)
		return run_size(argv[2], argv[3], (uint64_t)atoll(argv[4]),
				atoi(argv[5]));
	fprintf(stderr,
		"usage: bench_relay relay NETNS ADDRESS [PORT] | echo ADDRESS PORT | "
		"connect|idle ADDRESS PORT COUNT | size ADDRESS PORT BYTES COUNT\n");
	return 2;
}
