// SPDX-License-Identifier: Apache-2.0
/* resolver/resolver - from a query to its reply: policy, cache, upstream, rebinding
 * check, commit.
 *
 * HOW IT WORKS
 * The resolver is a state machine without a socket and without a clock: queries,
 * responses and time come in by calls, and what has to leave goes out through struct
 * resolver_ops. So scenario tests drive it on a fake clock with scripted upstreams.
 *
 *   resolver_query()     judge the name first; denied, unserved and limited queries get
 *                        their reply queued at once. Allowed: cache, or one upstream
 *                        request shared by all who ask the same.
 *   resolver_response()  hold the response against what was asked; match the name
 *                        again where the plan has changed since; leave out addresses
 *                        that it may not teach; queue reply and commit for every
 *                        waiting client.
 *   resolver_tick()      timeouts: next upstream, or SERVFAIL with EDE 22; probes.
 *   resolver_flush()     once a turn of the loop: per sandbox one transaction for all
 *                        that was gathered; the kernel's acknowledgement; then the
 *                        replies. A failed commit turns its replies into SERVFAIL.
 *
 * No reply that carries an address leaves outside resolver_flush(). One engine has
 * one resolver; the cache is shared by all sandboxes for bytes, never for verdicts. */
#pragma once

#include "base/hash.h"
#include "dns/message.h"
#include "event/event.h"
#include "sandbox/sandbox.h"

enum {
	RESOLVER_UPSTREAMS_MAX = 16,   /* of one group */
	RESOLVER_TRIES = 2,	       /* upstream requests for one question, at least */
	RESOLVER_TRY_MS = 1500,	       /* each, unless the configuration says otherwise */
	RESOLVER_PATIENCE_MS = 10000,  /* beyond them a server that was not asked yet is
					* tried only for who asked less than this ago:
					* others have given up */
	RESOLVER_IN_FLIGHT_MAX = 4096, /* of the engine, shared; over it: SERVFAIL */
	/* Of a sandbox's LIMIT_QUERIES_PER_SECOND and LIMIT_QUERIES_BURST so much, one
	 * part in so many, may be questions that servers are asked; over it: SERVFAIL.
	 * But as many as these limits allow, where that is fewer than _LEAST. */
	RESOLVER_UPSTREAM_PART = 10,
	RESOLVER_UPSTREAM_LEAST = 100,
	RESOLVER_UPSTREAM_BURST_PART = 4,
	RESOLVER_UPSTREAM_BURST_LEAST = 200,
	RESOLVER_CACHE_ENTRIES = 16384, /* of who has most the least recently used goes
					 */
	RESOLVER_CACHE_BYTES = 2 * 1024 * 1024,
	RESOLVER_CLIENTS_MAX = 16384, /* queries that wait, of the engine, shared; over
				       * it: SERVFAIL */
	RESOLVER_PIN_MS = 5000,	      /* what is not resolved by then is not pinned at the
				       * start */
	RESOLVER_PIN_TTL_SEC = 60,    /* of all answers from pins */
	RESOLVER_TTL_FLOOR_SEC = 5,   /* lower TTLs count as this: a name costs one
				       * upstream request in this time, however often it
				       * is asked for */
};

/* Where a query came from and where its reply goes; copied, and given back as it
 * was. */
struct resolver_client {
	struct sandbox *sandbox;
	uint32_t connection; /* of the transport: a TCP connection's handle */
	bool tcp;
	bool own;	       /* nobody's: of resolver_look_up() */
	struct endpoint peer;  /* the sender, as far as it is known */
	struct endpoint asked; /* TCP: whom it has dialled, likewise */
};

struct resolver_ops {
	void *data;
	/* Send a query to server @server of the upstream group. @token comes back with
	 * the response. @tcp_for: over TCP, after a truncated one, for this sandbox.
	 * Return: 0, or -errno when it can't leave (the resolver then goes to the next
	 * server). */
	int (*send)(void *data, uint32_t token, size_t server,
		    const struct sandbox *tcp_for, const void *message, size_t size);
	/* @token is not wanted any more: drop its socket. */
	void (*cancel)(void *data, uint32_t token);
	/* One transaction for one sandbox, acknowledged: 0, or -errno and nothing was
	 * changed. */
	int (*commit)(void *data, struct sandbox *s, const struct filter_learn *items,
		      size_t count);
	/* The reply for one query. The bytes live until the call returns. */
	void (*reply)(void *data, const struct resolver_client *client,
		      const void *message, size_t size);
	/* Unpredictable bytes. */
	void (*random)(void *data, void *bytes, size_t size);
	void (*trouble)(void *data, const struct upstream_trouble *t); /* may be NULL */
	/* Where server @server is. NULL: events don't say it. */
	const struct endpoint *(*server_at)(void *data, size_t server);
	/* With Docker's resolver only. @client's query was redirected to us: one more
	 * server of the group is where it was going. Return: that server's number, behind
	 * all others unless it is one of them, or -errno. */
	int (*add_behind)(void *data, const struct resolver_client *client);
};

