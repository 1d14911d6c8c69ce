// SPDX-License-Identifier: Apache-2.0
/* A policy that changes while relay and resolver serve the app, in the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "resolver/resolver.h"
#include "sandbox/learned.h"
#include "sys/link.h"
#include "test_change_world.h"
#include "unit.h"

enum { RELAY_PORT = 15354 };

/* Bytes without a name pass where a rule lists the port. */
#define TLS	 "verify: tls\n"
#define A_LISTED TLS "egress: [{action: allow, target: a.x.test, ports: [9000]}]\n"
#define A_AND_B_LISTED                                                                   \
	TLS "egress: [{action: allow, target: a.x.test, ports: [9000]}, "                \
	    "{action: allow, target: b.x.test, ports: [9000]}]\n"

static struct loop *loop;
static struct relay *relay;
static int route_fd;

static int listen_here(const char *addr)
{
	struct sockaddr_storage sa;
	socklen_t size = sockaddr_of(addr, RELAY_PORT, &sa);
	int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, size), 0);
	assert_int_equal(listen(fd, 128), 0);
	return fd;
}

/* As the engine does it: the listeners are there before the first redirect. */
static void serve(const char *policy)
{
	struct relay_config config;
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	open_sandbox(&plan);
	box.relay = true;
	box.ipv6 = true;
	box.shared_params.relay_port = RELAY_PORT;
	box.fds.fd[SANDBOX_FD_RELAY4] = listen_here("127.0.0.1");
	box.fds.fd[SANDBOX_FD_RELAY6] = listen_here("::1");
	loop = loop_new();
	route_fd = link_route_open();
	config = (struct relay_config){ .loop = loop, .route_fd = route_fd };
	relay = relay_new(&config, &err);
	if (!relay)
		fail_msg("%s", err.text);
	assert_int_equal(relay_attach(relay, &box), 0);
	must(sandbox_install(&box, &plan, &err), &err);
	must(sandbox_verify(&box, &err), &err);
}

static void change_served(const char *policy)
{
	struct plan plan = plan_of(policy);
	struct err err = { 0 };

	must(sandbox_change(&box, &plan, clock_now_ms(), &err), &err);
	must(sandbox_verify(&box, &err), &err);
}

static int stop_serving(void **state)
{
	relay_free(relay);
	loop_free(loop);
	close(route_fd);
	assert_int_equal(box.self_ports.count, 0);
	sandbox_fds_done(&box.fds);
	return stop(state);
}

/* The loop turns until @fd has something. False: nothing came. */
static bool await(int fd, short events)
{
	int64_t until = clock_now_ms() + PATIENCE_MS;
	struct pollfd p = { .fd = fd, .events = events };

	while (poll(&p, 1, 0) == 0) {
		if (clock_now_ms() > until)
			return false;
		assert_int_equal(loop_turn(loop, 1), 0);
	}
	return true;
}

static struct flow flow_through(const char *addr, int server)
{
	struct flow f = { .app = new_socket() };
	int e;

	fcntl(f.app, F_SETFL, O_NONBLOCK);
	e = try_connect(f.app, addr);
	assert_true(e == 0 || e == -EINPROGRESS);
	assert_true(await(server, POLLIN));
	f.server = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(f.server >= 0);
	return f;
}

static bool goes_through(struct flow f)
{
	char byte;

	assert_int_equal(send(f.app, "x", 1, MSG_NOSIGNAL), 1);
	if (!await(f.server, POLLIN) || read(f.server, &byte, 1) != 1)
		return false;
	assert_int_equal(write(f.server, "y", 1), 1);
	return await(f.app, POLLIN) && read(f.app, &byte, 1) == 1 && byte == 'y';
}

static void assert_reset(int fd)
{
	char byte;

	assert_true(await(fd, POLLIN));
	assert_int_equal(read(fd, &byte, 1), -1);
	assert_int_equal(errno, ECONNRESET);
}

static int outcome(const char *addr, uint16_t port)
{
	CLEAN(fd) int fd = new_socket();
	struct sockaddr_storage sa;
	socklen_t size = sockaddr_of(addr, port, &sa);
	char byte;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	if (connect(fd, (struct sockaddr *)&sa, size) < 0 && errno != EINPROGRESS)
		return -errno;
	assert_true(await(fd, POLLIN));
	return read(fd, &byte, 1) < 0 ? -errno : 0;
}

