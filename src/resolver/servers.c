// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Without probes, which server comes next is learned from the queries themselves: the
 * smoothed time to an answer decides, in steps, so that equals are asked in the order in
 * which they were given. What is known halves with every SERVER_FORGET_MS without news,
 * so a server that failed is asked again after a while, by one live query.
 *
 * With probes the order is the one given, and only probes change it: a server whose probe
 * was not answered in PROBE_MS comes after all that answer theirs, until it answers one.
 * A server may be slow because one name is, and the names that an operator's own server
 * knows must not be asked elsewhere for that: least of all where it is another sandbox's
 * name. So a query that gets no answer, or is asked
 * again before it has one, only hastens the next probe. Whatever comes back is an answer:
 * an upstream that refuses the probe's name is well.
 *
 * Servers that were found behind Docker's resolver come after the others, as long as
 * those answer: Docker's resolver knows names that they don't.
 *
 * A probe is a try without a flight: a token, an id and a deadline of its own.
 *
 * DOCKER'S RESOLVER
 *
 * Docker's resolver at 127.0.0.11 answers the names of a network's services itself. What
 * it doesn't know it asks of servers outside, but from a socket inside the container's
 * namespace: to the filter that is the app, and the question is redirected to us. Waiting
 * for it would be waiting for ourselves.
 *
 * So Docker's resolver is asked first, and when a question comes back (it is then the one
 * that a flight has just sent, its id and the case of its letters too) the flight goes on
 * to the next server, which has no such way round.
 *
 * Which servers are next is found by a test at the start: a name of 128 random bits is
 * asked of Docker's resolver. Who asks us for it got it from there, and where that
 * question was going before the redirect is a server of Docker's. It is told SERVFAIL,
 * so that it tries its next one. An app that can't read packets can't know the name; one
 * that can (NET_RAW) has the filter behind it anyway. A question that comes back in a
 * flight is never asked for its way: those names are the app's own. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "resolver/resolver_internal.h"

enum {
	SERVER_FORGET_MS = 4000, /* half-life of what we know of a server */
	SERVER_STEP_MS = 64,	 /* smaller differences don't change the order */
	SERVER_BEHIND = 8,	 /* steps */
	PROBE_MS = 2000,	 /* or a try, where that is shorter */
	PROBE_PAUSE_MS = 1000,	 /* between two probes of one server, at least */
	REPORT_EVERY_MS = 1000,
	PLAIN_MS = 15 * 60 * 1000, /* a FORMERR may be forged, or a proxy's that starts */
	/* Docker's resolver */
	SECRET_SIZE = 16,
	TEST_MS = 2000,
	TEST_PAUSE_MS = 1000, /* between a test that was not answered and the next */
};

static void report(struct resolver *r, struct upstream_trouble t, int64_t now_ms)
{
	int64_t *report_ms = &r->servers[t.server].report_ms[t.kind];

	if (!r->ops.trouble || now_ms < *report_ms)
		return;
	*report_ms = now_ms + REPORT_EVERY_MS;
	r->ops.trouble(r->ops.data, &t);
}

/* ---- what the queries say ---- */

static void server_news(struct resolver *r, struct server *s, int64_t took_ms,
			bool failed, int64_t now_ms)
{
	int64_t took = MIN(MAX(took_ms, (int64_t)0), r->try_ms);
	int64_t smoothed = s->smoothed_ms;

	if (s->failing && !failed)
		smoothed = took;
	else
		smoothed += (took - smoothed) / (failed ? 2 : 8);
	s->smoothed_ms = (uint32_t)smoothed;
	s->failing = failed;
	s->news_ms = now_ms;
}

bool resolver_server_choose(struct resolver *r, uint16_t tried, int64_t now_ms,
			    uint8_t *ret)
{
	uint32_t best = UINT32_MAX;
	struct server *s;

	for (size_t i = 0; i < r->server_count; i++) {
		int64_t halvings;
		uint32_t badness;

		s = &r->servers[i];
		halvings = (now_ms - s->news_ms) / SERVER_FORGET_MS;
		badness = s->behind ? SERVER_BEHIND : 0;
		if (r->probe_every_ms > 0)
			badness = s->unhealthy;
		else if (halvings < 32)
			badness += (s->smoothed_ms >> halvings) / SERVER_STEP_MS;
		if (tried & 1u << i || badness >= best)
			continue;
		best = badness;
		*ret = (uint8_t)i;
	}
	if (best == UINT32_MAX)
		return false;
	s = &r->servers[*ret];
	if (s->failing) { /* this query finds out; the others go elsewhere meanwhile */
		s->smoothed_ms = (uint32_t)r->try_ms;
		s->news_ms = now_ms;
	}
	return true;
}

