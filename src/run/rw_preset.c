// SPDX-License-Identifier: Apache-2.0
#include "run/rw_preset.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "run/git_repository.h"
#include "run/mounts.h"
#include "run/needs.h"
#include "sys/files.h"
#include "sys/path.h"

enum { PATHS_MAX = 3 };

/* @variable names the folder, @below is added to it; without the variable it is @path,
 * below the home directory. */
struct place {
	const char *variable, *below, *path;
};

static int add_apt(struct run_spec *spec, struct err *err);
static int add_git(struct run_spec *spec, struct err *err);

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

static const struct preset *preset_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
		if (strcmp(presets[i].name, name) == 0)
			return &presets[i];
	}
	return NULL;
}

int rw_preset_add(void *option_list, const char *name, struct err *err)
{
	struct option_list *list = option_list;
	char shown[TEXT_ESCAPED_SIZE];

	if (!preset_find(name))
		return err_set(err, -EINVAL,
			       "'%s' is not one of pip, npm, cargo, go, apt, git",
			       text_escape(text_of(name), shown, sizeof(shown)));
	if (list->count == OPTION_LIST_MAX)
		return err_set(err, -EINVAL, "given more than %d times", OPTION_LIST_MAX);
	list->items[list->count++] = name;
	return 0;
}

bool rw_preset_has_variable(const struct run_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->rw_presets.count; i++) {
		const struct preset *p = preset_find(spec->rw_presets.items[i]);

		for (size_t j = 0; j < PATHS_MAX && p->places[j].path; j++)
			if (strcmp(p->places[j].variable, name) == 0)
				return true;
	}
	return false;
}

/* --- caches of the user's --- */

/* *@ret is NULL for a place in the home where the command has another. */
static int resolve_place(struct run_spec *spec, const struct place *p, const char **ret,
			 struct err *err)
{
	const char *home = getenv("HOME");
	const char *named = getenv(p->variable);

	*ret = NULL;
	if (named && named[0] == '/')
		*ret = arena_printf(&spec->arena, "%s%s", named, p->below);
	else if (spec->home == RUN_HOME_TMP)
		return 0;
	else if (home && home[0] == '/')
		*ret = arena_printf(&spec->arena, "%s/%s", home, p->path);
	else
		return err_set(err, -EINVAL, "HOME is not set");
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int add_place(struct run_spec *spec, const struct place *p, struct err *err)
{
	const char *path;
	int r = resolve_place(spec, p, &path, err);

	return r < 0 || !path ? r : needs_add_writable(spec, path, err);
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

/* In @top, which the command can't write to. */
static int write_apt_conf(struct run_spec *spec, const struct path *top, const char *own,
			  struct err *err)
{
	const struct file_how how = { .max_bytes = 65536, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes old = { 0 };
	const char *text = arena_printf(&spec->arena, apt_conf, own, own, own, own);
	const char *fresh = arena_printf(&spec->arena, ".apt.conf-%d", (int)getpid());
	int r;

	if (!text || !fresh)
		return err_set(err, -ENOMEM, "out of memory");
	if (file_read(top->fd, "apt.conf", &how, &old, NULL) == 0 &&
	    strcmp(old.bytes, text) == 0)
		return 0;
	r = file_replace(top->fd, fresh, "apt.conf", 0644, text, strlen(text));
	return r < 0 ? err_sys(err, r, "cannot write '%s/apt.conf'", top->name) : 0;
}

/* Those that apt doesn't make itself. */
static int make_apt_places(struct run_spec *spec, const char *own, struct err *err)
{
	static const char *const places[] = { "lists/partial", "cache/archives/partial",
					      "log" };
	const char *status = arena_printf(&spec->arena, "%s/status", own);

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *path = arena_printf(&spec->arena, "%s/%s", own, places[i]);
		CLEAN(path) struct path made = { .fd = -1 };
		int r = path ? path_open_made(path, &made, err)
			     : err_set(err, -ENOMEM, "out of memory");

		if (r < 0)
			return r;
	}
	if (!status)
		return err_set(err, -ENOMEM, "out of memory");
	if (symlink("/var/lib/dpkg/status", status) < 0 && errno != EEXIST)
		return err_sys(err, -errno, "cannot make '%s'", status);
	return 0;
}

static int add_apt(struct run_spec *spec, struct err *err)
{
	CLEAN(path) struct path top = { .fd = -1 };
	const char *own = NULL;
	int r;

	if (getenv("APT_CONFIG"))
		return 0;
	r = needs_own_directory(spec, "apt", "own", &own, err);
	if (r == 0)
		r = path_open_parent(own, &top, &(const char *){ NULL }, err);
	if (r == 0)
		r = make_apt_places(spec, own, err);
	if (r == 0)
		r = write_apt_conf(spec, &top, own, err);
	if (r == 0)
		r = needs_set(spec, "APT_CONFIG", top.name, "/apt.conf", err);
	return r < 0 ? r : needs_show(spec, top.name, "/apt.conf", err);
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
	return needs_add_writable(spec, repository.common, err);
}

int rw_preset_apply(struct run_spec *spec, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < spec->rw_presets.count; i++) {
		const struct preset *p = preset_find(spec->rw_presets.items[i]);

		for (size_t j = 0; r == 0 && j < PATHS_MAX && p->places[j].path; j++)
			r = add_place(spec, &p->places[j], err);
		if (r == 0 && p->add)
			r = p->add(spec, err);
		if (r < 0)
			return err_context(err, "--rw-preset %s", p->name);
	}
	return 0;
}
