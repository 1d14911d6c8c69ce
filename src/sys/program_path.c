// SPDX-License-Identifier: Apache-2.0
#include "sys/program_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/text.h"
#include "sys/path.h"

/* @ret is written whether the program is there or not. */
static bool is_in_folder(struct text dir, const char *name, char *ret)
{
	int n = snprintf(ret, PROGRAM_PATH_SIZE, "%.*s/%s", (int)dir.len, dir.ptr, name);
	struct stat st;

	return n < PROGRAM_PATH_SIZE && stat(ret, &st) == 0 && S_ISREG(st.st_mode) &&
	       access(ret, X_OK) == 0;
}

static bool is_roots(const char *path, struct err *err)
{
	CLEAN(path) struct path found = { .fd = -1 };

	return path_open_roots(path, &found, err) == 0;
}

int program_path(const char *name, char *ret, struct err *err)
{
	static const char *const places[] = { "/usr/bin",  "/bin",  "/usr/local/bin",
					      "/usr/sbin", "/sbin", "/usr/local/sbin" };
	struct text rest = text_of(getenv("PATH") ?: ""), dir;
	struct err refused = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (is_in_folder(text_of(places[i]), name, ret))
			return 0;
	while (text_split(&rest, ':', &dir))
		if (dir.len > 0 && dir.ptr[0] == '/' && is_in_folder(dir, name, ret) &&
		    is_roots(ret, refused.code < 0 ? NULL : &refused))
			return 0;
	if (refused.code < 0)
		return err_set(err, -EPERM, "%s", refused.text);
	return err_set(err, -ENOENT, "cannot find %s", name);
}

/* Asking a program for its version would cost a process; the option that was last to
 * come is in its text or isn't. */
static int check_age(const struct program *p, const char *path, struct err *err)
{
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const void *found;
	void *map;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot read '%s'", path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, -errno, "cannot read '%s'", path);
	found = memmem(map, (size_t)st.st_size, p->option, strlen(p->option));
	munmap(map, (size_t)st.st_size);
	if (!found)
		return err_set(err, -ENOSYS, "'%s' is too old; %s or later is needed",
			       path, p->version);
	return 0;
}

int program_find(const struct program *p, char *ret, struct err *err)
{
	struct err why = { 0 };
	int r = program_path(p->name, ret, &why);

	return r < 0 ? err_set(err, r, "%s; install it (%s)", why.text, p->package)
		     : check_age(p, ret, err);
}
