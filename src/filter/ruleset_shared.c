// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A namespace that somebody else made: the app runs in it, Weir's own processes do, and
 * perhaps Docker's resolver, which listens on 127.0.0.11. Addresses and links are real,
 * and others may dial in. Sets are as in ruleset.c, under OpenSandbox's names, and
 *
 *     held_v4      protocol . port of Weir's own sockets, bound and told of beforehand
 *     kept_v4      addresses that have expired; open flows to them go on
 *     exempt_v4    name servers that the app may ask by itself
 *     doh_block_v4 closed on port 443
 *
 * A large set of ranges is loaded beside the one that stands (filter_stage()), so the two
 * have different names: those of even generations end with _b.
 *
 *     nat     as in ruleset.c, but Weir's own packets go as they are
 *     egress  1. Weir's own packets: mark, uid and a held port. Their flows carry a
 *                mark of their own, by which the kernel's last segments of a closed
 *                connection are known; no generation is in it, so nothing else of such
 *                a flow passes. Mark and uid without the port: reported and dropped
 *             2. Docker's resolver, and port 53: closed, before any open flow. What was
 *                redirected goes to another port by now, so port 53 of a local address
 *                is a tuple that was known before
 *                to local addresses by another link than loopback: closed
 *             3. established flows that carry this policy's generation
 *             4. what the kernel says on the link to neighbours and routers; the same
 *                from a program is refused, it would carry data
 *             5. ICMP errors and resets of the kernel
 *             6. a source that isn't local: made by hand, it would begin a flow whose
 *                other direction passes here; then replies to those who dial in
 *             7. local addresses, but not the held ports: an answer that comes from
 *                here was forged
 *             8. resolvers on port 443, deny sets, kept, allow and learned sets, default
 *             9. refuse
 *     input   accepts, but what comes over loopback comes from a local address
 *     leaving what nat has sent to a local address leaves by no link
 *     forward nothing
 *
 * With redirect_only all that gets past 2 passes. Without a mark nothing of Weir's lives
 * in the namespace (`weir daemon`), and 1 and the held ports are left out. */
#include "filter/ruleset_build.h"

#include <errno.h>
#include <netinet/tcp.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/rtnetlink.h>

enum {
	OWN_FLOW = 1 << 16, /* in the conntrack mark, above the generation */
	HTTPS_PORT = 443,
	DOCKER_RESOLVER = 0x7f00000b, /* 127.0.0.11 */
	ICMPV6_LINK_FIRST = 130,      /* MLD, routers, neighbours, redirects */
	ICMPV6_LINK_LAST = 137,
	ICMPV6_MLD_LAST = 132,
	ICMPV6_ROUTER_SOLICITATION = 133,
	ICMPV6_MLD2 = 143,
	/* Of a report: options, header, four groups. And so many a second. */
	MLD_LENGTH_MAX = 8 + 8 + 4 * 20,
	MLD_PER_SEC = 1,
};

/* ---- Weir's own ---- */

/* Weir's processes live in here. Without them there is nobody to exempt: the mark alone,
 * which would be 0, means nothing. */
static bool has_own(const struct builder *b)
{
	return b->shared->mark != 0;
}

/* Start a rule for packets of @family. */
static void family_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
}

/* @port, source or destination, is one that is held. */
static void is_held(struct builder *b, size_t family, enum filter_field port)
{
	struct filter_stmt *s = stmt_add(b, FILTER_PORT_IN_SET);

	s->field = port;
	s->set = b->held[family];
}

/* Start a rule for the packets of Weir's own sockets; their mark was seen. */
static void own_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	family_rule(b, c, family);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	is_held(b, family, FILTER_SPORT);
}

static const struct filter_chain *build_own_nat(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "own_nat");

	for (size_t f = 0; c && f < FAMILIES; f++) {
		own_rule(b, c, f);
		stmt_accept(b);
	}
	return c;
}

