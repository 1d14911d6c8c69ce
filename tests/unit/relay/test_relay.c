// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "relay/relay_internal.h"
#include "test_relay_world.h"
#include "unit.h"

enum { PORT = 8000 };

static struct world w;

/* One connection through the relay: client inside, server far. */
struct pair {
	int client, server;
};

static const char *const open_rules[] = { "allow " FAR_A,    "allow " FAR_B,
					  "allow " FAR_DEAD, "allow " FAR_HOLE,
					  "allow " FAR_6,    NULL };

static int start_open(void **state)
{
	world_start(&w, open_rules);
	return 0;
}

static struct rlimit at_start;

static int remember_limits(void **state)
{
	return getrlimit(RLIMIT_NOFILE, &at_start);
}

static void leave_descriptors(rlim_t count)
{
	struct rlimit few = { .rlim_cur = count, .rlim_max = at_start.rlim_max };

	setrlimit(RLIMIT_NOFILE, &few);
}

static int stop(void **state)
{
	/* A test that failed takes no others along. */
	setrlimit(RLIMIT_NOFILE, &at_start);
	world_stop(&w);
	return 0;
}

static struct pair pair_open(void)
{
	int listener = world_listen(&w, FAR, FAR_A, PORT);
	struct pair p = { .client = world_connect(&w, INSIDE, FAR_A, PORT) };

	p.server = world_accept(&w, listener);
	close(listener);
	return p;
}

static void pair_close(struct pair p)
{
	close(p.client);
	close(p.server);
}

static void reset(int fd)
{
	const struct linger linger = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	close(fd);
}

static uint64_t count(enum sandbox_counter c)
{
	return w.sandbox.counters[c];
}

static void assert_reset(int client)
{
	char byte;

	assert_int_equal(world_read(&w, client, &byte, 1), -ECONNRESET);
	close(client);
}

/* --- bytes --- */

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

/* Send @size bytes from one end, read them at the other, compare each. */
static void transfer(int from, int to, size_t size, size_t chunk)
{
	static uint8_t out[1 << 16], in[1 << 16]; /* no @chunk is larger */
	size_t sent = 0, got = 0;
	int64_t until = world_deadline();

	while (got < size && clock_now_ms() < until) {
		size_t n = MIN(chunk, size - sent);
		ssize_t r;

		for (size_t i = 0; i < n; i++)
			out[i] = pattern(sent + i);
		r = n > 0 ? send(from, out, n, MSG_NOSIGNAL) : 0;
		if (r > 0)
			sent += (size_t)r;
		while ((r = read(to, in, sizeof(in))) > 0) {
			for (ssize_t i = 0; i < r; i++)
				if (in[i] != pattern(got + (size_t)i))
					fail_msg("byte %zu differs", got + (size_t)i);
			got += (size_t)r;
			until = world_deadline();
		}
		assert_int_equal(loop_turn(w.loop, 0), 0);
	}
	assert_int_equal(got, size);
}

TEST_WITH(test_big_transfers_arrive_whole_in_both_directions, start_open, stop)
{
	struct pair p = pair_open();

	transfer(p.client, p.server, 64 << 20, 1 << 16);
	transfer(p.server, p.client, 64 << 20, 1 << 16);
	pair_close(p);
	assert_true(world_drained(&w));
	assert_int_equal(count(COUNT_FLOWS), 1);
	assert_int_equal(w.event_count, 0);
}

static struct sandbox *dials; /* NULL: nobody that is known */

static struct sandbox *who_dials(void *data, int fd)
{
	assert_ptr_equal(data, &w);
	assert_true(fd >= 0);
	return dials;
}

/* The listeners are shared, and whoever is `dials` has dialled: the sandbox, at first. */
static void share_listeners(struct relay_shared *ret)
{
	int *fds = w.sandbox.fds.fd;

	*ret = (struct relay_shared){
		.listen = { fds[SANDBOX_FD_RELAY4], fds[SANDBOX_FD_RELAY6] },
		.by_socket = who_dials,
		.data = &w,
	};
	relay_detach(&w.sandbox);
	fds[SANDBOX_FD_RELAY4] = fds[SANDBOX_FD_RELAY6] = -1;
	assert_int_equal(relay_attach(w.relay, &w.sandbox), 0);
	assert_int_equal(relay_share(w.relay, ret), 0);
	dials = &w.sandbox;
}

TEST_WITH(test_of_shared_listeners_it_is_asked_who_dials, start_open, stop)
{
	int *fds = w.sandbox.fds.fd;
	struct relay_shared shared;
	struct pair p;

	share_listeners(&shared);
	p = pair_open();
	transfer(p.client, p.server, 20000, 1000);
	dials = NULL;
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	transfer(p.server, p.client, 20000, 1000);
	pair_close(p);
	assert_true(world_drained(&w));
	assert_int_equal(count(COUNT_FLOWS), 1);
	/* Whom the relay doesn't have is nobody. */
	relay_detach(&w.sandbox);
	dials = &w.sandbox;
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	fds[SANDBOX_FD_RELAY4] = shared.listen[0];
	fds[SANDBOX_FD_RELAY6] = shared.listen[1];
}

