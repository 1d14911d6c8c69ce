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
	DNS_CHAIN_MAX = 16,     /* CNAME links; a longer chain is DNS_ANSWER_BAD */
	DNS_ADDRESSES_MAX = 32, /* taken from one answer; the rest is left out */
	DNS_RECORDS_MAX = 32,   /* PTR, SRV, MX, TXT records taken from one answer */
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

/* A record of another type than A and AAAA, its names uncompressed. */
struct dns_answer_record {
	uint32_t ttl_sec;
	uint16_t offset, size; /* of its rdata in answer->rdata */
};

struct dns_answer {
	enum dns_answer_kind kind;
	enum dns_rcode rcode;
	bool ad;
	uint32_t ttl_sec;      /* the smallest of the chain; for NXDOMAIN and NODATA the
	                        * negative TTL of RFC 2308, 0 without a SOA */
	uint8_t chain_count;   /* CNAME targets, in order */
	uint8_t addr_count;
	uint8_t record_count;
	uint16_t skipped;      /* addresses over DNS_ADDRESSES_MAX */
	struct dns_name chain[DNS_CHAIN_MAX];
	uint32_t chain_ttl_sec[DNS_CHAIN_MAX];
	struct dns_answer_addr addrs[DNS_ADDRESSES_MAX];
	struct dns_answer_record records[DNS_RECORDS_MAX];
	uint16_t rdata_size;
	uint8_t rdata[4096];
};

/* Never fails: what can't be used is a kind. */
void dns_answer_read(const void *bytes, size_t size,
		     const struct dns_asked *asked, struct dns_answer *ret);

/* Write the reply to the sandbox from @a: the question echoed, the CNAME chain,
 * addresses (those whose bit in @keep is set; TTLs no greater than @ttl_cap_sec),
 * compressed, own EDNS when the client sent one. As many addresses as fit @limit are
 * written and no TC set; TC only when none fits. ret_written gets the bits of the
 * addresses that were written: exactly those may be learned.
 * Return: size. */
size_t dns_reply_write(void *buf, size_t size, size_t limit,
		       const struct dns_query *q, const struct dns_answer *a,
		       uint32_t keep, uint32_t ttl_cap_sec,
		       uint32_t *ret_written);
