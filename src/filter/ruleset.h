// SPDX-License-Identifier: Apache-2.0
/* filter/ruleset - a plan as a list of nf_tables objects and statements, independent
 * of how they are sent (filter/nft.h) or printed.
 *
 * Names are nf_tables' own words: table, chain, hook, set, element, rule, verdict. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "policy/plan.h"

/* What the filter says of a packet that it reports (struct nflog_packet.prefix). */
#define FILTER_PREFIX_REFUSED "weir out"
/* Refused as well, but there is no room, or no port, for a counter of its own. */
#define FILTER_PREFIX_UNCOUNTED "weir out also"
#define FILTER_PREFIX_IMITATES                                                           \
	"weir own" /* Weir's mark and uid, but no port of its own */

enum {
	FILTER_DNS_PORT = 53, /* the engine's DNS on 127.0.0.1 and ::1 of the namespace */
	FILTER_RELAY_PORT = 1021, /* the relay's listener; below 1024, so that no command
				   * without capabilities can take it */
	FILTER_NFLOG_GROUP = 100,
	FILTER_GENERATION_FIRST = 1, /* 0 is never used */
	/* The group of a link that leads nowhere: UDP that may leave by a link
	 * (direct_udp) may not leave by this one. An uplink that dies takes its link
	 * along, and what the kernel then sends to the other one is refused, not lost. */
	FILTER_DEAD_END_GROUP = 0x77656972,
};

/* What table, chains and sets are called. */
enum filter_naming {
	FILTER_NAMES_OWNED = 0, /* table weir; sets allow4_0, learned4_0 … */
	/* table opensandbox, chain egress, sets allow_v4, deny_v4, dyn_allow_v4 …, those
	 * of port lists from 1 on with _1 … behind: OpenSandbox's names, which its tests
	 * and tools look for. */
	FILTER_NAMES_SHARED,
	FILTER_NAMES_HOST, /* table weir_host: see filter/host.h */
};
const char *filter_table(enum filter_naming naming);

struct filter_params {
	uint16_t generation; /* in the low 16 bits of the conntrack mark */
	bool relay;	     /* TCP that a set allows is redirected to the relay */
	bool direct_tcp; /* allowed TCP may leave by the link (no relay, other uplinks) */
	bool direct_udp; /* allowed UDP may leave by the link */
	bool ipv6;	 /* the namespace has IPv6 */
	/* Refused on every port and protocol, as if a rule denied them; of a single
	 * address what rules for just that address allow is open. Borrowed. */
	const struct prefix *closed;
	size_t closed_count;
};

/* For a namespace that the sandbox was given by somebody else, and that Weir's own
 * processes live in as well (`weir sidecar`), or don't (`weir daemon`). */
struct filter_shared_params {
	uint16_t generation;
	bool redirect_only; /* mode dns: the redirect, the resolvers and Weir's own
			     * ports are guarded; everything else passes */
	bool relay;	    /* TCP that a set allows is redirected to the relay */
	uint32_t mark, uid; /* of Weir's own packets; mark 0: there are none */
	uint16_t dns_port, relay_port; /* on 127.0.0.1 and ::1 */
	/* Name servers that the app may ask by itself, on port 53. Borrowed. */
	const struct addr *exempt;
	size_t exempt_count;
	/* Port 443 of these is refused, TCP and UDP. Borrowed. */
	const struct prefix *doh;
	size_t doh_count;
	bool refuse_443; /* of every address */
};

/* For one cgroup or one user of the host, without a daemon (`weir render`). */
struct filter_member_params {
	const struct filter_cgroup *cgroup; /* NULL: by uid. Borrowed by the ruleset */
	uint32_t uid;
	/* Of what it reports. Begins with FILTER_PREFIX_REFUSED. Borrowed by the ruleset.
	 */
	const char *prefix;
	uint32_t mark; /* not 0: no other sandbox of the host has it; by cgroup only */
};

