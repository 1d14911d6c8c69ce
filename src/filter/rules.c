// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Every packet that leaves is judged by the same steps in the same order, whatever the
 * kind of ruleset. The order is the table `steps`; what the kinds differ in is the table
 * `kinds`. A ruleset has a step because the table has it: no kind can lack a check.
 *
 *     own          Weir's own sockets, where Weir lives in the namespace: by mark, user
 *                  and a port that Weir holds
 *     link         neighbour discovery and reports of multicast groups. The kernel sends
 *                  them, from no address at first; from a program they are refused
 *     straight     IP options and routing headers, by which a packet goes from where it
 *                  may to somewhere else: refused, on open flows too
 *     source       the source is an address of this machine, or the packet is `related`
 *                  (a refusal's reset comes from the address that was refused). Any
 *                  program may bind an IPv6 socket to the address of somebody else; its
 *                  packet to a local socket would begin a flow whose other direction is
 *                  `established`, from here to that address
 *     links        what is for this machine leaves by no other link than loopback; UDP
 *                  leaves by no link that leads nowhere
 *     port 53      is the engine's. A flow whose tuple was known before skips the nat
 *                  chain, so this stands before `established`
 *     established  flows that this policy has let through, and replies to those who
 *                  dial in; in the table of the host the former alone
 *     related      the kernel's ICMP errors and resets. They are accepted without a mark,
 *                  and before local addresses, which mark: the kernel attaches the
 *                  refusal of a revoked flow to that very flow, and marking it would
 *                  allow what was just refused
 *     replies      to those who dial in, in the table of the host
 *     forged       nobody speaks to the ports that Weir holds
 *     local        addresses of this machine, and with them what nat has redirected
 *                  and broadcast, anycast and multicast addresses: open to an address
 *                  rule alone. This machine hears them as well, on listeners that would
 *                  be closed by their own address
 *     plan         port 443 of resolvers, denies, what address rules allow, what is
 *                  closed but for that, learned addresses, the default, draining
 *                  addresses
 *     rest         refused
 *
 * Up to `established` a packet of an open flow meets every step: they are few, and each
 * begins with a cheap comparison. What is refused meets all of them, and a sandbox may
 * send a hundred thousand of those a second: so the type of its route is looked up once
 * for `local`, and an address before its port, which is in most port lists.
 *
 * On the host the steps up to `established` are those of the table, in one chain for all
 * members; the later ones are those of a plan. Port 53 is looked at in both: the first
 * look leads past `established`. */
#include "filter/ruleset_build.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/rtnetlink.h>

#include "policy/plan.h"

const uint8_t ruleset_protocols[PROTOCOLS] = { IPPROTO_TCP, IPPROTO_UDP };

static const struct filter_set *ports_of(const struct list_sets *l, uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? l->tcp : l->udp;
}

/* @set holds something, or may later. A rule that asks a set which stays empty costs time
 * when it is loaded, when it is read back and for each packet, and never matches. */
static bool may_match(const struct filter_set *set)
{
	return set && (set->timeout || set->changes || set->range_count > 0);
}

/* Start a rule for the destinations of @set on the ports of list @i. false: none. The
 * address is looked up first: what is refused rarely has one of them. */
static bool rule_for(struct builder *b, struct filter_chain *chain, uint8_t protocol,
		     size_t i, size_t family, const struct filter_set *set)
{
	const struct filter_set *ports = ports_of(&b->lists[i], protocol);

	if (!ports || !may_match(set))
		return false;
	stmt_rule(b, chain);
	stmt_equal(b, FILTER_L4PROTO, protocol);
	stmt_daddr_in(b, family, set);
	stmt_in_set(b, FILTER_DPORT, ports);
	return true;
}

/* ---- reporting, refusing ---- */

/* Start a rule for packets of @protocol. */
static void flow_rule(struct builder *b, struct filter_chain *c, size_t family,
		      uint8_t protocol)
{
	stmt_rule_of(b, c, family);
	stmt_equal(b, FILTER_L4PROTO, protocol);
}

/* What answers a packet that is refused, where its source is local. */
static void ruleset_answer(struct builder *b, struct filter_chain *c)
{
	/* To a source that was made up an answer would leave, and carry what it quotes.
	 */
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_FIB_SADDR_TYPE, RTN_LOCAL);
	stmt_add(b, FILTER_DROP);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_add(b, FILTER_REJECT_RESET);
	stmt_rule(b, c);
	stmt_add(b, FILTER_REJECT_ADMIN);
}

