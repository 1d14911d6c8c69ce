// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "unit.h"
#include <jansson.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "outputs/webhook.h"
#include "sys/sock.h"

#define T0 INT64_C(1763633456000) /* 2025-11-20T10:10:56Z */

TEST(a_url_is_read_as_it_will_be_dialled)
{
	static const struct {
		const char *url, *host;
		uint16_t port;
		bool tls, is_address;
	} rows[] = {
		{ "http://Hook.Example", "hook.example", 80, false, false },
		{ "https://hook.example/", "hook.example", 443, true, false },
		{ "HTTPS://hook.example:8443/a?b#c", "hook.example", 8443, true, false },
		{ "http://u:p@hook.example:81", "hook.example", 81, false, false },
		{ "http://u@evil.example@hook.example/", "hook.example", 80, false,
		  false },
		{ "http://10.0.0.1:9/x", "10.0.0.1", 9, false, true },
		{ "http://[2001:db8::1]/x", "2001:db8::1", 80, false, true },
		{ "http://[2001:db8::1]:8080", "2001:db8::1", 8080, false, true },
		{ "http://a.test?x=http://b.test:1/", "a.test", 80, false, false },
		{ "http://a.test#@b.test", "a.test", 80, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct webhook_url u;

		assert_int_equal(webhook_url_parse(text_of(rows[i].url), &u, NULL), 0);
		assert_string_equal(u.host, rows[i].host);
		assert_int_equal(u.port, rows[i].port);
		assert_int_equal(u.tls, rows[i].tls);
		assert_int_equal(u.addr.family != ADDR_NONE, rows[i].is_address);
	}
}

TEST(what_is_no_url_is_refused)
{
	static const char *const rows[] = {
		"",
		"http://",
		"http:///x",
		"http://:80/",
		"http://@/",
		"http://a.test:/",
		"http://a.test:00080/",
		"http://a.test:65536/",
		"http://a.test:+1/",
		"http://a b.test/",
		"http://a.test/\r\nX: y",
		"http://a.test/\x7f",
		"http://a\\b.test/",
		"http://::1/",
		"http://[::1/",
		"http://[]/",
		"http://[fe80::1%25eth0]/",
		"http://[1.2.3.4]/",
		"ftp://a.test/",
		"file:///etc/passwd",
		"//a.test/",
		"http:/a.test",
		"http://b\xc3\xbc.test/",
	};
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct webhook_url u;

		err = (struct err){ 0 };
		if (webhook_url_parse(text_of(rows[i]), &u, &err) != -EINVAL)
			fail_msg("'%s' was taken", rows[i]);
		assert_non_null(strstr(err.text, "is not an http or https URL"));
	}
}

TEST(a_payload_has_four_keys_in_order)
{
	char buf[WEBHOOK_PAYLOAD_SIZE], longest[300], id[300];
	size_t n = webhook_payload("Evil.Test.", T0, "sb-1", buf);
	json_t *j;

	buf[n] = '\0';
	assert_string_equal(
		buf, "{\"hostname\":\"evil.test\",\"timestamp\":\"2025-11-20T10:10:56Z\","
		     "\"source\":\"opensandbox-egress\",\"sandboxId\":\"sb-1\"}");
	memset(longest, 0x01, sizeof(longest));
	memset(id, 0xff, sizeof(id));
	longest[sizeof(longest) - 1] = id[sizeof(id) - 1] = '\0';
	n = webhook_payload(longest, T0, id, buf);
	j = json_loadb(buf, n, JSON_ALLOW_NUL, NULL);
	assert_non_null(j);
	json_decref(j);
}

/* ---- the channel ---- */

struct ends {
	struct webhook *w;
	int child;
};

static struct ends opened(void)
{
	static const char *const urls[] = { "http://a.test/", "http://b.test/" };
	struct ends e = { 0 };
	int pair[2];

	assert_int_equal(webhook_new(urls, 2, "sb-1", &e.w, NULL), 0);
	assert_int_equal(webhook_flush(e.w), 0);
	assert_int_equal(socketpair(AF_UNIX,
				    SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
				    pair),
			 0);
	webhook_attach(e.w, pair[0]);
	e.child = pair[1];
	return e;
}

static void closed(struct ends e)
{
	webhook_free(e.w);
	if (e.child >= 0)
		close(e.child);
}

static struct webhook_message heard(struct ends e)
{
	struct webhook_message m;
	int fd = -1;

	assert_int_equal(webhook_message_receive(e.child, &m, &fd), 0);
	assert_int_equal(fd, -1);
	return m;
}

TEST(urls_come_before_jobs)
{
	struct ends e = opened();
	struct webhook_message m;

	webhook_denied(e.w, UINT32_MAX, "x.test", T0);
	assert_int_equal(webhook_flush(e.w), 0);
	for (uint32_t i = 0; i < 2; i++) {
		m = heard(e);
		assert_int_equal(m.type, WEBHOOK_URL);
		assert_int_equal(m.url, i);
		assert_memory_equal(m.text, i ? "http://b.test/" : "http://a.test/", 14);
	}
	m = heard(e);
	assert_int_equal(m.type, WEBHOOK_JOB);
	assert_int_equal(m.url, 3);
	assert_non_null(memmem(m.text, m.size, "x.test", 6));
	closed(e);
}