void resolver_server_answered(struct resolver *r, uint8_t server, int64_t took_ms,
			      int64_t now_ms)
{
	struct upstream_trouble t = { .server = server };

	server_news(r, &r->servers[server], took_ms, false, now_ms);
	if (r->answer.kind == DNS_ANSWER_FAILED && r->answer.rcode != DNS_NOERROR) {
		t.kind = UPSTREAM_RCODE;
		t.rcode = (uint8_t)r->answer.rcode;
		report(r, t, now_ms);
	} else if (r->answer.kind == DNS_ANSWER_FAILED ||
		   r->answer.kind == DNS_ANSWER_BAD) {
		t.kind = UPSTREAM_ERROR;
		t.error = -EBADMSG;
		report(r, t, now_ms);
	}
}

bool resolver_server_settle_edns(struct resolver *r, uint8_t server, bool plain,
				 int64_t now_ms)
{
	if (r->answer.rcode != DNS_FORMERR)
		return false;
	r->servers[server].plain_until_ms = plain ? 0 : now_ms + PLAIN_MS;
	return !plain;
}

void resolver_server_failed(struct resolver *r, uint8_t server, int error, int64_t now_ms)
{
	struct server *s = &r->servers[server];

	server_news(r, s, r->try_ms, true, now_ms);
	report(r,
	       (struct upstream_trouble){
		       .kind = UPSTREAM_ERROR, .server = server, .error = error },
	       now_ms);
	resolver_server_doubt(r, server);
}

void resolver_server_doubt(struct resolver *r, uint8_t server)
{
	struct server *s = &r->servers[server];

	if (r->probe_every_ms == 0 || s->probe_token != 0)
		return;
	s->probe_at_ms = MIN(s->probe_at_ms, s->probed_ms + PROBE_PAUSE_MS);
	r->probe_next_ms = MIN(r->probe_next_ms, s->probe_at_ms);
}

/* ---- probes ---- */

static void probe_end(struct resolver *r, struct server *s)
{
	r->ops.cancel(r->ops.data, s->probe_token);
	s->probe_token = 0;
	s->probe_at_ms = s->probed_ms + r->probe_every_ms;
}

static void probe_lost(struct resolver *r, struct server *s, int error, int64_t now_ms)
{
	probe_end(r, s);
	s->unhealthy = true;
	report(r,
	       (struct upstream_trouble){ .kind = UPSTREAM_PROBE,
					  .server = (uint8_t)(s - r->servers),
					  .error = error },
	       now_ms);
}

static void find_next(struct resolver *r)
{
	r->probe_next_ms = INT64_MAX;
	for (size_t i = 0; i < r->server_count; i++)
		r->probe_next_ms = MIN(r->probe_next_ms, r->servers[i].probe_at_ms);
}

void resolver_probe_tick(struct resolver *r, int64_t now_ms)
{
	for (size_t i = 0; i < r->server_count; i++) {
		struct dns_asked asked = { .type = r->probe_type, .name = r->probe_name };
		struct server *s = &r->servers[i];
		int error;

		if (s->probe_token != 0 && s->probe_at_ms <= now_ms)
			probe_lost(r, s, -ETIMEDOUT, now_ms);
		if (s->probe_token != 0 || s->probe_at_ms > now_ms)
			continue;
		s->probed_ms = now_ms;
		s->probe_at_ms = now_ms + MIN(r->try_ms, (int64_t)PROBE_MS);
		error = resolver_send(r, &asked, false, i, NULL, (uint32_t)i, now_ms,
				      &s->probe_token);
		if (error < 0)
			probe_lost(r, s, error, now_ms);
	}
	find_next(r);
}

void resolver_servers_init(struct resolver *r, const struct resolver_config *config)
{
	static const struct dns_name root = { .size = 1 };
	bool named = config->probe_name.size > 1, has_docker;

	r->server_count = MIN(config->upstream_count, (size_t)RESOLVER_UPSTREAMS_MAX);
	has_docker = config->docker_resolver > 0 &&
		     config->docker_resolver <= r->server_count;
	r->try_ms = config->try_ms > 0 ? config->try_ms : RESOLVER_TRY_MS;
	r->probe_every_ms = config->probe_every_ms;
	r->probe_name = named ? config->probe_name : root;
	r->probe_type = named ? DNS_TYPE_A : DNS_TYPE_NS;
	r->probe_next_ms = INT64_MAX;
	if (r->probe_every_ms > 0 && r->server_count > 0)
		r->probe_next_ms = 0;
	r->docker = (struct docker_resolver){
		.server = has_docker ? (uint8_t)(config->docker_resolver - 1)
				     : RESOLVER_UPSTREAMS_MAX,
		.at_ms = has_docker ? 0 : INT64_MAX,
	};
}

