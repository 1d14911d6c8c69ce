// SPDX-License-Identifier: Apache-2.0
#include "run/needs.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/git_repository.h"
#include "launch/rootfs.h"
#include "launch/secret.h"
#include "policy/policy.h"
#include "sys/files.h"
#include "sys/mounts.h"

/* === variables === */

enum {
	TOLD_SIZE = ENVIRONMENT_REPORTED_MAX * 64,
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

/* Does an option set the variable @name? */
static bool environment_is_set(const struct run_spec *spec, struct text name)
{
	for (size_t i = 0; i < spec->set_env.count; i++) {
		struct text other = name_of(spec->set_env.items[i]);

		if (other.len == name.len && memcmp(other.ptr, name.ptr, name.len) == 0)
			return true;
	}
	return false;
}

/* Does an option say what the variable @name is? */
static bool environment_is_asked(const struct run_spec *spec, struct text name)
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

int environment_choose(struct run_spec *spec, struct environment *ret, struct err *err)
{
	struct environment e = { 0 };
	size_t most = spec->set_env.count + ENVIRONMENT_SPARE + 1, reported, used = 0;
	char list[TOLD_SIZE], more[48] = "", name[64];

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
	*ret = e;
	for (size_t i = 0; i < spec->pass_env.count; i++) {
		const char *asked = spec->pass_env.items[i];

		if (!strchr(asked, '*') && !getenv(asked))
			log_warning("--pass-env %s: there is no such variable",
				    SHOWN(asked));
	}
	if (e.held_count == 0 || spec->quiet)
		return 0;
	reported = MIN(e.held_count, (size_t)ENVIRONMENT_REPORTED_MAX);
	for (size_t i = 0; i < reported; i++)
		used += (size_t)snprintf(
			list + used, sizeof(list) - used, "%s%s", i > 0 ? ", " : "",
			text_escape(name_of(e.held[i]), name, sizeof(name) - 2));
	if (e.held_count > reported)
		snprintf(more, sizeof(more), " and %zu more", e.held_count - reported);
	log_warning(
		"kept from the command, for they look like secrets: %s%s; to pass one: "
		"--pass-env NAME, all: --env all",
		list, more);
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

/* === the ssh-agent's socket === */

#define VARIABLE "SSH_AUTH_SOCK"
#define OPTION	 "--pass-env " VARIABLE

int agent_socket_open(const struct run_spec *spec, struct path *ret, struct err *err)
{
	const char *name = getenv(VARIABLE);
	CLEAN(path) struct path p = { .fd = -1 };
	int r;

	ret->fd = -1;
	/* By its whole name. */
	if (!text_is_one_of(VARIABLE, spec->pass_env.items, spec->pass_env.count) ||
	    environment_is_set(spec, text_of(VARIABLE)) || !name)
		return 0;
	r = path_open_as(PATH_OWNED, name, &p, err);
	if (r == -ENOENT) {
		log_warning(OPTION ": there is no '%s'", name);
		return 0;
	}
	if (r == 0 && p.link_count > 0)
		r = err_set(err, -ELOOP,
			    "'%s' is a link, and none is followed; set " VARIABLE
			    " to '%s'",
			    p.links[0], p.name);
	else if (r == 0 && !S_ISSOCK(p.st.st_mode))
		r = err_set(err, -ENOTSOCK, "'%s' is not a unix socket", p.name);
	if (r < 0)
		return err_context(err, OPTION);
	*ret = p;
	p = (struct path){ .fd = -1 };
	return 0;
}

void agent_socket_report(const struct path *p, bool is_mapped)
{
	if (p->fd >= 0 && is_mapped)
		log_warning(OPTION ": to the agent the command, as root of a sandbox, is "
				   "another user, whom OpenSSH's agent refuses; start "
				   "weir as an ordinary user");
}

/* === paths and settings === */

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int add_to(struct option_list *list, const char *value, const char *what,
		  struct err *err)
{
	if (list->count == OPTION_LIST_MAX)
		return err_set(err, -EINVAL, "more than %d %s", OPTION_LIST_MAX, what);
	list->items[list->count++] = value;
	return 0;
}

/* Make the directory @path, and have it writable. */
static int make_writable(struct run_spec *spec, const char *path, struct err *err)
{
	CLEAN(path) struct path made = { .fd = -1 };
	int r = path_open_made(path, &made, err);

	return r < 0 ? r : add_to(&spec->rw, path, "writable paths", err);
}

/* The sandboxes' own directory @name of @group, writable; the path lives in the arena. */
static int own_directory(struct run_spec *spec, const char *group, const char *name,
			 const char **ret, struct err *err)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	CLEAN(path) struct path made = { .fd = -1 };
	const char *path;
	int r;

	if (state && state[0] == '/')
		path = arena_printf(&spec->arena, "%s/weir/%s/%s", state, group, name);
	else if (home && home[0] == '/')
		path = arena_printf(&spec->arena, "%s/.local/state/weir/%s/%s", home,
				    group, name);
	else
		return err_set(err, -EINVAL, "HOME is not set");
	if (!path)
		return no_memory(err);
	r = path_open_made(path, &made, err);
	if (r == 0 && made.untrusted)
		r = err_set(err, -ELOOP, "'%s' is a link", made.untrusted);
	if (r < 0)
		return r;
	*ret = path;
	path = arena_text(&spec->arena, text_of(made.name));
	if (!path)
		return no_memory(err);
	r = add_to(&spec->own, path, "directories", err);
	return r < 0 ? r : add_to(&spec->rw, *ret, "writable paths", err);
}

/* Set a variable to @a and @b, unless the caller set it by an option. */
static int set_variable(struct run_spec *spec, const char *name, const char *a,
			const char *b, struct err *err)
{
	const char *variable;

	if (environment_is_asked(spec, text_of(name)))
		return 0;
	variable = arena_printf(&spec->arena, "%s=%s%s", name, a, b);
	return variable ? add_to(&spec->set_env, variable, "variables", err)
			: no_memory(err);
}

/* --- presets ---
 *
 * The paths outside of the working directory that programs of every day write to: their
 * caches, and nothing that is executed or configures them later.
 *
 *   apt   lists, downloads and log of the sandboxes' own, and a configuration that names
 *         them: the machine's apt would install what a sandbox has left in the machine's.
 *   git   the repository that the working directory is a part of, where that lies
 *         elsewhere. Its hooks and config stay read-only: launch/startup_files. */

enum { PATHS_MAX = 3 };

/* @variable names the folder, @below is added to it; without the variable it is @path,
 * below the home directory. */
struct place {
	const char *variable, *below, *path;
};

/* --- caches of the user's --- */

/* None is added for a place in the home where the command has another. */
static int add_cache(struct run_spec *spec, const struct place *p, struct err *err)
{
	const char *home = getenv("HOME"), *named = getenv(p->variable), *path;

	if (named && named[0] == '/')
		path = arena_printf(&spec->arena, "%s%s", named, p->below);
	else if (spec->home == RUN_HOME_TMP)
		return 0;
	else if (home && home[0] == '/')
		path = arena_printf(&spec->arena, "%s/%s", home, p->path);
	else
		return err_set(err, -EINVAL, "HOME is not set");
	return path ? make_writable(spec, path, err) : no_memory(err);
}

/* --- apt --- */

/* The lock of dpkg lies beside its status. dpkg is asked for by who wants to install. */
static const char apt_conf[] =
	"APT::Sandbox::User \"root\";\n"
	"Dir::State::lists \"%s/lists\";\n"
	"Dir::State::status \"%s/status\";\n"
	"Dir::Cache \"%s/cache\";\n"
	"Dir::Log \"%s/log\";\n"
	"DPkg::Pre-Invoke { \"echo 'weir: packages can't be installed in a sandbox; "
	"--download-only downloads them' >&2; exit 1\"; };\n";

/* In @top, which the command can't write to: the configuration, and what apt doesn't make
 * itself in the sandboxes' @own directory. */
static int make_apt_files(struct run_spec *spec, const struct path *top, const char *own,
			  struct err *err)
{
	static const char *const places[] = { "lists/partial", "cache/archives/partial",
					      "log" };
	const struct file_how how = { .max_bytes = 65536, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes old = { 0 };
	const char *status = arena_printf(&spec->arena, "%s/status", own);
	const char *text = arena_printf(&spec->arena, apt_conf, own, own, own, own);
	const char *fresh = arena_printf(&spec->arena, ".apt.conf-%d", (int)getpid());
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *path = arena_printf(&spec->arena, "%s/%s", own, places[i]);
		CLEAN(path) struct path made = { .fd = -1 };

		r = path ? path_open_made(path, &made, err) : no_memory(err);
		if (r < 0)
			return r;
	}
	if (!status || !text || !fresh)
		return no_memory(err);
	if (symlink("/var/lib/dpkg/status", status) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s'", status);
	if (file_read(top->fd, "apt.conf", &how, &old, NULL) == 0 &&
	    strcmp(old.bytes, text) == 0)
		return 0;
	r = file_replace(top->fd, fresh, "apt.conf", 0644, text, strlen(text));
	return r < 0 ? err_sys(err, r, "cannot write '%s/apt.conf'", top->name) : 0;
}

static int add_apt(struct run_spec *spec, struct err *err)
{
	CLEAN(path) struct path top = { .fd = -1 };
	const char *own = NULL, *path;
	int r;

	if (getenv("APT_CONFIG"))
		return 0;
	r = own_directory(spec, "apt", "own", &own, err);
	if (r == 0)
		r = path_open_parent(own, &top, &(const char *){ NULL }, err);
	if (r == 0)
		r = make_apt_files(spec, &top, own, err);
	if (r == 0)
		r = set_variable(spec, "APT_CONFIG", top.name, "/apt.conf", err);
	if (r < 0)
		return r;
	/* Also in a home below /tmp, of which the sandbox has its own. */
	path = arena_printf(&spec->arena, "%s/apt.conf", top.name);
	return path ? add_to(&spec->ro, path, "paths to show", err) : no_memory(err);
}

/* --- git --- */

static int add_git(struct run_spec *spec, struct err *err)
{
	CLEAN(path) struct path cwd = { .fd = -1 };
	struct git_repository repository;
	int r = path_open(".", &cwd, err);

	if (r == 0)
		r = git_repository_find(&spec->arena, cwd.name, &repository, err);
	if (r < 0 || !repository.top || path_is_within(repository.common, cwd.name))
		return r;
	return make_writable(spec, repository.common, err);
}

/* --- all presets --- */

/* cargo: not all of ~/.cargo, which has programs and configuration. go: neither, of ~/go.
 */
static const struct preset {
	const char *name;
	struct place places[PATHS_MAX];
	int (*add)(struct run_spec *spec, struct err *err); /* NULL: the places are all */
} presets[] = {
	{ "pip", { { "PIP_CACHE_DIR", "", ".cache/pip" } } },
	{ "npm", { { "npm_config_cache", "", ".npm" } } },
	{ "cargo",
	  { { "CARGO_HOME", "/registry", ".cargo/registry" },
	    { "CARGO_HOME", "/git", ".cargo/git" } } },
	{ "go",
	  { { "GOMODCACHE", "", "go/pkg/mod" },
	    { "GOPATH", "/pkg/sumdb", "go/pkg/sumdb" },
	    { "GOCACHE", "", ".cache/go-build" } } },
	{ "apt", { { NULL } }, add_apt },
	{ "git", { { NULL } }, add_git },
};

int rw_preset_add(void *option_list, const char *name, struct err *err)
{
	int r = cli_option_word(RW_PRESET_WORDS, name, err);

	return r < 0 ? r : add(option_list, name, err);
}

/* Is there a preset among those of @spec whose place the variable @name names? */
static bool rw_preset_has_variable(const struct run_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->rw_presets.count; i++) {
		const struct preset *p =
			TEXT_FIND(text_of(spec->rw_presets.items[i]), presets);

		for (size_t j = 0; j < PATHS_MAX && p->places[j].path; j++)
			if (strcmp(p->places[j].variable, name) == 0)
				return true;
	}
	return false;
}

/* --- profiles --- */

/* What the caller names for it is the caller's: an option, or a preset, which shares the
 * user's cache. Without a home that can be written to, nothing is kept. */
static int apply_own(struct run_spec *spec, const struct policy_need *n, struct err *err)
{
	struct err why = { 0 };
	const char *path;
	int r;

	if (environment_is_asked(spec, text_of(n->value)) ||
	    rw_preset_has_variable(spec, n->value))
		return 0;
	if (spec->home == RUN_HOME_TMP)
		return add_to(&spec->drop_env, n->value, "variables", err);
	r = own_directory(spec, n->profile, n->value, &path, &why);
	if (r == 0)
		return set_variable(spec, n->value, path, "", err);
	if (!spec->quiet)
		log_warning("%s; what %s names is not kept", why.text, n->value);
	return set_variable(spec, n->value, "/tmp/", n->value, err);
}

/* What the caller's environment has counts. */
static int apply_set(struct run_spec *spec, const struct policy_need *n, struct err *err)
{
	const char *equals = strchr(n->value, '=');
	const char *name = arena_text(
		&spec->arena, (struct text){ n->value, (size_t)(equals - n->value) });

	if (!name)
		return no_memory(err);
	return getenv(name) ? 0 : set_variable(spec, name, equals + 1, "", err);
}

/* Two profiles may name the same variable, or one it twice: the first counts, for
 * set_variable() has set it then. */
static int apply_profiles(struct run_spec *spec, const struct policy *policy,
			  struct err *err)
{
	for (size_t i = 0; i < policy->need_count; i++) {
		const struct policy_need *n = &policy->needs[i];
		int r = 0;

		if (n->profile && n->kind == NEED_OWN)
			r = apply_own(spec, n, err);
		else if (n->profile && n->kind == NEED_PASS_ENV)
			r = add_to(&spec->profile_env, n->value, "variables", err);
		else if (n->profile && n->kind == NEED_SET_ENV)
			r = apply_set(spec, n, err);
		else if (n->profile)
			r = rw_preset_add(&spec->rw_presets, n->value, err);
		if (r < 0)
			return err_context(err, "%s:%u: run.%s", n->at.file, n->at.line,
					   policy_need_words[n->kind]);
		if (!n->profile && !spec->quiet && !policy_is_built_in(n->at.file))
			log_warning("%s:%u: `run` counts in a profile that --profile "
				    "names, ignoring '%s'",
				    n->at.file, n->at.line, n->value);
	}
	return 0;
}

/* --- the home --- */

int needs_apply(struct run_spec *spec, const struct policy *policy, struct err *err)
{
	/* What leads back into the user's own home, where nothing can be written. */
	static const char *const led[] = { "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
					   "XDG_DATA_HOME", "XDG_STATE_HOME" };
	int r = apply_profiles(spec, policy, err);

	/* The paths of the presets, and the variables that they need; directories that
	 * are missing are made. */
	for (size_t i = 0; r == 0 && i < spec->rw_presets.count; i++) {
		const struct preset *p =
			TEXT_FIND(text_of(spec->rw_presets.items[i]), presets);

		for (size_t j = 0; r == 0 && j < PATHS_MAX && p->places[j].path; j++)
			r = add_cache(spec, &p->places[j], err);
		if (r == 0 && p->add)
			r = p->add(spec, err);
		if (r < 0)
			return err_context(err, "--rw-preset %s", p->name);
	}
	if (r < 0 || spec->home != RUN_HOME_TMP)
		return r;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(led); i++)
		r = add_to(&spec->drop_env, led[i], "variables", err);
	return r < 0 ? r : set_variable(spec, "HOME", ROOTFS_HOME, "", err);
}

