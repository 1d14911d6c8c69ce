// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/conns.h"
#include "unit.h"

/* Numbers that no descriptor of this process has: shutting them down does nothing. */
enum { FIRST_FD = 100000 };

static struct prefix network_of(const char *peer, const char *self)
{
	struct addr p, s;

	assert_true(addr_parse(peer, strlen(peer), &p));
	assert_true(addr_parse(self, strlen(self), &s));
	return conns_network(&p, &s);
}

static bool same(const char *a, const char *b)
{
	struct prefix x = network_of(a, "192.0.2.1"), y = network_of(b, "192.0.2.1");

	return x.bits == y.bits && addr_equal(&x.addr, &y.addr);
}

TEST(networks)
{
	assert_true(same("127.0.0.1", "127.9.9.9"));
	assert_true(same("127.0.0.1", "::1"));
	assert_true(same("127.0.0.1", "::ffff:127.0.0.2"));
	assert_true(same("192.0.2.1", "127.0.0.1"));
	assert_true(same("198.51.100.7", "::ffff:198.51.100.7"));
	assert_false(same("198.51.100.7", "198.51.100.8"));
	assert_true(same("2001:db8::1", "2001:db8::ffff:1"));
	assert_false(same("2001:db8::1", "2001:db8:0:1::1"));
	assert_false(same("127.0.0.1", "198.51.100.7"));
}

static struct conn *take(struct conns *c, int n, const char *peer, int64_t now_ms)
{
	struct prefix network = network_of(peer, "192.0.2.1");

	return conns_take(c, FIRST_FD + n, &network, now_ms);
}

TEST(the_largest_network_makes_room)
{
	struct conns c;
	struct conn *guest, *oldest;

	conns_init(&c);
	guest = take(&c, 0, "198.51.100.7", 0);
	oldest = take(&c, 1, "127.0.0.1", 1);
	for (int i = 2; i < API_CONNECTIONS_MAX; i++)
		assert_non_null(take(&c, i, "127.0.0.1", i));
	assert_int_equal(c.evicted, 0);
	assert_non_null(take(&c, 100, "127.0.0.5", 100));
	assert_true(oldest->is_dying);
	assert_false(guest->is_dying);
	assert_int_equal(c.evicted, 1);
	conns_release(&c, oldest);
	assert_int_equal(c.count, API_CONNECTIONS_MAX);
	assert_int_equal(c.dying, 0);
}

TEST(streams_keep_their_place)
{
	struct conns c;
	struct conn *stream;

	conns_init(&c);
	stream = take(&c, 0, "127.0.0.1", 0);
	conns_keep(&c, stream);
	for (int i = 1; i <= API_CONNECTIONS_MAX + CONNS_DYING_MAX; i++)
		assert_non_null(take(&c, i, "127.0.0.1", i));
	assert_false(stream->is_dying);
	assert_int_equal(c.dying, CONNS_DYING_MAX);
	/* Nobody of those that were shut down has gone: no place. */
	assert_null(take(&c, 200, "127.0.0.1", 200));
	conns_release(&c, stream);
	assert_int_equal(c.streams, 0);
	assert_null(take(&c, 200, "127.0.0.1", 200));
}

TEST(slow_requests_end)
{
	struct conns c;
	struct conn *slow, *stream, *fresh;

	conns_init(&c);
	slow = take(&c, 0, "127.0.0.1", 0);
	stream = take(&c, 1, "127.0.0.1", 0);
	conns_keep(&c, stream);
	fresh = take(&c, 2, "127.0.0.1", 5000);
	conns_expire(&c, 10000, 10000);
	assert_int_equal(c.timed_out, 0);
	conns_expire(&c, 10001, 10000);
	conns_expire(&c, 10002, 10000);
	assert_true(slow->is_dying);
	assert_false(stream->is_dying || fresh->is_dying);
	assert_int_equal(c.timed_out, 1);
}
