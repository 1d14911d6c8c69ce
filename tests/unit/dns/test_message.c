// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>

#include "dns/answer.h"
#include "unit.h"

#define BYTES(s) (const uint8_t *)(s), sizeof(s) - 1
#define QUESTION "\3wWw\4test\0\0\1\0\1"
#define OPT	 "\0\0\x29\x10\0\0\0\x80\0\0\0"

static struct dns_query query_of(const char *name, bool edns)
{
	struct dns_query q = {
		.id = 0x1234,
		.type = DNS_TYPE_A,
		.class = DNS_CLASS_IN,
		.rd = true,
		.has_edns = edns,
		.udp_size = edns ? DNS_UDP_OURS : DNS_UDP_MIN,
	};

	assert_int_equal(dns_name_parse(text_of(name), &q.name), 0);
	memcpy(q.raw_name, q.name.bytes, q.name.size);
	if (q.name.size > 1)
		q.raw_name[1] &= (uint8_t)~0x20;
	return q;
}

static struct dns_asked asked_of(const struct dns_query *q)
{
	struct dns_asked asked = { .id = q->id, .type = q->type, .name = q->name };

	memcpy(asked.case_name, q->raw_name, sizeof(asked.case_name));
	return asked;
}

static uint16_t flags_of(const uint8_t *message)
{
	return (uint16_t)(message[2] << 8 | message[3]);
}

TEST(queries_are_read_strictly)
{
	static const struct {
		const char *what;
		const uint8_t *bytes;
		size_t size;
		enum dns_query_status status;
	} cases[] = {
		{ "plain", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0" QUESTION), DNS_QUERY_OK },
		{ "EDNS", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION OPT),
		  DNS_QUERY_OK },
		{ "the root", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0\0\0\2\0\1"),
		  DNS_QUERY_OK },
		{ "nothing", BYTES(""), DNS_QUERY_DROP },
		{ "half a header", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0"), DNS_QUERY_DROP },
		{ "a response", BYTES("\x12\x34\x81\0\0\1\0\0\0\0\0\0" QUESTION),
		  DNS_QUERY_DROP },
		{ "opcode NOTIFY", BYTES("\x12\x34\x21\0\0\1\0\0\0\0\0\0" QUESTION),
		  DNS_QUERY_NOTIMP },
		{ "no question", BYTES("\x12\x34\1\0\0\0\0\0\0\0\0\0"),
		  DNS_QUERY_FORMERR },
		{ "two questions",
		  BYTES("\x12\x34\1\0\0\2\0\0\0\0\0\0" QUESTION QUESTION),
		  DNS_QUERY_FORMERR },
		{ "an answer", BYTES("\x12\x34\1\0\0\1\0\1\0\0\0\0" QUESTION OPT),
		  DNS_QUERY_FORMERR },
		{ "an authority", BYTES("\x12\x34\1\0\0\1\0\0\0\1\0\0" QUESTION OPT),
		  DNS_QUERY_FORMERR },
		{ "two OPT", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\2" QUESTION OPT OPT),
		  DNS_QUERY_FORMERR },
		{ "a compressed question",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0\1a\xc0\x0c\0\1\0\1"),
		  DNS_QUERY_FORMERR },
		{ "octets behind", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0" QUESTION "x"),
		  DNS_QUERY_FORMERR },
		{ "OPT that wasn't announced",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0" QUESTION OPT), DNS_QUERY_FORMERR },
		{ "cut in the question", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0\3wWw\4te"),
		  DNS_QUERY_FORMERR },
		{ "cut behind the name", BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\0\1a\0\0\1\0"),
		  DNS_QUERY_FORMERR },
		{ "another type than OPT",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION
			"\0\0\x10\x10\0\0\0\x80\0\0\0"),
		  DNS_QUERY_FORMERR },
		{ "OPT not at the root",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION
			"\1\0\0\x29\x10\0\0\0\x80\0\0\0"),
		  DNS_QUERY_FORMERR },
		{ "OPT over its end",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION
			"\0\0\x29\x10\0\0\0\x80\0\0\1"),
		  DNS_QUERY_FORMERR },
		{ "EDNS 1",
		  BYTES("\x12\x34\1\0\0\1\0\0\0\0\0\1" QUESTION
			"\0\0\x29\x10\0\0\1\x80\0\0\0"),
		  DNS_QUERY_BADVERS },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_query q;

		if (dns_query_read(cases[i].bytes, cases[i].size, &q) != cases[i].status)
			fail_msg("%s", cases[i].what);
		assert_int_equal(q.id, cases[i].status == DNS_QUERY_DROP ? 0 : 0x1234);
		if (cases[i].status != DNS_QUERY_OK)
			assert_int_equal(q.name.size, 0);
	}
}