/* ---- the relay ---- */

TEST_WITH(what_the_relay_dials_is_exempt_and_what_the_app_dials_is_not, NULL,
	  stop_serving)
{
	struct flow a;

	serve(A_LISTED);
	learn("a.x.test", FAR_A, LONG_MS);
	a = flow_through(FAR_A, listener[0]);
	assert_true(goes_through(a));
	assert_int_equal(box.self_ports.count, 1);
	assert_int_equal(box.counters[COUNT_FLOWS], 1);
	assert_int_equal(outcome(FAR_C, PORT), -ECONNREFUSED);
	assert_true(outcome("127.0.0.1", RELAY_PORT) < 0);
	assert_int_equal(box.counters[COUNT_FLOWS], 1);
	close_flow(a);
}

TEST_WITH(flows_of_the_relay_follow_the_policy, NULL, stop_serving)
{
	struct flow a, b;

	serve(A_AND_B_LISTED);
	learn("a.x.test", FAR_A, LONG_MS);
	learn("b.x.test", FAR_B, LONG_MS);
	a = flow_through(FAR_A, listener[0]);
	b = flow_through(FAR_B, listener[1]);
	assert_true(goes_through(a));
	assert_true(goes_through(b));
	change_served(A_LISTED);
	assert_reset(b.app);
	assert_reset(b.server);
	assert_true(goes_through(a));
	assert_int_equal(box.self_ports.count, 1);
	close_flow(a);
	close_flow(b);
}

TEST_WITH(a_flow_of_the_relay_outlives_its_address_and_a_change, NULL, stop_serving)
{
	int64_t until = clock_now_ms() + PATIENCE_MS;
	struct learned_use use;
	struct addr at = addr_of(FAR_A);
	struct flow a;

	serve(A_LISTED);
	learn("a.x.test", FAR_A, 2000);
	a = flow_through(FAR_A, listener[0]);
	assert_true(goes_through(a));
	while (learned_find(box.learned, &at, clock_now_ms(), &use, 1) > 0)
		assert_true(clock_now_ms() < until);
	assert_true(goes_through(a));
	change_served(A_AND_B_LISTED);
	assert_true(goes_through(a));
	close_flow(a);
}

/* A direct flow shows no name: under verify: tls it does not go on. */
TEST_WITH(direct_flows_end_where_names_are_wanted, NULL, stop_serving)
{
	struct flow a, again;

	serve(A_ALONE);
	learn("a.x.test", FAR_A, LONG_MS);
	a = connect_flow(FAR_A, listener[0]);
	assert_true(passes(a));
	assert_int_equal(box.counters[COUNT_FLOWS], 0);
	change_served(A_LISTED);
	assert_is_reset(a);
	close_flow(a);
	again = flow_through(FAR_A, listener[0]);
	assert_true(goes_through(again));
	assert_int_equal(box.counters[COUNT_FLOWS], 1);
	close_flow(again);
}

/* ---- the resolver ---- */

static struct {
	uint8_t asked[512];
	size_t asked_size;
	uint32_t token;
	int replies, rcode, commits;
} wire;

static int op_send(void *data, uint32_t token, size_t server,
		   const struct sandbox *tcp_for, const void *message, size_t size)
{
	assert_true(size <= sizeof(wire.asked));
	memcpy(wire.asked, message, size);
	wire.asked_size = size;
	wire.token = token;
	return 0;
}

static void op_cancel(void *data, uint32_t token)
{
}

static int op_commit(void *data, struct sandbox *s, const struct filter_learn *items,
		     size_t count)
{
	wire.commits++;
	return filter_learn(&s->filter, items, count);
}

static void op_reply(void *data, const struct resolver_client *client,
		     const void *message, size_t size)
{
	assert_true(size >= DNS_HEADER_SIZE);
	wire.replies++;
	wire.rcode = ((const uint8_t *)message)[3] & 15;
}

static void op_random(void *data, void *bytes, size_t size)
{
	memset(bytes, 0x5a, size);
}

