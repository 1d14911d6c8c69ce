// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/rtnetlink.h>

#include "filter/ruleset.h"

/* ---- names ---- */

/* What a name starts with; the family's digit follows, then the port list's number. */
static const char *const stems[][FILTER_ROLE_COUNT] = {
	[FILTER_NAMES_OWNED] = { "allow", "learned", "kept", "deny", "seen", "used",
				 "held", "doh", "exempt", "met", "closed" },
	[FILTER_NAMES_SHARED] = { "allow_v", "dyn_allow_v", "kept_v", "deny_v", "seen_v",
				  "used_v", "held_v", "doh_block_v", "exempt_v", "met_v",
				  "closed_v" },
	[FILTER_NAMES_HOST] = { "allow", "learned", "kept", "deny", "seen", "used",
				"held", "doh", "exempt", "met", "closed" },
};

static const char *const tables[] = {
	[FILTER_NAMES_OWNED] = "weir",
	[FILTER_NAMES_SHARED] = "opensandbox",
	[FILTER_NAMES_HOST] = "weir_host",
};

const char *filter_table(enum filter_naming naming)
{
	return tables[naming];
}

/* By hand: this is done for each address that is learned. */
void filter_set_name(enum filter_naming naming, enum filter_role role,
		     enum addr_family family, size_t list, char ret[FILTER_NAME_MAX])
{
	const bool is_per_list = role == FILTER_ROLE_ALLOW ||
				 role == FILTER_ROLE_LEARNED ||
				 role == FILTER_ROLE_DRAINING;
	const char *stem = stems[naming][role];
	size_t n = strlen(stem);

	memcpy(ret, stem, n);
	ret[n++] = family == ADDR_V4 ? '4' : '6';
	if (is_per_list && (list > 0 || naming != FILTER_NAMES_SHARED)) {
		ret[n++] = '_';
		if (list >= 10)
			ret[n++] = (char)('0' + list / 10);
		ret[n++] = (char)('0' + list % 10);
	}
	ret[n] = '\0';
}

/* ---- ranges ---- */

bool filter_key_next(const uint8_t *key, size_t size, uint8_t *ret)
{
	uint8_t next[16];

	memcpy(next, key, size);
	for (size_t i = size; i-- > 0;) {
		if (++next[i] != 0) {
			memcpy(ret, next, size);
			return true;
		}
	}
	return false;
}

/* Unused bytes of a range are zero, so the whole can be compared. */
static int compare_ranges(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct filter_range));
}

size_t filter_ranges_merge(struct filter_range *ranges, size_t count, size_t key_size)
{
	size_t last_at = 0;
	bool sorted = true;

	if (count == 0)
		return 0;
	/* As they come from a plan they mostly are. */
	for (size_t i = 1; sorted && i < count; i++)
		sorted = compare_ranges(&ranges[i - 1], &ranges[i]) <= 0;
	if (!sorted)
		qsort(ranges, count, sizeof(*ranges), compare_ranges);
	for (size_t i = 1; i < count; i++) {
		struct filter_range *last = &ranges[last_at];
		uint8_t behind[16];

		/* Apart from the last one: it starts neither in it nor right behind. */
		if (filter_key_next(last->to, key_size, behind) &&
		    memcmp(ranges[i].from, behind, key_size) > 0)
			ranges[++last_at] = ranges[i];
		else if (memcmp(ranges[i].to, last->to, key_size) > 0)
			memcpy(last->to, ranges[i].to, key_size);
	}
	return last_at + 1;
}

/* The key in front of @key, which is not the first one of all. */
static void key_before(const uint8_t *key, size_t size, uint8_t *ret)
{
	memcpy(ret, key, size);
	for (size_t i = size; i-- > 0 && ret[i]-- == 0;)
		continue;
}

size_t filter_ranges_cut(struct filter_range *ranges, size_t count, const uint8_t *key,
			 size_t key_size)
{
	struct filter_range low, high;
	bool has_low, has_high;
	size_t i = 0, parts;

	while (i < count && memcmp(ranges[i].to, key, key_size) < 0)
		i++;
	if (i == count || memcmp(ranges[i].from, key, key_size) > 0)
		return count;
	low = high = ranges[i];
	has_low = memcmp(low.from, key, key_size) < 0;
	has_high = memcmp(key, high.to, key_size) < 0;
	parts = (size_t)has_low + has_high;
	memmove(&ranges[i + parts], &ranges[i + 1], (count - i - 1) * sizeof(*ranges));
	if (has_low) {
		key_before(key, key_size, low.to);
		ranges[i++] = low;
	}
	if (has_high && filter_key_next(key, key_size, high.from))
		ranges[i] = high;
	return count - 1 + parts;
}

