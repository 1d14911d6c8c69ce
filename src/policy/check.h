// SPDX-License-Identifier: Apache-2.0
/* policy/check - what this build of Weir can't enforce yet. The other checks over the
 * whole are policy_check() of policy/policy.h. */
#pragma once

#include "policy/policy.h"

/* Documents whose name starts so ship with Weir: their rules are meant, and get no
 * warning of known ways out. */
#define POLICY_BUILT_IN "built-in:"

/* Add an error for every setting of @policy that would not be enforced: weaker
 * enforcement than asked for is an error. Return: 0 or -EINVAL. */
int policy_check_built(const struct policy_reader *r,
		       const struct policy *policy) MUST_CHECK;
