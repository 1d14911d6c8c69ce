// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Replies without an address leave at once. A reply with addresses is written when its
 * answer is there: writing decides which addresses fit, and only those are learned. It
 * then waits in its sandbox's queue for resolver_flush(), which takes up to BATCH_ADDS
 * addresses at a time, sends what the kernel lacks in one transaction, and lets the
 * replies out, oldest first, when the kernel has acknowledged it. They are learned by the
 * plan of that moment, whatever it was when they were written; what it does not allow any
 * more, or not for so long, becomes SERVFAIL. If a transaction of
 * several replies fails, each is tried by itself, so that one that can't be committed
 * takes no other with it. What still fails becomes SERVFAIL.
 *
 * What sandbox/verdict.h finds fault with is left out. When nothing is left the reply is
 * NODATA: the name may have addresses of the other family, and NXDOMAIN is about the name
 * (RFC 2308): musl asks for both families at once, and takes it for the end of both.
 */
#include "resolver/resolver.h"

#include <stdio.h>
#include <string.h>

#include "base/rate.h"
#include "resolver/resolver_internal.h"
#include "sandbox/asks.h"
#include "sandbox/verdict.h"

/* ---- asks ---- */

struct ask_chunk {
	struct chunk chunk;
	struct resolver_ask asks[CHUNK];
};

static void push_free(struct resolver *r, struct resolver_ask *ask)
{
	ask->next = r->free_asks;
	r->free_asks = ask;
	r->ask_free++;
}

struct resolver_ask *resolver_ask_new(struct resolver *r, struct sandbox *s)
{
	struct resolver_sandbox *g = resolver_sandbox_of(s);
	struct resolver_ask *a;

	if (!g ||
	    !share_has_room(g->asks, r->ask_total - r->ask_free, RESOLVER_CLIENTS_MAX))
		return NULL;
	if (!r->free_asks && r->ask_total < RESOLVER_CLIENTS_MAX) {
		struct ask_chunk *c = malloc(sizeof(*c));

		if (!c)
			return NULL;
		c->chunk.next = r->ask_chunks;
		r->ask_chunks = &c->chunk;
		r->ask_total += CHUNK;
		for (size_t i = 0; i < CHUNK; i++)
			push_free(r, &c->asks[i]);
	}
	a = r->free_asks;
	if (!a)
		return NULL;
	r->free_asks = a->next;
	r->ask_free--;
	g->asks++;
	a->client.sandbox = s;
	return a;
}

void resolver_ask_release(struct resolver *r, struct resolver_ask *ask)
{
	ask->client.sandbox->resolver->asks--;
	push_free(r, ask);
}

/* ---- refusals ---- */

static void send_reply(struct resolver *r, const struct resolver_ask *ask,
		       const void *message, size_t size)
{
	struct sandbox *s = ask->client.sandbox;

	if (!ask->client.own)
		r->ops.reply(r->ops.data, &ask->client, message, size);
	else if (s->on_looked_up)
		s->on_looked_up(s, &ask->query.name);
}

void resolver_refuse(struct resolver *r, const struct resolver_ask *ask,
		     const struct dns_refusal *refusal)
{
	uint8_t buf[DNS_UDP_OURS];
	size_t size = dns_refusal_write(buf, sizeof(buf), &ask->query, refusal);

	send_reply(r, ask, buf, size);
}

void resolver_fail(struct resolver *r, const struct resolver_ask *ask, enum dns_ede ede,
		   const char *text)
{
	struct dns_refusal refusal = { .rcode = DNS_SERVFAIL,
				       .ede = ede,
				       .ede_text = text_of(text) };

	ask->client.sandbox->counters[COUNT_ANSWERS_FAILED]++;
	resolver_refuse(r, ask, &refusal);
}

void resolver_negative(struct resolver *r, const struct resolver_ask *ask,
		       enum dns_rcode rcode, uint32_t ttl_sec)
{
	struct dns_refusal refusal = {
		.rcode = rcode, .soa = true, .ttl_sec = ttl_sec, .ede = DNS_EDE_NONE
	};

	resolver_refuse(r, ask, &refusal);
}

struct event resolver_event(const struct resolver_ask *ask, enum event_action action)
{
	struct event e = event_make(action, EVENT_DNS);

	e.rule = ask->verdict.rule;
	e.from = ask->client.peer;
	e.to = ask->client.asked;
	e.query_type = ask->query.type;
	sandbox_event_name(&e, &ask->query.name);
	return e;
}

