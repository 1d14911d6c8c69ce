// SPDX-License-Identifier: Apache-2.0
#include "policy/advice.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "policy/plan.h"
#include "policy/policy.h"

enum { DNS_PORT = 53 };

struct advice {
	struct rule rule;
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX + 1];
	char target[EVENT_NAME_SIZE];
};

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

static bool advise_name(struct advice *a, const struct plan *p, const struct event *e)
{
	const bool has_port = e->layer != EVENT_DNS;
	const struct addr *remote = &e->remote;
	struct err ignored = { 0 };
	struct plan_verdict v;
	bool is_temporary;

	/* A target that an option can name: nothing that a shell or the option's own
	 * syntax would read as something else. */
	snprintf(a->target, sizeof(a->target), "%s", e->name);
	if (e->name[0] == '-' ||
	    rule_target_parse(text_of(a->target), &a->rule, &ignored) != 0 ||
	    a->rule.kind != TARGET_NAME)
		return false;
	v = plan_match_name(p, &a->rule.name);
	/* What ends would stay open with the new rule: that is about its own port alone.
	 */
	is_temporary = v.rule != PLAN_NO_RULE && plan_rule(p, v.rule).until_ms != 0;
	if (v.action == POLICY_ALLOW && is_temporary && !has_port)
		return false;
	/* A budget is its rule's: whatever the new rule opened would be free of it. */
	if (v.action == POLICY_ALLOW && v.rule != PLAN_NO_RULE &&
	    plan_budget_of(p, v.rule) >= 0)
		return false;
	if (v.action == POLICY_ALLOW && !is_temporary)
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
	if (has_addr && (!addr_special_is_offered(addr_special(&e->remote)) ||
			 plan_denies_addr(p, &e->remote)))
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

const char *advice_write(const struct plan *plan, const struct event *e, char *buf)
{
	struct advice a = { .target = "" };
	const struct rule *r = &a.rule;
	bool fits = make(&a, plan, e) && lists_fit(plan, &a.rule.ports);
	char ports[PLAN_PORT_RANGES_MAX * 24], separator = ':';
	size_t used = 0;

	if (fits)
		used = (size_t)snprintf(buf, EVENT_ADVICE_SIZE,
					strchr(a.target, ':') ? "[%s]" : "%s", a.target);
	fits = fits && used < EVENT_ADVICE_SIZE;
	if (fits && r->ports.count > 0)
		fits = put_part(buf, &used,
				rule_ports_text(&r->ports, ports, sizeof(ports)),
				&separator);
	for (size_t i = 0; fits && i < RULE_FLAG_COUNT; i++)
		if (r->flags & rule_flag_words[i].flag)
			fits = put_part(buf, &used, rule_flag_words[i].key, &separator);
	for (size_t i = 0; fits && i < RULE_TYPE_COUNT; i++)
		if (r->types >> i & 1)
			fits = put_part(buf, &used, rule_type_words[i], &separator);
	if (!fits)
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
	good = good && rule_write(&policy.rules[0], true, buf, ADVICE_RULE_SIZE);
	if (faults)
		faults_done(faults);
	if (!good)
		buf[0] = '\0';
	return good;
}

/* -- policies that open what is public --------------------------------------------- */

/* The rule's ports and the open ones. */
static int widen(struct rule *rule, bool any_port, struct arena *arena)
{
	struct rule_ports *ports = &rule->ports;
	const size_t most = ports->count + RULE_DEFAULT_RANGES + PLAN_WEB_PORTS;
	struct plan_port_range *all = arena_array(arena, most, sizeof(*all));
	size_t count = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < ports->count; i++)
		all[count++] = ports->ranges[i];
	if (any_port)
		count += rule_ports_default(POLICY_VERIFY_TLS, all + count);
	for (size_t i = 0; !any_port && i < PLAN_WEB_PORTS; i++)
		all[count++] = (struct plan_port_range){ IPPROTO_TCP, 0,
							 plan_web_ports[i],
							 plan_web_ports[i] };
	ports->count = rule_ports_normalise(all, count);
	ports->ranges = all;
	rule->flags |= PLAN_PORTS_LISTED;
	return ports->count <= PLAN_PORT_RANGES_MAX ? 0 : -ENOMEM;
}

