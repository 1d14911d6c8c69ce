// SPDX-License-Identifier: Apache-2.0
#include "events/jsonl.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "policy/explain.h"
#include "policy/limits.h"
#include "policy/names.h"
#include "policy/rule.h"
#include "proto/message.h"

enum { PROTOCOL_TEXT_SIZE = 8 };

static_assert((EVENT_NAME_SIZE + EVENT_REASON_SIZE + ROW_SANDBOX_SIZE + ROW_RULE_SIZE +
	       ROW_FILE_SIZE + EVENT_COMMAND_SIZE + EVENT_ADVICE_SIZE) *
				      JTEXT_ESCAPE_MAX +
			      768 <=
		      EVENT_JSON_SIZE,
	      "any row fits");

void event_row_fill(struct event_row *ret, const struct event *e, const char *sandbox,
		    const struct plan *plan)
{
	struct plan_rule rule;

	memset(ret, 0, sizeof(*ret));
	ret->event = *e;
	ret->event.name[EVENT_NAME_SIZE - 1] = '\0';
	ret->event.reason[EVENT_REASON_SIZE - 1] = '\0';
	ret->event.command[EVENT_COMMAND_SIZE - 1] = '\0';
	snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", sandbox ? sandbox : "");
	if (!plan || ret->event.rule == EVENT_NO_RULE ||
	    ret->event.rule >= plan_rule_count(plan))
		return;
	rule = plan_rule(plan, ret->event.rule);
	snprintf(ret->rule, sizeof(ret->rule), "%s %s", policy_action_name(rule.action),
		 rule.target);
	snprintf(ret->rule_file, sizeof(ret->rule_file), "%s", rule.file);
	ret->rule_line = rule.line;
}

void event_row_check(struct event_row *row)
{
	struct event *e = &row->event;

	e->name[sizeof(e->name) - 1] = '\0';
	e->reason[sizeof(e->reason) - 1] = '\0';
	row->sandbox[sizeof(row->sandbox) - 1] = '\0';
	row->rule[sizeof(row->rule) - 1] = '\0';
	row->rule_file[sizeof(row->rule_file) - 1] = '\0';
	e->command[sizeof(e->command) - 1] = '\0';
	e->advice[sizeof(e->advice) - 1] = '\0';
	row->looks_like[sizeof(row->looks_like) - 1] = '\0';
	ipc_sanitize_flag(&e->allowable);
	ipc_sanitize_flag(&e->claimed);
}

void event_row_compare(struct event_row *row, const struct plan *plan)
{
	const struct event *e = &row->event;

	row->looks_like[0] = '\0';
	if (plan && (e->action == EVENT_DENY || e->action == EVENT_ASK) && e->advice[0])
		lookalike_find(plan, e->name, row->looks_like);
}

static const struct protocol {
	const char *name;
	uint8_t number;
} protocols[] = {
	{ "", 0 },
	{ "tcp", IPPROTO_TCP },
	{ "udp", IPPROTO_UDP },
	{ "icmp", IPPROTO_ICMP },
	{ "icmpv6", IPPROTO_ICMPV6 },
};

const char *event_protocol_name(uint8_t protocol, char *buf)
{
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		if (protocols[i].number == protocol)
			return protocols[i].name;
	snprintf(buf, PROTOCOL_TEXT_SIZE, "%u", protocol);
	return buf;
}

uint8_t event_protocol_find(const char *name)
{
	const struct protocol *known = TEXT_FIND(text_of(name), protocols);
	uint32_t number = 0;

	if (known)
		return known->number;
	return text_to_u32(text_of(name), UINT8_MAX, &number) ? (uint8_t)number : 0;
}

void event_put(struct jtext *j, const struct event_row *row)
{
	char addr[ADDR_TEXT_SIZE] = "", protocol[PROTOCOL_TEXT_SIZE];
	const struct event *e = &row->event;

	jtext_when(j, "ts", e->ts_ms);
	jtext_text(j, "sandbox", row->sandbox, sizeof(row->sandbox));
	jtext_text(j, "action", event_action_name((enum event_action)e->action), 32);
	jtext_text(j, "layer", event_layer_name((enum event_layer)e->layer), 32);
	if (e->remote.family != ADDR_NONE)
		addr_format(&e->remote, addr);
	jtext_text(j, "remote_ip", addr, sizeof(addr));
	jtext_number(j, "remote_port", e->port > 0, e->port);
	jtext_text(j, "protocol", event_protocol_name(e->protocol, protocol),
		   sizeof(protocol));
	jtext_text(j, "name", e->name, sizeof(e->name));
	jtext_text(j, "rule", row->rule, sizeof(row->rule));
	jtext_text(j, "rule_file", row->rule_file, sizeof(row->rule_file));
	jtext_number(j, "rule_line", row->rule_line > 0, row->rule_line);
	jtext_count(j, "packets", e->packets);
	jtext_count(j, "bytes", e->bytes);
	jtext_text(j, "reason", e->reason, sizeof(e->reason));
	jtext_number(j, "query_type", e->query_type > 0, e->query_type);
	jtext_text(j, "limit", report_limit(e), 64);
	jtext_number(j, "uid", e->uid != UINT32_MAX, e->uid);
	jtext_number(j, "pid", e->pid > 0, e->pid);
	jtext_text(j, "command", e->command, sizeof(e->command));
	jtext_text(j, "allow", e->advice, sizeof(e->advice));
}

size_t event_json(const struct event_row *row, char *buf)
{
	struct jtext j;

	jtext_init(&j, buf, EVENT_JSON_SIZE - 1);
	jtext_open(&j, NULL, '{');
	event_put(&j, row);
	jtext_close(&j, '}');
	assert(!j.full);
	buf[j.used] = '\0';
	return j.used;
}

/* ---- in words ---- */

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
