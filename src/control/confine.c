// SPDX-License-Identifier: Apache-2.0
#include "control/confine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "sys/confine.h"
#include "sys/landlock.h"

enum { PATHS_MAX = SIDECAR_OUTPUTS_MAX + 12 };

struct paths {
	struct landlock_path items[PATHS_MAX];
	size_t count;
};

static void add(struct paths *p, const char *path, bool write)
{
	if (path && p->count < PATHS_MAX)
		p->items[p->count++] =
			(struct landlock_path){ .path = path, .write = write };
}

/* The directory of @path. */
static void add_directory(struct paths *p, struct arena *arena, const char *path,
			  bool write)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	char *parent;

	if (!path)
		return;
	if (!slash)
		parent = arena_printf(arena, ".");
	else if (slash == path)
		parent = arena_printf(arena, "/");
	else
		parent = arena_text(arena, (struct text){ path, (size_t)(slash - path) });
	add(p, parent, write);
}

/* Files are made anew beside the old ones. */
static void add_parent(struct paths *p, struct arena *arena, const char *path)
{
	add_directory(p, arena, path, true);
}

static void add_folder(struct paths *p, struct arena *arena, const char *path)
{
	add_directory(p, arena, path, false);
}

/* A log's. A device is only written to; what else stands there may have been put in the
 * place of the file, which is made anew when it goes. */
static void add_log(struct paths *p, struct arena *arena, const char *path)
{
	struct stat st;

	if (strcmp(path, "stdout") == 0 || strcmp(path, "stderr") == 0)
		return;
	if (stat(path, &st) == 0 && S_ISCHR(st.st_mode))
		add(p, path, true);
	else
		add_parent(p, arena, path);
}

static int cut_files(const struct sidecar_spec *spec, char *ret_missing, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct paths p = { 0 };
	int r;

	add_parent(&p, &arena, spec->policy_file);
	for (size_t i = 0; i < spec->log_output_count; i++)
		add_log(&p, &arena, spec->log_outputs[i]);
	if (spec->jsonl)
		add_log(&p, &arena, spec->jsonl);
	/* New ones take the place of the old. */
	add_folder(&p, &arena, spec->tls_cert);
	add_folder(&p, &arena, spec->tls_key);
	add_folder(&p, &arena, spec->token_file);
	add(&p, spec->state_dir, true);
	add(&p, spec->always_dir, false);
	add(&p, "/proc/net", false);
	r = landlock_enter(p.items, p.count);
	if (r == -EOPNOTSUPP) {
		snprintf(ret_missing, ERR_TEXT_SIZE,
			 "this kernel has no Landlock: control's file access is not cut");
		return 0;
	}
	return r < 0 ? err_sys(err, r, "cannot cut file access by Landlock") : 0;
}

int confine_control(const struct sidecar_spec *spec, char *ret_missing, struct err *err)
{
	ret_missing[0] = '\0';
	if (confine_rights(0, err) < 0)
		return err->code;
	if (cut_files(spec, ret_missing, err) < 0)
		return err->code;
	return confine_calls(CONFINE_CONTROL, err);
}
