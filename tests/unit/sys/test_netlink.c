// SPDX-License-Identifier: Apache-2.0
#include "sys/netlink.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/inet_diag.h>
#include <linux/sock_diag.h>

#include "base/macros.h"
#include "unit.h"

/* A message with one attribute of each kind, and one nest with two, as the kernel has
 * them (netlink(7): lengths without padding, each attribute at a multiple of four). */
static const uint8_t wire[] = {
	0x48, 0,   0, 0, 0x10, 0, 1, 0, 7,    0, 0, 0,	  0, 0, 0, 0, /* header */
	1,    2,   3, 0, 5,    0, 1, 0, 0xab, 0, 0, 0,	  6, 0, 2, 0, /* u8 */
	0x34, 2,   0, 0, 8,    0, 3, 0, 4,    3, 2, 1,	  7, 0, 4, 0, /* u16, u32 */
	'a',  'b', 0, 0, 4,    0, 5, 0, 16,   0, 6, 0x80, 5, 0, 1, 0, /* text, empty */
	9,    0,   0, 0, 4,    0, 2, 0,				      /* the nest's */
};

static struct nlmsghdr *build(void *buf, size_t size)
{
	static const uint8_t extra[] = { 1, 2, 3 };
	struct nl_writer w = nl_writer(buf, size, 7);
	size_t nest;

	memcpy(nl_begin(&w, NLMSG_MIN_TYPE, 0, sizeof(extra)), extra, sizeof(extra));
	nl_put_u8(&w, 1, 0xab);
	nl_put_be16(&w, 2, 0x3402);
	nl_put_u32(&w, 3, 0x1020304);
	nl_put_text(&w, 4, "ab");
	nl_put(&w, 5, NULL, 0);
	nest = nl_nest(&w, 6);
	nl_put_u8(&w, 1, 9);
	nl_put(&w, 2, NULL, 0);
	nl_nest_end(&w, nest);
	nl_end(&w);
	assert_int_equal(w.failed, 0);
	return nl_header(&w);
}

TEST(a_message_is_written_byte_by_byte)
{
	_Alignas(struct nlmsghdr) uint8_t buf[128];
	struct nlmsghdr *h;

	memset(buf, 0xff, sizeof(buf));
	h = build(buf, sizeof(buf));
	assert_int_equal(h->nlmsg_len, sizeof(wire));
	assert_memory_equal(buf, wire, sizeof(wire));
	assert_int_equal(buf[sizeof(wire)], 0xff);
}

TEST(a_message_that_does_not_fit_is_none)
{
	struct nl_request q;

	assert_non_null(nl_request_begin(&q, NLMSG_MIN_TYPE, 0, sizeof(uint32_t)));
	for (size_t i = 0; i < NL_REQUEST_SIZE / 8; i++)
		nl_put_u32(&q.writer, 1, 0);
	assert_int_equal(q.writer.failed, -E2BIG);
	assert_int_equal(nl_run(-1, &q, NULL, NULL), -E2BIG);
	assert_null(nl_request_begin(&q, NLMSG_MIN_TYPE, 0, NL_REQUEST_SIZE));
	assert_int_equal(nl_run(-1, &q, NULL, NULL), -E2BIG);
}

static void note(const struct nl_attrs *attrs, char *seen)
{
	for (char type = 0; type < 10; type++)
		if (attrs->at[(int)type])
			seen[strlen(seen)] = (char)('0' + type);
}

