// SPDX-License-Identifier: Apache-2.0
/* run/config - defaults for `weir run` from files, and a file in the working directory
 * that can only narrow.
 *
 * /etc/weir/config.yaml and ~/.config/weir/config.yaml: policy, profile, uplink,
 * upstream, rw, self_test, verify, fail_on_deny, env, hide and so on. The user's comes
 * first; what the command line or the environment has counts before both. A list replaces
 * a list.
 *
 * .weir.yaml: `deny`, added to every other deny, and `verify: tls`. It may come from
 * anywhere (a cloned repository, an earlier sandbox), so nothing in it can widen what a
 * sandbox reaches. */
#pragma once

#include "policy/policy.h"
#include "run/options.h"

#define CONFIG_NARROW ".weir.yaml"

enum config_kind {
	CONFIG_NARROWING = 0, /* .weir.yaml */
	CONFIG_DEFAULTS,
};

/* Read all three, unless spec->no_config. Faults go to stderr, each with its place.
 * Return: 0, -EINVAL or -ENOMEM. */
int config_read(struct run_spec *spec) MUST_CHECK;

/* One of them; one that doesn't exist is empty. @path lives as long as @spec.
 * Return: 0, -EINVAL when faults were added, -ENOMEM. */
int config_read_file(struct run_spec *spec, const char *path, enum config_kind kind,
		     struct faults *faults) MUST_CHECK;

/* The files that stay read-only inside, by the names that were given: the policy's and
 * those that the options name. Built-in profiles are none, and what isn't there needs no
 * protection. *@ret is an array in @arena, @ret_count long. Return: 0 or -ENOMEM. */
int config_kept_files(const struct run_spec *spec, const struct policy *policy,
		      struct arena *arena, const char ***ret,
		      size_t *ret_count) MUST_CHECK;