/* @remote is the address that was the reason, or NULL. */
static void report_denied(const struct resolver_ask *ask, const struct addr *remote,
			  const char *reason, int64_t now_ms)
{
	struct event e = resolver_event(ask, EVENT_DENY);

	e.allowable =
		(e.rule == PLAN_NO_RULE || remote || ask->verdict.action == POLICY_ASK) &&
		dns_name_is_host(&ask->query.name);
	if (remote)
		e.remote = *remote;
	event_set_reason(&e, reason);
	sandbox_event(ask->client.sandbox, &e, now_ms);
}

/* EDE 15 and the counter. @stand_in: an address instead of @rcode and a SOA, or NULL. */
static void reply_denied(struct resolver *r, const struct resolver_ask *ask,
			 enum dns_rcode rcode, uint32_t ttl_sec,
			 const struct addr *stand_in, const char *reason)
{
	char text[REASON_SIZE + 32] = "";

	if (ask->query.has_edns)
		snprintf(text, sizeof(text), "blocked by policy: %s", reason);
	ask->client.sandbox->counters[COUNT_QUERIES_DENIED]++;
	if (stand_in)
		resolver_answer_here(r, ask, stand_in, ttl_sec, text_of(text));
	else
		resolver_refuse(r, ask,
				&(struct dns_refusal){ .rcode = rcode,
						       .soa = true,
						       .ttl_sec = ttl_sec,
						       .ede = DNS_EDE_BLOCKED,
						       .ede_text = text_of(text) });
}

void resolver_deny(struct resolver *r, const struct resolver_ask *ask, const char *reason,
		   int64_t now_ms)
{
	const uint32_t ttl_sec = ask->verdict.action == POLICY_ASK
					 ? (uint32_t)SINKHOLE_TTL_SEC
					 : (uint32_t)LOCAL_TTL_SEC;

	reply_denied(r, ask, DNS_NXDOMAIN, ttl_sec, NULL, reason);
	report_denied(ask, NULL, reason, now_ms);
}

void resolver_sinkhole(struct resolver *r, const struct resolver_ask *ask,
		       const char *reason, int64_t now_ms)
{
	const bool is_v6 = ask->query.type == DNS_TYPE_AAAA;
	struct sandbox *s = ask->client.sandbox;
	const bool has_address = ask->query.type == DNS_TYPE_A || (is_v6 && s->ipv6);
	struct addr a;

	if (has_address) {
		a = sinkhole_addr(is_v6 ? ADDR_V6 : ADDR_V4, &ask->query.name);
		sinkholes_give(&s->sinkholes, &a);
	}
	reply_denied(r, ask, DNS_NOERROR, SINKHOLE_TTL_SEC, has_address ? &a : NULL,
		     reason);
	report_denied(ask, NULL, reason, now_ms);
}

/* ---- addresses that no reply may have ---- */

uint32_t rebinding_check(const struct resolver_ask *ask, const struct dns_answer *a,
			 int64_t now_ms, char reason[REASON_SIZE], const char **ret_fault)
{
	struct sandbox *s = ask->client.sandbox;
	uint32_t budget = MIN(plan_limit(&s->plan, LIMIT_ADDRESSES_PER_NAME),
			      plan_limit(&s->plan, LIMIT_ADDRESSES));
	const struct addr *remote = NULL;
	uint32_t keep = 0;

	*ret_fault = NULL;
	for (size_t i = 0; i < a->addr_count; i++) {
		const struct addr *addr = &a->addrs[i].addr;
		const char *fault = rebinding_fault(&s->plan, &ask->verdict, addr);

		if (!fault) {
			keep |= budget > 0 ? UINT32_C(1) << i : 0;
			budget -= budget > 0;
			continue;
		}
		s->counters[COUNT_ANSWERS_SPECIAL]++;
		if (remote)
			continue;
		*ret_fault = fault;
		remote = addr;
	}
	if (!remote)
		return keep;
	snprintf(reason, REASON_SIZE, "%s, %s", ADDR_SHOWN(remote), *ret_fault);
	report_denied(ask, remote, reason, now_ms);
	return keep;
}

/* ---- writing ---- */

static size_t reply_limit(const struct resolver_ask *ask)
{
	const struct dns_query *q = &ask->query;

	if (ask->client.tcp)
		return DNS_MESSAGE_MAX;
	return q->has_edns ? MIN(q->udp_size, (uint16_t)DNS_UDP_OURS)
			   : (size_t)DNS_UDP_MIN;
}