int needs_check_paths(const struct run_spec *spec, struct err *err)
{
	const struct {
		const char *option;
		const struct option_list *paths;
	} lists[] = { { "--rw", &spec->rw },
		      { "--ro", &spec->ro },
		      { "--hide", &spec->hide } };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (size_t j = 0; j < lists[i].paths->count; j++) {
			CLEAN(path) struct path p = { .fd = -1 };
			struct err why = { 0 };

			if (path_open(lists[i].paths->items[j], &p, &why) < 0)
				err_context(&why, "%s", lists[i].option);
			r = err_also(err, &why);
		}
	}
	return r;
}

/* --- a sandbox in a sandbox --- */

int needs_check_place(struct err *err)
{
	const char *id = getenv(SANDBOX_VARIABLE);

	/* Outside of a sandbox the variable may be set as well; the filter is not there.
	 */
	if (!id || !id[0] || prctl(PR_GET_SECCOMP) != SECCOMP_MODE_FILTER)
		return 0;
	return err_set(err, -EPERM,
		       "this is the sandbox '%s' of weir run already, and no sandbox can "
		       "be made in it: start the command without weir, under the same "
		       "policy",
		       SHOWN(id));
}

/* --- what the command won't find --- */

static bool is_given(const struct option_list *list, const char *path)
{
	for (size_t i = 0; i < list->count; i++) {
		CLEAN(path) struct path p = { .fd = -1 };

		if (path_open(list->items[i], &p, NULL) == 0 &&
		    path_is_within(path, p.name))
			return true;
	}
	return false;
}

