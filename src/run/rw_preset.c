// SPDX-License-Identifier: Apache-2.0
#include "run/rw_preset.h"

#include <errno.h>
#include <string.h>

#include "sys/path.h"

enum { PATHS_MAX = 3 };

/* @variable names the folder, @below is added to it; without the variable it is @path,
 * below the home directory unless it is absolute. */
struct place {
	const char *variable, *below, *path;
};

/* cargo: not all of ~/.cargo, which has programs and configuration. go: neither, of ~/go.
 * apt: lists and downloads; installing takes rights that no sandbox has. */
static const struct {
	const char *name;
	struct place places[PATHS_MAX];
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
	{ "apt",
	  { { NULL, "", "/var/lib/apt" },
	    { NULL, "", "/var/cache/apt" },
	    { NULL, "", "/var/log/apt" } } },
};

static const char *resolve_place(struct run_spec *spec, const struct place *p,
				 struct err *err)
{
	const char *home = getenv("HOME");
	const char *named = p->variable ? getenv(p->variable) : NULL;
	const char *path;

	if (named && named[0] == '/')
		path = arena_printf(&spec->arena, "%s%s", named, p->below);
	else if (p->path[0] == '/')
		path = p->path;
	else if (home && home[0] == '/')
		path = arena_printf(&spec->arena, "%s/%s", home, p->path);
	else {
		err_set(err, -EINVAL, "HOME is not set");
		return NULL;
	}
	if (!path)
		err_set(err, -ENOMEM, "out of memory");
	return path;
}

static int add_place(struct run_spec *spec, const struct place *p, struct err *err)
{
	const char *path = resolve_place(spec, p, err);
	struct path made;
	int r;

	if (!path)
		return err ? err->code : -EINVAL;
	if (spec->rw.count == OPTION_LIST_MAX)
		return err_set(err, -EINVAL, "more than %d writable paths",
			       OPTION_LIST_MAX);
	r = path_open_made(path, &made, err);
	if (r < 0)
		return r;
	path_done(&made);
	spec->rw.items[spec->rw.count++] = path;
	return 0;
}

int rw_preset_add(void *run_spec, const char *name, struct err *err)
{
	struct run_spec *spec = run_spec;
	char shown[TEXT_ESCAPED_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
		if (strcmp(presets[i].name, name) != 0)
			continue;
		for (size_t j = 0; j < PATHS_MAX && presets[i].places[j].path; j++) {
			int r = add_place(spec, &presets[i].places[j], err);

			if (r < 0)
				return r;
		}
		return 0;
	}
	return err_set(err, -EINVAL, "'%s' is not one of pip, npm, cargo, go, apt",
		       text_escape(text_of(name), shown, sizeof(shown)));
}
