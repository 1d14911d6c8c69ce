// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_build.h"

#include <stdio.h>
#include <string.h>

const struct family ruleset_families[FAMILIES] = {
	[V4] = { NFPROTO_IPV4, ADDR_V4, FILTER_DADDR4, FILTER_KEY_ADDR4, FILTER_KEY_FLOW4,
		 FILTER_KEY_MARK_ADDR4 },
	[V6] = { NFPROTO_IPV6, ADDR_V6, FILTER_DADDR6, FILTER_KEY_ADDR6, FILTER_KEY_FLOW6,
		 FILTER_KEY_MARK_ADDR6 },
};

struct filter_set *ruleset_new_set(struct builder *b, enum filter_key key)
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

/* @s is the last set; large ones stand first. */
static void move_to_front(struct builder *b, struct filter_set *s)
{
	struct filter_set **at = b->large_end;

	while (*at != s)
		at = &(*at)->next;
	*at = NULL;
	b->sets_end = at;
	s->next = *b->large_end;
	*b->large_end = s;
	if (b->sets_end == b->large_end)
		b->sets_end = &s->next;
	b->large_end = &s->next;
}

/* A set of addresses, named for what it is for. */
static struct filter_set *addr_set(struct builder *b, enum filter_role role,
				   size_t family, size_t list)
{
	struct filter_set *s = ruleset_new_set(b, ruleset_families[family].key);

	if (s)
		filter_set_name(b->rs->naming, role, ruleset_families[family].addr, list,
				s->name);
	return s;
}

/* Give @s, which won't change, its ranges. */
static void set_ranges(struct filter_set *s, struct filter_range *ranges, size_t count)
{
	s->ranges = ranges;
	s->range_count = filter_ranges_merge(ranges, count, filter_key_size(s->key));
}