TEST_WITH(test_tiny_writes_arrive, start_open, stop)
{
	struct pair p = pair_open();

	transfer(p.client, p.server, 20000, 1);
	transfer(p.server, p.client, 20000, 1);
	pair_close(p);
	assert_true(world_drained(&w));
}

TEST_WITH(test_ipv6_passes, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_6, PORT);
	int client = world_connect(&w, INSIDE, FAR_6, PORT);
	int server = world_accept(&w, listener);

	transfer(client, server, 1 << 20, 4096);
	transfer(server, client, 1 << 20, 4096);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
}

TEST_WITH(test_bytes_sent_before_the_dial_arrive, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_A, PORT);
	int client = world_connect(&w, INSIDE, FAR_A, PORT);
	int server;
	char got[8] = "";

	assert_int_equal(send(client, "early", 5, MSG_NOSIGNAL), 5);
	server = world_accept(&w, listener);
	assert_int_equal(world_read(&w, server, got, sizeof(got)), 5);
	assert_string_equal(got, "early");
	close(client);
	close(server);
	close(listener);
}

TEST_WITH(test_urgent_bytes_are_bytes_like_others, start_open, stop)
{
	struct pair p = pair_open();
	int on = 1;
	char got[16] = "";
	size_t n = 0;
	ssize_t r;

	setsockopt(p.server, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
	world_write_all(&w, p.client, "ab", 2);
	assert_int_equal(send(p.client, "!", 1, MSG_OOB | MSG_NOSIGNAL), 1);
	assert_int_equal(send(p.client, "cd", 2, MSG_NOSIGNAL), 2);
	shutdown(p.client, SHUT_WR);
	while ((r = world_read(&w, p.server, got + n, sizeof(got) - n)) > 0)
		n += (size_t)r;
	assert_int_equal(r, 0);
	assert_string_equal(got, "ab!cd");
	pair_close(p);
	assert_true(world_drained(&w));
}

TEST_WITH(test_without_pipes_bytes_are_copied, start_open, stop)
{
	struct pair p = pair_open();

	/* No further descriptor: no pipe can be made. */
	leave_descriptors(3);
	transfer(p.client, p.server, 8 << 20, 1 << 16);
	transfer(p.server, p.client, 8 << 20, 1 << 16);
	setrlimit(RLIMIT_NOFILE, &at_start);
	pair_close(p);
	assert_true(world_drained(&w));
}

/* --- ends --- */

static void half_close(int first, int second)
{
	char got[8];

	world_write_all(&w, first, "ask", 3);
	shutdown(first, SHUT_WR);
	assert_int_equal(world_read(&w, second, got, 3), 3);
	assert_int_equal(world_read(&w, second, got, sizeof(got)), 0);
	transfer(second, first, 4 << 20, 1 << 16);
	shutdown(second, SHUT_WR);
	assert_int_equal(world_read(&w, first, got, sizeof(got)), 0);
	assert_true(world_drained(&w));
}

TEST_WITH(test_the_client_may_finish_first_and_still_read, start_open, stop)
{
	struct pair p = pair_open();

	half_close(p.client, p.server);
	pair_close(p);
}

TEST_WITH(test_the_server_may_finish_first_and_still_read, start_open, stop)
{
	struct pair p = pair_open();

	half_close(p.server, p.client);
	pair_close(p);
}

TEST_WITH(test_an_end_follows_all_bytes, start_open, stop)
{
	struct pair p = pair_open();
	static uint8_t out[300000], in[300000];
	size_t got = 0;
	ssize_t n;

	world_write_all(&w, p.server, out, sizeof(out));
	close(p.server);
	while ((n = world_read(&w, p.client, in, sizeof(in))) > 0)
		got += (size_t)n;
	assert_int_equal(n, 0);
	assert_int_equal(got, sizeof(out));
	close(p.client);
	assert_true(world_drained(&w));
}

TEST_WITH(test_a_reset_by_the_server_reaches_the_client, start_open, stop)
{
	struct pair p = pair_open();

	transfer(p.client, p.server, 1000, 100);
	reset(p.server);
	assert_reset(p.client);
	assert_true(world_drained(&w));
}

TEST_WITH(test_a_reset_by_the_client_reaches_the_server, start_open, stop)
{
	struct pair p = pair_open();

	transfer(p.server, p.client, 1000, 100);
	reset(p.client);
	assert_reset(p.server);
	assert_true(world_drained(&w));
}

TEST_WITH(test_a_reset_after_a_half_close_ends_the_flow, start_open, stop)
{
	struct pair p = pair_open();
	char byte;

	shutdown(p.client, SHUT_WR);
	assert_int_equal(world_read(&w, p.server, &byte, 1), 0);
	reset(p.client);
	assert_true(world_drained(&w));
	/* Behind an end of file a reset shows as a broken pipe. */
	assert_int_equal(send(p.server, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	close(p.server);
}

/* splice() raises SIGPIPE where send() could be asked not to. */
TEST_WITH(test_writing_to_a_side_that_is_gone_ends_the_flow_only, start_open, stop)
{
	struct pair p = pair_open();
	char byte;

	shutdown(p.server, SHUT_WR);
	assert_int_equal(world_read(&w, p.client, &byte, 1), 0);
	assert_int_equal(send(p.client, "x", 1, MSG_NOSIGNAL), 1);
	reset(p.server);
	assert_true(world_drained(&w));
	close(p.client);
}

TEST_WITH(test_a_reset_while_the_other_side_is_blocked_ends_the_flow, start_open, stop)
{
	struct pair p = pair_open();
	static uint8_t zeros[1 << 16];

	for (int i = 0; i < 2000; i++) {
		if (send(p.server, zeros, sizeof(zeros), MSG_NOSIGNAL) < 0)
			world_turn(&w);
	}
	reset(p.server);
	assert_true(world_drained(&w));
	close(p.client);
	/* What stood in its pipe is in no other flow. */
	p = pair_open();
	transfer(p.server, p.client, 100000, 1000);
	transfer(p.client, p.server, 100000, 1000);
	pair_close(p);
}

TEST_WITH(test_a_slow_reader_stops_the_sender, start_open, stop)
{
	struct pair p = pair_open();
	static uint8_t zeros[1 << 16], in[1 << 12];
	size_t sent = 0, got = 0;
	ssize_t n;

	for (int i = 0; i < 3000; i++) {
		n = send(p.server, zeros, sizeof(zeros), MSG_NOSIGNAL);
		if (n > 0)
			sent += (size_t)n;
		assert_int_equal(loop_turn(w.loop, 0), 0);
	}
	/* What stands in four socket buffers and a pipe, and no more. */
	assert_true(sent < 64 << 20);
	shutdown(p.server, SHUT_WR);
	while ((n = world_read(&w, p.client, in, sizeof(in))) > 0)
		got += (size_t)n;
	assert_int_equal(got, sent);
	pair_close(p);
}

/* The loop has nothing to do while nothing happens, blocked flows included. */
TEST_WITH(test_idle_and_blocked_flows_cost_no_turns, start_open, stop)
{
	struct pair idle = pair_open(), blocked = pair_open();
	static uint8_t zeros[1 << 16];
	int64_t before_ms, until = world_deadline();

	for (int i = 0; i < 500; i++)
		if (send(blocked.server, zeros, sizeof(zeros), MSG_NOSIGNAL) < 0)
			world_turn(&w);
	/* What the kernel still has on its way comes first. */
	do {
		before_ms = clock_now_ms();
		assert_int_equal(loop_turn(w.loop, 200), 0);
	} while (clock_now_ms() - before_ms < 150 && before_ms < until);
	assert_true(clock_now_ms() - before_ms >= 150);
	pair_close(idle);
	pair_close(blocked);
}

TEST_WITH(test_many_idle_flows_stay_open, start_open, stop)
{
	enum { MANY = 1000 };
	int listener = world_listen(&w, FAR, FAR_A, PORT);
	static int client[MANY], server[MANY];
	char byte;

	for (int i = 0; i < MANY; i++) {
		client[i] = world_connect(&w, INSIDE, FAR_A, PORT);
		server[i] = world_accept(&w, listener);
	}
	assert_int_equal(flow_count(&w), MANY);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(send(client[i], "x", 1, MSG_NOSIGNAL), 1);
		assert_int_equal(world_read(&w, server[i], &byte, 1), 1);
	}
	for (int i = 0; i < MANY; i++) {
		close(client[i]);
		close(server[i]);
	}
	assert_true(world_drained(&w));
	close(listener);
}

/* --- destinations --- */

static void refused(const char *addr, uint16_t port)
{
	int client = world_connect(&w, INSIDE, addr, port);
	uint64_t before = count(COUNT_FLOWS_DENIED);

	assert_reset(client);
	assert_int_equal(count(COUNT_FLOWS_DENIED), before + 1);
	assert_int_equal(world_last_event(&w)->action, EVENT_DENY);
	assert_int_equal(world_last_event(&w)->layer, EVENT_ADDRESS);
	assert_int_equal(flow_count(&w), 0);
}

TEST_WITH(test_what_no_rule_allows_is_reset_and_told, start_open, stop)
{
	refused("93.184.216.12", PORT);
	assert_int_equal(world_last_event(&w)->port, PORT);
	assert_int_equal(world_last_event(&w)->rule, EVENT_NO_RULE);
	assert_int_equal(count(COUNT_FLOWS), 0);
}

TEST_WITH(test_the_listener_itself_is_no_destination, start_open, stop)
{
	refused("127.0.0.1", RELAY_PORT);
	refused("::1", RELAY_PORT);
}

TEST_WITH(test_an_address_of_the_host_needs_a_rule_of_its_own, start_open, stop)
{
	static const char *const range[] = { "allow 93.184.216.0/24", NULL };
	static const char *const translated[] = { "allow 64:ff9b::/96", NULL };
	static const char *const exact[] = { "allow 93.184.216.0/24", "allow " HERE,
					     NULL };
	int listener = world_listen(&w, OUTSIDE, HERE, PORT);
	int client, server;

	world_set_plan(&w, range);
	refused(HERE, PORT);
	assert_string_equal(world_last_event(&w)->reason,
			    "an address of the host, which only a rule for just this "
			    "address opens");
	assert_true(world_last_event(&w)->allowable);
	/* Nor does a translator lead there. */
	world_set_plan(&w, translated);
	refused("64:ff9b::5db8:d801", PORT);
	world_set_plan(&w, exact);
	client = world_connect(&w, INSIDE, HERE, PORT);
	server = world_accept(&w, listener);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
}

/* --- the dial --- */

static const char *const name_rules[] = { "allow api.example.com", NULL };

TEST_WITH(test_a_failed_dial_resets_the_client, start_open, stop)
{
	int client = world_connect(&w, INSIDE, FAR_A, 9);

	assert_reset(client);
	assert_true(world_drained(&w));
	assert_int_equal(count(COUNT_FLOWS_FAILED), 1);
	assert_int_equal(w.event_count, 1);
	assert_int_equal(world_last_event(&w)->action, EVENT_FAIL);
	assert_string_equal(world_last_event(&w)->reason,
			    "the server refuses the connection");
}

TEST_WITH(test_the_name_s_other_address_is_tried, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_B, PORT);
	int client, server;

	world_set_plan(&w, name_rules);
	world_teach(&w, "api.example.com", FAR_A);
	world_teach(&w, "api.example.com", FAR_B);
	client = world_connect(&w, INSIDE, FAR_A, PORT);
	server = world_accept(&w, listener);
	transfer(client, server, 10000, 1000);
	assert_int_equal(count(COUNT_FLOWS_FAILED), 0);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
}

TEST_WITH(test_another_name_s_address_is_not_tried, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_B, PORT);

	world_set_plan(&w, name_rules);
	world_teach(&w, "api.example.com", FAR_A);
	world_teach(&w, "other.example.com", FAR_B);
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	assert_int_equal(count(COUNT_FLOWS_FAILED), 1);
	close(listener);
}

