// SPDX-License-Identifier: Apache-2.0
/* dns/answer - what an upstream's response says about the question that we asked.
 *
 * Only the chain from the question through CNAMEs to the records of the asked type
 * is read, in whatever order the answer section has it; other owners, classes, types
 * and the other sections teach nothing. */
#pragma once

#include "base/addr.h"
#include "dns/message.h"

enum {
	DNS_CHAIN_MAX = 16,	/* CNAME links; a longer chain is DNS_ANSWER_BAD */
	DNS_ADDRESSES_MAX = 32, /* taken from one answer; the rest is left out */
	DNS_RECORDS_MAX = 1024, /* PTR, SRV, MX, TXT records taken from one answer */
	DNS_RDATA_MAX = 65535,	/* octets of them, their names uncompressed */
};

enum dns_answer_kind {
	DNS_ANSWER_BAD = 0,   /* unreadable, loop, chain too long: as if lost */
	DNS_ANSWER_MISMATCH,  /* not the answer to our question: wait on */
	DNS_ANSWER_TRUNCATED, /* ask again over TCP */
	DNS_ANSWER_FAILED,    /* SERVFAIL, REFUSED, NOTIMP …: try another upstream */
	DNS_ANSWER_NXDOMAIN,
	DNS_ANSWER_NODATA,
	DNS_ANSWER_RECORDS,
};

/* What was asked, to hold a response against. */
struct dns_asked {
	uint16_t id;
	uint16_t type;
	struct dns_name name;
	uint8_t case_name[DNS_NAME_MAX]; /* as sent; the echo must be the same octets */
};

struct dns_answer_addr {
	struct addr addr;
	uint32_t ttl_sec;
};

/* A record of type PTR, SRV, MX or TXT, its names uncompressed. */
struct dns_answer_record {
	uint32_t ttl_sec;
	uint16_t offset, size; /* of its rdata in answer->rdata */
};

struct dns_answer {
	enum dns_answer_kind kind;
	enum dns_rcode rcode;
	bool ad;
	uint32_t ttl_sec;    /* the smallest of the chain; for NXDOMAIN and NODATA no
			      * more than the negative TTL of RFC 2308, 0 without SOA */
	uint8_t chain_count; /* CNAME targets, in order */
	uint8_t addr_count;
	uint16_t record_count;
	uint16_t skipped; /* addresses and records that had no room here, or would have
			   * none in a reply of DNS_MESSAGE_MAX */
	uint16_t rdata_size;
	struct dns_name chain[DNS_CHAIN_MAX];
	uint32_t chain_ttl_sec[DNS_CHAIN_MAX];
	struct dns_answer_addr addrs[DNS_ADDRESSES_MAX];
	struct dns_answer_record records[DNS_RECORDS_MAX];
	uint8_t rdata[DNS_RDATA_MAX];
};

/* Never fails: what can't be used is a kind. DNS_ANSWER_MISMATCH unless the id, the
 * QR bit and the question with the case it was sent in all agree; FORMERR needs no
 * question. Then: a rcode other than NOERROR and NXDOMAIN, or a referral, is
 * DNS_ANSWER_FAILED. Anything malformed on the way to the records is DNS_ANSWER_BAD, as
 * are a CNAME loop, two CNAMEs for one owner, and another asked->type than A, AAAA, PTR,
 * SRV, MX, TXT. */
void dns_answer_read(const void *bytes, size_t size, const struct dns_asked *asked,
		     struct dns_answer *ret);

/* What a reply may carry. */
struct dns_reply_form {
	size_t limit;	      /* octets; less than DNS_UDP_MIN counts as that */
	uint32_t keep;	      /* bits of the addresses that may be in the reply */
	uint32_t ttl_cap_sec; /* no TTL is greater */
	struct text left_out; /* why some are not, for EDE 15; empty: none is left out */
};

/* Write the reply to the sandbox from @a, whose kind is RECORDS, NODATA or NXDOMAIN
 * (SERVFAIL is written for any other): the question echoed, the CNAME chain, the
 * addresses that are kept, or the other records; compressed; own EDNS when the client
 * sent one. Addresses of which none is kept, NODATA and NXDOMAIN end in a SOA of our
 * own.
 *
 * As many addresses as fit the limit are written and no TC set; TC only when none fits.
 * Other records are written all or not at all. ret_written gets the bits of the
 * addresses that were written: exactly those may be learned. AD is set when the
 * upstream set it, the client wants it and nothing was left out.
 *
 * @buf holds DNS_UDP_MIN at least. Return: size. */
size_t dns_reply_write(void *buf, size_t size, const struct dns_query *q,
		       const struct dns_answer *a, const struct dns_reply_form *form,
		       uint32_t *ret_written);
