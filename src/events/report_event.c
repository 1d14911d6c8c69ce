// SPDX-License-Identifier: Apache-2.0
#include "events/report_event.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "policy/explain.h"
#include "policy/limits.h"

bool report_is_refusal(const struct event *e)
{
	return event_is_refusal(e) || e->action == EVENT_LIMIT;
}

bool report_is_failure(const struct event *e)
{
	return e->action == EVENT_FAIL;
}

const char *report_protocol(uint8_t protocol)
{
	switch (protocol) {
	case IPPROTO_TCP:
		return "tcp";
	case IPPROTO_UDP:
		return "udp";
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return "icmp";
	default:
		return "ip";
	}
}

const char *report_limit(const struct event *e)
{
	if (e->limit == EVENT_LIMIT_DENIES)
		return "on_denies";
	if (e->limit == 0 || e->limit > LIMIT_COUNT)
		return "";
	return limit_info((enum plan_limit)(e->limit - 1))->name;
}

const char *report_what(const struct event *e, char *buf)
{
	char addr[ADDR_TEXT_SIZE], where[32] = "";

	if (e->remote.family == ADDR_NONE) {
		snprintf(buf, REPORT_WHAT_SIZE, "%s",
			 e->name[0] ? e->name : "the sandbox");
		return buf;
	}
	if (e->port > 0)
		snprintf(where, sizeof(where), " %s/%u", report_protocol(e->protocol),
			 e->port);
	else
		snprintf(where, sizeof(where), " %s", report_protocol(e->protocol));
	addr_format(&e->remote, addr);
	if (e->name[0])
		snprintf(buf, REPORT_WHAT_SIZE, "%s (%s)%s", e->name, addr, where);
	else
		snprintf(buf, REPORT_WHAT_SIZE, "%s%s", addr, where);
	return buf;
}

const char *report_why(const struct plan *plan, const struct event *e, char *buf)
{
	char rule[POLICY_EXPLAIN_SIZE];

	if (e->rule == EVENT_NO_RULE || e->rule >= plan_rule_count(plan)) {
		snprintf(buf, REPORT_WHY_SIZE, "%s", e->reason);
		return buf;
	}
	policy_explain_rule(plan, e->rule, rule, sizeof(rule));
	/* What a rule denies has the rule, or as much as fits, as its reason. */
	if (strncmp(e->reason, rule, strlen(e->reason)) == 0)
		snprintf(buf, REPORT_WHY_SIZE, "%.512s", rule);
	else
		snprintf(buf, REPORT_WHY_SIZE, "%s: %.512s", e->reason, rule);
	return buf;
}
