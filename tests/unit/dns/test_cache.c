// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdio.h>

#include "dns/cache.h"
#include "unit.h"

static const struct hash_key hash = { 3, 4 };

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static struct dns_answer answer_of(enum dns_answer_kind kind, uint32_t ttl_sec)
{
	struct dns_answer a = { .kind = kind, .ttl_sec = ttl_sec };

	if (kind == DNS_ANSWER_RECORDS) {
		a.addr_count = 1;
		a.addrs[0] = (struct dns_answer_addr){ addr_v4(192, 0, 2, 1), ttl_sec };
	}
	return a;
}

static bool has(struct dns_cache *c, const struct dns_cache_key *key, int64_t now_ms)
{
	struct dns_answer got;

	return dns_cache_find(c, key, now_ms, &got);
}

TEST(an_answer_comes_back_as_it_was)
{
	struct dns_cache *c = dns_cache_new(4, 65536, &hash);
	struct dns_name name = name_of("www.example.org");
	struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 60), got;

	a.ad = true;
	a.skipped = 3;
	a.chain_count = 1;
	a.chain[0] = name_of("cdn.example.net");
	a.chain_ttl_sec[0] = 90;
	a.addr_count = 2;
	a.addrs[1].addr = addr_from_bytes(ADDR_V6, (const uint8_t *)"0123456789abcdef");
	a.addrs[1].ttl_sec = 70;
	dns_cache_put(c, NULL, &key, &a, 1000);
	assert_true(dns_cache_find(c, &key, 1000, &got));
	assert_int_equal(got.kind, DNS_ANSWER_RECORDS);
	assert_int_equal(got.rcode, DNS_NOERROR);
	assert_int_equal(got.ttl_sec, 60);
	assert_int_equal(got.chain_ttl_sec[0], 90);
	assert_int_equal(got.addrs[1].ttl_sec, 70);
	assert_true(got.ad);
	assert_int_equal(got.skipped, 3);
	assert_true(dns_name_equal(&got.chain[0], &a.chain[0]));
	assert_int_equal(got.chain[0].labels, 3);
	assert_true(addr_equal(&got.addrs[0].addr, &a.addrs[0].addr));
	assert_true(addr_equal(&got.addrs[1].addr, &a.addrs[1].addr));
	assert_int_equal(got.record_count, 0);
	dns_cache_free(c);
}

TEST(ttls_run_down_and_end)
{
	static const struct {
		const char *what;
		int64_t age_ms;
		uint32_t left;
		bool found;
	} cases[] = {
		{ "fresh", 0, 10, true },
		{ "a second that has begun is gone", 1, 9, true },
		{ "half way", 5000, 5, true },
		{ "in the last second", 9500, 0, true },
		{ "last millisecond", 9999, 0, true },
		{ "over", 10000, 0, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_cache *c = dns_cache_new(4, 65536, &hash);
		struct dns_name name = name_of("a.test");
		struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };
		struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10);
		struct dns_answer got = { .ttl_sec = 77 };

		dns_cache_put(c, NULL, &key, &a, 5);
		if (dns_cache_find(c, &key, 5 + cases[i].age_ms, &got) != cases[i].found)
			fail_msg("%s", cases[i].what);
		assert_int_equal(got.ttl_sec, cases[i].found ? cases[i].left : 77);
		assert_int_equal(dns_cache_counts(c).entries, cases[i].found ? 1 : 0);
		dns_cache_free(c);
	}
}

TEST(ttls_have_ceilings)
{
	static const struct {
		enum dns_answer_kind kind;
		uint32_t ttl_sec, kept_sec;
	} cases[] = {
		{ DNS_ANSWER_RECORDS, INT32_MAX, DNS_CACHE_POSITIVE_MAX_SEC },
		{ DNS_ANSWER_NXDOMAIN, INT32_MAX, DNS_CACHE_NEGATIVE_MAX_SEC },
		{ DNS_ANSWER_NODATA, INT32_MAX, DNS_CACHE_NEGATIVE_MAX_SEC },
		{ DNS_ANSWER_NODATA, 30, 30 },
		{ DNS_ANSWER_RECORDS, 0, 0 },
		{ DNS_ANSWER_NXDOMAIN, 0, 0 },
		{ DNS_ANSWER_FAILED, 60, 0 },
		{ DNS_ANSWER_TRUNCATED, 60, 0 },
		{ DNS_ANSWER_MISMATCH, 60, 0 },
		{ DNS_ANSWER_BAD, 60, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_cache *c = dns_cache_new(4, 65536, &hash);
		struct dns_name name = name_of("a.test");
		struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };
		struct dns_answer a = answer_of(cases[i].kind, cases[i].ttl_sec);
		int64_t end_ms = (int64_t)cases[i].kept_sec * 1000;

		dns_cache_put(c, NULL, &key, &a, 0);
		if (has(c, &key, end_ms - 1) != (cases[i].kept_sec > 0))
			fail_msg("row %zu isn't kept long enough", i);
		if (has(c, &key, end_ms))
			fail_msg("row %zu is kept too long", i);
		dns_cache_free(c);
	}
}

