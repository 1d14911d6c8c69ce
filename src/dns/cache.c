// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * An answer is kept as a string of octets: its key, then what struct dns_answer has in
 * use. The string lies in chunks of 64 octets, linked by index and taken from one
 * array, so nothing fragments and nothing is allocated after the start. An entry holds
 * what a look-up needs before it touches the string.
 *
 * Entries hang in hash buckets and in the list of the share that they were put for, from
 * the most to the least recently used. Index 0 is no entry and no chunk. Entries and
 * chunks that were never used are handed out by counting, so that memory nobody needed
 * is never touched.
 *
 * Which share has most is not looked for among all of them, of which there may be ten
 * thousand. Whoever puts something is compared, and each time that room is needed a few
 * others are, in turn. */
#include "dns/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
	SWEEP_ENTRIES = 8, /* looked at when room is needed */
	LOOK_SHARES = 4,   /* the same */
	CHUNK_SIZE = 64,
	CHUNK_DATA = CHUNK_SIZE - sizeof(uint32_t),
	KEY_MAX = 8 + DNS_NAME_MAX,
	/* Key, header, chain, addresses, records: all full. */
	STRING_MAX = KEY_MAX + 16 + DNS_CHAIN_MAX * (6 + DNS_NAME_MAX) +
		     DNS_ADDRESSES_MAX * 21 + DNS_CACHE_RECORDS_MAX * 6 +
		     DNS_CACHE_RDATA_MAX,
};

struct chunk {
	uint32_t next;
	uint8_t data[CHUNK_DATA];
};

struct entry {
	uint64_t hash;
	int64_t stored_ms;
	uint32_t lifetime_sec;
	uint32_t first_chunk;
	uint32_t next;	       /* in its bucket, or of the free entries */
	uint32_t newer, older; /* in the list of the share */
	uint16_t size;	       /* of the string; 0: the entry is free */
	struct dns_cache_share *share;
};

struct dns_cache {
	struct hash_key key;
	struct entry *entries; /* entry_max + 1 */
	struct chunk *chunks;  /* chunk_max + 1 */
	uint32_t *buckets;     /* bucket_mask + 1 */
	size_t bucket_mask;
	uint32_t entry_max, chunk_max;
	uint32_t entry_fresh, chunk_fresh; /* the first that was never used */
	uint32_t entry_free, chunk_free;   /* lists of those that were given back */
	uint32_t chunks_used;
	uint32_t sweep_at; /* the entry that is looked at next for having expired */
	TAILQ_HEAD(, dns_cache_share) shares; /* the next to be looked at first */
	struct dns_cache_share *most;	      /* as far as is known; NULL: nothing is */
	struct dns_cache_share nobody;
	size_t entry_count;
};

/* A key as octets, the beginning of the string. */
struct packed_key {
	uint64_t hash;
	size_t size;
	uint8_t bytes[KEY_MAX];
};

struct dns_cache *dns_cache_new(size_t max_entries, size_t max_bytes,
				const struct hash_key *key)
{
	struct dns_cache *c = calloc(1, sizeof(*c));
	size_t buckets = 1;

	if (!c)
		return NULL;
	c->key = *key;
	c->entry_max = (uint32_t)MIN(max_entries, (size_t)INT32_MAX);
	c->chunk_max = (uint32_t)MIN(max_bytes / CHUNK_SIZE, (size_t)INT32_MAX);
	while (buckets < c->entry_max)
		buckets *= 2;
	c->bucket_mask = buckets - 1;
	c->entries = calloc((size_t)c->entry_max + 1, sizeof(c->entries[0]));
	c->chunks = calloc((size_t)c->chunk_max + 1, sizeof(c->chunks[0]));
	c->buckets = calloc(c->bucket_mask + 1, sizeof(c->buckets[0]));
	if (!c->entries || !c->chunks || !c->buckets) {
		dns_cache_free(c);
		return NULL;
	}
	c->entry_fresh = 1;
	c->chunk_fresh = 1;
	TAILQ_INIT(&c->shares);
	return c;
}

void dns_cache_free(struct dns_cache *c)
{
	if (!c)
		return;
	free(c->entries);
	free(c->chunks);
	free(c->buckets);
	free(c);
}

static void pack_key(const struct dns_cache *c, const struct dns_cache_key *key,
		     struct packed_key *ret)
{
	struct wire w = wire_writer(ret->bytes, sizeof(ret->bytes));

