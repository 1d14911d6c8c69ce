// SPDX-License-Identifier: Apache-2.0
/* The DNS service as a sidecar has it, whole but for the kernel's filter: a client, real
 * sockets, the resolver, and upstream servers that the test plays, on the loopback of a
 * network namespace of the program's own. All of it twice: with any ports, and with ports
 * that the filter is told of. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "../../scenario/resolver_world.h"
#include "base/clock.h"
#include "own_netns.h"
#include "resolver/dns_service.h"
#include "unit.h"

enum {
	SERVERS = 3,
	TROUBLES_MAX = 64,
	MESSAGE_MAX = 512,
	WAIT_MS = 60 * 1000,
	LONG_TRY_MS = 30 * 1000
};

struct server {
	int udp, tcp; /* -1: nobody listens there */
	struct endpoint at;
	bool silent, truncates;
	uint8_t rcode;
	size_t probes, queries, over_tcp;
};

static struct server servers[SERVERS];
static struct upstream_trouble troubles[TROUBLES_MAX];
static size_t trouble_count;
static struct own_ports own;
static struct {
	bool held[2][65536]; /* of UDP, of TCP */
	size_t count, holds;
} filter;
static struct loop *loop;
static struct dns_service *service;
static struct world *world; /* for its plan */
static struct sandbox box;
static int client;
static bool have_ipv6;

int filter_host_learn(struct filter_host *h, uint16_t id,
		      const struct filter_learn *items, size_t count, int64_t now_ms)
{
	return -ENOTSUP;
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	return 0;
}

int filter_self_port_set(struct filter_conn *c, const struct filter_self_port *h,
			 bool hold)
{
	return -ENOTSUP;
}

static int on_hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	bool *held = &filter.held[protocol == IPPROTO_TCP][port];

	assert_false(*held);
	*held = true;
	filter.count++;
	filter.holds++;
	return 0;
}

static void on_let_go(void *data, enum addr_family family, uint8_t protocol,
		      uint16_t port)
{
	bool *held = &filter.held[protocol == IPPROTO_TCP][port];

	assert_true(*held);
	*held = false;
	filter.count--;
}

static void on_trouble(void *data, const struct upstream_trouble *t)
{
	if (trouble_count < TROUBLES_MAX)
		troubles[trouble_count] = *t;
	trouble_count++;
}

static bool was_told(enum upstream_trouble_kind kind, uint8_t server, int error)
{
	for (size_t i = 0; i < MIN(trouble_count, (size_t)TROUBLES_MAX); i++)
		if (troubles[i].kind == kind && troubles[i].server == server &&
		    troubles[i].error == error)
			return true;
	return false;
}

/* ---- the servers ---- */

static int bind_to(int type, const struct endpoint *e)
{
	struct sockaddr_storage to;
	socklen_t size = endpoint_to_sockaddr(e, &to);
	int fd = socket(to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&to, size), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 16), 0);
	return fd;
}

static void server_open(size_t i, const char *at)
{
	struct server *s = &servers[i];

	assert_true(endpoint_parse(at, strlen(at), 53, &s->at));
	s->udp = bind_to(SOCK_DGRAM, &s->at);
	s->tcp = bind_to(SOCK_STREAM, &s->at);
}

static void assert_own(uint8_t protocol, const struct sockaddr_storage *from)
{
	uint16_t port = endpoint_from_sockaddr(from).port;

	assert_int_equal(filter.held[protocol == IPPROTO_TCP][port], own.mark != 0);
}

/* Turn the query into its response: the question, and an address that says whose it is.
 * Return: its size. */
static size_t respond(struct server *s, uint8_t *bytes, size_t size, bool tcp)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4 };
	size_t end = DNS_HEADER_SIZE;
	bool answers = s->rcode == 0 && (!s->truncates || tcp);

	while (end < size && bytes[end] != 0)
		end += 1u + bytes[end];
	end += 5;
	assert_true(end <= size && size + sizeof(record) + 4 <= MESSAGE_MAX);
	bytes[2] |= 0x80 | (s->truncates && !tcp ? 0x02 : 0);
	bytes[3] = s->rcode;
	memset(bytes + 6, 0, 6);
	if (!answers || bytes[end - 3] != DNS_TYPE_A)
		return end;
	bytes[7] = 1;
	memcpy(bytes + end, record, sizeof(record));
	memcpy(bytes + end + sizeof(record), "\x2d\0\0", 3);
	bytes[end + sizeof(record) + 3] = (uint8_t)(s - servers + 1);
	return end + sizeof(record) + 4;
}

/* "…ok.test" is what is asked for, in any case; a probe's name is another. */
static bool is_probe(const uint8_t *bytes, size_t size)
{
	for (size_t i = DNS_HEADER_SIZE; i + 4 < size; i++)
		if (strncasecmp((const char *)bytes + i, "test", 4) == 0)
			return false;
	return true;
}

