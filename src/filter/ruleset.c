// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * OWNED NAMESPACE
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
 * each destination, and accepts it.
 *
 * SHARED NAMESPACE
 *
 * A namespace that somebody else made: the app runs in it, Weir's own processes do, and
 * perhaps Docker's resolver, which listens on 127.0.0.11. Addresses and links are real,
 * and others may dial in. Sets are as above, under OpenSandbox's names, and
 *
 *     held_v4      protocol . port of Weir's own sockets, bound and told of beforehand
 *     kept_v4      addresses that have expired; open flows to them go on
 *     exempt_v4    name servers that the app may ask by itself
 *     doh_block_v4 closed on port 443
 *
 * A large set of ranges is loaded beside the one that stands (filter_stage()), so the two
 * have different names: those of even generations end with _b.
 *
 *     nat     as above, but Weir's own packets go as they are
 *     egress  the steps of rules.c. Flows of Weir's own carry a mark of their own, by
 *             which the kernel's last segments of a closed connection are known; no
 *             generation is in it, so nothing else of such a flow passes. Mark and uid
 *             without the port: reported and dropped
 *     input   accepts, but what comes over loopback comes from a local address
 *     leaving what nat has sent to a local address leaves by no link
 *     forward nothing
 *
 * With redirect_only all that the first steps don't refuse passes. Without a mark nothing
 * of Weir's lives in the namespace (`weir daemon`): nothing is exempt.
 *
 * MEMBER OF THE HOST
 *
 * A ruleset that stands by itself, for one cgroup or one user of the host: no process
 * keeps it, and nothing of it ever changes. So names have become addresses before
 * (engine/pin_names.h), each an address rule, and no flow is remembered: every packet of
 * a member is held against the sets, and a ruleset that is loaded anew cuts what it does
 * not allow with its next packet.
 *
 *     output  accepts; but a member's packets go to the chain `member`, and only they
 *     member  the steps of rules.c
 *     local   what goes to the host itself: deny sets, then what address rules allow,
 *             then, by cgroup, all other addresses of the host, with a mark on the flow
 *     input   by cgroup: a flow with that mark ends at a socket of the same cgroup or is
 *             refused. So processes of one sandbox reach each other, and no other
 *             listener of the host. A listener's user can't be told: by uid the
 *             addresses of the host are closed but for address rules.
 *
 * What the kernel sends by itself (resets, ICMP errors) has no socket and no user and is
 * nobody's. Containers have a network namespace of their own and don't come by here. */
#include "filter/ruleset_build.h"

#include <errno.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>

#include "filter/nft.h"

/* ---- Weir's own ---- */

/* Start a rule for the packets of Weir's own sockets; their mark was seen. */
static void own_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	stmt_rule_of(b, c, family);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_self_port(b, family, FILTER_SPORT);
}

static const struct filter_chain *build_own_nat(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "own_nat");

	for (size_t f = 0; f < FAMILIES; f++) {
		own_rule(b, c, f);
		stmt_accept(b);
	}
	return c;
}

static const struct filter_chain *build_own(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "own");

	for (size_t f = 0; f < FAMILIES; f++) {
		own_rule(b, c, f);
		stmt_add(b, FILTER_SET_CT_MARK)->value = RULESET_OWN_FLOW;
		stmt_accept(b);
	}
	/* The end of a connection whose port was let go: marked as its socket was. */
	stmt_rule(b, c);
	stmt_tcp_established(b);
	stmt_has_bit(b, FILTER_CT_MARK, RULESET_OWN_FLOW);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_add(b, FILTER_LIMIT);
	stmt_log(b, FILTER_PREFIX_IMITATES);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_drop(b);
	return c;
}

/* ---- namespaces ---- */

static void owned_input(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_accept(b);
	ruleset_established(b, c, NULL, stmt_accept);
	ruleset_related(b, c);
	ruleset_neighbours(b, c);
}

static void shared_input(struct builder *b, struct filter_chain *c)
{
	c->accept = true;
	/* A reply to what nat has redirected comes from where it was sent to. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_REPLY);
	stmt_add(b, FILTER_ACCEPT);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_masked(b, FILTER_CT_STATE, CT_STATE_RELATED, 0); /* no refusal */
	stmt_source_not_local(b);
	stmt_drop(b);
}

/* What namespaces of either kind have, @output last of what leaves. */
static void build_namespace(struct builder *b, const char *output)
{
	const struct filter_chain *own_nat = NULL;
	struct filter_chain *c;

	ruleset_build_report(b);
	ruleset_build_refuse(b);
	ruleset_build_passed(b);
	if (ruleset_has_own(b)) {
		b->own = build_own(b);
		own_nat = build_own_nat(b);
	}
	ruleset_build_dns(b);
	ruleset_build_port53(b);
	ruleset_build_link(b);
	ruleset_build_not_unicast(b);
	c = ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT);
	ruleset_jump_if_own(b, c, own_nat);
	ruleset_nat(b, c);
	c = ruleset_base_chain(b, output, FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);
	c->generation = b->rs->generation;
	ruleset_rules(b, c, RULESET_WHOLE);
	c = ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);
	if (b->shared)
		shared_input(b, c);
	else
		owned_input(b, c);
	ruleset_build_leaving(b);
	ruleset_base_chain(b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
}

