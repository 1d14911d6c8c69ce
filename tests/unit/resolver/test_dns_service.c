// SPDX-License-Identifier: Apache-2.0
/* The transports alone: real sockets on the loopback of a network namespace of the
 * program's own, and behind them a resolver that is played here, so that each test says
 * when a reply comes. */
#include "policy/advice.h"
#include "resolver/dns_service.h"
#include "resolver/tcp.h"
#include "sandbox/accounting.h"
#include "sandbox/asks.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "own_netns.h"
#include "sys/confine.h"
#include "unit.h"

enum {
	QUERIES_MAX = 4096,
	QUERY_SIZE = 24,
	TCP_LIMIT = 8,
	WAIT_MS = 60 * 1000,
	TICK_MS = 20,
};

/* The resolver of these tests: it keeps what came, and replies with the same bytes,
 * at once or when told. */
struct resolver {
	struct resolver_ops ops;
	struct resolver_config config;
};

struct seen {
	struct resolver_client client;
	size_t size;
	uint8_t bytes[QUERY_SIZE];
};

static struct resolver resolver;
static struct seen seen[QUERIES_MAX];
static size_t seen_count, answered, reply_size;
static bool reply_at_once;
static int64_t next_tick_ms;
static size_t ticks, flushes, detached;
static uint32_t failed_tokens, response_tokens;
static int failed_error;
static uint32_t tcp_limit;

struct resolver *resolver_new(const struct resolver_ops *ops,
			      const struct resolver_config *config)
{
	resolver.ops = *ops;
	resolver.config = *config;
	return &resolver;
}

void resolver_free(struct resolver *r)
{
}

static void answer(size_t i)
{
	static uint8_t bytes[DNS_MESSAGE_MAX];

	memcpy(bytes, seen[i].bytes, sizeof(seen[i].bytes));
	resolver.ops.reply(resolver.ops.data, &seen[i].client, bytes,
			   reply_size ? reply_size : seen[i].size);
}

void resolver_query(struct resolver *r, const struct resolver_client *client,
		    const void *message, size_t size, int64_t now_ms)
{
	struct seen *s = &seen[seen_count];

	assert_true(seen_count < QUERIES_MAX);
	*s = (struct seen){ .client = *client, .size = size };
	memcpy(s->bytes, message, MIN(size, sizeof(s->bytes)));
	seen_count++;
}

void resolver_response(struct resolver *r, uint32_t token, const void *message,
		       size_t size, int64_t now_ms)
{
	response_tokens += token;
	r->ops.cancel(r->ops.data, token);
}

void resolver_send_failed(struct resolver *r, uint32_t token, int error, int64_t now_ms)
{
	failed_tokens += token;
	failed_error = error;
}

int64_t resolver_next_ms(const struct resolver *r)
{
	return next_tick_ms;
}

void resolver_tick(struct resolver *r, int64_t now_ms)
{
	ticks++;
	next_tick_ms = INT64_MAX;
}

void resolver_parked_recheck(struct resolver *r, int64_t now_ms)
{
}

void resolver_flush(struct resolver *r, int64_t now_ms)
{
	flushes++;
	while (reply_at_once && answered < seen_count)
		answer(answered++);
}

void resolver_detach(struct resolver *r, struct sandbox *s)
{
	detached++;
}

void asks_forget_granted(struct sandbox *s)
{
}

void accounting_add(struct sandbox *s, const struct event *e, int64_t now_ms)
{
}

void accounting_report(struct sandbox *s, int64_t now_ms, bool all)
{
}

bool accounting_pass(struct sandbox *s, const struct event *e, int64_t now_ms)
{
	return true;
}

int filter_self_port_set(struct filter_conn *c, const struct filter_self_port *h,
			 bool hold)
{
	return -ENOTSUP;
}

struct plan_on_denies plan_on_denies(const struct plan *p)
{
	return (struct plan_on_denies){ 0 };
}

const char *advice_write(const struct plan *p, const struct event *e, char *buf)
{
	buf[0] = '\0';
	return buf;
}

uint32_t plan_limit(const struct plan *p, enum plan_limit which)
{
	return which == LIMIT_DNS_TCP_CONNECTIONS ? tcp_limit : 0;
}

static const struct filter_learn *learned_items;

bool resolver_is_settled(const struct resolver *r)
{
	return true;
}

int filter_host_learn(struct filter_host *h, uint16_t id,
		      const struct filter_learn *items, size_t count, int64_t now_ms)
{
	return -ENOTSUP;
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	learned_items = items;
	return count == 1 ? -EIO : 0;
}

