// SPDX-License-Identifier: Apache-2.0
#include "filter/message.h"
#include "filter/nft.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

#include <linux/netfilter/nf_tables.h>

struct reply {
	struct nlmsghdr header;
	struct nlmsgerr error;
};

static struct reply reply(uint32_t seq, int error)
{
	return (struct reply){
		.header = { .nlmsg_len = sizeof(struct reply),
			    .nlmsg_type = NLMSG_ERROR,
			    .nlmsg_seq = seq,
			    .nlmsg_pid = 77 },
		.error = { .error = error },
	};
}

static struct nl_outcome outcome(const struct reply *replies, size_t count, size_t cut)
{
	struct nl_outcome o = { 0 };

	nl_outcome_read(replies, count * sizeof(*replies) - cut, 77, 10, 12, &o);
	return o;
}

TEST(the_last_acknowledgement_ends_a_batch)
{
	struct reply r[] = { reply(11, 0), reply(12, 0) };

	assert_false(outcome(r, 1, 0).done);
	assert_true(outcome(r, 2, 0).done);
	assert_int_equal(outcome(r, 2, 0).error, 0);
}

TEST(the_first_error_decides)
{
	struct reply r[] = { reply(11, -ENOENT), reply(12, -EEXIST) };
	struct nl_outcome o = outcome(r, 2, 0);

	assert_int_equal(o.error, -ENOENT);
	assert_int_equal(o.error_seq, 11);
}

TEST(replies_to_others_are_skipped)
{
	struct reply r[] = { reply(9, -EPERM), reply(13, -EPERM), reply(12, 0) };

	r[2].header.nlmsg_pid = 78;
	assert_false(outcome(r, 3, 0).done);
}

TEST(sequence_numbers_may_wrap)
{
	struct reply r = reply(1, 0);
	struct nl_outcome o = { 0 };

	nl_outcome_read(&r, sizeof(r), 77, UINT32_MAX - 1, 1, &o);
	assert_true(o.done);
}

TEST(broken_replies_are_failures)
{
	struct reply cut = reply(12, 0), small = reply(12, 0), positive = reply(12, 5);

	small.header.nlmsg_len = NLMSG_HDRLEN;
	assert_int_equal(outcome(&cut, 1, 4).error, -EBADMSG);
	assert_int_equal(outcome(&small, 1, 0).error, -EBADMSG);
	assert_int_equal(outcome(&positive, 1, 0).error, -EBADMSG);
}

TEST(a_writer_that_is_full_stays_failed)
{
	uint8_t bytes[64];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), 1);

	nl_batch(&w);
	nl_message(&w, NFT_MSG_NEWTABLE, 0, 1);
	nl_put_text(&w, NFTA_TABLE_NAME, "a name that does not fit in what is left");
	assert_int_equal(w.failed, -E2BIG);
	nl_put_u8(&w, 1, 1);
	nl_end(&w);
	nl_batch_end(&w);
	assert_int_equal(w.failed, -E2BIG);
}

TEST(a_nest_over_64_kib_fails)
{
	static const uint8_t block[4096];
	struct nl_writer w = nl_writer(NULL, 0, 1);
	size_t nest;

	nl_message(&w, NFT_MSG_NEWSETELEM, 0, 1);
	nest = nl_nest(&w, NFTA_SET_ELEM_LIST_ELEMENTS);
	for (int i = 0; i < 17; i++)
		nl_put(&w, 1, block, sizeof(block));
	nl_nest_end(&w, nest);
	assert_int_equal(w.failed, -E2BIG);
	nl_writer_done(&w);
}

TEST(large_sets_are_split_into_messages_that_fit)
{
	enum { RANGES = 2500 };
	static struct filter_range ranges[RANGES];
	struct filter_set set = { .name = "allow6_15",
				  .key = FILTER_KEY_ADDR6,
				  .ranges = ranges,
				  .range_count = RANGES };
	struct nl_writer w = nl_writer(NULL, 0, 100);
	size_t messages = 0;

	for (size_t i = 0; i < RANGES; i++) {
		ranges[i].from[0] = ranges[i].to[0] = (uint8_t)(i >> 7);
		ranges[i].from[1] = ranges[i].to[1] = (uint8_t)(i << 1);
	}
	nft_elements(&w, "t", &set, 0, set.range_count);
	assert_int_equal(w.failed, 0);
	for (size_t at = 0; at < w.size; messages++) {
		const struct nlmsghdr *h = (const void *)(w.bytes + at);

		assert_true(h->nlmsg_len <= UINT16_MAX);
		assert_int_equal(h->nlmsg_seq, 100 + messages);
		at += NLMSG_ALIGN(h->nlmsg_len);
	}
	assert_int_equal(messages, RANGES * 2 / ELEMENTS_MAX);
	nl_writer_done(&w);
}

