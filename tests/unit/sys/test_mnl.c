// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

#include "base/macros.h"
#include "sys/netlink.h"
#include "unit.h"

/* A message with one attribute of each kind, and one nest with two, as the kernel has
 * them (netlink(7): lengths without padding, each attribute at a multiple of four). */
static const uint8_t wire[] = {
	0x48, 0,   0, 0, 0x10, 0, 0, 0, 7,    0, 0, 0,	  0, 0, 0, 0, /* header */
	1,    2,   3, 0, 5,    0, 1, 0, 0xab, 0, 0, 0,	  6, 0, 2, 0, /* u8 */
	0x34, 2,   0, 0, 8,    0, 3, 0, 4,    3, 2, 1,	  7, 0, 4, 0, /* u16, u32 */
	'a',  'b', 0, 0, 4,    0, 5, 0, 16,   0, 6, 0x80, 5, 0, 1, 0, /* text, empty */
	9,    0,   0, 0, 4,    0, 2, 0,				      /* the nest's */
};

static struct nlmsghdr *build(void *buf)
{
	static const uint8_t extra[] = { 1, 2, 3 };
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct nlattr *nest;

	h->nlmsg_type = NLMSG_MIN_TYPE;
	h->nlmsg_seq = 7;
	memcpy(mnl_nlmsg_put_extra_header(h, sizeof(extra)), extra, sizeof(extra));
	mnl_attr_put_u8(h, 1, 0xab);
	mnl_attr_put_u16(h, 2, 0x234);
	mnl_attr_put_u32(h, 3, 0x1020304);
	mnl_attr_put_strz(h, 4, "ab");
	mnl_attr_put(h, 5, 0, NULL);
	nest = mnl_attr_nest_start(h, 6);
	mnl_attr_put_u8(h, 1, 9);
	mnl_attr_put(h, 2, 0, NULL);
	mnl_attr_nest_end(h, nest);
	return h;
}

TEST(a_message_is_written_byte_by_byte)
{
	_Alignas(struct nlmsghdr) uint8_t buf[128];
	struct nlmsghdr *h;

	memset(buf, 0xff, sizeof(buf));
	h = build(buf);
	assert_int_equal(h->nlmsg_len, sizeof(wire));
	assert_memory_equal(buf, wire, sizeof(wire));
	assert_int_equal(buf[sizeof(wire)], 0xff);
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
	struct nlmsghdr *h = build(buf);
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
	return MNL_CB_OK;
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
		int count, result, error;
	} rows[] = {
		{ "data, and more to come", { { 16 }, { 16, 0, 7 } }, 2, MNL_CB_OK, 0 },
		{ "data, done", { { 16 }, { NLMSG_DONE }, { 16 } }, 1, MNL_CB_STOP, 0 },
		{ "an acknowledgement", { { NLMSG_ERROR } }, 0, MNL_CB_STOP, 0 },
		{ "a refusal", { { NLMSG_ERROR, 0, 7, -EPERM } }, 0, -1, EPERM },
		{ "a short refusal",
		  { { NLMSG_ERROR, 0, 7, -EPERM, 18 } },
		  0,
		  -1,
		  EBADMSG },
		{ "somebody else's answer", { { 16, 0, 8 } }, 0, -1, EPROTO },
		{ "a list that changed", { { 16, NLM_F_DUMP_INTR, 7 } }, 0, -1, EINTR },
		{ "nothing to say", { { NLMSG_NOOP }, { 16 } }, 1, MNL_CB_OK, 0 },
		{ "longer than what came", { { 16, 0, 7, 0, 4000 } }, 0, MNL_CB_OK, 0 },
		{ "longer than 2^31", { { 16, 0, 7, 0, 0xfffffff0 } }, 0, MNL_CB_OK, 0 },
		{ "shorter than itself", { { 16, 0, 7, 0, 8 } }, 0, MNL_CB_OK, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_Alignas(struct nlmsghdr) uint8_t buf[256] = { 0 };
		size_t size = 0;
		int seen = 0, r;

		for (const struct message *m = rows[i].messages; m->type; m++) {
			struct nlmsghdr *h = mnl_nlmsg_put_header(buf + size);
			struct nlmsgerr *e = mnl_nlmsg_put_extra_header(h, sizeof(*e));

			h->nlmsg_type = m->type;
			h->nlmsg_flags = m->flags;
			h->nlmsg_seq = m->seq;
			e->error = m->error;
			size += h->nlmsg_len;
			h->nlmsg_len = m->len ? m->len : h->nlmsg_len;
		}
		errno = 0;
		r = mnl_cb_run(buf, size, 7, 0, count, &seen);
		if (r != rows[i].result || seen != rows[i].count ||
		    (r < 0 && errno != rows[i].error))
			fail_msg("%s: %d, %d seen, errno %d", rows[i].what, r, seen,
				 errno);
	}
}