struct filter_cgroup; /* below */
struct ruleset;
/* There is something in it that filter_stage() would load. */
bool ruleset_has_ahead(const struct ruleset *rs);
/* Of all that @rs makes in the kernel, as its table says it: the same whenever the same
 * is made. 0: it says none. */
uint64_t ruleset_digest(const struct ruleset *rs);

/* The ruleset of an owned network namespace. Lives in @arena.
 * -ENOMEM, or -E2BIG when the plan has more than a ruleset can hold. */
int ruleset_build_owned(const struct plan *plan, const struct filter_params *params,
			struct arena *arena, const struct ruleset **ret,
			struct err *err) MUST_CHECK;
/* The ruleset of a shared network namespace; both families always. As above, and -EINVAL
 * without the ports that it needs. */
int ruleset_build_shared(const struct plan *plan,
			 const struct filter_shared_params *params, struct arena *arena,
			 const struct ruleset **ret, struct err *err) MUST_CHECK;
/* The ruleset of a member of the host; both families always, and nothing is learned: all
 * that is open are @plan's address rules. As above. */
int ruleset_build_member(const struct plan *plan,
			 const struct filter_member_params *params, struct arena *arena,
			 const struct ruleset **ret, struct err *err) MUST_CHECK;

/* Write the ruleset as text for nft(8), for hosts that load it by themselves: the table,
 * called @table, is first taken away, if it is there, then made anew, so that `nft -f`
 * puts it in its own place in one transaction. The kernel then has what filter_install()
 * would load, but that nobody owns the table.
 * Return: 0, -EOPNOTSUPP (there is no text for a statement of @rs: nothing of use was
 * written) or -EIO. */
int filter_text(const struct ruleset *rs, const char *table, FILE *out) MUST_CHECK;

/* ---- the objects and statements that a ruleset is made of ----
 *
 * Everything lives in the arena of the builder and is never changed after it. Lists are
 * in the order in which the objects are created and the rules run. */

enum {
	FILTER_NAME_MAX = 32,  /* bytes of a set's or chain's name, NUL included */
	FILTER_STMTS_MAX = 12, /* statements of one rule */
	FILTER_KEY_MAX = 28,   /* bytes of a set's key: member, address, protocol, port */
	FILTER_SEEN_MAX = 1024, /* (address, protocol, port) that the filter remembers to
				 * have logged; when full, addresses are */
	FILTER_MET_MAX = 1024,	/* addresses; when full only the limited log is left */
	FILTER_SEEN_SEC = 60,	/* how long, after the last packet */
	FILTER_USED_MAX = 1024, /* destinations whose packets are counted as they pass;
				 * when full others pass: filter_total() */
	FILTER_COUNTED_MAX = 16384, /* the same of the host's table, of all members */
	FILTER_USED_SEC = 180,	    /* how long, after the last packet */
	FILTER_LOG_PER_SEC = 20,
	FILTER_LOG_BURST = 40,
	FILTER_LARGE = 512, /* ranges that take a millisecond to load, or more */
	/* Of a mark: the sandbox; the rest is a generation. */
	FILTER_MEMBER_SHIFT = 16,
};

/* What a set holds. */
enum filter_key {
	FILTER_KEY_NONE = 0,
	FILTER_KEY_PORT,
	FILTER_KEY_ADDR4,
	FILTER_KEY_ADDR6,
	FILTER_KEY_FLOW4, /* address . protocol . port */
	FILTER_KEY_FLOW6,
	FILTER_KEY_LOCAL_PORT, /* protocol . port */
	/* Where many sandboxes share a table. A mark is the packet's own, or that of its
	 * flow; a member is the upper half of one. */
	FILTER_KEY_MARK,
	FILTER_KEY_MEMBER,
	FILTER_KEY_FLOW_MARK,
	FILTER_KEY_FLOW_MEMBER,
	FILTER_KEY_UID,
	FILTER_KEY_CGROUP,
	FILTER_KEY_PLAN,	  /* the lower half of the packet's mark */
	FILTER_KEY_MARKS,	  /* mark . flow's mark */
	FILTER_KEY_MARK_AND_FLOW, /* mark . flow's member */
	FILTER_KEY_CGROUP_FLOW,	  /* cgroup . flow's mark */
	FILTER_KEY_MARK_ADDR4,
	FILTER_KEY_MARK_ADDR6,
	FILTER_KEY_MEMBER_FLOW4, /* member . address . protocol . port */
	FILTER_KEY_MEMBER_FLOW6,
	FILTER_KEY_COUNT
};

