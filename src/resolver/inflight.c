// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A flight is one question that is under way to the upstream servers, for everybody who
 * asked it. It is found by its question (to join it), by its token (when a response
 * comes) and by its deadline. All tries last equally long, so the list of deadlines is
 * a queue: a try that starts goes to its end.
 *
 * Each try has a token, an id and a case of its own. A try that timed out stays open
 * while the next one runs: an upstream that has to ask others first may take two seconds,
 * and its answer is as good then. A try that failed is cancelled. Tokens are the flight's
 * index with a serial number above it.
 *
 *   a response that answers       the end
 *   mismatch                      waiting goes on: somebody may be guessing
 *   truncated                     the same server over TCP
 *   FORMERR                       the same server without EDNS, which it may not know
 *   SERVFAIL, REFUSED, our question with an answer that can't be used (a CNAME loop), or
 *   it could not leave            a server that was not tried, at once
 *   nothing for as long as a      a server that was not tried, or, when all were, the
 *   try lasts                     best one again, until there were RESOLVER_TRIES; then
 *                                 only those that were not tried, as long as somebody
 *                                 has asked lately; then SERVFAIL
 *   Docker's resolver sent it      a server that was not tried, at once
 *   back
 *   whoever waits is not allowed   the end, instead of another try
 *   the name any more
 *
 * Who asks again what is under way joins the flight. If that is later than RETRANSMIT_MS
 * after the question left, it leaves once more, to the same server: a try may last
 * minutes, and the first datagram may have been lost. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/rate.h"
#include "resolver/resolver_internal.h"

enum {
	INDEX_BITS = 12,
	RETRANSMIT_MS = 1000,
};
static_assert(RESOLVER_IN_FLIGHT_MAX == 1 << INDEX_BITS, "a token holds an index");
static_assert(RESOLVER_UPSTREAMS_MAX <= 16, "flight.tried has a bit for each");

/* ---- the table of flights ---- */

static struct inflight *inflight_of_token(const struct resolver *r, uint32_t token)
{
	const uint32_t index = token & (RESOLVER_IN_FLIGHT_MAX - 1);
	struct inflight *chunk = r->inflight_chunks[index / CHUNK];
	struct inflight *f = chunk ? &chunk[index % CHUNK] : NULL;

	return f && token != 0 && (f->token == token || f->late.token == token) ? f
										: NULL;
}

static struct inflight **chain_of(struct resolver *r, uint64_t hash)
{
	return &r->by_question[hash % RESOLVER_IN_FLIGHT_MAX];
}

/* NULL: nobody has asked @q; *@ret_hash is for inflight_new(). */
static struct inflight *inflight_find(struct resolver *r, const struct dns_query *q,
				      uint64_t *ret_hash)
{
	const uint64_t hash =
		hash_bytes(&r->key, q->name.bytes, q->name.size) ^
		(q->type * 2u + q->dnssec_ok) * UINT64_C(0x9e3779b97f4a7c15);
	struct inflight *f = *chain_of(r, hash);

	while (f && (f->hash != hash || f->asked.type != q->type ||
		     f->dnssec_ok != q->dnssec_ok ||
		     !dns_name_equal(&f->asked.name, &q->name)))
		f = f->next;
	*ret_hash = hash;
	return f;
}

static struct inflight *inflight_new(struct resolver *r, const struct dns_query *q,
				     uint64_t hash)
{
	struct inflight *f;

	if (!r->free_inflight && r->inflight_total < RESOLVER_IN_FLIGHT_MAX) {
		struct inflight *chunk = calloc(CHUNK, sizeof(*chunk));

		if (!chunk)
			return NULL;
		r->inflight_chunks[r->inflight_total / CHUNK] = chunk;
		for (size_t i = 0; i < CHUNK; i++) {
			chunk[i].index = r->inflight_total++;
			chunk[i].next = r->free_inflight;
			r->free_inflight = &chunk[i];
		}
	}
	f = r->free_inflight;
	if (!f)
		return NULL;
	r->free_inflight = f->next;
	r->inflight_used++;
	f->hash = hash;
	f->next = *chain_of(r, f->hash);
	*chain_of(r, f->hash) = f;
	f->asks = (struct ask_list){ 0 };
	f->tried = 0;
	f->timeouts = 0;
	f->trouble = TROUBLE_NONE;
	f->late.token = 0;
	f->dnssec_ok = q->dnssec_ok;
	f->asked.type = q->type;
	f->asked.name = q->name;
	return f;
}

