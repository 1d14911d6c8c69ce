// SPDX-License-Identifier: Apache-2.0
/* policy/load - the policy that the command line asks for: options, files and profiles
 * read in their order, checked, compiled; what is wrong with it goes to stderr. */
#pragma once

#include "base/arena.h"
#include "policy/policy.h"
#include "sys/options.h"
#include "sys/resolv_conf.h"

/* The options that say a policy, alike in every verb that has them. */
struct policy_args {
	struct option_list deny;     /* --deny TARGET */
	struct option_list allow;    /* --allow TARGET[:PORTS] */
	const char *file;	     /* --policy FILE, or NULL */
	struct option_list profiles; /* --profile NAME */
	bool has_verify;	     /* --verify: whatever the documents say */
	enum policy_verify verify;   /* of --verify; else where no document says */
	bool verify_tls;	     /* whatever the documents say */
	bool complete; /* names without a dot by the host's search domains as well */
	bool has_denied_names; /* --denied-names: whatever the documents say */
	enum policy_denied_names denied_names; /* of that; else where no document says,
						* and where it can be had */
	int64_t for_ms; /* what an allow of @file that has no end gets; 0: none */
	struct option_list narrow; /* denied by the file @narrow_file */
	const char *narrow_file;
	int64_t now_ms; /* wall clock at which `for` begins; 0: when it is read */
};

/* clang-format off */
/* Rows for a table of options whose target @type has these arguments as @field. */
#define POLICY_ARGS_ROWS(type, field) \
	{ "policy", "FILE", "read the policy from FILE (YAML or JSON)", \
	  OPTION_IN(TEXT_ONCE, type, field.file) }, \
	{ "profile", "NAME", "add a profile's rules behind the policy's; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.profiles) }, \
	{ "allow", "TARGET[:PORTS]", "allow one target, before the policy; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.allow) }, \
	{ "deny", "TARGET", "deny one target, before every allow; may be repeated", \
	  .separator = ' ', OPTION_IN(LIST, type, field.deny) }
#define POLICY_VERIFY_ROW(type, field, help) \
	{ "verify", "dns|tls", help, policy_args_set_verify, OPTION_IN(CUSTOM, type, field) }
#define POLICY_DENIED_NAMES_ROW(type, field, help) \
	{ "denied-names", "nxdomain|refuse", help, policy_args_set_denied_names, \
	  OPTION_IN(CUSTOM, type, field) }
#define POLICY_FOR_ROW(type, field, help) \
	{ "for", "TIME", help, policy_args_set_for, OPTION_IN(CUSTOM, type, field) }
/* clang-format on */

/* A setter of --for: @field is an int64_t of milliseconds. Return: as the next. */
int policy_args_set_for(void *field, const char *value, struct err *err) MUST_CHECK;

/* A setter of --denied-names: @args is a struct policy_args. Return: as the next. */
int policy_args_set_denied_names(void *args, const char *value,
				 struct err *err) MUST_CHECK;

/* A setter of --verify: @args is a struct policy_args. Return: 0, or -EINVAL with @err.
 */
int policy_args_set_verify(void *args, const char *value, struct err *err) MUST_CHECK;

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

/* The same with a plan, as cli_policy_build() makes it. The text of args->file is @text,
 * unless that is NULL. *@ret_plan is malloc'ed, owned by the caller. Return as above. */
int cli_policy_load_text(const struct policy_args *args, const struct text *text,
			 struct arena *arena, struct faults *faults, struct policy *ret,
			 uint8_t **ret_plan, size_t *ret_plan_size) MUST_CHECK;

/* One regular file of at most POLICY_TEXT_MAX bytes, into @arena. 0, or -errno with @err.
 */
int cli_read_file(const char *path, struct arena *arena, struct text *ret,
		  struct err *err) MUST_CHECK;

/* The same, of a file that tells Weir what to do without being named: one that only root
 * and the user can have put there (sys/files.h), or -EPERM. */
int cli_read_owned(const char *path, struct arena *arena, struct text *ret,
		   struct err *err) MUST_CHECK;

/* A profile's text and its path: the user's own, the machine's or a built-in one, in
 * this order. Return: 0, -ENOENT when there is none, or -errno, with @err. */
int cli_profile_load(struct arena *arena, const char *name, struct text *ret_text,
		     const char **ret_path, struct err *err) MUST_CHECK;
#define CLI_ETC_PROFILES "/etc/weir/profiles"
/* The folder of the user's own profiles, or NULL when the user has no home. */
const char *cli_user_profiles(struct arena *arena);
