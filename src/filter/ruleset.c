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
 * Rules look at the address, in egress or output, and then jump to the chain ports_i for
 * its port. Draining addresses are asked in a chain of their own, to which open flows
 * alone come. TCP that goes to the relay has rules for both in the nat chain. No rule
 * asks a set that stays empty.
 *
 * A deny is absolute: deny4 and deny6 hold all of them, on every port and protocol, and
 * are asked first everywhere. closed4 and closed6 are asked behind what address rules
 * allow: of these nothing is open to names and to the default action. A single address
 * among them is in no allow set but those of the rules for just this address.
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
 * each destination, or in sum where that can't be, and accepts it.
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
 * A set with ranges is loaded beside the one that stands (install.c says why), so the two
 * have different names: those of even generations end with _b, the others with _a. The
 * sets of the plain names, allow_v4 and so on, are for people to look at then.
 *
 *     nat     as above, but Weir's own packets go as they are
 *     egress  the steps of rules.c. Flows of Weir's own carry a mark of their own, by
 *             which the kernel's last segments of a closed connection are known; no
 *             generation is in it, so nothing else of such a flow passes. Mark and uid
 *             without the port: reported and dropped
 *     input   accepts, but what comes over loopback comes from a local address, and TCP
 *             from elsewhere begins with a SYN: a connection that was cut may be one
 *             that the kernel has forgotten, and its other end would begin it anew
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
 *     input   TCP that comes to a member begins with a SYN. By cgroup, a flow with that
 *             mark ends at a socket of the same cgroup or is refused. So processes of
 *             one sandbox reach each other, and no other listener of the host. A
 *             listener's user can't be told: by uid the addresses of the host are closed
 *             but for address rules.
 *
 * What the kernel sends by itself (resets, ICMP errors) has no socket and no user and is
 * nobody's. Containers have a network namespace of their own and don't come by here. */
#include "filter/ruleset_build.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/rtnetlink.h>

#include "filter/host_internal.h"
#include "filter/nft.h"

/* ---- Weir's own ---- */

/* Start a rule for the packets of Weir's own sockets; their mark was seen. */
static void own_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	stmt_rule_of(b, c, family);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_self_port(b, family, FILTER_SPORT);
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
	stmt_add(b, FILTER_LOG)->prefix = FILTER_PREFIX_IMITATES;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_drop(b);
	return c;
}

/* ---- what the other end takes up ---- */

/* Start a rule for TCP that comes in, begins no connection, and is of none that the
 * kernel knows. The kernel takes that for the beginning of a flow from there, and what
 * the socket here sends for replies. What comes over loopback is left out where loopback
 * is open anyway. */
static void rule_taken_up(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	if (b->shared)
		stmt_not_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_NEW);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_masked(b, FILTER_TCP_FLAGS, TH_SYN, 0);
}

/* The end of such a rule. The kernel has kept a flow over loopback by then: it gets a
 * mark, and its replies don't pass. */
static void end_taken_up(struct builder *b)
{
	if (!b->shared)
		stmt_add(b, FILTER_SET_CT_MARK)->value = RULESET_TAKEN_UP;
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_REJECT_RESET);
}

/* ---- namespaces ---- */

static void build_input(struct builder *b)
{
	struct filter_chain *c = ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER,
						    NF_INET_LOCAL_IN, b->shared != NULL);

	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	if (!b->shared) {
		stmt_accept(b);
		ruleset_established(b, c, NULL, stmt_accept);
		ruleset_related(b, c);
		ruleset_neighbours(b, c);
		return;
	}
	/* A reply to what nat has redirected comes from where it was sent to. */
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_REPLY);
	stmt_add(b, FILTER_ACCEPT);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_not_equal(b, FILTER_CT_STATE, CT_STATE_RELATED); /* no refusal */
	stmt_not_equal(b, FILTER_FIB_SADDR_TYPE, RTN_LOCAL);
	stmt_drop(b);
	if (b->kind != RULESET_SHARED)
		return;
	rule_taken_up(b, c);
	end_taken_up(b);
}

