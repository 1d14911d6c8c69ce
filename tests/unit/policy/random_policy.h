// SPDX-License-Identifier: Apache-2.0
/* random_policy - policies made from a seed, and the slow way to judge names and
 * addresses: rule by rule, as ARCHITECTURE words it. The compiled plan must agree. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "policy/policy.h"

static inline uint32_t random_next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Few labels, so that names meet. */
static inline struct dns_name random_name(uint32_t *seed)
{
	static const char *const labels[] = { "a", "b", "c", "test", "x1" };
	char text[64] = "";
	struct dns_name n = { 0 };
	size_t count = 1 + random_next(seed) % 4;

	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(text);

		snprintf(text + used, sizeof(text) - used, "%s%s", i ? "." : "",
			 labels[random_next(seed) % ARRAY_SIZE(labels)]);
	}
	if (dns_name_parse(text_of(text), &n) < 0)
		n.size = 0;
	return n;
}

/* Few bits differ, so that prefixes nest. */
static inline struct addr random_addr(uint32_t *seed)
{
	struct addr a = { .family = random_next(seed) % 2 ? ADDR_V4 : ADDR_V6 };

	for (size_t i = 0; i < addr_size(&a); i += 1 + random_next(seed) % 2)
		a.bytes[i] = (uint8_t)(random_next(seed) % 3);
	/* IPv4-mapped ones are another test's business. */
	if (a.family == ADDR_V6)
		a.bytes[0] = 0x20;
	return a;
}

static const struct plan_port_range random_ports[][2] = {
	{ { IPPROTO_TCP, 0, 443, 443 }, { IPPROTO_UDP, 0, 443, 443 } },
	{ { IPPROTO_TCP, 0, 22, 22 }, { IPPROTO_TCP, 0, 80, 90 } },
	{ { IPPROTO_TCP, 0, 53, 53 }, { IPPROTO_UDP, 0, 53, 53 } },
};

static inline void random_policy(uint32_t *seed, struct rule *rules, size_t count,
				 struct policy *ret)
{
	*ret = (struct policy){ .rules = rules, .count = count };
	ret->default_action = random_next(seed) % 4 == 0 ? POLICY_ALLOW : POLICY_DENY;
	ret->verify = random_next(seed) % 2 ? POLICY_VERIFY_TLS : POLICY_VERIFY_DNS;
	for (size_t i = 0; i < count; i++) {
		struct rule *r = &rules[i];
		uint32_t ports = random_next(seed) % 5;

		*r = (struct rule){ .target = "t", .file = "f", .comment = "" };
		r->action = random_next(seed) % 2 ? POLICY_ALLOW : POLICY_DENY;
		r->kind = TARGET_NAME + random_next(seed) % 4;
		if (r->kind == TARGET_PREFIX) {
			struct addr a = random_addr(seed);

			r->prefix = prefix_of(&a, random_next(seed) %
							  (8 * addr_size(&a) + 1));
		} else {
			r->name = random_name(seed);
		}
		if (r->action == POLICY_ALLOW && ports < ARRAY_SIZE(random_ports))
			r->ports = (struct rule_ports){ random_ports[ports], 2 };
		r->flags = (uint8_t)(random_next(seed) % 4);
	}
}

static inline bool slow_rule_has_port(const struct policy *p, const struct rule *r,
				      uint8_t protocol, uint16_t port)
{
	if (r->ports.count == 0)
		return port != 53 && port != 853 &&
		       !(p->verify == POLICY_VERIFY_TLS && protocol == IPPROTO_UDP &&
			 port == 443);
	for (size_t i = 0; i < r->ports.count; i++) {
		const struct plan_port_range *g = &r->ports.ranges[i];

		if (g->protocol == protocol && port >= g->from && port <= g->to)
			return true;
	}
	return false;
}

static inline bool slow_rule_matches(const struct rule *r, const struct dns_name *n)
{
	switch (r->kind) {
	case TARGET_NAME:
		return dns_name_equal(&r->name, n);
	case TARGET_BELOW:
		return !dns_name_equal(&r->name, n) && dns_name_is_within(n, &r->name);
	case TARGET_WITHIN:
		return dns_name_is_within(n, &r->name);
	default:
		return false;
	}
}

/* The first rule that matches, or PLAN_NO_RULE. */
static inline uint32_t slow_match_name(const struct policy *p, const struct dns_name *n)
{
	for (size_t i = 0; i < p->count; i++) {
		if (slow_rule_matches(&p->rules[i], n))
			return (uint32_t)i;
	}
	return PLAN_NO_RULE;
}

/* The first deny; else the first allow whose ports hold @port (0: any). */
static inline uint32_t slow_match_addr(const struct policy *p, const struct addr *a,
				       uint8_t protocol, uint16_t port)
{
	uint32_t allow = PLAN_NO_RULE;

	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind != TARGET_PREFIX || !prefix_contains(&r->prefix, a))
			continue;
		if (r->action == POLICY_DENY)
			return (uint32_t)i;
		if (allow == PLAN_NO_RULE &&
		    (port == 0 || slow_rule_has_port(p, r, protocol, port)))
			allow = (uint32_t)i;
	}
	return allow;
}
