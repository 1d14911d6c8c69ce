// SPDX-License-Identifier: Apache-2.0
/* base/sha256 - SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for what Weir signs for
 * itself. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_BLOCK_SIZE = 64 };

struct sha256 {
	uint32_t state[8];
	uint64_t size; /* bytes so far */
	uint8_t block[SHA256_BLOCK_SIZE];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t size);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_SIZE]);

struct hmac {
	struct sha256 inner, outer;
};

/* @size is at most SHA256_BLOCK_SIZE. */
void hmac_init(struct hmac *h, const uint8_t *key, size_t size);
void hmac_add(struct hmac *h, const void *bytes, size_t size);
void hmac_end(struct hmac *h, uint8_t ret[SHA256_SIZE]);

/* In a time that says nothing about where they differ. */
bool hmac_equal(const uint8_t a[SHA256_SIZE], const uint8_t b[SHA256_SIZE]);
