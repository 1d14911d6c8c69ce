// SPDX-License-Identifier: Apache-2.0
/* policy/plan - a policy compiled: one immutable block of bytes that any process can
 * map anywhere.
 *
 * The builder (policy_compile() of policy/policy.h) writes it; plan_open() checks every
 * offset, count and enum of it before anything is read, so that a plan from another
 * process can't do harm. All accessors borrow from the bytes. Matching allocates nothing.
 *
 * HOW IT WORKS
 * Names: one open-addressing hash table from pattern name to two rule numbers: the
 * first rule that names exactly it, and the first rule that names everything below
 * it. A look-up hashes the name's suffixes from the right, one label at a time, and
 * keeps the smallest rule number: the first rule that matches decides.
 * Addresses: sorted disjoint ranges per family for look-ups here; the filter loads
 * the same prefixes into the kernel, but those that ask: of these it knows nothing, so
 * that they are refused. A deny is absolute, an allow comes before what asks.
 * Ports: every distinct `ports` of the policy is a port list; a verdict names one.
 * Ends: the bytes have every rule, and the times at which rules end. struct plan says
 * which of those times lie ahead; a rule that has ended is as if it weren't there. */
#pragma once

#include "base/addr.h"
#include "base/err.h"
#include "base/special.h"
#include "dns/name.h"

enum {
	PLAN_NO_RULE = 0xffffffff, /* the default action decided */
	PLAN_PORT_LISTS_MAX = 16,  /* a policy with more distinct lists is refused */
	PLAN_PORT_RANGES_MAX = 64, /* per list */
	PLAN_ENDS_MAX = 64,	   /* a policy with more different ends is refused */
	PLAN_WEB_PORTS = 6,
	PLAN_BUDGETS_MAX = 64, /* the same of rules with a budget, and the whole's */
};

/* POLICY_ASK denies until somebody has granted it: by a rule that allows. */
enum policy_action { POLICY_DENY = 0, POLICY_ALLOW, POLICY_ASK };
enum policy_verify { POLICY_VERIFY_DNS = 0, POLICY_VERIFY_TLS = 1 };
/* What a look-up of a denied name gets: NXDOMAIN, or a sinkhole (below). */
enum policy_denied_names { POLICY_DENIED_NXDOMAIN = 0, POLICY_DENIED_REFUSE = 1 };
enum policy_dns { POLICY_DNS_LIVE = 0, POLICY_DNS_PINNED = 1 };

/* struct plan_verdict.flags, struct plan_rule.flags */
enum {
	PLAN_PRIVATE = 1 << 0,	    /* the name may teach special addresses */
	PLAN_RAW = 1 << 1,	    /* bytes without a name may pass on web ports */
	PLAN_REQUIRED = 1 << 2,	    /* pinned: must resolve */
	PLAN_PORTS_LISTED = 1 << 3, /* the rule has `ports`, not just the default list */
	PLAN_IMPLICIT = 1 << 4,	    /* not written by a person: metadata, DoH list */
	PLAN_COMPLETED = 1 << 6, /* a name without a dot, completed by a search domain */
	PLAN_UNMETERED = 1 << 5, /* no budget of new names below its wildcard */
	PLAN_SPENT = 1 << 7,	 /* of a verdict that denies: what the budget is for is
				  * used up */
};

/* struct plan_verdict.types: query types besides A and AAAA that the rule serves */
enum {
	PLAN_TYPE_PTR = 1 << 0,
	PLAN_TYPE_SRV = 1 << 1,
	PLAN_TYPE_TXT = 1 << 2,
	PLAN_TYPE_MX = 1 << 3,
};

struct plan_verdict {
	uint8_t action;	   /* enum policy_action; the zero value denies */
	uint8_t port_list; /* index, when allowed */
	uint8_t flags;
	uint8_t types;
	uint32_t rule; /* index of the deciding rule, or PLAN_NO_RULE */
};

struct plan_port_range {
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	uint8_t reserved;
	uint16_t from, to; /* both included */
};

/* Of a prefix alone, whose rule denies and is built in: rules that allow the prefix come
 * before it, and what they don't open it closes to names and to the default action. What
 * is closed as a single address (a metadata address, a known DoH resolver) is so to wider
 * rules, too. */