/* What namespaces of either kind have, @output last of what leaves. */
static void build_namespace(struct builder *b, const char *output)
{
	struct filter_chain *c, *own_nat = NULL;

	ruleset_build_report(b);
	ruleset_build_refuse(b);
	ruleset_build_passed(b);
	ruleset_build_open(b);
	ruleset_build_related(b);
	if (ruleset_has_own(b)) {
		b->own = build_own(b);
		own_nat = ruleset_plain_chain(b, "own_nat");
		for (size_t f = 0; f < FAMILIES; f++) {
			own_rule(b, own_nat, f);
			stmt_accept(b);
		}
	}
	ruleset_build_dns(b);
	ruleset_build_port53(b);
	ruleset_build_link(b);
	ruleset_build_ports(b);
	ruleset_build_not_unicast(b);
	c = ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT, true);
	ruleset_jump_if_own(b, c, own_nat);
	ruleset_nat(b, c);
	c = ruleset_base_chain(b, output, FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT, false);
	c->generation = b->rs->generation;
	ruleset_rules(b, c, RULESET_WHOLE);
	build_input(b);
	ruleset_build_leaving(b);
	ruleset_base_chain(b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD, false);
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
		.closed = params->closed,
		.closed_count = params->closed_count,
	};
	int r = ruleset_begin(&b, FILTER_NAMES_OWNED, params->generation, err);

	if (r < 0)
		return r;
	build_namespace(&b, "output");
	return ruleset_end(&b, ret, err);
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
	uint64_t rules = 0;
	int r;

	if (params->dns_port == 0 || params->dns_port == FILTER_DNS_PORT ||
	    (b.relay && params->relay_port == 0))
		return err_set(err, -EINVAL,
			       "cannot build the filter: without a port of its own");
	r = ruleset_begin(&b, FILTER_NAMES_SHARED, params->generation, err);
	if (r < 0)
		return r;
	build_namespace(&b, "egress");
	/* By the digest the next engine sees whether it would make the same rules, of the
	 * same plan: flows that are open have been let through by the plan's names, of
	 * which the rules have none. */
	if (!b.failed)
		rules = nft_digest(b.rs);
	for (struct filter_chain *c = b.rs->chains; rules != 0 && c; c = c->next)
		if (c->generation > 0)
			c->digest = rules ^ plan_rules_hash(plan) ?: 1;
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

/* Start a rule for what goes the way of a flow whose listener is looked at. */
static void begin_watched(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_MARK, b->watched);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
}

/* @end for the first packet of a flow; over TCP a segment that begins a connection. */
static void begins(struct builder *b, struct filter_chain *c, stmt_ending *end)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_NEW);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_SYN);
	end(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_NEW);
	stmt_not_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	end(b);
}

static void watch_and_accept(struct builder *b)
{
	stmt_add(b, FILTER_SET_CT_MARK)->value = b->watched;
	stmt_accept(b);
}

/* Other listeners of the host are looked at when the packet comes in, by the mark of its
 * flow. A flow that the kernel doesn't track gets none and is refused. So is a connection
 * that was open before without the mark: an address rule has let it through, or nothing
 * has. Over other protocols the listener is looked at for each packet. */
