// SPDX-License-Identifier: Apache-2.0
/* The vectors of FIPS 180-4 and RFC 4231. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/sha256.h"

static void assert_hash(const uint8_t hash[SHA256_SIZE], const char *hex)
{
	char text[2 * SHA256_SIZE + 1];

	for (size_t i = 0; i < SHA256_SIZE; i++)
		snprintf(text + 2 * i, 3, "%02x", hash[i]);
	assert_string_equal(text, hex);
}

TEST(test_hash)
{
	static const struct {
		const char *text, *hash;
		size_t times;
	} cases[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		  1 },
		{ "abc",
		  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 1 },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1", 1 },
		{ "aaaaaaaaaa",
		  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
		  100000 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint8_t hash[SHA256_SIZE];
		struct sha256 s;

		sha256_init(&s);
		for (size_t n = 0; n < cases[i].times; n++)
			sha256_add(&s, cases[i].text, strlen(cases[i].text));
		sha256_end(&s, hash);
		assert_hash(hash, cases[i].hash);
	}
}

/* However the bytes come, and at every length around a block's. */
TEST(test_pieces)
{
	uint8_t bytes[200], whole[SHA256_SIZE], pieces[SHA256_SIZE];

	memset(bytes, 'x', sizeof(bytes));
	for (size_t size = 0; size <= sizeof(bytes); size++) {
		struct sha256 a, b;

		sha256_init(&a);
		sha256_add(&a, bytes, size);
		sha256_end(&a, whole);
		sha256_init(&b);
		for (size_t i = 0; i < size; i++)
			sha256_add(&b, bytes + i, 1);
		sha256_end(&b, pieces);
		assert_true(hmac_equal(whole, pieces));
		pieces[size % SHA256_SIZE] ^= 1;
		assert_false(hmac_equal(whole, pieces));
	}
}

TEST(test_hmac)
{
	uint8_t key[20], mac[SHA256_SIZE];
	struct hmac h;

	memset(key, 0x0b, sizeof(key));
	hmac_init(&h, key, sizeof(key));
	hmac_add(&h, "Hi There", 8);
	hmac_end(&h, mac);
	assert_hash(mac,
		    "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	hmac_init(&h, (const uint8_t *)"Jefe", 4);
	hmac_add(&h, "what do ya want ", 16);
	hmac_add(&h, "for nothing?", 12);
	hmac_end(&h, mac);
	assert_hash(mac,
		    "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}
