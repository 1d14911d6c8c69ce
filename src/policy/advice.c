// SPDX-License-Identifier: Apache-2.0
#include "policy/advice.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "policy/policy.h"
#include "policy/sinkhole.h"

enum { DNS_PORT = 53 };

struct advice {
	struct rule rule;
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX + 1];
	char target[EVENT_NAME_SIZE];
};

/* ---- what may be advised ---- */

/* Nobody is led to open a metadata service, a loopback or a whole network's address. */
static bool is_advisable(const struct addr *a)
{
	switch (addr_special(a)) {
	case SPECIAL_NOT:
	case SPECIAL_PRIVATE:
	case SPECIAL_SHARED:
	case SPECIAL_RESERVED:
		return true;
	default:
		return false;
	}
}

/* ---- the rule ---- */

static bool add_port(struct advice *a, uint8_t protocol, uint16_t port)
{
	struct rule_ports *ports = &a->rule.ports;

	if (ports->count == PLAN_PORT_RANGES_MAX)
		return false;
	a->ranges[ports->count++] = (struct plan_port_range){ protocol, 0, port, port };
	ports->count = rule_ports_normalise(a->ranges, ports->count);
	return true;
}

/* A target that an option can name: nothing that a shell or the option's own syntax
 * would read as something else. */
static bool set_name(struct advice *a, const char *name)
{
	struct err ignored = { 0 };

	snprintf(a->target, sizeof(a->target), "%s", name);
	return name[0] != '-' &&
	       rule_target_parse(text_of(a->target), &a->rule, &ignored) == 0 &&
	       a->rule.kind == TARGET_NAME;
}

/* What the policy opens for the name by now. */
static void keep(struct advice *a, const struct plan *p, const struct plan_verdict *v)
{
	const struct plan_port_range *named;
	const struct plan_rule r = plan_rule(p, v->rule);
	size_t count = 0;

	a->rule.types = v->types;
	a->rule.flags = v->flags & (PLAN_PRIVATE | PLAN_RAW | PLAN_REQUIRED);
	a->rule.ports.with_default = true;
	if (v->rule == PLAN_NO_RULE || !(r.flags & PLAN_PORTS_LISTED))
		return;
	named = plan_port_list(p, r.named_list, &count);
	memcpy(a->ranges, named, count * sizeof(*named));
	a->rule.ports.count = count;
	a->rule.ports.with_default = r.named_list != r.port_list;
}

static bool is_temporary(const struct plan *p, const struct plan_verdict *v)
{
	return v->rule != PLAN_NO_RULE && plan_rule(p, v->rule).until_ms != 0;
}

static bool has_budget(const struct plan *p, const struct plan_verdict *v)
{
	return v->rule != PLAN_NO_RULE && plan_budget_of(p, v->rule) >= 0;
}

static bool advise_name(struct advice *a, const struct plan *p, const struct event *e)
{
	const bool has_port = e->layer != EVENT_DNS;
	const struct addr *remote = &e->remote;
	struct plan_verdict v;

	if (!set_name(a, e->name))
		return false;
	v = plan_match_name(p, &a->rule.name);
	/* What ends would stay open with the new rule: that is about its own port alone.
	 */
	if (v.action == POLICY_ALLOW && is_temporary(p, &v) && !has_port)
		return false;
	/* A budget is its rule's: whatever the new rule opened would be free of it. */
	if (v.action == POLICY_ALLOW && has_budget(p, &v))
		return false;
	if (v.action == POLICY_ALLOW && !is_temporary(p, &v))
		keep(a, p, &v);
	else if (v.rule != PLAN_NO_RULE && v.action == POLICY_DENY)
		return false;
	if (has_port && !add_port(a, e->protocol, e->port))
		return false;
	if (!has_port)
		a->rule.types |= plan_type_bit(e->query_type);
	if (plan_dns(p) == POLICY_DNS_PINNED && a->rule.types != 0)
		return false;
	if (remote->family != ADDR_NONE && !sinkhole_has(remote) &&
	    addr_special(remote) != SPECIAL_NOT &&
	    !(has_port ? plan_opens_addr(p, remote, e->protocol, e->port)
		       : plan_names_addr(p, remote)))
		a->rule.flags |= PLAN_PRIVATE;
	return true;
}