static void member_local(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c = ruleset_plain_chain(b, "local");

	b->local = c;
	ruleset_local_listeners(b, c);
	if (p->cgroup) {
		begins(b, c, watch_and_accept);
		begin_watched(b, c);
		stmt_tcp_established(b);
		stmt_accept(b);
		stmt_rule(b, c);
		stmt_equal(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
		stmt_not_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
		watch_and_accept(b);
	}
	stmt_rule(b, c);
	stmt_refuse(b);
}

static void member_input(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c = ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER,
						    NF_INET_LOCAL_IN, true);

	rule_taken_up(b, c);
	member_is(b, p);
	end_taken_up(b);
	if (!p->cgroup)
		return;
	/* Between SYN and ACK there is no socket to look at; the first packet was. */
	begin_watched(b, c);
	stmt_tcp_established(b);
	stmt_accept(b);
	begin_watched(b, c);
	member_is(b, p);
	stmt_accept(b);
	begin_watched(b, c);
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
		.watched = params->mark,
		.prefix = params->prefix,
		.family_count = FAMILIES,
	};
	struct filter_chain *rules, *output;
	int r;

	if (params->cgroup && params->mark == 0)
		return err_set(err, -EINVAL, "cannot build the filter: no mark");
	r = ruleset_begin(&b, FILTER_NAMES_OWNED, FILTER_GENERATION_FIRST, err);
	if (r < 0)
		return r;
	ruleset_build_report(&b);
	ruleset_build_refuse(&b);
	ruleset_build_open(&b);
	ruleset_build_related(&b);
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	ruleset_build_link(&b);
	member_local(&b, params);
	ruleset_build_ports(&b);
	ruleset_build_not_unicast(&b);
	if (!params->cgroup)
		ruleset_build_orphans(&b);
	rules = ruleset_plain_chain(&b, "member");
	ruleset_rules(&b, rules, RULESET_WHOLE);
	output = ruleset_base_chain(&b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT,
				    true);
	stmt_rule(&b, output);
	member_is(&b, params);
	stmt_go(&b, FILTER_GOTO, rules);
	if (!params->cgroup)
		ruleset_roundabout(&b, output, b.orphans);
	member_input(&b, params);
	return ruleset_end(&b, ret, err);
}

/* ---- the table of the host ---- */

/* HOW IT WORKS
 *
 * Whose packet it is decides before all else: a map from cgroup (one for each level that
 * members have) or user id gives the member, and the map `current` its mark, which the
 * packet then carries itself while the rules look at it; it is 0 again when the packet is
 * accepted. The mark is read once. Everything else is looked up by it, so a packet is
 * judged by one plan from beginning to end, even while another is being put in its place:
 *
 *     plans        lower half of a mark to its plan's chain; plans_nat: to its nat chain
 *     live         mark . mark of the flow: accepted before, under this very mark
 *     owns         mark . member of the flow: begun by this member
 *     learned4_0 … mark . address; the plan has the ports. kept4_0 … likewise
 *     ids          marks of flows over loopback whose listener has to be looked at
 *     orphans      of members known by user id: a socket without a process has none
 *     asks         members that query, and how fast
 *
 * While a batch is being committed, a look-up can miss an element whose key it deletes
 * and adds. To be no member is to be free, so the first maps never change for whoever
 * stays a member; a miss in any other one closes.
 *
 * Members come and go without a verdict in any map: the kernel walks all chains that such
 * a map leads to when one is added.
 *
 * A change of policy is a new mark with all that belongs to it, and one element of
 * `current`. A flow's conntrack mark is set when it is accepted; one with an old mark is
 * judged anew. Packets that have read a mark which is gone are dropped:
 * whoever sent them sends again.
 *
 *     nat      members go to their plan's nat chain, pN_nat
 *     output   members go on to `member`; nobody else is asked anything
 *     member   established and live; else the plan's chain, pN_output
 *     input    what members send over loopback, and no address rule allows, goes on only
 *              to a listener of the same cgroup: who listens is known there alone. And
 *              TCP that comes to a member begins with a SYN
 *     leaving  what nat has sent to an address of this host leaves by no link
 *
 * pN_output is the policy as in ruleset.c; pN_local what goes to this host itself.
 * Queries to the DNS port keep the mark on the packet, so that the engine sees who asks;
 * over TCP, and to the relay, the flow has it. */

enum {
	RATES_MAX = HOST_IDS,
	ASKS_TIMES = 2,		  /* what the engine answers */
	ASKS_LEAST = 1000,	  /* the self-test's are not counted there */
	ASKS_KNOWN_MAX = 1000000, /* over it: unlimited */
};

static const struct filter_chain refuse_chain = { .name = "refuse" };
static const struct filter_chain passed_chain = { .name = "passed" };
static const struct filter_chain related_chain = { .name = "related" };
static const struct filter_chain replies_chain = { .name = "replies" };

/* ---- sets ---- */