/* ---- sets ---- */

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
		b->spare_set = (struct filter_set){ .key = key };
		return &b->spare_set;
	}
	s->key = key;
	*b->sets_end = s;
	b->sets_end = &s->next;
	return s;
}

/* A set of addresses, named for what it is for. */
static struct filter_set *addr_set(struct builder *b, enum filter_role role,
				   size_t family, size_t list)
{
	struct filter_set *s = ruleset_new_set(b, ruleset_families[family].key);

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

/* @s is the last set: one with ranges is loaded ahead, and those stand first. */
static void load_ahead(struct builder *b, struct filter_set *s)
{
	struct filter_set **at = b->ahead_end;
	size_t n = strlen(s->name);

	/* Where the relay alone sends, a set that is empty for a moment opens nothing.
	 * Sets of a plan of the host's have names of their own. */
	if (b->failed || b->host || b->fixed || s->range_count == 0 ||
	    !(b->shared || b->direct_tcp || b->direct_udp))
		return;
	s->ahead = true;
	/* Never a name that stands: the set of the generation before has the other one,
	 * and one without ranges has neither. */
	memcpy(s->name + n, b->rs->generation % 2 == 0 ? "_b" : "_a", sizeof("_b"));
	while (*at != s)
		at = &(*at)->next;
	*at = NULL;
	b->sets_end = at;
	s->next = *b->ahead_end;
	*b->ahead_end = s;
	if (b->sets_end == b->ahead_end)
		b->sets_end = &s->next;
	b->ahead_end = &s->next;
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
			ranges[used++] = (struct filter_range){
				.from = { (uint8_t)(from[i].from >> 8),
					  (uint8_t)from[i].from },
				.to = { (uint8_t)(from[i].to >> 8), (uint8_t)from[i].to },
			};
	if (used == 0)
		return NULL;
	s = ruleset_new_set(b, FILTER_KEY_PORT);
	set_ranges(s, ranges, used);
	snprintf(s->name, sizeof(s->name), "%s_%zu",
		 protocol == IPPROTO_TCP ? "tcp" : "udp", list);
	load_ahead(b, s);
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
	enum filter_role role; /* FILTER_ROLE_ALLOW, _DENY or _CLOSED */
	size_t list;	       /* of an allow; that of the others doesn't matter */
	size_t family;
};

static bool selects(const struct selection *s, const struct plan_prefix *p)
{
	const enum filter_role role = p->action == POLICY_ALLOW	 ? FILTER_ROLE_ALLOW
				      : p->action == PLAN_CLOSED ? FILTER_ROLE_CLOSED
								 : FILTER_ROLE_DENY;

	return p->prefix.addr.family == ruleset_families[s->family].addr &&
	       role == s->role && (role != FILTER_ROLE_ALLOW || p->port_list == s->list);
}

/* @s, of @role, of which there is one for a family, is the last set. For people and their
 * tools to look at, another one has the name and the ranges that it would have, if it
 * weren't loaded ahead. No rule asks it. */
static void build_shown(struct builder *b, enum filter_role role, size_t family,
			const struct filter_set *s)
{
	struct filter_set *shown;

	if (!s->ahead || s->range_count >= FILTER_LARGE)
		return;
	shown = addr_set(b, role, family, 0);
	shown->ranges = s->ranges;
	shown->range_count = s->range_count;
}

/* What is closed as a single address is open to the rules for just it: take it out of
 * what wider rules allow. @ranges have room for what that splits. Return: how many there
 * are then. */
static size_t cut_closed(const struct builder *b, const struct selection *sel,
			 struct filter_range *ranges, size_t count)
{
	for (size_t i = 0; i < b->prefix_count; i++) {
		const struct prefix *p = &b->prefixes[i].prefix;

		if (b->prefixes[i].action == PLAN_CLOSED && prefix_is_single(p) &&
		    p->addr.family == ruleset_families[sel->family].addr &&
		    !plan_list_names_exactly(b->plan, &p->addr, (uint8_t)sel->list))
			count = filter_ranges_cut(ranges, count, p->addr.bytes,
						  addr_size(&p->addr));
	}
	return count;
}

static const struct filter_set *build_prefixes(struct builder *b,
					       const struct selection *sel)
{
	const bool is_shown = b->shared && sel->list == 0 &&
			      sel->role != FILTER_ROLE_CLOSED;
	size_t count = 0, closed = 0, used = 0;
	struct filter_range *ranges;
	struct filter_set *s;

	for (size_t i = 0; i < b->prefix_count; i++) {
		count += selects(sel, &b->prefixes[i]);
		closed += b->prefixes[i].action == PLAN_CLOSED;
	}
	/* In a shared namespace two of these sets are always there. */
	if (count == 0 && !is_shown)
		return NULL;
	ranges = arena_array(b->arena, count + closed + 1, sizeof(*ranges));
	if (!ranges) {
		b->failed = true;
		return NULL;
	}
	s = addr_set(b, sel->role, sel->family, sel->list);
	for (size_t i = 0; i < b->prefix_count; i++)
		if (selects(sel, &b->prefixes[i]))
			ranges[used++] = prefix_range(&b->prefixes[i].prefix);
	set_ranges(s, ranges, used);
	if (sel->role == FILTER_ROLE_ALLOW)
		s->range_count = cut_closed(b, sel, ranges, s->range_count);
	load_ahead(b, s);
	if (is_shown)
		build_shown(b, sel->role, sel->family, s);
	return s;
}

const struct filter_set *ruleset_addrs(struct builder *b, enum filter_role role,
				       size_t list, size_t family)
{
	struct filter_set *s = addr_set(b, role, family, list);

	s->timeout = role == FILTER_ROLE_LEARNED;
	s->changes = role == FILTER_ROLE_DRAINING;
	if (b->host)
		s->key = ruleset_families[family].mark_addr;
	return s;
}

void ruleset_added_by_rules(struct filter_set *s, uint32_t timeout_sec, uint32_t size)
{
	s->changes = false;
	s->timeout = true;
	s->dynamic = true;
	s->timeout_sec = timeout_sec;
	s->size = size;
}

/* Flows that rules put there. Nobody reads the counters of a ruleset that stands by
 * itself. */
static const struct filter_set *build_flows(struct builder *b, enum filter_role role,
					    size_t family)
{
	struct filter_set *s = addr_set(b, role, family, 0);
	bool seen = role == FILTER_ROLE_SEEN;

	s->key = ruleset_families[family].flow;
	s->counts = !b->fixed;
	ruleset_added_by_rules(s, seen ? FILTER_SEEN_SEC : FILTER_USED_SEC,
			       seen ? FILTER_SEEN_MAX : FILTER_USED_MAX);
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
	if (used == 0)
		return NULL;
	s = addr_set(b, role, family, 0);
	set_ranges(s, ranges, used);
	load_ahead(b, s);
	build_shown(b, role, family, s);
	return s;
}

static void build_shared_sets(struct builder *b)
{
	const struct filter_shared_params *p = b->shared;
	struct prefix *exempt =
		arena_array(b->arena, p->exempt_count + 1, sizeof(*exempt));

	b->failed |= !exempt;
	/* Addresses as prefixes of themselves. */
	for (size_t i = 0; exempt && i < p->exempt_count; i++)
		exempt[i] = (struct prefix){
			.addr = p->exempt[i],
			.bits = (uint8_t)(8 * addr_size(&p->exempt[i])),
		};
	for (size_t f = 0; f < FAMILIES; f++) {
		if (p->mark != 0) {
			struct filter_set *s = addr_set(b, FILTER_ROLE_SELF_PORTS, f, 0);

			s->key = FILTER_KEY_LOCAL_PORT;
			s->changes = true;
			b->self_ports[f] = s;
		}
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
		    !(lists >> r.port_list & 1) &&
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
			l->allow[f] = build_prefixes(
				b, &(struct selection){ FILTER_ROLE_ALLOW, i, f });
		if (learned)
			l->learned[f] = ruleset_addrs(b, FILTER_ROLE_LEARNED, i, f);
		/* The relay ends what it carries by itself. */
		if (learned && (b->shared || b->host || b->direct_tcp || b->direct_udp))
			l->draining[f] = ruleset_addrs(b, FILTER_ROLE_DRAINING, i, f);
	}
}

/* Closed by the parameters: a range for good, an address but for rules for just it. */
static struct plan_prefix closed_prefix(const struct prefix *p)
{
	return (struct plan_prefix){ .prefix = *p,
				     .action = prefix_is_single(p) ? PLAN_CLOSED
								   : POLICY_DENY };
}

/* Each set looks through all address rules. What is closed is so by way of a translator
 * as well, as what a rule denies. */
static void gather_prefixes(struct builder *b)
{
	const size_t planned = plan_prefix_count(b->plan);
	struct plan_prefix *all =
		arena_array(b->arena, planned + 2 * b->closed_count + 1, sizeof(*all));
	size_t n = 0;

	b->failed |= !all;
	for (size_t i = 0; all && i < planned; i++)
		all[n++] = plan_prefix(b->plan, i);
	for (size_t i = 0; all && i < b->closed_count; i++) {
		struct prefix p = b->closed[i];

		all[n++] = closed_prefix(&p);
		if (p.addr.family == ADDR_V4) {
			p = prefix_translated(&p);
			all[n++] = closed_prefix(&p);
		}
	}
	b->prefixes = all;
	b->prefix_count = n;
}

/* All sets, and where the rules find them in @b. */
static void ruleset_build_sets(struct builder *b)
{
	const uint32_t learned = name_lists(b->plan);
	/* Something leaves without the relay, and there is somebody who wants to know. */
	const bool counts_passed = !b->host && !b->fixed &&
				   (b->direct_tcp || b->direct_udp) &&
				   !(b->shared && b->shared->redirect_only);

	gather_prefixes(b);
	for (size_t i = 0; i < b->list_count; i++)
		build_list(b, i, !b->fixed && learned >> i & 1);
	for (size_t f = 0; f < b->family_count; f++)
		if (!b->shared || !b->shared->redirect_only) {
			b->deny[f] = build_prefixes(
				b, &(struct selection){ FILTER_ROLE_DENY, 0, f });
			b->closed_sets[f] = build_prefixes(
				b, &(struct selection){ FILTER_ROLE_CLOSED, 0, f });
		}
	for (size_t f = 0; f < FAMILIES && !b->host; f++)
		b->seen[f] = build_flows(b, FILTER_ROLE_SEEN, f);
	for (size_t f = 0; f < FAMILIES && !b->host && !b->fixed; f++) {
		struct filter_set *met = addr_set(b, FILTER_ROLE_MET, f, 0);

		ruleset_added_by_rules(met, FILTER_SEEN_SEC, FILTER_MET_MAX);
		b->met[f] = met;
	}
	for (size_t f = 0; f < b->family_count && counts_passed; f++)
		b->used[f] = build_flows(b, FILTER_ROLE_USED, f);
	if (b->shared)
		build_shared_sets(b);
}

/* ---- statements ---- */

void stmt_rule(struct builder *b, struct filter_chain *chain)
{
	struct filter_rule *r = arena_alloc(b->arena, sizeof(*r));

	if (!r) {
		b->failed = true;
		b->spare.count = 0;
		b->rule = &b->spare;
		return;
	}
	b->rule = r;
	*chain->rules_end = r;
	chain->rules_end = &r->next;
}

void stmt_rule_of(struct builder *b, struct filter_chain *chain, size_t family)
{
	stmt_rule(b, chain);
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
}

void stmt_rule_portless(struct builder *b, struct filter_chain *c)
{
	stmt_rule(b, c);
	for (size_t p = 0; p < PROTOCOLS; p++)
		stmt_not_equal(b, FILTER_L4PROTO, ruleset_protocols[p]);
}

struct filter_stmt *stmt_add(struct builder *b, enum filter_stmt_kind kind)
{
	struct filter_stmt *s = &b->rule->stmts[b->rule->count];

	if (b->rule->count == FILTER_STMTS_MAX - 1)
		b->failed = true;
	else
		b->rule->count++;
	*s = (struct filter_stmt){ .kind = kind };
	return s;
}

void stmt_equal(struct builder *b, enum filter_field field, uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_EQUAL);

	s->field = field;
	s->value = value;
}

