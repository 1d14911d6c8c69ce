// SPDX-License-Identifier: Apache-2.0
/* policy/implicit - the denies that nobody had to write.
 *
 * Cloud metadata addresses are refused unless a rule names the very address: an allow
 * of a range around it doesn't. Under `defaultAction: allow` link-local addresses that no
 * rule allows, and the public DoH resolvers of profiles/doh.txt, are refused as well,
 * unless a rule names them or the policy leaves them open (open_doh). */
#pragma once

#include "policy/policy.h"

/* The rules to append to those of @policy. They live in @arena. 0 or -ENOMEM. */
int policy_implicit(const struct policy *policy, struct arena *arena, struct rule **ret,
		    size_t *ret_count) MUST_CHECK;
