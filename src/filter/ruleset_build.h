// SPDX-License-Identifier: Apache-2.0
/* filter/ruleset_build - what the two halves of the builder share: ruleset.c writes the
 * chains, ruleset_sets.c the sets that their rules name. */
#pragma once

#include <netinet/in.h>

#include <linux/netfilter.h>

#include "filter/ruleset.h"
#include "filter/ruleset_internal.h"

/* The families that rules are written for, in this order. */
enum { V4 = 0, V6 = 1, FAMILIES = 2 };

struct family {
	char digit;
	uint32_t nfproto;
	enum addr_family addr;
	enum filter_field daddr;
	enum filter_key key, flow;
};
extern const struct family ruleset_families[FAMILIES];

/* The sets of one port list; NULL where the plan needs none. */
struct list_sets {
	const struct filter_set *tcp, *udp;
	const struct filter_set *allow[FAMILIES], *learned[FAMILIES];
};

struct builder {
	struct arena *arena;
	const struct plan *plan;
	const struct filter_params *params;
	struct ruleset *rs;
	struct filter_set **sets_end;
	struct filter_chain **chains_end;
	struct filter_rule *rule; /* being written; a spare one after a failure */
	struct filter_rule spare;
	bool failed; /* memory is out, or a rule too long: nothing is returned */
	size_t list_count, family_count;
	struct list_sets lists[PLAN_PORT_LISTS_MAX];
	const struct filter_set *deny[FAMILIES];
	const struct filter_set *seen[FAMILIES];
	const struct filter_chain *refuse, *report;
	const struct filter_chain *dns_nat,
		*dns_output; /* NULL: no address rule names 53 */
};

/* All sets, and where the rules find them in @b. */
void ruleset_build_sets(struct builder *b);