void stmt_not_equal(struct builder *b, enum filter_field field, uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_NOT_EQUAL);

	s->field = field;
	s->value = value;
}

void stmt_between(struct builder *b, enum filter_field field, uint32_t from, uint32_t to)
{
	struct filter_stmt *s = stmt_add(b, from == to ? FILTER_EQUAL : FILTER_RANGE);

	s->field = field;
	s->value = from;
	s->value_to = to;
}

void stmt_masked(struct builder *b, enum filter_field field, uint32_t mask,
		 uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_EQUAL);

	s->field = field;
	s->mask = mask;
	s->value = value;
}

void stmt_has_bit(struct builder *b, enum filter_field field, uint32_t bit)
{
	struct filter_stmt *s = stmt_add(b, FILTER_NOT_EQUAL);

	s->field = field;
	s->mask = bit;
}

void stmt_in_set(struct builder *b, enum filter_field field, const struct filter_set *set)
{
	struct filter_stmt *s = stmt_add(b, FILTER_IN_SET);

	s->field = field;
	s->set = set;
}

void stmt_daddr_in(struct builder *b, size_t family, const struct filter_set *set)
{
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
	stmt_in_set(b, ruleset_families[family].daddr, set);
}

void stmt_port(struct builder *b, uint8_t protocol, uint16_t port)
{
	stmt_equal(b, FILTER_L4PROTO, protocol);
	stmt_equal(b, FILTER_DPORT, port);
}

