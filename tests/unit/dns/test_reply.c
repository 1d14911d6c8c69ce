// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "dns/answer.h"
#include "unit.h"

enum { CAP_SEC = 300, ALL = -1 };

/* A question, an answer to it, and the reply that was written and read back. */
struct reply {
	struct dns_query q;
	struct dns_answer a, again;
	char left_out[64];
	uint8_t buf[DNS_MESSAGE_MAX];
	size_t size;
	uint32_t written;
};

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static void start(struct reply *r, uint16_t type, unsigned int addrs)
{
	memset(r, 0, sizeof(*r));
	r->q = (struct dns_query){
		.id = 0x1234,
		.type = type,
		.class = DNS_CLASS_IN,
		.rd = true,
		.udp_size = DNS_UDP_MIN,
		.name = name_of("www.example.org"),
	};
	memcpy(r->q.raw_name, r->q.name.bytes, r->q.name.size);
	r->q.raw_name[1] = 'W';
	r->a.kind = DNS_ANSWER_RECORDS;
	r->a.ttl_sec = 60;
	r->a.addr_count = (uint8_t)addrs;
	for (unsigned int i = 0; i < addrs; i++) {
		r->a.addrs[i].ttl_sec = 60;
		r->a.addrs[i].addr = addr_v4(192, 0, 2, (uint8_t)i);
		if (type == DNS_TYPE_AAAA)
			r->a.addrs[i].addr =
				addr_from_bytes(ADDR_V6, (const uint8_t *)"\x20\1\xd\xb8"
									  "56789abcdef0");
	}
}

static const struct dns_answer *write_it(struct reply *r, size_t limit, uint32_t keep)
{
	struct dns_asked asked = { .id = r->q.id, .type = r->q.type, .name = r->q.name };
	const struct dns_reply_form form = {
		.limit = limit,
		.keep = keep,
		.ttl_cap_sec = CAP_SEC,
		.left_out = text_of(r->left_out),
	};

	memcpy(asked.case_name, r->q.raw_name, sizeof(asked.case_name));
	r->size =
		dns_reply_write(r->buf, sizeof(r->buf), &r->q, &r->a, &form, &r->written);
	assert_true(r->size <= limit);
	dns_answer_read(r->buf, r->size, &asked, &r->again);
	return &r->again;
}

static uint16_t flags_of(const struct reply *r)
{
	return (uint16_t)(r->buf[2] << 8 | r->buf[3]);
}

TEST(the_clients_case_and_bits_come_back)
{
	static struct reply r;

	start(&r, DNS_TYPE_A, 1);
	r.q.cd = true;
	assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->kind, DNS_ANSWER_RECORDS);
	assert_memory_equal(r.buf + 12, r.q.raw_name, r.q.name.size);
	assert_int_equal(flags_of(&r), 0x8190);
	assert_int_equal(r.size, 12 + 17 + 4 + 16); /* the owner is a pointer */
	r.q.has_edns = true;
	r.q.dnssec_ok = true;
	write_it(&r, DNS_UDP_MIN, ALL);
	assert_memory_equal(r.buf + r.size - 11, "\0\0\x29\x04\xd0\0\0\x80\0\0\0", 11);
	assert_int_equal(r.buf[11], 1);
}

TEST(only_kept_addresses_are_written)
{
	static struct reply r;

	start(&r, DNS_TYPE_A, 4);
	assert_int_equal(write_it(&r, DNS_UDP_MIN, 0xfffffff5u)->addr_count, 2);
	assert_int_equal(r.written, 5);
	assert_int_equal(r.again.addrs[0].addr.bytes[3], 0);
	assert_int_equal(r.again.addrs[1].addr.bytes[3], 2);
}

TEST(nothing_kept_is_nodata_with_a_soa)
{
	static struct reply r;

	start(&r, DNS_TYPE_A, 4);
	assert_int_equal(write_it(&r, DNS_UDP_MIN, 0)->kind, DNS_ANSWER_NODATA);
	assert_int_equal(r.written, 0);
	assert_int_equal(r.again.ttl_sec, 60);
}