static struct loop *loop;
static struct dns_service *service;
static struct sandbox boxes[2]; /* at 127.0.0.1 and ::1, and at 127.0.0.2 */
static struct endpoint udp_at[2], udp6_at, tcp_at[2], tcp6_at;
static int upstream_fd;
static bool have_ipv6;

static struct endpoint bound(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	return endpoint_from_sockaddr(&address);
}

static int listen_on(int type, const char *address)
{
	struct sockaddr_storage to;
	struct endpoint e;
	socklen_t size;
	int fd;

	assert_true(endpoint_parse(address, strlen(address), 53, &e));
	e.port = 0;
	size = endpoint_to_sockaddr(&e, &to);
	fd = socket(to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&to, size), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 128), 0);
	return fd;
}

static void box_open(size_t i, const char *address)
{
	struct sandbox *s = &boxes[i];

	*s = (struct sandbox){ .id = (uint32_t)i + 1, .state = SANDBOX_RUNNING };
	for (size_t k = 0; k < SANDBOX_FD_COUNT; k++)
		s->fds.fd[k] = -1;
	s->fds.fd[SANDBOX_FD_DNS_UDP4] = listen_on(SOCK_DGRAM, address);
	s->fds.fd[SANDBOX_FD_DNS_TCP4] = listen_on(SOCK_STREAM, address);
	udp_at[i] = bound(s->fds.fd[SANDBOX_FD_DNS_UDP4]);
	tcp_at[i] = bound(s->fds.fd[SANDBOX_FD_DNS_TCP4]);
}

static int setup(void **state)
{
	struct endpoint upstream;
	struct dns_service_config config = { .upstreams = &upstream,
					     .upstream_count = 1 };

	seen_count = answered = reply_size = 0;
	reply_at_once = true;
	next_tick_ms = INT64_MAX;
	ticks = flushes = detached = failed_tokens = response_tokens = 0;
	tcp_limit = TCP_LIMIT;
	upstream_fd = listen_on(SOCK_DGRAM, "127.0.0.9");
	upstream = bound(upstream_fd);
	loop = config.loop = loop_new();
	service = dns_service_new(&config, NULL);
	assert_non_null(service);
	box_open(0, "127.0.0.1");
	box_open(1, "127.0.0.2");
	if (have_ipv6) {
		boxes[0].fds.fd[SANDBOX_FD_DNS_UDP6] = listen_on(SOCK_DGRAM, "::1");
		udp6_at = bound(boxes[0].fds.fd[SANDBOX_FD_DNS_UDP6]);
		boxes[0].fds.fd[SANDBOX_FD_DNS_TCP6] = listen_on(SOCK_STREAM, "::1");
		tcp6_at = bound(boxes[0].fds.fd[SANDBOX_FD_DNS_TCP6]);
	}
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(dns_service_attach(service, &boxes[i]), 0);
	loop_on_turn_end(loop, (void (*)(void *))dns_service_flush, service);
	return 0;
}

static int teardown(void **state)
{
	dns_service_free(service);
	loop_free(loop);
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < SANDBOX_FD_COUNT; k++)
			if (boxes[i].fds.fd[k] >= 0)
				close(boxes[i].fds.fd[k]);
	close(upstream_fd);
	return 0;
}

static void turns(int count)
{
	for (int i = 0; i < count; i++)
		assert_int_equal(loop_turn(loop, 5), 0);
}

static void wait_seen(size_t count)
{
	int64_t until = clock_now_ms() + WAIT_MS;

	while (seen_count < count && clock_now_ms() < until)
		turns(1);
	assert_int_equal(seen_count, count);
}

