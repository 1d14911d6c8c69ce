// SPDX-License-Identifier: Apache-2.0
#include "policy/load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "policy/embedded_files.h" /* generated: profiles[], doh_list[] ... */
#include "policy/policy.h"
#include "sys/files.h"
#include "sys/id_map.h"

/* -- the files of profiles/, which embed.py makes a part of the program ------------- */

const struct policy_embedded *policy_embedded_at(size_t i)
{
	return i < ARRAY_SIZE(profiles) ? &profiles[i] : NULL;
}

struct text policy_embedded_doh(void)
{
	return (struct text){ doh_list, sizeof(doh_list) - 1 };
}

struct text policy_embedded_telemetry(void)
{
	return (struct text){ telemetry_list, sizeof(telemetry_list) - 1 };
}

/* -- files --------------------------------------------------------------------------- */

static int read_text(const char *path, const struct file_how *how, struct arena *arena,
		     struct text *ret, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	int r = file_read(AT_FDCWD, path, how, &file, err);

	if (r < 0)
		return r;
	*ret = (struct text){ file.bytes, file.size };
	ret->ptr = arena_text(arena, *ret);
	return ret->ptr ? 0 : err_set(err, -ENOMEM, "out of memory");
}

int cli_read_file(const char *path, struct arena *arena, struct text *ret,
		  struct err *err)
{
	const struct file_how how = { .max_bytes = POLICY_TEXT_MAX,
				      .follow = true,
				      .anybodys = true };

	return read_text(path, &how, arena, ret, err);
}

int cli_read_owned(const char *path, struct arena *arena, struct text *ret,
		   struct err *err)
{
	const struct file_how how = { .max_bytes = POLICY_TEXT_MAX };

	return read_text(path, &how, arena, ret, err);
}

/* --- profiles and extended files --- */

/* A word is a profile; what has a dot or a slash is a file. */
static bool is_profile_name(const char *name)
{
	return name[0] != '\0' && !strchr(name, '/') && !strchr(name, '.');
}

static int out_of_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

/* "<dir>/<name>.yaml", if there is such a file. Return: 0, -ENOENT, or another -errno. */
static int profile_from(struct arena *arena, const char *dir, const char *name,
			struct text *ret_text, const char **ret_path, struct err *err)
{
	const char *path = arena_printf(arena, "%s/%s.yaml", dir, name);
	int r;

	if (!path)
		return out_of_memory(err);
	r = cli_read_owned(path, arena, ret_text, err);
	if (r == 0)
		*ret_path = path;
	return r == -ENOTDIR ? -ENOENT : r;
}

const char *cli_user_profiles(struct arena *arena)
{
	return home_config(arena, "profiles");
}

static const char *profile_name_at(const void *unused, size_t i)
{
	const struct policy_embedded *e = policy_embedded_at(i);

	return e ? e->name : NULL;
}

int cli_profile_load(struct arena *arena, const char *name, struct text *ret_text,
		     const char **ret_path, struct err *err)
{
	const struct policy_embedded *shipped = TEXT_FIND(text_of(name), profiles);
	const char *user = cli_user_profiles(arena);
	int r;

	if (!is_profile_name(name))
		return err_set(err, -ENOENT, "is not the name of a profile");
	r = user ? profile_from(arena, user, name, ret_text, ret_path, err) : -ENOENT;

	if (r == -ENOENT)
		r = profile_from(arena, CLI_ETC_PROFILES, name, ret_text, ret_path, err);
	if (r != -ENOENT)
		return r;
	if (!shipped) {
		const char *meant = text_meant(text_of(name), profile_name_at, NULL);

		if (meant)
			return err_set(
				err, -ENOENT,
				"there is no profile of this name; did you mean %s?",
				meant);
		return err_set(err, -ENOENT,
			       "there is no profile of this name; `weir profile list` "
			       "shows them");
	}
	*ret_path = arena_printf(arena, POLICY_BUILT_IN "%s", shipped->name);
	if (!*ret_path)
		return out_of_memory(err);
	*ret_text = shipped->text;
	return 0;
}

/* The name of the profile that the document @file is, or NULL: who may write the file
 * was judged for a profile alone. */
