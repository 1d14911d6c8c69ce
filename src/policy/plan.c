// SPDX-License-Identifier: Apache-2.0
#include "policy/plan.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "base/special.h"
#include "dns/message.h"
#include "policy/layout.h"
#include "policy/limits.h"
#include "policy/names.h"

size_t layout_item_size(enum layout_section which)
{
	static const uint8_t sizes[LAYOUT_SECTION_COUNT] = {
		[LAYOUT_SLOTS] = sizeof(struct layout_slot),
		[LAYOUT_RULES] = sizeof(struct layout_rule),
		[LAYOUT_PREFIXES] = sizeof(struct layout_prefix),
		[LAYOUT_TOPS] = sizeof(uint32_t),
		[LAYOUT_ENDS] = sizeof(int64_t),
		[LAYOUT_NEXT] = sizeof(struct layout_next),
		[LAYOUT_BUDGETS] = sizeof(struct plan_budget),
		[LAYOUT_PORT_LISTS] = sizeof(struct layout_port_list),
		[LAYOUT_PORTS] = sizeof(struct plan_port_range),
		[LAYOUT_TEXTS] = 1,
		[LAYOUT_NAMES] = 1,
	};

	return sizes[which];
}

int layout_prefix_compare(const struct layout_prefix *a, const struct layout_prefix *b)
{
	int r = addr_compare(&a->prefix.addr, &b->prefix.addr);

	if (r == 0)
		r = a->prefix.bits - b->prefix.bits;
	if (r == 0)
		r = a->action - b->action;
	if (r == 0)
		r = a->port_list - b->port_list;
	if (r == 0)
		r = a->end - b->end;
	return r != 0 ? r : a->budget - b->budget;
}

bool layout_prefix_holds(const struct prefix *outer, const struct prefix *inner)
{
	return outer->bits <= inner->bits && prefix_contains(outer, &inner->addr);
}

/* Checks of plan_open(): each checks one section and trusts the sections before it. */

static bool sections_are_inside(const struct plan *p)
{
	const struct layout_header *h = layout_header(p);

	for (size_t i = 0; i < LAYOUT_SECTION_COUNT; i++) {
		const struct layout_extent *e = &h->sections[i];
		uint64_t size = (uint64_t)e->count * layout_item_size(i);

		if (e->offset % 8 != 0 || e->offset < sizeof(*h) || e->offset > p->size ||
		    size > p->size - e->offset)
			return false;
	}
	return true;
}

static bool header_is_sound(const struct layout_header *h)
{
	const bool denies_are_sound =
		h->on_denies_count == 0
			? h->on_denies_window_sec == 0 && h->on_denies_action == 0
			: h->on_denies_count <= ON_DENIES_COUNT_MAX &&
				  h->on_denies_window_sec >= 1 &&
				  h->on_denies_window_sec <= ON_DENIES_WINDOW_MAX_SEC &&
				  h->on_denies_action <= ON_DENIES_STOP;

	if (h->default_action > POLICY_ASK || h->asks > 1 ||
	    h->verify > POLICY_VERIFY_TLS || h->dns > POLICY_DNS_PINNED ||
	    h->require_full_isolation > 1 || h->denied_names > POLICY_DENIED_REFUSE ||
	    h->labels_max > DNS_LABELS_MAX || !denies_are_sound)
		return false;
	for (size_t i = 0; i < LIMIT_COUNT; i++) {
		if (!limit_is_valid(i, h->limits[i]))
			return false;
	}
	return true;
}

static bool ports_are_sound(const struct plan *p)
{
	const struct layout_port_list *lists = layout_section(p, LAYOUT_PORT_LISTS);
	const struct plan_port_range *ranges = layout_section(p, LAYOUT_PORTS);
	uint32_t list_count = layout_count(p, LAYOUT_PORT_LISTS);
	uint32_t range_count = layout_count(p, LAYOUT_PORTS);

	if (list_count == 0 || list_count > PLAN_PORT_LISTS_MAX)
		return false;
	for (uint32_t i = 0; i < list_count; i++) {
		if (lists[i].count > PLAN_PORT_RANGES_MAX ||
		    lists[i].first > range_count ||
		    lists[i].count > range_count - lists[i].first)
			return false;
	}
	for (uint32_t i = 0; i < range_count; i++) {
		if ((ranges[i].protocol != IPPROTO_TCP &&
		     ranges[i].protocol != IPPROTO_UDP) ||
		    ranges[i].from == 0 || ranges[i].from > ranges[i].to)
			return false;
	}
	return true;
}

