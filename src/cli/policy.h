// SPDX-License-Identifier: Apache-2.0
/* cli/policy - the verbs `weir policy check`, `explain` and `show`. */
#pragma once

#include <stdio.h>

#include "cli/load.h"
#include "policy/plan.h"

/* @argv[0] is "policy". Return: the exit status: 0, 1 for failure, 2 for a policy or a
 * command line that is not valid. */
int cli_policy(int argc, char **argv);
void cli_policy_usage(FILE *out);

/* cli/policy_explain.c: what @plan says of each of @queries ("name", "name:port",
 * "address", "address:port", "[v6]:port"). Return: 0, or -EINVAL with the reason. */
int cli_policy_explain(const struct plan *plan, char *const *queries, size_t count,
		       bool json, FILE *out, struct err *err) MUST_CHECK;

/* cli/policy_show.c: the policy with `extends` resolved, as a document of its own.
 * Return: 0 or -ENOMEM. */
int cli_policy_show(const struct policy *policy, const struct plan *plan, bool json,
		    FILE *out) MUST_CHECK;