TEST_WITH(test_an_other_address_that_a_rule_denies_is_not_tried, start_open, stop)
{
	static const char *const rules[] = { "allow api.example.com", "deny " FAR_B,
					     NULL };
	int listener = world_listen(&w, FAR, FAR_B, PORT);

	world_set_plan(&w, rules);
	world_teach(&w, "api.example.com", FAR_A);
	world_teach(&w, "api.example.com", FAR_B);
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	assert_int_equal(count(COUNT_FLOWS_FAILED), 1);
	close(listener);
}

static void wait_for_dial(void)
{
	int64_t until = world_deadline();

	while (flow_count(&w) == 0 && clock_now_ms() < until)
		world_turn(&w);
	assert_int_equal(flow_count(&w), 1);
}

TEST_WITH(test_a_client_that_vanishes_during_the_dial_frees_its_flow, start_open, stop)
{
	int client = world_connect(&w, INSIDE, FAR_DEAD, PORT);

	wait_for_dial();
	reset(client);
	assert_true(world_drained(&w));
}

/* As if RELAY_CONNECT_MS had passed for all attempts. */
static void let_dial_time_out(void)
{
	struct relay_sandbox *g = LIST_FIRST(&w.relay->sandboxes);
	struct relay_flow *f = LIST_FIRST(&g->flows);

	assert_non_null(f);
	assert_int_equal(f->state, FLOW_DIALLING);
	for (size_t i = 0; i < f->dial->made; i++)
		f->dial->attempts[i].began_ms -= RELAY_CONNECT_MS;
	assert_int_equal(loop_timer_start(w.loop, &f->timer, 0), 0);
}

