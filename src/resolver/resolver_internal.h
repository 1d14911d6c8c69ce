// SPDX-License-Identifier: Apache-2.0
/* resolver/resolver_internal - what the resolver's files share.
 *
 *   resolver.c   queries, replies, the flush that commits, ticks, detach; the pools
 *   verdict.c    what the policy and the limits say of a query; queries for names that
 *                ask, until they are granted
 *   inflight.c   upstream requests: when again, when no more
 *   servers.c    the servers: which one next, probes, what is reported of them; the one
 *                that sends questions back
 *   pinned.c     names that are resolved ahead (dns: pinned) */
#pragma once

#include "base/rate.h"
#include <sys/queue.h>

#include "dns/answer.h"
#include "dns/cache.h"
#include "resolver/resolver.h"
#include "sandbox/learned.h"

enum {
	QUEUE_BYTES = 128 * 1024, /* replies that wait for a flush; full: flush at once */
	QUEUE_ADDRS = 4096,	  /* addresses in them */
	BATCH_ADDS = FILTER_LEARN_MAX / 2, /* of one transaction; the rest is for
					    * deletions, so that they keep up */
	CHUNK = 32, /* asks or flights that are allocated together */
	PROBE_LIFETIME_MS = 5000,
	LOCAL_TTL_SEC = 60, /* of refusals, and of localhost */
	SEEN_SIZE = 1024,   /* pairs of names that a sandbox has asked for lately */
	BUDGETS_SIZE = 64,  /* wildcard rules whose budget is not full */
	REASON_SIZE = 160,
};

/* One query, from its arrival until its reply has left. */
struct resolver_ask {
	struct resolver_ask *next; /* in a flight, in a sandbox's queue, or free */
	struct resolver_client client;
	struct dns_query query;
	struct plan_verdict verdict;
	uint64_t matched; /* 1 + the generation of the plan that gave @verdict; 0: none */
	bool probe;
	bool pin;	     /* nobody's: its answer is pinned */
	uint8_t addr_count;  /* addresses that its reply carries */
	uint32_t addr_at;    /* in resolver.addrs */
	uint32_t message_at; /* in resolver.bytes */
	uint32_t message_size;
	uint32_t ttl_cap_sec; /* no TTL in it is longer */
	int64_t until_ms;     /* parked: when it is refused */
};

/* The verdict is that of the plan in force, and allows the name. */
static inline bool resolver_is_matched(const struct resolver_ask *a)
{
	return a->verdict.action == POLICY_ALLOW &&
	       a->matched == a->client.sandbox->plan_generation + 1;
}

struct ask_list {
	struct resolver_ask *first, *last;
};

/* Why a flight hasn't landed yet; what comes later in this list is reported rather than
 * what comes before. */
enum inflight_trouble {
	TROUBLE_NONE = 0,
	TROUBLE_NETWORK, /* nothing could leave, or it was refused */
	TROUBLE_SILENCE, /* no answer came in time */
	TROUBLE_DOCKER,	 /* Docker's resolver sent the question back */
	TROUBLE_ANSWER,	 /* a server failed, or said what can't be used */
	TROUBLE_COUNT,
};

/* A try that has timed out, but may still be answered. */
struct inflight_late {
	uint32_t token; /* 0: there is none */
	uint8_t server;
	uint16_t id;
	int64_t sent_ms;
	uint8_t case_name[DNS_NAME_MAX];
};

/* One upstream request, and everybody who waits for it. */
struct inflight {
	struct inflight *next; /* in the hash chain, or free */
	TAILQ_ENTRY(inflight) by_deadline;
	struct ask_list asks;
	uint64_t hash;
	int64_t sent_ms, deadline_ms;
	int64_t joined_ms; /* when somebody last asked */
	uint32_t index;	   /* of all flights; the low bits of its tokens */
	uint32_t token;	   /* of the present try; 0 when idle */
	uint16_t tried;	   /* bit per server */
	uint8_t server;
	uint8_t timeouts;
	uint8_t trouble; /* enum inflight_trouble, the worst so far */
	bool tcp;
	bool plain; /* without EDNS */
	bool dnssec_ok;
	struct dns_asked asked;
	struct inflight_late late;
};

