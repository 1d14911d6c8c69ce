// SPDX-License-Identifier: Apache-2.0
/* policy/explain - a policy and a plan's decisions in words. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "policy/plan.h"
#include "policy/policy.h"

enum { POLICY_EXPLAIN_SIZE = 1024 }; /* fits any line of these */

/* "allow api.github.com ports 443 (policy.yaml:3)", or for PLAN_NO_RULE "the default
 * action (deny)". Texts are escaped. Return: @buf. */
char *policy_explain_rule(const struct plan *p, uint32_t rule, char *buf, size_t size);
/* "443,tcp/22"; "all but 53 and 853" for the default list. Return: @buf. */
char *policy_explain_ports(const struct plan *p, uint8_t list, char *buf, size_t size);

/* What the profiles of @policy give a command of `weir run` besides hosts: a line for
 * each profile and kind of need. */
void policy_explain_needs(const struct policy *policy, const char *prefix, FILE *out);

/* A list of the rules that end, and not before @wall_ms: {target, until, secondsLeft}.
 */
json_t *policy_grants_json(const struct plan *p, int64_t wall_ms);

/* What @plan says of each of @queries ("name", "name:port", "address", "address:port",
 * "[v6]:port", a URL). Return: 0, or -EINVAL with the reason. */
int cli_policy_explain(const struct plan *plan, char *const *queries, size_t count,
		       bool json, FILE *out, struct err *err) MUST_CHECK;
/* Of one, with the lines for people as "text". NULL with @err. */
json_t *policy_explain_json(const struct plan *plan, const char *query,
			    struct err *err) MUST_CHECK;

/* The policy with `extends` resolved, as a document of its own.
 * Return: 0 or -ENOMEM. */
int cli_policy_show(const struct policy *policy, const struct plan *plan, bool json,
		    FILE *out) MUST_CHECK;
