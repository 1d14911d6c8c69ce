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
 *     egress  the steps of rules.c. Flows of Weir's own carry a mark of their own, by
 *             which the kernel's last segments of a closed connection are known; no
 *             generation is in it, so nothing else of such a flow passes. Mark and uid
 *             without the port: reported and dropped
 *     input   accepts, but what comes over loopback comes from a local address
 *     leaving what nat has sent to a local address leaves by no link
 *     forward nothing
 *
 * With redirect_only all that the first steps don't refuse passes. Without a mark nothing
 * of Weir's lives in the namespace (`weir daemon`): nothing is exempt or held. */
#include "filter/ruleset_build.h"

#include <errno.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>

/* ---- Weir's own ---- */

/* Start a rule for packets of @family. */
static void family_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
}

/* Start a rule for the packets of Weir's own sockets; their mark was seen. */
static void own_rule(struct builder *b, struct filter_chain *c, size_t family)
{
	family_rule(b, c, family);
	stmt_equal(b, FILTER_SKUID, b->shared->uid);
	stmt_held(b, family, FILTER_SPORT);
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
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
	return c;
}

void ruleset_jump_if_own(struct builder *b, struct filter_chain *c,
			 const struct filter_chain *own)
{
	if (!own)
		return;
	stmt_rule(b, c);
	stmt_equal(b, FILTER_MARK, b->shared->mark);
	stmt_go(b, FILTER_JUMP, own);
}

/* ---- base chains ---- */

static void build_nat(struct builder *b, const struct filter_chain *own)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "nat", FILTER_CHAIN_NAT, NF_INET_LOCAL_OUT);

	if (!c)
		return;
	ruleset_jump_if_own(b, c, own);
	ruleset_nat_dns(b, c);
	if (!b->relay)
		return;
	stmt_rule(b, c);
	stmt_local(b);
	stmt_return(b);
	ruleset_https(b, c, stmt_return);
	ruleset_denied(b, c, stmt_return);
	ruleset_allowed(b, c, IPPROTO_TCP, stmt_redirect_relay);
}

static void build_egress(struct builder *b)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "egress", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

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
		.kind = params->redirect_only ? RULESET_REDIRECT : RULESET_SHARED,
		.shared = params,
		.dns_port = params->dns_port,
		.relay_port = params->relay_port,
		.relay = params->relay && !params->redirect_only,
		.direct_tcp = !params->relay,
		.direct_udp = true,
		.family_count = FAMILIES,
	};
	const struct filter_chain *own_nat = NULL;
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
	if (ruleset_has_own(&b)) {
		b.own = build_own(&b);
		own_nat = build_own_nat(&b);
	}
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	ruleset_build_link(&b);
	ruleset_build_several(&b);
	build_nat(&b, own_nat);
	build_egress(&b);
	build_input(&b);
	ruleset_build_leaving(&b);
	ruleset_base_chain(&b, "forward", FILTER_CHAIN_FILTER, NF_INET_FORWARD);
	return ruleset_end(&b, ret, err);
}