/* A for @name; the header says: one question, recursion. */
static size_t write_query(const char *name, uint8_t *buf)
{
	static const uint8_t head[DNS_HEADER_SIZE] = { 1, 2, 1, 0, 0, 1 };
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(name), &n), 0);
	memcpy(buf, head, sizeof(head));
	memcpy(buf + sizeof(head), n.bytes, n.size);
	memcpy(buf + sizeof(head) + n.size, (const uint8_t[]){ 0, 1, 0, 1 }, 4);
	return sizeof(head) + n.size + 4;
}

/* What was asked upstream is answered with @addr. */
static size_t write_response(const char *addr, uint8_t *buf)
{
	static const uint8_t record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 2, 0, 0, 4 };
	size_t size = DNS_HEADER_SIZE + strlen((const char *)wire.asked + 12) + 1 + 4;
	struct addr a = addr_of(addr);

	memcpy(buf, wire.asked, size);
	buf[2] = 0x81;
	buf[3] = 0x80;
	memcpy(buf + 6, (const uint8_t[]){ 0, 1, 0, 0, 0, 0 }, 6);
	memcpy(buf + size, record, sizeof(record));
	memcpy(buf + size + sizeof(record), a.bytes, 4);
	return size + sizeof(record) + 4;
}

static struct resolver *resolver_start(void)
{
	const struct resolver_ops ops = { .send = op_send,
					  .cancel = op_cancel,
					  .commit = op_commit,
					  .reply = op_reply,
					  .random = op_random };
	const struct resolver_config config = { .key = { 1, 2 }, .upstream_count = 1 };
	struct resolver *r = resolver_new(&ops, &config);

	assert_non_null(r);
	memset(&wire, 0, sizeof(wire));
	return r;
}

static void ask(struct resolver *r, const char *name)
{
	const struct resolver_client client = { .sandbox = &box };
	uint8_t query[512];

	resolver_query(r, &client, query, write_query(name, query), clock_now_ms());
	resolver_flush(r, clock_now_ms());
	assert_true(wire.asked_size > 0);
}

static void respond(struct resolver *r, const char *addr)
{
	uint8_t response[512];

	resolver_response(r, wire.token, response, write_response(addr, response),
			  clock_now_ms());
}

TEST_WITH(an_answer_is_learned_under_the_policy_that_stands, NULL, stop)
{
	struct resolver *r;

	install(A_ALONE);
	r = resolver_start();
	ask(r, "a.x.test");
	change(A_AND_B);
	respond(r, FAR_A);
	resolver_flush(r, clock_now_ms());
	assert_int_equal(wire.replies, 1);
	assert_int_equal(wire.rcode, 0);
	assert_int_equal(connect_result(FAR_A), 0);
	resolver_detach(r, &box);
	resolver_free(r);
}

TEST_WITH(an_answer_under_way_teaches_nothing_once_its_name_is_revoked, NULL, stop)
{
	struct resolver *r;

	install(A_AND_B);
	r = resolver_start();
	ask(r, "b.x.test");
	change(A_ALONE);
	respond(r, FAR_B);
	resolver_flush(r, clock_now_ms());
	assert_int_equal(wire.replies, 1);
	assert_int_equal(wire.rcode, 3);
	assert_int_equal(wire.commits, 0);
	assert_int_equal(learned_counts(box.learned).addresses, 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	resolver_detach(r, &box);
	resolver_free(r);
}

/* The reply is written and waits for its commit. */
TEST_WITH(nor_does_one_that_waits_for_the_kernel, NULL, stop)
{
	struct resolver *r;

	install(A_AND_B);
	r = resolver_start();
	ask(r, "b.x.test");
	respond(r, FAR_B);
	assert_int_equal(wire.replies, 0);
	change(A_ALONE);
	resolver_flush(r, clock_now_ms());
	assert_int_equal(wire.replies, 1);
	assert_int_equal(wire.rcode, 2);
	assert_int_equal(wire.commits, 0);
	assert_int_equal(connect_result(FAR_B), -ECONNREFUSED);
	resolver_detach(r, &box);
	resolver_free(r);
}

int main(void)
{
	if (!make_namespaces()) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
