// SPDX-License-Identifier: Apache-2.0
#include "dns/message.h"

#include <assert.h>
#include <errno.h>

#include "dns/writer.h"

/* The OPT record (RFC 6891, section 6.1.2). Its options are passed over. */
static enum dns_query_status read_opt(struct wire *w, struct dns_query *ret)
{
	uint8_t owner = wire_read_u8(w);
	uint16_t type = wire_read_u16(w);
	uint16_t udp_size = wire_read_u16(w);
	uint8_t extended_rcode = wire_read_u8(w);
	uint8_t version = wire_read_u8(w);
	uint16_t flags = wire_read_u16(w);
	uint16_t size = wire_read_u16(w);

	(void)extended_rcode; /* means nothing in a query */
	(void)wire_take(w, size);
	if (!wire_ok(w) || owner != 0 || type != DNS_TYPE_OPT)
		return DNS_QUERY_FORMERR;
	ret->has_edns = true;
	ret->dnssec_ok = flags & DNS_OPT_DO;
	ret->udp_size = MAX(udp_size, (uint16_t)DNS_UDP_MIN);
	return version == 0 ? DNS_QUERY_OK : DNS_QUERY_BADVERS;
}

/* Keep of a failed query only what its answer echoes. */
static enum dns_query_status give_up(struct dns_query *q, enum dns_query_status status)
{
	*q = (struct dns_query){
		.id = q->id,
		.rd = q->rd,
		.cd = q->cd,
		.opcode = q->opcode,
		.has_edns = status == DNS_QUERY_BADVERS,
		.udp_size = DNS_UDP_MIN,
	};
	return status;
}

enum dns_query_status dns_query_read(const void *bytes, size_t size,
				     struct dns_query *ret)
{
	struct wire w = wire_reader(bytes, size);
	enum dns_query_status status = DNS_QUERY_OK;
	uint16_t flags, questions, answers, authorities, additionals;

	*ret = (struct dns_query){ .udp_size = DNS_UDP_MIN };
	ret->id = wire_read_u16(&w);
	flags = wire_read_u16(&w);
	ret->opcode = (flags & DNS_FLAG_OPCODE) >> DNS_OPCODE_SHIFT;
	ret->rd = flags & DNS_FLAG_RD;
	ret->ad = flags & DNS_FLAG_AD;
	ret->cd = flags & DNS_FLAG_CD;
	questions = wire_read_u16(&w);
	answers = wire_read_u16(&w);
	authorities = wire_read_u16(&w);
	additionals = wire_read_u16(&w);
	if (!wire_ok(&w) || flags & DNS_FLAG_QR) {
		*ret = (struct dns_query){ 0 };
		return DNS_QUERY_DROP;
	}
	if (ret->opcode != 0)
		return give_up(ret, DNS_QUERY_NOTIMP);
	if (questions != 1 || answers != 0 || authorities != 0 || additionals > 1)
		return give_up(ret, DNS_QUERY_FORMERR);
	if (dns_name_read(&w, &ret->name, ret->raw_name) < 0)
		return give_up(ret, DNS_QUERY_FORMERR);
	ret->type = wire_read_u16(&w);
	ret->class = wire_read_u16(&w);
	if (additionals == 1)
		status = read_opt(&w, ret);
	if (!wire_ok(&w) || wire_left(&w) != 0)
		status = DNS_QUERY_FORMERR;
	return status == DNS_QUERY_OK ? status : give_up(ret, status);
}

enum dns_rcode dns_query_rcode(enum dns_query_status status)
{
	static const enum dns_rcode rcodes[] = { [DNS_QUERY_FORMERR] = DNS_FORMERR,
						 [DNS_QUERY_NOTIMP] = DNS_NOTIMP,
						 [DNS_QUERY_BADVERS] = DNS_BADVERS,
						 [DNS_QUERY_OK] = DNS_NOERROR };

	assert(status > DNS_QUERY_DROP && status <= DNS_QUERY_OK);
	return rcodes[status];
}

int dns_query_write(void *buf, size_t size, uint16_t id, const struct dns_name *name,
		    uint16_t type, bool dnssec_ok, const uint8_t case_bits[32],
		    uint8_t *ret_case)
{
	struct wire w = wire_writer(buf, size);

	assert(name->size > 0);
	wire_write_u16(&w, id);
	wire_write_u16(&w, DNS_FLAG_RD);
	wire_write_u16(&w, 1);
	wire_write_u16(&w, 0);
	wire_write_u16(&w, 0);
	wire_write_u16(&w, 1);
	/* The name with the case of its letters as @case_bits has it. */
	for (size_t i = 0; i < name->size; i++) {
		uint8_t c = name->bytes[i];

		if (c >= 'a' && c <= 'z' && case_bits[i / 8] >> i % 8 & 1)
			c &= (uint8_t)~0x20;
		ret_case[i] = c;
	}
	wire_write_bytes(&w, ret_case, name->size);
	wire_write_u16(&w, type);
	wire_write_u16(&w, DNS_CLASS_IN);

	wire_write_u8(&w, 0); /* OPT: the root */
	wire_write_u16(&w, DNS_TYPE_OPT);
	wire_write_u16(&w, DNS_UDP_OURS);
	wire_write_u16(&w, 0); /* extended rcode, version */
	wire_write_u16(&w, dnssec_ok ? DNS_OPT_DO : 0);
	wire_write_u16(&w, 0);
	return wire_ok(&w) ? (int)wire_offset(&w) : -ENOSPC;
}

size_t dns_query_without_edns(uint8_t *message, size_t size)
{
	message[DNS_HEADER_SIZE - 1] = 0; /* the count of additional records */
	return size - DNS_OPT_SIZE;
}

size_t dns_refusal_write(void *buf, size_t size, const struct dns_query *q,
			 const struct dns_refusal *refusal)
{
	const struct dns_writer_flags flags = {
		.tc = refusal->tc,
		.rcode = refusal->rcode,
	};
	struct dns_writer d;

	assert(size >= DNS_UDP_MIN);
	dns_writer_start(&d, buf, DNS_UDP_MIN, q);
	if (refusal->soa && q->name.size > 0)
		dns_writer_soa(&d, &q->name, refusal->rcode != DNS_NXDOMAIN,
			       refusal->ttl_sec);
	return dns_writer_finish(&d, &flags, refusal->ede, refusal->ede_text);
}
