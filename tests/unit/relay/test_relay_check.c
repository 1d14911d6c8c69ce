// SPDX-License-Identifier: Apache-2.0
/* `verify: tls`: what a connection shows decides. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/wire.h"
#include "relay/relay_internal.h"
#include "sandbox/budgets.h"
#include "test_relay_world.h"
#include "unit.h"

enum { TEXT_SIZE = 4096, RAW_PORT = 7000, OTHER_PORT = 7001 };

#define GOOD	  "good.example.com"
#define EVIL	  "evil.example.com"
#define GET(host) "GET / HTTP/1.1\r\nHost: " host "\r\n\r\n"
#define ANSWER	  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static const char *const rules[] = { "verify tls", "allow " GOOD " 80,443,7000",
				     "allow third.example.com 443", NULL };

static struct world w;

static int start(void **state)
{
	world_start(&w, rules);
	/* One address, two names: a CDN. */
	world_teach(&w, GOOD, FAR_A);
	world_teach(&w, EVIL, FAR_A);
	world_teach(&w, "third.example.com", FAR_B);
	return 0;
}

static int stop(void **state)
{
	world_stop(&w);
	return 0;
}

/* A ClientHello that names @name, in records of @step bytes. */
static size_t hello(const char *name, size_t step, uint8_t *ret)
{
	uint8_t message[600] = { 1 };
	struct wire m = wire_writer(message, sizeof(message));
	struct wire out = wire_writer(ret, TEXT_SIZE);
	size_t size = strlen(name), ext = size > 0 ? size + 9 : 0;

	wire_seek(&m, 4);
	wire_write_u16(&m, 0x0303);
	wire_seek(&m, wire_offset(&m) + 32);
	wire_write_u8(&m, 0);
	wire_write_u16(&m, 2);
	wire_write_u16(&m, 0x1301);
	wire_write_u16(&m, 0x0100);
	wire_write_u16(&m, (uint16_t)(ext + 200));
	if (size > 0) {
		wire_write_u16(&m, 0);
		wire_write_u16(&m, (uint16_t)(size + 5));
		wire_write_u16(&m, (uint16_t)(size + 3));
		wire_write_u8(&m, 0);
		wire_write_u16(&m, (uint16_t)size);
		wire_write_bytes(&m, name, size);
	}
	wire_write_u16(&m, 21);
	wire_write_u16(&m, 196);
	wire_seek(&m, wire_offset(&m) + 196);
	size = wire_offset(&m);
	message[2] = (uint8_t)((size - 4) >> 8);
	message[3] = (uint8_t)(size - 4);
	for (size_t at = 0; at < size; at += step) {
		size_t n = MIN(step, size - at);

		wire_write_u8(&out, 22);
		wire_write_u16(&out, 0x0301);
		wire_write_u16(&out, (uint16_t)n);
		wire_write_bytes(&out, message + at, n);
	}
	assert_true(wire_ok(&m) && wire_ok(&out));
	return wire_offset(&out);
}

static void say(int fd, const char *text)
{
	world_write_all(&w, fd, text, strlen(text));
}

/* Everything up to the end, as text. */
static const char *all_of(int fd)
{
	static char text[TEXT_SIZE];
	size_t got = 0;
	ssize_t n;

	while ((n = world_read(&w, fd, text + got, sizeof(text) - 1 - got)) > 0)
		got += (size_t)n;
	text[got] = '\0';
	assert_int_equal(n, 0);
	return text;
}

