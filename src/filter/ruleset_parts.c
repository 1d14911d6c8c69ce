// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_build.h"

#include <errno.h>
#include <netinet/in.h>

#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>

enum {
	PRIORITY_FILTER = 0,
	PRIORITY_NAT = -150,	  /* before Docker's */
	ASKS_TIMES = 2,		  /* what the engine answers */
	ASKS_LEAST = 1000,	  /* the self-test's are not counted there */
	ASKS_KNOWN_MAX = 1000000, /* over it: unlimited */
};

const uint8_t ruleset_protocols[PROTOCOLS] = { IPPROTO_TCP, IPPROTO_UDP };

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
	stmt_rule(b, chain);
	stmt_equal(b, FILTER_L4PROTO, protocol);
	stmt_in_set(b, FILTER_DPORT, ports);
	stmt_daddr_in(b, family, set);
	return true;
}

/* ---- chains ---- */

struct filter_chain *ruleset_plain_chain(struct builder *b, const char *name)
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

struct filter_chain *ruleset_base_chain(struct builder *b, const char *name,
					enum filter_chain_type type, uint32_t hook)
{
	struct filter_chain *c = ruleset_plain_chain(b, name);

	if (c) {
		c->type = type;
		c->hook = hook;
		c->priority = type == FILTER_CHAIN_NAT ? PRIORITY_NAT : PRIORITY_FILTER;
		c->accept = type == FILTER_CHAIN_NAT;
	}
	return c;
}

/* Start a rule for packets that have ports. */
static void flow_rule(struct builder *b, struct filter_chain *c, size_t family,
		      uint8_t protocol)
{
	stmt_rule(b, c);
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
	stmt_equal(b, FILTER_L4PROTO, protocol);
}

void ruleset_build_report(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "report");

	b->report = c;
	if (!c)
		return;
	for (size_t i = 0; i < FAMILIES * PROTOCOLS; i++) {
		size_t f = i / PROTOCOLS;

		flow_rule(b, c, f, ruleset_protocols[i % PROTOCOLS]);
		stmt_add(b, FILTER_FLOW_NEW)->set = b->seen[f];
		stmt_add(b, FILTER_FLOW_ADD)->set = b->seen[f];
		stmt_log(b, FILTER_PREFIX_REFUSED);
		stmt_return(b);
		if (!b->seen[f] || !b->seen[f]->counts)
			continue;
		flow_rule(b, c, f, ruleset_protocols[i % PROTOCOLS]);
		stmt_add(b, FILTER_FLOW_COUNT)->set = b->seen[f];
		stmt_return(b);
	}
	/* Who tries all ports of one address must not hide another one. */
	for (size_t f = 0; f < FAMILIES; f++) {
		stmt_rule(b, c);
		stmt_equal(b, FILTER_NFPROTO, ruleset_families[f].nfproto);
		stmt_add(b, FILTER_FLOW_NEW)->set = b->met[f];
		stmt_add(b, FILTER_FLOW_ADD)->set = b->met[f];
		stmt_log(b, FILTER_PREFIX_UNCOUNTED);
		stmt_return(b);
	}
	stmt_rule(b, c);
	if (b->host)
		stmt_add(b, FILTER_LIMIT_EACH)->set = b->host->rates;
	else
		stmt_add(b, FILTER_LIMIT);
	stmt_log(b, FILTER_PREFIX_UNCOUNTED);
}

void ruleset_build_passed(struct builder *b)
{
	struct filter_chain *c = b->used[V4] ? ruleset_plain_chain(b, "passed") : NULL;

	b->passed = c;
	for (size_t i = 0; c && i < b->family_count * PROTOCOLS; i++) {
		if (!ruleset_is_direct(b, ruleset_protocols[i % PROTOCOLS]))
			continue;
		flow_rule(b, c, i / PROTOCOLS, ruleset_protocols[i % PROTOCOLS]);
		stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL);
		stmt_add(b, FILTER_FLOW_COUNT)->set = b->used[i / PROTOCOLS];
		stmt_accept(b);
	}
	if (!c)
		return;
	stmt_rule(b, c);
	stmt_accept(b);
}

void ruleset_build_refuse(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "refuse");

	b->refuse = c;
	if (!c)
		return;
	stmt_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	stmt_go(b, FILTER_JUMP, b->report);
	ruleset_answer(b, c);
}

void ruleset_answer(struct builder *b, struct filter_chain *c)
{
	/* To a source that was made up an answer would leave, and carry what it quotes.
	 */
	stmt_rule(b, c);
	stmt_source_not_local(b);
	stmt_add(b, FILTER_DROP);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_L4PROTO, IPPROTO_TCP);
	stmt_add(b, FILTER_REJECT_RESET);
	stmt_rule(b, c);
	stmt_add(b, FILTER_REJECT_ADMIN);
}

/* ---- port 53 ---- */

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
	return b->exempt[V4] || b->exempt[V6];
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

/* Name servers that may be asked past the engine, whatever the policy denies: a list of
 * DoH resolvers has the common ones. */
static void exempt_dns(struct builder *b, struct filter_chain *c, stmt_ending *end)
{
	for (size_t f = 0; f < b->family_count; f++) {
		if (!b->exempt[f])
			continue;
		stmt_rule(b, c);
		stmt_daddr_in(b, f, b->exempt[f]);
		end(b);
	}
}

/* Both are reached for port 53 only. */
static void build_dns_nat(struct builder *b)
{
	struct filter_chain *nat = ruleset_plain_chain(b, "dns_nat");

	b->dns_nat = nat;
	if (!nat)
		return;
	exempt_dns(b, nat, stmt_return);
	ruleset_denied(b, nat, stmt_redirect_dns);
	opened_dns(b, nat, IPPROTO_TCP, b->relay ? stmt_redirect_relay : stmt_return);
	opened_dns(b, nat, IPPROTO_UDP, stmt_return);
	stmt_rule(b, nat);
	stmt_redirect_dns(b);
}