static void send_ask(struct resolver *r, struct resolver_ask *ask)
{
	struct sandbox *s = ask->client.sandbox;

	s->counters[COUNT_ANSWERS]++;
	if (s->on_answered && ask->addr_count > 0)
		s->on_answered(s->on_answered_data, &ask->query.name,
			       r->addrs + ask->addr_at, ask->addr_count);
	send_reply(r, ask, r->bytes + ask->message_at, ask->message_size);
	resolver_ask_release(r, ask);
}

/* Write the reply behind the others that wait; learn what was written. */
static void write_reply(struct resolver *r, struct resolver_ask *ask,
			const struct dns_answer *a, uint32_t keep, struct text left_out,
			int64_t now_ms)
{
	const struct dns_reply_form form = {
		.limit = reply_limit(ask),
		.keep = keep,
		.ttl_cap_sec = learned_ttl_max(&ask->client.sandbox->plan),
		.left_out = left_out,
	};
	struct resolver_sandbox *g = ask->client.sandbox->resolver;
	uint32_t written = 0;

	if (QUEUE_BYTES - r->bytes_used < form.limit ||
	    QUEUE_ADDRS - r->addrs_used < DNS_ADDRESSES_MAX)
		resolver_flush(r, now_ms);
	ask->ttl_cap_sec = form.ttl_cap_sec;
	ask->message_at = r->bytes_used;
	ask->message_size = (uint32_t)dns_reply_write(
		r->bytes + r->bytes_used, form.limit, &ask->query, a, &form, &written);
	ask->addr_at = r->addrs_used;
	ask->addr_count = 0;
	for (size_t i = 0; i < a->addr_count; i++)
		if (written & UINT32_C(1) << i)
			r->addrs[ask->addr_at + ask->addr_count++] = a->addrs[i];
	if (ask->addr_count == 0) {
		send_ask(r, ask);
		return;
	}
	r->bytes_used += ask->message_size;
	r->addrs_used += ask->addr_count;
	ask_list_push(&g->queue, ask);
	if (g->dirty)
		return;
	g->dirty = true;
	g->next_dirty = r->dirty;
	r->dirty = g;
}

void resolver_deliver(struct resolver *r, struct resolver_ask *ask,
		      const struct dns_answer *a, int64_t now_ms)
{
	char reason[REASON_SIZE] = "";
	const char *fault;
	uint32_t keep;

	if (a->kind != DNS_ANSWER_RECORDS) {
		resolver_negative(r, ask,
				  a->kind == DNS_ANSWER_NXDOMAIN ? DNS_NXDOMAIN
								 : DNS_NOERROR,
				  a->ttl_sec);
		resolver_ask_release(r, ask);
		return;
	}
	keep = rebinding_check(ask, a, now_ms, reason, &fault);
	if (fault && keep == 0) {
		reply_denied(r, ask, DNS_NOERROR, LOCAL_TTL_SEC, NULL, reason);
		resolver_ask_release(r, ask);
		return;
	}
	write_reply(r, ask, a, keep, text_of(reason), now_ms);
}

/* Not in r->answer: that may be about to be delivered to others. */
static const struct dns_answer *one_address(struct resolver *r, const struct addr *a,
					    uint32_t ttl_sec)
{
	struct dns_answer *answer = &r->one_address;

	answer->kind = DNS_ANSWER_RECORDS;
	answer->rcode = DNS_NOERROR;
	answer->ad = false;
	answer->chain_count = answer->record_count = 0;
	answer->addr_count = 1;
	answer->ttl_sec = ttl_sec;
	answer->addrs[0] = (struct dns_answer_addr){ .addr = *a, .ttl_sec = ttl_sec };
	return answer;
}

void resolver_answer_here(struct resolver *r, const struct resolver_ask *ask,
			  const struct addr *a, uint32_t ttl_sec, struct text why)
{
	uint8_t buf[DNS_UDP_OURS];
	const struct dns_reply_form form = {
		.limit = reply_limit(ask),
		.keep = 1,
		.ttl_cap_sec = ttl_sec,
		.left_out = why,
	};
	uint32_t written;
	size_t size = dns_reply_write(buf, sizeof(buf), &ask->query,
				      one_address(r, a, ttl_sec), &form, &written);

	send_reply(r, ask, buf, size);
}