static const char *profile_of(struct arena *arena, const char *file)
{
	const char *user = cli_user_profiles(arena);
	const char *const folders[] = { CLI_ETC_PROFILES, user };
	const size_t suffix = strlen(".yaml");
	struct text name = { 0 };

	if (policy_is_built_in(file))
		return file + strlen(POLICY_BUILT_IN);
	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		size_t len = folders[i] ? strlen(folders[i]) : 0;

		if (len > 0 && strncmp(file, folders[i], len) == 0 && file[len] == '/')
			name = text_of(file + len + 1);
	}
	if (name.len <= suffix || memchr(name.ptr, '/', name.len) ||
	    strcmp(name.ptr + name.len - suffix, ".yaml") != 0)
		return NULL;
	name.len -= suffix;
	return arena_text(arena, name);
}

static int load_document(void *data, const char *name, const char *from,
			 struct text *ret_text, const char **ret_path, struct err *err)
{
	struct arena *arena = data;
	const char *slash = from ? strrchr(from, '/') : NULL;
	const char *path;
	int r;

	if (is_profile_name(name))
		return cli_profile_load(arena, name, ret_text, ret_path, err);
	while (strncmp(name, "./", 2) == 0)
		name += 2;
	/* A file that is named by @from is beside it, unless its path is absolute. */
	if (name[0] == '/' || !slash)
		path = arena_text(arena, text_of(name));
	else
		path = arena_printf(arena, "%.*s/%s", (int)(slash - from), from, name);
	if (!path)
		return out_of_memory(err);
	/* What a profile needs counts, so that its writer is judged here, too. */
	r = profile_of(arena, path) ? cli_read_owned(path, arena, ret_text, err)
				    : cli_read_file(path, arena, ret_text, err);
	if (r == 0)
		*ret_path = path;
	return r;
}

/* --- the whole --- */

int policy_args_set_for(void *field, const char *value, struct err *err)
{
	int64_t ms;

	if (!text_to_duration_ms(text_of(value), &ms) || ms < RULE_FOR_MIN_MS ||
	    ms > RULE_FOR_MAX_MS)
		return err_set(err, -EINVAL, "'%s' is not " RULE_FOR_WORDS, SHOWN(value));
	*(int64_t *)field = ms;
	return 0;
}

int policy_args_set_verify(void *args, const char *value, struct err *err)
{
	struct policy_args *a = args;
	int r = cli_option_word("dns|tls", value, err);

	if (r < 0)
		return r;
	a->has_verify = true;
	a->verify = r == 0 ? POLICY_VERIFY_DNS : POLICY_VERIFY_TLS;
	return 0;
}

int policy_args_set_denied_names(void *args, const char *value, struct err *err)
{
	struct policy_args *a = args;
	int r = cli_option_word("nxdomain|refuse", value, err);

	if (r < 0)
		return r;
	a->has_denied_names = true;
	a->denied_names = r == 0 ? POLICY_DENIED_NXDOMAIN : POLICY_DENIED_REFUSE;
	return 0;
}

/* Put a rule for @name at p->rules[@at]: like p->rules[@like], whose budget it shares. */
static int insert_completed(struct policy *p, struct arena *arena, size_t at, size_t like,
			    const struct dns_name *name, const char *comment)
{
	struct rule rule;
	int r;

	if (p->rules[like].shares == 0)
		p->rules[like].shares = p->count;
	rule = p->rules[like];
	rule.kind = TARGET_NAME;
	rule.name = *name;
	rule.flags |= PLAN_COMPLETED;
	rule.target = arena_text(arena, text_of(DNS_NAME_SHOWN(name)));
	rule.comment = comment;
	r = rule.target ? policy_add_rule(p, arena, &rule) : -ENOMEM;
	if (r < 0)
		return r;
	memmove(&p->rules[at + 1], &p->rules[at],
		(p->count - at - 1) * sizeof(*p->rules));
	p->rules[at] = rule;
	return 0;
}

/* Add the rule that p->rules[*@at] comes to below @domain: behind it, or in front of the
 * pattern that decides. *@at is where the rule stands then. */
