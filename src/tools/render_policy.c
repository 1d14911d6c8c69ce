// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Who decides for a name is the plan, as everywhere; so each name is resolved for the
 * rule that decides it, and its addresses take that rule's place as address rules with
 * its ports. Rules about names that deny have nothing left to do: what isn't resolved
 * isn't open. Address rules stay as they are, and a deny of them is absolute. */
#include "tools/render_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "policy/faults.h"
#include "policy/policy.h"
#include "sandbox/rebinding_check.h"

enum { PINS_MAX = 65536, DNS_PORT = 53 };

/* ---- what can't be had ---- */

static void check_verify(struct faults *f, const struct policy *p)
{
	const struct policy_place *at = &p->verify_at;

	if (p->verify != POLICY_VERIFY_TLS)
		return;
	faults_add(f, FAULT_ERROR, at->file ? at->file : "--verify", at->line, at->column,
		   at->file ? "verify" : "",
		   "'tls' needs a process that looks into connections; --verify dns "
		   "renders what can be had without");
}

/* Nobody is there who could count. */
static void check_on_denies(struct faults *f, const struct policy *p)
{
	const struct policy_place *at = &p->on_denies_at;

	if (p->on_denies.count > 0)
		faults_add(f, FAULT_WARNING, at->file, at->line, at->column, "on_denies",
			   "rules alone count nothing, ignoring: use weir run, sidecar "
			   "or daemon");
}

void render_policy_check(const struct policy_reader *r, struct policy *p)
{
	check_verify(r->faults, p);
	check_on_denies(r->faults, p);
	if (p->dns == POLICY_DNS_PINNED)
		return; /* has been checked as such */
	p->dns = POLICY_DNS_PINNED;
	if (!p->dns_at.file)
		p->dns_at.file = p->source_count > 0 ? p->sources[0] : "render";
	if (policy_check_pinned(r, p) < 0)
		return;
}

/* ---- names ---- */

struct resolving {
	const struct plan *plan;
	struct arena *arena;
	struct render_pins pins;
	size_t room;
	bool failed; /* memory is out, or there are too many */
};

static bool make_room(struct resolving *r)
{
	size_t room = r->room ? r->room * 2 : 64;
	struct render_pin *items;

	if (r->pins.count < r->room)
		return true;
	items = room <= PINS_MAX ? arena_array(r->arena, room, sizeof(*items)) : NULL;
	if (!items)
		return false;
	if (r->pins.count > 0)
		memcpy(items, r->pins.items, r->pins.count * sizeof(*items));
	r->pins.items = items;
	r->room = room;
	return true;
}

/* Whoever resolved has read hostile bytes: its word is held against the plan again. */
static void on_addr(void *data, const struct dns_name *name, const struct addr *a)
{
	struct resolving *r = data;
	struct plan_verdict v = plan_match_name(r->plan, name);

	if (v.action != POLICY_ALLOW || v.rule == PLAN_NO_RULE ||
	    rebinding_fault(r->plan, &v, a))
		return;
	if (!make_room(r)) {
		r->failed = true;
		return;
	}
	r->pins.items[r->pins.count++] =
		(struct render_pin){ .rule = v.rule, .name = *name, .addr = *a };
}

static void on_fault(void *data, const struct dns_name *name, const char *why,
		     bool has_some)
{
	struct resolving *r = data;
	struct plan_verdict v = plan_match_name(r->plan, name);
	char text[DNS_NAME_TEXT_SIZE];

	dns_name_format(name, text);
	if (v.flags & PLAN_REQUIRED && !has_some) {
		r->pins.missing++;
		log_error("cannot resolve %s: %s (the rule says required)", text, why);
		return;
	}
	log_warning("cannot resolve %s%s: %s", text, has_some ? " fully" : "", why);
}

static int by_rule(const void *a, const void *b)
{
	const struct render_pin *x = a, *y = b;

	if (x->rule != y->rule)
		return x->rule < y->rule ? -1 : 1;
	return addr_compare(&x->addr, &y->addr);
}

