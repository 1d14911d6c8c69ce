// SPDX-License-Identifier: Apache-2.0
#include "sys/ctmark.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "unit.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

enum { PORT_ID = 77, SEQ = 5, MARK = 0x50003, SIZE = 512 };

static struct endpoint local, peer;

/* What an entry is made of; each test has another one. */
struct entry {
	uint16_t type;
	uint32_t port_id, seq;
	struct endpoint from, to;
	uint8_t protocol;
	bool has_mark, short_mark;
};

struct reply {
	_Alignas(struct nlmsghdr) uint8_t bytes[SIZE];
	size_t size;
};

static struct entry good(void)
{
	return (struct entry){
		.type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW,
		.port_id = PORT_ID,
		.seq = SEQ,
		.from = local,
		.to = peer,
		.protocol = IPPROTO_TCP,
		.has_mark = true,
	};
}

static struct reply build(const struct entry *e)
{
	bool v4 = e->from.addr.family == ADDR_V4;
	struct reply r = { 0 };
	struct nl_writer w = nl_writer(r.bytes, sizeof(r.bytes), e->seq);
	size_t tuple, nest;

	nl_begin(&w, e->type, 0, sizeof(struct nfgenmsg));
	nl_header(&w)->nlmsg_pid = e->port_id;
	tuple = nl_nest(&w, CTA_TUPLE_REPLY);
	nest = nl_nest(&w, CTA_TUPLE_IP);
	nl_put(&w, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, e->from.addr.bytes,
	       addr_size(&e->from.addr));
	nl_put(&w, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, e->to.addr.bytes,
	       addr_size(&e->to.addr));
	nl_nest_end(&w, nest);
	nest = nl_nest(&w, CTA_TUPLE_PROTO);
	nl_put_u8(&w, CTA_PROTO_NUM, e->protocol);
	nl_put_be16(&w, CTA_PROTO_SRC_PORT, e->from.port);
	nl_put_be16(&w, CTA_PROTO_DST_PORT, e->to.port);
	nl_nest_end(&w, nest);
	nl_nest_end(&w, tuple);
	if (e->has_mark && e->short_mark)
		nl_put_be16(&w, CTA_MARK, 1);
	else if (e->has_mark)
		nl_put_be32(&w, CTA_MARK, MARK);
	nl_end(&w);
	r.size = w.size;
	return r;
}

static int read_mark(const struct reply *r, uint32_t *ret)
{
	struct nl_attrs entry;
	int status = ctmark_read(r->bytes, r->size, PORT_ID, SEQ, &entry);

	return status == 0 ? ctmark_of_entry(&entry, &local, &peer, ret) : status;
}

static int read_entry(const struct entry *e, uint32_t *ret)
{
	struct reply r = build(e);

	return read_mark(&r, ret);
}

static int setup(void **state)
{
	local = (struct endpoint){ addr_v4(127, 0, 0, 1), 15353 };
	peer = (struct endpoint){ addr_v4(10, 0, 0, 5), 40000 };
	return 0;
}

TEST_WITH(an_entry_gives_its_mark, setup, NULL)
{
	struct entry e = good();
	uint32_t mark = 0;

	assert_int_equal(read_entry(&e, &mark), 0);
	assert_int_equal(mark, MARK);
}

TEST_WITH(so_does_one_of_ipv6, setup, NULL)
{
	struct entry e;
	uint32_t mark = 0;

	assert_true(addr_parse("::1", 3, &local.addr));
	assert_true(addr_parse("2001:db8::5", 11, &peer.addr));
	e = good();
	assert_int_equal(read_entry(&e, &mark), 0);
	assert_int_equal(mark, MARK);
}

TEST_WITH(an_entry_of_others_says_nothing, setup, NULL)
{
	struct entry all[6];
	uint32_t mark = 99;

	for (size_t i = 0; i < 6; i++)
		all[i] = good();
	all[0].from.port++;
	all[1].to.port++;
	all[2].from.addr.bytes[3]++;
	all[3].to.addr.bytes[0]++;
	all[4].protocol = IPPROTO_UDP;
	all[5].short_mark = true;
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(read_entry(&all[i], &mark), -EBADMSG);
	all[5].has_mark = false;
	assert_int_equal(read_entry(&all[5], &mark), -ENOENT);
	assert_int_equal(mark, 99);
}

TEST_WITH(an_answer_to_another_question_is_skipped, setup, NULL)
{
	struct entry e = good();
	uint32_t mark = 99;

	e.seq = SEQ - 1;
	assert_int_equal(read_entry(&e, &mark), 1);
	e.seq = SEQ;
	e.port_id++;
	assert_int_equal(read_entry(&e, &mark), 1);
	e.port_id--;
	e.type++;
	assert_int_equal(read_entry(&e, &mark), -EBADMSG);
	assert_int_equal(mark, 99);
}

TEST_WITH(what_is_cut_says_nothing, setup, NULL)
{
	struct entry e = good();
	struct reply r = build(&e), cut;
	uint32_t mark = 99;

	for (size_t size = 1; size < r.size; size++) {
		cut = r;
		cut.size = size;
		assert_int_equal(read_mark(&cut, &mark), -EBADMSG);
		((struct nlmsghdr *)(void *)cut.bytes)->nlmsg_len = (uint32_t)size;
		assert_true(read_mark(&cut, &mark) < 0);
	}
	assert_int_equal(mark, 99);
}

TEST_WITH(an_error_is_passed_on, setup, NULL)
{
	struct reply r = { 0 };
	struct nl_writer w = nl_writer(r.bytes, sizeof(r.bytes), SEQ);
	struct nlmsgerr *error = nl_begin(&w, NLMSG_ERROR, 0, sizeof(*error));
	uint32_t mark;

	nl_header(&w)->nlmsg_pid = PORT_ID;
	nl_end(&w);
	r.size = w.size;
	error->error = -ENOENT;
	assert_int_equal(read_mark(&r, &mark), -ENOENT);
	error->error = 0;
	assert_int_equal(read_mark(&r, &mark), -EBADMSG);
	error->error = 5;
	assert_int_equal(read_mark(&r, &mark), -EBADMSG);
}