TEST(messages_do_not_show_what_was_in_memory_before)
{
	uint8_t bytes[2][256];
	struct nl_writer w[2];

	for (size_t i = 0; i < 2; i++) {
		memset(bytes[i], i == 0 ? 0 : 0xff, sizeof(bytes[i]));
		w[i] = nl_writer(bytes[i], sizeof(bytes[i]), 1);
		nl_batch(&w[i]);
		nl_message(&w[i], NFT_MSG_NEWSET, 0, 1);
		for (size_t size = 0; size < 6; size++)
			nl_put(&w[i], 1, "12345", size);
		nl_end(&w[i]);
		nl_batch_end(&w[i]);
		assert_int_equal(w[i].failed, 0);
	}
	assert_int_equal(w[0].size, w[1].size);
	assert_memory_equal(bytes[0], bytes[1], w[0].size);
}

TEST(a_digest_is_of_every_range)
{
	struct filter_range ranges[] = { { { 10 }, { 10 } }, { { 20 }, { 20 } } };
	struct filter_set set = { .name = "deny4_0",
				  .key = FILTER_KEY_ADDR4,
				  .ranges = ranges,
				  .range_count = 2 };
	const struct ruleset rs = { .naming = FILTER_NAMES_SHARED, .sets = &set };
	const uint64_t digest = nft_digest(&rs);

	assert_int_not_equal(digest, 0);
	assert_true(nft_digest(&rs) == digest);
	ranges[1].to[3] = 1;
	assert_true(nft_digest(&rs) != digest);
	ranges[1].to[3] = 0;
	set.range_count = 1;
	assert_true(nft_digest(&rs) != digest);
	set.range_count = 2;
	set.name[0] = 'e';
	assert_true(nft_digest(&rs) != digest);
}

TEST(a_statement_that_says_nothing_does_not_load)
{
	struct filter_chain chain = { .name = "output" };
	struct filter_rule rule = { .count = 1 };
	struct nl_writer w = nl_writer(NULL, 0, 1);

	nft_rule(&w, "t", &chain, &rule);
	assert_int_equal(w.failed, -EINVAL);
	nl_writer_done(&w);
}

TEST(a_cgroup_without_a_level_does_not_load)
{
	static const struct {
		uint8_t level;
		int failed;
	} cases[] = { { 0, -EINVAL }, { 1, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct filter_cgroup cgroup = { .path = "a",
						      .id = 7,
						      .level = cases[i].level };
		struct filter_chain chain = { .name = "output" };
		struct filter_rule rule = {
			.stmts = { { .kind = FILTER_IN_CGROUP, .cgroup = &cgroup } },
			.count = 1,
		};
		struct nl_writer w = nl_writer(NULL, 0, 1);

		nft_rule(&w, "t", &chain, &rule);
		assert_int_equal(w.failed, cases[i].failed);
		nl_writer_done(&w);
	}
}

TEST(texts_without_their_nul_are_empty)
{
	struct {
		struct nlattr a;
		char text[4];
	} whole = { { 8, 1 }, "abc" }, cut = { { 7, 1 }, "abc" }, none = { { 4, 1 }, "" };

	assert_string_equal(nl_get_text(&whole.a), "abc");
	assert_string_equal(nl_get_text(&cut.a), "");
	assert_string_equal(nl_get_text(&none.a), "");
	assert_string_equal(nl_get_text(NULL), "");
}

static struct filter_said said_of(const char *userdata, size_t size)
{
	_Alignas(4) uint8_t bytes[64] = { 0 };
	struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + size), .nla_type = 1 };

	memcpy(bytes, &a, sizeof(a));
	memcpy(bytes + sizeof(a), userdata, size);
	return nft_said((const struct nlattr *)(const void *)bytes);
}

static uint16_t generation_of(const char *userdata, size_t size)
{
	return said_of(userdata, size).generation;
}

TEST(a_generation_is_read_from_our_comment_only)
{
	assert_int_equal(generation_of("\0\x0fgeneration 513", 17), 513);
	assert_int_equal(generation_of("\0\x12generation 65535\0", 19), 0); /* too long */
	assert_int_equal(generation_of("\0\x11generation 65535", 19), 65535);
	assert_int_equal(generation_of("\0\x11generation 65536", 19), 0);
	assert_int_equal(generation_of("\0\x0fgeneration 513", 16), 0); /* no NUL */
	assert_int_equal(generation_of("\1\x0fgeneration 513", 17), 0);
	assert_int_equal(generation_of("\0\x0fGeneration 513", 17), 0);
	assert_int_equal(generation_of("\0\x0fgeneration 5 3", 17), 0);
	assert_int_equal(generation_of("\0\x0cgeneration ", 14), 0);
	assert_int_equal(generation_of("", 0), 0);
	assert_int_equal(nft_said(NULL).generation, 0);
}

TEST(a_digest_is_read_beside_the_comment)
{
	static const char both[] = "\0\x0fgeneration 513\0W\x08\1\0\0\0\0\0\0\0";
	static const char unknown[] = "X\2ab\0\x0fgeneration 513";

	assert_int_equal(said_of(both, sizeof(both) - 1).generation, 513);
	assert_int_equal(said_of(both, sizeof(both) - 1).digest, 1);
	assert_int_equal(said_of(both, sizeof(both) - 2).generation, 0); /* cut */
	assert_int_equal(said_of(both, 17).digest, 0);
	assert_int_equal(said_of(unknown, sizeof(unknown)).generation, 513);
	assert_int_equal(said_of("W\7\1\0\0\0\0\0\0", 9).digest, 0);
}