TEST(every_part_of_the_key_counts)
{
	struct dns_cache *c = dns_cache_new(16, 65536, &hash);
	struct dns_name name = name_of("a.test"), other = name_of("b.test");
	struct dns_name longer = name_of("a.test.test");
	const struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };
	struct dns_cache_key others[] = { key, key, key, key };
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10);

	others[0].name = &other;
	others[1].name = &longer;
	others[2].type = DNS_TYPE_AAAA;
	others[3].dnssec_ok = true;
	dns_cache_put(c, NULL, &key, &a, 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(has(c, &others[i], 0));
	assert_true(has(c, &key, 0));
	dns_cache_free(c);
}

TEST(a_new_answer_replaces_and_ttl_0_removes)
{
	struct dns_cache *c = dns_cache_new(4, 65536, &hash);
	struct dns_name name = name_of("a.test");
	struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10), got;
	struct dns_answer b = answer_of(DNS_ANSWER_NXDOMAIN, 10);
	struct dns_answer gone = answer_of(DNS_ANSWER_RECORDS, 0);

	dns_cache_put(c, NULL, &key, &a, 0);
	dns_cache_put(c, NULL, &key, &b, 0);
	assert_true(dns_cache_find(c, &key, 0, &got));
	assert_int_equal(got.kind, DNS_ANSWER_NXDOMAIN);
	assert_int_equal(got.rcode, DNS_NXDOMAIN);
	assert_int_equal(dns_cache_counts(c).entries, 1);
	dns_cache_put(c, NULL, &key, &gone, 0);
	assert_false(has(c, &key, 0));
	assert_int_equal(dns_cache_counts(c).bytes, 0);
	dns_cache_free(c);
}

static void put_for(struct dns_cache *c, struct dns_cache_share *share, unsigned int i,
		    const struct dns_answer *a, int64_t now_ms)
{
	char text[32];
	struct dns_name name;
	struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };

	snprintf(text, sizeof(text), "host%u.test", i);
	name = name_of(text);
	dns_cache_put(c, share, &key, a, now_ms);
}

static void put_numbered_at(struct dns_cache *c, unsigned int i,
			    const struct dns_answer *a, int64_t now_ms)
{
	put_for(c, NULL, i, a, now_ms);
}

static void put_numbered(struct dns_cache *c, unsigned int i, const struct dns_answer *a)
{
	put_numbered_at(c, i, a, 0);
}

static bool has_numbered(struct dns_cache *c, unsigned int i)
{
	char text[32];
	struct dns_name name;
	struct dns_cache_key key = { .name = &name, .type = DNS_TYPE_A };

	snprintf(text, sizeof(text), "host%u.test", i);
	name = name_of(text);
	return has(c, &key, 0);
}

TEST(the_least_recently_used_entry_makes_room)
{
	struct dns_cache *c = dns_cache_new(3, 65536, &hash);
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10);

	for (unsigned int i = 0; i < 3; i++)
		put_numbered(c, i, &a);
	assert_true(has_numbered(c, 0));
	put_numbered(c, 3, &a);
	assert_true(has_numbered(c, 0));
	assert_false(has_numbered(c, 1));
	assert_true(has_numbered(c, 2));
	assert_true(has_numbered(c, 3));
	dns_cache_free(c);
}

TEST(who_has_most_makes_room)
{
	struct dns_cache *c = dns_cache_new(6, 65536, &hash);
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10);
	struct dns_cache_share quiet = { 0 }, flooding = { 0 }, late = { 0 };

	put_for(c, &quiet, 0, &a, 0);
	put_for(c, &quiet, 1, &a, 0);
	for (unsigned int i = 100; i < 200; i++)
		put_for(c, &flooding, i, &a, 0);
	/* Not used since long before all the others were put. */
	assert_true(has_numbered(c, 0));
	assert_true(has_numbered(c, 1));
	for (unsigned int i = 196; i < 200; i++)
		assert_true(has_numbered(c, i));
	/* Who comes later gets as much as the others leave, as long as that is more. */
	put_for(c, &late, 2, &a, 0);
	put_for(c, &late, 3, &a, 0);
	assert_true(has_numbered(c, 0));
	assert_true(has_numbered(c, 1));
	assert_true(has_numbered(c, 2));
	assert_true(has_numbered(c, 3));
	assert_false(has_numbered(c, 196));
	assert_false(has_numbered(c, 197));
	for (unsigned int i = 200; i < 300; i++)
		put_for(c, &flooding, i, &a, 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_true(has_numbered(c, i));
	dns_cache_free(c);
}