TEST(a_query_is_read_with_its_case_and_edns)
{
	static const char bytes[] = "\x12\x34\1\x30\0\1\0\0\0\0\0\1" QUESTION OPT;
	static const char small[] = "\x12\x34\0\0\0\1\0\0\0\0\0\1" QUESTION
				    "\0\0\x29\0\1\0\0\0\0\0\0";
	struct dns_query q;

	assert_int_equal(dns_query_read(bytes, sizeof(bytes) - 1, &q), DNS_QUERY_OK);
	assert_memory_equal(q.raw_name, "\3wWw\4test", 10);
	assert_memory_equal(q.name.bytes, "\3www\4test", 10);
	assert_int_equal(q.type, DNS_TYPE_A);
	assert_true(q.rd && q.cd && q.ad && q.has_edns && q.dnssec_ok);
	assert_int_equal(q.udp_size, 4096);
	assert_int_equal(dns_query_read(small, sizeof(small) - 1, &q), DNS_QUERY_OK);
	assert_false(q.rd || q.cd || q.ad || q.dnssec_ok);
	assert_int_equal(q.udp_size, DNS_UDP_MIN);
}

TEST(what_goes_upstream_holds_nothing_of_the_clients_but_the_question)
{
	static const char expected[] = "\xab\xcd\1\0\0\1\0\0\0\0\0\1"
				       "\3WWW\4TESt\0\0\x1c\0\1"
				       "\0\0\x29\x04\xd0\0\0\x80\0\0\0";
	const uint8_t bits[32] = { 0xff };
	struct dns_query q = query_of("www.test", false);
	uint8_t sent[DNS_NAME_MAX], buf[DNS_UDP_MIN];
	int size = dns_query_write(buf, sizeof(buf), 0xabcd, &q.name, DNS_TYPE_AAAA, true,
				   bits, sent);

	assert_int_equal(size, sizeof(expected) - 1);
	assert_memory_equal(buf, expected, sizeof(expected) - 1);
	assert_memory_equal(sent, expected + 12, q.name.size);
	for (size_t n = 0; n < (size_t)size; n++)
		assert_int_equal(
			dns_query_write(buf, n, 0, &q.name, DNS_TYPE_A, true, bits, sent),
			-ENOSPC);
}

TEST(each_case_bit_stands_for_one_octet)
{
	struct dns_query q = query_of("www.test", false);

	for (size_t i = 0; i < q.name.size; i++) {
		uint8_t bits[32] = { 0 }, sent[DNS_NAME_MAX], buf[DNS_UDP_MIN];

		bits[i / 8] = (uint8_t)(1 << i % 8);
		assert_true(dns_query_write(buf, sizeof(buf), 0, &q.name, 1, false, bits,
					    sent) > 0);
		for (size_t j = 0; j < q.name.size; j++) {
			bool upper = j == i && q.name.bytes[j] >= 'a';

			assert_int_equal(sent[j], q.name.bytes[j] - (upper ? 0x20 : 0));
		}
	}
}