/* The last set, which may have come out large. */
static void settle(struct builder *b, struct filter_set *s)
{
	size_t n = strlen(s->name);

	if (!b->shared || s->range_count < FILTER_LARGE)
		return;
	s->large = true;
	/* Never a name that stands: a large set of the generation before has the other
	 * one, and one that isn't large has neither. */
	memcpy(s->name + n, b->rs->generation % 2 == 0 ? "_b" : "_a", sizeof("_b"));
	move_to_front(b, s);
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
	s = used > 0 ? ruleset_new_set(b, FILTER_KEY_PORT) : NULL;
	if (s) {
		set_ranges(s, ranges, used);
		snprintf(s->name, sizeof(s->name), "%s_%zu",
			 protocol == IPPROTO_TCP ? "tcp" : "udp", list);
	}
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

/* Which address rules a set gathers. */
struct selection {
	enum filter_role role; /* FILTER_ROLE_ALLOW or FILTER_ROLE_DENY */
	size_t list;	       /* of an allow; that of a deny doesn't matter */
	size_t family;
};

static bool selects(const struct selection *s, const struct plan_prefix *p)
{
	bool allows = p->action == POLICY_ALLOW;

	return p->prefix.addr.family == ruleset_families[s->family].addr &&
	       allows == (s->role == FILTER_ROLE_ALLOW) &&
	       (!allows || p->port_list == s->list);
}

/* Prefix @i of the plan's and then of those that the parameters close. */
static struct plan_prefix prefix_at(const struct builder *b, size_t i)
{
	size_t planned = plan_prefix_count(b->plan);

	if (i < planned)
		return plan_prefix(b->plan, i);
	return (struct plan_prefix){ .prefix = b->closed[i - planned],
				     .action = POLICY_DENY };
}

/* In a shared namespace two of these sets are always there, for people and their tools
 * to look at. */
static bool is_always_there(const struct builder *b, const struct selection *s)
{
	return b->shared && s->list == 0;
}

static const struct filter_set *build_prefixes(struct builder *b,
					       const struct selection *sel)
{
	size_t total = plan_prefix_count(b->plan) + b->closed_count;
	size_t count = 0, used = 0;
	struct filter_range *ranges;
	struct filter_set *s;

	for (size_t i = 0; i < total; i++) {
		struct plan_prefix p = prefix_at(b, i);

		count += selects(sel, &p);
	}
	if (count == 0 && !is_always_there(b, sel))
		return NULL;
	ranges = arena_array(b->arena, count + 1, sizeof(*ranges));
	s = addr_set(b, sel->role, sel->family, sel->list);
	if (!ranges || !s) {
		b->failed = true;
		return NULL;
	}
	for (size_t i = 0; i < total; i++) {
		struct plan_prefix p = prefix_at(b, i);

		if (selects(sel, &p))
			ranges[used++] = prefix_range(&p.prefix);
	}
	set_ranges(s, ranges, used);
	settle(b, s);
	return s;
}

static const struct filter_set *build_allow(struct builder *b, size_t list, size_t family)
{
	return build_prefixes(b, &(struct selection){ FILTER_ROLE_ALLOW, list, family });
}

static const struct filter_set *build_deny(struct builder *b, size_t family)
{
	return build_prefixes(b, &(struct selection){ FILTER_ROLE_DENY, 0, family });
}

static const struct filter_set *build_learned(struct builder *b, size_t list,
					      size_t family)
{
	struct filter_set *s = addr_set(b, FILTER_ROLE_LEARNED, family, list);

	if (s)
		s->timeout = true;
	if (s && b->host)
		s->key = ruleset_families[family].mark_addr;
	return s;
}

static const struct filter_set *build_kept(struct builder *b, size_t list, size_t family)
{
	struct filter_set *s = addr_set(b, FILTER_ROLE_KEPT, family, list);

	if (s)
		s->changes = true;
	if (s && b->host)
		s->key = ruleset_families[family].mark_addr;
	return s;
}

/* Flows that rules put there. Nobody reads the counters of a ruleset that stands by
 * itself. */
static const struct filter_set *build_flows(struct builder *b, enum filter_role role,
					    size_t family)
{
	struct filter_set *s = addr_set(b, role, family, 0);
	bool seen = role == FILTER_ROLE_SEEN;

	if (s) {
		s->key = ruleset_families[family].flow;
		s->timeout = true;
		s->dynamic = true;
		s->counts = !b->fixed;
		s->timeout_sec = seen ? FILTER_SEEN_SEC : FILTER_USED_SEC;
		s->size = seen ? FILTER_SEEN_MAX : FILTER_USED_MAX;
	}
	return s;
}

static const struct filter_set *build_met(struct builder *b, size_t family)
{
	struct filter_set *s = addr_set(b, FILTER_ROLE_MET, family, 0);

	if (s) {
		s->timeout = true;
		s->dynamic = true;
		s->timeout_sec = FILTER_SEEN_SEC;
		s->size = FILTER_MET_MAX;
	}
	return s;
}

/* Something leaves without the relay, and there is somebody who wants to know. */
static bool counts_passed(const struct builder *b)
{
	return !b->host && !b->fixed && (b->direct_tcp || b->direct_udp) &&
	       !(b->shared && b->shared->redirect_only);
}

static const struct filter_set *build_held(struct builder *b, size_t family)
{
	struct filter_set *s = addr_set(b, FILTER_ROLE_HELD, family, 0);

	if (s) {
		s->key = FILTER_KEY_LOCAL_PORT;
		s->changes = true;
	}
	return s;
}

/* The prefixes of @family among @prefixes; NULL when there are none. */
static const struct filter_set *build_listed(struct builder *b, enum filter_role role,
					     size_t family, const struct prefix *prefixes,
					     size_t count)
{
	struct filter_range *ranges = arena_array(b->arena, count + 1, sizeof(*ranges));
	struct filter_set *s;
	size_t used = 0;

	if (!ranges) {
		b->failed = true;
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		if (prefixes[i].addr.family == ruleset_families[family].addr)
			ranges[used++] = prefix_range(&prefixes[i]);
	s = used > 0 ? addr_set(b, role, family, 0) : NULL;
	if (s)
		set_ranges(s, ranges, used);
	return s;
}

/* Addresses as prefixes of themselves. */
static const struct prefix *whole(struct builder *b, const struct addr *addrs,
				  size_t count)
{
	struct prefix *p = arena_array(b->arena, count + 1, sizeof(*p));

	for (size_t i = 0; p && i < count; i++)
		p[i] = (struct prefix){
			.addr = addrs[i],
			.bits = (uint8_t)(8 * addr_size(&addrs[i])),
		};
	if (!p)
		b->failed = true;
	return p;
}

static void build_shared_sets(struct builder *b)
{
	const struct filter_shared_params *p = b->shared;
	const struct prefix *exempt = whole(b, p->exempt, p->exempt_count);

	for (size_t f = 0; f < FAMILIES; f++) {
		if (p->mark != 0)
			b->held[f] = build_held(b, f);
		if (exempt)
			b->exempt[f] = build_listed(b, FILTER_ROLE_EXEMPT, f, exempt,
						    p->exempt_count);
		if (!p->redirect_only)
			b->doh[f] =
				build_listed(b, FILTER_ROLE_DOH, f, p->doh, p->doh_count);
	}
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
	bool enforced = !b->shared || !b->shared->redirect_only;

	if (enforced) {
		l->tcp = build_ports(b, i, IPPROTO_TCP);
		l->udp = build_ports(b, i, IPPROTO_UDP);
	}
	for (size_t f = 0; f < b->family_count; f++) {
		if (enforced)
			l->allow[f] = build_allow(b, i, f);
		if (learned)
			l->learned[f] = build_learned(b, i, f);
		if (learned && (b->shared || b->host))
			l->kept[f] = build_kept(b, i, f);
	}
}

void ruleset_build_sets(struct builder *b)
{
	uint32_t learned = name_lists(b->plan);

	for (size_t i = 0; i < b->list_count; i++)
		build_list(b, i, !b->fixed && learned >> i & 1);
	for (size_t f = 0; f < b->family_count; f++)
		if (!b->shared || !b->shared->redirect_only)
			b->deny[f] = build_deny(b, f);
	for (size_t f = 0; f < FAMILIES && !b->host; f++)
		b->seen[f] = build_flows(b, FILTER_ROLE_SEEN, f);
	for (size_t f = 0; f < FAMILIES && !b->host && !b->fixed; f++)
		b->met[f] = build_met(b, f);
	for (size_t f = 0; f < b->family_count && counts_passed(b); f++)
		b->used[f] = build_flows(b, FILTER_ROLE_USED, f);
	if (b->shared)
		build_shared_sets(b);
}
