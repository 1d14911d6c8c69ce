// SPDX-License-Identifier: Apache-2.0
/* Real sockets on the loopback of a network namespace of the program's own; the
 * servers are played by the test itself. */
#include "resolver/upstream.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "own_netns.h"
#include "unit.h"

enum { NOTES_MAX = 4096, QUERY_SIZE = 20, WAIT_MS = 60 * 1000 };

struct note {
	uint32_t token;
	bool failed;
	int error;
	size_t size;
	uint8_t first[4];
};

static struct loop *loop;
static struct upstreams *upstreams;
static struct note notes[NOTES_MAX];
static size_t note_count;
static bool cancel_on_message;
static bool have_ipv6;
static struct own_ports own; /* nobody's, unless a test says so */
static struct {
	bool again; /* send the token to that server when it fails */
	size_t server;
	uint32_t before; /* and this token to server 0 before that; 0: none */
} retry;
/* A UDP and a TCP socket of the test for each of the two servers. */
static int udp_server[2], tcp_server[2];

static void on_message(void *data, uint32_t token, const void *message, size_t size)
{
	struct note *n = &notes[note_count++];

	*n = (struct note){ .token = token, .size = size };
	memcpy(n->first, message, MIN(size, sizeof(n->first)));
	if (cancel_on_message)
		upstreams_cancel(upstreams, token);
}

static void query_bytes(uint8_t *bytes, uint16_t id)
{
	memset(bytes, 'q', QUERY_SIZE);
	bytes[0] = (uint8_t)(id >> 8);
	bytes[1] = (uint8_t)id;
}

static int send_query_for(uint32_t token, size_t server, const void *tcp_for, uint16_t id)
{
	uint8_t bytes[QUERY_SIZE];
	int r;

	query_bytes(bytes, id);
	r = upstreams_send(upstreams, token, server, tcp_for, bytes, sizeof(bytes));
	upstreams_flush(upstreams);
	return r;
}

static int send_query(uint32_t token, size_t server, bool tcp, uint16_t id)
{
	return send_query_for(token, server, tcp ? "somebody" : NULL, id);
}

static void on_failed(void *data, uint32_t token, int error)
{
	notes[note_count++] =
		(struct note){ .token = token, .failed = true, .error = error };
	if (!retry.again)
		return;
	retry.again = false;
	if (retry.before > 0)
		assert_int_equal(send_query(retry.before, 0, false, 1), 0);
	assert_int_equal(send_query(token, retry.server, false, 1), 0);
}

static struct endpoint bound(int fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
	return endpoint_from_sockaddr(&address);
}

/* Return: -1: another socket has @port. */
static int server_socket(int type, const char *address, uint16_t port)
{
	struct sockaddr_storage to;
	struct endpoint e;
	socklen_t size;
	int fd, one = 1;

	assert_true(endpoint_parse(address, strlen(address), port, &e));
	e.port = port;
	size = endpoint_to_sockaddr(&e, &to);
	fd = socket(to.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&to, size) < 0) {
		assert_int_equal(errno, EADDRINUSE);
		close(fd);
		return -1;
	}
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 128), 0);
	return fd;
}

/* The filter that sockets with a port of their own tell. */
static struct {
	bool held[2][65536]; /* of UDP, of TCP; IPv4 and IPv6 don't share ports here */
	size_t count;
	int fails;
	uint16_t early_id; /* to the port that is being held, before it is connected */
} filter;

static bool *held(uint8_t protocol, uint16_t port)
{
	return &filter.held[protocol == IPPROTO_TCP][port];
}

/* The datagram is there: on a busy machine the loopback delivers later than it takes. */
static void wait_until_queued(uint16_t port)
{
	enum { FDS = 64 };

	for (int fd = 0; fd < FDS; fd++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		struct sockaddr_storage address;
		socklen_t size = sizeof(address), type_size = sizeof(int);
		int type = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) < 0 ||
		    type != SOCK_DGRAM ||
		    getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
		    endpoint_from_sockaddr(&address).port != port)
			continue;
		assert_int_equal(poll(&p, 1, WAIT_MS), 1);
		return;
	}
	fail_msg("no socket has port %u", port);
}