void ruleset_build_refuse(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "refuse");

	b->refuse = c;
	stmt_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	stmt_go(b, FILTER_JUMP, b->report);
	ruleset_answer(b, c);
}

/* ---- port 53 ---- */

/* An address rule of list @i opens port 53 of @protocol to family @f. */
static bool opens_dns(const struct builder *b, size_t i, size_t f, uint8_t protocol)
{
	return may_match(b->lists[i].allow[f]) &&
	       plan_port_list_has(b->plan, (uint8_t)i, protocol, FILTER_DNS_PORT);
}

/* Port 53 of what address rules open: @end per protocol, NULL leaves it out. */
static void opened_dns(struct builder *b, struct filter_chain *c, uint8_t protocol,
		       stmt_ending *end)
{
	for (size_t i = 0; i < b->list_count && end; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (opens_dns(b, i, f, protocol) &&
			    rule_for(b, c, protocol, i, f, b->lists[i].allow[f]))
				end(b);
}

/* @end for every destination of the @sets, of one family each: those that are denied, or
 * the name servers that may be asked past the engine, whatever the policy denies (a list
 * of DoH resolvers has the common ones). */
static void rules_to(struct builder *b, struct filter_chain *c,
		     const struct filter_set *const *sets, stmt_ending *end)
{
	for (size_t f = 0; f < b->family_count; f++) {
		if (!may_match(sets[f]))
			continue;
		stmt_rule(b, c);
		stmt_daddr_in(b, f, sets[f]);
		end(b);
	}
}

void ruleset_build_dns(struct builder *b)
{
	struct filter_chain *nat, *output;
	bool opens = b->exempt[V4] || b->exempt[V6];

	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			opens |= opens_dns(b, i, f, IPPROTO_TCP) ||
				 opens_dns(b, i, f, IPPROTO_UDP);
	if (!opens)
		return;
	/* Both chains are reached for port 53 only. */
	if (!b->fixed) {
		b->dns_nat = nat = ruleset_plain_chain(b, "dns_nat");
		rules_to(b, nat, b->exempt, stmt_return);
		rules_to(b, nat, b->deny, stmt_redirect_dns);
		opened_dns(b, nat, IPPROTO_TCP,
			   b->relay ? stmt_redirect_relay : stmt_return);
		opened_dns(b, nat, IPPROTO_UDP, stmt_return);
		stmt_rule(b, nat);
		stmt_redirect_dns(b);
	}
	b->dns_output = output = ruleset_plain_chain(b, "dns_output");
	rules_to(b, output, b->exempt, stmt_mark_and_accept);
	rules_to(b, output, b->deny, stmt_refuse);
	for (size_t p = 0; p < PROTOCOLS; p++)
		opened_dns(b, output, ruleset_protocols[p],
			   ruleset_is_direct(b, ruleset_protocols[p]) ? stmt_mark_and_pass
								      : NULL);
	stmt_rule(b, output);
	stmt_refuse(b);
}

/* ---- what the plan says ---- */

/* A bare SYN is `established` where conntrack has an open flow of the same tuple, which a
 * program can make and keep without a socket. The kernel's answer to a segment that no
 * socket wants is a RST without ACK. */
static void stmt_tcp_goes_on(struct builder *b)
{
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_ACK | TH_RST);
}

/* A chain for the ports of list @i, to which rules jump that have looked at the address.
 * NULL: no port of it is open but by the relay. */
static const struct filter_chain *ports_chain(struct builder *b, size_t i)
{
	struct filter_chain *c = NULL;

	for (size_t p = 0; p < PROTOCOLS; p++) {
		const uint8_t protocol = ruleset_protocols[p];
		const struct filter_set *ports = ports_of(&b->lists[i], protocol);

		if (!ports || !ruleset_is_direct(b, protocol))
			continue;
		if (!c) {
			const char *name = arena_printf(b->arena, "ports_%zu", i);

			b->failed |= !name;
			c = ruleset_plain_chain(b, name ? name : "ports");
		}
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, protocol);
		stmt_in_set(b, FILTER_DPORT, ports);
		stmt_mark_and_pass(b);
	}
	return c;
}

