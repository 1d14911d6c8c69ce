// SPDX-License-Identifier: Apache-2.0
/* policy/check - parts of policy_check() of policy/policy.h. */
#pragma once

#include "policy/policy.h"

/* Documents whose name starts so ship with Weir: their rules are meant, and known ways
 * out among them are hints, no warnings. */
#define POLICY_BUILT_IN "built-in:"

/* `dns: pinned` resolves every name before the start and answers nothing else: an error
 * for each rule that it can't hold to (a wildcard, `types`), for `defaultAction: allow`,
 * and for more names than may be learned. `repin` without it is a warning.
 * Return: 0 or -EINVAL. */
int policy_check_pinned(const struct policy_reader *r,
			const struct policy *policy) MUST_CHECK;
