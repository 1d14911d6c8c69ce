// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The question is compared with what was sent before anything else is looked
 * at: a message that fails there may be forged and says nothing. Then the answer
 * section is walked twice. The first walk checks that every record fits, keeps the
 * CNAMEs in a small table and marks the first record of the asked type. The chain is
 * then followed through the table, so the order of records doesn't matter. The second
 * walk takes the records of the asked type whose owner is where the chain ended.
 * Owners are compared where they stand in the message; only CNAME targets are copied
 * out. Authority is walked only for an answer without records, for the SOA's TTL.
 *
 * Of a reply to the sandbox every part is written as if there were space, and taken back
 * if there was none.
 *
 * Work is bounded: two walks over 64 KiB at most, and 16 links over 32 CNAMEs. */
#include "dns/answer.h"

#include <assert.h>
#include <string.h>

#include "dns/writer.h"

enum {
	QUESTION_TAIL = 4, /* type and class */
	RECORD_TAIL = 10,  /* type, class, TTL, length of the rdata */
	SOA_TAIL = 16,	   /* serial, refresh, retry, expire */
	POINTER_SIZE = 2,
	/* CNAMEs in one answer section, used or not; more is DNS_ANSWER_BAD. */
	CNAMES_MAX = 2 * DNS_CHAIN_MAX,
};

/* A record where it stands in the message. */
struct record {
	uint32_t ttl_sec;
	uint16_t owner; /* offset of its name */
	uint16_t rdata; /* offset */
	uint16_t size;	/* of the rdata */
	uint16_t type, class;
};

struct reading {
	struct wire wire;
	const struct dns_asked *asked;
	struct dns_answer *answer;
	uint16_t flags;
	uint16_t answers, authorities; /* records in those sections */
	struct record cnames[CNAMES_MAX];
	unsigned int cname_count;
	unsigned int first_match;   /* number of the first record of the asked type */
	struct wire at_match;	    /* a reader that stands there */
	const struct dns_name *end; /* the name where the chain has come to */
	size_t end_offset;	    /* where that stands in the message */
	size_t budget;		    /* octets that are left in a reply for more records */
};

/* How the rdata of a type is copied: @fixed octets, then a name or the rest. */
struct layout {
	uint16_t type;
	uint8_t fixed;
	bool name;
};

static const struct layout layouts[] = {
	{ DNS_TYPE_PTR, 0, true },
	{ DNS_TYPE_MX, 2, true },
	{ DNS_TYPE_SRV, 6, true },
	{ DNS_TYPE_TXT, 0, false },
};

static const struct layout *find_layout(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		if (layouts[i].type == type)
			return &layouts[i];
	}
	return NULL;
}

static uint16_t get_u16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* RFC 2181, section 8: a TTL with its top bit set is 0. */
static uint32_t get_ttl(const uint8_t *p)
{
	uint32_t ttl_sec = (uint32_t)get_u16(p) << 16 | get_u16(p + 2);

	return ttl_sec > INT32_MAX ? 0 : ttl_sec;
}

static bool next_record(struct wire *w, struct record *ret)
{
	const uint8_t *tail;
	uint8_t length;

	/* Move behind the name without following its pointer. */
	ret->owner = (uint16_t)wire_offset(w);
	length = wire_read_u8(w);
	while (length > 0 && length <= DNS_LABEL_MAX) {
		(void)wire_take(w, length);
		length = wire_read_u8(w);
	}
	if (length > 0)
		(void)wire_take(w, 1);
	tail = wire_take(w, RECORD_TAIL);
	if (!tail)
		return false;
	ret->type = get_u16(tail);
	ret->class = get_u16(tail + 2);
	ret->ttl_sec = get_ttl(tail + 4);
	ret->size = get_u16(tail + 8);
	ret->rdata = (uint16_t)wire_offset(w);
	return wire_take(w, ret->size) != NULL;
}

/* The first walk. Return: false when the section is malformed. */
static bool index_answers(struct reading *r)
{
	struct record record;

	r->cname_count = 0;
	r->first_match = r->answers;
	r->at_match = r->wire;
	for (unsigned int i = 0; i < r->answers; i++) {
		struct wire at = r->wire;

		if (!next_record(&r->wire, &record))
			return false;
		if (record.class != DNS_CLASS_IN)
			continue;
		if (record.type == DNS_TYPE_CNAME) {
			if (r->cname_count == CNAMES_MAX)
				return false;
			r->cnames[r->cname_count++] = record;
		} else if (record.type == r->asked->type && r->first_match > i) {
			r->first_match = i;
			r->at_match = at;
		}
	}
	return true;
}

/* Whether the record belongs to the name where the chain has come to. Nearly always
 * its owner is one pointer to that very place. */
