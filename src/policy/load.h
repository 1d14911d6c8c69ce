// SPDX-License-Identifier: Apache-2.0
/* policy/load - the policy that the command line asks for: options, files and profiles
 * read in their order, checked, compiled; what is wrong with it goes to stderr. */
#pragma once

#include "base/arena.h"
#include "policy/args.h"

/* Read what narrows, --deny, --allow, --policy, --profile, in this order: the first rule
 * that matches decides. *@ret lives in @arena; *@ret_plan is malloc'ed, owned by the
 * caller. ret->sources names every document; those that start with POLICY_BUILT_IN are no
 * files. @quiet_hints leaves hints out.
 * Return: 0; -EINVAL after the faults were printed; -ENOMEM (printed as well). */
int cli_policy_build(const struct policy_args *args, struct arena *arena,
		     bool quiet_hints, struct policy *ret, uint8_t **ret_plan,
		     size_t *ret_plan_size) MUST_CHECK;

/* What cli_policy_build() does before it prints, for callers who need no plan: read
 * everything and check it. Return: 0, -EINVAL when @faults has errors, -ENOMEM. */
int cli_policy_load(const struct policy_args *args, struct arena *arena,
		    struct faults *faults, struct policy *ret) MUST_CHECK;

/* One document as it would be behind --policy, its text given; it is checked and
 * compiled.
 * *@ret_plan is malloc'ed, owned by the caller. Return as above. */
int cli_policy_load_text(const char *path, struct text text, struct arena *arena,
			 struct faults *faults, struct policy *ret, uint8_t **ret_plan,
			 size_t *ret_plan_size) MUST_CHECK;

/* One regular file of at most POLICY_TEXT_MAX bytes, into @arena. 0, or -errno with @err.
 */
int cli_read_file(const char *path, struct arena *arena, struct text *ret,
		  struct err *err) MUST_CHECK;

/* The same, of a file that tells Weir what to do without being named: one that only root
 * and the user can have put there (sys/owned.h), or -EPERM. */
int cli_read_owned(const char *path, struct arena *arena, struct text *ret,
		   struct err *err) MUST_CHECK;

/* A profile's text: the user's own, the machine's or a built-in one, in this order, and
 * where it stands. Return: 0, -ENOENT when there is none, or -errno, with @err. */
int cli_profile_load(struct arena *arena, const char *name, struct text *ret_text,
		     const char **ret_path, struct err *err) MUST_CHECK;
#define CLI_ETC_PROFILES "/etc/weir/profiles"
/* The folder of the user's own, or NULL when there is no place for them. */
const char *cli_user_profiles(struct arena *arena);