static void late_end(struct resolver *r, struct inflight *f)
{
	if (f->late.token != 0)
		r->ops.cancel(r->ops.data, f->late.token);
	f->late.token = 0;
}

static void inflight_free(struct resolver *r, struct inflight *f)
{
	struct inflight **at = chain_of(r, f->hash);

	late_end(r, f);
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	f->next = r->free_inflight;
	r->free_inflight = f;
	r->inflight_used--;
}

/* ---- tries ---- */

/* The present try is over. */
static void try_end(struct resolver *r, struct inflight *f)
{
	if (f->token == 0)
		return;
	r->ops.cancel(r->ops.data, f->token);
	f->token = 0;
	TAILQ_REMOVE(&r->deadlines, f, by_deadline);
}

static void copy_try(struct inflight_late *to, const struct inflight *f)
{
	to->token = f->token;
	to->server = f->server;
	to->id = f->asked.id;
	to->sent_ms = f->sent_ms;
	memcpy(to->case_name, f->asked.case_name, f->asked.name.size);
}

int resolver_send(struct resolver *r, struct dns_asked *asked, bool dnssec_ok,
		  size_t server, const struct sandbox *tcp_for, uint32_t index,
		  int64_t now_ms, uint32_t *ret_token)
{
	/* Of the id, and a bit for each octet of the name. */
	uint8_t message[512], random[2 + (DNS_NAME_MAX + 7) / 8];
	int size;

	r->ops.random(r->ops.data, random, 2 + (asked->name.size + 7u) / 8);
	memcpy(&asked->id, random, 2);
	size = dns_query_write(message, sizeof(message), asked->id, &asked->name,
			       asked->type, dnssec_ok, random + 2, asked->case_name);
	if (size < 0)
		return size;
	if (now_ms < r->servers[server].plain_until_ms)
		size = (int)dns_query_without_edns(message, (size_t)size);
	if ((++r->serial << INDEX_BITS) == 0)
		r->serial = 1;
	*ret_token = r->serial << INDEX_BITS | index;
	return r->ops.send(r->ops.data, *ret_token, server, tcp_for, message,
			   (size_t)size);
}

/* Send the question to f->server; over TCP it is the first asker's. Return: 0 or -errno;
 * f->token is then of no use. */
static int send_question(struct resolver *r, struct inflight *f, bool tcp, int64_t now_ms)
{
	const struct sandbox *tcp_for = tcp ? f->asks.first->client.sandbox : NULL;

	f->tcp = tcp;
	f->plain = now_ms < r->servers[f->server].plain_until_ms;
	f->sent_ms = now_ms;
	return resolver_send(r, &f->asked, f->dnssec_ok, f->server, tcp_for, f->index,
			     now_ms, &f->token);
}

static int try_start(struct resolver *r, struct inflight *f, bool tcp, int64_t now_ms)
{
	int error = send_question(r, f, tcp, now_ms);

	if (error < 0) {
		r->ops.cancel(r->ops.data, f->token);
		f->token = 0;
		return error;
	}
	f->deadline_ms = now_ms + r->try_ms;
	TAILQ_INSERT_TAIL(&r->deadlines, f, by_deadline);
	return 0;
}

static uint32_t part_of(uint32_t limit, uint32_t part, uint32_t least)
{
	return limit == UINT32_MAX ? limit : MIN(limit, MAX(limit / part, least));
}

/* The servers are there for all sandboxes, and for others on the machine and beside it:
 * some drop what is over a thousand queries a second of one machine. So a sandbox that
 * asks for names that were never asked for, whose zone fails, or whose answer is too
 * large to be kept doesn't use up what the servers take. */
static bool may_ask_servers(const struct resolver_ask *ask, int64_t now_ms)
{
	const struct sandbox *s = ask->client.sandbox;
	const uint32_t rate = plan_limit(&s->plan, LIMIT_QUERIES_PER_SECOND);
	const uint32_t burst = plan_limit(&s->plan, LIMIT_QUERIES_BURST);

	return ask->pin ||
	       rate_take(&s->resolver->upstream,
			 part_of(rate, RESOLVER_UPSTREAM_PART, RESOLVER_UPSTREAM_LEAST),
			 1000,
			 part_of(burst, RESOLVER_UPSTREAM_BURST_PART,
				 RESOLVER_UPSTREAM_BURST_LEAST),
			 now_ms);
}

/* The present try, if there is one, goes on as another, until the same deadline; its
 * answer may still come. @ask is who asks again. */
