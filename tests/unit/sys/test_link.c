// SPDX-License-Identifier: Apache-2.0
#include "sys/link.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

enum { TIMES = 100 };

static struct addr addr_of(const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return a;
}

/* A packet that is sent as soon as it stands has an address that answers can come to: the
 * kernel puts the route of an IPv6 address in a moment after it has said that the address
 * is there. */
TEST(test_the_stub_links_addresses_are_local_at_once)
{
	struct addr four = addr_of("192.0.0.2"), six = addr_of("2001:db8:7765:6972::2");
	struct err err = { 0 };
	bool ipv6 = false;

	for (int i = 0; i < TIMES; i++) {
		CLEAN(fd) int fd = -1;

		assert_int_equal(unshare(CLONE_NEWNET), 0);
		if (link_setup_owned(&ipv6, &err) < 0)
			fail_msg("%s", err.text);
		fd = link_route_open();
		assert_true(fd >= 0);
		assert_int_equal(link_addr_is_local(fd, &four), 1);
		if (ipv6)
			assert_int_equal(link_addr_is_local(fd, &six), 1);
	}
}

int main(void)
{
	if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return 77; /* skipped: no namespaces for this user */
	return unit_run(NULL, NULL);
}
