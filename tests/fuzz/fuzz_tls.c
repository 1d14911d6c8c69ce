// SPDX-License-Identifier: Apache-2.0
/* However a hello is cut into segments it reads the same: each prefix asks for more until
 * the verdict, and the verdict stays. What is read is a canonical host name. A hello
 * that is cut into other records reads the same too. */
#include <stdlib.h>
#include <string.h>

#include "relay/first.h"
#include "relay/tls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

static void hold_name(const struct wire_host *h)
{
	struct wire_host again = { 0 };

	HOLD(h->kind == WIRE_HOST_NAME && h->size > 0 && h->size == strlen(h->text));
	HOLD(wire_host_read(text_of(h->text), &again) == WIRE_HOST_NAME);
	HOLD(wire_host_equal(h, &again));
}

/* A hello that is one record, in records of @step bytes. */
static void hold_recut(const uint8_t *data, size_t size, size_t step,
		       const struct tls_hello *want)
{
	static uint8_t out[1 << 16];
	size_t length = (size_t)data[3] << 8 | data[4], used = 0;
	size_t message = (size_t)data[6] << 16 | (size_t)data[7] << 8 | data[8];
	struct tls_hello hello;

	if (length + 5 > size || message + 4 != length)
		return;
	for (size_t at = 0; at < length; at += step) {
		size_t n = length - at < step ? length - at : step;
		uint8_t head[5] = { 22, 3, 1, (uint8_t)(n >> 8), (uint8_t)n };

		memcpy(out + used, head, 5);
		memcpy(out + used + 5, data + 5 + at, n);
		used += 5 + n;
	}
	if (used > TLS_FIRST_MAX)
		return;
	HOLD(tls_hello_read(out, used, &hello) == TLS_OK);
	HOLD(wire_host_equal(&hello.name, &want->name) && hello.ech == want->ech);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_hello whole = { 0 }, part;
	enum tls_read want, got = TLS_NEED_MORE;
	const char *reason = NULL;

	if (size > 2 * TLS_FIRST_MAX)
		return 0;
	want = tls_hello_read(data, size, &whole);
	for (size_t n = 0; n < size && got == TLS_NEED_MORE; n += 1 + n / 64)
		got = tls_hello_read(data, n, &part);
	HOLD(got == TLS_NEED_MORE ||
	     (got == want && (got != TLS_BAD || part.fault == whole.fault)));
	if (want == TLS_OK || want == TLS_BAD)
		HOLD(first_kind(data, size, &reason) == FIRST_TLS);
	if (want == TLS_OK) {
		hold_name(&whole.name);
		hold_recut(data, size, 1 + size % 97, &whole);
	}
	return 0;
}