static bool is_name(const struct rule *r)
{
	return r->kind != TARGET_PREFIX;
}

/* What decides the names that no rule is about. */
static int open_names(struct policy *p, enum policy_action action, uint8_t flags,
		      uint8_t types, bool any_port, struct arena *arena)
{
	struct rule *every = arena_array(arena, 1, sizeof(*every));
	int r = every ? 0 : -ENOMEM;

	if (r == 0) {
		*every = (struct rule){ .action = action,
					.kind = TARGET_WITHIN,
					.name = { .size = 1 },
					.flags = flags | PLAN_UNMETERED,
					.types = types,
					.target = "every other name",
					.comment = "",
					.file = action == POLICY_ALLOW ? "built in"
								       : "--ceiling" };
		r = widen(every, any_port, arena);
	}
	p->every_name = every;
	p->default_action = POLICY_DENY;
	p->dns = POLICY_DNS_LIVE;
	p->denied_names = POLICY_DENIED_NXDOMAIN;
	p->on_denies = (struct plan_on_denies){ 0 };
	return r;
}

/* ---- audit ---- */

/* The public addresses of @p, half by half. */
static int open_addresses(struct policy *p, struct prefix part, struct arena *arena)
{
	struct rule rule = { .action = POLICY_ALLOW,
			     .kind = TARGET_PREFIX,
			     .flags = PLAN_RAW,
			     .prefix = part,
			     .target = "every public address",
			     .comment = "",
			     .file = "built in" };
	int r;

	if (!addr_special_splits(&part))
		return addr_special(&part.addr) == SPECIAL_NOT
			       ? policy_add_rule(p, arena, &rule)
			       : 0;
	r = open_addresses(p, prefix_half(part, false), arena);
	return r < 0 ? r : open_addresses(p, prefix_half(part, true), arena);
}

int policy_open_audit(struct policy *p, struct arena *arena)
{
	static const struct prefix all[] = { { .addr = { .family = ADDR_V4 } },
					     { .addr = { .family = ADDR_V6 } } };
	const struct policy asked = *p;
	int r = 0;

	p->rules = NULL;
	p->count = p->capacity = 0;
	for (size_t i = 0; r == 0 && i < asked.count; i++) {
		struct rule rule = asked.rules[i];

		/* Special addresses are open where the policy opens them, and so not
		 * those that it denies. */
		if (rule.action == POLICY_DENY && !is_name(&rule) &&
		    !addr_special_splits(&rule.prefix) &&
		    addr_special(&rule.prefix.addr) != SPECIAL_NOT) {
			r = policy_add_rule(p, arena, &rule);
			continue;
		}
		if (rule.action != POLICY_ALLOW ||
		    (is_name(&rule) && !(rule.flags & PLAN_PRIVATE)))
			continue;
		rule.flags |= PLAN_RAW;
		rule.budget = (struct plan_budget){ 0 };
		r = widen(&rule, true, arena);
		if (r == 0)
			r = policy_add_rule(p, arena, &rule);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(all); i++)
		r = open_addresses(p, all[i], arena);
	p->open_doh = true;
	p->budget = (struct plan_budget){ 0 };
	return r < 0 ? r
		     : open_names(p, POLICY_ALLOW, PLAN_RAW,
				  PLAN_TYPE_PTR | PLAN_TYPE_SRV | PLAN_TYPE_TXT |
					  PLAN_TYPE_MX,
				  true, arena);
}

/* ---- learn ---- */

/* The rules of the ceiling, in front: its denies as they are; its allows open names as
 * learning does, and so keep a later deny of the ceiling's from them; nobody is asked, so
 * what it asks for is denied. */