static bool ends_are_sound(const struct plan *p)
{
	const int64_t *ends = layout_section(p, LAYOUT_ENDS);
	const struct layout_next *next = layout_section(p, LAYOUT_NEXT);
	uint32_t count = layout_count(p, LAYOUT_ENDS);
	uint32_t rules = layout_count(p, LAYOUT_RULES);

	if (count > PLAN_ENDS_MAX ||
	    layout_count(p, LAYOUT_NEXT) != (count > 0 ? rules : 0))
		return false;
	for (uint32_t i = 0; i < count; i++) {
		if (ends[i] <= (i > 0 ? ends[i - 1] : 0))
			return false;
	}
	/* Each step leads on, so a walk ends. */
	for (uint32_t i = 0; i < layout_count(p, LAYOUT_NEXT); i++) {
		if ((next[i].exact != PLAN_NO_RULE &&
		     (next[i].exact <= i || next[i].exact >= rules)) ||
		    (next[i].below != PLAN_NO_RULE &&
		     (next[i].below <= i || next[i].below >= rules)))
			return false;
	}
	return true;
}

static bool budgets_are_sound(const struct plan *p)
{
	const struct plan_budget *all = layout_section(p, LAYOUT_BUDGETS);
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);
	uint32_t count = layout_count(p, LAYOUT_BUDGETS);

	if (count > PLAN_BUDGETS_MAX)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		bool whole = all[i].rule == PLAN_NO_RULE;

		if (all[i].action > BUDGET_EVENT || (whole && i + 1 < count) ||
		    (!whole && (all[i].rule >= layout_count(p, LAYOUT_RULES) ||
				rules[all[i].rule].budget != i + 1)))
			return false;
	}
	return true;
}

static bool rules_are_sound(const struct plan *p)
{
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);
	const char *texts = layout_section(p, LAYOUT_TEXTS);
	uint32_t text_size = layout_count(p, LAYOUT_TEXTS);
	uint32_t lists = layout_count(p, LAYOUT_PORT_LISTS);

	if (text_size == 0 || texts[text_size - 1] != '\0')
		return false;
	for (uint32_t i = 0; i < layout_count(p, LAYOUT_RULES); i++) {
		const struct layout_rule *r = &rules[i];

		if (r->action > POLICY_ASK || r->port_list >= lists ||
		    r->named_list >= lists || r->end > layout_count(p, LAYOUT_ENDS) ||
		    r->budget > layout_count(p, LAYOUT_BUDGETS) ||
		    r->target >= text_size || r->file >= text_size ||
		    r->comment >= text_size)
			return false;
	}
	return layout_header(p)->every_name <= layout_count(p, LAYOUT_RULES);
}

static bool slots_are_sound(const struct plan *p)
{
	const struct layout_slot *slots = layout_section(p, LAYOUT_SLOTS);
	const uint8_t *names = layout_section(p, LAYOUT_NAMES);
	uint32_t size = layout_count(p, LAYOUT_NAMES);
	uint32_t rules = layout_count(p, LAYOUT_RULES);
	bool has_empty = false;

	for (uint32_t i = 0; i < layout_count(p, LAYOUT_SLOTS); i++) {
		const struct layout_slot *s = &slots[i];

		if (s->name == 0) {
			has_empty = true;
			continue;
		}
		/* At s->name - 1 is the size, then that many bytes. */
		if (s->name > size || names[s->name - 1] > size - s->name)
			return false;
		if ((s->exact >= rules && s->exact != PLAN_NO_RULE) ||
		    (s->below >= rules && s->below != PLAN_NO_RULE))
			return false;
	}
	return has_empty;
}