TEST_WITH(test_a_dial_without_an_answer_times_out, start_open, stop)
{
	int client = world_connect(&w, INSIDE, FAR_HOLE, PORT);

	wait_for_dial();
	let_dial_time_out();
	assert_reset(client);
	assert_int_equal(count(COUNT_FLOWS_FAILED), 1);
	assert_true(world_drained(&w));
}

static void turn_for(int64_t ms)
{
	for (int64_t until = clock_now_ms() + ms; clock_now_ms() < until;)
		world_turn(&w);
}

static struct relay_flow *the_flow(void)
{
	return LIST_FIRST(&LIST_FIRST(&w.relay->sandboxes)->flows);
}

/* A connection to a hole, with FAR_B as the name's other address. */
static int connect_to_hole(void)
{
	world_set_plan(&w, name_rules);
	world_teach(&w, "api.example.com", FAR_HOLE);
	world_teach(&w, "api.example.com", FAR_B);
	return world_connect(&w, INSIDE, FAR_HOLE, PORT);
}

TEST_WITH(test_while_one_address_is_silent_the_other_is_dialled, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_B, PORT);
	int client = connect_to_hole(), server = world_accept(&w, listener);

	transfer(client, server, 100000, 1000);
	assert_int_equal(the_flow()->state, FLOW_OPEN);
	assert_int_equal(w.relay->extra_attempts, 0);
	close(client);
	close(server);
	/* The next connection goes there at once. */
	client = world_connect(&w, INSIDE, FAR_HOLE, PORT);
	server = world_accept(&w, listener);
	transfer(client, server, 1000, 1000);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
	assert_int_equal(count(COUNT_FLOWS_FAILED), 0);
}

