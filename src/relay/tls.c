// SPDX-License-Identifier: Apache-2.0
#include "relay/tls.h"

#include <string.h>

#include "base/wire.h"

enum {
	RECORD_CHANGE_CIPHER_SPEC = 20,
	RECORD_ALERT = 21,
	RECORD_HANDSHAKE = 22,
	RECORD_APPLICATION_DATA = 23,
	RECORD_HEARTBEAT = 24,
	RECORD_HEADER = 5,
	RECORD_MAX = 16 * 1024,
	RECORD_ENCRYPTED_MAX = RECORD_MAX + 2048,

	HANDSHAKE_CLIENT_HELLO = 1,
	HANDSHAKE_SERVER_HELLO = 2,
	HANDSHAKE_CERTIFICATE = 11,
	HANDSHAKE_CLIENT_KEY_EXCHANGE = 16,
	HANDSHAKE_HEADER = 4,

	SSL2_CLIENT_HELLO = 1,

	MAJORS = 16, /* that some server reads as TLS in a first record: Go's */
	RANDOM_SIZE = 32,
	SESSION_ID_MAX = 32,

	EXTENSION_SERVER_NAME = 0,
	EXTENSION_EARLY_DATA = 42,
	NAME_TYPE_HOST = 0,

	ALERT_FATAL = 2,
};

/* The handshake message, taken out of its records. */
struct message {
	uint8_t bytes[TLS_FIRST_MAX];
	size_t have, size; /* @size: with the header, 0 while it isn't known */
};

static enum tls_read bad_hello(struct tls_hello *ret, enum tls_fault f)
{
	ret->fault = (uint8_t)f;
	return TLS_BAD;
}

/* --- records --- */

/* @like: for each of the first @count bytes, whether it is as in such a hello. All are:
 * it is bad by @fault. */
static enum tls_read compare(const bool *like, size_t count, size_t size,
			     enum tls_fault fault, struct tls_hello *ret)
{
	for (size_t i = 0; i < count; i++) {
		if (i >= size)
			return TLS_NEED_MORE;
		if (!like[i])
			return TLS_NOT;
	}
	return bad_hello(ret, fault);
}

static enum tls_read read_kind(const uint8_t *b, size_t size, struct tls_hello *ret)
{
	if (size == 0)
		return TLS_NEED_MORE;
	if (b[0] & 0x80) {
		/* A two-byte header, then CLIENT-HELLO and a version: a server that still
		 * takes it would go on with any TLS version. */
		const bool like[] = {
			true,
			true,
			size > 2 && b[2] == SSL2_CLIENT_HELLO,
			size > 3 && (b[3] == 0 || b[3] == TLS_MAJOR),
			size > 4 && (b[3] == 0 ? b[4] == 2 : b[4] <= 4),
		};

		return compare(like, ARRAY_SIZE(like), size, TLS_OLD_HELLO, ret);
	}
	if (b[0] < RECORD_CHANGE_CIPHER_SPEC || b[0] > RECORD_HEARTBEAT)
		return TLS_NOT;
	if (size == 1)
		return TLS_NEED_MORE;
	if (b[1] != TLS_MAJOR) {
		/* A record of another major version. Most servers refuse it. One that
		 * doesn't would read the hello in it, or an alert that it drops and the
		 * hello behind that; a hello's type and a warning's level are both 1. */
		const bool like[] = {
			b[0] == RECORD_HANDSHAKE || b[0] == RECORD_ALERT,
			MAJORS > b[1],
			true,
			true,
			size > 4 && (b[3] | b[4]) != 0 && b[3] <= RECORD_MAX >> 8,
			size > 5 && b[5] == HANDSHAKE_CLIENT_HELLO,
		};

		return compare(like, ARRAY_SIZE(like), size, TLS_MALFORMED, ret);
	}
	return b[0] == RECORD_HANDSHAKE ? TLS_OK : bad_hello(ret, TLS_NOT_A_HELLO);
}

/* Take one record, or as much as there is of it. TLS_OK: the message is whole. */
static enum tls_read take_record(struct wire *w, struct message *m, struct tls_hello *ret)
{
	size_t left = wire_left(w), length, part;
	const uint8_t *b = w->pos;

	if (left > 0 && b[0] != RECORD_HANDSHAKE)
		return bad_hello(ret, TLS_NOT_A_HELLO);
	if (left > 1 && b[1] != TLS_MAJOR)
		return bad_hello(ret, TLS_MALFORMED);
	if (left < RECORD_HEADER)
		return TLS_NEED_MORE;
	length = (size_t)b[3] << 8 | b[4];
	if (length == 0 || length > RECORD_MAX)
		return bad_hello(ret, TLS_MALFORMED);
	part = MIN(length, left - RECORD_HEADER);
	memcpy(m->bytes + m->have, b + RECORD_HEADER, part);
	m->have += part;
	/* The message's own header, as soon as it is there. */
	if (m->have > 0 && m->bytes[0] != HANDSHAKE_CLIENT_HELLO)
		return bad_hello(ret, TLS_NOT_A_HELLO);
	if (m->have >= HANDSHAKE_HEADER)
		m->size = HANDSHAKE_HEADER + ((size_t)m->bytes[1] << 16 |
					      (size_t)m->bytes[2] << 8 | m->bytes[3]);
	if (m->size > sizeof(m->bytes))
		return bad_hello(ret, TLS_TOO_LONG);
	if (m->size > 0 && m->have > m->size)
		return bad_hello(ret, TLS_MALFORMED); /* more than the hello */
	if (part < length || !wire_take(w, RECORD_HEADER + length))
		return m->size > 0 && m->have == m->size ? bad_hello(ret, TLS_MALFORMED)
							 : TLS_NEED_MORE;
	return m->size > 0 && m->have == m->size ? TLS_OK : TLS_NEED_MORE;
}