static bool prefixes_are_sound(const struct plan *p)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);
	const uint32_t *tops = layout_section(p, LAYOUT_TOPS);
	uint32_t count = layout_count(p, LAYOUT_PREFIXES);

	for (uint32_t i = 0; i < count; i++) {
		const struct layout_prefix *x = &all[i];
		const struct prefix *own = &x->prefix;
		struct prefix masked;

		if ((own->addr.family != ADDR_V4 && own->addr.family != ADDR_V6) ||
		    own->bits > 8 * addr_size(&own->addr))
			return false;
		masked = prefix_of(&own->addr, own->bits);
		if (!addr_equal(&masked.addr, &own->addr))
			return false;
		if (x->action > PLAN_CLOSED ||
		    x->port_list >= layout_count(p, LAYOUT_PORT_LISTS) ||
		    x->rule >= layout_count(p, LAYOUT_RULES) ||
		    x->end > layout_count(p, LAYOUT_ENDS) ||
		    x->budget > layout_count(p, LAYOUT_BUDGETS))
			return false;
		/* Parents come before their children and hold them, so a walk upwards
		 * ends soon. */
		if (x->parent > i ||
		    (x->parent > 0 &&
		     !layout_prefix_holds(&all[x->parent - 1].prefix, own)))
			return false;
		if (i > 0 && layout_prefix_compare(&all[i - 1], x) >= 0)
			return false;
	}
	for (uint32_t i = 0; i < layout_count(p, LAYOUT_TOPS); i++) {
		if (tops[i] >= count)
			return false;
	}
	return true;
}

