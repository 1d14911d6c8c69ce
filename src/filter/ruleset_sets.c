// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_build.h"

#include <stdio.h>
#include <string.h>

const struct family ruleset_families[FAMILIES] = {
	[V4] = { '4', NFPROTO_IPV4, ADDR_V4, FILTER_DADDR4, FILTER_KEY_ADDR4,
		 FILTER_KEY_FLOW4 },
	[V6] = { '6', NFPROTO_IPV6, ADDR_V6, FILTER_DADDR6, FILTER_KEY_ADDR6,
		 FILTER_KEY_FLOW6 },
};

static struct filter_set *new_set(struct builder *b, enum filter_key key)
{
	struct filter_set *s = arena_alloc(b->arena, sizeof(*s));

	if (!s) {
		b->failed = true;
		return NULL;
	}
	s->key = key;
	*b->sets_end = s;
	b->sets_end = &s->next;
	return s;
}

/* An unchanging set of @count ranges; NULL when there are none. */
static struct filter_set *range_set(struct builder *b, enum filter_key key,
				    struct filter_range *ranges, size_t count)
{
	struct filter_set *s = count > 0 ? new_set(b, key) : NULL;

	if (s) {
		s->ranges = ranges;
		s->range_count = filter_ranges_merge(ranges, count, filter_key_size(key));
	}
	return s;
}

static struct filter_range port_range(uint16_t from, uint16_t to)
{
	return (struct filter_range){
		.from = { (uint8_t)(from >> 8), (uint8_t)from },
		.to = { (uint8_t)(to >> 8), (uint8_t)to },
	};
}

static const struct filter_set *build_ports(struct builder *b, size_t list,
					    uint8_t protocol)
{
	size_t count, used = 0;
	const struct plan_port_range *from = plan_port_list(b->plan, list, &count);
	struct filter_range *ranges = arena_array(b->arena, count + 1, sizeof(*ranges));
	struct filter_set *s;

	if (!ranges) {
		b->failed = true;
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		if (from[i].protocol == protocol)
			ranges[used++] = port_range(from[i].from, from[i].to);
	s = range_set(b, FILTER_KEY_PORT, ranges, used);
	if (s)
		snprintf(s->name, sizeof(s->name), "%s_%zu",
			 protocol == IPPROTO_TCP ? "tcp" : "udp", list);
	return s;
}

static struct filter_range prefix_range(const struct prefix *p)
{
	struct filter_range r = { 0 };
	size_t size = addr_size(&p->addr);

	for (size_t i = 0; i < size; i++) {
		unsigned int fixed = p->bits > 8 * i ? MIN(p->bits - 8 * i, 8u) : 0;
		uint8_t host = (uint8_t)(0xff >> fixed);

		r.from[i] = p->addr.bytes[i] & (uint8_t)~host;
		r.to[i] = p->addr.bytes[i] | host;
	}
	return r;
}

/* Which address rules a set gathers; the list of a deny doesn't matter. */
struct selection {
	enum policy_action action;
	size_t list;
	enum addr_family family;
};

static bool selects(const struct selection *s, const struct plan_prefix *p)
{
	bool allows = p->action == POLICY_ALLOW;

	return p->prefix.addr.family == s->family &&
	       allows == (s->action == POLICY_ALLOW) &&
	       (!allows || p->port_list == s->list);
}

/* Prefix @i of the plan's and then of those that the parameters close. */
static struct plan_prefix prefix_at(const struct builder *b, size_t i)
{
	size_t planned = plan_prefix_count(b->plan);

	if (i < planned)
		return plan_prefix(b->plan, i);
	return (struct plan_prefix){ .prefix = b->params->closed[i - planned],
				     .action = POLICY_DENY };
}

static struct filter_set *build_prefixes(struct builder *b, const struct selection *s)
{
	size_t total = plan_prefix_count(b->plan) + b->params->closed_count;
	size_t count = 0, used = 0;
	struct filter_range *ranges;

	for (size_t i = 0; i < total; i++) {
		struct plan_prefix p = prefix_at(b, i);

		count += selects(s, &p);
	}
	if (count == 0)
		return NULL;
	ranges = arena_array(b->arena, count, sizeof(*ranges));
	if (!ranges) {
		b->failed = true;
		return NULL;
	}
	for (size_t i = 0; i < total; i++) {
		struct plan_prefix p = prefix_at(b, i);

		if (selects(s, &p))
			ranges[used++] = prefix_range(&p.prefix);
	}
	return range_set(b, s->family == ADDR_V4 ? FILTER_KEY_ADDR4 : FILTER_KEY_ADDR6,
			 ranges, used);
}

static const struct filter_set *build_allow(struct builder *b, size_t list, size_t family)
{
	struct selection sel = { POLICY_ALLOW, list, ruleset_families[family].addr };
	struct filter_set *s = build_prefixes(b, &sel);

	if (s)
		snprintf(s->name, sizeof(s->name), "allow%c_%zu",
			 ruleset_families[family].digit, list);
	return s;
}

static const struct filter_set *build_deny(struct builder *b, size_t family)
{
	struct selection sel = { POLICY_DENY, 0, ruleset_families[family].addr };
	struct filter_set *s = build_prefixes(b, &sel);

	if (s)
		snprintf(s->name, sizeof(s->name), "deny%c",
			 ruleset_families[family].digit);
	return s;
}

static const struct filter_set *build_learned(struct builder *b, size_t list,
					      size_t family)
{
	struct filter_set *s = new_set(b, ruleset_families[family].key);

	if (s) {
		s->timeout = true;
		snprintf(s->name, sizeof(s->name), "learned%c_%zu",
			 ruleset_families[family].digit, list);
	}
	return s;
}

static const struct filter_set *build_seen(struct builder *b, size_t family)
{
	struct filter_set *s = new_set(b, ruleset_families[family].flow);

	if (s) {
		s->timeout = true;
		s->dynamic = true;
		s->timeout_sec = FILTER_SEEN_SEC;
		s->size = FILTER_SEEN_MAX;
		snprintf(s->name, sizeof(s->name), "seen%c",
			 ruleset_families[family].digit);
	}
	return s;
}

/* The port lists that an answer for a name can select: bit i is list i. List 0 is
 * always among them: the self-test and the default action use it. */
static uint32_t name_lists(const struct plan *plan)
{
	uint32_t lists = 1;

	for (size_t i = 0; i < plan_rule_count(plan); i++) {
		struct plan_rule r = plan_rule(plan, i);
		struct prefix ignored;

		if (r.action == POLICY_ALLOW && r.port_list < PLAN_PORT_LISTS_MAX &&
		    !prefix_parse(r.target, strlen(r.target), true, &ignored))
			lists |= UINT32_C(1) << r.port_list;
	}
	return lists;
}

static void build_list(struct builder *b, size_t i, bool learned)
{
	struct list_sets *l = &b->lists[i];

	l->tcp = build_ports(b, i, IPPROTO_TCP);
	l->udp = build_ports(b, i, IPPROTO_UDP);
	for (size_t f = 0; f < b->family_count; f++) {
		l->allow[f] = build_allow(b, i, f);
		if (learned)
			l->learned[f] = build_learned(b, i, f);
	}
}

void ruleset_build_sets(struct builder *b)
{
	uint32_t learned = name_lists(b->plan);

	for (size_t i = 0; i < b->list_count; i++)
		build_list(b, i, learned >> i & 1);
	for (size_t f = 0; f < b->family_count; f++)
		b->deny[f] = build_deny(b, f);
	for (size_t f = 0; f < FAMILIES; f++)
		b->seen[f] = build_seen(b, f);
}
