// SPDX-License-Identifier: Apache-2.0
/* dns/cache - answers, kept until their TTLs have passed (RFC 1035, 2308, 2181).
 *
 * The cache saves upstream queries; it decides nothing. Whether a sandbox may have an
 * answer is judged before each look-up. All memory is taken by dns_cache_new(). When
 * entries or bytes run out, whoever has most of them makes room, by what was not used
 * lately: so nobody pushes out what others have asked for. Names are hashed with a key,
 * so that nobody can choose ones that collide. Time is an argument in milliseconds and
 * may not go backwards. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "dns/answer.h"

enum {
	DNS_CACHE_POSITIVE_MAX_SEC = 86400, /* longer TTLs count as this */
	DNS_CACHE_NEGATIVE_MAX_SEC = 3600,  /* NXDOMAIN and NODATA */
	DNS_CACHE_RECORDS_MAX = 32,	    /* an answer with more is not kept */
	DNS_CACHE_RDATA_MAX = 4096,
};

struct dns_cache;

/* What an answer is kept under. */
struct dns_cache_key {
	const struct dns_name *name; /* borrowed for the call */
	uint16_t type;
	bool dnssec_ok;
};

/* What one sandbox has had kept; zero at first, and at one place until it has left.
 * Others find it as well. */
struct dns_cache_share {
	TAILQ_ENTRY(dns_cache_share) link; /* of all that have an entry */
	uint32_t newest, oldest;	   /* entries, by their last use; 0: none */
	uint32_t chunks;		   /* of them all */
};

struct dns_cache_counts {
	size_t entries; /* expired ones that nobody asked for included */
	size_t bytes;	/* that their answers take */
};

/* @max_bytes is for the answers; the table takes some 50 bytes an entry more.
 * Return: NULL when memory is out. */
struct dns_cache *dns_cache_new(size_t max_entries, size_t max_bytes,
				const struct hash_key *key) MUST_CHECK;
void dns_cache_free(struct dns_cache *c);

/* Find a valid answer. TTLs in *ret are what is left of them (0 in the last second);
 * @ret is written only when true is returned. */
bool dns_cache_find(struct dns_cache *c, const struct dns_cache_key *key, int64_t now_ms,
		    struct dns_answer *ret);

/* Keep @a for @share (NULL: for nobody); an entry of the same key is replaced. Only
 * RECORDS, NODATA and NXDOMAIN are kept, until the smallest TTL of the chain (or the
 * negative one) has passed, but not beyond the maxima above; nothing is kept when that is
 * 0, when the answer is larger than they say, or when no room can be made. */
void dns_cache_put(struct dns_cache *c, struct dns_cache_share *share,
		   const struct dns_cache_key *key, const struct dns_answer *a,
		   int64_t now_ms);
/* @share is about to go. What it had stays, and is nobody's. */
void dns_cache_leave(struct dns_cache *c, struct dns_cache_share *share);

struct dns_cache_counts dns_cache_counts(const struct dns_cache *c);
