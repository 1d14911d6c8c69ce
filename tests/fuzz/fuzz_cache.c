// SPDX-License-Identifier: Apache-2.0
/* The input is a program of puts, finds and pauses over a few keys in a small cache,
 * run beside a model that forgets nothing: what the cache gives back is what was put
 * last under that key, its TTLs reduced, and never after its time. */
#include <stdlib.h>

#include "dns/cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

enum { KEYS = 16, ENTRIES = 6, BYTES = 2048, SHARES = 3 };

struct model {
	bool put;
	int64_t stored_ms;
	struct dns_answer answer;
};

static struct dns_name make_name(unsigned int i)
{
	struct dns_name n = { .size = 6, .labels = 1, .bytes = "\x04key?" };

	n.bytes[4] = (uint8_t)('a' + i % 4);
	return n;
}

static struct dns_cache_key make_key(unsigned int i, const struct dns_name *name)
{
	return (struct dns_cache_key){
		.name = name,
		.type = i & 4 ? DNS_TYPE_AAAA : DNS_TYPE_A,
		.dnssec_ok = i & 8,
	};
}

static void make_answer(struct wire *w, struct dns_answer *a)
{
	memset(a, 0, sizeof(*a));
	a->kind = wire_read_u8(w) % (DNS_ANSWER_RECORDS + 1);
	a->ad = wire_read_u8(w) & 1;
	a->ttl_sec = wire_read_u32(w) >> 12;
	a->chain_count = wire_read_u8(w) % (DNS_CHAIN_MAX + 1);
	a->addr_count = wire_read_u8(w) % (DNS_ADDRESSES_MAX + 1);
	a->record_count = wire_read_u8(w) % (DNS_CACHE_RECORDS_MAX + 1);
	for (size_t i = 0; i < a->chain_count; i++) {
		a->chain[i] = make_name((unsigned int)i);
		a->chain_ttl_sec[i] = a->ttl_sec + (uint32_t)i;
	}
	for (size_t i = 0; i < a->addr_count; i++) {
		a->addrs[i].addr = addr_v4(192, 0, 2, (uint8_t)i);
		a->addrs[i].ttl_sec = a->ttl_sec + (uint32_t)i;
	}
	for (size_t i = 0; i < a->record_count; i++) {
		a->records[i].ttl_sec = a->ttl_sec + (uint32_t)i;
		a->records[i].offset = a->rdata_size;
		a->records[i].size = wire_read_u8(w) % 128;
		memset(a->rdata + a->rdata_size, (int)i, a->records[i].size);
		a->rdata_size = (uint16_t)(a->rdata_size + a->records[i].size);
	}
}

static bool is_ttl(uint32_t got, uint32_t put, uint32_t cap, int64_t age_ms)
{
	int64_t left_ms = (int64_t)MIN(put, cap) * 1000 - age_ms;

	return got == (left_ms > 0 ? (uint32_t)(left_ms / 1000) : 0);
}

static void hold_found(const struct model *m, const struct dns_answer *got,
		       int64_t now_ms)
{
	const struct dns_answer *a = &m->answer;
	uint32_t cap = a->kind == DNS_ANSWER_RECORDS ? DNS_CACHE_POSITIVE_MAX_SEC
						     : DNS_CACHE_NEGATIVE_MAX_SEC;
	int64_t age_ms = now_ms - m->stored_ms;

	HOLD(m->put && a->kind >= DNS_ANSWER_NXDOMAIN && got->kind == a->kind);
	HOLD(age_ms < (int64_t)MIN(a->ttl_sec, cap) * 1000);
	HOLD(got->ad == a->ad && is_ttl(got->ttl_sec, a->ttl_sec, cap, age_ms));
	HOLD(got->chain_count == a->chain_count && got->addr_count == a->addr_count);
	HOLD(got->record_count == a->record_count && got->rdata_size == a->rdata_size);
	HOLD(memcmp(got->rdata, a->rdata, a->rdata_size) == 0);
	for (size_t i = 0; i < a->chain_count; i++)
		HOLD(dns_name_equal(&got->chain[i], &a->chain[i]) &&
		     is_ttl(got->chain_ttl_sec[i], a->chain_ttl_sec[i], cap, age_ms));
	for (size_t i = 0; i < a->addr_count; i++)
		HOLD(addr_equal(&got->addrs[i].addr, &a->addrs[i].addr) &&
		     is_ttl(got->addrs[i].ttl_sec, a->addrs[i].ttl_sec, cap, age_ms));
	for (size_t i = 0; i < a->record_count; i++)
		HOLD(got->records[i].size == a->records[i].size &&
		     got->records[i].offset == a->records[i].offset);
}

static void hold_limits(const struct dns_cache *c)
{
	struct dns_cache_counts counts = dns_cache_counts(c);

	HOLD(counts.entries <= ENTRIES && counts.bytes <= BYTES);
	HOLD((counts.entries == 0) == (counts.bytes == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct model models[KEYS];
	static struct dns_answer got;
	const struct hash_key hash = { 1, 2 };
	struct dns_cache_share shares[SHARES] = { 0 };
	struct dns_cache *c = dns_cache_new(ENTRIES, BYTES, &hash);
	struct wire w = wire_reader(data, size);
	int64_t now_ms = 1;

	HOLD(c);
	memset(models, 0, sizeof(models));
	while (wire_left(&w) > 0) {
		unsigned int op = wire_read_u8(&w);
		struct model *m = &models[op % KEYS];
		const struct dns_name name = make_name(op % KEYS);
		const struct dns_cache_key key = make_key(op % KEYS, &name);

		if (op < 96) {
			make_answer(&w, &m->answer);
			m->put = true;
			m->stored_ms = now_ms;
			dns_cache_put(c, op / KEYS % 2 ? &shares[op % SHARES] : NULL,
				      &key, &m->answer, now_ms);
		} else if (op < 96 + SHARES) {
			dns_cache_leave(c, &shares[op - 96]);
		} else if (op < 224) {
			if (dns_cache_find(c, &key, now_ms, &got))
				hold_found(m, &got, now_ms);
		} else {
			now_ms += (int64_t)wire_read_u16(&w) << op % 8;
		}
		hold_limits(c);
	}
	dns_cache_free(c);
	return 0;
}
