// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <assert.h>
#include <string.h>

#include "base/macros.h"

static const uint32_t constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
	0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
	0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
	0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
	0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
	0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
	0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
	0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, unsigned int bits)
{
	return x >> bits | x << (32 - bits);
}

static void take_block(struct sha256 *s, const uint8_t *block)
{
	uint32_t w[64], v[8];

	for (size_t i = 0; i < 16; i++, block += 4)
		w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 |
		       (uint32_t)block[2] << 8 | block[3];
	for (size_t i = 16; i < 64; i++) {
		const uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
		       (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
	}
	memcpy(v, s->state, sizeof(v));
	for (size_t i = 0; i < 64; i++) {
		const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
		const uint32_t most = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
		const uint32_t one = v[7] +
				     (turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25)) +
				     choice + constants[i] + w[i];
		const uint32_t two =
			(turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22)) + most;

		memmove(&v[1], &v[0], 7 * sizeof(v[0]));
		v[4] += one;
		v[0] = one + two;
	}
	for (size_t i = 0; i < 8; i++)
		s->state[i] += v[i];
}

void sha256_init(struct sha256 *s)
{
	*s = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					 0x510e527f, 0x9b05688c, 0x1f83d9ab,
					 0x5be0cd19 } };
}

void sha256_add(struct sha256 *s, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;

	while (size > 0) {
		const size_t used = s->size % SHA256_BLOCK_SIZE;
		const size_t n = MIN(size, SHA256_BLOCK_SIZE - used);

		memcpy(s->block + used, from, n);
		s->size += n;
		from += n;
		size -= n;
		if (used + n == SHA256_BLOCK_SIZE)
			take_block(s, s->block);
	}
}

void sha256_end(struct sha256 *s, uint8_t ret[SHA256_SIZE])
{
	static const uint8_t padding[SHA256_BLOCK_SIZE] = { 0x80 };
	const uint64_t bits = s->size * 8;
	const size_t used = s->size % SHA256_BLOCK_SIZE;
	uint8_t length[8];

	for (size_t i = 0; i < sizeof(length); i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	sha256_add(s, padding, (used < 56 ? 56 : 120) - used);
	sha256_add(s, length, sizeof(length));
	for (size_t i = 0; i < SHA256_SIZE; i++)
		ret[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}

void hmac_init(struct hmac *h, const uint8_t *key, size_t size)
{
	uint8_t inner[SHA256_BLOCK_SIZE] = { 0 }, outer[SHA256_BLOCK_SIZE];

	assert(size <= sizeof(inner));
	memcpy(inner, key, size);
	memcpy(outer, inner, sizeof(outer));
	for (size_t i = 0; i < SHA256_BLOCK_SIZE; i++) {
		inner[i] ^= 0x36;
		outer[i] ^= 0x5c;
	}
	sha256_init(&h->inner);
	sha256_add(&h->inner, inner, sizeof(inner));
	sha256_init(&h->outer);
	sha256_add(&h->outer, outer, sizeof(outer));
}

void hmac_add(struct hmac *h, const void *bytes, size_t size)
{
	sha256_add(&h->inner, bytes, size);
}

void hmac_end(struct hmac *h, uint8_t ret[SHA256_SIZE])
{
	sha256_end(&h->inner, ret);
	sha256_add(&h->outer, ret, SHA256_SIZE);
	sha256_end(&h->outer, ret);
}

bool hmac_equal(const uint8_t a[SHA256_SIZE], const uint8_t b[SHA256_SIZE])
{
	volatile uint8_t differ = 0;

	for (size_t i = 0; i < SHA256_SIZE; i++)
		differ |= a[i] ^ b[i];
	return differ == 0;
}
