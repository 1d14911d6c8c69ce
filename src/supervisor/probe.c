// SPDX-License-Identifier: Apache-2.0
#include "supervisor/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/random.h>

enum { PROBE_PORT = 443 };

/* Nothing is ever at the first three (RFC 5737), and no name may teach any. */
static const uint8_t addresses[][4] = {
	{ 192, 0, 2, 77 },
	{ 198, 51, 100, 77 },
	{ 203, 0, 113, 77 },
	{ 169, 254, 169, 254 },
};
enum { DOCUMENTATION = 3 };

/* Nobody has a name below invalid (RFC 6761): it is NXDOMAIN under every policy. */
static const char *const denied_names[] = { "self-test.invalid", "denied.invalid" };

static void choose_denied_name(const struct plan *plan, struct launch_probe *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(denied_names); i++) {
		struct dns_name name;

		if (dns_name_parse(text_of(denied_names[i]), &name) < 0 ||
		    plan_match_name(plan, &name).action == POLICY_ALLOW)
			continue;
		snprintf(ret->denied_name, sizeof(ret->denied_name), "%s",
			 denied_names[i]);
		return;
	}
}

static struct plan_verdict verdict_of(const struct plan *plan, const struct addr *a)
{
	return plan_match_addr(plan, a, IPPROTO_TCP, PROBE_PORT);
}

/* An address for the synthetic name, which the engine opens for a moment. Where rules
 * deny all that are nobody's it can't be connected to, and the self-test leaves that out.
 */
static void choose_allowed_addr(const struct plan *plan, struct launch_probe *ret)
{
	for (size_t i = 0; i < DOCUMENTATION; i++) {
		struct addr a = addr_from_bytes(ADDR_V4, addresses[i]);
		struct plan_verdict v = verdict_of(plan, &a);

		ret->allowed = (struct endpoint){ .addr = a, .port = PROBE_PORT };
		if (v.action == POLICY_ALLOW || v.rule == PLAN_NO_RULE)
			return;
	}
	ret->relay = false;
}

static void choose_denied_addr(const struct plan *plan, struct launch_probe *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
		struct addr a = addr_from_bytes(ADDR_V4, addresses[i]);

		if (verdict_of(plan, &a).action == POLICY_ALLOW ||
		    addr_equal(&a, &ret->allowed.addr))
			continue;
		ret->denied = (struct endpoint){ .addr = a, .port = PROBE_PORT };
		return;
	}
}

static uint16_t first_tcp_port(const struct rule *rule)
{
	for (size_t i = 0; i < rule->ports.count; i++)
		if (rule->ports.ranges[i].protocol == IPPROTO_TCP)
			return rule->ports.ranges[i].from;
	return rule->ports.count > 0 ? 0 : PROBE_PORT;
}

/* The first rule that names one host or one address, and doesn't end. */
static void choose_first(const struct policy *policy, struct launch_probe *ret)
{
	for (size_t i = 0; i < policy->count; i++) {
		const struct rule *rule = &policy->rules[i];
		uint16_t port = first_tcp_port(rule);

		if (rule->action != POLICY_ALLOW || port == 0 || rule->until_ms != 0)
			continue;
		ret->first.port = port;
		if (rule->kind == TARGET_NAME) {
			snprintf(ret->first_name, sizeof(ret->first_name), "%s",
				 DNS_NAME_SHOWN(&rule->name));
			return;
		}
		if (rule->kind == TARGET_PREFIX &&
		    rule->prefix.bits == 8 * addr_size(&rule->prefix.addr)) {
			ret->first.addr = rule->prefix.addr;
			return;
		}
	}
}

int probe_choose(const struct plan *plan, const struct policy *policy, bool relay,
		 struct launch_probe *ret, struct err *err)
{
	struct launch_probe probe = { .relay = relay };
	struct plan widest = *plan; /* what is denied then is denied now */
	uint64_t nonce;

	if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
		return err_sys(err, -errno, "cannot get random bytes");
	snprintf(probe.allowed_name, sizeof(probe.allowed_name),
		 "probe-%016" PRIx64 ".weir.invalid", nonce);
	widest.ends_ahead = UINT64_MAX;
	choose_allowed_addr(&widest, &probe);
	choose_denied_name(&widest, &probe);
	choose_denied_addr(&widest, &probe);
	choose_first(policy, &probe);
	*ret = probe;
	return 0;
}
