// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * This is the filter of an owned namespace; ruleset_shared.c has that of a shared one.
 *
 * A plan says which addresses may be reached on which ports. Ports come as port lists,
 * numbered; each list i has its ports in the sets tcp_i and udp_i, and up to two address
 * sets for each family (4, 6):
 *
 *     allow4_i    address rules that allow these ports
 *     learned4_i  what DNS answers taught; the only sets that change
 *
 * A deny is absolute: deny4 and deny6 hold all of them, on every port and protocol, and
 * are asked first everywhere.
 *
 * Four base chains, all of them default drop (but nat, which decides nothing):
 *
 *     nat     port 53 goes to the engine, whatever its destination; TCP that a set
 *             allows goes to the relay. Runs for the first packet of a flow only.
 *     output  the steps of rules.c, whose order is the policy
 *     input   loopback, replies, ICMP errors, neighbour discovery (not routers: the
 *             namespace has the routes that it was given)
 *     forward nothing
 *
 * refuse, report and passed are plain chains: report logs a destination when it is first
 * seen, and then counts its packets; where that can't be, it logs at a limited rate.
 * refuse then answers, so that nobody waits. passed counts what leaves by the link, for
 * each destination, and accepts it. */
#include "filter/ruleset_build.h"

static void build_nat(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	ruleset_nat_dns(b, c);
	if (!b->relay)
		return;
	stmt_rule(b, c);
	stmt_local(b);
	stmt_return(b);
	ruleset_denied(b, c, stmt_return);
	ruleset_allowed(b, c, IPPROTO_TCP, stmt_redirect_relay);
}

static void build_output(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	c->generation = b->rs->generation;
	ruleset_rules(b, c, RULESET_WHOLE);
}

static void build_input(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);

	if (!c)
		return;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_accept(b);
	ruleset_established(b, c, NULL, stmt_accept);
	ruleset_related(b, c);
	ruleset_neighbours(b, c);
}

int ruleset_build_owned(const struct plan *plan, const struct filter_params *params,
			struct arena *arena, const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
		.kind = RULESET_OWNED,
		.dns_port = FILTER_DNS_PORT,
		.relay_port = FILTER_RELAY_PORT,
		.relay = params->relay,
		.direct_tcp = params->direct_tcp,
		.direct_udp = params->direct_udp,
		.closed = params->closed,
		.closed_count = params->closed_count,
		.family_count = params->ipv6 ? FAMILIES : V4 + 1,
	};
	int r = ruleset_begin(&b, FILTER_NAMES_OWNED, params->generation, err);

	if (r < 0)
		return r;
	ruleset_build_report(&b);
	ruleset_build_refuse(&b);
	ruleset_build_passed(&b);
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	ruleset_build_link(&b);
	ruleset_build_several(&b);
	build_nat(&b);
	build_output(&b);
	build_input(&b);
	ruleset_build_leaving(&b);
	ruleset_base_chain(&b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
	return ruleset_end(&b, ret, err);
}
