// SPDX-License-Identifier: Apache-2.0
#include "policy/rule.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

TEST(targets_are_what_they_look_like)
{
	static const struct {
		const char *text;
		enum rule_target kind;
		const char *want; /* the name or the prefix */
	} rows[] = {
		{ "api.github.com", TARGET_NAME, "api.github.com" },
		{ "API.GitHub.COM", TARGET_NAME, "api.github.com" },
		{ "api.github.com.", TARGET_NAME, "api.github.com" },
		{ "_acme.pkg.test", TARGET_NAME, "_acme.pkg.test" },
		{ "db", TARGET_NAME, "db" },
		{ "*.pkg.test", TARGET_BELOW, "pkg.test" },
		{ "**.pkg.test", TARGET_WITHIN, "pkg.test" },
		{ "*.svc.cluster.local", TARGET_BELOW, "svc.cluster.local" },
		{ "*.bbc.co.uk", TARGET_BELOW, "bbc.co.uk" },
		{ "*.github.io", TARGET_BELOW, "github.io" },
		{ "b\xc3\xbc"
		  "cher.test",
		  TARGET_NAME, "xn--bcher-kva.test" },
		{ "*.b\xc3\xbc"
		  "cher.test",
		  TARGET_BELOW, "xn--bcher-kva.test" },
		{ "xn--bcher-kva.test", TARGET_NAME, "xn--bcher-kva.test" },
		{ "10.0.0.5", TARGET_PREFIX, "10.0.0.5" },
		{ "10.96.0.0/12", TARGET_PREFIX, "10.96.0.0/12" },
		{ "0.0.0.0/0", TARGET_PREFIX, "0.0.0.0/0" },
		{ "2001:db8::/32", TARGET_PREFIX, "2001:db8::/32" },
		{ "::1", TARGET_PREFIX, "::1" },
		{ "::/0", TARGET_PREFIX, "::/0" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char shown[DNS_NAME_TEXT_SIZE];
		struct rule r = { 0 };
		struct err err = { 0 };

		if (rule_target_parse(text_of(rows[i].text), &r, &err) < 0)
			fail_msg("%s: %s", rows[i].text, err.text);
		assert_int_equal(r.kind, rows[i].kind);
		if (r.kind == TARGET_PREFIX)
			prefix_format(&r.prefix, shown);
		else
			dns_name_format(&r.name, shown);
		assert_string_equal(shown, rows[i].want);
	}
}

TEST(what_is_no_target_is_refused_with_a_reason)
{
	static const struct {
		const char *text, *reason; /* part of the message */
	} rows[] = {
		{ "", "it is empty" },
		{ "*", "defaultAction: allow" },
		{ "**", "defaultAction: allow" },
		{ "*.", "defaultAction: allow" },
		{ "*.com", "anybody can have a name" },
		{ "**.com", "anybody can have a name" },
		{ "*.co.uk", "anybody can have a name" },
		{ "*.test", "anybody can have a name" },
		{ "*.xn--p1ai", "anybody can have a name" },
		{ "*pkg.test", "in front of a name" },
		{ "a.*.test", "in front of a name" },
		{ "*.*.pkg.test", "in front of a name" },
		{ "***.pkg.test", "in front of a name" },
		{ ".", "" },
		{ "a..test", "between two dots" },
		{ ".a.test", "between two dots" },
		{ "a.test..", "between two dots" },
		{ "a b.test", "blank or a control" },
		{ "a\tb.test", "blank or a control" },
		{ " a.test", "blank or a control" },
		{ "a.test\r\n.pkg.test", "blank or a control" },
		{ "a!b.test", "letters, digits" },
		{ "user@a.test", "the host alone" },
		{ "a.test?x", "the host alone" },
		{ "https://a.test/", "without scheme" },
		{ "a.test/path", "" },
		{ "a.test:443", "under `ports`" },
		{ "10.0.0.1:443", "under `ports`" },
		{ "[::1]", "without brackets" },
		{ "[[::1]]", "without brackets" },
		{ "[api.ok.test]", "without brackets" },
		{ "[2001:db8::1]:443", "without brackets" },
		{ "fe80::1%eth0", "zones" },
		{ "::ffff:127.0.0.1", "write 127.0.0.1" },
		{ "::ffff:10.0.0.0/104", "write 10.0.0.0/8" },
		{ "10.0.0.0/33", "0 to 32" },
		{ "2001:db8::/129", "0 to 128" },
		{ "10.0.0.0/", "0 to 32" },
		{ "10.0.0.0/08", "0 to 32" },
		{ "10.0.0.1/8", "write 10.0.0.0/8, or 10.0.0.1" },
		{ "2001:db8::1/32", "write 2001:db8::/32" },
		{ "127.1", "127.0.0.1" },
		{ "0x7f.1", "127.0.0.1" },
		{ "0x7f.0.0.1", "127.0.0.1" },
		{ "2130706433", "127.0.0.1" },
		{ "017700000001", "127.0.0.1" },
		{ "010.0.0.1", "8.0.0.1" },
		{ "1.2.3.4.", "1.2.3.4" },
		{ "1.2.3.256", "no name ends in a number" },
		{ "*.0.0.1", "" },
		{ "a.0x", "no name ends in a number" },
		{ "B\xc3\x9c"
		  "CHER.test",
		  "xn--bcher-kva.test" },
		{ "\xef\xbc\x91\xef\xbc\x90.0.0.1", "" },
		{ "a\xe3\x80\x82test", "" },
		{ "\xff.test", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rule r = { .kind = TARGET_NONE };
		struct err err = { 0 };

		if (rule_target_parse(text_of(rows[i].text), &r, &err) != -EINVAL)
			fail_msg("'%s' was taken", rows[i].text);
		if (!strstr(err.text, rows[i].reason) || err.text[0] != '\'')
			fail_msg("'%s': %s", rows[i].text, err.text);
		assert_int_equal(r.kind, TARGET_NONE);
	}
}

TEST(a_zero_byte_and_long_names_are_refused)
{
	char text[600];
	struct rule r = { 0 };

	assert_int_equal(
		rule_target_parse((struct text){ "evil.test\0.pkg.test", 19 }, &r, NULL),
		-EINVAL);
	memset(text, 'a', sizeof(text));
	assert_int_equal(rule_target_parse((struct text){ text, 600 }, &r, NULL),
			 -EINVAL);
	assert_int_equal(rule_target_parse((struct text){ text, 64 }, &r, NULL), -EINVAL);
	assert_int_equal(rule_target_parse((struct text){ text, 63 }, &r, NULL), 0);
	for (size_t i = 63; i < sizeof(text); i += 64)
		text[i] = '.';
	assert_int_equal(rule_target_parse((struct text){ text, 253 }, &r, NULL), 0);
	assert_int_equal(rule_target_parse((struct text){ text, 255 }, &r, NULL),
			 -EINVAL);
}

TEST(a_look_alike_is_another_name)
{
	struct rule latin = { 0 }, cyrillic = { 0 };

	assert_int_equal(rule_target_parse(text_of("apple.test"), &latin, NULL), 0);
	assert_int_equal(rule_target_parse(text_of("\xd0\xb0pple.test"), &cyrillic, NULL),
			 0);
	assert_false(dns_name_equal(&latin.name, &cyrillic.name));
}

TEST(ports_are_sorted_and_merged)
{
	static const struct {
		const char *text, *want; /* NULL: refused */
	} rows[] = {
		{ "443", "443" },
		{ "80,443", "80,443" },
		{ "443,80", "80,443" },
		{ "443,443", "443" },
		{ "1-10,5-20", "1-20" },
		{ "1-10,11-20", "1-20" },
		{ "tcp/22", "tcp/22" },
		{ "TCP/22", "tcp/22" },
		{ "udp/443,tcp/80-90", "tcp/80-90,udp/443" },
		{ "tcp/443,udp/443", "443" },
		{ " 80 , 443 ", "80,443" },
		{ "53,853", "53,853" },
		{ "65535", "65535" },
		{ "", NULL },
		{ "0", NULL },
		{ "65536", NULL },
		{ "0-10", NULL },
		{ "10-1", NULL },
		{ "10-", NULL },
		{ "-10", NULL },
		{ "080", NULL },
		{ "+80", NULL },
		{ "http", NULL },
		{ "80,", NULL },
		{ "icmp/1", NULL },
		{ "tcp/", NULL },
		{ "80/tcp", NULL },
		{ "80 90", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct plan_port_range r[PLAN_PORT_RANGES_MAX];
		char shown[256];
		struct err err = { 0 };
		int n = rule_ports_parse(text_of(rows[i].text), r, NULL, &err);

		if ((n > 0) != (rows[i].want != NULL))
			fail_msg("'%s': %d %s", rows[i].text, n, err.text);
		if (n > 0)
			assert_string_equal(
				rule_ports_format(r, (size_t)n, shown, sizeof(shown)),
				rows[i].want);
		else
			assert_int_equal(err.code, -EINVAL);
	}
}

TEST(too_many_port_ranges_are_refused)
{
	struct plan_port_range r[PLAN_PORT_RANGES_MAX];
	char text[1024] = "";

	for (size_t i = 0; i < PLAN_PORT_RANGES_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%stcp/%zu",
			 i > 0 ? "," : "", 2 * i + 1);
	assert_int_equal(rule_ports_parse(text_of(text), r, NULL, NULL),
			 PLAN_PORT_RANGES_MAX);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ",tcp/2");
	assert_int_equal(rule_ports_parse(text_of(text), r, NULL, NULL),
			 PLAN_PORT_RANGES_MAX - 1);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), ",9000,9002");
	assert_int_equal(rule_ports_parse(text_of(text), r, NULL, NULL), -EINVAL);
}

TEST(a_rule_covers_what_its_target_names)
{
	static const struct {
		const char *target, *name;
		bool want;
	} rows[] = {
		{ "api.pkg.test", "api.pkg.test", true },
		{ "api.pkg.test", "a.api.pkg.test", false },
		{ "*.pkg.test", "api.pkg.test", true },
		{ "*.pkg.test", "a.api.pkg.test", true },
		{ "*.pkg.test", "pkg.test", false },
		{ "**.pkg.test", "pkg.test", true },
		{ "**.pkg.test", "api.pkg.test", true },
		{ "**.pkg.test", "apkg.test", false },
		{ "10.0.0.5", "pkg.test", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rule rule = { 0 };
		struct dns_name name;

		assert_int_equal(rule_target_parse(text_of(rows[i].target), &rule, NULL),
				 0);
		assert_int_equal(dns_name_parse(text_of(rows[i].name), &name), 0);
		assert_int_equal(rule_covers(&rule, &name), rows[i].want);
	}
}
