// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/wire.h"
#include "relay/tls.h"
#include "unit.h"

enum { HELLO_MAX = TLS_FIRST_MAX + 4096 };

struct bytes {
	uint8_t at[HELLO_MAX];
	size_t size;
};

/* --- building hellos --- */

/* An extension of @type with @body. */
static size_t put_extension(uint8_t *to, uint16_t type, const void *body, size_t size)
{
	struct wire w = wire_writer(to, size + 4);

	wire_write_u16(&w, type);
	wire_write_u16(&w, (uint16_t)size);
	wire_write_bytes(&w, body, size);
	return size + 4;
}

/* A server_name extension with one host_name. */
static size_t put_name(uint8_t *to, const char *name, size_t size)
{
	uint8_t body[400];
	struct wire w = wire_writer(body, sizeof(body));

	wire_write_u16(&w, (uint16_t)(size + 3));
	wire_write_u8(&w, 0);
	wire_write_u16(&w, (uint16_t)size);
	wire_write_bytes(&w, name, size);
	return put_extension(to, 0, body, wire_offset(&w));
}

/* A ClientHello message with these extensions; @extensions NULL: without the field. */
static size_t put_message(uint8_t *to, const uint8_t *extensions, size_t size)
{
	struct wire w = wire_writer(to, HELLO_MAX);
	uint8_t random[32] = { 7 };

	wire_write_u8(&w, 1);
	wire_write_u8(&w, 0);
	wire_write_u16(&w, 0); /* set below */
	wire_write_u16(&w, 0x0303);
	wire_write_bytes(&w, random, sizeof(random));
	wire_write_u8(&w, 0);
	wire_write_u16(&w, 2);
	wire_write_u16(&w, 0x1301);
	wire_write_u8(&w, 1);
	wire_write_u8(&w, 0);
	if (extensions) {
		wire_write_u16(&w, (uint16_t)size);
		wire_write_bytes(&w, extensions, size);
	}
	to[2] = (uint8_t)((wire_offset(&w) - 4) >> 8);
	to[3] = (uint8_t)(wire_offset(&w) - 4);
	return wire_offset(&w);
}

/* Cut a message into records of @step bytes. */
static void put_records(struct bytes *to, const uint8_t *message, size_t size,
			size_t step)
{
	to->size = 0;
	for (size_t at = 0; at < size; at += step) {
		size_t n = MIN(step, size - at);
		uint8_t head[5] = { 22, 3, 1, (uint8_t)(n >> 8), (uint8_t)n };

		assert_true(to->size + 5 + n <= HELLO_MAX);
		memcpy(to->at + to->size, head, 5);
		memcpy(to->at + to->size + 5, message + at, n);
		to->size += 5 + n;
	}
}

static void put_hello(struct bytes *to, const uint8_t *extensions, size_t size)
{
	static uint8_t message[HELLO_MAX];
	size_t n = put_message(message, extensions, size);

	put_records(to, message, n, 16384);
}

static void hello_named(struct bytes *to, const char *name, size_t size)
{
	uint8_t extensions[512];

	put_hello(to, extensions, put_name(extensions, name, size));
}

static void check(const char *what, const struct bytes *b, enum tls_read want,
		  enum tls_fault fault, const char *name)
{
	struct tls_hello h = { .fault = 99 };
	enum tls_read r = tls_hello_read(b->at, b->size, &h);

	if (r != want || (r == TLS_BAD && h.fault != fault))
		fail_msg("%s: %d, %s", what, r,
			 r == TLS_BAD ? tls_fault_text(h.fault) : "");
	if (r == TLS_OK)
		assert_string_equal(h.name.text, name);
}

/* Nothing before the last byte is whole, and nothing good is ever bad. */
static void check_splits(const char *what, const struct bytes *b)
{
	struct tls_hello h;

	for (size_t n = 0; n < b->size; n++)
		if (tls_hello_read(b->at, n, &h) != TLS_NEED_MORE)
			fail_msg("%s: read after %zu of %zu bytes", what, n, b->size);
}

