// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/special.h"
#include "dns/message.h"
#include "policy/layout.h"
#include "policy/plan.h"

const uint16_t plan_web_ports[PLAN_WEB_PORTS] = { 80, 443, 8000, 8080, 8443, 8888 };

bool plan_is_web_port(uint16_t port)
{
	for (size_t i = 0; i < ARRAY_SIZE(plan_web_ports); i++)
		if (plan_web_ports[i] == port)
			return true;
	return false;
}

size_t layout_labels(const struct dns_name *n, uint8_t ret[DNS_LABELS_MAX])
{
	size_t count = 0;

	for (size_t at = 0; at < n->size && n->bytes[at] != 0 && count < DNS_LABELS_MAX;
	     at += (size_t)n->bytes[at] + 1)
		ret[count++] = (uint8_t)at;
	return count;
}

static struct plan_verdict within_budget(const struct plan *p, struct plan_verdict v,
					 uint8_t budget)
{
	const bool all = plan_is_all_spent(p);

	if (v.action != POLICY_ALLOW || !(all || layout_is_spent(p, budget)))
		return v;
	v.action = POLICY_DENY;
	v.flags |= PLAN_SPENT;
	if (all)
		v.rule = PLAN_NO_RULE;
	return v;
}

static struct plan_verdict default_verdict(const struct plan *p)
{
	const struct plan_verdict v = {
		.action = layout_header(p)->default_action,
		.rule = PLAN_NO_RULE,
	};

	return within_budget(p, v, 0);
}

static struct plan_verdict rule_verdict(const struct plan *p, uint32_t rule)
{
	const struct layout_rule *r = layout_section(p, LAYOUT_RULES);
	const struct plan_verdict v = {
		.action = r[rule].action,
		.port_list = r[rule].port_list,
		.flags = r[rule].flags,
		.types = r[rule].types,
		.rule = rule,
	};

	return within_budget(p, v, r[rule].budget);
}

/* "1", "0x7f", "0x": a name that ends so is a way to write an IPv4 address, never a
 * host. No top-level domain looks like it. */
static bool label_is_number(const uint8_t *label)
{
	bool hex = label[0] >= 2 && label[1] == '0' && label[2] == 'x';

	for (size_t i = hex ? 3 : 1; i <= label[0]; i++) {
		if (hex ? text_hex_value((char)label[i]) < 0
			: label[i] < '0' || label[i] > '9')
			return false;
	}
	return true;
}

/* The slot of the suffix of @n that starts at @at, or NULL. */
static const struct layout_slot *slot_find(const struct plan *p, uint64_t hash,
					   const struct dns_name *n, size_t at)
{
	const struct layout_slot *slots = layout_section(p, LAYOUT_SLOTS);
	const uint8_t *names = layout_section(p, LAYOUT_NAMES);
	uint32_t count = layout_count(p, LAYOUT_SLOTS);
	uint32_t i = layout_slot_first(hash, count);
	uint32_t tag = (uint32_t)(hash >> 32);
	size_t size = n->size - at;

	for (; slots[i].name != 0; i = layout_slot_next(i, count)) {
		const uint8_t *entry = names + slots[i].name - 1;

		if (slots[i].tag == tag && entry[0] == size &&
		    memcmp(entry + 1, n->bytes + at, size) == 0)
			return &slots[i];
	}
	return NULL;
}

/* @rule, or the next one for the same name that isn't over. */
static uint32_t first_ahead(const struct plan *p, uint32_t rule, bool exact)
{
	const struct layout_next *next = layout_section(p, LAYOUT_NEXT);

	while (plan_rule_is_over(p, rule))
		rule = exact ? next[rule].exact : next[rule].below;
	return rule;
}

struct plan_verdict plan_match_name(const struct plan *p, const struct dns_name *name)
{
	const struct layout_header *h = layout_header(p);
	uint8_t labels[DNS_LABELS_MAX];
	size_t count = layout_labels(name, labels);
	uint32_t best = PLAN_NO_RULE;
	uint64_t hash = 0;

