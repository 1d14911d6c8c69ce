// SPDX-License-Identifier: Apache-2.0
/* What conntrack answers. Property: a mark is there only when it is said to be, and only
 * bytes that hold the ends of the connection give one. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sys/ctmark.h"

enum { UNTOUCHED = 0x12345678 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct endpoint local = { addr_v4(127, 0, 0, 1), 15353 };
	const struct endpoint peer = { addr_v4(10, 0, 0, 5), 40000 };
	uint8_t *copy = malloc(size + 1); /* aligned as a receive buffer is */
	uint32_t mark = UNTOUCHED;
	struct nl_attrs entry;
	int r;

	memcpy(copy, data, size);
	r = ctmark_read(copy, size, 77, 5, &entry);
	assert(r <= 1);
	if (r == 0)
		r = ctmark_of_entry(&entry, &local, &peer, &mark);
	if (r == 0)
		assert(memmem(copy, size, local.addr.bytes, 4) &&
		       memmem(copy, size, peer.addr.bytes, 4));
	else
		assert(mark == UNTOUCHED);
	free(copy);
	return 0;
}