static const struct filter_chain *build_own(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "own");

	if (!c)
		return NULL;
	for (size_t f = 0; f < FAMILIES; f++) {
		own_rule(b, c, f);
		stmt_add(b, FILTER_SET_CT_MARK)->value = OWN_FLOW;
		stmt_accept(b);
	}
	/* The end of a connection whose port was let go: marked as its socket was. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
	stmt_has_bit(b, FILTER_CT_MARK, OWN_FLOW);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_add(b, FILTER_LIMIT);
	stmt_log(b, FILTER_PREFIX_IMITATES);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
	return c;
}

static void jump_if_own(struct builder *b, struct filter_chain *c,
			const struct filter_chain *own)
{
	if (!own)
		return;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_MARK, b->shared->mark);
	stmt_go(b, FILTER_JUMP, own);
}

/* To segments that come after a connection's end the kernel answers without a mark. */
static void build_own_resets(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_has_bit(b, FILTER_CT_MARK, OWN_FLOW);
	stmt_has_bit(b, FILTER_TCP_FLAGS, TH_RST);
	stmt_accept(b);
}

/* Nobody here has anything to say to those sockets: it would be a forged answer. */
static void build_forged_answers(struct builder *b, struct filter_chain *c)
{
	for (size_t f = 0; has_own(b) && f < FAMILIES; f++) {
		family_rule(b, c, f);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		is_held(b, f, FILTER_DPORT);
		stmt_local(b);
		stmt_refuse(b);
	}
}

/* ---- resolvers ---- */

static void build_resolvers(struct builder *b, struct filter_chain *c)
{
	const struct filter_chain *dns = b->dns_output ? b->dns_output : b->refuse;

	stmt_rule(b, c);
	stmt_equal(b, FILTER_NFPROTO, NFPROTO_IPV4);
	stmt_equal(b, FILTER_DADDR4, DOCKER_RESOLVER);
	stmt_refuse(b);
	/* Who sends from there would make a flow that Weir's question is then the reply
	 * of: it would pass by Docker's nat, to him. Docker only answers from there. */
	stmt_rule(b, c);
	stmt_equal(b, FILTER_NFPROTO, NFPROTO_IPV4);
	stmt_equal(b, FILTER_SADDR4, DOCKER_RESOLVER);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
	stmt_refuse(b);
	for (size_t p = 0; p < PROTOCOLS; p++) {
		stmt_rule(b, c);
		stmt_port(b, ruleset_protocols[p], FILTER_DNS_PORT);
		stmt_not_local(b);
		stmt_go(b, FILTER_GOTO, dns);
		/* Answers to a client that asks from port 53 are replies. */
		stmt_rule(b, c);
		stmt_port(b, ruleset_protocols[p], FILTER_DNS_PORT);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		stmt_go(b, FILTER_GOTO, dns);
	}
}

/* Port 443 that is closed whatever the policy says. */
static void build_https(struct builder *b, struct filter_chain *c, stmt_ending *end)
{
	for (size_t p = 0; p < PROTOCOLS; p++) {
		if (b->shared->refuse_443) {
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

/* ---- base chains ---- */

static void build_nat(struct builder *b, const struct filter_chain *own)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	jump_if_own(b, c, own);
	ruleset_nat_dns(b, c);
	if (!b->relay)
		return;
	stmt_rule(b, c);
	stmt_local(b);
	stmt_return(b);
	build_https(b, c, stmt_return);
	ruleset_denied(b, c, stmt_return);
	ruleset_allowed(b, c, IPPROTO_TCP, stmt_redirect_relay);
}

/* What the kernel says by itself. Which groups it is a member of is the app's to choose,
 * 16 bytes each, for the neighbours to read: switches want to hear of those that
 * neighbour discovery needs, which are few. */
static void build_chatter(struct builder *b, struct filter_chain *c)
{
	static const uint8_t types[][2] = { { ICMPV6_LINK_FIRST, ICMPV6_MLD_LAST },
					    { ICMPV6_MLD2, ICMPV6_MLD2 } };

	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
	stmt_equal(b, FILTER_ICMP_TYPE, ICMPV6_ROUTER_SOLICITATION);
	stmt_accept(b);
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_NFPROTO, NFPROTO_IPV6);
		stmt_equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
		stmt_between(b, FILTER_ICMP_TYPE, types[i][0], types[i][1]);
		stmt_between(b, FILTER_LENGTH6, 0, MLD_LENGTH_MAX);
		stmt_add(b, FILTER_LIMIT)->value = MLD_PER_SEC;
		stmt_accept(b);
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
		stmt_between(b, FILTER_ICMP_TYPE, types[i][0], types[i][1]);
		stmt_add(b, FILTER_COUNTER);
		stmt_add(b, FILTER_DROP);
	}
}