void ruleset_build_dns(struct builder *b)
{
	struct filter_chain *output;

	if (!any_opens_dns(b))
		return;
	if (!b->fixed)
		build_dns_nat(b);
	output = ruleset_plain_chain(b, "dns_output");
	b->dns_output = output;
	if (!output)
		return;
	exempt_dns(b, output, stmt_mark_and_accept);
	ruleset_denied(b, output, stmt_refuse);
	for (size_t p = 0; p < PROTOCOLS; p++)
		opened_dns(b, output, ruleset_protocols[p],
			   ruleset_is_direct(b, ruleset_protocols[p]) ? stmt_mark_and_pass
								      : NULL);
	stmt_rule(b, output);
	stmt_refuse(b);
}

void ruleset_nat_dns(struct builder *b, struct filter_chain *c)
{
	for (size_t p = 0; p < PROTOCOLS; p++) {
		stmt_rule(b, c);
		stmt_port(b, ruleset_protocols[p], FILTER_DNS_PORT);
		if (b->dns_nat)
			stmt_go(b, FILTER_GOTO, b->dns_nat);
		else
			stmt_redirect_dns(b);
	}
}

/* ---- what the plan says ---- */

void ruleset_denied(struct builder *b, struct filter_chain *c, stmt_ending *end)
{
	for (size_t f = 0; f < b->family_count; f++) {
		if (!b->deny[f])
			continue;
		stmt_rule(b, c);
		stmt_daddr_in(b, f, b->deny[f]);
		end(b);
	}
}

void ruleset_allowed_addrs(struct builder *b, struct filter_chain *c, uint8_t protocol,
			   stmt_ending *end)
{
	for (size_t i = 0; i < b->list_count; i++)
		for (size_t f = 0; f < b->family_count; f++)
			if (rule_for(b, c, protocol, i, f, b->lists[i].allow[f]))
				end(b);
}

bool ruleset_is_direct(const struct builder *b, uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? b->direct_tcp : b->direct_udp;
}

void ruleset_allowed(struct builder *b, struct filter_chain *c, uint8_t protocol,
		     stmt_ending *end)
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
		stmt_rule(b, c);
		stmt_equal(b, FILTER_NFPROTO, ruleset_families[f].nfproto);
		stmt_equal(b, FILTER_L4PROTO, protocol);
		stmt_in_set(b, FILTER_DPORT, ports_of(&b->lists[0], protocol));
		end(b);
	}
}

void ruleset_kept(struct builder *b, struct filter_chain *c, uint8_t protocol)
{
	for (size_t i = 0; i < b->list_count; i++) {
		for (size_t f = 0; f < b->family_count; f++) {
			if (!rule_for(b, c, protocol, i, f, b->lists[i].kept[f]))
				continue;
			stmt_has_bit(b, FILTER_CT_STATE, CT_STATE_ESTABLISHED);
			if (protocol == IPPROTO_TCP)
				stmt_tcp_goes_on(b);
			stmt_has_bit(b, FILTER_CT_MARK, GENERATION_MASK);
			if (b->host)
				stmt_add(b, FILTER_IN_SET)->set = b->host->owns;
			stmt_mark_and_pass(b);
		}
	}
}

/* ---- what nat has sent here ---- */

void ruleset_build_leaving(struct builder *b)
{
	struct filter_chain *c = ruleset_base_chain(b, "leaving", FILTER_CHAIN_FILTER,
						    NF_INET_POST_ROUTING);

	if (!c)
		return;
	c->accept = true;
	stmt_rule(b, c);
	stmt_not_equal(b, FILTER_OIF, LOOPBACK_INDEX);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
	stmt_local(b);
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
}

static void query_rule(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	stmt_port(b, IPPROTO_UDP, b->dns_port);
	stmt_has_bit(b, FILTER_CT_STATUS, IPS_DST_NAT);
}

void ruleset_queries(struct builder *b, struct filter_chain *c)
{
	const uint32_t most = plan_limit(b->plan, LIMIT_QUERIES_PER_SECOND);

	query_rule(b, c);
	if (most <= ASKS_KNOWN_MAX) {
		struct filter_stmt *s = stmt_add(b, FILTER_LIMIT_EACH);

		s->set = b->host->asks;
		s->value = MAX(most * ASKS_TIMES, (uint32_t)ASKS_LEAST);
	}
	stmt_add(b, FILTER_ACCEPT);
	query_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
}

/* ---- begin and end ---- */

int ruleset_begin(struct builder *b, enum filter_naming naming, uint16_t generation,
		  struct err *err)
{
	if (generation == 0)
		return err_set(err, -EINVAL, "cannot build the filter: generation 0");
	b->list_count = plan_port_list_count(b->plan);
	if (b->list_count > PLAN_PORT_LISTS_MAX)
		return err_set(err, -E2BIG, "cannot build the filter: %zu port lists",
			       b->list_count);
	b->rs = arena_alloc(b->arena, sizeof(*b->rs));
	if (!b->rs)
		return err_set(err, -ENOMEM, "cannot build the filter: out of memory");
	b->rs->naming = naming;
	b->rs->generation = generation;
	b->sets_end = &b->rs->sets;
	b->large_end = &b->rs->sets;
	b->chains_end = &b->rs->chains;
	ruleset_build_sets(b);
	return 0;
}

int ruleset_end(const struct builder *b, const struct ruleset **ret, struct err *err)
{
	if (b->failed)
		return err_set(err, -ENOMEM, "cannot build the filter: out of memory");
	*ret = b->rs;
	return 0;
}