void stmt_local(struct builder *b)
{
	stmt_equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
}

void stmt_by_a_program(struct builder *b)
{
	stmt_not_equal(b, FILTER_SKUID, UINT32_MAX);
}

void stmt_self_port(struct builder *b, size_t family, enum filter_field port)
{
	struct filter_stmt *s = stmt_add(b, FILTER_PORT_IN_SET);

	s->field = port;
	s->set = b->self_ports[family];
}

void stmt_go(struct builder *b, enum filter_stmt_kind kind,
	     const struct filter_chain *chain)
{
	stmt_add(b, kind)->chain = chain;
}

/* On the host others may look at marks: ours stays on what is refused. */
void stmt_accept(struct builder *b)
{
	if (b->host)
		stmt_add(b, FILTER_SET_MARK);
	stmt_add(b, FILTER_ACCEPT);
}

void stmt_drop(struct builder *b)
{
	stmt_add(b, FILTER_COUNTER);
	stmt_add(b, FILTER_DROP);
}

void stmt_mark_and_accept(struct builder *b)
{
	if (b->fixed)
		; /* no flow is remembered */
	else if (b->host)
		stmt_add(b, FILTER_CT_FROM_MARK);
	else
		stmt_add(b, FILTER_SET_CT_MARK)->value = b->rs->generation;
	stmt_accept(b);
}

