// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Docker's resolver at 127.0.0.11 answers the names of a network's services itself. What
 * it doesn't know it asks of servers outside, but from a socket inside the container's
 * namespace: to the filter that is the app, and the question is redirected to us. Waiting
 * for it would be waiting for ourselves.
 *
 * So the inner server is asked first, and when a question comes back (it is then the one
 * that a flight has just sent, its id and the case of its letters too) the flight goes on
 * to the next server, which has no such way round.
 *
 * Which servers are next is found by a test at the start: a name of 128 random bits is
 * asked of the inner server. Who asks us for it got it from there, and where that
 * question was going before the redirect is a server of Docker's. It is told SERVFAIL,
 * so that it tries its next one. An app that can't read packets can't know the name; one
 * that can (NET_RAW) has the filter behind it anyway. A question that comes back in a
 * flight is never asked for its way: those names are the app's own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "resolver/resolver_internal.h"

enum {
	SECRET_SIZE = 16,
	TEST_MS = 2000,
	TEST_PAUSE_MS = 1000, /* between a test that was not answered and the next */
};

static bool make_name(struct resolver *r, struct dns_name *ret)
{
	static const char digits[] = "0123456789abcdef", zone[] = ".invalid";
	uint8_t secret[SECRET_SIZE];
	char text[2 * SECRET_SIZE + sizeof(zone)];

	r->ops.random(r->ops.data, secret, sizeof(secret));
	for (size_t i = 0; i < SECRET_SIZE; i++) {
		text[2 * i] = digits[secret[i] >> 4];
		text[2 * i + 1] = digits[secret[i] & 15];
	}
	memcpy(text + 2 * SECRET_SIZE, zone, sizeof(zone));
	return dns_name_parse(text_of(text), ret) == 0;
}

static int send_test(struct resolver *r, struct inner *in)
{
	static const uint8_t as_it_is[(DNS_NAME_MAX + 7) / 8];
	uint8_t message[512], id[2], sent[DNS_NAME_MAX];
	int size;

	if (!make_name(r, &in->name))
		return -EINVAL;
	r->ops.random(r->ops.data, id, sizeof(id));
	size = dns_query_write(message, sizeof(message), (uint16_t)(id[0] << 8 | id[1]),
			       &in->name, DNS_TYPE_A, false, as_it_is, sent);
	if (size < 0)
		return size;
	in->token = resolver_token(r, RESOLVER_UPSTREAMS_MAX);
	return r->ops.send(r->ops.data, in->token, in->server, false, message,
			   (size_t)size);
}

static void end_test(struct resolver *r, struct inner *in)
{
	r->ops.cancel(r->ops.data, in->token);
	in->token = 0;
}

static bool knows_behind(const struct resolver *r)
{
	return r->server_count > 0 && r->servers[r->server_count - 1].behind;
}

static void settle(struct resolver *r, struct inner *in)
{
	const struct upstream_trouble t = { .kind = UPSTREAM_INNER,
					    .server = in->server };

	in->settled = true;
	in->at_ms = INT64_MAX;
	if (in->sends_back && !knows_behind(r) && r->ops.trouble)
		r->ops.trouble(r->ops.data, &t);
}

void docker_resolver_tick(struct resolver *r, int64_t now_ms)
{
	struct inner *in = &r->inner;

	if (in->token != 0) {
		end_test(r, in);
		in->at_ms = now_ms + TEST_PAUSE_MS;
		/* It came, and nothing was said of our answer to it. */
		if (in->sends_back)
			settle(r, in);
		return;
	}
	in->at_ms = now_ms + TEST_MS;
	if (send_test(r, in) < 0) {
		end_test(r, in);
		in->at_ms = now_ms + TEST_PAUSE_MS;
	}
}

bool docker_resolver_response(struct resolver *r, uint32_t token, int error,
			      int64_t now_ms)
{
	struct inner *in = &r->inner;

	if (token == 0 || token != in->token)
		return false;
	end_test(r, in);
	if (error < 0)
		in->at_ms = now_ms + TEST_PAUSE_MS;
	else
		settle(r, in);
	return true;
}

/* A server that was known, or has just been added. */
static void use_behind(struct resolver *r, size_t server)
{
	if (server != r->server_count || server >= RESOLVER_UPSTREAMS_MAX)
		return;
	r->servers[server] = (struct server){ .behind = true };
	r->server_count++;
	if (r->probe_every_ms > 0)
		r->probe_next_ms = 0;
}

bool docker_resolver_query(struct resolver *r, const struct resolver_ask *ask,
			   int64_t now_ms)
{
	struct inner *in = &r->inner;
	int server;

	if (in->token == 0 || !dns_name_equal(&ask->query.name, &in->name))
		return false;
	in->sends_back = true;
	server = r->ops.add_behind(r->ops.data, &ask->client);
	if (server >= 0)
		use_behind(r, (size_t)server);
	resolver_fail(r, ask, DNS_EDE_NETWORK_ERROR, "this is a question of Weir's own");
	return true;
}

bool docker_resolver_sent_back(struct resolver *r, const struct inflight *f,
			       const struct resolver_ask *ask, int64_t now_ms)
{
	struct inner *in = &r->inner;

	if (f->token == 0 || f->server != in->server || ask->query.id != f->asked.id ||
	    memcmp(ask->query.raw_name, f->asked.case_name, f->asked.name.size) != 0)
		return false;
	/* The test must have missed that: once more. */
	if (!in->sends_back && in->token == 0) {
		in->settled = false;
		in->at_ms = MIN(in->at_ms, now_ms);
	}
	return true;
}

bool resolver_is_settled(const struct resolver *r)
{
	return r->inner.server == RESOLVER_UPSTREAMS_MAX || r->inner.settled;
}

void docker_resolver_init(struct resolver *r, const struct resolver_config *config)
{
	bool has = config->inner > 0 && config->inner <= r->server_count;

	r->inner = (struct inner){
		.server = has ? (uint8_t)(config->inner - 1) : RESOLVER_UPSTREAMS_MAX,
		.at_ms = has ? 0 : INT64_MAX,
	};
}