/* What a map gives for a key. */
enum filter_value {
	FILTER_VALUE_NONE = 0, /* a set */
	FILTER_VALUE_MARK,     /* four bytes, as marks are */
	FILTER_VALUE_VERDICT,
};

/* Both included; network order; only the key's own bytes are used. */
struct filter_range {
	uint8_t from[16], to[16];
};

struct filter_set {
	char name[FILTER_NAME_MAX];
	enum filter_key key;
	enum filter_value value;
	uint8_t level;	      /* of the cgroup in the key: 1 is below the root */
	bool timeout;	      /* elements have a lifetime: changed while it stands */
	bool changes;	      /* elements come and go, or stay as the state has them */
	bool dynamic;	      /* rules add to it */
	bool counts;	      /* with a counter in each element that they add */
	uint32_t timeout_sec; /* of what rules add; 0: each element brings its own */
	uint32_t size;	      /* 0: no limit */
	/* For sets that never change: sorted, disjoint, not adjacent. */
	const struct filter_range *ranges;
	size_t range_count;
	bool ahead; /* filter_stage() loads it */
	struct filter_set *next;
};

/* What a set is for, which decides its name. */
enum filter_role {
	FILTER_ROLE_ALLOW =
		0,	      /* address rules; this one and the next two per port list */
	FILTER_ROLE_LEARNED,  /* what DNS answers taught */
	FILTER_ROLE_DRAINING, /* what they taught once: open flows go on */
	FILTER_ROLE_DENY,
	FILTER_ROLE_SEEN,	/* what was reported lately */
	FILTER_ROLE_USED,	/* where what passes goes to */
	FILTER_ROLE_SELF_PORTS, /* ports of Weir's own */
	FILTER_ROLE_DOH,	/* closed on port 443 */
	FILTER_ROLE_EXEMPT,	/* open on port 53 */
	FILTER_ROLE_MET,    /* addresses that were reported lately, whatever the port */
	FILTER_ROLE_CLOSED, /* but for what address rules allow */
	FILTER_ROLE_COUNT
};
void filter_set_name(enum filter_naming naming, enum filter_role role,
		     enum addr_family family, size_t list, char ret[FILTER_NAME_MAX]);

/* What a packet is asked. */
enum filter_field {
	FILTER_FIELD_NONE = 0,
	FILTER_NFPROTO,
	FILTER_L4PROTO,
	FILTER_IIF,
	FILTER_OIF,
	FILTER_OIF_GROUP,
	FILTER_MARK,
	FILTER_SKUID, /* a packet that no program sent has none: no comparison holds */
	FILTER_SADDR4,
	FILTER_DADDR4,
	FILTER_DADDR6,
	FILTER_DADDR6_HEAD, /* its first 32 bits */
	FILTER_LENGTH6,
	FILTER_HEADER_WORDS4, /* of four bytes: five without options */
	FILTER_HAS_ROUTING6,  /* 1: a routing header is in the chain of IPv6 headers */
	FILTER_HOPLIMIT,
	FILTER_SPORT,
	FILTER_DPORT,
	FILTER_ICMP_TYPE, /* of both families */
	FILTER_TCP_FLAGS,
	FILTER_CT_STATE,
	FILTER_CT_STATUS,
	FILTER_CT_MARK,
	FILTER_CT_DIRECTION,
	FILTER_FIB_DADDR_TYPE,
	FILTER_FIB_SADDR_TYPE,
	FILTER_CGROUP, /* of the packet's socket */
	FILTER_FIELD_COUNT
};