	wire_write_u16(&w, key->type);
	wire_write_u8(&w, key->dnssec_ok);
	wire_write_bytes(&w, key->name->bytes, key->name->size);
	assert(wire_ok(&w));
	ret->size = wire_offset(&w);
	ret->hash = hash_bytes(&c->key, ret->bytes, ret->size);
}

/* Shares. */

static void share_changed(struct dns_cache *c, struct dns_cache_share *s)
{
	if (!c->most || s->chunks > c->most->chunks)
		c->most = s;
}

/* Let go of the share @s, which has no entry any more. */
static void share_part(struct dns_cache *c, struct dns_cache_share *s)
{
	TAILQ_REMOVE(&c->shares, s, link);
	if (c->most == s)
		c->most = NULL;
}

/* Entries. */

static void list_remove(struct dns_cache *c, uint32_t i)
{
	const struct entry *e = &c->entries[i];

	if (e->newer != 0)
		c->entries[e->newer].older = e->older;
	else
		e->share->newest = e->older;
	if (e->older != 0)
		c->entries[e->older].newer = e->newer;
	else
		e->share->oldest = e->newer;
}

/* As the most recently used. */
static void list_add(struct dns_cache *c, uint32_t i)
{
	struct entry *e = &c->entries[i];

	e->newer = 0;
	e->older = e->share->newest;
	if (e->older != 0)
		c->entries[e->older].newer = i;
	else
		e->share->oldest = i;
	e->share->newest = i;
}

static void entry_drop(struct dns_cache *c, uint32_t i)
{
	struct entry *e = &c->entries[i];
	uint32_t *link = &c->buckets[e->hash & c->bucket_mask];

	while (*link != i)
		link = &c->entries[*link].next;
	*link = e->next;
	list_remove(c, i);
	for (uint32_t chunk = e->first_chunk; chunk != 0;) {
		uint32_t next = c->chunks[chunk].next;

		c->chunks[chunk].next = c->chunk_free;
		c->chunk_free = chunk;
		c->chunks_used--;
		e->share->chunks--;
		chunk = next;
	}
	if (e->share->newest == 0)
		share_part(c, e->share);
	e->size = 0;
	e->next = c->entry_free;
	c->entry_free = i;
	c->entry_count--;
}

static bool entry_is_valid(const struct entry *e, int64_t now_ms)
{
	return now_ms - e->stored_ms < (int64_t)e->lifetime_sec * 1000;
}

/* The entry of the key, its string in @string; 0: none. */
static uint32_t entry_find(const struct dns_cache *c, const struct packed_key *key,
			   uint8_t *string)
{
	uint32_t i = c->buckets[key->hash & c->bucket_mask];

	for (; i != 0; i = c->entries[i].next) {
		const struct entry *e = &c->entries[i];
		uint32_t chunk = e->first_chunk;

		if (e->hash != key->hash || e->size < key->size)
			continue;
		for (size_t at = 0; at < e->size; at += CHUNK_DATA) {
			memcpy(string + at, c->chunks[chunk].data,
			       MIN(e->size - at, (size_t)CHUNK_DATA));
			chunk = c->chunks[chunk].next;
		}
		if (memcmp(string, key->bytes, key->size) == 0)
			return i;
	}
	return 0;
}

/* Until there are an entry and @chunks chunks to be had. Return: false when that can
 * never be. */
static bool make_room(struct dns_cache *c, size_t chunks, int64_t now_ms)
{
	bool is_full = c->entry_count == c->entry_max ||
		       c->chunk_max - c->chunks_used < chunks;

	if (c->entry_max == 0 || chunks > c->chunk_max)
		return false;
	/* Look at a few entries, in turn, and drop those that have expired: they make
	 * room before any that is of use. */
	for (int n = 0; n < SWEEP_ENTRIES && is_full; n++) {
		uint32_t i = ++c->sweep_at;

		if (i >= c->entry_fresh) {
			c->sweep_at = 0;
			break;
		}
		if (c->entries[i].size > 0 && !entry_is_valid(&c->entries[i], now_ms))
			entry_drop(c, i);
	}
	while (c->entry_count == c->entry_max || c->chunk_max - c->chunks_used < chunks) {
		uint32_t oldest;

		/* The oldest of the share that has most, as far as is known: a few are
		 * looked at in turn. The cache has an entry at least. */
		for (int n = 0; n < LOOK_SHARES; n++) {
			struct dns_cache_share *s = TAILQ_FIRST(&c->shares);

			TAILQ_REMOVE(&c->shares, s, link);
			TAILQ_INSERT_TAIL(&c->shares, s, link);
			share_changed(c, s);
		}
		oldest = c->most->oldest;
		entry_drop(c, oldest);
	}
	return true;
}