static bool is_at_end(const struct reading *r, const struct record *record)
{
	const uint8_t *owner = r->wire.start + record->owner;

	if (r->end_offset <= DNS_POINTER_OFFSET_MAX &&
	    get_u16(owner) == (DNS_POINTER | r->end_offset))
		return true;
	return dns_name_is_at(&r->wire, record->owner, r->end->bytes);
}

static bool is_in_chain(const struct reading *r, const struct dns_name *name)
{
	if (dns_name_equal(name, &r->asked->name))
		return true;
	for (size_t i = 0; i < r->answer->chain_count; i++) {
		if (dns_name_equal(name, &r->answer->chain[i]))
			return true;
	}
	return false;
}

/* From the question through the CNAMEs. Return: false when two of them have one owner, or
 * when one is malformed, leads back, or is one too many. */
static bool follow_chain(struct reading *r)
{
	struct dns_answer *a = r->answer;

	r->end = &r->asked->name;
	r->end_offset = DNS_HEADER_SIZE;
	for (;;) {
		const struct record *link = NULL;
		struct wire w = r->wire;
		struct dns_name *target;

		for (unsigned int i = 0; i < r->cname_count; i++) {
			if (!is_at_end(r, &r->cnames[i]))
				continue;
			if (link)
				return false;
			link = &r->cnames[i];
		}
		if (!link)
			return true;
		if (a->chain_count == DNS_CHAIN_MAX)
			return false;
		target = &a->chain[a->chain_count];
		wire_seek(&w, link->rdata);
		if (dns_name_read(&w, target, NULL) < 0 ||
		    wire_offset(&w) != (size_t)link->rdata + link->size ||
		    is_in_chain(r, target))
			return false;
		a->chain_ttl_sec[a->chain_count++] = link->ttl_sec;
		a->ttl_sec = MIN(a->ttl_sec, link->ttl_sec);
		r->end = target;
		r->end_offset = link->rdata;
	}
}

static bool take_addr(struct reading *r, const struct record *record)
{
	enum addr_family family = record->type == DNS_TYPE_A ? ADDR_V4 : ADDR_V6;
	struct dns_answer *a = r->answer;

	if (record->size != (family == ADDR_V4 ? 4 : 16))
		return false;
	if (a->addr_count == DNS_ADDRESSES_MAX) {
		a->skipped++;
		return true;
	}
	a->addrs[a->addr_count++] = (struct dns_answer_addr){
		.addr = addr_from_bytes(family, r->wire.start + record->rdata),
		.ttl_sec = record->ttl_sec,
	};
	a->ttl_sec = MIN(a->ttl_sec, record->ttl_sec);
	return true;
}

/* What a name that has been written before may take as an owner: all of it where the
 * writer could not remember where. The question it remembers. */
static size_t owner_size(const struct reading *r, const struct dns_name *owner)
{
	return owner == &r->asked->name ? POINTER_SIZE : owner->size;
}

/* Keep the record, its rdata with the name uncompressed. Return: false when it is
 * malformed. */
static bool take_record(struct reading *r, const struct record *record)
{
	const struct layout *layout = find_layout(record->type);
	const uint8_t *from = r->wire.start + record->rdata;
	struct dns_answer *a = r->answer;
	struct wire w = r->wire, to = wire_writer(a->rdata, sizeof(a->rdata));
	uint8_t raw[DNS_NAME_MAX];
	struct dns_name name;
	size_t size;

	wire_seek(&to, a->rdata_size);
	if (layout->name) {
		wire_seek(&w, (size_t)record->rdata + layout->fixed);
		if (dns_name_read(&w, &name, raw) < 0 ||
		    wire_offset(&w) != (size_t)record->rdata + record->size)
			return false;
		wire_write_bytes(&to, from, layout->fixed);
		wire_write_bytes(&to, raw, name.size);
	} else {
		wire_write_bytes(&to, from, record->size);
		/* One or more character strings and nothing else (RFC 1035, section
		 * 3.3). */
		w = wire_reader(from, record->size);
		do {
			(void)wire_take(&w, wire_read_u8(&w));
		} while (wire_left(&w) > 0);
		if (!wire_ok(&w))
			return false;
	}
	size = owner_size(r, r->end) + RECORD_TAIL + wire_offset(&to) - a->rdata_size;
	if (!wire_ok(&to) || a->record_count == DNS_RECORDS_MAX || size > r->budget) {
		a->skipped++;
		return true;
	}
	r->budget -= size;
	a->records[a->record_count++] = (struct dns_answer_record){
		.ttl_sec = record->ttl_sec,
		.offset = a->rdata_size,
		.size = (uint16_t)(wire_offset(&to) - a->rdata_size),
	};
	a->rdata_size = (uint16_t)wire_offset(&to);
	a->ttl_sec = MIN(a->ttl_sec, record->ttl_sec);
	return true;
}