static int complete_rule(struct policy *p, struct arena *arena, size_t *at,
			 const char *domain)
{
	const struct rule *rule = &p->rules[*at];
	const char *text =
		arena_printf(arena, "%s.%s", DNS_NAME_SHOWN(&rule->name), domain);
	const char *comment =
		arena_printf(arena, "%s, by the search domain %s of /etc/resolv.conf",
			     rule->target, domain);
	struct rule *decider = NULL;
	struct dns_name name;
	int r;

	if (!text || !comment)
		return -ENOMEM;
	if (dns_name_parse(text_of(text), &name) < 0)
		return 0;
	/* What decides for the name: a rule before p->rules[*@at], one of just this name,
	 * or a later deny, for a search domain opens nothing that is written to be
	 * closed. */
	for (size_t i = 0; i < p->count && !decider; i++) {
		struct rule *by = &p->rules[i];
		const bool closes = rule->action == POLICY_ALLOW &&
				    by->action == POLICY_DENY;

		if (rule_covers(by, &name) &&
		    (i < *at || by->kind == TARGET_NAME || closes))
			decider = by;
	}
	if (!decider)
		return insert_completed(p, arena, *at + 1, *at, &name, comment);
	if (decider->action != rule->action)
		return 0;
	if (decider->kind == TARGET_NAME) {
		decider->flags |= PLAN_COMPLETED;
		return 0;
	}
	/* A pattern is about names that complete nothing, too. */
	r = insert_completed(p, arena, (size_t)(decider - p->rules),
			     (size_t)(decider - p->rules), &name, comment);
	*at += r == 0;
	return r;
}

/* Programs ask for names without a dot below the search domains, one after the other. */
static int complete_names(struct policy *p, struct arena *arena, struct faults *faults)
{
	struct search_domains search;
	int result = 0;

	search_domains_read(&search);
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *rule = &p->rules[i];

		if (rule->kind != TARGET_NAME || rule->name.labels != 1 ||
		    dns_name_is_localhost(&rule->name))
			continue;
		if (search.count > 0 && p->dns == POLICY_DNS_PINNED &&
		    rule->flags & PLAN_REQUIRED) {
			faults_add(faults, FAULT_ERROR, rule->file, rule->line,
				   rule->column, "",
				   "'%s' can't be required: by the search domains of "
				   "/etc/resolv.conf it stands for several names; write "
				   "the whole one",
				   SHOWN(rule->target));
			result = -EINVAL;
		}
		for (size_t n = search.count; n > 0; n--) {
			int r = complete_rule(p, arena, &i, search.items[n - 1]);

			if (r < 0)
				return r;
		}
	}
	return result;
}

/* What the option says is said; what nobody said is had where it can be. */
static void settle_denied_names(const struct policy_args *args, struct policy *p)
{
	bool possible = p->verify == POLICY_VERIFY_TLS && p->dns == POLICY_DNS_LIVE;

	if (args->has_denied_names)
		p->denied_names_at = (struct policy_place){ 0 };
	if (args->has_denied_names || (!p->has_denied_names && possible))
		p->denied_names = args->denied_names;
}

static int read_options(const struct policy_reader *r, const char *option,
			enum policy_action action, const struct option_list *values,
			struct policy *policy)
{
	int result = 0;

	for (size_t i = 0; i < values->count; i++) {
		int e = policy_read_option(r, option, action, text_of(values->items[i]),
					   policy);

		if (e == -ENOMEM)
			return e;
		result = e < 0 ? e : result;
	}
	return result;
}

/* @name is a path for the policy, and a name or a path for --profile. */
static int read_named(const struct policy_reader *r, const char *option, const char *name,
		      bool is_file, struct policy *policy)
{
	struct err err = { 0 };
	const char *path = name;
	struct text text;
	int e = is_file ? cli_read_file(name, r->arena, &text, &err)
			: load_document(r->arena, name, NULL, &text, &path, &err);

	if (e == -ENOMEM)
		return e;
	if (e < 0) {
		char why[ERR_TEXT_SIZE + TEXT_ESCAPED_SIZE];

		snprintf(why, sizeof(why), "'%s': %s", SHOWN(name), err.text);
		faults_add(r->faults, FAULT_ERROR, option, 0, 0, "", "%s",
			   is_file ? err.text : why);
		return -EINVAL;
	}
	return policy_read(r, path, text, POLICY_FORMAT_GUESS, policy);
}