/* Answers as octets. */
static_assert(DNS_CACHE_RECORDS_MAX <= UINT8_MAX, "one octet holds how many they are");

static void encode(struct wire *w, const struct dns_answer *a, uint32_t cap_sec)
{
	wire_write_u8(w, a->kind);
	wire_write_u8(w, a->ad);
	wire_write_u16(w, a->skipped);
	wire_write_u32(w, MIN(a->ttl_sec, cap_sec));
	wire_write_u8(w, a->chain_count);
	wire_write_u8(w, a->addr_count);
	wire_write_u8(w, (uint8_t)a->record_count);
	for (size_t i = 0; i < a->chain_count; i++) {
		wire_write_u32(w, MIN(a->chain_ttl_sec[i], cap_sec));
		wire_write_u8(w, a->chain[i].labels);
		wire_write_u8(w, a->chain[i].size);
		wire_write_bytes(w, a->chain[i].bytes, a->chain[i].size);
	}
	for (size_t i = 0; i < a->addr_count; i++) {
		wire_write_u32(w, MIN(a->addrs[i].ttl_sec, cap_sec));
		wire_write_u8(w, a->addrs[i].addr.family);
		wire_write_bytes(w, a->addrs[i].addr.bytes, addr_size(&a->addrs[i].addr));
	}
	for (size_t i = 0; i < a->record_count; i++) {
		wire_write_u32(w, MIN(a->records[i].ttl_sec, cap_sec));
		wire_write_u16(w, a->records[i].size);
		wire_write_bytes(w, a->rdata + a->records[i].offset, a->records[i].size);
	}
	assert(wire_ok(w));
}

/* A TTL that was written by encode(), less the time that has passed. */
static uint32_t decode_ttl(struct wire *w, uint32_t age_sec)
{
	uint32_t ttl_sec = wire_read_u32(w);

	return ttl_sec > age_sec ? ttl_sec - age_sec : 0;
}

static void copy_octets(struct wire *w, uint8_t *ret, size_t size)
{
	const uint8_t *bytes = wire_take(w, size);

	assert(bytes);
	memcpy(ret, bytes, size);
}

static void decode(struct wire *w, uint32_t age_sec, struct dns_answer *ret)
{
	ret->kind = wire_read_u8(w);
	ret->rcode = ret->kind == DNS_ANSWER_NXDOMAIN ? DNS_NXDOMAIN : DNS_NOERROR;
	ret->ad = wire_read_u8(w);
	ret->skipped = wire_read_u16(w);
	ret->ttl_sec = decode_ttl(w, age_sec);
	ret->chain_count = wire_read_u8(w);
	ret->addr_count = wire_read_u8(w);
	ret->record_count = wire_read_u8(w);
	ret->rdata_size = 0;
	for (size_t i = 0; i < ret->chain_count; i++) {
		struct dns_name *n = &ret->chain[i];

		ret->chain_ttl_sec[i] = decode_ttl(w, age_sec);
		n->labels = wire_read_u8(w);
		n->size = wire_read_u8(w);
		copy_octets(w, n->bytes, n->size);
	}
	for (size_t i = 0; i < ret->addr_count; i++) {
		struct dns_answer_addr *a = &ret->addrs[i];

		a->ttl_sec = decode_ttl(w, age_sec);
		a->addr = (struct addr){ .family = wire_read_u8(w) };
		copy_octets(w, a->addr.bytes, addr_size(&a->addr));
	}
	for (size_t i = 0; i < ret->record_count; i++) {
		struct dns_answer_record *record = &ret->records[i];

		record->ttl_sec = decode_ttl(w, age_sec);
		record->size = wire_read_u16(w);
		record->offset = ret->rdata_size;
		copy_octets(w, ret->rdata + record->offset, record->size);
		ret->rdata_size = (uint16_t)(ret->rdata_size + record->size);
	}
	assert(wire_ok(w) && wire_left(w) == 0);
}

bool dns_cache_find(struct dns_cache *c, const struct dns_cache_key *key, int64_t now_ms,
		    struct dns_answer *ret)
{
	uint8_t string[STRING_MAX];
	struct packed_key packed;
	struct entry *e;
	struct wire w;
	uint32_t i;

