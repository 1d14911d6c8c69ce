// SPDX-License-Identifier: Apache-2.0
/* policy_compile() - rules in order become the block that policy/layout.h describes.
 *
 * HOW IT WORKS
 * The written rules, then the implicit ones, are numbered; every section's size is
 * known or bounded by then. The names' section comes last, because names that
 * repeat make it shorter than its bound. The key of the name table is a hash of all
 * names: the same policy gives the same bytes, and nobody who wrote some of the names
 * can choose where they fall. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/special.h"
#include "policy/layout.h"
#include "policy/limits.h"
#include "policy/plan.h"
#include "policy/policy.h"

/* -- the implicit denies ------------------------------------------------------------ */

/* Cloud metadata addresses are refused unless a rule names the very address: an allow
 * of a range around it doesn't. Under `defaultAction: allow` and `ask` link-local
 * addresses that no rule allows, and the public DoH resolvers of profiles/doh.txt, are
 * refused as well, unless a rule names them or the policy leaves them open (open_doh).
 * The resolvers are refused, too, where a rule is about every name.
 *
 * A rule that opens such an address opens its own ports alone: the deny stays behind it
 * (PLAN_CLOSED). Where there is no such rule the deny is one as of a person. */

static const char *const metadata_names[] = { "metadata.google.internal",
					      "metadata.goog" };
static const char *const link_local[] = { "169.254.0.0/16", "fe80::/10" };

bool policy_is_metadata(const struct rule *r)
{
	struct dns_name n;

	for (size_t i = 0; i < ARRAY_SIZE(metadata_names); i++)
		if (dns_name_parse(text_of(metadata_names[i]), &n) == 0 &&
		    (dns_name_is_within(&r->name, &n) ||
		     (r->kind != TARGET_NAME && dns_name_is_within(&n, &r->name))))
			return true;
	return false;
}

struct implicit {
	const struct policy *policy;
	struct arena *arena;
	const struct rule **allows; /* the policy's rules that allow addresses */
	size_t allow_count;
	struct policy denies; /* its rules alone */
};

/* Something but a rule for just this address would open it: the default action, or an
 * allow around it or around its translated address. */
static bool is_open(const struct implicit *b, const struct addr *a)
{
	const struct prefix self = prefix_of(a, 8 * (unsigned int)addr_size(a));
	const struct addr other = a->family == ADDR_V4 ? prefix_translated(&self).addr
						       : *a;

	if (b->policy->default_action == POLICY_ALLOW)
		return true;
	for (size_t i = 0; i < b->allow_count; i++) {
		const struct prefix *p = &b->allows[i]->prefix;
		const struct addr *inside = p->addr.family == a->family ? a : &other;

		/* Most rules are of another family, or begin otherwise. */
		if (p->addr.family == inside->family && !prefix_is_single(p) &&
		    (p->bits < 8 || p->addr.bytes[0] == inside->bytes[0]) &&
		    prefix_contains(p, inside))
			return true;
	}
	return false;
}

/* @r has its target, unless memory was out. */
static int add_rule(struct implicit *b, const struct rule *r)
{
	return r->target ? policy_add_rule(&b->denies, b->arena, r) : -ENOMEM;
}

/* A deny of something yet to be named. */
static struct rule deny_of(enum rule_target kind, const char *file, const char *why)
{
	return (struct rule){ .action = POLICY_DENY,
			      .kind = kind,
			      .flags = PLAN_IMPLICIT,
			      .file = file,
			      .comment = why };
}

/* Rules open @p: of an address those for just this one; of a range those inside or
 * around it as well. */
static bool has_rules(const struct implicit *b, const struct prefix *p)
{
	for (size_t i = 0; i < b->allow_count; i++) {
		const struct prefix *a = &b->allows[i]->prefix;

		if (layout_prefix_holds(p, a) ||
		    (!prefix_is_single(p) && layout_prefix_holds(a, p)))
			return true;
	}
	return false;
}

/* Deny @p but for what rules open of it. */
static int add_prefix(struct implicit *b, struct prefix p, const char *file,
		      const char *why)
{
	struct rule deny = deny_of(TARGET_PREFIX, file, why);

	/* The mark of what is closed (PLAN_CLOSED): no deny has ports. */
	deny.ports.with_default = has_rules(b, &p);
	deny.prefix = p;
	deny.target = arena_text(b->arena, text_of(PREFIX_SHOWN(&p)));
	return add_rule(b, &deny);
}