void resolver_hold(struct resolver *r, const struct resolver_ask *ask, int64_t now_ms)
{
	const bool is_v6 = ask->query.type == DNS_TYPE_AAAA;
	struct sandbox *s = ask->client.sandbox;
	struct addr a;

	if ((ask->query.type != DNS_TYPE_A && !is_v6) || (is_v6 && !s->ipv6)) {
		s->counters[COUNT_QUERIES_UNSERVED]++;
		resolver_negative(r, ask, DNS_NOERROR, SINKHOLE_TTL_SEC);
		return;
	}
	if (!asks_by_relay(s))
		resolver_park(r, ask, now_ms);
	else if (asks_address(s, &ask->query.name, is_v6 ? ADDR_V6 : ADDR_V4, now_ms, &a))
		resolver_answer_here(r, ask, &a, SINKHOLE_TTL_SEC, (struct text){ 0 });
	else
		resolver_deny(r, ask, ASKS_TOO_MANY, now_ms);
}

/* ---- flush ---- */

/* If the plan has changed since @ask's name was matched: does it still allow the reply?
 * Its rule is then the new plan's. */
static bool still_holds(const struct resolver *r, struct resolver_ask *ask)
{
	const struct sandbox *s = ask->client.sandbox;
	const struct plan *p = &s->plan;
	struct plan_verdict v;

	if (ask->probe || resolver_is_matched(ask))
		return true;
	v = plan_match_name(p, &ask->query.name);
	if (v.action != POLICY_ALLOW || learned_ttl_max(p) < ask->ttl_cap_sec)
		return false;
	for (size_t i = 0; i < ask->addr_count; i++)
		if (rebinding_fault(p, &v, &r->addrs[ask->addr_at + i].addr))
			return false;
	ask->verdict = v;
	ask->matched = s->plan_generation + 1;
	return true;
}

/* The kernel's side: one transaction, or none when it lacks nothing, with as many
 * deletions as fit. If that fails it is tried without them: what somebody else has taken
 * out of the set can't be deleted, and must not keep an answer back. Return: 0 or -errno,
 * and how many items were prepared. */
static int transact(struct resolver *r, struct sandbox *s,
		    const struct learned_item *items, size_t count, int64_t now_ms,
		    size_t *ret_prepared)
{
	struct filter_learn changes[FILTER_LEARN_MAX];
	size_t used = 0, deletions;
	int n;

	for (size_t i = 0; i < count; i++) {
		*ret_prepared = i;
		n = learned_prepare(s->learned, &items[i], now_ms, &changes[used]);
		if (n < 0)
			return n;
		used += (size_t)n;
	}
	*ret_prepared = count;
	if (used == 0)
		return 0;
	deletions = learned_sweep(s->learned, now_ms, changes + used,
				  FILTER_LEARN_MAX - used);
	s->counters[COUNT_COMMITS]++;
	n = r->ops.commit(r->ops.data, s, changes, used + deletions);
	if (n < 0 && deletions > 0) {
		learned_sweep_failed(s->learned);
		n = r->ops.commit(r->ops.data, s, changes, used);
	}
	if (n < 0)
		s->counters[COUNT_COMMITS_FAILED]++;
	return n;
}

int resolver_learn(struct resolver *r, struct sandbox *s, struct learned_item *items,
		   size_t count, int64_t now_ms)
{
	size_t taught = 0, prepared = 0;
	int ret;

	/* The name may resolve to the others, but doesn't teach them. */
	for (size_t i = 0; i < count; i++)
		if (items[i].is_passing ||
		    rebinding_teaches(&s->plan, &items[i].verdict, &items[i].addr))
			items[taught++] = items[i];
	ret = transact(r, s, items, taught, now_ms, &prepared);
	for (size_t i = 0; i < prepared; i++) {
		const struct learned_item *item = &items[i];
		struct learned_use uses[2]; /* the newest is this one */
		struct event e;

		if (ret < 0) {
			learned_abort(s->learned, item, now_ms);
			continue;
		}
		learned_commit(s->learned, item, now_ms);
		/* Under `verify: dns` an address is open to whatever any of its names
		 * opens: say so where two names that share it may do different things. */
		if (plan_verify(&s->plan) == POLICY_VERIFY_TLS ||
		    learned_find(s->learned, &item->addr, now_ms, uses, 2) < 2 ||
		    (uses[0].port_list == uses[1].port_list &&
		     uses[0].flags == uses[1].flags))
			continue;
		e = event_make(EVENT_ALLOW, EVENT_ADDRESS);
		e.rule = item->verdict.rule;
		e.remote = item->addr;
		event_set_reason(&e, "names with different rules share this address");
		sandbox_event_name(&e, item->name);
		sandbox_event(s, &e, now_ms);
	}
	if (ret == 0)
		s->counters[COUNT_LEARNED] += taught;
	return ret;
}