int plan_open(const void *bytes, size_t size, struct plan *ret, struct err *err)
{
	const struct layout_header *h = bytes;
	struct plan p = { .bytes = bytes, .size = size };

	if (!bytes || (uintptr_t)bytes % 8 != 0 || size < sizeof(*h) ||
	    size > LAYOUT_SIZE_MAX)
		return err_set(err, -EBADMSG, "a plan of %zu bytes can't be one", size);
	if (h->magic != LAYOUT_MAGIC)
		return err_set(err, -EBADMSG, "the plan is of another version");
	if (h->size != size || !sections_are_inside(&p))
		return err_set(err, -EBADMSG,
			       "the plan is cut or its sections overrun it");
	if (!header_is_sound(h))
		return err_set(err, -EBADMSG, "the plan's header holds an unknown value");
	if (!ports_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's port lists are not sound");
	if (!ends_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's ends of rules are not sound");
	if (!budgets_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's budgets are not sound");
	if (!rules_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's rules are not sound");
	if (!slots_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's table of names is not sound");
	if (!prefixes_are_sound(&p))
		return err_set(err, -EBADMSG, "the plan's addresses are not sound");
	*ret = p;
	return 0;
}

/* The end that a rule or prefix has as @end is over. */
static bool is_over_now(const struct plan *p, uint8_t end)
{
	return end != 0 && !(p->ends_ahead >> (end - 1) & 1);
}

static bool is_spent(const struct plan *p, uint8_t budget)
{
	return budget != 0 && p->spent >> (budget - 1) & 1;
}

/* The budget of all together is used up. */
static bool is_all_spent(const struct plan *p)
{
	const int all = p->spent != 0 ? plan_budget_of(p, PLAN_NO_RULE) : -1;

	return all >= 0 && p->spent >> all & 1;
}

enum policy_action plan_default_action(const struct plan *p)
{
	if (is_all_spent(p))
		return POLICY_DENY;
	return (enum policy_action)layout_header(p)->default_action;
}

enum policy_verify plan_verify(const struct plan *p)
{
	return (enum policy_verify)layout_header(p)->verify;
}

enum policy_denied_names plan_denied_names(const struct plan *p)
{
	return (enum policy_denied_names)layout_header(p)->denied_names;
}

enum policy_dns plan_dns(const struct plan *p)
{
	return (enum policy_dns)layout_header(p)->dns;
}

bool plan_asks(const struct plan *p)
{
	return layout_header(p)->asks == 1;
}

uint32_t plan_limit(const struct plan *p, enum plan_limit which)
{
	return layout_header(p)->limits[which];
}

bool plan_requires_full_isolation(const struct plan *p)
{
	return layout_header(p)->require_full_isolation != 0;
}

bool plan_is_open(const struct plan *p)
{
	return layout_header(p)->every_name > 0;
}

uint32_t plan_repin_sec(const struct plan *p)
{
	return layout_header(p)->repin_sec;
}

struct plan_on_denies plan_on_denies(const struct plan *p)
{
	const struct layout_header *h = layout_header(p);

	return (struct plan_on_denies){
		.count = h->on_denies_count,
		.window_sec = h->on_denies_window_sec,
		.action = (uint8_t)h->on_denies_action,
	};
}

bool plan_same_state(const struct plan *a, const struct plan *b)
{
	return a->ends_ahead == b->ends_ahead && a->spent == b->spent;
}

size_t plan_end_count(const struct plan *p)
{
	return layout_count(p, LAYOUT_ENDS);
}

int64_t plan_end(const struct plan *p, size_t i)
{
	const int64_t *ends = layout_section(p, LAYOUT_ENDS);

	return i < layout_count(p, LAYOUT_ENDS) ? ends[i] : 0;
}

void plan_set_time(struct plan *p, int64_t wall_ms)
{
	p->ends_ahead = 0;
	for (size_t i = 0; i < plan_end_count(p); i++)
		if (plan_end(p, i) > wall_ms)
			p->ends_ahead |= UINT64_C(1) << i;
}

bool plan_rule_is_over(const struct plan *p, uint32_t rule)
{
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);

	return rule < layout_count(p, LAYOUT_RULES) && is_over_now(p, rules[rule].end);
}

size_t plan_budget_count(const struct plan *p)
{
	return layout_count(p, LAYOUT_BUDGETS);
}

struct plan_budget plan_budget(const struct plan *p, size_t i)
{
	const struct plan_budget *all = layout_section(p, LAYOUT_BUDGETS);

	return i < plan_budget_count(p) ? all[i]
					: (struct plan_budget){ .rule = PLAN_NO_RULE };
}

int plan_budget_of(const struct plan *p, uint32_t rule)
{
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);
	const size_t count = plan_budget_count(p);

	if (rule < layout_count(p, LAYOUT_RULES))
		return rules[rule].budget - 1;
	return rule == PLAN_NO_RULE && count > 0 &&
			       plan_budget(p, count - 1).rule == PLAN_NO_RULE
		       ? (int)count - 1
		       : -1;
}

const char *plan_reason(struct plan_verdict v, const char *otherwise)
{
	if (!(v.flags & PLAN_SPENT))
		return otherwise;
	return v.rule == PLAN_NO_RULE ? PLAN_SPENT_ALL : PLAN_SPENT_REASON;
}

size_t plan_port_list_count(const struct plan *p)
{
	return layout_count(p, LAYOUT_PORT_LISTS);
}

const struct plan_port_range *plan_port_list(const struct plan *p, size_t list,
					     size_t *ret_count)
{
	const struct layout_port_list *lists = layout_section(p, LAYOUT_PORT_LISTS);
	const struct plan_port_range *ranges = layout_section(p, LAYOUT_PORTS);

	*ret_count = 0;
	if (list >= layout_count(p, LAYOUT_PORT_LISTS))
		return ranges;
	*ret_count = lists[list].count;
	return ranges + lists[list].first;
}

bool plan_port_list_has(const struct plan *p, uint8_t list, uint8_t protocol,
			uint16_t port)
{
	size_t count;
	const struct plan_port_range *r = plan_port_list(p, list, &count);

	for (size_t i = 0; i < count; i++) {
		if (r[i].protocol == protocol && port >= r[i].from && port <= r[i].to)
			return true;
	}
	return false;
}

bool plan_rule_names_port(const struct plan *p, uint32_t rule, uint8_t protocol,
			  uint16_t port)
{
	const struct plan_rule r = plan_rule(p, rule);

	return r.flags & PLAN_PORTS_LISTED &&
	       plan_port_list_has(p, r.named_list, protocol, port);
}

size_t plan_prefix_count(const struct plan *p)
{
	return layout_count(p, LAYOUT_TOPS);
}

/* What a prefix is good for now: one whose budget is used up denies. */
static uint8_t action_now(const struct plan *p, const struct layout_prefix *x)
{
	return is_spent(p, x->budget) ? POLICY_DENY : x->action;
}

/* A wider prefix says the same, and isn't over. Where nothing ends and nothing is used up
 * the plan has none of those. A closed address says more than a closed range. */
static bool is_covered_now(const struct plan *p, const struct layout_prefix *all,
			   const struct layout_prefix *x)
{
	const uint8_t action = action_now(p, x);

	if (x->action == PLAN_CLOSED || (x->end == 0 && x->budget == 0 && p->spent == 0))
		return false;
	for (uint32_t i = x->parent; i > 0; i = all[i - 1].parent) {
		const struct layout_prefix *outer = &all[i - 1];

		if (action_now(p, outer) == action && !is_over_now(p, outer->end) &&
		    (action == POLICY_DENY || outer->port_list == x->port_list))
			return true;
	}
	return false;
}

struct plan_prefix plan_prefix(const struct plan *p, size_t i)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);
	const uint32_t *tops = layout_section(p, LAYOUT_TOPS);
	const struct layout_prefix *x;

	if (i >= layout_count(p, LAYOUT_TOPS))
		return (struct plan_prefix){ .rule = PLAN_NO_RULE };
	x = &all[tops[i]];
	if (is_over_now(p, x->end) || is_covered_now(p, all, x) ||
	    (x->action == POLICY_ALLOW && is_all_spent(p)))
		return (struct plan_prefix){ .rule = PLAN_NO_RULE };
	return (struct plan_prefix){
		.prefix = x->prefix,
		.action = action_now(p, x),
		.port_list = x->port_list,
		.flags = x->flags,
		.rule = x->rule,
	};
}

size_t plan_rule_count(const struct plan *p)
{
	return layout_count(p, LAYOUT_RULES);
}

struct plan_rule plan_rule(const struct plan *p, size_t i)
{
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);
	const char *texts = layout_section(p, LAYOUT_TEXTS);

	if (i >= layout_count(p, LAYOUT_RULES))
		return (struct plan_rule){ .target = "", .file = "", .comment = "" };
	return (struct plan_rule){
		.action = rules[i].action,
		.port_list = rules[i].port_list,
		.named_list = rules[i].named_list,
		.flags = rules[i].flags,
		.types = rules[i].types,
		.until_ms = rules[i].end ? plan_end(p, rules[i].end - 1u) : 0,
		.line = rules[i].line,
		.column = rules[i].column,
		.target = texts + rules[i].target,
		.file = texts + rules[i].file,
		.comment = texts + rules[i].comment,
	};
}

