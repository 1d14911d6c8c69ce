// SPDX-License-Identifier: Apache-2.0
#include "sandbox/verdict.h"

#include <string.h>

#include "base/special.h"
#include "sandbox/learned.h"

static struct relay_verdict deny(uint32_t rule, const char *reason)
{
	return (struct relay_verdict){ .rule = rule, .reason = reason };
}

/* @allowable: unless there were an allow rule for just this name and port. */
static struct relay_verdict deny_unless(bool allowable, uint32_t rule, const char *reason)
{
	return (struct relay_verdict){ .rule = rule,
				       .reason = reason,
				       .allowable = allowable };
}

static struct relay_verdict allow(uint32_t rule)
{
	return (struct relay_verdict){ .allowed = true, .rule = rule };
}

static struct relay_verdict allow_name(uint32_t rule, const struct dns_name *name,
				       bool taught)
{
	return (struct relay_verdict){
		.allowed = true, .rule = rule, .name = *name, .taught = taught
	};
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
		if (q->host_local)
			return q->shared ? "an address of the host"
					 : "an address of the host, which only a rule "
					   "for just this address opens";
		return NULL;
	}
}

/* The same, unless a rule opens it all the same. */
static const char *forbidding(const struct relay_question *q)
{
	const char *kind = forbidden_kind(q);

	return kind && !q->shared &&
			       plan_names_exactly(q->plan, &q->to.addr, IPPROTO_TCP,
						  q->to.port)
		       ? NULL
		       : kind;
}