	pack_key(c, key, &packed);
	i = entry_find(c, &packed, string);
	e = &c->entries[i];
	if (i != 0 && !entry_is_valid(e, now_ms)) {
		entry_drop(c, i);
		i = 0;
	}
	if (i == 0)
		return false;
	list_remove(c, i);
	list_add(c, i);
	w = wire_reader(string + packed.size, e->size - packed.size);
	/* Whole seconds since the entry was stored, the one that runs included. */
	decode(&w, (uint32_t)((MAX(now_ms - e->stored_ms, 0) + 999) / 1000), ret);
	return true;
}

/* There has to be room. */
static void entry_add(struct dns_cache *c, struct dns_cache_share *share,
		      const struct packed_key *key, const uint8_t *string, size_t size,
		      uint32_t lifetime_sec, int64_t now_ms)
{
	uint32_t *bucket = &c->buckets[key->hash & c->bucket_mask];
	uint32_t first = 0, *link = &first, chunk;
	uint32_t i = c->entry_free;

	if (i != 0)
		c->entry_free = c->entries[i].next;
	else
		i = c->entry_fresh++;
	c->entry_count++;
	for (size_t at = 0; at < size; at += CHUNK_DATA) {
		chunk = c->chunk_free;
		if (chunk != 0)
			c->chunk_free = c->chunks[chunk].next;
		else
			chunk = c->chunk_fresh++;
		c->chunks_used++;
		share->chunks++;
		memcpy(c->chunks[chunk].data, string + at,
		       MIN(size - at, (size_t)CHUNK_DATA));
		c->chunks[chunk].next = 0;
		*link = chunk;
		link = &c->chunks[chunk].next;
	}
	c->entries[i] = (struct entry){
		.hash = key->hash,
		.stored_ms = now_ms,
		.lifetime_sec = lifetime_sec,
		.first_chunk = first,
		.next = *bucket,
		.size = (uint16_t)size,
		.share = share,
	};
	*bucket = i;
	if (share->newest == 0)
		TAILQ_INSERT_TAIL(&c->shares, share, link);
	list_add(c, i);
	share_changed(c, share);
}

void dns_cache_put(struct dns_cache *c, struct dns_cache_share *share,
		   const struct dns_cache_key *key, const struct dns_answer *a,
		   int64_t now_ms)
{
	uint32_t cap_sec = 0, lifetime_sec;
	uint8_t string[STRING_MAX];
	struct packed_key packed;
	struct wire w;
	uint32_t old;

	pack_key(c, key, &packed);
	old = entry_find(c, &packed, string);
	if (old != 0)
		entry_drop(c, old);
	/* The longest that an answer of this kind may be kept; 0: not at all. */
	if (a->kind == DNS_ANSWER_RECORDS)
		cap_sec = DNS_CACHE_POSITIVE_MAX_SEC;
	else if (a->kind == DNS_ANSWER_NXDOMAIN || a->kind == DNS_ANSWER_NODATA)
		cap_sec = DNS_CACHE_NEGATIVE_MAX_SEC;
	lifetime_sec = MIN(a->ttl_sec, cap_sec);
	if (lifetime_sec == 0 || a->record_count > DNS_CACHE_RECORDS_MAX ||
	    a->rdata_size > DNS_CACHE_RDATA_MAX)
		return;
	w = wire_writer(string, sizeof(string));
	wire_write_bytes(&w, packed.bytes, packed.size);
	encode(&w, a, cap_sec);
	if (make_room(c, (wire_offset(&w) + CHUNK_DATA - 1) / CHUNK_DATA, now_ms))
		entry_add(c, share ? share : &c->nobody, &packed, string, wire_offset(&w),
			  lifetime_sec, now_ms);
}

void dns_cache_leave(struct dns_cache *c, struct dns_cache_share *share)
{
	struct dns_cache_share *to = &c->nobody;

	if (share->newest == 0)
		return;
	for (uint32_t i = share->newest; i != 0; i = c->entries[i].older)
		c->entries[i].share = to;
	share_part(c, share);
	if (to->newest == 0) {
		TAILQ_INSERT_TAIL(&c->shares, to, link);
		to->oldest = share->oldest;
	} else {
		c->entries[share->oldest].older = to->newest;
		c->entries[to->newest].newer = share->oldest;
	}
	to->newest = share->newest;
	to->chunks += share->chunks;
	share_changed(c, to);
	*share = (struct dns_cache_share){ 0 };
}

struct dns_cache_counts dns_cache_counts(const struct dns_cache *c)
{
	return (struct dns_cache_counts){
		.entries = c->entry_count,
		.bytes = (size_t)c->chunks_used * CHUNK_SIZE,
	};
}
