// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "relay/host.h"
#include "unit.h"

#define LABEL_63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define LABEL_61 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

TEST(names_become_canonical_or_are_refused)
{
	static const struct {
		const char *what, *text;
		size_t size;	  /* 0: up to the NUL */
		const char *name; /* NULL: bad */
	} rows[] = {
		{ "plain", "api.ok.test", 0, "api.ok.test" },
		{ "upper case", "API.Ok.TEST", 0, "api.ok.test" },
		{ "one trailing dot", "api.ok.test.", 0, "api.ok.test" },
		{ "underscore", "_acme.pkg.test", 0, "_acme.pkg.test" },
		{ "one label", "localhost", 0, "localhost" },
		{ "punycode", "xn--bcher-kva.test", 0, "xn--bcher-kva.test" },
		{ "longest label", LABEL_63 ".test", 0, LABEL_63 ".test" },
		{ "253 octets", LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_61, 0,
		  LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_61 },
		{ "254 octets", LABEL_63 "." LABEL_63 "." LABEL_63 "." LABEL_61 "a", 0,
		  NULL },
		{ "label of 64", "a" LABEL_63 ".test", 0, NULL },
		{ "empty", "", 0, NULL },
		{ "a dot", ".", 0, NULL },
		{ "two trailing dots", "api.ok.test..", 0, NULL },
		{ "empty label", "api..ok.test", 0, NULL },
		{ "leading dot", ".api.ok.test", 0, NULL },
		{ "NUL", "evil.test\0.pkg.test", 19, NULL },
		{ "NUL at the end", "api.ok.test\0", 12, NULL },
		{ "line end", "evil.test\r\n.pkg.test", 0, NULL },
		{ "space", "evil .test", 0, NULL },
		{ "tab", "evil.test\t", 0, NULL },
		{ "percent", "api%2eok.test", 0, NULL },
		{ "at", "a@api.ok.test", 0, NULL },
		{ "slash", "api.ok.test/", 0, NULL },
		{ "backslash", "api.ok.test\\", 0, NULL },
		{ "star", "*.ok.test", 0, NULL },
		{ "beyond ASCII",
		  "b\xc3\xbc"
		  "cher.test",
		  0, NULL },
		{ "fullwidth dot", "api\xef\xbc\x8eok.test", 0, NULL },
		{ "short address", "127.1", 0, NULL },
		{ "hexadecimal", "0x7f.0.0.1", 0, NULL },
		{ "hexadecimal end", "a.0x7f", 0, NULL },
		{ "decimal", "2130706433", 0, NULL },
		{ "octal", "017700000001", 0, NULL },
		{ "address with a dot", "10.0.0.5.", 0, NULL },
		{ "bare v6", "::1", 0, NULL },
	};
	char text[300];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t size = rows[i].size ? rows[i].size : strlen(rows[i].text);
		struct wire_host h = { .kind = 77 };
		enum wire_host_kind kind;

		memcpy(text, rows[i].text, size);
		kind = wire_host_read((struct text){ text, size }, &h);
		if ((kind == WIRE_HOST_NAME) != (rows[i].name != NULL))
			fail_msg("%s", rows[i].what);
		if (rows[i].name) {
			assert_string_equal(h.text, rows[i].name);
			assert_int_equal(h.size, strlen(rows[i].name));
		} else {
			assert_int_equal(kind, WIRE_HOST_BAD);
			assert_int_equal(h.kind, 77);
		}
	}
}

TEST(addresses_are_told_from_names)
{
	static const struct {
		const char *text;
		enum wire_host_kind kind;
	} rows[] = {
		{ "10.0.0.5", WIRE_HOST_ADDRESS },
		{ "[2001:db8::1]", WIRE_HOST_ADDRESS },
		{ "[::ffff:127.0.0.1]", WIRE_HOST_ADDRESS },
		{ "[10.0.0.5]", WIRE_HOST_BAD },
		{ "[[::1]]", WIRE_HOST_BAD },
		{ "[fe80::1%25eth0]", WIRE_HOST_BAD },
		{ "[::1", WIRE_HOST_BAD },
		{ "[]", WIRE_HOST_BAD },
		{ "[api.ok.test]", WIRE_HOST_BAD },
		{ "010.0.0.5", WIRE_HOST_BAD },
		{ "10.0.0.256", WIRE_HOST_BAD },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct wire_host h;

		if (wire_host_read(text_of(rows[i].text), &h) != rows[i].kind)
			fail_msg("%s", rows[i].text);
	}
}

TEST(ports_are_numbers_or_the_host_is_bad)
{
	static const struct {
		const char *text;
		int port; /* -1: bad */
	} rows[] = {
		{ "a.test", 0 },	   { "a.test:443", 443 },
		{ "a.test:65535", 65535 }, { "10.0.0.5:8080", 8080 },
		{ "[::1]:8080", 8080 },	   { "[::1]", 0 },
		{ "a.test:", -1 },	   { "a.test:0", -1 },
		{ "a.test:65536", -1 },	   { "a.test:080", -1 },
		{ "a.test:80:80", -1 },	   { "a.test: 80", -1 },
		{ "a.test:+80", -1 },	   { ":80", -1 },
		{ "::1:80", -1 },	   { "a.test:80x", -1 },
		{ "[::1]x:80", -1 },	   { "[::1]80", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct wire_host h;
		uint16_t port = 0;
		bool good = wire_host_port_read(text_of(rows[i].text), &h, &port) !=
			    WIRE_HOST_BAD;

		if (good != (rows[i].port >= 0) || (good && port != rows[i].port))
			fail_msg("%s", rows[i].text);
	}
}

TEST(equal_hosts_have_equal_bytes)
{
	struct wire_host a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };

	wire_host_read(text_of("API.ok.test."), &a);
	wire_host_read(text_of("api.ok.test"), &b);
	wire_host_read(text_of("10.0.0.5"), &c);
	wire_host_read(text_of("10.0.0.6"), &d);
	assert_true(wire_host_equal(&a, &b));
	assert_true(wire_host_equal(&c, &c));
	assert_false(wire_host_equal(&a, &c));
	assert_false(wire_host_equal(&c, &d));
}