static void serve_udp(struct server *s)
{
	uint8_t bytes[MESSAGE_MAX];
	struct sockaddr_storage from;
	socklen_t from_size = sizeof(from);
	ssize_t n;

	while ((n = recvfrom(s->udp, bytes, sizeof(bytes), MSG_DONTWAIT,
			     (struct sockaddr *)&from, &from_size)) > 0) {
		bool probe = is_probe(bytes, (size_t)n);
		size_t size;

		assert_own(IPPROTO_UDP, &from);
		*(probe ? &s->probes : &s->queries) += 1;
		if (s->silent)
			continue;
		size = respond(s, bytes, (size_t)n, false);
		if (probe)
			bytes[2] &= (uint8_t)~0x02;
		assert_int_equal(sendto(s->udp, bytes, size, 0, (struct sockaddr *)&from,
					from_size),
				 size);
	}
}

static void serve_tcp(struct server *s)
{
	uint8_t bytes[2 + MESSAGE_MAX];
	struct sockaddr_storage from;
	socklen_t from_size = sizeof(from);
	CLEAN(fd)
	int fd = accept4(s->tcp, (struct sockaddr *)&from, &from_size, SOCK_CLOEXEC);
	struct pollfd sent = { .fd = fd, .events = POLLIN };
	int64_t until = clock_now_ms() + WAIT_MS;
	size_t size;

	if (fd < 0)
		return;
	assert_own(IPPROTO_TCP, &from);
	while (poll(&sent, 1, 0) == 0 && clock_now_ms() < until)
		assert_int_equal(loop_turn(loop, 5), 0);
	assert_int_equal(recv(fd, bytes, 2, MSG_WAITALL), 2);
	size = (size_t)(bytes[0] << 8 | bytes[1]);
	assert_true(size <= MESSAGE_MAX);
	assert_int_equal(recv(fd, bytes + 2, size, MSG_WAITALL), size);
	s->over_tcp++;
	size = respond(s, bytes + 2, size, true);
	bytes[0] = (uint8_t)(size >> 8);
	bytes[1] = (uint8_t)size;
	assert_int_equal(send(fd, bytes, size + 2, 0), size + 2);
}

static void turn(void)
{
	assert_int_equal(loop_turn(loop, 2), 0);
	for (struct server *s = servers; s < servers + SERVERS; s++) {
		if (s->udp >= 0)
			serve_udp(s);
		if (s->tcp >= 0)
			serve_tcp(s);
	}
}

static void turn_until_told(enum upstream_trouble_kind kind, uint8_t server, int error)
{
	int64_t end = clock_now_ms() + WAIT_MS;

	while (!was_told(kind, server, error) && clock_now_ms() < end)
		turn();
	assert_true(was_told(kind, server, error));
}

/* ---- the client ---- */

struct said {
	uint8_t rcode;
	uint8_t server; /* whose address it is, from 1; 0: there is none */
	int64_t took_ms;
};

static struct said ask(const char *name)
{
	int64_t from = clock_now_ms();
	uint8_t bytes[MESSAGE_MAX];
	struct said ret = { 0 };
	ssize_t n = -1;
	size_t size = world_write_query(bytes, sizeof(bytes), 7, name, DNS_TYPE_A, true);

	assert_int_equal(send(client, bytes, size, 0), size);
	while (n < 0 && clock_now_ms() < from + WAIT_MS) {
		turn();
		n = recv(client, bytes, sizeof(bytes), MSG_DONTWAIT);
	}
	assert_true(n > DNS_HEADER_SIZE);
	ret.took_ms = clock_now_ms() - from;
	ret.rcode = bytes[3] & 15;
	for (ssize_t i = DNS_HEADER_SIZE; bytes[7] > 0 && i + 4 <= n; i++)
		if (memcmp(bytes + i, "\x2d\0\0", 3) == 0)
			ret.server = bytes[i + 3];
	return ret;
}

static void connect_client(void)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	assert_int_equal(getsockname(box.fds.fd[SANDBOX_FD_DNS_UDP4],
				     (struct sockaddr *)&address, &size),
			 0);
	client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(client, (struct sockaddr *)&address, size), 0);
}

/* ---- life ---- */

static void open_box(void)
{
	struct endpoint at = { .addr = addr_v4(127, 0, 0, 1) };

	box = (struct sandbox){ .id = 1, .state = SANDBOX_RUNNING };
	for (size_t k = 0; k < SANDBOX_FD_COUNT; k++)
		box.fds.fd[k] = -1;
	/* Any port: the redirect brings the queries here. */
	box.fds.fd[SANDBOX_FD_DNS_UDP4] = bind_to(SOCK_DGRAM, &at);
	box.plan = world->sandboxes[0].plan;
	box.learned = learned_new(&box.plan, &(struct hash_key){ 3, 4 });
}