TEST_WITH(test_no_attempt_is_given_up_for_another_one, start_open, stop)
{
	int client = connect_to_hole(), listener, server;

	wait_for_dial();
	world_hole(&w, true, FAR_B);
	while (the_flow()->dial->made < 2)
		world_turn(&w);
	assert_int_equal(the_flow()->dial->open, 2);
	assert_int_equal(w.relay->extra_attempts, 1);
	listener = world_listen(&w, FAR, FAR_HOLE, PORT);
	world_hole(&w, false, FAR_HOLE);
	server = world_accept(&w, listener);
	transfer(client, server, 1000, 1000);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
	assert_int_equal(w.relay->extra_attempts, 0);
}

TEST_WITH(test_attempts_count_as_flows_and_as_new_flows, start_open, stop)
{
	static const char *const limits[][3] = {
		{ "allow api.example.com", "limit flows 1", NULL },
		{ "allow api.example.com", "limit new 1", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		int listener = world_listen(&w, FAR, FAR_B, PORT);
		int client = connect_to_hole();

		world_set_plan(&w, limits[i]);
		w.relay->sandboxes.lh_first->new_flows = (struct rate){ 0 };
		wait_for_dial();
		turn_for(400);
		/* With one new flow a second the second attempt comes late. */
		assert_int_equal(the_flow()->dial->made, 1);
		assert_int_equal(count(COUNT_FLOWS_LIMITED), 0);
		if (i == 1)
			close(world_accept(&w, listener));
		reset(client);
		assert_true(world_drained(&w));
		close(listener);
	}
}

TEST_WITH(test_a_new_policy_ends_the_attempts_that_it_does_not_allow, start_open, stop)
{
	static const char *const less[] = { "allow api.example.com", "deny " FAR_B,
					    NULL };
	static const char *const none[] = { "deny api.example.com", NULL };
	int client = connect_to_hole();

	world_hole(&w, true, FAR_B);
	wait_for_dial();
	while (the_flow()->dial->open < 2)
		world_turn(&w);
	world_set_plan(&w, less);
	relay_recheck(&w.sandbox);
	turn_for(50);
	assert_int_equal(the_flow()->dial->open, 1);
	assert_int_equal(w.relay->extra_attempts, 0);
	world_set_plan(&w, none);
	relay_recheck(&w.sandbox);
	assert_reset(client);
	assert_true(world_drained(&w));
}

/* Two names share the silent address: whom the client means can't be told. */
TEST_WITH(test_where_names_share_an_address_only_what_both_taught_is_dialled, start_open,
	  stop)
{
	static const char *const both[] = { "allow api.example.com",
					    "allow b.example.com", NULL };
	int listener = world_listen(&w, FAR, FAR_B, PORT);
	int client = connect_to_hole(), server;

	world_teach(&w, "b.example.com", FAR_HOLE);
	world_set_plan(&w, both);
	wait_for_dial();
	turn_for(600);
	assert_int_equal(the_flow()->dial->made, 1);
	assert_int_equal(accept4(listener, NULL, NULL, SOCK_NONBLOCK), -1);
	reset(client);
	assert_true(world_drained(&w));
	world_teach(&w, "b.example.com", FAR_B);
	client = world_connect(&w, INSIDE, FAR_HOLE, PORT);
	server = world_accept(&w, listener);
	close(client);
	close(server);
	close(listener);
}

TEST_WITH(test_what_an_address_rule_opens_is_dialled_alone, start_open, stop)
{
	static const char *const rules[] = { "allow api.example.com", "allow " FAR_HOLE,
					     NULL };
	int listener = world_listen(&w, FAR, FAR_B, PORT);
	int client = connect_to_hole();

	world_set_plan(&w, rules);
	wait_for_dial();
	turn_for(600);
	assert_int_equal(the_flow()->dial->made, 1);
	assert_int_equal(accept4(listener, NULL, NULL, SOCK_NONBLOCK), -1);
	reset(client);
	close(listener);
}

/* One that never pauses, and a small exchange beside it. */
TEST_WITH(test_a_fast_flow_does_not_hold_up_another, start_open, stop)
{
	struct pair fast = pair_open(), small = pair_open();
	static uint8_t bytes[1 << 18];
	int turns = 0;
	char byte;

	for (int i = 0; i < 200; i++) {
		(void)!send(fast.client, bytes, sizeof(bytes), MSG_NOSIGNAL);
		if (i == 100)
			assert_int_equal(send(small.client, "x", 1, MSG_NOSIGNAL), 1);
		assert_int_equal(loop_turn(w.loop, 0), 0);
		(void)!read(fast.server, bytes, sizeof(bytes));
		if (i >= 100 && read(small.server, &byte, 1) == 1)
			break;
		turns += i >= 100;
	}
	assert_true(turns <= 3);
	pair_close(fast);
	pair_close(small);
}

/* --- limits --- */

TEST_WITH(test_flows_over_the_limit_are_reset, start_open, stop)
{
	static const char *const rules[] = { "allow " FAR_A, "limit flows 2", NULL };
	struct pair first, second;

	world_set_plan(&w, rules);
	first = pair_open();
	second = pair_open();
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	assert_int_equal(count(COUNT_FLOWS_LIMITED), 1);
	assert_int_equal(world_last_event(&w)->action, EVENT_LIMIT);
	assert_int_equal(world_last_event(&w)->limit, LIMIT_FLOWS + 1);
	pair_close(first);
	pair_close(second);
	assert_true(world_drained(&w));
	pair_close(pair_open());
}

TEST_WITH(test_one_sandbox_leaves_others_room_in_the_engine, start_open, stop)
{
	enum { ALL = 8 };
	struct pair open[ALL];
	struct relay_shared shared;
	struct sandbox other;
	size_t n = 0;

	share_listeners(&shared);
	other = w.sandbox;
	other.relayed = NULL;
	assert_int_equal(relay_attach(w.relay, &other), 0);
	w.relay->flows_max = ALL;
	for (; n < ALL / 2; n++)
		open[n] = pair_open();
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	assert_string_equal(world_last_event(&w)->reason,
			    "the engine has too many connections");
	dials = &other;
	open[n++] = pair_open();
	while (n > 0)
		pair_close(open[--n]);
	assert_true(world_drained(&w));
	relay_detach(&other);
	w.sandbox.fds.fd[SANDBOX_FD_RELAY4] = shared.listen[0];
	w.sandbox.fds.fd[SANDBOX_FD_RELAY6] = shared.listen[1];
}

/* The listeners that sandboxes share are no sandbox. */
TEST_WITH(test_behind_shared_listeners_one_sandbox_has_the_engine, start_open, stop)
{
	enum { ALL = 4 };
	struct pair open[ALL];
	struct relay_shared shared;

	share_listeners(&shared);
	w.relay->flows_max = ALL;
	for (size_t i = 0; i < ALL; i++)
		open[i] = pair_open();
	assert_reset(world_connect(&w, INSIDE, FAR_A, PORT));
	assert_string_equal(world_last_event(&w)->reason,
			    "the engine has too many connections");
	for (size_t i = 0; i < ALL; i++)
		pair_close(open[i]);
	assert_true(world_drained(&w));
	w.sandbox.fds.fd[SANDBOX_FD_RELAY4] = shared.listen[0];
	w.sandbox.fds.fd[SANDBOX_FD_RELAY6] = shared.listen[1];
}

/* However much one sandbox has to do, the next flow of another one is next but one. */
TEST_WITH(test_sandboxes_take_turns, start_open, stop)
{
	struct relay_sandbox *g = w.sandbox.relayed, one = { .relay = w.relay };
	struct relay_flow many[4] = { 0 }, few = { .served = &one };
	const struct relay_flow *order[5];

	TAILQ_INIT(&one.ready);
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		many[i].served = g;
		relay_flow_queue(&many[i]);
	}
	relay_flow_queue(&few);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		order[i] = relay_next(w.relay);
	assert_ptr_equal(order[0], &many[0]);
	assert_ptr_equal(order[1], &few);
	for (size_t i = 2; i < ARRAY_SIZE(order); i++)
		assert_ptr_equal(order[i], &many[i - 1]);
	assert_null(relay_next(w.relay));
}