static int add_addr(struct implicit *b, const struct addr *a, const char *file,
		    const char *why)
{
	return add_prefix(b, prefix_of(a, 8 * (unsigned int)addr_size(a)), file, why);
}

/* Implicit rules come last, so a rule that names the name decides before them. */
static int add_name(struct implicit *b, struct text name, const char *file,
		    const char *why)
{
	struct rule r = deny_of(TARGET_WITHIN, file, why);

	if (dns_name_parse(name, &r.name) < 0)
		return 0;
	r.target = arena_printf(b->arena, "**.%.*s", (int)name.len, name.ptr);
	return add_rule(b, &r);
}

static int add_metadata(struct implicit *b)
{
	static const char why[] =
		"a cloud's metadata is open only to a rule that names it";
	static const char link[] = "a link-local address is open only to a rule";
	struct addr a;
	int r = 0;

	for (size_t i = 0; r == 0 && addr_metadata(i, &a); i++) {
		if (is_open(b, &a))
			r = add_addr(b, &a, "built in", why);
	}
	if (b->policy->default_action == POLICY_DENY)
		return r;
	/* Clouds put other services there as well: resolvers, time, host agents. */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(link_local); i++) {
		struct prefix p;

		if (prefix_parse(link_local[i], strlen(link_local[i]), true, &p))
			r = add_prefix(b, p, "built in", link);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(metadata_names); i++)
		r = add_name(b, text_of(metadata_names[i]), "built in", why);
	return r;
}

static int add_doh(struct implicit *b)
{
	static const char why[] =
		"a public DoH resolver is open only to a rule that names it";
	struct text list = policy_embedded_doh(), line;
	struct addr a;
	int r = 0;

	while (r == 0 && text_split(&list, '\n', &line)) {
		struct text entry = text_without_comment(line);

		if (entry.len == 0)
			continue;
		if (addr_parse(entry.ptr, entry.len, &a))
			r = add_addr(b, &a, "doh.txt", why);
		else
			r = add_name(b, entry, "doh.txt", why);
	}
	return r;
}

/* The rules to append to those of @policy. They live in @arena. 0 or -ENOMEM. */
static int make_implicit(const struct policy *policy, struct arena *arena,
			 struct rule **ret, size_t *ret_count)
{
	static const char why[] =
		"these addresses stand for names that aren't open, and are Weir's own";
	struct implicit b = { .policy = policy, .arena = arena };
	size_t sinkholes;
	int r;

	b.allows = arena_array(arena, policy->count + 1, sizeof(*b.allows));
	if (!b.allows)
		return -ENOMEM;
	for (size_t i = 0; i < policy->count; i++)
		if (policy->rules[i].kind == TARGET_PREFIX &&
		    policy->rules[i].action == POLICY_ALLOW)
			b.allows[b.allow_count++] = &policy->rules[i];
	r = add_metadata(&b);
	if (r == 0 && (policy->default_action != POLICY_DENY || policy->every_name) &&
	    !policy->open_doh)
		r = add_doh(&b);
	/* No rule opens a sinkhole: an address deny is absolute. */
	sinkholes = policy->denied_names == POLICY_DENIED_REFUSE || policy_asks(policy)
			    ? SINKHOLES
			    : 0;
	for (size_t i = 0; r == 0 && i < sinkholes; i++) {
		struct rule rule = deny_of(TARGET_PREFIX, "built in", why);

		rule.prefix = sinkhole_prefix(i);
		rule.target = arena_printf(arena, "%s/%u", ADDR_SHOWN(&rule.prefix.addr),
					   rule.prefix.bits);
		r = add_rule(&b, &rule);
	}
	if (r < 0)
		return r;
	*ret = b.denies.rules;
	*ret_count = b.denies.count;
	return 0;
}

/* -- the block ---------------------------------------------------------------------- */

enum { PORTS_MAX = PLAN_PORT_LISTS_MAX * PLAN_PORT_RANGES_MAX };