struct server {
	int64_t plain_until_ms; /* it is asked without EDNS until then */
	/* Without probes. */
	uint32_t smoothed_ms; /* time to an answer; a failure counts as a whole try */
	bool failing;
	bool behind; /* found behind Docker's resolver: comes after those that were given
		      */
	int64_t news_ms;
	/* With probes. */
	bool unhealthy;
	uint32_t probe_token; /* 0: none is under way */
	int64_t probe_at_ms;  /* when it has failed, or the next one begins */
	int64_t probed_ms;
	/* Of each kind the next report, no sooner than: */
	int64_t report_ms[UPSTREAM_KIND_COUNT];
};

/* What is left of the names that a wildcard rule may ask for. A rule is known by a hash
 * of its target: its number is another one after a change of the policy. */
struct budget {
	uint32_t rule;
	struct rate rate;
};

/* The resolver's part of a sandbox. */
struct resolver_sandbox {
	struct sandbox *sandbox;
	struct resolver_sandbox *next_dirty;
	bool dirty; /* in resolver.dirty: its queue is not empty */
	struct ask_list queue;
	uint32_t asks;	    /* all that it has: waiting, parked, for pins, in @queue */
	uint32_t in_flight; /* of these, those that wait for an upstream request */
	struct rate queries;
	struct rate upstream; /* of them, those that servers were asked for */
	struct ask_list parked;
	uint64_t parked_generation;	      /* of the plan that they were judged by */
	LIST_ENTRY(resolver_sandbox) parking; /* in resolver.parking: some are parked */
	struct pins *pins;		      /* owned; NULL: nothing was ever pinned */
	struct budget *budgets;		      /* BUDGETS_SIZE; NULL as long as @seen is */
	uint32_t (*seen)[2]; /* SEEN_SIZE fingerprints of (rule, name), two each; NULL
			      * before the first name of a wildcard */
	struct dns_cache_share cached;
};

/* The server that may ask on from inside the sandbox. */
struct docker_resolver {
	uint8_t server; /* RESOLVER_UPSTREAMS_MAX: there is none */
	bool settled;	/* it is known whether questions come back */
	bool sends_back;
	uint32_t token; /* of the test; 0: none is under way */
	int64_t at_ms;	/* when that has failed, or the next begins; INT64_MAX: never */
	struct dns_name name; /* that it asks for */
};

struct chunk {
	struct chunk *next;
};

struct resolver {
	struct resolver_ops ops;
	struct hash_key key;
	struct dns_cache *cache;
	/* asks */
	struct resolver_ask *free_asks;
	struct chunk *ask_chunks;
	uint32_t ask_total, ask_free;
	/* flights */
	struct inflight *free_inflight;
	struct inflight *inflight_chunks[RESOLVER_IN_FLIGHT_MAX / CHUNK];
	uint32_t inflight_total, inflight_used;
	struct inflight *by_question[RESOLVER_IN_FLIGHT_MAX];
	TAILQ_HEAD(, inflight) deadlines; /* the soonest first */
	uint32_t serial;		  /* the high bits of tokens */
	int64_t try_ms;
	/* servers */
	struct server servers[RESOLVER_UPSTREAMS_MAX];
	size_t server_count;
	int64_t probe_every_ms; /* 0: never */
	int64_t probe_next_ms;	/* the soonest of their probe_at_ms */
	struct dns_name probe_name;
	uint16_t probe_type;
	struct docker_resolver docker;
	/* pins */
	struct pins *pinned; /* of all sandboxes */
	int64_t pin_next_ms; /* when the first of them wants to be woken */
	/* parked queries */
	LIST_HEAD(, resolver_sandbox) parking;
	int64_t park_next_ms; /* when the first of them is over */
	/* replies that wait for a flush */
	struct resolver_sandbox *dirty;
	uint32_t bytes_used, addrs_used;
	uint8_t *bytes;		       /* QUEUE_BYTES */
	struct dns_answer_addr *addrs; /* QUEUE_ADDRS */
	/* one at a time */
	struct dns_answer answer;      /* that came, or that the cache had */
	struct dns_answer one_address; /* that is made here */
};

