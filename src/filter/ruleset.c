// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
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
 * refuse and report are plain chains: report logs a destination when it is first seen,
 * later at a limited rate; refuse then answers, so that nobody waits. */
#include "filter/ruleset_build.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/rtnetlink.h>

enum {
	LOOPBACK_INDEX = 1, /* of every network namespace's lo */
	GENERATION_MASK = 0xffff,
	PRIORITY_FILTER = 0,
	PRIORITY_NAT = -150, /* before Docker's */
	HOPLIMIT_ON_LINK = 255,
	CT_STATE_ESTABLISHED = 1 << 1, /* NF_CT_STATE_BIT(IP_CT_ESTABLISHED) */
	CT_STATE_RELATED = 1 << 2,
};

enum {
	ICMP_UNREACHABLE = 3,
	ICMP_TIME_EXCEEDED_TYPE = 11,
	ICMP_PARAMETER = 12,
	ICMPV6_ERROR_FIRST = 1, /* unreachable, too big, time exceeded, parameter */
	ICMPV6_ERROR_LAST = 4,
	ICMPV6_MLD_FIRST = 130, /* query, report, done; router solicitation follows */
	ICMPV6_ROUTER_SOLICITATION = 133, /* advertisements are 134: no use for them */
	ICMPV6_NEIGHBOUR_SOLICITATION = 135,
	ICMPV6_NEIGHBOUR_ADVERTISEMENT = 136,
	ICMPV6_MLD2_REPORT = 143,
};

static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };

/* ---- statements ---- */

static void rule(struct builder *b, struct filter_chain *chain)
{
	struct filter_rule *r = arena_alloc(b->arena, sizeof(*r));

	if (!r) {
		b->failed = true;
		b->spare.count = 0;
		b->rule = &b->spare;
		return;
	}
	b->rule = r;
	*chain->rules_end = r;
	chain->rules_end = &r->next;
}

static struct filter_stmt *stmt(struct builder *b, enum filter_stmt_kind kind)
{
	struct filter_stmt *s = &b->rule->stmts[b->rule->count];

	if (b->rule->count == FILTER_STMTS_MAX - 1)
		b->failed = true;
	else
		b->rule->count++;
	*s = (struct filter_stmt){ .kind = kind };
	return s;
}

static void equal(struct builder *b, enum filter_field field, uint32_t value)
{
	struct filter_stmt *s = stmt(b, FILTER_EQUAL);

	s->field = field;
	s->value = value;
}

static void between(struct builder *b, enum filter_field field, uint32_t from,
		    uint32_t to)
{
	struct filter_stmt *s = stmt(b, from == to ? FILTER_EQUAL : FILTER_RANGE);

	s->field = field;
	s->value = from;
	s->value_to = to;
}

static void has_bit(struct builder *b, enum filter_field field, uint32_t bit)
{
	struct filter_stmt *s = stmt(b, FILTER_NOT_EQUAL);

	s->field = field;
	s->mask = bit;
}

static void in_set(struct builder *b, enum filter_field field,
		   const struct filter_set *set)
{
	struct filter_stmt *s = stmt(b, FILTER_IN_SET);

	s->field = field;
	s->set = set;
}

static void go(struct builder *b, enum filter_stmt_kind kind,
	       const struct filter_chain *chain)
{
	stmt(b, kind)->chain = chain;
}

static void redirect(struct builder *b, uint16_t port)
{
	stmt(b, FILTER_REDIRECT)->value = port;
}

static void mark_and_accept(struct builder *b)
{
	stmt(b, FILTER_SET_CT_MARK)->value = b->params->generation;
	stmt(b, FILTER_ACCEPT);
}

static void local(struct builder *b)
{
	equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
}

static void not_local(struct builder *b)
{
	struct filter_stmt *s = stmt(b, FILTER_NOT_EQUAL);

	s->field = FILTER_FIB_DADDR_TYPE;
	s->value = RTN_LOCAL;
}

static void daddr_in(struct builder *b, size_t family, const struct filter_set *set)
{
	equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
	in_set(b, ruleset_families[family].daddr, set);
}

static void port_of(struct builder *b, uint8_t protocol, uint16_t port)
{
	equal(b, FILTER_L4PROTO, protocol);
	equal(b, FILTER_DPORT, port);
}

static const struct filter_set *ports_of(const struct list_sets *l, uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? l->tcp : l->udp;
}