struct builder {
	const struct policy *policy;
	struct arena arena;	   /* what dies with the call */
	const struct rule **rules; /* written, then implicit, then that of every name */
	size_t count, written;	   /* without that of every name */
	size_t name_count;	   /* rules that name a name */
	size_t prefix_count;	   /* of rules that name an address */
	struct layout_port_list lists[PLAN_PORT_LISTS_MAX];
	size_t list_count;
	struct plan_port_range ports[PORTS_MAX];
	size_t port_count;
	uint8_t *list_of, *named_of; /* per rule */
	int64_t ends[PLAN_ENDS_MAX]; /* ascending */
	size_t end_count;
	struct plan_budget budgets[PLAN_BUDGETS_MAX];
	size_t budget_count;
	uint64_t text_size, name_size;
	struct layout_prefix *prefixes;
	uint32_t *tops;
	size_t top_count;
	uint8_t *bytes; /* owned until it is given away */
	size_t size;
	/* What stands behind the first label of the last name; borrowed from its rule. */
	struct text parent;
	uint64_t parent_hash;
};

static void clean_builder(struct builder *b)
{
	arena_done(&b->arena);
	free(b->bytes);
}

/* Find or add a list. Return: its number, or -E2BIG. */
static int list_intern(struct builder *b, const struct plan_port_range *r, size_t count)
{
	for (size_t i = 0; i < b->list_count; i++) {
		if (b->lists[i].count == count &&
		    memcmp(b->ports + b->lists[i].first, r, count * sizeof(*r)) == 0)
			return (int)i;
	}
	if (b->list_count == PLAN_PORT_LISTS_MAX || count > PLAN_PORT_RANGES_MAX)
		return -E2BIG;
	b->lists[b->list_count] =
		(struct layout_port_list){ .first = (uint32_t)b->port_count,
					   .count = (uint32_t)count };
	memcpy(b->ports + b->port_count, r, count * sizeof(*r));
	b->port_count += count;
	return (int)b->list_count++;
}

static int intern_lists(struct builder *b, struct err *err)
{
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX + RULE_DEFAULT_RANGES];
	size_t count = rule_ports_default(b->policy->verify, ranges);

	b->list_of = arena_array(&b->arena, b->count + 1, sizeof(*b->list_of));
	b->named_of = arena_array(&b->arena, b->count + 1, sizeof(*b->named_of));
	if (!b->list_of || !b->named_of)
		return -ENOMEM;
	if (list_intern(b, ranges, count) < 0)
		return -E2BIG;
	for (size_t i = 0; i < b->count; i++) {
		const struct rule *r = b->rules[i];
		int named = 0, list = 0;

		if (r->action != POLICY_DENY && r->ports.count > 0)
			list = named = list_intern(b, r->ports.ranges, r->ports.count);
		/* The rule's ports are open besides the default ones. */
		if (r->action != POLICY_DENY && r->ports.count > 0 &&
		    r->ports.with_default) {
			count = rule_ports_default(b->policy->verify, ranges);
			memcpy(ranges + count, r->ports.ranges,
			       r->ports.count * sizeof(*ranges));
			count = rule_ports_normalise(ranges, count + r->ports.count);
			list = list_intern(b, ranges, count);
		}
		if (list < 0 || named < 0)
			return err_set(err, -E2BIG,
				       "more than %d different lists of ports",
				       PLAN_PORT_LISTS_MAX - 1);
		b->list_of[i] = (uint8_t)list;
		b->named_of[i] = (uint8_t)named;
	}
	return 0;
}

/* 1 + index of @until_ms, or of the first later one; 0: no end. */
static uint8_t end_index(const struct builder *b, int64_t until_ms)
{
	size_t i = 0;

	if (until_ms == 0)
		return 0;
	while (i < b->end_count && b->ends[i] < until_ms)
		i++;
	return (uint8_t)(i + 1);
}

static int collect_ends(struct builder *b, struct err *err)
{
	for (size_t i = 0; i < b->count; i++) {
		const int64_t until_ms = b->rules[i]->until_ms;
		const size_t at = end_index(b, until_ms);

		if (at == 0 || (at <= b->end_count && b->ends[at - 1] == until_ms))
			continue;
		if (until_ms < 0 || b->end_count == PLAN_ENDS_MAX)
			return err_set(err, -E2BIG,
				       "more than %d different ends of rules",
				       PLAN_ENDS_MAX);
		memmove(&b->ends[at], &b->ends[at - 1],
			(b->end_count - (at - 1)) * sizeof(*b->ends));
		b->ends[at - 1] = until_ms;
		b->end_count++;
	}
	return 0;
}