/* --- tests --- */

TEST(names_are_read_or_refused)
{
	static const struct {
		const char *text;
		size_t size;
		enum tls_fault fault;
		const char *name;
	} rows[] = {
		{ "api.ok.test", 11, 0, "api.ok.test" },
		{ "API.ok.test.", 12, 0, "api.ok.test" },
		{ "api.ok.test..", 13, TLS_NAME_MALFORMED, NULL },
		{ "", 0, TLS_NAME_MALFORMED, NULL },
		{ "evil.test\0.pkg.test", 19, TLS_NAME_MALFORMED, NULL },
		{ "10.0.0.5", 8, TLS_NAME_IS_ADDRESS, NULL },
		{ "::1", 3, TLS_NAME_IS_ADDRESS, NULL },
		{ "[::1]", 5, TLS_NAME_IS_ADDRESS, NULL },
		{ "0x7f.1", 6, TLS_NAME_MALFORMED, NULL },
		{ "a b.test", 8, TLS_NAME_MALFORMED, NULL },
		{ "*.ok.test", 9, TLS_NAME_MALFORMED, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct bytes b;

		hello_named(&b, rows[i].text, rows[i].size);
		check(rows[i].text, &b, rows[i].fault ? TLS_BAD : TLS_OK, rows[i].fault,
		      rows[i].name);
		if (!rows[i].fault)
			check_splits(rows[i].text, &b);
	}
}

TEST(exactly_one_name_is_wanted)
{
	static const uint8_t two[] = { 0, 10, 0, 0, 2, 'a', 'b', 0, 0, 2, 'c', 'd' };
	static const uint8_t other_type[] = { 0, 5, 1, 0, 2, 'a', 'b' };
	static const uint8_t empty_list[] = { 0, 0 };
	static const uint8_t short_list[] = { 0, 9, 0, 0, 2, 'a', 'b' };
	static const uint8_t rest[] = { 0, 5, 0, 0, 2, 'a', 'b', 0 };
	static const uint8_t tail[] = { 0, 6, 0, 0, 2, 'a', 'b', 0 };
	static const struct {
		const char *what;
		const uint8_t *body;
		size_t size;
		enum tls_fault fault;
	} rows[] = {
		{ "two names", two, sizeof(two), TLS_SEVERAL_NAMES },
		{ "another type", other_type, sizeof(other_type), TLS_MALFORMED },
		{ "empty list", empty_list, sizeof(empty_list), TLS_MALFORMED },
		{ "empty extension", empty_list, 0, TLS_MALFORMED },
		{ "short list", short_list, sizeof(short_list), TLS_MALFORMED },
		{ "bytes behind the list", rest, sizeof(rest), TLS_MALFORMED },
		{ "bytes behind the name", tail, sizeof(tail), TLS_SEVERAL_NAMES },
	};
	uint8_t ext[600];
	struct bytes b;
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		n = put_extension(ext, 0, rows[i].body, rows[i].size);
		put_hello(&b, ext, n);
		check(rows[i].what, &b, TLS_BAD, rows[i].fault, NULL);
	}
	n = put_name(ext, "a.test", 6);
	n += put_name(ext + n, "a.test", 6);
	put_hello(&b, ext, n);
	check("the extension twice", &b, TLS_BAD, TLS_SEVERAL_NAMES, NULL);
	put_hello(&b, NULL, 0);
	check("no extensions", &b, TLS_BAD, TLS_NO_NAME, NULL);
	put_hello(&b, ext, put_extension(ext, 16, "\0\3\2h2", 5));
	check("others only", &b, TLS_BAD, TLS_NO_NAME, NULL);
}