static bool is_addr_type(uint16_t type)
{
	return type == DNS_TYPE_A || type == DNS_TYPE_AAAA;
}

/* The second walk, over records that the first has found to fit. */
static bool take_answers(struct reading *r)
{
	bool (*take)(struct reading * r, const struct record *record) =
		is_addr_type(r->asked->type) ? take_addr : take_record;
	const struct dns_name *owner = &r->asked->name;
	struct record record;

	/* Names in rdata come compressed and leave uncompressed, so not all that fits a
	 * message fits a reply. */
	r->budget = DNS_MESSAGE_MAX -
		    (DNS_HEADER_SIZE + owner->size + QUESTION_TAIL + DNS_OPT_SIZE);
	for (size_t i = 0; i < r->answer->chain_count; i++) {
		r->budget -=
			owner_size(r, owner) + RECORD_TAIL + r->answer->chain[i].size;
		owner = &r->answer->chain[i];
	}
	for (unsigned int i = r->first_match; i < r->answers; i++) {
		if (!next_record(&r->at_match, &record))
			return false;
		if (record.type != r->asked->type || record.class != DNS_CLASS_IN ||
		    !is_at_end(r, &record))
			continue;
		if (!take(r, &record))
			return false;
	}
	return true;
}

/* A SOA says how long the chain's end may be remembered not to exist only if it is of
 * a zone that holds that name. */
static bool is_soa_for_end(const struct reading *r, const struct record *record)
{
	struct wire w = r->wire;
	struct dns_name zone;

	wire_seek(&w, record->owner);
	return record->type == DNS_TYPE_SOA && record->class == DNS_CLASS_IN &&
	       dns_name_read(&w, &zone, NULL) == 0 && dns_name_is_within(r->end, &zone);
}

static enum dns_answer_kind read_negative(struct reading *r, enum dns_answer_kind kind)
{
	struct dns_answer *a = r->answer;
	bool has_ns = false;
	struct record record;

	for (unsigned int i = 0; i < r->authorities; i++) {
		struct wire w = r->wire;
		struct dns_name name;
		const uint8_t *minimum;

		if (!next_record(&r->wire, &record))
			return DNS_ANSWER_BAD;
		has_ns |= record.type == DNS_TYPE_NS;
		if (!is_soa_for_end(r, &record))
			continue;
		/* RFC 2308, section 5: the lesser of the SOA's TTL and its MINIMUM. */
		wire_seek(&w, record.rdata);
		if (dns_name_read(&w, &name, NULL) < 0 ||
		    dns_name_read(&w, &name, NULL) < 0)
			return DNS_ANSWER_BAD;
		(void)wire_take(&w, SOA_TAIL);
		minimum = wire_take(&w, 4);
		if (!minimum || wire_offset(&w) != (size_t)record.rdata + record.size)
			return DNS_ANSWER_BAD;
		a->ttl_sec = MIN(a->ttl_sec, record.ttl_sec);
		a->ttl_sec = MIN(a->ttl_sec, get_ttl(minimum));
		return kind;
	}
	a->ttl_sec = 0;
	if (kind == DNS_ANSWER_NODATA && has_ns && !(r->flags & DNS_FLAG_AA))
		return DNS_ANSWER_FAILED; /* "ask those": the server doesn't recurse */
	return kind;
}

/* A server that can't read EDNS may leave the question out (RFC 6891, section 7). */
static bool is_bare_formerr(const uint8_t *header, uint16_t id)
{
	return get_u16(header) == id && get_u16(header + 4) == 0 &&
	       header[2] & DNS_FLAG_QR >> 8 &&
	       (header[3] & DNS_FLAG_RCODE) == DNS_FORMERR;
}

static enum dns_answer_kind read_message(struct reading *r)
{
	const struct dns_asked *asked = r->asked;
	const uint8_t *header = wire_take(&r->wire, DNS_HEADER_SIZE);
	const uint8_t *question = wire_take(&r->wire, asked->name.size + QUESTION_TAIL);
	struct dns_answer *a = r->answer;