/* 1 + the index of the budget that the rule has, or shares; 0: it has none. */
static uint8_t budget_index(const struct builder *b, size_t rule)
{
	const size_t shares = b->rules[rule]->shares;
	size_t i = 0;

	while (i < b->budget_count && b->budgets[i].rule != rule &&
	       (shares == 0 || b->budgets[i].rule == PLAN_NO_RULE ||
		b->rules[b->budgets[i].rule]->shares != shares))
		i++;
	return i < b->budget_count ? (uint8_t)(i + 1) : 0;
}

/* A rule that a search domain has made of one without a dot, or of a pattern. */
static bool is_completed(const struct rule *r)
{
	return r->shares != 0 && r->flags & PLAN_COMPLETED;
}

static int add_budget(struct builder *b, const struct plan_budget *budget, uint32_t rule,
		      struct err *err)
{
	if (budget->sent == 0 && budget->received == 0)
		return 0;
	if (b->budget_count == PLAN_BUDGETS_MAX)
		return err_set(err, -E2BIG, "more than %d budgets", PLAN_BUDGETS_MAX);
	b->budgets[b->budget_count] = *budget;
	b->budgets[b->budget_count++].rule = rule;
	return 0;
}

/* What is denied is denied by way of a translator as well. */
static bool is_denied_v4(const struct rule *r)
{
	return r->kind == TARGET_PREFIX && r->action == POLICY_DENY &&
	       r->prefix.addr.family == ADDR_V4;
}

static int number_rules(struct builder *b)
{
	struct rule *implicit;
	size_t extra;
	int r = make_implicit(b->policy, &b->arena, &implicit, &extra);

	if (r < 0)
		return r;
	b->written = b->policy->count + extra;
	b->count = b->written + (b->policy->every_name != NULL);
	b->rules = arena_array(&b->arena, b->count + 1, sizeof(*b->rules));
	if (!b->rules)
		return -ENOMEM;
	for (size_t i = 0; i < b->count; i++) {
		const struct rule *rule = i < b->policy->count ? &b->policy->rules[i]
					  : i < b->written
						  ? &implicit[i - b->policy->count]
						  : b->policy->every_name;

		b->rules[i] = rule;
		b->text_size += strlen(rule->target) + strlen(rule->comment) + 2;
		if (i == 0 || rule->file != b->rules[i - 1]->file)
			b->text_size += strlen(rule->file) + 1;
		if (rule->kind == TARGET_PREFIX)
			b->prefix_count += is_denied_v4(rule) ? 2 : 1;
		else
			b->name_count++;
		b->name_size += (uint64_t)rule->name.size + 1;
	}
	return 0;
}

static int prefix_order(const void *x, const void *y)
{
	const struct layout_prefix *a = x, *b = y;
	int r = layout_prefix_compare(a, b);

	return r != 0 ? r : a->rule < b->rule ? -1 : a->rule > b->rule;
}

/* An earlier prefix that holds @x says the same: the kernel doesn't need @x. A closed
 * address says more than a closed range. */
static bool is_covered(const struct builder *b, const struct layout_prefix *x)
{
	if (x->action == PLAN_CLOSED)
		return false;
	for (uint32_t i = x->parent; i > 0; i = b->prefixes[i - 1].parent) {
		const struct layout_prefix *outer = &b->prefixes[i - 1];

		if (outer->action == x->action && outer->port_list == x->port_list &&
		    /* It lasts at least as long. */
		    (outer->end == 0 || (x->end != 0 && outer->end >= x->end)) &&
		    (x->budget == 0 || x->budget == outer->budget))
			return true;
	}
	return false;
}

/* In sorted order a prefix's holders are the ones before it that still reach it: the
 * last entry, or one of that entry's parents. */
static void link_prefixes(struct builder *b)
{
	for (uint32_t i = 0; i < b->prefix_count; i++) {
		uint32_t up = i;

		while (up > 0 && !layout_prefix_holds(&b->prefixes[up - 1].prefix,
						      &b->prefixes[i].prefix))
			up = b->prefixes[up - 1].parent;
		b->prefixes[i].parent = up;
	}
}

