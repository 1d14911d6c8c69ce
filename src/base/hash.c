// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <string.h>

static inline uint64_t rotate(uint64_t x, int b)
{
	return x << b | x >> (64 - b);
}

/* Inline, so that the state stays in registers: called, it costs twice as much. */
static inline __attribute__((always_inline)) void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[0] = rotate(v[0], 32);
	v[2] += v[3];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

uint64_t hash_bytes(const struct hash_key *key, const void *bytes, size_t size)
{
	uint64_t v[4] = {
		key->k0 ^ 0x736f6d6570736575u,
		key->k1 ^ 0x646f72616e646f6du,
		key->k0 ^ 0x6c7967656e657261u,
		key->k1 ^ 0x7465646279746573u,
	};
	const unsigned char *p = bytes;
	uint64_t last = (uint64_t)size << 56;
	uint64_t m;

	for (; size >= 8; p += 8, size -= 8) {
		memcpy(&m, p, 8);
		v[3] ^= m;
		sip_round(v);
		v[0] ^= m;
	}
	/* The last 0 to 7 octets, as one number. A copy of variable length would be a
	 * call. */
	for (size_t i = 0; i < size; i++)
		last |= (uint64_t)p[i] << (8 * i);
	v[3] ^= last;
	sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
