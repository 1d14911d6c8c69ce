// SPDX-License-Identifier: Apache-2.0
/* filter/ruleset_build - what the builders share. ruleset.c writes the
 * base chains of each kind of ruleset; rules.c what decides on each packet that
 * leaves, in one order for all, and the other chains that several have; ruleset_build.c
 * the sets that rules name, single statements, and the chains that count. */
#pragma once

#include <netinet/in.h>

#include <linux/netfilter.h>

#include "filter/ruleset.h"

/* The families that rules are written for, in this order. */
enum { V4 = 0, V6 = 1, FAMILIES = 2 };

struct family {
	uint32_t nfproto;
	enum addr_family addr;
	enum filter_field daddr;
	enum filter_key key, flow, mark_addr;
};
extern const struct family ruleset_families[FAMILIES];

/* In this order everywhere. */
enum { PROTOCOLS = 2 };
extern const uint8_t ruleset_protocols[PROTOCOLS]; /* TCP, UDP */

enum {
	GENERATION_MASK = 0xffff,
	CT_STATE_NEW = 1 << 3,	       /* NF_CT_STATE_BIT(IP_CT_NEW) */
	CT_STATE_ESTABLISHED = 1 << 1, /* NF_CT_STATE_BIT(IP_CT_ESTABLISHED) */
	CT_STATE_RELATED = 1 << 2,
	LOOPBACK_INDEX = 1, /* of every network namespace's lo */
	RULESET_OWN_FLOW =
		1 << 16, /* of Weir, in the conntrack mark above the generation */
	RULESET_TAKEN_UP = 0xffff, /* on the host, a whole conntrack mark, of no member:
				    * the other end has taken the flow up */
};

/* What the rules of each differ in stands in one table of rules.c. */
enum ruleset_kind {
	RULESET_OWNED = 0, /* a namespace of the sandbox's own */
	RULESET_SHARED,
	RULESET_REDIRECT, /* shared, with redirect_only */
	RULESET_HOST,
	RULESET_MEMBER, /* of the host, without a daemon */
	RULESET_KIND_COUNT
};

/* On the host many sandboxes share one table (ruleset.c). A packet that comes to
 * a plan's chain has its sandbox's mark. */
struct ruleset_host {
	const struct filter_set *live; /* mark . mark of the flow: accepted before */
	const struct filter_set *owns; /* mark . member of the flow: they are the same */
	const struct filter_set *owns_as_it_is; /* mark . mark of the flow, whole */
	const struct filter_set *rates;		/* of what is logged, for each member */
	const struct filter_set *asks;		/* of queries, likewise */
};

/* The sets of one port list; NULL where the plan needs none. */
struct list_sets {
	const struct filter_set *tcp, *udp;
	const struct filter_set *allow[FAMILIES], *learned[FAMILIES], *draining[FAMILIES];
	const struct filter_chain *ports; /* behind those addresses */
};

