// SPDX-License-Identifier: Apache-2.0
#include "run/environment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "launch/secret.h"

enum {
	TOLD_SIZE = ENVIRONMENT_TOLD_MAX * 64,
};

static struct text name_of(const char *variable)
{
	return (struct text){ variable, strcspn(variable, "=") };
}

/* --- what the command gets --- */

static bool is_passed_by_name(const struct run_spec *spec, struct text name)
{
	for (size_t i = 0; i < spec->pass_env.count; i++) {
		if (text_matches(spec->pass_env.items[i], name, false))
			return true;
	}
	return false;
}

bool environment_is_set(const struct run_spec *spec, struct text name)
{
	for (size_t i = 0; i < spec->set_env.count; i++) {
		struct text other = name_of(spec->set_env.items[i]);

		if (other.len == name.len && memcmp(other.ptr, name.ptr, name.len) == 0)
			return true;
	}
	return false;
}

bool environment_is_asked(const struct run_spec *spec, struct text name)
{
	return environment_is_set(spec, name) || is_passed_by_name(spec, name);
}

static bool has_name(const struct option_list *list, struct text name)
{
	for (size_t i = 0; i < list->count; i++) {
		if (text_equal(name, list->items[i]))
			return true;
	}
	return false;
}

static bool is_passed(const struct run_spec *spec, const char *variable,
		      struct environment *e)
{
	static const char weirs[] = "WEIR_";
	struct text name = name_of(variable);

	if (variable[name.len] != '=' || environment_is_set(spec, name))
		return false;
	if (is_passed_by_name(spec, name))
		return true;
	if (spec->env == RUN_ENV_NONE || strncmp(variable, weirs, strlen(weirs)) == 0 ||
	    has_name(&spec->drop_env, name))
		return false;
	if (has_name(&spec->profile_env, name))
		return true;
	if (spec->env == RUN_ENV_ALL ||
	    !secret_is_variable(name, variable + name.len + 1))
		return true;
	e->held[e->held_count++] = variable;
	return false;
}

static void report(const struct run_spec *spec, const struct environment *e)
{
	const size_t told = MIN(e->held_count, (size_t)ENVIRONMENT_TOLD_MAX);
	char list[TOLD_SIZE], more[48] = "", name[64];
	size_t used = 0;

	for (size_t i = 0; i < spec->pass_env.count; i++) {
		const char *asked = spec->pass_env.items[i];

		if (!strchr(asked, '*') && !getenv(asked))
			log_warning("--pass-env %s: there is no such variable",
				    SHOWN(asked));
	}
	if (e->held_count == 0 || spec->quiet)
		return;
	for (size_t i = 0; i < told; i++)
		used += (size_t)snprintf(
			list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
			text_escape(name_of(e->held[i]), name, sizeof(name) - 2));
	if (e->held_count > told)
		snprintf(more, sizeof(more), " and %zu more", e->held_count - told);
	log_warning(
		"kept from the command, for they look like secrets: %s%s; to pass one: "
		"--pass-env NAME, all: --env all",
		list, more);
}

int environment_choose(struct run_spec *spec, struct environment *ret, struct err *err)
{
	struct environment e = { 0 };
	size_t most = spec->set_env.count + ENVIRONMENT_SPARE + 1;

	for (char **v = environ; v && *v; v++)
		most++;
	e.list = arena_array(&spec->arena, most, sizeof(*e.list));
	e.held = arena_array(&spec->arena, most, sizeof(*e.held));
	if (!e.list || !e.held)
		return err_set(err, -ENOMEM, "out of memory");
	for (char **v = environ; v && *v; v++) {
		if (is_passed(spec, *v, &e))
			e.list[e.count++] = *v;
	}
	for (size_t i = 0; i < spec->set_env.count; i++)
		e.list[e.count++] = (char *)(uintptr_t)spec->set_env.items[i];
	report(spec, &e);
	*ret = e;
	return 0;
}

/* --- what only the command of a sandbox gets --- */

/* @name: the beginning of "NAME=…". */
static char **find_variable(const struct environment *e, const char *name)
{
	size_t len = strcspn(name, "=");

	for (size_t i = 0; i < e->count; i++) {
		if (strncmp(e->list[i], name, len) == 0 && e->list[i][len] == '=')
			return &e->list[i];
	}
	return NULL;
}

/* What the command gets unless the caller says otherwise or passes nothing.
 * GIT…: where the command starts is a mount of its own, which git would take for the edge
 * of the repository. npm…: npm asks again for a denied name after 10 and 60 s, whatever
 * the refusal, and says nothing meanwhile. */
static const char *const given_variables[] = {
	"GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
	"npm_config_fetch_retry_mintimeout=1000",
	"npm_config_fetch_retry_maxtimeout=2000",
};

static int add_given(struct arena *arena, struct environment *e, const char *variable)
{
	char *copy = arena_text(arena, text_of(variable));

	if (copy && !find_variable(e, copy))
		e->list[e->count++] = copy;
	return copy ? 0 : -ENOMEM;
}

int environment_enter(struct run_spec *spec, struct environment *e, const char *cwd,
		      const char *id, struct err *err)
{
	char *pwd = arena_printf(&spec->arena, "PWD=%s", cwd);
	char *sandbox = arena_printf(&spec->arena, SANDBOX_VARIABLE "=%s", id);
	char **old = find_variable(e, "PWD");
	int r = pwd && sandbox ? 0 : -ENOMEM;

	if (r == 0 && old)
		*old = pwd;
	if (r == 0 && spec->env != RUN_ENV_NONE)
		r = add_given(&spec->arena, e, sandbox);
	for (size_t i = 0;
	     r == 0 && spec->env != RUN_ENV_NONE && i < ARRAY_SIZE(given_variables); i++)
		r = add_given(&spec->arena, e, given_variables[i]);
	return r < 0 ? err_set(err, r, "out of memory") : 0;
}

/* --- options --- */

static int add(struct option_list *list, const char *value, struct err *err)
{
	if (list->count == OPTION_LIST_MAX)
		return err_set(err, -EINVAL, "given more than %d times", OPTION_LIST_MAX);
	list->items[list->count++] = value;
	return 0;
}

int environment_add_set(void *option_list, const char *value, struct err *err)
{
	struct text name = name_of(value);

	/* What follows the name may be a secret: it isn't shown. */
	if (name.len == 0 || value[name.len] != '=')
		return err_set(err, -EINVAL, "'%s' is not NAME=VALUE", TEXT_SHOWN(name));
	return add(option_list, value, err);
}

int environment_add_pass(void *option_list, const char *value, struct err *err)
{
	struct text name = name_of(value);

	if (name.len == 0 || value[name.len] == '=')
		return err_set(err, -EINVAL,
			       "'%s' is not the name of a variable; --set-env sets one",
			       TEXT_SHOWN(name));
	return add(option_list, value, err);
}
