// SPDX-License-Identifier: Apache-2.0
/* The relay in a namespace that it shares with the sandbox: it dials from ports that the
 * filter knows as Weir's own. The filter is a table here. */
#include <errno.h>
#include <string.h>

#include "relay/relay_internal.h"
#include "test_relay_world.h"
#include "unit.h"

enum { PORT = 8000, MARK = 0x1234, MANY = 300 };

static struct world w;

static struct {
	bool held[65536];
	size_t count, calls;
	int error;
} filter;

static int on_hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	filter.calls++;
	if (filter.error < 0)
		return filter.error;
	assert_int_equal(protocol, IPPROTO_TCP);
	assert_false(filter.held[port]);
	filter.held[port] = true;
	filter.count++;
	return 0;
}

static void on_let_go(void *data, enum addr_family family, uint8_t protocol,
		      uint16_t port)
{
	assert_int_equal(protocol, IPPROTO_TCP);
	assert_true(filter.held[port]);
	filter.held[port] = false;
	filter.count--;
}

static const char *const open_rules[] = { "allow " FAR_A, "allow " FAR_B, "allow " FAR_6,
					  NULL };

static int start(void **state)
{
	memset(&filter, 0, sizeof(filter));
	world_start(&w, open_rules);
	w.sandbox.shared = true;
	w.sandbox.own =
		(struct own_ports){ .mark = MARK, .hold = on_hold, .let_go = on_let_go };
	return 0;
}

static int stop(void **state)
{
	world_stop(&w);
	assert_int_equal(filter.count, 0);
	return 0;
}

struct pair {
	int client, server;
};

static struct pair pair_open(const char *addr)
{
	int listener = world_listen(&w, FAR, addr, PORT);
	struct pair p = { .client = world_connect(&w, INSIDE, addr, PORT) };

	p.server = world_accept(&w, listener);
	close(listener);
	return p;
}

static uint16_t peer_port(int fd)
{
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);

	assert_int_equal(getpeername(fd, (struct sockaddr *)&sa, &size), 0);
	return endpoint_from_sockaddr(&sa).port;
}

static void echo(struct pair p)
{
	char text[4];

	world_write_all(&w, p.client, "ping", 4);
	assert_int_equal(world_read(&w, p.server, text, 4), 4);
	world_write_all(&w, p.server, "pong", 4);
	assert_int_equal(world_read(&w, p.client, text, 4), 4);
}

static void assert_reset(int fd)
{
	char byte;

	assert_int_equal(world_read(&w, fd, &byte, 1), -ECONNRESET);
	close(fd);
}

static void turn(int times)
{
	for (int i = 0; i < times; i++)
		world_turn(&w);
}

TEST_WITH(test_a_dial_leaves_from_a_port_that_is_held, start, stop)
{
	struct pair four = pair_open(FAR_A), six = pair_open(FAR_6);

	assert_true(filter.held[peer_port(four.server)]);
	assert_true(filter.held[peer_port(six.server)]);
	assert_int_equal(filter.count, 2);
	echo(four);
	echo(six);
	close(four.client);
	close(four.server);
	close(six.client);
	close(six.server);
	assert_true(world_drained(&w));
	assert_int_equal(filter.count, 0);
}

TEST_WITH(test_nothing_is_dialled_from_a_port_that_the_filter_does_not_know, start, stop)
{
	int listener = world_listen(&w, FAR, FAR_A, PORT), client;

	filter.error = -ENOSPC;
	client = world_connect(&w, INSIDE, FAR_A, PORT);
	assert_reset(client);
	turn(20);
	assert_int_equal(accept4(listener, NULL, NULL, SOCK_NONBLOCK), -1);
	assert_int_equal(errno, EAGAIN);
	assert_true(filter.calls > 0);
	assert_int_equal(w.sandbox.counters[COUNT_FLOWS_LIMITED], 1);
	close(listener);
}