struct builder {
	struct arena *arena;
	const struct plan *plan;
	struct ruleset *rs;
	enum ruleset_kind kind;
	/* What the parameters of either kind come to. */
	const struct filter_shared_params *shared; /* NULL: an owned namespace */
	const struct ruleset_host *host;	   /* NULL: not the host's */
	uint16_t dns_port, relay_port;
	bool relay, direct_tcp, direct_udp;
	bool fixed;	    /* nothing is learned: address rules are all there is */
	uint32_t watched;   /* of a member without a daemon: the mark of flows to this
			     * machine whose listener is looked at */
	const char *prefix; /* of all that is logged; NULL: FILTER_PREFIX_… */
	const struct prefix *closed;
	size_t closed_count, family_count;
	/* Address rules: the plan's, then of what is closed. */
	const struct plan_prefix *prefixes;
	size_t prefix_count;
	/* Where things go. */
	struct filter_set **sets_end, **ahead_end;
	struct filter_chain **chains_end;
	struct filter_rule *rule; /* being written; a spare one after a failure */
	struct filter_rule spare;
	/* What is written when memory is out, so that builders need no check. */
	struct filter_chain spare_chain;
	struct filter_set spare_set;
	bool failed; /* memory is out, or a rule too long: nothing is returned */
	/* What rules refer to; NULL: there is none. */
	size_t list_count;
	struct list_sets lists[PLAN_PORT_LISTS_MAX];
	const struct filter_set *deny[FAMILIES], *seen[FAMILIES], *used[FAMILIES];
	const struct filter_set *closed_sets[FAMILIES];
	const struct filter_set *met[FAMILIES];
	const struct filter_set *self_ports[FAMILIES], *doh[FAMILIES], *exempt[FAMILIES];
	const struct filter_chain *refuse, *report, *link, *port53, *open, *related,
		*replies;
	struct filter_chain *draining;		/* NULL: no address drains */
	const struct filter_chain *orphans;	/* of the host */
	const struct filter_chain *own;		/* NULL: nothing is Weir's own */
	const struct filter_chain *local;	/* NULL: local addresses are open */
	const struct filter_chain *not_unicast; /* local addresses, and several's */
	const struct filter_chain *passed;	/* NULL: what passes is not counted */
	const struct filter_chain *dns_nat,
		*dns_output; /* NULL: port 53 is open nowhere */
};

/* ---- ruleset_build.c ---- */

/* Start a rule at the end of @chain; what follows is about it. */
void stmt_rule(struct builder *b, struct filter_chain *chain);
/* Start such a rule for packets of @family. */
void stmt_rule_of(struct builder *b, struct filter_chain *chain, size_t family);
/* Start such a rule for packets of protocols without ports. */
void stmt_rule_portless(struct builder *b, struct filter_chain *chain);
/* Append a statement and give it back, to be filled. */
struct filter_stmt *stmt_add(struct builder *b, enum filter_stmt_kind kind);
void stmt_equal(struct builder *b, enum filter_field field, uint32_t value);
void stmt_not_equal(struct builder *b, enum filter_field field, uint32_t value);
void stmt_between(struct builder *b, enum filter_field field, uint32_t from, uint32_t to);
/* field & mask == value */
void stmt_masked(struct builder *b, enum filter_field field, uint32_t mask,
		 uint32_t value);
void stmt_has_bit(struct builder *b, enum filter_field field, uint32_t bit);
void stmt_in_set(struct builder *b, enum filter_field field,
		 const struct filter_set *set);
void stmt_daddr_in(struct builder *b, size_t family, const struct filter_set *set);
void stmt_port(struct builder *b, uint8_t protocol, uint16_t port);
void stmt_local(struct builder *b);
/* What the kernel sends by itself has no uid at all. */
void stmt_by_a_program(struct builder *b);
/* @port, source or destination, is one that Weir holds. */
void stmt_self_port(struct builder *b, size_t family, enum filter_field port);
void stmt_go(struct builder *b, enum filter_stmt_kind kind,
	     const struct filter_chain *chain);

/* What ends a rule. */
typedef void stmt_ending(struct builder *b);
void stmt_accept(struct builder *b);
/* Counted. */
void stmt_drop(struct builder *b);
void stmt_mark_and_accept(struct builder *b);
/* The same, and it is counted. */
void stmt_mark_and_pass(struct builder *b);
void stmt_refuse(struct builder *b);
void stmt_return(struct builder *b);
void stmt_redirect_dns(struct builder *b);
void stmt_redirect_relay(struct builder *b);

/* A set without a name, behind the others. */
struct filter_set *ruleset_new_set(struct builder *b, enum filter_key key);
/* Rules add to @s: an element stays @timeout_sec after the last packet; @size at most. */
void ruleset_added_by_rules(struct filter_set *s, uint32_t timeout_sec, uint32_t size);
/* An empty set of learned or draining addresses; on the host, of all sandboxes. */
const struct filter_set *ruleset_addrs(struct builder *b, enum filter_role role,
				       size_t list, size_t family);

