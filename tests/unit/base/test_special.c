// SPDX-License-Identifier: Apache-2.0
#include "base/special.h"

#include <string.h>

#include "unit.h"

static struct addr addr_of(const char *text)
{
	struct addr a = { 0 };

	if (!addr_parse(text, strlen(text), &a))
		fail_msg("%s", text);
	return a;
}

TEST(every_range_has_its_kind_up_to_its_edges)
{
	static const struct {
		const char *text;
		enum addr_special want;
	} rows[] = {
		{ "8.8.8.8", SPECIAL_NOT },
		{ "0.0.0.0", SPECIAL_UNSPECIFIED },
		{ "0.255.255.255", SPECIAL_UNSPECIFIED },
		{ "1.0.0.0", SPECIAL_NOT },
		{ "9.255.255.255", SPECIAL_NOT },
		{ "10.0.0.0", SPECIAL_PRIVATE },
		{ "10.255.255.255", SPECIAL_PRIVATE },
		{ "11.0.0.0", SPECIAL_NOT },
		{ "172.15.255.255", SPECIAL_NOT },
		{ "172.16.0.0", SPECIAL_PRIVATE },
		{ "172.31.255.255", SPECIAL_PRIVATE },
		{ "172.32.0.0", SPECIAL_NOT },
		{ "192.168.1.1", SPECIAL_PRIVATE },
		{ "192.169.0.0", SPECIAL_NOT },
		{ "100.63.255.255", SPECIAL_NOT },
		{ "100.64.0.0", SPECIAL_SHARED },
		{ "100.127.255.255", SPECIAL_SHARED },
		{ "100.128.0.0", SPECIAL_NOT },
		{ "127.0.0.1", SPECIAL_LOOPBACK },
		{ "127.255.255.255", SPECIAL_LOOPBACK },
		{ "169.254.1.1", SPECIAL_LINK_LOCAL },
		{ "169.254.169.254", SPECIAL_METADATA },
		{ "169.254.170.2", SPECIAL_METADATA },
		{ "168.63.129.16", SPECIAL_METADATA },
		{ "168.63.129.17", SPECIAL_NOT },
		{ "100.100.100.200", SPECIAL_METADATA },
		{ "100.80.80.80", SPECIAL_METADATA },
		{ "100.96.0.96", SPECIAL_METADATA },
		{ "169.254.42.42", SPECIAL_METADATA },
		{ "192.80.8.124", SPECIAL_METADATA },
		{ "192.0.0.192", SPECIAL_METADATA },
		{ "192.0.0.1", SPECIAL_RESERVED },
		{ "192.0.2.1", SPECIAL_RESERVED },
		{ "198.18.0.1", SPECIAL_RESERVED },
		{ "198.19.255.255", SPECIAL_RESERVED },
		{ "198.20.0.0", SPECIAL_NOT },
		{ "203.0.113.7", SPECIAL_RESERVED },
		{ "224.0.0.1", SPECIAL_MULTICAST },
		{ "239.255.255.255", SPECIAL_MULTICAST },
		{ "240.0.0.1", SPECIAL_RESERVED },
		{ "255.255.255.255", SPECIAL_BROADCAST },
		{ "::", SPECIAL_UNSPECIFIED },
		{ "::1", SPECIAL_LOOPBACK },
		{ "::2", SPECIAL_RESERVED },
		{ "fc00::1", SPECIAL_PRIVATE },
		{ "fdff::1", SPECIAL_PRIVATE },
		{ "fe80::1", SPECIAL_LINK_LOCAL },
		{ "febf::1", SPECIAL_LINK_LOCAL },
		{ "fec0::1", SPECIAL_PRIVATE },
		{ "ff02::1", SPECIAL_MULTICAST },
		{ "fd00:ec2::254", SPECIAL_METADATA },
		{ "fd20:ce::254", SPECIAL_METADATA },
		{ "fd00:42::42", SPECIAL_METADATA },
		{ "fd00:c1::a9fe:a9fe", SPECIAL_METADATA },
		{ "fd00:a9fe:a9fe::1", SPECIAL_METADATA },
		{ "fd00:100::100:200", SPECIAL_METADATA },
		{ "fe80::a9fe:a9fe", SPECIAL_METADATA },
		{ "2001:db8::1", SPECIAL_RESERVED },
		{ "2001:4860:4860::8888", SPECIAL_NOT },
		{ "2606:4700::1111", SPECIAL_NOT },
		{ "3fff:ffff::1", SPECIAL_NOT },
		{ "4000::1", SPECIAL_RESERVED },
		/* local NAT64 with 169.254.169.254 behind /48, and 8.8.8.8 at the end */
		{ "64:ff9b:1:a9fe:a9:fe00:808:808", SPECIAL_RESERVED },
		{ "100::1", SPECIAL_RESERVED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = addr_of(rows[i].text);

		if (addr_special(&a) != rows[i].want)
			fail_msg("%s: %s", rows[i].text,
				 addr_special_name(addr_special(&a)));
	}
}

TEST(an_ipv4_address_inside_ipv6_counts_as_itself)
{
	static const struct {
		const char *text, *v4;
		enum addr_special want;
	} rows[] = {
		{ "::ffff:169.254.169.254", "169.254.169.254", SPECIAL_METADATA },
		{ "::ffff:8.8.8.8", "8.8.8.8", SPECIAL_NOT },
		{ "::127.0.0.1", "127.0.0.1", SPECIAL_LOOPBACK },
		{ "::ffff:0:10.0.0.1", "10.0.0.1", SPECIAL_PRIVATE },
		{ "64:ff9b::169.254.169.254", "169.254.169.254", SPECIAL_METADATA },
		{ "64:ff9b::8.8.8.8", "8.8.8.8", SPECIAL_NOT },
		{ "64:ff9b:1::10.0.0.1", "10.0.0.1", SPECIAL_PRIVATE },
		{ "64:ff9b:1::8.8.8.8", "8.8.8.8", SPECIAL_NOT },
		{ "2002:7f00:1::", "127.0.0.1", SPECIAL_LOOPBACK },
		{ "2002:a9fe:a9fe::1", "169.254.169.254", SPECIAL_METADATA },
		/* Teredo: 10.0.0.1 with every bit turned */
		{ "2001:0:1:2:3:4:f5ff:fffe", "10.0.0.1", SPECIAL_PRIVATE },
		{ "2a00::5efe:10.0.0.1", "10.0.0.1", SPECIAL_PRIVATE },
		{ "2a00::200:5efe:127.0.0.1", "127.0.0.1", SPECIAL_LOOPBACK },
		{ "fe80::5efe:8.8.8.8", "8.8.8.8", SPECIAL_LINK_LOCAL },
		{ "2a00::5efe:8.8.8.8", "8.8.8.8", SPECIAL_NOT },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = addr_of(rows[i].text), want = addr_of(rows[i].v4),
			    v4 = { 0 };

		if (!addr_embedded_v4(&a, &v4) || !addr_equal(&v4, &want))
			fail_msg("%s carries another address", rows[i].text);
		if (addr_special(&a) != rows[i].want)
			fail_msg("%s: %s", rows[i].text,
				 addr_special_name(addr_special(&a)));
	}
}

TEST(other_addresses_carry_none)
{
	static const char *const rows[] = { "::",      "::1",	   "2001:4860::1",
					    "fe80::1", "10.0.0.1", "64:ff9a::1.2.3.4" };
	struct addr none = { 0 }, v4;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = addr_of(rows[i]);

		assert_false(addr_embedded_v4(&a, &v4));
	}
	assert_false(addr_embedded_v4(&none, &v4));
	assert_int_equal(addr_special(&none), SPECIAL_INVALID);
}

TEST(the_metadata_addresses_can_be_listed)
{
	struct addr a;
	size_t i = 0;

	for (; addr_metadata(i, &a); i++)
		assert_int_equal(addr_special(&a), SPECIAL_METADATA);
	assert_in_range(i, 8, 20);
}

TEST(nobody_is_led_to_what_is_more_than_private)
{
	static const enum addr_special offered[] = { SPECIAL_NOT, SPECIAL_PRIVATE,
						     SPECIAL_SHARED, SPECIAL_RESERVED };
	static const enum addr_special others[] = {
		SPECIAL_UNSPECIFIED, SPECIAL_LOOPBACK,	SPECIAL_LINK_LOCAL,
		SPECIAL_METADATA,    SPECIAL_MULTICAST, SPECIAL_INVALID
	};

	for (size_t i = 0; i < ARRAY_SIZE(offered); i++)
		assert_true(addr_special_is_offered(offered[i]));
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(addr_special_is_offered(others[i]));
}