TEST(as_many_addresses_as_fit_and_no_tc)
{
	static struct reply r;

	/* 512 - 12 - 21 = 479; 28 for an AAAA: 17. With EDNS 468: 16. */
	start(&r, DNS_TYPE_AAAA, 32);
	assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->addr_count, 17);
	assert_int_equal(r.written, (1u << 17) - 1);
	assert_false(flags_of(&r) & DNS_FLAG_TC);
	r.q.has_edns = true;
	assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->addr_count, 16);
	assert_int_equal(r.written, (1u << 16) - 1);
	assert_int_equal(write_it(&r, DNS_UDP_OURS, ALL)->addr_count, 32);
	assert_int_equal(r.written, UINT32_MAX);
}

static void long_chain(struct reply *r)
{
	for (size_t i = 0; i < DNS_CHAIN_MAX; i++) {
		struct dns_name *n = &r->a.chain[i];

		*n = (struct dns_name){ .size = 65, .labels = 1, .bytes = { 63 } };
		memset(n->bytes + 1, 'a' + (int)i, 63);
		r->a.chain_ttl_sec[i] = 60;
	}
	r->a.chain_count = DNS_CHAIN_MAX;
}

TEST(tc_and_no_records_when_none_fits)
{
	static struct reply r;

	start(&r, DNS_TYPE_A, 2);
	long_chain(&r);
	assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->kind, DNS_ANSWER_TRUNCATED);
	assert_int_equal(r.written, 0);
	assert_int_equal(r.size, 12 + 21);
	assert_int_equal(r.buf[7] | r.buf[9], 0);
	assert_int_equal(write_it(&r, DNS_MESSAGE_MAX, ALL)->kind, DNS_ANSWER_RECORDS);
	assert_int_equal(r.again.chain_count, DNS_CHAIN_MAX);
	assert_int_equal(r.written, 3);
}

TEST(negative_answers_keep_their_chain)
{
	static const enum dns_answer_kind kinds[] = { DNS_ANSWER_NODATA,
						      DNS_ANSWER_NXDOMAIN };
	static struct reply r;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		start(&r, DNS_TYPE_A, 0);
		r.a.kind = kinds[i];
		r.a.ttl_sec = 5000;
		r.a.chain_count = 1;
		r.a.chain[0] = name_of("cdn.example.org");
		r.a.chain_ttl_sec[0] = 5000;
		assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->kind, kinds[i]);
		assert_true(dns_name_equal(&r.again.chain[0], &r.a.chain[0]));
		assert_int_equal(r.again.ttl_sec, CAP_SEC);
	}
}

TEST(ttls_are_capped)
{
	static struct reply r;

	start(&r, DNS_TYPE_A, 2);
	r.a.addrs[0].ttl_sec = INT32_MAX;
	write_it(&r, DNS_UDP_MIN, ALL);
	assert_int_equal(r.again.addrs[0].ttl_sec, CAP_SEC);
	assert_int_equal(r.again.addrs[1].ttl_sec, 60);
}

TEST(other_records_are_written_all_or_not_at_all)
{
	static struct reply r;

	start(&r, DNS_TYPE_TXT, 0);
	r.a.record_count = 3;
	for (uint16_t i = 0; i < 3; i++)
		r.a.records[i] =
			(struct dns_answer_record){ 60, (uint16_t)(i * 200), 200 };
	for (size_t i = 0; i < 600; i += 200)
		r.a.rdata[i] = 199;
	r.a.rdata_size = 600;
	assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->kind, DNS_ANSWER_TRUNCATED);
	assert_int_equal(write_it(&r, DNS_UDP_OURS, ALL)->record_count, 3);
	assert_memory_equal(r.again.rdata, r.a.rdata, 600);
}

static bool has_option(const struct reply *r, const char *option, size_t size)
{
	return memmem(r->buf, r->size, option, size);
}