TEST(attributes_are_read_while_they_are_whole)
{
	_Alignas(struct nlmsghdr) uint8_t buf[128];
	struct nlmsghdr *h = build(buf, sizeof(buf));
	static const struct {
		const char *what, *seen;
		uint32_t size;
		bool sound;
	} rows[] = {
		{ "all", "12345612", 0, true },
		{ "the last one's length is cut", "12345", 2, false },
		{ "the nest's end is cut", "12345", 4, false },
		{ "the text is cut, its padding not counted", "123", 24, false },
		{ "nothing behind the extra header", "", sizeof(wire) - 20, true },
		{ "not even that", "", sizeof(wire) - 17, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct nl_attrs attrs, nested;
		char seen[32] = "";
		bool sound;

		h->nlmsg_len = (uint32_t)sizeof(wire) - rows[i].size;
		sound = nl_attrs_of(h, 3, &attrs);
		note(&attrs, seen);
		if (nl_attrs_nested(attrs.at[6], &nested))
			note(&nested, seen);
		if (sound != rows[i].sound || strcmp(seen, rows[i].seen) != 0)
			fail_msg("%s: '%s'", rows[i].what, seen);
	}
}

static int count(const struct nlmsghdr *h, void *data)
{
	++*(int *)data;
	return 0;
}

/* Messages one after another in one datagram, each with the fields of a row. */
struct message {
	uint16_t type, flags;
	uint32_t seq;
	int error;
	uint32_t len; /* 0: what it has */
};

TEST(answers_end_as_they_say)
{
	static const struct {
		const char *what;
		struct message messages[3];
		int count, result;
	} rows[] = {
		{ "data, and more to come", { { 16 }, { 16, 0, 7 } }, 2, 0 },
		{ "data, done", { { 16 }, { NLMSG_DONE }, { 16 } }, 1, 1 },
		{ "an acknowledgement", { { NLMSG_ERROR } }, 0, 1 },
		{ "a refusal", { { NLMSG_ERROR, 0, 7, -EPERM } }, 0, -EPERM },
		{ "a short refusal", { { NLMSG_ERROR, 0, 7, -EPERM, 18 } }, 0, -EBADMSG },
		{ "a list that changed", { { 16, NLM_F_DUMP_INTR, 7 } }, 0, -EINTR },
		{ "nothing to say", { { NLMSG_NOOP }, { 16 } }, 1, 0 },
		{ "longer than what came", { { 16, 0, 7, 0, 4000 } }, 0, 0 },
		{ "longer than 2^31", { { 16, 0, 7, 0, 0xfffffff0 } }, 0, 0 },
		{ "shorter than itself", { { 16, 0, 7, 0, 8 } }, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_Alignas(struct nlmsghdr) uint8_t buf[256] = { 0 };
		size_t size = 0;
		int seen = 0, r;

		for (const struct message *m = rows[i].messages; m->type; m++) {
			struct nl_writer w =
				nl_writer(buf + size, sizeof(buf) - size, m->seq);
			struct nlmsgerr *e = nl_begin(&w, m->type, m->flags, sizeof(*e));

			e->error = m->error;
			nl_end(&w);
			size += w.size;
			if (m->len)
				nl_header(&w)->nlmsg_len = m->len;
		}
		r = nl_answer_read(buf, size, count, &seen);
		if (r != rows[i].result || seen != rows[i].count)
			fail_msg("%s: %d, %d seen", rows[i].what, r, seen);
	}
}

/* ---- one question after another ---- */

enum { SOCKETS = 1500 }; /* more than two datagrams have room for */

static int stop_at_once(const struct nlmsghdr *h, void *data)
{
	return -E2BIG;
}

static int list_sockets(int diag, nl_message_fn *fn, void *data)
{
	const struct inet_diag_req_v2 q = { .sdiag_family = AF_INET,
					    .sdiag_protocol = IPPROTO_UDP,
					    .idiag_states = UINT32_MAX };

	return nl_diag_run(diag, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &q, fn, data);
}

/* Who asks next hears no answer to the question before, nor that it is still answered. */
TEST(a_list_that_is_not_read_to_its_end_is_in_nobodys_way)
{
	const struct sockaddr_in any = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htobe32(INADDR_LOOPBACK) };
	const struct inet_diag_req_v2 one = { .sdiag_family = AF_INET,
					      .sdiag_protocol = IPPROTO_UDP,
					      .id.idiag_sport = htobe16(1) };
	int fds[SOCKETS], diag = nl_diag_open(), seen = 0;
	struct rlimit before, more;

	getrlimit(RLIMIT_NOFILE, &before);
	more = before;
	more.rlim_cur = SOCKETS + 64;
	if (setrlimit(RLIMIT_NOFILE, &more) < 0)
		skip();
	assert_true(diag >= 0);
	for (size_t i = 0; i < SOCKETS; i++) {
		fds[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fds[i], (const struct sockaddr *)&any, sizeof(any)),
				 0);
	}
	assert_int_equal(list_sockets(diag, stop_at_once, NULL), -E2BIG);
	assert_int_equal(nl_diag_run(diag, SOCK_DIAG_BY_FAMILY, 0, &one, count, &seen),
			 -ENOENT);
	assert_int_equal(seen, 0);
	assert_int_equal(list_sockets(diag, stop_at_once, NULL), -E2BIG);
	assert_int_equal(list_sockets(diag, count, &seen), 0);
	assert_true(seen >= SOCKETS);
	/* What somebody has asked who had the socket before. */
	{
		struct nl_request q;

		memcpy(nl_request_begin(&q, SOCK_DIAG_BY_FAMILY, 0, sizeof(one)), &one,
		       sizeof(one));
		nl_end(&q.writer);
		assert_int_equal(nl_send(diag, q.buf, q.writer.size), 0);
	}
	seen = 0;
	assert_int_equal(list_sockets(diag, count, &seen), 0);
	assert_true(seen >= SOCKETS);
	for (size_t i = 0; i < SOCKETS; i++)
		close(fds[i]);
	close(diag);
	setrlimit(RLIMIT_NOFILE, &before);
}