/* By action, then list, then address. One pass per pair keeps the sorted order. Of what
 * asks the kernel knows nothing. */
static void collect_tops(struct builder *b)
{
	for (int action = POLICY_DENY; action <= PLAN_CLOSED; action++) {
		for (size_t list = 0; list < b->list_count; list++) {
			for (uint32_t i = 0; i < b->prefix_count; i++) {
				const struct layout_prefix *x = &b->prefixes[i];

				if (x->action == action && action != POLICY_ASK &&
				    x->port_list == list && !is_covered(b, x))
					b->tops[b->top_count++] = i;
			}
		}
	}
}

static int build_prefixes(struct builder *b)
{
	size_t n = 0;
	size_t used = 0;

	b->prefixes = arena_array(&b->arena, b->prefix_count + 1, sizeof(*b->prefixes));
	b->tops = arena_array(&b->arena, b->prefix_count + 1, sizeof(*b->tops));
	if (!b->prefixes || !b->tops)
		return -ENOMEM;
	for (size_t i = 0; i < b->count; i++) {
		const struct rule *r = b->rules[i];
		const bool closes = r->action == POLICY_DENY &&
				    r->flags & PLAN_IMPLICIT && r->ports.with_default;

		if (r->kind != TARGET_PREFIX)
			continue;
		b->prefixes[n++] = (struct layout_prefix){
			.prefix = r->prefix,
			.action = closes ? PLAN_CLOSED : (uint8_t)r->action,
			.port_list = b->list_of[i],
			.flags = r->flags,
			.end = end_index(b, r->until_ms),
			.budget = budget_index(b, i),
			.rule = (uint32_t)i,
		};
		if (!is_denied_v4(r))
			continue;
		b->prefixes[n] = b->prefixes[n - 1];
		b->prefixes[n++].prefix = prefix_translated(&r->prefix);
	}
	/* Lists of prefixes mostly come sorted. */
	for (size_t i = 1; i < n; i++)
		if (prefix_order(&b->prefixes[i - 1], &b->prefixes[i]) > 0) {
			qsort(b->prefixes, n, sizeof(*b->prefixes), prefix_order);
			break;
		}
	/* Rules that say the same of the same prefix become one: the first, with the
	 * flags of all. */
	for (size_t i = 0; i < b->prefix_count; i++) {
		struct layout_prefix *last = used > 0 ? &b->prefixes[used - 1] : NULL;

		if (last && layout_prefix_compare(last, &b->prefixes[i]) == 0)
			last->flags |= b->prefixes[i].flags;
		else
			b->prefixes[used++] = b->prefixes[i];
	}
	b->prefix_count = used;
	link_prefixes(b);
	collect_tops(b);
	return 0;
}

static int lay_out(struct builder *b, struct err *err)
{
	uint64_t counts[LAYOUT_SECTION_COUNT] = {
		/* Two slots in three are used at most, and one is always empty. */
		[LAYOUT_SLOTS] = (uint64_t)b->name_count * 3 / 2 + 1,
		[LAYOUT_RULES] = b->count,
		[LAYOUT_PREFIXES] = b->prefix_count,
		[LAYOUT_TOPS] = b->top_count,
		[LAYOUT_ENDS] = b->end_count,
		[LAYOUT_NEXT] = b->end_count > 0 ? b->count : 0,
		[LAYOUT_BUDGETS] = b->budget_count,
		[LAYOUT_PORT_LISTS] = b->list_count,
		[LAYOUT_PORTS] = b->port_count,
		[LAYOUT_TEXTS] = b->text_size + 1,
		[LAYOUT_NAMES] = b->name_size,
	};
	uint64_t at = (sizeof(struct layout_header) + 7) & ~UINT64_C(7);
	struct layout_header *h;
	uint64_t offsets[LAYOUT_SECTION_COUNT];

	for (size_t i = 0; i < LAYOUT_SECTION_COUNT; i++) {
		offsets[i] = at;
		at = (at + counts[i] * layout_item_size(i) + 7) & ~UINT64_C(7);
	}
	if (at > LAYOUT_SIZE_MAX)
		return err_set(err, -E2BIG, "the policy is too large: %zu rules",
			       b->count);
	b->bytes = calloc(1, at);
	if (!b->bytes)
		return -ENOMEM;
	b->size = at;
	h = (struct layout_header *)b->bytes;
	for (size_t i = 0; i < LAYOUT_SECTION_COUNT; i++)
		h->sections[i] = (struct layout_extent){ .offset = (uint32_t)offsets[i],
							 .count = (uint32_t)counts[i] };
	return 0;
}

