// SPDX-License-Identifier: Apache-2.0
/* However a stream is cut, the same messages come out of it and it ends the same way.
 * The first octets of the input say how it is cut. */
#include <stdlib.h>
#include <string.h>

#include "dns/framing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLD(x) ((x) ? (void)0 : abort())

enum { BUFFER = 64, CUTS = 8, STREAM_MAX = 4096 };

struct output {
	uint8_t bytes[STREAM_MAX]; /* the messages, one behind the other */
	size_t size;
	unsigned int messages;
	int end; /* of the stream: 0 or -errno */
};

static void drain(struct dns_framing *f, struct output *out)
{
	const uint8_t *message;
	size_t size;

	while ((out->end = dns_framing_next(f, &message, &size)) == 1) {
		HOLD(size > 0 && out->size + size <= sizeof(out->bytes));
		memcpy(out->bytes + out->size, message, size);
		out->size += size;
		out->messages++;
	}
}

/* Feed the stream in pieces of cuts[i % CUTS] octets. */
static void run(const uint8_t *stream, size_t size, const uint8_t cuts[CUTS],
		struct output *out)
{
	struct dns_framing f;
	uint8_t buf[BUFFER];
	size_t piece = 0;

	memset(out, 0, sizeof(*out));
	dns_framing_init(&f, buf, sizeof(buf));
	while (size > 0 && out->end == 0) {
		uint8_t *to;
		size_t room = dns_framing_room(&f, &to);
		size_t n = cuts[piece++ % CUTS] % BUFFER + 1u;

		HOLD(room > 0);
		n = n < room ? n : room;
		n = n < size ? n : size;
		memcpy(to, stream, n);
		dns_framing_received(&f, n);
		stream += n;
		size -= n;
		drain(&f, out);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t single[CUTS] = { 0 };
	static struct output a, b;

	if (size < CUTS || size > STREAM_MAX)
		return 0;
	run(data + CUTS, size - CUTS, data, &a);
	run(data + CUTS, size - CUTS, single, &b);
	HOLD(a.messages == b.messages && a.size == b.size && a.end == b.end);
	HOLD(memcmp(a.bytes, b.bytes, a.size) == 0);
	return 0;
}