/* ---- Docker's resolver ---- */

/* Ask for a name that nobody can know. */
static int send_test(struct resolver *r, struct docker_resolver *in, int64_t now_ms)
{
	static const char digits[] = "0123456789abcdef", zone[] = ".invalid";
	struct dns_asked asked = { .type = DNS_TYPE_A };
	uint8_t secret[SECRET_SIZE];
	char text[2 * SECRET_SIZE + sizeof(zone)];

	r->ops.random(r->ops.data, secret, sizeof(secret));
	for (size_t i = 0; i < SECRET_SIZE; i++) {
		text[2 * i] = digits[secret[i] >> 4];
		text[2 * i + 1] = digits[secret[i] & 15];
	}
	memcpy(text + 2 * SECRET_SIZE, zone, sizeof(zone));
	if (dns_name_parse(text_of(text), &in->name) < 0)
		return -EINVAL;
	asked.name = in->name;
	return resolver_send(r, &asked, false, in->server, NULL, RESOLVER_UPSTREAMS_MAX,
			     now_ms, &in->token);
}

static void end_test(struct resolver *r, struct docker_resolver *in)
{
	r->ops.cancel(r->ops.data, in->token);
	in->token = 0;
}

static void settle(struct resolver *r, struct docker_resolver *in)
{
	const struct upstream_trouble t = { .kind = UPSTREAM_INNER,
					    .server = in->server };
	bool knows_behind = r->server_count > 0 && r->servers[r->server_count - 1].behind;

	in->settled = true;
	in->at_ms = INT64_MAX;
	if (in->sends_back && !knows_behind && r->ops.trouble)
		r->ops.trouble(r->ops.data, &t);
}

void docker_resolver_tick(struct resolver *r, int64_t now_ms)
{
	struct docker_resolver *in = &r->docker;

	if (in->token != 0) {
		end_test(r, in);
		in->at_ms = now_ms + TEST_PAUSE_MS;
		/* It came, and nothing was said of our answer to it. */
		if (in->sends_back)
			settle(r, in);
		return;
	}
	in->at_ms = now_ms + TEST_MS;
	if (send_test(r, in, now_ms) < 0) {
		end_test(r, in);
		in->at_ms = now_ms + TEST_PAUSE_MS;
	}
}

void resolver_probe_ended(struct resolver *r, uint32_t token, int error, int64_t now_ms)
{
	struct docker_resolver *in = &r->docker;
	size_t i = 0;

	if (token == 0)
		return;
	while (i < r->server_count && r->servers[i].probe_token != token)
		i++;
	if (i < r->server_count && error < 0) {
		probe_lost(r, &r->servers[i], error, now_ms);
		find_next(r);
	} else if (i < r->server_count) {
		bool recovered = r->servers[i].unhealthy;

		probe_end(r, &r->servers[i]);
		find_next(r);
		r->servers[i].unhealthy = false;
		if (recovered)
			report(r,
			       (struct upstream_trouble){ .kind = UPSTREAM_HEALTHY,
							  .server = (uint8_t)i },
			       now_ms);
	} else if (token == in->token) {
		end_test(r, in);
		if (error < 0)
			in->at_ms = now_ms + TEST_PAUSE_MS;
		else
			settle(r, in);
	}
}

bool docker_resolver_takes(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct docker_resolver *in = &r->docker;
	int server;

	if (in->token == 0 || !dns_name_equal(&ask->query.name, &in->name))
		return resolver_inflight_sent_back(r, ask, now_ms);
	in->sends_back = true;
	server = r->ops.add_behind(r->ops.data, &ask->client);
	/* One that has just been added; else it was known. */
	if (server == (int)r->server_count && server < RESOLVER_UPSTREAMS_MAX) {
		r->servers[r->server_count++] = (struct server){ .behind = true };
		if (r->probe_every_ms > 0)
			r->probe_next_ms = 0;
	}
	resolver_fail(r, ask, DNS_EDE_NETWORK_ERROR, "this is a question of Weir's own");
	resolver_ask_release(r, ask);
	return true;
}

bool resolver_is_settled(const struct resolver *r)
{
	return r->docker.server == RESOLVER_UPSTREAMS_MAX || r->docker.settled;
}