TEST(any_split_into_records_reads_the_same)
{
	static uint8_t message[HELLO_MAX], ext[4096];
	size_t n = put_name(ext, "api.ok.test", 11);
	static struct bytes b;

	n += put_extension(ext + n, 51, message,
			   1300); /* as large as a post-quantum share */
	n = put_message(message, ext, n);
	for (size_t step = 1; step <= n; step++) {
		put_records(&b, message, n, step);
		check("records", &b, TLS_OK, 0, "api.ok.test");
	}
	put_records(&b, message, n, 3);
	check_splits("records of three bytes", &b);
	put_records(&b, message, n, 700);
	check_splits("three records", &b);
}

TEST(what_follows_the_hello_is_not_looked_at)
{
	struct bytes b;

	hello_named(&b, "api.ok.test", 11);
	memset(b.at + b.size, 0xff, 100);
	b.size += 100;
	check("more records", &b, TLS_OK, 0, "api.ok.test");
}

TEST(only_a_hello_may_come_first)
{
	static const struct {
		const char *what;
		uint8_t bytes[12];
		size_t size;
		enum tls_read want;
		enum tls_fault fault;
	} rows[] = {
		{ "alert", { 21, 3, 1, 0, 2, 1, 0 }, 7, TLS_BAD, TLS_NOT_A_HELLO },
		{ "change cipher spec",
		  { 20, 3, 1, 0, 1, 1 },
		  6,
		  TLS_BAD,
		  TLS_NOT_A_HELLO },
		{ "data", { 23, 3, 3, 0, 1, 1 }, 6, TLS_BAD, TLS_NOT_A_HELLO },
		{ "heartbeat", { 24, 3, 3, 0, 1, 1 }, 6, TLS_BAD, TLS_NOT_A_HELLO },
		{ "server hello", { 22, 3, 3, 0, 1, 2 }, 6, TLS_BAD, TLS_NOT_A_HELLO },
		{ "empty record", { 22, 3, 1, 0, 0 }, 5, TLS_BAD, TLS_MALFORMED },
		{ "long record", { 22, 3, 1, 0x40, 1 }, 5, TLS_BAD, TLS_MALFORMED },
		{ "alert between",
		  { 22, 3, 1, 0, 1, 1, 21 },
		  7,
		  TLS_BAD,
		  TLS_NOT_A_HELLO },
		{ "long hello",
		  { 22, 3, 1, 0, 4, 1, 0, 0x40, 0 },
		  9,
		  TLS_BAD,
		  TLS_TOO_LONG },
		{ "SSL 2", { 0x80, 0x2e, 1, 0, 2, 0, 0x15 }, 7, TLS_BAD, TLS_OLD_HELLO },
		{ "SSL 2 offering TLS",
		  { 0x80, 0x2e, 1, 3, 1, 0 },
		  6,
		  TLS_BAD,
		  TLS_OLD_HELLO },
		{ "SSL 2, cut", { 0x80, 0x2e, 1, 3 }, 4, TLS_NEED_MORE, 0 },
		{ "nothing", { 0 }, 0, TLS_NEED_MORE, 0 },
		{ "one byte", { 22 }, 1, TLS_NEED_MORE, 0 },
		{ "another version", { 22, 16, 0 }, 3, TLS_NOT, 0 },
		{ "another version, cut", { 22, 2, 0, 0, 9 }, 5, TLS_NEED_MORE, 0 },
		{ "another message", { 22, 2, 0, 0, 9, 2 }, 6, TLS_NOT, 0 },
		{ "an empty record", { 22, 2, 0, 0, 0, 1 }, 6, TLS_NOT, 0 },
		{ "a length of MongoDB", { 22, 1, 0, 0, 1, 0 }, 6, TLS_NOT, 0 },
		{ "a warning of another version",
		  { 21, 4, 1, 0, 2, 1, 90 },
		  7,
		  TLS_BAD,
		  TLS_MALFORMED },
		{ "zeros", { 0, 0, 0, 0, 0 }, 5, TLS_NOT, 0 },
		{ "text", { 'G', 'E', 'T' }, 3, TLS_NOT, 0 },
		{ "high bytes", { 0x80, 0x2e, 2 }, 3, TLS_NOT, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct bytes b;

		memcpy(b.at, rows[i].bytes, sizeof(rows[i].bytes));
		b.size = rows[i].size;
		check(rows[i].what, &b, rows[i].want, rows[i].fault, NULL);
	}
}

/* Go's servers take a first record of any major version below 16. */
TEST(a_hello_in_a_record_of_another_version_is_bad)
{
	struct bytes b;

	for (unsigned int major = 0; major < 256; major++) {
		if (major == 3)
			continue;
		hello_named(&b, "api.ok.test", 11);
		b.at[1] = (uint8_t)major;
		check("another major version", &b, major < 16 ? TLS_BAD : TLS_NOT,
		      TLS_MALFORMED, NULL);
	}
}

TEST(lengths_that_do_not_fit_are_malformed)
{
	struct bytes good, b;
	struct tls_hello h;

	hello_named(&good, "api.ok.test", 11);
	/* The fields behind the session id, one by one: suites, methods, extensions, the
	 * extension, the list, the name. */
	for (size_t at = 5 + 4 + 2 + 32; at < good.size - 11; at++) {
		for (int change = -1; change <= 1; change += 2) {
			b = good;
			b.at[at] = (uint8_t)(b.at[at] + change);
			/* Values of the suite, the method and the types aren't lengths.
			 */
			if (tls_hello_read(b.at, b.size, &h) == TLS_OK)
				assert_true(at == 46 || at == 47 || at == 49);
		}
	}
	b = good;
	b.at[4]++;
	check("a record longer than its message", &b, TLS_BAD, TLS_MALFORMED, NULL);
	b = good;
	b.at[8]--;
	check("a message shorter than its record", &b, TLS_BAD, TLS_MALFORMED, NULL);
}

TEST(a_hello_over_16_kib_is_refused)
{
	static uint8_t message[HELLO_MAX], ext[HELLO_MAX];
	static struct bytes b;
	struct tls_hello h;
	size_t n = put_name(ext, "api.ok.test", 11), size;

	n += put_extension(ext + n, 21, message, 16000);
	size = put_message(message, ext, n);
	put_records(&b, message, size, 16384);
	assert_true(b.size < TLS_FIRST_MAX);
	check("just under", &b, TLS_OK, 0, "api.ok.test");
	/* The headers of the records count. */
	put_records(&b, message, size, 100);
	assert_true(b.size > TLS_FIRST_MAX);
	assert_int_equal(tls_hello_read(b.at, TLS_FIRST_MAX - 1, &h), TLS_NEED_MORE);
	check("just over", &b, TLS_BAD, TLS_TOO_LONG, NULL);
}

TEST(of_an_encrypted_hello_the_outer_name_counts)
{
	uint8_t ext[600];
	size_t n = put_name(ext, "outer.test", 10);
	struct tls_hello h = { 0 };
	struct bytes b;

	n += put_extension(ext + n, 0xfe0d, "x", 1);
	n += put_extension(ext + n, 16, "\0\3\2h2", 5);
	put_hello(&b, ext, n);
	assert_int_equal(tls_hello_read(b.at, b.size, &h), TLS_OK);
	assert_string_equal(h.name.text, "outer.test");
}

TEST(early_data_and_the_size_are_told)
{
	uint8_t ext[600];
	size_t n = put_name(ext, "early.test", 10);
	struct tls_hello h = { 0 };
	struct bytes b;

	put_hello(&b, ext, n);
	assert_int_equal(tls_hello_read(b.at, b.size + 7, &h), TLS_OK);
	assert_false(h.early_data);
	assert_int_equal(h.size, b.size);
	n += put_extension(ext + n, 42, "", 0);
	put_hello(&b, ext, n);
	assert_int_equal(tls_hello_read(b.at, b.size, &h), TLS_OK);
	assert_true(h.early_data);
	put_hello(&b, ext, 0);
	assert_int_equal(tls_hello_read(b.at, b.size, &h), TLS_BAD);
	assert_int_equal(h.fault, TLS_NO_NAME);
	assert_int_equal(h.size, b.size);
}

struct next_row {
	const char *what;
	uint8_t bytes[16];
	size_t size;
	enum tls_next want;
	size_t pass;
};

/* Each prefix asks for more, or says the same. */
static void check_next(const struct next_row *row, const uint8_t *bytes, bool server,
		       bool early_data)
{
	for (size_t n = 0; n <= row->size; n++) {
		size_t pass = 0;
		enum tls_next r = server ? tls_answer_read(bytes, n, &pass)
					 : tls_next_read(bytes, n, early_data, &pass);

		if (n == row->size ? r != row->want
				   : r != row->want && r != TLS_NEXT_MORE)
			fail_msg("%s, %zu bytes: %d", row->what, n, r);
		if (r == TLS_NEXT_PASS)
			assert_int_equal(pass, row->pass);
	}
}

TEST(a_record_of_the_client_tells_whether_a_hello_can_follow)
{
	static const struct next_row rows[] = {
		{ "ChangeCipherSpec", { 20, 3, 3, 0, 1, 1 }, 6, TLS_NEXT_PASS, 6 },
		{ "an alert", { 21, 3, 3, 0, 2, 2, 40 }, 7, TLS_NEXT_PASS, 7 },
		{ "another hello", { 22, 3, 3, 2, 0, 1 }, 6, TLS_NEXT_HELLO, 0 },
		{ "a part of it", { 22, 3, 3, 0, 1, 1 }, 6, TLS_NEXT_HELLO, 0 },
		{ "a certificate", { 22, 3, 3, 2, 0, 11 }, 6, TLS_NEXT_END, 0 },
		{ "a key exchange", { 22, 3, 3, 2, 0, 16 }, 6, TLS_NEXT_END, 0 },
		{ "no message of a client",
		  { 22, 3, 3, 2, 0, 0 },
		  6,
		  TLS_NEXT_UNKNOWN,
		  0 },
		{ "an empty record", { 22, 3, 3, 0, 0, 1 }, 6, TLS_NEXT_UNKNOWN, 0 },
		{ "a heartbeat", { 24, 3, 3, 0, 3, 1 }, 6, TLS_NEXT_UNKNOWN, 0 },
		{ "SSL 2", { 0x80, 46, 1, 3, 1 }, 5, TLS_NEXT_UNKNOWN, 0 },
		{ "another version", { 22, 2, 3, 2, 0, 1 }, 6, TLS_NEXT_UNKNOWN, 0 },
		{ "too long", { 23, 3, 3, 0x48, 1 }, 5, TLS_NEXT_UNKNOWN, 0 },
		{ "text", { 'G', 'E', 'T' }, 3, TLS_NEXT_UNKNOWN, 0 },
	};
	static const struct next_row data = {
		"data", { 23, 3, 3, 1, 0 }, 5, TLS_NEXT_END, 0
	};
	static const struct next_row early = {
		"early", { 23, 3, 3, 1, 0 }, 5, TLS_NEXT_PASS, 261
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		check_next(&rows[i], rows[i].bytes, false, false);
		check_next(&rows[i], rows[i].bytes, false, true);
	}
	check_next(&data, data.bytes, false, false);
	check_next(&early, early.bytes, false, true);
}

/* A record with a ServerHello of @length bytes, of @size bytes in all. */
static size_t put_answer(uint8_t *to, uint8_t type, size_t record, size_t length,
			 bool retry)
{
	static const uint8_t random[32] = {
		0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c,
		0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb,
		0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
	};
	struct wire w = wire_writer(to, 600);

	memset(to, 0, 600);
	wire_write_u8(&w, 22);
	wire_write_u16(&w, 0x0303);
	wire_write_u16(&w, (uint16_t)record);
	wire_write_u8(&w, type);
	wire_write_u8(&w, 0);
	wire_write_u16(&w, (uint16_t)length);
	wire_write_u16(&w, 0x0303);
	wire_write_bytes(&w, random, sizeof(random));
	if (!retry)
		to[42] ^= 1;
	return 5 + record;
}

TEST(a_record_of_the_server_tells_which_hello_counts)
{
	static const struct next_row rows[] = {
		{ "ChangeCipherSpec", { 20, 3, 3, 0, 1, 1 }, 6, TLS_NEXT_PASS, 6 },
		{ "a warning", { 21, 3, 3, 0, 2, 1, 112 }, 7, TLS_NEXT_PASS, 7 },
		{ "a HelloRequest", { 22, 3, 3, 0, 4, 0 }, 6, TLS_NEXT_UNKNOWN, 0 },
		{ "a part of a hello",
		  { 22, 3, 3, 0, 4, 2, 0, 0, 80 },
		  9,
		  TLS_NEXT_UNKNOWN,
		  0 },
		{ "an empty record", { 22, 3, 3, 0, 0 }, 5, TLS_NEXT_UNKNOWN, 0 },
		{ "data", { 23, 3, 3, 0, 4, 0 }, 6, TLS_NEXT_UNKNOWN, 0 },
		{ "text", { '2', '2', '0' }, 3, TLS_NEXT_UNKNOWN, 0 },
	};
	static const struct {
		const char *what;
		uint8_t type;
		size_t record, length;
		bool retry;
		enum tls_next want;
	} hellos[] = {
		{ "a ServerHello", 2, 84, 80, false, TLS_NEXT_END },
		{ "and more in its record", 2, 500, 80, false, TLS_NEXT_END },
		{ "and the rest of it later", 2, 60, 80, false, TLS_NEXT_END },
		{ "a HelloRetryRequest", 2, 84, 80, true, TLS_NEXT_PASS },
		{ "and more in its record", 2, 85, 80, true, TLS_NEXT_UNKNOWN },
		{ "and the rest of it later", 2, 60, 80, true, TLS_NEXT_UNKNOWN },
		{ "that of a draft", 6, 84, 80, false, TLS_NEXT_UNKNOWN },
	};
	uint8_t bytes[600];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check_next(&rows[i], rows[i].bytes, true, false);
	for (size_t i = 0; i < ARRAY_SIZE(hellos); i++) {
		struct next_row row = { .what = hellos[i].what, .want = hellos[i].want };

		row.size = row.pass = put_answer(bytes, hellos[i].type, hellos[i].record,
						 hellos[i].length, hellos[i].retry);
		check_next(&row, bytes, true, false);
		row.size = TLS_ANSWER_LOOK;
		check_next(&row, bytes, true, false);
	}
}

TEST(alerts_are_fatal_and_complete)
{
	static const uint8_t want[] = { 21, 3, 3, 0, 2, 2, 112 };
	uint8_t alert[TLS_ALERT_SIZE];

	tls_alert_write(TLS_ALERT_UNRECOGNIZED_NAME, alert);
	assert_memory_equal(alert, want, sizeof(want));
}

/* The first bytes of real programs, see hellos/capture.py. */
TEST(real_programs_are_read_at_every_split)
{
	DIR *d = opendir(HELLOS);
	struct dirent *e;
	int count = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		static struct bytes b;
		char path[600];
		FILE *f;

		if (!strstr(e->d_name, ".bin"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", HELLOS, e->d_name);
		f = fopen(path, "rb");
		assert_non_null(f);
		b.size = fread(b.at, 1, sizeof(b.at), f);
		fclose(f);
		check(e->d_name, &b, TLS_OK, 0, "name.hello.test");
		check_splits(e->d_name, &b);
		count++;
	}
	closedir(d);
	assert_true(count >= 5);
}