static void retransmit(struct resolver *r, struct inflight *f,
		       const struct resolver_ask *ask, int64_t now_ms)
{
	struct inflight_late before;

	if (f->token == 0 || f->tcp || now_ms - f->sent_ms < RETRANSMIT_MS ||
	    !may_ask_servers(ask, now_ms))
		return;
	resolver_server_doubt(r, f->server);
	copy_try(&before, f);
	if (send_question(r, f, false, now_ms) == 0) {
		late_end(r, f);
		f->late = before;
		return;
	}
	f->token = before.token;
	f->asked.id = before.id;
	memcpy(f->asked.case_name, before.case_name, f->asked.name.size);
}

/* An allowed name has no answer: say why, and who was asked. */
static void report_failed(struct resolver *r, const struct resolver_ask *ask,
			  const char *why, int64_t now_ms)
{
	struct event e = event_make(EVENT_FAIL, EVENT_DNS);
	char text[ENDPOINT_TEXT_SIZE];
	size_t used;

	e.query_type = ask->query.type;
	sandbox_event_name(&e, &ask->query.name);
	used = (size_t)snprintf(e.reason, sizeof(e.reason), "%s", why);
	for (size_t i = 0; r->ops.server_at && i < r->server_count; i++) {
		endpoint_format(r->ops.server_at(r->ops.data, i), text);
		if (used + strlen(text) + 3 > sizeof(e.reason))
			break;
		used += (size_t)snprintf(e.reason + used, sizeof(e.reason) - used, "%s%s",
					 i > 0 ? ", " : ": ", text);
	}
	sandbox_event(ask->client.sandbox, &e, now_ms);
}

/* The flight is free before its asks end: their ends may begin another one. */
static void give_up(struct resolver *r, struct inflight *f, int64_t now_ms)
{
	static const struct {
		enum dns_ede ede;
		const char *text;
	} words[] = {
		[TROUBLE_NONE] = { DNS_EDE_NETWORK_ERROR, "there is no upstream server" },
		[TROUBLE_NETWORK] = { DNS_EDE_NETWORK_ERROR,
				      "no upstream server can be reached" },
		[TROUBLE_SILENCE] = { DNS_EDE_NO_REACHABLE_AUTHORITY,
				      "no upstream server answered" },
		[TROUBLE_DOCKER] = { DNS_EDE_NETWORK_ERROR, "the upstream server asks "
							    "through this sandbox: name "
							    "the servers behind it" },
		[TROUBLE_ANSWER] = { DNS_EDE_NO_REACHABLE_AUTHORITY,
				     "the upstream server failed" },
	};
	uint8_t trouble = f->trouble;
	const char *text = words[trouble].text;
	struct ask_list asks = f->asks;
	struct resolver_ask *ask;

	static_assert(ARRAY_SIZE(words) == TROUBLE_COUNT, "words for every trouble");

	inflight_free(r, f);
	while ((ask = ask_list_pop(&asks))) {
		ask->client.sandbox->resolver->in_flight--;
		if (ask->pin) {
			resolver_pin_ended(r, ask, NULL, text, now_ms);
			continue;
		}
		report_failed(r, ask, text, now_ms);
		resolver_fail(r, ask, words[trouble].ede, text);
		resolver_ask_release(r, ask);
	}
}

/* Whose policy has changed since the question was asked, and denies it now, waits no
 * more. Return: somebody waits still; false: nobody does, and the flight is free. */
static bool is_wanted(struct resolver *r, struct inflight *f, int64_t now_ms)
{
	struct ask_list asks = f->asks;
	struct resolver_ask *ask;

	/* The end of an ask may begin another one, which joins the flight. */
	f->asks = (struct ask_list){ 0 };
	while ((ask = ask_list_pop(&asks))) {
		struct sandbox *s = ask->client.sandbox;

		if (ask->pin ? resolver_pin_is_allowed(s, &ask->query.name)
			     : s->state != SANDBOX_CLOSED &&
				       resolver_verdict_again(r, ask, now_ms)) {
			ask_list_push(&f->asks, ask);
			continue;
		}
		s->resolver->in_flight--;
		if (ask->pin)
			resolver_pin_ended(r, ask, NULL, RESOLVER_PIN_DENIED, now_ms);
		else
			resolver_ask_release(r, ask);
	}
	if (f->asks.first)
		return true;
	inflight_free(r, f);
	return false;
}

/* @trouble is what became of the try before. Ask a server that was not asked yet; @again:
 * or the best one once more. */
static void try_next(struct resolver *r, struct inflight *f,
		     enum inflight_trouble trouble, bool again, int64_t now_ms)
{
	int error;