TEST_WITH(test_new_flows_per_second_are_limited, start_open, stop)
{
	static const char *const rules[] = { "allow " FAR_A, "limit new 3", NULL };

	int client[8], server[6], listener = world_listen(&w, FAR, FAR_A, PORT);

	world_set_plan(&w, rules);
	for (size_t i = 0; i < ARRAY_SIZE(client); i++)
		client[i] = world_connect(&w, INSIDE, FAR_A, PORT);
	/* Three at once, three that wait for their turn, and two too many. */
	for (size_t i = 0; i < ARRAY_SIZE(server); i++)
		server[i] = world_accept(&w, listener);
	assert_reset(client[6]);
	assert_reset(client[7]);
	assert_int_equal(count(COUNT_FLOWS_LIMITED), 2);
	assert_int_equal(count(COUNT_FLOWS), 6);
	assert_int_equal(world_last_event(&w)->limit, LIMIT_NEW_FLOWS_PER_SECOND + 1);
	for (size_t i = 0; i < ARRAY_SIZE(server); i++) {
		close(client[i]);
		close(server[i]);
	}
	close(listener);
}

/* What waits is judged when its time has come, by the policy that stands then. */
TEST_WITH(test_a_flow_that_waits_is_not_judged_before_it_begins, start_open, stop)
{
	static const char *const rules[] = { "allow " FAR_A, "limit new 2", NULL };
	static const char *const none[] = { "deny " FAR_A, "limit new 2", NULL };
	int client[4];

	world_set_plan(&w, rules);
	for (size_t i = 0; i < ARRAY_SIZE(client); i++)
		client[i] = world_connect(&w, INSIDE, FAR_A, 9);
	for (int64_t until = world_deadline();
	     flow_count(&w) + count(COUNT_FLOWS_FAILED) < 4 && clock_now_ms() < until;)
		world_turn(&w);
	world_set_plan(&w, none);
	relay_recheck(&w.sandbox);
	for (size_t i = 0; i < ARRAY_SIZE(client); i++)
		assert_reset(client[i]);
	/* Two had begun, and may have failed before the change. */
	assert_int_equal(count(COUNT_FLOWS_DENIED) + count(COUNT_FLOWS_FAILED), 4);
	assert_true(count(COUNT_FLOWS_DENIED) >= 2);
	assert_int_equal(count(COUNT_FLOWS_LIMITED), 0);
}

