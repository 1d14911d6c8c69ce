// SPDX-License-Identifier: Apache-2.0
/* One policy, judged three times: rule by rule as weir-policy(5) words it, by the plan,
 * and by each kind of ruleset, whose rules a packet is led through here. All say the
 * same. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/rtnetlink.h>

#include "../policy/random_policy.h"
#include "filter/host_internal.h"
#include "filter/ruleset.h"
#include "unit.h"

/* ---- a packet on its way through a ruleset ---- */

struct packet {
	struct addr to;
	uint8_t protocol; /* IPPROTO_ICMP, of both families: a ping */
	uint16_t port;
};

enum fate { GOES_ON = 0, RETURNS, PASSES, IS_REFUSED };

/* Of the first packet of a flow, to an ordinary address, by a link. */
static uint32_t field_of(const struct packet *p, enum filter_field field)
{
	const bool v4 = p->to.family == ADDR_V4, ping = p->protocol == IPPROTO_ICMP;

	switch (field) {
	case FILTER_NFPROTO:
		return v4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
	case FILTER_L4PROTO:
		return ping && !v4 ? IPPROTO_ICMPV6 : p->protocol;
	case FILTER_ICMP_TYPE:
		return v4 ? 8 : 128;
	case FILTER_DPORT:
		return p->port;
	case FILTER_TCP_FLAGS:
		return TH_SYN;
	case FILTER_CT_STATE:
		return 1 << 3; /* new */
	case FILTER_HEADER_WORDS4:
		return 5;
	case FILTER_OIF:
		return 7;
	case FILTER_FIB_DADDR_TYPE:
		return RTN_UNICAST;
	case FILTER_FIB_SADDR_TYPE:
		return RTN_LOCAL;
	default:
		return 0;
	}
}

static bool is_in(const struct packet *p, const struct filter_stmt *s)
{
	const uint8_t port[2] = { (uint8_t)(p->port >> 8), (uint8_t)p->port };
	const uint8_t *key = s->field == FILTER_DPORT ? port : p->to.bytes;
	const size_t size = filter_key_size(s->set->key);

	for (size_t i = 0; i < s->set->range_count; i++)
		if (memcmp(s->set->ranges[i].from, key, size) <= 0 &&
		    memcmp(key, s->set->ranges[i].to, size) <= 0)
			return true;
	return false;
}

static bool holds(const struct packet *p, const struct filter_stmt *s)
{
	const uint32_t value = field_of(p, s->field) & (s->mask ?: UINT32_MAX);

	switch (s->kind) {
	case FILTER_EQUAL:
		return value == s->value;
	case FILTER_NOT_EQUAL:
		return value != s->value;
	case FILTER_RANGE:
		return value >= s->value && value <= s->value_to;
	case FILTER_IN_SET:
		return is_in(p, s);
	case FILTER_PORT_IN_SET:
		return false;
	default:
		return true;
	}
}

static enum fate walk(const struct packet *p, const struct filter_chain *c)
{
	enum fate fate = GOES_ON;

	if (strcmp(c->name, "refuse") == 0)
		return IS_REFUSED;
	if (strcmp(c->name, "passed") == 0)
		return PASSES;
	for (const struct filter_rule *r = c->rules; r; r = r->next) {
		size_t i = 0;

		while (i < r->count && holds(p, &r->stmts[i]) && fate == GOES_ON) {
			const struct filter_stmt *s = &r->stmts[i++];

			if (s->kind == FILTER_ACCEPT)
				fate = PASSES;
			else if (s->kind == FILTER_DROP)
				fate = IS_REFUSED;
			else if (s->kind == FILTER_RETURN)
				fate = RETURNS;
			else if (s->kind == FILTER_GOTO)
				fate = walk(p, s->chain) ?: RETURNS;
			else if (s->kind == FILTER_JUMP)
				fate = walk(p, s->chain);
		}
		if (fate != GOES_ON)
			break;
	}
	return fate == RETURNS ? GOES_ON : fate;
}

/* ---- the kinds of rulesets ---- */

/* Closed by the parameters, as the host's own addresses are over an uplink. */
static const struct prefix closed[] = {
	{ { ADDR_V4, { 10, 0, 0, 5 } }, 32 },
	{ { ADDR_V6, { 0xfd, [15] = 5 } }, 128 },
	{ { ADDR_V4, { 10, 9, 0, 0 } }, 16 },
};

enum kind { OWNED = 0, CLOSED, SHARED, HOST, MEMBER, KINDS };

static const char *const chains[KINDS] = { "output", "output", "egress", "p3_output",
					   "member" };