/* --- the hello --- */

/* A vector with a length of @width bytes, as a reader of its own. */
static struct wire read_vector(struct wire *w, int width)
{
	size_t size = width == 1 ? wire_read_u8(w) : wire_read_u16(w);
	const uint8_t *p = wire_take(w, size);

	return p ? wire_reader(p, size) : (struct wire){ .failed = true };
}

static bool is_used_up(const struct wire *w)
{
	return wire_ok(w) && wire_left(w) == 0;
}

static enum tls_fault read_server_name(struct wire *body, struct tls_hello *ret)
{
	struct wire list = read_vector(body, 2), host;
	struct addr address;
	struct text t;
	uint8_t type;

	if (!is_used_up(body))
		return TLS_MALFORMED;
	if (ret->name.kind != WIRE_HOST_BAD)
		return TLS_SEVERAL_NAMES;
	type = wire_read_u8(&list);
	host = read_vector(&list, 2);
	if (!wire_ok(&host) || type != NAME_TYPE_HOST)
		return TLS_MALFORMED;
	if (wire_left(&list) > 0)
		return TLS_SEVERAL_NAMES;
	t = (struct text){ (const char *)host.pos, wire_left(&host) };
	if (addr_parse(t.ptr, t.len, &address))
		return TLS_NAME_IS_ADDRESS;
	switch (wire_host_read(t, &ret->name)) {
	case WIRE_HOST_NAME:
		return TLS_FAULT_NONE;
	case WIRE_HOST_ADDRESS:
		return TLS_NAME_IS_ADDRESS;
	default:
		return TLS_NAME_MALFORMED;
	}
}

static enum tls_fault read_body(struct wire *w, struct tls_hello *ret)
{
	struct wire session, suites, methods, extensions;
	enum tls_fault f;

	if (wire_read_u16(w) >> 8 != TLS_MAJOR)
		return TLS_MALFORMED;
	wire_take(w, RANDOM_SIZE);
	session = read_vector(w, 1);
	suites = read_vector(w, 2);
	methods = read_vector(w, 1);
	if (!wire_ok(w) || wire_left(&session) > SESSION_ID_MAX ||
	    wire_left(&suites) < 2 || wire_left(&suites) % 2 != 0 ||
	    wire_left(&methods) == 0)
		return TLS_MALFORMED;
	if (is_used_up(w))
		return TLS_NO_NAME;
	extensions = read_vector(w, 2);
	if (!is_used_up(w))
		return TLS_MALFORMED;
	while (wire_ok(&extensions) && wire_left(&extensions) > 0) {
		uint16_t type = wire_read_u16(&extensions);
		struct wire body = read_vector(&extensions, 2);

		if (!wire_ok(&body))
			return TLS_MALFORMED;
		if (type == EXTENSION_SERVER_NAME) {
			f = read_server_name(&body, ret);
			if (f != TLS_FAULT_NONE)
				return f;
		}
		ret->early_data = ret->early_data || type == EXTENSION_EARLY_DATA;
	}
	if (!wire_ok(&extensions))
		return TLS_MALFORMED;
	return ret->name.kind == WIRE_HOST_BAD ? TLS_NO_NAME : TLS_FAULT_NONE;
}

enum tls_read tls_hello_read(const uint8_t *bytes, size_t size, struct tls_hello *ret)
{
	struct tls_hello hello = { .fault = TLS_FAULT_NONE };
	struct wire w = wire_reader(bytes, MIN(size, (size_t)TLS_FIRST_MAX));
	enum tls_read r = read_kind(bytes, size, &hello);
	const uint8_t *before;
	struct message m;

	if (r == TLS_OK) {
		m.have = m.size = 0;
		do {
			before = w.pos;
			r = take_record(&w, &m, &hello);
		} while (r == TLS_NEED_MORE && w.pos > before);
		if (r == TLS_NEED_MORE && size >= TLS_FIRST_MAX)
			r = bad_hello(&hello, TLS_TOO_LONG);
		else
			hello.size = wire_offset(&w);
	}
	if (r == TLS_OK) {
		w = wire_reader(m.bytes, m.size);
		wire_take(&w, HANDSHAKE_HEADER);
		hello.fault = (uint8_t)read_body(&w, &hello);
		if (hello.fault != TLS_FAULT_NONE)
			r = TLS_BAD;
	}
	if (r == TLS_OK || r == TLS_BAD)
		*ret = hello;
	return r;
}

