// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/cgroup.h"

/* Where its directory is to be: @where is that, or counts from the root. */
static int place(const char *where, char ret[CGROUP_PATH_MAX], struct err *err)
{
	int r = cgroup_directory("/", ret, err);
	size_t root = r == 0 ? strlen(ret) : 0;

	if (r < 0)
		return r;
	if (where[0] != '/' || root + strlen(where) >= CGROUP_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup", where);
	if (strncmp(where, ret, root) == 0)
		root = 0;
	snprintf(ret + root, CGROUP_PATH_MAX - root, "%s", where);
	return 0;
}

int cgroup_make(const char *where, struct cgroup *ret, bool *ret_made, struct err *err)
{
	char path[CGROUP_PATH_MAX];
	int r = place(where, path, err);

	*ret_made = false;
	if (r < 0 || cgroup_open(where, ret, NULL) == 0)
		return r;
	if (mkdir(path, 0755) < 0)
		return err_sys(err, -errno, "cannot make the cgroup '%.200s'", where);
	r = cgroup_open(where, ret, err);
	if (r < 0)
		rmdir(path);
	*ret_made = r == 0;
	return r;
}