void stmt_mark_and_pass(struct builder *b)
{
	if (!b->passed) {
		stmt_mark_and_accept(b);
		return;
	}
	if (b->host)
		stmt_add(b, FILTER_CT_FROM_MARK);
	else
		stmt_add(b, FILTER_SET_CT_MARK)->value = b->rs->generation;
	stmt_go(b, FILTER_GOTO, b->passed);
}

void stmt_refuse(struct builder *b)
{
	stmt_go(b, FILTER_GOTO, b->refuse);
}

void stmt_return(struct builder *b)
{
	stmt_add(b, FILTER_RETURN);
}

void stmt_redirect_dns(struct builder *b)
{
	stmt_add(b, FILTER_REDIRECT)->value = b->dns_port;
}

void stmt_redirect_relay(struct builder *b)
{
	stmt_add(b, FILTER_REDIRECT)->value = b->relay_port;
}

/* ---- chains ---- */

enum {
	PRIORITY_FILTER = 0,
	PRIORITY_NAT = -150, /* before Docker's */
};

struct filter_chain *ruleset_plain_chain(struct builder *b, const char *name)
{
	struct filter_chain *c = arena_alloc(b->arena, sizeof(*c));

	if (!c) {
		b->failed = true;
		b->spare_chain = (struct filter_chain){ .name = name };
		b->spare_chain.rules_end = &b->spare_chain.rules;
		return &b->spare_chain;
	}
	c->name = name;
	c->rules_end = &c->rules;
	*b->chains_end = c;
	b->chains_end = &c->next;
	return c;
}

struct filter_chain *ruleset_base_chain(struct builder *b, const char *name,
					enum filter_chain_type type, uint32_t hook,
					bool accept)
{
	struct filter_chain *c = ruleset_plain_chain(b, name);

	c->type = type;
	c->hook = hook;
	c->priority = type == FILTER_CHAIN_NAT ? PRIORITY_NAT : PRIORITY_FILTER;
	c->accept = accept;
	return c;
}

