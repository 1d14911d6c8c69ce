// SPDX-License-Identifier: Apache-2.0
/* Whatever an upstream sends: an answer that is used keeps its bounds, and the reply
 * written from it is read back as the same chain and the same addresses. The question
 * is taken from the message itself, or most inputs would end there. */
#include <stdlib.h>

#include "dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

enum { CAP_SEC = 300 };

static bool make_question(const uint8_t *data, size_t size, struct dns_asked *asked,
			  struct dns_query *q)
{
	struct wire w = wire_reader(data, size);

	*q = (struct dns_query){ .has_edns = true, .rd = true, .udp_size = DNS_UDP_MIN };
	q->id = wire_read_u16(&w);
	wire_seek(&w, DNS_HEADER_SIZE);
	if (dns_name_read(&w, &q->name, q->raw_name) < 0)
		return false;
	q->type = wire_read_u16(&w);
	q->class = DNS_CLASS_IN;
	*asked = (struct dns_asked){ .id = q->id, .type = q->type, .name = q->name };
	memcpy(asked->case_name, q->raw_name, sizeof(asked->case_name));
	return wire_ok(&w);
}

static void hold_bounds(const struct dns_answer *a)
{
	HOLD(a->chain_count <= DNS_CHAIN_MAX && a->addr_count <= DNS_ADDRESSES_MAX);
	HOLD(a->record_count <= DNS_RECORDS_MAX && a->rdata_size <= sizeof(a->rdata));
	if (a->kind < DNS_ANSWER_NXDOMAIN)
		HOLD(a->chain_count == 0 && a->addr_count == 0 && a->record_count == 0);
	else
		HOLD(a->ttl_sec <= INT32_MAX);
	if (a->kind == DNS_ANSWER_RECORDS)
		HOLD(a->addr_count > 0 || a->record_count > 0);
	for (size_t i = 0; i < a->record_count; i++)
		HOLD(a->records[i].offset + a->records[i].size <= a->rdata_size);
}

static void hold_same(const struct dns_answer *a, const struct dns_answer *b,
		      uint32_t written)
{
	size_t n = 0;

	HOLD(a->kind == b->kind && a->chain_count == b->chain_count);
	HOLD(a->record_count == b->record_count && a->rdata_size == b->rdata_size);
	HOLD(memcmp(a->rdata, b->rdata, a->rdata_size) == 0);
	for (size_t i = 0; i < a->chain_count; i++)
		HOLD(dns_name_equal(&a->chain[i], &b->chain[i]));
	for (size_t i = 0; i < a->addr_count; i++) {
		if (!(written >> i & 1))
			continue;
		HOLD(addr_equal(&a->addrs[i].addr, &b->addrs[n].addr));
		HOLD(b->addrs[n].ttl_sec == MIN(a->addrs[i].ttl_sec, (uint32_t)CAP_SEC));
		n++;
	}
	HOLD(n == b->addr_count);
}

static void hold_reply(const struct dns_asked *asked, const struct dns_query *q,
		       const struct dns_answer *a, size_t limit)
{
	static uint8_t buf[DNS_MESSAGE_MAX];
	static struct dns_answer again;
	uint32_t written;
	const struct dns_reply_form form = {
		.limit = limit,
		.keep = UINT32_MAX,
		.ttl_cap_sec = CAP_SEC,
		.left_out = text_of(limit & 1 ? "an address of the moon" : ""),
	};
	size_t size = dns_reply_write(buf, sizeof(buf), q, a, &form, &written);

	HOLD(size <= limit);
	dns_answer_read(buf, size, asked, &again);
	if (again.kind == DNS_ANSWER_TRUNCATED)
		HOLD(written == 0 && limit < DNS_MESSAGE_MAX);
	else
		hold_same(a, &again, written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct dns_answer answer;
	struct dns_asked asked;
	struct dns_query q;

	if (!make_question(data, size, &asked, &q))
		return 0;
	dns_answer_read(data, size, &asked, &answer);
	hold_bounds(&answer);
	if (answer.kind < DNS_ANSWER_NXDOMAIN)
		return 0;
	hold_reply(&asked, &q, &answer, DNS_UDP_MIN);
	hold_reply(&asked, &q, &answer, DNS_UDP_OURS);
	hold_reply(&asked, &q, &answer, DNS_MESSAGE_MAX);
	return 0;
}
