// SPDX-License-Identifier: Apache-2.0
/* A query that was read, written anew and read again asks the same; what answers it,
 * or what can't be read, is itself a message that its receiver accepts. */
#include <stdlib.h>

#include "dns/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

static void hold_rewritten(const struct dns_query *q, const uint8_t *bits)
{
	uint8_t buf[DNS_UDP_MIN], sent[DNS_NAME_MAX];
	struct dns_query again;
	int size = dns_query_write(buf, sizeof(buf), 7, &q->name, q->type, q->dnssec_ok,
				   bits, sent);

	HOLD(size > 0);
	HOLD(dns_query_read(buf, (size_t)size, &again) == DNS_QUERY_OK);
	HOLD(again.id == 7 && again.rd && again.type == q->type && again.class == 1);
	HOLD(again.has_edns && again.dnssec_ok == q->dnssec_ok);
	HOLD(again.udp_size == DNS_UDP_OURS && dns_name_equal(&again.name, &q->name));
	HOLD(memcmp(again.raw_name, sent, q->name.size) == 0);
}

static void hold_refused(const struct dns_query *q, enum dns_rcode rcode)
{
	const struct dns_refusal refusal = {
		.rcode = rcode,
		.soa = true,
		.ttl_sec = 9,
		.ede = DNS_EDE_BLOCKED,
		.ede_text = text_of("no rule allows this name"),
	};
	struct dns_asked asked = { .id = q->id, .type = DNS_TYPE_A, .name = q->name };
	struct dns_query question = *q;
	struct dns_answer answer;
	uint8_t buf[DNS_UDP_OURS];
	size_t size;

	question.type = DNS_TYPE_A;
	question.class = DNS_CLASS_IN;
	memcpy(asked.case_name, q->raw_name, sizeof(asked.case_name));
	size = dns_refusal_write(buf, sizeof(buf), &question, &refusal);
	HOLD(size <= DNS_UDP_MIN);
	dns_answer_read(buf, size, &asked, &answer);
	HOLD(answer.kind ==
	     (rcode == DNS_NXDOMAIN ? DNS_ANSWER_NXDOMAIN : DNS_ANSWER_NODATA));
	HOLD(answer.ttl_sec == 9 && answer.rcode == rcode);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t bits[32] = { 0 }, buf[DNS_UDP_MIN];
	enum dns_query_status status;
	struct dns_query q, none;

	status = dns_query_read(data, size, &q);
	if (status == DNS_QUERY_DROP)
		return 0;
	HOLD(q.udp_size >= DNS_UDP_MIN);
	if (status != DNS_QUERY_OK) {
		const struct dns_refusal refusal = { .rcode = dns_query_rcode(status),
						     .ede = DNS_EDE_NONE };
		size_t n = dns_refusal_write(buf, sizeof(buf), &q, &refusal);

		HOLD(n >= DNS_HEADER_SIZE && q.name.size == 0);
		HOLD(dns_query_read(buf, n, &none) == DNS_QUERY_DROP);
		return 0;
	}
	memcpy(bits, data, MIN(size, sizeof(bits)));
	hold_rewritten(&q, bits);
	hold_refused(&q, DNS_NXDOMAIN);
	hold_refused(&q, DNS_NOERROR);
	return 0;
}