struct filter_chain *ruleset_plain_chain(struct builder *b, const char *name);
/* @accept: what no rule of it decides on. */
struct filter_chain *ruleset_base_chain(struct builder *b, const char *name,
					enum filter_chain_type type, uint32_t hook,
					bool accept);

/* @protocol leaves by the link itself. */
bool ruleset_is_direct(const struct builder *b, uint8_t protocol);
/* The plain chains that count: what is refused, and what passes. */
void ruleset_build_report(struct builder *b);
void ruleset_build_passed(struct builder *b);

/* The empty ruleset. false: no memory. */
bool ruleset_start(struct builder *b, enum filter_naming naming,
		   uint16_t generation) MUST_CHECK;
/* Check what all plans have to meet, make the empty ruleset, and its sets. */
int ruleset_begin(struct builder *b, enum filter_naming naming, uint16_t generation,
		  struct err *err) MUST_CHECK;
/* -ENOMEM if anything failed. */
int ruleset_end(const struct builder *b, const struct ruleset **ret,
		struct err *err) MUST_CHECK;

/* ---- rules.c ---- */

/* The plain chains: refuse, and those of port 53. */
void ruleset_build_refuse(struct builder *b);
void ruleset_build_dns(struct builder *b);
/* The rules of a nat chain: port 53 to the engine, allowed TCP to the relay. */
void ruleset_nat(struct builder *b, struct filter_chain *c);
/* What nat has sent to this machine leaves by no link: its way is known after nat alone.
 */
void ruleset_build_leaving(struct builder *b);

/* The rules of one chain, or of the two that follow each other on the host. */
enum ruleset_part {
	RULESET_FIRST = 1 << 0, /* up to open flows */
	RULESET_THEN = 1 << 1,	/* what new ones are held against */
	RULESET_WHOLE = RULESET_FIRST | RULESET_THEN,
};
/* Everything that decides on a packet that leaves, in the one order. */
void ruleset_rules(struct builder *b, struct filter_chain *c, enum ruleset_part part);
/* The plain chains that those rules go to. */
void ruleset_build_link(struct builder *b);
void ruleset_build_port53(struct builder *b);
/* The ports of what goes on by the link itself; before not_unicast. */
void ruleset_build_ports(struct builder *b);
/* Behind the chain of local addresses, if there is one. */
void ruleset_build_not_unicast(struct builder *b);
/* A TCP socket that was closed sends the rest without a user; with IP options or a
 * routing header that goes elsewhere, as no flow that is known: drop it. Behind what
 * users send. */
void ruleset_build_orphans(struct builder *b);
/* Packets with IP options or a routing header go to @to. */
void ruleset_roundabout(struct builder *b, struct filter_chain *c,
			const struct filter_chain *to);
/* @end for established flows; over TCP a segment that begins none. @match: more that a
 * flow has to be, or NULL. */
void ruleset_established(struct builder *b, struct filter_chain *c, stmt_ending *match,
			 stmt_ending *end);
void stmt_tcp_established(struct builder *b);
/* Flows that go on, and replies: behind ruleset_build_passed(). */
void ruleset_build_open(struct builder *b);
/* ICMP errors and resets that belong to a flow. */
void ruleset_build_related(struct builder *b);
void ruleset_related(struct builder *b, struct filter_chain *c);
/* Refuse, count and answer everything but these. */
void ruleset_stranger(struct builder *b, struct filter_chain *c);
void ruleset_neighbours(struct builder *b, struct filter_chain *c);
/* Listeners of the host that address rules deny or allow. */
void ruleset_local_listeners(struct builder *b, struct filter_chain *c);
/* Weir's processes live in the namespace. Without them there is nobody to exempt: the
 * mark alone, which would be 0, means nothing. */
bool ruleset_has_own(const struct builder *b);

/* Weir's own packets go to @own; NULL: there are none. */
void ruleset_jump_if_own(struct builder *b, struct filter_chain *c,
			 const struct filter_chain *own);
