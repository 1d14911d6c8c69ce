// SPDX-License-Identifier: Apache-2.0
/* policy/show - a policy printed as a document that can be read back. */
#pragma once

#include <stdio.h>

#include "policy/plan.h"
#include "policy/policy.h"

/* The policy with `extends` resolved, as a document of its own.
 * Return: 0 or -ENOMEM. */
int cli_policy_show(const struct policy *policy, const struct plan *plan, bool json,
		    FILE *out) MUST_CHECK;