/* The port is asked for again until there is one, for one attempt. */
TEST_WITH(test_an_address_without_a_port_is_dialled_later, start, stop)
{
	static const char *const rules[] = { "allow api.example.com", NULL };
	static const int errors[] = { -ENOSPC, -EADDRINUSE };

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		int listener = world_listen(&w, FAR, FAR_B, PORT), client, server;
		const struct relay_dial *d;

		stop(NULL);
		start(NULL);
		world_set_plan(&w, rules);
		world_teach(&w, "api.example.com", FAR_HOLE);
		world_teach(&w, "api.example.com", FAR_B);
		client = world_connect(&w, INSIDE, FAR_HOLE, PORT);
		while (filter.calls < 1)
			world_turn(&w);
		filter.error = errors[i];
		while (filter.calls < 4)
			world_turn(&w);
		d = LIST_FIRST(&w.sandbox.relayed->flows)->dial;
		assert_int_equal(d->made, 1);
		assert_int_equal(d->open, 1);
		filter.error = 0;
		server = world_accept(&w, listener);
		echo((struct pair){ client, server });
		close(client);
		close(server);
		close(listener);
		assert_true(world_drained(&w));
	}
}

TEST_WITH(test_a_dial_that_fails_lets_its_port_go, start, stop)
{
	int client = world_connect(&w, INSIDE, FAR_A, PORT);

	assert_reset(client);
	assert_int_equal(filter.calls, 1);
	assert_int_equal(filter.count, 0);
}

TEST_WITH(test_a_server_that_resets_frees_the_port, start, stop)
{
	const struct linger linger = { .l_onoff = 1 };
	struct pair p = pair_open(FAR_A);

	setsockopt(p.server, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(p.server);
	assert_reset(p.client);
	assert_int_equal(filter.count, 0);
}

TEST_WITH(test_what_is_revoked_is_reset_on_both_sides, start, stop)
{
	static const char *const fewer[] = { "allow " FAR_B, NULL };
	struct pair a = pair_open(FAR_A), b = pair_open(FAR_B);

	world_set_plan(&w, fewer);
	relay_recheck(&w.sandbox);
	assert_reset(a.client);
	assert_reset(a.server); /* no end of file: what came is not the whole */
	assert_int_equal(filter.count, 1);
	echo(b);
	close(b.client);
	close(b.server);
}

/* Bytes that wait when the policy changes don't pass. */
TEST_WITH(test_no_byte_passes_once_a_flow_is_revoked, start, stop)
{
	static const char *const none[] = { "deny " FAR_A, NULL };
	static struct pair pairs[MANY];
	char byte;

	for (size_t i = 0; i < MANY; i++)
		pairs[i] = pair_open(FAR_A);
	assert_int_equal(filter.count, MANY);
	for (size_t i = 0; i < MANY; i++)
		assert_int_equal(send(pairs[i].client, "x", 1, MSG_NOSIGNAL), 1);
	world_set_plan(&w, none);
	relay_recheck(&w.sandbox);
	assert_true(world_drained(&w));
	assert_int_equal(filter.count, 0);
	for (size_t i = 0; i < MANY; i++) {
		assert_int_equal(world_read(&w, pairs[i].server, &byte, 1), -ECONNRESET);
		close(pairs[i].server);
		close(pairs[i].client);
	}
}

TEST_WITH(test_an_address_of_the_namespace_is_not_dialled, start, stop)
{
	static const char *const named[] = { "allow " HERE, NULL };
	int listener = world_listen(&w, OUTSIDE, HERE, PORT), client;

	world_set_plan(&w, named);
	client = world_connect(&w, INSIDE, HERE, PORT);
	assert_reset(client);
	assert_int_equal(accept4(listener, NULL, NULL, SOCK_NONBLOCK), -1);
	assert_int_equal(filter.calls, 0);
	close(listener);
}

int main(void)
{
	if (!world_namespaces(&w)) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
