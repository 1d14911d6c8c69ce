// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "dns/name.h"
#include "unit.h"

#define HEADER	 "\0\0\0\0\0\0\0\0\0\0\0\0"
#define BYTES(s) (s), sizeof(s) - 1
#define X10	 "xxxxxxxxxx"
#define X63	 X10 X10 X10 X10 X10 X10 "xxx"
#define X61	 X10 X10 X10 X10 X10 X10 "x"

static struct dns_name name_of(const char *text)
{
	struct dns_name n = { 0 };

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

TEST(read_accepts_what_rfc_1035_allows)
{
	static const struct {
		const char *what;
		const char *bytes;
		size_t size, offset, end;
		const char *text;
	} cases[] = {
		{ "plain, lowered", BYTES(HEADER "\3wWw\2OK\0"), 12, 20, "www.ok" },
		{ "the root", BYTES(HEADER "\0"), 12, 13, "." },
		{ "a pointer", BYTES(HEADER "\2ok\0\1a\xc0\x0c"), 16, 20, "a.ok" },
		{ "pointer to pointer", BYTES(HEADER "\2ok\0\1a\xc0\x0c\1b\xc0\x10"), 20,
		  24, "b.a.ok" },
		{ "a dot in a label", BYTES(HEADER "\6api.ok\0"), 12, 20, "api\\.ok" },
		{ "NUL and blank in a label", BYTES(HEADER "\3a\0 \0"), 12, 17,
		  "a\\000\\032" },
		{ "'[' and '@' stay", BYTES(HEADER "\2@[\0"), 12, 16, "@[" },
		{ "octets over 127 stay", BYTES(HEADER "\2\xc1\xda\0"), 12, 16,
		  "\\193\\218" },
	};
	char text[DNS_NAME_TEXT_SIZE];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire w = wire_reader(cases[i].bytes, cases[i].size);
		struct dns_name n;

		wire_seek(&w, cases[i].offset);
		if (dns_name_read(&w, &n, NULL) < 0 || wire_offset(&w) != cases[i].end)
			fail_msg("%s", cases[i].what);
		assert_string_equal(dns_name_format(&n, text), cases[i].text);
	}
}

TEST(read_refuses_what_is_malformed)
{
	static const struct {
		const char *what;
		const char *bytes;
		size_t size;
	} cases[] = {
		{ "nothing", BYTES(HEADER) },
		{ "no root label", BYTES(HEADER "\2ok") },
		{ "short label", BYTES(HEADER "\5ok") },
		{ "half a pointer", BYTES(HEADER "\xc0") },
		{ "pointer to itself", BYTES(HEADER "\xc0\x0c") },
		{ "loop over a label", BYTES(HEADER "\1a\xc0\x0c") },
		{ "pointer forward", BYTES(HEADER "\xc0\x0e\0") },
		{ "pointer into the header", BYTES(HEADER "\1a\xc0\x04") },
		{ "label type 01", BYTES(HEADER "\x41" X63 "xx\0") },
		{ "label type 10", BYTES(HEADER "\x81" X63 "\0") },
		{ "256 octets",
		  BYTES(HEADER "\x3f" X63 "\x3f" X63 "\x3f" X63 "\x3e" X61 "x\0") },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire w = wire_reader(cases[i].bytes, cases[i].size);
		struct dns_name n = { .size = 77 };

		wire_seek(&w, 12);
		if (dns_name_read(&w, &n, NULL) != -EBADMSG || wire_ok(&w) ||
		    n.size != 77)
			fail_msg("%s", cases[i].what);
	}
}

TEST(read_keeps_the_longest_name_and_its_case)
{
	static const char bytes[] = HEADER "\x3f" X63 "\x3f" X63 "\x3f" X63 "\x3d" X61;
	char upper[sizeof(bytes)];
	uint8_t raw[DNS_NAME_MAX];
	struct dns_name n;
	struct wire w;

	memcpy(upper, bytes, sizeof(bytes));
	upper[13] = 'X';
	w = wire_reader(upper, sizeof(upper));
	wire_seek(&w, 12);
	assert_int_equal(dns_name_read(&w, &n, raw), 0);
	assert_int_equal(n.size, DNS_NAME_MAX);
	assert_int_equal(n.labels, 4);
	assert_memory_equal(raw, upper + 12, DNS_NAME_MAX);
	assert_memory_equal(n.bytes, bytes + 12, DNS_NAME_MAX);
}

/* A root, and behind it pointers, each to what stands before it. */
TEST(a_name_has_no_more_pointers_than_labels)
{
	enum { FIRST = 13, POINTERS = 128 };
	uint8_t bytes[FIRST + 2 * POINTERS] = { 0 };
	const uint8_t root[] = { 0 };
	struct dns_name n;
	struct wire w;

	for (size_t i = 0; i < POINTERS; i++) {
		const size_t to = i == 0 ? FIRST - 1 : FIRST + 2 * (i - 1);

		bytes[FIRST + 2 * i] = (uint8_t)(0xc0 | to >> 8);
		bytes[FIRST + 2 * i + 1] = (uint8_t)to;
	}
	for (size_t i = POINTERS - 2; i < POINTERS; i++) {
		w = wire_reader(bytes, sizeof(bytes));
		assert_int_equal(dns_name_is_at(&w, FIRST + 2 * i, root),
				 i < POINTERS - 1);
		wire_seek(&w, FIRST + 2 * i);
		assert_int_equal(dns_name_read(&w, &n, NULL),
				 i < POINTERS - 1 ? 0 : -EBADMSG);
	}
}