TEST(refusals_are_negative_answers_that_caches_accept)
{
	static const struct {
		const char *name;
		enum dns_rcode rcode;
		enum dns_answer_kind kind;
	} cases[] = {
		{ "evil.test", DNS_NXDOMAIN, DNS_ANSWER_NXDOMAIN },
		{ "evil.test", DNS_NOERROR, DNS_ANSWER_NODATA },
		{ "test", DNS_NXDOMAIN, DNS_ANSWER_NXDOMAIN },
		{ ".", DNS_NXDOMAIN, DNS_ANSWER_NXDOMAIN },
		{ ".", DNS_NOERROR, DNS_ANSWER_NODATA },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_query q = query_of(cases[i].name, true);
		struct dns_asked asked = asked_of(&q);
		const struct dns_refusal refusal = {
			.rcode = cases[i].rcode,
			.soa = true,
			.ttl_sec = 7,
			.ede = DNS_EDE_BLOCKED,
			.ede_text = text_of("no"),
		};
		struct dns_answer a;
		uint8_t buf[DNS_UDP_OURS];
		size_t size = dns_refusal_write(buf, sizeof(buf), &q, &refusal);

		dns_answer_read(buf, size, &asked, &a);
		assert_int_equal(a.kind, cases[i].kind);
		assert_int_equal(a.ttl_sec, 7);
		assert_int_equal(flags_of(buf), DNS_FLAG_QR | DNS_FLAG_RD | DNS_FLAG_RA |
							cases[i].rcode);
		assert_memory_equal(buf + size - 8,
				    "\0\xf\0\4\0\xf"
				    "no",
				    8);
	}
}

TEST(edns_and_its_errors_go_only_to_who_sent_edns)
{
	const struct dns_refusal refusal = {
		.rcode = DNS_SERVFAIL,
		.ede = DNS_EDE_NETWORK_ERROR,
		.ede_text = text_of("upstream"),
		.tc = true,
	};
	struct dns_query q = query_of("www.test", false);
	uint8_t buf[DNS_UDP_OURS];

	assert_int_equal(dns_refusal_write(buf, sizeof(buf), &q, &refusal), 12 + 14);
	assert_int_equal(buf[11], 0);
	assert_true(flags_of(buf) & DNS_FLAG_TC);
	q.has_edns = true;
	assert_int_equal(dns_refusal_write(buf, sizeof(buf), &q, &refusal),
			 12 + 14 + 11 + 6 + 8);
	assert_int_equal(buf[11], 1);
}

TEST(a_long_ede_text_is_cut)
{
	static const char name[] =
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	struct dns_query q = query_of(name, true);
	char text[1000];
	uint8_t buf[DNS_UDP_OURS];
	struct dns_refusal refusal = { .rcode = DNS_NXDOMAIN, .soa = true };

	memset(text, 'x', sizeof(text));
	refusal.ede_text = (struct text){ text, sizeof(text) };
	assert_in_range(dns_refusal_write(buf, sizeof(buf), &q, &refusal), 300,
			DNS_UDP_MIN);
}

TEST(status_replies_echo_the_header_alone)
{
	static const struct {
		enum dns_query_status status;
		uint16_t flags;
		size_t size;
	} cases[] = {
		{ DNS_QUERY_FORMERR, 0x8180 | DNS_FORMERR, 12 },
		{ DNS_QUERY_NOTIMP, 0xa980 | DNS_NOTIMP, 12 },
		{ DNS_QUERY_BADVERS, 0x8180, 23 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct dns_query q = {
			.id = 0x1234,
			.rd = true,
			.opcode = cases[i].status == DNS_QUERY_NOTIMP ? 5 : 0,
			.has_edns = cases[i].status == DNS_QUERY_BADVERS,
		};
		const struct dns_refusal refusal = {
			.rcode = dns_query_rcode(cases[i].status),
			.ede = DNS_EDE_NONE,
		};
		uint8_t buf[DNS_UDP_MIN];

		assert_int_equal(dns_refusal_write(buf, sizeof(buf), &q, &refusal),
				 cases[i].size);
		assert_int_equal(flags_of(buf), cases[i].flags);
		if (cases[i].size == 23)
			assert_memory_equal(buf + 12, "\0\0\x29\x04\xd0\1\0\0\0\0\0", 11);
	}
}