/* --- what follows a hello --- */

/* The header of a record of TLS. TLS_NEXT_PASS: it is whole, and sound. */
static enum tls_next read_record_header(const uint8_t *b, size_t size, size_t *ret_size)
{
	if ((size > 0 &&
	     (b[0] < RECORD_CHANGE_CIPHER_SPEC || b[0] > RECORD_APPLICATION_DATA)) ||
	    (size > 1 && b[1] != TLS_MAJOR))
		return TLS_NEXT_UNKNOWN;
	if (size < RECORD_HEADER)
		return TLS_NEXT_MORE;
	*ret_size = RECORD_HEADER + ((size_t)b[3] << 8 | b[4]);
	return *ret_size > RECORD_HEADER + RECORD_ENCRYPTED_MAX ? TLS_NEXT_UNKNOWN
								: TLS_NEXT_PASS;
}

enum tls_next tls_next_read(const uint8_t *bytes, size_t size, bool early_data,
			    size_t *ret_size)
{
	enum tls_next r = read_record_header(bytes, size, ret_size);

	if (r != TLS_NEXT_PASS)
		return r;
	if (bytes[0] == RECORD_APPLICATION_DATA)
		return early_data ? TLS_NEXT_PASS : TLS_NEXT_END;
	if (bytes[0] != RECORD_HANDSHAKE)
		return TLS_NEXT_PASS;
	if (*ret_size == RECORD_HEADER)
		return TLS_NEXT_UNKNOWN;
	if (size <= RECORD_HEADER)
		return TLS_NEXT_MORE;
	switch (bytes[RECORD_HEADER]) { /* the message's type */
	case HANDSHAKE_CLIENT_HELLO:
		return TLS_NEXT_HELLO;
	case HANDSHAKE_CERTIFICATE:
	case HANDSHAKE_CLIENT_KEY_EXCHANGE:
		return TLS_NEXT_END;
	default:
		return TLS_NEXT_UNKNOWN;
	}
}

/* RFC 8446 4.1.3: the random bytes by which a ServerHello is a HelloRetryRequest. */
static const uint8_t retry_random[RANDOM_SIZE] = {
	0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
	0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
	0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
};

enum tls_next tls_answer_read(const uint8_t *bytes, size_t size, size_t *ret_size)
{
	enum tls_next r = read_record_header(bytes, size, ret_size);
	size_t length, have, record;
	const uint8_t *random;
	struct wire w;

	if (r != TLS_NEXT_PASS)
		return r;
	if (bytes[0] == RECORD_APPLICATION_DATA)
		return TLS_NEXT_UNKNOWN;
	if (bytes[0] != RECORD_HANDSHAKE)
		return TLS_NEXT_PASS;
	/* The record's first message. A HelloRetryRequest has to fill its record: what
	 * else were in it is not read. */
	record = *ret_size - RECORD_HEADER;
	have = MIN(size, *ret_size) - RECORD_HEADER;
	w = wire_reader(bytes + RECORD_HEADER, have);
	if (wire_read_u8(&w) != HANDSHAKE_SERVER_HELLO)
		return have > 0 || record == 0 ? TLS_NEXT_UNKNOWN : TLS_NEXT_MORE;
	length = (size_t)wire_read_u8(&w) << 16;
	length |= wire_read_u16(&w);
	wire_read_u16(&w);
	random = wire_take(&w, RANDOM_SIZE);
	if (!random)
		return have < record ? TLS_NEXT_MORE : TLS_NEXT_UNKNOWN;
	if (memcmp(random, retry_random, RANDOM_SIZE) != 0)
		return TLS_NEXT_END;
	return length + HANDSHAKE_HEADER == record ? TLS_NEXT_PASS : TLS_NEXT_UNKNOWN;
}

const char *tls_fault_text(enum tls_fault f)
{
	static const char *const texts[TLS_FAULT_COUNT] = {
		[TLS_FAULT_NONE] = "none",
		[TLS_NO_NAME] = "TLS without a server name",
		[TLS_SEVERAL_NAMES] = "TLS with several server names",
		[TLS_NAME_IS_ADDRESS] = "TLS with an address as server name",
		[TLS_NAME_MALFORMED] = "TLS with a malformed server name",
		[TLS_MALFORMED] = "a malformed TLS ClientHello",
		[TLS_NOT_A_HELLO] = "TLS that doesn't begin with a ClientHello",
		[TLS_OLD_HELLO] = "a ClientHello in the form of SSL 2",
		[TLS_TOO_LONG] = "a TLS ClientHello over 16 KiB",
		[TLS_BAD_ORDER] = "TLS records that no client sends behind a hello",
	};

	return f < TLS_FAULT_COUNT ? texts[f] : "none";
}

void tls_alert_write(enum tls_alert which, uint8_t ret[TLS_ALERT_SIZE])
{
	const uint8_t alert[TLS_ALERT_SIZE] = { RECORD_ALERT, TLS_MAJOR,     3, 0, 2,
						ALERT_FATAL,  (uint8_t)which };

	memcpy(ret, alert, sizeof(alert));
}
