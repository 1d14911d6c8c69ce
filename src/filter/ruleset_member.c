// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
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

static void report(struct builder *b, const char *prefix)
{
	struct filter_chain *c = ruleset_plain_chain(b, "report");

	b->report = c;
	if (!c)
		return;
	for (size_t i = 0; i < FAMILIES * PROTOCOLS; i++) {
		size_t f = i / PROTOCOLS;

		stmt_rule(b, c);
		stmt_equal(b, FILTER_NFPROTO, ruleset_families[f].nfproto);
		stmt_equal(b, FILTER_L4PROTO, ruleset_protocols[i % PROTOCOLS]);
		stmt_add(b, FILTER_FLOW_NEW)->set = b->seen[f];
		stmt_add(b, FILTER_FLOW_ADD)->set = b->seen[f];
		stmt_log(b, prefix);
		stmt_return(b);
	}
	stmt_rule(b, c);
	stmt_add(b, FILTER_LIMIT);
	stmt_log(b, prefix);
}

static void member_is(struct builder *b, const struct filter_member_params *p)
{
	if (p->cgroup)
		stmt_add(b, FILTER_IN_CGROUP)->cgroup = p->cgroup;
	else
		stmt_equal(b, FILTER_SKUID, p->uid);
}

/* Other listeners of the host are looked at when the packet comes in. */
static void local(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c = ruleset_plain_chain(b, "local");

	b->local = c;
	if (!c)
		return;
	ruleset_local_listeners(b, c);
	if (p->cgroup) {
		stmt_rule(b, c);
		stmt_add(b, FILTER_SET_CT_MARK)->value = p->mark;
		stmt_accept(b);
	}
	stmt_rule(b, c);
	stmt_refuse(b);
}

static const struct filter_chain *member(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "member");

	if (c)
		ruleset_rules(b, c, RULESET_WHOLE);
	return c;
}

static void output(struct builder *b, const struct filter_member_params *p,
		   const struct filter_chain *member)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);

	if (!c || !member)
		return;
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

static void input(struct builder *b, const struct filter_member_params *p)
{
	struct filter_chain *c =
		ruleset_base_chain(b, "input", FILTER_CHAIN_FILTER, NF_INET_LOCAL_IN);

	if (!c)
		return;
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
		.family_count = FAMILIES,
	};
	int r;

	if (params->cgroup && params->mark == 0)
		return err_set(err, -EINVAL, "cannot build the filter: no mark");
	r = ruleset_begin(&b, FILTER_NAMES_OWNED, FILTER_GENERATION_FIRST, err);
	if (r < 0)
		return r;
	report(&b, params->prefix);
	ruleset_build_refuse(&b);
	ruleset_build_dns(&b);
	ruleset_build_port53(&b);
	ruleset_build_link(&b);
	ruleset_build_several(&b);
	local(&b, params);
	if (!params->cgroup)
		ruleset_build_orphans(&b);
	output(&b, params, member(&b));
	if (params->cgroup)
		input(&b, params);
	return ruleset_end(&b, ret, err);
}
