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
 * Four base chains, all of them default drop (but nat, which decides nothing), and
 * the order of their rules is the policy:
 *
 *     nat     port 53 goes to the engine, whatever its destination; TCP that a set
 *             allows goes to the relay. Runs for the first packet of a flow only.
 *     output  1. port 53 that still isn't local. A flow whose tuple collides with a
 *                known one skips the nat chain, so this stands before `established`;
 *                and UDP to the link that leads nowhere, that of open flows too
 *             2. established flows that carry this policy's generation
 *             3. ICMP errors and resets that belong to a flow. They are accepted
 *                without a mark: the kernel attaches the refusal of a revoked flow to
 *                that very flow, and marking it would allow what was just refused.
 *             4. local addresses, among them everything that nat has redirected
 *             5. neighbour discovery; the kernel's own chatter is dropped silently
 *             6. deny sets, then allow and learned sets, then the default
 *             7. refuse
 *     input   loopback, replies, ICMP errors, neighbour discovery (not routers: the
 *             namespace has the routes that it was given)
 *     forward nothing
 *
 * refuse, report and passed are plain chains: report logs a destination when it is first
 * seen, and then counts its packets; where that can't be, it logs at a limited rate.
 * refuse then answers, so that nobody waits. passed counts what leaves by the link, for
 * each destination, and accepts it. */
#include "filter/ruleset_build.h"

static void drop(struct builder *b)
{
	stmt_add(b, FILTER_DROP);
}

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

static void build_stray_dns(struct builder *b, struct filter_chain *c)
{
	for (size_t p = 0; p < PROTOCOLS; p++) {
		stmt_rule(b, c);
		stmt_port(b, ruleset_protocols[p], FILTER_DNS_PORT);
		stmt_not_local(b);
		stmt_go(b, FILTER_GOTO, b->dns_output ? b->dns_output : b->refuse);
	}
}

/* Only where some other link carries UDP; otherwise none of it gets this far. */
static void build_dead_end(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_UDP);
	stmt_equal(b, FILTER_OIF_GROUP, FILTER_DEAD_END_GROUP);
	stmt_not_local(b);
	stmt_refuse(b);
}

static void build_output(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	c->generation = b->rs->generation;
	if (b->direct_udp)
		build_dead_end(b, c);
	build_stray_dns(b, c);
	ruleset_straight(b, c);
	ruleset_bound(b, c);
	ruleset_established(b, c);
	ruleset_related(b, c);
	ruleset_local(b, c);
	ruleset_neighbours(b, c);
	ruleset_chatter(b, c, drop);
	ruleset_denied(b, c, stmt_refuse);
	for (size_t p = 0; p < PROTOCOLS; p++)
		if (ruleset_is_direct(b, ruleset_protocols[p]))
			ruleset_allowed(b, c, ruleset_protocols[p], stmt_mark_and_pass);
	stmt_rule(b, c);
	stmt_refuse(b);
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
	stmt_rule(b, c);
	stmt_has_bit(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	stmt_accept(b);
	ruleset_related(b, c);
	ruleset_neighbours(b, c);
}

int ruleset_build_owned(const struct plan *plan, const struct filter_params *params,
			struct arena *arena, const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
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
	build_nat(&b);
	build_output(&b);
	build_input(&b);
	ruleset_build_leaving(&b);
	ruleset_base_chain(&b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
	return ruleset_end(&b, ret, err);
}