/* @chain has the ports of the list that @set is of. */
static void jump_for(struct builder *b, struct filter_chain *c, size_t f,
		     const struct filter_set *set, const struct filter_chain *chain)
{
	if (!chain || !may_match(set))
		return;
	stmt_rule(b, c);
	stmt_daddr_in(b, f, set);
	stmt_go(b, FILTER_JUMP, chain);
}

void ruleset_build_ports(struct builder *b)
{
	bool drains = false;

	for (size_t i = 0; i < b->list_count; i++) {
		struct list_sets *l = &b->lists[i];

		for (size_t f = 0; f < b->family_count; f++) {
			if (!l->ports &&
			    (may_match(l->allow[f]) || may_match(l->learned[f]) ||
			     may_match(l->draining[f])))
				l->ports = ports_chain(b, i);
			drains |= l->ports && may_match(l->draining[f]);
		}
	}
	if (!drains)
		return;
	b->draining = ruleset_plain_chain(b, "draining");
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			jump_for(b, b->draining, f, b->lists[i].draining[f],
				 b->lists[i].ports);
}

/* Open flows of an earlier generation go on to addresses that are draining. */
static void draining(struct builder *b, struct filter_chain *c)
{
	for (size_t p = 0; p < PROTOCOLS && b->draining; p++) {
		if (!ruleset_is_direct(b, ruleset_protocols[p]))
			continue;
		stmt_rule(b, c);
		stmt_equal(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
		stmt_equal(b, FILTER_L4PROTO, ruleset_protocols[p]);
		if (ruleset_protocols[p] == IPPROTO_TCP)
			stmt_tcp_goes_on(b);
		stmt_has_bit(b, FILTER_CT_MARK, GENERATION_MASK);
		if (b->host)
			stmt_add(b, FILTER_IN_SET)->set = b->host->owns;
		stmt_go(b, FILTER_JUMP, b->draining);
	}
}

/* @end for everything that the default action allows over @protocol. */
static void ruleset_default(struct builder *b, struct filter_chain *c, uint8_t protocol,
			    stmt_ending *end)
{
	if (plan_default_action(b->plan) != POLICY_ALLOW || b->list_count == 0 ||
	    !ports_of(&b->lists[0], protocol))
		return;
	for (size_t f = 0; f < b->family_count; f++) {
		flow_rule(b, c, f, protocol);
		stmt_in_set(b, FILTER_DPORT, ports_of(&b->lists[0], protocol));
		end(b);
	}
}

/* ---- what nat has sent here ---- */

void ruleset_build_leaving(struct builder *b)
{
	struct filter_chain *c = ruleset_base_chain(b, "leaving", FILTER_CHAIN_FILTER,
						    NF_INET_POST_ROUTING, true);

	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_OIF, LOOPBACK_INDEX);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
	stmt_local(b);
	stmt_drop(b);
}

enum {
	HOPLIMIT_ON_LINK = 255,
	HEADER_WORDS = 5, /* of an IPv4 header without options */
	HTTPS_PORT = 443,
	DOCKER_RESOLVER = 0x7f00000b, /* 127.0.0.11 */
};

enum {
	ICMP_UNREACHABLE = 3,
	ICMP_ECHO_REQUEST = 8,
	ICMP_TIME_EXCEEDED_TYPE = 11,
	ICMP_PARAMETER = 12,
	ICMPV6_ERROR_FIRST = 1, /* unreachable, too big, time exceeded, parameter */
	ICMPV6_ERROR_LAST = 4,
	ICMPV6_ECHO_REQUEST = 128,
	ICMPV6_LINK_FIRST = 130, /* MLD, routers, neighbours, redirects */
	ICMPV6_MLD_LAST = 132,
	ICMPV6_ROUTER_SOLICITATION = 133, /* advertisements are 134: no use for them */
	ICMPV6_NEIGHBOUR_SOLICITATION = 135,
	ICMPV6_NEIGHBOUR_ADVERTISEMENT = 136,
	ICMPV6_LINK_LAST = 137,
	ICMPV6_MLD2_REPORT = 143,
	/* Of a report: options, header, four groups. And so many a second. */
	MLD_LENGTH_MAX = 8 + 8 + 4 * 20,
	MLD_PER_SEC = 1,
};

