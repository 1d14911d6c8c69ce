// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "dns/answer.h"
#include "unit.h"

enum { ID = 0x1234, RESPONSE = 0x8180 };

/* A response under construction. Names are written in full unless a record says
 * otherwise; the counts are filled in by section. */
struct response {
	uint8_t bytes[DNS_MESSAGE_MAX];
	struct wire w;
	struct dns_asked asked;
	struct dns_answer answer;
};

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static struct response *response_new(const char *name, uint16_t type, uint16_t flags)
{
	struct response *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->asked = (struct dns_asked){ .id = ID, .type = type, .name = name_of(name) };
	memcpy(r->asked.case_name, r->asked.name.bytes, DNS_NAME_MAX);
	r->asked.case_name[1] &= (uint8_t)~0x20; /* first letter upper */
	r->w = wire_writer(r->bytes, sizeof(r->bytes));
	wire_write_u16(&r->w, ID);
	wire_write_u16(&r->w, flags);
	wire_write_u16(&r->w, 1);
	(void)wire_take(&r->w, 6);
	wire_write_bytes(&r->w, r->asked.case_name, r->asked.name.size);
	wire_write_u16(&r->w, type);
	wire_write_u16(&r->w, DNS_CLASS_IN);
	return r;
}

static void count(struct response *r, size_t section_offset)
{
	r->bytes[section_offset + 1]++;
}

static void add_rdata(struct response *r, size_t section, const char *owner,
		      uint16_t type, uint32_t ttl_sec, const void *rdata, size_t size)
{
	struct dns_name n = name_of(owner);

	wire_write_bytes(&r->w, n.bytes, n.size);
	wire_write_u16(&r->w, type);
	wire_write_u16(&r->w, DNS_CLASS_IN);
	wire_write_u32(&r->w, ttl_sec);
	wire_write_u16(&r->w, (uint16_t)size);
	wire_write_bytes(&r->w, rdata, size);
	count(r, section);
}

enum { ANSWER = 6, AUTHORITY = 8 };

static void add_cname(struct response *r, const char *owner, const char *target)
{
	struct dns_name n = name_of(target);

	add_rdata(r, ANSWER, owner, DNS_TYPE_CNAME, 50, n.bytes, n.size);
}

static void add_a(struct response *r, const char *owner, uint32_t ttl_sec, uint8_t last)
{
	const uint8_t addr[4] = { 192, 0, 2, last };

	add_rdata(r, ANSWER, owner, DNS_TYPE_A, ttl_sec, addr, 4);
}

static void add_soa(struct response *r, const char *owner, uint32_t ttl_sec,
		    uint32_t minimum)
{
	uint8_t rdata[22] = { 0 };
	struct wire w = wire_writer(rdata, sizeof(rdata));

	wire_seek(&w, 18);
	wire_write_u32(&w, minimum);
	add_rdata(r, AUTHORITY, owner, DNS_TYPE_SOA, ttl_sec, rdata, sizeof(rdata));
}

static const struct dns_answer *read_it(struct response *r)
{
	dns_answer_read(r->bytes, wire_offset(&r->w), &r->asked, &r->answer);
	return &r->answer;
}

TEST(only_the_echo_of_our_question_is_looked_at)
{
	static const struct {
		const char *what;
		size_t at;
		uint8_t value;
	} cases[] = {
		{ "another id", 0, 0x13 },
		{ "a query", 2, 0x01 },
		{ "another opcode", 2, 0xa9 },
		{ "no question", 5, 0 },
		{ "two questions", 5, 2 },
		{ "another case", 13, 'w' },
		{ "another name", 14, 'x' },
		{ "another type", 12 + 10, DNS_TYPE_AAAA },
		{ "another class", 12 + 12, 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct response *r = response_new("www.test.", DNS_TYPE_A, RESPONSE);

		assert_int_equal(r->bytes[12 + 11], DNS_TYPE_A);
		add_a(r, "www.test", 60, 1);
		assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
		r->bytes[cases[i].at] = cases[i].value;
		if (read_it(r)->kind != DNS_ANSWER_MISMATCH || r->answer.addr_count != 0)
			fail_msg("%s", cases[i].what);
		free(r);
	}
}

TEST(a_cut_response_is_never_used)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);
	size_t size;

	add_cname(r, "www.test", "a.test");
	add_a(r, "a.test", 60, 1);
	size = wire_offset(&r->w);
	for (size_t n = 0; n < size; n++) {
		uint8_t *copy = malloc(n + 1); /* so that a sanitizer sees the end */

		assert_non_null(copy);
		memcpy(copy, r->bytes, n);
		dns_answer_read(copy, n, &r->asked, &r->answer);
		assert_true(r->answer.kind == DNS_ANSWER_BAD ||
			    r->answer.kind == DNS_ANSWER_MISMATCH);
		assert_int_equal(r->answer.addr_count + r->answer.chain_count, 0);
		free(copy);
	}
	free(r);
}