enum { PLAN_CLOSED = POLICY_ASK + 1 };

struct plan_prefix {
	struct prefix prefix;
	uint8_t action; /* enum policy_action, or PLAN_CLOSED */
	uint8_t port_list;
	uint8_t flags;
	uint32_t rule;
};

/* How many bytes may pass by a rule. */
enum plan_budget_action { BUDGET_CUT = 0, BUDGET_EVENT };
struct plan_budget {
	uint64_t sent, received; /* 0: any */
	uint32_t per_sec;	 /* 0: as long as the sandbox has the rule */
	uint32_t rule;		 /* PLAN_NO_RULE: of all together */
	uint8_t action;		 /* enum plan_budget_action */
	uint8_t reserved[7];
};
#define PLAN_SPENT_REASON "the budget of the rule is used up"
#define PLAN_SPENT_ALL	  "the budget of the policy (sent_total) is used up"

/* One rule as a person wrote it, for messages. Texts borrow from the plan. */
struct plan_rule {
	uint8_t action;
	uint8_t port_list;
	uint8_t named_list; /* with PLAN_PORTS_LISTED: those of them that it names, all
			       but the word "default" */
	uint8_t flags;
	uint8_t types;
	int64_t until_ms;      /* wall clock: its end; 0: it has none */
	uint32_t line, column; /* 0: from the command line */
	const char *target;    /* as written */
	const char *file;      /* "--allow" for the command line, or a path */
	const char *comment;   /* "" when there is none */
};

/* What a policy's `limits` sets; UINT32_MAX is "unlimited". In the order of
 * weir-policy(5); one table (policy/limits.c) has names, units, defaults and ceilings. */
enum plan_limit {
	LIMIT_LEARNED_NAMES = 0,
	LIMIT_ADDRESSES_PER_NAME,
	LIMIT_ADDRESSES,
	LIMIT_QUERIES_IN_FLIGHT,
	LIMIT_QUERIES_PER_SECOND,
	LIMIT_QUERIES_BURST,
	LIMIT_DNS_TCP_CONNECTIONS,
	LIMIT_NEW_NAMES_PER_MINUTE,
	LIMIT_FLOWS,
	LIMIT_NEW_FLOWS_PER_SECOND,
	LIMIT_EVENTS_PER_SECOND,
	LIMIT_MIN_LIFETIME_SEC,
	LIMIT_MAX_LIFETIME_SEC,
	LIMIT_GRACE_SEC,
	LIMIT_EVENT_WINDOW_SEC,
	LIMIT_PARKED,
	LIMIT_ASK_TIMEOUT_SEC,
	LIMIT_COUNT
};

/* What happens when a sandbox is denied more than @count packets in @window_sec. */
enum plan_on_denies_action { ON_DENIES_EVENT = 0, ON_DENIES_STOP };
enum {
	ON_DENIES_COUNT_MAX = 1000 * 1000,
	ON_DENIES_WINDOW_MAX_SEC = 86400,
};
struct plan_on_denies {
	uint32_t count; /* 0: nothing */
	uint32_t window_sec;
	uint8_t action; /* enum plan_on_denies_action */
};

struct plan {
	const uint8_t *bytes; /* borrowed; aligned to 8 */
	size_t size;
	uint64_t ends_ahead; /* bit i: plan_end(i) lies ahead; 0: every rule that has an
			      * end has ended */
	uint64_t spent;	     /* bit i: plan_budget(i) is used up, and cuts */
};

/* Check @bytes and open it; no end lies ahead. Return: 0, or -EBADMSG with the reason. */
int plan_open(const void *bytes, size_t size, struct plan *ret,
	      struct err *err) MUST_CHECK;

enum policy_action plan_default_action(const struct plan *p);
enum policy_verify plan_verify(const struct plan *p);
enum policy_denied_names plan_denied_names(const struct plan *p);
enum policy_dns plan_dns(const struct plan *p);
/* A name that is asked for may have to wait until somebody has answered. */
bool plan_asks(const struct plan *p);
uint32_t plan_limit(const struct plan *p, enum plan_limit which);
bool plan_requires_full_isolation(const struct plan *p);
uint32_t plan_repin_sec(const struct plan *p); /* 0: not set */
/* A rule is about every name (policy/advice.h): look-ups and connections are recorded.
 */