	if (header && is_bare_formerr(header, asked->id)) {
		a->rcode = DNS_FORMERR;
		return DNS_ANSWER_FAILED;
	}
	/* Are header and question those of our question? */
	if (!question || get_u16(header) != asked->id || get_u16(header + 4) != 1)
		return DNS_ANSWER_MISMATCH;
	r->flags = get_u16(header + 2);
	r->answers = get_u16(header + 6);
	r->authorities = get_u16(header + 8);
	if ((r->flags & (DNS_FLAG_QR | DNS_FLAG_OPCODE)) != DNS_FLAG_QR ||
	    memcmp(question, asked->case_name, asked->name.size) != 0 ||
	    get_u16(question + asked->name.size) != asked->type ||
	    get_u16(question + asked->name.size + 2) != DNS_CLASS_IN)
		return DNS_ANSWER_MISMATCH;
	a->rcode = (enum dns_rcode)(r->flags & DNS_FLAG_RCODE);
	a->ad = r->flags & DNS_FLAG_AD;
	if (a->rcode != DNS_NOERROR && a->rcode != DNS_NXDOMAIN)
		return DNS_ANSWER_FAILED;
	if (r->flags & DNS_FLAG_TC)
		return DNS_ANSWER_TRUNCATED;
	if (!is_addr_type(asked->type) && !find_layout(asked->type))
		return DNS_ANSWER_BAD;
	if (!index_answers(r) || !follow_chain(r))
		return DNS_ANSWER_BAD;
	if (a->rcode == DNS_NXDOMAIN)
		return read_negative(r, DNS_ANSWER_NXDOMAIN);
	if (!take_answers(r))
		return DNS_ANSWER_BAD;
	if (a->addr_count == 0 && a->record_count == 0)
		return read_negative(r, DNS_ANSWER_NODATA);
	return DNS_ANSWER_RECORDS;
}

static void forget_records(struct dns_answer *a)
{
	a->ttl_sec = 0;
	a->chain_count = 0;
	a->addr_count = 0;
	a->record_count = 0;
	a->skipped = 0;
	a->rdata_size = 0;
}

void dns_answer_read(const void *bytes, size_t size, const struct dns_asked *asked,
		     struct dns_answer *ret)
{
	struct reading r;

	assert(asked->name.size > 0);
	r.wire = wire_reader(bytes, MIN(size, (size_t)DNS_MESSAGE_MAX));
	r.asked = asked;
	r.answer = ret;
	ret->rcode = DNS_NOERROR;
	ret->ad = false;
	forget_records(ret);
	ret->ttl_sec = UINT32_MAX; /* over every TTL, until one is met */
	ret->kind = read_message(&r);
	if (ret->kind < DNS_ANSWER_NXDOMAIN)
		forget_records(ret);
}

/* ---- what goes to the sandbox ---- */

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

/* Everything behind the question. *@ret_written, 0 before, gets the bits of the addresses
 * that were written. Return: whether it is all that it has to be. */
static bool write_sections(struct dns_writer *d, const struct dns_answer *a,
			   uint32_t keep, uint32_t cap_sec, uint32_t *ret_written)
{
	const struct dns_name *end = &d->query->name;

	for (size_t i = 0; i < a->chain_count; i++) {
		size_t rdata = dns_writer_record(d, end, DNS_TYPE_CNAME,
						 MIN(a->chain_ttl_sec[i], cap_sec));

		dns_writer_name(d, &a->chain[i]);
		dns_writer_record_end(d, rdata);
		d->answers++;
		end = &a->chain[i];
	}
	if (!wire_ok(&d->wire))
		return false;
	if (a->kind == DNS_ANSWER_RECORDS && a->record_count > 0) {
		for (size_t i = 0; i < a->record_count; i++)
			(void)write_record(d, end, MIN(a->records[i].ttl_sec, cap_sec),
					   a->rdata + a->records[i].offset,
					   a->records[i].size);
	} else if (a->kind == DNS_ANSWER_RECORDS && keep != 0) {
		/* As many as fit. */
		for (size_t i = 0; i < a->addr_count && wire_ok(&d->wire); i++) {
			const struct dns_answer_addr *addr = &a->addrs[i];
			size_t before = wire_offset(&d->wire);

			if (!(keep >> i & 1))
				continue;
			if (!write_record(d, end, MIN(addr->ttl_sec, cap_sec),
					  addr->addr.bytes, addr_size(&addr->addr))) {
				dns_writer_rewind(d, before);
				break;
			}
			*ret_written |= (uint32_t)1 << i;
		}
		return *ret_written != 0;
	} else {
		dns_writer_soa(d, end, a->kind != DNS_ANSWER_NXDOMAIN,
			       MIN(a->ttl_sec, cap_sec));
	}
	return wire_ok(&d->wire);
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
		/* RFC 6840, section 5.7 and 5.8. A SOA of ours isn't authentic. */
		flags.ad = a->ad && (q->ad || q->dnssec_ok) &&
			   a->kind == DNS_ANSWER_RECORDS && a->skipped == 0 &&
			   written == all && !flags.tc;
	}
	if (flags.tc) {
		dns_writer_rewind(&d, question_end);
		d.answers = 0;
		d.authorities = 0;
	}
	*ret_written = written;
	return dns_writer_finish(&d, &flags, ede, form->left_out);
}
