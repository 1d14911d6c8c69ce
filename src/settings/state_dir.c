// SPDX-License-Identifier: Apache-2.0
#include "settings/state_dir.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "sys/path.h"

/* Something is mounted at its end. */
static bool is_volume(const struct path *p)
{
	CLEAN(path) struct path above = { .fd = -1 };
	struct err ignored = { 0 };
	char name[PATH_MAX];

	if (p->mount_id == 0 ||
	    snprintf(name, sizeof(name), "%s/..", p->name) >= (int)sizeof(name))
		return false;
	return path_open(name, &above, &ignored) == 0 && above.mount_id != 0 &&
	       above.mount_id != p->mount_id;
}

static bool is_own_volume(const char *name)
{
	CLEAN(path) struct path p = { .fd = -1 };
	struct err ignored = { 0 };

	return path_open_owned_way(name, &p, &ignored) == 0 &&
	       (p.st.st_uid == 0 || p.st.st_uid == geteuid()) && is_volume(&p);
}

static int judge(const char *name, bool *ret_shared, struct err *err)
{
	CLEAN(path) struct path made = { .fd = -1 };
	CLEAN(path) struct path owned = { .fd = -1 };
	struct err why = { 0 };

	if (path_open_made(name, &made, &why) < 0)
		return why.code == -ELOOP ? err_set(err, why.code, "%s", why.text) : 0;
	if (path_open_owned(name, &owned, &why) != -EPERM)
		return 0;
	*ret_shared = is_own_volume(name);
	return *ret_shared ? 0 : err_set(err, -EPERM, "%s", why.text);
}

int state_dir_take(struct sidecar_spec *spec, bool *ret_shared, struct err *err)
{
	bool shared = false;
	int r = spec->state_dir ? judge(spec->state_dir, &shared, err) : 0;

	if (r < 0)
		spec->state_dir = NULL;
	if (ret_shared)
		*ret_shared = shared;
	return r;
}