static int add_ceiling(struct policy *p, const struct policy *ceiling, bool any_port,
		       struct arena *arena)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ceiling->count; i++) {
		struct rule rule = ceiling->rules[i];

		if (rule.action == POLICY_ASK)
			rule = (struct rule){ .action = POLICY_DENY,
					      .kind = rule.kind,
					      .name = rule.name,
					      .prefix = rule.prefix,
					      .target = rule.target,
					      .comment = rule.comment,
					      .file = rule.file,
					      .line = rule.line,
					      .column = rule.column };
		if (rule.action == POLICY_ALLOW) {
			if (!is_name(&rule))
				continue;
			rule.flags = PLAN_UNMETERED;
			rule.types = 0;
			/* Ports that the ceiling lists are all that it allows. */
			if (rule.ports.count == 0 || rule.ports.with_default)
				r = widen(&rule, any_port, arena);
			rule.ports.with_default = false;
		}
		if (r == 0)
			r = policy_add_rule(p, arena, &rule);
	}
	return r;
}

int policy_open_learn(struct policy *p, const struct policy *ceiling, bool any_port,
		      struct arena *arena, struct err *err)
{
	const struct policy asked = *p;
	const bool all = !ceiling || ceiling->default_action == POLICY_ALLOW;
	bool any = all;
	int r = 0;

	for (size_t i = 0; !any && i < ceiling->count; i++)
		any = ceiling->rules[i].action == POLICY_ALLOW &&
		      is_name(&ceiling->rules[i]);
	if (!any)
		return err_set(err, -EINVAL,
			       "the ceiling allows no name: it needs "
			       "defaultAction: allow, or rules that allow");
	p->rules = NULL;
	p->count = p->capacity = 0;
	/* Below a ceiling the denies come first, wherever they stand: too much may be
	 * refused by that, and nothing too little. */
	for (size_t i = 0; r == 0 && ceiling && i < asked.count; i++)
		if (asked.rules[i].action == POLICY_DENY)
			r = policy_add_rule(p, arena, &asked.rules[i]);
	if (r == 0 && ceiling)
		r = add_ceiling(p, ceiling, any_port, arena);
	for (size_t i = 0; r == 0 && all && i < asked.count; i++) {
		struct rule rule = asked.rules[i];

		if ((ceiling && rule.action == POLICY_DENY) || rule.action == POLICY_ASK)
			continue;
		/* The first rule of a name decides alone. */
		if (rule.action == POLICY_ALLOW && is_name(&rule) &&
		    (rule.ports.count > 0 || any_port))
			r = widen(&rule, any_port, arena);
		if (r == 0)
			r = policy_add_rule(p, arena, &rule);
	}
	if (r == 0)
		r = open_names(p, all ? POLICY_ALLOW : POLICY_DENY, 0, 0, any_port,
			       arena);
	return r < 0 ? err_set(err, r, "out of memory") : 0;
}

/* ---- what another policy would have said ---- */

static bool refuse(struct event *e, uint32_t rule, bool allowable, const char *reason)
{
	e->action = EVENT_DENY;
	e->rule = rule;
	e->allowable = allowable;
	event_set_reason(e, reason);
	return true;
}

/* @v doesn't allow it: by no rule, or, as @denied says, by one. */
static bool refuse_by(struct event *e, const struct plan_verdict *v, const char *denied)
{
	const bool by_default = v->rule == PLAN_NO_RULE;

	return refuse(e, v->rule, by_default, by_default ? "no rule allows it" : denied);
}

/* The relay holds a connection to what it shows. */
static bool is_checked(const struct plan *p, const struct event *e)
{
	return e->protocol == IPPROTO_TCP && plan_verify(p) == POLICY_VERIFY_TLS;
}

