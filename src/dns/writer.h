// SPDX-License-Identifier: Apache-2.0
/* dns/writer - building a reply: header, question, compressed records, OPT.
 *
 * For dns/message and dns/answer only. Room for the OPT record is set aside at the
 * start, so that whatever was written before, dns_writer_finish() succeeds. */
#pragma once

#include "dns/message.h"

enum {
	/* Where in the message later names may point to; when the table is full,
	 * later names are written out in full. */
	DNS_WRITER_TARGETS_MAX = 64,
};

struct dns_writer {
	struct wire wire;
	size_t end_reserved; /* octets behind wire.end that are kept for the OPT */
	const struct dns_query *query; /* borrowed */
	uint16_t answers;
	uint16_t authorities;
	uint8_t target_count;
	uint16_t owner_target;	      /* where its name stands; 0: in no reach */
	const struct dns_name *owner; /* of the last record; only compared */
	struct {
		uint16_t offset; /* in the message */
		uint8_t size;	 /* of the name there, uncompressed */
	} targets[DNS_WRITER_TARGETS_MAX];
};

/* Bits for the header's second word that aren't echoed from the query. */
struct dns_writer_flags {
	bool ad, tc;
	enum dns_rcode rcode;
};

/* Space for the header, and the question if @q has one. @size is DNS_UDP_MIN at
 * least; @q lives until dns_writer_finish(). */
void dns_writer_start(struct dns_writer *d, void *buf, size_t size,
		      const struct dns_query *q);

void dns_writer_name(struct dns_writer *d, const struct dns_name *name);

/* Everything of a record in front of its rdata. Records that follow each other with the
 * same @owner, by its address, cost one look-up of its target. Return: where the rdata
 * begins, for dns_writer_record_end(). Check wire_ok(&d->wire) after the end. */
size_t dns_writer_record(struct dns_writer *d, const struct dns_name *owner,
			 uint16_t type, uint32_t ttl_sec);
void dns_writer_record_end(struct dns_writer *d, size_t rdata);

/* A SOA record of our own for a negative answer about @name: at its parent if the name
 * doesn't exist, else at itself. */
void dns_writer_soa(struct dns_writer *d, const struct dns_name *name, bool exists,
		    uint32_t ttl_sec);

/* Take back everything behind @offset, and any failure. */
void dns_writer_rewind(struct dns_writer *d, size_t offset);

/* The OPT record, if the query had one, with an extended error unless @ede is
 * DNS_EDE_NONE; and the header. Return: size of the message. */
size_t dns_writer_finish(struct dns_writer *d, const struct dns_writer_flags *flags,
			 enum dns_ede ede, struct text ede_text);