static void send_early(enum addr_family family, uint16_t port)
{
	struct endpoint to = { .addr = addr_v4(127, 0, 0, 1), .port = port };
	struct sockaddr_storage address;
	uint8_t bytes[QUERY_SIZE];
	socklen_t size;

	if (family == ADDR_V6)
		to.addr = addr_from_bytes(ADDR_V6, (const uint8_t[16]){ [15] = 1 });
	size = endpoint_to_sockaddr(&to, &address);
	query_bytes(bytes, filter.early_id);
	/* From the server's own address: only the time tells it from an answer. */
	assert_int_equal(sendto(udp_server[0], bytes, sizeof(bytes), 0,
				(const struct sockaddr *)&address, size),
			 sizeof(bytes));
	wait_until_queued(port);
}

static int on_hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	if (filter.fails > 0 && filter.fails-- > 0)
		return -ENOSPC;
	assert_int_not_equal(port, 0);
	assert_false(*held(protocol, port));
	*held(protocol, port) = true;
	filter.count++;
	if (filter.early_id != 0)
		send_early(family, port);
	return 0;
}

static void on_let_go(void *data, enum addr_family family, uint8_t protocol,
		      uint16_t port)
{
	assert_true(*held(protocol, port));
	*held(protocol, port) = false;
	filter.count--;
}

static int use_own_ports(void **state)
{
	own = (struct own_ports){ .mark = 7, .hold = on_hold, .let_go = on_let_go };
	return 0;
}

static int use_any_ports(void **state)
{
	own = (struct own_ports){ .hold = on_hold, .let_go = on_let_go };
	return 0;
}

static int setup(void **state)
{
	struct endpoint servers[2];
	struct upstreams_config config = {
		.servers = servers,
		.count = 2,
		.own = own,
		.ops = { .on_message = on_message, .on_failed = on_failed },
	};

	memset(&filter, 0, sizeof(filter));
	note_count = 0;
	cancel_on_message = true;
	retry.again = false;
	retry.before = 0;
	for (size_t i = 0; i < 2; i++) {
		const char *address = i == 1 && have_ipv6 ? "::1" : "127.0.0.1";

		do {
			udp_server[i] = server_socket(SOCK_DGRAM, address, 0);
			servers[i] = bound(udp_server[i]);
			tcp_server[i] =
				server_socket(SOCK_STREAM, address, servers[i].port);
		} while (tcp_server[i] < 0 && close(udp_server[i]) == 0);
	}
	config.loop = loop = loop_new();
	upstreams = upstreams_new(&config);
	return upstreams ? 0 : -1;
}

static int teardown(void **state)
{
	upstreams_free(upstreams);
	loop_free(loop);
	assert_int_equal(filter.count, 0);
	for (size_t i = 0; i < 2; i++) {
		if (udp_server[i] >= 0)
			close(udp_server[i]);
		if (tcp_server[i] >= 0)
			close(tcp_server[i]);
	}
	return 0;
}

/* Turn until there are @count notes. */
static void wait_notes(size_t count)
{
	int64_t until = clock_now_ms() + WAIT_MS;

	while (note_count < count && clock_now_ms() < until)
		assert_int_equal(loop_turn(loop, 10), 0);
	assert_int_equal(note_count, count);
}

/* Nothing comes any more. */
static void wait_nothing(void)
{
	size_t before = note_count;

	for (int i = 0; i < 5; i++)
		assert_int_equal(loop_turn(loop, 5), 0);
	assert_int_equal(note_count, before);
}

struct datagram {
	uint8_t bytes[512];
	ssize_t size;
	struct sockaddr_storage from;
	socklen_t from_size;
};