/* What @asks teach. */
static int learn(struct resolver *r, struct sandbox *s, struct resolver_ask *const *asks,
		 size_t count, int64_t now_ms)
{
	const uint32_t ttl_max = learned_ttl_max(&s->plan);
	struct learned_item items[BATCH_ADDS];
	size_t total = 0;

	for (size_t i = 0; i < count; i++)
		for (size_t n = 0; n < asks[i]->addr_count; n++) {
			const struct dns_answer_addr *a = &r->addrs[asks[i]->addr_at + n];

			items[total++] = (struct learned_item){
				.name = &asks[i]->query.name,
				.verdict = asks[i]->verdict,
				.addr = a->addr,
				.ttl_sec = MIN(a->ttl_sec, ttl_max),
				.lifetime_ms = asks[i]->probe ? PROBE_LIFETIME_MS : 0,
				.is_passing = asks[i]->probe,
			};
		}
	return resolver_learn(r, s, items, total, now_ms);
}

void resolver_sweep(struct resolver *r, struct sandbox *s, int64_t now_ms)
{
	struct filter_learn changes[FILTER_LEARN_MAX];
	size_t n;

	while ((n = learned_sweep(s->learned, now_ms, changes, ARRAY_SIZE(changes))) >
	       0) {
		s->counters[COUNT_COMMITS]++;
		if (r->ops.commit(r->ops.data, s, changes, n) == 0)
			continue;
		s->counters[COUNT_COMMITS_FAILED]++;
		learned_sweep_failed(s->learned);
		return;
	}
}

static void flush_sandbox(struct resolver *r, struct resolver_sandbox *g, int64_t now_ms)
{
	struct resolver_ask *batch[BATCH_ADDS];
	struct sandbox *s = g->sandbox;

	learned_expire(s->learned, now_ms);
	while (g->queue.first) {
		size_t count = 0, addrs = 0;
		bool together;

		while (g->queue.first &&
		       addrs + g->queue.first->addr_count <= BATCH_ADDS) {
			struct resolver_ask *ask = ask_list_pop(&g->queue);

			if (!still_holds(r, ask)) {
				resolver_fail(r, ask, DNS_EDE_OTHER,
					      "the policy has changed");
				resolver_ask_release(r, ask);
				continue;
			}
			addrs += ask->addr_count;
			batch[count++] = ask;
		}
		together = count > 1 && learn(r, s, batch, count, now_ms) == 0;
		for (size_t i = 0; i < count; i++) {
			if (together || learn(r, s, &batch[i], 1, now_ms) == 0) {
				send_ask(r, batch[i]);
				continue;
			}
			resolver_fail(r, batch[i], DNS_EDE_OTHER,
				      "the filter did not take the address");
			resolver_ask_release(r, batch[i]);
		}
	}
	/* What a limit has pushed out waits for nobody else's question. */
	resolver_sweep(r, s, now_ms);
	s->counters[COUNT_LEARNED_EVICTED] = learned_counts(s->learned).evicted;
}

void resolver_flush(struct resolver *r, int64_t now_ms)
{
	struct resolver_sandbox *g;

	while ((g = r->dirty)) {
		r->dirty = g->next_dirty;
		g->dirty = false;
		flush_sandbox(r, g, now_ms);
	}
	r->bytes_used = 0;
	r->addrs_used = 0;
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
	r->park_next_ms = INT64_MAX;
	LIST_INIT(&r->parking);
	TAILQ_INIT(&r->deadlines);
	resolver_servers_init(r, config);
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
	struct resolver_sandbox *g = s->resolver, **at = &r->dirty;
	struct resolver_ask *ask;

	if (!g)
		return;
	if (g->in_flight > 0)
		resolver_inflight_forget(r, s);
	while ((ask = ask_list_pop(&g->queue)))
		resolver_ask_release(r, ask);
	while (g->dirty && *at != g)
		at = &(*at)->next_dirty;
	if (g->dirty)
		*at = g->next_dirty;
	resolver_parked_forget(r, g);
	resolver_pin_free(r, g);
	dns_cache_leave(r->cache, &g->cached);
	free(g->seen);
	free(g->budgets);
	free(g);
	s->resolver = NULL;
}