static bool has_names(const struct plan *plan)
{
	struct dns_name n;

	for (uint32_t at = 0; plan_name_next(plan, &at, &n);)
		if (plan_match_name(plan, &n).action == POLICY_ALLOW)
			return true;
	return false;
}

int render_policy_resolve(const struct render_spec *spec, const struct plan *plan,
			  render_resolve_fn *resolve, struct arena *arena,
			  struct render_pins *ret, struct err *err)
{
	struct resolving r = { .plan = plan, .arena = arena };
	const struct render_names names = {
		.plan = plan,
		.upstreams = spec->upstreams.items,
		.upstream_count = spec->upstreams.count,
		.data = &r,
		.on_addr = on_addr,
		.on_fault = on_fault,
	};
	int error = has_names(plan) ? resolve(&names, err) : 0;

	if (error < 0)
		return error;
	if (r.failed)
		return err_set(err, -E2BIG, "the names have too many addresses");
	if (r.pins.count > 0)
		qsort(r.pins.items, r.pins.count, sizeof(*r.pins.items), by_rule);
	*ret = r.pins;
	return 0;
}

/* ---- the policy of addresses ---- */

static struct rule addr_rule(const struct addr *a, const struct rule *from,
			     struct arena *arena)
{
	char text[ADDR_TEXT_SIZE];

	return (struct rule){
		.action = POLICY_ALLOW,
		.kind = TARGET_PREFIX,
		.prefix = { .addr = *a, .bits = (uint8_t)(8 * addr_size(a)) },
		.ports = from->ports,
		.flags = from->flags & PLAN_PORTS_LISTED,
		.target = arena_text(arena, text_of(addr_format(a, text))),
		.comment = from->comment,
		.file = from->file,
		.line = from->line,
		.column = from->column,
	};
}

static void add_resolvers(const struct render_spec *spec, struct arena *arena,
			  struct policy *to)
{
	static const struct plan_port_range ports[] = {
		{ .protocol = IPPROTO_TCP, .from = DNS_PORT, .to = DNS_PORT },
		{ .protocol = IPPROTO_UDP, .from = DNS_PORT, .to = DNS_PORT },
	};
	const struct rule from = { .ports = { ports, ARRAY_SIZE(ports) },
				   .flags = PLAN_PORTS_LISTED,
				   .comment = "",
				   .file = "--resolver" };

	for (size_t i = 0; i < spec->resolver_count; i++)
		to->rules[to->count++] = addr_rule(&spec->resolvers[i], &from, arena);
}

int render_policy_fix(const struct policy *policy, const struct render_pins *pins,
		      const struct render_spec *spec, struct arena *arena,
		      uint8_t **ret_bytes, struct plan *ret, struct err *err)
{
	size_t room = policy->count + pins->count + spec->resolver_count + 1;
	struct policy fixed = { .rules = arena_array(arena, room, sizeof(struct rule)) };
	size_t pin = 0, size;
	int r;

	if (!fixed.rules)
		return err_set(err, -ENOMEM, "out of memory");
	add_resolvers(spec, arena, &fixed);
	for (uint32_t i = 0; i < policy->count; i++) {
		const struct rule *rule = &policy->rules[i];

		if (rule->kind == TARGET_PREFIX)
			fixed.rules[fixed.count++] = *rule;
		for (; pin < pins->count && pins->items[pin].rule == i; pin++)
			fixed.rules[fixed.count++] =
				addr_rule(&pins->items[pin].addr, rule, arena);
	}
	for (size_t i = 0; i < fixed.count; i++)
		if (!fixed.rules[i].target)
			return err_set(err, -ENOMEM, "out of memory");
	r = policy_compile(&fixed, ret_bytes, &size, err);
	if (r == -ENOMEM && err->code == 0)
		err_set(err, r, "out of memory");
	return r < 0 ? r : plan_open(*ret_bytes, size, ret, err);
}