static struct filter_set *named_set(struct builder *b, enum filter_key key,
				    const char *name)
{
	struct filter_set *s = ruleset_new_set(b, key);

	snprintf(s->name, sizeof(s->name), "%s", name);
	s->changes = true;
	return s;
}

static const struct filter_set *named_map(struct builder *b, enum filter_key key,
					  enum filter_value value, const char *name)
{
	struct filter_set *s = named_set(b, key, name);

	s->value = value;
	return s;
}

static const struct filter_set *logged_set(struct builder *b, enum filter_key key,
					   const char *name, uint32_t size)
{
	struct filter_set *s = named_set(b, key, name);

	ruleset_added_by_rules(s, FILTER_SEEN_SEC, size);
	return s;
}

/* member . address . protocol . port */
static const struct filter_set *counted_set(struct builder *b, size_t family,
					    enum filter_role role, uint32_t timeout_sec)
{
	struct filter_set *s = ruleset_new_set(b, family == V4 ? FILTER_KEY_MEMBER_FLOW4
							       : FILTER_KEY_MEMBER_FLOW6);

	filter_set_name(FILTER_NAMES_HOST, role, ruleset_families[family].addr, 0,
			s->name);
	s->counts = true;
	ruleset_added_by_rules(s, timeout_sec, FILTER_COUNTED_MAX);
	return s;
}

struct level_sets {
	const struct filter_set *who, *pairs; /* pairs: cgroup . ids */
};

/* ---- chains that are always there ---- */

struct base {
	const struct filter_host *host;
	struct builder b;
	struct ruleset_host sets;
	const struct filter_set *current, *plans, *plans_nat, *ids, *orphans;
	struct level_sets levels[HOST_LEVELS];
	const struct filter_chain *member, *nat_member, *loopback, *taken_up;
};

static void all_level_sets(struct base *k)
{
	for (size_t level = 0; level < HOST_LEVELS; level++) {
		struct filter_set *s;
		char name[FILTER_NAME_MAX];

		if (k->host->level_users[level] == 0)
			continue;
		host_level_name(level, false, name);
		s = named_set(&k->b, level == 0 ? FILTER_KEY_UID : FILTER_KEY_CGROUP,
			      name);
		s->value = FILTER_VALUE_MARK;
		s->level = (uint8_t)level;
		k->levels[level].who = s;
		if (level == 0)
			continue;
		host_level_name(level, true, name);
		s = named_set(&k->b, FILTER_KEY_CGROUP_FLOW, name);
		s->level = (uint8_t)level;
		k->levels[level].pairs = s;
	}
}

static void base_sets(struct base *k)
{
	static const enum filter_role roles[] = { FILTER_ROLE_LEARNED,
						  FILTER_ROLE_DRAINING };
	struct builder *b = &k->b;

	/* Sets of addresses for each port list that a plan may have; first of all,
	 * because sets are found by walking their list. */
	for (size_t i = 0; i < PLAN_PORT_LISTS_MAX * ARRAY_SIZE(roles) * FAMILIES; i++)
		(void)ruleset_addrs(b, roles[i / FAMILIES / PLAN_PORT_LISTS_MAX],
				    i / FAMILIES % PLAN_PORT_LISTS_MAX, i % FAMILIES);
	k->current = named_map(b, FILTER_KEY_MARK, FILTER_VALUE_MARK, "current");
	k->plans = named_map(b, FILTER_KEY_PLAN, FILTER_VALUE_VERDICT, "plans");
	k->plans_nat = named_map(b, FILTER_KEY_PLAN, FILTER_VALUE_VERDICT, "plans_nat");
	k->sets.live = named_set(b, FILTER_KEY_MARKS, "live");
	k->sets.owns = named_set(b, FILTER_KEY_MARK_AND_FLOW, "owns");
	k->ids = named_set(b, FILTER_KEY_FLOW_MARK, "ids");
	k->orphans = named_map(b, FILTER_KEY_FLOW_MEMBER, FILTER_VALUE_MARK, "orphans");
	k->sets.rates = logged_set(b, FILTER_KEY_MEMBER, "rates", RATES_MAX);
	logged_set(b, FILTER_KEY_MEMBER, "asks", RATES_MAX);
	b->seen[V4] = counted_set(b, V4, FILTER_ROLE_SEEN, FILTER_SEEN_SEC);
	b->seen[V6] = counted_set(b, V6, FILTER_ROLE_SEEN, FILTER_SEEN_SEC);
	b->met[V4] = logged_set(b, FILTER_KEY_MARK_ADDR4, "met4", FILTER_COUNTED_MAX);
	b->met[V6] = logged_set(b, FILTER_KEY_MARK_ADDR6, "met6", FILTER_COUNTED_MAX);
	b->used[V4] = counted_set(b, V4, FILTER_ROLE_USED, FILTER_USED_SEC);
	b->used[V6] = counted_set(b, V6, FILTER_ROLE_USED, FILTER_USED_SEC);
	all_level_sets(k);
}