static const struct filter_chain *build(enum kind kind, const struct plan *plan,
					struct arena *arena)
{
	struct filter_params owned = {
		.generation = 7, .direct_tcp = true, .direct_udp = true, .ipv6 = true
	};
	const struct filter_shared_params shared = { .generation = 7, .dns_port = 15353 };
	const struct filter_member_params member = { .uid = 1000, .prefix = "weir out" };
	const struct filter_host host = { .params = { .dns_port = 15353 } };
	const struct host_plan of_host = { .number = 3, .plan = *plan };
	const struct ruleset *rs = NULL;
	struct err err = { 0 };
	int r = 0;

	if (kind == CLOSED) {
		owned.closed = closed;
		owned.closed_count = ARRAY_SIZE(closed);
	}
	if (kind == OWNED || kind == CLOSED)
		r = ruleset_build_owned(plan, &owned, arena, &rs, &err);
	else if (kind == SHARED)
		r = ruleset_build_shared(plan, &shared, arena, &rs, &err);
	else if (kind == HOST)
		r = host_build_plan(&host, &of_host, arena, &rs, &err);
	else
		r = ruleset_build_member(plan, &member, arena, &rs, &err);
	if (r < 0)
		fail_msg("%s", err.text);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		if (strcmp(c->name, chains[kind]) == 0)
			return c;
	fail_msg("no chain %s", chains[kind]);
	return NULL;
}

/* ---- rule by rule ---- */

enum closed_kind { OPEN = 0, METADATA, RESOLVER, LINK_LOCAL };

static const struct {
	const char *text;
	enum closed_kind kind;
	const char *inside; /* the IPv4 address that it is translated from */
} addrs[] = {
	{ "169.254.169.254", METADATA, NULL },
	{ "168.63.129.16", METADATA, NULL },
	{ "8.8.8.8", RESOLVER, NULL },
	{ "8.8.8.9", OPEN, NULL },
	{ "169.254.9.9", LINK_LOCAL, NULL },
	{ "169.254.9.8", LINK_LOCAL, NULL },
	{ "10.0.0.5", OPEN, NULL },
	{ "10.0.0.6", OPEN, NULL },
	{ "10.9.0.1", OPEN, NULL },
	{ "64:ff9b::a83f:8110", METADATA, "168.63.129.16" },
	{ "64:ff9b::808:808", RESOLVER, "8.8.8.8" },
	{ "fe80::1", LINK_LOCAL, NULL },
	{ "2001:4860:4860::8888", RESOLVER, NULL },
	{ "fd00::5", OPEN, NULL },
};

static const char *const wide[] = {
	"0.0.0.0/0",	  "168.63.129.0/24", "8.8.8.0/24",     "169.254.0.0/16",
	"169.254.9.0/24", "10.0.0.0/8",	     "10.0.0.4/31",    "::/0",
	"64:ff9b::/96",	  "fe80::/64",	     "2001:4860::/32", "fd00::/8"
};

static struct prefix prefix_from(const char *text)
{
	struct prefix p;

	assert_true(prefix_parse(text, strlen(text), false, &p));
	return p;
}

static bool names(const struct rule *r, const struct addr *a)
{
	return prefix_is_single(&r->prefix) && addr_equal(&r->prefix.addr, a);
}

struct slow {
	const struct policy *policy;
	int64_t now_ms;
	uint32_t spent; /* bit i: the budget of rule i is used up */
};

/* A deny is built in, for what a rule would open by a wider target, or the default. */
static bool slow_is_closed(const struct slow *s, size_t at)
{
	const struct prefix self = prefix_from(addrs[at].text);
	const struct addr v4 = addrs[at].inside ? prefix_from(addrs[at].inside).addr
						: self.addr;
	const struct prefix v4_self = prefix_of(&v4, 8 * (unsigned int)addr_size(&v4));
	const struct addr v6 = v4.family == ADDR_V4 ? prefix_translated(&v4_self).addr
						    : v4;

	if (addrs[at].kind == OPEN || s->policy->default_action == POLICY_ALLOW)
		return addrs[at].kind != OPEN;
	if (addrs[at].kind != METADATA)
		return s->policy->default_action == POLICY_ASK;
	for (size_t i = 0; i < s->policy->count; i++) {
		const struct rule *r = &s->policy->rules[i];

		if (r->action == POLICY_ALLOW && !prefix_is_single(&r->prefix) &&
		    (prefix_contains(&r->prefix, &v4) ||
		     prefix_contains(&r->prefix, &v6)))
			return true;
	}
	/* As the rest of its network is. */
	return s->policy->default_action == POLICY_ASK && v4.bytes[0] == 169;
}