static inline void ask_list_push(struct ask_list *l, struct resolver_ask *a)
{
	a->next = NULL;
	if (l->last)
		l->last->next = a;
	else
		l->first = a;
	l->last = a;
}

static inline struct resolver_ask *ask_list_pop(struct ask_list *l)
{
	struct resolver_ask *a = l->first;

	if (a) {
		l->first = a->next;
		if (!l->first)
			l->last = NULL;
	}
	return a;
}

/* resolver.c */
/* NULL: @s has its share of the asks that there is room for (base/rate.h), or there is no
 * memory. Only client.sandbox is set. */
struct resolver_ask *resolver_ask_new(struct resolver *r, struct sandbox *s);
void resolver_ask_release(struct resolver *r, struct resolver_ask *ask);
/* s->resolver, made where there is none yet; NULL: no memory. */
struct resolver_sandbox *resolver_sandbox_of(struct sandbox *s);
/* Reply from @a. Takes the ask; the reply leaves with the next flush. */
void resolver_deliver(struct resolver *r, struct resolver_ask *ask,
		      const struct dns_answer *a, int64_t now_ms);
/* A reply without records, at once. The ask stays the caller's. */
void resolver_refuse(struct resolver *r, const struct resolver_ask *ask,
		     const struct dns_refusal *refusal);
void resolver_fail(struct resolver *r, const struct resolver_ask *ask, enum dns_ede ede,
		   const char *text);
/* NXDOMAIN or NODATA. */
void resolver_negative(struct resolver *r, const struct resolver_ask *ask,
		       enum dns_rcode rcode, uint32_t ttl_sec);
/* One address that no kernel needs to know of, at once. @why: for EDE 15, or empty. */
void resolver_answer_here(struct resolver *r, const struct resolver_ask *ask,
			  const struct addr *a, uint32_t ttl_sec, struct text why);
/* A lookup of @ask's name and its rule, with both ends. */
struct event resolver_event(const struct resolver_ask *ask, enum event_action action);
/* NXDOMAIN, EDE 15, counter and event, by the rule of @ask's verdict. */
void resolver_deny(struct resolver *r, const struct resolver_ask *ask, const char *reason,
		   int64_t now_ms);
/* The same with an address that stands for denied names instead: policy/plan.h. */
void resolver_sinkhole(struct resolver *r, const struct resolver_ask *ask,
		       const char *reason, int64_t now_ms);
/* For a name that asks: an address that stands for it, or it is parked. The ask stays the
 * caller's. */
void resolver_hold(struct resolver *r, const struct resolver_ask *ask, int64_t now_ms);
/* Judge @ask, and answer it or look it up. Takes the ask. */
void resolver_begin(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);
/* Return: a bit for each address of @a that the reply to @ask may have, no more of them
 * than one name may hold. The faulty ones are counted. The first of those is an event,
 * with the text that @reason then has; *@ret_fault is its fault, or NULL. */
uint32_t rebinding_check(const struct resolver_ask *ask, const struct dns_answer *a,
			 int64_t now_ms, char reason[REASON_SIZE],
			 const char **ret_fault);
/* One transaction for @items, at most BATCH_ADDS, which are changed. Return: 0, or -errno
 * and none of them is learned. */
int resolver_learn(struct resolver *r, struct sandbox *s, struct learned_item *items,
		   size_t count, int64_t now_ms);
/* Have the kernel forget what no name teaches any more. */
void resolver_sweep(struct resolver *r, struct sandbox *s, int64_t now_ms);

/* verdict.c */
/* For a query that has just come; spends its budgets. Return: true, the name is allowed:
 * cache or upstream; false, a reply was made. */
bool resolver_verdict(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);
/* For one that has waited: of a plan that has changed meanwhile the name is matched
 * again. Spends nothing. */
bool resolver_verdict_again(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);
/* SERVFAIL, counter and event. */
void resolver_limit(struct resolver *r, struct resolver_ask *ask, enum plan_limit which,
		    int64_t now_ms);