static int client_socket(int type, const struct endpoint *to)
{
	struct sockaddr_storage address;
	socklen_t size = endpoint_to_sockaddr(to, &address);
	int fd = socket(address.ss_family, type | SOCK_CLOEXEC, 0), one = 1;

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
	if (type == SOCK_STREAM)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void query_fill(uint8_t *bytes, uint16_t id)
{
	memset(bytes, 'q', QUERY_SIZE);
	bytes[0] = (uint8_t)(id >> 8);
	bytes[1] = (uint8_t)id;
}

/* The same behind its length. */
static void frame_fill(uint8_t *bytes, uint16_t id)
{
	bytes[0] = 0;
	bytes[1] = QUERY_SIZE;
	query_fill(bytes + 2, id);
}

enum { FRAME_SIZE = QUERY_SIZE + 2 };

static void send_udp(int fd, uint16_t id)
{
	uint8_t bytes[QUERY_SIZE];

	query_fill(bytes, id);
	assert_int_equal(send(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
}

static void send_frames(int fd, uint16_t first_id, size_t count)
{
	uint8_t bytes[64 * FRAME_SIZE];

	assert_true(count <= 64);
	for (size_t i = 0; i < count; i++)
		frame_fill(bytes + i * FRAME_SIZE, (uint16_t)(first_id + i));
	assert_int_equal(send(fd, bytes, count * FRAME_SIZE, 0), count * FRAME_SIZE);
}

/* Turn the loop until the client's socket has something. */
static bool wait_readable(int fd, int64_t most_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t until = clock_now_ms() + most_ms;

	while (clock_now_ms() < until) {
		if (poll(&p, 1, 0) == 1)
			return true;
		turns(1);
	}
	return false;
}

static void expect_udp(int fd, uint16_t id)
{
	uint8_t bytes[QUERY_SIZE + 1], expected[QUERY_SIZE];

	query_fill(expected, id);
	assert_true(wait_readable(fd, WAIT_MS));
	assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), QUERY_SIZE);
	assert_memory_equal(bytes, expected, QUERY_SIZE);
}

static void expect_frame(int fd, uint16_t id)
{
	uint8_t bytes[FRAME_SIZE], expected[FRAME_SIZE];

	frame_fill(expected, id);
	for (size_t n = 0; n < FRAME_SIZE;) {
		ssize_t r;

		assert_true(wait_readable(fd, WAIT_MS));
		r = recv(fd, bytes + n, FRAME_SIZE - n, 0);
		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(bytes, expected, FRAME_SIZE);
}

/* Return: 0 at an orderly end, or -errno; what comes before the end is skipped. */
static int end_of(int fd, int64_t most_ms)
{
	uint8_t bytes[4096];

	while (wait_readable(fd, most_ms)) {
		ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

		if (n <= 0)
			return n == 0 ? 0 : -errno;
	}
	return -ETIMEDOUT;
}

TEST_WITH(udp_replies_go_back_to_their_senders, setup, teardown)
{
	int a = client_socket(SOCK_DGRAM, &udp_at[0]);
	int b = client_socket(SOCK_DGRAM, &udp_at[1]);
	int c = client_socket(SOCK_DGRAM, &udp_at[0]);

	send_udp(a, 1);
	send_udp(b, 2);
	send_udp(c, 3);
	expect_udp(c, 3);
	expect_udp(b, 2);
	expect_udp(a, 1);
	for (size_t i = 0; i < seen_count; i++)
		assert_ptr_equal(seen[i].client.sandbox, &boxes[seen[i].bytes[1] == 2]);
	close(a);
	close(b);
	close(c);
}

TEST_WITH(udp_over_ipv6_is_answered_over_ipv6, setup, teardown)
{
	int fd;

	if (!have_ipv6)
		skip();
	fd = client_socket(SOCK_DGRAM, &udp6_at);
	send_udp(fd, 6);
	expect_udp(fd, 6);
	close(fd);
}

TEST_WITH(a_burst_over_udp_is_answered_whole, setup, teardown)
{
	enum { BURST = 200 };
	int fd = client_socket(SOCK_DGRAM, &udp_at[0]);

	for (uint16_t i = 0; i < BURST; i++)
		send_udp(fd, i);
	for (uint16_t i = 0; i < BURST; i++)
		expect_udp(fd, i);
	close(fd);
}

TEST_WITH(large_replies_fill_the_queue_and_all_leave, setup, teardown)
{
	enum { COUNT = 40, SIZE = 4000 };
	int fd = client_socket(SOCK_DGRAM, &udp_at[0]), room = 1 << 20;
	uint8_t bytes[SIZE + 1];

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	reply_size = SIZE;
	reply_at_once = false;
	for (uint16_t i = 0; i < COUNT; i++)
		send_udp(fd, i);
	wait_seen(COUNT);
	reply_at_once = true;
	turns(1);
	for (uint16_t i = 0; i < COUNT; i++) {
		assert_true(wait_readable(fd, WAIT_MS));
		assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), SIZE);
	}
	close(fd);
}

TEST_WITH(a_udp_reply_that_cannot_leave_is_counted, setup, teardown)
{
	int fd = client_socket(SOCK_DGRAM, &udp_at[0]);

	reply_at_once = false;
	send_udp(fd, 1);
	send_udp(fd, 2);
	wait_seen(2);
	seen[0].client.peer.port = 0;
	reply_at_once = true;
	expect_udp(fd, 2);
	assert_int_equal(boxes[0].counters[COUNT_ANSWERS_LOST], 1);
	close(fd);
}