static void build_link(struct builder *b, struct filter_chain *c)
{
	static const struct {
		uint8_t from, to;
	} types[] = {
		{ ICMPV6_LINK_FIRST, ICMPV6_LINK_LAST },
		{ ICMPV6_MLD2, ICMPV6_MLD2 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_L4PROTO, IPPROTO_ICMPV6);
		stmt_between(b, FILTER_ICMP_TYPE, types[i].from, types[i].to);
		stmt_by_a_program(b);
		stmt_refuse(b);
	}
	ruleset_neighbours(b, c);
	build_chatter(b, c);
}

static void build_policy(struct builder *b, struct filter_chain *c)
{
	build_https(b, c, stmt_refuse);
	ruleset_denied(b, c, stmt_refuse);
	for (size_t p = 0; p < PROTOCOLS; p++) {
		if (!ruleset_is_direct(b, ruleset_protocols[p]))
			continue;
		ruleset_allowed(b, c, ruleset_protocols[p], stmt_mark_and_pass);
		ruleset_kept(b, c, ruleset_protocols[p]);
	}
	ruleset_ping(b, c);
	stmt_rule(b, c);
	stmt_refuse(b);
}

static void build_egress(struct builder *b, const struct filter_chain *own)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "egress", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	c->generation = b->rs->generation;
	jump_if_own(b, c, own);
	if (own)
		build_own_resets(b, c);
	build_resolvers(b, c);
	if (b->shared->redirect_only) {
		build_forged_answers(b, c);
		stmt_rule(b, c);
		stmt_accept(b);
		return;
	}
	ruleset_straight(b, c);
	ruleset_bound(b, c);
	ruleset_established(b, c);
	build_link(b, c);
	ruleset_related_kernel(b, c);
	ruleset_replies(b, c);
	build_forged_answers(b, c);
	ruleset_local(b, c);
	build_policy(b, c);
}

static void build_input(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);

	if (!c)
		return;
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
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
}

int ruleset_build_shared(const struct plan *plan,
			 const struct filter_shared_params *params, struct arena *arena,
			 const struct ruleset **ret, struct err *err)
{
	struct builder b = {
		.arena = arena,
		.plan = plan,
		.shared = params,
		.dns_port = params->dns_port,
		.relay_port = params->relay_port,
		.relay = params->relay && !params->redirect_only,
		.direct_tcp = !params->relay,
		.direct_udp = true,
		.family_count = FAMILIES,
	};
	const struct filter_chain *own = NULL, *own_nat = NULL;
	int r;

	if (params->dns_port == 0 || params->dns_port == FILTER_DNS_PORT ||
	    (b.relay && params->relay_port == 0))
		return err_set(err, -EINVAL,
			       "cannot build the filter: without a port of its own");
	r = ruleset_begin(&b, FILTER_NAMES_SHARED, params->generation, err);
	if (r < 0)
		return r;
	ruleset_build_report(&b);
	ruleset_build_refuse(&b);
	ruleset_build_passed(&b);
	if (has_own(&b)) {
		own = build_own(&b);
		own_nat = build_own_nat(&b);
	}
	ruleset_build_dns(&b);
	build_nat(&b, own_nat);
	build_egress(&b, own);
	build_input(&b);
	ruleset_build_leaving(&b);
	ruleset_base_chain(&b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
	return ruleset_end(&b, ret, err);
}
