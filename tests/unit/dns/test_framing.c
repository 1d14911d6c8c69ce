// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "dns/framing.h"
#include "unit.h"

static const char stream[] = "\0\3abc\0\1d\0\5efghi";
enum { STREAM_SIZE = sizeof(stream) - 1 };

static void feed(struct dns_framing *f, const char *bytes, size_t size)
{
	uint8_t *to;

	assert_true(dns_framing_room(f, &to) >= size);
	memcpy(to, bytes, size);
	dns_framing_received(f, size);
}

/* Append whole messages to @out, each followed by '|'. */
static void drain(struct dns_framing *f, char *out)
{
	const uint8_t *message;
	size_t size;

	while (dns_framing_next(f, &message, &size) == 1) {
		out += strlen(out);
		memcpy(out, message, size);
		memcpy(out + size, "|", 2);
	}
}

TEST(messages_come_out_whole_at_every_split)
{
	for (size_t a = 0; a <= STREAM_SIZE; a++) {
		for (size_t b = a; b <= STREAM_SIZE; b++) {
			uint8_t buf[STREAM_SIZE];
			struct dns_framing f;
			char out[64] = "";

			dns_framing_init(&f, buf, sizeof(buf));
			feed(&f, stream, a);
			drain(&f, out);
			feed(&f, stream + a, b - a);
			drain(&f, out);
			feed(&f, stream + b, STREAM_SIZE - b);
			drain(&f, out);
			assert_string_equal(out, "abc|d|efghi|");
			assert_false(dns_framing_is_within(&f));
		}
	}
}

TEST(what_is_put_back_may_come_again)
{
	uint8_t buf[STREAM_SIZE];
	struct dns_framing f;
	const uint8_t *message;
	char out[64] = "";
	size_t size;

	dns_framing_init(&f, buf, sizeof(buf));
	feed(&f, stream, STREAM_SIZE);
	assert_int_equal(dns_framing_next(&f, &message, &size), 1);
	assert_int_equal(dns_framing_put_back(&f), STREAM_SIZE - 5);
	assert_false(dns_framing_is_within(&f));
	assert_int_equal(dns_framing_next(&f, &message, &size), 0);
	feed(&f, stream + 5, STREAM_SIZE - 5);
	drain(&f, out);
	assert_string_equal(out, "d|efghi|");
}

TEST(octet_by_octet_fits_a_buffer_of_one_message)
{
	uint8_t buf[7];
	struct dns_framing f;
	char out[64] = "";

	dns_framing_init(&f, buf, sizeof(buf));
	for (size_t i = 0; i < STREAM_SIZE; i++) {
		feed(&f, stream + i, 1);
		drain(&f, out);
	}
	assert_string_equal(out, "abc|d|efghi|");
}

TEST(length_zero_ends_the_stream)
{
	uint8_t buf[16];
	const uint8_t *message;
	struct dns_framing f;
	size_t size;

	dns_framing_init(&f, buf, sizeof(buf));
	feed(&f, "\0\1a\0\0\0\1b", 8);
	assert_int_equal(dns_framing_next(&f, &message, &size), 1);
	assert_int_equal(dns_framing_next(&f, &message, &size), -EBADMSG);
	assert_int_equal(dns_framing_next(&f, &message, &size), -EBADMSG);
}

TEST(a_length_over_the_buffer_is_refused_at_once)
{
	uint8_t buf[16];
	const uint8_t *message;
	struct dns_framing f;
	size_t size;

	dns_framing_init(&f, buf, sizeof(buf));
	feed(&f, "\0\xf", 2);
	assert_int_equal(dns_framing_next(&f, &message, &size), -EBADMSG);
	dns_framing_init(&f, buf, sizeof(buf));
	feed(&f, "\0\xe", 2);
	assert_int_equal(dns_framing_next(&f, &message, &size), 0);
	assert_true(dns_framing_is_within(&f));
}

TEST(the_prefix_is_read_back)
{
	uint8_t prefix[DNS_FRAME_PREFIX];

	dns_framing_write_prefix(prefix, 0x1234);
	assert_int_equal(prefix[0], 0x12);
	assert_int_equal(prefix[1], 0x34);
}