/* What becomes of the kernel's reports of multicast groups and its search for routers.
 * Which groups it is a member of is a program's to choose, 16 bytes each, for the
 * neighbours to read. */
enum link_reports {
	LINK_DROPPED = 0,
	LINK_LIMITED, /* switches want to hear of the groups that neighbour discovery
		       * needs, which are few */
	LINK_ACCEPTED,
	LINK_OPEN, /* from programs too */
};

static const struct kind {
	enum link_reports reports;
	bool engine_elsewhere; /* port 53 of local addresses is not the engine's */
	bool dialled;	       /* others may dial in, and replies to them pass */
	bool pings;	       /* pass where everything is open */
	bool open;	       /* what no step refuses passes: neither local nor plan */
} kinds[RULESET_KIND_COUNT] = {
	[RULESET_OWNED] = { .reports = LINK_DROPPED },
	[RULESET_SHARED] = { .reports = LINK_LIMITED,
			     .engine_elsewhere = true,
			     .dialled = true,
			     .pings = true },
	[RULESET_REDIRECT] = { .reports = LINK_OPEN,
			       .engine_elsewhere = true,
			       .open = true },
	[RULESET_HOST] = { .reports = LINK_ACCEPTED,
			   .engine_elsewhere = true,
			   .dialled = true,
			   .pings = true },
	[RULESET_MEMBER] = { .reports = LINK_ACCEPTED, .dialled = true },
};

/* ---- the steps: own ---- */

void ruleset_jump_if_own(struct builder *b, struct filter_chain *c,
			 const struct filter_chain *own)
{
	if (!own)
		return;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_MARK, b->shared->mark);
	stmt_go(b, FILTER_JUMP, own);
}

bool ruleset_has_own(const struct builder *b)
{
	return b->shared && b->shared->mark != 0;
}

static void step_own(struct builder *b, struct filter_chain *c)
{
	if (!ruleset_has_own(b))
		return;
	ruleset_jump_if_own(b, c, b->own);
	/* To segments that come after a connection's end the kernel answers without a
	 * mark. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_CT_MARK, RULESET_OWN_FLOW);
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_RST);
	stmt_accept(b);
}

/* ---- link ---- */

static void icmp6_rule(struct builder *b, struct filter_chain *c, uint8_t from,
		       uint8_t to)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
	stmt_between(b, FILTER_ICMP_TYPE, from, to);
}

/* A ping of a made-up source comes by here too, and goes back to the next steps. */
void ruleset_build_link(struct builder *b)
{
	static const uint8_t groups[][2] = { { ICMPV6_LINK_FIRST, ICMPV6_MLD_LAST },
					     { ICMPV6_MLD2_REPORT, ICMPV6_MLD2_REPORT } };
	enum link_reports reports = kinds[b->kind].reports;
	stmt_ending *end = reports < LINK_ACCEPTED ? stmt_drop : stmt_accept;
	struct filter_chain *c = ruleset_plain_chain(b, "link");

	b->link = c;
	if (reports != LINK_OPEN) {
		icmp6_rule(b, c, ICMPV6_LINK_FIRST, ICMPV6_LINK_LAST);
		stmt_by_a_program(b);
		stmt_refuse(b);
		icmp6_rule(b, c, ICMPV6_MLD2_REPORT, ICMPV6_MLD2_REPORT);
		stmt_by_a_program(b);
		stmt_refuse(b);
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, IPPROTO_IGMP);
		stmt_by_a_program(b);
		stmt_refuse(b);
	}
	ruleset_neighbours(b, c);
	icmp6_rule(b, c, ICMPV6_ROUTER_SOLICITATION, ICMPV6_ROUTER_SOLICITATION);
	if (reports == LINK_DROPPED)
		stmt_drop(b);
	else
		stmt_accept(b);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
		if (reports == LINK_LIMITED) {
			flow_rule(b, c, V6, IPPROTO_ICMPV6);
			stmt_between(b, FILTER_ICMP_TYPE, groups[i][0], groups[i][1]);
			stmt_between(b, FILTER_LENGTH6, 0, MLD_LENGTH_MAX);
			stmt_add(b, FILTER_LIMIT)->value = MLD_PER_SEC;
			stmt_accept(b);
		}
		icmp6_rule(b, c, groups[i][0], groups[i][1]);
		end(b);
	}
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_IGMP);
	end(b);
}