/* Start a rule for the destinations of @set on the ports of list @i. false: none. */
static bool rule_for(struct builder *b, struct filter_chain *chain, uint8_t protocol,
		     size_t i, size_t family, const struct filter_set *set)
{
	const struct filter_set *ports = ports_of(&b->lists[i], protocol);

	if (!ports || !set)
		return false;
	rule(b, chain);
	equal(b, FILTER_L4PROTO, protocol);
	in_set(b, FILTER_DPORT, ports);
	daddr_in(b, family, set);
	return true;
}

/* ---- chains ---- */

static struct filter_chain *plain_chain(struct builder *b, const char *name)
{
	struct filter_chain *c = arena_alloc(b->arena, sizeof(*c));

	if (!c) {
		b->failed = true;
		return NULL;
	}
	c->name = name;
	c->rules_end = &c->rules;
	*b->chains_end = c;
	b->chains_end = &c->next;
	return c;
}

static struct filter_chain *base_chain(struct builder *b, const char *name,
				       enum filter_chain_type type, uint32_t hook)
{
	struct filter_chain *c = plain_chain(b, name);

	if (c) {
		c->type = type;
		c->hook = hook;
		c->priority = type == FILTER_CHAIN_NAT ? PRIORITY_NAT : PRIORITY_FILTER;
		c->accept = type == FILTER_CHAIN_NAT;
	}
	return c;
}

static void log_packet(struct builder *b)
{
	stmt(b, FILTER_LOG)->prefix = "weir out";
}

static void build_report(struct builder *b)
{
	struct filter_chain *c = plain_chain(b, "report");

	b->report = c;
	if (!c)
		return;
	for (size_t i = 0; i < FAMILIES * ARRAY_SIZE(protocols); i++) {
		size_t f = i / ARRAY_SIZE(protocols);

		rule(b, c);
		equal(b, FILTER_NFPROTO, ruleset_families[f].nfproto);
		equal(b, FILTER_L4PROTO, protocols[i % ARRAY_SIZE(protocols)]);
		stmt(b, FILTER_FLOW_NEW)->set = b->seen[f];
		stmt(b, FILTER_FLOW_ADD)->set = b->seen[f];
		log_packet(b);
		stmt(b, FILTER_RETURN);
	}
	rule(b, c);
	stmt(b, FILTER_LIMIT);
	log_packet(b);
}

static void build_refuse(struct builder *b)
{
	struct filter_chain *c = plain_chain(b, "refuse");

	b->refuse = c;
	if (!c)
		return;
	rule(b, c);
	stmt(b, FILTER_COUNTER);
	go(b, FILTER_JUMP, b->report);
	rule(b, c);
	equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt(b, FILTER_REJECT_RESET);
	rule(b, c);
	stmt(b, FILTER_REJECT_ADMIN);
}

/* What ends a rule for a destination that is denied. */
typedef void ending(struct builder *b);

static void end_refuse(struct builder *b)
{
	go(b, FILTER_GOTO, b->refuse);
}

static void end_return(struct builder *b)
{
	stmt(b, FILTER_RETURN);
}

static void end_redirect_dns(struct builder *b)
{
	redirect(b, FILTER_DNS_PORT);
}

static void end_redirect_relay(struct builder *b)
{
	redirect(b, FILTER_RELAY_PORT);
}

static void denied(struct builder *b, struct filter_chain *c, ending *end)
{
	for (size_t f = 0; f < b->family_count; f++) {
		if (!b->deny[f])
			continue;
		rule(b, c);
		daddr_in(b, f, b->deny[f]);
		end(b);
	}
}

static bool is_direct(const struct builder *b, uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? b->params->direct_tcp : b->params->direct_udp;
}

/* An address rule of list @i opens port 53 of @protocol to family @f. */
static bool opens_dns(const struct builder *b, size_t i, size_t f, uint8_t protocol)
{
	return b->lists[i].allow[f] &&
	       plan_port_list_has(b->plan, (uint8_t)i, protocol, FILTER_DNS_PORT);
}

static bool any_opens_dns(const struct builder *b)
{
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (opens_dns(b, i, f, IPPROTO_TCP) ||
			    opens_dns(b, i, f, IPPROTO_UDP))
				return true;
	return false;
}

