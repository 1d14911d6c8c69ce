// SPDX-License-Identifier: Apache-2.0
/* tools/policy - the verbs `weir policy check`, `explain`, `show`, `diff`, `import`, and
 * `set` and `patch` of a sandbox that the daemon guards. */
#pragma once

#include <stdio.h>

#include "policy/explain.h"
#include "policy/load.h"
#include "policy/plan.h"
#include "sys/options.h"

#define CLI_POLICY_WORDS "check|explain|show|diff|import|set|patch"

/* @argv[0] is "policy". Return: the exit status: 0, 1 for failure, 2 for a policy or a
 * command line that is not valid. */
int cli_policy(int argc, char **argv);
void cli_policy_usage(FILE *out);
extern const struct cli_options cli_policy_options;

struct cli_policy_side {
	struct policy policy;
	struct plan plan;
};

/* tools/policy_explain.c: what @plan says of each of @queries ("name", "name:port",
 * "address", "address:port", "[v6]:port", a URL). Return: 0, or -EINVAL with the reason.
 */
int cli_policy_explain(const struct plan *plan, char *const *queries, size_t count,
		       bool json, FILE *out, struct err *err) MUST_CHECK;

/* tools/policy_diff.c: what @before and @after decide differently.
 * Return: how many differences, or -ENOMEM. */
int cli_policy_diff(const struct cli_policy_side *before,
		    const struct cli_policy_side *after, bool json, FILE *out) MUST_CHECK;
