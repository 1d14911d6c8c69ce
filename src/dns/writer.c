// SPDX-License-Identifier: Apache-2.0
#include "dns/writer.h"

#include <assert.h>
#include <string.h>

enum {
	OPTION_EDE = 15,
	OPTION_EDE_SIZE = 6, /* code, length, info code */
	EDE_TEXT_MAX = 64,
};

/* What the SOA says besides its TTLs; nobody may transfer or refresh from us. */
static const struct dns_name soa_server = {
	.size = 14,
	.labels = 2,
	.bytes = "\x04weir\x07invalid",
};
static const struct dns_name soa_mailbox = {
	.size = 21,
	.labels = 3,
	.bytes = "\x06nobody\x04weir\x07invalid",
};

/* Remember where the labels of @name stand that was just written at @offset, as far as
 * @written octets of it were written out. */
static void add_targets(struct dns_writer *d, const struct dns_name *name, size_t offset,
			size_t written)
{
	for (size_t at = 0; at < written && name->bytes[at] != 0;
	     at += 1u + name->bytes[at]) {
		if (offset + at > DNS_POINTER_OFFSET_MAX ||
		    d->target_count == DNS_WRITER_TARGETS_MAX)
			return;
		d->targets[d->target_count].offset = (uint16_t)(offset + at);
		d->targets[d->target_count].size = (uint8_t)(name->size - at);
		d->target_count++;
	}
}

/* The target: where the @size octets of a name at @bytes stand already; 0: nowhere. The
 * latest first: it is where most owners are. */
static uint16_t find_target(const struct dns_writer *d, const uint8_t *bytes, size_t size)
{
	for (size_t i = d->target_count; i > 0; i--) {
		if (d->targets[i - 1].size == size &&
		    dns_name_is_at(&d->wire, d->targets[i - 1].offset, bytes))
			return d->targets[i - 1].offset;
	}
	return 0;
}

void dns_writer_start(struct dns_writer *d, void *buf, size_t size,
		      const struct dns_query *q)
{
	size_t reserved = q->has_edns ? DNS_OPT_SIZE : 0;

	assert(size >= DNS_UDP_MIN);
	d->wire = wire_writer(buf, MIN(size, (size_t)DNS_MESSAGE_MAX) - reserved);
	d->end_reserved = reserved;
	d->query = q;
	d->answers = 0;
	d->authorities = 0;
	d->target_count = 0;
	d->owner = NULL;
	(void)wire_take(&d->wire, DNS_HEADER_SIZE);
	if (q->name.size == 0)
		return;
	wire_write_bytes(&d->wire, q->raw_name, q->name.size);
	wire_write_u16(&d->wire, q->type);
	wire_write_u16(&d->wire, q->class);
	add_targets(d, &q->name, DNS_HEADER_SIZE, q->name.size);
}

void dns_writer_name(struct dns_writer *d, const struct dns_name *name)
{
	size_t offset = wire_offset(&d->wire);
	uint16_t target = 0;
	size_t at = 0;

	/* The longest end of the name that stands in the message already. */
	while (name->bytes[at] != 0) {
		target = find_target(d, name->bytes + at, name->size - at);
		if (target != 0)
			break;
		at += 1u + name->bytes[at];
	}
	wire_write_bytes(&d->wire, name->bytes, at);
	if (target != 0)
		wire_write_u16(&d->wire, DNS_POINTER | target);
	else
		wire_write_u8(&d->wire, 0);
	if (wire_ok(&d->wire))
		add_targets(d, name, offset, at);
}

size_t dns_writer_record(struct dns_writer *d, const struct dns_name *owner,
			 uint16_t type, uint32_t ttl_sec)
{
	size_t at = wire_offset(&d->wire);

	if (owner == d->owner && d->owner_target != 0) {
		wire_write_u16(&d->wire, DNS_POINTER | d->owner_target);
	} else {
		dns_writer_name(d, owner);
		d->owner = owner;
		d->owner_target = 0;
		/* The target is where the name stands now, or where it points to. */
		if (wire_ok(&d->wire) && wire_offset(&d->wire) - at == 2 &&
		    d->wire.start[at] >= DNS_POINTER >> 8)
			at = (size_t)(d->wire.start[at] << 8 | d->wire.start[at + 1]) &
			     DNS_POINTER_OFFSET_MAX;
		if (wire_ok(&d->wire) && at <= DNS_POINTER_OFFSET_MAX)
			d->owner_target = (uint16_t)at;
	}
	wire_write_u16(&d->wire, type);
	wire_write_u16(&d->wire, DNS_CLASS_IN);
	wire_write_u32(&d->wire, ttl_sec);
	wire_write_u16(&d->wire, 0);
	return wire_offset(&d->wire);
}