TEST_WITH(test_without_descriptors_connections_are_refused_not_left_hanging, start_open,
	  stop)
{
	enum { FEW = 128 };
	int client[3], taken[FEW];
	size_t count_taken = 0;

	for (size_t i = 0; i < ARRAY_SIZE(client); i++)
		client[i] = world_connect(&w, INSIDE, FAR_A, PORT);
	leave_descriptors(FEW);
	while ((taken[count_taken] = dup(0)) >= 0)
		count_taken++;
	assert_int_equal(errno, EMFILE);
	for (size_t i = 0; i < ARRAY_SIZE(client); i++)
		assert_reset(client[i]);
	while (count_taken > 0)
		close(taken[--count_taken]);
	setrlimit(RLIMIT_NOFILE, &at_start);
	assert_int_equal(count(COUNT_FLOWS_LIMITED), ARRAY_SIZE(client));
	pair_close(pair_open());
}

/* --- life --- */

TEST_WITH(test_a_new_policy_resets_what_it_revokes_and_nothing_else, start_open, stop)
{
	static const char *const rules[] = { "allow " FAR_B, "allow b.example.com",
					     NULL };
	int listen_b = world_listen(&w, FAR, FAR_B, PORT);
	struct pair a = pair_open(), b;

	b.client = world_connect(&w, INSIDE, FAR_B, PORT);
	b.server = world_accept(&w, listen_b);
	world_set_plan(&w, rules);
	relay_recheck(&w.sandbox);
	assert_reset(a.client);
	assert_reset(a.server);
	transfer(b.client, b.server, 10000, 1000);
	assert_int_equal(count(COUNT_FLOWS_DENIED), 1);
	pair_close(b);
	close(listen_b);
}

TEST_WITH(test_an_open_flow_has_its_rule_s_number_in_the_new_policy, start_open, stop)
{
	static const char *const before[] = { "allow " FAR_A, NULL };
	static const char *const after[] = { "allow " FAR_B, "allow " FAR_A, NULL };
	const struct relay_flow *f;
	struct pair p;

	world_set_plan(&w, before);
	p = pair_open();
	transfer(p.client, p.server, 2000, 1000);
	f = LIST_FIRST(&w.sandbox.relayed->flows);
	assert_int_equal(f->opened_rule, 0);
	world_set_plan(&w, after);
	relay_recheck(&w.sandbox);
	transfer(p.client, p.server, 2000, 1000);
	assert_int_equal(f->opened_rule, 1);
	pair_close(p);
}