struct resolver_config {
	struct hash_key key;
	size_t upstream_count;
	int64_t try_ms; /* of one upstream request; 0: RESOLVER_TRY_MS */
	/* Ask each server for @probe_name (size 0 or the root: NS of the root, else A)
	 * this often, for the first time at the first tick; 0: never. */
	int64_t probe_every_ms;
	struct dns_name probe_name;
	/* The number of the server, plus one, that may ask others from inside the
	 * sandbox: servers.c. 0: there is none. */
	size_t docker_resolver;
};

struct resolver;

struct resolver *resolver_new(const struct resolver_ops *ops,
			      const struct resolver_config *config) MUST_CHECK;
void resolver_free(struct resolver *r);

void resolver_query(struct resolver *r, const struct resolver_client *client,
		    const void *message, size_t size, int64_t now_ms);
/* Look @name up for @s, as if it had asked. What the answer teaches is learned when
 * s->on_looked_up() is called in place of a reply. */
void resolver_look_up(struct resolver *r, struct sandbox *s, const struct dns_name *name,
		      uint16_t type, int64_t now_ms);
/* Queries of @s that wait until @name is granted are refused. */
void resolver_dismiss(struct resolver *r, struct sandbox *s, const struct dns_name *name,
		      int64_t now_ms);
/* A datagram or TCP message that came for @token from that server. */
void resolver_response(struct resolver *r, uint32_t token, const void *message,
		       size_t size, int64_t now_ms);
/* The transport of @token failed (ICMP error, TCP reset), as -errno. */
void resolver_send_failed(struct resolver *r, uint32_t token, int error, int64_t now_ms);
/* When resolver_tick() wants to be called; INT64_MAX: not at all. */
int64_t resolver_next_ms(const struct resolver *r);
void resolver_tick(struct resolver *r, int64_t now_ms);
void resolver_flush(struct resolver *r, int64_t now_ms);
/* Judge the parked queries again whose plan has changed; once a turn, before what is to
 * be sent is sent. It may look up names, so resolver_flush(), which a reply that is being
 * written calls, doesn't do it. */
void resolver_parked_recheck(struct resolver *r, int64_t now_ms);
/* It is known whether Docker's resolver sends questions back. */
bool resolver_is_settled(const struct resolver *r);

/* -- dns: pinned -- */

/* A name that has no address after a round, or whose answer did not come. */
struct resolver_unpinned {
	const struct dns_name *name;
	const char *why;
	bool required; /* its rule says so */
	bool stays;    /* it keeps what was pinned before */
};
/* @fault is NULL when the round is over: the first one RESOLVER_PIN_MS after its begin at
 * the latest. Called from any of the calls above and below. */
typedef void resolver_pinned_fn(void *data, const struct resolver_unpinned *fault);

/* Resolve every name that @s's plan allows, all at once, A and AAAA (where @s has IPv6),
 * and have the addresses committed; again every @repin_ms. With `dns: pinned` all answers
 * come from what is pinned so, and without this call all fail. To be called again after a
 * change of the plan: what is pinned of its names stays meanwhile.
 * Return: 0, -ENOMEM, or -E2BIG (more names than may be learned). */
int resolver_pin(struct resolver *r, struct sandbox *s, int64_t repin_ms,
		 resolver_pinned_fn *on_pinned, void *data, int64_t now_ms) MUST_CHECK;

/* Names of @s are open again whose @budgets (bit i: plan_budget(i)) were used up: the
 * kernel gets what is pinned of them. Nothing is looked up. */
void resolver_pin_restore(struct resolver *r, struct sandbox *s, uint64_t budgets,
			  int64_t now_ms);

/* Report once more how the last round ended; a first one that is under way will report
 * at its end.
 */
void resolver_pin_notify(struct resolver *r, struct sandbox *s);

/* The sandbox goes: its waiting queries are forgotten, nothing is sent for them. */
void resolver_detach(struct resolver *r, struct sandbox *s);