TEST_WITH(a_datagram_that_is_too_long_is_cut_to_its_header, setup, teardown)
{
	uint8_t bytes[4000] = { 1, 2 };
	int fd = client_socket(SOCK_DGRAM, &udp_at[0]);

	assert_int_equal(send(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	wait_seen(1);
	assert_int_equal(seen[0].size, DNS_HEADER_SIZE);
	close(fd);
}

TEST_WITH(a_flood_from_one_sandbox_leaves_others_their_turn, setup, teardown)
{
	enum { FLOOD = 200, SHARE = 64 };
	int flood = client_socket(SOCK_DGRAM, &udp_at[0]);
	int quiet = client_socket(SOCK_DGRAM, &udp_at[1]);
	size_t before = 0;

	reply_at_once = false;
	for (uint16_t i = 0; i < FLOOD; i++)
		send_udp(flood, i);
	send_udp(quiet, 9999);
	turns(1);
	while (before < seen_count && seen[before].client.sandbox == &boxes[0])
		before++;
	assert_true(before < seen_count);
	assert_true(before <= SHARE);
	close(flood);
	close(quiet);
}

TEST_WITH(a_closed_sandbox_gets_no_queries_through, setup, teardown)
{
	int udp = client_socket(SOCK_DGRAM, &udp_at[0]);
	int tcp;

	boxes[0].state = SANDBOX_CLOSED;
	tcp = client_socket(SOCK_STREAM, &tcp_at[0]);
	send_udp(udp, 1);
	assert_int_equal(end_of(tcp, WAIT_MS), -ECONNRESET);
	assert_int_equal(seen_count, 0);
	close(udp);
	close(tcp);
}

TEST_WITH(pipelined_tcp_messages_are_each_a_query, setup, teardown)
{
	enum { COUNT = 10 };
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]);

	send_frames(fd, 100, COUNT);
	for (uint16_t i = 0; i < COUNT; i++)
		expect_frame(fd, (uint16_t)(100 + i));
	assert_int_equal(seen_count, COUNT);
	for (size_t i = 0; i < COUNT; i++)
		assert_int_equal(seen[i].size, QUERY_SIZE);
	close(fd);
}

TEST_WITH(a_tcp_stream_may_be_split_at_any_byte, setup, teardown)
{
	uint8_t bytes[2 * FRAME_SIZE];
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]);

	frame_fill(bytes, 1);
	frame_fill(bytes + FRAME_SIZE, 2);
	for (size_t cut = 1; cut < sizeof(bytes); cut++) {
		assert_int_equal(send(fd, bytes, cut, 0), cut);
		turns(2);
		assert_int_equal(send(fd, bytes + cut, sizeof(bytes) - cut, 0),
				 sizeof(bytes) - cut);
		expect_frame(fd, 1);
		expect_frame(fd, 2);
	}
	close(fd);
}

TEST_WITH(tcp_replies_may_come_in_another_order, setup, teardown)
{
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]);

	reply_at_once = false;
	send_frames(fd, 1, 3);
	wait_seen(3);
	for (size_t i = 3; i-- > 0;)
		answer(i);
	expect_frame(fd, 3);
	expect_frame(fd, 2);
	expect_frame(fd, 1);
	close(fd);
}

TEST_WITH(reading_stops_while_too_many_replies_are_due, setup, teardown)
{
	enum { UNANSWERED = 16, COUNT = 40 };
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]);

	reply_at_once = false;
	send_frames(fd, 0, COUNT);
	wait_seen(UNANSWERED);
	turns(5);
	assert_int_equal(seen_count, UNANSWERED);
	reply_at_once = true;
	for (uint16_t i = 0; i < COUNT; i++)
		expect_frame(fd, i);
	close(fd);
}

TEST_WITH(a_half_closed_client_still_gets_its_replies, setup, teardown)
{
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]);

	reply_at_once = false;
	send_frames(fd, 1, 2);
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	wait_seen(2);
	turns(3);
	reply_at_once = true;
	expect_frame(fd, 1);
	expect_frame(fd, 2);
	assert_int_equal(end_of(fd, WAIT_MS), 0);
	close(fd);
}

TEST_WITH(a_late_reply_for_a_closed_connection_reaches_nobody, setup, teardown)
{
	int first = client_socket(SOCK_STREAM, &tcp_at[0]), second;

	reply_at_once = false;
	send_frames(first, 1, 1);
	wait_seen(1);
	close(first);
	turns(3);
	answer(0);
	/* The next connection takes the same slot. */
	second = client_socket(SOCK_STREAM, &tcp_at[0]);
	turns(3);
	answer(0);
	assert_false(wait_readable(second, 50));
	send_frames(second, 2, 1);
	wait_seen(2);
	assert_int_not_equal(seen[0].client.connection, seen[1].client.connection);
	answer(1);
	expect_frame(second, 2);
	close(second);
}