TEST_WITH(test_an_open_flow_outlives_what_taught_its_address, start_open, stop)
{
	static const char *const less[] = { "deny api.example.com", NULL };
	struct pair p;

	world_set_plan(&w, name_rules);
	world_teach(&w, "api.example.com", FAR_A);
	p = pair_open();
	world_forget(&w);
	relay_recheck(&w.sandbox);
	transfer(p.client, p.server, 10000, 1000);
	world_set_plan(&w, less);
	relay_recheck(&w.sandbox);
	assert_reset(p.client);
	assert_reset(p.server);
}

TEST_WITH(test_a_new_policy_counts_for_the_address_that_was_dialled, start_open, stop)
{
	static const char *const rules[] = { "allow api.example.com", "deny " FAR_B,
					     NULL };
	int listener = world_listen(&w, FAR, FAR_B, PORT);
	struct pair p;

	world_set_plan(&w, name_rules);
	world_teach(&w, "api.example.com", FAR_A);
	world_teach(&w, "api.example.com", FAR_B);
	p.client = world_connect(&w, INSIDE, FAR_A, PORT);
	p.server = world_accept(&w, listener);
	transfer(p.client, p.server, 1000, 100);
	relay_recheck(&w.sandbox);
	transfer(p.client, p.server, 1000, 100);
	world_set_plan(&w, rules);
	relay_recheck(&w.sandbox);
	assert_reset(p.client);
	assert_reset(p.server);
	close(listener);
}

TEST_WITH(test_detach_resets_every_flow, start_open, stop)
{
	struct pair p = pair_open(), q = pair_open();

	relay_detach(&w.sandbox);
	assert_reset(p.client);
	assert_reset(q.server);
	assert_reset(p.server);
	assert_reset(q.client);
	assert_int_equal(flow_count(&w), 0);
}

static void set_probe(enum sandbox_state state)
{
	w.sandbox.state = state;
	w.sandbox.probe_addr = world_addr("198.51.100.77");
	w.sandbox.probe_port = 4321;
	w.sandbox.probe_name.size = 1;
}

TEST_WITH(test_the_self_test_is_answered_while_testing, start_open, stop)
{
	int client;
	char got[4];

	set_probe(SANDBOX_TESTING);
	client = world_connect(&w, INSIDE, "198.51.100.77", 4321);
	assert_int_equal(world_read(&w, client, got, sizeof(got)), 1);
	assert_int_equal(got[0], 'W');
	assert_int_equal(world_read(&w, client, got, sizeof(got)), 0);
	close(client);
	assert_int_equal(flow_count(&w), 0);
}

TEST_WITH(test_while_testing_a_host_is_reached_and_no_byte_passes, start_open, stop)
{
	int listener = world_listen(&w, FAR, FAR_A, PORT);
	int client, server;
	char got[4];

	set_probe(SANDBOX_TESTING);
	client = world_connect(&w, INSIDE, FAR_A, PORT);
	world_write_all(&w, client, "x", 1);
	server = world_accept(&w, listener);
	assert_int_equal(world_read(&w, client, got, sizeof(got)), 1);
	assert_int_equal(got[0], 'W');
	assert_true(world_read(&w, server, got, sizeof(got)) <= 0);
	close(client);
	close(server);
	close(listener);
	assert_true(world_drained(&w));
}

TEST_WITH(test_nothing_is_dialled_unless_the_sandbox_runs, start_open, stop)
{
	static const struct {
		const char *what;
		enum sandbox_state state;
		const char *addr;
		uint16_t port;
	} rows[] = {
		{ "the probe's address, another port", SANDBOX_TESTING, "198.51.100.77",
		  80 },
		{ "the probe while running", SANDBOX_RUNNING, "198.51.100.77", 4321 },
		{ "the probe after the end", SANDBOX_CLOSED, "198.51.100.77", 4321 },
		{ "an allowed address after the end", SANDBOX_CLOSED, FAR_A, PORT },
		{ "an allowed address before the start", SANDBOX_NONE, FAR_A, PORT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int client;
		char byte;

		set_probe(rows[i].state);
		client = world_connect(&w, INSIDE, rows[i].addr, rows[i].port);
		if (world_read(&w, client, &byte, 1) != -ECONNRESET)
			fail_msg("not reset: %s", rows[i].what);
		close(client);
		assert_int_equal(count(COUNT_FLOWS), 0);
	}
}

int main(void)
{
	if (!world_namespaces(&w)) {
		print_message("no user namespaces here: skipped\n");
		return 77;
	}
	return unit_run(remember_limits, NULL);
}
