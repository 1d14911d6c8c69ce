// SPDX-License-Identifier: Apache-2.0
/* The other half of dns/answer: what goes to the sandbox. Every part is written as if
 * there were room, and taken back if there was none. */
#include "dns/answer.h"

#include <assert.h>

#include "dns/writer.h"

static const struct dns_name *answer_end(const struct dns_query *q,
					 const struct dns_answer *a)
{
	return a->chain_count > 0 ? &a->chain[a->chain_count - 1] : &q->name;
}

static void write_chain(struct dns_writer *d, const struct dns_answer *a,
			uint32_t cap_sec)
{
	const struct dns_name *owner = &d->query->name;

	for (size_t i = 0; i < a->chain_count; i++) {
		size_t rdata = dns_writer_record(d, owner, DNS_TYPE_CNAME,
						 MIN(a->chain_ttl_sec[i], cap_sec));

		dns_writer_name(d, &a->chain[i]);
		dns_writer_record_end(d, rdata);
		d->answers++;
		owner = &a->chain[i];
	}
}

static bool write_record(struct dns_writer *d, const struct dns_name *owner,
			 uint32_t ttl_sec, const uint8_t *bytes, size_t size)
{
	size_t rdata = dns_writer_record(d, owner, d->query->type, ttl_sec);

	wire_write_bytes(&d->wire, bytes, size);
	dns_writer_record_end(d, rdata);
	if (!wire_ok(&d->wire))
		return false;
	d->answers++;
	return true;
}

/* As many as fit. Return: bits of those that were written. */
static uint32_t write_addrs(struct dns_writer *d, const struct dns_answer *a,
			    uint32_t keep, uint32_t cap_sec)
{
	const struct dns_name *owner = answer_end(d->query, a);
	uint32_t written = 0;

	for (size_t i = 0; i < a->addr_count && wire_ok(&d->wire); i++) {
		const struct dns_answer_addr *addr = &a->addrs[i];
		size_t before = wire_offset(&d->wire);

		if (!(keep >> i & 1))
			continue;
		if (!write_record(d, owner, MIN(addr->ttl_sec, cap_sec), addr->addr.bytes,
				  addr_size(&addr->addr))) {
			dns_writer_rewind(d, before);
			break;
		}
		written |= (uint32_t)1 << i;
	}
	return written;
}

static void write_records(struct dns_writer *d, const struct dns_answer *a,
			  uint32_t cap_sec)
{
	const struct dns_name *owner = answer_end(d->query, a);

	for (size_t i = 0; i < a->record_count; i++)
		(void)write_record(d, owner, MIN(a->records[i].ttl_sec, cap_sec),
				   a->rdata + a->records[i].offset, a->records[i].size);
}

/* Everything behind the question. Return: whether it is all that it has to be. */
static bool write_sections(struct dns_writer *d, const struct dns_answer *a,
			   uint32_t keep, uint32_t cap_sec, uint32_t *ret_written)
{
	write_chain(d, a, cap_sec);
	if (!wire_ok(&d->wire))
		return false;
	if (a->kind == DNS_ANSWER_RECORDS && a->record_count > 0) {
		write_records(d, a, cap_sec);
	} else if (a->kind == DNS_ANSWER_RECORDS && keep != 0) {
		*ret_written = write_addrs(d, a, keep, cap_sec);
		return *ret_written != 0;
	} else {
		dns_writer_soa(d, answer_end(d->query, a), a->kind != DNS_ANSWER_NXDOMAIN,
			       MIN(a->ttl_sec, cap_sec));
	}
	return wire_ok(&d->wire);
}

/* RFC 6840, section 5.7 and 5.8. A SOA of ours isn't authentic. */
static bool may_set_ad(const struct dns_query *q, const struct dns_answer *a,
		       bool all_written)
{
	return a->ad && (q->ad || q->dnssec_ok) && a->kind == DNS_ANSWER_RECORDS &&
	       a->skipped == 0 && all_written;
}

size_t dns_reply_write(void *buf, size_t size, const struct dns_query *q,
		       const struct dns_answer *a, const struct dns_reply_form *form,
		       uint32_t *ret_written)
{
	enum dns_ede ede = form->left_out.len > 0 ? DNS_EDE_BLOCKED : DNS_EDE_NONE;
	uint32_t all = a->addr_count == 0 ? 0 : UINT32_MAX >> (32 - a->addr_count);
	struct dns_writer_flags flags = { 0 };
	uint32_t written = 0;
	struct dns_writer d;
	size_t question_end;

	assert(q->name.size > 0);
	dns_writer_start(&d, buf, MIN(size, MAX(form->limit, (size_t)DNS_UDP_MIN)), q);
	question_end = wire_offset(&d.wire);
	if (a->kind < DNS_ANSWER_NXDOMAIN) {
		flags.rcode = DNS_SERVFAIL;
	} else {
		flags.rcode = a->kind == DNS_ANSWER_NXDOMAIN ? DNS_NXDOMAIN : DNS_NOERROR;
		flags.tc = !write_sections(&d, a, form->keep & all, form->ttl_cap_sec,
					   &written);
		flags.ad = may_set_ad(q, a, written == all && !flags.tc);
	}
	if (flags.tc) {
		dns_writer_rewind(&d, question_end);
		d.answers = 0;
		d.authorities = 0;
	}
	*ret_written = written;
	return dns_writer_finish(&d, &flags, ede, form->left_out);
}