/* An argument that is seen outside alone, for the sandbox has its own of a place that
 * leads there. One line is enough. */
static void report_unseen(struct run_spec *spec)
{
	CLEAN(path) struct path cwd = { .fd = -1 };

	if (path_open(".", &cwd, NULL) < 0)
		return;
	for (size_t i = 0; spec->argv[i]; i++) {
		const char *argument = spec->argv[i], *place;
		CLEAN(path) struct path p = { .fd = -1 };

		if (argument[0] != '/' || path_open(argument, &p, NULL) < 0 ||
		    path_is_within(p.name, cwd.name) || is_given(&spec->rw, p.name) ||
		    is_given(&spec->ro, p.name))
			continue;
		/* /tmp itself is there inside. */
		place = rootfs_own_place(p.name);
		if (!place)
			continue;
		log_warning("'%s' is not there for the command: %s is the sandbox's own; "
			    "--ro %s shows it",
			    SHOWN(argument), place, SHOWN(argument));
		return;
	}
}

/* --- what is known of programs --- */

static bool has_word(char *const *argv, const char *const *words, size_t count)
{
	for (size_t i = 1; argv[i]; i++) {
		if (text_is_one_of(argv[i], words, count))
			return true;
	}
	return false;
}

static void report_git(struct run_spec *spec)
{
	CLEAN(path) struct path cwd = { .fd = -1 };
	struct git_repository g = { 0 };
	struct err err = { 0 };

	if (path_open(".", &cwd, NULL) < 0)
		return;
	if (git_repository_find(&spec->arena, cwd.name, &g, &err) < 0)
		log_warning("%s", err.text);
	else if (g.top && !path_is_within(g.common, cwd.name) &&
		 !is_given(&spec->rw, g.common))
		log_warning("git writes to '%s', which is read-only in the sandbox; "
			    "--rw-preset git makes it writable, but for its hooks and "
			    "config",
			    g.common);
}

static void report_apt(struct run_spec *spec)
{
	static const char *const changes[] = {
		"install", "reinstall",	 "upgrade", "full-upgrade", "dist-upgrade",
		"remove",  "autoremove", "purge",   "build-dep",
	};
	static const char *const harmless[] = { "-d", "--download-only", "-s",
						"--simulate", "--print-uris" };

	if (has_word(spec->argv, changes, ARRAY_SIZE(changes)) &&
	    !has_word(spec->argv, harmless, ARRAY_SIZE(harmless)))
		log_warning("apt can't install or remove packages in a sandbox; with "
			    "--rw-preset apt it updates its lists, and downloads "
			    "(--download-only)");
}

void needs_report(struct run_spec *spec)
{
	static const struct {
		const char *program;
		void (*tell)(struct run_spec *spec);
	} known[] = { { "git", report_git },
		      { "apt", report_apt },
		      { "apt-get", report_apt } };
	const char *slash = strrchr(spec->argv[0], '/');
	const char *program = slash ? slash + 1 : spec->argv[0];

	if (spec->quiet)
		return;
	report_unseen(spec);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strcmp(known[i].program, program) == 0)
			known[i].tell(spec);
	}
}