TEST_WITH(connections_over_the_limit_are_reset_and_counted, setup, teardown)
{
	int fds[TCP_LIMIT], over, other;

	for (size_t i = 0; i < TCP_LIMIT; i++)
		fds[i] = client_socket(SOCK_STREAM, &tcp_at[0]);
	turns(3);
	over = client_socket(SOCK_STREAM, &tcp_at[0]);
	assert_int_equal(end_of(over, WAIT_MS), -ECONNRESET);
	assert_int_equal(boxes[0].counters[COUNT_DNS_TCP_LIMITED], 1);
	other = client_socket(SOCK_STREAM, &tcp_at[1]);
	send_frames(other, 1, 1);
	expect_frame(other, 1);
	close(over);
	close(other);
	close(fds[0]);
	turns(3);
	fds[0] = client_socket(SOCK_STREAM, &tcp_at[0]);
	send_frames(fds[0], 2, 1);
	expect_frame(fds[0], 2);
	for (size_t i = 0; i < TCP_LIMIT; i++)
		close(fds[i]);
}

TEST_WITH(what_is_no_query_ends_the_connection, setup, teardown)
{
	static const struct {
		const char *what;
		uint8_t bytes[14];
		size_t size;
	} cases[] = {
		{ "nothing", { 0, 0 }, 2 },
		{ "shorter than a header", { 0, 11 }, 13 },
		{ "longer than any query", { 4, 1 }, 2 },
		{ "the longest", { 255, 255 }, 2 },
		{ "a response", { 0, 12, 1, 2, 0x80 }, 14 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd = client_socket(SOCK_STREAM, &tcp_at[0]);
		int r;

		assert_int_equal(send(fd, cases[i].bytes, cases[i].size, 0),
				 cases[i].size);
		r = end_of(fd, WAIT_MS);
		if (r != -ECONNRESET)
			fail_msg("%s: %d", cases[i].what, r);
		close(fd);
	}
	assert_int_equal(seen_count, 0);
}

TEST_WITH(tcp_over_ipv6_is_answered, setup, teardown)
{
	int fd;

	if (!have_ipv6)
		skip();
	fd = client_socket(SOCK_STREAM, &tcp6_at);
	send_frames(fd, 1, 3);
	for (uint16_t id = 1; id <= 3; id++)
		expect_frame(fd, id);
	close(fd);
}

/* Of DNS_TCP_CONNECTIONS_MAX, whatever each sandbox may have. */
TEST_WITH(a_sandbox_leaves_half_of_the_engines_connections, setup, teardown)
{
	static int fds[DNS_TCP_CONNECTIONS_MAX / 2];
	int over, other;

	tcp_limit = DNS_TCP_CONNECTIONS_MAX + 1;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = client_socket(SOCK_STREAM, &tcp_at[0]);
		turns(i % 8 == 0);
	}
	turns(20);
	assert_int_equal(boxes[0].counters[COUNT_DNS_TCP_LIMITED], 0);
	over = client_socket(SOCK_STREAM, &tcp_at[0]);
	assert_int_equal(end_of(over, WAIT_MS), -ECONNRESET);
	close(over);
	other = client_socket(SOCK_STREAM, &tcp_at[1]);
	send_frames(other, 1, 1);
	expect_frame(other, 1);
	close(other);
	close(fds[0]);
	turns(3);
	over = client_socket(SOCK_STREAM, &tcp_at[0]);
	send_frames(over, 1, 1);
	expect_frame(over, 1);
	close(over);
	for (size_t i = 1; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* Takes what descriptors are left. Return: how many of @fds. */
static size_t use_up_descriptors(int *fds, size_t most)
{
	struct rlimit room = { 0 };
	size_t n = 0;
	int next = dup(0);

	getrlimit(RLIMIT_NOFILE, &room);
	room.rlim_cur = (rlim_t)next + 3;
	setrlimit(RLIMIT_NOFILE, &room);
	close(next);
	while (n < most && (fds[n] = dup(0)) >= 0)
		n++;
	return n;
}

TEST_WITH(without_descriptors_a_client_is_reset_and_later_ones_served, setup, teardown)
{
	int fds[16], client = client_socket(SOCK_STREAM, &tcp_at[0]);
	struct rlimit before;
	size_t used;

	getrlimit(RLIMIT_NOFILE, &before);
	used = use_up_descriptors(fds, ARRAY_SIZE(fds));
	assert_true(used < ARRAY_SIZE(fds));
	assert_int_equal(end_of(client, WAIT_MS), -ECONNRESET);
	assert_true(boxes[0].counters[COUNT_DNS_TCP_LIMITED] >= 1);
	setrlimit(RLIMIT_NOFILE, &before);
	for (size_t i = 0; i < used; i++)
		close(fds[i]);
	close(client);
	client = client_socket(SOCK_STREAM, &tcp_at[0]);
	send_frames(client, 1, 1);
	expect_frame(client, 1);
	close(client);
}

static bool is_reset(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET;
}

/* In a child, which has the engine's system calls from then on. Return: 0, or what was
 * not as it should be. */
static int refuse_twice_when_confined(void)
{
	int fds[16], first = client_socket(SOCK_STREAM, &tcp_at[0]);
	int second = client_socket(SOCK_STREAM, &tcp_at[0]);
	struct err err;

	(void)use_up_descriptors(fds, ARRAY_SIZE(fds));
	if (confine_self(&err) < 0 || confine_calls(CONFINE_ENGINE, &err) < 0)
		return 1;
	for (int i = 0; i < 10; i++)
		if (loop_turn(loop, 5) < 0)
			return 2;
	if (!is_reset(first) || !is_reset(second))
		return 3;
	return boxes[0].counters[COUNT_DNS_TCP_LIMITED] == 2 ? 0 : 4;
}

TEST_WITH(a_confined_engine_without_descriptors_refuses_one_after_the_other, setup,
	  teardown)
{
	pid_t child;
	int status;

	if (!confine_has_calls())
		skip();
	child = fork();
	/* AddressSanitizer asks for the stack of signals before _exit(). */
	if (child == 0)
		syscall(SYS_exit_group, refuse_twice_when_confined());
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* While none can be had, not even to refuse, nothing is done in vain. */
TEST_WITH(a_listener_that_can_do_nothing_rests, setup, teardown)
{
	int fds[16], client = client_socket(SOCK_STREAM, &tcp_at[0]);
	struct rlimit before, none;
	size_t used, events = 0;
	int64_t until_ms;

	getrlimit(RLIMIT_NOFILE, &before);
	used = use_up_descriptors(fds, ARRAY_SIZE(fds));
	/* Not even those that it has: the one that is given up can't be used again. */
	none = before;
	none.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &none);
	until_ms = clock_now_ms() + 50;
	while (clock_now_ms() < until_ms) {
		turns(1);
		events++;
	}
	assert_true(events < 20);
	setrlimit(RLIMIT_NOFILE, &before);
	for (size_t i = 0; i < used; i++)
		close(fds[i]);
	send_frames(client, 1, 1);
	expect_frame(client, 1);
	close(client);
}

TEST_WITH(replies_that_nobody_takes_end_the_connection_after_five_seconds, setup,
	  teardown)
{
	struct sockaddr_storage address;
	socklen_t size = endpoint_to_sockaddr(&tcp_at[0], &address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096, error = 0;
	socklen_t length = sizeof(error);
	int64_t from = clock_now_ms(), took = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
	reply_size = 50000;
	for (uint16_t id = 1; id <= 8 && took < 1000; id++) {
		send_frames(fd, id, 1);
		turns(3);
		reply_size = 20000; /* so that the buffer of ours isn't what is full */
		took = clock_now_ms() - from;
	}
	while (error == 0 && took < WAIT_MS) {
		turns(1);
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
		took = clock_now_ms() - from;
	}
	assert_int_equal(error, ECONNRESET);
	assert_true(took >= 4900);
	close(fd);
}

TEST_WITH(a_client_that_does_not_read_is_reset, setup, teardown)
{
	int fd = client_socket(SOCK_STREAM, &tcp_at[0]), small = 4096;
	size_t rounds = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	reply_size = 60000;
	while (rounds < 100) {
		uint8_t frame[FRAME_SIZE];

		frame_fill(frame, 1);
		if (send(fd, frame, sizeof(frame), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		turns(1);
		rounds++;
	}
	turns(3);
	assert_true(rounds < 100 || seen_count < 100);
	/* What came is bounded by the buffers, not by what was asked. */
	assert_true(seen_count * reply_size < 4u * 1024 * 1024);
	close(fd);
}

TEST_WITH(the_tick_comes_when_the_resolver_wants_it, setup, teardown)
{
	int64_t until, due_ms;

	next_tick_ms = due_ms = clock_now_ms() + TICK_MS;
	turns(1);
	assert_true(ticks == 0 || clock_now_ms() >= due_ms);
	until = clock_now_ms() + WAIT_MS;
	while (ticks == 0 && clock_now_ms() < until)
		turns(1);
	assert_int_equal(ticks, 1);
}

TEST_WITH(upstream_responses_and_failures_reach_the_resolver, setup, teardown)
{
	const uint8_t query[QUERY_SIZE] = { 7, 7 };
	uint8_t bytes[QUERY_SIZE];
	struct sockaddr_storage from;
	socklen_t size = sizeof(from);
	struct pollfd p = { .fd = upstream_fd, .events = POLLIN };

	assert_int_equal(
		resolver.ops.send(resolver.ops.data, 5, 0, NULL, query, sizeof(query)),
		0);
	turns(1);
	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	assert_int_equal(recvfrom(upstream_fd, bytes, sizeof(bytes), 0,
				  (struct sockaddr *)&from, &size),
			 sizeof(bytes));
	assert_int_equal(sendto(upstream_fd, bytes, sizeof(bytes), 0,
				(struct sockaddr *)&from, size),
			 sizeof(bytes));
	for (int i = 0; i < 100 && response_tokens == 0; i++)
		turns(1);
	assert_int_equal(response_tokens, 5);
	close(upstream_fd);
	upstream_fd = -1;
	assert_int_equal(
		resolver.ops.send(resolver.ops.data, 6, 0, NULL, query, sizeof(query)),
		0);
	for (int i = 0; i < 100 && failed_tokens == 0; i++)
		turns(1);
	assert_int_equal(failed_tokens, 6);
	assert_int_equal(failed_error, -ECONNREFUSED);
}

TEST_WITH(random_bytes_do_not_repeat, setup, teardown)
{
	uint8_t a[3000], zero[16] = { 0 };

	resolver.ops.random(resolver.ops.data, a, sizeof(a));
	for (size_t i = 16; i + 16 <= sizeof(a); i++) {
		assert_memory_not_equal(a, a + i, 16);
		assert_memory_not_equal(zero, a + i, 16);
	}
}

TEST_WITH(a_commit_goes_to_the_sandboxes_filter_and_its_failure_comes_back, setup,
	  teardown)
{
	const struct filter_learn items[2] = { 0 };

	assert_int_equal(resolver.ops.commit(resolver.ops.data, &boxes[0], items, 2), 0);
	assert_ptr_equal(learned_items, items);
	assert_int_equal(resolver.ops.commit(resolver.ops.data, &boxes[0], items, 1),
			 -EIO);
}

TEST_WITH(a_detached_sandbox_is_served_no_more, setup, teardown)
{
	int udp = client_socket(SOCK_DGRAM, &udp_at[0]);
	int tcp = client_socket(SOCK_STREAM, &tcp_at[0]);
	int other = client_socket(SOCK_DGRAM, &udp_at[1]);

	send_frames(tcp, 1, 1);
	expect_frame(tcp, 1);
	dns_service_detach(service, &boxes[0]);
	assert_int_equal(detached, 1);
	assert_int_equal(end_of(tcp, WAIT_MS), -ECONNRESET);
	send_udp(udp, 2);
	send_udp(other, 3);
	expect_udp(other, 3);
	assert_int_equal(seen_count, 2);
	close(udp);
	close(tcp);
	close(other);
}

/* All in one test: they are waited for together. A connection whose answer is slow is not
 * idle. */
TEST_WITH(idle_and_slow_connections_are_ended_in_time, setup, teardown)
{
	const uint8_t part[] = { 0, QUERY_SIZE, 'x' };
	int waiting = client_socket(SOCK_STREAM, &tcp_at[0]);
	int idle = client_socket(SOCK_STREAM, &tcp_at[0]);
	int slow = client_socket(SOCK_STREAM, &tcp_at[0]);
	int64_t from = clock_now_ms();

	reply_at_once = false;
	send_frames(waiting, 2, 1);
	while (seen_count < 1)
		turns(1);
	send_frames(idle, 1, 1);
	while (seen_count < 2)
		turns(1);
	answer(1);
	expect_frame(idle, 1);
	assert_int_equal(send(slow, part, sizeof(part), 0), sizeof(part));
	assert_int_equal(end_of(slow, WAIT_MS), -ECONNRESET);
	assert_true(clock_now_ms() - from >= 4900);
	assert_int_equal(end_of(idle, WAIT_MS), 0);
	assert_true(clock_now_ms() - from >= 9900);
	answer(0);
	expect_frame(waiting, 2);
	close(waiting);
	close(idle);
	close(slow);
}

TEST_WITH(too_many_upstreams_are_an_error_and_none_is_not, setup, teardown)
{
	struct dns_service_config config = { .loop = loop };
	struct dns_service *without;
	struct err err = { 0 };

	config.upstream_count = RESOLVER_UPSTREAMS_MAX + 1;
	assert_null(dns_service_new(&config, &err));
	assert_int_equal(err.code, -EINVAL);
	config.upstream_count = 0;
	without = dns_service_new(&config, &err);
	assert_non_null(without);
	assert_int_equal(resolver.ops.send(resolver.ops.data, 1, 0, NULL, "12", 2),
			 -EINVAL);
	dns_service_free(without);
}

static struct sandbox guests[2];
static uint16_t guest_ports[2]; /* from where they dial */

static struct sandbox *guest_by_mark(void *data, uint32_t mark)
{
	assert_ptr_equal(data, guests);
	return mark >> 16 == 5 ? &guests[0] : mark >> 16 == 6 ? &guests[1] : NULL;
}

static struct sandbox *guest_by_socket(void *data, int fd)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(peer);

	assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &size), 0);
	for (size_t i = 0; i < 2; i++)
		if (endpoint_from_sockaddr(&peer).port == guest_ports[i])
			return &guests[i];
	return NULL;
}

static int marked_socket(const struct endpoint *to, uint32_t mark)
{
	int fd = client_socket(SOCK_DGRAM, to);

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof(mark)), 0);
	return fd;
}

