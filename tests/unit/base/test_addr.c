// SPDX-License-Identifier: Apache-2.0
#include "base/addr.h"

#include <string.h>

#include "unit.h"

TEST(addresses_are_read_strictly)
{
	static const struct {
		const char *what, *text, *want; /* want NULL: refused */
	} rows[] = {
		{ "plain", "10.0.0.5", "10.0.0.5" },
		{ "six", "2001:DB8::1", "2001:db8::1" },
		{ "mapped stays six", "::ffff:1.2.3.4", "::ffff:1.2.3.4" },
		{ "short form", "127.1", NULL },
		{ "hex", "0x7f.0.0.1", NULL },
		{ "octal", "010.0.0.1", NULL },
		{ "one number", "2130706433", NULL },
		{ "zone", "fe80::1%eth0", NULL },
		{ "brackets", "[::1]", NULL },
		{ "space", " 1.2.3.4", NULL },
		{ "empty", "", NULL },
		{ "rubbish", "1.2.3.4x", NULL },
	};
	char buf[ADDR_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = { 0 };
		bool ok = addr_parse(rows[i].text, strlen(rows[i].text), &a);

		assert_int_equal(ok, rows[i].want != NULL);
		if (ok)
			assert_string_equal(addr_format(&a, buf), rows[i].want);
	}
}

TEST(a_nul_inside_is_refused)
{
	struct addr a;

	assert_false(addr_parse("1.2.3.4\0", 8, &a));
}

TEST(prefixes_hold_their_addresses)
{
	static const struct {
		const char *what, *prefix, *addr;
		bool in;
	} rows[] = {
		{ "first", "10.96.0.0/12", "10.96.0.0", true },
		{ "last", "10.96.0.0/12", "10.111.255.255", true },
		{ "behind", "10.96.0.0/12", "10.112.0.0", false },
		{ "all", "0.0.0.0/0", "255.255.255.255", true },
		{ "other family", "0.0.0.0/0", "::1", false },
		{ "odd bits", "2001:db8::/33", "2001:db8:7fff::1", true },
		{ "odd bits, out", "2001:db8::/33", "2001:db8:8000::1", false },
		{ "one address", "10.0.0.5", "10.0.0.5", true },
		{ "another", "10.0.0.5", "10.0.0.4", false },
		{ "every six", "::/0", "ffff::1", true },
		{ "not every four", "::/0", "10.0.0.5", false },
		{ "the upper half", "2001:db8:0:1::/64", "2001:db8:0:1:ffff::", true },
		{ "beside it", "2001:db8:0:1::/64", "2001:db8::ffff", false },
		{ "one bit more", "2001:db8::/65", "2001:db8::7fff:0:0:1", true },
		{ "one bit more, out", "2001:db8::/65", "2001:db8::8000:0:0:0", false },
		{ "all but the last", "2001:db8::2/127", "2001:db8::3", true },
		{ "all but the last, out", "2001:db8::2/127", "2001:db8::4", false },
		{ "one address of six", "2001:db8::2", "2001:db8::3", false },
		{ "its upper half", "2001:db8::2", "2001:db9::2", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct prefix p;
		struct addr a;

		assert_true(
			prefix_parse(rows[i].prefix, strlen(rows[i].prefix), false, &p));
		assert_true(addr_parse(rows[i].addr, strlen(rows[i].addr), &a));
		assert_int_equal(prefix_contains(&p, &a), rows[i].in);
	}
}

TEST(addresses_have_an_order)
{
	static const char *const ascending[] = {
		"0.0.0.1", "0.0.0.255",	   "0.0.1.0",	"127.255.255.255", "128.0.0.0",
		"::1",	   "::8000:0:0:0", "0:0:0:1::", "8000::",	   "8000::1"
	};
	struct addr a, b;

	for (size_t i = 0; i < ARRAY_SIZE(ascending); i++)
		for (size_t k = 0; k < ARRAY_SIZE(ascending); k++) {
			int r;

			assert_true(addr_parse(ascending[i], strlen(ascending[i]), &a));
			assert_true(addr_parse(ascending[k], strlen(ascending[k]), &b));
			r = addr_compare(&a, &b);
			assert_int_equal((r > 0) - (r < 0), (i > k) - (i < k));
		}
}

TEST(bad_prefixes_are_refused)
{
	static const char *const rows[] = { "10.0.0.0/33", "10.0.0.1/8",  "::/129",
					    "10.0.0.0/",   "10.0.0.0/08", "/8",
					    "10.0.0.0/-1", "1.2.3.4/8x" };
	struct prefix p;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_false(prefix_parse(rows[i], strlen(rows[i]), false, &p));
	assert_true(prefix_parse("10.0.0.1/8", 10, true, &p));
}

TEST(endpoints_round_trip)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{ "1.1.1.1", "1.1.1.1:53" },
		{ "1.1.1.1:5353", "1.1.1.1:5353" },
		{ "2001:db8::1", "[2001:db8::1]:53" },
		{ "[2001:db8::1]:853", "[2001:db8::1]:853" },
		{ "[2001:db8::1]", "[2001:db8::1]:53" },
		{ "[1.1.1.1]:53", NULL },
		{ "1.1.1.1:0", NULL },
		{ "1.1.1.1:65536", NULL },
		{ "dns.google", NULL },
		{ "[::1]x", NULL },
		{ "", NULL },
	};
	char buf[ENDPOINT_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct sockaddr_storage ss;
		struct endpoint e, back;
		bool ok = endpoint_parse(rows[i].text, strlen(rows[i].text), 53, &e);

		assert_int_equal(ok, rows[i].want != NULL);
		if (!ok)
			continue;
		assert_string_equal(endpoint_format(&e, buf), rows[i].want);
		assert_true(endpoint_to_sockaddr(&e, &ss) > 0);
		back = endpoint_from_sockaddr(&ss);
		assert_true(endpoint_equal(&back, &e));
		back.port ^= 1;
		assert_false(endpoint_equal(&back, &e));
		back = (struct endpoint){ .port = e.port };
		assert_false(endpoint_equal(&back, &e));
	}
}

TEST(a_prefix_has_two_halves)
{
	static const struct {
		const char *whole, *lower, *upper;
	} rows[] = {
		{ "0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1" },
		{ "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9" },
		{ "10.0.0.254/31", "10.0.0.254", "10.0.0.255" },
		{ "2001:db8::/32", "2001:db8::/33", "2001:db8:8000::/33" },
	};
	char buf[PREFIX_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct prefix p, half;

		assert_true(
			prefix_parse(rows[i].whole, strlen(rows[i].whole), false, &p));
		half = prefix_half(p, false);
		assert_string_equal(prefix_format(&half, buf), rows[i].lower);
		half = prefix_half(p, true);
		assert_string_equal(prefix_format(&half, buf), rows[i].upper);
	}
}
