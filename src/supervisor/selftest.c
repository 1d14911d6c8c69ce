// SPDX-License-Identifier: Apache-2.0
#include "supervisor/init.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dns/answer.h"

enum {
	DNS_PORT = 53,
	DNS_TIMEOUT_MS = 4000, /* the engine answers these itself, late on a busy host */
	FIRST_TIMEOUT_MS = 5000, /* a real name, from a real server */
	REFUSAL_TIMEOUT_MS = 500,
	RELAY_TRIES = 3,
	ANSWER_MAX = 1500,
};

static const char relay_greeting = 'W';

static bool wait_readable(int fd, short events, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, timeout_ms) == 1;
}

/* A question to the sandbox's own server. */
struct question {
	int fd;	   /* owned; -1: none was asked */
	int error; /* -errno: it could not be asked */
	struct dns_asked asked;
};

static int ask_name(struct question *q, const char *name)
{
	struct sockaddr_in server = { .sin_family = AF_INET,
				      .sin_port = htons(DNS_PORT),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const uint8_t lower_case[32];
	struct dns_asked *asked = &q->asked;
	uint8_t bytes[ANSWER_MAX];
	int size;

	q->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (q->fd < 0 || getrandom(&asked->id, sizeof(asked->id), 0) != sizeof(asked->id))
		return -errno;
	if (dns_name_parse(text_of(name), &asked->name) < 0)
		return -EINVAL;
	size = dns_query_write(bytes, sizeof(bytes), asked->id, &asked->name, asked->type,
			       false, lower_case, asked->case_name);
	if (size < 0)
		return size;
	if (connect(q->fd, (struct sockaddr *)&server, sizeof(server)) < 0 ||
	    send(q->fd, bytes, (size_t)size, 0) < 0)
		return -errno;
	return 0;
}

/* @name "": none. */
static struct question question_begin(const char *name)
{
	struct question q = { .fd = -1, .asked.type = DNS_TYPE_A };

	if (name[0])
		q.error = ask_name(&q, name);
	return q;
}

/* Return: 0, or -errno; -ETIMEDOUT without an answer. */
static int hear(const struct question *q, int timeout_ms, struct dns_answer *ret)
{
	uint8_t bytes[ANSWER_MAX];
	ssize_t n;

	if (q->error < 0)
		return q->error;
	if (!wait_readable(q->fd, POLLIN, timeout_ms))
		return -ETIMEDOUT;
	n = recv(q->fd, bytes, sizeof(bytes), 0);
	if (n < 0)
		return -errno;
	dns_answer_read(bytes, (size_t)n, &q->asked, ret);
	return ret->kind < DNS_ANSWER_FAILED ? -EBADMSG : 0;
}

/* Open a TCP connection. Return: the socket, or -errno; -ETIMEDOUT after the time. */
static int dial(const struct endpoint *to, int timeout_ms)
{
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(to, &sa), len = sizeof(int);
	int error = 0,
	    s = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (s < 0)
		return -errno;
	if (connect(s, (struct sockaddr *)&sa, size) == 0)
		return s;
	error = errno;
	if (error == EINPROGRESS) {
		error = ETIMEDOUT;
		if (wait_readable(s, POLLOUT, timeout_ms) &&
		    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
			error = errno;
	}
	if (error == 0)
		return s;
	close(s);
	return -error;
}

/* --- the tests --- */

/* The relay greets what the self-test opens once it is where it wants to go. */
static bool is_greeted(int s, int timeout_ms)
{
	char byte = 0;

	return wait_readable(s, POLLIN, timeout_ms) && recv(s, &byte, 1, 0) == 1 &&
	       byte == relay_greeting;
}

static bool test_relay(const struct endpoint *to, char *why, size_t size)
{
	CLEAN(fd) int s = dial(to, DNS_TIMEOUT_MS);

	if (s < 0) {
		snprintf(why, size, "the self-test cannot reach the relay: %s",
			 strerror(-s));
		return false;
	}
	if (!is_greeted(s, DNS_TIMEOUT_MS)) {
		snprintf(why, size,
			 "the self-test reached something that is not the relay");
		return false;
	}
	return true;
}

static bool hear_allowed(const struct question *q, struct addr *ret, char *why,
			 size_t size)
{
	struct dns_answer answer;
	int r = hear(q, DNS_TIMEOUT_MS, &answer);

	if (r < 0) {
		snprintf(why, size,
			 "the self-test got no answer from the name server: %s",
			 strerror(-r));
		return false;
	}
	if (answer.addr_count == 0) {
		snprintf(why, size, "the self-test's own name was answered with code %u",
			 answer.rcode);
		return false;
	}
	*ret = answer.addrs[0].addr;
	return true;
}

/* The answer opens its address until the policy changes: a rule may end in between. */
static bool test_allowed(const struct launch_probe *probe, struct question *q, char *why,
			 size_t size)
{
	struct endpoint to = { .port = probe->allowed.port };

	for (int i = 1; hear_allowed(q, &to.addr, why, size); i++) {
		if (!probe->relay || test_relay(&to, why, size))
			return true;
		if (i == RELAY_TRIES)
			return false;
		fd_close(&q->fd);
		*q = question_begin(probe->allowed_name);
	}
	return false;
}

static bool test_denied_name(const struct launch_probe *probe, const struct question *q,
			     char *why, size_t size)
{
	struct dns_answer answer;
	int r;

	if (!probe->denied_name[0])
		return true;
	r = hear(q, DNS_TIMEOUT_MS, &answer);
	if (r == 0 && answer.rcode == DNS_NXDOMAIN)
		return true;
	if (r < 0)
		snprintf(why, size, "the self-test got no answer for a denied name: %s",
			 strerror(-r));
	else
		snprintf(why, size,
			 "the self-test's denied name '%s' was answered with code %u "
			 "instead of "
			 "NXDOMAIN",
			 probe->denied_name, answer.rcode);
	return false;
}

static bool test_denied_address(const struct launch_probe *probe, char *why, size_t size)
{
	char text[ENDPOINT_TEXT_SIZE];
	int s;

	if (probe->denied.addr.family == ADDR_NONE)
		return true;
	s = dial(&probe->denied, REFUSAL_TIMEOUT_MS);
	if (s == -ECONNREFUSED || s == -EPERM || s == -EACCES || s == -EHOSTUNREACH ||
	    s == -ENETUNREACH)
		return true;
	endpoint_format(&probe->denied, text);
	if (s >= 0) {
		close(s);
		snprintf(why, size, "the self-test reached %s, which the policy denies",
			 text);
	} else {
		snprintf(why, size,
			 "the self-test's connection to %s was not refused at once: %s",
			 text, strerror(-s));
	}
	return false;
}

static bool find_first(const struct launch_probe *probe, struct endpoint *ret, char *why,
		       size_t size)
{
	struct dns_answer answer;
	struct question q;
	int r;

	*ret = probe->first;
	if (ret->addr.family != ADDR_NONE)
		return true;
	q = question_begin(probe->first_name);
	r = hear(&q, FIRST_TIMEOUT_MS, &answer);
	fd_close(&q.fd);
	if (r < 0 || answer.addr_count == 0) {
		snprintf(why, size, "the allowed host '%s' has no address: %s",
			 probe->first_name,
			 r < 0				? strerror(-r)
			 : answer.rcode == DNS_SERVFAIL ? "no name server has answered"
							: "the name server knows none");
		return false;
	}
	ret->addr = answer.addrs[0].addr;
	return true;
}

bool self_test_first(const struct launch_probe *probe, char *why, size_t size)
{
	struct endpoint to;
	CLEAN(fd) int s = -1;

	if (!probe->first_name[0] && probe->first.addr.family == ADDR_NONE)
		return true;
	if (!find_first(probe, &to, why, size))
		return false;
	s = dial(&to, FIRST_TIMEOUT_MS);
	if (s >= 0 && (!probe->relay || is_greeted(s, FIRST_TIMEOUT_MS)))
		return true;
	/* That the relay accepted says nothing: what became of its dial does. */
	snprintf(why, size, "the allowed host '%s' cannot be reached at %s%s%s",
		 probe->first_name, ENDPOINT_SHOWN(&to), s < 0 ? ": " : "",
		 s < 0 ? strerror(-s) : "");
	return false;
}

/* Both questions are asked before the first answer is waited for. */
bool self_test_deny(const struct launch_probe *probe, char *why, size_t size)
{
	struct question allowed = question_begin(probe->allowed_name);
	struct question denied = question_begin(probe->denied_name);
	bool is_good = test_allowed(probe, &allowed, why, size) &&
		       test_denied_name(probe, &denied, why, size) &&
		       test_denied_address(probe, why, size);

	fd_close(&allowed.fd);
	fd_close(&denied.fd);
	return is_good;
}