enum filter_stmt_kind {
	FILTER_STMT_NONE = 0,
	FILTER_EQUAL, /* field & mask == value (mask 0: the whole field) */
	FILTER_NOT_EQUAL,
	FILTER_RANGE,	    /* value <= field <= value_to */
	FILTER_IN_SET,	    /* field in set */
	FILTER_PORT_IN_SET, /* protocol . field, a port, in set */
	FILTER_FLOW_NEW,    /* address . protocol . port is not in set */
	FILTER_FLOW_ADD, /* right behind FILTER_FLOW_NEW: put into that statement's set; a
			  * full set ends the rule */
	FILTER_FLOW_COUNT, /* counted there, as long as it has room; else the rule ends */
	FILTER_LIMIT,	   /* so many a second; 0: FILTER_LOG_PER_SEC */
	FILTER_COUNTER,
	FILTER_LOG,
	FILTER_SET_CT_MARK,
	FILTER_ACCEPT,
	FILTER_DROP,
	FILTER_RETURN,
	FILTER_JUMP,
	FILTER_GOTO,
	FILTER_REJECT_RESET, /* TCP only */
	FILTER_REJECT_ADMIN, /* ICMP administratively prohibited, of either family */
	FILTER_REDIRECT,     /* to a port of this host */
	FILTER_IN_CGROUP,    /* the packet's socket was made in @cgroup, or below it */
	FILTER_GO_BY,	     /* as @set says for its key */
	FILTER_MARK_BY,	     /* the packet's own mark := what @set gives for its key */
	FILTER_SET_MARK,     /* the packet's own mark := value */
	FILTER_MARK_FROM_CT, /* the packet's own mark := ct mark */
	FILTER_CT_FROM_MARK, /* ct mark := the packet's own & mask (0: all of it) */
	FILTER_LIMIT_EACH,   /* FILTER_LIMIT for each key of @set */
	FILTER_STMT_COUNT
};

/* A cgroup (version 2). */
struct filter_cgroup {
	uint8_t level;	  /* 1 is below the root */
	uint64_t id;	  /* what the kernel knows it by; another one when made anew */
	const char *path; /* below the mount point of all cgroups, as nft has it */
};

struct filter_stmt {
	enum filter_stmt_kind kind;
	enum filter_field field;
	uint32_t mask, value, value_to;
	const struct filter_set *set;
	const struct filter_chain *chain;   /* of jump and goto */
	const char *prefix;		    /* of log; borrowed */
	const struct filter_cgroup *cgroup; /* borrowed */
};

struct filter_rule {
	struct filter_stmt stmts[FILTER_STMTS_MAX];
	size_t count;
	struct filter_rule *next;
};

enum filter_chain_type {
	FILTER_CHAIN_PLAIN = 0, /* only jumped to */
	FILTER_CHAIN_FILTER,
	FILTER_CHAIN_NAT,
};

struct filter_chain {
	const char *name; /* static, shorter than FILTER_NAME_MAX */
	enum filter_chain_type type;
	uint32_t hook;
	int32_t priority;
	bool accept;	     /* the policy; zero drops */
	uint16_t generation; /* said in a comment; 0: none */
	uint64_t digest;     /* said beside it: of the whole ruleset; 0: none */
	struct filter_rule *rules;
	struct filter_rule **rules_end;
	struct filter_chain *next;
};

struct ruleset {
	enum filter_naming naming;
	uint16_t generation;
	struct filter_set *sets;     /* those that are loaded ahead first */
	struct filter_chain *chains; /* one that is jumped to stands before its users */
};

/* Bytes of a key, padding between the parts of a flow included. */
size_t filter_key_size(enum filter_key key);

/* Sort @ranges, and join those that overlap or touch. Return: how many are left. */
size_t filter_ranges_merge(struct filter_range *ranges, size_t count, size_t key_size);
/* Take @key out of such @ranges, which have room for one more. Return: how many there are
 * then. */
size_t filter_ranges_cut(struct filter_range *ranges, size_t count, const uint8_t *key,
			 size_t key_size);
/* The key that follows @key. false: there is none. */
bool filter_key_next(const uint8_t *key, size_t size, uint8_t *ret);
