// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <stdint.h>
#include <string.h>

#include "unit.h"

TEST(key_and_length_matter)
{
	struct hash_key a = { 1, 2 }, b = { 1, 3 };
	uint8_t zeros[16] = { 0 };

	assert_true(hash_bytes(&a, "x", 1) != hash_bytes(&b, "x", 1));
	for (size_t i = 0; i < sizeof(zeros); i++)
		assert_true(hash_bytes(&a, zeros, i) != hash_bytes(&a, zeros, i + 1));
	assert_true(hash_bytes(&a, "abcdefgh1", 9) == hash_bytes(&a, "abcdefgh1", 9));
}