	if (count == 0)
		return (struct plan_verdict){ .rule = PLAN_NO_RULE };
	if (label_is_number(name->bytes + labels[count - 1]))
		return (struct plan_verdict){ .rule = PLAN_NO_RULE };
	for (size_t i = count; i-- > 0 && count - i <= h->labels_max;) {
		const struct layout_slot *s;

		hash = layout_hash_label(&h->key, hash, name->bytes + labels[i]);
		s = slot_find(p, hash, name, labels[i]);
		if (s)
			best = MIN(best,
				   first_ahead(p, i == 0 ? s->exact : s->below, i == 0));
	}
	if (best == PLAN_NO_RULE && h->every_name > 0)
		best = h->every_name - 1;
	return best == PLAN_NO_RULE ? default_verdict(p) : rule_verdict(p, best);
}

struct plan_verdict plan_match_below(const struct plan *p, const struct dns_name *name)
{
	struct dns_name below = { .size = (uint8_t)(name->size + 2),
				  .labels = (uint8_t)(name->labels + 1) };

	if (name->size + 2 > DNS_NAME_MAX)
		return (struct plan_verdict){ .rule = PLAN_NO_RULE };
	below.bytes[0] = 1; /* one label of one zero octet */
	memcpy(below.bytes + 2, name->bytes, name->size);
	return plan_match_name(p, &below);
}

/* The last entry that starts at or before @a: it, or one of its parents, holds @a,
 * or none does. Return: 1 + index, 0 for none. */
static uint32_t prefix_before(const struct plan *p, const struct addr *a)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);
	uint32_t low = 0, high = layout_count(p, LAYOUT_PREFIXES);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (addr_compare(&all[middle].prefix.addr, a) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct plan_verdict plan_match_addr(const struct plan *p, const struct addr *addr,
				    uint8_t protocol, uint16_t port)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);
	struct plan_verdict deny = { .rule = PLAN_NO_RULE }, allow = deny, ask = deny,
			    closed = deny;
	struct addr a = addr_unmapped(addr);
	uint8_t budget = 0;

	if (a.family == ADDR_NONE)
		return deny;
	for (uint32_t i = prefix_before(p, &a); i > 0; i = all[i - 1].parent) {
		const struct layout_prefix *x = &all[i - 1];
		const bool spent = layout_is_spent(p, x->budget);
		struct plan_verdict *v = x->action == PLAN_NOT_BY_DEFAULT      ? &closed
					 : x->action == POLICY_ASK	       ? &ask
					 : x->action == POLICY_ALLOW && !spent ? &allow
									       : &deny;

		if (!prefix_contains(&x->prefix, &a) || layout_is_over(p, x->end))
			continue;
		if ((v == &allow || v == &ask) && port != 0 &&
		    !plan_port_list_has(p, x->port_list, protocol, port))
			continue;
		/* Every allow that holds counts, so their flags add up. The narrowest
		 * with a budget is who pays. */
		v->flags |= x->flags | (spent ? PLAN_SPENT : 0);
		if (v == &allow && budget != 0)
			continue;
		if (v->rule > x->rule || (v == &allow && x->budget != 0)) {
			v->rule = x->rule;
			v->action = spent || v == &closed ? POLICY_DENY : x->action;
			v->port_list = x->port_list;
		}
		if (v == &allow)
			budget = x->budget;
	}
	if (deny.rule != PLAN_NO_RULE)
		return deny;
	if (allow.rule != PLAN_NO_RULE)
		return within_budget(p, allow, 0);
	if (ask.rule != PLAN_NO_RULE)
		return ask;
	if (closed.rule != PLAN_NO_RULE)
		return closed;
	allow = default_verdict(p);
	/* The default opens the default list and no other port. */
	if (port != 0 && !plan_port_list_has(p, 0, protocol, port))
		allow.action = POLICY_DENY;
	return allow;
}

uint8_t plan_type_bit(uint16_t type)
{
	switch (type) {
	case DNS_TYPE_PTR:
		return PLAN_TYPE_PTR;
	case DNS_TYPE_SRV:
		return PLAN_TYPE_SRV;
	case DNS_TYPE_TXT:
		return PLAN_TYPE_TXT;
	case DNS_TYPE_MX:
		return PLAN_TYPE_MX;
	default:
		return 0;
	}
}

