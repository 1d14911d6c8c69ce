// SPDX-License-Identifier: Apache-2.0
#include "resolver/resolver.h"

#include "resolver/resolver_internal.h"

/* ---- asks ---- */

struct ask_chunk {
	struct chunk chunk;
	struct resolver_ask asks[CHUNK];
};

static bool add_asks(struct resolver *r)
{
	struct ask_chunk *c;

	if (r->ask_total >= RESOLVER_CLIENTS_MAX)
		return false;
	c = malloc(sizeof(*c));
	if (!c)
		return false;
	c->chunk.next = r->ask_chunks;
	r->ask_chunks = &c->chunk;
	r->ask_total += CHUNK;
	for (size_t i = 0; i < CHUNK; i++)
		resolver_ask_release(r, &c->asks[i]);
	return true;
}

struct resolver_ask *resolver_ask_new(struct resolver *r)
{
	struct resolver_ask *a;

	if (!r->free_asks && !add_asks(r))
		return NULL;
	a = r->free_asks;
	r->free_asks = a->next;
	return a;
}

void resolver_ask_release(struct resolver *r, struct resolver_ask *ask)
{
	ask->next = r->free_asks;
	r->free_asks = ask;
}

/* ---- life ---- */

struct resolver *resolver_new(const struct resolver_ops *ops,
			      const struct resolver_config *config)
{
	struct resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->ops = *ops;
	r->key = config->key;
	r->pin_next_ms = INT64_MAX;
	resolver_servers_init(r, config);
	docker_resolver_init(r, config);
	r->cache =
		dns_cache_new(RESOLVER_CACHE_ENTRIES, RESOLVER_CACHE_BYTES, &config->key);
	r->bytes = malloc(QUEUE_BYTES);
	r->addrs = malloc(QUEUE_ADDRS * sizeof(*r->addrs));
	if (!r->cache || !r->bytes || !r->addrs) {
		resolver_free(r);
		return NULL;
	}
	return r;
}

void resolver_free(struct resolver *r)
{
	if (!r)
		return;
	for (struct chunk *c = r->ask_chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	for (size_t i = 0; i < ARRAY_SIZE(r->inflight_chunks); i++)
		free(r->inflight_chunks[i]);
	dns_cache_free(r->cache);
	free(r->bytes);
	free(r->addrs);
	free(r);
}

struct resolver_sandbox *resolver_sandbox_of(struct sandbox *s)
{
	if (!s->resolver)
		s->resolver = calloc(1, sizeof(*s->resolver));
	if (s->resolver)
		s->resolver->sandbox = s;
	return s->resolver;
}

void resolver_detach(struct resolver *r, struct sandbox *s)
{
	if (!s->resolver)
		return;
	if (s->resolver->in_flight > 0)
		resolver_inflight_forget(r, s);
	resolver_queue_forget(r, s->resolver);
	resolver_pin_free(r, s->resolver);
	free(s->resolver->seen);
	free(s->resolver->budgets);
	free(s->resolver);
	s->resolver = NULL;
}

/* ---- time ---- */

int64_t resolver_next_ms(const struct resolver *r)
{
	int64_t next_ms = r->soonest ? r->soonest->deadline_ms : INT64_MAX;

	next_ms = MIN(next_ms, r->probe_next_ms);
	next_ms = MIN(next_ms, r->inner.at_ms);
	return MIN(next_ms, r->pin_next_ms);
}

void resolver_tick(struct resolver *r, int64_t now_ms)
{
	resolver_inflight_tick(r, now_ms);
	if (r->probe_next_ms <= now_ms)
		resolver_probe_tick(r, now_ms);
	if (r->inner.at_ms <= now_ms)
		docker_resolver_tick(r, now_ms);
	if (r->pin_next_ms <= now_ms)
		resolver_pin_tick(r, now_ms);
}

/* ---- queries ---- */

/* Allowed: from the pins; or from the cache, or wait for the upstream. Takes the ask. */
static void look_up(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct dns_cache_key key = { .name = &ask->query.name,
				     .type = ask->query.type,
				     .dnssec_ok = ask->query.dnssec_ok };

	if (plan_dns(&s->plan) == POLICY_DNS_PINNED) {
		resolver_pin_answer(r, ask, now_ms);
	} else if (dns_cache_find(r->cache, &key, now_ms, &r->answer)) {
		s->counters[COUNT_ANSWERS_CACHED]++;
		resolver_deliver(r, ask, &r->answer, now_ms);
	} else if (s->resolver->in_flight >=
		   plan_limit(&s->plan, LIMIT_QUERIES_IN_FLIGHT)) {
		resolver_limit(r, ask, LIMIT_QUERIES_IN_FLIGHT, now_ms);
		resolver_ask_release(r, ask);
	} else {
		resolver_inflight_join(r, ask, now_ms);
	}
}

/* A query that could be read. Takes the ask. */
static void handle(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	if (!resolver_admit(r, ask, now_ms) ||
	    resolver_verdict(r, ask, now_ms) != JUDGE_LOOK_UP)
		resolver_ask_release(r, ask);
	else if (ask->probe)
		resolver_deliver_probe(r, ask, now_ms);
	else
		look_up(r, ask, now_ms);
}

static void answer_status(struct resolver *r, const struct resolver_client *client,
			  const struct dns_query *q, enum dns_query_status status)
{
	uint8_t buf[DNS_UDP_MIN];
	size_t size;

	client->sandbox->counters[COUNT_QUERIES_MALFORMED]++;
	if (status == DNS_QUERY_DROP)
		return;
	size = dns_status_write(buf, sizeof(buf), q, status);
	r->ops.reply(r->ops.data, client, buf, size);
}

void resolver_query(struct resolver *r, const struct resolver_client *client,
		    const void *message, size_t size, int64_t now_ms)
{
	struct sandbox *s = client->sandbox;
	enum dns_query_status status;
	struct resolver_ask *ask;

	if (s->state != SANDBOX_TESTING && s->state != SANDBOX_RUNNING)
		return;
	s->counters[COUNT_QUERIES]++;
	ask = resolver_sandbox_of(s) ? resolver_ask_new(r) : NULL;
	if (!ask) {
		resolver_overloaded(r, client, message, size);
		return;
	}
	status = dns_query_read(message, size, &ask->query);
	if (status != DNS_QUERY_OK) {
		answer_status(r, client, &ask->query, status);
		resolver_ask_release(r, ask);
		return;
	}
	ask->client = *client;
	ask->verdict = (struct plan_verdict){ .rule = PLAN_NO_RULE };
	ask->probe = ask->pin = false;
	ask->addr_count = 0;
	if (docker_resolver_query(r, ask, now_ms))
		resolver_ask_release(r, ask);
	else if (!resolver_inflight_sent_back(r, ask, now_ms))
		handle(r, ask, now_ms);
}