static bool make(struct advice *a, const struct plan *p, const struct event *e)
{
	/* What stands for a denied name is no address of it. */
	const bool has_addr = e->remote.family != ADDR_NONE &&
			      !(e->name[0] && sinkhole_has(&e->remote));

	a->rule.ports.ranges = a->ranges;
	if (has_addr && (!is_advisable(&e->remote) || plan_denies_addr(p, &e->remote)))
		return false;
	if (e->layer == EVENT_DNS)
		return e->name[0] && advise_name(a, p, e);
	if (e->port == 0 || (e->protocol != IPPROTO_TCP && e->protocol != IPPROTO_UDP))
		return false;
	/* No name opens the port of name servers. */
	if (e->name[0] && e->port != DNS_PORT)
		return advise_name(a, p, e);
	if (!has_addr)
		return false;
	addr_format(&e->remote, a->target);
	a->rule.kind = TARGET_PREFIX;
	return add_port(a, e->protocol, e->port);
}

/* A plan has PLAN_PORT_LISTS_MAX lists, and a rule with other ports needs one of its own,
 * or two. */
static bool lists_fit(const struct plan *p, const struct rule_ports *ports)
{
	const size_t lists = plan_port_list_count(p);

	if (ports->count == 0 || lists + 1 + ports->with_default <= PLAN_PORT_LISTS_MAX)
		return true;
	for (size_t i = 0; i < lists && !ports->with_default; i++) {
		size_t count;
		const struct plan_port_range *r = plan_port_list(p, i, &count);

		if (rule_ports_equal(&(struct rule_ports){ r, count, false }, ports))
			return true;
	}
	return false;
}

/* ---- as text ---- */

static bool put_part(char *buf, size_t *used, const char *what, char *separator)
{
	int n = snprintf(buf + *used, EVENT_ADVICE_SIZE - *used, "%c%s", *separator,
			 what);

	*separator = ',';
	*used += (size_t)n;
	return *used < EVENT_ADVICE_SIZE;
}

static bool format(const struct advice *a, char *buf)
{
	const struct rule *r = &a->rule;
	bool bracket = strchr(a->target, ':'), fits = true;
	size_t used = (size_t)snprintf(buf, EVENT_ADVICE_SIZE, bracket ? "[%s]" : "%s",
				       a->target);
	char ports[PLAN_PORT_RANGES_MAX * 24], separator = ':';

	if (used >= EVENT_ADVICE_SIZE)
		return false;
	if (r->ports.count > 0)
		fits = put_part(buf, &used,
				rule_ports_text(&r->ports, ports, sizeof(ports)),
				&separator);
	for (size_t i = 0; fits && i < RULE_FLAG_COUNT; i++)
		if (r->flags & rule_flag_words[i].flag)
			fits = put_part(buf, &used, rule_flag_words[i].key, &separator);
	for (size_t i = 0; fits && i < RULE_TYPE_COUNT; i++)
		if (r->types >> i & 1)
			fits = put_part(buf, &used, rule_type_words[i], &separator);
	return fits;
}

const char *advice_write(const struct plan *plan, const struct event *e, char *buf)
{
	struct advice a = { .target = "" };

	if (!make(&a, plan, e) || !lists_fit(plan, &a.rule.ports) || !format(&a, buf))
		buf[0] = '\0';
	return buf;
}

/* ---- as a rule ---- */

bool advice_rule(const char *advice, char *buf)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) struct faults *faults = calloc(1, sizeof(*faults));
	const struct policy_reader reader = { .arena = &arena, .faults = faults };
	struct policy policy = { 0 };
	bool good = faults && advice[0] &&
		    policy_read_option(&reader, "advice", POLICY_ALLOW, text_of(advice),
				       &policy) == 0;

	/* The text may have come from a sandbox: nothing but a name or one address. */
	if (good && policy.rules[0].kind == TARGET_PREFIX)
		good = policy.rules[0].prefix.bits ==
		       8 * addr_size(&policy.rules[0].prefix.addr);
	else if (good)
		good = policy.rules[0].kind == TARGET_NAME;
	good = good && rule_write_json(&policy.rules[0], buf, ADVICE_RULE_SIZE);
	if (faults)
		faults_done(faults);
	if (!good)
		buf[0] = '\0';
	return good;
}