TEST(parse_takes_host_names_only)
{
	static const struct {
		const char *text;
		const char *again; /* NULL: refused */
	} cases[] = {
		{ "api.ok.test", "api.ok.test" },
		{ "API.Ok.Test.", "api.ok.test" },
		{ "_acme.a-b.test", "_acme.a-b.test" },
		{ ".", "." },
		{ X63 ".test", X63 ".test" },
		{ "", NULL },
		{ "..", NULL },
		{ "api.ok.test..", NULL },
		{ "api..ok.test", NULL },
		{ ".api.ok.test", NULL },
		{ X63 "x.test", NULL },
		{ X63 "." X63 "." X63 "." X61 "x", NULL },
		{ "a b.test", NULL },
		{ "a\\.b.test", NULL },
		{ "*.test", NULL },
		{ "[::1]", NULL },
		{ "evil.test\r\n.pkg.test", NULL },
		{ "b\xc3\xbc"
		  "cher.test",
		  NULL },
	};
	char text[DNS_NAME_TEXT_SIZE];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dns_name n;
		int r = dns_name_parse(text_of(cases[i].text), &n);

		if (r != (cases[i].again ? 0 : -EINVAL))
			fail_msg("'%s'", cases[i].text);
		if (cases[i].again)
			assert_string_equal(dns_name_format(&n, text), cases[i].again);
	}
	assert_int_equal(dns_name_parse((struct text){ "evil.test\0.pkg.test", 19 },
					&(struct dns_name){}),
			 -EINVAL);
}

TEST(a_name_is_within_itself_and_its_ancestors_only)
{
	static const struct {
		const char *name, *ancestor;
		bool within;
	} cases[] = {
		{ "pkg.test", "pkg.test", true },
		{ "a.b.pkg.test", "pkg.test", true },
		{ "a.b.pkg.test", ".", true },
		{ "evilpkg.test", "pkg.test", false },
		{ "x.pkg.test.evil.test", "pkg.test", false },
		{ "test", "pkg.test", false },
		{ "pkg.tesu", "test", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct dns_name n = name_of(cases[i].name);
		struct dns_name a = name_of(cases[i].ancestor);

		if (dns_name_is_within(&n, &a) != cases[i].within)
			fail_msg("%s in %s", cases[i].name, cases[i].ancestor);
	}
	assert_false(
		dns_name_is_within(&(struct dns_name){ 0 }, &(struct dns_name){ 0 }));
}

TEST(a_dot_inside_a_label_makes_another_name)
{
	static const char bytes[] = HEADER "\6api.ok\4test\0";
	struct wire w = wire_reader(bytes, sizeof(bytes) - 1);
	struct dns_name host = name_of("api.ok.test"), n;

	wire_seek(&w, 12);
	assert_int_equal(dns_name_read(&w, &n, NULL), 0);
	assert_false(dns_name_equal(&n, &host));
	assert_false(dns_name_is_host(&n));
	assert_true(dns_name_is_host(&host));
	assert_false(dns_name_is_host(&(struct dns_name){ .size = 1 }));
	assert_false(dns_name_is_host(&(struct dns_name){ 0 }));
}

TEST(a_name_is_found_where_it_stands)
{
	static const char bytes[] = HEADER "\2Ok\4TEST\0\3aPi\xc0\x0c\xc0\x18\xc0\x1a";
	struct wire w = wire_reader(bytes, sizeof(bytes) - 1);
	struct dns_name ok = name_of("ok.test"), api = name_of("api.ok.test");

	assert_true(dns_name_is_at(&w, 12, ok.bytes));
	assert_true(dns_name_is_at(&w, 21, api.bytes));
	assert_false(dns_name_is_at(&w, 12, api.bytes));
	assert_false(dns_name_is_at(&w, 21, ok.bytes));
	assert_false(dns_name_is_at(&w, 27, ok.bytes));	  /* into a label's middle */
	assert_false(dns_name_is_at(&w, 29, ok.bytes));	  /* cut short */
	assert_false(dns_name_is_at(&w, 4000, ok.bytes)); /* outside */
}

TEST(localhost_is_a_label_not_a_suffix)
{
	struct dns_name yes = name_of("foo.LOCALHOST."), no = name_of("notlocalhost");
	struct dns_name below = name_of("localhost.test");

	assert_true(dns_name_is_localhost(&yes));
	assert_false(dns_name_is_localhost(&no));
	assert_false(dns_name_is_localhost(&below));
}