size_t plan_names_size(const struct plan *p)
{
	return layout_count(p, LAYOUT_NAMES);
}

bool plan_name_next(const struct plan *p, uint32_t *at, struct dns_name *ret)
{
	const uint8_t *names = layout_section(p, LAYOUT_NAMES);
	uint32_t size = layout_count(p, LAYOUT_NAMES);
	struct wire w;

	if (*at >= size || names[*at] >= size - *at)
		return false;
	w = wire_reader(names + *at + 1, names[*at]);
	*at += (uint32_t)names[*at] + 1;
	return dns_name_read(&w, ret, NULL) == 0;
}

uint64_t plan_rules_hash(const struct plan *p)
{
	struct hash_key key = { plan_default_action(p), plan_verify(p) ^ p->spent };

	for (size_t i = 0; i < plan_rule_count(p); i++) {
		const struct plan_rule r = plan_rule(p, i);

		if (plan_rule_is_over(p, (uint32_t)i))
			continue;
		key.k0 ^= r.action | (uint64_t)r.port_list << 8 |
			  (uint64_t)r.named_list << 16 | (uint64_t)r.flags << 24 |
			  (uint64_t)r.types << 32;
		key.k1 = hash_bytes(&key, r.target, strlen(r.target));
	}
	return hash_bytes(&key, "", 0);
}

/* -- what the plan says of a name, an address, a port ------------------------------ */