static bool slow_allows(const struct slow *s, size_t at, uint8_t protocol, uint16_t port)
{
	const struct addr a = prefix_from(addrs[at].text).addr;
	const struct addr v4 = addrs[at].inside ? prefix_from(addrs[at].inside).addr : a;
	const bool is_closed = slow_is_closed(s, at);
	bool opened = false, denied = false, allowed = false, asked = false;

	for (size_t i = 0; i < s->policy->count; i++) {
		const struct rule *r = &s->policy->rules[i];
		const bool contains = prefix_contains(&r->prefix, &a);
		const bool spent = s->spent >> i & 1;

		opened |= r->action == POLICY_ALLOW &&
			  (names(r, &v4) || (contains && addrs[at].kind == LINK_LOCAL));
		if (r->until_ms != 0 && r->until_ms <= s->now_ms)
			continue;
		denied |= r->action == POLICY_DENY &&
			  (contains || prefix_contains(&r->prefix, &v4));
		denied |= r->action == POLICY_ALLOW && contains && spent;
		if (!contains || !slow_rule_has_port(s->policy, r, protocol, port))
			continue;
		asked |= r->action == POLICY_ASK;
		allowed |= r->action == POLICY_ALLOW &&
			   (!is_closed || addrs[at].kind == LINK_LOCAL || names(r, &a));
	}
	if (denied || (is_closed && !opened && addrs[at].kind != LINK_LOCAL))
		return false;
	return allowed ||
	       (!is_closed && !asked && s->policy->default_action == POLICY_ALLOW &&
		slow_rule_has_port(s->policy, &(struct rule){ 0 }, protocol, port));
}

/* ---- random policies ---- */

enum { RULES_MAX = 8, NOW_MS = 500 };

static const struct plan_port_range lists[][2] = {
	{ { IPPROTO_TCP, 0, 53, 53 }, { IPPROTO_UDP, 0, 53, 53 } },
	{ { IPPROTO_TCP, 0, 80, 80 }, { IPPROTO_UDP, 0, 9009, 9009 } },
	{ { IPPROTO_TCP, 0, 443, 853 }, { IPPROTO_UDP, 0, 443, 853 } },
};

static struct slow random_rules(uint32_t *seed, struct rule *rules, struct policy *policy)
{
	struct slow s = { .policy = policy, .now_ms = NOW_MS };

	*policy = (struct policy){ .rules = rules,
				   .count = 1 + random_next(seed) % RULES_MAX,
				   .verify = random_next(seed) % 2,
				   .default_action = random_next(seed) % 3 };
	for (size_t i = 0; i < policy->count; i++) {
		const char *target =
			random_next(seed) % 2
				? wide[random_next(seed) % ARRAY_SIZE(wide)]
				: addrs[random_next(seed) % ARRAY_SIZE(addrs)].text;
		const uint32_t action = random_next(seed) % 10;
		/* Nobody is asked for an address that the default opens. */
		const bool asks = action == 1 && policy->default_action != POLICY_ALLOW;
		const uint32_t list = random_next(seed) % 4;

		rules[i] = (struct rule){ .action = action == 0 ? POLICY_DENY
						    : asks	? POLICY_ASK
								: POLICY_ALLOW,
					  .kind = TARGET_PREFIX,
					  .prefix = prefix_from(target),
					  .target = target,
					  .file = "f",
					  .comment = "" };
		if (rules[i].action == POLICY_DENY)
			continue;
		if (list < ARRAY_SIZE(lists))
			rules[i].ports = (struct rule_ports){ lists[list], 2 };
		if (rules[i].action == POLICY_ASK)
			continue;
		if (random_next(seed) % 6 == 0)
			rules[i].until_ms = random_next(seed) % 2 ? 400 : 600;
		if (random_next(seed) % 8 == 0) {
			rules[i].budget.sent = 1;
			s.spent |= (random_next(seed) % 2) << i;
		}
	}
	return s;
}

static void describe(const struct slow *s, char *buf, size_t size)
{
	size_t used =
		(size_t)snprintf(buf, size, "default %d", s->policy->default_action);

	for (size_t i = 0; i < s->policy->count && used < size; i++) {
		const struct rule *r = &s->policy->rules[i];

		used += (size_t)snprintf(
			buf + used, size - used, "\n%d %s:%u until %d%s", r->action,
			r->target, r->ports.count > 0 ? r->ports.ranges[0].from : 0,
			(int)r->until_ms, s->spent >> i & 1 ? " spent" : "");
	}
}