static void server_receive(int fd, struct datagram *ret)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	ret->from_size = sizeof(ret->from);
	ret->size = recvfrom(fd, ret->bytes, sizeof(ret->bytes), 0,
			     (struct sockaddr *)&ret->from, &ret->from_size);
	assert_true(ret->size > 0);
	assert_int_equal(*held(IPPROTO_UDP, endpoint_from_sockaddr(&ret->from).port),
			 own.mark != 0);
}

static void server_answer(int fd, const struct datagram *query)
{
	assert_int_equal(sendto(fd, query->bytes, (size_t)query->size, 0,
				(const struct sockaddr *)&query->from, query->from_size),
			 query->size);
}

static void a_udp_answer_comes_back_with_its_token(void **state)
{
	struct datagram q;

	for (size_t server = 0; server < 2; server++) {
		assert_int_equal(send_query(70 + server, server, false, 0x1234), 0);
		server_receive(udp_server[server], &q);
		server_answer(udp_server[server], &q);
		wait_notes(server + 1);
		assert_int_equal(notes[server].token, 70 + server);
		assert_int_equal(notes[server].size, QUERY_SIZE);
		assert_false(notes[server].failed);
	}
}

static void an_answer_with_another_id_is_dropped_and_the_wait_goes_on(void **state)
{
	struct datagram q;

	assert_int_equal(send_query(1, 0, false, 0x1234), 0);
	server_receive(udp_server[0], &q);
	q.bytes[1] ^= 1;
	server_answer(udp_server[0], &q);
	wait_nothing();
	q.bytes[1] ^= 1;
	server_answer(udp_server[0], &q);
	wait_notes(1);
}

static void an_answer_from_another_address_or_port_is_dropped(void **state)
{
	struct datagram q;
	int other_port = server_socket(SOCK_DGRAM, "127.0.0.1", 0);
	int other_address =
		server_socket(SOCK_DGRAM, "127.0.0.2", bound(udp_server[0]).port);

	assert_int_equal(send_query(1, 0, false, 7), 0);
	server_receive(udp_server[0], &q);
	server_answer(other_port, &q);
	server_answer(other_address, &q);
	wait_nothing();
	close(other_port);
	close(other_address);
}

static void all_requests_with_the_id_are_told(void **state)
{
	enum { SAME = 12 };
	struct datagram q;

	cancel_on_message = false;
	for (uint32_t i = 0; i < SAME; i++)
		assert_int_equal(send_query(i, 0, false, 5), 0);
	for (uint32_t i = 0; i < SAME; i++) {
		server_receive(udp_server[0], &q);
		server_answer(udp_server[0], &q);
	}
	while (loop_turn(loop, 20) == 0 && note_count < SAME)
		;
	assert_true(note_count >= SAME);
	for (uint32_t token = 0; token < SAME; token++) {
		bool told = false;

		for (size_t i = 0; i < note_count; i++)
			told = told || notes[i].token == token;
		assert_true(told);
	}
}

static void set_loopback_mtu(int mtu)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_mtu = mtu };

	assert_int_equal(ioctl(udp_server[0], SIOCSIFMTU, &lo), 0);
}

/* @count messages of @size(i) octets in one flush: each arrives as it was, whatever way
 * it took. */
static void expect_turn_arrives(size_t count, const size_t *sizes, size_t size_count)
{
	bool seen[64] = { false };

	for (uint32_t i = 0; i < count; i++) {
		uint8_t bytes[512];
		size_t size = sizes[i % size_count];

		memset(bytes, (int)i, sizeof(bytes));
		assert_int_equal(upstreams_send(upstreams, i, 0, NULL, bytes, size), 0);
	}
	upstreams_flush(upstreams);
	for (size_t i = 0; i < count; i++) {
		struct datagram q;

		server_receive(udp_server[0], &q);
		assert_true(q.bytes[0] < count && !seen[q.bytes[0]]);
		seen[q.bytes[0]] = true;
		assert_int_equal(q.size, sizes[q.bytes[0] % size_count]);
		for (ssize_t k = 0; k < q.size; k++)
			assert_int_equal(q.bytes[k], q.bytes[0]);
	}
}