	f->trouble = MAX(f->trouble, (uint8_t)trouble);
	try_end(r, f);
	if (!is_wanted(r, f, now_ms))
		return;
	for (;;) {
		if (!resolver_server_choose(r, f->tried, now_ms, &f->server)) {
			if (!again)
				break;
			again = false;
			f->tried = 0;
			continue;
		}
		f->tried |= (uint16_t)(1u << f->server);
		error = try_start(r, f, false, now_ms);
		if (error == 0)
			return;
		f->trouble = MAX(f->trouble, (uint8_t)TROUBLE_NETWORK);
		resolver_server_failed(r, f->server, error, now_ms);
	}
	give_up(r, f, now_ms);
}

static void wait_for(struct inflight *f, struct resolver_ask *ask, int64_t now_ms)
{
	ask->client.sandbox->resolver->in_flight++;
	ask_list_push(&f->asks, ask);
	f->joined_ms = now_ms;
}

bool resolver_inflight_join(struct resolver *r, struct resolver_ask *ask, int64_t now_ms)
{
	uint64_t hash;
	struct inflight *f = inflight_find(r, &ask->query, &hash);
	const size_t mine = ask->client.sandbox->resolver->in_flight;
	enum plan_limit limit = LIMIT_QUERIES_IN_FLIGHT;
	bool is_new = !f;

	if (is_new && share_has_room(mine, r->inflight_used, RESOLVER_IN_FLIGHT_MAX)) {
		if (may_ask_servers(ask, now_ms))
			f = inflight_new(r, &ask->query, hash);
		else
			limit = LIMIT_QUERIES_PER_SECOND;
	}
	if (!f) {
		if (!ask->pin)
			resolver_limit(r, ask, limit, now_ms);
		resolver_ask_release(r, ask);
		return false;
	}
	wait_for(f, ask, now_ms);
	if (is_new)
		try_next(r, f, TROUBLE_NONE, false, now_ms);
	else
		retransmit(r, f, ask, now_ms);
	return true;
}

bool resolver_inflight_sent_back(struct resolver *r, struct resolver_ask *ask,
				 int64_t now_ms)
{
	struct docker_resolver *in = &r->docker;
	struct inflight *f;
	uint64_t hash;

	if (ask->query.class != DNS_CLASS_IN)
		return false;
	f = inflight_find(r, &ask->query, &hash);
	/* What comes back has to be the very question of the present try. */
	if (!f || f->token == 0 || f->server != in->server ||
	    ask->query.id != f->asked.id ||
	    memcmp(ask->query.raw_name, f->asked.case_name, f->asked.name.size) != 0)
		return false;
	/* The test must have missed that questions come back: once more. */
	if (!in->sends_back && in->token == 0) {
		in->settled = false;
		in->at_ms = MIN(in->at_ms, now_ms);
	}
	wait_for(f, ask, now_ms);
	try_next(r, f, TROUBLE_DOCKER, false, now_ms);
	return true;
}

/* ---- the end of a flight ---- */

static void arrive(struct resolver *r, struct inflight *f, int64_t now_ms)
{
	const uint32_t floor = RESOLVER_TTL_FLOOR_SEC;
	struct dns_cache_key key = { .name = &f->asked.name,
				     .type = f->asked.type,
				     .dnssec_ok = f->dnssec_ok };
	struct dns_answer *a = &r->answer;
	struct ask_list asks = f->asks;
	struct resolver_ask *ask;

	a->ttl_sec = MAX(a->ttl_sec, floor);
	if (a->kind != DNS_ANSWER_RECORDS)
		a->ttl_sec = MIN(a->ttl_sec, (uint32_t)DNS_CACHE_NEGATIVE_MAX_SEC);
	for (size_t i = 0; i < a->addr_count; i++)
		a->addrs[i].ttl_sec = MAX(a->addrs[i].ttl_sec, floor);
	for (size_t i = 0; i < a->record_count; i++)
		a->records[i].ttl_sec = MAX(a->records[i].ttl_sec, floor);
	for (size_t i = 0; i < a->chain_count; i++)
		a->chain_ttl_sec[i] = MAX(a->chain_ttl_sec[i], floor);
	/* The room in the cache counts for the sandbox that asked first. */
	dns_cache_put(r->cache, &asks.first->client.sandbox->resolver->cached, &key, a,
		      now_ms);
	try_end(r, f);
	inflight_free(r, f);
	while ((ask = ask_list_pop(&asks))) {
		const struct sandbox *s = ask->client.sandbox;

		s->resolver->in_flight--;
		/* The plan may have changed, and the sandbox's state, since the question
		 * was asked. */
		if (ask->pin)
			resolver_pin_ended(r, ask, a, NULL, now_ms);
		else if (s->state == SANDBOX_CLOSED ||
			 !resolver_verdict_again(r, ask, now_ms))
			resolver_ask_release(r, ask);
		else
			resolver_deliver(r, ask, a, now_ms);
	}
}