/* ---- time ---- */

int64_t resolver_next_ms(const struct resolver *r)
{
	const struct inflight *soonest = TAILQ_FIRST(&r->deadlines);
	int64_t next_ms = soonest ? soonest->deadline_ms : INT64_MAX;

	next_ms = MIN(next_ms, r->probe_next_ms);
	next_ms = MIN(next_ms, r->docker.at_ms);
	next_ms = MIN(next_ms, r->park_next_ms);
	return MIN(next_ms, r->pin_next_ms);
}

void resolver_tick(struct resolver *r, int64_t now_ms)
{
	resolver_inflight_tick(r, now_ms);
	if (r->probe_next_ms <= now_ms)
		resolver_probe_tick(r, now_ms);
	if (r->docker.at_ms <= now_ms)
		docker_resolver_tick(r, now_ms);
	if (r->pin_next_ms <= now_ms)
		resolver_pin_tick(r, now_ms);
	if (r->park_next_ms <= now_ms)
		resolver_parked_tick(r, now_ms);
}

/* ---- queries ---- */

void resolver_begin(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	struct sandbox *s = ask->client.sandbox;
	struct dns_cache_key key = { .name = &ask->query.name,
				     .type = ask->query.type,
				     .dnssec_ok = ask->query.dnssec_ok };

	if (!resolver_verdict(r, ask, now_ms)) {
		resolver_ask_release(r, ask);
		return;
	}
	if (ask->probe) {
		s->counters[COUNT_SELF_TESTS]++;
		ask->verdict = (struct plan_verdict){ .action = POLICY_ALLOW,
						      .rule = PLAN_NO_RULE };
		write_reply(r, ask, one_address(r, &s->probe_addr, 0), 1,
			    (struct text){ 0 }, now_ms);
		return;
	}
	if (plan_is_open(&s->plan)) {
		/* The name is told of whether or not anything goes there afterwards. */
		struct event e = event_make(EVENT_ALLOW, EVENT_DNS);

		e.rule = ask->verdict.rule;
		e.query_type = ask->query.type;
		sandbox_event_name(&e, &ask->query.name);
		sandbox_passed(s, &e, now_ms);
	}
	/* Allowed: from the pins; or from the cache, or wait for the upstream. */
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

void resolver_look_up(struct resolver *r, struct sandbox *s, const struct dns_name *name,
		      uint16_t type, int64_t now_ms)
{
	struct resolver_ask *ask = resolver_ask_new(r, s);

	if (!ask) {
		s->on_looked_up(s, name);
		return;
	}
	*ask = (struct resolver_ask){ .client = { .sandbox = s, .own = true },
				      .query = { .type = type,
						 .class = DNS_CLASS_IN,
						 .has_edns = true,
						 .udp_size = DNS_UDP_OURS,
						 .name = *name },
				      .verdict = { .rule = PLAN_NO_RULE } };
	memcpy(ask->query.raw_name, name->bytes, name->size);
	resolver_begin(r, ask, now_ms);
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
	ask = resolver_ask_new(r, s);
	if (!ask) {
		struct resolver_ask over = { .client = *client };

		if (dns_query_read(message, size, &over.query) == DNS_QUERY_OK)
			resolver_limit(r, &over, LIMIT_QUERIES_IN_FLIGHT, now_ms);
		else
			s->counters[COUNT_QUERIES_LIMITED]++;
		return;
	}
	ask->client = *client;
	status = dns_query_read(message, size, &ask->query);
	if (status != DNS_QUERY_OK) {
		s->counters[COUNT_QUERIES_MALFORMED]++;
		if (status != DNS_QUERY_DROP)
			resolver_refuse(
				r, ask,
				&(struct dns_refusal){ .rcode = dns_query_rcode(status),
						       .ede = DNS_EDE_NONE });
		resolver_ask_release(r, ask);
		return;
	}
	ask->verdict = (struct plan_verdict){ .rule = PLAN_NO_RULE };
	ask->matched = 0;
	ask->probe = ask->pin = false;
	ask->addr_count = 0;
	if (r->docker.server < RESOLVER_UPSTREAMS_MAX &&
	    docker_resolver_takes(r, ask, now_ms))
		return;
	resolver_begin(r, ask, now_ms);
}
