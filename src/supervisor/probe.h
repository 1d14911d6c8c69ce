// SPDX-License-Identifier: Apache-2.0
/* supervisor/probe - what the self-test of a launch tries: chosen from the plan, so that
 * each probe has one right outcome under this very policy. */
#pragma once

#include "policy/policy.h"
#include "proto/launch.h"

/* ret->allowed_name, which the engine answers, is new for every launch. Return: 0 or
 * -errno. */
int probe_choose(const struct plan *plan, const struct policy *policy, bool relay,
		 struct launch_probe *ret, struct err *err) MUST_CHECK;
