// SPDX-License-Identifier: Apache-2.0
/* resolver_world - a resolver with nothing real around it: a clock that is a number,
 * upstream servers that answer what the test says, and a kernel that is a list.
 *
 * The kernel behaves as nf_tables does: an element that is added again keeps its old
 * timeout, and a transaction is taken as a whole or not at all. The world checks every
 * reply as it leaves: each address in it must be in the kernel's list, in the set that
 * the name's rule has ports for, for as long as the TTL says, and in the learned table
 * under that name. A test that breaks this ends with abort(). */
#pragma once

#include "dns/answer.h"
#include "policy/policy.h"
#include "resolver/resolver.h"
#include "sandbox/learned.h"

enum {
	WORLD_SANDBOXES = 3,
	WORLD_REQUESTS_MAX = 512,
	WORLD_REPLIES_MAX = 1024,  /* the newest are kept */
	WORLD_ELEMENTS_MAX = 4096, /* per sandbox */
	WORLD_RULES_MAX = 32,
	WORLD_EVENTS_MAX = 64,
	WORLD_TROUBLES_MAX = 64,
};

struct world_request {
	uint32_t token; /* 0: answered or cancelled */
	size_t server;
	bool tcp;
	size_t size;
	uint8_t bytes[512];
};

struct world_reply {
	struct resolver_client client;
	uint16_t id, flags;
	uint8_t addr_count;
	struct dns_answer_addr addrs[DNS_ADDRESSES_MAX];
	size_t size;
	uint8_t bytes[2048]; /* the beginning */
};

struct world_element {
	struct addr addr;
	uint8_t port_list;
	int64_t until_ms;
};

struct world_kernel {
	struct world_element elements[WORLD_ELEMENTS_MAX];
	size_t count;
	size_t evicted; /* by the learned table, at the last transaction */
};

struct world {
	int64_t now_ms;
	struct resolver *resolver;
	struct sandbox sandboxes[WORLD_SANDBOXES];
	struct world_kernel kernels[WORLD_SANDBOXES];
	uint8_t *plan_bytes[2]; /* the present plan, and the one before */
	struct rule rules[WORLD_RULES_MAX];
	char targets[WORLD_RULES_MAX][DNS_NAME_MAX + 4];
	struct plan_port_range ports[WORLD_RULES_MAX];
	struct policy policy; /* being written; world_apply() compiles it */
	struct world_request requests[WORLD_REQUESTS_MAX];
	size_t request_count;
	struct world_reply replies[WORLD_REPLIES_MAX];
	size_t reply_count;
	struct event events[WORLD_EVENTS_MAX];
	size_t event_count;
	size_t commits, commit_items, most_items;
	size_t fail_commits;   /* so many transactions from now on fail */
	size_t fail_after;     /* but so many before them don't */
	uint16_t dead_servers; /* bit: what is sent there can't leave */
	struct upstream_trouble troubles[WORLD_TROUBLES_MAX];
	size_t trouble_count;
	uint64_t random;
};

struct world *world_new(size_t servers);
/* With what else a resolver can be told. */
struct world *world_new_with(const struct resolver_config *config);
void world_free(struct world *w);

/* One rule: "allow", "deny" and a target; port 0: the default list. */
bool world_rule(struct world *w, enum policy_action action, const char *target,
		uint16_t port, uint8_t flags, uint8_t types);
/* Forget the rules, to write others. */
void world_no_rules(struct world *w);
/* Compile the rules; all sandboxes have the plan from now on. */
bool world_apply(struct world *w);

/* The same as sandbox_change() does it: what was learned is judged by the new plan, and
 * the kernel has what is left of it, in the sets of the new plan. */
bool world_change(struct world *w);

/* A query as a client would write it; @edns: with an OPT record of 1232. */
size_t world_write_query(uint8_t *buf, size_t size, uint16_t id, const char *name,
			 uint16_t type, bool edns);
void world_query(struct world *w, size_t sandbox, uint16_t id, const char *name,
		 uint16_t type, bool edns, bool tcp);
/* Let @ms pass; the resolver is woken when it wants to be. */
void world_wait(struct world *w, int64_t ms);
/* The request to that server for that question, or NULL. */
struct world_request *world_request_find(struct world *w, size_t server, const char *name,
					 uint16_t type);
size_t world_requests_open(const struct world *w);

/* A response to @q is built: header and question first, then records. */
struct world_response {
	struct wire w;
	uint8_t bytes[8192];
	uint16_t answers, authorities;
};
void world_response_begin(struct world_response *p, const struct world_request *q,
			  uint16_t flags);
void world_response_record(struct world_response *p, const char *owner, uint16_t type,
			   uint32_t ttl, const void *rdata, size_t size);
void world_response_addr(struct world_response *p, const char *owner, const char *addr,
			 uint32_t ttl);
void world_response_cname(struct world_response *p, const char *owner, const char *target,
			  uint32_t ttl);
void world_response_soa(struct world_response *p, const char *zone, uint32_t ttl);
void world_respond(struct world *w, struct world_request *q, struct world_response *p);

/* The kernel lets @a through at this moment, on some port list. */
bool world_kernel_has(const struct world *w, size_t sandbox, const struct addr *a);
