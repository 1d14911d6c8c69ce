// SPDX-License-Identifier: Apache-2.0
/* A name that was read is valid, is found where it stands, and survives being written
 * out and, if it is a host name, being formatted and parsed. */
#include <stdlib.h>

#include "dns/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

static void hold_valid(const struct dns_name *n, const uint8_t *raw)
{
	unsigned int labels = 0;
	size_t at = 0;

	for (; n->bytes[at] != 0; at += 1u + n->bytes[at]) {
		HOLD(n->bytes[at] <= DNS_LABEL_MAX);
		labels++;
	}
	HOLD(at + 1 == n->size && labels == n->labels);
	for (size_t i = 0; i < n->size; i++) {
		HOLD(n->bytes[i] < 'A' || n->bytes[i] > 'Z');
		HOLD(raw[i] == n->bytes[i] || (raw[i] | 0x20) == n->bytes[i]);
	}
}

static void hold_text(const struct dns_name *n)
{
	char text[DNS_NAME_TEXT_SIZE];
	struct dns_name again;

	HOLD(strlen(dns_name_format(n, text)) < sizeof(text));
	if (dns_name_is_host(n)) {
		HOLD(dns_name_parse(text_of(text), &again) == 0);
		HOLD(dns_name_equal(n, &again));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire w = wire_reader(data, size);
	uint8_t raw[DNS_NAME_MAX];
	struct dns_name name, again;
	size_t offset = size > 0 ? data[0] : 0;
	struct wire copy;

	wire_seek(&w, offset);
	if (dns_name_read(&w, &name, raw) < 0) {
		HOLD(!wire_ok(&w));
		return 0;
	}
	HOLD(wire_ok(&w) && wire_offset(&w) > offset);
	hold_valid(&name, raw);
	hold_text(&name);
	HOLD(dns_name_is_at(&w, offset, name.bytes));
	HOLD(dns_name_is_within(&name, &name));
	copy = wire_reader(raw, name.size);
	HOLD(dns_name_read(&copy, &again, NULL) == 0 && wire_left(&copy) == 0);
	HOLD(dns_name_equal(&name, &again) && again.labels == name.labels);
	return 0;
}
