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

/* The files that stay read-only inside: the policy's and those that the options name,
 * wherever symlinks put them; built-in profiles are none.
 * Return: an array in @arena, @ret_count long, or NULL when memory is out. */
const char **run_policy_kept(const struct run_spec *spec, const struct policy *policy,
			     struct arena *arena, size_t *ret_count) MUST_CHECK;
