// SPDX-License-Identifier: Apache-2.0
#include "policy/explain.h"

#include <stdio.h>

#include "policy/rule.h"

const char *policy_action_name(enum policy_action action)
{
	return action == POLICY_ALLOW ? "allow" : "deny";
}

char *policy_explain_ports(const struct plan *p, uint8_t list, char *buf, size_t size)
{
	const struct plan_port_range *ranges;
	size_t count;

	if (list == 0) {
		snprintf(buf, size, "all but 53 and 853%s",
			 plan_verify(p) == POLICY_VERIFY_TLS ? " (and udp/443)" : "");
		return buf;
	}
	ranges = plan_port_list(p, list, &count);
	return rule_ports_format(ranges, count, buf, size);
}

char *policy_explain_rule(const struct plan *p, uint32_t rule, char *buf, size_t size)
{
	char target[TEXT_ESCAPED_SIZE], file[TEXT_ESCAPED_SIZE], ports[128],
		place[16] = "";
	struct plan_rule r;

	if (rule >= plan_rule_count(p)) {
		snprintf(buf, size, "the default action (%s)",
			 policy_action_name(plan_default_action(p)));
		return buf;
	}
	r = plan_rule(p, rule);
	text_escape(text_of(r.target), target, sizeof(target));
	text_escape(text_of(r.file), file, sizeof(file));
	if (r.line > 0)
		snprintf(place, sizeof(place), ":%u", r.line);
	if (r.action == POLICY_ALLOW && r.flags & PLAN_PORTS_LISTED)
		snprintf(buf, size, "allow %s ports %s (%s%s)", target,
			 policy_explain_ports(p, r.port_list, ports, sizeof(ports)), file,
			 place);
	else
		snprintf(buf, size, "%s %s (%s%s)", policy_action_name(r.action), target,
			 file, place);
	return buf;
}
