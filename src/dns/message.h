// SPDX-License-Identifier: Apache-2.0
/* dns/message - reading queries and writing replies (RFC 1035, 6891, 8914, 2308).
 *
 * Nothing here allocates, keeps state or looks at a clock. A query is read once into
 * a struct; it is never forwarded: upstream queries are written anew from that
 * struct (see dns_query_write). */
#pragma once

#include "dns/name.h"

enum {
	DNS_UDP_MIN = 512,   /* RFC 1035: without EDNS */
	DNS_UDP_OURS = 1232, /* our own EDNS size, DNS Flag Day 2020 */
	DNS_MESSAGE_MAX = 65535,
};

enum dns_type {
	DNS_TYPE_A = 1,
	DNS_TYPE_NS = 2,
	DNS_TYPE_CNAME = 5,
	DNS_TYPE_SOA = 6,
	DNS_TYPE_PTR = 12,
	DNS_TYPE_MX = 15,
	DNS_TYPE_TXT = 16,
	DNS_TYPE_AAAA = 28,
	DNS_TYPE_SRV = 33,
	DNS_TYPE_OPT = 41,
	DNS_TYPE_SVCB = 64,
	DNS_TYPE_HTTPS = 65,
	DNS_TYPE_ANY = 255,
};

enum { DNS_CLASS_IN = 1 };

/* Of the header's second word. */
enum dns_flag {
	DNS_FLAG_QR = 0x8000,
	DNS_FLAG_OPCODE = 0x7800,
	DNS_FLAG_AA = 0x0400,
	DNS_FLAG_TC = 0x0200,
	DNS_FLAG_RD = 0x0100,
	DNS_FLAG_RA = 0x0080,
	DNS_FLAG_AD = 0x0020,
	DNS_FLAG_CD = 0x0010,
	DNS_FLAG_RCODE = 0x000f,
};
enum {
	DNS_OPCODE_SHIFT = 11,
	DNS_OPT_DO = 0x8000,
	DNS_OPT_SIZE = 11 /* without options */
};

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
	DNS_BADVERS = 16, /* its upper bits stand in the OPT record (RFC 6891) */
};

/* RFC 8914, section 4. */
enum dns_ede {
	DNS_EDE_NONE = -1,
	DNS_EDE_OTHER = 0,
	DNS_EDE_BLOCKED = 15,
	DNS_EDE_NO_REACHABLE_AUTHORITY = 22,
	DNS_EDE_NETWORK_ERROR = 23,
};

/* A question from the sandbox. */
struct dns_query {
	uint16_t id;
	uint16_t type; /* as on the wire */
	uint16_t class;
	bool rd;	/* recursion desired, echoed */
	bool cd;	/* checking disabled, echoed */
	bool ad;	/* wants to know whether the data is authentic (RFC 6840) */
	uint8_t opcode; /* 0, unless the status is DNS_QUERY_NOTIMP */
	bool has_edns;
	bool dnssec_ok;			/* the DO bit */
	uint16_t udp_size;		/* what the client takes: 512 to 65535 */
	uint8_t raw_name[DNS_NAME_MAX]; /* the question's name, case kept, for the echo */
	struct dns_name name;
};

/* How a message from the sandbox is to be treated. */
enum dns_query_status {
	DNS_QUERY_DROP = 0, /* shorter than a header, or a response: no answer at all */
	DNS_QUERY_FORMERR,  /* answer FORMERR; ret's header fields are set */
	DNS_QUERY_NOTIMP,   /* opcode other than QUERY; ret's header fields are set */
	DNS_QUERY_BADVERS,  /* EDNS version over 0; ret's header fields are set */
	DNS_QUERY_OK,
};

/* Strict: one question whose name isn't compressed, no answer or authority records, at
 * most one OPT in the additional section, nothing behind it. What a status doesn't set
 * in @ret is zero. */
enum dns_query_status dns_query_read(const void *bytes, size_t size,
				     struct dns_query *ret);

/* What a query is answered with that has any status but DROP. */
enum dns_rcode dns_query_rcode(enum dns_query_status status);

/* Write the query that goes upstream: own @id, RD, an EDNS record of our own size,
 * DO as @dnssec_ok says, and nothing else of the client's. @case_bits flips the case
 * of letter i of the name to upper where bit i (of 255, from a random source) is set
 * ("0x20", draft-vixie-dnsext-dns0x20); Bit i is bit i % 8 of octet i / 8, and stands
 * for octet i of the name's wire form. ret_case (DNS_NAME_MAX octets) gets the name as
 * sent. Return: size, or -ENOSPC. */
int dns_query_write(void *buf, size_t size, uint16_t id, const struct dns_name *name,
		    uint16_t type, bool dnssec_ok, const uint8_t case_bits[32],
		    uint8_t *ret_case) MUST_CHECK;

/* Take the EDNS record out of what dns_query_write() has written. Return: size. */
size_t dns_query_without_edns(uint8_t *message, size_t size);

/* A reply that carries no answer records: NXDOMAIN and NODATA, SERVFAIL; FORMERR, NOTIMP,
 * BADVERS for what could not be read. The SOA is of our own making, so that clients cache
 * the answer @ttl_sec seconds and don't ask again: it stands at the name itself for
 * NODATA and at its parent for NXDOMAIN. @ede and @ede_text are added when the client
 * sent EDNS. */
struct dns_refusal {
	enum dns_rcode rcode;
	bool soa; /* NXDOMAIN and NODATA */
	uint32_t ttl_sec;
	enum dns_ede ede;     /* DNS_EDE_NONE has to be spelled out */
	struct text ede_text; /* cut to what fits */
	bool tc;
};
/* The question is left out where q->name is empty. @buf holds DNS_UDP_MIN at least,
 * and no reply is longer than that. Return: size. */
size_t dns_refusal_write(void *buf, size_t size, const struct dns_query *q,
			 const struct dns_refusal *refusal);