/* A copy of @ask waits until its name is granted, or is refused now. */
void resolver_park(struct resolver *r, const struct resolver_ask *ask, int64_t now_ms);
void resolver_parked_tick(struct resolver *r, int64_t now_ms);
void resolver_parked_forget(struct resolver *r, struct resolver_sandbox *g);

/* servers.c */
void resolver_servers_init(struct resolver *r, const struct resolver_config *config);
/* The best server that @tried has no bit for. False: all were tried. */
bool resolver_server_choose(struct resolver *r, uint16_t tried, int64_t now_ms,
			    uint8_t *ret);
/* @server has answered @f's present try, with r->answer; of use or not. */
void resolver_server_answered(struct resolver *r, uint8_t server, int64_t took_ms,
			      int64_t now_ms);
/* @server has answered with r->answer, which fails, what it was asked with EDNS, or
 * @plain. Return: EDNS may be the reason, and it is asked without for a quarter of an
 * hour from now on. */
bool resolver_server_settle_edns(struct resolver *r, uint8_t server, bool plain,
				 int64_t now_ms);
/* It could not be asked, or has not answered. */
void resolver_server_failed(struct resolver *r, uint8_t server, int error,
			    int64_t now_ms);
/* It may be silent: its next probe comes soon. */
void resolver_server_doubt(struct resolver *r, uint8_t server);
/* @token's question has come to its end: it failed by @error, or was answered, 0. Nothing
 * is done when it isn't a probe's, or that of the test. */
void resolver_probe_ended(struct resolver *r, uint32_t token, int error, int64_t now_ms);
void resolver_probe_tick(struct resolver *r, int64_t now_ms);

void docker_resolver_tick(struct resolver *r, int64_t now_ms);
/* One of the servers is Docker's resolver. Return: it has sent @ask back, as the test's
 * question, which is answered, or as one that is under way. @ask is taken. */
bool docker_resolver_takes(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);

/* inflight.c */
/* Send the question of @asked to @server with a random id and case of its letters, which
 * @asked then has; over TCP for the sandbox @tcp_for, if there is one. @index is in the
 * low bits of *@ret_token, which was not in use lately. Return: 0 or -errno. */
int resolver_send(struct resolver *r, struct dns_asked *asked, bool dnssec_ok,
		  size_t server, const struct sandbox *tcp_for, uint32_t index,
		  int64_t now_ms, uint32_t *ret_token);
/* Let @ask wait for an upstream request, a new one or one that is under way. Takes the
 * ask. Return: false: there is no room for a new one; a client is told so. */
bool resolver_inflight_join(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);
/* Return: @ask is the question of a flight of ours, sent back by Docker's resolver. It is
 * taken, and waits for that flight, which goes on: the policy is asked when it lands. */
bool resolver_inflight_sent_back(struct resolver *r, struct resolver_ask *ask,
				 int64_t now_ms);
/* End the tries that have lasted too long. */
void resolver_inflight_tick(struct resolver *r, int64_t now_ms);
/* Take all asks of @s out of all flights. */
void resolver_inflight_forget(struct resolver *r, const struct sandbox *s);

/* pinned.c */
/* Answer from the pins, and from nothing else. Takes the ask. */
void resolver_pin_answer(struct resolver *r, struct resolver_ask *ask, int64_t now_ms);
/* The plan allows @n, whatever is left of budgets. */
bool resolver_pin_is_allowed(const struct sandbox *s, const struct dns_name *n);
#define RESOLVER_PIN_DENIED "no rule allows it any more"
/* A question of our own has come to its end: answered by @a, or without an answer (NULL),
 * @lost says why. Takes the ask. */
void resolver_pin_ended(struct resolver *r, struct resolver_ask *ask,
			const struct dns_answer *a, const char *lost, int64_t now_ms);
void resolver_pin_tick(struct resolver *r, int64_t now_ms);
/* Its asks are forgotten already. */
void resolver_pin_free(struct resolver *r, struct resolver_sandbox *g);