static void share(struct dns_shared *shared)
{
	*shared = (struct dns_shared){
		.udp = { listen_on(SOCK_DGRAM, "127.0.0.3"), -1 },
		.tcp = { listen_on(SOCK_STREAM, "127.0.0.3"), -1 },
		.by_mark = guest_by_mark,
		.by_socket = guest_by_socket,
		.data = guests,
	};
	assert_int_equal(dns_service_share(service, shared), 0);
	for (size_t i = 0; i < 2; i++) {
		guests[i] = (struct sandbox){ .state = SANDBOX_RUNNING };
		for (size_t k = 0; k < SANDBOX_FD_COUNT; k++)
			guests[i].fds.fd[k] = -1;
		assert_int_equal(dns_service_attach(service, &guests[i]), 0);
	}
}

static void unshare_all(const struct dns_shared *shared)
{
	for (size_t i = 0; i < 2; i++)
		dns_service_detach(service, &guests[i]);
	turns(1);
	dns_service_free(service);
	service = NULL;
	close(shared->udp[0]);
	close(shared->tcp[0]);
}

TEST_WITH(of_a_shared_udp_socket_the_mark_says_who_asks, setup, teardown)
{
	struct dns_shared shared;
	struct endpoint at;
	int fd[3];

	share(&shared);
	at = bound(shared.udp[0]);
	fd[0] = marked_socket(&at, 5 << 16 | 7);
	fd[1] = marked_socket(&at, 6 << 16);
	fd[2] = marked_socket(&at, 0); /* nobody's */
	send_udp(fd[2], 3);
	send_udp(fd[0], 1);
	send_udp(fd[1], 2);
	wait_seen(2);
	assert_ptr_equal(seen[0].client.sandbox, &guests[0]);
	assert_ptr_equal(seen[1].client.sandbox, &guests[1]);
	expect_udp(fd[0], 1);
	expect_udp(fd[1], 2);
	guests[0].state = SANDBOX_CLOSED;
	send_udp(fd[0], 4);
	send_udp(fd[1], 5);
	wait_seen(3);
	assert_ptr_equal(seen[2].client.sandbox, &guests[1]);
	assert_false(wait_readable(fd[2], 20));
	for (size_t i = 0; i < 3; i++)
		close(fd[i]);
	unshare_all(&shared);
}