static bool is_in_closed_range(const struct addr *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++)
		if (!prefix_is_single(&closed[i]) && prefix_contains(&closed[i], a))
			return true;
	return false;
}

static bool is_closed_alone(const struct addr *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++)
		if (prefix_is_single(&closed[i]) && prefix_contains(&closed[i], a))
			return true;
	return false;
}

static void compare(const struct slow *s, const struct plan *plan,
		    const struct filter_chain *const *kinds)
{
	static const uint16_t ports[] = { 53, 80, 443, 853, 8080, 9009 };
	char text[1024];

	describe(s, text, sizeof(text));
	for (size_t i = 0; i < ARRAY_SIZE(addrs) * ARRAY_SIZE(ports) * 2; i++) {
		const size_t at = i / 2 / ARRAY_SIZE(ports);
		const struct packet p = { .to = prefix_from(addrs[at].text).addr,
					  .protocol = i % 2 ? IPPROTO_TCP : IPPROTO_UDP,
					  .port = ports[i / 2 % ARRAY_SIZE(ports)] };
		const bool slow = slow_allows(s, at, p.protocol, p.port);

		if ((plan_match_addr(plan, &p.to, p.protocol, p.port).action ==
		     POLICY_ALLOW) != slow)
			fail_msg("%s\nthe plan, %s:%u: %d", text, addrs[at].text, p.port,
				 !slow);
		for (enum kind k = 0; k < KINDS; k++) {
			bool want = slow;

			if (k == CLOSED)
				want &= !is_in_closed_range(&p.to) &&
					(!is_closed_alone(&p.to) ||
					 plan_names_exactly(plan, &p.to, p.protocol,
							    p.port));
			if ((walk(&p, kinds[k]) == PASSES) != want)
				fail_msg("%s\n%s (%d), %s:%u %d: %d", text, chains[k], k,
					 addrs[at].text, p.port, p.protocol, !want);
		}
	}
}

TEST(the_plan_and_every_ruleset_open_what_the_rules_say)
{
	for (uint32_t round = 1; round <= 1500; round++) {
		CLEAN(arena) struct arena arena = { 0 };
		CLEAN(mem) uint8_t *bytes = NULL;
		const struct filter_chain *kinds[KINDS];
		struct rule rules[RULES_MAX];
		uint32_t seed = round;
		struct policy policy;
		struct slow s = random_rules(&seed, rules, &policy);
		struct err err = { 0 };
		struct plan plan;
		size_t size;

		if (policy_compile(&policy, &bytes, &size, &err) < 0 ||
		    plan_open(bytes, size, &plan, &err) < 0)
			fail_msg("%s", err.text);
		plan_set_time(&plan, NOW_MS);
		for (uint32_t i = 0; i < policy.count; i++)
			if (s.spent >> i & 1)
				plan.spent |= UINT64_C(1) << plan_budget_of(&plan, i);
		for (enum kind k = 0; k < KINDS; k++)
			kinds[k] = build(k, &plan, &arena);
		compare(&s, &plan, kinds);
	}
}

TEST(a_ping_passes_where_a_rule_opens_what_the_default_would)
{
	static const struct {
		const char *target;
		bool listed;
		bool passes;
	} rows[] = {
		{ "8.8.8.8", false, true },	{ "8.8.8.8", true, false },
		{ "8.8.8.0/24", false, false }, { "169.254.9.0/24", false, true },
		{ "169.254.9.9", true, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEAN(arena) struct arena arena = { 0 };
		CLEAN(mem) uint8_t *bytes = NULL;
		struct rule rule = { .action = POLICY_ALLOW,
				     .kind = TARGET_PREFIX,
				     .prefix = prefix_from(rows[i].target),
				     .target = rows[i].target,
				     .file = "f",
				     .comment = "" };
		const struct policy policy = { .rules = &rule,
					       .count = 1,
					       .default_action = POLICY_ALLOW };
		struct packet p = { .protocol = IPPROTO_ICMP };
		struct err err = { 0 };
		struct plan plan;
		size_t size;

		p.to = prefix_from(rows[i].target[0] == '8' ? "8.8.8.8" : "169.254.9.9")
			       .addr;
		if (rows[i].listed)
			rule.ports = (struct rule_ports){ lists[1], 2 };
		if (policy_compile(&policy, &bytes, &size, &err) < 0 ||
		    plan_open(bytes, size, &plan, &err) < 0)
			fail_msg("%s", err.text);
		if ((walk(&p, build(SHARED, &plan, &arena)) == PASSES) != rows[i].passes)
			fail_msg("row %zu", i);
	}
}