static void step_link(struct builder *b, struct filter_chain *c)
{
	static const uint8_t protocols[] = { IPPROTO_ICMPV6, IPPROTO_IGMP };

	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, protocols[i]);
		stmt_go(b, FILTER_JUMP, b->link);
	}
}

void ruleset_neighbours(struct builder *b, struct filter_chain *c)
{
	flow_rule(b, c, V6, IPPROTO_ICMPV6);
	stmt_equal(b, FILTER_HOPLIMIT, HOPLIMIT_ON_LINK);
	stmt_between(b, FILTER_ICMP_TYPE, ICMPV6_NEIGHBOUR_SOLICITATION,
		     ICMPV6_NEIGHBOUR_ADVERTISEMENT);
	stmt_accept(b);
}

/* ---- straight, source, links ---- */

void ruleset_roundabout(struct builder *b, struct filter_chain *c,
			const struct filter_chain *to)
{
	stmt_rule_of(b, c, V4);
	stmt_not_equal(b, FILTER_HEADER_WORDS4, HEADER_WORDS);
	stmt_go(b, FILTER_GOTO, to);
	stmt_rule_of(b, c, V6);
	stmt_equal(b, FILTER_HAS_ROUTING6, true);
	stmt_go(b, FILTER_GOTO, to);
}

static void step_straight(struct builder *b, struct filter_chain *c)
{
	ruleset_roundabout(b, c, b->refuse);
}

void ruleset_build_orphans(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "orphans");

	b->orphans = c;
	stmt_rule(b, c);
	stmt_by_a_program(b);
	stmt_return(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_drop(b);
}

static void step_source(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_not_equal(b, FILTER_FIB_SADDR_TYPE, RTN_LOCAL);
	stmt_refuse(b);
}

static void step_links(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_OIF, LOOPBACK_INDEX);
	/* nat, ours or others', comes after the link was chosen first */
	stmt_masked(b, FILTER_CT_STATUS, IPS_DST_NAT, 0);
	stmt_local(b);
	stmt_refuse(b);
	/* Only where some other link carries UDP; otherwise none of it gets this far. */
	if (b->kind != RULESET_OWNED || !b->direct_udp)
		return;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_UDP);
	stmt_equal(b, FILTER_OIF_GROUP, FILTER_DEAD_END_GROUP);
	stmt_not_equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
	stmt_refuse(b);
}

/* ---- port 53 ---- */

void ruleset_build_port53(struct builder *b)
{
	const struct filter_chain *to = b->dns_output ? b->dns_output : b->refuse;
	struct filter_chain *c = ruleset_plain_chain(b, "port53");

	b->port53 = c;
	stmt_rule_portless(b, c);
	stmt_return(b);
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
	stmt_go(b, FILTER_GOTO, to);
	if (!kinds[b->kind].engine_elsewhere)
		return;
	/* Answers to a client that asks from port 53 are replies. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
	stmt_go(b, FILTER_GOTO, to);
}

static void step_port53(struct builder *b, struct filter_chain *c)
{
	if (b->shared) {
		stmt_rule_of(b, c, V4);
		stmt_equal(b, FILTER_DADDR4, DOCKER_RESOLVER);
		stmt_refuse(b);
		/* Who sends from there would make a flow that Weir's question is then
		 * the reply of: it would pass by Docker's nat, to him. Docker only
		 * answers from there. */
		stmt_rule_of(b, c, V4);
		stmt_equal(b, FILTER_SADDR4, DOCKER_RESOLVER);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		stmt_refuse(b);
	}
	stmt_rule(b, c);
	stmt_equal(b, FILTER_DPORT, FILTER_DNS_PORT);
	stmt_go(b, FILTER_JUMP, b->port53);
}

