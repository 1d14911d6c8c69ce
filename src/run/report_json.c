// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <jansson.h>
#include <time.h>

#include "events/report_event.h"
#include "policy/explain.h"
#include "policy/limits.h"
#include "run/report_file.h"
#include "sandbox/sandbox.h"
#include "sys/print.h"

enum { REPORT_VERSION = 1, TIME_SIZE = 40 };

/* Text from outside; what isn't UTF-8 is escaped. */
static json_t *text_json(const char *text)
{
	char shown[4096];
	json_t *j = json_string(text);

	return j ? j : json_string(text_escape(text_of(text), shown, sizeof(shown)));
}

/* "2026-11-20T13:31:08.250Z" */
static json_t *time_json(int64_t ms)
{
	char day[TIME_SIZE], text[TIME_SIZE + 8];
	const time_t seconds = (time_t)(ms / 1000);
	struct tm tm;

	if (!gmtime_r(&seconds, &tm) ||
	    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
		return json_null();
	snprintf(text, sizeof(text), "%s.%03dZ", day, (int)(ms % 1000));
	return json_string(text);
}

static json_t *rule_json(const struct plan *plan, uint32_t index)
{
	struct plan_rule rule;

	if (index == EVENT_NO_RULE || index >= plan_rule_count(plan))
		return json_null();
	rule = plan_rule(plan, index);
	return json_pack("{s:s, s:o, s:o, s:i, s:i, s:o}", "action",
			 policy_action_name(rule.action), "target",
			 text_json(rule.target), "file", text_json(rule.file), "line",
			 (int)rule.line, "column", (int)rule.column, "comment",
			 text_json(rule.comment));
}

static json_t *number_or_null(bool known, json_int_t value)
{
	return known ? json_integer(value) : json_null();
}

static json_t *limit_json(const struct event *e)
{
	if (e->limit == EVENT_LIMIT_DENIES)
		return json_string("on_denies");
	if (e->limit == 0 || e->limit > LIMIT_COUNT)
		return json_null();
	return json_string(limit_info((enum plan_limit)(e->limit - 1))->name);
}

static json_t *event_json(const struct report *r, const struct event *e)
{
	char addr[ADDR_TEXT_SIZE], allow[REPORT_WHAT_SIZE];
	const bool has_addr = e->remote.family != ADDR_NONE;
	json_t *j = json_object();

	json_object_set_new(j, "time", time_json(e->ts_ms));
	json_object_set_new(j, "action", json_string(event_action_name(e->action)));
	json_object_set_new(j, "layer", json_string(event_layer_name(e->layer)));
	json_object_set_new(j, "name", e->name[0] ? text_json(e->name) : json_null());
	json_object_set_new(j, "address",
			    has_addr ? json_string(addr_format(&e->remote, addr))
				     : json_null());
	json_object_set_new(j, "protocol",
			    has_addr ? json_string(report_protocol(e->protocol))
				     : json_null());
	json_object_set_new(j, "port", number_or_null(e->port > 0, e->port));
	json_object_set_new(j, "query_type",
			    number_or_null(e->query_type > 0, e->query_type));
	json_object_set_new(j, "uid", number_or_null(e->uid != UINT32_MAX, e->uid));
	json_object_set_new(j, "times", json_integer((json_int_t)e->packets));
	json_object_set_new(j, "bytes", json_integer((json_int_t)e->bytes));
	json_object_set_new(j, "reason", text_json(e->reason));
	json_object_set_new(j, "rule", rule_json(r->plan, e->rule));
	json_object_set_new(j, "limit", limit_json(e));
	json_object_set_new(j, "allow",
			    report_allow(e, allow) ? text_json(allow) : json_null());
	return j;
}

static json_t *refusals_json(const struct report *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (report_is_refusal(event_ring_at(r->ring, i)))
			json_array_append_new(list,
					      event_json(r, event_ring_at(r->ring, i)));
	return list;
}

static json_t *command_json(char *const *argv)
{
	json_t *list = json_array();

	for (size_t i = 0; argv[i]; i++)
		json_array_append_new(list, text_json(argv[i]));
	return list;
}

static json_t *policy_json(const struct policy *policy)
{
	json_t *sources = json_array();

	for (size_t i = 0; i < policy->source_count; i++)
		json_array_append_new(sources, text_json(policy->sources[i]));
	return json_pack("{s:o, s:i, s:s, s:s}", "sources", sources, "rules",
			 (int)policy->count, "default_action",
			 policy_action_name(policy->default_action), "verify",
			 policy->verify == POLICY_VERIFY_TLS ? "tls" : "dns");
}

static json_t *counters_json(const uint64_t *counters)
{
	json_t *j = json_object();

	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		json_object_set_new(j, sandbox_counter_name((enum sandbox_counter)i),
				    json_integer((json_int_t)counters[i]));
	return j;
}

int report_json(const struct report *r, FILE *out)
{
	uint64_t missed = report_missed(r);
	json_t *j = json_object();

	json_object_set_new(j, "version", json_integer(REPORT_VERSION));
	json_object_set_new(j, "weir", json_string(WEIR_VERSION));
	json_object_set_new(j, "command", command_json(r->spec->argv));
	json_object_set_new(j, "exit_status", json_integer(r->exit_status));
	json_object_set_new(j, "signal", number_or_null(r->signal > 0, r->signal));
	json_object_set_new(j, "stopped", json_boolean(r->stopped));
	json_object_set_new(j, "weir_failed", json_boolean(r->failed));
	json_object_set_new(j, "started", time_json(r->started_ms));
	json_object_set_new(j, "ended", time_json(r->ended_ms));
	json_object_set_new(j, "duration_ms", json_integer(r->ended_ms - r->started_ms));
	json_object_set_new(j, "policy", policy_json(r->policy));
	json_object_set_new(j, "refusals", refusals_json(r));
	json_object_set_new(j, "refusals_not_recorded", json_integer((json_int_t)missed));
	json_object_set_new(j, "counters", counters_json(r->counters));
	return print_json(j, 0, out);
}