/* May a name whose rule has @flags lead to this address at all? */
static bool name_may_lead_to(const struct relay_question *q, uint8_t flags)
{
	return plan_reaches(q->plan, flags, &q->to.addr, IPPROTO_TCP, q->to.port);
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

static struct relay_verdict verdict_names(const struct relay_question *q)
{
	struct learned_use uses[RELAY_VERDICT_NAMES_MAX];
	size_t n =
		learned_find(q->learned, &q->to.addr, q->now_ms, uses, ARRAY_SIZE(uses));
	uint32_t rule;

	for (size_t i = 0; i < n; i++)
		if (name_allows(q, &uses[i].name, &rule))
			return allow_name(rule, &uses[i].name, true);
	if (n > 0) {
		const struct plan_verdict v = plan_match_name(q->plan, &uses[0].name);

		return deny(v.rule, plan_reason(v, "not on this port, or its name is no "
						   "longer allowed"));
	}
	return deny_unless(true, PLAN_NO_RULE, "no rule allows it");
}

static struct plan_verdict match_addr(const struct relay_question *q)
{
	return plan_judge_addr(q->plan, &q->to.addr, IPPROTO_TCP, q->to.port);
}

/* Address rules first: a deny is absolute. Then names, then the default. */
static struct relay_verdict verdict_rules(const struct relay_question *q)
{
	struct plan_verdict v = match_addr(q);
	struct relay_verdict ret;

	if (v.rule != PLAN_NO_RULE)
		return v.action == POLICY_ALLOW
			       ? allow(v.rule)
			       : deny(v.rule,
				      plan_reason(v, "an address rule denies it"));
	if (v.flags & PLAN_SPENT)
		return deny(v.rule, plan_reason(v, ""));
	ret = verdict_names(q);
	if (ret.allowed || v.action != POLICY_ALLOW)
		return ret;
	if (!plan_port_list_has(q->plan, v.port_list, IPPROTO_TCP, q->to.port))
		return deny_unless(true, PLAN_NO_RULE, "a port that a rule has to name");
	return allow(PLAN_NO_RULE);
}

struct relay_verdict relay_verdict_of(const struct relay_question *q)
{
	struct relay_verdict ret = verdict_rules(q);
	const char *kind = ret.allowed ? forbidding(q) : NULL;

	/* The rule that is there opens it as little as the default action does. */
	if (kind && q->host_local && !q->shared)
		return deny_unless(true, PLAN_NO_RULE, kind);
	if (kind)
		return deny(ret.rule, kind);
	return ret;
}

/* @name may have no dot: then it was looked up below a search domain, for which it has a
 * rule. */
static bool has_taught(const struct relay_question *q, const struct dns_name *name)
{
	struct learned_use uses[RELAY_VERDICT_NAMES_MAX];
	size_t n = 0;

	if (learned_teaches(q->learned, name, &q->to.addr, q->now_ms))
		return true;
	if (name->labels == 1)
		n = learned_find(q->learned, &q->to.addr, q->now_ms, uses,
				 ARRAY_SIZE(uses));
	for (size_t i = 0; i < n; i++)
		if (memcmp(uses[i].name.bytes, name->bytes, name->bytes[0] + 1u) == 0 &&
		    plan_match_name(q->plan, &uses[i].name).flags & PLAN_COMPLETED)
			return true;
	return false;
}

/* @taught: the name had taught the address, whether or not it is learned just now. */
static struct relay_verdict verdict_name(const struct relay_question *q,
					 const struct plan_verdict *address,
					 const struct dns_name *name, bool taught)
{
	struct plan_verdict v = plan_match_name(q->plan, name);

	if (v.action != POLICY_ALLOW)
		return deny_unless((v.rule == PLAN_NO_RULE && !(v.flags & PLAN_SPENT)) ||
					   v.action == POLICY_ASK,
				   v.rule, plan_reason(v, "the name is not allowed"));
	if (!plan_port_list_has(q->plan, v.port_list, IPPROTO_TCP, q->to.port))
		return deny_unless(true, v.rule, "the rule does not list this port");
	taught = taught || has_taught(q, name);
	if (address->action == POLICY_ALLOW)
		return allow_name(v.rule, name, taught);
	if (!name_may_lead_to(q, v.flags))
		return deny(v.rule, addr_special_name(addr_special(&q->to.addr)));
	if (!taught)
		return deny(v.rule, "this address was not looked up for the name");
	return allow_name(v.rule, name, true);
}

/* May bytes that show nothing pass because @name's rule says so? */
static bool name_allows_bytes(const struct relay_question *q, const struct dns_name *name,
			      uint32_t *ret_rule)
{
	struct plan_verdict v = plan_match_name(q->plan, name);

	return name_allows(q, name, ret_rule) &&
	       plan_rule_names_port(q->plan, v.rule, IPPROTO_TCP, q->to.port) &&
	       plan_takes_bytes(v.flags, q->to.port);
}

static struct relay_verdict verdict_bytes(const struct relay_question *q,
					  const struct plan_verdict *address,
					  const struct dns_name *name, bool taught)
{
	struct learned_use uses[RELAY_VERDICT_NAMES_MAX];
	uint32_t rule;
	size_t n;

	if (address->action == POLICY_ALLOW &&
	    plan_takes_bytes(address->flags, q->to.port))
		return allow(address->rule);
	if (taught && name_allows_bytes(q, name, &rule))
		return allow_name(rule, name, true);
	n = learned_find(q->learned, &q->to.addr, q->now_ms, uses, ARRAY_SIZE(uses));
	for (size_t i = 0; i < n; i++)
		if (name_allows_bytes(q, &uses[i].name, &rule))
			return allow_name(rule, &uses[i].name, true);
	if (plan_is_web_port(q->to.port))
		return deny(PLAN_NO_RULE, "no name is shown; the rule needs raw: true");
	return deny_unless(true, PLAN_NO_RULE,
			   "no name is shown; the rule needs the port");
}

static struct relay_verdict verdict_shown(const struct relay_question *q,
					  enum relay_shown shown,
					  const struct dns_name *name, bool taught)
{
	struct plan_verdict address = match_addr(q);
	const char *kind = forbidding(q);

	if (address.action == POLICY_DENY && address.rule != PLAN_NO_RULE)
		return deny(address.rule,
			    plan_reason(address, "an address rule denies it"));
	if (kind)
		return deny(address.rule, kind);
	switch (shown) {
	case SHOWN_NAME:
		return verdict_name(q, &address, name, taught);
	case SHOWN_NO_NAME:
		if (address.action == POLICY_ALLOW && address.rule != PLAN_NO_RULE)
			return allow(address.rule);
		return deny(PLAN_NO_RULE, "no name is shown");
	case SHOWN_BYTES:
		return verdict_bytes(q, &address, name, taught);
	default:
		return deny(PLAN_NO_RULE, "nothing is shown");
	}
}

struct relay_verdict relay_verdict_shown(const struct relay_question *q,
					 enum relay_shown shown,
					 const struct dns_name *name,
					 const struct dns_name *opened_by)
{
	bool is_opener = opened_by->size > 0 && dns_name_equal(name, opened_by);

	if (shown == SHOWN_BYTES)
		return verdict_shown(q, shown, opened_by, opened_by->size > 0);
	return verdict_shown(q, shown, name, is_opener);
}

struct relay_verdict relay_verdict_sinkhole(const struct relay_question *q,
					    enum relay_shown shown,
					    const struct dns_name *name)
{
	struct plan_verdict v = { .rule = PLAN_NO_RULE };

	if (shown != SHOWN_NAME)
		return deny(PLAN_NO_RULE, "the address stands for denied names");
	v = plan_match_name(q->plan, name);
	if (v.action == POLICY_ALLOW)
		return deny(v.rule, "the name was denied when it was looked up");
	return deny_unless(v.rule == PLAN_NO_RULE || v.action == POLICY_ASK, v.rule,
			   "the name is not allowed");
}

struct relay_verdict relay_verdict_again(const struct relay_question *q,
					 enum relay_shown shown,
					 const struct dns_name *name, bool taught)
{
	struct plan_verdict v = match_addr(q);
	struct relay_verdict ret;
	uint32_t rule;

	if (plan_verify(q->plan) == POLICY_VERIFY_TLS && shown != SHOWN_NOTHING)
		return verdict_shown(q, shown, name, taught);
	ret = relay_verdict_of(q);
	if (ret.allowed || !taught || v.rule != PLAN_NO_RULE || forbidden_kind(q))
		return ret;
	/* What the name taught has expired: only the name speaks for it now. */
	return name_allows(q, name, &rule) ? allow_name(rule, name, true) : ret;
}

bool relay_verdict_other(const struct relay_question *q,
			 const struct relay_question *asked, enum relay_shown shown,
			 const struct dns_name *name)
{
	struct learned_use uses[RELAY_VERDICT_NAMES_MAX];
	size_t n;
	uint32_t rule;

	if (match_addr(asked).rule != PLAN_NO_RULE ||
	    !relay_verdict_again(q, shown, name, false).allowed || !has_taught(q, name) ||
	    !name_allows(q, name, &rule))
		return false;
	if (shown == SHOWN_NAME)
		return true;
	n = learned_find(asked->learned, &asked->to.addr, asked->now_ms, uses,
			 ARRAY_SIZE(uses));
	for (size_t i = 0; i < n; i++)
		if (name_allows(asked, &uses[i].name, &rule) &&
		    !has_taught(q, &uses[i].name))
			return false;
	return n < ARRAY_SIZE(uses);
}

/* ---- what a name may resolve to ---- */

const char *rebinding_fault(const struct plan *p, const struct plan_verdict *v,
			    const struct addr *a)
{
	enum addr_special kind = addr_special(a);

	if (plan_denies_addr(p, a))
		return "an address that a rule denies";
	if (plan_leads_to(v->flags, kind) ||
	    (kind != SPECIAL_INVALID && plan_names_addr(p, a)))
		return NULL;
	return addr_special_name(kind);
}

bool rebinding_teaches(const struct plan *p, const struct plan_verdict *v,
		       const struct addr *a)
{
	return (plan_leads_to(v->flags, addr_special(a)) && !plan_closes(p, a)) ||
	       plan_opens_list(p, a, v->port_list);
}