/* Servers are open by now. */
static void start(size_t count, int64_t try_ms, int64_t probe_every_ms, const char *name)
{
	struct endpoint endpoints[SERVERS];
	struct dns_service_config config = {
		.loop = loop,
		.upstreams = endpoints,
		.upstream_count = count,
		.key = { 5, 6 },
		.own = own,
		.try_ms = try_ms,
		.probe_every_ms = probe_every_ms,
		.on_trouble = on_trouble,
	};
	struct err err = { 0 };

	if (name)
		assert_int_equal(dns_name_parse(text_of(name), &config.probe_name), 0);
	for (size_t i = 0; i < count; i++)
		endpoints[i] = servers[i].at;
	service = dns_service_new(&config, &err);
	assert_non_null(service);
	assert_int_equal(dns_service_attach(service, &box), 0);
	loop_on_turn_end(loop, (void (*)(void *))dns_service_flush, service);
}

static int setup(void **state)
{
	memset(&filter, 0, sizeof(filter));
	trouble_count = 0;
	for (size_t i = 0; i < SERVERS; i++)
		servers[i] = (struct server){ .udp = -1, .tcp = -1 };
	loop = loop_new();
	world = world_new(1);
	assert_true(world_rule(world, POLICY_ALLOW, "*.ok.test", 443, 0, 0));
	assert_true(world_apply(world));
	open_box();
	connect_client();
	return 0;
}

static int teardown(void **state)
{
	dns_service_free(service);
	assert_int_equal(filter.count, 0);
	assert_int_equal(filter.holds > 0, own.mark != 0);
	loop_free(loop);
	close(box.fds.fd[SANDBOX_FD_DNS_UDP4]);
	close(client);
	learned_free(box.learned);
	world_free(world);
	for (size_t i = 0; i < SERVERS; i++) {
		if (servers[i].udp >= 0)
			close(servers[i].udp);
		if (servers[i].tcp >= 0)
			close(servers[i].tcp);
	}
	return 0;
}

static int use_own_ports(void **state)
{
	own = (struct own_ports){ .mark = 7, .hold = on_hold, .let_go = on_let_go };
	return 0;
}

static int use_any_ports(void **state)
{
	own = (struct own_ports){ 0 };
	return 0;
}

/* ---- the rules ---- */

static void D5_a_silent_server_costs_one_try_and_after_its_probe_nothing(void **state)
{
	struct said said;

	server_open(0, "127.0.0.2:53");
	server_open(1, "127.0.0.3:53");
	servers[0].silent = true;
	start(2, 1000, 60000, NULL);
	said = ask("a.ok.test");
	assert_int_equal(said.rcode, DNS_NOERROR);
	assert_int_equal(said.server, 2);
	assert_in_range(said.took_ms, 500, WAIT_MS);
	assert_true(was_told(UPSTREAM_ERROR, 0, -ETIMEDOUT));
	turn_until_told(UPSTREAM_PROBE, 0, -ETIMEDOUT);
	for (int i = 0; i < 5; i++) {
		char name[] = "n0.ok.test";

		name[1] = (char)('0' + i);
		assert_int_equal(ask(name).server, 2);
	}
	assert_int_equal(servers[0].queries, 1);
}

static void D4_a_port_where_nobody_listens_costs_nothing(void **state)
{
	struct said said;

	server_open(1, "127.0.0.3:53");
	assert_true(endpoint_parse("127.0.0.1:59123", 15, 53, &servers[0].at));
	start(2, LONG_TRY_MS, 30000, NULL);
	said = ask("a.ok.test");
	assert_int_equal(said.server, 2);
	assert_in_range(said.took_ms, 0, LONG_TRY_MS - 1);
	turn_until_told(UPSTREAM_PROBE, 0, -ECONNREFUSED);
}

static void probes_begin_at_once_with_every_server_and_go_on(void **state)
{
	int64_t end = clock_now_ms() + WAIT_MS;

	for (size_t i = 0; i < SERVERS; i++) {
		char at[] = "127.0.0.2:53";

		at[8] = (char)('2' + i);
		server_open(i, at);
		servers[i].rcode = (uint8_t)(DNS_SERVFAIL + i);
	}
	start(SERVERS, 1000, 200, "intranet.corp");
	while (servers[2].probes < 4 && clock_now_ms() < end)
		turn();
	for (size_t i = 0; i < SERVERS; i++)
		assert_in_range(servers[i].probes, 3, 6);
	/* Whatever they say, they are there. */
	assert_int_equal(trouble_count, 0);
}