TEST_WITH(of_a_shared_tcp_listener_the_connection_says_who_asks, setup, teardown)
{
	struct dns_shared shared;
	struct endpoint at;
	uint8_t byte;
	int fd[3];

	share(&shared);
	at = bound(shared.tcp[0]);
	for (size_t i = 0; i < 3; i++) {
		fd[i] = client_socket(SOCK_STREAM, &at);
		if (i < 2)
			guest_ports[i] = bound(fd[i]).port;
	}
	send_frames(fd[0], 1, 1);
	send_frames(fd[1], 2, 1);
	wait_seen(2);
	assert_ptr_not_equal(seen[0].client.sandbox, seen[1].client.sandbox);
	for (size_t i = 0; i < 2; i++) {
		uint8_t id = seen[i].bytes[1];

		assert_ptr_equal(seen[i].client.sandbox, &guests[id - 1]);
	}
	expect_frame(fd[0], 1);
	expect_frame(fd[1], 2);
	assert_true(wait_readable(fd[2], WAIT_MS));
	assert_int_equal(recv(fd[2], &byte, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	for (size_t i = 0; i < 3; i++)
		close(fd[i]);
	unshare_all(&shared);
}

int main(void)
{
	if (!own_netns_enter(&have_ipv6)) {
		fprintf(stderr, "no network namespace, skipping\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