static void *section(struct builder *b, enum layout_section which)
{
	return b->bytes + ((struct layout_header *)b->bytes)->sections[which].offset;
}

static void write_header(struct builder *b)
{
	struct layout_header *h = (struct layout_header *)b->bytes;
	const struct policy *p = b->policy;

	h->magic = LAYOUT_MAGIC;
	h->default_action = (uint8_t)p->default_action;
	h->verify = (uint8_t)p->verify;
	h->dns = (uint8_t)p->dns;
	h->require_full_isolation = p->require_full_isolation;
	h->denied_names = (uint8_t)p->denied_names;
	h->asks = policy_asks(p);
	h->repin_sec = (uint32_t)(p->repin_ms / 1000);
	h->on_denies_count = p->on_denies.count;
	h->on_denies_window_sec = p->on_denies.window_sec;
	h->on_denies_action = p->on_denies.action;
	h->every_name = p->every_name ? (uint32_t)b->count : 0;
	for (size_t i = 0; i < LIMIT_COUNT; i++)
		h->limits[i] = p->limits[i] != 0 ? p->limits[i] : limit_info(i)->value;
	memcpy(section(b, LAYOUT_PREFIXES), b->prefixes,
	       b->prefix_count * sizeof(*b->prefixes));
	memcpy(section(b, LAYOUT_TOPS), b->tops, b->top_count * sizeof(*b->tops));
	memcpy(section(b, LAYOUT_ENDS), b->ends, b->end_count * sizeof(*b->ends));
	memcpy(section(b, LAYOUT_BUDGETS), b->budgets,
	       b->budget_count * sizeof(*b->budgets));
	memcpy(section(b, LAYOUT_PORT_LISTS), b->lists,
	       b->list_count * sizeof(*b->lists));
	memcpy(section(b, LAYOUT_PORTS), b->ports, b->port_count * sizeof(*b->ports));
}

/* Append @text behind @used. The empty text stands at 0. */
static uint32_t write_text(char *texts, size_t *used, const char *text)
{
	size_t size = strlen(text) + 1;
	size_t at = *used;

	if (size == 1)
		return 0;
	memcpy(texts + at, text, size);
	*used += size;
	return (uint32_t)at;
}

static void write_rules(struct builder *b)
{
	struct layout_rule *out = section(b, LAYOUT_RULES);
	char *texts = section(b, LAYOUT_TEXTS);
	size_t used = 1;

	for (size_t i = 0; i < b->count; i++) {
		const struct rule *r = b->rules[i];
		bool same_file = i > 0 && r->file == b->rules[i - 1]->file;

		out[i] = (struct layout_rule){
			.action = (uint8_t)r->action,
			.port_list = b->list_of[i],
			.named_list = b->named_of[i],
			.flags = r->flags,
			.types = r->types,
			.end = end_index(b, r->until_ms),
			.budget = budget_index(b, i),
			.line = r->line,
			.column = r->column,
			.target = write_text(texts, &used, r->target),
			.file = same_file ? out[i - 1].file
					  : write_text(texts, &used, r->file),
			.comment = write_text(texts, &used, r->comment),
		};
	}
}

/* The slot of @n: the one that has it, or the first empty one. */
static struct layout_slot *slot_for(struct builder *b, uint64_t hash,
				    const struct dns_name *n)
{
	struct layout_slot *slots = section(b, LAYOUT_SLOTS);
	const uint32_t count =
		((struct layout_header *)b->bytes)->sections[LAYOUT_SLOTS].count;

	return &slots[layout_slot_find(slots, count, section(b, LAYOUT_NAMES), hash,
				       n->bytes, n->size)];
}

