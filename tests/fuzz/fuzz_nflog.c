// SPDX-License-Identifier: Apache-2.0
/* Reports of refused packets. Property: whatever comes, addresses are of one family,
 * ports are only there for protocols that have them, the prefix ends. */
#include <assert.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "filter/nflog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(void *data, const struct nflog_packet *p)
{
	assert(p->source.family == p->destination.family);
	assert(p->source.family == ADDR_V4 || p->source.family == ADDR_V6);
	assert(memchr(p->prefix, '\0', sizeof(p->prefix)));
	if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6)
		assert(p->source_port == 0 && p->destination_port == 0);
	++*(int *)data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy = malloc(size + 1); /* aligned as a receive buffer is */
	int seen = 0;

	memcpy(copy, data, size);
	assert(nflog_parse(copy, size, check, &seen) == seen);
	free(copy);
	return 0;
}