/* ---- what is counted ---- */

/* What can't be counted by its port. */
static const struct filter_chain *build_uncounted(struct builder *b)
{
	struct filter_chain *c = ruleset_plain_chain(b, "uncounted");

	/* An address is logged once, whatever the port: a program that tries all ports
	 * of one address must not hide what it sends to another address. */
	for (size_t f = 0; f < FAMILIES && b->met[f]; f++) {
		stmt_rule_of(b, c, f);
		stmt_add(b, FILTER_FLOW_NEW)->set = b->met[f];
		stmt_add(b, FILTER_FLOW_ADD)->set = b->met[f];
		stmt_add(b, FILTER_LOG)->prefix = FILTER_PREFIX_UNCOUNTED;
		stmt_return(b);
	}
	stmt_rule(b, c);
	if (b->host)
		stmt_add(b, FILTER_LIMIT_EACH)->set = b->host->rates;
	else
		stmt_add(b, FILTER_LIMIT);
	stmt_add(b, FILTER_LOG)->prefix = b->prefix ? b->prefix : FILTER_PREFIX_UNCOUNTED;
	return c;
}

void ruleset_build_report(struct builder *b)
{
	const struct filter_chain *uncounted = build_uncounted(b);
	struct filter_chain *c = ruleset_plain_chain(b, "report");

	b->report = c;
	stmt_rule_portless(b, c);
	stmt_go(b, FILTER_GOTO, uncounted);
	for (size_t f = 0; f < FAMILIES; f++) {
		stmt_rule_of(b, c, f);
		stmt_add(b, FILTER_FLOW_NEW)->set = b->seen[f];
		stmt_add(b, FILTER_FLOW_ADD)->set = b->seen[f];
		stmt_add(b, FILTER_LOG)->prefix = b->prefix ? b->prefix
							    : FILTER_PREFIX_REFUSED;
		stmt_return(b);
		if (!b->seen[f]->counts)
			continue;
		stmt_rule_of(b, c, f);
		stmt_add(b, FILTER_FLOW_COUNT)->set = b->seen[f];
		stmt_return(b);
	}
	stmt_rule(b, c);
	stmt_go(b, FILTER_GOTO, uncounted);
}

bool ruleset_is_direct(const struct builder *b, uint8_t protocol)
{
	return protocol == IPPROTO_TCP ? b->direct_tcp : b->direct_udp;
}

void ruleset_build_passed(struct builder *b)
{
	struct filter_chain *c;

	if (!b->used[V4])
		return;
	b->passed = c = ruleset_plain_chain(b, "passed");
	stmt_rule(b, c);
	for (size_t p = 0; p < PROTOCOLS; p++)
		if (ruleset_is_direct(b, ruleset_protocols[p]))
			stmt_not_equal(b, FILTER_L4PROTO, ruleset_protocols[p]);
	stmt_accept(b);
	stmt_rule(b, c);
	stmt_equal(b, FILTER_CT_DIRECTION, IP_CT_DIR_REPLY);
	stmt_accept(b);
	for (size_t f = 0; f < b->family_count; f++) {
		stmt_rule_of(b, c, f);
		stmt_add(b, FILTER_FLOW_COUNT)->set = b->used[f];
		stmt_accept(b);
	}
	/* What finds no room there: filter_total(). */
	stmt_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	stmt_accept(b);
}

/* ---- begin and end ---- */

bool ruleset_start(struct builder *b, enum filter_naming naming, uint16_t generation)
{
	b->rs = arena_alloc(b->arena, sizeof(*b->rs));
	if (!b->rs)
		return false;
	b->rs->naming = naming;
	b->rs->generation = generation;
	b->sets_end = &b->rs->sets;
	b->ahead_end = &b->rs->sets;
	b->chains_end = &b->rs->chains;
	return true;
}

int ruleset_begin(struct builder *b, enum filter_naming naming, uint16_t generation,
		  struct err *err)
{
	if (generation == 0)
		return err_set(err, -EINVAL, "cannot build the filter: generation 0");
	b->list_count = plan_port_list_count(b->plan);
	if (b->list_count > PLAN_PORT_LISTS_MAX)
		return err_set(err, -E2BIG, "cannot build the filter: %zu port lists",
			       b->list_count);
	if (!ruleset_start(b, naming, generation))
		return err_set(err, -ENOMEM, "cannot build the filter: out of memory");
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