bool plan_serves_type(uint8_t types, uint16_t type)
{
	return type == DNS_TYPE_A || type == DNS_TYPE_AAAA || types & plan_type_bit(type);
}

static bool allows_reverse(const struct plan *p, const struct dns_name *name,
			   struct plan_verdict *ret)
{
	struct plan_verdict v;
	struct addr a;

	if (!dns_name_to_reverse_addr(name, &a))
		return false;
	v = plan_match_addr(p, &a, IPPROTO_TCP, 0);
	if (v.action != POLICY_ALLOW || v.rule == PLAN_NO_RULE)
		return false;
	v.types = plan_rule(p, v.rule).types;
	*ret = v;
	return v.types & PLAN_TYPE_PTR;
}

struct plan_verdict plan_match_query(const struct plan *p, const struct dns_name *name,
				     uint16_t type)
{
	struct plan_verdict v;

	if (type == DNS_TYPE_PTR && allows_reverse(p, name, &v))
		return v;
	return dns_name_is_host(name) ? plan_match_name(p, name)
				      : (struct plan_verdict){ .rule = PLAN_NO_RULE };
}

bool plan_denies_addr(const struct plan *p, const struct addr *a)
{
	struct plan_verdict v = plan_match_addr(p, a, IPPROTO_TCP, 0);
	struct addr inner;

	if (v.action == POLICY_DENY && v.rule != PLAN_NO_RULE)
		return true;
	return addr_embedded_v4(a, &inner) && plan_denies_addr(p, &inner);
}

static bool allows_now(const struct plan *p, const struct layout_prefix *x)
{
	return x->action == POLICY_ALLOW && !layout_is_over(p, x->end) &&
	       !layout_is_spent(p, x->budget) && !plan_is_all_spent(p);
}

bool plan_names_addr(const struct plan *p, const struct addr *addr)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);
	struct addr a = addr_unmapped(addr);

	for (uint32_t i = prefix_before(p, &a); i > 0; i = all[i - 1].parent)
		if (allows_now(p, &all[i - 1]) && prefix_contains(&all[i - 1].prefix, &a))
			return true;
	return false;
}

bool plan_opens_addr(const struct plan *p, const struct addr *a, uint8_t protocol,
		     uint16_t port)
{
	const struct plan_verdict v = plan_match_addr(p, a, protocol, port);

	return v.action == POLICY_ALLOW && v.rule != PLAN_NO_RULE;
}

static bool list_holds(const struct plan *p, uint8_t list,
		       const struct plan_port_range *wanted)
{
	size_t count;
	const struct plan_port_range *r = plan_port_list(p, list, &count);

	for (size_t i = 0; i < count; i++)
		if (r[i].protocol == wanted->protocol && r[i].from <= wanted->from &&
		    r[i].to >= wanted->to)
			return true;
	return false;
}

/* One rule alone opens the whole range: rules that open it together don't count. */
static bool opens_range(const struct plan *p, const struct addr *a,
			const struct plan_port_range *wanted)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);

	for (uint32_t i = prefix_before(p, a); i > 0; i = all[i - 1].parent)
		if (allows_now(p, &all[i - 1]) &&
		    prefix_contains(&all[i - 1].prefix, a) &&
		    list_holds(p, all[i - 1].port_list, wanted))
			return true;
	return false;
}

bool plan_opens_list(const struct plan *p, const struct addr *addr, uint8_t list)
{
	struct addr a = addr_unmapped(addr);
	size_t count;
	const struct plan_port_range *r = plan_port_list(p, list, &count);

	for (size_t i = 0; i < count; i++)
		if (!opens_range(p, &a, &r[i]))
			return false;
	return count > 0;
}

bool plan_names_exactly(const struct plan *p, const struct addr *addr, uint8_t protocol,
			uint16_t port)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);

	for (uint32_t i = prefix_before(p, addr); i > 0; i = all[i - 1].parent) {
		const struct prefix *x = &all[i - 1].prefix;

		if (x->bits == addr_size(addr) * 8 && addr_equal(&x->addr, addr) &&
		    allows_now(p, &all[i - 1]) &&
		    plan_port_list_has(p, all[i - 1].port_list, protocol, port))
			return true;
	}
	return false;
}