TEST(the_header_decides_before_the_records)
{
	static const struct {
		const char *what;
		uint16_t flags;
		enum dns_answer_kind kind;
	} cases[] = {
		{ "TC", RESPONSE | DNS_FLAG_TC, DNS_ANSWER_TRUNCATED },
		{ "SERVFAIL", RESPONSE | DNS_SERVFAIL, DNS_ANSWER_FAILED },
		{ "REFUSED and TC", RESPONSE | DNS_FLAG_TC | DNS_REFUSED,
		  DNS_ANSWER_FAILED },
		{ "a rcode nobody knows", RESPONSE | 15, DNS_ANSWER_FAILED },
		{ "NXDOMAIN with an address", RESPONSE | DNS_NXDOMAIN,
		  DNS_ANSWER_NXDOMAIN },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct response *r = response_new("www.test", DNS_TYPE_A, cases[i].flags);

		add_a(r, "www.test", 60, 1);
		if (read_it(r)->kind != cases[i].kind || r->answer.addr_count != 0)
			fail_msg("%s", cases[i].what);
		free(r);
	}
}

TEST(the_chain_is_followed_in_any_order_of_records)
{
	static const int orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
					 { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
		struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);
		struct dns_name last = name_of("b.test");

		for (size_t j = 0; j < 3; j++) {
			if (orders[i][j] == 0)
				add_cname(r, "www.test", "a.test");
			else if (orders[i][j] == 1)
				add_cname(r, "A.test", "b.test");
			else
				add_a(r, "b.test", 60, 1);
		}
		assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
		assert_int_equal(r->answer.chain_count, 2);
		assert_true(dns_name_equal(&r->answer.chain[1], &last));
		assert_int_equal(r->answer.addr_count, 1);
		assert_int_equal(r->answer.ttl_sec, 50);
		free(r);
	}
}

TEST(other_owners_classes_and_types_teach_nothing)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);
	const uint8_t v6[16] = { 0x20, 1 };

	add_a(r, "other.test", 60, 1);
	add_cname(r, "other.test", "www.test");
	add_rdata(r, ANSWER, "www.test", DNS_TYPE_AAAA, 60, v6, 16);
	add_a(r, "www.test", 60, 2);
	r->bytes[wire_offset(&r->w) - 11] = 3; /* class CH */
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_NODATA);
	assert_int_equal(r->answer.addr_count, 0);
	assert_int_equal(r->answer.chain_count, 0);
	free(r);
}

TEST(an_address_on_the_way_is_not_the_answer)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);

	add_a(r, "www.test", 60, 1);
	add_cname(r, "www.test", "a.test");
	add_a(r, "a.test", 60, 2);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
	assert_int_equal(r->answer.addr_count, 1);
	assert_int_equal(r->answer.addrs[0].addr.bytes[3], 2);
	free(r);
}

