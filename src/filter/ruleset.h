// SPDX-License-Identifier: Apache-2.0
/* filter/ruleset - a plan as a list of nf_tables objects and statements, independent
 * of how they are sent. filter/netlink.c is the back end that loads them; a text back
 * end can be added beside it.
 *
 * Names are nf_tables' own words: table, chain, hook, set, element, rule, verdict. */
#pragma once

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
	/* Refused on every port and protocol, as if a rule denied them. Borrowed. */
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

struct filter_cgroup; /* complete in filter/ruleset_internal.h */
struct ruleset;	      /* complete in filter/ruleset_internal.h */
/* There is something in it that filter_stage() would load. */
bool ruleset_is_large(const struct ruleset *rs);

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
