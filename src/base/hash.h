// SPDX-License-Identifier: Apache-2.0
/* hash - a keyed hash for tables whose keys an attacker chooses.
 *
 * SipHash-1-3 (Aumasson and Bernstein, 2012, with the round counts that Linux uses
 * for its hash tables). Without the key nobody can choose colliding names. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hash_key {
	uint64_t k0, k1;
};

uint64_t hash_bytes(const struct hash_key *key, const void *bytes, size_t size);