void dns_writer_record_end(struct dns_writer *d, size_t rdata)
{
	struct wire length = d->wire;

	if (!wire_ok(&d->wire))
		return;
	wire_seek(&length, rdata - 2);
	wire_write_u16(&length, (uint16_t)(wire_offset(&d->wire) - rdata));
}

void dns_writer_soa(struct dns_writer *d, const struct dns_name *name, bool exists,
		    uint32_t ttl_sec)
{
	struct dns_name owner = *name;
	size_t rdata;

	/* The parent of a name that doesn't exist; the root has none. */
	if (!exists && name->labels > 0) {
		size_t skip = 1u + name->bytes[0];

		owner.size = (uint8_t)(name->size - skip);
		owner.labels--;
		memcpy(owner.bytes, name->bytes + skip, owner.size);
	}
	rdata = dns_writer_record(d, &owner, DNS_TYPE_SOA, ttl_sec);
	dns_writer_name(d, &soa_server);
	dns_writer_name(d, &soa_mailbox);
	wire_write_u32(&d->wire, 1);	   /* serial */
	wire_write_u32(&d->wire, 3600);	   /* refresh */
	wire_write_u32(&d->wire, 600);	   /* retry */
	wire_write_u32(&d->wire, 86400);   /* expire */
	wire_write_u32(&d->wire, ttl_sec); /* minimum: the negative TTL */
	dns_writer_record_end(d, rdata);
	d->owner = NULL; /* ours goes with this call */
	if (wire_ok(&d->wire))
		d->authorities++;
}

void dns_writer_rewind(struct dns_writer *d, size_t offset)
{
	d->wire.failed = false;
	wire_seek(&d->wire, offset);
	d->owner = NULL;
	while (d->target_count > 0 && d->targets[d->target_count - 1].offset >= offset)
		d->target_count--;
}

size_t dns_writer_finish(struct dns_writer *d, const struct dns_writer_flags *flags,
			 enum dns_ede ede, struct text ede_text)
{
	const struct dns_query *q = d->query;
	const int bits = DNS_FLAG_QR | DNS_FLAG_RA |
			 (q->opcode << DNS_OPCODE_SHIFT & DNS_FLAG_OPCODE) |
			 (flags->tc ? DNS_FLAG_TC : 0) | (q->rd ? DNS_FLAG_RD : 0) |
			 (flags->ad ? DNS_FLAG_AD : 0) | (q->cd ? DNS_FLAG_CD : 0) |
			 (flags->rcode & DNS_FLAG_RCODE);
	struct wire header, *w = &d->wire;
	size_t rdata;

	assert(wire_ok(w));
	if (q->has_edns) {
		w->end += d->end_reserved;
		wire_write_u8(w, 0); /* the root */
		wire_write_u16(w, DNS_TYPE_OPT);
		wire_write_u16(w, DNS_UDP_OURS);
		wire_write_u8(w, (uint8_t)(flags->rcode >> 4));
		wire_write_u8(w, 0); /* version */
		wire_write_u16(w, q->dnssec_ok ? DNS_OPT_DO : 0);
		wire_write_u16(w, 0);
		rdata = wire_offset(w);
		if (ede != DNS_EDE_NONE && wire_left(w) >= OPTION_EDE_SIZE) {
			size_t len = MIN(ede_text.len, (size_t)EDE_TEXT_MAX);

			len = MIN(len, wire_left(w) - OPTION_EDE_SIZE);
			wire_write_u16(w, OPTION_EDE);
			wire_write_u16(w, (uint16_t)(2 + len));
			wire_write_u16(w, (uint16_t)ede);
			wire_write_bytes(w, ede_text.ptr, len);
		}
		dns_writer_record_end(d, rdata);
	}
	assert(wire_ok(w));

	header = wire_writer(w->start, DNS_HEADER_SIZE);
	wire_write_u16(&header, q->id);
	wire_write_u16(&header, (uint16_t)bits);
	wire_write_u16(&header, q->name.size > 0 ? 1 : 0);
	wire_write_u16(&header, d->answers);
	wire_write_u16(&header, d->authorities);
	wire_write_u16(&header, q->has_edns ? 1 : 0);
	return wire_offset(&d->wire);
}