static void a_turn_arrives_whole_whatever_the_sizes(void **state)
{
	static const struct {
		const char *what;
		size_t sizes[4];
		size_t size_count;
		int mtu;
	} cases[] = {
		{ "all of one size", { 40 }, 1, 65536 },
		{ "two sizes in turn", { 40, 41 }, 2, 65536 },
		{ "each its own, among others", { 30, 60, 30, 90 }, 4, 65536 },
		{ "the largest", { 512 }, 1, 65536 },
		{ "too large for a segment of the way", { 512 }, 1, 300 },
		{ "after the way refused segments", { 40 }, 1, 300 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		set_loopback_mtu(cases[i].mtu);
		for (size_t count = 1; count <= 64; count += 21)
			expect_turn_arrives(count, cases[i].sizes, cases[i].size_count);
	}
	set_loopback_mtu(65536);
}

static void a_cancelled_request_hears_nothing(void **state)
{
	struct datagram q;

	assert_int_equal(send_query(1, 0, false, 9), 0);
	server_receive(udp_server[0], &q);
	upstreams_cancel(upstreams, 1);
	upstreams_cancel(upstreams, 1);
	server_answer(udp_server[0], &q);
	wait_nothing();
}

static void the_source_port_changes_and_is_not_used_too_long(void **state)
{
	enum { QUERIES = 1000, PORTS_MIN = 12 };
	uint16_t ports[QUERIES];
	size_t distinct = 0;

	for (uint32_t i = 0; i < QUERIES; i++) {
		struct datagram q;
		bool seen = false;

		assert_int_equal(send_query(i, 0, false, (uint16_t)i), 0);
		server_receive(udp_server[0], &q);
		server_answer(udp_server[0], &q);
		wait_notes(i + 1);
		ports[i] = endpoint_from_sockaddr(&q.from).port;
		for (uint32_t k = 0; k < i; k++)
			seen = seen || ports[k] == ports[i];
		distinct += !seen;
	}
	assert_true(distinct >= PORTS_MIN);
}

static void a_spent_socket_still_hears_its_late_answers(void **state)
{
	enum { QUERIES = 400 };
	struct datagram first, q;

	assert_int_equal(send_query(100000, 0, false, 0xabcd), 0);
	server_receive(udp_server[0], &first);
	for (uint32_t i = 0; i < QUERIES; i++) {
		assert_int_equal(send_query(i, 0, false, (uint16_t)i), 0);
		server_receive(udp_server[0], &q);
		server_answer(udp_server[0], &q);
		wait_notes(i + 1);
	}
	server_answer(udp_server[0], &first);
	wait_notes(QUERIES + 1);
	assert_int_equal(notes[QUERIES].token, 100000);
}

static void unanswered_requests_use_a_bounded_number_of_sockets(void **state)
{
	enum { MOST = 9000, LIMIT = 8192 };
	uint32_t taken = 0;

	while (taken < MOST && send_query(taken, 0, false, (uint16_t)taken) == 0) {
		struct datagram q;

		server_receive(udp_server[0], &q);
		taken++;
	}
	assert_int_equal(taken, LIMIT);
	assert_int_equal(send_query(taken, 0, false, 1), -ENOBUFS);
	upstreams_cancel(upstreams, 0);
	assert_int_equal(send_query(taken, 0, false, 1), 0);
}

static void a_refused_datagram_fails_at_once(void **state)
{
	close(udp_server[0]);
	udp_server[0] = -1;
	assert_int_equal(send_query(3, 0, false, 1), 0);
	wait_notes(1);
	assert_true(notes[0].failed);
	assert_int_equal(notes[0].error, -ECONNREFUSED);
	assert_int_equal(notes[0].token, 3);
}

static void many_refused_datagrams_all_end(void **state)
{
	enum { QUERIES = 300 };

	close(udp_server[0]);
	udp_server[0] = -1;
	for (uint32_t i = 0; i < QUERIES; i++)
		assert_int_equal(send_query(i, 0, false, 1), 0);
	wait_notes(QUERIES);
}

static void a_failed_request_may_go_to_the_next_server_from_the_callback(void **state)
{
	struct datagram q;

	close(udp_server[0]);
	udp_server[0] = -1;
	retry.again = true;
	retry.server = 1;
	assert_int_equal(send_query(3, 0, false, 1), 0);
	wait_notes(1);
	server_receive(udp_server[1], &q);
	server_answer(udp_server[1], &q);
	wait_notes(2);
	assert_false(notes[1].failed);
	assert_int_equal(notes[1].token, 3);
}

/* The kernel tells of a refusal when the next datagram leaves by that socket. What the
 * callback sends then makes the socket a new one, for another server. */
static void a_request_from_the_callback_does_not_fail_with_the_socket(void **state)
{
	enum { TURNS = 4 }; /* until a server's first socket is used again */

	close(udp_server[0]);
	udp_server[0] = -1;
	assert_int_equal(send_query(3, 0, false, 1), 0);
	upstreams_cancel(upstreams, 3);
	for (int i = 1; i < TURNS; i++)
		upstreams_flush(upstreams);
	assert_int_equal(send_query(4, 0, false, 1), 0);
	for (int i = 1; i < TURNS; i++)
		upstreams_flush(upstreams);
	retry.again = true;
	retry.server = 1;
	retry.before = 5;
	wait_notes(2);
	assert_int_equal(notes[0].token, 4);
	assert_int_equal(notes[1].token, 5);
	wait_nothing();
}

static void an_unknown_server_is_an_error(void **state)
{
	assert_int_equal(send_query(1, 2, false, 1), -EINVAL);
}

static int server_accept(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	struct sockaddr_storage from;
	socklen_t size = sizeof(from);
	int fd;

	assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(*held(IPPROTO_TCP, endpoint_from_sockaddr(&from).port),
			 own.mark != 0);
	return fd;
}

/* The query as it came over TCP, its length checked. */
static int tcp_accept_query(uint32_t token)
{
	uint8_t bytes[2 + QUERY_SIZE], expected[QUERY_SIZE];
	int fd;

	assert_int_equal(send_query(token, 0, true, 0x0102), 0);
	fd = server_accept(tcp_server[0]);
	assert_int_equal(loop_turn(loop, 50), 0);
	assert_int_equal(recv(fd, bytes, sizeof(bytes), MSG_WAITALL), sizeof(bytes));
	query_bytes(expected, 0x0102);
	assert_int_equal(bytes[0] << 8 | bytes[1], QUERY_SIZE);
	assert_memory_equal(bytes + 2, expected, QUERY_SIZE);
	return fd;
}

static void a_tcp_answer_may_be_split_at_any_byte(void **state)
{
	const uint8_t answer[] = { 0, 6, 0x01, 0x02, 'a', 'b', 'c', 'd' };
	int one = 1;

	for (size_t cut = 0; cut <= sizeof(answer); cut++) {
		int fd = tcp_accept_query((uint32_t)cut);

		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (cut > 0)
			assert_int_equal(send(fd, answer, cut, 0), cut);
		if (cut < sizeof(answer)) {
			wait_nothing();
			send(fd, answer + cut, sizeof(answer) - cut, 0);
		}
		wait_notes(cut + 1);
		assert_false(notes[cut].failed);
		assert_int_equal(notes[cut].size, 6);
		assert_memory_equal(notes[cut].first, answer + 2, 4);
		close(fd);
	}
}

static void the_largest_tcp_answer_is_read_whole(void **state)
{
	static uint8_t answer[2 + 65535] = { 0xff, 0xff, 0x01, 0x02 };
	int fd = tcp_accept_query(1);
	size_t sent = 0;

	while (sent < sizeof(answer)) {
		ssize_t n = send(fd, answer + sent, sizeof(answer) - sent, MSG_DONTWAIT);

		sent += n > 0 ? (size_t)n : 0;
		assert_int_equal(loop_turn(loop, 5), 0);
	}
	wait_notes(1);
	assert_int_equal(notes[0].size, 65535);
	close(fd);
}

static void a_tcp_connection_that_ends_early_fails(void **state)
{
	const uint8_t part[] = { 0, 6, 0x01 };

	for (size_t size = 0; size <= sizeof(part); size++) {
		int fd = tcp_accept_query((uint32_t)size);

		if (size > 0)
			assert_int_equal(send(fd, part, size, 0), size);
		close(fd);
		wait_notes(size + 1);
		assert_true(notes[size].failed);
		assert_int_equal(notes[size].error, -ECONNRESET);
	}
}

static void a_tcp_answer_that_is_not_wanted_is_the_last(void **state)
{
	const uint8_t answer[] = { 0, 3, 0x01, 0x02, 'a' };
	int fd = tcp_accept_query(1);

	cancel_on_message = false;
	assert_int_equal(send(fd, answer, sizeof(answer), 0), sizeof(answer));
	wait_notes(2);
	assert_false(notes[0].failed);
	assert_true(notes[1].failed);
	close(fd);
}

static void a_refused_tcp_connection_fails(void **state)
{
	int r;

	close(tcp_server[0]);
	tcp_server[0] = -1;
	r = send_query(1, 0, true, 1);
	if (r == 0) {
		wait_notes(1);
		assert_true(notes[0].failed);
		assert_int_equal(notes[0].error, -ECONNREFUSED);
	} else {
		assert_int_equal(r, -ECONNREFUSED);
	}
}

static void tcp_connections_are_bounded_and_come_free_again(void **state)
{
	enum { LIMIT = 64 };

	for (uint32_t i = 0; i < LIMIT; i++)
		assert_int_equal(send_query(i, 0, true, 1), 0);
	assert_int_equal(send_query(LIMIT, 0, true, 1), -EMFILE);
	upstreams_cancel(upstreams, 5);
	assert_int_equal(send_query(LIMIT, 0, true, 1), 0);
}

static void nobody_has_all_tcp_connections(void **state)
{
	static const char some[1], others[1];
	uint32_t token = 0, most = 0;

	while (token < 1000 && send_query_for(token, 0, some, 1) == 0)
		token++;
	most = token;
	assert_in_range(most, 32, 999);
	for (uint32_t i = 0; i < most / 2; i++)
		assert_int_equal(send_query_for(token++, 0, others, 1), 0);
	assert_int_equal(send_query_for(token, 0, some, 1), -EMFILE);
}

static void sending_a_token_again_replaces_what_it_waited_for(void **state)
{
	struct datagram q;
	const uint8_t answer[] = { 0, 3, 0x01, 0x02, 'a' };
	int fd;

	assert_int_equal(send_query(1, 0, false, 0x0102), 0);
	server_receive(udp_server[0], &q);
	fd = tcp_accept_query(1);
	server_answer(udp_server[0], &q);
	wait_nothing();
	assert_int_equal(send(fd, answer, sizeof(answer), 0), sizeof(answer));
	wait_notes(1);
	close(fd);
}

/* What the filter doesn't take never leaves, and the next request asks it again. */
static void without_a_held_port_nothing_leaves(void **state)
{
	struct datagram q;

	for (int tcp = 0; tcp < 2; tcp++) {
		struct pollfd p = { .fd = tcp ? tcp_server[0] : udp_server[0],
				    .events = POLLIN };

		filter.fails = 1;
		assert_int_equal(send_query(1, 0, tcp, 1), -ENOSPC);
		assert_int_equal(poll(&p, 1, 50), 0);
		assert_int_equal(filter.count, tcp);
		assert_int_equal(send_query(1, 0, tcp, 1), 0);
		assert_int_equal(poll(&p, 1, WAIT_MS), 1);
	}
	server_receive(udp_server[0], &q);
}

static void what_came_before_the_connect_is_thrown_away(void **state)
{
	struct datagram q;

	filter.early_id = 0x0102;
	assert_int_equal(send_query(1, 0, false, 0x0102), 0);
	wait_nothing();
	server_receive(udp_server[0], &q);
	server_answer(udp_server[0], &q);
	wait_notes(1);
	assert_false(notes[0].failed);
}

/* Not even with what lets sockets share a port. */
static void nobody_else_can_bind_a_held_port(void **state)
{
	struct datagram q;

	assert_int_equal(send_query(1, 0, false, 1), 0);
	server_receive(udp_server[0], &q);
	for (int everywhere = 0; everywhere < 2; everywhere++) {
		struct endpoint e = endpoint_from_sockaddr(&q.from);
		CLEAN(fd) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		struct sockaddr_storage address;
		socklen_t size;
		int one = 1;

		if (everywhere)
			e.addr = addr_v4(0, 0, 0, 0);
		size = endpoint_to_sockaddr(&e, &address);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
		assert_int_equal(bind(fd, (struct sockaddr *)&address, size), -1);
		assert_int_equal(errno, EADDRINUSE);
	}
}

int main(void)
{
#define RULE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define COMMON                                                                           \
	RULE(a_udp_answer_comes_back_with_its_token),                                    \
		RULE(an_answer_with_another_id_is_dropped_and_the_wait_goes_on),         \
		RULE(an_answer_from_another_address_or_port_is_dropped),                 \
		RULE(all_requests_with_the_id_are_told),                                 \
		RULE(a_cancelled_request_hears_nothing),                                 \
		RULE(the_source_port_changes_and_is_not_used_too_long),                  \
		RULE(a_spent_socket_still_hears_its_late_answers),                       \
		RULE(unanswered_requests_use_a_bounded_number_of_sockets),               \
		RULE(a_refused_datagram_fails_at_once),                                  \
		RULE(many_refused_datagrams_all_end),                                    \
		RULE(a_failed_request_may_go_to_the_next_server_from_the_callback),      \
		RULE(a_request_from_the_callback_does_not_fail_with_the_socket),         \
		RULE(an_unknown_server_is_an_error),                                     \
		RULE(a_tcp_answer_may_be_split_at_any_byte),                             \
		RULE(the_largest_tcp_answer_is_read_whole),                              \
		RULE(a_tcp_connection_that_ends_early_fails),                            \
		RULE(a_tcp_answer_that_is_not_wanted_is_the_last),                       \
		RULE(a_refused_tcp_connection_fails),                                    \
		RULE(tcp_connections_are_bounded_and_come_free_again),                   \
		RULE(nobody_has_all_tcp_connections),                                    \
		RULE(sending_a_token_again_replaces_what_it_waited_for)
	const struct CMUnitTest with_own_ports[] = {
		COMMON,
		RULE(without_a_held_port_nothing_leaves),
		RULE(what_came_before_the_connect_is_thrown_away),
		RULE(nobody_else_can_bind_a_held_port),
	};
	const struct CMUnitTest with_any_ports[] = {
		COMMON,
		/* Last: a small MTU takes ::1 from the loopback for good. */
		RULE(a_turn_arrives_whole_whatever_the_sizes),
	};

	if (!own_netns_enter(&have_ipv6)) {
		fprintf(stderr, "no network namespace, skipping\n");
		return 77;
	}
	return cmocka_run_group_tests(with_own_ports, use_own_ports, NULL) +
	       cmocka_run_group_tests(with_any_ports, use_any_ports, NULL);
}