/* ---- established, related, replies ---- */

void stmt_tcp_established(struct builder *b)
{
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_tcp_goes_on(b);
}

void ruleset_established(struct builder *b, struct filter_chain *c, stmt_ending *match,
			 stmt_ending *end)
{
	stmt_rule(b, c);
	stmt_tcp_established(b);
	if (match)
		match(b);
	end(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	stmt_not_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	if (match)
		match(b);
	end(b);
}

static void go_to_replies(struct builder *b)
{
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_REPLY);
	if (!b->shared)
		stmt_not_equal(b, FILTER_CT_MARK, RULESET_TAKEN_UP);
	stmt_go(b, FILTER_GOTO, b->replies);
}

/* A SYN from outside with the ports of a connection that was cut begins a flow for the
 * kernel as well, and what was cut answers with an ACK. So over TCP a segment that takes
 * up or refuses passes, and what both ends have agreed on. */
static struct filter_chain *build_replies(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "replies");

	stmt_rule(b, c);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_ASSURED);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_SYN | TH_RST);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_drop(b);
	return c;
}

void ruleset_build_open(struct builder *b)
{
	struct filter_chain *c;

	if (kinds[b->kind].dialled)
		b->replies = build_replies(b);
	b->open = c = ruleset_plain_chain(b, "open");
	/* Without a daemon no flow is remembered. */
	if (!b->fixed) {
		stmt_rule(b, c);
		if (b->host)
			stmt_add(b, FILTER_IN_SET)->set = b->host->live;
		else
			stmt_masked(b, FILTER_CT_MARK, GENERATION_MASK,
				    b->rs->generation);
		if (b->passed)
			stmt_go(b, FILTER_GOTO, b->passed);
		else
			stmt_accept(b);
	}
	if (kinds[b->kind].dialled && !b->host) {
		stmt_rule(b, c);
		go_to_replies(b);
	}
}

static void jump_open(struct builder *b)
{
	stmt_go(b, FILTER_JUMP, b->open);
}

static void step_established(struct builder *b, struct filter_chain *c)
{
	ruleset_established(b, c, NULL, jump_open);
}

void ruleset_build_related(struct builder *b)
{
	static const struct {
		uint8_t protocol, from, to;
	} errors[] = {
		{ IPPROTO_ICMP, ICMP_UNREACHABLE, ICMP_UNREACHABLE },
		{ IPPROTO_ICMP, ICMP_TIME_EXCEEDED_TYPE, ICMP_PARAMETER },
		{ IPPROTO_ICMPV6, ICMPV6_ERROR_FIRST, ICMPV6_ERROR_LAST },
	};
	struct filter_chain *c;

	if (kinds[b->kind].open)
		return;
	b->related = c = ruleset_plain_chain(b, "related");
	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, errors[i].protocol);
		stmt_between(b, FILTER_ICMP_TYPE, errors[i].from, errors[i].to);
		stmt_accept(b);
	}
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_RST);
	stmt_accept(b);
}

void ruleset_related(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_go(b, FILTER_JUMP, b->related);
}