TEST(what_one_had_who_has_left_serves_others)
{
	struct dns_cache *c = dns_cache_new(4, 65536, &hash);
	struct dns_answer a = answer_of(DNS_ANSWER_RECORDS, 10);
	struct dns_cache_share first = { 0 }, second = { 0 }, third = { 0 };

	dns_cache_leave(c, &first);
	for (unsigned int i = 0; i < 2; i++)
		put_for(c, &first, i, &a, 0);
	dns_cache_leave(c, &first);
	memset(&first, 0xff, sizeof(first));
	put_for(c, &second, 2, &a, 0);
	dns_cache_leave(c, &second);
	memset(&second, 0xff, sizeof(second));
	for (unsigned int i = 0; i < 3; i++)
		assert_true(has_numbered(c, i));
	/* Nobody has most. */
	put_for(c, &third, 3, &a, 0);
	put_for(c, &third, 4, &a, 0);
	assert_false(has_numbered(c, 0));
	for (unsigned int i = 1; i < 5; i++)
		assert_true(has_numbered(c, i));
	dns_cache_leave(c, &third);
	assert_int_equal(dns_cache_counts(c).entries, 4);
	dns_cache_free(c);
}

/* Even one that was used lately, while those that are valid were not. */
TEST(an_expired_entry_makes_room_first)
{
	struct dns_cache *c = dns_cache_new(8, 65536, &hash);
	struct dns_answer brief = answer_of(DNS_ANSWER_RECORDS, 1);
	struct dns_answer lasting = answer_of(DNS_ANSWER_RECORDS, 100);

	for (unsigned int i = 0; i < 8; i++)
		put_numbered(c, i, i % 2 ? &brief : &lasting);
	assert_true(has_numbered(c, 5));
	for (unsigned int i = 8; i < 12; i++)
		put_numbered_at(c, i, &lasting, 2000);
	for (unsigned int i = 0; i < 8; i += 2)
		assert_true(has_numbered(c, i));
	assert_int_equal(dns_cache_counts(c).entries, 8);
	dns_cache_free(c);
}

TEST(entries_and_bytes_stay_within_their_maxima)
{
	static struct dns_answer a;
	struct dns_cache *c = dns_cache_new(100, 8192, &hash);

	a = answer_of(DNS_ANSWER_RECORDS, 10);
	for (unsigned int i = 0; i < 5000; i++) {
		struct dns_cache_counts counts;

		a.addr_count = (uint8_t)(1 + i % DNS_ADDRESSES_MAX);
		for (size_t j = 0; j < a.addr_count; j++)
			a.addrs[j].addr = addr_v4(192, 0, 2, (uint8_t)j);
		put_numbered(c, i, &a);
		counts = dns_cache_counts(c);
		assert_true(has_numbered(c, i));
		assert_true(counts.entries <= 100 && counts.bytes <= 8192);
	}
	dns_cache_free(c);
}

TEST(what_can_never_fit_is_not_kept)
{
	static struct dns_answer a;
	static const size_t sizes[][2] = { { 0, 65536 }, { 4, 0 }, { 4, 128 } };

	a = answer_of(DNS_ANSWER_RECORDS, 10);
	a.record_count = 1;
	a.records[0] = (struct dns_answer_record){ .size = 1000 };
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct dns_cache *c = dns_cache_new(sizes[i][0], sizes[i][1], &hash);

		put_numbered(c, 1, &a);
		assert_false(has_numbered(c, 1));
		assert_int_equal(dns_cache_counts(c).entries, 0);
		dns_cache_free(c);
	}
}

TEST(what_is_too_large_takes_the_old_ones_place_and_is_not_kept)
{
	static struct dns_answer a;
	static const struct {
		uint16_t count, size;
		bool kept;
	} cases[] = {
		{ DNS_CACHE_RECORDS_MAX, 1, true },
		{ DNS_CACHE_RECORDS_MAX + 1, 1, false },
		{ 1, DNS_CACHE_RDATA_MAX, true },
		{ 1, DNS_CACHE_RDATA_MAX + 1, false },
		{ DNS_RECORDS_MAX, DNS_RDATA_MAX / DNS_RECORDS_MAX, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_cache *c = dns_cache_new(16, 65536, &hash);

		a = answer_of(DNS_ANSWER_RECORDS, 10);
		put_numbered(c, 1, &a);
		assert_true(has_numbered(c, 1));
		a.record_count = cases[i].count;
		a.rdata_size = (uint16_t)(cases[i].count * cases[i].size);
		for (uint16_t k = 0; k < cases[i].count; k++)
			a.records[k] = (struct dns_answer_record){
				10, (uint16_t)(k * cases[i].size), cases[i].size
			};
		put_numbered(c, 1, &a);
		assert_int_equal(has_numbered(c, 1), cases[i].kept);
		dns_cache_free(c);
	}
}