TEST(loops_and_two_cnames_for_one_owner_are_refused)
{
	static const struct {
		const char *what;
		const char *links[3][2];
	} cases[] = {
		{ "to itself", { { "www.test", "www.test" } } },
		{ "back to the question",
		  { { "www.test", "a.test" }, { "a.test", "WWW.test" } } },
		{ "inside the chain",
		  { { "www.test", "a.test" },
		    { "a.test", "b.test" },
		    { "b.test", "a.test" } } },
		{ "two targets", { { "www.test", "a.test" }, { "www.test", "b.test" } } },
		{ "the same twice",
		  { { "www.test", "a.test" }, { "www.test", "a.test" } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);

		for (size_t j = 0; j < 3 && cases[i].links[j][0]; j++)
			add_cname(r, cases[i].links[j][0], cases[i].links[j][1]);
		add_a(r, "a.test", 60, 1);
		if (read_it(r)->kind != DNS_ANSWER_BAD || r->answer.chain_count != 0)
			fail_msg("%s", cases[i].what);
		free(r);
	}
}

TEST(a_chain_has_sixteen_links_at_most)
{
	for (unsigned int links = DNS_CHAIN_MAX; links <= DNS_CHAIN_MAX + 1; links++) {
		struct response *r = response_new("c0.test", DNS_TYPE_A, RESPONSE);
		char from[16], to[16];

		for (unsigned int i = 0; i < links; i++) {
			snprintf(from, sizeof(from), "c%u.test", i);
			snprintf(to, sizeof(to), "c%u.test", i + 1);
			add_cname(r, from, to);
		}
		add_a(r, to, 60, 1);
		assert_int_equal(read_it(r)->kind, links <= DNS_CHAIN_MAX
							   ? DNS_ANSWER_RECORDS
							   : DNS_ANSWER_BAD);
		free(r);
	}
}

TEST(a_far_chain_end_is_not_taken_for_a_near_one)
{
	/* The CNAME's target stands at 0x4000 + the offset of "b.test", which a pointer
	 * of 14 bits can't tell apart. */
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);
	static const uint8_t filler[0x3000];
	size_t near, pad;

	near = wire_offset(&r->w);
	add_a(r, "b.test", 60, 9);
	add_rdata(r, ANSWER, "x.test", 999, 0, filler, sizeof(filler));
	pad = 0x4000 + near - wire_offset(&r->w) - (8 + 10) - (10 + 10);
	add_rdata(r, ANSWER, "x.test", 999, 0, filler, pad);
	add_cname(r, "www.test", "a.test");
	assert_int_equal(wire_offset(&r->w) - 8, 0x4000 + near);
	wire_write_u16(&r->w, (uint16_t)(0xc000 | near));
	wire_write_bytes(&r->w, "\0\1\0\1\0\0\0\x3c\0\4\xc0\0\2\1", 14);
	count(r, ANSWER);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_NODATA);
	assert_int_equal(r->answer.chain_count, 1);
	free(r);
}

TEST(ttls_with_the_top_bit_count_as_zero)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);

	add_a(r, "www.test", 0x80000000u, 1);
	add_a(r, "www.test", INT32_MAX, 2);
	assert_int_equal(read_it(r)->addrs[0].ttl_sec, 0);
	assert_int_equal(r->answer.addrs[1].ttl_sec, INT32_MAX);
	assert_int_equal(r->answer.ttl_sec, 0);
	free(r);
}

TEST(negative_ttls_come_from_the_right_soa)
{
	static const struct {
		const char *what, *owner;
		uint32_t ttl_sec, minimum, kept_sec;
	} cases[] = {
		{ "minimum is less", "test", 600, 30, 30 },
		{ "TTL is less", "test", 20, 30, 20 },
		{ "the root's", ".", 600, 30, 30 },
		{ "its own", "a.test", 600, 30, 30 },
		{ "bounded by the chain", "test", 600, 600, 50 },
		{ "of the question's zone, not the end's", "www.example", 600, 30, 0 },
		{ "of a name below", "x.a.test", 600, 30, 0 },
		{ "minimum with the top bit", "test", 600, 0xffffffffu, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		for (uint16_t rcode = 0; rcode <= DNS_NXDOMAIN; rcode += DNS_NXDOMAIN) {
			struct response *r =
				response_new("www.example", DNS_TYPE_A, RESPONSE | rcode);

			add_cname(r, "www.example", "a.test");
			add_soa(r, cases[i].owner, cases[i].ttl_sec, cases[i].minimum);
			read_it(r);
			if (r->answer.ttl_sec != cases[i].kept_sec)
				fail_msg("%s: %u", cases[i].what, r->answer.ttl_sec);
			assert_int_equal(r->answer.kind,
					 rcode ? DNS_ANSWER_NXDOMAIN : DNS_ANSWER_NODATA);
			assert_int_equal(r->answer.chain_count, 1);
			free(r);
		}
	}
}

TEST(a_referral_is_a_failure_of_the_server)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);

	add_rdata(r, AUTHORITY, "test", DNS_TYPE_NS, 60, "\2ns\4test", 9);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_FAILED);
	add_soa(r, "test", 60, 60);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_NODATA);
	free(r);
}