const uint16_t plan_web_ports[PLAN_WEB_PORTS] = { 80, 443, 8000, 8080, 8443, 8888 };

bool plan_is_web_port(uint16_t port)
{
	for (size_t i = 0; i < ARRAY_SIZE(plan_web_ports); i++)
		if (plan_web_ports[i] == port)
			return true;
	return false;
}

bool plan_takes_bytes(uint8_t flags, uint16_t port)
{
	return flags & PLAN_RAW || !plan_is_web_port(port);
}

bool plan_leads_to(uint8_t flags, enum addr_special kind)
{
	return kind == SPECIAL_NOT || (kind != SPECIAL_INVALID &&
				       kind != SPECIAL_METADATA && flags & PLAN_PRIVATE);
}

bool plan_reaches(const struct plan *p, uint8_t flags, const struct addr *a,
		  uint8_t protocol, uint16_t port)
{
	return plan_leads_to(flags, addr_special(a)) ||
	       plan_opens_addr(p, a, protocol, port);
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
	const bool all = is_all_spent(p);

	if (v.action != POLICY_ALLOW || !(all || is_spent(p, budget)))
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

struct plan_verdict plan_match_name(const struct plan *p, const struct dns_name *name)
{
	const struct layout_header *h = layout_header(p);
	const struct layout_slot *slots = layout_section(p, LAYOUT_SLOTS);
	const struct layout_next *next = layout_section(p, LAYOUT_NEXT);
	const struct layout_rule *rules = layout_section(p, LAYOUT_RULES);
	const uint8_t *names = layout_section(p, LAYOUT_NAMES);
	uint8_t labels[DNS_LABELS_MAX];
	size_t count = layout_labels(name, labels);
	const uint8_t *top;
	uint32_t best = PLAN_NO_RULE;
	uint64_t hash = 0;

	if (count == 0)
		return (struct plan_verdict){ .rule = PLAN_NO_RULE };
	top = name->bytes + labels[count - 1];
	if (name_is_number((struct text){ (const char *)top + 1, top[0] }))
		return (struct plan_verdict){ .rule = PLAN_NO_RULE };
	for (size_t i = count; i-- > 0 && count - i <= h->labels_max;) {
		const uint8_t *suffix = name->bytes + labels[i];
		const struct layout_slot *s;
		uint32_t rule;

		hash = layout_hash_label(&h->key, hash, suffix);
		s = &slots[layout_slot_find(slots, layout_count(p, LAYOUT_SLOTS), names,
					    hash, suffix, name->size - labels[i])];
		if (s->name == 0)
			continue;
		/* The first rule of this suffix that isn't over. */
		rule = i == 0 ? s->exact : s->below;
		while (plan_rule_is_over(p, rule))
			rule = i == 0 ? next[rule].exact : next[rule].below;
		best = MIN(best, rule);
	}
	if (best == PLAN_NO_RULE && h->every_name > 0)
		best = h->every_name - 1;
	if (best == PLAN_NO_RULE)
		return default_verdict(p);
	return within_budget(p,
			     (struct plan_verdict){
				     .action = rules[best].action,
				     .port_list = rules[best].port_list,
				     .flags = rules[best].flags,
				     .types = rules[best].types,
				     .rule = best,
			     },
			     rules[best].budget);
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

/* The entries that hold an address, the narrowest first. */
struct holders {
	struct addr addr;
	uint32_t next; /* 1 + index; 0: none is left */
	bool closed;   /* the address is closed as a single one */
};

static struct holders holders_of(const struct plan *p, const struct addr *a)
{
	struct holders h = { .addr = addr_unmapped(a) };

	h.next = prefix_before(p, &h.addr);
	return h;
}

/* The next entry that counts now; NULL: none does. Where the address is closed as a
 * single one, no allow of a wider prefix counts; entries for single addresses come
 * first. */
static const struct layout_prefix *next_holder(const struct plan *p, struct holders *h)
{
	const struct layout_prefix *all = layout_section(p, LAYOUT_PREFIXES);

	while (h->next > 0) {
		const struct layout_prefix *x = &all[h->next - 1];
		const bool single = prefix_is_single(&x->prefix);

		h->next = x->parent;
		if (!prefix_contains(&x->prefix, &h->addr) || is_over_now(p, x->end))
			continue;
		h->closed |= single && x->action == PLAN_CLOSED;
		if (single || !h->closed || action_now(p, x) != POLICY_ALLOW)
			return x;
	}
	return NULL;
}

struct plan_verdict plan_match_addr(const struct plan *p, const struct addr *a,
				    uint8_t protocol, uint16_t port)
{
	struct plan_verdict deny = { .rule = PLAN_NO_RULE }, allow = deny, ask = deny,
			    closed = deny;
	struct holders h = holders_of(p, a);
	const struct layout_prefix *x;
	uint8_t budget = 0;

	if (a->family == ADDR_NONE)
		return deny;
	while ((x = next_holder(p, &h)) != NULL) {
		const bool spent = is_spent(p, x->budget);
		struct plan_verdict *v = x->action == PLAN_CLOSED	       ? &closed
					 : x->action == POLICY_ASK	       ? &ask
					 : x->action == POLICY_ALLOW && !spent ? &allow
									       : &deny;

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
	if (closed.rule != PLAN_NO_RULE)
		return closed;
	if (ask.rule != PLAN_NO_RULE)
		return ask;
	allow = default_verdict(p);
	/* The default opens the default list and no other port. */
	if (port != 0 && !plan_port_list_has(p, 0, protocol, port))
		allow.action = POLICY_DENY;
	return allow;
}

struct plan_verdict plan_judge_addr(const struct plan *p, const struct addr *a,
				    uint8_t protocol, uint16_t port)
{
	struct plan_verdict v = plan_match_addr(p, a, protocol, port);

	if (v.action == POLICY_ASK)
		v.rule = PLAN_NO_RULE;
	return v;
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

struct plan_verdict plan_match_query(const struct plan *p, const struct dns_name *name)
{
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
	return action_now(p, x) == POLICY_ALLOW && !is_all_spent(p);
}

bool plan_names_addr(const struct plan *p, const struct addr *a)
{
	struct holders h = holders_of(p, a);
	const struct layout_prefix *x;

	while ((x = next_holder(p, &h)) != NULL)
		if (allows_now(p, x))
			return true;
	return false;
}

bool plan_closes(const struct plan *p, const struct addr *a)
{
	struct holders h = holders_of(p, a);
	const struct layout_prefix *x;

	while ((x = next_holder(p, &h)) != NULL)
		if (x->action == PLAN_CLOSED)
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

bool plan_opens_list(const struct plan *p, const struct addr *a, uint8_t list)
{
	size_t count;
	const struct plan_port_range *r = plan_port_list(p, list, &count);

	for (size_t n = 0; n < count; n++) {
		struct holders h = holders_of(p, a);
		const struct layout_prefix *x = next_holder(p, &h);

		/* One rule alone opens the whole range: rules that open it together don't
		 * count. */
		while (x && !(allows_now(p, x) && list_holds(p, x->port_list, &r[n])))
			x = next_holder(p, &h);
		if (!x)
			return false;
	}
	return count > 0;
}

/* A rule that allows just @a, which no form of another address stands for. */
static bool is_exactly(const struct plan *p, const struct layout_prefix *x,
		       const struct addr *a)
{
	return allows_now(p, x) && prefix_is_single(&x->prefix) &&
	       addr_equal(&x->prefix.addr, a);
}

bool plan_names_exactly(const struct plan *p, const struct addr *a, uint8_t protocol,
			uint16_t port)
{
	struct holders h = holders_of(p, a);
	const struct layout_prefix *x;

	while ((x = next_holder(p, &h)) != NULL)
		if (is_exactly(p, x, a) &&
		    plan_port_list_has(p, x->port_list, protocol, port))
			return true;
	return false;
}

bool plan_list_names_exactly(const struct plan *p, const struct addr *a, uint8_t list)
{
	struct holders h = holders_of(p, a);
	const struct layout_prefix *x;

	while ((x = next_holder(p, &h)) != NULL)
		if (is_exactly(p, x, a) && x->port_list == list)
			return true;
	return false;
}
