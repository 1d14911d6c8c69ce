// SPDX-License-Identifier: Apache-2.0
/* However a hello is cut into segments it reads the same: each prefix asks for more until
 * the verdict, and the verdict stays. What is read is a canonical host name. A hello
 * that is cut into other records reads the same too. Behind a hello no record that begins
 * a ClientHello is ever passed unread, and a server's HelloRetryRequest never ends the
 * reading.
 */
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
	HOLD(wire_host_equal(&hello.name, &want->name));
}

/* One record: each prefix asks for more, or says the same. */
static void hold_prefixes(const uint8_t *data, size_t size, bool server, bool early,
			  enum tls_next want)
{
	size_t pass = 0;

	for (size_t n = 0; n < size && n < 2 * TLS_ANSWER_LOOK; n++) {
		enum tls_next r = server ? tls_answer_read(data, n, &pass)
					 : tls_next_read(data, n, early, &pass);

		HOLD(r == TLS_NEXT_MORE || r == want);
	}
}

/* The client's records: where the reading ends, or gives up, no hello begins. */
static void hold_next(const uint8_t *data, size_t size, bool early)
{
	enum tls_next r = TLS_NEXT_PASS;
	struct tls_hello hello;

	for (size_t at = 0, pass = 0; r == TLS_NEXT_PASS && at <= size; at += pass) {
		const uint8_t *b = data + at;
		bool begins = size - at > 5 && b[0] == 22 && b[1] == 3 && b[5] == 1 &&
			      b[3] + b[4] > 0 && b[3] <= 64;

		r = tls_next_read(b, size - at, early, &pass);
		hold_prefixes(b, size - at, false, early, r);
		HOLD(!begins || r == TLS_NEXT_HELLO);
		HOLD(r != TLS_NEXT_PASS || (pass >= 5 && b[0] != 22));
		HOLD(r != TLS_NEXT_END || b[0] == 23 || b[0] == 22);
		if (r == TLS_NEXT_HELLO &&
		    tls_hello_read(b, size - at, &hello) == TLS_OK) {
			HOLD(hello.size > 5 && hello.size <= size - at);
			pass = hello.size;
			early = hello.early_data;
			r = TLS_NEXT_PASS;
		}
	}
}

static const uint8_t retry[] = {
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
	0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
	0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
};

static void hold_answer(const uint8_t *data, size_t size)
{
	size_t pass = 0;
	enum tls_next r = tls_answer_read(data, size, &pass);

	hold_prefixes(data, size, true, false, r);
	HOLD(r != TLS_NEXT_END || (data[0] == 22 && data[5] == 2 &&
				   memcmp(data + 11, retry, sizeof(retry)) != 0));
	HOLD(r != TLS_NEXT_HELLO);
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
	hold_next(data, size, false);
	hold_next(data, size, true);
	hold_answer(data, size);
	if (want == TLS_OK) {
		HOLD(whole.size > 5 && whole.size <= size);
		HOLD(tls_hello_read(data, whole.size, &part) == TLS_OK);
		HOLD(tls_hello_read(data, whole.size - 1, &part) == TLS_NEED_MORE);
		hold_name(&whole.name);
		hold_recut(data, size, 1 + size % 97, &whole);
	}
	return 0;
}