/* An address rule allows just this one address. */
static bool names_exactly(const struct plan *plan, const struct prefix *p)
{
	if (p->bits != addr_size(&p->addr) * 8)
		return false;
	for (size_t i = 0; i < plan_prefix_count(plan); i++) {
		struct plan_prefix rule = plan_prefix(plan, i);

		if (rule.action == POLICY_ALLOW && rule.prefix.bits == p->bits &&
		    addr_equal(&rule.prefix.addr, &p->addr))
			return true;
	}
	return false;
}

static int close_prefixes(struct builder *b, const struct filter_params *params,
			  struct err *err)
{
	struct prefix *closed =
		arena_array(b->arena, params->closed_count + 1, sizeof(*closed));

	if (!closed)
		return err_set(err, -ENOMEM, "out of memory");
	b->closed = closed;
	for (size_t i = 0; i < params->closed_count; i++)
		if (!names_exactly(b->plan, &params->closed[i]))
			closed[b->closed_count++] = params->closed[i];
	return 0;
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
		.family_count = params->ipv6 ? FAMILIES : V4 + 1,
	};
	int r = close_prefixes(&b, params, err);

	if (r == 0)
		r = ruleset_begin(&b, FILTER_NAMES_OWNED, params->generation, err);
	if (r < 0)
		return r;
	build_namespace(&b, "output");
	return ruleset_end(&b, ret, err);
}

/* By it the next engine sees whether it would make the same rules, of the same plan:
 * flows that are open have been let through by the plan's names, of which the rules have
 * none. */
static void say_digest(struct builder *b)
{
	const uint64_t rules = nft_digest(b->rs), plan = plan_rules_hash(b->plan);

	for (struct filter_chain *c = b->rs->chains; rules != 0 && c; c = c->next)
		if (c->generation > 0)
			c->digest = rules ^ plan ?: 1;
}

uint64_t ruleset_digest(const struct ruleset *rs)
{
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		if (c->digest != 0)
			return c->digest;
	return 0;
}

int ruleset_build_shared(const struct plan *plan,
			 const struct filter_shared_params *params, struct arena *arena,
			 const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
		.kind = params->redirect_only ? RULESET_REDIRECT : RULESET_SHARED,
		.shared = params,
		.dns_port = params->dns_port,
		.relay_port = params->relay_port,
		.relay = params->relay && !params->redirect_only,
		.direct_tcp = !params->relay,
		.direct_udp = true,
		.family_count = FAMILIES,
	};
	int r;

	if (params->dns_port == 0 || params->dns_port == FILTER_DNS_PORT ||
	    (b.relay && params->relay_port == 0))
		return err_set(err, -EINVAL,
			       "cannot build the filter: without a port of its own");
	r = ruleset_begin(&b, FILTER_NAMES_SHARED, params->generation, err);
	if (r < 0)
		return r;
	build_namespace(&b, "egress");
	if (!b.failed)
		say_digest(&b);
	return ruleset_end(&b, ret, err);
}

/* ---- a member of the host ---- */

static void member_is(struct builder *b, const struct filter_member_params *p)
{
	if (p->cgroup)
		stmt_add(b, FILTER_IN_CGROUP)->cgroup = p->cgroup;
	else
		stmt_equal(b, FILTER_SKUID, p->uid);
}

/* Other listeners of the host are looked at when the packet comes in. */
static void member_local(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c = ruleset_plain_chain(b, "local");

	b->local = c;
	ruleset_local_listeners(b, c);
	if (p->cgroup) {
		stmt_rule(b, c);
		stmt_add(b, FILTER_SET_CT_MARK)->value = p->mark;
		stmt_accept(b);
	}
	stmt_rule(b, c);
	stmt_refuse(b);
}

static void member_output(struct builder *b, const struct filter_member_params *p,
			  const struct filter_chain *member)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	c->accept = true;
	stmt_rule(b, c);
	member_is(b, p);
	stmt_go(b, FILTER_GOTO, member);
	if (!p->cgroup)
		ruleset_orphans(b, c);
}

static void begin_marked(struct builder *b, struct filter_chain *c, uint32_t mark)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_MARK, mark);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
}

static void member_input(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);

	c->accept = true;
	/* Between SYN and ACK there is no socket to look at; the first packet was. */
	begin_marked(b, c, p->mark);
	stmt_tcp_established(b);
	stmt_accept(b);
	begin_marked(b, c, p->mark);
	member_is(b, p);
	stmt_accept(b);
	begin_marked(b, c, p->mark);
	stmt_refuse(b);
}

int ruleset_build_member(const struct plan *plan,
			 const struct filter_member_params *params, struct arena *arena,
			 const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
		.kind = RULESET_MEMBER,
		.direct_tcp = true,
		.direct_udp = true,
		.fixed = true,
		.prefix = params->prefix,
		.family_count = FAMILIES,
	};
	struct filter_chain *rules;
	int r;

	if (params->cgroup && params->mark == 0)
		return err_set(err, -EINVAL, "cannot build the filter: no mark");
	r = ruleset_begin(&b, FILTER_NAMES_OWNED, FILTER_GENERATION_FIRST, err);
	if (r < 0)
		return r;
	ruleset_build_report(&b);
	ruleset_build_refuse(&b);
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	ruleset_build_link(&b);
	member_local(&b, params);
	ruleset_build_not_unicast(&b);
	if (!params->cgroup)
		ruleset_build_orphans(&b);
	rules = ruleset_plain_chain(&b, "member");
	ruleset_rules(&b, rules, RULESET_WHOLE);
	member_output(&b, params, rules);
	if (params->cgroup)
		member_input(&b, params);
	return ruleset_end(&b, ret, err);
}