void ruleset_stranger(struct builder *b, struct filter_chain *c)
{
	/* ICMP errors and resets, those of our own refusals too. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_by_a_program(b);
	stmt_add(b, FILTER_DROP);
	ruleset_related(b, c);
	stmt_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	ruleset_answer(b, c);
}

static void step_related(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_by_a_program(b);
	stmt_refuse(b);
	ruleset_related(b, c);
}

/* Elsewhere `open` does it. On the host nothing passes of a member without a plan. */
static void step_replies(struct builder *b, struct filter_chain *c)
{
	if (b->host)
		ruleset_established(b, c, NULL, go_to_replies);
}

/* ---- forged, local, plan, rest ---- */

static void step_forged(struct builder *b, struct filter_chain *c)
{
	for (size_t f = 0; ruleset_has_own(b) && f < FAMILIES; f++) {
		stmt_rule_of(b, c, f);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		stmt_self_port(b, f, FILTER_DPORT);
		stmt_local(b);
		stmt_refuse(b);
	}
}

static void step_local(struct builder *b, struct filter_chain *c)
{
	/* The relay's listener takes what nat has sent there; dialled directly it would
	 * not know where to. */
	if (b->relay && !b->local) {
		stmt_rule(b, c);
		stmt_port(b, IPPROTO_TCP, b->relay_port);
		stmt_local(b);
		stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
		stmt_mark_and_accept(b);
		stmt_rule(b, c);
		stmt_port(b, IPPROTO_TCP, b->relay_port);
		stmt_local(b);
		stmt_refuse(b);
	}
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_FIB_DADDR_TYPE, RTN_UNICAST);
	stmt_go(b, FILTER_JUMP, b->not_unicast);
}

void ruleset_local_listeners(struct builder *b, struct filter_chain *c)
{
	rules_to(b, c, b->deny, stmt_refuse);
	for (size_t p = 0; p < PROTOCOLS; p++)
		for (size_t i = 0; i < b->list_count; i++)
			for (size_t f = 0; f < b->family_count; f++)
				if (rule_for(b, c, ruleset_protocols[p], i, f,
					     b->lists[i].allow[f]))
					stmt_mark_and_accept(b);
	rules_to(b, c, b->closed_sets, stmt_refuse);
}

/* One look at the route's type for all that is usual. Where the kernel has no route, or
 * one that refuses, the packet goes on to the plan. */
void ruleset_build_not_unicast(struct builder *b)
{
	struct filter_chain *c;

	if (kinds[b->kind].open)
		return;
	b->not_unicast = c = ruleset_plain_chain(b, "not_unicast");
	stmt_rule(b, c);
	stmt_local(b);
	if (b->local)
		stmt_go(b, FILTER_GOTO, b->local);
	else
		stmt_mark_and_accept(b);
	stmt_rule(b, c);
	stmt_between(b, FILTER_FIB_DADDR_TYPE, RTN_BLACKHOLE, RTN_PROHIBIT);
	stmt_return(b);
	rules_to(b, c, b->deny, stmt_refuse);
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			jump_for(b, c, f, b->lists[i].allow[f], b->lists[i].ports);
	stmt_rule(b, c);
	stmt_refuse(b);
}

/* Port 443 that is closed whatever the policy says. */
static void https(struct builder *b, struct filter_chain *c, stmt_ending *end)
{
	for (size_t p = 0; p < PROTOCOLS; p++) {
		if (b->shared && b->shared->refuse_443) {
			stmt_rule(b, c);
			stmt_port(b, ruleset_protocols[p], HTTPS_PORT);
			end(b);
			continue;
		}
		for (size_t f = 0; f < FAMILIES; f++) {
			if (!b->doh[f])
				continue;
			stmt_rule(b, c);
			stmt_port(b, ruleset_protocols[p], HTTPS_PORT);
			stmt_daddr_in(b, f, b->doh[f]);
			end(b);
		}
	}
}

/* With everything open a ping is expected to work: to the addresses @to, to all where it
 * is NULL. A ping carries bytes that nobody counts: where all that leaves has a budget
 * (sent_total), none leaves. */
static void pings(struct builder *b, struct filter_chain *c,
		  const struct filter_set *const *to)
{
	static const struct {
		uint8_t protocol, type;
	} echoes[FAMILIES] = { [V4] = { IPPROTO_ICMP, ICMP_ECHO_REQUEST },
			       [V6] = { IPPROTO_ICMPV6, ICMPV6_ECHO_REQUEST } };

	if (!kinds[b->kind].pings || plan_default_action(b->plan) != POLICY_ALLOW ||
	    plan_budget_of(b->plan, PLAN_NO_RULE) >= 0)
		return;
	for (size_t f = 0; f < b->family_count; f++) {
		if (to && !may_match(to[f]))
			continue;
		flow_rule(b, c, f, echoes[f].protocol);
		stmt_equal(b, FILTER_ICMP_TYPE, echoes[f].type);
		if (to)
			stmt_in_set(b, ruleset_families[f].daddr, to[f]);
		stmt_mark_and_accept(b);
	}
}