static void build_member(struct base *k)
{
	struct builder *b = &k->b;
	struct filter_chain *c = ruleset_plain_chain(b, "member");

	k->member = c;
	stmt_rule(b, c);
	stmt_add(b, FILTER_MARK_BY)->set = k->current;
	ruleset_rules(b, c, RULESET_FIRST);
	stmt_rule(b, c);
	stmt_go(b, FILTER_GOTO, b->dns_output);
}

/* Other chains see the packet before `output` does: it leaves here as it came. */
static void build_nat_member(struct base *k)
{
	struct builder *b = &k->b;
	struct filter_chain *c = ruleset_plain_chain(b, "nat_member");

	k->nat_member = c;
	stmt_rule(b, c);
	stmt_add(b, FILTER_MARK_BY)->set = k->current;
	stmt_rule(b, c);
	stmt_add(b, FILTER_GO_BY)->set = k->plans_nat;
	stmt_rule(b, c);
	stmt_add(b, FILTER_SET_MARK);
}

/* With the member as its mark, then @to, for the members of each level: those of the
 * deepest cgroup first, users last. */
static void for_members(struct base *k, struct filter_chain *c,
			const struct filter_chain *to)
{
	struct builder *b = &k->b;

	for (size_t level = HOST_LEVELS; level-- > 0;) {
		if (!k->levels[level].who)
			continue;
		stmt_rule(b, c);
		stmt_add(b, FILTER_MARK_BY)->set = k->levels[level].who;
		stmt_go(b, FILTER_GOTO, to);
	}
}

static void build_loopback(struct base *k)
{
	struct builder *b = &k->b;
	struct filter_chain *c = ruleset_plain_chain(b, "loopback");

	k->loopback = c;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_accept(b);
	/* Its first segment was looked at. Half-open sockets tell no cgroup. */
	stmt_rule(b, c);
	stmt_tcp_established(b);
	stmt_accept(b);
	for (size_t i = 0; i < HOST_LEVELS; i++) {
		if (!k->levels[i].pairs)
			continue;
		stmt_rule(b, c);
		stmt_add(b, FILTER_IN_SET)->set = k->levels[i].pairs;
		stmt_accept(b);
	}
	stmt_rule(b, c);
	stmt_add(b, FILTER_MARK_FROM_CT);
	stmt_refuse(b);
}

/* What would take up a member's connection. */
static void build_taken_up(struct base *k)
{
	struct builder *b = &k->b;
	struct filter_chain *reset = ruleset_plain_chain(b, "reset"), *c;

	stmt_rule(b, reset);
	end_taken_up(b);
	c = ruleset_plain_chain(b, "taken_up");
	k->taken_up = c;
	for_members(k, c, reset);
}

static void build_base_chains(struct base *k)
{
	struct builder *b = &k->b;
	struct filter_chain *c =
		ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT, true);

	for_members(k, c, k->nat_member);
	c = ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT, true);
	for_members(k, c, k->member);
	if (k->levels[0].who) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		stmt_equal(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
		stmt_add(b, FILTER_MARK_BY)->set = k->orphans;
		stmt_go(b, FILTER_GOTO, k->member);
		ruleset_roundabout(b, c, b->orphans);
	}
	c = ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN, true);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_IIF, LOOPBACK_INDEX);
	stmt_add(b, FILTER_IN_SET)->set = k->ids;
	stmt_go(b, FILTER_GOTO, k->loopback);
	rule_taken_up(b, c);
	stmt_go(b, FILTER_GOTO, k->taken_up);
}