bool plan_is_open(const struct plan *p);
struct plan_on_denies plan_on_denies(const struct plan *p);

/* The different ends of rules, the soonest first, in ms of the wall clock. */
size_t plan_end_count(const struct plan *p);
int64_t plan_end(const struct plan *p, size_t i);
/* The ends after @wall_ms lie ahead, and no others. */
void plan_set_time(struct plan *p, int64_t wall_ms);
bool plan_rule_is_over(const struct plan *p, uint32_t rule);
/* What has ended and what is used up is the same, of the same bytes. */
bool plan_same_state(const struct plan *a, const struct plan *b);
/* Whoever uses up a budget that cuts is denied what the rule allows: a name, and an
 * address, on whatever port. */
size_t plan_budget_count(const struct plan *p);
struct plan_budget plan_budget(const struct plan *p, size_t i);
/* That of a rule, PLAN_NO_RULE: of all. Return: its index, or -1: there is none. */
int plan_budget_of(const struct plan *p, uint32_t rule);
/* The reason of a verdict with PLAN_SPENT, else @otherwise. */
const char *plan_reason(struct plan_verdict v, const char *otherwise);

/* What the policy says of a name: the first rule that matches, else the default. */
struct plan_verdict plan_match_name(const struct plan *p, const struct dns_name *name);
/* The same of a name below @name that no rule can spell; where @name is so long that none
 * fits below it: a deny. */
struct plan_verdict plan_match_below(const struct plan *p, const struct dns_name *name);
/* Whether a rule with @types serves the query type @type; A and AAAA are always served.
 * plan_type_bit(): PLAN_TYPE_… of it, or 0. */
uint8_t plan_type_bit(uint16_t type);
bool plan_serves_type(uint8_t types, uint16_t type);
/* What the policy says of a query: a name that no host can have is denied, any other is
 * decided as plan_match_name() does. */
struct plan_verdict plan_match_query(const struct plan *p, const struct dns_name *name);
/* What the policy's address rules say of one address, port and protocol: a deny
 * wins; then an allow whose ports hold @port, then what is closed (PLAN_CLOSED), then
 * such an ask; else the default action with rule PLAN_NO_RULE. With @port 0 the ports
 * don't matter. */
struct plan_verdict plan_match_addr(const struct plan *p, const struct addr *a,
				    uint8_t protocol, uint16_t port);
/* The same of what address rules allow or deny. A rule that asks says nothing of what
 * something else opens: its verdict has rule PLAN_NO_RULE. */
struct plan_verdict plan_judge_addr(const struct plan *p, const struct addr *a,
				    uint8_t protocol, uint16_t port);
/* An address rule denies @a, or the IPv4 address inside it: no name and no allow opens
 * @a then. */
bool plan_denies_addr(const struct plan *p, const struct addr *a);
/* An address rule of action allow covers @a, on whatever port. */
bool plan_names_addr(const struct plan *p, const struct addr *a);
/* Such rules open @a on this port, or on each port of the list @list. */
bool plan_opens_addr(const struct plan *p, const struct addr *a, uint8_t protocol,
		     uint16_t port);
bool plan_opens_list(const struct plan *p, const struct addr *a, uint8_t list);
/* Is @a open to nothing but address rules, on their ports (PLAN_CLOSED)? */
bool plan_closes(const struct plan *p, const struct addr *a);
/* An address rule that is for @a alone ("127.0.0.1", "::1/128") opens it on this port. */
bool plan_names_exactly(const struct plan *p, const struct addr *a, uint8_t protocol,
			uint16_t port);
/* An address rule that is for @a alone opens it, and has the port list @list. */
bool plan_list_names_exactly(const struct plan *p, const struct addr *a, uint8_t list);

/* The ports of web servers: bytes without a name pass there only where a rule says raw.
 */
extern const uint16_t plan_web_ports[PLAN_WEB_PORTS];
bool plan_is_web_port(uint16_t port);
/* May such bytes pass to @port, by a rule with @flags? */
bool plan_takes_bytes(uint8_t flags, uint16_t port);
/* May a name whose rule has @flags lead to an address of @kind, by that rule alone? Never
 * to a metadata address. */