/* RFC 8914, section 2: with any rcode; for who speaks EDNS, where there is room. */
TEST(what_was_left_out_is_said_in_an_extended_error)
{
	static const char ede[] = "\0\x0f\0\x0a\0\x0f"
				  "10.0.0.1";
	static struct reply r;

	start(&r, DNS_TYPE_A, 4);
	snprintf(r.left_out, sizeof(r.left_out), "10.0.0.1");
	assert_int_equal(write_it(&r, DNS_UDP_MIN, 3)->addr_count, 2);
	assert_false(has_option(&r, ede, sizeof(ede) - 1));
	r.q.has_edns = true;
	assert_int_equal(write_it(&r, DNS_UDP_MIN, 3)->addr_count, 2);
	assert_true(has_option(&r, ede, sizeof(ede) - 1));
	assert_int_equal(flags_of(&r) & 15, DNS_NOERROR);
	/* It takes no address's place. */
	start(&r, DNS_TYPE_A, 32);
	r.q.has_edns = true;
	write_it(&r, DNS_UDP_MIN, ALL);
	assert_int_not_equal(r.written, ALL);
	snprintf(r.left_out, sizeof(r.left_out), "10.0.0.1");
	{
		uint32_t without = r.written;

		write_it(&r, DNS_UDP_MIN, ALL);
		assert_int_equal(r.written, without);
	}
}

TEST(over_tcp_a_reply_may_have_64_kib)
{
	enum { RECORDS = 255, SIZE = 244 };
	static struct reply r;

	start(&r, DNS_TYPE_TXT, 0);
	r.q.has_edns = true;
	for (uint16_t i = 0; i < RECORDS; i++) {
		r.a.records[i] =
			(struct dns_answer_record){ 60, (uint16_t)(i * SIZE), SIZE };
		memset(r.a.rdata + i * SIZE, 'a' + i % 26, SIZE);
		r.a.rdata[i * SIZE] = SIZE - 1;
	}
	r.a.record_count = RECORDS;
	r.a.rdata_size = RECORDS * SIZE;
	assert_int_equal(write_it(&r, DNS_MESSAGE_MAX, ALL)->kind, DNS_ANSWER_RECORDS);
	assert_in_range(r.size, 65000, 65535);
	assert_int_equal(r.again.record_count, RECORDS);
	assert_int_equal(r.again.skipped, 0);
	assert_memory_equal(r.again.rdata, r.a.rdata, RECORDS * SIZE);
	assert_int_equal(flags_of(&r) & DNS_FLAG_TC, 0);
}

TEST(ad_is_set_only_for_who_asked_and_if_nothing_was_removed)
{
	static const struct {
		const char *what;
		bool upstream, asked, dnssec_ok;
		uint32_t keep;
		uint16_t skipped;
		enum dns_answer_kind kind;
		bool ad;
	} cases[] = {
		{ "asked by AD", true, true, false, ALL, 0, DNS_ANSWER_RECORDS, true },
		{ "asked by DO", true, false, true, ALL, 0, DNS_ANSWER_RECORDS, true },
		{ "not asked", true, false, false, ALL, 0, DNS_ANSWER_RECORDS, false },
		{ "not authentic", false, true, true, ALL, 0, DNS_ANSWER_RECORDS, false },
		{ "one removed", true, true, true, 1, 0, DNS_ANSWER_RECORDS, false },
		{ "some skipped", true, true, true, ALL, 1, DNS_ANSWER_RECORDS, false },
		{ "our own SOA", true, true, true, ALL, 0, DNS_ANSWER_NXDOMAIN, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static struct reply r;

		start(&r, DNS_TYPE_A, cases[i].kind == DNS_ANSWER_RECORDS ? 2 : 0);
		r.a.kind = cases[i].kind;
		r.a.ad = cases[i].upstream;
		r.a.skipped = cases[i].skipped;
		r.q.ad = cases[i].asked;
		r.q.dnssec_ok = cases[i].dnssec_ok;
		if (write_it(&r, DNS_UDP_MIN, cases[i].keep)->ad != cases[i].ad)
			fail_msg("%s", cases[i].what);
		assert_false(flags_of(&r) & DNS_FLAG_AA);
	}
}

TEST(what_is_no_answer_becomes_servfail)
{
	static struct reply r;

	for (int kind = DNS_ANSWER_BAD; kind <= DNS_ANSWER_FAILED; kind++) {
		start(&r, DNS_TYPE_A, 2);
		r.a.kind = kind;
		assert_int_equal(write_it(&r, DNS_UDP_MIN, ALL)->rcode, DNS_SERVFAIL);
		assert_int_equal(r.written, 0);
		assert_int_equal(r.size, 12 + 21);
	}
}