static void step_plan(struct builder *b, struct filter_chain *c)
{
	https(b, c, stmt_refuse);
	rules_to(b, c, b->deny, stmt_refuse);
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			jump_for(b, c, f, b->lists[i].allow[f], b->lists[i].ports);
	/* Closed addresses that a rule opens on the default's ports are pinged as all
	 * others are. */
	if (b->closed_sets[V4] || b->closed_sets[V6])
		pings(b, c, b->lists[0].allow);
	rules_to(b, c, b->closed_sets, stmt_refuse);
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			jump_for(b, c, f, b->lists[i].learned[f], b->lists[i].ports);
	for (size_t p = 0; p < PROTOCOLS; p++)
		if (ruleset_is_direct(b, ruleset_protocols[p]))
			ruleset_default(b, c, ruleset_protocols[p], stmt_mark_and_pass);
	draining(b, c);
	pings(b, c, NULL);
}

static void step_rest(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	if (kinds[b->kind].open)
		stmt_accept(b);
	else
		stmt_refuse(b);
}

/* ---- nat ---- */

void ruleset_nat(struct builder *b, struct filter_chain *c)
{
	for (size_t p = 0; p < PROTOCOLS; p++) {
		stmt_rule(b, c);
		stmt_port(b, ruleset_protocols[p], FILTER_DNS_PORT);
		if (b->dns_nat)
			stmt_go(b, FILTER_GOTO, b->dns_nat);
		else
			stmt_redirect_dns(b);
	}
	if (!b->relay)
		return;
	stmt_rule(b, c);
	stmt_local(b);
	stmt_return(b);
	/* What is dialled at an address that stands for a name that isn't open is the
	 * relay's to refuse, or to keep until it is, whatever rules allow. Everything
	 * else to it is refused with what the plan denies. */
	if (plan_denied_names(b->plan) == POLICY_DENIED_REFUSE || plan_asks(b->plan)) {
		flow_rule(b, c, V4, IPPROTO_TCP);
		stmt_between(b, FILTER_DADDR4, SINKHOLE_FIRST4,
			     SINKHOLE_FIRST4 + 2 * SINKHOLE_ADDRESSES - 1);
		stmt_redirect_relay(b);
		flow_rule(b, c, V6, IPPROTO_TCP);
		stmt_equal(b, FILTER_DADDR6_HEAD, SINKHOLE_HEAD6);
		stmt_redirect_relay(b);
	}
	https(b, c, stmt_return);
	rules_to(b, c, b->deny, stmt_return);
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (rule_for(b, c, IPPROTO_TCP, i, f, b->lists[i].allow[f]))
				stmt_redirect_relay(b);
	rules_to(b, c, b->closed_sets, stmt_return);
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (rule_for(b, c, IPPROTO_TCP, i, f, b->lists[i].learned[f]))
				stmt_redirect_relay(b);
	ruleset_default(b, c, IPPROTO_TCP, stmt_redirect_relay);
}

/* ---- the order ---- */

static const struct step {
	void (*add)(struct builder *b, struct filter_chain *c);
	enum ruleset_part parts;
	bool also_open; /* where all else passes */
} steps[] = {
	{ step_own, RULESET_FIRST, true },	   { step_link, RULESET_FIRST, true },
	{ step_straight, RULESET_FIRST, true },	   { step_source, RULESET_FIRST, true },
	{ step_links, RULESET_FIRST, true },	   { step_port53, RULESET_WHOLE, true },
	{ step_established, RULESET_FIRST, true }, { step_related, RULESET_THEN, false },
	{ step_replies, RULESET_THEN, false },	   { step_forged, RULESET_THEN, true },
	{ step_local, RULESET_THEN, false },	   { step_plan, RULESET_THEN, false },
	{ step_rest, RULESET_THEN, true },
};

void ruleset_rules(struct builder *b, struct filter_chain *c, enum ruleset_part part)
{
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (steps[i].parts & part && (!kinds[b->kind].open || steps[i].also_open))
			steps[i].add(b, c);
}