TEST(a_job_is_for_the_urls_that_it_names)
{
	struct ends e = opened();
	struct webhook_message m;

	(void)webhook_post(e.w, 0, 1u << 1, "hello", 5);
	(void)webhook_post(e.w, 0, 1u << 2, "nobody", 6);
	assert_int_equal(webhook_flush(e.w), 0);
	heard(e);
	heard(e);
	m = heard(e);
	assert_int_equal(m.type, WEBHOOK_JOB);
	assert_int_equal(m.url, 1u << 1);
	assert_int_equal(m.size, 5);
	assert_memory_equal(m.text, "hello", 5);
	assert_true(recv(e.child, &m, sizeof(m), MSG_DONTWAIT) < 0);
	closed(e);
}

TEST(a_program_that_reads_nothing_costs_a_bounded_queue)
{
	struct ends e = opened();
	struct webhook_state s;
	uint64_t handed;
	int jobs = 0;

	for (int i = 0; i < 5000; i++) {
		webhook_denied(e.w, UINT32_MAX, "x.test", T0);
		(void)!webhook_flush(e.w);
	}
	assert_int_equal(webhook_flush(e.w), -EAGAIN);
	s = webhook_state(e.w);
	assert_in_range(s.counters[WEBHOOK_DROPPED], 2 * 3000, 2 * (5000 - 256));
	/* It reads again: what waits comes, and the sum is whole. */
	for (bool more = true; more;) {
		struct webhook_message m;
		int fd;

		more = webhook_flush(e.w) == -EAGAIN;
		while (recv(e.child, &m, sizeof(m), MSG_DONTWAIT | MSG_PEEK) > 0) {
			assert_int_equal(webhook_message_receive(e.child, &m, &fd), 0);
			jobs += m.type == WEBHOOK_JOB;
		}
	}
	handed = (uint64_t)jobs;
	assert_int_equal(2 * handed + s.counters[WEBHOOK_DROPPED], 2 * 5000);
	/* A new program: what the old one had is lost and counted. */
	webhook_attach(e.w, fcntl(e.child, F_DUPFD_CLOEXEC, 3));
	s = webhook_state(e.w);
	assert_int_equal(s.counters[WEBHOOK_DROPPED], 2 * 5000);
	closed(e);
}

static void say(struct ends e, struct webhook_message m)
{
	assert_int_equal(webhook_message_send(e.child, &m, -1), 0);
}

TEST(counters_and_requests_are_told_apart)
{
	struct ends e = opened();
	struct webhook_message m = { .type = WEBHOOK_STATE, .size = sizeof(m.counters) };
	int fd = -1;

	m.counters[WEBHOOK_SENT] = 7;
	say(e, m);
	say(e, (struct webhook_message){ .type = WEBHOOK_WANT, .id = 1, .url = 1 });
	assert_int_equal(webhook_receive(e.w, &m), 1);
	assert_int_equal(m.type, WEBHOOK_WANT);
	assert_int_equal(webhook_state(e.w).counters[WEBHOOK_SENT], 7);
	assert_int_equal(webhook_receive(e.w, &m), 0);
	assert_int_equal(webhook_answer(e.w, 1, STDERR_FILENO), 0);
	assert_int_equal(webhook_message_receive(e.child, &m, &fd), 0);
	assert_int_equal(m.type, WEBHOOK_SOCKET);
	assert_true(fd >= 0);
	close(fd);
	say(e, (struct webhook_message){ .type = WEBHOOK_CLOSED, .id = 1 });
	assert_int_equal(webhook_receive(e.w, &m), 1);
	assert_int_equal(m.type, WEBHOOK_CLOSED);
	closed(e);
}

TEST(a_program_that_speaks_without_end_is_heard_in_turns)
{
	enum { MANY = 100 };
	struct ends e = opened();
	struct webhook_message m = { .type = WEBHOOK_STATE, .size = sizeof(m.counters) };

	for (size_t i = 1; i <= MANY; i++) {
		m.counters[WEBHOOK_SENT] = i;
		say(e, m);
	}
	assert_int_equal(webhook_receive(e.w, &m), 0);
	assert_in_range(webhook_state(e.w).counters[WEBHOOK_SENT], 1, MANY - 1);
	assert_int_equal(webhook_receive(e.w, &m), 0);
	assert_int_equal(webhook_state(e.w).counters[WEBHOOK_SENT], MANY);
	closed(e);
}

