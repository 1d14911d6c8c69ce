// SPDX-License-Identifier: Apache-2.0
/* Replies of nf_tables. Property: a batch whose last message was not acknowledged is
 * never done without an error, and a dump's attributes stay inside the datagram. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "filter/message.h"
#include "filter/nft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PORT = 0x41, FIRST = 0x42, LAST = 0x43 };

static const uint8_t *end;

static int walk(void *data, uint16_t type, uint8_t family, const struct nl_attrs *attrs)
{
	uint32_t v;

	for (size_t i = 0; i < NL_ATTR_MAX; i++) {
		const struct nlattr *a = attrs->at[i];
		struct nl_attrs nested;

		if (!a)
			continue;
		assert((const uint8_t *)a + a->nla_len <= end);
		(void)nl_get_u32(a, &v);
		*(size_t *)data += strlen(nl_get_text(a));
		(void)nl_attrs_nested(a, &nested);
		*(size_t *)data += nft_said(a).generation;
	}
	return 0;
}

/* The bytes of an acknowledgement of LAST somewhere in the input. */
static bool may_acknowledge(const uint8_t *data, size_t size)
{
	static const uint8_t tail[] = { LAST, 0, 0, 0, PORT, 0, 0, 0, 0, 0, 0, 0 };

	return memmem(data, size, tail, sizeof(tail)) != NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1);
	struct nl_outcome o = { 0 };
	size_t texts = 0;
	struct nl_dump d = { .port_id = PORT, .seq = FIRST, .fn = walk, .data = &texts };

	memcpy(copy, data, size);
	end = copy + size;
	nl_outcome_read(copy, size, PORT, FIRST, LAST, &o);
	if (o.done && o.error == 0)
		assert(may_acknowledge(data, size));
	assert(o.error <= 0 && (o.done || o.error == 0));
	nl_dump_read(copy, size, &d);
	assert(d.error <= 0);
	free(copy);
	return 0;
}
