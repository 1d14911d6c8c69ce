// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <inttypes.h>
#include <netinet/in.h>

#include "policy/explain.h"

enum { WHAT_SIZE = EVENT_NAME_SIZE + ENDPOINT_TEXT_SIZE + 32, RULE_SIZE = 512 };

static bool is_refusal(const struct event *e)
{
	return e->action == EVENT_DENY || e->action == EVENT_LIMIT;
}

size_t report_refusals(const struct event_ring *ring)
{
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++)
		n += is_refusal(event_ring_at(ring, i));
	return n;
}

static const char *protocol_name(uint8_t protocol)
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

/* "api.evil.example", "93.184.216.34 tcp/443", "pypi.org (151.101.0.223) tcp/80" */
static const char *describe(const struct event *e, char *buf, size_t size)
{
	char addr[ADDR_TEXT_SIZE], where[ENDPOINT_TEXT_SIZE + 16] = "";

	if (e->remote.family == ADDR_NONE) {
		snprintf(buf, size, "%s", e->name);
		return buf;
	}
	if (e->port > 0)
		snprintf(where, sizeof(where), " %s/%u", protocol_name(e->protocol),
			 e->port);
	else
		snprintf(where, sizeof(where), " %s", protocol_name(e->protocol));
	addr_format(&e->remote, addr);
	if (e->name[0])
		snprintf(buf, size, "%s (%s)%s", e->name, addr, where);
	else
		snprintf(buf, size, "%s%s", addr, where);
	return buf;
}

/* The option that would have let it through; none where no rule could. */
static bool suggest(const struct event *e, char *buf, size_t size)
{
	char text[ADDR_TEXT_SIZE];
	const char *proto = e->protocol == IPPROTO_UDP ? "udp/" : "";
	const char *target = e->name;

	if (!e->allowable)
		return false;
	if (e->layer == EVENT_DNS) {
		snprintf(buf, size, "--allow %s", target);
		return true;
	}
	if (e->port == 0)
		return false;
	if (!target[0])
		target = addr_format(&e->remote, text);
	snprintf(buf, size,
		 e->remote.family == ADDR_V6 && !e->name[0] ? "--allow '[%s]:%s%u'"
							    : "--allow %s:%s%u",
		 target, proto, e->port);
	return true;
}

static void print_event(FILE *out, const struct plan *plan, const struct event *e)
{
	char what[WHAT_SIZE], rule[RULE_SIZE], line[WHAT_SIZE];

	fprintf(out, "weir:   %s", describe(e, what, sizeof(what)));
	fprintf(out, ", %" PRIu64 " %s", e->packets, e->packets == 1 ? "time" : "times");
	if (e->reason[0])
		fprintf(out, ": %s", e->reason);
	if (e->rule != EVENT_NO_RULE)
		fprintf(out, ": %s",
			policy_explain_rule(plan, e->rule, rule, sizeof(rule)));
	fputc('\n', out);
	if (suggest(e, line, sizeof(line)))
		fprintf(out, "weir:       if it is wanted: %s\n", line);
}

void report_print(FILE *out, const struct plan *plan, const struct event_ring *ring,
		  uint64_t missed)
{
	size_t refusals = report_refusals(ring);

	if (refusals == 0 && missed == 0)
		return;
	fputs("weir: refused:\n", out);
	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (is_refusal(event_ring_at(ring, i)))
			print_event(out, plan, event_ring_at(ring, i));
	missed += event_ring_dropped(ring);
	if (missed > 0)
		fprintf(out, "weir:   and %" PRIu64 " more that were counted only\n",
			missed);
}
