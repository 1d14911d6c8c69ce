// SPDX-License-Identifier: Apache-2.0
#include "run/policy.h"

#include <errno.h>
#include <string.h>

#include "policy/check.h"
#include "run/config.h"

int run_policy_build(const struct run_spec *spec, struct arena *arena, struct policy *ret,
		     uint8_t **ret_plan, size_t *ret_plan_size)
{
	const struct cli_policy_args args = {
		.deny = spec->deny.items,
		.deny_count = spec->deny.count,
		.allow = spec->allow.items,
		.allow_count = spec->allow.count,
		.policy_file = spec->policy_file,
		.profiles = spec->profiles.items,
		.profile_count = spec->profiles.count,
		.has_verify = spec->has_verify,
		.verify = spec->verify,
		.verify_tls = spec->verify_tls,
		.narrow = spec->narrow.items,
		.narrow_count = spec->narrow.count,
		.narrow_file = CONFIG_NARROW,
	};

	return cli_policy_build(&args, arena, true, ret, ret_plan, ret_plan_size);
}

bool run_policy_asks_names(const struct policy *p)
{
	if (p->default_action == POLICY_ALLOW)
		return true;
	for (size_t i = 0; i < p->count; i++)
		if (p->rules[i].action == POLICY_ALLOW &&
		    p->rules[i].kind != TARGET_PREFIX)
			return true;
	return false;
}

/* A file that was read and has gone since is not left out: it may come back, written by
 * the command. */
static bool is_kept(const char *name, bool is_source)
{
	if (is_source)
		return strncmp(name, POLICY_BUILT_IN, strlen(POLICY_BUILT_IN)) != 0;
	return access(name, F_OK) == 0;
}

int run_policy_kept(const struct run_spec *spec, const struct policy *policy,
		    struct arena *arena, const char ***ret, size_t *ret_count)
{
	const size_t sources = policy->source_count, all = sources + spec->kept_count;
	const char **files = arena_array(arena, all + 1, sizeof(*files));
	size_t count = 0;

	if (!files)
		return -ENOMEM;
	for (size_t i = 0; i < all; i++) {
		const char *file = i < sources ? policy->sources[i]
					       : spec->kept[i - sources];

		if (is_kept(file, i < sources))
			files[count++] = file;
	}
	*ret = files;
	*ret_count = count;
	return 0;
}