bool host_chain_has_levels(const struct filter_chain *c)
{
	return strcmp(c->name, "nat") == 0 || strcmp(c->name, "output") == 0 ||
	       strcmp(c->name, "loopback") == 0 || strcmp(c->name, "taken_up") == 0;
}

/* Without a plan. */
static int begin(struct base *k, struct arena *arena)
{
	struct builder *b = &k->b;

	b->arena = arena;
	b->host = &k->sets;
	b->kind = RULESET_HOST;
	b->family_count = FAMILIES;
	b->direct_tcp = b->direct_udp = true; /* of some member */
	return ruleset_start(b, FILTER_NAMES_HOST, 0) ? 0 : -ENOMEM;
}

int host_build_base(const struct filter_host *h, struct arena *arena,
		    const struct ruleset **ret)
{
	struct base k = { .host = h };
	struct filter_chain *to_plan;
	int r = begin(&k, arena);

	if (r < 0)
		return r;
	base_sets(&k);
	ruleset_build_report(&k.b);
	ruleset_build_refuse(&k.b);
	ruleset_build_passed(&k.b);
	ruleset_build_open(&k.b);
	ruleset_build_related(&k.b);
	/* On to the plan of the packet's mark. */
	k.b.dns_output = to_plan = ruleset_plain_chain(&k.b, "to_plan");
	stmt_rule(&k.b, to_plan);
	stmt_add(&k.b, FILTER_GO_BY)->set = k.plans;
	stmt_rule(&k.b, to_plan);
	stmt_drop(&k.b);
	ruleset_build_port53(&k.b);
	ruleset_build_link(&k.b);
	ruleset_build_orphans(&k.b);
	build_member(&k);
	build_nat_member(&k);
	build_loopback(&k);
	build_taken_up(&k);
	build_base_chains(&k);
	ruleset_build_leaving(&k.b);
	if (k.b.failed)
		return -ENOMEM;
	*ret = k.b.rs;
	return 0;
}

int host_build_guard(const struct filter_host *h, struct arena *arena,
		     const struct ruleset **ret)
{
	struct base k = { .host = h };
	struct builder *b = &k.b;
	const struct filter_set *passed;
	struct filter_chain *c;
	int r = begin(&k, arena);

	if (r < 0)
		return r;
	all_level_sets(&k);
	passed = named_set(b, FILTER_KEY_FLOW_MARK, "passed");
	c = ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT, true);
	c->priority++; /* behind the table that gives flows their marks */
	stmt_rule(b, c);
	stmt_add(b, FILTER_IN_SET)->set = passed;
	stmt_add(b, FILTER_ACCEPT);
	for (size_t i = 0; i < HOST_LEVELS; i++) {
		if (!k.levels[i].who)
			continue;
		stmt_rule(b, c);
		stmt_add(b, FILTER_MARK_BY)->set = k.levels[i].who;
		stmt_drop(b);
	}
	if (b->failed)
		return -ENOMEM;
	*ret = b->rs;
	return 0;
}

/* ---- a plan's chains ---- */

/* Start a rule for what nat has sent to @port. */
static void nat_rule(struct builder *b, struct filter_chain *c, uint8_t protocol,
		     uint16_t port)
{
	stmt_rule(b, c);
	stmt_port(b, protocol, port);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
}

/* Weir's own listeners: the flow, or over UDP the packet, tells who it is. Nat alone
 * leads there; at other addresses somebody else may have that port. */