int cli_policy_load_text(const struct policy_args *args, const struct text *text,
			 struct arena *arena, struct faults *faults, struct policy *ret,
			 uint8_t **ret_plan, size_t *ret_plan_size)
{
	const struct policy_reader reader = { .arena = arena,
					      .faults = faults,
					      .load = load_document,
					      .load_data = arena,
					      .now_ms = args->now_ms ?: clock_wall_ms(),
					      .hints_of_profiles = args->profiles.count >
								   0 };
	CLEAN(mem) uint8_t *plan = NULL;
	struct policy policy = { 0 };
	int r = read_options(&reader, args->narrow_file, POLICY_DENY, &args->narrow,
			     &policy);

	r = faults_worse(
		r, read_options(&reader, "--deny", POLICY_DENY, &args->deny, &policy));
	r = faults_worse(
		r, read_options(&reader, "--allow", POLICY_ALLOW, &args->allow, &policy));
	if (args->file && text)
		r = faults_worse(r, policy_read(&reader, args->file, *text,
						POLICY_FORMAT_GUESS, &policy));
	else if (args->file)
		r = faults_worse(
			r, read_named(&reader, "policy", args->file, true, &policy));
	for (size_t i = 0; args->for_ms > 0 && i < policy.count; i++) {
		struct rule *rule = &policy.rules[i];

		if (rule->action == POLICY_ALLOW && rule->until_ms == 0)
			rule->until_ms = reader.now_ms + args->for_ms;
	}
	for (size_t i = 0; i < args->profiles.count; i++) {
		const char *name = args->profiles.items[i];
		const size_t needs = policy.need_count;

		r = faults_worse(r,
				 read_named(&reader, "--profile", name, false, &policy));
		/* What profiles need counts where the user has named one, by a word: not
		 * in a policy file, which may be anybody's, nor in what such a file
		 * extends. */
		for (size_t n = needs; is_profile_name(name) && n < policy.need_count;
		     n++)
			policy.needs[n].profile =
				profile_of(arena, policy.needs[n].at.file);
	}
	/* The option asks for less than the policy, which forbids just that. */
	if (policy.require_full_isolation && args->has_verify && !args->verify_tls &&
	    args->verify == POLICY_VERIFY_DNS &&
	    (!policy.has_verify || policy.verify == POLICY_VERIFY_TLS)) {
		faults_add(faults, FAULT_ERROR, "--verify", 0, 0, "",
			   "'dns' is weaker than tls, and the policy has "
			   "require_full_isolation: true");
		r = faults_worse(r, -EINVAL);
	}
	if (args->has_verify || !policy.has_verify)
		policy.verify = args->verify;
	if (args->verify_tls)
		policy.verify = POLICY_VERIFY_TLS;
	settle_denied_names(args, &policy);
	if (r == 0 && args->complete)
		r = complete_names(&policy, arena, faults);
	/* Over half a policy the checks would mislead. */
	if (r == 0)
		r = policy_build(&reader, &policy, &plan, ret_plan_size);
	if (r < 0)
		return r;
	*ret = policy;
	*ret_plan = TAKE_PTR(plan);
	return 0;
}

int cli_policy_load(const struct policy_args *args, struct arena *arena,
		    struct faults *faults, struct policy *ret)
{
	CLEAN(mem) uint8_t *plan = NULL;
	size_t size;

	return cli_policy_load_text(args, NULL, arena, faults, ret, &plan, &size);
}

int cli_policy_build(const struct policy_args *args, struct arena *arena,
		     bool quiet_hints, struct policy *ret, uint8_t **ret_plan,
		     size_t *ret_plan_size)
{
	struct faults faults = { 0 };
	int r = cli_policy_load_text(args, NULL, arena, &faults, ret, ret_plan,
				     ret_plan_size);

	faults_print(&faults, !quiet_hints);
	faults_done(&faults);
	if (r == -ENOMEM)
		fputs("cannot read the policy: out of memory\n", stderr);
	return r == 0 || r == -ENOMEM ? r : -EINVAL;
}