bool plan_leads_to(uint8_t flags, enum addr_special kind);
/* May a name whose rule has @flags lead to @a on @port, by that rule or by an address
 * rule? */
bool plan_reaches(const struct plan *p, uint8_t flags, const struct addr *a,
		  uint8_t protocol, uint16_t port);

bool plan_port_list_has(const struct plan *p, uint8_t list, uint8_t protocol,
			uint16_t port);
/* The rule names the port itself, and doesn't just have it in its default list. */
bool plan_rule_names_port(const struct plan *p, uint32_t rule, uint8_t protocol,
			  uint16_t port);

/* For the filter and for people: everything, by index. */
size_t plan_port_list_count(const struct plan *p);
const struct plan_port_range *plan_port_list(const struct plan *p, size_t list,
					     size_t *ret_count);
/* Address rules made disjoint per (action, port list), sorted; PLAN_IMPLICIT ones
 * included, of which closed ones may lie in each other. */
size_t plan_prefix_count(const struct plan *p);
/* A rule whose budget is used up denies. Where the rule is over, or another one that
 * isn't says the same of a wider prefix: rule PLAN_NO_RULE, and no prefix (family
 * ADDR_NONE). */
struct plan_prefix plan_prefix(const struct plan *p, size_t i);
/* The names that rules are about, wildcards without their stars, in the order of the
 * rules. *@at is 0 at first. False: there is none left. */
bool plan_name_next(const struct plan *p, uint32_t *at, struct dns_name *ret);
/* Bytes of all of them, each once: a name takes its size and one byte. */
size_t plan_names_size(const struct plan *p);
size_t plan_rule_count(const struct plan *p);
struct plan_rule plan_rule(const struct plan *p, size_t i);
/* Of what the rules decide now, and not of where they stand: the same for two texts that
 * say the same rules in the same order. */
uint64_t plan_rules_hash(const struct plan *p);

/* -- addresses that stand for names that aren't open -------------------------------- */

/* A name that doesn't exist is asked for again: npm does so for 75 seconds. So, under
 * `deniedNames: refuse`, a denied name gets an address of a range that leads nowhere, and
 * the relay refuses what is dialled there in the client's own protocol. A name that asks
 * (`action: ask`) gets an address of its own in the same range, whose connections wait in
 * the relay (sandbox/asks.h). A plan that does either denies the whole range, whatever
 * else it says: nothing to it leaves, and no answer teaches it. */

enum {
	SINKHOLES = 2,		  /* a range of each family */
	SINKHOLE_ADDRESSES = 256, /* of each range and kind, that are given out */
	SINKHOLE_TTL_SEC = 1,	  /* a name may be allowed the next moment */
	/* 198.19.254.0/23, of the range for benchmarks (RFC 2544): names that ask, then
	 * names that are denied. */
	SINKHOLE_FIRST4 = 0xc613fe00,
	/* 100::/32, around the range that is to be thrown away (RFC 6666) */
	SINKHOLE_HEAD6 = 0x01000000,
};

/* May such an address stand for @name? Not for what programs try to see whether it
 * exists, as single labels are, nor below arpa, where there are no hosts, nor below
 * invalid, where the self-test asks: there it is NXDOMAIN, whatever the verdict says. */
bool sinkhole_may_stand(const struct plan *p, const struct dns_name *name);
struct prefix sinkhole_prefix(size_t i);
bool sinkhole_has(const struct addr *a);
/* That of the denied name @name, one of SINKHOLE_ADDRESSES; of @family. */
struct addr sinkhole_addr(enum addr_family family, const struct dns_name *name);

/* Number @n of those for names that ask; of @family. */
struct addr sinkhole_ask_addr(enum addr_family family, uint8_t n);
bool sinkhole_is_ask(const struct addr *a, uint8_t *ret_n);

/* Those that the look-ups of denied names of one sandbox got: a bit for each, of both
 * families. */
struct sinkholes {
	uint8_t given[SINKHOLE_ADDRESSES / 8];
};
void sinkholes_give(struct sinkholes *g, const struct addr *a);
/* A look-up got @a: that denial was told, and what is sent to @a is no other one. */
bool sinkholes_gave(const struct sinkholes *g, const struct addr *a);