static void build_own_ports(struct builder *b, struct filter_chain *c)
{
	const uint32_t most = plan_limit(b->plan, LIMIT_QUERIES_PER_SECOND);

	/* All members ask at one socket over UDP: whoever asks more than the engine would
	 * answer, or tell of, must not fill that with it. */
	nat_rule(b, c, IPPROTO_UDP, b->dns_port);
	if (most <= ASKS_KNOWN_MAX) {
		struct filter_stmt *s = stmt_add(b, FILTER_LIMIT_EACH);

		s->set = b->host->asks;
		s->value = MAX(most * ASKS_TIMES, (uint32_t)ASKS_LEAST);
	}
	stmt_add(b, FILTER_ACCEPT);
	nat_rule(b, c, IPPROTO_UDP, b->dns_port);
	stmt_drop(b);
	nat_rule(b, c, IPPROTO_TCP, b->dns_port);
	stmt_mark_and_accept(b);
	if (b->relay_port == 0)
		return;
	if (b->relay) {
		nat_rule(b, c, IPPROTO_TCP, b->relay_port);
		stmt_mark_and_accept(b);
	}
	stmt_rule(b, c);
	stmt_port(b, IPPROTO_TCP, b->relay_port);
	stmt_refuse(b);
}

/* An address rule may name a listener of the host; the others are looked at when the
 * packet comes in. The flow has the member then, but no plan. */
static void owned_by_member(struct builder *b)
{
	stmt_add(b, FILTER_IN_SET)->set = b->host->owns_as_it_is;
}

static void watch_listener(struct builder *b)
{
	stmt_add(b, FILTER_CT_FROM_MARK)->mask = HOST_MEMBER_MASK;
	stmt_accept(b);
}

static const struct filter_chain *build_local(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "local");

	build_own_ports(b, c);
	ruleset_local_listeners(b, c);
	begins(b, c, watch_listener);
	ruleset_established(b, c, owned_by_member, stmt_accept);
	stmt_rule(b, c);
	stmt_refuse(b);
	return c;
}

/* Sets that change are the table's, and there already; all else gets the plan's number.
 */
static void make_own(struct builder *b, uint32_t number)
{
	for (struct filter_set **at = &b->rs->sets; *at;) {
		struct filter_set *s = *at;
		char name[FILTER_NAME_MAX];

		if (s->timeout || s->changes) {
			*at = s->next;
			continue;
		}
		snprintf(name, sizeof(name), "p%u_%.20s", number, s->name);
		memcpy(s->name, name, sizeof(name));
		at = &s->next;
	}
	for (struct filter_chain *c = b->rs->chains; c; c = c->next) {
		c->name = arena_printf(b->arena, "p%u_%s", number, c->name);
		b->failed |= !c->name;
	}
}

int host_build_plan(const struct filter_host *h, const struct host_plan *p,
		    struct arena *arena, const struct ruleset **ret, struct err *err)
{
	static const struct filter_set owns = { .name = "owns",
						.key = FILTER_KEY_MARK_AND_FLOW };
	static const struct filter_set asks = { .name = "asks",
						.key = FILTER_KEY_MEMBER,
						.timeout_sec = FILTER_SEEN_SEC };
	static const struct filter_set as_it_is = { .name = "owns",
						    .key = FILTER_KEY_MARKS };
	const struct ruleset_host sets = { .owns = &owns,
					   .owns_as_it_is = &as_it_is,
					   .asks = &asks };
	struct builder b = {
		.arena = arena,
		.plan = &p->plan,
		.host = &sets,
		.kind = RULESET_HOST,
		.dns_port = h->params.dns_port,
		.relay_port = h->params.relay_port,
		.relay = p->relay,
		.direct_tcp = !p->relay,
		.direct_udp = true,
		.family_count = FAMILIES,
		.refuse = &refuse_chain,
		.passed = &passed_chain,
		.related = &related_chain,
		.replies = &replies_chain,
	};
	struct filter_chain *c;
	int r = ruleset_begin(&b, FILTER_NAMES_HOST, FILTER_GENERATION_FIRST, err);

	if (r < 0)
		return r;
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	c = ruleset_plain_chain(&b, "nat");
	ruleset_nat(&b, c);
	b.local = build_local(&b);
	ruleset_build_ports(&b);
	ruleset_build_not_unicast(&b);
	c = ruleset_plain_chain(&b, "output");
	ruleset_rules(&b, c, RULESET_THEN);
	make_own(&b, p->number);
	return ruleset_end(&b, ret, err);
}
