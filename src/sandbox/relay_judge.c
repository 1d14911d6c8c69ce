// SPDX-License-Identifier: Apache-2.0
#include "sandbox/relay_judge.h"

#include <string.h>

#include "base/special.h"
#include "sandbox/learned.h"

static struct relay_judgement deny(uint32_t rule, const char *reason)
{
	return (struct relay_judgement){ .rule = rule, .reason = reason };
}

static struct relay_judgement allow(uint32_t rule, const struct dns_name *name)
{
	struct relay_judgement j = { .allowed = true, .rule = rule };

	if (name)
		j.name = *name;
	return j;
}

/* An address rule that is this one address, with this port: "127.0.0.1", "::1/128". The
 * plan's prefixes are merged, so only the rules as they were written can tell. */
static bool is_named_exactly(const struct relay_question *q)
{
	size_t count = plan_rule_count(q->plan);

	for (size_t i = 0; i < count; i++) {
		struct plan_rule rule = plan_rule(q->plan, i);
		struct prefix p;

		if (rule.action == POLICY_ALLOW &&
		    prefix_parse(rule.target, strlen(rule.target), false, &p) &&
		    p.bits == addr_size(&p.addr) * 8 &&
		    addr_equal(&p.addr, &q->to.addr) &&
		    plan_port_list_has(q->plan, rule.port_list, IPPROTO_TCP, q->to.port))
			return true;
	}
	return false;
}

/* What no name and no range opens: the machine itself, and what isn't one peer. */
static const char *forbidden_kind(const struct relay_question *q)
{
	struct addr v4;

	/* Dialling a mapped address would leave as IPv4, past the IPv4 rules. */
	if (q->to.addr.family == ADDR_V6 && addr_embedded_v4(&q->to.addr, &v4) &&
	    memcmp(q->to.addr.bytes, (const uint8_t[10]){ 0 }, 10) == 0)
		return "an IPv4 address in IPv6 form";
	switch (addr_special(&q->to.addr)) {
	case SPECIAL_INVALID:
	case SPECIAL_LOOPBACK:
	case SPECIAL_UNSPECIFIED:
	case SPECIAL_MULTICAST:
	case SPECIAL_BROADCAST:
		return addr_special_name(addr_special(&q->to.addr));
	default:
		return q->host_local ? "an address of the host" : NULL;
	}
}

/* May a name whose rule has @flags lead to this address at all? */
static bool name_may_lead_to(const struct relay_question *q, uint8_t flags)
{
	switch (addr_special(&q->to.addr)) {
	case SPECIAL_NOT:
		return true;
	case SPECIAL_METADATA:
		return plan_names_addr(q->plan, &q->to.addr);
	default:
		return flags & PLAN_PRIVATE || plan_names_addr(q->plan, &q->to.addr);
	}
}

static bool name_allows(const struct relay_question *q, const struct dns_name *name,
			uint32_t *ret_rule)
{
	struct plan_verdict v = plan_match_name(q->plan, name);

	if (v.action != POLICY_ALLOW || !name_may_lead_to(q, v.flags) ||
	    !plan_port_list_has(q->plan, v.port_list, IPPROTO_TCP, q->to.port))
		return false;
	*ret_rule = v.rule;
	return true;
}

static struct relay_judgement judge_names(const struct relay_question *q)
{
	struct learned_use uses[RELAY_JUDGE_NAMES_MAX];
	size_t n =
		learned_find(q->learned, &q->to.addr, q->now_ms, uses, ARRAY_SIZE(uses));
	uint32_t rule;

	for (size_t i = 0; i < n; i++)
		if (name_allows(q, &uses[i].name, &rule))
			return allow(rule, &uses[i].name);
	if (n > 0)
		return deny(plan_match_name(q->plan, &uses[0].name).rule,
			    "not on this port, or its name is no longer allowed");
	return deny(PLAN_NO_RULE, "no rule allows it");
}

/* Address rules first: a deny is absolute. Then names, then the default. */
static struct relay_judgement judge_rules(const struct relay_question *q)
{
	struct plan_verdict v =
		plan_match_addr(q->plan, &q->to.addr, IPPROTO_TCP, q->to.port);
	struct relay_judgement j;

	if (v.rule != PLAN_NO_RULE)
		return v.action == POLICY_ALLOW
			       ? allow(v.rule, NULL)
			       : deny(v.rule, "an address rule denies it");
	j = judge_names(q);
	if (j.allowed || v.action != POLICY_ALLOW)
		return j;
	if (!plan_port_list_has(q->plan, v.port_list, IPPROTO_TCP, q->to.port))
		return deny(PLAN_NO_RULE, "a port that a rule has to name");
	return allow(PLAN_NO_RULE, NULL);
}

struct relay_judgement relay_judge(const struct relay_question *q)
{
	const char *kind = forbidden_kind(q);
	struct relay_judgement j = judge_rules(q);

	if (j.allowed && kind && !is_named_exactly(q))
		return deny(j.rule, kind);
	return j;
}

struct relay_judgement relay_judge_again(const struct relay_question *q,
					 const struct dns_name *name)
{
	struct plan_verdict v =
		plan_match_addr(q->plan, &q->to.addr, IPPROTO_TCP, q->to.port);
	struct relay_judgement j = relay_judge(q);
	uint32_t rule;

	if (j.allowed || name->size == 0 || v.rule != PLAN_NO_RULE || forbidden_kind(q))
		return j;
	/* What the name taught has expired: only the name speaks for it now. */
	return name_allows(q, name, &rule) ? allow(rule, name) : j;
}