/* An answer to a try that had timed out ends the flight if it is of use. */
static void late_response(struct resolver *r, struct inflight *f, const void *message,
			  size_t size, int64_t now_ms)
{
	struct dns_asked asked = f->asked;

	asked.id = f->late.id;
	memcpy(asked.case_name, f->late.case_name, asked.name.size);
	dns_answer_read(message, size, &asked, &r->answer);
	if (r->answer.kind == DNS_ANSWER_MISMATCH)
		return;
	resolver_server_answered(r, f->late.server, now_ms - f->late.sent_ms, now_ms);
	if (r->answer.kind >= DNS_ANSWER_NXDOMAIN)
		arrive(r, f, now_ms);
	else
		late_end(r, f);
}

void resolver_response(struct resolver *r, uint32_t token, const void *message,
		       size_t size, int64_t now_ms)
{
	struct inflight *f = inflight_of_token(r, token);
	bool over_tcp;

	if (!f) {
		resolver_probe_ended(r, token, 0, now_ms);
		return;
	}
	if (f->token != token) {
		late_response(r, f, message, size, now_ms);
		return;
	}
	dns_answer_read(message, size, &f->asked, &r->answer);
	if (r->answer.kind == DNS_ANSWER_MISMATCH)
		return;
	resolver_server_answered(r, f->server, now_ms - f->sent_ms, now_ms);
	if (r->answer.kind >= DNS_ANSWER_NXDOMAIN) {
		arrive(r, f, now_ms);
		return;
	}
	over_tcp = r->answer.kind == DNS_ANSWER_TRUNCATED && !f->tcp;
	if (!over_tcp && !resolver_server_settle_edns(r, f->server, f->plain, now_ms)) {
		try_next(r, f, TROUBLE_ANSWER, false, now_ms);
		return;
	}
	try_end(r, f);
	if (is_wanted(r, f, now_ms) && try_start(r, f, over_tcp || f->tcp, now_ms) < 0)
		try_next(r, f, TROUBLE_NETWORK, false, now_ms);
}

void resolver_send_failed(struct resolver *r, uint32_t token, int error, int64_t now_ms)
{
	struct inflight *f = inflight_of_token(r, token);

	assert(error < 0); /* 0 tells resolver_probe_ended() of an answer */
	if (!f) {
		resolver_probe_ended(r, token, error, now_ms);
		return;
	}
	if (f->token != token) {
		late_end(r, f);
		return;
	}
	resolver_server_failed(r, f->server, error, now_ms);
	try_next(r, f, TROUBLE_NETWORK, false, now_ms);
}

void resolver_inflight_tick(struct resolver *r, int64_t now_ms)
{
	struct inflight *f;

	while ((f = TAILQ_FIRST(&r->deadlines)) && f->deadline_ms <= now_ms) {
		resolver_server_failed(r, f->server, -ETIMEDOUT, now_ms);
		/* The present try takes the place of the late one before. */
		late_end(r, f);
		copy_try(&f->late, f);
		f->token = 0;
		TAILQ_REMOVE(&r->deadlines, f, by_deadline);
		f->timeouts++;
		if (f->timeouts < RESOLVER_TRIES ||
		    now_ms - f->joined_ms < RESOLVER_PATIENCE_MS) {
			try_next(r, f, TROUBLE_SILENCE, f->timeouts < RESOLVER_TRIES,
				 now_ms);
		} else {
			f->trouble = MAX(f->trouble, (uint8_t)TROUBLE_SILENCE);
			give_up(r, f, now_ms);
		}
	}
}

void resolver_inflight_forget(struct resolver *r, const struct sandbox *s)
{
	for (uint32_t i = 0; i < r->inflight_total; i++) {
		struct inflight *f = &r->inflight_chunks[i / CHUNK][i % CHUNK];
		struct ask_list asks = f->asks;
		struct resolver_ask *ask;

		if (f->token == 0)
			continue;
		f->asks = (struct ask_list){ 0 };
		while ((ask = ask_list_pop(&asks))) {
			if (ask->client.sandbox == s)
				resolver_ask_release(r, ask);
			else
				ask_list_push(&f->asks, ask);
		}
		if (!f->asks.first) {
			try_end(r, f);
			inflight_free(r, f);
		}
	}
}
