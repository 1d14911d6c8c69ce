// SPDX-License-Identifier: Apache-2.0
/* What the self-test takes for an answer carries its own id and question, and is no
 * shorter than they are; an address in it is there byte for byte. */
#include <stdlib.h>
#include <string.h>

#include "supervisor/init.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t query[LOOKUP_QUERY_MAX];
	size_t asked = lookup_write("a.example", 0x1234, query, sizeof(query));
	struct lookup_answer answer = { 0 };

	HOLD(asked > 0);
	if (!lookup_read(query, asked, data, size, &answer))
		return 0;
	HOLD(size >= asked && memcmp(data, query, 2) == 0 && answer.rcode < 16);
	HOLD(memcmp(data + 12, query + 12, asked - 12) == 0);
	if (answer.has_address)
		HOLD(memmem(data + asked, size - asked, answer.address,
			    sizeof(answer.address)));
	return 0;
}