static void expect_text(int fd, const char *want)
{
	char got[TEXT_SIZE];
	size_t size = strlen(want), n = 0;

	while (n < size) {
		ssize_t r = world_read(&w, fd, got + n, size - n);

		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(got, want, size);
}

static void expect_reset(int fd)
{
	char byte;

	assert_int_equal(world_read(&w, fd, &byte, 1), -ECONNRESET);
}

static void expect_silence(int fd)
{
	char byte;

	for (int i = 0; i < 30; i++) {
		assert_int_equal(read(fd, &byte, 1), -1);
		assert_int_equal(errno, EAGAIN);
		world_turn(&w);
	}
}

static void expect_event(const char *name, const char *reason)
{
	const struct event *e = world_last_event(&w);

	assert_int_equal(e->action, EVENT_DENY);
	assert_int_equal(e->layer, EVENT_NAME);
	assert_string_equal(e->name, name);
	if (!strstr(e->reason, reason))
		fail_msg("'%s', not '%s'", e->reason, reason);
	assert_int_equal(w.sandbox.counters[COUNT_FLOWS_DENIED], w.event_count);
}

/* The connections that have ended were told of in one event: no byte counts for another
 * name than the one that it passed for. */
static void expect_passed(const char *name, size_t sent, size_t received)
{
	assert_int_equal(w.passed_count, 1);
	assert_string_equal(w.passed[0].name, name);
	assert_int_equal(w.passed[0].bytes, sent);
	assert_int_equal(w.passed[0].received, received);
}

/* A client, and the listener that it wants to reach. */
struct way {
	int client, listener, server;
};

static struct way dial(const char *addr, uint16_t port)
{
	struct way p = { .listener = world_listen(&w, FAR, addr, port), .server = -1 };

	p.client = world_connect(&w, INSIDE, addr, port);
	return p;
}

static void expect_nobody(const struct way *p)
{
	for (int i = 0; i < 5; i++)
		world_turn(&w);
	assert_int_equal(accept(p->listener, NULL, NULL), -1);
	assert_int_equal(errno, EAGAIN);
}

static void hang_up(struct way *p)
{
	close(p->client);
	close(p->listener);
	if (p->server >= 0)
		close(p->server);
	assert_true(world_drained(&w));
}

/* --- TLS --- */

static void check_hello_arrives(const uint8_t *bytes, size_t size, size_t split)
{
	struct way p = dial(FAR_A, 443);
	uint8_t got[TEXT_SIZE];
	size_t n = 0;

	world_write_all(&w, p.client, bytes, split);
	for (int i = 0; i < 2; i++)
		world_turn(&w);
	if (split < size) {
		assert_int_equal(accept(p.listener, NULL, NULL), -1);
		world_write_all(&w, p.client, bytes + split, size - split);
	}
	p.server = world_accept(&w, p.listener);
	while (n < size) {
		ssize_t r = world_read(&w, p.server, got + n, sizeof(got) - n);

		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_int_equal(n, size);
	assert_memory_equal(got, bytes, size);
	say(p.server, "answer");
	expect_text(p.client, "answer");
	hang_up(&p);
}

TEST_WITH(test_an_allowed_hello_arrives_as_it_was_at_every_split, start, stop)
{
	uint8_t bytes[TEXT_SIZE];
	size_t size = hello(GOOD, 16384, bytes);

	for (size_t split = 1; split <= size; split += split < 12 ? 1 : 7)
		check_hello_arrives(bytes, size, split);
	size = hello(GOOD, 3, bytes);
	for (size_t split = 1; split <= size; split += 61)
		check_hello_arrives(bytes, size, split);
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_a_hello_byte_by_byte_arrives, start, stop)
{
	struct way p = dial(FAR_A, 443);
	uint8_t bytes[TEXT_SIZE], got[TEXT_SIZE];
	size_t size = hello(GOOD, 5, bytes), n = 0;

	for (size_t i = 0; i < size; i++)
		world_write_all(&w, p.client, bytes + i, 1);
	p.server = world_accept(&w, p.listener);
	while (n < size)
		n += (size_t)world_read(&w, p.server, got + n, sizeof(got) - n);
	assert_memory_equal(got, bytes, size);
	hang_up(&p);
}

/* --- a second hello --- */

static void expect_bytes(int fd, const uint8_t *want, size_t size)
{
	uint8_t got[TEXT_SIZE];
	size_t n = 0;

	while (n < size) {
		ssize_t r = world_read(&w, fd, got + n, size - n);

		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(got, want, size);
}

static const uint8_t change_cipher_spec[] = { 20, 3, 3, 0, 1, 1 };
static const uint8_t data[] = { 23, 3, 3, 0, 4, 9, 9, 9, 9 };

/* A ServerHello in a record of its own; @retry: a HelloRetryRequest. */
static size_t answer(bool retry, uint8_t *ret)
{
	static const uint8_t random[] = {
		0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
		0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
		0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
	};
	static const uint8_t head[] = { 22, 3, 3, 0, 84, 2, 0, 0, 80, 3, 3 };

	memset(ret, 0, 89);
	memcpy(ret, head, sizeof(head));
	if (retry)
		memcpy(ret + sizeof(head), random, sizeof(random));
	return 89;
}

/* A flow whose first hello, for GOOD, has arrived. */
static struct way greet(uint8_t *bytes, size_t size)
{
	struct way p = dial(FAR_A, 443);

	world_write_all(&w, p.client, bytes, size);
	p.server = world_accept(&w, p.listener);
	expect_bytes(p.server, bytes, size);
	return p;
}

static void pass_on(int from, int to, const uint8_t *bytes, size_t size)
{
	world_write_all(&w, from, bytes, size);
	expect_bytes(to, bytes, size);
}

TEST_WITH(test_a_second_hello_with_the_same_name_passes, start, stop)
{
	for (size_t step = 16384; step > 2; step /= 70) {
		uint8_t bytes[TEXT_SIZE], said[100];
		size_t size = hello(GOOD, 16384, bytes);
		struct way p = greet(bytes, size);

		pass_on(p.server, p.client, said, answer(true, said));
		pass_on(p.client, p.server, change_cipher_spec, 6);
		size = hello(GOOD, step, bytes);
		pass_on(p.client, p.server, bytes, size);
		pass_on(p.server, p.client, said, answer(false, said));
		pass_on(p.client, p.server, data, sizeof(data));
		say(p.client, "anything");
		expect_text(p.server, "anything");
		say(p.server, "anything");
		expect_text(p.client, "anything");
		hang_up(&p);
	}
	assert_int_equal(w.event_count, 0);
}

/* With the first hello, or once the server has asked for it. */
static void check_another_name_is_refused(const char *name, bool early, bool at_once)
{
	uint8_t bytes[TEXT_SIZE], said[100], got[8];
	size_t size = hello(GOOD, 16384, bytes), first = size;
	struct way p;

	if (early) {
		/* Of the last extension, the padding, an early_data of the same size. */
		bytes[first - 200] = 0;
		bytes[first - 199] = 42;
	}
	if (at_once) {
		if (early)
			memcpy(bytes + size, data, sizeof(data));
		size += early ? sizeof(data) : 0;
		memcpy(bytes + size, change_cipher_spec, 6);
		size += 6;
		size += hello(name, 16384, bytes + size);
		p = dial(FAR_A, 443);
		world_write_all(&w, p.client, bytes, size);
		p.server = world_accept(&w, p.listener);
		expect_bytes(p.server, bytes, first);
	} else {
		p = greet(bytes, size);
		if (early)
			pass_on(p.client, p.server, data, sizeof(data));
		pass_on(p.server, p.client, said, answer(true, said));
		pass_on(p.client, p.server, change_cipher_spec, 6);
		size = hello(name, 3, bytes);
		world_write_all(&w, p.client, bytes, size);
	}
	assert_int_equal(world_read(&w, p.client, got, sizeof(got)), 7);
	assert_int_equal(got[0], 21);
	/* Nothing of it has arrived: what came are the records in between, and the reset.
	 */
	for (;;) {
		ssize_t r = world_read(&w, p.server, bytes, sizeof(bytes));

		if (r <= 0) {
			assert_int_equal(r, -ECONNRESET);
			break;
		}
		assert_true(bytes[0] == 20 || bytes[0] == 23);
		assert_true((size_t)r <= sizeof(data) + 6);
	}
	hang_up(&p);
	expect_passed(GOOD, w.passed[0].bytes, w.passed[0].received);
	assert_true(w.passed[0].bytes >= first);
	w.passed_count = 0;
}

TEST_WITH(test_a_second_hello_with_another_name_goes_nowhere, start, stop)
{
	static const char *const names[] = { EVIL, "", "third.example.com",
					     "93.184.216.10" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		for (int n = 0; n < 4; n++) {
			check_another_name_is_refused(names[i], n & 1, n & 2);
			assert_int_equal(w.event_count, 4 * i + (size_t)n + 1);
		}
		if (i == 0)
			expect_event(EVIL, "the second ClientHello shows another name");
	}
}

TEST_WITH(test_a_hello_after_the_one_that_counts_is_the_servers_to_refuse, start, stop)
{
	uint8_t bytes[TEXT_SIZE], said[100];
	size_t size = hello(GOOD, 16384, bytes);
	struct way p = greet(bytes, size);

	pass_on(p.server, p.client, said, answer(false, said));
	/* TLS 1.2 that goes on from before: its Finished is encrypted, and may begin with
	 * any byte. */
	pass_on(p.client, p.server, change_cipher_spec, 6);
	pass_on(p.client, p.server, (const uint8_t[]){ 22, 3, 3, 0, 6, 1, 9, 9, 9, 9, 9 },
		11);
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_a_server_that_answers_otherwise_ends_no_reading, start, stop)
{
	uint8_t bytes[TEXT_SIZE], got[8];
	size_t size = hello(GOOD, 16384, bytes);
	struct way p = greet(bytes, size);

	say(p.server, "550 no\r\n");
	expect_text(p.client, "550 no\r\n");
	size = hello(EVIL, 16384, bytes);
	world_write_all(&w, p.client, bytes, size);
	assert_int_equal(world_read(&w, p.client, got, sizeof(got)), 7);
	expect_event(EVIL, "the second ClientHello shows another name");
	expect_reset(p.server);
	hang_up(&p);
	size = hello(GOOD, 16384, bytes);
	p = greet(bytes, size);
	say(p.server, "550 no\r\n");
	expect_text(p.client, "550 no\r\n");
	pass_on(p.client, p.server, (const uint8_t[]){ 22, 3, 3, 0, 4, 16, 0, 0, 0 }, 9);
	say(p.client, "more");
	expect_text(p.server, "more");
	hang_up(&p);
}

TEST_WITH(test_an_end_passes_behind_a_hello, start, stop)
{
	uint8_t bytes[TEXT_SIZE];
	struct way p = greet(bytes, hello(GOOD, 16384, bytes));

	shutdown(p.client, SHUT_WR);
	assert_string_equal(all_of(p.server), "");
	say(p.server, "last");
	close(p.server);
	p.server = -1;
	assert_string_equal(all_of(p.client), "last");
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_a_refused_hello_gets_an_alert_and_nobody_is_dialled, start, stop)
{
	static const struct {
		const char *name, *shown, *addr, *reason;
		uint8_t alert;
	} rows[] = {
		{ EVIL, EVIL, FAR_A, "the name is not allowed", 49 },
		{ "third.example.com", "third.example.com", FAR_A,
		  "this address was not looked up for the name", 49 },
		{ "", "", FAR_A, "without a server name", 112 },
		{ "93.184.216.10", "", FAR_A, "an address as server name", 112 },
		{ GOOD "..", "", FAR_A, "malformed server name", 112 },
		{ GOOD, GOOD, FAR_B, "this address was not looked up for the name", 49 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct way p = dial(rows[i].addr, 443);
		uint8_t bytes[TEXT_SIZE], got[8];
		size_t size = hello(rows[i].name, 16384, bytes);

		world_write_all(&w, p.client, bytes, size);
		assert_int_equal(world_read(&w, p.client, got, sizeof(got)), 7);
		assert_int_equal(got[0], 21);
		assert_int_equal(got[6], rows[i].alert);
		assert_int_equal(world_read(&w, p.client, got, 1), 0);
		expect_event(rows[i].shown, rows[i].reason);
		expect_nobody(&p);
		hang_up(&p);
	}
}

TEST_WITH(test_an_alert_is_not_eaten_by_unread_bytes, start, stop)
{
	struct way p = dial(FAR_A, 443);
	uint8_t bytes[TEXT_SIZE], got[8];
	static uint8_t more[100000];
	size_t size = hello(EVIL, 16384, bytes);

	world_write_all(&w, p.client, bytes, size);
	assert_true(send(p.client, more, sizeof(more), MSG_NOSIGNAL) > 0);
	for (int i = 0; i < 20; i++)
		world_turn(&w);
	assert_true(send(p.client, more, 1000, MSG_NOSIGNAL) > 0);
	for (int i = 0; i < 20; i++)
		world_turn(&w);
	assert_int_equal(world_read(&w, p.client, got, sizeof(got)), 7);
	hang_up(&p);
}

TEST_WITH(test_a_hello_that_stays_incomplete_is_reset, start, stop)
{
	struct way p = dial(FAR_A, 443), q = dial(FAR_B, 443);
	uint8_t bytes[TEXT_SIZE];
	size_t size = hello(GOOD, 16384, bytes);
	int64_t began = clock_now_ms();

	/* At its end at once, and otherwise in time. */
	world_write_all(&w, p.client, bytes, size - 1);
	shutdown(p.client, SHUT_WR);
	expect_reset(p.client);
	expect_event("", "it ended before it was complete");
	world_write_all(&w, q.client, bytes, 5);
	while (w.event_count < 2 && clock_now_ms() - began < 60 * 1000)
		world_turn(&w);
	expect_event("", "no name came in 5 s");
	assert_false(world_last_event(&w)->allowable);
	expect_reset(q.client);
	expect_nobody(&p);
	expect_nobody(&q);
	hang_up(&p);
	hang_up(&q);
}

TEST_WITH(test_who_waits_for_the_server_is_told_what_to_allow, start, stop)
{
	static const char *const plain[] = { "verify tls", "allow " GOOD, NULL };
	int64_t began = clock_now_ms();
	struct way p;

	world_set_plan(&w, plain);
	p = dial(FAR_A, OTHER_PORT);
	while (w.event_count < 1 && clock_now_ms() - began < 60 * 1000)
		world_turn(&w);
	expect_event(GOOD, "no name came in 5 s");
	assert_true(world_last_event(&w)->allowable);
	expect_reset(p.client);
	expect_nobody(&p);
	hang_up(&p);
}

TEST_WITH(test_urgent_bytes_hide_no_name, start, stop)
{
	struct way p = dial(FAR_A, RAW_PORT);
	uint8_t bytes[TEXT_SIZE], byte;
	size_t size = hello(EVIL, 16384, bytes);

	p.server = world_accept(&w, p.listener);
	world_write_all(&w, p.client, bytes, 10);
	assert_int_equal(send(p.client, bytes + 10, 1, MSG_OOB | MSG_NOSIGNAL), 1);
	world_write_all(&w, p.client, bytes + 11, size - 11);
	shutdown(p.client, SHUT_WR);
	assert_true(world_read(&w, p.client, &byte, 1) != 0);
	assert_int_equal(world_read(&w, p.server, &byte, 1), -ECONNRESET);
	assert_int_equal(w.event_count, 1);
	hang_up(&p);
}

/* --- neither --- */

TEST_WITH(test_a_server_may_speak_first_on_a_listed_port, start, stop)
{
	struct way p = dial(FAR_A, RAW_PORT);

	p.server = world_accept(&w, p.listener);
	say(p.server, "220 hello\r\n");
	expect_text(p.client, "220 hello\r\n");
	say(p.client, "EHLO x\r\n");
	expect_text(p.server, "EHLO x\r\n");
	say(p.client, GET(EVIL)); /* its own protocol's business by now */
	expect_text(p.server, GET(EVIL));
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

/* What the server says counts for the name that opened the flow until another is shown.
 */
TEST_WITH(test_a_greeting_counts_for_the_name_that_opened_the_flow, start, stop)
{
	static const char *const both[] = { "verify tls", "allow " GOOD " 7000",
					    "allow " EVIL " 7000", NULL };
	struct way p;

	world_set_plan(&w, both);
	p = dial(FAR_A, RAW_PORT);
	p.server = world_accept(&w, p.listener);
	say(p.server, "220 hello\r\n");
	expect_text(p.client, "220 hello\r\n");
	say(p.client, GET(EVIL));
	expect_text(p.server, GET(EVIL));
	hang_up(&p);
	assert_int_equal(w.passed_count, 2);
	assert_string_equal(w.passed[0].name, GOOD);
	assert_int_equal(w.passed[0].bytes, 0);
	assert_int_equal(w.passed[0].received, strlen("220 hello\r\n"));
	assert_string_equal(w.passed[1].name, EVIL);
	assert_int_equal(w.passed[1].bytes, strlen(GET(EVIL)));
	assert_int_equal(w.passed[1].received, 0);
}

/* "WORD rest" without the end of a line could be a request; where bytes may pass it
 * passes when the client says no more, or the server has spoken. */
TEST_WITH(test_a_word_on_a_listed_port_is_not_held_for_long, start, stop)
{
	static const char *const words[] = { "LOGIN me", "LOGIN", "X-Y z" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		struct way p = dial(FAR_A, RAW_PORT);

		say(p.client, words[i]);
		p.server = world_accept(&w, p.listener);
		expect_text(p.server, words[i]);
		say(p.server, "ok");
		expect_text(p.client, "ok");
		say(p.client, " more");
		expect_text(p.server, " more");
		hang_up(&p);
		p = dial(FAR_A, RAW_PORT);
		p.server = world_accept(&w, p.listener);
		say(p.client, words[i]);
		say(p.server, "hello");
		expect_text(p.client, "hello");
		expect_text(p.server, words[i]);
		hang_up(&p);
		p = dial(FAR_A, RAW_PORT);
		say(p.client, words[i]);
		shutdown(p.client, SHUT_WR);
		p.server = world_accept(&w, p.listener);
		assert_string_equal(all_of(p.server), words[i]);
		hang_up(&p);
	}
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_a_word_that_becomes_a_request_is_judged, start, stop)
{
	static const char *const requests[] = { "BREW / HTTP/1.1\r\nHost: " EVIL
						"\r\n\r\n",
						"GET / HTTP/1.1\r\nHost: " EVIL
						"\r\n\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		struct way p = dial(FAR_A, RAW_PORT);

		world_write_all(&w, p.client, requests[i], 3);
		world_turn(&w);
		say(p.client, requests[i] + 3);
		assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
		expect_event(EVIL, "not allowed");
		p.server = world_accept(&w, p.listener);
		expect_reset(p.server);
		hang_up(&p);
	}
}

TEST_WITH(test_what_looks_like_tls_or_http_is_judged_on_every_port, start, stop)
{
	static const char *const texts[] = { GET(EVIL), "\r\n" GET(GOOD),
					     "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\n" };
	uint8_t bytes[TEXT_SIZE], got[8];
	struct way p = dial(FAR_A, RAW_PORT);

	p.server = world_accept(&w, p.listener);
	world_write_all(&w, p.client, bytes, hello(EVIL, 16384, bytes));
	assert_int_equal(world_read(&w, p.client, got, sizeof(got)), 7);
	expect_reset(p.server);
	hang_up(&p);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		p = dial(FAR_A, RAW_PORT);
		p.server = world_accept(&w, p.listener);
		say(p.client, texts[i]);
		assert_memory_equal(all_of(p.client), "HTTP/1.1 40", 11);
		expect_reset(p.server);
		hang_up(&p);
	}
}

TEST_WITH(test_bytes_without_a_name_need_the_port_in_the_rule, start, stop)
{
	static const char *const raw[] = { "verify tls", "allow " GOOD " 443 raw", NULL };
	struct way p = dial(FAR_A, 443);

	say(p.client, "SSH-2.0-x\r\n");
	expect_reset(p.client);
	expect_event(GOOD, "raw: true");
	expect_nobody(&p);
	hang_up(&p);
	world_set_plan(&w, raw);
	p = dial(FAR_A, 443);
	p.server = world_accept(&w, p.listener);
	say(p.client, "SSH-2.0-x\r\n");
	expect_text(p.server, "SSH-2.0-x\r\n");
	hang_up(&p);
}

TEST_WITH(test_without_ports_a_rule_opens_no_nameless_bytes, start, stop)
{
	static const char *const plain[] = { "verify tls", "allow " GOOD, NULL };
	struct way p;

	world_set_plan(&w, plain);
	p = dial(FAR_A, OTHER_PORT);
	say(p.client, "x y\n");
	expect_reset(p.client);
	expect_event(GOOD, "the rule needs the port");
	assert_true(world_last_event(&w)->allowable);
	expect_nobody(&p);
	hang_up(&p);
}

TEST_WITH(test_an_address_rule_opens_its_address, start, stop)
{
	static const char *const plain[] = { "verify tls", "allow " FAR_A, "allow " GOOD,
					     NULL };
	uint8_t bytes[TEXT_SIZE], got[TEXT_SIZE];
	struct way p;
	size_t size = hello("", 16384, bytes);

	world_set_plan(&w, plain);
	world_forget(&w);
	p = dial(FAR_A, 443); /* TLS without a name */
	world_write_all(&w, p.client, bytes, size);
	p.server = world_accept(&w, p.listener);
	assert_int_equal(world_read(&w, p.server, got, sizeof(got)), size);
	hang_up(&p);
	p = dial(FAR_A, 80); /* its own address as Host */
	say(p.client, GET(FAR_A));
	p.server = world_accept(&w, p.listener);
	expect_text(p.server, GET(FAR_A));
	hang_up(&p);
	p = dial(FAR_A, 80); /* a name that is allowed, whoever taught the address */
	say(p.client, GET(GOOD));
	p.server = world_accept(&w, p.listener);
	hang_up(&p);
	p = dial(FAR_A, 80);
	say(p.client, GET(EVIL));
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	hang_up(&p);
	p = dial(FAR_A, 80);
	say(p.client, GET(FAR_B));
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	hang_up(&p);
	p = dial(FAR_A, 80);
	say(p.client, "x y\n");
	expect_reset(p.client);
	hang_up(&p);
	p = dial(FAR_A, OTHER_PORT);
	p.server = world_accept(&w, p.listener);
	hang_up(&p);
}

/* --- HTTP --- */

TEST_WITH(test_a_refused_request_says_why, start, stop)
{
	struct way p = dial(FAR_A, 80);
	const char *text;

	say(p.client, GET(EVIL));
	text = all_of(p.client);
	assert_memory_equal(text, "HTTP/1.1 403 Forbidden\r\n", 24);
	assert_non_null(strstr(text, "Connection: close\r\n"));
	assert_non_null(strstr(text, "\r\n\r\n{\"error\": \"refused by weir\", "
				     "\"name\": \"" EVIL "\", "));
	assert_non_null(strstr(text, "\"rule\": \"the default action (deny)\""));
	assert_non_null(strstr(text, "\"allow\": \"--allow " EVIL ":tcp/80\"}"));
	expect_event(EVIL, "the name is not allowed");
	assert_true(world_last_event(&w)->allowable);
	expect_nobody(&p);
	hang_up(&p);
}

TEST_WITH(test_a_refused_client_that_sends_on_is_cut_in_time, start, stop)
{
	static const char bytes[64 * 1024] = { 0 };
	const int64_t until_ms = world_deadline();
	struct way p = dial(FAR_A, 80);

	say(p.client, GET(EVIL));
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	while (flow_count(&w) > 0 && clock_now_ms() < until_ms) {
		while (send(p.client, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0)
			;
		world_turn(&w);
	}
	assert_int_equal(flow_count(&w), 0);
	hang_up(&p);
}

TEST_WITH(test_a_doubtful_request_is_a_bad_one, start, stop)
{
	static const char *const texts[] = {
		"GET / HTTP/1.1\r\nHost: " GOOD "\r\nHost: " EVIL "\r\n\r\n",
		"GET http://" EVIL "/ HTTP/1.1\r\nHost: " GOOD "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost : " GOOD "\r\n\r\n",
		"GET / HTTP/1.1\nHost: " GOOD "\n\n",
		"GET /\r\n",
		"GET / HTTP/1.1\r\nHost: " GOOD "\r\nContent-Length: 1\r\n"
		"Transfer-Encoding: chunked\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct way p = dial(FAR_A, 80);

		say(p.client, texts[i]);
		assert_memory_equal(all_of(p.client), "HTTP/1.1 400", 12);
		expect_nobody(&p);
		hang_up(&p);
	}
}

TEST_WITH(test_a_request_at_every_split_arrives_as_it_was, start, stop)
{
	static const char text[] = "POST /x HTTP/1.1\r\nHost: " GOOD "\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n"
				   "4\r\nbody\r\n0\r\n\r\n" GET(GOOD);

	for (size_t split = 1; split < sizeof(text) - 1; split += 3) {
		struct way p = dial(FAR_A, 80);

		world_write_all(&w, p.client, text, split);
		world_write_all(&w, p.client, text + split, sizeof(text) - 1 - split);
		p.server = world_accept(&w, p.listener);
		expect_text(p.server, text);
		hang_up(&p);
	}
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_bodies_pass_whole, start, stop)
{
	static char body[1 << 20], got[1 << 20];
	struct way p = dial(FAR_A, 80);
	size_t sent = 0, n = 0;
	int64_t until;

	memset(body, 'b', sizeof(body));
	say(p.client,
	    "PUT / HTTP/1.1\r\nHost: " GOOD "\r\nContent-Length: 1048576\r\n\r\n");
	p.server = world_accept(&w, p.listener);
	expect_text(p.server, "PUT / HTTP/1.1\r\nHost: " GOOD
			      "\r\nContent-Length: 1048576\r\n\r\n");
	until = world_deadline();
	while (n < sizeof(body) && clock_now_ms() < until) {
		ssize_t r =
			send(p.client, body + sent, sizeof(body) - sent, MSG_NOSIGNAL);

		sent += r > 0 ? (size_t)r : 0;
		r = read(p.server, got + n, sizeof(got) - n);
		n += r > 0 ? (size_t)r : 0;
		assert_int_equal(loop_turn(w.loop, 0), 0);
	}
	assert_int_equal(n, sizeof(body));
	assert_memory_equal(got, body, sizeof(body));
	say(p.client, GET(GOOD));
	expect_text(p.server, GET(GOOD));
	hang_up(&p);
}

TEST_WITH(test_every_request_on_a_connection_is_judged, start, stop)
{
	struct way p = dial(FAR_A, 80);

	say(p.client, GET(GOOD));
	p.server = world_accept(&w, p.listener);
	expect_text(p.server, GET(GOOD));
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	say(p.client, GET(EVIL));
	/* The server learns that no more comes, and not what else was asked. */
	assert_string_equal(all_of(p.server), "");
	close(p.server);
	p.server = -1;
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	expect_event(EVIL, "the name is not allowed");
	hang_up(&p);
	expect_passed(GOOD, strlen(GET(GOOD)), strlen(ANSWER));
}

TEST_WITH(test_answers_that_are_due_come_before_a_refusal, start, stop)
{
	struct way p = dial(FAR_A, 80);
	const char *text;

	say(p.client, GET(GOOD) GET(GOOD) GET(EVIL) GET(GOOD));
	p.server = world_accept(&w, p.listener);
	assert_string_equal(all_of(p.server), GET(GOOD) GET(GOOD));
	say(p.server, ANSWER ANSWER);
	close(p.server);
	p.server = -1;
	text = all_of(p.client);
	assert_memory_equal(text, ANSWER ANSWER "HTTP/1.1 403",
			    strlen(ANSWER ANSWER) + 12);
	assert_non_null(strstr(text, "\"name\": \"" EVIL "\""));
	hang_up(&p);
	expect_passed(GOOD, strlen(GET(GOOD) GET(GOOD)), strlen(ANSWER ANSWER));
}

TEST_WITH(test_a_refusal_that_waits_names_no_rule_of_another_policy, start, stop)
{
	static const char *const before[] = { "verify tls", "deny " EVIL,
					      "allow " GOOD " 80", NULL };
	static const char *const after[] = { "verify tls", "allow another.test",
					     "allow " GOOD " 80", NULL };
	struct way p;
	const char *text;

	world_set_plan(&w, before);
	p = dial(FAR_A, 80);
	say(p.client, GET(GOOD) GET(EVIL));
	p.server = world_accept(&w, p.listener);
	assert_string_equal(all_of(p.server), GET(GOOD));
	world_set_plan(&w, after);
	relay_recheck(&w.sandbox);
	world_turn(&w);
	say(p.server, ANSWER);
	close(p.server);
	p.server = -1;
	text = all_of(p.client);
	assert_memory_equal(text, ANSWER "HTTP/1.1 403", strlen(ANSWER) + 12);
	assert_null(strstr(text, "another.test"));
	hang_up(&p);
}

/* --- Upgrade and CONNECT --- */

#define UPGRADE(to)                                                                      \
	"GET / HTTP/1.1\r\nHost: " GOOD "\r\nConnection: Upgrade\r\nUpgrade: " to        \
	"\r\n\r\n"
#define SWITCHED "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"

static struct way upgrade_on(uint16_t port, const char *to)
{
	struct way p = dial(FAR_A, port);

	say(p.client, to);
	p.server = world_accept(&w, p.listener);
	expect_text(p.server, to);
	return p;
}

static struct way upgrade(const char *to)
{
	return upgrade_on(80, to);
}

TEST_WITH(test_after_a_switch_the_connection_is_a_tunnel, start, stop)
{
	struct way p = upgrade(UPGRADE("websocket"));

	say(p.client, "early");
	expect_silence(p.server);
	say(p.server, SWITCHED "frame");
	expect_text(p.client, SWITCHED "frame");
	expect_text(p.server, "early");
	say(p.client, GET(EVIL));
	expect_text(p.server, GET(EVIL));
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

TEST_WITH(test_an_upgrade_that_is_ignored_opens_nothing, start, stop)
{
	struct way p = upgrade(UPGRADE("websocket"));

	say(p.client, GET(EVIL));
	expect_silence(p.server);
	say(p.server, "HTTP/1.1 103 Early Hints\r\n\r\n");
	expect_text(p.client, "HTTP/1.1 103 Early Hints\r\n\r\n");
	expect_silence(p.server);
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	assert_string_equal(all_of(p.server), "");
	close(p.server);
	p.server = -1;
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	hang_up(&p);
}

TEST_WITH(test_http2_without_tls_is_cut, start, stop)
{
	struct way p = dial(FAR_A, 80);

	say(p.client, "PRI * HTTP/2.0\r\n");
	say(p.client, "\r\nSM\r\n\r\n");
	expect_reset(p.client);
	expect_event("", "HTTP/2 without TLS");
	expect_nobody(&p);
	hang_up(&p);
	p = upgrade(UPGRADE("h2c"));
	say(p.server, SWITCHED);
	expect_reset(p.client);
	expect_event("", "HTTP/2 without TLS");
	hang_up(&p);
	/* By the name of one of its drafts. */
	p = upgrade(UPGRADE("h2c-16"));
	say(p.server, SWITCHED);
	expect_reset(p.client);
	expect_event("", "HTTP/2 without TLS");
	hang_up(&p);
	p = upgrade(UPGRADE("h2c"));
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	say(p.client, GET(GOOD));
	expect_text(p.server, GET(GOOD));
	hang_up(&p);
}

TEST_WITH(test_an_upgrade_after_other_requests_needs_a_new_connection, start, stop)
{
	struct way p = upgrade(GET(GOOD));

	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	say(p.client, UPGRADE("websocket"));
	assert_string_equal(all_of(p.server), "");
	close(p.server);
	p.server = -1;
	assert_string_equal(all_of(p.client), "");
	assert_int_equal(w.event_count, 0);
	hang_up(&p);
}

/* What comes back for the first request would count against the second one's rule. */
TEST_WITH(test_a_request_that_another_rule_pays_needs_a_new_connection, start, stop)
{
	static const char *const paid[] = { "verify tls", "allow " GOOD " 80 budget",
					    "allow " EVIL " 80", NULL };
	struct way p;

	world_set_plan(&w, paid);
	w.sandbox.budgets = budgets_new(NULL, &w.sandbox.plan, clock_now_ms());
	p = upgrade(GET(GOOD));
	say(p.client, GET(GOOD));
	expect_text(p.server, GET(GOOD));
	say(p.client, GET(EVIL));
	assert_string_equal(all_of(p.server), "");
	say(p.server, ANSWER ANSWER);
	close(p.server);
	p.server = -1;
	assert_string_equal(all_of(p.client), ANSWER ANSWER);
	assert_int_equal(w.event_count, 0);
	hang_up(&p);
	budgets_free(w.sandbox.budgets);
	w.sandbox.budgets = NULL;
}

/* Where an address rule opens the address any allowed name may be shown. */
TEST_WITH(test_an_address_rule_pays_whatever_name_is_shown, start, stop)
{
	static const char *const paid[] = { "verify tls", "allow " FAR_B " 80 budget",
					    "allow " GOOD " 80", NULL };
	struct plan *plan = &w.sandbox.plan;
	const int64_t now_ms = clock_now_ms();
	struct way p;

	world_set_plan(&w, paid);
	w.sandbox.budgets = budgets_new(NULL, plan, now_ms);
	p = dial(FAR_B, 80);
	say(p.client, GET(GOOD));
	p.server = world_accept(&w, p.listener);
	expect_text(p.server, GET(GOOD));
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	assert_true(budgets_left(w.sandbox.budgets, plan, budgets_of(plan, 0), true,
				 now_ms) == 100000 - strlen(ANSWER));
	hang_up(&p);
	budgets_free(w.sandbox.budgets);
	w.sandbox.budgets = NULL;
}

#define CONNECT	  "CONNECT " GOOD ":80 HTTP/1.1\r\nHost: " GOOD ":80\r\n\r\n"
#define CONNECTED "HTTP/1.1 200 Connected\r\n\r\n"

TEST_WITH(test_connect_becomes_a_tunnel_only_on_success, start, stop)
{
	struct way p = upgrade_on(RAW_PORT, CONNECT);

	say(p.server, CONNECTED);
	expect_text(p.client, CONNECTED);
	say(p.server, "SSH-2.0-x\r\n");
	expect_text(p.client, "SSH-2.0-x\r\n");
	say(p.client, "SSH-2.0-y\r\n");
	expect_text(p.server, "SSH-2.0-y\r\n");
	say(p.client, GET(EVIL));
	expect_text(p.server, GET(EVIL));
	hang_up(&p);
	p = upgrade(CONNECT);
	say(p.server, "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n");
	expect_text(p.client, "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n");
	say(p.client, GET(EVIL));
	assert_string_equal(all_of(p.server), "");
	hang_up(&p);
	p = dial(FAR_A, 80);
	say(p.client, "CONNECT " EVIL ":443 HTTP/1.1\r\nHost: " EVIL ":443\r\n\r\n");
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	hang_up(&p);
}

/* A server that takes no upgrade, as most, reads the whole request before it answers. */
TEST_WITH(test_a_body_in_chunks_passes_before_an_upgrade_is_answered, start, stop)
{
	static const char head[] = "POST / HTTP/1.1\r\nHost: " GOOD
				   "\r\nConnection: Upgrade\r\nUpgrade: h2c"
				   "\r\nTransfer-Encoding: chunked\r\n\r\n";
	struct way p = upgrade(head);

	say(p.server, "HTTP/1.1 100 Continue\r\n\r\n");
	expect_text(p.client, "HTTP/1.1 100 Continue\r\n\r\n");
	say(p.client, "5\r\nhello\r\n3\r\n");
	expect_text(p.server, "5\r\nhello\r\n3\r\n");
	say(p.client, "abc\r\n0\r\n\r\n" GET(GOOD));
	expect_text(p.server, "abc\r\n0\r\n\r\n");
	expect_silence(p.server);
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	expect_text(p.server, GET(GOOD));
	hang_up(&p);
	p = upgrade(head);
	say(p.client, "0\r\n\r\n");
	expect_text(p.server, "0\r\n\r\n");
	say(p.server, SWITCHED);
	expect_reset(p.client);
	expect_event("", "HTTP/2 without TLS");
	hang_up(&p);
}

/* A server may say "100 Continue" before the client sends a body. One that goes over to
 * HTTP/2 at once would read the body in it. */
TEST_WITH(test_a_body_waits_behind_an_offer_of_http2, start, stop)
{
	static const char head[] = "POST / HTTP/1.1\r\nHost: " GOOD
				   "\r\nConnection: Upgrade\r\nUpgrade: h2c"
				   "\r\nExpect: 100-continue"
				   "\r\nContent-Length: 30\r\n\r\n";
	static const char body[] = "a body of thirty bytes, or so.";
	struct way p = upgrade(head);
	char byte;

	say(p.server, "HTTP/1.1 100 Continue\r\n\r\n");
	expect_text(p.client, "HTTP/1.1 100 Continue\r\n\r\n");
	say(p.client, body);
	expect_text(p.server, body);
	say(p.server, ANSWER);
	expect_text(p.client, ANSWER);
	say(p.client, GET(GOOD));
	expect_text(p.server, GET(GOOD));
	hang_up(&p);
	p = upgrade(head);
	say(p.client, "PRI * HTTP/2.0\r\n\r\n");
	expect_silence(p.server);
	say(p.client, "SM\r\n\r\n");
	assert_int_equal(world_read(&w, p.server, &byte, 1), 0);
	expect_event("", "HTTP/2 without TLS");
	hang_up(&p);
}

/* A server that goes over to TLS at once would read the body as a ClientHello. */
TEST_WITH(test_no_body_passes_before_a_switch_to_tls, start, stop)
{
	static const char *const rows[] = {
		"GET / HTTP/1.1\r\nHost: " GOOD
		"\r\nUpgrade: TLS/1.0\r\nContent-Length: 4\r\n\r\nbody",
		"GET / HTTP/1.1\r\nHost: " GOOD
		"\r\nTransfer-Encoding: chunked\r\nUpgrade: tls\r\n\r\n0\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct way p = dial(FAR_A, 80);

		say(p.client, rows[i]);
		assert_memory_equal(all_of(p.client), "HTTP/1.1 400", 12);
		expect_event("", "doubtful framing");
		expect_nobody(&p);
		hang_up(&p);
	}
}

/* What the server reads as a connection of its own, in a tunnel or after a switch to TLS.
 */
TEST_WITH(test_a_name_inside_of_a_connection_counts_too, start, stop)
{
	static const struct {
		const char *ask, *answer;
	} rows[] = {
		{ CONNECT, CONNECTED },
		{ UPGRADE("TLS/1.2, HTTP/1.1"), SWITCHED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (int evil = 0; evil < 2; evil++) {
			struct way p = upgrade(rows[i].ask);
			uint8_t bytes[TEXT_SIZE], got[8];
			size_t size = hello(evil ? EVIL : GOOD, 16384, bytes);

			say(p.server, rows[i].answer);
			expect_text(p.client, rows[i].answer);
			world_write_all(&w, p.client, bytes, size);
			if (evil) {
				assert_int_equal(world_read(&w, p.client, got, 8), 7);
				expect_event(EVIL, "not allowed");
				expect_reset(p.server);
			} else {
				expect_bytes(p.server, bytes, size);
			}
			hang_up(&p);
		}
		assert_int_equal(w.event_count, i + 1);
	}
}

TEST_WITH(test_requests_in_a_tunnel_are_judged, start, stop)
{
	struct way p = upgrade(CONNECT);

	say(p.server, CONNECTED);
	expect_text(p.client, CONNECTED);
	say(p.client, UPGRADE("websocket"));
	expect_text(p.server, UPGRADE("websocket"));
	say(p.server, SWITCHED);
	expect_text(p.client, SWITCHED);
	say(p.client, "frame");
	expect_text(p.server, "frame");
	hang_up(&p);
	p = upgrade(CONNECT);
	say(p.server, CONNECTED);
	expect_text(p.client, CONNECTED);
	say(p.client, GET(EVIL));
	assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
	expect_event(EVIL, "not allowed");
	expect_reset(p.server);
	hang_up(&p);
}

/* A server may say 200 to a CONNECT, open no tunnel and read the next request: on the
 * ports of the web bytes without a name pass in a tunnel as little as outside. */
TEST_WITH(test_a_tunnel_opens_no_port_for_bytes, start, stop)
{
	for (int word = 0; word < 2; word++) {
		struct way p = upgrade(CONNECT);

		say(p.server, CONNECTED "ok");
		expect_text(p.client, CONNECTED "ok");
		say(p.client, word ? "REPORT" : "SSH-2.0-y\r\n");
		if (word) {
			expect_silence(p.server);
			/* Nobody looks again before more comes. */
			assert_true(TAILQ_EMPTY(&w.relay->ready));
			say(p.client, " / HTTP/1.1\r\nHost: " EVIL "\r\n\r\n");
			assert_memory_equal(all_of(p.client), "HTTP/1.1 403", 12);
		}
		expect_reset(p.server);
		hang_up(&p);
	}
}

TEST_WITH(test_a_tunnel_in_which_nothing_is_said_ends, start, stop)
{
	struct way p = upgrade(CONNECT);

	say(p.server, CONNECTED);
	expect_text(p.client, CONNECTED);
	assert_int_equal(shutdown(p.client, SHUT_WR), 0);
	assert_string_equal(all_of(p.server), "");
	say(p.server, "bye");
	expect_text(p.client, "bye");
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

/* --- in time --- */

TEST_WITH(test_a_new_policy_cuts_by_the_name_that_was_shown, start, stop)
{
	static const char *const both[] = { "verify tls", "allow " GOOD, "allow " EVIL,
					    NULL };
	struct way good, evil;

	world_set_plan(&w, both);
	good = dial(FAR_A, 80);
	say(good.client, GET(GOOD));
	good.server = world_accept(&w, good.listener);
	expect_text(good.server, GET(GOOD));
	close(good.listener);
	evil = dial(FAR_A, 80);
	say(evil.client, GET(EVIL));
	evil.server = world_accept(&w, evil.listener);
	expect_text(evil.server, GET(EVIL));
	world_set_plan(&w, rules);
	world_forget(&w); /* what is open goes on when what it stands on expires */
	relay_recheck(&w.sandbox);
	expect_reset(evil.client);
	expect_reset(evil.server);
	say(good.client, GET(GOOD));
	expect_text(good.server, GET(GOOD));
	close(good.client);
	close(good.server);
	hang_up(&evil);
}

enum { UPLOAD_SIZE = 30 * 1000 };

/* Both sides have ended, and the kernel still has bytes for a server that doesn't read.
 */
static struct way upload_and_leave(void)
{
	static uint8_t bytes[UPLOAD_SIZE];
	struct way p = dial(FAR_A, RAW_PORT);
	int small = 4096;

	assert_int_equal(
		setsockopt(p.listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	p.server = world_accept(&w, p.listener);
	shutdown(p.server, SHUT_WR);
	world_write_all(&w, p.client, bytes, sizeof(bytes));
	shutdown(p.client, SHUT_WR);
	assert_string_equal(all_of(p.client), "");
	for (int i = 0; i < 20; i++)
		world_turn(&w);
	return p;
}

static size_t read_upload(const struct way *p, ssize_t *ret_end)
{
	static uint8_t bytes[UPLOAD_SIZE];
	size_t got = 0;

	while ((*ret_end = world_read(&w, p->server, bytes, sizeof(bytes))) > 0)
		got += (size_t)*ret_end;
	return got;
}

TEST_WITH(test_what_the_kernel_still_has_is_cut_too, start, stop)
{
	static const char *const less[] = { "verify tls", "allow third.example.com",
					    NULL };
	struct way p = upload_and_leave();
	ssize_t end;

	assert_int_equal(read_upload(&p, &end), UPLOAD_SIZE);
	assert_int_equal(end, 0);
	hang_up(&p);
	p = upload_and_leave();
	world_set_plan(&w, less);
	relay_recheck(&w.sandbox);
	while (relay_is_rechecking(&w.sandbox))
		world_turn(&w);
	assert_in_range(read_upload(&p, &end), 0, UPLOAD_SIZE - 1);
	assert_int_equal(end, -ECONNRESET);
	hang_up(&p);
}

/* What the last request showed says nothing of the answers to those before. */
static void expect_several_end(const char *const *both, const char *const *one_of_them)
{
	struct way one, several;

	world_set_plan(&w, both);
	several = upgrade(GET(GOOD));
	say(several.client, GET(EVIL));
	expect_text(several.server, GET(EVIL));
	close(several.listener);
	one = upgrade(GET(EVIL));
	say(one.client, GET(EVIL));
	expect_text(one.server, GET(EVIL));
	world_set_plan(&w, one_of_them);
	relay_recheck(&w.sandbox);
	expect_reset(several.client);
	expect_reset(several.server);
	say(one.server, ANSWER);
	expect_text(one.client, ANSWER);
	several.listener = dup(one.listener);
	hang_up(&one);
	hang_up(&several);
}

TEST_WITH(test_a_flow_of_several_names_outlives_no_change, start, stop)
{
	expect_several_end(
		(const char *const[]){ "verify tls", "allow " GOOD, "allow " EVIL, NULL },
		(const char *const[]){ "verify tls", "allow " EVIL, NULL });
}

TEST_WITH(test_nor_does_one_of_names_that_no_rule_tells_apart, start, stop)
{
	expect_several_end(
		(const char *const[]){ "verify tls", "default", NULL },
		(const char *const[]){ "verify tls", "deny " GOOD, "default", NULL });
}

/* A CONNECT's tunnel is its name's, whatever is shown inside. */
TEST_WITH(test_a_tunnel_ends_with_the_name_that_opened_it, start, stop)
{
	static const char *const both[] = { "verify tls", "allow " GOOD " 7000",
					    "allow " EVIL " 7000", "allow " FAR_A " 7000",
					    NULL };
	static const char *const named[] = { "verify tls", "allow " GOOD " 7000",
					     "allow " EVIL " 7000", NULL };
	const struct {
		const char *const *plan, *inside;
		bool ends;
	} rows[] = {
		{ both, GET(EVIL), true },
		{ both, "SSH-2.0-y\r\n", true },
		{ named, GET(EVIL), true },
		/* The other name takes such bytes too. */
		{ named, "SSH-2.0-y\r\n", true },
		{ both, GET(GOOD), false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const *less =
			(const char *const[]){ "verify tls",
					       rows[i].ends ? "deny " GOOD : "deny " EVIL,
					       "allow " GOOD " 7000",
					       "allow " EVIL " 7000",
					       "allow " FAR_A " 7000",
					       NULL };
		struct way p;

		world_set_plan(&w, rows[i].plan);
		p = upgrade_on(RAW_PORT, CONNECT);
		say(p.server, CONNECTED);
		expect_text(p.client, CONNECTED);
		say(p.client, rows[i].inside);
		expect_text(p.server, rows[i].inside);
		world_set_plan(&w, less);
		relay_recheck(&w.sandbox);
		if (rows[i].ends) {
			expect_reset(p.client);
			expect_reset(p.server);
		} else {
			say(p.server, ANSWER);
			expect_text(p.client, ANSWER);
		}
		hang_up(&p);
	}
}

TEST_WITH(test_a_tunnel_counts_for_the_name_that_opened_it, start, stop)
{
	static const char *const paid[] = { "verify tls", "allow " GOOD " 7000 budget",
					    "allow " EVIL " 7000", "allow " FAR_A " 7000",
					    NULL };
	static const char *const inside[] = { GET(EVIL), "SSH-2.0-y\r\n", GET(GOOD) };
	struct plan *plan = &w.sandbox.plan;

	for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
		const int64_t now_ms = clock_now_ms();
		struct way p;

		world_set_plan(&w, paid);
		w.sandbox.budgets = budgets_new(NULL, plan, now_ms);
		p = upgrade_on(RAW_PORT, CONNECT);
		say(p.server, CONNECTED);
		expect_text(p.client, CONNECTED);
		say(p.client, inside[i]);
		expect_text(p.server, inside[i]);
		say(p.server, ANSWER);
		expect_text(p.client, ANSWER);
		assert_true(budgets_left(w.sandbox.budgets, plan, budgets_of(plan, 0),
					 true,
					 now_ms) == 100000 - strlen(CONNECTED ANSWER));
		hang_up(&p);
		budgets_free(w.sandbox.budgets);
		w.sandbox.budgets = NULL;
	}
}

/* Where a rule for addresses lets a connection through it may claim any allowed name. */
TEST_WITH(test_a_claimed_name_carries_no_flow_over_a_change, start, stop)
{
	static const char *const open[] = { "verify tls", "allow " GOOD, "allow " EVIL,
					    "allow 93.184.216.0/24", NULL };
	struct way honest, liar;

	world_set_plan(&w, open);
	honest = dial(FAR_A, 80);
	liar = dial(FAR_B, 80);
	say(honest.client, GET(GOOD));
	say(liar.client, GET(GOOD));
	honest.server = world_accept(&w, honest.listener);
	liar.server = world_accept(&w, liar.listener);
	expect_text(honest.server, GET(GOOD));
	expect_text(liar.server, GET(GOOD));
	world_set_plan(&w, (const char *const[]){ "verify tls", "allow " GOOD, NULL });
	relay_recheck(&w.sandbox);
	expect_reset(liar.client);
	expect_reset(liar.server);
	say(honest.client, GET(GOOD));
	expect_text(honest.server, GET(GOOD));
	close(honest.client);
	close(honest.server);
	close(honest.listener);
	hang_up(&liar);
}

TEST_WITH(test_a_client_that_says_nothing_and_leaves_is_no_event, start, stop)
{
	struct way p = dial(FAR_A, 443);

	for (int i = 0; i < 10; i++)
		world_turn(&w);
	hang_up(&p);
	assert_int_equal(w.event_count, 0);
}

int main(void)
{
	if (!world_namespaces(&w)) {
		print_message("no namespaces here: skipped\n");
		return 77;
	}
	return unit_run(NULL, NULL);
}