TEST(addresses_over_the_maximum_are_counted_not_fatal)
{
	struct response *r = response_new("www.test", DNS_TYPE_A, RESPONSE);

	for (uint8_t i = 0; i < DNS_ADDRESSES_MAX + 3; i++)
		add_a(r, "www.test", 60, i);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
	assert_int_equal(r->answer.addr_count, DNS_ADDRESSES_MAX);
	assert_int_equal(r->answer.skipped, 3);
	free(r);
}

TEST(malformed_rdata_spoils_the_answer)
{
	static const struct {
		const char *what;
		uint16_t type;
		const char *rdata;
		size_t size;
	} cases[] = {
		{ "A of 3", DNS_TYPE_A, "abc", 3 },
		{ "A of 16", DNS_TYPE_A, "0123456789abcdef", 16 },
		{ "AAAA of 4", DNS_TYPE_AAAA, "abcd", 4 },
		{ "SRV without a name", DNS_TYPE_SRV, "abcdef", 6 },
		{ "SRV with octets behind", DNS_TYPE_SRV, "abcdef\0x", 8 },
		{ "MX too short", DNS_TYPE_MX, "a", 1 },
		{ "PTR forward", DNS_TYPE_PTR, "\xc0\xff", 2 },
		{ "TXT empty", DNS_TYPE_TXT, "", 0 },
		{ "TXT over its end", DNS_TYPE_TXT, "\5abc", 4 },
		{ "a type nobody asks for", DNS_TYPE_SOA, "", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct response *r = response_new("www.test", cases[i].type, RESPONSE);

		add_rdata(r, ANSWER, "www.test", cases[i].type, 60, cases[i].rdata,
			  cases[i].size);
		if (read_it(r)->kind != DNS_ANSWER_BAD)
			fail_msg("%s", cases[i].what);
		free(r);
	}
}

TEST(names_in_rdata_are_uncompressed)
{
	struct response *r = response_new("www.test", DNS_TYPE_SRV, RESPONSE);

	add_rdata(r, ANSWER, "www.test", DNS_TYPE_SRV, 60, "\0\1\0\2\1\xbb\1B\xc0\x10",
		  10);
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
	assert_int_equal(r->answer.record_count, 1);
	assert_int_equal(r->answer.records[0].size, 14);
	assert_memory_equal(r->answer.rdata, "\0\1\0\2\1\xbb\1B\4test\0", 14);
	free(r);
}

/* Each target is a pointer in the message and 67 octets in the reply. */
TEST(what_a_reply_has_no_room_for_is_counted_not_fatal)
{
	enum { COUNT = 1000 };
	static const char name[] =
		"a2345678901234567890123456789012345678901234567890123456789.test";
	static const uint8_t record[] = {
		0xc0, 12, 0, DNS_TYPE_SRV, 0,	 1, 0, 0, 0, 60, 0, 8, 0, 1,
		0,    2,  1, 0xbb,	   0xc0, 12
	};
	struct response *r = response_new(name, DNS_TYPE_SRV, RESPONSE);

	for (uint16_t i = 0; i < COUNT; i++)
		wire_write_bytes(&r->w, record, sizeof(record));
	r->bytes[6] = COUNT >> 8;
	r->bytes[7] = COUNT & 255;
	assert_int_equal(read_it(r)->kind, DNS_ANSWER_RECORDS);
	assert_in_range(r->answer.record_count, 700, COUNT - 1);
	assert_int_equal(r->answer.record_count + r->answer.skipped, COUNT);
	assert_in_range(r->answer.rdata_size + 12 * r->answer.record_count, 65000, 65535);
	free(r);
}