static bool refuses_address(const struct plan *p, struct event *e)
{
	const struct plan_verdict v =
		plan_match_addr(p, &e->remote, e->protocol, e->port);
	const enum addr_special kind = addr_special(&e->remote);

	if (v.action != POLICY_ALLOW)
		return refuse_by(e, &v, "an address rule denies it");
	/* No default opens what isn't one machine's; a loopback is the sandbox's own. */
	if (v.rule == PLAN_NO_RULE && kind != SPECIAL_LOOPBACK &&
	    !addr_special_is_offered(kind))
		return refuse(e, v.rule, false, addr_special_name(kind));
	if (e->layer == EVENT_NAME && is_checked(p, e) && v.rule == PLAN_NO_RULE)
		return refuse(e, v.rule, false, "no name is shown");
	if (e->layer == EVENT_ADDRESS && is_checked(p, e) &&
	    !plan_takes_bytes(v.flags, e->port))
		return refuse(e, v.rule, false,
			      "no name is shown; the rule needs raw: true");
	return false;
}

static bool refuses_name(const struct plan *p, const struct dns_name *name,
			 struct event *e)
{
	const struct plan_verdict v = plan_match_name(p, name);
	const bool has_addr = e->remote.family != ADDR_NONE;
	struct plan_verdict address;

	if (v.action != POLICY_ALLOW)
		return refuse_by(e, &v, "the name is not allowed");
	if (has_addr && plan_denies_addr(p, &e->remote))
		return refuse(e, plan_match_addr(p, &e->remote, e->protocol, 0).rule,
			      false, "an address rule denies it");
	if (!plan_port_list_has(p, v.port_list, e->protocol, e->port))
		return refuse(e, v.rule, true, "the rule does not list this port");
	if (has_addr && !plan_reaches(p, v.flags, &e->remote, e->protocol, e->port))
		return refuse(e, v.rule, true,
			      addr_special_name(addr_special(&e->remote)));
	if (e->layer != EVENT_ADDRESS || !is_checked(p, e))
		return false;
	/* The relay knows a connection by its name; of one that showed none the rule has
	 * to name the port, and on a web server's to say `raw`. */
	address = plan_match_addr(p, &e->remote, e->protocol, e->port);
	if ((address.action == POLICY_ALLOW &&
	     plan_takes_bytes(address.flags, e->port)) ||
	    (plan_rule_names_port(p, v.rule, e->protocol, e->port) &&
	     plan_takes_bytes(v.flags, e->port)))
		return false;
	return refuse(e, v.rule, !plan_is_web_port(e->port),
		      plan_is_web_port(e->port)
			      ? "no name is shown; the rule needs raw: true"
			      : "no name is shown; the rule needs the port");
}

static bool refuses(const struct plan *p, struct event *e)
{
	struct plan_verdict v;
	struct dns_name name;

	/* A name that no look-up gave that address is never asked for, where the address
	 * alone is refused. */
	if (!e->name[0] ||
	    (e->claimed && plan_match_addr(p, &e->remote, e->protocol, e->port).action !=
				   POLICY_ALLOW)) {
		e->name[0] = '\0';
		return e->remote.family != ADDR_NONE && refuses_address(p, e);
	}
	if (dns_name_parse(text_of(e->name), &name) < 0)
		return refuse(e, EVENT_NO_RULE, false, "is no name");
	if (e->layer != EVENT_DNS)
		return refuses_name(p, &name, e);
	v = plan_match_query(p, &name);
	if (v.action != POLICY_ALLOW)
		return refuse_by(e, &v, "the name is not allowed");
	if (!plan_serves_type(v.types, e->query_type))
		return refuse(e, v.rule, plan_type_bit(e->query_type) != 0,
			      "the rule does not serve this type");
	return false;
}

bool policy_refuses(const struct plan *p, const struct event *e)
{
	struct event refused = *e;

	return refuses(p, &refused);
}

bool policy_would_refuse(const struct plan *p, const struct event *e, struct event *ret)
{
	bool refused;

	*ret = *e;
	refused = refuses(p, ret);
	ret->advice[0] = '\0';
	if (refused && ret->allowable)
		ret->allowable = advice_write(p, ret, ret->advice)[0] != '\0';
	return refused;
}
