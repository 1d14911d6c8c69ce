// SPDX-License-Identifier: Apache-2.0
/* What is done with a cgroup, rather than known of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/cgroup.h"

/* ---- make ---- */

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

/* ---- join, kill ---- */

/* What @file of @dir says, or "". */
static void read_file(const char *dir, const char *file, char *ret, size_t size)
{
	char path[CGROUP_PATH_MAX + 32];
	CLEAN(fd) int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, ret, size - 1);
	ret[n > 0 ? n : 0] = '\0';
}

int cgroup_kill(const char *dir, struct err *err)
{
	CLEAN(fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	CLEAN(fd)
	int fd = at < 0 ? -1
			: openat(at, "cgroup.kill", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && write(fd, "1", 1) == 1
		       ? 0
		       : err_sys(err, -errno, "cannot kill what is in '%.200s'", dir);
}

int cgroup_can_be_joined(const char *dir, struct err *err)
{
	char text[256];

	read_file(dir, "cgroup.type", text, sizeof(text));
	if (strcmp(text, "threaded\n") == 0 || strcmp(text, "domain invalid\n") == 0)
		return err_set(err, -EOPNOTSUPP,
			       "no process can be in the cgroup: its type is '%.*s'",
			       (int)strcspn(text, "\n"), text);
	read_file(dir, "cgroup.events", text, sizeof(text));
	if (strstr(text, "frozen 1"))
		return err_set(err, -EBUSY,
			       "the cgroup is frozen: nothing can be "
			       "tested in it");
	return 0;
}
