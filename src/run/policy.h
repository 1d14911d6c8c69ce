// SPDX-License-Identifier: Apache-2.0
/* run/policy - the policy of a `weir run`: built from its options, and what follows
 * from it for the start. */
#pragma once

#include "run/options.h"

/* As cli_policy_build(), of what the options and the files of run/config name. */
int run_policy_build(const struct run_spec *spec, struct arena *arena, struct policy *ret,
		     uint8_t **ret_plan, size_t *ret_plan_size) MUST_CHECK;

/* Some name can be allowed, so somebody has to be asked. */
bool run_policy_asks_names(const struct policy *p);

/* The files that stay read-only inside, by the names that were given: the policy's and
 * those that the options name. Built-in profiles are none, and what isn't there needs no
 * protection. *@ret is an array in @arena, @ret_count long. Return: 0 or -ENOMEM. */
int run_policy_kept(const struct run_spec *spec, const struct policy *policy,
		    struct arena *arena, const char ***ret, size_t *ret_count) MUST_CHECK;