static void a_server_that_answers_its_probe_again_is_asked_again(void **state)
{
	server_open(0, "127.0.0.2:53");
	server_open(1, "127.0.0.3:53");
	servers[0].silent = true;
	start(2, 300, 400, NULL);
	turn_until_told(UPSTREAM_PROBE, 0, -ETIMEDOUT);
	assert_int_equal(ask("a.ok.test").server, 2);
	assert_int_equal(servers[0].queries, 0);
	servers[0].silent = false;
	turn_until_told(UPSTREAM_HEALTHY, 0, 0);
	assert_int_equal(ask("b.ok.test").server, 1);
}

static void without_probes_nobody_is_asked_unasked(void **state)
{
	server_open(0, "127.0.0.2:53");
	start(1, 0, 0, NULL);
	for (int i = 0; i < 50; i++)
		turn();
	assert_int_equal(ask("a.ok.test").server, 1);
	assert_int_equal(servers[0].probes, 0);
	assert_int_equal(servers[0].queries, 1);
}

static void servers_may_have_any_port_and_family(void **state)
{
	static const char *const at[] = { "127.0.0.2:5353", "[::1]:853" };

	for (size_t i = 0; i < (have_ipv6 ? ARRAY_SIZE(at) : 1); i++)
		server_open(i, at[i]);
	servers[0].rcode = DNS_REFUSED;
	servers[1].truncates = true;
	start(have_ipv6 ? 2 : 1, 1000, 30000, NULL);
	assert_int_equal(ask("a.ok.test").server, have_ipv6 ? 2 : 0);
	assert_int_equal(servers[1].over_tcp, have_ipv6);
	servers[0].rcode = DNS_NOERROR;
	servers[0].truncates = true;
	assert_int_equal(ask("b.ok.test").server, 1);
	assert_int_equal(servers[0].over_tcp, 1);
	assert_int_equal(servers[1].over_tcp, have_ipv6);
}

static void D2_what_fails_is_passed_over_and_what_is_an_answer_is_final(void **state)
{
	static const uint8_t failing[] = { DNS_SERVFAIL, DNS_REFUSED, DNS_NOTIMP };
	struct said said;

	server_open(0, "127.0.0.2:53");
	server_open(1, "127.0.0.3:53");
	start(2, LONG_TRY_MS, 30000, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(failing); i++) {
		char name[] = "f0.ok.test";

		name[1] = (char)('0' + i);
		servers[0].rcode = failing[i];
		said = ask(name);
		assert_int_equal(said.server, 2);
		assert_in_range(said.took_ms, 0, LONG_TRY_MS - 1);
	}
	assert_true(was_told(UPSTREAM_RCODE, 0, 0));
	servers[0].rcode = DNS_NXDOMAIN;
	said = ask("no.ok.test");
	assert_int_equal(said.rcode, DNS_NXDOMAIN);
	assert_int_equal(said.server, 0);
	assert_int_equal(servers[1].queries, 3);
	servers[0].rcode = servers[1].rcode = DNS_SERVFAIL;
	said = ask("never.ok.test");
	assert_int_equal(said.rcode, DNS_SERVFAIL);
	assert_in_range(said.took_ms, 0, LONG_TRY_MS - 1);
}

static void when_all_are_silent_the_client_is_told(void **state)
{
	struct said said;

	for (size_t i = 0; i < SERVERS; i++) {
		char at[] = "127.0.0.2:53";

		at[8] = (char)('2' + i);
		server_open(i, at);
		servers[i].silent = true;
	}
	start(SERVERS, 400, 30000, NULL);
	said = ask("a.ok.test");
	assert_int_equal(said.rcode, DNS_SERVFAIL);
	assert_in_range(said.took_ms, 1150, WAIT_MS);
	for (size_t i = 0; i < SERVERS; i++)
		assert_int_equal(servers[i].queries, 1);
}

int main(void)
{
#define RULE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		RULE(D5_a_silent_server_costs_one_try_and_after_its_probe_nothing),
		RULE(D4_a_port_where_nobody_listens_costs_nothing),
		RULE(probes_begin_at_once_with_every_server_and_go_on),
		RULE(a_server_that_answers_its_probe_again_is_asked_again),
		RULE(without_probes_nobody_is_asked_unasked),
		RULE(servers_may_have_any_port_and_family),
		RULE(D2_what_fails_is_passed_over_and_what_is_an_answer_is_final),
		RULE(when_all_are_silent_the_client_is_told),
	};

	if (!own_netns_enter(&have_ipv6)) {
		fprintf(stderr, "no network namespace, skipping\n");
		return 77;
	}
	return cmocka_run_group_tests_name("own ports", tests, use_own_ports, NULL) +
	       cmocka_run_group_tests_name("any ports", tests, use_any_ports, NULL);
}