TEST(sockets_are_bounded_and_come_back)
{
	struct ends e = opened();
	struct webhook_message m;
	int fd = -1;

	for (uint32_t id = 1; id <= WEBHOOK_SOCKETS_MAX; id++) {
		say(e, (struct webhook_message){ .type = WEBHOOK_WANT, .id = id });
		assert_int_equal(webhook_receive(e.w, &m), 1);
	}
	say(e, (struct webhook_message){ .type = WEBHOOK_WANT, .id = 99 });
	assert_int_equal(webhook_receive(e.w, &m), 0);
	assert_int_equal(webhook_message_receive(e.child, &m, &fd), 0);
	assert_int_equal(m.id, 99);
	assert_int_equal(m.error, -EMFILE);
	/* A refusal gives the place back. */
	assert_int_equal(webhook_answer(e.w, 3, -ECONNREFUSED), 0);
	say(e, (struct webhook_message){ .type = WEBHOOK_WANT, .id = 100 });
	assert_int_equal(webhook_receive(e.w, &m), 1);
	closed(e);
}

/* Two fit into the room that one takes. */
TEST(descriptors_that_nobody_asked_for_are_closed)
{
	static const size_t sizes[] = {
		0, offsetof(struct webhook_message, text),
		offsetof(struct webhook_message, text) +
			sizeof(((struct webhook_message){ 0 }).counters)
	};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t count = 1; count <= 3; count++) {
			struct ends e = opened();
			struct webhook_message m = {
				.type = i == 1 ? WEBHOOK_SOCKET : WEBHOOK_STATE,
				.size = sizeof(m.counters),
			};
			const int fds[] = { e.child, e.child, e.child };
			int before = fcntl(e.child, F_DUPFD_CLOEXEC, 0);

			close(before);
			m.size = i == 2 ? sizeof(m.counters) : 0;
			assert_int_equal(fds_send(e.child, &m, sizes[i], fds, count),
					 sizes[i]);
			assert_true(webhook_receive(e.w, &m) < 0);
			assert_int_equal(fcntl(e.child, F_DUPFD_CLOEXEC, 0), before);
			close(before);
			closed(e);
		}
	}
}

TEST(a_program_that_says_what_it_may_not_is_found_out)
{
	const struct webhook_message rows[] = {
		{ .type = WEBHOOK_NONE },
		{ .type = 99 },
		{ .type = WEBHOOK_JOB, .size = 5 },
		{ .type = WEBHOOK_URL, .size = 5 },
		{ .type = WEBHOOK_SOCKET },
		{ .type = WEBHOOK_WANT, .id = 0 },
		{ .type = WEBHOOK_WANT, .id = 1, .url = 2 },
		{ .type = WEBHOOK_WANT, .id = 1, .size = 8 },
		{ .type = WEBHOOK_CLOSED, .id = 0 },
		{ .type = WEBHOOK_CLOSED, .id = 5 },
		{ .type = WEBHOOK_STATE, .size = 8 },
		{ .type = WEBHOOK_STATE, .size = 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ends e = opened();
		struct webhook_message m;

		say(e, rows[i]);
		if (webhook_receive(e.w, &m) != -EBADMSG)
			fail_msg("row %zu was taken", i);
		closed(e);
	}
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

TEST(sizes_that_lie_and_descriptors_unasked_are_refused)
{
	struct ends e = opened();
	const int before = open_descriptors();
	struct webhook_message m = { .type = WEBHOOK_STATE, .size = 0xffffffff };
	char big[sizeof(m) + 1] = { 0 };

	assert_int_equal(send(e.child, &m, 24, 0), 24);
	assert_int_equal(webhook_receive(e.w, &m), -EBADMSG);
	assert_int_equal(send(e.child, "abc", 3, 0), 3);
	assert_int_equal(webhook_receive(e.w, &m), -EBADMSG);
	assert_int_equal(send(e.child, big, sizeof(big), 0), sizeof(big));
	assert_int_equal(webhook_receive(e.w, &m), -EBADMSG);
	m = (struct webhook_message){ .type = WEBHOOK_WANT, .id = 1 };
	assert_int_equal(webhook_message_send(e.child, &m, STDERR_FILENO), 0);
	assert_int_equal(webhook_receive(e.w, &m), -EBADMSG);
	assert_int_equal(open_descriptors(), before);
	closed(e);
}

TEST(a_program_that_is_gone_is_noticed)
{
	struct ends e = opened();
	struct webhook_message m;

	close(e.child);
	e.child = -1;
	assert_int_equal(webhook_receive(e.w, &m), -EPIPE);
	webhook_denied(e.w, UINT32_MAX, "x.test", T0);
	assert_int_equal(webhook_flush(e.w), -EPIPE);
	closed(e);
	webhook_free(NULL);
}

TEST(too_many_urls_and_bad_ones_are_refused)
{
	static const char *const many[] = { "http://a", "http://b", "http://c",
					    "http://d", "http://e", "http://f",
					    "http://g", "http://h", "http://i" };
	static const char *const bad[] = { "http://a", "nothing" };
	struct webhook *w = NULL;

	assert_int_equal(webhook_new(many, ARRAY_SIZE(many), "", &w, NULL), -EINVAL);
	assert_int_equal(webhook_new(bad, ARRAY_SIZE(bad), "", &w, NULL), -EINVAL);
	assert_null(w);
}