/* Port 53 of what address rules open: @end per protocol, NULL leaves it out. */
static void opened_dns(struct builder *b, struct filter_chain *c, uint8_t protocol,
		       ending *end)
{
	for (size_t i = 0; i < b->list_count && end; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (opens_dns(b, i, f, protocol) &&
			    rule_for(b, c, protocol, i, f, b->lists[i].allow[f]))
				end(b);
}

/* Reached for port 53 only. */
static void build_dns_chains(struct builder *b)
{
	struct filter_chain *nat, *output;

	if (!any_opens_dns(b))
		return;
	nat = plain_chain(b, "dns_nat");
	output = plain_chain(b, "dns_output");
	b->dns_nat = nat;
	b->dns_output = output;
	if (!nat || !output)
		return;
	denied(b, nat, end_redirect_dns);
	opened_dns(b, nat, IPPROTO_TCP,
		   b->params->relay ? end_redirect_relay : end_return);
	opened_dns(b, nat, IPPROTO_UDP, end_return);
	rule(b, nat);
	redirect(b, FILTER_DNS_PORT);

	denied(b, output, end_refuse);
	for (size_t p = 0; p < ARRAY_SIZE(protocols); p++)
		opened_dns(b, output, protocols[p],
			   is_direct(b, protocols[p]) ? mark_and_accept : NULL);
	rule(b, output);
	end_refuse(b);
}

/* Rules for everything that the plan allows over @protocol. */
static void allowed(struct builder *b, struct filter_chain *c, uint8_t protocol,
		    ending *end)
{
	for (size_t i = 0; i < b->list_count; i++) {
		for (size_t f = 0; f < b->family_count; f++) {
			if (rule_for(b, c, protocol, i, f, b->lists[i].allow[f]))
				end(b);
			if (rule_for(b, c, protocol, i, f, b->lists[i].learned[f]))
				end(b);
		}
	}
	if (plan_default_action(b->plan) != POLICY_ALLOW || b->list_count == 0 ||
	    !ports_of(&b->lists[0], protocol))
		return;
	for (size_t f = 0; f < b->family_count; f++) {
		rule(b, c);
		equal(b, FILTER_NFPROTO, ruleset_families[f].nfproto);
		equal(b, FILTER_L4PROTO, protocol);
		in_set(b, FILTER_DPORT, ports_of(&b->lists[0], protocol));
		end(b);
	}
}

static void build_nat(struct builder *b)
{
	struct filter_chain *c =
		base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	for (size_t p = 0; p < ARRAY_SIZE(protocols); p++) {
		rule(b, c);
		port_of(b, protocols[p], FILTER_DNS_PORT);
		if (b->dns_nat)
			go(b, FILTER_GOTO, b->dns_nat);
		else
			redirect(b, FILTER_DNS_PORT);
	}
	if (!b->params->relay)
		return;
	rule(b, c);
	local(b);
	stmt(b, FILTER_RETURN);
	denied(b, c, end_return);
	allowed(b, c, IPPROTO_TCP, end_redirect_relay);
}

static void build_stray_dns(struct builder *b, struct filter_chain *c)
{
	for (size_t p = 0; p < ARRAY_SIZE(protocols); p++) {
		rule(b, c);
		port_of(b, protocols[p], FILTER_DNS_PORT);
		not_local(b);
		go(b, FILTER_GOTO, b->dns_output ? b->dns_output : b->refuse);
	}
}

/* Only where some other link carries UDP; otherwise none of it gets this far. */
static void build_dead_end(struct builder *b, struct filter_chain *c)
{
	rule(b, c);
	equal(b, FILTER_L4PROTO, IPPROTO_UDP);
	equal(b, FILTER_OIF_GROUP, FILTER_DEAD_END_GROUP);
	not_local(b);
	end_refuse(b);
}

static void build_established(struct builder *b, struct filter_chain *c)
{
	struct filter_stmt *s;

	rule(b, c);
	has_bit(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	s = stmt(b, FILTER_EQUAL);
	s->field = FILTER_CT_MARK;
	s->mask = GENERATION_MASK;
	s->value = b->params->generation;
	stmt(b, FILTER_ACCEPT);
}

static void build_related(struct builder *b, struct filter_chain *c)
{
	static const struct {
		uint8_t protocol, from, to;
	} errors[] = {
		{ IPPROTO_ICMP, ICMP_UNREACHABLE, ICMP_UNREACHABLE },
		{ IPPROTO_ICMP, ICMP_TIME_EXCEEDED_TYPE, ICMP_PARAMETER },
		{ IPPROTO_ICMPV6, ICMPV6_ERROR_FIRST, ICMPV6_ERROR_LAST },
	};

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		rule(b, c);
		has_bit(b, FILTER_CT_STATE, CT_STATE_RELATED);
		equal(b, FILTER_L4PROTO, errors[i].protocol);
		between(b, FILTER_ICMP_TYPE, errors[i].from, errors[i].to);
		stmt(b, FILTER_ACCEPT);
	}
	rule(b, c);
	has_bit(b, FILTER_CT_STATE, CT_STATE_RELATED);
	equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	has_bit(b, FILTER_TCP_FLAGS, TH_RST);
	stmt(b, FILTER_ACCEPT);
}

/* The relay's listener takes what nat has sent there; dialled directly it would not
 * know where to. */
static void build_local(struct builder *b, struct filter_chain *c)
{
	if (b->params->relay) {
		rule(b, c);
		port_of(b, IPPROTO_TCP, FILTER_RELAY_PORT);
		local(b);
		has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
		mark_and_accept(b);
		rule(b, c);
		port_of(b, IPPROTO_TCP, FILTER_RELAY_PORT);
		local(b);
		end_refuse(b);
	}
	rule(b, c);
	local(b);
	mark_and_accept(b);
}

static void build_neighbours(struct builder *b, struct filter_chain *c)
{
	rule(b, c);
	equal(b, FILTER_NFPROTO, NFPROTO_IPV6);
	equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
	equal(b, FILTER_HOPLIMIT, HOPLIMIT_ON_LINK);
	between(b, FILTER_ICMP_TYPE, ICMPV6_NEIGHBOUR_SOLICITATION,
		ICMPV6_NEIGHBOUR_ADVERTISEMENT);
	stmt(b, FILTER_ACCEPT);
}

static void build_chatter(struct builder *b, struct filter_chain *c)
{
	rule(b, c);
	equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
	between(b, FILTER_ICMP_TYPE, ICMPV6_MLD_FIRST, ICMPV6_ROUTER_SOLICITATION);
	stmt(b, FILTER_DROP);
	rule(b, c);
	equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
	equal(b, FILTER_ICMP_TYPE, ICMPV6_MLD2_REPORT);
	stmt(b, FILTER_DROP);
}

static void build_output(struct builder *b)
{
	struct filter_chain *c =
		base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	if (b->params->direct_udp)
		build_dead_end(b, c);
	build_stray_dns(b, c);
	build_established(b, c);
	build_related(b, c);
	build_local(b, c);
	build_neighbours(b, c);
	build_chatter(b, c);
	denied(b, c, end_refuse);
	for (size_t p = 0; p < ARRAY_SIZE(protocols); p++)
		if (is_direct(b, protocols[p]))
			allowed(b, c, protocols[p], mark_and_accept);
	rule(b, c);
	end_refuse(b);
}

static void build_input(struct builder *b)
{
	struct filter_chain *c =
		base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);

	if (!c)
		return;
	rule(b, c);
	equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt(b, FILTER_ACCEPT);
	rule(b, c);
	has_bit(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	stmt(b, FILTER_ACCEPT);
	build_related(b, c);
	build_neighbours(b, c);
}

static void build_chains(struct builder *b)
{
	build_report(b);
	build_refuse(b);
	build_dns_chains(b);
	build_nat(b);
	build_output(b);
	build_input(b);
	base_chain(b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
}

int ruleset_build_owned(const struct plan *plan, const struct filter_params *params,
			struct arena *arena, const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
		.params = params,
		.list_count = plan_port_list_count(plan),
		.family_count = params->ipv6 ? FAMILIES : V4 + 1,
	};

	if (params->generation == 0)
		return err_set(err, -EINVAL, "cannot build the filter: generation 0");
	if (b.list_count > PLAN_PORT_LISTS_MAX)
		return err_set(err, -E2BIG, "cannot build the filter: %zu port lists",
			       b.list_count);
	b.rs = arena_alloc(arena, sizeof(*b.rs));
	if (!b.rs)
		return err_set(err, -ENOMEM, "cannot build the filter: out of memory");
	b.sets_end = &b.rs->sets;
	b.chains_end = &b.rs->chains;
	ruleset_build_sets(&b);
	build_chains(&b);
	if (b.failed)
		return err_set(err, -ENOMEM, "cannot build the filter: out of memory");
	*ret = b.rs;
	return 0;
}