/* A name mostly has the parent of the one before. */
static uint64_t hash_of(struct builder *b, const struct dns_name *n)
{
	const struct layout_header *h = (const struct layout_header *)b->bytes;
	const size_t first = 1u + n->bytes[0];
	const struct text parent = { (const char *)n->bytes + first, n->size - first };
	uint8_t labels[DNS_LABELS_MAX];

	if (!text_same(parent, b->parent)) {
		b->parent = parent;
		b->parent_hash = 0;
		for (size_t i = layout_labels(n, labels); i-- > 1;)
			b->parent_hash = layout_hash_label(&h->key, b->parent_hash,
							   n->bytes + labels[i]);
	}
	return layout_hash_label(&h->key, b->parent_hash, n->bytes);
}

static void write_names(struct builder *b)
{
	struct layout_header *h = (struct layout_header *)b->bytes;
	uint8_t *names = section(b, LAYOUT_NAMES);
	struct hash_key key = { 0 };
	uint32_t used = 0;

	for (size_t i = 0; i < b->count; i++) {
		uint64_t hash =
			hash_bytes(&key, b->rules[i]->name.bytes, b->rules[i]->name.size);

		key = (struct hash_key){ key.k1 ^ hash, key.k0 + hash };
	}
	h->key = key;
	for (uint32_t i = 0; i < b->written; i++) {
		const struct rule *r = b->rules[i];
		struct layout_slot *s;
		uint64_t hash;

		if (r->kind == TARGET_PREFIX)
			continue;
		hash = hash_of(b, &r->name);
		s = slot_for(b, hash, &r->name);
		h->labels_max = MAX(h->labels_max, (uint32_t)r->name.labels);
		if (s->name == 0) {
			*s = (struct layout_slot){ (uint32_t)(hash >> 32), used + 1,
						   PLAN_NO_RULE, PLAN_NO_RULE };
			names[used] = r->name.size;
			memcpy(names + used + 1, r->name.bytes, r->name.size);
			used += (uint32_t)r->name.size + 1;
		}
		if (r->kind != TARGET_BELOW)
			s->exact = MIN(s->exact, i);
		if (r->kind != TARGET_NAME)
			s->below = MIN(s->below, i);
	}
	h->sections[LAYOUT_NAMES].count = used;
	b->size = h->sections[LAYOUT_NAMES].offset + used;
	h->size = (uint32_t)b->size;
}

/* From the last rule to the first, so that each finds the one behind it in its slot. The
 * first one of each slot ends up there again. */
static void write_next(struct builder *b)
{
	struct layout_slot *slots = section(b, LAYOUT_SLOTS);
	struct layout_next *next = section(b, LAYOUT_NEXT);
	const struct layout_header *h = (const struct layout_header *)b->bytes;

	for (uint32_t i = 0; i < h->sections[LAYOUT_SLOTS].count; i++)
		slots[i].exact = slots[i].below = PLAN_NO_RULE;
	for (uint32_t i = (uint32_t)b->count; i-- > 0;) {
		const struct rule *r = b->rules[i];
		struct layout_slot *s;

		next[i] = (struct layout_next){ PLAN_NO_RULE, PLAN_NO_RULE };
		if (r->kind == TARGET_PREFIX || i >= b->written)
			continue;
		s = slot_for(b, hash_of(b, &r->name), &r->name);
		if (r->kind != TARGET_BELOW) {
			next[i].exact = s->exact;
			s->exact = i;
		}
		if (r->kind != TARGET_NAME) {
			next[i].below = s->below;
			s->below = i;
		}
	}
}

int policy_compile(const struct policy *policy, uint8_t **ret, size_t *ret_size,
		   struct err *err)
{
	CLEAN(builder) struct builder b = { .policy = policy };
	int r = number_rules(&b);

	if (r == 0)
		r = intern_lists(&b, err);
	if (r == 0)
		r = collect_ends(&b, err);
	for (size_t i = 0; r == 0 && i < b.count; i++)
		if (!is_completed(b.rules[i]))
			r = add_budget(&b, &b.rules[i]->budget, (uint32_t)i, err);
	if (r == 0)
		r = add_budget(&b, &policy->budget, PLAN_NO_RULE, err);
	if (r == 0)
		r = build_prefixes(&b);
	if (r == 0)
		r = lay_out(&b, err);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	if (r < 0)
		return r;
	write_header(&b);
	write_rules(&b);
	write_names(&b);
	if (b.end_count > 0)
		write_next(&b);
	*ret_size = b.size;
	*ret = TAKE_PTR(b.bytes);
	return 0;
}
